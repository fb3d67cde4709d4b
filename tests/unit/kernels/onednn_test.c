/* Convolution, Pooling and BatchNorm through oneDNN against the plain code and against
 * central differences, f32, all requests, over a poisoned workspace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/context.h"
#include "op_fixture.h"

#include <math.h>
#include <string.h>

static const struct onednn_case {
    const char *op, *attrs;
    struct ps_shape data;
} cases[] = {
    {"Convolution", "kernel=(5, 5);num_filter=20", PS_SHAPE(4, 1, 28, 28)},
    {"Convolution", "kernel=(5, 5);num_filter=50", PS_SHAPE(4, 20, 12, 12)},
    {"Convolution", "kernel=(3, 3);num_filter=7;pad=(1, 1);no_bias=True",
     PS_SHAPE(2, 3, 9, 7)},
    {"Convolution", "kernel=(3, 2);num_filter=8;stride=(2, 1);pad=(1, 0)",
     PS_SHAPE(3, 16, 8, 7)},
    {"Convolution", "kernel=(2, 2);num_filter=4;num_group=2;dilate=(2, 2)",
     PS_SHAPE(2, 6, 9, 8)},
    {"Convolution", "kernel=(1, 1);num_filter=32;stride=(2, 2)", PS_SHAPE(2, 16, 7, 7)},
    {"Convolution", "kernel=(3,);num_filter=5;stride=(2,)", PS_SHAPE(2, 3, 16)},
    {"Pooling", "kernel=(2, 2);stride=(2, 2)", PS_SHAPE(4, 20, 24, 24)},
    {"Pooling", "kernel=(2, 2);stride=(2, 2)", PS_SHAPE(2, 3, 7, 5)},
    {"Pooling", "kernel=(2, 2);stride=(2, 2)", PS_SHAPE(2, 5, 7, 5)},
    {"Pooling", "kernel=(3, 3);stride=(2, 2);pad=(1, 1)", PS_SHAPE(2, 16, 12, 12)},
    {"Pooling", "kernel=(3, 2);stride=(2, 1);pad=(1, 1)", PS_SHAPE(2, 5, 7, 6)},
    {"Pooling", "kernel=(3, 3);pad=(1, 1);pool_type=avg", PS_SHAPE(2, 20, 9, 7)},
    {"Pooling", "kernel=(3, 3);stride=(2, 2);pad=(1, 1);pool_type=avg",
     PS_SHAPE(1, 3, 8, 8)},
    {"Pooling", "kernel=(3, 3);pad=(2, 1);pool_type=avg;count_include_pad=False",
     PS_SHAPE(2, 17, 6, 7)},
    {"Pooling", "kernel=(2, 2);stride=(2, 2);pooling_convention=full;pool_type=avg",
     PS_SHAPE(2, 4, 6, 8)},
    {"Pooling", "global_pool=True;kernel=(1, 1);pool_type=avg", PS_SHAPE(3, 32, 7, 7)},
    {"Pooling", "global_pool=True;kernel=(1, 1)", PS_SHAPE(3, 6, 4, 5)},
    {"Pooling", "kernel=(3,);stride=(2,)", PS_SHAPE(2, 16, 9)},
    {"BatchNorm", "fix_gamma=False", PS_SHAPE(4, 16, 6, 7)},
    {"BatchNorm", "fix_gamma=False;eps=1e-5", PS_SHAPE(3, 5, 3, 3)},
    {"BatchNorm", "momentum=0.7", PS_SHAPE(2, 20, 5, 5)},
    {"BatchNorm", "fix_gamma=False", PS_SHAPE(32, 24)},
    {"BatchNorm", NULL, PS_SHAPE(9, 3)},
    {"BatchNorm", "fix_gamma=False;axis=-1", PS_SHAPE(3, 5, 16)},
    {"BatchNorm", "fix_gamma=False;axis=0", PS_SHAPE(4, 5, 6)},
    {"BatchNorm", "fix_gamma=False;use_global_stats=True", PS_SHAPE(2, 8, 3, 3)},
    {"BatchNorm", "use_global_stats=True", PS_SHAPE(6, 10)},
};

struct both {
    struct ps_kernels *fast, *plain; /* fast: oneDNN wherever it can */
};

static int open_both(void **state)
{
    static struct both both;
    struct ps_settings *settings = NULL;
    const char *const env[] = {NULL};
    const char *const overrides[] = {"USE_ONEDNN=0", NULL};
    if (ps_settings_load(env, overrides, &settings, NULL) != PS_OK ||
        ps_kernels_create(settings, NULL, &both.plain, NULL) != PS_OK ||
        ps_kernels_create(NULL, NULL, &both.fast, NULL) != PS_OK) {
        return -1;
    }
    ps_settings_destroy(settings);
    both.fast->onednn_always = true;
    *state = &both;
    return 0;
}

