/* GPU_WORKER_NTHREADS and GPU_COPY_NTHREADS: the observable effects of
 * reference/behaviour.md 1.1 and 1.2, on simulated accelerators: how many operations of a
 * kind run at once, on how many threads, in which order, and that workers and copies do
 * not hold each other up. */
#include "tests/unit/engine/lanes_rig.h"

static const int counts[] = {1, 2, 4, 8};
enum { OPS = 8 };

/* ---- 1.1 ---- */

static void setting_gpu_worker_nthreads_is_how_many_ops_of_a_gpu_run_at_once(void **state)
{
    PS_UNUSED(state);
    for (size_t i = 0; i < PS_COUNT(counts); i++) {
        struct suite suite;
        char text[64];
        lanes_open(&suite, PS_ENGINE_PER_DEVICE,
                   lanes_setting(text, "GPU_WORKER_NTHREADS", counts[i]), NULL);
        assert_int_equal(lanes_thread_count("gpu"), 0); /* made at first use */
        lanes_check_concurrency(&suite, PS_GPU(1), PS_ENGINE_NORMAL, OPS, counts[i],
                                "gpu1/");
        /* what is urgent on a CPU is an ordinary operation here, on the same threads;
         * the GPU's own priority pool has as many of its own */
        lanes_check_concurrency(&suite, PS_GPU(1), PS_ENGINE_CPU_PRIORITIZED, OPS,
                                counts[i], "gpu1/");
        assert_int_equal(lanes_thread_count("gpu"), counts[i]);
        lanes_check_concurrency(&suite, PS_GPU(1), PS_ENGINE_GPU_PRIORITIZED, OPS,
                                counts[i], "gpu1-prio/");
        assert_int_equal(lanes_thread_count("gpu"), 2 * counts[i]);
        suite_close(&suite);
    }
}

static void setting_gpu_worker_nthreads_is_of_each_gpu(void **state)
{
    struct suite suite;
    struct crowd crowd;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_PER_DEVICE, "GPU_WORKER_NTHREADS=2", NULL);
    crowd_init(&crowd, false);
    for (int i = 0; i < 12; i++) {
        crowd_push(&suite, &crowd, PS_GPU(i % 3), PS_ENGINE_NORMAL, 0);
    }
    gate_wait_arrived(&crowd.gate, 6);
    gate_open(&crowd.gate);
    wait_all_ok(&suite);
    assert_int_equal(crowd.most_inside, 6);
    assert_int_equal(crowd.id_count, 6);
    crowd_fini(&crowd);
    suite_close(&suite);
}

static void setting_gpu_worker_nthreads_1_runs_in_push_order(void **state)
{
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_PER_DEVICE, "GPU_WORKER_NTHREADS=1", NULL);
    lanes_check_fifo(&suite, PS_GPU(0), PS_ENGINE_NORMAL);
    lanes_check_fifo(&suite, PS_GPU(0), PS_ENGINE_CPU_PRIORITIZED);
    suite_close(&suite);
}

/* ---- 1.2 ---- */

static const enum ps_engine_op_kind copies[] = {PS_ENGINE_COPY_FROM_GPU,
                                                PS_ENGINE_COPY_TO_GPU};

static void
setting_gpu_copy_nthreads_is_how_many_copies_of_a_gpu_run_at_once(void **state)
{
    PS_UNUSED(state);
    for (size_t i = 0; i < 2 * PS_COUNT(counts); i++) {
        struct suite suite;
        char text[64];
        lanes_open(&suite, PS_ENGINE_PER_DEVICE,
                   lanes_setting(text, "GPU_COPY_NTHREADS", counts[i / 2]), NULL);
        assert_int_equal(lanes_thread_count("gpu"), 0);
        lanes_check_concurrency(&suite, PS_GPU(0), copies[i % 2], OPS, counts[i / 2],
                                "gpu0-copy/");
        assert_int_equal(lanes_thread_count("gpu"), counts[i / 2]);
        suite_close(&suite);
    }
}

