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

/* Shapes of all arguments from hints alone, by name. */
static void expect_argument(struct ps_symbol *symbol, const char *name,
                            struct ps_shape expected)
{
    struct ps_error err = {0};
    struct ps_inferred_shapes s = {0};
    struct ps_names names = {0};
    if (ps_symbol_infer_shapes(symbol, NULL, 0, &s, &err) != PS_OK) {
        fail_msg("%s: %s", name, err.text);
    }
    assert_int_equal(ps_symbol_list_arguments(symbol, &names), PS_OK);
    assert_true(ps_names_index(&names, name) >= 0);
    expect_shape(&s.arguments[ps_names_index(&names, name)], expected);
    ps_names_fini(&names);
    ps_inferred_shapes_fini(&s);
}

static struct ps_symbol *hinted(struct ps_builder *b, const char *name, const char *hint)
{
    return ps_builder_attr(b, ps_builder_variable(b, name), "shape", hint);
}

static void a_sum_completes_what_is_sliced(void **state)
{
    (void)state;
    static const struct {
        const char *data, *attrs, *other;
        struct ps_shape expected;
    } cases[] = {{"(0, 10)", "num_outputs=10 squeeze_axis=True", "(5,)", PS_SHAPE(5, 10)},
                 {"(0, 15, 0)", "num_outputs=3", "(3, 5, 2)", PS_SHAPE(3, 15, 2)}};
    for (size_t i = 0; i < PS_COUNT(cases); i++) {
        struct ps_builder *b = builder_new();
        struct ps_symbol *a = hinted(b, "a", cases[i].data);
        a = ps_builder_output(
            b, ps_builder_op(b, "SliceChannel", NULL, cases[i].attrs, a), 1);
        struct ps_symbol *sum = finish(b, ps_builder_op(b, "elemwise_add", NULL, NULL, a,
                                                        hinted(b, "b", cases[i].other)));
        expect_argument(sum, "a", cases[i].expected);
        ps_symbol_release(sum);
    }
}

static void a_sum_completes_what_is_concatenated(void **state)
{
    (void)state;
    struct ps_builder *b = builder_new();
    struct ps_symbol *joined =
        ps_builder_op(b, "Concat", NULL, "num_args=2 dim=1", hinted(b, "a", "(0, 10)"),
                      hinted(b, "b", "(0, 5)"));
    struct ps_symbol *sum = finish(b, ps_builder_op(b, "elemwise_add", NULL, NULL,
                                                    hinted(b, "d", "(2, 0)"), joined));
    expect_argument(sum, "a", PS_SHAPE(2, 10));
    expect_argument(sum, "b", PS_SHAPE(2, 5));
    expect_argument(sum, "d", PS_SHAPE(2, 15));
    ps_symbol_release(sum);
}

static void a_sum_completes_what_is_convolved(void **state)
{
    (void)state;
    struct ps_builder *b = builder_new();
    struct ps_symbol *conv = ps_builder_op(
        b, "Convolution", "conv", "kernel=(3,3) stride=(1,1) pad=(1,1) num_filter=21",
        hinted(b, "a", "(0, 10, 0, 0)"));
    struct ps_symbol *sum = finish(b, ps_builder_op(b, "elemwise_add", NULL, NULL, conv,
                                                    hinted(b, "b", "(5, 21, 32, 32)")));
    expect_argument(sum, "a", PS_SHAPE(5, 10, 32, 32));
    expect_argument(sum, "conv_weight", PS_SHAPE(21, 10, 3, 3));
    ps_symbol_release(sum);
}

/* MXNet's test_backward_infer: the sum of a weight and a shift of one element does not
 * say the weight's shape; that it is like the weight again does. */
