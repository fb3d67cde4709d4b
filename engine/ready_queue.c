/* Ready operations: two lists for FIFO, a pairing heap for priorities.  No operation
 * allocates: the links lie in the blocks. */
#include "engine/ready_queue.h"

static void list_append(struct ps_block_list *list, struct ps_block *block)
{
    block->next = NULL;
    if (list->head == NULL) {
        list->head = block;
    } else {
        list->tail->next = block;
    }
    list->tail = block;
}

static struct ps_block *fifo_pop(struct ps_ready_queue *queue)
{
    struct ps_block_list *list = &queue->main;
    if (queue->late.head != NULL &&
        (list->head == NULL || queue->late.head->ticket < list->head->ticket)) {
        list = &queue->late;
    }
    struct ps_block *block = list->head;
    list->head = block->next;
    return block;
}

static bool goes_before(const struct ps_block *a, const struct ps_block *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->ticket < b->ticket;
}

/* Roots only: the loser becomes the winner's first child. */
static struct ps_block *meld(struct ps_block *a, struct ps_block *b)
{
    if (a == NULL || b == NULL) {
        return a != NULL ? a : b;
    }
    if (!goes_before(a, b)) {
        struct ps_block *swap = a;
        a = b;
        b = swap;
    }
    b->next = a->child;
    a->child = b;
    return a;
}

static struct ps_block *heap_pop(struct ps_ready_queue *queue)
{
    struct ps_block *top = queue->heap;
    struct ps_block *pairs = NULL;
    /* children are melded two by two from the left, then all from the right */
    for (struct ps_block *a = top->child; a != NULL;) {
        struct ps_block *b = a->next;
        struct ps_block *rest = b != NULL ? b->next : NULL;
        a->next = NULL;
        if (b != NULL) {
            b->next = NULL;
        }
        struct ps_block *pair = meld(a, b);
        pair->next = pairs;
        pairs = pair;
        a = rest;
    }
    struct ps_block *root = NULL;
    while (pairs != NULL) {
        struct ps_block *pair = pairs;
        pairs = pair->next;
        pair->next = NULL;
        root = meld(root, pair);
    }
    queue->heap = root;
    return top;
}

void ps_ready_push(struct ps_ready_queue *queue, struct ps_block *block)
{
    queue->count++;
    if (queue->by_priority) {
        block->next = NULL;
        block->child = NULL;
        queue->heap = meld(queue->heap, block);
        return;
    }
    bool late = queue->main.head != NULL && block->ticket < queue->main.head->ticket;
    list_append(late ? &queue->late : &queue->main, block);
}

struct ps_block *ps_ready_pop(struct ps_ready_queue *queue)
{
    if (queue->count == 0) {
        return NULL;
    }
    queue->count--;
    return queue->by_priority ? heap_pop(queue) : fifo_pop(queue);
}
