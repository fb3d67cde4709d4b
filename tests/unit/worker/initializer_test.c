/* First values, by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "worker/initializer.h"

static void a_constant_goes_by_the_end_of_the_name(void **state)
{
    static const struct {
        const char *name;
        float value;
    } rows[] = {{"fc1_bias", 0},          {"bn_beta", 0},       {"bn_gamma", 1},
                {"bn_moving_mean", 0},    {"bn_moving_var", 1}, {"weight_bias", 0},
                {"gamma", 0 /* no "_" */}};
    (void)state;
    struct ps_shape shape = PS_SHAPE(7);
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        float out[7];
        memset(out, 0x7f, sizeof(out));
        ps_initialize(rows[i].name, &shape, 1, out);
        for (size_t j = 0; j < PS_COUNT(out); j++) {
            assert_true(out[j] == rows[i].value);
        }
    }
}

/* Uniform in +-sqrt(3 / fan average): of variance 1 / fan average, around 0. */
static void expect_xavier(const struct ps_shape *shape, double fan)
{
    static float out[100 * 50 * 5 * 5];
    size_t count = (size_t)ps_shape_count(shape);
    assert_in_range(count, 1, PS_COUNT(out));
    double bound = sqrt(3.0 / fan), sum = 0, squares = 0, largest = 0;
    ps_initialize("x_weight", shape, 42, out);
    for (size_t i = 0; i < count; i++) {
        sum += (double)out[i];
        squares += (double)out[i] * (double)out[i];
        largest = fmax(largest, fabs((double)out[i]));
    }
    double n = (double)count;
    assert_true(largest <= bound * (1 + 1e-6) && largest > 0.99 * bound);
    assert_true(fabs(sum / n) < 5 * bound / sqrt(3 * n)); /* 5 sigma */
    assert_true(fabs(squares / n * fan - 1) < 0.05);
}

static void weights_are_xaviers(void **state)
{
    (void)state;
    struct ps_shape dense = PS_SHAPE(100, 300);
    struct ps_shape convolution = PS_SHAPE(50, 20, 5, 5);
    expect_xavier(&dense, (100 + 300) / 2.0);
    expect_xavier(&convolution, (50 + 20) * 25 / 2.0);
}

static void a_value_depends_on_seed_name_and_index_only(void **state)
{
    (void)state;
    float a[64], b[64], c[32];
    struct ps_shape shape = PS_SHAPE(8, 8), other = PS_SHAPE(4, 8);
    ps_initialize("fc1_weight", &shape, 1, a);
    ps_initialize("fc1_weight", &shape, 1, b);
    assert_memory_equal(a, b, sizeof(a));
    ps_initialize("fc2_weight", &shape, 1, b);
    assert_memory_not_equal(a, b, sizeof(a));
    ps_initialize("fc1_weight", &shape, 2, b);
    assert_memory_not_equal(a, b, sizeof(a));
    /* a smaller tensor has the same numbers, scaled by its own bound */
    ps_initialize("fc1_weight", &other, 1, c);
    for (size_t i = 0; i < PS_COUNT(c); i++) {
        assert_true(fabs((double)c[i] / (double)a[i] - sqrt(8.0 / 6.0)) < 1e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_constant_goes_by_the_end_of_the_name),
        cmocka_unit_test(weights_are_xaviers),
        cmocka_unit_test(a_value_depends_on_seed_name_and_index_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