static void a_weight_behind_a_broadcast_is_inferred_from_its_use(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *w = ps_builder_variable(b, "weight");
    struct ps_symbol *wt =
        ps_builder_op(b, "broadcast_add", NULL, NULL, w, hinted(b, "wshift", "(1, 1)"));
    wt = ps_builder_op(b, "_identity_with_attr_like_rhs", NULL, NULL, wt, w);
    struct ps_symbol *net =
        finish(b, ps_builder_op(b, "FullyConnected", NULL, "num_hidden=11 no_bias=True",
                                ps_builder_variable(b, "data"), wt));
    struct ps_named_shape known = {"data", PS_SHAPE(7, 100)};
    struct ps_inferred_shapes s = {0};
    struct ps_names names = {0};
    if (ps_symbol_infer_shapes_partial(net, &known, 1, &s, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(ps_symbol_list_arguments(net, &names), PS_OK);
    expect_shape(&s.arguments[ps_names_index(&names, "weight")], PS_SHAPE(11, 100));
    ps_names_fini(&names), ps_inferred_shapes_fini(&s);
    ps_symbol_release(net);
}

static void of_nothing_nothing_is_known(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *net =
        finish(b, ps_builder_op(b, "tanh", NULL, NULL, ps_builder_variable(b, "data")));
    struct ps_inferred_shapes s = {0};
    assert_int_equal(ps_symbol_infer_shapes(net, NULL, 0, &s, &err), PS_ENOTREADY);
    assert_null(s.arguments);
    assert_int_equal(ps_symbol_infer_shapes_partial(net, NULL, 0, &s, &err), PS_OK);
    assert_false(s.complete);
    assert_true(s.arguments[0].ndim < 0 && s.outputs[0].ndim < 0);
    ps_inferred_shapes_fini(&s);
    struct ps_inferred_dtypes t = {0};
    assert_int_equal(ps_symbol_infer_dtypes(net, NULL, 0, &t, &err), PS_ENOTREADY);
    ps_symbol_release(net);
}

/* Of a symbol from a file: a builder refuses them at once. */
static void hints_that_are_none_are_errors_by_name(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {{"__shape__", "(2, x)"},
                                           {"__dtype__", "float31"}};
    for (size_t i = 0; i < PS_COUNT(wrong); i++) {
        struct ps_error err = {0};
        struct ps_str json = {0};
        struct ps_symbol *net = NULL;
        ps_str_printf(&json,
                      "{\"nodes\": [{\"op\": \"null\", \"name\": \"x\", \"attrs\": "
                      "{\"%s\": \"%s\"}, \"inputs\": []}, {\"op\": \"tanh\", \"name\": "
                      "\"y\", \"inputs\": [[0, 0, 0]]}], \"arg_nodes\": [0], "
                      "\"heads\": [[1, 0, 0]]}",
                      wrong[i][0], wrong[i][1]);
        if (ps_symbol_from_json(ps_str_text(&json), json.size, &net, &err) != PS_OK) {
            fail_msg("%s", err.text);
        }
        struct ps_inferred_shapes s = {0};
        struct ps_inferred_dtypes t = {0};
        enum ps_status status =
            i == 0 ? ps_symbol_infer_shapes_partial(net, NULL, 0, &s, &err)
                   : ps_symbol_infer_dtypes_partial(net, NULL, 0, &t, &err);
        assert_int_equal(status, PS_EINVAL);
        assert_non_null(strstr(err.text, "x: __"));
        assert_non_null(strstr(err.text, wrong[i][1]));
        ps_symbol_release(net);
        ps_str_fini(&json);
    }
}

/* The type of an output says that of the data: the sweeps go both ways for types too. */
static void types_flow_backward_and_hints_give_way(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "FullyConnected", "fc", "num_hidden=4", x);
    struct ps_symbol *y =
        ps_builder_attr(b, ps_builder_variable(b, "y"), "dtype", "float64");
    struct ps_symbol *net =
        finish(b, ps_builder_op(b, "elemwise_add", "sum", NULL, x, y));
    struct ps_inferred_dtypes t = {0};
    assert_int_equal(ps_symbol_infer_dtypes(net, NULL, 0, &t, &err), PS_OK);
    for (size_t i = 0; i < t.argument_count; i++) {
        assert_int_equal(t.arguments[i], PS_F64);
    }
    ps_inferred_dtypes_fini(&t);
    struct ps_named_dtype known = {"y", PS_F32};
    assert_int_equal(ps_symbol_infer_dtypes(net, &known, 1, &t, &err), PS_OK);
    assert_int_equal(t.arguments[0], PS_F32);
    ps_inferred_dtypes_fini(&t);
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
        cmocka_unit_test(a_sum_completes_what_is_sliced),
        cmocka_unit_test(a_sum_completes_what_is_concatenated),
        cmocka_unit_test(a_sum_completes_what_is_convolved),
        cmocka_unit_test(a_weight_behind_a_broadcast_is_inferred_from_its_use),
        cmocka_unit_test(of_nothing_nothing_is_known),
        cmocka_unit_test(hints_that_are_none_are_errors_by_name),
        cmocka_unit_test(types_flow_backward_and_hints_give_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
