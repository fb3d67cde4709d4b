/* Operators that move rows (SliceChannel, transpose, SwapAxis, Embedding): values as
 * MXNet's documentation gives them, other dtypes, and sums whose order is fixed. */
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

static void open_f32(struct fixture *f, const char *op, const char *attrs,
                     struct ps_shape a, int threads)
{
    struct fixture_options options = {.op = op,
                                      .attrs = attrs,
                                      .in = {a},
                                      .dtype = PS_F32,
                                      .low = -1,
                                      .high = 1,
                                      .threads = threads};
    fixture_open(f, kernels, &options);
}

static void assert_values(const struct ps_view *view, const double *want, int64_t count)
{
    assert_int_equal(fixture_count(view), count);
    for (int64_t i = 0; i < count; i++) {
        if (fixture_get(view, i) != want[i]) {
            fail_msg("element %d is %g, expected %g", (int)i, fixture_get(view, i),
                     want[i]);
        }
    }
}

static void count_up(const struct ps_view *view, double first)
{
    for (int64_t i = 0; i < fixture_count(view); i++) {
        fixture_set(view, i, first + (double)i);
    }
}

static void a_tensor_is_cut_along_any_axis(void **state)
{
    static const double middle[2][6] = {{0, 1, 2, 6, 7, 8}, {3, 4, 5, 9, 10, 11}};
    static const double last[3][4] = {{0, 3, 6, 9}, {1, 4, 7, 10}, {2, 5, 8, 11}};
    struct fixture f;
    (void)state;
    open_f32(&f, "SliceChannel", "num_outputs=2", PS_SHAPE(2, 2, 3), 1);
    count_up(&f.in[0], 0);
    fixture_forward(&f);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(f.out[k].shape.ndim, 3);
        assert_values(&f.out[k], middle[k], 6);
    }
    fixture_close(&f);
    open_f32(&f, "SliceChannel", "num_outputs=3;axis=-1;squeeze_axis=True",
             PS_SHAPE(2, 2, 3), 1);
    assert_true(ps_op_backward_needs(f.op, PS_SLOT_OUT_GRAD, 2));
    assert_false(ps_op_backward_needs(f.op, PS_SLOT_INPUT, 0));
    count_up(&f.in[0], 0);
    fixture_forward(&f);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(f.out[k].shape.ndim, 2);
        assert_values(&f.out[k], last[k], 4);
        memcpy(f.out_grad[k].data, f.out[k].data, 4 * sizeof(float));
    }
    fixture_backward(&f); /* the pieces side by side are the whole */
    assert_memory_equal(f.in_grad[0].data, f.in[0].data, 12 * sizeof(float));
    fixture_close(&f);
}

static void dims_change_places(void **state)
{
    static const double turned[] = {0, 3, 1, 4, 2, 5};
    static const double moved[] = {0, 4, 1, 5, 2, 6, 3, 7};
    struct fixture f;
    (void)state;
    open_f32(&f, "transpose", NULL, PS_SHAPE(2, 3), 1);
    count_up(&f.in[0], 0);
    fixture_forward(&f);
    assert_true(f.out[0].shape.dim[0] == 3 && f.out[0].shape.dim[1] == 2);
    assert_values(&f.out[0], turned, 6);
    memcpy(f.out_grad[0].data, f.out[0].data, 6 * sizeof(float));
    fixture_backward(&f);
    assert_memory_equal(f.in_grad[0].data, f.in[0].data, 6 * sizeof(float));
    fixture_close(&f);
    open_f32(&f, "transpose", "axes=(1, 2, 0)", PS_SHAPE(2, 2, 2), 1);
    count_up(&f.in[0], 0);
    fixture_forward(&f);
    assert_values(&f.out[0], moved, 8);
    fixture_close(&f);
    open_f32(&f, "SwapAxis", "dim1=1;dim2=1", PS_SHAPE(2, 3), 1);
    fixture_forward(&f);
    assert_memory_equal(f.out[0].data, f.in[0].data, 6 * sizeof(float));
    fixture_close(&f);
}

/* MXNet's example: rows 1, 3 and 0, 2 of a table of four. */
static void rows_of_the_table_are_found_by_number(void **state)
{
    static const double rows[] = {5, 6, 7, 8, 9, 15, 16, 17, 18, 19,
                                  0, 1, 2, 3, 4, 10, 11, 12, 13, 14};
    static const double numbers[] = {1, 3, 0, 2};
    static const double outside[] = {-1, 4, 1e30, NAN};
    struct fixture f;
    (void)state;
    open_f32(&f, "Embedding", "input_dim=4;output_dim=5", PS_SHAPE(2, 2), 1);
    count_up(&f.in[1], 0);
    for (int64_t i = 0; i < 4; i++) {
        fixture_set(&f.in[0], i, numbers[i]);
    }
    fixture_forward(&f);
    assert_values(&f.out[0], rows, 20);
    for (int64_t i = 0; i < 4; i++) { /* cut to the first or the last row */
        fixture_set(&f.in[0], i, outside[i]);
    }
    fixture_forward(&f);
    for (int64_t i = 0; i < 4; i++) {
        assert_true(fixture_get(&f.out[0], 5 * i) == (i == 1 || i == 2 ? 15 : 0));
    }
    fixture_close(&f);
}

