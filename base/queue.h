/* Queues: an intrusive list, a heap ordered by (priority, arrival), and a bounded queue
 * of bytes between threads. Threads: ps_list and ps_heap one at a time; ps_bqueue any. */
#ifndef PENSTOCK_BASE_QUEUE_H
#define PENSTOCK_BASE_QUEUE_H

#include "base/status.h"
#include "base/thread.h"

/* Doubly linked, circular; embed ps_list in the items. */
struct ps_list {
    struct ps_list *prev, *next;
};
static inline void ps_list_init(struct ps_list *list)
{
    list->prev = list->next = list;
}
static inline bool ps_list_empty(const struct ps_list *list)
{
    return list->next == list;
}
static inline void ps_list_push_back(struct ps_list *list, struct ps_list *item)
{
    item->prev = list->prev;
    item->next = list;
    list->prev->next = item;
    list->prev = item;
}
static inline void ps_list_remove(struct ps_list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    item->prev = item->next = item;
}
static inline struct ps_list *ps_list_pop_front(struct ps_list *list)
{
    struct ps_list *item = list->next;
    if (item == list) {
        return NULL;
    }
    ps_list_remove(item);
    return item;
}

/* Higher priority first, then first in first out.  Items embed ps_heap_item. */
struct ps_heap_item {
    int64_t priority;
    uint64_t order; /* set by push */
    size_t slot;    /* 1 + index, 0 = not in a heap */
};
struct ps_heap { /* zero-initialised = empty */
    struct ps_heap_item **items;
    size_t count, capacity;
    uint64_t next_order;
};
void ps_heap_fini(struct ps_heap *heap);
PS_MUST_CHECK enum ps_status ps_heap_push(struct ps_heap *heap,
                                          struct ps_heap_item *item);
struct ps_heap_item *ps_heap_peek(const struct ps_heap *heap);
struct ps_heap_item *ps_heap_pop(struct ps_heap *heap);
void ps_heap_remove(struct ps_heap *heap, struct ps_heap_item *item);

/* A blocking queue between threads, bounded in items and bytes; for prefetching readers
 * and writers of files.  Loops use ps_loop_post instead. */
struct ps_bqueue;
PS_MUST_CHECK enum ps_status ps_bqueue_create(size_t max_items, size_t max_bytes,
                                              struct ps_bqueue **queue_out);
void ps_bqueue_destroy(struct ps_bqueue *queue); /* items are the caller's; drain first */
/* Waits for room (one item is always taken by an empty queue).  PS_ECLOSED after close.
 */
PS_MUST_CHECK enum ps_status ps_bqueue_push(struct ps_bqueue *queue, void *item,
                                            size_t bytes);
/* Waits for an item.  PS_ECLOSED when closed and empty. */
PS_MUST_CHECK enum ps_status ps_bqueue_pop(struct ps_bqueue *queue, void **item_out);
void ps_bqueue_close(struct ps_bqueue *queue);

#endif
