/* Loss heads: values and gradients against their own definitions, and bad labels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op_fixture.h"

#include <math.h>
#include <string.h>

static struct ps_kernels *kernels;

static int open_kernels(void **state)
{
    (void)state;
    return ps_kernels_create(NULL, NULL, &kernels, NULL) == PS_OK ? 0 : -1;
}

static int close_kernels(void **state)
{
    (void)state;
    ps_kernels_destroy(kernels);
    return 0;
}

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-6 * (1.0 + fabs(want)))) {
        fail_msg("%.12g, expected %.12g", got, want);
    }
}

struct softmax_case {
    const char *attrs;
    struct ps_shape data;
    int64_t k, s;   /* classes, positions */
    double divisor; /* of the gradient */
    double ignored; /* label that is skipped; NAN: none */
};

/* cross entropy of one row's class, from the outputs of a fresh forward */
static double cross_entropy(struct fixture *f, const struct softmax_case *c)
{
    double sum = 0.0;
    fixture_forward(f);
    for (int64_t r = 0; r < fixture_count(&f->in[1]); r++) {
        double label = fixture_get(&f->in[1], r);
        int64_t at = (r / c->s * c->k + (int64_t)label) * c->s + r % c->s;
        sum -= label == c->ignored ? 0.0 : log(fixture_get(&f->out[0], at));
    }
    return sum;
}

static void check_softmax(const struct softmax_case *c)
{
    struct fixture f;
    struct fixture_options options = {.op = "SoftmaxOutput",
                                      .attrs = c->attrs,
                                      .in = {c->data},
                                      .dtype = PS_F64,
                                      .low = -2,
                                      .high = 2};
    fixture_open(&f, kernels, &options);
    for (int64_t r = 0; r < fixture_count(&f.in[1]); r++) {
        fixture_set(&f.in[1], r, (double)(r * 7 % c->k));
    }
    fixture_forward(&f);
    fixture_fill(&f.in_grad[0], NAN);
    fixture_fill(&f.in_grad[1], NAN);
    fixture_backward(&f);
    for (int64_t i = 0; i < fixture_count(&f.in[0]); i++) {
        double x = fixture_get(&f.in[0], i), h = 1e-5, up, down;
        fixture_set(&f.in[0], i, x + h);
        up = cross_entropy(&f, c);
        fixture_set(&f.in[0], i, x - h);
        down = cross_entropy(&f, c);
        fixture_set(&f.in[0], i, x);
        assert_near(fixture_get(&f.in_grad[0], i), (up - down) / (2 * h) / c->divisor);
    }
    assert_near(fixture_get(&f.in_grad[1], 0), 0.0);
    double first = fixture_get(&f.in_grad[0], 0);
    f.req[0] = PS_GRAD_ADD;
    fixture_forward(&f);
    fixture_backward(&f);
    assert_near(fixture_get(&f.in_grad[0], 0), 2 * first);
    fixture_close(&f);
}

static void softmax_output_gives_the_gradient_of_cross_entropy(void **state)
{
    static const struct softmax_case cases[] = {
        {NULL, PS_SHAPE(5, 7), 7, 1, 1, NAN},
        {"grad_scale=0.5", PS_SHAPE(5, 7), 7, 1, 2, NAN},
        {"normalization=batch", PS_SHAPE(5, 7), 7, 1, 5, NAN},
        {"normalization=valid;use_ignore=True;ignore_label=0", PS_SHAPE(6, 3), 3, 1, 4,
         0},
        {"multi_output=True", PS_SHAPE(2, 3, 4), 3, 4, 4, NAN},
        {"multi_output=True;normalization=valid", PS_SHAPE(2, 3, 2, 2), 3, 4, 8, NAN},
        {"preserve_shape=True", PS_SHAPE(2, 4, 3), 3, 1, 1, NAN},
    };
    (void)state;
    for (size_t i = 0; i < PS_COUNT(cases); i++) {
        check_softmax(&cases[i]);
    }
}

static void softmax_is_right_far_from_zero(void **state)
{
    struct fixture f;
    struct fixture_options options = {
        .op = "SoftmaxOutput", .in = {PS_SHAPE(1, 3)}, .dtype = PS_F32};
    (void)state;
    fixture_open(&f, kernels, &options);
    fixture_set(&f.in[0], 0, 1000);
    fixture_set(&f.in[0], 1, 1001);
    fixture_set(&f.in[0], 2, -1000);
    fixture_forward(&f);
    assert_true(fabs(fixture_get(&f.out[0], 1) - 0.73105858) < 1e-6);
    assert_true(fixture_get(&f.out[0], 2) == 0.0);
    fixture_close(&f);
}

