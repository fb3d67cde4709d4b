/* The heap ordered by (priority, arrival) and the blocking queue. */
#include "base/queue.h"

#include <stdlib.h>

/* ---- heap ---- */

void ps_heap_fini(struct ps_heap *heap)
{
    free(heap->items);
    *heap = (struct ps_heap){0};
}

static bool before(const struct ps_heap_item *a, const struct ps_heap_item *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->order < b->order;
}

static void set_slot(struct ps_heap *heap, size_t i, struct ps_heap_item *item)
{
    heap->items[i] = item;
    item->slot = i + 1;
}

static void sift_up(struct ps_heap *heap, size_t i)
{
    struct ps_heap_item *item = heap->items[i];
    while (i > 0 && before(item, heap->items[(i - 1) / 2])) {
        set_slot(heap, i, heap->items[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    set_slot(heap, i, item);
}

static void sift_down(struct ps_heap *heap, size_t i)
{
    struct ps_heap_item *item = heap->items[i];
    for (size_t child = 2 * i + 1; child < heap->count; child = 2 * i + 1) {
        if (child + 1 < heap->count &&
            before(heap->items[child + 1], heap->items[child])) {
            child++;
        }
        if (!before(heap->items[child], item)) {
            break;
        }
        set_slot(heap, i, heap->items[child]);
        i = child;
    }
    set_slot(heap, i, item);
}

enum ps_status ps_heap_push(struct ps_heap *heap, struct ps_heap_item *item)
{
    if (heap->count == heap->capacity) {
        size_t capacity = heap->capacity == 0 ? 64 : heap->capacity * 2;
        struct ps_heap_item **items = realloc(heap->items, capacity * sizeof(*items));
        if (items == NULL) {
            return PS_ENOMEM;
        }
        heap->items = items;
        heap->capacity = capacity;
    }
    item->order = heap->next_order++;
    heap->items[heap->count++] = item;
    sift_up(heap, heap->count - 1);
    return PS_OK;
}

struct ps_heap_item *ps_heap_peek(const struct ps_heap *heap)
{
    return heap->count == 0 ? NULL : heap->items[0];
}

struct ps_heap_item *ps_heap_pop(struct ps_heap *heap)
{
    struct ps_heap_item *item = ps_heap_peek(heap);
    if (item != NULL) {
        ps_heap_remove(heap, item);
    }
    return item;
}

void ps_heap_remove(struct ps_heap *heap, struct ps_heap_item *item)
{
    if (item->slot == 0) {
        return;
    }
    size_t i = item->slot - 1;
    struct ps_heap_item *last = heap->items[--heap->count];
    item->slot = 0;
    if (last == item) {
        return;
    }
    set_slot(heap, i, last);
    sift_up(heap, i);
    sift_down(heap, last->slot - 1);
}

/* ---- blocking queue ---- */

struct entry {
    struct ps_list link;
    void *item;
    size_t bytes;
};

struct ps_bqueue {
    struct ps_mutex mutex;
    struct ps_cond can_push, can_pop;
    size_t max_items, max_bytes;
    size_t bytes PS_GUARDED_BY(mutex);
    bool closed PS_GUARDED_BY(mutex);
    struct ps_list queued PS_GUARDED_BY(mutex);
    size_t count PS_GUARDED_BY(mutex);
    struct ps_list spare PS_GUARDED_BY(mutex); /* entries for reuse */
};

enum ps_status ps_bqueue_create(size_t max_items, size_t max_bytes,
                                struct ps_bqueue **queue_out)
{
    struct ps_bqueue *queue = calloc(1, sizeof(*queue));
    if (queue == NULL) {
        return PS_ENOMEM;
    }
    ps_mutex_init(&queue->mutex);
    ps_cond_init(&queue->can_push);
    ps_cond_init(&queue->can_pop);
    queue->max_items = max_items;
    queue->max_bytes = max_bytes;
    ps_list_init(&queue->queued);
    ps_list_init(&queue->spare);
    *queue_out = queue;
    return PS_OK;
}

static void free_entries(struct ps_list *list)
{
    for (struct ps_list *link; (link = ps_list_pop_front(list)) != NULL;) {
        free(PS_CONTAINER_OF(link, struct entry, link));
    }
}

void ps_bqueue_destroy(struct ps_bqueue *queue) PS_NO_THREAD_SAFETY
{
    if (queue == NULL) {
        return;
    }
    free_entries(&queue->queued);
    free_entries(&queue->spare);
    ps_cond_fini(&queue->can_pop);
    ps_cond_fini(&queue->can_push);
    ps_mutex_fini(&queue->mutex);
    free(queue);
}

static bool has_room(const struct ps_bqueue *queue, size_t bytes)
    PS_REQUIRES(queue->mutex)
{
    return queue->count == 0 ||
           (queue->count < queue->max_items && bytes <= queue->max_bytes &&
            queue->bytes <= queue->max_bytes - bytes);
}

static struct entry *take_entry(struct ps_bqueue *queue) PS_REQUIRES(queue->mutex)
{
    struct ps_list *link = ps_list_pop_front(&queue->spare);
    return link != NULL ? PS_CONTAINER_OF(link, struct entry, link)
                        : malloc(sizeof(struct entry));
}

enum ps_status ps_bqueue_push(struct ps_bqueue *queue, void *item, size_t bytes)
{
    enum ps_status status = PS_OK;
    ps_mutex_lock(&queue->mutex);
    while (!queue->closed && !has_room(queue, bytes)) {
        ps_cond_wait(&queue->can_push, &queue->mutex);
    }
    struct entry *entry = queue->closed ? NULL : take_entry(queue);
    if (entry == NULL) {
        status = queue->closed ? PS_ECLOSED : PS_ENOMEM;
    } else {
        entry->item = item;
        entry->bytes = bytes;
        ps_list_push_back(&queue->queued, &entry->link);
        queue->count++;
        queue->bytes += bytes;
        ps_cond_signal(&queue->can_pop);
    }
    ps_mutex_unlock(&queue->mutex);
    return status;
}

enum ps_status ps_bqueue_pop(struct ps_bqueue *queue, void **item_out)
{
    enum ps_status status = PS_OK;
    ps_mutex_lock(&queue->mutex);
    while (!queue->closed && queue->count == 0) {
        ps_cond_wait(&queue->can_pop, &queue->mutex);
    }
    struct ps_list *link = ps_list_pop_front(&queue->queued);
    if (link == NULL) {
        status = PS_ECLOSED;
    } else {
        struct entry *entry = PS_CONTAINER_OF(link, struct entry, link);
        *item_out = entry->item;
        queue->count--;
        queue->bytes -= entry->bytes;
        ps_list_push_back(&queue->spare, &entry->link);
        /* All: a waiter with a big item may not fit where the next one does. */
        ps_cond_broadcast(&queue->can_push);
    }
    ps_mutex_unlock(&queue->mutex);
    return status;
}

void ps_bqueue_close(struct ps_bqueue *queue)
{
    ps_mutex_lock(&queue->mutex);
    queue->closed = true;
    ps_cond_broadcast(&queue->can_push);
    ps_cond_broadcast(&queue->can_pop);
    ps_mutex_unlock(&queue->mutex);
}