static int close_both(void **state)
{
    struct both *both = *state;
    ps_kernels_destroy(both->fast);
    ps_kernels_destroy(both->plain);
    return 0;
}

static bool onednn_built_in(const struct both *both)
{
    struct ps_str text = {0};
    ps_kernels_describe(both->fast, &text);
    bool found = strstr(ps_str_text(&text), "onednn off") == NULL;
    ps_str_fini(&text);
    return found;
}

static void assert_close(const struct ps_view *a, const struct ps_view *b)
{
    double top = 0.0;
    for (int64_t i = 0; i < fixture_count(a); i++) {
        top = fmax(top, fabs(fixture_get(b, i)));
    }
    for (int64_t i = 0; i < fixture_count(a); i++) {
        double difference = fabs(fixture_get(a, i) - fixture_get(b, i));
        assert_true(difference <= 1e-4 * (1.0 + top));
    }
}

static struct fixture_options options_of(const struct onednn_case *c, int threads)
{
    return (struct fixture_options){.op = c->op,
                                    .attrs = c->attrs,
                                    .in = {c->data},
                                    .dtype = PS_F32,
                                    .low = -1,
                                    .high = 1,
                                    .threads = threads};
}

/* The plain Pooling and BatchNorm work without scratch memory. */
static bool through_onednn(const struct fixture *f)
{
    return ps_op_plan_workspace(f->plan, true) > 0;
}

/* oneDNN pools dense images of more than 3 channels, where it has AVX-512; for the rest
 * it has reference code only, which a plan does not take. */
static bool expected_in_onednn(const struct onednn_case *c)
{
#if defined(__x86_64__)
    return strcmp(c->op, "Pooling") != 0 || (c->data.ndim == 4 && c->data.dim[1] > 3 &&
                                             __builtin_cpu_supports("avx512bw"));
#else
    return strcmp(c->op, "Convolution") == 0;
#endif
}

static void compare_forward(struct fixture *f, struct fixture *p)
{
    fixture_forward(f);
    fixture_forward(p);
    for (int i = 0; i < ps_op_output_count(f->op); i++) {
        assert_close(&f->out[i], &p->out[i]);
    }
    for (int i = 0; i < ps_op_aux_count(f->op); i++) {
        assert_close(&f->aux[i], &p->aux[i]);
    }
}

static void compare(const struct both *both, const struct onednn_case *c, int threads)
{
    struct fixture f, p;
    struct fixture_options options = options_of(c, threads);
    static const enum ps_grad_req requests[][3] = {
        {PS_GRAD_WRITE, PS_GRAD_WRITE, PS_GRAD_WRITE},
        {PS_GRAD_ADD, PS_GRAD_ADD, PS_GRAD_ADD},
        {PS_GRAD_NULL, PS_GRAD_NULL, PS_GRAD_ADD},
        {PS_GRAD_NULL, PS_GRAD_WRITE, PS_GRAD_NULL},
        {PS_GRAD_ADD, PS_GRAD_NULL, PS_GRAD_WRITE},
        {PS_GRAD_NULL, PS_GRAD_NULL, PS_GRAD_NULL},
    };
    fixture_open(&f, both->fast, &options);
    fixture_open(&p, both->plain, &options);
    if (expected_in_onednn(c) && !through_onednn(&f)) {
        fail_msg("%s %s runs as plain code", c->op, c->attrs);
    }
    f.run.keep_aux = p.run.keep_aux = false; /* moving statistics change */
    compare_forward(&f, &p);
    f.run.training = p.run.training = false;
    compare_forward(&f, &p);
    f.run.training = p.run.training = true;
    f.run.keep_aux = p.run.keep_aux = true;
    compare_forward(&f, &p);
    for (size_t r = 0; r < PS_COUNT(requests); r++) {
        for (int i = 0; i < ps_op_input_count(f.op); i++) {
            f.req[i] = p.req[i] = requests[r][i];
        }
        fixture_backward(&f);
        fixture_backward(&p);
        for (int i = 0; i < ps_op_input_count(f.op); i++) {
            assert_close(&f.in_grad[i], &p.in_grad[i]);
        }
    }
    fixture_close(&f);
    fixture_close(&p);
}

static void onednn_equals_plain_code(void **state)
{
    const struct both *both = *state;
    if (!onednn_built_in(both)) {
        skip();
    }
    for (size_t i = 0; i < PS_COUNT(cases); i++) {
        compare(both, &cases[i], 1);
        compare(both, &cases[i], 2);
    }
}

/* ADD of a data gradient is, to the bit, what is there plus what WRITE gives, and asks
 * for no more scratch than the image and its gradient in the library's layout. */
