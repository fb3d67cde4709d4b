/* Time behind an interface: the machine's clocks or a simulation's virtual time.
 * Threads: any. */
#ifndef PENSTOCK_BASE_CLOCK_H
#define PENSTOCK_BASE_CLOCK_H

#include <stdint.h>

#define PS_NS_PER_US UINT64_C(1000)
#define PS_NS_PER_MS UINT64_C(1000000)
#define PS_NS_PER_S UINT64_C(1000000000)
#define PS_NEVER UINT64_MAX

struct ps_clock {
    uint64_t (*now_ns)(struct ps_clock *clock);  /* monotonic, from an arbitrary start */
    uint64_t (*wall_ns)(struct ps_clock *clock); /* since 1970-01-01 UTC */
};

static inline uint64_t ps_clock_now_ns(struct ps_clock *clock)
{
    return clock->now_ns(clock);
}

static inline uint64_t ps_clock_wall_ns(struct ps_clock *clock)
{
    return clock->wall_ns(clock);
}

/* The machine's own clock: CLOCK_MONOTONIC and CLOCK_REALTIME.  Stateless. */
struct ps_clock *ps_clock_real(void);

#endif