/* 2^24 + 1 + 1 is 2^24 in f32 and 2^24 + 2 when the ones are added first. */
static void gradients_of_a_row_are_added_in_the_order_of_the_numbers(void **state)
{
    static const double heads[] = {16777216, 1, 1, 1, 1, 16777216};
    static const double numbers[] = {2, 2, 2, 0, 0, 0};
    struct fixture f;
    (void)state;
    open_f32(&f, "Embedding", "input_dim=3;output_dim=1", PS_SHAPE(6), 1);
    for (int64_t i = 0; i < 6; i++) {
        fixture_set(&f.in[0], i, numbers[i]);
        fixture_set(&f.out_grad[0], i, heads[i]);
    }
    fixture_backward(&f);
    assert_true(fixture_get(&f.in_grad[1], 2) == 16777216);
    assert_true(fixture_get(&f.in_grad[1], 0) == 16777218);
    assert_true(fixture_get(&f.in_grad[1], 1) == 0);
    fixture_close(&f);
}

static void embedding_gradients_have_the_same_bits_for_any_thread_count(void **state)
{
    struct fixture one, many;
    (void)state;
    open_f32(&one, "Embedding", "input_dim=7;output_dim=333", PS_SHAPE(50, 3), 1);
    open_f32(&many, "Embedding", "input_dim=7;output_dim=333", PS_SHAPE(50, 3), 3);
    fixture_random(&one.in[0], 9, -0.5, 7.5);
    fixture_random(&many.in[0], 9, -0.5, 7.5);
    fixture_backward(&one);
    fixture_backward(&many);
    assert_memory_equal(one.in_grad[1].data, many.in_grad[1].data,
                        7 * 333 * sizeof(float));
    fixture_close(&one);
    fixture_close(&many);
}

/* Numbers may be integers while the table is f32, and the other way round. */
static void numbers_and_table_have_dtypes_of_their_own(void **state)
{
    struct ps_op *op = NULL;
    struct ps_error err = {.status = PS_OK};
    int in[] = {PS_I32, PS_DTYPE_UNKNOWN}, out[] = {PS_F16};
    (void)state;
    assert_int_equal(fixture_op("Embedding", "input_dim=3;output_dim=2", &op, &err),
                     PS_OK);
    assert_int_equal(ps_op_infer_dtype(op, in, out, NULL, &err), PS_OK);
    assert_true(in[0] == PS_I32 && in[1] == PS_F16);
    ps_op_destroy(op);
    assert_int_equal(
        fixture_op("Embedding", "input_dim=3;output_dim=2;dtype=float64", &op, &err),
        PS_OK);
    in[1] = out[0] = PS_DTYPE_UNKNOWN;
    assert_int_equal(ps_op_infer_dtype(op, in, out, NULL, &err), PS_OK);
    assert_true(in[1] == PS_F64 && out[0] == PS_F64);
    in[1] = PS_F32;
    assert_int_equal(ps_op_infer_dtype(op, in, out, NULL, &err), PS_EDTYPE);

    int32_t numbers[] = {2, 0};
    double table[] = {0, 1, 2, 3, 4, 5}, rows[4], want[] = {4, 5, 0, 1};
    struct ps_shape shapes[] = {PS_SHAPE(2), PS_SHAPE(3, 2)};
    struct ps_plan_options options = {.threads = 1, .training = true};
    struct ps_op_plan *plan = NULL;
    in[1] = PS_F64;
    assert_int_equal(ps_op_prepare(kernels, op, shapes, in, &options, &plan, &err),
                     PS_OK);
    struct ps_view views[] = {{numbers, PS_I32, PS_SHAPE(2), NULL},
                              {table, PS_F64, PS_SHAPE(3, 2), NULL}};
    struct ps_view output = {rows, PS_F64, PS_SHAPE(2, 2), NULL};
    struct ps_op_run run = {.in = views, .out = &output};
    assert_int_equal(ps_op_forward(plan, &run, &err), PS_OK);
    assert_memory_equal(rows, want, sizeof(want));
    ps_op_plan_destroy(plan);
    ps_op_destroy(op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_is_cut_along_any_axis),
        cmocka_unit_test(dims_change_places),
        cmocka_unit_test(rows_of_the_table_are_found_by_number),
        cmocka_unit_test(gradients_of_a_row_are_added_in_the_order_of_the_numbers),
        cmocka_unit_test(embedding_gradients_have_the_same_bits_for_any_thread_count),
        cmocka_unit_test(numbers_and_table_have_dtypes_of_their_own),
    };
    return cmocka_run_group_tests(tests, open_kernels, close_kernels);
}
