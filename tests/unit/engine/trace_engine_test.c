/* What the engines tell the profiler: on every engine, in both modes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/node.h"
#include "base/sim.h"
#include "base/util.h"
#include "engine/engine.h"
#include "engine/tensor/tensor.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum ps_engine_type types[] = {PS_ENGINE_NAIVE, PS_ENGINE_POOLED,
                                            PS_ENGINE_PER_DEVICE};

struct world {
    struct ps_fs *fs;
    struct ps_node *node;
    struct ps_engine *engine;
    struct ps_var *var;
};

static void drop_line(void *arg, const char *line, size_t size)
{
    PS_UNUSED(arg);
    PS_UNUSED(line);
    PS_UNUSED(size);
}

static void open_world(struct world *world, enum ps_engine_type type, const char *a,
                       const char *b)
{
    static const char *const no_env[] = {NULL};
    const char *const overrides[] = {a, b, NULL};
    struct ps_error err = {.text = ""};
    assert_int_equal(ps_fs_sim_create(&world->fs), PS_OK);
    struct ps_node_options options = {
        .env = no_env, .overrides = overrides, .fs = world->fs, .log_sink = drop_line};
    assert_int_equal(ps_node_open(&options, &world->node, &err), PS_OK);
    assert_int_equal(ps_engine_create(world->node, (int)type, &world->engine, &err),
                     PS_OK);
    assert_int_equal(ps_var_create(world->engine, &world->var), PS_OK);
}

static void close_world(struct world *world)
{
    ps_var_delete(world->engine, world->var);
    ps_engine_destroy(world->engine);
    ps_node_close(world->node);
    ps_fs_sim_destroy(world->fs);
}

static json_t *dump(struct world *world)
{
    char *data = NULL;
    size_t size = 0;
    assert_int_equal(ps_trace_dump(world->node->trace, NULL), PS_OK);
    assert_int_equal(
        ps_fs_read_all(world->fs, "profile.json", SIZE_MAX, &data, &size, NULL), PS_OK);
    json_t *root = json_loadb(data, size, 0, NULL);
    assert_non_null(root);
    free(data);
    return root;
}

/* Operations of this name: spans, and beginnings of asynchronous ones; NULL: of any. */
static size_t count_ops(json_t *root, const char *name)
{
    size_t count = 0, i;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const char *is = json_string_value(json_object_get(event, "name"));
        count += (strcmp(phase, "X") == 0 || strcmp(phase, "b") == 0) &&
                 (name == NULL || strcmp(is, name) == 0);
    }
    return count;
}

static const char *category_of(json_t *root, const char *name)
{
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(json_string_value(json_object_get(event, "name")), name) == 0) {
            return json_string_value(json_object_get(event, "cat"));
        }
    }
    return "none";
}

static enum ps_status run_nothing(void *arg, const struct ps_run *run,
                                  struct ps_error *err)
{
    PS_UNUSED(arg);
    PS_UNUSED(run);
    PS_UNUSED(err);
    return PS_OK;
}

static enum ps_status run_badly(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(arg);
    PS_UNUSED(run);
    PS_UNUSED(err);
    return PS_EINVAL;
}

static void start_and_end(void *arg, const struct ps_run *run, struct ps_completion *done)
{
    PS_UNUSED(arg);
    PS_UNUSED(run);
    ps_engine_complete(done, PS_OK, NULL);
}

static void push(struct world *world, const char *name, enum ps_engine_op_kind kind,
                 bool symbolic)
{
    struct ps_engine_op op = {.name = name,
                              .writes = &world->var,
                              .write_count = 1,
                              .context = PS_CPU(0),
                              .kind = kind,
                              .symbolic = symbolic};
    if (kind == PS_ENGINE_ASYNC) {
        op.start = start_and_end;
    } else {
        op.run = run_nothing;
    }
    assert_int_equal(ps_engine_push(world->engine, &op), PS_OK);
}

