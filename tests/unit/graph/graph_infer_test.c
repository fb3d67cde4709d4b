/* Inference of shapes and types: both directions, partial knowledge, contradictions. */
#include "tests/unit/graph/graph_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void expect_shape(const struct ps_shape *shape, struct ps_shape expected)
{
    char have[PS_SHAPE_TEXT_BYTES], want[PS_SHAPE_TEXT_BYTES];
    if (!ps_shape_equal(shape, &expected)) {
        fail_msg("%s, expected %s", ps_shape_text(shape, have),
                 ps_shape_text(&expected, want));
    }
}

static struct ps_symbol *two_layers(void)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "FullyConnected", "fc1", "num_hidden=1000", x);
    x = ps_builder_op(b, "Activation", NULL, "act_type=relu", x);
    return finish(b, ps_builder_op(b, "FullyConnected", "fc2", "num_hidden=10", x));
}

static void an_mlp_infers_from_its_data(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_symbol *mlp = two_layers();
    struct ps_named_shape known = {"data", PS_SHAPE(100, 100)};
    struct ps_inferred_shapes s = {0};
    assert_int_equal(ps_symbol_infer_shapes(mlp, &known, 1, &s, &err), PS_OK);
    assert_true(s.complete);
    expect_shape(&s.arguments[1], PS_SHAPE(1000, 100));
    expect_shape(&s.arguments[2], PS_SHAPE(1000));
    expect_shape(&s.arguments[3], PS_SHAPE(10, 1000));
    expect_shape(&s.outputs[0], PS_SHAPE(100, 10));
    ps_inferred_shapes_fini(&s);
    ps_symbol_release(mlp);
}

static void an_inconsistent_weight_is_an_error_that_names_the_node(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_symbol *mlp = two_layers();
    struct ps_named_shape known[] = {{"data", PS_SHAPE(100, 100)},
                                     {"fc1_weight", PS_SHAPE(1, 100)}};
    struct ps_inferred_shapes s = {0};
    assert_int_equal(ps_symbol_infer_shapes(mlp, known, 2, &s, &err), PS_ESHAPE);
    assert_non_null(strstr(err.text, "fc1"));
    ps_symbol_release(mlp);
}

static void an_unknown_name_comes_with_the_nearest(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_symbol *mlp = two_layers();
    struct ps_named_shape known = {"fc1_wieght", PS_SHAPE(1, 100)};
    struct ps_inferred_shapes s = {0};
    assert_int_equal(ps_symbol_infer_shapes(mlp, &known, 1, &s, &err), PS_ENOENT);
    assert_non_null(strstr(err.text, "fc1_weight"));
    ps_symbol_release(mlp);
}

/* i2h of the data, h2h of a state that nobody gives: as MXNet's incomplete RNN cell. */
static void what_is_incomplete_gives_nothing_or_what_is_known(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    struct ps_symbol *h = ps_builder_variable(b, "state");
    x = ps_builder_op(b, "FullyConnected", "i2h", "num_hidden=6", x);
    h = ps_builder_op(b, "FullyConnected", "h2h", "num_hidden=6", h);
    struct ps_symbol *cell =
        finish(b, ps_builder_op(b, "elemwise_add", "cell", NULL, x, h));
    struct ps_named_shape known = {"data", PS_SHAPE(5, 3)};
    struct ps_inferred_shapes s = {0};
    assert_int_equal(ps_symbol_infer_shapes(cell, &known, 1, &s, &err), PS_ENOTREADY);
    assert_null(s.arguments);
    assert_non_null(strstr(err.text, "state"));
    assert_int_equal(ps_symbol_infer_shapes_partial(cell, &known, 1, &s, &err), PS_OK);
    assert_false(s.complete);
    expect_shape(&s.arguments[1], PS_SHAPE(6, 3));
    expect_shape(&s.outputs[0], PS_SHAPE(5, 6));
    assert_false(ps_shape_known(&s.arguments[3]));
    ps_inferred_shapes_fini(&s);
    ps_symbol_release(cell);
}

static void what_is_given_wins_over_the_hint(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    ps_builder_attr(b, x, "shape", "(2, 3)");
    struct ps_symbol *sq = finish(b, ps_builder_op(b, "square", NULL, NULL, x));
    struct ps_inferred_shapes s = {0};
    assert_int_equal(ps_symbol_infer_shapes(sq, NULL, 0, &s, &err), PS_OK);
    expect_shape(&s.outputs[0], PS_SHAPE(2, 3));
    ps_inferred_shapes_fini(&s);
    struct ps_named_shape known = {"x", PS_SHAPE(5, 6)};
    assert_int_equal(ps_symbol_infer_shapes(sq, &known, 1, &s, &err), PS_OK);
    expect_shape(&s.outputs[0], PS_SHAPE(5, 6));
    ps_inferred_shapes_fini(&s);
    ps_symbol_release(sq);
}

