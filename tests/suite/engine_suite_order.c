/* Who waits for whom: the invariants of reference/behaviour.md 2.2, and equality of
 * results over the engines (7.8). */
#include "tests/suite/engine_suite.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

/* Gates only block a thread that is not the test's own. */
static bool runs_inline(void)
{
    return suite_type == PS_ENGINE_NAIVE;
}

static bool has_two_threads(void)
{
    return suite_type == PS_ENGINE_POOLED;
}

#define SKIP_INLINE()        \
    do {                     \
        if (runs_inline()) { \
            skip();          \
        }                    \
    } while (0)

static void writes_of_a_variable_run_in_push_order(void **state)
{
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite);
    struct trail trail;
    static struct step steps[500];
    trail_init(&trail);
    for (int i = 0; i < 500; i++) {
        steps[i] = (struct step){.trail = &trail, .number = i};
        push(suite, "step", run_step, &steps[i], NULL, var);
    }
    wait_var_ok(suite, var);
    assert_int_equal(trail.count, 500);
    for (int i = 0; i < 500; i++) {
        assert_int_equal(trail.items[i], i);
    }
    ps_var_delete(suite->engine, var);
    trail_fini(&trail);
}

static void versions_count_completed_writes_only(void **state)
{
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite);
    struct gate gate;
    gate_init(&gate, true);
    for (int i = 0; i < 10; i++) {
        push(suite, "read", run_gate, &gate, var, NULL);
    }
    wait_all_ok(suite);
    assert_int_equal(ps_var_version(var), 0);
    for (int i = 0; i < 10; i++) {
        push(suite, "write", run_gate, &gate, NULL, var);
    }
    wait_all_ok(suite);
    assert_int_equal(ps_var_version(var), 10);
    ps_var_delete(suite->engine, var);
    gate_fini(&gate);
}

static void a_queued_write_waits_for_all_reads_before_it(void **state)
{
    SKIP_INLINE();
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite);
    struct trail trail;
    struct gate gate;
    trail_init(&trail);
    gate_init(&gate, false);
    struct step reads[3], write = {.trail = &trail, .number = 9};
    for (int i = 0; i < 3; i++) {
        reads[i] = (struct step){.trail = &trail, .gate = &gate, .number = i};
        push(suite, "read", run_step, &reads[i], var, NULL);
    }
    push(suite, "write", run_step, &write, NULL, var);
    gate_wait_arrived(&gate, has_two_threads() ? 3 : 1);
    ps_mutex_lock(&trail.lock);
    assert_int_equal(trail.count, 0);
    ps_mutex_unlock(&trail.lock);
    gate_open(&gate);
    wait_all_ok(suite);
    assert_int_equal(trail.count, 4);
    assert_int_equal(trail.items[3], 9);
    ps_var_delete(suite->engine, var);
    gate_fini(&gate);
    trail_fini(&trail);
}

static void a_read_does_not_overtake_a_queued_write(void **state)
{
    SKIP_INLINE();
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite);
    struct trail trail;
    struct gate gate;
    trail_init(&trail);
    gate_init(&gate, false);
    struct step first = {.trail = &trail, .gate = &gate, .number = 0};
    struct step write = {.trail = &trail, .number = 1};
    struct step second = {.trail = &trail, .number = 2};
    push(suite, "read", run_step, &first, var, NULL);
    push(suite, "write", run_step, &write, NULL, var);
    push(suite, "read", run_step, &second, var, NULL);
    gate_open(&gate);
    wait_all_ok(suite);
    assert_int_equal(trail.items[0], 0);
    assert_int_equal(trail.items[1], 1);
    assert_int_equal(trail.items[2], 2);
    ps_var_delete(suite->engine, var);
    gate_fini(&gate);
    trail_fini(&trail);
}

static void adjacent_reads_run_together(void **state)
{
    struct suite *suite = *state;
    if (!has_two_threads()) {
        skip();
    }
    struct ps_var *var = new_var(suite);
    struct gate write_gate, read_gate;
    gate_init(&write_gate, false);
    gate_init(&read_gate, false);
    push(suite, "write", run_gate, &write_gate, NULL, var);
    for (int i = 0; i < 4; i++) {
        push(suite, "read", run_gate, &read_gate, var, NULL);
    }
    gate_open(&write_gate);
    gate_wait_arrived(&read_gate, 4); /* all four stand at the gate at once */
    gate_open(&read_gate);
    wait_all_ok(suite);
    ps_var_delete(suite->engine, var);
    gate_fini(&write_gate);
    gate_fini(&read_gate);
}

