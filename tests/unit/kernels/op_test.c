/* Names, attributes, checks of views, and the numbered cases on gradients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op_fixture.h"

#include "kernels/reduce.h"

#include <math.h>
#include <stdio.h>
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

static void operators_are_found_by_mxnet_names_and_aliases(void **state)
{
    static const char *const pairs[][2] = {
        {"Softmax", "SoftmaxOutput"}, {"_Plus", "elemwise_add"},
        {"_plus", "elemwise_add"},    {"ElementWiseSum", "add_n"},
        {"identity", "_copy"},        {"stop_gradient", "BlockGrad"},
        {"make_loss", "MakeLoss"},    {"broadcast_plus", "broadcast_add"},
        {"flatten", "Flatten"},       {"_RMinusScalar", "_rminus_scalar"},
        {"Pooling_v1", "Pooling"},    {"concat", "Concat"},
        {"split", "SliceChannel"},    {"swapaxes", "SwapAxis"},
    };
    (void)state;
    for (size_t i = 0; i < PS_COUNT(pairs); i++) {
        const struct ps_op_def *def = ps_op_find(pairs[i][0]);
        assert_non_null(def);
        assert_string_equal(ps_op_name(def), pairs[i][1]);
        assert_ptr_equal(def, ps_op_find(pairs[i][1]));
    }
    assert_null(ps_op_find("FullyConected"));
    assert_string_equal(ps_op_nearest("FullyConected"), "FullyConnected");
}

static void assert_refused(const char *name, const char *attrs, const char *const words[])
{
    struct ps_op *op = NULL;
    struct ps_error err = {PS_OK, ""};
    assert_int_not_equal(fixture_op(name, attrs, &op, &err), PS_OK);
    assert_null(op);
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strstr(err.text, words[i]) == NULL) {
            fail_msg("'%s' does not name %s", err.text, words[i]);
        }
    }
}

static void bad_attributes_are_refused_by_name_value_and_what_is_accepted(void **state)
{
    (void)state;
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
    assert_refused("FullyConnected", "num_hiden=3",
                   WORDS("FullyConnected", "num_hiden", "num_hidden"));
    assert_refused("FullyConnected", NULL,
                   WORDS("FullyConnected", "num_hidden", "required"));
    assert_refused("FullyConnected", "num_hidden=many",
                   WORDS("num_hidden", "many", "integer"));
    assert_refused("FullyConnected", "num_hidden=0",
                   WORDS("num_hidden", "'0'", "from 1"));
    assert_refused("FullyConnected", "num_hidden=3;no_bias=maybe",
                   WORDS("no_bias", "maybe", "True or False"));
    assert_refused("Activation", "act_type=rely",
                   WORDS("Activation", "act_type", "rely", "relu|sigmoid"));
    assert_refused("Convolution", "kernel=(3, x);num_filter=1",
                   WORDS("kernel", "(3, x)", "tuple"));
    assert_refused("Convolution", "kernel=(3, 3;num_filter=1", WORDS("kernel", "tuple"));
    assert_refused("Convolution", "kernel=(3, 3);num_filter=1;pad=(1,)",
                   WORDS("pad", "1 elements"));
    assert_refused("Convolution", "kernel=(1,1,1,1,1,1,1,1,1);num_filter=1",
                   WORDS("kernel"));
    assert_refused("Convolution", "kernel=(3, 3, 3);num_filter=1", WORDS("3 dims"));
    assert_refused("Dropout", "p=1.5", WORDS("Dropout", "p", "1.5"));
    assert_refused("Cast", "dtype=float31", WORDS("dtype", "float31", "float32"));
    assert_refused("add_n", "num_args=100000", WORDS("num_args", "4096"));
    assert_refused("SliceChannel", "num_outputs=100000", WORDS("num_outputs", "4096"));
    assert_refused("SliceChannel", "num_outputs=0", WORDS("num_outputs", "from 1"));
    assert_refused("Embedding", "input_dim=0;output_dim=3", WORDS("input_dim", "'0'"));
    assert_refused("_plus_scalar", "scalar=", WORDS("scalar", "number"));
}

static void attributes_take_every_spelling_that_mxnet_writes(void **state)
{
    static const char *const good[] = {
        "kernel=(3, 3);num_filter=8L;no_bias=1;workspace=1024;__lr_mult__=2",
        "kernel=[3,3];num_filter=8;stride=(2L, 2L);pad=();layout=None",
        "kernel= ( 3 , 3 , ) ;num_filter=8;no_bias=False;cudnn_tune=off",
    };
    (void)state;
    for (size_t i = 0; i < PS_COUNT(good); i++) {
        struct ps_op *op = NULL;
        struct ps_error err = {PS_OK, ""};
        if (fixture_op("Convolution", good[i], &op, &err) != PS_OK) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(ps_op_input_count(op), i == 0 ? 2 : 3);
        ps_op_destroy(op);
    }
}

static void counts_and_names_follow_the_attributes(void **state)
{
    struct ps_op *op;
    (void)state;
    assert_int_equal(fixture_op("Concat", "num_args=12", &op, NULL), PS_OK);
    assert_int_equal(ps_op_input_count(op), 12);
    assert_string_equal(ps_op_input_name(op, 11), "arg11");
    ps_op_destroy(op);
    assert_int_equal(fixture_op("SliceChannel", "num_outputs=12", &op, NULL), PS_OK);
    assert_int_equal(ps_op_output_count(op), 12);
    assert_int_equal(ps_op_visible_output_count(op), 12);
    assert_string_equal(ps_op_output_name(op, 11), "output11");
    ps_op_destroy(op);
    assert_int_equal(fixture_op("BatchNorm", NULL, &op, NULL), PS_OK);
    assert_int_equal(ps_op_output_count(op), 3);
    assert_int_equal(ps_op_visible_output_count(op), 1);
    assert_int_equal(ps_op_aux_count(op), 2);
    assert_string_equal(ps_op_aux_name(op, 1), "moving_var");
    ps_op_destroy(op);
}

static void views_that_do_not_fit_the_plan_are_refused(void **state)
{
    struct fixture f;
    struct fixture_options options = {.op = "elemwise_mul",
                                      .in = {PS_SHAPE(2, 3), PS_SHAPE(2, 3)},
                                      .dtype = PS_F32,
                                      .low = -1,
                                      .high = 1};
    (void)state;
    fixture_open(&f, kernels, &options);
    f.in[0].shape = PS_SHAPE(3, 2);
    assert_int_equal(ps_op_forward(f.plan, &f.run, &f.err), PS_ESHAPE);
    f.in[0].shape = PS_SHAPE(2, 3);
    f.in[1].dtype = PS_F64;
    assert_int_equal(ps_op_forward(f.plan, &f.run, &f.err), PS_EDTYPE);
    f.in[1].dtype = PS_F32;
    f.out[0].layout = &f;
    assert_int_equal(ps_op_forward(f.plan, &f.run, &f.err), PS_EUNSUPPORTED);
    f.out[0].layout = NULL;
    void *data = f.in[0].data;
    f.in[0].data = NULL;
    assert_int_equal(ps_op_backward(f.plan, &f.run, &f.err), PS_EINVAL);
    f.in[0].data = data;
    fixture_forward(&f);
    fixture_close(&f);
}

/* dW of Dense(16) applied n times to one input: n writes summed, against n adds. */
static void case_111_a_weight_used_n_times_adds_up_like_writes(void **state)
{
    struct fixture f;
    struct fixture_options options = {.op = "FullyConnected",
                                      .attrs = "num_hidden=16",
                                      .in = {PS_SHAPE(32, 16)},
                                      .dtype = PS_F32,
                                      .low = -1,
                                      .high = 1};
    (void)state;
    fixture_open(&f, kernels, &options);
    fixture_forward(&f);
    for (int n = 1; n <= 10; n++) {
        float sum[16 * 16] = {0};
        for (int k = 0; k < n; k++) {
            f.req[1] = PS_GRAD_WRITE;
            fixture_random(&f.out_grad[0], 300 + (uint64_t)k, -1, 1);
            fixture_backward(&f);
            ps_reduce_accumulate(sum, f.in_grad[1].data, PS_F32, 16 * 16);
        }
        fixture_fill(&f.in_grad[1], 0.0);
        for (int k = 0; k < n; k++) {
            f.req[1] = PS_GRAD_ADD;
            fixture_random(&f.out_grad[0], 300 + (uint64_t)k, -1, 1);
            fixture_backward(&f);
        }
        for (int64_t i = 0; i < 16 * 16; i++) {
            double got = fixture_get(&f.in_grad[1], i);
            assert_true(fabs(got - (double)sum[i]) <= 1e-5 * (1 + fabs(got)));
        }
    }
    fixture_close(&f);
}

