/* The planner by itself, on sequences of steps: the golden tables and the trap once more,
 * without an executor around them. */
#include "base/util.h"
#include "engine/graph/plan_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

/* A chain: step i reads value i - 1 and writes value i of 'units[i]' elements. */
static void plan_chain(const size_t *units, size_t count, bool inplace, size_t range,
                       struct ps_memory_plan *plan_out)
{
    struct ps_plan_value values[16] = {{0}};
    struct ps_plan_step steps[16] = {{0}};
    struct ps_plan_pair pairs[16] = {{0}};
    uint32_t names[16];
    for (uint32_t i = 0; i < count; i++) {
        names[i] = i;
        values[i] = (struct ps_plan_value){
            .bytes = units[i] * 4, .count = (int64_t)units[i], .keep = i + 1 == count};
        steps[i] = (struct ps_plan_step){.writes = &names[i], .write_count = 1};
        if (i > 0) {
            steps[i].reads = &names[i - 1];
            steps[i].read_count = 1;
            pairs[i] = (struct ps_plan_pair){.from = i - 1, .to = i};
            steps[i].pairs = &pairs[i];
            steps[i].pair_count = 1;
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

static void setting_exec_enable_inplace_on_the_planner_gives_the_table(void **state)
{
    (void)state;
    static const size_t chain[] = {MIB, MIB, MIB, MIB, MIB};
    static const struct {
        bool inplace;
        size_t range, blocks, mib;
    } table[] = {{true, 16, 1, 4},  {true, 1, 1, 4},  {true, 0, 1, 4},
                 {false, 16, 2, 8}, {false, 1, 2, 8}, {false, 0, 5, 20}};
    for (size_t i = 0; i < PS_COUNT(table); i++) {
        struct ps_memory_plan plan;
        plan_chain(chain, 5, table[i].inplace, table[i].range, &plan);
        assert_int_equal(plan.block_count, table[i].blocks);
        assert_int_equal(plan.total_bytes, table[i].mib * MIB);
        assert_int_equal(plan.inplace_count, table[i].inplace ? 4 : 0);
        ps_memory_plan_fini(&plan);
    }
}

/* 0: B; 1: B -> C, which may share; 2: B, C -> F, which may not. */
static void setting_exec_enable_inplace_keeps_what_is_still_read(void **state)
{
    (void)state;
    static const uint32_t b = 0, c = 1, f = 2, both[] = {0, 1};
    static const struct ps_plan_pair pair = {.from = 0, .to = 1};
    struct ps_plan_value value = {.bytes = 64, .count = 16};
    struct ps_plan_value values[] = {value, value, value};
    values[2].keep = true;
    struct ps_plan_step steps[] = {
        {.writes = &b, .write_count = 1},
        {.reads = &b,
         .read_count = 1,
         .writes = &c,
         .write_count = 1,
         .pairs = &pair,
         .pair_count = 1},
        {.reads = both, .read_count = 2, .writes = &f, .write_count = 1}};
    struct ps_plan_input input = {.values = values,
                                  .steps = steps,
                                  .value_count = 3,
                                  .step_count = 3,
                                  .inplace = true,
                                  .match_range = 16};
    struct ps_memory_plan plan;
    assert_int_equal(ps_plan_memory(&input, &plan), PS_OK);
    assert_int_equal(plan.block_count, 3);
    assert_int_equal(plan.inplace_count, 0);
    ps_memory_plan_fini(&plan);
}

static void setting_exec_match_range_is_swept_over_the_ladder(void **state)
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

static void setting_exec_match_range_16_ends_at_16_times_the_request(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_exec_enable_inplace_on_the_planner_gives_the_table),
        cmocka_unit_test(setting_exec_match_range_is_swept_over_the_ladder),
        cmocka_unit_test(offsets_need_less_where_sizes_differ),
        cmocka_unit_test(setting_exec_enable_inplace_keeps_what_is_still_read),
        cmocka_unit_test(setting_exec_match_range_16_ends_at_16_times_the_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
