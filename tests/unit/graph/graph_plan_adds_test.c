/* Sums of gradients: n-ary or a chain, as EXEC_INPLACE_GRAD_SUM_CAP says, and operators
 * that add their gradient straight into the running sum of a chain.  Whatever is chosen,
 * the sums have the same operands in the same order, so every bit is the same. */
#include "base/rng.h"
#include "engine/graph/exec_core.h"
#include "tests/unit/graph/graph_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 24 };

/* h = tanh(x), then 'uses' operators that take h, added up; where two terms meet there is
 * an operator of another kind now and then. */
static struct ps_symbol *many_uses(int uses)
{
    static const char *const ops[] = {"square", "sigmoid", "_mul_scalar", "negative",
                                      "relu"};
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x"), *y = NULL;
    struct ps_symbol *h = ps_builder_op(b, "tanh", "h", NULL, x);
    for (int i = 0; i < uses; i++) {
        const char *op = ops[i % 5];
        const char *attrs =
            i % 5 == 2 ? ps_builder_text(b, "scalar=%d.25", i) : (const char *)NULL;
        struct ps_symbol *term = ps_builder_op(b, op, NULL, attrs, h);
        y = y == NULL ? term : ps_builder_op(b, "elemwise_add", NULL, NULL, y, term);
    }
    y = ps_builder_op(b, "elemwise_mul", NULL, NULL, y, y);
    return finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, y));
}

