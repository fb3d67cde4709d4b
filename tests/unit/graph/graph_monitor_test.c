/* What is seen of an executor from outside: by a monitor, which ends bulk, in a profile,
 * and of one that is only asked. */
#include "base/trace.h"
#include "tests/unit/graph/graph_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CHAIN = 40 };

/* x -> 40 times -x. */
static struct ps_symbol *chain(void)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    for (int i = 0; i < CHAIN; i++) {
        x = ps_builder_op(b, "negative", ps_builder_text(b, "n%d", i), NULL, x);
    }
    return finish(b, x);
}

static struct ps_executor *bind_chain(const struct graph_world *world,
                                      struct ps_symbol *symbol, enum ps_grad_req req)
{
    struct ps_named_shape shape = {"x", PS_SHAPE(4)};
    return simple_bind(world, symbol, &shape, 1, req);
}

/* ---- monitor ---- */

struct seen {
    struct ps_str names;
    size_t count;
    float last[4];
};

static void see(void *arg, const char *name, struct ps_tensor *value)
{
    struct seen *seen = arg;
    ps_str_printf(&seen->names, "%s ", name);
    seen->count++;
    float *values = tensor_get(value);
    memcpy(seen->last, values, sizeof(seen->last));
    free(values);
}

static void a_monitor_sees_every_output_and_nothing_is_bulked(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, NULL);
    struct ps_symbol *symbol = chain();
    struct ps_executor *executor = bind_chain(&world, symbol, PS_GRAD_WRITE);
    tensor_set(ps_executor_argument(executor, 0), (const float[]){1, 2, 3, 4});
    struct seen seen = {0};
    assert_int_equal(ps_executor_set_monitor(executor, see, &seen), PS_OK);
    run_forward(executor, true);
    assert_int_equal(seen.count, CHAIN);
    assert_non_null(strstr(ps_str_text(&seen.names), "n0_output n1_output "));
    assert_memory_equal(seen.last, ((const float[]){1, 2, 3, 4}), sizeof(seen.last));
    struct ps_tensor *head =
        tensor_from(&world, PS_SHAPE(4), (const float[]){5, 6, 7, 8});
    run_backward(executor, head);
    assert_int_equal(seen.count, 2 * CHAIN);
    assert_non_null(strstr(ps_str_text(&seen.names), "n0_backward_output "));
    assert_memory_equal(seen.last, ((const float[]){5, 6, 7, 8}), sizeof(seen.last));
    assert_int_equal(ps_executor_set_monitor(executor, NULL, NULL), PS_OK);
    assert_int_equal(pushed_by_forward(&world, executor), 3); /* bulk again */
    assert_int_equal(seen.count, 2 * CHAIN);
    tensor_expect(ps_executor_output(executor, 0), (const float[]){1, 2, 3, 4}, 0);
    ps_str_fini(&seen.names);
    ps_tensor_release(head);
    ps_executor_destroy(executor);
    ps_symbol_release(symbol);
    world_close(&world);
}

/* Nothing is read in between: the operations are there all at once. */
static void count_only(void *arg, const char *name, struct ps_tensor *value)
{
    (void)name, (void)value;
    ++*(size_t *)arg;
}

static void with_a_monitor_the_engine_gets_every_operator_alone(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, NULL);
    struct ps_symbol *symbol = chain();
    struct ps_executor *executor = bind_chain(&world, symbol, PS_GRAD_WRITE);
    size_t calls = 0;
    assert_int_equal(ps_executor_set_monitor(executor, count_only, &calls), PS_OK);
    assert_int_equal(pushed_by_forward(&world, executor), CHAIN);
    assert_int_equal(calls, CHAIN);
    ps_executor_destroy(executor);
    ps_symbol_release(symbol);
    world_close(&world);
}

/* ---- only asked ---- */

