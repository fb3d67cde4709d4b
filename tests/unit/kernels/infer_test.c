/* Shape and dtype inference, forwards and backwards, partial and contradicting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op_fixture.h"

#include <string.h>

/* What is known before, and what must be known after; -1 is an unknown dim. */
struct infer_case {
    const char *op, *attrs;
    struct ps_shape in[3], out;
    struct ps_shape want_in[3], want_out;
};
#define U PS_SHAPE_UNKNOWN
static const struct infer_case infer_cases[] = {
    {"FullyConnected",
     "num_hidden=1000",
     {PS_SHAPE(100, 100), U, U},
     U,
     {PS_SHAPE(100, 100), PS_SHAPE(1000, 100), PS_SHAPE(1000)},
     PS_SHAPE(100, 1000)},
    {"FullyConnected",
     "num_hidden=21",
     {PS_SHAPE(-1, 10), U, U},
     PS_SHAPE(5, -1),
     {PS_SHAPE(5, 10), PS_SHAPE(21, 10), PS_SHAPE(21)},
     PS_SHAPE(5, 21)},
    {"FullyConnected",
     "num_hidden=11",
     {PS_SHAPE(7, -1), PS_SHAPE(-1, 100), U},
     U,
     {PS_SHAPE(7, 100), PS_SHAPE(11, 100), PS_SHAPE(11)},
     PS_SHAPE(7, 11)},
    {"FullyConnected",
     "num_hidden=5",
     {U, U, U},
     U,
     {U, PS_SHAPE(5, -1), PS_SHAPE(5)},
     U},
    {"elemwise_add",
     NULL,
     {PS_SHAPE(-1, 10), PS_SHAPE(12, -1)},
     U,
     {PS_SHAPE(12, 10), PS_SHAPE(12, 10)},
     PS_SHAPE(12, 10)},
    {"elemwise_add",
     NULL,
     {U, U},
     PS_SHAPE(2, 3),
     {PS_SHAPE(2, 3), PS_SHAPE(2, 3)},
     PS_SHAPE(2, 3)},
    {"Concat",
     "num_args=2;dim=1",
     {PS_SHAPE(-1, 3, 4), PS_SHAPE(2, -1, 4)},
     PS_SHAPE(2, 8, 4),
     {PS_SHAPE(2, 3, 4), PS_SHAPE(2, 5, 4)},
     PS_SHAPE(2, 8, 4)},
    {"SliceChannel",
     "num_outputs=3",
     {PS_SHAPE(32, -1)},
     PS_SHAPE(-1, 512),
     {PS_SHAPE(32, 1536)},
     PS_SHAPE(32, 512)},
    {"SliceChannel",
     "num_outputs=3;axis=-2;squeeze_axis=True",
     {U},
     PS_SHAPE(2, 7),
     {PS_SHAPE(2, 3, 7)},
     PS_SHAPE(2, 7)},
    {"SliceChannel",
     "num_outputs=3;squeeze_axis=True",
     {PS_SHAPE(2, -1, 7)},
     U,
     {PS_SHAPE(2, 3, 7)},
     PS_SHAPE(2, 7)},
    {"transpose",
     "axes=(1, 2, 0)",
     {PS_SHAPE(-1, 3, -1)},
     PS_SHAPE(-1, 4, 2),
     {PS_SHAPE(2, 3, 4)},
     PS_SHAPE(3, 4, 2)},
    {"transpose", NULL, {U}, PS_SHAPE(4, 2), {PS_SHAPE(2, 4)}, PS_SHAPE(4, 2)},
    {"SwapAxis",
     "dim1=0;dim2=1",
     {PS_SHAPE(2, 3, 4)},
     U,
     {PS_SHAPE(2, 3, 4)},
     PS_SHAPE(3, 2, 4)},
    {"Embedding",
     "input_dim=10;output_dim=5",
     {PS_SHAPE(2, 3), U},
     U,
     {PS_SHAPE(2, 3), PS_SHAPE(10, 5)},
     PS_SHAPE(2, 3, 5)},
    {"Embedding",
     "input_dim=10;output_dim=5",
     {U, U},
     PS_SHAPE(2, 3, -1),
     {PS_SHAPE(2, 3), PS_SHAPE(10, 5)},
     PS_SHAPE(2, 3, 5)},
    {"Convolution",
     "kernel=(5, 5);num_filter=20",
     {PS_SHAPE(64, 1, 28, 28), U, U},
     U,
     {PS_SHAPE(64, 1, 28, 28), PS_SHAPE(20, 1, 5, 5), PS_SHAPE(20)},
     PS_SHAPE(64, 20, 24, 24)},
    {"Convolution",
     "kernel=(3, 3);num_filter=4;num_group=2;pad=(1, 1);stride=(2, 2)",
     {PS_SHAPE(-1, -1, 9, 8), PS_SHAPE(4, 3, 3, 3), U},
     PS_SHAPE(2, -1, -1, -1),
     {PS_SHAPE(2, 6, 9, 8), PS_SHAPE(4, 3, 3, 3), PS_SHAPE(4)},
     PS_SHAPE(2, 4, 5, 4)},
    {"Pooling",
     "kernel=(3, 3);stride=(2, 2);pooling_convention=full",
     {PS_SHAPE(1, 2, 8, 7)},
     U,
     {PS_SHAPE(1, 2, 8, 7)},
     PS_SHAPE(1, 2, 4, 3)},
    {"SoftmaxOutput",
     NULL,
     {PS_SHAPE(-1, 10), PS_SHAPE(64)},
     U,
     {PS_SHAPE(64, 10), PS_SHAPE(64)},
     PS_SHAPE(64, 10)},
    {"Reshape",
     "shape=(0, -1)",
     {PS_SHAPE(2, 3, 4)},
     U,
     {PS_SHAPE(2, 3, 4)},
     PS_SHAPE(2, 12)},
    {"Reshape",
     "shape=(-4, -1, 2, -3)",
     {PS_SHAPE(8, 3, 4)},
     U,
     {PS_SHAPE(8, 3, 4)},
     PS_SHAPE(4, 2, 12)},
    {"Reshape",
     "shape=(-1, 0);reverse=True",
     {PS_SHAPE(10, 5, 4)},
     U,
     {PS_SHAPE(10, 5, 4)},
     PS_SHAPE(50, 4)},
    {"Reshape",
     "target_shape=(0, 6)",
     {PS_SHAPE(4, 3)},
     U,
     {PS_SHAPE(4, 3)},
     PS_SHAPE(2, 6)},
    {"Flatten",
     NULL,
     {PS_SHAPE(-1, 3, 4)},
     PS_SHAPE(7, -1),
     {PS_SHAPE(7, 3, 4)},
     PS_SHAPE(7, 12)},
    {"broadcast_add",
     NULL,
     {PS_SHAPE(3, 1, -1), PS_SHAPE(1, 4, 5)},
     U,
     {PS_SHAPE(3, 1, -1), PS_SHAPE(1, 4, 5)},
     PS_SHAPE(3, 4, 5)},
    {"sum", NULL, {PS_SHAPE(3, 4)}, U, {PS_SHAPE(3, 4)}, PS_SHAPE(1)},
    {"dot",
     NULL,
     {PS_SHAPE(3, -1), PS_SHAPE(4, 5)},
     U,
     {PS_SHAPE(3, 4), PS_SHAPE(4, 5)},
     PS_SHAPE(3, 5)},
};

