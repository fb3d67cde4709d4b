/* The conformance suite of loop drivers, run over each of them: threads with epoll, and
 * the simulation.  What only real threads can do (posts from other threads, descriptors)
 * is left out where the driver is simulated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/loop.h"
#include "base/sim.h"
#include "base/thread.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIMIT_NS (10 * PS_NS_PER_S)

struct world {
    struct ps_sim *sim; /* NULL: the thread driver */
    struct ps_driver *driver;
    struct ps_loop *loop;
};

static bool run_simulated; /* chosen by main, one group after the other */

static int setup(void **state)
{
    static struct world world;
    memset(&world, 0, sizeof(world));
    if (run_simulated) {
        assert_int_equal(ps_sim_create(7, &world.sim), PS_OK);
        world.driver = ps_sim_driver(world.sim);
    } else {
        assert_int_equal(ps_thread_driver_create(&world.driver), PS_OK);
    }
    assert_int_equal(ps_loop_create(world.driver, "suite", &world.loop), PS_OK);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    ps_loop_stop(world->loop);
    ps_loop_destroy(world->loop);
    ps_driver_destroy(world->driver);
    ps_sim_destroy(world->sim);
    return 0;
}

static uint64_t limit(struct world *world)
{
    return ps_clock_now_ns(ps_driver_clock(world->driver)) + LIMIT_NS;
}

static void wait_for(struct world *world, struct ps_event *event)
{
    assert_int_equal(ps_event_wait(event, limit(world)), PS_OK);
}

/* A task that notes its number; the last one sets the event. */
struct noted {
    struct ps_task task;
    int number;
    int *notes;
    _Atomic int *count;
    int last;
    struct ps_event *done;
};

static void run_noted(struct ps_task *task)
{
    struct noted *noted = PS_CONTAINER_OF(task, struct noted, task);
    int i = atomic_fetch_add(noted->count, 1);
    noted->notes[i] = noted->number;
    if (i + 1 == noted->last) {
        ps_event_set(noted->done);
    }
}

static void tasks_run_in_the_order_of_their_posts(void **state)
{
    enum { N = 1000 };
    struct world *world = *state;
    static struct noted tasks[N];
    static int notes[N];
    _Atomic int count = 0;
    struct ps_event done;
    assert_int_equal(ps_event_init(&done, world->driver), PS_OK);
    for (int i = 0; i < N; i++) {
        tasks[i] = (struct noted){
            {.run = run_noted, .label = "noted"}, i, notes, &count, N, &done};
        assert_true(ps_loop_post(world->loop, &tasks[i].task));
        assert_int_equal(count, 0);
    }
    assert_int_equal(ps_loop_start(world->loop), PS_OK);
    wait_for(world, &done);
    for (int i = 0; i < N; i++) {
        assert_int_equal(notes[i], i);
    }
    ps_event_fini(&done);
}

static void a_queued_task_is_not_queued_twice(void **state)
{
    struct world *world = *state;
    int notes[4] = {0};
    _Atomic int count = 0;
    struct ps_event done;
    assert_int_equal(ps_event_init(&done, world->driver), PS_OK);
    struct noted noted = {
        {.run = run_noted, .label = "noted"}, 5, notes, &count, 1, &done};
    assert_true(ps_loop_post(world->loop, &noted.task));
    assert_false(ps_loop_post(world->loop, &noted.task));
    assert_int_equal(ps_loop_start(world->loop), PS_OK);
    wait_for(world, &done);
    ps_loop_stop(world->loop);
    assert_int_equal(count, 1);
    ps_event_fini(&done);
}

struct repeating {
    struct ps_task task;
    struct ps_loop *loop;
    int left;
    struct ps_event *done;
};

static void run_repeating(struct ps_task *task)
{
    struct repeating *repeating = PS_CONTAINER_OF(task, struct repeating, task);
    assert_true(ps_loop_is_current(repeating->loop));
    if (--repeating->left == 0) {
        ps_event_set(repeating->done);
    } else {
        assert_true(ps_loop_post(repeating->loop, task));
    }
}

static void a_task_may_post_itself_again(void **state)
{
    struct world *world = *state;
    struct ps_event done;
    assert_int_equal(ps_event_init(&done, world->driver), PS_OK);
    struct repeating repeating = {
        {.run = run_repeating, .label = "again"}, world->loop, 2000, &done};
    assert_false(ps_loop_is_current(world->loop));
    assert_int_equal(ps_loop_start(world->loop), PS_OK);
    assert_true(ps_loop_post(world->loop, &repeating.task));
    wait_for(world, &done);
    assert_int_equal(repeating.left, 0);
    ps_event_fini(&done);
}