static void a_plan_only_executor_tells_and_does_not_run(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, NULL);
    struct ps_symbol *lenet = small_lenet();
    struct ps_named_shape shape = {"data", PS_SHAPE(64, 1, 12, 12)};
    struct ps_simple_bind bind = {
        .shapes = &shape, .shape_count = 1, .req = PS_GRAD_WRITE};
    struct ps_bind_options options = world_options(&world);
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    options.plan_only = true;
    assert_int_equal(ps_executor_simple_bind(lenet, &options, &bind, &executor, &err),
                     PS_OK);
    assert_int_equal(ps_engine_pending(world.engine), 0); /* nothing was filled */
    struct ps_executor_memory memory;
    ps_executor_memory(executor, &memory);
    assert_int_equal(memory.peak_bytes, memory.internal_bytes + memory.workspace_bytes);
    assert_int_equal(memory.argument_bytes - memory.gradient_bytes, 0);
    size_t most = 0;
    for (size_t i = 0; i < ps_executor_step_count(executor); i++) {
        struct ps_executor_step step;
        assert_int_equal(ps_executor_step(executor, i, &step), PS_OK);
        most = PS_MAX(most, step.live_bytes);
        assert_non_null(step.name);
        assert_non_null(step.kind);
    }
    assert_true(most > 0 && most <= memory.unplanned_bytes);
    struct ps_executor_step none;
    assert_int_equal(ps_executor_step(executor, ps_executor_step_count(executor), &none),
                     PS_ERANGE);
    assert_int_equal(ps_executor_forward(executor, true, &err), PS_EPERM);
    assert_int_equal(ps_executor_backward(executor, NULL, &err), PS_EPERM);
    ps_executor_destroy(executor);
    ps_symbol_release(lenet);
    world_close(&world);
}

/* ---- what a profile shows ---- */

/* x -> a, b on the context; then c, d on 'other', a copy between them. */
static struct ps_symbol *four(void)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    static const char *const names[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < 4; i++) {
        x = ps_builder_op(b, "negative", names[i], NULL, x);
        ps_builder_attr(b, x, "ctx_group", i < 2 ? "one" : "two");
    }
    return finish(b, x);
}

/* Runs forward once under the profiler; the table of what ran. */
static void profile_forward(const char *setting, struct ps_context second,
                            struct ps_str *table)
{
    char file[] = "/tmp/penstock_bulk_XXXXXX";
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, setting);
    const struct ps_context_group groups[] = {{"one", PS_CPU(0)}, {"two", second}};
    struct ps_symbol *symbol = four();
    struct ps_named_shape shape = {"x", PS_SHAPE(4)};
    struct ps_simple_bind bind = {.shapes = &shape, .shape_count = 1};
    struct ps_bind_options options = world_options(&world);
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    options.groups = groups;
    options.group_count = 2;
    assert_int_equal(ps_executor_simple_bind(symbol, &options, &bind, &executor, &err),
                     PS_OK);
    assert_int_equal(ps_engine_wait_all(world.engine, NULL), PS_OK);
    assert_int_equal(ps_trace_set_file(world.node->trace, file, &err), PS_OK);
    assert_int_equal(ps_trace_set_mode(world.node->trace, 0), PS_OK);
    assert_int_equal(ps_trace_start(world.node->trace), PS_OK);
    run_forward(executor, false);
    assert_int_equal(ps_engine_wait_all(world.engine, NULL), PS_OK);
    ps_trace_table(world.node->trace, true, table);
    ps_trace_stop(world.node->trace);
    ps_executor_destroy(executor);
    ps_symbol_release(symbol);
    world_close(&world);
    close(fd);
    unlink(file);
}

static void a_profile_has_one_event_for_an_operation_named_by_its_operators(void **state)
{
    (void)state;
    struct ps_str on = {0}, off = {0}, cut = {0};
    profile_forward("EXEC_BULK_EXEC_INFERENCE=1", PS_CPU(0), &on);
    assert_non_null(strstr(ps_str_text(&on), "\"[a,b,c,d]\":{\"Count\":1,"));
    assert_null(strstr(ps_str_text(&on), "\"a\""));
    profile_forward("EXEC_BULK_EXEC_INFERENCE=0", PS_CPU(0), &off);
    assert_null(strstr(ps_str_text(&off), "["));
    static const char *const names[] = {"\"a\":{\"Count\":1,", "\"b\":{\"Count\":1,",
                                        "\"c\":{\"Count\":1,", "\"d\":{\"Count\":1,"};
    for (size_t i = 0; i < 4; i++) {
        assert_non_null(strstr(ps_str_text(&off), names[i]));
    }
    /* a copy in between: two operations around it, not none at all */
    profile_forward("EXEC_BULK_EXEC_INFERENCE=1", PS_CPU(1), &cut);
    assert_non_null(strstr(ps_str_text(&cut), "\"[a,b]\":{\"Count\":1,"));
    assert_non_null(strstr(ps_str_text(&cut), "\"[c,d]\":{\"Count\":1,"));
    ps_str_fini(&on);
    ps_str_fini(&off);
    ps_str_fini(&cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_monitor_sees_every_output_and_nothing_is_bulked),
        cmocka_unit_test(with_a_monitor_the_engine_gets_every_operator_alone),
        cmocka_unit_test(a_profile_has_one_event_for_an_operation_named_by_its_operators),
        cmocka_unit_test(a_plan_only_executor_tells_and_does_not_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