static void assert_shape(const struct ps_shape *got, const struct ps_shape *want,
                         const char *op, const char *what, int i)
{
    char a[PS_SHAPE_TEXT_BYTES], b[PS_SHAPE_TEXT_BYTES];
    if (strcmp(ps_shape_text(got, a), ps_shape_text(want, b)) != 0) {
        fail_msg("%s %s %d: %s, expected %s", op, what, i, a, b);
    }
}

static void shapes_are_inferred_in_both_directions(void **state)
{
    (void)state;
    for (size_t c = 0; c < PS_COUNT(infer_cases); c++) {
        const struct infer_case *t = &infer_cases[c];
        struct ps_shape in[3], out[3] = {t->out, U, U}, aux[1] = {U};
        struct ps_op *op;
        struct ps_error err = {PS_OK, ""};
        memcpy(in, t->in, sizeof in);
        assert_int_equal(fixture_op(t->op, t->attrs, &op, &err), PS_OK);
        if (ps_op_infer_shape(op, in, out, aux, &err) != PS_OK) {
            fail_msg("%s", err.text);
        }
        for (int i = 0; i < ps_op_input_count(op); i++) {
            assert_shape(&in[i], &t->want_in[i], t->op, "input", i);
        }
        assert_shape(&out[0], &t->want_out, t->op, "output", 0);
        ps_op_destroy(op);
    }
}

