/* Memory plans: the golden tables of in-place sharing and match ranges, through the
 * executor's own report; the trap, identities, real bytes.  The planner by itself:
 * graph_plan_steps_test.c, graph_plan_random_test.c; scratch and colours:
 * graph_plan_scratch_test.c. */
#include "engine/graph/exec_core.h"
#include "tests/unit/graph/graph_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

/* ---- the tables, through the executor's own report ---- */

static struct ps_symbol *chain_of_five(void)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    for (int i = 0; i < 5; i++) {
        x = ps_builder_op(b, "Activation", NULL, "act_type=relu", x);
    }
    return finish(b, x);
}

static struct ps_executor *bind_forward(const struct graph_world *world,
                                        struct ps_symbol *symbol, struct ps_shape x,
                                        int inplace, int range)
{
    struct ps_error err = {0};
    struct ps_executor *executor = NULL;
    struct ps_named_shape shape = {"x", x};
    struct ps_simple_bind bind = {.shapes = &shape, .shape_count = 1};
    struct ps_bind_options options = world_options(world);
    options.inplace = inplace;
    options.match_range = range;
    options.plan = PS_PLAN_BLOCKS;
    if (ps_executor_simple_bind(symbol, &options, &bind, &executor, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    return executor;
}

static void setting_exec_enable_inplace_gives_the_blocks_of_the_table(void **state)
{
    (void)state;
    static const struct {
        int inplace, range;
        size_t blocks, mib;
    } table[] = {{1, 16, 1, 4}, {1, 1, 1, 4}, {1, 0, 1, 4},
                 {0, 16, 2, 8}, {0, 1, 2, 8}, {0, 0, 5, 20}};
    struct graph_world world;
    world_open(&world, PS_ENGINE_NAIVE, NULL);
    struct ps_symbol *chain = chain_of_five();
    for (size_t i = 0; i < PS_COUNT(table); i++) {
        struct ps_executor *executor = bind_forward(&world, chain, PS_SHAPE(1024, 1024),
                                                    table[i].inplace, table[i].range);
        struct ps_executor_memory memory;
        ps_executor_memory(executor, &memory);
        assert_int_equal(memory.block_count, table[i].blocks);
        assert_int_equal(memory.internal_bytes, table[i].mib * MIB);
        struct ps_str dump = {0};
        char total[64];
        ps_executor_dump(executor, &dump);
        (void)snprintf(total, sizeof(total), "\nTotal %zu MB allocated\nTotal ",
                       table[i].mib);
        assert_non_null(strstr(ps_str_text(&dump), total));
        ps_str_fini(&dump);
        ps_executor_destroy(executor);
    }
    ps_symbol_release(chain);
    world_close(&world);
}

static void
setting_exec_enable_inplace_makes_consecutive_outputs_one_pointer(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_NAIVE, NULL);
    struct ps_symbol *chain = chain_of_five();
    for (int inplace = 0; inplace < 2; inplace++) {
        struct ps_executor *executor =
            bind_forward(&world, chain, PS_SHAPE(32), inplace, 16);
        run_forward(executor, false);
        const struct ps_exec_core *core = executor->core;
        const void *before = NULL;
        size_t outputs = 0;
        for (size_t e = 0; e < core->graph.entry_count; e++) {
            if (core->plan.group_of[e] == PS_PLAN_NOWHERE) {
                continue;
            }
            const void *at = ps_tensor_data(core->entries[e]);
            assert_non_null(at);
            assert_true(before == NULL || (at == before) == (inplace == 1));
            before = at;
            outputs++;
        }
        assert_int_equal(outputs, 5);
        ps_executor_destroy(executor);
    }
    ps_symbol_release(chain);
    world_close(&world);
}

static void blocks_have_the_real_bytes_of_their_types(void **state)
{
    (void)state;
    static const int dtypes[] = {PS_F64, PS_F32};
    struct graph_world world;
    world_open(&world, PS_ENGINE_NAIVE, NULL);
    struct ps_symbol *chain = chain_of_five();
    for (size_t i = 0; i < PS_COUNT(dtypes); i++) {
        struct ps_named_shape shape = {"x", PS_SHAPE(1000)};
        struct ps_named_dtype dtype = {"x", dtypes[i]};
        struct ps_simple_bind bind = {
            .shapes = &shape, .shape_count = 1, .dtypes = &dtype, .dtype_count = 1};
        struct ps_bind_options options = world_options(&world);
        struct ps_executor *executor = NULL;
        struct ps_executor_memory memory;
        struct ps_error err = {0};
        options.plan = PS_PLAN_BLOCKS;
        options.inplace = 0;
        assert_int_equal(ps_executor_simple_bind(chain, &options, &bind, &executor, &err),
                         PS_OK);
        ps_executor_memory(executor, &memory);
        assert_int_equal(memory.internal_bytes, 2 * 1000 * ps_dtype_size(dtypes[i]));
        assert_int_equal(memory.unplanned_bytes, 5 * 1000 * ps_dtype_size(dtypes[i]));
        ps_executor_destroy(executor);
    }
    ps_symbol_release(chain);
    world_close(&world);
}

static void
setting_exec_enable_inplace_and_exec_match_range_are_read_at_bind(void **state)
{
    (void)state;
    struct ps_symbol *chain = chain_of_five();
    const char *const settings[] = {"EXEC_ENABLE_INPLACE=0", "EXEC_MATCH_RANGE=0"};
    const size_t blocks[] = {2, 1};
    for (size_t i = 0; i < 2; i++) {
        struct graph_world world;
        world_open(&world, PS_ENGINE_NAIVE, settings[i]);
        struct ps_executor *executor =
            bind_forward(&world, chain, PS_SHAPE(64, 64), -1, -1);
        struct ps_executor_memory memory;
        ps_executor_memory(executor, &memory);
        assert_int_equal(memory.block_count, blocks[i]);
        ps_executor_destroy(executor);
        world_close(&world);
    }
    ps_symbol_release(chain);
}

/* B; C in the place of B if it may; F(B, C): C must not overwrite B. */
static void setting_exec_enable_inplace_does_not_spring_the_trap(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_NAIVE, NULL);
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    struct ps_symbol *bb = ps_builder_op(b, "square", "b", NULL, x);
    struct ps_symbol *c = ps_builder_op(b, "negative", "c", NULL, bb);
    struct ps_symbol *f = ps_builder_op(b, "broadcast_add", "f", NULL, bb, c);
    struct ps_symbol *trap = finish(b, f);
    struct ps_executor *executor = bind_forward(&world, trap, PS_SHAPE(256), 1, 16);
    struct ps_executor_memory memory;
    ps_executor_memory(executor, &memory);
    assert_int_equal(memory.block_count, 3); /* broadcast_add shares with no input */
    struct ps_tensor *input = ps_executor_find_argument(executor, "x");
    float two[256], zero[256] = {0};
    for (int i = 0; i < 256; i++) {
        two[i] = 2;
    }
    tensor_set(input, two);
    assert_int_equal(ps_executor_forward(executor, false, NULL), PS_OK);
    tensor_expect(ps_executor_output(executor, 0), zero, 0);
    ps_executor_destroy(executor);
    ps_symbol_release(trap);
    world_close(&world);
}

