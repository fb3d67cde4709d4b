/* Optimizers: golden values of reference/, invariance to cuts, text, dtypes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"

#include <math.h>
#include <string.h>

static struct ps_optimizer parse(const char *text)
{
    struct ps_optimizer opt;
    struct ps_error err;
    enum ps_status status = ps_optimizer_parse(text, &opt, &err);
    if (status != PS_OK) {
        fail_msg("%s", err.text);
    }
    return opt;
}

/* One f32 weight over 'steps' updates with gradient g; returns it. */
static float train(const char *text, float w, float g, int steps)
{
    struct ps_optimizer opt = parse(text);
    float states[2] = {0};
    for (int t = 1; t <= steps; t++) {
        struct ps_optimizer_key_state key = {1.0, 1.0, (uint64_t)t, 1.0};
        struct ps_optimizer_range range = {.weight = &w,
                                           .grad = &g,
                                           .states = {&states[0], &states[1]},
                                           .dtype = PS_F32,
                                           .grad_dtype = PS_F32,
                                           .count = 1};
        assert_int_equal(ps_optimizer_update(&opt, &key, &range), PS_OK);
    }
    return w;
}

static void assert_near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance)) {
        fail_msg("%.9g, expected %.9g", got, want);
    }
}

static void sgd_follows_the_golden_values(void **state)
{
    (void)state;
    assert_near((double)train("sgd,lr=0.1", 0, 1, 3), -0.3, 1e-6);
    assert_near((double)train("sgd,learning_rate=0.1,momentum=0.9", 0, 1, 1), -0.1, 1e-6);
    assert_near((double)train("sgd,lr=0.1,momentum=0.9", 0, 1, 2), -0.29, 1e-6);
    assert_near((double)train("sgd,lr=0.1,momentum=0.9", 0, 1, 3), -0.561, 1e-6);
    assert_near((double)train("sgd,lr=0.1,wd=0.5", 1, 0, 1), 0.95, 1e-6);
    assert_near((double)train("sgd,lr=1,rescale_grad=0.5,clip_gradient=0.2", 0, 1, 1),
                -0.2, 1e-6);
}

static void adam_follows_the_golden_values(void **state)
{
    (void)state;
    assert_near((double)train("adam,learning_rate=0.1", 0, 1, 3), -0.29999993, 2e-7);
    assert_near((double)train("adam,learning_rate=0.1", 0, 1, 1), -0.1, 2e-7);
}

static void case_131_adam_decays_through_the_gradient_and_adamw_beside_it(void **state)
{
    (void)state;
    assert_near((double)train("adam,lr=0.01,wd=0.1", 1, 0, 1), 0.99, 1e-6);
    assert_near((double)train("adamw,lr=0.01,wd=0.1", 1, 0, 1), 0.999, 1e-6);
}

static void other_optimizers_follow_their_formulas(void **state)
{
    (void)state;
    /* nag: m = 1, then d = g + 0.9 m */
    assert_near((double)train("nag,lr=0.1,momentum=0.9", 0, 1, 1), -0.19, 1e-6);
    /* rmsprop: v = 0.1, then w = -lr / sqrt(0.1) */
    assert_near((double)train("rmsprop,lr=0.1,gamma1=0.9", 0, 1, 1), -0.1 / sqrt(0.1),
                1e-6);
    assert_near((double)train("rmsprop,lr=0.1,clip_weights=0.2", 0, 1, 1), -0.2, 1e-6);
    /* adagrad: v = 1, then 2 */
    assert_near((double)train("adagrad,lr=0.1", 0, 1, 2), -0.1 - 0.1 / sqrt(2.0), 1e-6);
    assert_near((double)train("add,rescale_grad=2", 1, 1, 3), 7.0, 0);
    assert_near((double)train("test,rescale_grad=2", 1, 1, 3), 7.0, 0);
}

enum { COUNT = 1031 };
static const char *const all[] = {"sgd",   "sgd,momentum=0.9", "nag,momentum=0.9", "adam",
                                  "adamw", "rmsprop",          "adagrad",          "add",
                                  "test"};

struct arrays {
    double weight[COUNT], grad[COUNT], state[2][COUNT]; /* room for any dtype */
    float master[COUNT];
};

static void fill(struct arrays *a, int dtype)
{
    memset(a, 0, sizeof *a);
    for (int i = 0; i < COUNT; i++) {
        double w = (double)ps_rng_normal_at(5, 1, (uint64_t)i);
        double g = (double)ps_rng_normal_at(5, 2, (uint64_t)i);
        size_t size = ps_dtype_size(dtype), off = (size_t)i * size;
        assert_int_equal(ps_convert((char *)a->weight + off, dtype, &w, PS_F64, 1),
                         PS_OK);
        assert_int_equal(ps_convert((char *)a->grad + off, dtype, &g, PS_F64, 1), PS_OK);
        a->master[i] = (float)w;
    }
}

