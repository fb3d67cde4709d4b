/* ENGINE_TYPE and who goes where: the observable effects of reference/behaviour.md 1.10
 * and the table of 2.3, on CPUs and simulated accelerators. */
#include "tests/unit/engine/lanes_rig.h"

#include <stdio.h>
#include <string.h>

enum { OPS = 8 };

static const int all_types[] = {PS_ENGINE_NAIVE, PS_ENGINE_POOLED, PS_ENGINE_PER_DEVICE};

/* ---- 1.10 ---- */

static void setting_engine_type_naive_runs_on_the_callers_thread(void **state)
{
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_NAIVE, "CPU_WORKER_NTHREADS=8", "GPU_WORKER_NTHREADS=8",
               NULL);
    for (int kind = 0; kind < PS_ENGINE_OP_KIND_COUNT; kind++) {
        struct crowd crowd;
        crowd_init(&crowd, true);
        for (int i = 0; i < OPS; i++) {
            struct ps_context context = i % 2 == 0 ? PS_CPU(i) : PS_GPU(i % 4);
            crowd_push(&suite, &crowd, context, (enum ps_engine_op_kind)kind, -i);
            assert_int_equal(crowd.gate.arrived, i + 1); /* it ran inside the push */
        }
        assert_int_equal(crowd.id_count, 1);
        assert_int_equal(crowd.ids[0], ps_thread_id());
        assert_int_equal(crowd.most_inside, 1);
        crowd_fini(&crowd);
    }
    static const char *const lanes[] = {"cpu", "gpu", "priority", "pool", "copy"};
    for (size_t i = 0; i < PS_COUNT(lanes); i++) {
        assert_int_equal(lanes_thread_count(lanes[i]), 0);
    }
    suite_close(&suite);
}

struct lines { /* of the log that speak of an engine in use */
    int count;
    char last[256];
};

static void keep_line(void *arg, const char *line, size_t size)
{
    struct lines *lines = arg;
    if (size < sizeof(lines->last) && strstr(line, " I ") != NULL &&
        strstr(line, "using engine") != NULL) {
        lines->count++;
        (void)snprintf(lines->last, sizeof(lines->last), "%.*s", (int)size, line);
    }
}

static void setting_engine_type_is_announced_in_one_line_when_it_is_set(void **state)
{
    static const struct {
        const char *env;
        enum ps_engine_type type;
        const char *name;
        bool announced;
    } rows[] = {
        {NULL, PS_ENGINE_PER_DEVICE, "ThreadedEnginePerDevice", false},
        {"ENGINE_TYPE=", PS_ENGINE_PER_DEVICE, "ThreadedEnginePerDevice", false},
        {"MXNET_ENGINE_TYPE=", PS_ENGINE_PER_DEVICE, "ThreadedEnginePerDevice", false},
        {"MXNET_ENGINE_TYPE=ThreadedEnginePerDevice", PS_ENGINE_PER_DEVICE,
         "ThreadedEnginePerDevice", true},
        {"ENGINE_TYPE=NaiveEngine", PS_ENGINE_NAIVE, "NaiveEngine", true},
        {"PENSTOCK_ENGINE_TYPE=ThreadedEngine", PS_ENGINE_POOLED, "ThreadedEngine", true},
        {"ENGINE_TYPE=ThreadedEnginePooled", PS_ENGINE_POOLED, "ThreadedEngine", true},
    };
    static const char *const none[] = {NULL};
    PS_UNUSED(state);
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        const char *const env[] = {rows[i].env, NULL};
        struct lines lines = {.count = 0};
        struct ps_node *node;
        struct ps_engine *engine;
        struct ps_node_options options = {
            .env = env, .overrides = none, .log_sink = keep_line, .log_sink_arg = &lines};
        assert_int_equal(ps_node_open(&options, &node, NULL), PS_OK);
        assert_int_equal(ps_engine_create(node, PS_ENGINE_FROM_SETTING, &engine, NULL),
                         PS_OK);
        assert_int_equal(ps_engine_type(engine), rows[i].type);
        assert_string_equal(ps_engine_name(engine), rows[i].name);
        ps_engine_destroy(engine);
        ps_node_close(node);
        assert_int_equal(lines.count, rows[i].announced ? 1 : 0);
        if (rows[i].announced) {
            assert_non_null(strstr(lines.last, rows[i].name));
        }
    }
}