static uint32_t group_of(const struct ps_executor *executor, const char *name)
{
    const struct ps_exec_core *core = executor->core;
    for (size_t n = 0; n < core->graph.node_count; n++) {
        if (strcmp(core->graph.nodes[n].name, name) == 0) {
            return core->plan.group_of[core->graph.nodes[n].first_entry];
        }
    }
    fail_msg("no node %s", name);
    return 0;
}

/* x (4,2); a = x+x; r = reshape(a); b = r+a; out = b+b. */
static void a_reshape_of_what_is_still_used_gets_its_own_storage(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_NAIVE, NULL);
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    struct ps_symbol *a = ps_builder_op(b, "elemwise_add", "a", NULL, x, x);
    struct ps_symbol *r = ps_builder_op(b, "Reshape", "r", "shape=(4,2)", a);
    struct ps_symbol *s = ps_builder_op(b, "elemwise_add", "b", NULL, r, a);
    struct ps_symbol *net = finish(b, ps_builder_op(b, "elemwise_add", "o", NULL, s, s));
    struct ps_executor *executor = bind_forward(&world, net, PS_SHAPE(4, 2), 1, 16);
    assert_true(group_of(executor, "a") != group_of(executor, "r"));
    assert_int_equal(group_of(executor, "b"), group_of(executor, "r"));
    ps_executor_destroy(executor);
    ps_symbol_release(net);
    world_close(&world);
}

/* y = square(x) is read by its Reshape and, in backward, by tanh's of it; in training the
 * Reshape shares its place all the same, and nothing is copied. */
