/* MXNet's test_bind: operators of two arguments with their gradients, bound with gradient
 * tensors and without. */
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

static double f_add(double x, double y)
{
    return x + y;
}
static double f_sub(double x, double y)
{
    return x - y;
}
static double f_mul(double x, double y)
{
    return x * y;
}
static double f_div(double x, double y)
{
    return x / y;
}
static double one(double x, double y)
{
    (void)x, (void)y;
    return 1;
}
static double minus_one(double x, double y)
{
    (void)x, (void)y;
    return -1;
}
static double left(double x, double y)
{
    (void)y;
    return x;
}
static double right(double x, double y)
{
    (void)x;
    return y;
}
static double div_left(double x, double y)
{
    (void)x;
    return 1 / y;
}
static double div_right(double x, double y)
{
    return -x / (y * y);
}
static double f_max(double x, double y)
{
    return x > y ? x : y;
}
static double f_min(double x, double y)
{
    return x < y ? x : y;
}
static double gt(double x, double y)
{
    return x > y;
}
static double le(double x, double y)
{
    return x <= y;
}
static double lt(double x, double y)
{
    return x < y;
}
static double ge(double x, double y)
{
    return x >= y;
}

struct binary {
    const char *op;
    double (*f)(double, double), (*fx)(double, double), (*fy)(double, double);
};
static const struct binary binaries[] = {
    {"elemwise_add", f_add, one, one},    {"elemwise_sub", f_sub, one, minus_one},
    {"elemwise_mul", f_mul, right, left}, {"elemwise_div", f_div, div_left, div_right},
    {"_maximum", f_max, gt, le},          {"_minimum", f_min, lt, ge},
};

static double l1(const float *a, const double *b, size_t n)
{
    double diff = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        diff += fabs((double)a[i] - b[i]);
        norm += fabs(b[i]);
    }
    return diff / (norm > 0 ? norm : 1);
}

static void expect_l1(struct ps_tensor *tensor, const double *expected, const char *what)
{
    float *values = tensor_get(tensor);
    double error = l1(values, expected, (size_t)ps_tensor_count(tensor));
    free(values);
    if (!(error < 1e-6)) {
        fail_msg("%s: relative L1 error %g", what, error);
    }
}

static struct ps_symbol *binary_symbol(const char *op)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x"), *y = ps_builder_variable(b, "y");
    return finish(b, ps_builder_op(b, op, "z", NULL, x, y));
}

static void check_binary(const struct graph_world *world, const struct binary *op,
                         struct ps_shape shape, uint64_t seed, int bulk)
{
    struct ps_error err = {0};
    size_t n = (size_t)ps_shape_count(&shape);
    struct ps_symbol *z = binary_symbol(op->op);
    float *x = calloc(n, sizeof(float)), *y = calloc(n, sizeof(float)),
          *g = calloc(n, sizeof(float));
    double *out = calloc(n, sizeof(double)), *gx = calloc(n, sizeof(double)),
           *gy = calloc(n, sizeof(double));
    for (size_t i = 0; i < n; i++) {
        x[i] = ps_rng_unit_at(seed, 1, i) * 2 - 1;
        y[i] = ps_rng_unit_at(seed, 2, i) + 0.5f;
        g[i] = ps_rng_unit_at(seed, 3, i) - 0.5f;
        double a = (double)x[i], b = (double)y[i];
        out[i] = op->f(a, b);
        gx[i] = (double)g[i] * op->fx(a, b);
        gy[i] = (double)g[i] * op->fy(a, b);
    }
    struct ps_tensor *args[] = {tensor_from(world, shape, x),
                                tensor_from(world, shape, y)};
    struct ps_tensor *grads[] = {tensor_from(world, shape, x),
                                 tensor_from(world, shape, x)};
    struct ps_tensor *head = tensor_from(world, shape, g);
    struct ps_bind_arrays arrays = {.arguments = args, .gradients = grads};
    struct ps_bind_options options = world_options(world);
    options.bulk = bulk;
    struct ps_executor *with = NULL, *without = NULL;
    assert_int_equal(ps_executor_bind(z, &options, &arrays, &with, &err), PS_OK);
    arrays.gradients = NULL;
    assert_int_equal(ps_executor_bind(z, &options, &arrays, &without, &err), PS_OK);
    run_forward(with, true);
    run_backward(with, head);
    run_forward(without, false);
    expect_l1(ps_executor_output(with, 0), out, op->op);
    expect_l1(ps_executor_output(without, 0), out, op->op);
    expect_l1(ps_executor_find_gradient(with, "x"), gx, op->op);
    expect_l1(ps_executor_find_gradient(with, "y"), gy, op->op);
    ps_executor_destroy(with);
    ps_executor_destroy(without);
    struct ps_tensor *all[] = {args[0], args[1], grads[0], grads[1], head};
    for (size_t i = 0; i < 5; i++) {
        ps_tensor_release(all[i]);
    }
    free(x), free(y), free(g), free(out), free(gx), free(gy);
    ps_symbol_release(z);
}

