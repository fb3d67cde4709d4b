/* A loop's timers: a binary heap by (deadline, order of start).  For loop drivers.
 * Threads: the loop's. */
#ifndef PENSTOCK_BASE_LOOP_HEAP_H
#define PENSTOCK_BASE_LOOP_HEAP_H

#include "base/loop.h"

struct ps_timers { /* zero-initialised = empty */
    struct ps_timer **items;
    size_t count, capacity;
    uint64_t next_order;
};

void ps_timers_fini(struct ps_timers *timers); /* timers still in it are forgotten */
/* Inserts, or moves one that is in this heap already.  Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_timers_put(struct ps_timers *timers,
                                           struct ps_timer *timer, uint64_t deadline_ns);
void ps_timers_remove(struct ps_timers *timers, struct ps_timer *timer);
/* The earliest deadline; PS_NEVER when empty. */
uint64_t ps_timers_next_ns(const struct ps_timers *timers);
/* Takes out the earliest one that is due at 'now_ns'; NULL when none is. */
struct ps_timer *ps_timers_pop_due(struct ps_timers *timers, uint64_t now_ns);

#endif
