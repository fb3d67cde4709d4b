/* One task and one event. */
#include "base/on_loop.h"

struct errand {
    struct ps_task task;
    struct ps_event done;
    void (*fn)(void *arg);
    void *arg;
};

static void run_errand(struct ps_task *task)
{
    struct errand *errand = PS_CONTAINER_OF(task, struct errand, task);
    errand->fn(errand->arg);
    ps_event_set(&errand->done);
}

enum ps_status ps_on_loop(struct ps_loop *loop, void (*fn)(void *arg), void *arg)
{
    struct ps_driver *driver = ps_loop_driver(loop);
    if (ps_driver_is_simulated(driver) || ps_loop_is_current(loop)) {
        fn(arg);
        return PS_OK;
    }
    struct errand errand = {
        .task = {.run = run_errand, .label = "on_loop"}, .fn = fn, .arg = arg};
    PS_TRY(ps_event_init(&errand.done, driver));
    (void)ps_loop_post(loop, &errand.task);
    /* The loop runs and its handlers do not block, so this ends. */
    while (ps_event_wait(&errand.done, PS_NEVER) != PS_OK) {
    }
    ps_event_fini(&errand.done);
    return PS_OK;
}