static void update(const struct ps_optimizer *opt, struct arrays *a, int dtype,
                   bool master, size_t first, size_t count)
{
    size_t size = ps_dtype_size(dtype);
    size_t state_size = ps_dtype_size(ps_optimizer_state_dtype(opt, dtype));
    struct ps_optimizer_key_state key = {0.5, 2.0, 3, 0.25};
    struct ps_optimizer_range range = {
        .weight = (char *)a->weight + first * size,
        .grad = (char *)a->grad + first * size,
        .states = {(char *)a->state[0] + first * state_size,
                   (char *)a->state[1] + first * state_size},
        .master = master ? a->master + first : NULL,
        .dtype = dtype,
        .grad_dtype = dtype,
        .count = count};
    assert_int_equal(ps_optimizer_update(opt, &key, &range), PS_OK);
}

static void the_result_does_not_depend_on_how_an_array_is_cut(void **state)
{
    static const int dtypes[] = {PS_F32, PS_F64, PS_F16, PS_BF16};
    static struct arrays whole, cut;
    (void)state;
    for (size_t k = 0; k < PS_COUNT(all); k++) {
        struct ps_optimizer opt = parse(all[k]);
        for (size_t d = 0; d < 2 * PS_COUNT(dtypes); d++) {
            int dtype = dtypes[d / 2];
            bool master = d % 2 == 1 && ps_dtype_size(dtype) == 2;
            fill(&whole, dtype);
            fill(&cut, dtype);
            for (int t = 0; t < 2; t++) {
                update(&opt, &whole, dtype, master, 0, COUNT);
                for (size_t first = 0, n = 1; first < COUNT; first += n, n = n * 2 + 1) {
                    update(&opt, &cut, dtype, master, first, PS_MIN(n, COUNT - first));
                }
            }
            assert_memory_equal(&whole, &cut, sizeof whole);
        }
    }
}

static void a_twin_takes_the_result_and_the_old_weight_stays(void **state)
{
    struct ps_optimizer opt = parse("sgd,lr=1");
    struct ps_optimizer_key_state key = {1, 1, 1, 1};
    float old[3] = {1, 2, 3}, twin[3] = {0}, grad[3] = {1, 1, 1};
    struct ps_optimizer_range range = {.weight = old,
                                       .weight_out = twin,
                                       .grad = grad,
                                       .dtype = PS_F32,
                                       .grad_dtype = PS_F32,
                                       .count = 3};
    (void)state;
    assert_int_equal(ps_optimizer_update(&opt, &key, &range), PS_OK);
    assert_true(old[2] == 3.0F && twin[2] == 2.0F);
}

static void integers_are_added_exactly_and_refused_by_learners(void **state)
{
    struct ps_optimizer add = parse("add"), sgd = parse("sgd");
    struct ps_optimizer_key_state key = {1, 1, 1, 1};
    int64_t w[2] = {(int64_t)1 << 60, -5}, g[2] = {7, 2};
    struct ps_optimizer_range range = {
        .weight = w, .grad = g, .dtype = PS_I64, .grad_dtype = PS_I64, .count = 2};
    (void)state;
    assert_int_equal(ps_optimizer_update(&add, &key, &range), PS_OK);
    assert_true(w[0] == ((int64_t)1 << 60) + 7 && w[1] == -3);
    assert_int_equal(ps_optimizer_update(&sgd, &key, &range), PS_EDTYPE);
}

static void text_survives_a_round_trip_and_mistakes_are_named(void **state)
{
    struct ps_error err;
    (void)state;
    for (size_t k = 0; k < PS_COUNT(all); k++) {
        struct ps_optimizer opt = parse(all[k]), back;
        struct ps_str text = {0};
        opt.rescale_grad = 1.0 / 3.0;
        ps_optimizer_format(&opt, &text);
        back = parse(ps_str_text(&text));
        assert_memory_equal(&opt, &back, sizeof opt);
        assert_int_equal(ps_optimizer_check(&back, NULL), PS_OK);
        ps_str_fini(&text);
    }
    struct ps_optimizer opt = parse("sgd");
    assert_int_equal(ps_optimizer_parse("sdg", &opt, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "sgd"));
    assert_int_equal(ps_optimizer_parse("sgd,beta1=0.5", &opt, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "momentum"));
    assert_int_equal(ps_optimizer_parse("sgd,momentum=1.5", &opt, &err), PS_ERANGE);
    assert_int_equal(ps_optimizer_parse("sgd,momentum=x", &opt, &err), PS_EINVAL);
    assert_int_equal(ps_optimizer_parse("sgd,momentum", &opt, &err), PS_EINVAL);
    opt.lr = NAN;
    assert_int_equal(ps_optimizer_check(&opt, &err), PS_ERANGE);
    opt.kind = 77;
    assert_int_equal(ps_optimizer_check(&opt, &err), PS_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_follows_the_golden_values),
        cmocka_unit_test(adam_follows_the_golden_values),
        cmocka_unit_test(case_131_adam_decays_through_the_gradient_and_adamw_beside_it),
        cmocka_unit_test(other_optimizers_follow_their_formulas),
        cmocka_unit_test(the_result_does_not_depend_on_how_an_array_is_cut),
        cmocka_unit_test(a_twin_takes_the_result_and_the_old_weight_stays),
        cmocka_unit_test(integers_are_added_exactly_and_refused_by_learners),
        cmocka_unit_test(text_survives_a_round_trip_and_mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
