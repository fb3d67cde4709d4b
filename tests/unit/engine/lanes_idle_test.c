/* Threads that have nothing to do cost nothing: an idle engine uses no processor time,
 * nor do operations that sleep; a thread that looks for more work before it sleeps does
 * so only while a core is free, and gives up looking where it finds nothing; one piece of
 * work wakes one thread.  Time is processor time of threads, never a wall clock's. */
#include "tests/unit/engine/lanes_rig.h"

#include "base/clock.h"
#include "engine/threaded.h"

#include <stdatomic.h>

#define MS PS_NS_PER_MS

enum { ATTEMPTS = 8 }; /* what others do to the machine passes */

/* Works that long. */
static void compute(uint64_t ns)
{
    struct ps_clock *clock = ps_clock_real();
    uint64_t end = ps_clock_now_ns(clock) + ns;
    while (ps_clock_now_ns(clock) < end) {
        continue;
    }
}

static enum ps_status run_nothing(void *arg, const struct ps_run *run,
                                  struct ps_error *err)
{
    PS_UNUSED(run);
    PS_UNUSED(err);
    if (arg != NULL) {
        atomic_fetch_add((_Atomic int *)arg, 1);
    }
    return PS_OK;
}

static const int threaded[] = {PS_ENGINE_POOLED, PS_ENGINE_PER_DEVICE};

/* One operation on each lane. */
static void touch_all(struct suite *suite)
{
    for (int device = 0; device < 3; device++) {
        for (int kind = 0; kind < PS_ENGINE_OP_KIND_COUNT; kind++) {
            struct ps_engine_op op = {.name = "touch",
                                      .run = run_nothing,
                                      .context = device == 0 ? PS_CPU(0) : PS_GPU(device),
                                      .kind = (enum ps_engine_op_kind)kind};
            assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
        }
    }
    wait_all_ok(suite);
}

/* Processor time of all other threads while this one computes; the least of some tries,
 * because a thread may still be on its way to sleep. */
static uint64_t others_while_computing(uint64_t ns)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < ATTEMPTS && least > ns / 50; i++) {
        uint64_t before = lanes_cpu_ns("");
        compute(ns);
        uint64_t used = lanes_cpu_ns("") - before;
        least = used < least ? used : least;
    }
    return least;
}

static void an_idle_engine_uses_no_processor_time(void **state)
{
    PS_UNUSED(state);
    for (size_t i = 0; i < PS_COUNT(threaded); i++) {
        struct suite suite;
        lanes_open(&suite, threaded[i], NULL);
        touch_all(&suite);
        compute(5 * MS); /* whoever looked for more has given up */
        uint64_t used = others_while_computing(100 * MS);
        assert_true(used < 2 * MS);
        suite_close(&suite);
    }
}

static void ops_that_sleep_use_no_processor_time(void **state)
{
    PS_UNUSED(state);
    for (size_t i = 0; i < PS_COUNT(threaded); i++) {
        struct suite suite;
        struct crowd crowd;
        lanes_open(&suite, threaded[i], "CPU_WORKER_NTHREADS=4", "GPU_WORKER_NTHREADS=4",
                   NULL);
        crowd_init(&crowd, false);
        for (int k = 0; k < 16; k++) { /* 8 can run in one engine, 16 in the other */
            crowd_push(&suite, &crowd, k % 2 == 0 ? PS_CPU(0) : PS_GPU(0),
                       PS_ENGINE_NORMAL, 0);
        }
        gate_wait_arrived(&crowd.gate, threaded[i] == PS_ENGINE_POOLED ? 16 : 8);
        compute(5 * MS);
        uint64_t used = others_while_computing(100 * MS);
        assert_true(used < 2 * MS);
        gate_open(&crowd.gate);
        wait_all_ok(&suite);
        crowd_fini(&crowd);
        suite_close(&suite);
    }
}

/* ---- looking ---- */

struct busy {
    _Atomic bool stop;
    _Atomic int started;
};

static enum ps_status run_busy(void *arg, const struct ps_run *run, struct ps_error *err)
{
    struct busy *busy = arg;
    PS_UNUSED(run);
    PS_UNUSED(err);
    atomic_fetch_add(&busy->started, 1);
    while (!atomic_load(&busy->stop)) {
        continue;
    }
    return PS_OK;
}

enum { TRICKLE = 200 };

/* Single operations on the priority pool, each pushed 'gap_ns' after the last was done.
 */
