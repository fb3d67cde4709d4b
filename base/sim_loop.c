/* The loop driver of the simulation.  One thread, so queues are plain lists. */
#include "base/sim_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct ps_sim_loop *loop_of(const struct ps_loop *loop)
{
    return (struct ps_sim_loop *)(uintptr_t)loop;
}

static struct ps_sim *sim_of(const struct ps_driver *driver)
{
    return PS_CONTAINER_OF((uintptr_t)driver, struct ps_sim, driver);
}

/* ---- steps ---- */

static bool is_killed(const struct ps_sim_loop *loop)
{
    return loop->node != NULL && loop->node->killed;
}

bool ps_sim_loop_can_run(const struct ps_sim *sim, const struct ps_sim_loop *loop)
{
    return loop->started && !loop->busy && !is_killed(loop) &&
           (loop->head != NULL || ps_timers_next_ns(&loop->timers) <= sim->now_ns);
}

static struct ps_task *pop_task(struct ps_sim_loop *loop)
{
    struct ps_task *task = loop->head;
    loop->head = task->next;
    if (loop->head == NULL) {
        loop->tail = &loop->head;
    }
    atomic_store_explicit(&task->queued, false, memory_order_relaxed);
    return task;
}

void ps_sim_loop_step(struct ps_sim *sim, struct ps_sim_loop *loop)
{
    struct ps_timer *timer = ps_timers_pop_due(&loop->timers, sim->now_ns);
    struct ps_task *task = timer == NULL ? pop_task(loop) : NULL;
    const char *label = timer == NULL ? task->label : timer->label;
    const char *node = loop->node == NULL ? "" : loop->node->name;
    ps_sim_trace(sim, label == NULL ? "" : label, ps_hash_bytes(node, strlen(node)),
                 ps_hash_bytes(loop->base.name, strlen(loop->base.name)));
    loop->busy = true;
    sim->current_loop = loop;
    if (timer != NULL) {
        timer->run(timer);
    } else {
        task->run(task);
    }
    sim->current_loop = NULL;
    loop->busy = false;
    struct ps_sim_program *parked = loop->parked;
    if (parked != NULL) {
        /* The handler waited, and others step meanwhile: this stack has done its work. */
        loop->parked = NULL;
        parked->ended = true;
        sim->running = parked->resumer;
        ps_fiber_switch(parked->fiber, parked->resumer, true);
    }
}

static void run_quit(struct ps_task *task)
{
    struct ps_sim_loop *loop = PS_CONTAINER_OF(task, struct ps_sim_loop, quit_task);
    loop->started = false;
    atomic_store_explicit(&loop->left, true, memory_order_relaxed);
}

/* ---- lifecycle ---- */

static enum ps_status sim_loop_create(struct ps_driver *driver, const char *name,
                                      struct ps_loop **loop_out)
{
    struct ps_sim *sim = sim_of(driver);
    struct ps_sim_loop *loop = sim->failed ? NULL : calloc(1, sizeof(*loop));
    if (loop == NULL) {
        return PS_ENOMEM;
    }
    loop->base.driver = driver;
    loop->base.name = name;
    loop->node = ps_sim_owner(sim);
    loop->tail = &loop->head;
    loop->quit_task = (struct ps_task){.run = run_quit, .label = "quit"};
    ps_list_push_back(&sim->loops, &loop->link);
    *loop_out = &loop->base;
    return PS_OK;
}

static void sim_loop_destroy(struct ps_loop *base)
{
    struct ps_sim_loop *loop = loop_of(base);
    assert(!loop->started || is_killed(loop));
    while (loop->head != NULL) {
        (void)pop_task(loop);
    }
    ps_timers_fini(&loop->timers);
    ps_list_remove(&loop->link);
    free(loop);
}

static enum ps_status sim_loop_start(struct ps_loop *base)
{
    struct ps_sim_loop *loop = loop_of(base);
    loop->started = true;
    atomic_store_explicit(&loop->left, false, memory_order_relaxed);
    return PS_OK;
}

static bool sim_post(struct ps_loop *base, struct ps_task *task)
{
    struct ps_sim_loop *loop = loop_of(base);
    if (atomic_exchange_explicit(&task->queued, true, memory_order_relaxed)) {
        return false;
    }
    task->next = NULL;
    *loop->tail = task;
    loop->tail = &task->next;
    return true;
}

static void sim_loop_quit(struct ps_loop *base)
{
    (void)sim_post(base, &loop_of(base)->quit_task);
}

