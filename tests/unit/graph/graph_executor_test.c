/* Executors as a whole: a network against finite differences, reshape, random numbers,
 * failing operators, the end. */
#include "base/rng.h"
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

/* ---- LeNet ---- */

static void fill_batch(struct ps_executor *executor, uint64_t seed)
{
    tensor_fill_random(ps_executor_find_argument(executor, "data"), seed, 1);
    struct ps_tensor *label = ps_executor_find_argument(executor, "softmax_label");
    float classes[64];
    for (int64_t i = 0; i < ps_tensor_count(label); i++) {
        classes[i] = (float)(i % 5);
    }
    tensor_set(label, classes);
}

/* -sum log p[label]: what SoftmaxOutput's gradient descends (its sum over the batch). */
static double loss_of(struct ps_executor *executor)
{
    run_step(executor, false);
    struct ps_tensor *out = ps_executor_output(executor, 0);
    struct ps_error err = {0};
    size_t rows = (size_t)ps_tensor_shape(out)->dim[0];
    double p[64 * 5], loss = 0;
    assert_int_equal(ps_tensor_read(out, p, ps_tensor_bytes(out), &err), PS_OK);
    for (size_t r = 0; r < rows; r++) {
        loss -= log(p[r * 5 + r % 5]);
    }
    return loss;
}

static void add_to(struct ps_tensor *tensor, size_t i, double delta)
{
    struct ps_error err = {0};
    size_t bytes = ps_tensor_bytes(tensor);
    double *values = malloc(bytes);
    assert_int_equal(ps_tensor_read(tensor, values, bytes, &err), PS_OK);
    values[i] += delta;
    assert_int_equal(ps_tensor_write(tensor, values, bytes, &err), PS_OK);
    free(values);
}

static void check_parameter(struct ps_executor *executor, size_t argument)
{
    const double h = 1e-6;
    struct ps_tensor *tensor = ps_executor_argument(executor, argument);
    struct ps_tensor *gradient = ps_executor_gradient(executor, argument);
    struct ps_error err = {0};
    double *expected = malloc(ps_tensor_bytes(gradient));
    assert_int_equal(ps_tensor_read(gradient, expected, ps_tensor_bytes(gradient), &err),
                     PS_OK);
    size_t count = (size_t)ps_tensor_count(tensor);
    for (size_t probe = 0; probe < 6; probe++) {
        size_t i = (size_t)(ps_hash_u64(argument * 16 + probe) % count);
        add_to(tensor, i, h);
        double up = loss_of(executor);
        add_to(tensor, i, -2 * h);
        double down = loss_of(executor);
        add_to(tensor, i, h);
        double numeric = (up - down) / (2 * h);
        if (fabs(numeric - expected[i]) > 1e-5 * fmax(1, fabs(numeric))) {
            fail_msg("%s[%zu]: gradient %.9g, finite difference %.9g",
                     ps_executor_argument_name(executor, argument), i, expected[i],
                     numeric);
        }
    }
    free(expected);
}

