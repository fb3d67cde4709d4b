/* Ready operations: two lists for FIFO, a pairing heap for priorities.  No operation
 * allocates: the links lie in the blocks. */
#include "engine/ready_queue.h"

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

struct ps_block *ps_ready_heap_pop(struct ps_ready_queue *queue)
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

void ps_ready_heap_push(struct ps_ready_queue *queue, struct ps_block *block)
{
    block->next = NULL;
    block->child = NULL;
    queue->heap = meld(queue->heap, block);
}