static void push_everything(struct world *world)
{
    struct ps_tensor *a, *b;
    const struct ps_shape shape = PS_SHAPE(4);
    assert_int_equal(ps_tensor_create(world->engine, PS_CPU(0), PS_F32, &shape, &a),
                     PS_OK);
    assert_int_equal(ps_tensor_create(world->engine, PS_CPU(0), PS_F32, &shape, &b),
                     PS_OK);
    /* the device is open, so the first counters have it */
    push(world, "[conv,relu]", PS_ENGINE_NORMAL, true);
    push(world, "fc", PS_ENGINE_NORMAL, true);
    push(world, "KVStoreReduce", PS_ENGINE_CPU_PRIORITIZED, false);
    push(world, "Pull", PS_ENGINE_ASYNC, false);
    assert_int_equal(ps_tensor_copy(a, b, 0), PS_OK);
    ps_tensor_release(a);
    ps_tensor_release(b);
    assert_int_equal(ps_engine_wait_var(world->engine, world->var, NULL), PS_OK);
    assert_int_equal(ps_engine_wait_all(world->engine, NULL), PS_OK);
}

static void setting_profiler_mode_0_records_networks_alone_and_1_everything(void **state)
{
    (void)state;
    for (size_t t = 0; t < PS_COUNT(types); t++) {
        for (size_t mode = 0; mode <= 1; mode++) {
            struct world world;
            open_world(&world, types[t], "PROFILER_AUTOSTART=1",
                       mode ? "PROFILER_MODE=1" : "PROFILER_MODE=0");
            push_everything(&world);
            json_t *root = dump(&world);
            assert_int_equal(count_ops(root, "[conv,relu]"), 1);
            assert_int_equal(count_ops(root, "fc"), 1);
            assert_int_equal(count_ops(root, "KVStoreReduce"), mode);
            assert_int_equal(count_ops(root, "Pull"), mode);
            assert_int_equal(count_ops(root, "CopyCPU2CPU"), mode);
            assert_int_equal(count_ops(root, "WaitForVar"), mode);
            assert_int_equal(count_ops(root, "WaitForAll"), mode);
            assert_int_equal(count_ops(root, NULL), mode ? 7 : 2);
            assert_string_equal(category_of(root, "fc"), "operator");
            if (mode == 1) {
                assert_string_equal(category_of(root, "CopyCPU2CPU"), "copy");
                assert_string_equal(category_of(root, "KVStoreReduce"), "communication");
                assert_string_equal(category_of(root, "WaitForVar"), "engine");
            }
            json_decref(root);
            close_world(&world);
        }
    }
}

static void setting_profiler_autostart_records_from_the_first_operation(void **state)
{
    (void)state;
    for (size_t t = 0; t < PS_COUNT(types); t++) {
        for (size_t on = 0; on <= 1; on++) {
            struct world world;
            open_world(&world, types[t],
                       on ? "PROFILER_AUTOSTART=1" : "PROFILER_AUTOSTART=0", NULL);
            push(&world, "fc", PS_ENGINE_NORMAL, true);
            assert_int_equal(ps_engine_wait_all(world.engine, NULL), PS_OK);
            struct ps_str table = {0};
            ps_trace_table(world.node->trace, false, &table);
            assert_int_equal(strstr(ps_str_text(&table), "fc") != NULL, on);
            ps_str_fini(&table);
            assert_int_equal(ps_fs_exists(world.fs, "profile.json"), on);
            close_world(&world);
        }
    }
}