static void partial_dimensions_complete_each_other(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *a = ps_builder_variable(b, "a"), *c = ps_builder_variable(b, "b");
    struct ps_symbol *sum = finish(b, ps_builder_op(b, "elemwise_add", NULL, NULL, a, c));
    struct ps_named_shape known[] = {{"a", PS_SHAPE(-1, 10)}, {"b", PS_SHAPE(12, -1)}};
    struct ps_inferred_shapes s = {0};
    assert_int_equal(ps_symbol_infer_shapes(sum, known, 2, &s, &err), PS_OK);
    expect_shape(&s.arguments[0], PS_SHAPE(12, 10));
    expect_shape(&s.arguments[1], PS_SHAPE(12, 10));
    expect_shape(&s.outputs[0], PS_SHAPE(12, 10));
    ps_inferred_shapes_fini(&s);
    ps_symbol_release(sum);
}

/* a (0,10) through a layer of 21, added to c (5,0): a's first and c's second dimension.
 */
static void a_batch_size_flows_back_through_a_layer(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *a = ps_builder_variable(b, "a"), *c = ps_builder_variable(b, "c");
    struct ps_symbol *fc = ps_builder_op(b, "FullyConnected", "fc", "num_hidden=21", a);
    struct ps_symbol *sum =
        finish(b, ps_builder_op(b, "elemwise_add", NULL, NULL, fc, c));
    struct ps_named_shape known[] = {{"a", PS_SHAPE(-1, 10)}, {"c", PS_SHAPE(5, -1)}};
    struct ps_inferred_shapes s = {0};
    if (ps_symbol_infer_shapes(sum, known, 2, &s, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    expect_shape(&s.arguments[0], PS_SHAPE(5, 10));
    expect_shape(&s.arguments[3], PS_SHAPE(5, 21));
    ps_inferred_shapes_fini(&s);
    ps_symbol_release(sum);
}

/* MXNet's test_infer_shape backward case: out = fc1 + fc2 of two inputs, the second's
 * weight known from what it is added to. */
static void a_weight_is_inferred_backward(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *w = ps_builder_variable(b, "weight");
    struct ps_symbol *d1 = ps_builder_variable(b, "data1");
    struct ps_symbol *both =
        ps_builder_op(b, "elemwise_add", NULL, NULL, w, ps_builder_variable(b, "other"));
    struct ps_symbol *sum =
        ps_builder_op(b, "FullyConnected", "fc", "num_hidden=11 no_bias=True", d1, both);
    struct ps_symbol *s1 = finish(b, sum);
    struct ps_named_shape known = {"data1", PS_SHAPE(7, 100)};
    struct ps_inferred_shapes s = {0};
    if (ps_symbol_infer_shapes(s1, &known, 1, &s, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    struct ps_names names = {0};
    assert_int_equal(ps_symbol_list_arguments(s1, &names), PS_OK);
    expect_shape(&s.arguments[ps_names_index(&names, "weight")], PS_SHAPE(11, 100));
    ps_names_fini(&names);
    ps_inferred_shapes_fini(&s);
    ps_symbol_release(s1);
}

static void types_flow_through_a_cast(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "Cast", "to32", "dtype=float32", x);
    x = ps_builder_op(b, "FullyConnected", "fc", "num_hidden=4", x);
    struct ps_symbol *net = finish(b, ps_builder_op(b, "SoftmaxOutput", "sm", NULL, x));
    struct ps_named_dtype known = {"data", PS_F16};
    struct ps_inferred_dtypes t = {0};
    assert_int_equal(ps_symbol_infer_dtypes_partial(net, &known, 1, &t, &err), PS_OK);
    assert_int_equal(t.arguments[0], PS_F16);
    assert_int_equal(t.arguments[1], PS_F32);
    assert_int_equal(t.arguments[2], PS_F32);
    assert_int_equal(t.outputs[0], PS_F32);
    ps_inferred_dtypes_fini(&t);
    struct ps_named_dtype wrong[] = {{"data", PS_F16}, {"fc_weight", PS_F64}};
    assert_int_equal(ps_symbol_infer_dtypes_partial(net, wrong, 2, &t, &err), PS_EDTYPE);
    assert_non_null(strstr(err.text, "fc"));
    ps_symbol_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_mlp_infers_from_its_data),
        cmocka_unit_test(an_inconsistent_weight_is_an_error_that_names_the_node),
        cmocka_unit_test(an_unknown_name_comes_with_the_nearest),
        cmocka_unit_test(what_is_incomplete_gives_nothing_or_what_is_known),
        cmocka_unit_test(what_is_given_wins_over_the_hint),
        cmocka_unit_test(partial_dimensions_complete_each_other),
        cmocka_unit_test(a_batch_size_flows_back_through_a_layer),
        cmocka_unit_test(a_weight_is_inferred_backward),
        cmocka_unit_test(types_flow_through_a_cast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