static struct ps_executor *bind_plan(const struct graph_world *world,
                                     struct ps_symbol *net, enum ps_plan_kind plan,
                                     int inplace)
{
    struct ps_error err = {0};
    struct ps_named_shape shape = {"x", PS_SHAPE(COUNT)};
    struct ps_simple_bind bind = {
        .shapes = &shape, .shape_count = 1, .req = PS_GRAD_WRITE};
    struct ps_bind_options options = world_options(world);
    struct ps_executor *executor = NULL;
    options.plan = plan;
    options.inplace = inplace;
    if (ps_executor_simple_bind(net, &options, &bind, &executor, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    return executor;
}

static float *gradient_of_x(struct ps_executor *executor)
{
    tensor_fill_random(ps_executor_find_argument(executor, "x"), 17, 2);
    run_step(executor, true);
    run_step(executor, true); /* what is added must not pile up over steps */
    return tensor_get(ps_executor_find_gradient(executor, "x"));
}

/* Sums with more than one operand: how many, and the most operands of one. */
static size_t sums(const struct ps_executor *executor, size_t *most_out)
{
    const struct ps_graph *graph = &executor->core->graph;
    size_t count = 0;
    *most_out = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        if (graph->nodes[n].kind == PS_NODE_SUM && graph->nodes[n].input_count > 1) {
            count++;
            *most_out = PS_MAX(*most_out, (size_t)graph->nodes[n].input_count);
        }
    }
    return count;
}

static void
setting_exec_inplace_grad_sum_cap_decides_between_one_sum_and_a_chain(void **state)
{
    (void)state;
    static const struct {
        const char *setting;
        int uses;
        size_t sums, most;
    } table[] = {{NULL, 7, 1, 7},
                 {NULL, 8, 7, 2},
                 {"EXEC_INPLACE_GRAD_SUM_CAP=2", 3, 2, 2},
                 {"EXEC_INPLACE_GRAD_SUM_CAP=4", 3, 1, 3},
                 {"EXEC_INPLACE_GRAD_SUM_CAP=4", 4, 3, 2},
                 {"EXEC_INPLACE_GRAD_SUM_CAP=100", 60, 1, 60}};
    for (size_t i = 0; i < PS_COUNT(table); i++) {
        struct graph_world world;
        world_open(&world, PS_ENGINE_NAIVE, table[i].setting);
        struct ps_symbol *net = many_uses(table[i].uses);
        struct ps_executor *executor = bind_plan(&world, net, PS_PLAN_AUTO, -1);
        size_t most, count = sums(executor, &most);
        assert_int_equal(count, table[i].sums + 1); /* and that of y * y */
        assert_int_equal(PS_MAX(most, (size_t)2), table[i].most);
        ps_executor_destroy(executor);
        ps_symbol_release(net);
        world_close(&world);
    }
}

/* A chain costs as much memory however long it is; one sum holds all its operands. */
static void setting_exec_inplace_grad_sum_cap_bounds_the_memory_of_long_sums(void **state)
{
    (void)state;
    size_t live[2][2];
    for (int chain = 0; chain < 2; chain++) {
        struct graph_world world;
        world_open(&world, PS_ENGINE_NAIVE,
                   chain ? "EXEC_INPLACE_GRAD_SUM_CAP=2"
                         : "EXEC_INPLACE_GRAD_SUM_CAP=1000");
        for (int k = 0; k < 2; k++) {
            struct ps_symbol *net = many_uses(k == 0 ? 10 : 40);
            struct ps_executor *executor = bind_plan(&world, net, PS_PLAN_AUTO, -1);
            live[chain][k] = executor->core->plan.live_peak_bytes;
            ps_executor_destroy(executor);
            ps_symbol_release(net);
        }
        world_close(&world);
    }
    assert_true(live[1][1] < live[0][1]);
}

/* The chain's sums of h have nothing to run, their operators add; bit for bit what sums
 * without a plan give, on every engine and under both layouts. */
static void a_chains_operators_add_into_the_running_sum(void **state)
{
    (void)state;
    static const int engines[] = {PS_ENGINE_NAIVE, PS_ENGINE_PER_DEVICE,
                                  PS_ENGINE_POOLED};
    static const enum ps_plan_kind plans[] = {PS_PLAN_BLOCKS, PS_PLAN_OFFSETS};
    for (size_t e = 0; e < PS_COUNT(engines); e++) {
        struct graph_world world;
        world_open(&world, engines[e], "EXEC_INPLACE_GRAD_SUM_CAP=2");
        for (int uses = 1; uses <= 12; uses++) {
            struct ps_symbol *net = many_uses(uses);
            struct ps_executor *plain = bind_plan(&world, net, PS_PLAN_NONE, 0);
            assert_int_equal(plain->core->accumulated_count, 0);
            float *expected = gradient_of_x(plain);
            for (size_t p = 0; p < PS_COUNT(plans); p++) {
                struct ps_executor *planned = bind_plan(&world, net, plans[p], 1);
                if (uses > 2) {
                    assert_true(planned->core->accumulated_count >= (size_t)uses - 2);
                }
                float *have = gradient_of_x(planned);
                assert_memory_equal(have, expected, COUNT * sizeof(float));
                free(have);
                ps_executor_destroy(planned);
            }
            free(expected);
            ps_executor_destroy(plain);
            ps_symbol_release(net);
        }
        world_close(&world);
    }
}

static void without_in_place_nothing_is_accumulated(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_NAIVE, "EXEC_ENABLE_INPLACE=0");
    struct ps_symbol *net = many_uses(12);
    struct ps_executor *executor = bind_plan(&world, net, PS_PLAN_AUTO, -1);
    assert_int_equal(executor->core->accumulated_count, 0);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
    world_close(&world);
}

/* ---- what the flag promises ---- */

static const struct {
    const char *op, *attrs;
    int inputs;
} promises[] = {{"Activation", "act_type=tanh", 1},
                {"Dropout", "p=0.5", 1},
                {"add_n", NULL, 3},
                {"Concat", "dim=1", 2},
                {"SliceChannel", "num_outputs=2 axis=1", 1},
                {"transpose", NULL, 1},
                {"SwapAxis", "dim1=0 dim2=1", 1},
                {"Flatten", NULL, 1},
                {"Reshape", "shape=(-1,)", 1},
                {"_copy", NULL, 1}};

static const char *promised_attrs(const char *name)
{
    for (size_t i = 0; i < PS_COUNT(promises); i++) {
        if (strcmp(promises[i].op, name) == 0) {
            return promises[i].attrs;
        }
    }
    return strstr(name, "_scalar") != NULL ? "scalar=1.7" : NULL;
}