static void sim_forget(struct ps_loop *base, struct ps_task *task)
{
    struct ps_sim_loop *loop = loop_of(base);
    for (struct ps_task **link = &loop->head; *link != NULL; link = &(*link)->next) {
        if (*link == task) {
            *link = task->next;
            if (*link == NULL) {
                loop->tail = link;
            }
            atomic_store_explicit(&task->queued, false, memory_order_relaxed);
            return;
        }
    }
}

/* Until the loop has left; at once when its node was killed. */
static void wait_until_left(struct ps_sim_loop *loop)
{
    if (!is_killed(loop)) {
        enum ps_status status =
            ps_sim_wait(sim_of(loop->base.driver), &loop->left, PS_NEVER);
        assert(status == PS_OK || is_killed(loop));
        (void)status;
    }
    loop->started = false;
    sim_forget(&loop->base, &loop->quit_task);
}

static void sim_loop_stop(struct ps_loop *base)
{
    struct ps_sim_loop *loop = loop_of(base);
    if (!loop->started) {
        return;
    }
    assert(!loop->busy || is_killed(loop));
    sim_loop_quit(base);
    wait_until_left(loop);
}

static void sim_loop_run(struct ps_loop *base)
{
    if (sim_loop_start(base) == PS_OK) {
        wait_until_left(loop_of(base));
    }
}

static bool sim_is_current(const struct ps_loop *base)
{
    const struct ps_sim *sim = sim_of(base->driver);
    return sim->current_loop == loop_of(base);
}

/* ---- timers, descriptors ---- */

static enum ps_status sim_timer_start(struct ps_loop *base, struct ps_timer *timer,
                                      uint64_t delay_ns)
{
    uint64_t deadline;
    if (__builtin_add_overflow(sim_of(base->driver)->now_ns, delay_ns, &deadline)) {
        deadline = PS_NEVER;
    }
    PS_TRY(ps_timers_put(&loop_of(base)->timers, timer, deadline));
    timer->loop = base;
    return PS_OK;
}

static void sim_timer_cancel(struct ps_timer *timer)
{
    ps_timers_remove(&loop_of(timer->loop)->timers, timer);
}

static enum ps_status sim_watch(struct ps_loop *loop, struct ps_fd_watch *watch)
{
    (void)loop;
    (void)watch;
    return PS_EUNSUPPORTED;
}

static void sim_unwatch(struct ps_loop *loop, struct ps_fd_watch *watch)
{
    (void)loop;
    (void)watch;
}

/* ---- events ---- */

static enum ps_status sim_event_init(struct ps_event *event)
{
    (void)event;
    return PS_OK;
}

static void sim_event_fini(struct ps_event *event)
{
    (void)event;
}

static void sim_event_set(struct ps_event *event)
{
    atomic_store_explicit(&event->set, true, memory_order_release);
}

static void sim_event_reset(struct ps_event *event)
{
    atomic_store_explicit(&event->set, false, memory_order_relaxed);
}

static enum ps_status sim_event_wait(struct ps_event *event, uint64_t deadline_ns)
{
    return ps_sim_wait(sim_of(event->driver), &event->set, deadline_ns);
}

static void sim_sleep(struct ps_driver *driver, uint64_t ns)
{
    struct ps_sim *sim = sim_of(driver);
    uint64_t deadline;
    /* At least 1 ns: a sleep of 0 lets others run, as a yield does. */
    if (__builtin_add_overflow(sim->now_ns, ns == 0 ? 1 : ns, &deadline)) {
        deadline = PS_NEVER;
    }
    static const _Atomic bool never = false;
    enum ps_status status = ps_sim_wait(sim, &never, deadline);
    (void)status; /* always the deadline */
}

static void sim_driver_destroy(struct ps_driver *driver)
{
    (void)driver; /* belongs to its ps_sim */
}

const struct ps_driver_ops ps_sim_driver_ops = {
    .name = "sim",
    .destroy = sim_driver_destroy,
    .loop_create = sim_loop_create,
    .loop_destroy = sim_loop_destroy,
    .loop_start = sim_loop_start,
    .loop_stop = sim_loop_stop,
    .loop_run = sim_loop_run,
    .loop_quit = sim_loop_quit,
    .loop_post = sim_post,
    .loop_is_current = sim_is_current,
    .timer_start = sim_timer_start,
    .timer_cancel = sim_timer_cancel,
    .watch = sim_watch,
    .unwatch = sim_unwatch,
    .forget = sim_forget,
    .event_init = sim_event_init,
    .event_fini = sim_event_fini,
    .event_set = sim_event_set,
    .event_reset = sim_event_reset,
    .event_wait = sim_event_wait,
    .sleep = sim_sleep,
};