static void in_training_a_reshape_shares_with_what_is_read_later(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_NAIVE, NULL);
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    struct ps_symbol *a = ps_builder_op(b, "tanh", "a", NULL, x);
    struct ps_symbol *r = ps_builder_op(b, "Reshape", "r", "shape=(2,4)", a);
    struct ps_symbol *t = ps_builder_op(b, "square", "t", NULL, r);
    struct ps_symbol *net = finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, t));
    struct ps_named_shape shape = {"x", PS_SHAPE(4, 2)};
    struct ps_executor *executor = simple_bind(&world, net, &shape, 1, PS_GRAD_WRITE);
    assert_int_equal(group_of(executor, "a"), group_of(executor, "r"));
    assert_true(group_of(executor, "t") != group_of(executor, "r"));
    float values[8], expected[8];
    for (int i = 0; i < 8; i++) {
        values[i] = 0.25f * (float)(i - 4);
        expected[i] = 2 * tanhf(values[i]) * (1 - tanhf(values[i]) * tanhf(values[i]));
    }
    tensor_set(ps_executor_find_argument(executor, "x"), values);
    run_step(executor, true);
    tensor_expect(ps_executor_find_gradient(executor, "x"), expected, 1e-6);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
    world_close(&world);
}

/* ---- match ranges, through the executor's report ---- */

static void report_forward(const struct graph_world *world, struct ps_symbol *net,
                           const struct ps_named_shape *shapes, size_t count, int range,
                           struct ps_executor_memory *memory_out)
{
    struct ps_simple_bind bind = {.shapes = shapes, .shape_count = count};
    struct ps_bind_options options = world_options(world);
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    options.match_range = range;
    options.inplace = 0;
    options.plan = PS_PLAN_BLOCKS;
    if (ps_executor_simple_bind(net, &options, &bind, &executor, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    ps_executor_memory(executor, memory_out);
    ps_executor_destroy(executor);
}

/* a(64) -> b(1) -> c(64) -> d(4) -> e(64) elements. */
static void setting_exec_match_range_gives_the_blocks_of_the_ladder(void **state)
{
    (void)state;
    static const struct {
        int range;
        size_t blocks, units;
    } table[] = {{0, 5, 197}, {1, 3, 69}, {2, 3, 69}, {4, 2, 68}, {16, 2, 68}};
    struct graph_world world;
    world_open(&world, PS_ENGINE_NAIVE, NULL);
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    struct ps_symbol *y = ps_builder_op(b, "square", "a", NULL, x);
    y = ps_builder_op(b, "sum", "b", "keepdims=True", y);
    y = ps_builder_op(b, "broadcast_add", "c", NULL, y, x);
    y = ps_builder_op(b, "sum", "d", "axis=1 keepdims=True", y);
    struct ps_symbol *net = finish(b, ps_builder_op(b, "broadcast_add", "e", NULL, y, x));
    for (size_t i = 0; i < PS_COUNT(table); i++) {
        struct ps_named_shape shape = {"x", PS_SHAPE(4, 16)};
        struct ps_executor_memory memory;
        report_forward(&world, net, &shape, 1, table[i].range, &memory);
        assert_int_equal(memory.block_count, table[i].blocks);
        assert_int_equal(memory.block_bytes, table[i].units * 4);
    }
    ps_symbol_release(net);
    world_close(&world);
}

/* 128 or 129 elements are freed when 8 are asked for. */
static void setting_exec_match_range_16_is_exact_in_the_executors_report(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_NAIVE, "EXEC_MATCH_RANGE=16");
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x"), *y = ps_builder_variable(b, "y");
    struct ps_symbol *s = ps_builder_op(b, "square", "a", NULL, x);
    s = ps_builder_op(b, "sum", "b", "keepdims=True", s);
    struct ps_symbol *net = finish(b, ps_builder_op(b, "broadcast_add", "c", NULL, s, y));
    for (int above = 0; above < 2; above++) {
        struct ps_named_shape shapes[] = {
            {"x", above ? PS_SHAPE(3, 43) : PS_SHAPE(8, 16)}, {"y", PS_SHAPE(1, 8)}};
        struct ps_executor_memory memory;
        report_forward(&world, net, shapes, 2, -1, &memory);
        assert_int_equal(memory.block_count, above ? 3 : 2);
    }
    ps_symbol_release(net);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_exec_enable_inplace_gives_the_blocks_of_the_table),
        cmocka_unit_test(
            setting_exec_enable_inplace_and_exec_match_range_are_read_at_bind),
        cmocka_unit_test(setting_exec_enable_inplace_does_not_spring_the_trap),
        cmocka_unit_test(a_reshape_of_what_is_still_used_gets_its_own_storage),
        cmocka_unit_test(
            setting_exec_enable_inplace_makes_consecutive_outputs_one_pointer),
        cmocka_unit_test(setting_exec_match_range_gives_the_blocks_of_the_ladder),
        cmocka_unit_test(setting_exec_match_range_16_is_exact_in_the_executors_report),
        cmocka_unit_test(blocks_have_the_real_bytes_of_their_types),
        cmocka_unit_test(in_training_a_reshape_shares_with_what_is_read_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
