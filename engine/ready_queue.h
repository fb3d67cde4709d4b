/* The operations of a lane that are ready to run: first in, first out by their pushes, or
 * by priority and then by their pushes.  Intrusive: blocks carry the links.
 *
 * FIFO means the order of pushes, not the order of becoming ready: an operation that
 * becomes ready late goes before younger ones that are queued already.  So `t = f(x);
 * y += t` repeated runs f, +=, f, += and needs one temporary, not as many as were
 * pushed.  Two lists keep that in constant time: 'late' holds those that were older than
 * the whole main list when they came.  Threads: under the engine's lock 'state'. */
#ifndef PENSTOCK_ENGINE_READY_QUEUE_H
#define PENSTOCK_ENGINE_READY_QUEUE_H

#include "engine/engine_ops.h"

struct ps_block_list {
    struct ps_block *head, *tail;
};

struct ps_ready_queue { /* zero-initialised = empty, FIFO */
    struct ps_block_list main, late;
    struct ps_block *heap; /* pairing heap (Fredman et al. 1986) when by_priority */
    size_t count;
    bool by_priority;
};

void ps_ready_heap_push(struct ps_ready_queue *queue, struct ps_block *block);
struct ps_block *ps_ready_heap_pop(struct ps_ready_queue *queue); /* not empty */

static inline void ps_ready_push(struct ps_ready_queue *queue, struct ps_block *block)
{
    queue->count++;
    if (queue->by_priority) {
        ps_ready_heap_push(queue, block);
        return;
    }
    bool late = queue->main.head != NULL && block->ticket < queue->main.head->ticket;
    struct ps_block_list *list = late ? &queue->late : &queue->main;
    block->next = NULL;
    if (list->head == NULL) {
        list->head = block;
    } else {
        list->tail->next = block;
    }
    list->tail = block;
}

/* NULL when empty. */
static inline struct ps_block *ps_ready_pop(struct ps_ready_queue *queue)
{
    if (queue->count == 0) {
        return NULL;
    }
    queue->count--;
    if (queue->by_priority) {
        return ps_ready_heap_pop(queue);
    }
    struct ps_block_list *list = &queue->main;
    if (queue->late.head != NULL &&
        (list->head == NULL || queue->late.head->ticket < list->head->ticket)) {
        list = &queue->late;
    }
    struct ps_block *block = list->head;
    list->head = block->next;
    return block;
}

#endif
