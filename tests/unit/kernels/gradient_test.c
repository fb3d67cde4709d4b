/* Gradients of every operator against central differences in f64, over odd shapes and
 * every gradient request (write over garbage, add, null). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define S(...) PS_SHAPE(__VA_ARGS__)

static const struct gradient_case {
    const char *op, *attrs;
    struct ps_shape in[FIXTURE_MAX];
    double low, high;
} cases[] = {
    {"FullyConnected", "num_hidden=5", {S(3, 2, 4)}, -1, 1},
    {"FullyConnected", "num_hidden=3;no_bias=True", {S(1, 7)}, -1, 1},
    {"FullyConnected", "num_hidden=3;flatten=False", {S(2, 3, 5)}, -1, 1},
    {"dot", NULL, {S(3, 4), S(4, 5)}, -1, 1},
    {"dot", "transpose_a=True", {S(4, 3), S(4, 5)}, -1, 1},
    {"dot", "transpose_b=True", {S(3, 4), S(5, 4)}, -1, 1},
    {"dot", "transpose_a=True;transpose_b=True", {S(4, 3), S(5, 4)}, -1, 1},
    {"dot", NULL, {S(7), S(7)}, -1, 1},
    {"dot", NULL, {S(2, 3, 4), S(4, 2, 3)}, -1, 1},
    {"Convolution", "kernel=(3, 3);num_filter=4", {S(2, 3, 7, 6)}, -1, 1},
    {"Convolution",
     "kernel=(3, 2);num_filter=4;stride=(2, 1);pad=(1, 1);no_bias=True",
     {S(2, 3, 7, 5)},
     -1,
     1},
    {"Convolution",
     "kernel=(2, 2);num_filter=4;num_group=2;dilate=(2, 2)",
     {S(1, 4, 5, 6)},
     -1,
     1},
    {"Convolution", "kernel=(3,);num_filter=2;pad=(1,)", {S(3, 2, 9)}, -1, 1},
    {"Pooling", "kernel=(2, 2);stride=(2, 2)", {S(2, 3, 6, 8)}, -1, 1},
    {"Pooling", "kernel=(2, 2);stride=(2, 2)", {S(2, 3, 7, 5)}, -1, 1},
    {"Pooling", "kernel=(3, 2);stride=(2, 1);pad=(1, 1)", {S(1, 2, 7, 5)}, -1, 1},
    {"Pooling",
     "kernel=(3, 3);stride=(2, 2);pooling_convention=full;pool_type=avg",
     {S(1, 2, 8, 6)},
     -1,
     1},
    {"Pooling",
     "kernel=(3, 3);pad=(1, 1);pool_type=avg;count_include_pad=False",
     {S(1, 2, 5, 5)},
     -1,
     1},
    {"Pooling", "kernel=(2, 2);pool_type=sum", {S(1, 2, 5, 5)}, -1, 1},
    {"Pooling", "global_pool=True;kernel=(1, 1);pool_type=avg", {S(2, 3, 4, 5)}, -1, 1},
    {"Pooling", "kernel=(3,);stride=(2,)", {S(2, 3, 9)}, -1, 1},
    {"Activation", "act_type=relu", {S(3, 5)}, -1, 1},
    {"Activation", "act_type=sigmoid", {S(3, 5)}, -2, 2},
    {"Activation", "act_type=tanh", {S(3, 5)}, -2, 2},
    {"Activation", "act_type=softrelu", {S(3, 5)}, -2, 2},
    {"Activation", "act_type=softsign", {S(3, 5)}, -2, 2},
    {"negative", NULL, {S(4, 3)}, -1, 1},
    {"exp", NULL, {S(4, 3)}, -1, 1},
    {"log", NULL, {S(4, 3)}, 0.5, 2},
    {"sqrt", NULL, {S(4, 3)}, 0.5, 2},
    {"square", NULL, {S(4, 3)}, -1, 1},
    {"abs", NULL, {S(4, 3)}, -1, 1},
    {"relu", NULL, {S(4, 3)}, -1, 1},
    {"sigmoid", NULL, {S(4, 3)}, -1, 1},
    {"tanh", NULL, {S(4, 3)}, -1, 1},
    {"softsign", NULL, {S(4, 3)}, -1, 1},
    {"reciprocal", NULL, {S(4, 3)}, 0.5, 2},
    {"rsqrt", NULL, {S(4, 3)}, 0.5, 2},
    {"log1p", NULL, {S(4, 3)}, -0.5, 2},
    {"expm1", NULL, {S(4, 3)}, -1, 1},
    {"sin", NULL, {S(4, 3)}, -1, 1},
    {"cos", NULL, {S(4, 3)}, -1, 1},
    {"_plus_scalar", "scalar=1.5", {S(5)}, -1, 1},
    {"_minus_scalar", "scalar=1.5", {S(5)}, -1, 1},
    {"_rminus_scalar", "scalar=1.5", {S(5)}, -1, 1},
    {"_mul_scalar", "scalar=1.5", {S(5)}, -1, 1},
    {"_div_scalar", "scalar=1.5", {S(5)}, -1, 1},
    {"_rdiv_scalar", "scalar=1.5", {S(5)}, 0.5, 2},
    {"_maximum_scalar", "scalar=0.1", {S(9)}, -1, 1},
    {"_minimum_scalar", "scalar=0.1", {S(9)}, -1, 1},
    {"_power_scalar", "scalar=1.5", {S(5)}, 0.5, 2},
    {"_rpower_scalar", "scalar=1.5", {S(5)}, -1, 1},
    {"elemwise_add", NULL, {S(3, 5)}, -1, 1},
    {"elemwise_sub", NULL, {S(3, 5)}, -1, 1},
    {"elemwise_mul", NULL, {S(3, 5)}, -1, 1},
    {"elemwise_div", NULL, {S(3, 5)}, 0.5, 2},
    {"_maximum", NULL, {S(3, 5)}, -1, 1},
    {"_minimum", NULL, {S(3, 5)}, -1, 1},
    {"_power", NULL, {S(3, 5)}, 0.5, 2},
    {"broadcast_add", NULL, {S(3, 1, 5), S(3, 4, 1)}, -1, 1},
    {"broadcast_sub", NULL, {S(1, 4), S(3, 4)}, -1, 1},
    {"broadcast_mul", NULL, {S(2, 3, 4, 5), S(1, 3, 1, 1)}, -1, 1},
    {"broadcast_mul", NULL, {S(1, 1), S(1, 1)}, -1, 1},
    {"broadcast_div", NULL, {S(3, 1), S(1, 4)}, 0.5, 2},
    {"broadcast_maximum", NULL, {S(3, 4), S(3, 1)}, -1, 1},
    {"broadcast_minimum", NULL, {S(3, 4), S(1, 4)}, -1, 1},
    {"broadcast_power", NULL, {S(3, 1), S(3, 4)}, 0.5, 2},
    {"sum", NULL, {S(3, 5)}, -1, 1},
    {"sum", "axis=1;keepdims=True", {S(3, 11, 2)}, -1, 1},
    {"sum", "axis=(0, 2)", {S(3, 4, 9)}, -1, 1},
    {"sum", "axis=1;exclude=True", {S(3, 4, 5)}, -1, 1},
    {"mean", "axis=-1", {S(3, 4, 17)}, -1, 1},
    {"max", "axis=1", {S(3, 4, 5)}, -1, 1},
    {"min", "axis=(0, 1)", {S(3, 4, 5)}, -1, 1},
    {"BatchNorm", "fix_gamma=False", {S(3, 4, 5, 2)}, 0.5, 2},
    {"BatchNorm", NULL, {S(5, 3)}, 0.5, 2},
    {"BatchNorm", "fix_gamma=False;axis=-1", {S(2, 5, 3)}, 0.5, 2},
    {"BatchNorm", "fix_gamma=False;use_global_stats=True", {S(3, 2, 3)}, 0.5, 2},
    {"Dropout", "p=0.3", {S(7, 5)}, -1, 1},
    {"Concat", "num_args=3", {S(2, 1, 3), S(2, 4, 3), S(2, 2, 3)}, -1, 1},
    {"Concat", "num_args=2;dim=-1", {S(2, 3), S(2, 1)}, -1, 1},
    {"SliceChannel", "num_outputs=3", {S(2, 6, 3)}, -1, 1},
    {"SliceChannel", "num_outputs=5;axis=-1;squeeze_axis=True", {S(3, 2, 5)}, -1, 1},
    {"SliceChannel", "num_outputs=1;axis=0", {S(3, 2)}, -1, 1},
    {"transpose", NULL, {S(3, 4)}, -1, 1},
    {"transpose", "axes=(2, 0, -2)", {S(3, 9, 31)}, -1, 1},
    {"SwapAxis", "dim1=0;dim2=-1", {S(2, 3, 1, 4)}, -1, 1},
    {"Embedding", "input_dim=4;output_dim=3", {S(2, 5)}, -0.9, 4.8},
    {"Embedding", "input_dim=1;output_dim=1", {S(7)}, 0.1, 0.9},
    {"add_n", "num_args=4", {S(3, 5)}, -1, 1},
    {"Flatten", NULL, {S(2, 3, 4)}, -1, 1},
    {"Reshape", "shape=(-1, 2)", {S(3, 4)}, -1, 1},
    {"_copy", NULL, {S(3, 4)}, -1, 1},
    {"Cast", "dtype=float64", {S(3, 4)}, -1, 1},
    {"_identity_with_attr_like_rhs", NULL, {S(3, 4)}, -1, 1},
};

static double loss(struct fixture *f)
{
    double sum = 0.0;
    fixture_forward(f);
    for (int k = 0; k < ps_op_visible_output_count(f->op); k++) {
        for (int64_t i = 0; i < fixture_count(&f->out[k]); i++) {
            sum += fixture_get(&f->out[k], i) * fixture_get(&f->out_grad[k], i);
        }
    }
    return sum;
}

/* Numeric gradient of element i of input k. */
static double slope(struct fixture *f, int k, int64_t i)
{
    const double h = 1e-5;
    double x = fixture_get(&f->in[k], i), up, down;
    fixture_set(&f->in[k], i, x + h);
    up = loss(f);
    fixture_set(&f->in[k], i, x - h);
    down = loss(f);
    fixture_set(&f->in[k], i, x);
    return (up - down) / (2 * h);
}