static void wait_var_waits_for_writes_and_not_for_reads(void **state)
{
    SKIP_INLINE();
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite);
    struct gate gate, open;
    gate_init(&gate, false);
    gate_init(&open, true);
    wait_var_ok(suite, var); /* idle */
    push(suite, "write", run_gate, &open, NULL, var);
    wait_var_ok(suite, var);
    assert_int_equal(open.arrived, 1);
    push(suite, "read", run_gate, &gate, var, NULL);
    gate_wait_arrived(&gate, 1);
    wait_var_ok(suite, var); /* returns while the read stands at the gate */
    assert_int_equal(ps_engine_pending(suite->engine), 1);
    gate_open(&gate);
    wait_all_ok(suite);
    assert_int_equal(ps_engine_pending(suite->engine), 0);
    ps_var_delete(suite->engine, var);
    gate_fini(&gate);
    gate_fini(&open);
}

static void wait_var_waits_for_a_write_of_any_kind(void **state)
{
    SKIP_INLINE();
    struct suite *suite = *state;
    for (int i = 0; i < 2 * PS_ENGINE_OP_KIND_COUNT; i++) {
        struct ps_var *var = new_var(suite);
        struct trail trail;
        struct gate gate;
        struct ps_thread opener = {.started = false};
        trail_init(&trail);
        gate_init(&gate, false);
        struct step first = {.trail = &trail, .gate = &gate, .number = 1};
        struct step write = {.trail = &trail, .number = 2};
        struct ps_engine_op op = {
            .name = "write",
            .run = run_step,
            .arg = &write,
            .writes = &var,
            .write_count = 1,
            .context = i % 2 == 0 ? PS_CPU(1) : PS_GPU(1),
            .kind = (enum ps_engine_op_kind)(i / 2),
        };
        push(suite, "first", run_step, &first, NULL, var);
        assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
        gate_wait_arrived(&gate, 1);
        assert_int_equal(
            ps_thread_start(&opener, "opener", (void (*)(void *))gate_open, &gate),
            PS_OK);
        wait_var_ok(suite, var);
        assert_int_equal(trail.count, 2);
        ps_thread_join(&opener);
        ps_var_delete(suite->engine, var);
        gate_fini(&gate);
        trail_fini(&trail);
    }
}

static void case_001_a_variable_read_and_written_counts_as_written(void **state)
{
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite);
    struct gate gate;
    gate_init(&gate, true);
    push(suite, "both", run_gate, &gate, var, var);
    wait_var_ok(suite, var);
    assert_int_equal(gate.arrived, 1);
    assert_int_equal(ps_var_version(var), 1);
    ps_var_delete(suite->engine, var);
    gate_fini(&gate);
}

static void case_002_a_variable_written_twice_by_one_op_counts_once(void **state)
{
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite);
    struct ps_var *many[60]; /* more than are compared one by one */
    struct gate gate;
    gate_init(&gate, true);
    for (size_t i = 0; i < PS_COUNT(many); i++) {
        many[i] = var;
    }
    for (size_t count = 2; count <= PS_COUNT(many); count += 58) {
        struct ps_engine_op op = {.name = "twice",
                                  .run = run_gate,
                                  .arg = &gate,
                                  .writes = many,
                                  .write_count = count,
                                  .reads = many,
                                  .read_count = count};
        assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
    }
    wait_var_ok(suite, var);
    assert_int_equal(gate.arrived, 2);
    assert_int_equal(ps_var_version(var), 2);
    ps_var_delete(suite->engine, var);
    gate_fini(&gate);
}