static void check_pool(struct suite *suite, int gpu)
{
    lanes_check_concurrency(suite, PS_CPU(gpu), PS_ENGINE_NORMAL, 40, 16, "pool/");
    lanes_check_concurrency(suite, PS_CPU(0), PS_ENGINE_CPU_PRIORITIZED, 40, 16, "pool/");
    lanes_check_concurrency(suite, PS_CPU(0), PS_ENGINE_COPY_TO_GPU, 40, 16, "pool/");
    lanes_check_concurrency(suite, PS_GPU(gpu), PS_ENGINE_NORMAL, 40, 16, "pool/");
    lanes_check_concurrency(suite, PS_GPU(0), PS_ENGINE_GPU_PRIORITIZED, 40, 16, "pool/");
    lanes_check_concurrency(suite, PS_GPU(0), PS_ENGINE_COPY_TO_GPU, OPS, 1, "copy/");
    lanes_check_concurrency(suite, PS_GPU(gpu), PS_ENGINE_COPY_FROM_GPU, OPS, 1, "copy/");
    lanes_check_independent(suite, PS_GPU(0), PS_ENGINE_COPY_TO_GPU, 1, PS_GPU(0),
                            PS_ENGINE_NORMAL);
    lanes_check_independent(suite, PS_GPU(0), PS_ENGINE_NORMAL, 16, PS_GPU(0),
                            PS_ENGINE_COPY_TO_GPU);
}

static void
setting_engine_type_threaded_runs_16_at_once_whatever_the_settings(void **state)
{
    static const char *const names[] = {"CPU_WORKER_NTHREADS", "CPU_PRIORITY_NTHREADS",
                                        "GPU_WORKER_NTHREADS", "GPU_COPY_NTHREADS"};
    static const int thread_counts[] = {1, 8, 40};
    PS_UNUSED(state);
    for (int i = 0; i < (int)PS_COUNT(thread_counts); i++) {
        struct suite suite;
        char text[PS_COUNT(names)][64];
        for (size_t k = 0; k < PS_COUNT(names); k++) {
            (void)lanes_setting(text[k], names[k], thread_counts[i]);
        }
        lanes_open(&suite, i % 2 == 0 ? PS_ENGINE_POOLED : PS_ENGINE_POOLED_ALIAS,
                   text[0], text[1], text[2], text[3], NULL);
        check_pool(&suite, i);
        suite_close(&suite);
    }
}

static void setting_engine_type_threaded_ignores_priorities(void **state)
{
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_POOLED, NULL);
    /* the lane with one thread shows an order */
    lanes_check_fifo(&suite, PS_GPU(0), PS_ENGINE_COPY_TO_GPU);
    suite_close(&suite);
}

/* ---- the table of 2.3 ---- */

static const struct route {
    struct ps_context context;
    enum ps_engine_op_kind kind;
    const char *lane, *pooled_lane;
} routes[] = {
    {{PS_CONTEXT_CPU, 2}, PS_ENGINE_NORMAL, "cpu2/", "pool/"},
    {{PS_CONTEXT_CPU, 2}, PS_ENGINE_COPY_FROM_GPU, "cpu2/", "pool/"},
    {{PS_CONTEXT_CPU, 2}, PS_ENGINE_COPY_TO_GPU, "cpu2/", "pool/"},
    {{PS_CONTEXT_CPU, 2}, PS_ENGINE_CPU_PRIORITIZED, "priority/", "pool/"},
    {{PS_CONTEXT_CPU, 2}, PS_ENGINE_GPU_PRIORITIZED, "cpu2/", "pool/"},
    {{PS_CONTEXT_CPU, 2}, PS_ENGINE_ASYNC, "cpu2/", "pool/"},
    {{PS_CONTEXT_GPU, 3}, PS_ENGINE_NORMAL, "gpu3/", "pool/"},
    {{PS_CONTEXT_GPU, 3}, PS_ENGINE_COPY_FROM_GPU, "gpu3-copy/", "copy/"},
    {{PS_CONTEXT_GPU, 3}, PS_ENGINE_COPY_TO_GPU, "gpu3-copy/", "copy/"},
    {{PS_CONTEXT_GPU, 3}, PS_ENGINE_CPU_PRIORITIZED, "gpu3/", "pool/"},
    {{PS_CONTEXT_GPU, 3}, PS_ENGINE_GPU_PRIORITIZED, "gpu3-prio/", "pool/"},
    {{PS_CONTEXT_GPU, 3}, PS_ENGINE_ASYNC, "gpu3/", "pool/"},
};

