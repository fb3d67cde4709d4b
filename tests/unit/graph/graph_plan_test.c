/* Memory plans: the golden tables of in-place sharing and match ranges, the trap, random
 * sequences with a checker that knows nothing of how plans are made. */
#include "base/rng.h"
#include "engine/graph/exec_core.h"
#include "tests/unit/graph/graph_fixture.h"

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

static void the_chain_of_five_needs_the_blocks_of_the_table(void **state)
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

static void settings_decide_where_the_caller_does_not(void **state)
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
static void the_trap_keeps_three_blocks(void **state)
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

/* ---- match ranges, on sequences of steps ---- */

/* A chain: step i reads value i - 1 and writes value i of 'units[i]' elements. */
static void plan_chain(const size_t *units, size_t count, bool inplace, size_t range,
                       struct ps_memory_plan *plan_out)
{
    struct ps_plan_value values[16] = {{0}};
    struct ps_plan_step steps[16] = {{0}};
    uint32_t names[16];
    for (uint32_t i = 0; i < count; i++) {
        names[i] = i;
        values[i] = (struct ps_plan_value){
            .bytes = units[i] * 4, .count = (int64_t)units[i], .keep = i + 1 == count};
        steps[i] = (struct ps_plan_step){.writes = &names[i], .write_count = 1};
        if (i > 0) {
            steps[i].reads = &names[i - 1];
            steps[i].read_count = 1;
        }
    }
    struct ps_plan_input input = {.values = values,
                                  .steps = steps,
                                  .value_count = count,
                                  .step_count = count,
                                  .inplace = inplace,
                                  .match_range = range};
    assert_int_equal(ps_plan_memory(&input, plan_out), PS_OK);
}

static void the_ladder_sweeps_its_range(void **state)
{
    (void)state;
    static const size_t ladder[] = {64, 1, 64, 4, 64};
    static const struct {
        size_t range, blocks, units, used;
    } table[] = {
        {1, 3, 69, 1}, {2, 3, 69, 1}, {4, 2, 68, 4}, {16, 2, 68, 4}, {1000, 2, 68, 4}};
    for (size_t i = 0; i < PS_COUNT(table); i++) {
        struct ps_memory_plan plan;
        plan_chain(ladder, 5, false, table[i].range, &plan);
        assert_int_equal(plan.block_count, table[i].blocks);
        assert_int_equal(plan.total_bytes, table[i].units * 4);
        assert_int_equal(plan.match_range, table[i].used);
        ps_memory_plan_fini(&plan);
    }
}

static void a_block_of_sixteen_times_the_request_is_the_last_reused(void **state)
{
    (void)state;
    static const size_t at[] = {16 * 8, 1, 8}, above[] = {16 * 8 + 1, 1, 8};
    struct ps_memory_plan plan;
    plan_chain(at, 3, false, 16, &plan);
    assert_int_equal(plan.block_count, 2);
    ps_memory_plan_fini(&plan);
    plan_chain(above, 3, false, 16, &plan);
    assert_int_equal(plan.block_count, 3);
    ps_memory_plan_fini(&plan);
}

static void offsets_need_less_where_sizes_differ(void **state)
{
    (void)state;
    static const size_t units[] = {1024, 512, 512, 1024, 256, 2048, 64};
    struct ps_memory_plan plan;
    plan_chain(units, 7, false, 1, &plan);
    assert_true(plan.offset_bytes > 0 && plan.offset_bytes < plan.total_bytes);
    ps_memory_plan_fini(&plan);
}

/* ---- random sequences ---- */

enum { STEPS = 200, VALUES = STEPS };

struct random_input {
    struct ps_plan_value values[VALUES];
    struct ps_plan_step steps[STEPS];
    uint32_t reads[STEPS][3], writes[STEPS];
    struct ps_plan_pair pairs[STEPS][3];
    struct ps_plan_input input;
};