static void trickle(struct suite *suite, uint64_t gap_ns)
{
    struct ps_var *var = new_var(suite);
    struct ps_engine_op op = {.name = "trickle",
                              .run = run_nothing,
                              .writes = &var,
                              .write_count = 1,
                              .kind = PS_ENGINE_CPU_PRIORITIZED};
    for (int i = 0; i < TRICKLE; i++) {
        assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
        wait_var_ok(suite, var);
        compute(gap_ns);
    }
    ps_var_delete(suite->engine, var);
}

/* How often a thread of the priority pool has looked around before it slept. */
static uint64_t priority_looks(struct suite *suite)
{
    struct ps_engine *engine = suite->engine;
    ps_threaded_lock(engine);
    uint64_t looks = engine->threaded->lanes.of[PS_LANE_CPU_PRIORITY][0]->looks;
    ps_threaded_unlock(engine);
    return looks;
}

static void nobody_looks_for_work_while_the_cores_are_wanted(void **state)
{
    struct suite suite;
    struct busy busy = {.stop = false};
    int cores = ps_cpu_count();
    char text[64];
    PS_UNUSED(state);
    if (cores > 200) {
        skip();
    }
    lanes_open(&suite, PS_ENGINE_PER_DEVICE, "CPU_PRIORITY_NTHREADS=1",
               lanes_setting(text, "CPU_WORKER_NTHREADS", cores), NULL);
    for (int i = 0; i < cores - 1; i++) { /* the last core is this thread's */
        push(&suite, "busy", run_busy, &busy, NULL, NULL);
    }
    while (atomic_load(&busy.started) < cores - 1) {
        continue;
    }
    uint64_t before = priority_looks(&suite);
    trickle(&suite, 20 * PS_NS_PER_US);
    uint64_t looks = priority_looks(&suite) - before;
    atomic_store(&busy.stop, true);
    wait_all_ok(&suite);
    assert_int_equal(looks, 0);
    suite_close(&suite);
}

/* A look lasts some 40 microseconds; to wake, run and sleep again costs about ten. */
static void a_lane_that_looks_in_vain_stops_looking(void **state)
{
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_PER_DEVICE, "CPU_PRIORITY_NTHREADS=1", NULL);
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < ATTEMPTS && least >= 25 * PS_NS_PER_US; i++) {
        uint64_t before = lanes_cpu_ns("priority/");
        trickle(&suite, 100 * PS_NS_PER_US); /* longer than a look */
        uint64_t each = (lanes_cpu_ns("priority/") - before) / TRICKLE;
        least = each < least ? each : least;
    }
    if (!SUITE_SANITIZED) { /* then everything costs more */
        assert_true(least < 25 * PS_NS_PER_US);
    }
    suite_close(&suite);
}

/* ---- waking ---- */

static void one_piece_of_work_wakes_one_thread(void **state)
{
    enum { LENGTH = 300 };
    PS_UNUSED(state);
    struct suite suite;
    lanes_open(&suite, PS_ENGINE_POOLED, NULL); /* sixteen threads sleep */
    struct ps_var *var = new_var(&suite);
    _Atomic int ran = 0;
    push(&suite, "first", run_nothing, &ran, NULL, var);
    wait_var_ok(&suite, var);
    compute(5 * MS);
    uint64_t before = lanes_sleeps("pool/");
    for (int i = 0; i < LENGTH; i++) { /* a chain: never more than one is ready */
        push(&suite, "link", run_nothing, &ran, NULL, var);
        if (i % 10 == 0) {
            wait_var_ok(&suite, var);
        }
    }
    wait_all_ok(&suite);
    compute(5 * MS);
    uint64_t sleeps = lanes_sleeps("pool/") - before;
    assert_int_equal(ran, LENGTH + 1);
    /* who woke went to sleep again: at most one for an operation, and one for a wait on
     * the engine's lock */
    assert_true(sleeps <= 2 * LENGTH + 16);
    ps_var_delete(suite.engine, var);
    suite_close(&suite);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_engine_uses_no_processor_time),
        cmocka_unit_test(ops_that_sleep_use_no_processor_time),
        cmocka_unit_test(nobody_looks_for_work_while_the_cores_are_wanted),
        cmocka_unit_test(a_lane_that_looks_in_vain_stops_looking),
        cmocka_unit_test(one_piece_of_work_wakes_one_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
