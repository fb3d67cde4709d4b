/* Denormals are flushed on every thread that runs operations: on each lane of each
 * engine, and on the pusher's thread while it runs one, which gets its own mode back. */
#include "tests/unit/engine/lanes_rig.h"

#include <float.h>
#include <stdatomic.h>
#include <string.h>

static bool flushes(void)
{
    volatile float small = FLT_MIN, tiny = FLT_MIN / 1024, half = 0.5f, big = 1e20f;
    volatile float result = small * half; /* a denormal result: flushed to zero */
    volatile float scaled = tiny * big;   /* a denormal operand: counts as zero */
    return result == 0.0f && scaled == 0.0f;
}

struct look {
    _Atomic int flushed, kept;
    char name[16];
    struct gate gate;
};

static enum ps_status run_look(void *arg, const struct ps_run *run, struct ps_error *err)
{
    struct look *look = arg;
    PS_UNUSED(run);
    PS_UNUSED(err);
    atomic_fetch_add(flushes() ? &look->flushed : &look->kept, 1);
    gate_pass(&look->gate);
    return PS_OK;
}

static void start_look(void *arg, const struct ps_run *run, struct ps_completion *done)
{
    (void)run_look(arg, run, NULL);
    ps_engine_complete(done, PS_OK, NULL);
}

/* 'count' operations at once, so that as many threads have looked. */
static void look_at(struct suite *suite, struct ps_context context,
                    enum ps_engine_op_kind kind, bool asynchronous, int count)
{
    struct look look = {.flushed = 0};
    struct ps_engine_op op = {.name = "look",
                              .run = asynchronous ? NULL : run_look,
                              .start = asynchronous ? start_look : NULL,
                              .arg = &look,
                              .context = context,
                              .kind = kind};
    gate_init(&look.gate, count == 1);
    for (int i = 0; i < count; i++) {
        assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
    }
    gate_wait_arrived(&look.gate, count);
    gate_open(&look.gate);
    wait_all_ok(suite);
    assert_int_equal(look.flushed, count);
    assert_int_equal(look.kept, 0);
    assert_false(flushes()); /* the caller's own mode */
    gate_fini(&look.gate);
}

static void look_everywhere(struct suite *suite, int threads)
{
    for (int kind = 0; kind < PS_ENGINE_OP_KIND_COUNT; kind++) {
        bool inside = kind == PS_ENGINE_ASYNC; /* on this thread */
        for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
            int count = inside ? 1 : threads;
            look_at(suite, PS_CPU(1), (enum ps_engine_op_kind)kind, asynchronous, count);
            bool copies =
                kind == PS_ENGINE_COPY_FROM_GPU || kind == PS_ENGINE_COPY_TO_GPU;
            look_at(suite, PS_GPU(1), (enum ps_engine_op_kind)kind, asynchronous,
                    copies && threads == 16 ? 1 : count);
        }
    }
}

static void denormals_are_flushed_on_every_lane_of_the_per_device_engine(void **state)
{
    struct suite suite;
    PS_UNUSED(state);
    assert_false(flushes());
    lanes_open(&suite, PS_ENGINE_PER_DEVICE, "CPU_WORKER_NTHREADS=3",
               "CPU_PRIORITY_NTHREADS=3", "GPU_WORKER_NTHREADS=3", "GPU_COPY_NTHREADS=3",
               NULL);
    look_everywhere(&suite, 3);
    suite_close(&suite);
}

static void denormals_are_flushed_on_every_thread_of_the_pooled_engine(void **state)
{
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_POOLED, NULL);
    look_everywhere(&suite, 16);
    suite_close(&suite);
}

static void denormals_are_flushed_while_the_naive_engine_runs_an_op(void **state)
{
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_NAIVE, NULL);
    look_everywhere(&suite, 1);
    suite_close(&suite);
}

static void a_caller_that_flushes_goes_on_flushing(void **state)
{
    static const int types[] = {PS_ENGINE_NAIVE, PS_ENGINE_PER_DEVICE};
    PS_UNUSED(state);
    for (size_t i = 0; i < PS_COUNT(types); i++) {
        struct suite suite;
        lanes_open(&suite, types[i], NULL);
        uint64_t mode = ps_thread_compute_begin();
        struct look look = {.flushed = 0};
        struct ps_engine_op op = {
            .name = "look", .run = run_look, .arg = &look, .kind = PS_ENGINE_ASYNC};
        gate_init(&look.gate, true);
        assert_int_equal(ps_engine_push(suite.engine, &op), PS_OK);
        assert_int_equal(look.flushed, 1);
        assert_true(flushes());
        ps_thread_compute_end(mode);
        assert_false(flushes());
        gate_fini(&look.gate);
        suite_close(&suite);
    }
}

int main(void)
{
#if !defined(__SSE2__) && !defined(__aarch64__)
    return 77; /* denormals cannot be flushed there */
#endif
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(denormals_are_flushed_on_every_lane_of_the_per_device_engine),
        cmocka_unit_test(denormals_are_flushed_on_every_thread_of_the_pooled_engine),
        cmocka_unit_test(denormals_are_flushed_while_the_naive_engine_runs_an_op),
        cmocka_unit_test(a_caller_that_flushes_goes_on_flushing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