static void lenet_gradients_equal_finite_differences(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, NULL);
    struct ps_symbol *lenet = small_lenet();
    struct ps_error err = {0};
    static const char *const no_gradient[] = {"data", "softmax_label", NULL};
    struct ps_named_shape shape = {"data", PS_SHAPE(4, 1, 12, 12)};
    struct ps_named_dtype dtype = {"data", PS_F64};
    struct ps_simple_bind bind = {.shapes = &shape,
                                  .shape_count = 1,
                                  .dtypes = &dtype,
                                  .dtype_count = 1,
                                  .req = PS_GRAD_WRITE,
                                  .no_gradient = no_gradient};
    struct ps_bind_options options = world_options(&world);
    struct ps_executor *executor = NULL;
    if (ps_executor_simple_bind(lenet, &options, &bind, &executor, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    fill_parameters(executor, 9, 0.4f);
    fill_batch(executor, 5);
    run_step(executor, true);
    for (size_t i = 0; i < ps_executor_argument_count(executor); i++) {
        if (ps_executor_gradient(executor, i) != NULL) {
            check_parameter(executor, i);
        }
    }
    ps_executor_destroy(executor);
    ps_symbol_release(lenet);
    world_close(&world);
}

/* ---- reshape ---- */

static void a_reshaped_executor_shares_memory_with_its_parent(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, NULL);
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    struct ps_symbol *fc =
        finish(b, ps_builder_op(b, "FullyConnected", "fc", "num_hidden=4", x));
    struct ps_named_shape shape = {"x", PS_SHAPE(5, 4)};
    struct ps_executor *parent = simple_bind(&world, fc, &shape, 1, PS_GRAD_WRITE);
    float ones[20];
    for (int i = 0; i < 20; i++) {
        ones[i] = 1;
    }
    tensor_set(ps_executor_find_argument(parent, "x"), ones);
    tensor_set(ps_executor_find_argument(parent, "fc_weight"), ones);
    assert_int_equal(ps_executor_forward(parent, false, &err), PS_OK);
    float fours[20];
    for (int i = 0; i < 20; i++) {
        fours[i] = 4;
    }
    tensor_expect(ps_executor_output(parent, 0), fours, 0);

    struct ps_executor *child = NULL;
    struct ps_named_shape smaller = {"x", PS_SHAPE(3, 4)};
    if (ps_executor_reshape(parent, &smaller, 1, false, false, &child, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(ps_executor_forward(child, false, &err), PS_OK);
    assert_true(
        ps_shape_equal(ps_tensor_shape(ps_executor_output(child, 0)), &PS_SHAPE(3, 4)));
    tensor_expect(ps_executor_output(child, 0), fours, 0);
    float half[12];
    for (int i = 0; i < 12; i++) {
        half[i] = 0.5f;
        ones[i] = 0.5f;
    }
    tensor_set(ps_executor_find_argument(child, "x"), half);
    tensor_expect(ps_executor_find_argument(parent, "x"), ones, 0); /* first three rows */
    assert_true(
        ps_tensor_shares(ps_executor_output(child, 0), ps_executor_output(parent, 0)));

    struct ps_executor *no = NULL;
    struct ps_named_shape larger = {"x", PS_SHAPE(9, 4)}, wider = {"x", PS_SHAPE(3, 5)};
    assert_int_equal(ps_executor_reshape(parent, &larger, 1, false, false, &no, &err),
                     PS_ERANGE);
    assert_int_equal(ps_executor_reshape(parent, &wider, 1, false, true, &no, &err),
                     PS_ESHAPE);
    assert_non_null(strstr(err.text, "fc_weight"));
    assert_int_equal(ps_executor_reshape(parent, &larger, 1, false, true, &no, &err),
                     PS_OK);
    ps_executor_destroy(no);
    ps_executor_destroy(parent);
    assert_int_equal(ps_executor_forward(child, false, &err), PS_OK);
    ps_executor_destroy(child);
    ps_symbol_release(fc);
    world_close(&world);
}

/* ---- random numbers ---- */

static void dropout_draws_anew_each_step_and_the_same_for_a_seed(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, NULL);
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    struct ps_symbol *drop = finish(b, ps_builder_op(b, "Dropout", "d", "p=0.5", x));
    struct ps_named_shape shape = {"data", PS_SHAPE(64)};
    struct ps_simple_bind bind = {.shapes = &shape, .shape_count = 1};
    float ones[64];
    for (int i = 0; i < 64; i++) {
        ones[i] = 1;
    }
    float *drawn[2][3];
    for (int run = 0; run < 2; run++) {
        struct ps_bind_options options = world_options(&world);
        options.seed = 11;
        struct ps_executor *executor = NULL;
        assert_int_equal(ps_executor_simple_bind(drop, &options, &bind, &executor, &err),
                         PS_OK);
        tensor_set(ps_executor_argument(executor, 0), ones);
        for (int t = 0; t < 3; t++) {
            if (run == 1) { /* an inference in between changes nothing */
                run_step(executor, false);
                tensor_expect(ps_executor_output(executor, 0), ones, 0);
            }
            assert_int_equal(ps_executor_forward(executor, true, &err), PS_OK);
            drawn[run][t] = tensor_get(ps_executor_output(executor, 0));
        }
        ps_executor_destroy(executor);
    }
    assert_true(memcmp(drawn[0][0], drawn[0][1], sizeof(ones)) != 0);
    for (int t = 0; t < 3; t++) {
        assert_memory_equal(drawn[0][t], drawn[1][t], sizeof(ones));
        free(drawn[0][t]), free(drawn[1][t]);
    }
    ps_symbol_release(drop);
    world_close(&world);
}

/* ---- faults and ends ---- */

static void an_operator_that_fails_names_its_node_at_the_wait(void **state)
{
    (void)state;
    static const int engines[] = {PS_ENGINE_NAIVE, PS_ENGINE_PER_DEVICE};
    for (size_t e = 0; e < 2; e++) {
        struct graph_world world;
        world_open(&world, engines[e], NULL);
        struct ps_symbol *lenet = small_lenet();
        struct ps_named_shape shape = {"data", PS_SHAPE(2, 1, 12, 12)};
        struct ps_executor *executor =
            simple_bind(&world, lenet, &shape, 1, PS_GRAD_WRITE);
        fill_parameters(executor, 1, 0.1f);
        tensor_set(ps_executor_find_argument(executor, "softmax_label"),
                   (const float[]){1, 99}); /* of five classes */
        struct ps_error err = {0};
        enum ps_status status = ps_executor_forward(executor, true, &err);
        if (status == PS_OK) {
            status = ps_executor_backward(executor, NULL, &err);
        }
        if (status == PS_OK) {
            status =
                ps_tensor_wait(ps_executor_find_gradient(executor, "fc1_weight"), &err);
        }
        assert_int_equal(status, PS_ERANGE);
        assert_non_null(strstr(err.text, "softmax"));
        ps_executor_destroy(executor);
        ps_symbol_release(lenet);
        world_close(&world);
    }
}

static void pushes_still_run_when_the_executor_is_gone(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, "CPU_WORKER_NTHREADS=2");
    struct ps_symbol *lenet = small_lenet();
    struct ps_named_shape shape = {"data", PS_SHAPE(16, 1, 12, 12)};
    for (int i = 0; i < 20; i++) {
        struct ps_executor *executor =
            simple_bind(&world, lenet, &shape, 1, PS_GRAD_WRITE);
        struct ps_tensor *gradient =
            ps_tensor_retain(ps_executor_find_gradient(executor, "fc2_bias"));
        fill_parameters(executor, 1, 0.1f);
        run_step(executor, true);
        run_step(executor, true);
        ps_executor_destroy(executor);
        float *values = tensor_get(gradient);
        assert_true(fabsf(values[1]) > 0);
        free(values);
        ps_tensor_release(gradient);
    }
    ps_symbol_release(lenet);
    assert_int_equal(ps_engine_wait_all(world.engine, NULL), PS_OK);
    world_close(&world);
}