static void every_operation_is_one_event_and_counts_are_exact(void **state)
{
    (void)state;
    for (size_t t = 0; t < PS_COUNT(types); t++) {
        struct world world;
        open_world(&world, types[t], "PROFILER_AUTOSTART=1", NULL);
        push(&world, "sqrt", PS_ENGINE_NORMAL, true);
        for (int i = 0; i < 30000; i++) {
            push(&world, "_plus_scalar", PS_ENGINE_NORMAL, true);
        }
        assert_int_equal(ps_engine_wait_all(world.engine, NULL), PS_OK);
        json_t *root = dump(&world);
        assert_int_equal(count_ops(root, "sqrt"), 1);
        assert_int_equal(count_ops(root, "_plus_scalar"), 30000);
        json_decref(root);
        struct ps_str table = {0};
        ps_trace_table(world.node->trace, true, &table);
        assert_non_null(strstr(ps_str_text(&table), "\"sqrt\":{\"Count\":1,"));
        assert_non_null(
            strstr(ps_str_text(&table), "\"_plus_scalar\":{\"Count\":30000,"));
        assert_non_null(strstr(ps_str_text(&table), "\"Lost\":0"));
        assert_non_null(strstr(ps_str_text(&table), "pending operations"));
        ps_str_fini(&table);
        close_world(&world);
    }
}

static void nothing_is_recorded_while_it_is_paused(void **state)
{
    (void)state;
    for (size_t t = 0; t < PS_COUNT(types); t++) {
        struct world world;
        open_world(&world, types[t], "PROFILER_AUTOSTART=1", NULL);
        push(&world, "before", PS_ENGINE_NORMAL, true);
        assert_int_equal(ps_engine_wait_all(world.engine, NULL), PS_OK);
        ps_trace_pause(world.node->trace);
        push(&world, "paused", PS_ENGINE_NORMAL, true);
        assert_int_equal(ps_engine_wait_all(world.engine, NULL), PS_OK);
        ps_trace_resume(world.node->trace);
        push(&world, "after", PS_ENGINE_NORMAL, true);
        assert_int_equal(ps_engine_wait_all(world.engine, NULL), PS_OK);
        json_t *root = dump(&world);
        assert_int_equal(count_ops(root, "before"), 1);
        assert_int_equal(count_ops(root, "paused"), 0);
        assert_int_equal(count_ops(root, "after"), 1);
        json_decref(root);
        close_world(&world);
    }
}

static void prepared_and_captured_operations_are_recorded_too(void **state)
{
    (void)state;
    for (size_t t = 0; t < PS_COUNT(types); t++) {
        struct world world;
        struct ps_engine_call *call;
        struct ps_segment *segment;
        open_world(&world, types[t], "PROFILER_AUTOSTART=1", NULL);
        struct ps_engine_op op = {.name = "captured",
                                  .run = run_nothing,
                                  .writes = &world.var,
                                  .write_count = 1,
                                  .symbolic = true};
        assert_int_equal(ps_engine_call_create(world.engine, &op, &call), PS_OK);
        struct ps_engine_call *const calls[] = {call, call};
        assert_int_equal(ps_segment_create(world.engine, calls, 2, &segment), PS_OK);
        assert_int_equal(ps_engine_call_push(call), PS_OK);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(ps_segment_push(segment), PS_OK);
        }
        assert_int_equal(ps_engine_wait_all(world.engine, NULL), PS_OK);
        json_t *root = dump(&world);
        assert_int_equal(count_ops(root, "captured"), 7);
        json_decref(root);
        ps_segment_destroy(segment);
        ps_engine_call_destroy(call);
        close_world(&world);
    }
}

static void a_failed_operation_says_so_and_a_skipped_one_is_no_event(void **state)
{
    (void)state;
    for (size_t t = 0; t < PS_COUNT(types); t++) {
        struct world world;
        open_world(&world, types[t], "PROFILER_AUTOSTART=1", NULL);
        struct ps_engine_op op = {.name = "bad",
                                  .run = run_badly,
                                  .writes = &world.var,
                                  .write_count = 1,
                                  .symbolic = true};
        assert_int_equal(ps_engine_push(world.engine, &op), PS_OK);
        push(&world, "skipped", PS_ENGINE_NORMAL, true);
        assert_int_equal(ps_engine_wait_all(world.engine, NULL), PS_EINVAL);
        json_t *root = dump(&world);
        char *text = json_dumps(root, 0);
        assert_non_null(strstr(text, "\"failed\": true"));
        assert_int_equal(count_ops(root, "bad"), 1);
        assert_int_equal(count_ops(root, "skipped"), 0);
        free(text);
        json_decref(root);
        close_world(&world);
    }
}