static void check_input(struct fixture *f, int k, const char *name)
{
    bool fixed = strcmp(name, "BatchNorm") == 0 && k == 1; /* gamma, perhaps fixed */
    for (int64_t i = 0; i < fixture_count(&f->in[k]); i++) {
        double want = slope(f, k, i), got = fixture_get(&f->in_grad[k], i);
        bool near = fabs(got - want) <= 1e-6 * (1.0 + fabs(want)); /* false for NaN */
        if (!near && !(fixed && got == 0.0)) {
            fail_msg("%s input %d element %d: %g, differences give %g", name, k, (int)i,
                     got, want);
        }
    }
}

static void check_case(const struct ps_kernels *kernels, const struct gradient_case *c)
{
    struct fixture f;
    struct fixture_options options = {
        .op = c->op, .attrs = c->attrs, .dtype = PS_F64, .low = c->low, .high = c->high};
    memcpy(options.in, c->in, sizeof options.in);
    fixture_open(&f, kernels, &options);
    int n = ps_op_input_count(f.op);
    fixture_forward(&f);
    for (int k = 0; k < n; k++) {
        fixture_fill(&f.in_grad[k], NAN); /* write must not read it */
    }
    fixture_backward(&f);
    for (int k = 0; k < n; k++) {
        check_input(&f, k, c->op);
    }
    fixture_forward(&f);
    for (int k = 0; k < n; k++) { /* add, one input at a time; the rest null and empty */
        struct ps_view keep[FIXTURE_MAX];
        memcpy(keep, f.in_grad, sizeof keep);
        for (int j = 0; j < n; j++) {
            f.req[j] = j == k ? PS_GRAD_ADD : PS_GRAD_NULL;
            f.in_grad[j].data = j == k ? keep[j].data : NULL;
        }
        double first = fixture_count(&keep[k]) > 0 ? fixture_get(&keep[k], 0) : 0.0;
        fixture_backward(&f);
        if (fixture_count(&keep[k]) > 0) {
            double twice = fixture_get(&keep[k], 0);
            assert_true(fabs(twice - 2 * first) <= 1e-12 * (1 + fabs(first)));
        }
        memcpy(f.in_grad, keep, sizeof keep);
    }
    fixture_close(&f);
}

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

static void gradients_agree_with_central_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_COUNT(cases); i++) {
        check_case(kernels, &cases[i]);
    }
}

static bool in_table(const char *name)
{
    static const char *const others[] = {"SoftmaxOutput", "LinearRegressionOutput",
                                         "LogisticRegressionOutput",
                                         "MAERegressionOutput", "MakeLoss"};
    for (size_t i = 0; i < PS_COUNT(cases); i++) {
        if (strcmp(cases[i].op, name) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < PS_COUNT(others); i++) {
        if (strcmp(others[i], name) == 0) {
            return true; /* loss heads: loss_heads_test.c */
        }
    }
    return false;
}

static void every_differentiable_operator_is_in_the_table(void **state)
{
    const struct ps_op_def *def;
    (void)state;
    for (size_t i = 0; (def = ps_op_at(i)) != NULL; i++) {
        if ((ps_op_flags(def) & (PS_OP_ZERO_GRAD | PS_OP_NO_GRAD)) == 0 &&
            !in_table(ps_op_name(def))) {
            fail_msg("%s has no gradient test", ps_op_name(def));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_central_differences),
        cmocka_unit_test(every_differentiable_operator_is_in_the_table),
    };
    return cmocka_run_group_tests(tests, open_kernels, close_kernels);
}