static void stop_runs_what_was_posted_before(void **state)
{
    enum { N = 500 };
    struct world *world = *state;
    static struct noted tasks[N];
    static int notes[N];
    _Atomic int count = 0;
    struct ps_event done;
    assert_int_equal(ps_event_init(&done, world->driver), PS_OK);
    assert_int_equal(ps_loop_start(world->loop), PS_OK);
    for (int i = 0; i < N; i++) {
        tasks[i] = (struct noted){
            {.run = run_noted, .label = "noted"}, i, notes, &count, N, &done};
        assert_true(ps_loop_post(world->loop, &tasks[i].task));
    }
    ps_loop_stop(world->loop);
    assert_int_equal(count, N);
    /* and stays away */
    assert_true(ps_loop_post(world->loop, &tasks[0].task));
    ps_driver_sleep(world->driver, PS_NS_PER_MS);
    assert_int_equal(count, N);
    ps_loop_forget(world->loop, &tasks[0].task);
    ps_event_fini(&done);
}

static void a_loop_may_be_started_again(void **state)
{
    struct world *world = *state;
    int notes[4];
    _Atomic int count = 0;
    struct ps_event done;
    assert_int_equal(ps_event_init(&done, world->driver), PS_OK);
    struct noted noted = {
        {.run = run_noted, .label = "noted"}, 1, notes, &count, 3, &done};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ps_loop_start(world->loop), PS_OK);
        assert_true(ps_loop_post(world->loop, &noted.task));
        ps_loop_quit(world->loop);
        ps_loop_stop(world->loop);
        ps_loop_stop(world->loop);
        assert_int_equal(count, i + 1);
    }
    ps_event_fini(&done);
}

static void forgotten_tasks_do_not_run(void **state)
{
    struct world *world = *state;
    int notes[4];
    _Atomic int count = 0;
    struct ps_event done;
    assert_int_equal(ps_event_init(&done, world->driver), PS_OK);
    struct noted tasks[3];
    for (int i = 0; i < 3; i++) {
        tasks[i] = (struct noted){
            {.run = run_noted, .label = "noted"}, i, notes, &count, 2, &done};
        assert_true(ps_loop_post(world->loop, &tasks[i].task));
    }
    ps_loop_forget(world->loop, &tasks[1].task);
    ps_loop_forget(world->loop, &tasks[1].task);
    assert_int_equal(ps_loop_start(world->loop), PS_OK);
    wait_for(world, &done);
    assert_int_equal(notes[0], 0);
    assert_int_equal(notes[1], 2);
    /* the last in the queue, too: the next post must find the end */
    ps_loop_stop(world->loop);
    assert_true(ps_loop_post(world->loop, &tasks[0].task));
    assert_true(ps_loop_post(world->loop, &tasks[1].task));
    ps_loop_forget(world->loop, &tasks[1].task);
    assert_true(ps_loop_post(world->loop, &tasks[2].task));
    assert_int_equal(ps_loop_start(world->loop), PS_OK);
    ps_loop_stop(world->loop);
    assert_int_equal(count, 4);
    assert_int_equal(notes[2], 0);
    assert_int_equal(notes[3], 2);
    ps_event_fini(&done);
}

struct timed {
    struct ps_timer timer;
    int number;
    int *notes, *count;
    int last;
    struct ps_event *done;
};

static void run_timed(struct ps_timer *timer)
{
    struct timed *timed = PS_CONTAINER_OF(timer, struct timed, timer);
    assert_int_equal(timer->slot, 0);
    assert_true(ps_loop_now_ns(timer->loop) >= timer->deadline_ns);
    timed->notes[(*timed->count)++] = timed->number;
    if (*timed->count == timed->last) {
        ps_event_set(timed->done);
    }
}

static void timers_fire_by_deadline_then_in_order_of_start(void **state)
{
    struct world *world = *state;
    int notes[8];
    int count = 0;
    struct ps_event done;
    assert_int_equal(ps_event_init(&done, world->driver), PS_OK);
    struct timed timers[6];
    static const uint64_t delays_ms[] = {30, 10, 20, 10, 0, 25};
    for (int i = 0; i < 6; i++) {
        timers[i] = (struct timed){
            {.run = run_timed, .label = "timed"}, i, notes, &count, 4, &done};
        assert_int_equal(
            ps_timer_start(world->loop, &timers[i].timer, delays_ms[i] * PS_NS_PER_MS),
            PS_OK);
    }
    ps_timer_cancel(&timers[5].timer);
    ps_timer_cancel(&timers[5].timer);
    /* restarted: moves behind */
    assert_int_equal(ps_timer_start(world->loop, &timers[2].timer, 60 * PS_NS_PER_S),
                     PS_OK);
    assert_int_equal(ps_loop_start(world->loop), PS_OK);
    wait_for(world, &done);
    ps_loop_stop(world->loop);
    static const int expected[] = {4, 1, 3, 0};
    assert_int_equal(count, 4);
    assert_memory_equal(notes, expected, sizeof(expected));
    ps_timer_cancel(&timers[2].timer);
    ps_event_fini(&done);
}