static void test_bind_binary_operators_and_gradients(void **state)
{
    for (uint64_t repeat = 0; repeat < 10; repeat++) {
        for (int dims = 1; dims <= 3; dims++) {
            struct ps_shape shape = {.ndim = dims};
            for (int d = 0; d < dims; d++) {
                shape.dim[d] = 1 + (int64_t)(ps_hash_u64(repeat * 3 + (uint64_t)d) % 9);
            }
            for (size_t i = 0; i < PS_COUNT(binaries); i++) {
                check_binary(*state, &binaries[i], shape, repeat * 100 + i, -1);
                check_binary(*state, &binaries[i], shape, repeat * 100 + i, 0);
            }
        }
    }
}

static void dot_of_vectors_and_matrices(void **state)
{
    const struct graph_world *world = *state;
    struct ps_symbol *z = binary_symbol("dot");
    struct ps_error err = {0};
    struct ps_tensor *args[] = {
        tensor_from(world, PS_SHAPE(2, 3), (const float[]){1, 2, 3, 4, 5, 6}),
        tensor_from(world, PS_SHAPE(3, 2), (const float[]){1, 0, 2, 1, 0, 3})};
    struct ps_tensor *grads[] = {tensor_from(world, PS_SHAPE(2, 3), (const float[6]){0}),
                                 tensor_from(world, PS_SHAPE(3, 2), (const float[6]){0})};
    struct ps_bind_arrays arrays = {.arguments = args, .gradients = grads};
    struct ps_bind_options options = world_options(world);
    struct ps_executor *executor = NULL;
    assert_int_equal(ps_executor_bind(z, &options, &arrays, &executor, &err), PS_OK);
    struct ps_tensor *head =
        tensor_from(world, PS_SHAPE(2, 2), (const float[]){1, 2, 3, 4});
    run_forward(executor, true);
    run_backward(executor, head);
    tensor_expect(ps_executor_output(executor, 0), (const float[]){5, 11, 14, 23}, 1e-6);
    /* g b^T and a^T g */
    tensor_expect(grads[0], (const float[]){1, 4, 6, 3, 10, 12}, 1e-6);
    tensor_expect(grads[1], (const float[]){13, 18, 17, 24, 21, 30}, 1e-6);
    ps_executor_destroy(executor);
    struct ps_tensor *vectors[] = {
        tensor_from(world, PS_SHAPE(3), (const float[]){1, 2, 3}),
        tensor_from(world, PS_SHAPE(3), (const float[]){4, 5, 6})};
    arrays = (struct ps_bind_arrays){.arguments = vectors};
    assert_int_equal(ps_executor_bind(z, &options, &arrays, &executor, &err), PS_OK);
    run_forward(executor, false);
    tensor_expect(ps_executor_output(executor, 0), (const float[]){32}, 1e-6);
    ps_executor_destroy(executor);
    struct ps_tensor *all[] = {args[0], args[1],    grads[0],  grads[1],
                               head,    vectors[0], vectors[1]};
    for (size_t i = 0; i < PS_COUNT(all); i++) {
        ps_tensor_release(all[i]);
    }
    ps_symbol_release(z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bind_binary_operators_and_gradients),
        cmocka_unit_test(dot_of_vectors_and_matrices),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
