/* Sums of gradients: cases 111, 112, 114. */
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

/* x, then n times one Dense(16) layer with shared weights, squared and summed. */
static struct ps_symbol *dense_applied(int times)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    struct ps_symbol *w = ps_builder_variable(b, "w"), *c = ps_builder_variable(b, "b");
    for (int i = 0; i < times; i++) {
        x = ps_builder_op(b, "FullyConnected", NULL, "num_hidden=16", x, w, c);
    }
    x = ps_builder_op(b, "sum", NULL, NULL, ps_builder_op(b, "square", NULL, NULL, x));
    return finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, x));
}

static void run_dense(const struct graph_world *world, int times, enum ps_grad_req req,
                      float *w_out[1], float *b_out[1])
{
    struct ps_symbol *net = dense_applied(times);
    struct ps_named_shape shape = {"data", PS_SHAPE(32, 16)};
    struct ps_executor *executor = simple_bind(world, net, &shape, 1, req);
    tensor_fill_random(ps_executor_find_argument(executor, "data"), 123, 1);
    fill_parameters(executor, 123, 0.3f);
    run_forward(executor, true);
    run_backward(executor, NULL);
    *w_out = tensor_get(ps_executor_find_gradient(executor, "w"));
    *b_out = tensor_get(ps_executor_find_gradient(executor, "b"));
    ps_executor_destroy(executor);
    ps_symbol_release(net);
}

static void case_111_add_from_zero_equals_write_for_one_to_ten_uses(void **state)
{
    for (int n = 1; n <= 10; n++) {
        float *w[2], *b[2];
        run_dense(*state, n, PS_GRAD_WRITE, &w[0], &b[0]);
        run_dense(*state, n, PS_GRAD_ADD, &w[1], &b[1]);
        assert_memory_equal(w[0], w[1], 256 * sizeof(float));
        assert_memory_equal(b[0], b[1], 16 * sizeof(float));
        float norm = 0;
        for (int i = 0; i < 256; i++) {
            norm += fabsf(w[0][i]);
        }
        assert_true(norm > 0);
        free(w[0]), free(w[1]), free(b[0]), free(b[1]);
    }
}

static size_t node_of(const struct ps_executor *executor, const char *name)
{
    const struct ps_graph *graph = &executor->core->graph;
    for (size_t n = 0; n < graph->node_count; n++) {
        if (strcmp(graph->nodes[n].name, name) == 0) {
            return n;
        }
    }
    fail_msg("no node %s", name);
    return 0;
}

static uint32_t place_of(const struct ps_executor *executor, const char *name)
{
    const struct ps_graph_node *node =
        &executor->core->graph.nodes[node_of(executor, name)];
    return executor->core->plan.group_of[node->first_entry];
}

/* add_n of four, one of them dying here, so that the output may take its place. */
static void case_112_add_n_in_the_place_of_an_input(void **state)
{
    const struct graph_world *world = *state;
    for (int place = 0; place < 4; place++) {
        struct ps_builder *b = builder_new();
        struct ps_symbol *x = ps_builder_variable(b, "data");
        struct ps_symbol *terms[4];
        for (int i = 0; i < 4; i++) {
            terms[i] = i == place ? ps_builder_op(b, "square", "term", NULL, x) : x;
        }
        struct ps_symbol *sum = ps_builder_compose(b, "add_n", "sum", NULL, terms, 4);
        struct ps_symbol *net = finish(b, ps_builder_op(b, "negative", NULL, NULL, sum));
        struct ps_named_shape shape = {"data", PS_SHAPE(3)};
        struct ps_executor *executor = simple_bind(world, net, &shape, 1, PS_GRAD_NULL);
        tensor_set(ps_executor_find_argument(executor, "data"), (const float[]){1, 2, 3});
        assert_int_equal(place_of(executor, "sum"), place_of(executor, "term"));
        run_forward(executor, false);
        tensor_expect(ps_executor_output(executor, 0), (const float[]){-4, -10, -18}, 0);
        ps_executor_destroy(executor);
        ps_symbol_release(net);
    }
}