struct ringing {
    struct ps_doorbell bell;
    int runs;
    struct ps_event done;
};

static void run_ringing(struct ps_doorbell *bell)
{
    struct ringing *ringing = PS_CONTAINER_OF(bell, struct ringing, bell);
    if (++ringing->runs == 1) {
        ps_doorbell_ring(bell); /* a ring during the handler: it runs once more */
        ps_doorbell_ring(bell);
    } else {
        ps_event_set(&ringing->done);
    }
}

static void doorbells_coalesce_and_lose_no_ring(void **state)
{
    struct world *world = *state;
    struct ringing ringing = {.runs = 0};
    assert_int_equal(ps_event_init(&ringing.done, world->driver), PS_OK);
    ps_doorbell_init(&ringing.bell, world->loop, "bell", run_ringing);
    for (int i = 0; i < 100; i++) {
        ps_doorbell_ring(&ringing.bell);
    }
    assert_int_equal(ps_loop_start(world->loop), PS_OK);
    wait_for(world, &ringing.done);
    ps_loop_stop(world->loop);
    assert_int_equal(ringing.runs, 2);
    ps_event_fini(&ringing.done);
}

static void an_event_that_nobody_sets_times_out(void **state)
{
    struct world *world = *state;
    struct ps_event event;
    struct ps_clock *clock = ps_driver_clock(world->driver);
    assert_int_equal(ps_event_init(&event, world->driver), PS_OK);
    uint64_t deadline = ps_clock_now_ns(clock) + 5 * PS_NS_PER_MS;
    assert_int_equal(ps_event_wait(&event, deadline), PS_ETIMEDOUT);
    assert_true(ps_clock_now_ns(clock) >= deadline);
    ps_event_set(&event);
    assert_int_equal(ps_event_wait(&event, 0), PS_OK);
    assert_int_equal(ps_event_wait(&event, PS_NEVER), PS_OK);
    ps_event_reset(&event);
    assert_int_equal(ps_event_wait(&event, 1), PS_ETIMEDOUT);
    ps_event_fini(&event);
}

static void sleeping_passes_time(void **state)
{
    struct world *world = *state;
    struct ps_clock *clock = ps_driver_clock(world->driver);
    uint64_t before = ps_clock_now_ns(clock);
    ps_driver_sleep(world->driver, 3 * PS_NS_PER_MS);
    assert_true(ps_clock_now_ns(clock) - before >= 3 * PS_NS_PER_MS);
    assert_true(ps_clock_wall_ns(clock) > UINT64_C(1700000000) * PS_NS_PER_S);
}

struct quitter {
    struct ps_task task;
    struct ps_loop *loop;
};

static void run_quitter(struct ps_task *task)
{
    ps_loop_quit(PS_CONTAINER_OF(task, struct quitter, task)->loop);
}

static void a_loop_runs_on_the_callers_thread_until_quit(void **state)
{
    struct world *world = *state;
    struct quitter quitter = {{.run = run_quitter, .label = "quitter"}, world->loop};
    assert_true(ps_loop_post(world->loop, &quitter.task));
    ps_loop_run(world->loop);
    assert_false(ps_loop_is_current(world->loop));
}

/* ---- real threads only ---- */

struct poster {
    struct ps_thread thread;
    struct ps_loop *loop;
    struct noted *tasks;
    int count;
};

static void post_all(void *arg)
{
    struct poster *poster = arg;
    for (int i = 0; i < poster->count; i++) {
        while (!ps_loop_post(poster->loop, &poster->tasks[i].task)) {
        }
    }
}