static void lanes_are_threads_with_names_and_memory_is_counted(void **state)
{
    struct world world;
    (void)state;
    open_world(&world, PS_ENGINE_PER_DEVICE, "PROFILER_AUTOSTART=1", "PROFILER_MODE=1");
    push_everything(&world);
    json_t *root = dump(&world);
    char *text = json_dumps(root, JSON_COMPACT);
    assert_non_null(strstr(text, "\"cpu/0\""));
    assert_non_null(strstr(text, "\"priority/")); /* a thread of the priority pool */
    assert_non_null(strstr(text, "\"memory used\""));
    assert_non_null(strstr(text, "\"memory reserved\""));
    assert_non_null(strstr(text, "\"pending operations\""));
    assert_non_null(strstr(text, "\"ready "));
    free(text);
    json_decref(root);
    close_world(&world);
}

static char *trace_of_a_simulation(uint64_t seed)
{
    static const char *const no_env[] = {NULL};
    static const char *const overrides[] = {"PROFILER_AUTOSTART=1", "PROFILER_MODE=1",
                                            "LOG=error", NULL};
    struct world world = {.fs = NULL};
    struct ps_sim *sim;
    char *data = NULL;
    size_t size = 0;
    assert_int_equal(ps_sim_create(seed, &sim), PS_OK);
    assert_int_equal(ps_fs_sim_create(&world.fs), PS_OK);
    struct ps_node_options options = {
        .env = no_env, .overrides = overrides, .sim = sim, .fs = world.fs};
    assert_int_equal(ps_node_open(&options, &world.node, NULL), PS_OK);
    assert_int_equal(
        ps_engine_create(world.node, PS_ENGINE_FROM_SETTING, &world.engine, NULL), PS_OK);
    assert_int_equal(ps_var_create(world.engine, &world.var), PS_OK);
    for (int i = 0; i < 3000; i++) {
        push_everything(&world);
        ps_driver_sleep(world.node->driver, 1500);
    }
    ps_var_delete(world.engine, world.var);
    ps_engine_destroy(world.engine);
    ps_node_close(world.node);
    assert_int_equal(
        ps_fs_read_all(world.fs, "profile.json", SIZE_MAX, &data, &size, NULL), PS_OK);
    ps_fs_sim_destroy(world.fs);
    ps_sim_destroy(sim);
    return data;
}

static void a_simulation_traces_virtual_time_the_same_each_run(void **state)
{
    (void)state;
    char *one = trace_of_a_simulation(7), *two = trace_of_a_simulation(7);
    assert_true(strcmp(one, two) == 0);
    json_t *root = json_loads(one, 0, NULL);
    assert_non_null(root);
    assert_int_equal(count_ops(root, NULL), 3000 * 7);
    json_decref(root);
    free(one);
    free(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_profiler_mode_0_records_networks_alone_and_1_everything),
        cmocka_unit_test(setting_profiler_autostart_records_from_the_first_operation),
        cmocka_unit_test(every_operation_is_one_event_and_counts_are_exact),
        cmocka_unit_test(nothing_is_recorded_while_it_is_paused),
        cmocka_unit_test(prepared_and_captured_operations_are_recorded_too),
        cmocka_unit_test(a_failed_operation_says_so_and_a_skipped_one_is_no_event),
        cmocka_unit_test(lanes_are_threads_with_names_and_memory_is_counted),
        cmocka_unit_test(a_simulation_traces_virtual_time_the_same_each_run),
    };
    return cmocka_run_group_tests_name("trace of engines", tests, NULL, NULL);
}
