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

void ps_ready_push(struct ps_ready_queue *queue, struct ps_block *block);
struct ps_block *ps_ready_pop(struct ps_ready_queue *queue); /* NULL when empty */

#endif
