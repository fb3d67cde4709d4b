/* Event loops: handlers that run to completion, one at a time, on one loop.
 *
 * A loop runs tasks that anyone posts, timers, doorbells and file descriptors.  Server,
 * scheduler, net and kvstore/dist code is handlers on a loop: no locks, no waiting
 * inside. There are two drivers: threads with epoll (ps_thread_driver), and the
 * simulation (base/sim.h), which runs all loops of a whole cluster on one thread in
 * virtual time, with a seeded choice of the next loop to run.  FIFO per loop holds in
 * both.
 *
 * Only a user's call waits: ps_event_wait.  Under the simulation it pumps the world (or,
 * on a simulated program's own stack, yields to it).
 *
 * Threads: "any" or "loop" is said at each call. */
#ifndef PENSTOCK_BASE_LOOP_H
#define PENSTOCK_BASE_LOOP_H

#include "base/clock.h"
#include "base/status.h"
#include "base/util.h"

#include <stdatomic.h>

struct ps_loop;
struct ps_driver;

/* Embedded in its owner; must stay until it has run.  Zero-initialise, then set run and
 * label. */
struct ps_task {
    void (*run)(struct ps_task *task);
    const char *label; /* constant text; part of the simulation's trace */
    struct ps_task *next;
    _Atomic bool queued;
};

struct ps_timer {
    void (*run)(struct ps_timer *timer);
    const char *label;
    struct ps_loop *loop;
    uint64_t deadline_ns;
    uint64_t order; /* equal deadlines fire in the order they were started */
    size_t slot;    /* 1 + index in the loop's heap, 0 = not started */
};

/* Coalesced wake-up: ring it any number of times from any thread, the handler runs at
 * least once after the last ring. */
struct ps_doorbell {
    void (*run)(struct ps_doorbell *bell);
    struct ps_loop *loop;
    struct ps_task task;
    _Atomic bool rung;
};

#define PS_FD_READ 1u
#define PS_FD_WRITE 2u
#define PS_FD_EDGE 4u /* edge-triggered */
struct ps_fd_watch {
    void (*run)(struct ps_fd_watch *watch, unsigned events);
    int fd;
    unsigned events;
    bool watched;
};

/* ---- lifecycle (not on the loop itself) ---- */

/* The driver of the real world: a thread and an epoll set for each loop. */
PS_MUST_CHECK enum ps_status ps_thread_driver_create(struct ps_driver **driver_out);
void ps_driver_destroy(
    struct ps_driver *driver); /* all its loops must be gone; NULL is fine */
struct ps_clock *ps_driver_clock(struct ps_driver *driver);
bool ps_driver_is_simulated(const struct ps_driver *driver);

/* Keeps a borrow of 'driver'; 'name' (constant or outliving) names the thread.
 * Errors: PS_ENOMEM, PS_EIO (no more descriptors). */
PS_MUST_CHECK enum ps_status ps_loop_create(struct ps_driver *driver, const char *name,
                                            struct ps_loop **loop_out);
/* Stopped loops only.  Tasks still queued are dropped without running. */
void ps_loop_destroy(struct ps_loop *loop);
/* Thread driver: starts the loop's own thread.  Simulation: makes the loop eligible. */
PS_MUST_CHECK enum ps_status ps_loop_start(struct ps_loop *loop);
/* Asks the loop to leave once everything already posted has run; returns when it has.
 * Not from the loop itself.  Does nothing on a loop that is not started. */
void ps_loop_stop(struct ps_loop *loop);
/* Instead of start/stop: runs the loop on the calling thread until ps_loop_quit. */
void ps_loop_run(struct ps_loop *loop);
/* Any thread, and the loop itself: the loop leaves after the tasks already posted. */
void ps_loop_quit(struct ps_loop *loop);

/* ---- any thread ---- */
/* A task that is queued already is not queued twice (returns false). */
bool ps_loop_post(struct ps_loop *loop, struct ps_task *task);
bool ps_loop_is_current(const struct ps_loop *loop);
struct ps_driver *ps_loop_driver(struct ps_loop *loop);
uint64_t ps_loop_now_ns(struct ps_loop *loop);
void ps_doorbell_init(struct ps_doorbell *bell, struct ps_loop *loop, const char *label,
                      void (*run)(struct ps_doorbell *bell));
void ps_doorbell_ring(struct ps_doorbell *bell);

/* ---- loop thread only (or while the loop is not running) ---- */
/* (Re)starts the timer 'delay_ns' from now.  Growing the heap may fail: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_timer_start(struct ps_loop *loop, struct ps_timer *timer,
                                            uint64_t delay_ns);
void ps_timer_cancel(struct ps_timer *timer); /* nothing when not started */
/* Errors: PS_EUNSUPPORTED under the simulation, PS_EIO. */
PS_MUST_CHECK enum ps_status ps_loop_watch(struct ps_loop *loop,
                                           struct ps_fd_watch *watch);
void ps_loop_unwatch(struct ps_loop *loop, struct ps_fd_watch *watch);
/* Drops a queued task so that its owner can be freed. */
void ps_loop_forget(struct ps_loop *loop, struct ps_task *task);

/* ---- a user's wait ---- */
/* A latch: set once, waited for by any number of threads, reset by its owner. */
struct ps_event {
    struct ps_driver *driver;
    void *impl; /* the driver's */
    _Atomic bool set;
};
PS_MUST_CHECK enum ps_status ps_event_init(struct ps_event *event,
                                           struct ps_driver *driver);
void ps_event_fini(struct ps_event *event);
void ps_event_set(struct ps_event *event); /* any thread */
void ps_event_reset(struct ps_event *event);
/* 'deadline_ns' on the driver's clock, PS_NEVER allowed only where the caller's own op
 * has a deadline.  Errors: PS_ETIMEDOUT; under the simulation PS_ETIMEDOUT also when
 * nothing is left that could ever set it.  Never call from a loop's handler. */
PS_MUST_CHECK enum ps_status ps_event_wait(struct ps_event *event, uint64_t deadline_ns);
/* Sleeps (virtually under the simulation). */
void ps_driver_sleep(struct ps_driver *driver, uint64_t ns);

#endif