/* The same in backward: four gradients meet, and their sum lies where one of them lay. */
static void case_112_gradients_in_the_place_of_one_of_them(void **state)
{
    for (int add = 0; add < 2; add++) {
        struct ps_builder *b = builder_new();
        struct ps_symbol *x =
            ps_builder_op(b, "square", "h", NULL, ps_builder_variable(b, "x"));
        struct ps_symbol *terms[4];
        for (int i = 0; i < 4; i++) {
            terms[i] = ps_builder_op(b, "_mul_scalar", NULL,
                                     ps_builder_text(b, "scalar=%d", i + 1), x);
        }
        struct ps_symbol *sum = ps_builder_compose(b, "add_n", NULL, NULL, terms, 4);
        struct ps_symbol *net = finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, sum));
        struct ps_named_shape shape = {"x", PS_SHAPE(3)};
        struct ps_executor *executor =
            simple_bind(*state, net, &shape, 1, add ? PS_GRAD_ADD : PS_GRAD_WRITE);
        tensor_set(ps_executor_find_argument(executor, "x"), (const float[]){1, 2, 3});
        assert_true(place_of(executor, "h_grad_sum") != PS_PLAN_NOWHERE);
        assert_true(executor->core->plan.groups[place_of(executor, "h_grad_sum")].first <
                    node_of(executor, "h_grad_sum")); /* somebody lay there before */
        for (int step = 0; step < 2; step++) {
            run_step(executor, true);
        }
        float k = add ? 40 : 20;
        tensor_expect(ps_executor_find_gradient(executor, "x"),
                      (const float[]){k, 2 * k, 3 * k}, 0);
        ps_executor_destroy(executor);
        ps_symbol_release(net);
    }
}

/* y = x + x^2 + 2x + ... in n terms: n gradients meet, by one sum or by a chain, and the
 * sum takes the place of a term. */
static void gradients_of_many_uses_are_summed(void **state)
{
    const struct graph_world *world = *state;
    for (int n = 1; n <= 12; n++) {
        struct ps_builder *b = builder_new();
        struct ps_symbol *x = ps_builder_variable(b, "x");
        struct ps_symbol *y = NULL;
        for (int i = 1; i <= n; i++) {
            struct ps_symbol *term =
                ps_builder_op(b, "_mul_scalar", NULL, ps_builder_text(b, "scalar=%d", i),
                              ps_builder_op(b, "square", NULL, NULL, x));
            y = y == NULL ? term : ps_builder_op(b, "elemwise_add", NULL, NULL, y, term);
        }
        struct ps_symbol *net = finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, y));
        struct ps_named_shape shape = {"x", PS_SHAPE(3)};
        struct ps_executor *executor = simple_bind(world, net, &shape, 1, PS_GRAD_WRITE);
        tensor_set(ps_executor_find_argument(executor, "x"), (const float[]){1, -2, 3});
        run_forward(executor, true);
        run_backward(executor, NULL);
        float k = (float)(n * (n + 1));
        tensor_expect(ps_executor_find_gradient(executor, "x"),
                      (const float[]){k, -2 * k, 3 * k}, 1e-6);
        ps_executor_destroy(executor);
        ps_symbol_release(net);
    }
}

static struct ps_symbol *batch_norm_loss(void)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "BatchNorm", "bn", "fix_gamma=False eps=0.001", x);
    x = ps_builder_op(b, "sum", NULL, NULL, ps_builder_op(b, "square", NULL, NULL, x));
    return finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, x));
}

