/* The timer heap that both loop drivers share. */
#include "base/loop_heap.h"

#include <stdlib.h>

static bool before(const struct ps_timer *a, const struct ps_timer *b)
{
    return a->deadline_ns != b->deadline_ns ? a->deadline_ns < b->deadline_ns
                                            : a->order < b->order;
}

static void set_slot(struct ps_timers *timers, size_t i, struct ps_timer *timer)
{
    timers->items[i] = timer;
    timer->slot = i + 1;
}

static void sift_up(struct ps_timers *timers, size_t i)
{
    struct ps_timer *timer = timers->items[i];
    while (i > 0 && before(timer, timers->items[(i - 1) / 2])) {
        set_slot(timers, i, timers->items[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    set_slot(timers, i, timer);
}

static void sift_down(struct ps_timers *timers, size_t i)
{
    struct ps_timer *timer = timers->items[i];
    for (size_t child = 2 * i + 1; child < timers->count; child = 2 * i + 1) {
        if (child + 1 < timers->count &&
            before(timers->items[child + 1], timers->items[child])) {
            child++;
        }
        if (!before(timers->items[child], timer)) {
            break;
        }
        set_slot(timers, i, timers->items[child]);
        i = child;
    }
    set_slot(timers, i, timer);
}

void ps_timers_fini(struct ps_timers *timers)
{
    for (size_t i = 0; i < timers->count; i++) {
        timers->items[i]->slot = 0;
    }
    free(timers->items);
    *timers = (struct ps_timers){0};
}

enum ps_status ps_timers_put(struct ps_timers *timers, struct ps_timer *timer,
                             uint64_t deadline_ns)
{
    if (timer->slot == 0 && timers->count == timers->capacity) {
        size_t capacity = timers->capacity == 0 ? 16 : timers->capacity * 2;
        struct ps_timer **items = realloc(timers->items, capacity * sizeof(*items));
        if (items == NULL) {
            return PS_ENOMEM;
        }
        timers->items = items;
        timers->capacity = capacity;
    }
    timer->deadline_ns = deadline_ns;
    timer->order = timers->next_order++;
    if (timer->slot == 0) {
        set_slot(timers, timers->count++, timer);
    }
    sift_up(timers, timer->slot - 1);
    sift_down(timers, timer->slot - 1);
    return PS_OK;
}

void ps_timers_remove(struct ps_timers *timers, struct ps_timer *timer)
{
    if (timer->slot == 0) {
        return;
    }
    size_t i = timer->slot - 1;
    struct ps_timer *last = timers->items[--timers->count];
    timer->slot = 0;
    if (last == timer) {
        return;
    }
    set_slot(timers, i, last);
    sift_up(timers, i);
    sift_down(timers, last->slot - 1);
}

uint64_t ps_timers_next_ns(const struct ps_timers *timers)
{
    return timers->count == 0 ? PS_NEVER : timers->items[0]->deadline_ns;
}

struct ps_timer *ps_timers_pop_due(struct ps_timers *timers, uint64_t now_ns)
{
    if (timers->count == 0 || timers->items[0]->deadline_ns > now_ns) {
        return NULL;
    }
    struct ps_timer *timer = timers->items[0];
    ps_timers_remove(timers, timer);
    return timer;
}