static void case_112_add_n_may_write_over_any_input(void **state)
{
    struct fixture f;
    struct fixture_options options = {
        .op = "add_n",
        .attrs = "num_args=4",
        .in = {PS_SHAPE(5, 411), PS_SHAPE(5, 411), PS_SHAPE(5, 411), PS_SHAPE(5, 411)},
        .dtype = PS_F32,
        .low = -1,
        .high = 1};
    (void)state;
    fixture_open(&f, kernels, &options);
    for (int over = 0; over < 4; over++) {
        size_t bytes = 5 * 411 * sizeof(float);
        float want[5 * 411];
        for (int k = 0; k < 4; k++) {
            fixture_random(&f.in[k], (uint64_t)k, -1, 1);
        }
        fixture_forward(&f);
        memcpy(want, f.out[0].data, bytes);
        void *own = f.out[0].data;
        f.out[0].data = f.in[over].data;
        fixture_forward(&f);
        assert_memory_equal(f.out[0].data, want, bytes);
        f.out[0].data = own;
        /* the head gradient's memory may be the first gradient's */
        void *gradient = f.in_grad[0].data;
        f.in_grad[0].data = f.out_grad[0].data;
        fixture_backward(&f);
        assert_memory_equal(f.in_grad[3].data, f.out_grad[0].data, bytes);
        f.in_grad[0].data = gradient;
    }
    fixture_close(&f);
}