static void run_batch_norm(const struct graph_world *world, enum ps_grad_req req,
                           int passes, float gamma[2], float beta[2])
{
    static const float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    struct ps_symbol *net = batch_norm_loss();
    struct ps_named_shape shape = {"data", PS_SHAPE(1, 3, 2, 2)};
    struct ps_executor *executor = simple_bind(world, net, &shape, 1, req);
    tensor_set(ps_executor_find_argument(executor, "data"), data);
    tensor_set(ps_executor_find_argument(executor, "bn_gamma"), (const float[]){1, 1, 1});
    tensor_set(ps_executor_find_argument(executor, "bn_beta"),
               (const float[]){0.5f, 0.5f, 0.5f});
    for (int i = 0; i < passes; i++) {
        run_forward(executor, true);
        run_backward(executor, NULL);
    }
    float *g = tensor_get(ps_executor_find_gradient(executor, "bn_gamma"));
    float *b = tensor_get(ps_executor_find_gradient(executor, "bn_beta"));
    memcpy(gamma, g, 2 * sizeof(float));
    memcpy(beta, b, 2 * sizeof(float));
    free(g), free(b);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
}

static void case_114_batch_norm_gradients_accumulate(void **state)
{
    float once[2][2], three[2][2];
    run_batch_norm(*state, PS_GRAD_WRITE, 1, once[0], once[1]);
    run_batch_norm(*state, PS_GRAD_ADD, 3, three[0], three[1]);
    for (int i = 0; i < 2; i++) {
        assert_true(fabsf(once[0][i]) > 1 && fabsf(once[1][i]) > 1);
        assert_true(fabsf(three[0][i] - 3 * once[0][i]) < 1e-4f);
        assert_true(fabsf(three[1][i] - 3 * once[1][i]) < 1e-4f);
    }
}

/* gamma 1, beta 0, eps 1e-5: the gradient of gamma is 2 sum xh^2 = 8 * 1.25 / 1.25001. */
static void case_114_three_accumulations_are_three_times_7_999936(void **state)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "BatchNorm", "bn", "fix_gamma=False eps=1e-5", x);
    x = ps_builder_op(b, "sum", NULL, NULL, ps_builder_op(b, "square", NULL, NULL, x));
    struct ps_symbol *net = finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, x));
    struct ps_named_shape shape = {"data", PS_SHAPE(1, 3, 2, 2)};
    struct ps_executor *executor = simple_bind(*state, net, &shape, 1, PS_GRAD_ADD);
    static const float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    tensor_set(ps_executor_find_argument(executor, "data"), data);
    tensor_set(ps_executor_find_argument(executor, "bn_gamma"), (const float[]){1, 1, 1});
    for (int i = 1; i <= 3; i++) {
        float gamma = 7.999936f * (float)i;
        run_step(executor, true);
        tensor_expect(ps_executor_find_gradient(executor, "bn_gamma"),
                      (const float[]){gamma, gamma, gamma}, 1e-6);
        tensor_expect(ps_executor_find_gradient(executor, "bn_beta"),
                      (const float[]){0, 0, 0}, 1e-5);
    }
    ps_executor_destroy(executor);
    ps_symbol_release(net);
}

static void batch_norm_statistics_move_only_in_training(void **state)
{
    struct ps_symbol *net = batch_norm_loss();
    struct ps_named_shape shape = {"data", PS_SHAPE(1, 3, 2, 2)};
    struct ps_executor *executor = simple_bind(*state, net, &shape, 1, PS_GRAD_WRITE);
    tensor_fill_random(ps_executor_find_argument(executor, "data"), 3, 1);
    struct ps_tensor *mean = ps_executor_find_auxiliary(executor, "bn_moving_mean");
    run_forward(executor, false);
    tensor_expect(mean, (const float[3]){0}, 0);
    run_forward(executor, true);
    float *after = tensor_get(mean);
    assert_true(fabsf(after[0]) > 0);
    free(after);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_111_add_from_zero_equals_write_for_one_to_ten_uses),
        cmocka_unit_test(case_112_add_n_in_the_place_of_an_input),
        cmocka_unit_test(case_112_gradients_in_the_place_of_one_of_them),
        cmocka_unit_test(gradients_of_many_uses_are_summed),
        cmocka_unit_test(case_114_batch_norm_gradients_accumulate),
        cmocka_unit_test(case_114_three_accumulations_are_three_times_7_999936),
        cmocka_unit_test(batch_norm_statistics_move_only_in_training),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
