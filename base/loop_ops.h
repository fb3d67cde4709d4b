/* For implementers of a loop driver: loop_thread_linux.c (threads and epoll) and sim.c.
 */
#ifndef PENSTOCK_BASE_LOOP_OPS_H
#define PENSTOCK_BASE_LOOP_OPS_H

#include "base/loop.h"

struct ps_driver_ops {
    const char *name;
    void (*destroy)(struct ps_driver *driver);
    enum ps_status (*loop_create)(struct ps_driver *driver, const char *name,
                                  struct ps_loop **loop_out);
    void (*loop_destroy)(struct ps_loop *loop);
    enum ps_status (*loop_start)(struct ps_loop *loop);
    void (*loop_stop)(struct ps_loop *loop);
    void (*loop_run)(struct ps_loop *loop);
    void (*loop_quit)(struct ps_loop *loop);
    bool (*loop_post)(struct ps_loop *loop, struct ps_task *task);
    bool (*loop_is_current)(const struct ps_loop *loop);
    enum ps_status (*timer_start)(struct ps_loop *loop, struct ps_timer *timer,
                                  uint64_t delay_ns);
    void (*timer_cancel)(struct ps_timer *timer);
    enum ps_status (*watch)(struct ps_loop *loop, struct ps_fd_watch *watch);
    void (*unwatch)(struct ps_loop *loop, struct ps_fd_watch *watch);
    void (*forget)(struct ps_loop *loop, struct ps_task *task);
    enum ps_status (*event_init)(struct ps_event *event);
    void (*event_fini)(struct ps_event *event);
    void (*event_set)(struct ps_event *event);
    void (*event_reset)(struct ps_event *event);
    enum ps_status (*event_wait)(struct ps_event *event, uint64_t deadline_ns);
    void (*sleep)(struct ps_driver *driver, uint64_t ns);
};

/* First member of each driver. */
struct ps_driver {
    const struct ps_driver_ops *ops;
    struct ps_clock *clock;
    bool simulated;
};

/* First member of each loop. */
struct ps_loop {
    struct ps_driver *driver;
    const char *name;
};

#endif