static void an_op_may_have_thousands_of_variables(void **state)
{
    struct suite *suite = *state;
    enum { COUNT = 3000 };
    static struct ps_var *vars[COUNT];
    struct gate gate;
    gate_init(&gate, true);
    for (int i = 0; i < COUNT; i++) {
        vars[i] = new_var(suite);
    }
    for (size_t count = 11; count <= COUNT; count = count * 3) {
        struct ps_engine_op op = {.name = "wide",
                                  .run = run_gate,
                                  .arg = &gate,
                                  .writes = vars,
                                  .write_count = count / 2,
                                  .reads = vars,
                                  .read_count = count};
        assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
    }
    wait_all_ok(suite);
    for (int i = 0; i < COUNT; i++) {
        ps_var_delete(suite->engine, vars[i]);
    }
    gate_fini(&gate);
}

/* ---- RandSumExpr ---- */

enum { SUM_VARS = 100, SUM_OPS = SUITE_SANITIZED ? 1000 : 10000, SUM_READS = 19 };

struct sum_op {
    double *data;
    int write, read_count, reads[SUM_READS];
};

static enum ps_status run_sum(void *arg, const struct ps_run *run, struct ps_error *err)
{
    const struct sum_op *op = arg;
    double sum = 0;
    PS_UNUSED(run);
    PS_UNUSED(err);
    for (int k = 0; k < op->read_count; k++) {
        sum += op->data[op->reads[k]] / (k + 1);
    }
    op->data[op->write] = sum / (op->read_count + 1);
    return PS_OK;
}

static void make_sums(struct sum_op *ops, double *data, uint64_t seed)
{
    struct ps_rng rng;
    ps_rng_init(&rng, seed);
    for (int i = 0; i < SUM_VARS; i++) {
        data[i] = 1;
    }
    for (int i = 0; i < SUM_OPS; i++) {
        ops[i].data = data;
        ops[i].write = (int)ps_rng_below(&rng, SUM_VARS);
        ops[i].read_count = 2 + (int)ps_rng_below(&rng, 18);
        for (int k = 0; k < ops[i].read_count; k++) {
            ops[i].reads[k] = (int)ps_rng_below(&rng, SUM_VARS);
        }
    }
}

static void case_018_random_expressions_equal_the_serial_result(void **state)
{
    struct suite *suite = *state;
    static struct sum_op ops[SUM_OPS];
    static struct ps_var *vars[SUM_VARS];
    double serial[SUM_VARS], data[SUM_VARS];
    for (int i = 0; i < SUM_VARS; i++) {
        vars[i] = new_var(suite);
    }
    for (uint64_t seed = 1; seed <= 5; seed++) {
        make_sums(ops, serial, seed);
        for (int i = 0; i < SUM_OPS; i++) {
            (void)run_sum(&ops[i], NULL, NULL);
        }
        make_sums(ops, data, seed);
        for (int i = 0; i < SUM_OPS; i++) {
            struct ps_var *reads[SUM_READS];
            for (int k = 0; k < ops[i].read_count; k++) {
                reads[k] = vars[ops[i].reads[k]];
            }
            struct ps_engine_op op = {
                .name = "sum",
                .run = run_sum,
                .arg = &ops[i],
                .reads = reads,
                .read_count = (size_t)ops[i].read_count,
                .writes = &vars[ops[i].write],
                .write_count = 1,
                .context = i % 5 < 3 ? PS_CPU(i % 5) : PS_GPU(i % 2),
                .kind = (enum ps_engine_op_kind)(i % PS_ENGINE_OP_KIND_COUNT),
                .priority = i % 7};
            assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
        }
        wait_all_ok(suite);
        assert_memory_equal(data, serial, sizeof(data));
    }
    for (int i = 0; i < SUM_VARS; i++) {
        ps_var_delete(suite->engine, vars[i]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, suite_setup, suite_teardown)

static const struct CMUnitTest tests[] = {
    TEST(writes_of_a_variable_run_in_push_order),
    TEST(versions_count_completed_writes_only),
    TEST(a_queued_write_waits_for_all_reads_before_it),
    TEST(a_read_does_not_overtake_a_queued_write),
    TEST(adjacent_reads_run_together),
    TEST(wait_var_waits_for_writes_and_not_for_reads),
    TEST(wait_var_waits_for_a_write_of_any_kind),
    TEST(case_001_a_variable_read_and_written_counts_as_written),
    TEST(case_002_a_variable_written_twice_by_one_op_counts_once),
    TEST(an_op_may_have_thousands_of_variables),
    TEST(case_018_random_expressions_equal_the_serial_result),
};

SUITE_GROUP(suite_order, "order", tests);