/* Something is in the operation's way, so that an asynchronous one is not run inside. */
static void check_route(struct suite *suite, const struct route *route, const char *lane)
{
    struct crowd crowd;
    struct gate gate;
    struct ps_var *var = new_var(suite);
    struct ps_engine_op op = {.name = "route",
                              .run = run_crowd,
                              .arg = &crowd,
                              .reads = &var,
                              .read_count = 1,
                              .context = route->context,
                              .kind = route->kind};
    crowd_init(&crowd, true);
    gate_init(&gate, false);
    push(suite, "hold", run_gate, &gate, NULL, var);
    assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
    gate_open(&gate);
    wait_all_ok(suite);
    assert_memory_equal(crowd.name, lane, strlen(lane));
    ps_var_delete(suite->engine, var);
    gate_fini(&gate);
    crowd_fini(&crowd);
}

static void every_kind_of_op_goes_to_the_lane_of_the_table(void **state)
{
    struct suite pooled, per_device;
    PS_UNUSED(state);
    lanes_open(&pooled, PS_ENGINE_POOLED, NULL);
    lanes_open(&per_device, PS_ENGINE_PER_DEVICE, NULL);
    for (size_t i = 0; i < PS_COUNT(routes); i++) {
        check_route(&pooled, &routes[i], routes[i].pooled_lane);
        check_route(&per_device, &routes[i], routes[i].lane);
    }
    suite_close(&per_device);
    suite_close(&pooled);
}

static void an_async_op_with_nothing_in_its_way_runs_on_the_pusher(void **state)
{
    PS_UNUSED(state);
    for (size_t t = 0; t < PS_COUNT(all_types); t++) {
        struct suite suite;
        lanes_open(&suite, all_types[t], NULL);
        for (int i = 0; i < 2; i++) {
            struct crowd crowd;
            crowd_init(&crowd, true);
            crowd_push(&suite, &crowd, i == 0 ? PS_CPU(0) : PS_GPU(0), PS_ENGINE_ASYNC,
                       0);
            assert_int_equal(crowd.gate.arrived, 1);
            assert_int_equal(crowd.ids[0], ps_thread_id());
            crowd_fini(&crowd);
        }
        suite_close(&suite);
    }
}

static void a_gpu_that_is_not_there_is_refused(void **state)
{
    PS_UNUSED(state);
    for (size_t t = 0; t < PS_COUNT(all_types); t++) {
        struct suite suite;
        struct crowd crowd;
        lanes_open(&suite, all_types[t], NULL);
        crowd_init(&crowd, true);
        for (int kind = 0; kind < PS_ENGINE_OP_KIND_COUNT; kind++) {
            struct ps_engine_op op = {.name = "far",
                                      .run = run_crowd,
                                      .arg = &crowd,
                                      .context = PS_GPU(4), /* there are 0 to 3 */
                                      .kind = (enum ps_engine_op_kind)kind};
            assert_int_equal(ps_engine_push(suite.engine, &op), PS_EUNSUPPORTED);
        }
        crowd_push(&suite, &crowd, PS_GPU(3), PS_ENGINE_NORMAL, 0);
        wait_all_ok(&suite);
        assert_int_equal(crowd.gate.arrived, 1);
        crowd_fini(&crowd);
        suite_close(&suite);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_engine_type_naive_runs_on_the_callers_thread),
        cmocka_unit_test(setting_engine_type_is_announced_in_one_line_when_it_is_set),
        cmocka_unit_test(
            setting_engine_type_threaded_runs_16_at_once_whatever_the_settings),
        cmocka_unit_test(setting_engine_type_threaded_ignores_priorities),
        cmocka_unit_test(every_kind_of_op_goes_to_the_lane_of_the_table),
        cmocka_unit_test(an_async_op_with_nothing_in_its_way_runs_on_the_pusher),
        cmocka_unit_test(a_gpu_that_is_not_there_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