/* sum of y^2 over BatchNorm of arange(12), accumulated three times. */
static void case_114_batch_norm_accumulates_gradients(void **state)
{
    struct fixture f;
    struct fixture_options options = {.op = "BatchNorm",
                                      .attrs = "fix_gamma=False",
                                      .in = {PS_SHAPE(1, 3, 2, 2)},
                                      .dtype = PS_F32};
    float once[3][12];
    (void)state;
    fixture_open(&f, kernels, &options);
    for (int64_t i = 0; i < 12; i++) {
        fixture_set(&f.in[0], i, (double)i);
    }
    fixture_fill(&f.in[1], 1.0);
    fixture_fill(&f.in[2], 0.0);
    fixture_forward(&f);
    for (int64_t i = 0; i < 12; i++) {
        fixture_set(&f.out_grad[0], i, 2.0 * fixture_get(&f.out[0], i));
    }
    fixture_backward(&f);
    assert_true(fabs(fixture_get(&f.in_grad[1], 0) - 7.99) < 0.02);
    for (int k = 0; k < 3; k++) {
        memcpy(once[k], f.in_grad[k].data, (size_t)fixture_count(&f.in_grad[k]) * 4);
        fixture_fill(&f.in_grad[k], 0.0);
        f.req[k] = PS_GRAD_ADD;
    }
    for (int k = 0; k < 3; k++) {
        fixture_backward(&f);
    }
    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; i < fixture_count(&f.in_grad[k]); i++) {
            double got = fixture_get(&f.in_grad[k], i), want = 3.0 * (double)once[k][i];
            assert_true(fabs(got - want) <= 1e-5 * (1 + fabs(want)));
        }
    }
    fixture_close(&f);
}

static void batch_norm_moves_its_statistics_once_per_training_forward(void **state)
{
    struct fixture f;
    struct fixture_options options = {
        .op = "BatchNorm", .in = {PS_SHAPE(4, 2)}, .dtype = PS_F64, .low = 0, .high = 1};
    (void)state;
    fixture_open(&f, kernels, &options);
    double before = fixture_get(&f.aux[0], 0);
    fixture_forward(&f); /* keep_aux: a recomputation */
    assert_true(fixture_get(&f.aux[0], 0) == before);
    f.run.keep_aux = false;
    fixture_forward(&f);
    double mean = fixture_get(&f.out[1], 0), want = 0.9 * before + 0.1 * mean;
    assert_true(fabs(fixture_get(&f.aux[0], 0) - want) < 1e-12);
    f.run.training = false;
    fixture_forward(&f);
    assert_true(fixture_get(&f.out[1], 0) == fixture_get(&f.aux[0], 0));
    fixture_close(&f);
}

static void dropout_draws_the_same_mask_for_any_thread_count(void **state)
{
    struct fixture a, b;
    struct fixture_options options = {.op = "Dropout",
                                      .attrs = "p=0.25",
                                      .in = {PS_SHAPE(50003)},
                                      .dtype = PS_F32,
                                      .low = 1,
                                      .high = 2,
                                      .threads = 1};
    (void)state;
    fixture_open(&a, kernels, &options);
    options.threads = 3;
    fixture_open(&b, kernels, &options);
    fixture_forward(&a);
    fixture_forward(&b);
    assert_memory_equal(a.out[1].data, b.out[1].data, 50003 * sizeof(float));
    int64_t kept = 0;
    for (int64_t i = 0; i < 50003; i++) {
        kept += fixture_get(&a.out[1], i) != 0.0 ? 1 : 0;
    }
    assert_true(fabs((double)kept / 50003 - 0.75) < 0.01);
    b.run.stream = 8;
    fixture_forward(&b);
    assert_memory_not_equal(a.out[1].data, b.out[1].data, 50003 * sizeof(float));
    a.run.training = false;
    fixture_forward(&a);
    assert_memory_equal(a.out[0].data, a.in[0].data, 50003 * sizeof(float));
    fixture_close(&a);
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators_are_found_by_mxnet_names_and_aliases),
        cmocka_unit_test(bad_attributes_are_refused_by_name_value_and_what_is_accepted),
        cmocka_unit_test(attributes_take_every_spelling_that_mxnet_writes),
        cmocka_unit_test(counts_and_names_follow_the_attributes),
        cmocka_unit_test(views_that_do_not_fit_the_plan_are_refused),
        cmocka_unit_test(case_111_a_weight_used_n_times_adds_up_like_writes),
        cmocka_unit_test(case_112_add_n_may_write_over_any_input),
        cmocka_unit_test(case_114_batch_norm_accumulates_gradients),
        cmocka_unit_test(batch_norm_moves_its_statistics_once_per_training_forward),
        cmocka_unit_test(dropout_draws_the_same_mask_for_any_thread_count),
    };
    return cmocka_run_group_tests(tests, open_kernels, close_kernels);
}
