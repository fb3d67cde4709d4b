/* The driver-independent part of loops: dispatch, doorbells, events. */
#include "base/loop.h"

#include "base/loop_ops.h"

void ps_driver_destroy(struct ps_driver *driver)
{
    if (driver != NULL) {
        driver->ops->destroy(driver);
    }
}

struct ps_clock *ps_driver_clock(struct ps_driver *driver)
{
    return driver->clock;
}

bool ps_driver_is_simulated(const struct ps_driver *driver)
{
    return driver->simulated;
}

enum ps_status ps_loop_create(struct ps_driver *driver, const char *name,
                              struct ps_loop **loop_out)
{
    return driver->ops->loop_create(driver, name, loop_out);
}

void ps_loop_destroy(struct ps_loop *loop)
{
    if (loop != NULL) {
        loop->driver->ops->loop_destroy(loop);
    }
}

enum ps_status ps_loop_start(struct ps_loop *loop)
{
    return loop->driver->ops->loop_start(loop);
}

void ps_loop_stop(struct ps_loop *loop)
{
    if (loop != NULL) {
        loop->driver->ops->loop_stop(loop);
    }
}

void ps_loop_run(struct ps_loop *loop)
{
    loop->driver->ops->loop_run(loop);
}

void ps_loop_quit(struct ps_loop *loop)
{
    loop->driver->ops->loop_quit(loop);
}

bool ps_loop_post(struct ps_loop *loop, struct ps_task *task)
{
    return loop->driver->ops->loop_post(loop, task);
}

bool ps_loop_is_current(const struct ps_loop *loop)
{
    return loop->driver->ops->loop_is_current(loop);
}

struct ps_driver *ps_loop_driver(struct ps_loop *loop)
{
    return loop->driver;
}

uint64_t ps_loop_now_ns(struct ps_loop *loop)
{
    return ps_clock_now_ns(loop->driver->clock);
}

static void doorbell_run(struct ps_task *task)
{
    struct ps_doorbell *bell = PS_CONTAINER_OF(task, struct ps_doorbell, task);
    /* Before the handler, so that a ring during it runs it again.  acq_rel: the handler
     * sees everything that was written before the rings it answers. */
    (void)atomic_exchange_explicit(&bell->rung, false, memory_order_acq_rel);
    bell->run(bell);
}

void ps_doorbell_init(struct ps_doorbell *bell, struct ps_loop *loop, const char *label,
                      void (*run)(struct ps_doorbell *bell))
{
    *bell = (struct ps_doorbell){
        .run = run, .loop = loop, .task = {.run = doorbell_run, .label = label}};
}

void ps_doorbell_ring(struct ps_doorbell *bell)
{
    if (!atomic_exchange_explicit(&bell->rung, true, memory_order_acq_rel)) {
        (void)ps_loop_post(bell->loop, &bell->task);
    }
}

enum ps_status ps_timer_start(struct ps_loop *loop, struct ps_timer *timer,
                              uint64_t delay_ns)
{
    return loop->driver->ops->timer_start(loop, timer, delay_ns);
}

void ps_timer_cancel(struct ps_timer *timer)
{
    if (timer->slot != 0) {
        timer->loop->driver->ops->timer_cancel(timer);
    }
}

enum ps_status ps_loop_watch(struct ps_loop *loop, struct ps_fd_watch *watch)
{
    return loop->driver->ops->watch(loop, watch);
}

void ps_loop_unwatch(struct ps_loop *loop, struct ps_fd_watch *watch)
{
    if (watch->watched) {
        loop->driver->ops->unwatch(loop, watch);
    }
}

void ps_loop_forget(struct ps_loop *loop, struct ps_task *task)
{
    if (atomic_load_explicit(&task->queued, memory_order_acquire)) {
        loop->driver->ops->forget(loop, task);
    }
}

enum ps_status ps_event_init(struct ps_event *event, struct ps_driver *driver)
{
    *event = (struct ps_event){.driver = driver};
    return driver->ops->event_init(event);
}

void ps_event_fini(struct ps_event *event)
{
    if (event->driver != NULL) {
        event->driver->ops->event_fini(event);
        event->driver = NULL;
    }
}

void ps_event_set(struct ps_event *event)
{
    event->driver->ops->event_set(event);
}

void ps_event_reset(struct ps_event *event)
{
    event->driver->ops->event_reset(event);
}

enum ps_status ps_event_wait(struct ps_event *event, uint64_t deadline_ns)
{
    return event->driver->ops->event_wait(event, deadline_ns);
}

void ps_driver_sleep(struct ps_driver *driver, uint64_t ns)
{
    driver->ops->sleep(driver, ns);
}