static void assert_contradiction(const char *name, const char *attrs, struct ps_shape a,
                                 struct ps_shape b)
{
    struct ps_shape in[3] = {a, b, U}, out[3] = {U, U, U}, aux[2] = {U, U};
    struct ps_op *op;
    struct ps_error err = {PS_OK, ""};
    assert_int_equal(fixture_op(name, attrs, &op, &err), PS_OK);
    assert_int_equal(ps_op_infer_shape(op, in, out, aux, &err), PS_ESHAPE);
    assert_non_null(strstr(err.text, name));
    ps_op_destroy(op);
}

static void contradicting_shapes_are_refused(void **state)
{
    (void)state;
    assert_contradiction("FullyConnected", "num_hidden=1000", PS_SHAPE(100, 100),
                         PS_SHAPE(1000, 101));
    assert_contradiction("elemwise_add", NULL, PS_SHAPE(2, 3), PS_SHAPE(3, 2));
    assert_contradiction("broadcast_mul", NULL, PS_SHAPE(2, 3), PS_SHAPE(2, 2));
    assert_contradiction("dot", NULL, PS_SHAPE(2, 3), PS_SHAPE(4, 2));
    assert_contradiction("Concat", "num_args=2", PS_SHAPE(2, 3), PS_SHAPE(3, 3));
    assert_contradiction("Convolution", "kernel=(5, 5);num_filter=1",
                         PS_SHAPE(1, 1, 4, 4), U);
    assert_contradiction("Convolution", "kernel=(1, 1);num_filter=1", PS_SHAPE(1, 1, 4),
                         U);
    assert_contradiction("Pooling", "kernel=(5, 5)", PS_SHAPE(1, 1, 4, 4), U);
    assert_contradiction("Reshape", "shape=(5, -1)", PS_SHAPE(2, 3), U);
    assert_contradiction("SliceChannel", "num_outputs=3", PS_SHAPE(2, 7), U);
    assert_contradiction("SliceChannel", "num_outputs=2;squeeze_axis=1", PS_SHAPE(2, 4),
                         U);
    assert_contradiction("SliceChannel", "num_outputs=2;axis=2", PS_SHAPE(2, 4), U);
    assert_contradiction("transpose", "axes=(0, 1)", PS_SHAPE(2, 3, 4), U);
    assert_contradiction("transpose", "axes=(0, -2)", PS_SHAPE(2, 3), U);
    assert_contradiction("SwapAxis", "dim2=3", PS_SHAPE(2, 3), U);
    assert_contradiction("Embedding", "input_dim=3;output_dim=2", PS_SHAPE(2),
                         PS_SHAPE(2, 3));
    assert_contradiction("sum", "axis=3", PS_SHAPE(2, 3), U);
    assert_contradiction("sum", NULL, PS_SHAPE(INT64_MAX, 3), U);
    assert_contradiction("Pooling", "kernel=(5, 5);pad=(4, 4)",
                         PS_SHAPE(1, 1, INT64_MAX, INT64_MAX), U);
}

static void dtypes_are_inferred_and_cast_cuts_them(void **state)
{
    struct ps_op *op;
    int in[3] = {PS_DTYPE_UNKNOWN, PS_F16, PS_DTYPE_UNKNOWN}, out[1] = {PS_DTYPE_UNKNOWN};
    (void)state;
    assert_int_equal(fixture_op("FullyConnected", "num_hidden=2", &op, NULL), PS_OK);
    assert_int_equal(ps_op_infer_dtype(op, in, out, NULL, NULL), PS_OK);
    assert_true(in[0] == PS_F16 && in[2] == PS_F16 && out[0] == PS_F16);
    out[0] = PS_F32;
    assert_int_equal(ps_op_infer_dtype(op, in, out, NULL, NULL), PS_EDTYPE);
    ps_op_destroy(op);
    assert_int_equal(fixture_op("Cast", "dtype=float32", &op, NULL), PS_OK);
    in[0] = PS_F16;
    out[0] = PS_DTYPE_UNKNOWN;
    assert_int_equal(ps_op_infer_dtype(op, in, out, NULL, NULL), PS_OK);
    assert_true(in[0] == PS_F16 && out[0] == PS_F32);
    ps_op_destroy(op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_inferred_in_both_directions),
        cmocka_unit_test(contradicting_shapes_are_refused),
        cmocka_unit_test(dtypes_are_inferred_and_cast_cuts_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