static void a_convolution_adds_its_data_gradient_in_place(void **state)
{
    const struct both *both = *state;
    struct fixture f;
    static const struct onednn_case c = {"Convolution", "kernel=(1, 1);num_filter=32",
                                         PS_SHAPE(3, 64, 9, 7)};
    struct fixture_options options = options_of(&c, 1);
    if (!onednn_built_in(both)) {
        skip();
    }
    fixture_open(&f, both->fast, &options);
    int64_t count = fixture_count(&f.in_grad[0]);
    float there[3 * 64 * 9 * 7], *gradient = f.in_grad[0].data;
    assert_int_equal(count, PS_COUNT(there));
    fixture_backward(&f);
    for (int64_t i = 0; i < count; i++) {
        float before = (float)(i % 13) / 7;
        there[i] = before + gradient[i];
        gradient[i] = before;
    }
    f.req[0] = PS_GRAD_ADD;
    fixture_backward(&f);
    assert_memory_equal(gradient, there, sizeof(there));
    size_t image = sizeof(there), head = image / 2, small = (size_t)1 << 16;
    assert_true(ps_op_plan_workspace(f.plan, true) <= image + head + small);
    fixture_close(&f);
}

static double loss(struct fixture *f)
{
    double sum = 0.0;
    fixture_forward(f);
    for (int64_t i = 0; i < fixture_count(&f->out[0]); i++) {
        sum += fixture_get(&f->out[0], i) * fixture_get(&f->out_grad[0], i);
    }
    return sum;
}

/* Distinct multiples of 1/16 or less, so that a step of 1/128 changes no maximum. */
static void spread(const struct ps_view *view)
{
    int64_t n = fixture_count(view);
    for (int64_t i = 0; i < n; i++) {
        fixture_set(view, i, (double)(i * 37 % 97) / 16.0 - 3.0);
    }
}

static void check_differences(const struct both *both, const struct onednn_case *c)
{
    const double h = 1.0 / 128;
    struct fixture f;
    struct fixture_options options = options_of(c, 1);
    fixture_open(&f, both->fast, &options);
    spread(&f.in[0]);
    (void)loss(&f);
    for (int k = 0; k < ps_op_input_count(f.op); k++) {
        fixture_fill(&f.in_grad[k], NAN); /* write must not read it */
    }
    fixture_backward(&f);
    for (int64_t i = 0; i < PS_MIN(fixture_count(&f.in[0]), 64); i++) {
        double x = fixture_get(&f.in[0], i), got = fixture_get(&f.in_grad[0], i);
        fixture_set(&f.in[0], i, x + h);
        double up = loss(&f);
        fixture_set(&f.in[0], i, x - h);
        double want = (up - loss(&f)) / (2 * h);
        fixture_set(&f.in[0], i, x);
        assert_true(fabs(got - want) <= 2e-3 * (1.0 + fabs(want))); /* f32 rounding / h */
    }
    fixture_close(&f);
}

static void onednn_gradients_agree_with_central_differences(void **state)
{
    const struct both *both = *state;
    if (!onednn_built_in(both)) {
        skip();
    }
    for (size_t i = 0; i < PS_COUNT(cases); i++) {
        bool convolution = strcmp(cases[i].op, "Convolution") == 0;
        if (!convolution && ps_shape_count(&cases[i].data) < 4096) {
            check_differences(both, &cases[i]);
        }
    }
}

static void equal_elements_give_their_gradient_to_the_first(void **state)
{
    const struct both *both = *state;
    struct fixture f, p;
    static const struct onednn_case c = {
        "Pooling", "kernel=(3, 3);stride=(2, 2);pad=(1, 1)", PS_SHAPE(2, 4, 9, 9)};
    struct fixture_options options = options_of(&c, 1);
    fixture_open(&f, both->fast, &options);
    fixture_open(&p, both->plain, &options);
    for (int64_t i = 0; i < fixture_count(&f.in[0]); i++) {
        double v = (double)(i * 7 % 3) - 2.0; /* many ties, all at or below zero */
        fixture_set(&f.in[0], i, v);
        fixture_set(&p.in[0], i, v);
    }
    compare_forward(&f, &p);
    fixture_backward(&f);
    fixture_backward(&p);
    assert_close(&f.in_grad[0], &p.in_grad[0]);
    fixture_close(&f);
    fixture_close(&p);
}