static void make_random(struct random_input *random, uint64_t seed)
{
    struct ps_rng rng;
    ps_rng_init(&rng, seed);
    memset(random, 0, sizeof(*random));
    for (uint32_t s = 0; s < STEPS; s++) {
        struct ps_plan_step *step = &random->steps[s];
        size_t count = (size_t)1 << ps_rng_below(&rng, 12);
        random->values[s] =
            (struct ps_plan_value){.bytes = count * 4,
                                   .count = (int64_t)count,
                                   .external = ps_rng_below(&rng, 20) == 0,
                                   .keep = ps_rng_below(&rng, 20) == 0};
        random->writes[s] = s;
        step->writes = &random->writes[s];
        step->write_count = 1;
        step->reads = random->reads[s];
        step->pairs = random->pairs[s];
        for (uint32_t i = 0; s > 0 && i < ps_rng_below(&rng, 4); i++) {
            uint64_t back = ps_rng_below(&rng, PS_MIN(s, 12u));
            uint32_t from = s - 1 - (uint32_t)back;
            random->reads[s][step->read_count++] = from;
            random->pairs[s][step->pair_count++] = (struct ps_plan_pair){.from = from, .to = s};
        }
    }
    random->input = (struct ps_plan_input){.values = random->values,
                                           .steps = random->steps,
                                           .value_count = VALUES,
                                           .step_count = STEPS,
                                           .inplace = ps_rng_below(&rng, 2) == 0,
                                           .match_range = ps_rng_below(&rng, 3) * 8 + 8};
}

/* Runs the steps on bytes of the plan: each place holds the value that was written there
 * last; a read that finds another value is an overlap of live intervals. */
static void check_places(const struct random_input *random,
                         const struct ps_memory_plan *plan, bool offsets)
{
    size_t size = 0, base[VALUES + 1] = {0}, kept = 0;
    for (size_t b = 0; !offsets && b < plan->block_count; b++) {
        base[b] = size;
        size += plan->block_bytes[b];
    }
    for (size_t g = 0; offsets && g < plan->group_count; g++) {
        kept += plan->groups[g].keep ? plan->groups[g].bytes : 0;
    }
    size = offsets ? plan->arena_bytes + kept : size;
    uint32_t *memory = calloc(size / 4 + 1, sizeof(uint32_t));
    size_t at[VALUES], next_kept = plan->arena_bytes, place[VALUES];
    for (size_t g = 0; g < plan->group_count; g++) {
        const struct ps_plan_group *group = &plan->groups[g];
        place[g] = !offsets       ? base[group->block]
                   : !group->keep ? group->offset
                                  : next_kept;
        next_kept += offsets && group->keep ? group->bytes : 0;
        assert_true(place[g] + group->bytes <= size);
    }
    for (uint32_t s = 0; s < STEPS; s++) {
        const struct ps_plan_step *step = &random->steps[s];
        for (uint32_t i = 0; i < step->read_count; i++) {
            uint32_t v = step->reads[i];
            for (size_t w = 0;
                 !random->values[v].external && w < random->values[v].bytes / 4; w++) {
                assert_int_equal(memory[at[v] / 4 + w], v + 1);
            }
        }
        if (!random->values[s].external) {
            assert_true(plan->group_of[s] != PS_PLAN_NOWHERE);
            at[s] = place[plan->group_of[s]];
            for (size_t w = 0; w < random->values[s].bytes / 4; w++) {
                memory[at[s] / 4 + w] = s + 1;
            }
        }
    }
    for (uint32_t v = 0; v < VALUES; v++) { /* what is kept is still there */
        if (random->values[v].keep && !random->values[v].external) {
            assert_int_equal(memory[at[v] / 4], v + 1);
        }
    }
    free(memory);
}

static void case_118_live_values_never_overlap(void **state)
{
    (void)state;
    struct random_input *random = malloc(sizeof(*random));
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct ps_memory_plan plan;
        make_random(random, seed);
        assert_int_equal(ps_plan_memory(&random->input, &plan), PS_OK);
        assert_true(plan.total_bytes <= plan.unplanned_bytes);
        check_places(random, &plan, false);
        check_places(random, &plan, true);
        ps_memory_plan_fini(&plan);
    }
    free(random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chain_of_five_needs_the_blocks_of_the_table),
        cmocka_unit_test(settings_decide_where_the_caller_does_not),
        cmocka_unit_test(the_trap_keeps_three_blocks),
        cmocka_unit_test(a_reshape_of_what_is_still_used_gets_its_own_storage),
        cmocka_unit_test(the_ladder_sweeps_its_range),
        cmocka_unit_test(a_block_of_sixteen_times_the_request_is_the_last_reused),
        cmocka_unit_test(offsets_need_less_where_sizes_differ),
        cmocka_unit_test(case_118_live_values_never_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
