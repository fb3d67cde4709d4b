/* Latches on a futex, for the thread driver. */
#include "base/event_linux.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The futex lies in event->impl.  Setting touches the event's memory for the last time
 * with the exchange of this word: a waiter that saw SET may free the event at once. */
enum { EVENT_CLEAR, EVENT_WAITED_FOR, EVENT_SET };

static _Atomic uint32_t *event_word(struct ps_event *event)
{
    return (_Atomic uint32_t *)(void *)&event->impl;
}

enum ps_status ps_thread_event_init(struct ps_event *event)
{
    atomic_init(event_word(event), EVENT_CLEAR);
    return PS_OK;
}

void ps_thread_event_fini(struct ps_event *event)
{
    (void)event;
}

void ps_thread_event_set(struct ps_event *event)
{
    _Atomic uint32_t *word = event_word(event);
    atomic_store_explicit(&event->set, true, memory_order_release);
    /* acq_rel: what the setter wrote before is seen by who finds SET */
    if (atomic_exchange_explicit(word, EVENT_SET, memory_order_acq_rel) ==
        EVENT_WAITED_FOR) {
        /* May fall on memory that was freed or reused by now: at worst a spurious
         * wake-up, which every futex wait allows for. */
        (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}

void ps_thread_event_reset(struct ps_event *event)
{
    atomic_store_explicit(&event->set, false, memory_order_relaxed);
    atomic_store_explicit(event_word(event), EVENT_CLEAR, memory_order_relaxed);
}

enum ps_status ps_thread_event_wait(struct ps_event *event, uint64_t deadline_ns)
{
    _Atomic uint32_t *word = event_word(event);
    struct timespec at = {.tv_sec = (time_t)(deadline_ns / PS_NS_PER_S),
                          .tv_nsec = (long)(deadline_ns % PS_NS_PER_S)};
    for (;;) {
        uint32_t seen = EVENT_CLEAR;
        if (!atomic_compare_exchange_strong_explicit(word, &seen, EVENT_WAITED_FOR,
                                                     memory_order_acquire,
                                                     memory_order_acquire) &&
            seen == EVENT_SET) {
            return PS_OK;
        }
        /* FUTEX_WAIT_BITSET: its timeout is absolute, on CLOCK_MONOTONIC. */
        long rc =
            syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, EVENT_WAITED_FOR,
                    deadline_ns == PS_NEVER ? NULL : &at, NULL, FUTEX_BITSET_MATCH_ANY);
        if (rc != 0 && errno == ETIMEDOUT) {
            return atomic_load_explicit(word, memory_order_acquire) == EVENT_SET
                       ? PS_OK
                       : PS_ETIMEDOUT;
        }
    }
}