static void posts_of_many_threads_all_run_and_keep_each_threads_order(void **state)
{
    enum { THREADS = 4, EACH = 2000 };
    struct world *world = *state;
    static struct noted tasks[THREADS][EACH];
    static int notes[THREADS * EACH];
    static struct poster posters[THREADS];
    _Atomic int count = 0;
    struct ps_event done;
    if (world->sim != NULL) {
        skip();
    }
    assert_int_equal(ps_event_init(&done, world->driver), PS_OK);
    assert_int_equal(ps_loop_start(world->loop), PS_OK);
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < EACH; i++) {
            tasks[t][i] = (struct noted){{.run = run_noted, .label = "noted"},
                                         t * EACH + i,
                                         notes,
                                         &count,
                                         THREADS * EACH,
                                         &done};
        }
        posters[t] =
            (struct poster){.loop = world->loop, .tasks = tasks[t], .count = EACH};
        assert_int_equal(
            ps_thread_start(&posters[t].thread, "poster", post_all, &posters[t]), PS_OK);
    }
    wait_for(world, &done);
    for (int t = 0; t < THREADS; t++) {
        ps_thread_join(&posters[t].thread);
    }
    int next[THREADS] = {0};
    for (int i = 0; i < THREADS * EACH; i++) {
        int thread = notes[i] / EACH;
        assert_int_equal(notes[i] % EACH, next[thread]++);
    }
    ps_event_fini(&done);
}

struct waiter {
    struct ps_thread thread;
    struct ps_event *event;
    enum ps_status status;
};

static void wait_once(void *arg)
{
    struct waiter *waiter = arg;
    waiter->status = ps_event_wait(waiter->event, PS_NEVER);
}

static void an_event_wakes_all_who_wait(void **state)
{
    struct world *world = *state;
    struct waiter waiters[4];
    struct ps_event event;
    if (world->sim != NULL) {
        skip();
    }
    for (int round = 0; round < 50; round++) {
        assert_int_equal(ps_event_init(&event, world->driver), PS_OK);
        for (int i = 0; i < 4; i++) {
            waiters[i] = (struct waiter){.event = &event, .status = PS_EINTERNAL};
            assert_int_equal(
                ps_thread_start(&waiters[i].thread, "waiter", wait_once, &waiters[i]),
                PS_OK);
        }
        ps_event_set(&event);
        for (int i = 0; i < 4; i++) {
            ps_thread_join(&waiters[i].thread);
            assert_int_equal(waiters[i].status, PS_OK);
        }
        ps_event_fini(&event);
    }
}

struct echo {
    struct ps_fd_watch watch;
    struct ps_loop *loop;
    int bytes;
    struct ps_event done;
};

static void run_echo(struct ps_fd_watch *watch, unsigned events)
{
    struct echo *echo = PS_CONTAINER_OF(watch, struct echo, watch);
    char data[16];
    assert_true((events & PS_FD_READ) != 0);
    ssize_t n = read(watch->fd, data, sizeof(data));
    assert_true(n >= 0);
    if (n == 0) {
        ps_loop_unwatch(echo->loop, watch);
        ps_event_set(&echo->done);
    } else {
        echo->bytes += (int)n;
    }
}

static void descriptors_are_watched(void **state)
{
    struct world *world = *state;
    struct echo echo = {.watch = {.run = run_echo, .events = PS_FD_READ},
                        .loop = world->loop};
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    echo.watch.fd = fds[0];
    if (world->sim != NULL) {
        assert_int_equal(ps_loop_watch(world->loop, &echo.watch), PS_EUNSUPPORTED);
    } else {
        assert_int_equal(ps_event_init(&echo.done, world->driver), PS_OK);
        assert_int_equal(ps_loop_watch(world->loop, &echo.watch), PS_OK);
        assert_int_equal(ps_loop_start(world->loop), PS_OK);
        assert_int_equal(write(fds[1], "hello", 5), 5);
        assert_int_equal(shutdown(fds[1], SHUT_WR), 0);
        wait_for(world, &echo.done);
        ps_loop_stop(world->loop);
        assert_int_equal(echo.bytes, 5);
        assert_false(echo.watch.watched);
        ps_event_fini(&echo.done);
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static int run_group(const char *name)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(tasks_run_in_the_order_of_their_posts),
        CASE(a_queued_task_is_not_queued_twice),
        CASE(a_task_may_post_itself_again),
        CASE(stop_runs_what_was_posted_before),
        CASE(a_loop_may_be_started_again),
        CASE(forgotten_tasks_do_not_run),
        CASE(timers_fire_by_deadline_then_in_order_of_start),
        CASE(doorbells_coalesce_and_lose_no_ring),
        CASE(an_event_that_nobody_sets_times_out),
        CASE(sleeping_passes_time),
        CASE(a_loop_runs_on_the_callers_thread_until_quit),
        CASE(posts_of_many_threads_all_run_and_keep_each_threads_order),
        CASE(an_event_wakes_all_who_wait),
        CASE(descriptors_are_watched),
    };
#undef CASE
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    run_simulated = false;
    int failed = run_group("loop: thread driver");
    run_simulated = true;
    failed += run_group("loop: simulation");
    return failed == 0 ? 0 : 1;
}