static void setting_gpu_copy_nthreads_does_not_follow_the_workers(void **state)
{
    PS_UNUSED(state);
    for (size_t i = 0; i < PS_COUNT(counts); i++) {
        struct suite suite;
        char text[64];
        lanes_open(&suite, PS_ENGINE_PER_DEVICE, "GPU_COPY_NTHREADS=3",
                   lanes_setting(text, "GPU_WORKER_NTHREADS", counts[i]), NULL);
        lanes_check_concurrency(&suite, PS_GPU(0), PS_ENGINE_COPY_TO_GPU, OPS, 3,
                                "gpu0-copy/");
        suite_close(&suite);
    }
}

static void setting_gpu_copy_nthreads_1_runs_the_higher_priority_first(void **state)
{
    static const int priorities[] = {0, 5, -3, 9};
    static const int expected[] = {3, 1, 0, 2}; /* 9, 5, 0, -3 */
    int order[PS_COUNT(priorities)];
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_PER_DEVICE, "GPU_COPY_NTHREADS=1", NULL);
    for (size_t i = 0; i < PS_COUNT(copies); i++) {
        lanes_run_behind_gate(&suite, PS_GPU(2), copies[i], priorities,
                              PS_COUNT(priorities), order);
        assert_memory_equal(order, expected, sizeof(expected));
    }
    suite_close(&suite);
}

static void
setting_gpu_copy_nthreads_copies_and_workers_do_not_wait_for_each_other(void **state)
{
    static const enum ps_engine_op_kind kinds[] = {
        PS_ENGINE_NORMAL, PS_ENGINE_COPY_FROM_GPU, PS_ENGINE_GPU_PRIORITIZED};
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_PER_DEVICE, "GPU_COPY_NTHREADS=2",
               "GPU_WORKER_NTHREADS=2", NULL);
    for (size_t held = 0; held < PS_COUNT(kinds); held++) {
        for (size_t other = 0; other < PS_COUNT(kinds); other++) {
            struct ps_context context = held == other ? PS_GPU(1) : PS_GPU(0);
            lanes_check_independent(&suite, PS_GPU(0), kinds[held], 2, context,
                                    kinds[other]);
        }
    }
    suite_close(&suite);
}

static void case_016_an_urgent_copy_runs_next(void **state)
{
    enum { COUNT = 1001 };
    static const enum ps_engine_op_kind kinds[] = {
        PS_ENGINE_COPY_FROM_GPU, PS_ENGINE_COPY_TO_GPU, PS_ENGINE_GPU_PRIORITIZED};
    static int priorities[COUNT], order[COUNT];
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_PER_DEVICE, "GPU_COPY_NTHREADS=1",
               "GPU_WORKER_NTHREADS=1", NULL);
    priorities[COUNT - 1] = 10;
    for (size_t k = 0; k < PS_COUNT(kinds); k++) {
        lanes_run_behind_gate(&suite, PS_GPU(0), kinds[k], priorities, COUNT, order);
        assert_int_equal(order[0], COUNT - 1);
        for (int i = 1; i < COUNT; i++) { /* equal priorities: first in, first out */
            assert_int_equal(order[i], i - 1);
        }
    }
    suite_close(&suite);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            setting_gpu_worker_nthreads_is_how_many_ops_of_a_gpu_run_at_once),
        cmocka_unit_test(setting_gpu_worker_nthreads_is_of_each_gpu),
        cmocka_unit_test(setting_gpu_worker_nthreads_1_runs_in_push_order),
        cmocka_unit_test(
            setting_gpu_copy_nthreads_is_how_many_copies_of_a_gpu_run_at_once),
        cmocka_unit_test(setting_gpu_copy_nthreads_does_not_follow_the_workers),
        cmocka_unit_test(setting_gpu_copy_nthreads_1_runs_the_higher_priority_first),
        cmocka_unit_test(
            setting_gpu_copy_nthreads_copies_and_workers_do_not_wait_for_each_other),
        cmocka_unit_test(case_016_an_urgent_copy_runs_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