static struct ps_symbol *one_op(const struct ps_op_def *def)
{
    struct ps_builder *b = builder_new();
    const char *name = ps_op_name(def);
    struct ps_symbol *in[3];
    int inputs = 1;
    for (size_t i = 0; i < PS_COUNT(promises); i++) {
        inputs = strcmp(promises[i].op, name) == 0 ? promises[i].inputs : inputs;
    }
    if (strncmp(name, "elemwise_", 9) == 0 || strcmp(name, "_maximum") == 0 ||
        strcmp(name, "_minimum") == 0 || strcmp(name, "_power") == 0 ||
        strcmp(name, "_hypot") == 0) {
        inputs = 2;
    }
    for (int i = 0; i < inputs; i++) {
        in[i] = ps_builder_variable(b, ps_builder_text(b, "x%d", i));
    }
    struct ps_symbol *y =
        ps_builder_compose(b, name, "op", promised_attrs(name), in, (size_t)inputs);
    if (strcmp(name, "SliceChannel") == 0) {
        y = ps_builder_op(b, "elemwise_mul", NULL, NULL, ps_builder_output(b, y, 0),
                          ps_builder_output(b, y, 1));
    }
    y = ps_builder_op(b, "square", NULL, NULL, y); /* head gradients of all sizes */
    return finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, y));
}

/* Gradients of all arguments with 'req', on top of seeded numbers. */
static void run_one(const struct graph_world *world, struct ps_symbol *net,
                    enum ps_grad_req req, float *out[3], float *before[3])
{
    struct ps_error err = {0};
    struct ps_named_shape shapes[] = {
        {"x0", PS_SHAPE(6, 8)}, {"x1", PS_SHAPE(6, 8)}, {"x2", PS_SHAPE(6, 8)}};
    struct ps_bind_options options = world_options(world);
    size_t count = 3;
    struct ps_executor *executor = NULL;
    options.seed = 5;
    for (;; count--) { /* as many of the shapes as the operator has inputs */
        struct ps_simple_bind bind = {.shapes = shapes, .shape_count = count, .req = req};
        if (ps_executor_simple_bind(net, &options, &bind, &executor, &err) == PS_OK) {
            break;
        }
        if (count == 1) {
            fail_msg("%s", err.text);
        }
    }
    for (size_t i = 0; i < ps_executor_argument_count(executor); i++) {
        tensor_fill_random(ps_executor_argument(executor, i), 3 + i, 1.5f);
        tensor_fill_random(ps_executor_gradient(executor, i), 70 + i, 1);
        before[i] = tensor_get(ps_executor_gradient(executor, i));
    }
    run_step(executor, true);
    for (size_t i = 0; i < ps_executor_argument_count(executor); i++) {
        out[i] = tensor_get(ps_executor_gradient(executor, i));
    }
    ps_executor_destroy(executor);
}

static void operators_that_say_so_add_to_the_bit(void **state)
{
    const struct graph_world *world = *state;
    size_t checked = 0;
    for (size_t k = 0; ps_op_at(k) != NULL; k++) {
        const struct ps_op_def *def = ps_op_at(k);
        if ((ps_op_flags(def) & PS_OP_ADDS_EXACTLY) == 0) {
            continue;
        }
        struct ps_symbol *net = one_op(def);
        float *written[3] = {NULL}, *added[3] = {NULL}, *before[3] = {NULL};
        float *unused[3] = {NULL};
        run_one(world, net, PS_GRAD_WRITE, written, unused);
        run_one(world, net, PS_GRAD_ADD, added, before);
        for (size_t i = 0; i < 3 && added[i] != NULL; i++) {
            for (size_t j = 0; j < 48; j++) {
                float sum = before[i][j] + written[i][j];
                if (memcmp(&sum, &added[i][j], sizeof(sum)) != 0) {
                    fail_msg("%s: input %zu, element %zu: %a + %a gave %a",
                             ps_op_name(def), i, j, (double)before[i][j],
                             (double)written[i][j], (double)added[i][j]);
                }
            }
            free(written[i]), free(added[i]), free(before[i]), free(unused[i]);
        }
        ps_symbol_release(net);
        checked++;
    }
    assert_true(checked > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            setting_exec_inplace_grad_sum_cap_decides_between_one_sum_and_a_chain),
        cmocka_unit_test(
            setting_exec_inplace_grad_sum_cap_bounds_the_memory_of_long_sums),
        cmocka_unit_test(a_chains_operators_add_into_the_running_sum),
        cmocka_unit_test(without_in_place_nothing_is_accumulated),
        cmocka_unit_test(operators_that_say_so_add_to_the_bit),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