static void a_norm_gradient_may_stand_in_place_of_its_head(void **state)
{
    const struct both *both = *state;
    static const struct ps_shape shapes[] = {PS_SHAPE(3, 20, 4, 5), PS_SHAPE(7, 12)};
    for (size_t i = 0; i < PS_COUNT(shapes); i++) {
        struct fixture f, p;
        struct onednn_case c = {"BatchNorm", "fix_gamma=False", shapes[i]};
        struct fixture_options options = options_of(&c, 1);
        fixture_open(&f, both->fast, &options);
        fixture_open(&p, both->plain, &options);
        compare_forward(&f, &p);
        struct ps_view own = f.in_grad[0];
        f.in_grad[0] = f.out_grad[0];
        f.req[0] = PS_GRAD_INPLACE;
        fixture_backward(&f);
        fixture_backward(&p);
        assert_close(&f.in_grad[0], &p.in_grad[0]);
        f.in_grad[0] = own;
        fixture_close(&f);
        fixture_close(&p);
    }
}

static void what_onednn_does_otherwise_runs_as_plain_code(void **state)
{
    const struct both *both = *state;
    static const struct onednn_case others[] = {
        {"Pooling", "kernel=(3, 3);stride=(2, 2);pooling_convention=full",
         PS_SHAPE(1, 2, 8, 6)},
        {"Pooling", "kernel=(2, 2);pool_type=sum", PS_SHAPE(1, 2, 5, 5)},
        {"BatchNorm", NULL, PS_SHAPE(0, 3, 2, 2)},
    };
    for (size_t i = 0; i < PS_COUNT(others); i++) {
        struct fixture f;
        struct fixture_options options = options_of(&others[i], 1);
        fixture_open(&f, both->fast, &options);
        assert_false(through_onednn(&f));
        fixture_close(&f);
        fixture_open(&f, both->plain, &options);
        assert_false(through_onednn(&f));
        fixture_close(&f);
    }
}

static void a_plan_takes_the_faster_of_the_two(void **state)
{
    const struct both *both = *state;
    static const struct {
        struct onednn_case c;
        bool onednn;
    } rules[] = {
        {{"Pooling", "kernel=(2, 2);stride=(2, 2)", PS_SHAPE(4, 20, 24, 24)}, false},
        {{"Pooling", "kernel=(2, 2);stride=(2, 2);pool_type=avg", PS_SHAPE(4, 20, 8, 8)},
         true},
        {{"Pooling", "kernel=(3, 3);stride=(2, 2);pad=(1, 1)", PS_SHAPE(2, 16, 8, 8)},
         true},
        {{"BatchNorm", NULL, PS_SHAPE(4, 16, 7, 7)}, false},
        {{"BatchNorm", NULL, PS_SHAPE(4, 16, 6, 6)}, true},
        {{"BatchNorm", NULL, PS_SHAPE(4, 20, 4, 4)}, false},
        {{"BatchNorm", NULL, PS_SHAPE(4, 20, 3, 3)}, true},
        {{"BatchNorm", NULL, PS_SHAPE(32, 20)}, true},
    };
    if (!onednn_built_in(both)) {
        skip();
    }
    both->fast->onednn_always = false;
    for (size_t i = 0; i < PS_COUNT(rules); i++) {
        struct fixture f;
        struct fixture_options options = options_of(&rules[i].c, 1);
        fixture_open(&f, both->fast, &options);
        bool expected = rules[i].onednn && expected_in_onednn(&rules[i].c);
        assert_int_equal(through_onednn(&f), expected);
        fixture_close(&f);
    }
    both->fast->onednn_always = true;
}

static void a_plan_gives_the_same_bits_twice(void **state)
{
    const struct both *both = *state;
    for (size_t k = 0; k < PS_COUNT(cases); k++) {
        struct fixture a, b;
        struct fixture_options options = options_of(&cases[k], 2);
        fixture_open(&a, both->fast, &options);
        fixture_open(&b, both->fast, &options);
        fixture_forward(&a);
        fixture_forward(&b);
        fixture_backward(&a);
        fixture_backward(&b);
        size_t out_bytes = (size_t)fixture_count(&a.out[0]) * sizeof(float);
        assert_memory_equal(a.out[0].data, b.out[0].data, out_bytes);
        for (int i = 0; i < ps_op_input_count(a.op); i++) {
            size_t bytes = (size_t)fixture_count(&a.in_grad[i]) * sizeof(float);
            assert_memory_equal(a.in_grad[i].data, b.in_grad[i].data, bytes);
        }
        fixture_close(&a);
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(onednn_equals_plain_code),
        cmocka_unit_test(a_convolution_adds_its_data_gradient_in_place),
        cmocka_unit_test(onednn_gradients_agree_with_central_differences),
        cmocka_unit_test(equal_elements_give_their_gradient_to_the_first),
        cmocka_unit_test(a_norm_gradient_may_stand_in_place_of_its_head),
        cmocka_unit_test(what_onednn_does_otherwise_runs_as_plain_code),
        cmocka_unit_test(a_plan_takes_the_faster_of_the_two),
        cmocka_unit_test(a_plan_gives_the_same_bits_twice),
    };
    return cmocka_run_group_tests(tests, open_both, close_both);
}
