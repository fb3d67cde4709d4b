/* CPU_WORKER_NTHREADS and CPU_PRIORITY_NTHREADS: the observable effects of
 * reference/behaviour.md 1.3 and 1.4: pools by device, one priority pool that stands
 * before any operation, order, independence. */
#include "tests/unit/engine/lanes_rig.h"

static const int counts[] = {1, 2, 4, 8};
enum { OPS = 8 };

/* ---- 1.3 ---- */

static void setting_cpu_worker_nthreads_is_how_many_ops_of_a_cpu_run_at_once(void **state)
{
    /* copies, and what is urgent on a GPU only, are ordinary operations here */
    static const enum ps_engine_op_kind kinds[] = {
        PS_ENGINE_NORMAL, PS_ENGINE_COPY_FROM_GPU, PS_ENGINE_COPY_TO_GPU,
        PS_ENGINE_GPU_PRIORITIZED};
    PS_UNUSED(state);
    for (size_t i = 0; i < PS_COUNT(counts); i++) {
        struct suite suite;
        char text[64];
        lanes_open(&suite, PS_ENGINE_PER_DEVICE,
                   lanes_setting(text, "CPU_WORKER_NTHREADS", counts[i]), NULL);
        assert_int_equal(lanes_thread_count("cpu"), 0); /* made at first use */
        for (size_t k = 0; k < PS_COUNT(kinds); k++) {
            lanes_check_concurrency(&suite, PS_CPU(3), kinds[k], OPS, counts[i], "cpu3/");
        }
        assert_int_equal(lanes_thread_count("cpu"), counts[i]);
        suite_close(&suite);
    }
}

static void setting_cpu_worker_nthreads_is_of_each_cpu_device(void **state)
{
    PS_UNUSED(state);
    for (size_t i = 0; i < PS_COUNT(counts); i++) {
        struct suite suite;
        struct crowd crowd;
        char text[64];
        lanes_open(&suite, PS_ENGINE_PER_DEVICE,
                   lanes_setting(text, "CPU_WORKER_NTHREADS", counts[i]), NULL);
        crowd_init(&crowd, false);
        for (int k = 0; k < 8 * counts[i]; k++) {
            crowd_push(&suite, &crowd, PS_CPU(k % 4), PS_ENGINE_NORMAL, 0);
        }
        gate_wait_arrived(&crowd.gate, 4 * counts[i]);
        assert_int_equal(lanes_thread_count("cpu"), 4 * counts[i]);
        gate_open(&crowd.gate);
        wait_all_ok(&suite);
        assert_int_equal(crowd.most_inside, 4 * counts[i]);
        assert_int_equal(crowd.id_count, 4 * counts[i]);
        crowd_fini(&crowd);
        suite_close(&suite);
    }
}

static void setting_cpu_worker_nthreads_1_runs_in_push_order(void **state)
{
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_PER_DEVICE, "CPU_WORKER_NTHREADS=1", NULL);
    lanes_check_fifo(&suite, PS_CPU(0), PS_ENGINE_NORMAL);
    lanes_check_fifo(&suite, PS_CPU(0), PS_ENGINE_COPY_TO_GPU);
    suite_close(&suite);
}

/* ---- 1.4 ---- */

static void setting_cpu_priority_nthreads_pool_stands_before_any_op(void **state)
{
    PS_UNUSED(state);
    for (size_t i = 0; i < PS_COUNT(counts); i++) {
        struct suite suite;
        char text[64];
        lanes_open(&suite, PS_ENGINE_PER_DEVICE,
                   lanes_setting(text, "CPU_PRIORITY_NTHREADS", counts[i]), NULL);
        int with = lanes_thread_count("");
        ps_engine_destroy(suite.engine);
        int without = lanes_thread_count("");
        assert_int_equal(with - without, counts[i]); /* these, and no others */
        assert_int_equal(
            ps_engine_create(suite.node, PS_ENGINE_PER_DEVICE, &suite.engine, NULL),
            PS_OK);
        assert_int_equal(lanes_thread_count(""), with);
        lanes_check_concurrency(&suite, PS_CPU(0), PS_ENGINE_CPU_PRIORITIZED, OPS,
                                counts[i], "priority/");
        suite_close(&suite);
    }
}

static void setting_cpu_priority_nthreads_is_of_all_cpu_devices_together(void **state)
{
    struct suite suite;
    struct crowd crowd;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_PER_DEVICE, "CPU_PRIORITY_NTHREADS=3", NULL);
    crowd_init(&crowd, false);
    for (int i = 0; i < 16; i++) {
        crowd_push(&suite, &crowd, PS_CPU(i % 4), PS_ENGINE_CPU_PRIORITIZED, i);
    }
    gate_wait_arrived(&crowd.gate, 3);
    assert_int_equal(lanes_thread_count("priority/"), 3);
    gate_open(&crowd.gate);
    wait_all_ok(&suite);
    assert_int_equal(crowd.most_inside, 3);
    assert_int_equal(crowd.id_count, 3);
    assert_int_equal(lanes_thread_count("cpu"), 0);
    crowd_fini(&crowd);
    suite_close(&suite);
}

static void setting_cpu_priority_nthreads_1_runs_the_higher_priority_first(void **state)
{
    static const int priorities[] = {-2, 7, 0, 2147483647, -2147483647 - 1, 1, 6};
    static const int expected[] = {3, 1, 6, 5, 2, 0, 4};
    int order[PS_COUNT(priorities)];
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_PER_DEVICE, "CPU_PRIORITY_NTHREADS=1", NULL);
    lanes_run_behind_gate(&suite, PS_CPU(1), PS_ENGINE_CPU_PRIORITIZED, priorities,
                          PS_COUNT(priorities), order);
    assert_memory_equal(order, expected, sizeof(expected));
    suite_close(&suite);
}

static void
setting_cpu_priority_nthreads_pool_and_devices_do_not_wait_for_each_other(void **state)
{
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_PER_DEVICE, "CPU_PRIORITY_NTHREADS=2",
               "CPU_WORKER_NTHREADS=2", NULL);
    lanes_check_independent(&suite, PS_CPU(0), PS_ENGINE_CPU_PRIORITIZED, 2, PS_CPU(0),
                            PS_ENGINE_NORMAL);
    lanes_check_independent(&suite, PS_CPU(0), PS_ENGINE_NORMAL, 2, PS_CPU(0),
                            PS_ENGINE_CPU_PRIORITIZED);
    lanes_check_independent(&suite, PS_CPU(0), PS_ENGINE_NORMAL, 2, PS_CPU(1),
                            PS_ENGINE_NORMAL);
    suite_close(&suite);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            setting_cpu_worker_nthreads_is_how_many_ops_of_a_cpu_run_at_once),
        cmocka_unit_test(setting_cpu_worker_nthreads_is_of_each_cpu_device),
        cmocka_unit_test(setting_cpu_worker_nthreads_1_runs_in_push_order),
        cmocka_unit_test(setting_cpu_priority_nthreads_pool_stands_before_any_op),
        cmocka_unit_test(setting_cpu_priority_nthreads_is_of_all_cpu_devices_together),
        cmocka_unit_test(setting_cpu_priority_nthreads_1_runs_the_higher_priority_first),
        cmocka_unit_test(
            setting_cpu_priority_nthreads_pool_and_devices_do_not_wait_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