static void a_label_outside_its_classes_is_an_error_that_names_it(void **state)
{
    struct fixture f;
    struct fixture_options options = {
        .op = "SoftmaxOutput", .in = {PS_SHAPE(2, 3)}, .dtype = PS_F32};
    static const double bad[] = {3, -1, 1e30, NAN, -INFINITY};
    (void)state;
    fixture_open(&f, kernels, &options);
    fixture_forward(&f);
    for (size_t i = 0; i < PS_COUNT(bad); i++) {
        fixture_set(&f.in[1], 1, bad[i]);
        assert_int_equal(ps_op_backward(f.plan, &f.run, &f.err), PS_ERANGE);
        assert_non_null(strstr(f.err.text, "row 1"));
    }
    fixture_close(&f);
}

static void regression_heads_follow_their_definitions(void **state)
{
    static const char *const names[] = {
        "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"};
    (void)state;
    for (size_t k = 0; k < PS_COUNT(names); k++) {
        struct fixture f;
        struct fixture_options options = {.op = names[k],
                                          .attrs = "grad_scale=3",
                                          .in = {PS_SHAPE(4, 2)},
                                          .dtype = PS_F64,
                                          .low = -1,
                                          .high = 1};
        fixture_open(&f, kernels, &options);
        fixture_forward(&f);
        fixture_backward(&f);
        for (int64_t i = 0; i < 8; i++) {
            double x = fixture_get(&f.in[0], i), y = k == 1 ? 1 / (1 + exp(-x)) : x;
            double d = y - fixture_get(&f.in[1], i);
            d = k == 2 ? (d > 0) - (d < 0) : d;
            assert_near(fixture_get(&f.out[0], i), y);
            assert_near(fixture_get(&f.in_grad[0], i), d * 3 / 2);
        }
        fixture_close(&f);
    }
}

static void make_loss_gives_a_constant_gradient(void **state)
{
    struct fixture f;
    struct fixture_options options = {.op = "MakeLoss",
                                      .attrs = "grad_scale=2;normalization=batch",
                                      .in = {PS_SHAPE(4, 2)},
                                      .dtype = PS_F64,
                                      .low = -1,
                                      .high = 1};
    (void)state;
    fixture_open(&f, kernels, &options);
    fixture_forward(&f);
    fixture_backward(&f);
    f.req[0] = PS_GRAD_ADD;
    fixture_backward(&f);
    assert_near(fixture_get(&f.in_grad[0], 7), 1.0);
    fixture_close(&f);
}

static void block_grad_and_constants_have_no_gradient(void **state)
{
    struct fixture f;
    struct fixture_options options = {
        .op = "BlockGrad", .in = {PS_SHAPE(3)}, .dtype = PS_F64, .low = 1, .high = 2};
    (void)state;
    fixture_open(&f, kernels, &options);
    fixture_forward(&f);
    fixture_fill(&f.in_grad[0], 5);
    f.req[0] = PS_GRAD_ADD;
    fixture_backward(&f);
    assert_near(fixture_get(&f.in_grad[0], 0), 5);
    f.req[0] = PS_GRAD_WRITE;
    fixture_backward(&f);
    assert_near(fixture_get(&f.in_grad[0], 0), 0);
    fixture_close(&f);
    options.op = "_ones";
    options.attrs = "shape=(2, 3);dtype=float64";
    fixture_open(&f, kernels, &options);
    f.out[0].dtype = PS_F64;
    assert_int_equal(f.out[0].shape.dim[1], 3);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_output_gives_the_gradient_of_cross_entropy),
        cmocka_unit_test(softmax_is_right_far_from_zero),
        cmocka_unit_test(a_label_outside_its_classes_is_an_error_that_names_it),
        cmocka_unit_test(regression_heads_follow_their_definitions),
        cmocka_unit_test(make_loss_gives_a_constant_gradient),
        cmocka_unit_test(block_grad_and_constants_have_no_gradient),
    };
    return cmocka_run_group_tests(tests, open_kernels, close_kernels);
}
