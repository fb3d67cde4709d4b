/* Convolution through oneDNN against the plain code, f32, all requests, within 1e-4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op_fixture.h"

#include <math.h>
#include <string.h>

static const struct conv_case {
    const char *attrs;
    struct ps_shape data;
} cases[] = {
    {"kernel=(5, 5);num_filter=20", PS_SHAPE(4, 1, 28, 28)},
    {"kernel=(5, 5);num_filter=50", PS_SHAPE(4, 20, 12, 12)},
    {"kernel=(3, 3);num_filter=7;pad=(1, 1);no_bias=True", PS_SHAPE(2, 3, 9, 7)},
    {"kernel=(3, 2);num_filter=8;stride=(2, 1);pad=(1, 0)", PS_SHAPE(3, 16, 8, 7)},
    {"kernel=(2, 2);num_filter=4;num_group=2;dilate=(2, 2)", PS_SHAPE(2, 6, 9, 8)},
    {"kernel=(1, 1);num_filter=32;stride=(2, 2)", PS_SHAPE(2, 16, 7, 7)},
    {"kernel=(3,);num_filter=5;stride=(2,)", PS_SHAPE(2, 3, 16)},
};

struct both {
    struct ps_kernels *fast, *plain;
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

static void compare(const struct both *both, const struct conv_case *c, int threads)
{
    struct fixture f, p;
    struct fixture_options options = {.op = "Convolution",
                                      .attrs = c->attrs,
                                      .in = {c->data},
                                      .dtype = PS_F32,
                                      .low = -1,
                                      .high = 1,
                                      .threads = threads};
    static const enum ps_grad_req requests[][3] = {
        {PS_GRAD_WRITE, PS_GRAD_WRITE, PS_GRAD_WRITE},
        {PS_GRAD_ADD, PS_GRAD_ADD, PS_GRAD_ADD},
        {PS_GRAD_NULL, PS_GRAD_NULL, PS_GRAD_ADD},
        {PS_GRAD_NULL, PS_GRAD_WRITE, PS_GRAD_NULL},
    };
    fixture_open(&f, both->fast, &options);
    fixture_open(&p, both->plain, &options);
    fixture_forward(&f);
    fixture_forward(&p);
    assert_close(&f.out[0], &p.out[0]);
    for (size_t r = 0; r < PS_COUNT(requests); r++) {
        memcpy(f.req, requests[r], sizeof requests[r]);
        memcpy(p.req, requests[r], sizeof requests[r]);
        fixture_backward(&f);
        fixture_backward(&p);
        for (int i = 0; i < ps_op_input_count(f.op); i++) {
            assert_close(&f.in_grad[i], &p.in_grad[i]);
        }
    }
    fixture_close(&f);
    fixture_close(&p);
}

static void onednn_convolution_equals_plain_code(void **state)
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

static void a_plan_gives_the_same_bits_twice(void **state)
{
    const struct both *both = *state;
    struct fixture a, b;
    struct fixture_options options = {.op = "Convolution",
                                      .attrs = cases[1].attrs,
                                      .in = {cases[1].data},
                                      .dtype = PS_F32,
                                      .low = -1,
                                      .high = 1,
                                      .threads = 2};
    fixture_open(&a, both->fast, &options);
    fixture_open(&b, both->fast, &options);
    fixture_forward(&a);
    fixture_forward(&b);
    fixture_backward(&a);
    fixture_backward(&b);
    for (int i = 0; i < 3; i++) {
        size_t bytes = (size_t)fixture_count(&a.in_grad[i]) * sizeof(float);
        assert_memory_equal(a.in_grad[i].data, b.in_grad[i].data, bytes);
    }
    fixture_close(&a);
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(onednn_convolution_equals_plain_code),
        cmocka_unit_test(a_plan_gives_the_same_bits_twice),
    };
    return cmocka_run_group_tests(tests, open_both, close_both);
}