static void what_cannot_be_bound_is_named(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_NAIVE, NULL);
    struct ps_error err = {0};
    struct ps_symbol *lenet = small_lenet();
    struct ps_bind_options options = world_options(&world);
    struct ps_executor *executor = NULL;
    struct ps_simple_bind nothing = {.req = PS_GRAD_WRITE};
    assert_int_equal(ps_executor_simple_bind(lenet, &options, &nothing, &executor, &err),
                     PS_ESHAPE);
    assert_non_null(strstr(err.text, "data"));
    struct ps_tensor *none[10] = {NULL};
    struct ps_bind_arrays arrays = {.arguments = none};
    assert_int_equal(ps_executor_bind(lenet, &options, &arrays, &executor, &err),
                     PS_EINVAL);
    assert_non_null(strstr(err.text, "data"));
    struct ps_named_shape shape = {"dta", PS_SHAPE(2, 1, 12, 12)};
    struct ps_simple_bind typo = {.shapes = &shape, .shape_count = 1};
    assert_int_equal(ps_executor_simple_bind(lenet, &options, &typo, &executor, &err),
                     PS_ENOENT);
    assert_non_null(strstr(err.text, "nearest is data"));
    struct ps_named_shape huge = {"data", PS_SHAPE(INT64_C(1) << 60, 1, 12, 12)};
    struct ps_simple_bind too_large = {.shapes = &huge, .shape_count = 1};
    assert_int_not_equal(
        ps_executor_simple_bind(lenet, &options, &too_large, &executor, &err), PS_OK);
    assert_true(err.text[0] != 0);
    struct ps_builder *b = builder_new();
    struct ps_symbol *twice = finish(b, ps_builder_op(b, "elemwise_add", NULL, NULL,
                                                      ps_builder_variable(b, "x"),
                                                      ps_builder_variable(b, "x")));
    struct ps_tensor *x = tensor_from(&world, PS_SHAPE(1), (const float[]){1});
    struct ps_tensor *both[] = {x, x};
    arrays.arguments = both;
    assert_int_equal(ps_executor_bind(twice, &options, &arrays, &executor, &err),
                     PS_EINVAL);
    assert_non_null(strstr(err.text, "two variables are called x"));
    ps_tensor_release(x);
    ps_symbol_release(twice);
    ps_symbol_release(lenet);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_gradients_equal_finite_differences),
        cmocka_unit_test(a_reshaped_executor_shares_memory_with_its_parent),
        cmocka_unit_test(dropout_draws_anew_each_step_and_the_same_for_a_seed),
        cmocka_unit_test(an_operator_that_fails_names_its_node_at_the_wait),
        cmocka_unit_test(pushes_still_run_when_the_executor_is_gone),
        cmocka_unit_test(what_cannot_be_bound_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
