/* Symbols: composing, naming, listing, attributes. */
#include "tests/unit/graph/graph_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expect_names(const struct ps_names *names, const char *const *expected)
{
    size_t i = 0;
    for (; expected[i] != NULL; i++) {
        assert_true(i < names->count);
        assert_string_equal(names->names[i], expected[i]);
    }
    assert_int_equal(names->count, i);
}

static void missing_inputs_become_variables_named_after_the_node(void **state)
{
    (void)state;
    struct ps_symbol *lenet = small_lenet();
    struct ps_names names = {0};
    assert_int_equal(ps_symbol_list_arguments(lenet, &names), PS_OK);
    expect_names(&names, (const char *const[]){"data", "conv1_weight", "conv1_bias",
                                               "conv2_weight", "conv2_bias", "fc1_weight",
                                               "fc1_bias", "fc2_weight", "fc2_bias",
                                               "softmax_label", NULL});
    ps_names_fini(&names);
    assert_int_equal(ps_symbol_list_outputs(lenet, &names), PS_OK);
    expect_names(&names, (const char *const[]){"softmax_output", NULL});
    ps_names_fini(&names);
    assert_string_equal(ps_symbol_name(lenet), "softmax");
    ps_symbol_release(lenet);
}

static void auxiliary_states_are_listed_apart(void **state)
{
    (void)state;
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    struct ps_symbol *s = finish(b, ps_builder_op(b, "BatchNorm", "bn", NULL, x));
    struct ps_names names = {0};
    assert_int_equal(ps_symbol_list_arguments(s, &names), PS_OK);
    expect_names(&names, (const char *const[]){"data", "bn_gamma", "bn_beta", NULL});
    ps_names_fini(&names);
    assert_int_equal(ps_symbol_list_auxiliaries(s, &names), PS_OK);
    expect_names(&names, (const char *const[]){"bn_moving_mean", "bn_moving_var", NULL});
    ps_names_fini(&names);
    assert_int_equal(ps_symbol_output_count(s), 1); /* mean and var are hidden */
    ps_symbol_release(s);
}

static void nodes_without_a_name_are_counted_per_operator(void **state)
{
    (void)state;
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "FullyConnected", NULL, "num_hidden=3", x);
    assert_string_equal(ps_symbol_name(x), "fullyconnected0");
    x = ps_builder_op(b, "FullyConnected", NULL, "num_hidden=4", x);
    assert_string_equal(ps_symbol_name(x), "fullyconnected1");
    x = ps_builder_op(b, "elemwise_add", NULL, NULL, x, x);
    assert_string_equal(ps_symbol_name(x), "elemwise_add0");
    ps_symbol_release(finish(b, x));
}

static void groups_outputs_and_internals_pick_parts(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x"), *y = ps_builder_variable(b, "y");
    struct ps_symbol *sum = ps_builder_op(b, "elemwise_add", "sum", NULL, x, y);
    struct ps_symbol *sq = ps_builder_op(b, "square", "sq", NULL, sum);
    struct ps_symbol *both[] = {sq, sum};
    struct ps_symbol *group = finish(b, ps_builder_group(b, both, 2));
    struct ps_names names = {0};
    assert_int_equal(ps_symbol_list_outputs(group, &names), PS_OK);
    expect_names(&names, (const char *const[]){"sq_output", "sum_output", NULL});
    ps_names_fini(&names);
    assert_null(ps_symbol_name(group));
    struct ps_symbol *all = NULL, *found = NULL;
    assert_int_equal(ps_symbol_internals(group, &all, &err), PS_OK);
    assert_int_equal(ps_symbol_list_outputs(all, &names), PS_OK);
    expect_names(&names,
                 (const char *const[]){"x", "y", "sum_output", "sq_output", NULL});
    ps_names_fini(&names);
    assert_int_equal(ps_symbol_find(group, "sum_output", &found, &err), PS_OK);
    assert_string_equal(ps_symbol_name(found), "sum");
    ps_symbol_release(found);
    assert_int_equal(ps_symbol_find(group, "sum_outptu", &found, &err), PS_ENOENT);
    assert_non_null(strstr(err.text, "sum_output"));
    assert_int_equal(ps_symbol_output(group, 2, &found, &err), PS_ERANGE);
    ps_symbol_release(all);
    ps_symbol_release(group);
}

static void attributes_of_the_graph_are_set_and_found(void **state)
{
    (void)state;
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *w = ps_builder_variable(b, "w");
    ps_builder_attr(b, w, "lr_mult", "0.5");
    ps_builder_attr(b, w, "shape", "(2, 3)");
    struct ps_symbol *inputs[] = {ps_builder_variable(b, "x"), w};
    struct ps_symbol *fc = finish(
        b, ps_builder_compose(b, "FullyConnected", "fc",
                              "num_hidden=2 no_bias=True __ctx_group__=dev1", inputs, 2));
    assert_string_equal(ps_symbol_node_attr(fc, "w", "lr_mult"), "0.5");
    assert_string_equal(ps_symbol_node_attr(fc, "w", "__shape__"), "(2, 3)");
    assert_string_equal(ps_symbol_attr(fc, "ctx_group"), "dev1");
    assert_string_equal(ps_symbol_attr(fc, "num_hidden"), "2");
    assert_null(ps_symbol_attr(fc, "wd_mult"));
    assert_int_equal(ps_symbol_set_attr(fc, "num_hidden", "3", &err), PS_EINVAL);
    assert_int_equal(ps_symbol_set_attr(fc, "wd_mult", "0", &err), PS_OK);
    assert_string_equal(ps_symbol_attr(fc, "__wd_mult__"), "0");
    assert_int_equal(ps_symbol_set_attr(fc, "shape", "(2,", &err), PS_EINVAL);
    ps_symbol_release(fc);
}

static void expect_refused(const char *op, const char *attrs, size_t inputs,
                           const char *named)
{
    struct ps_error err = {0};
    struct ps_builder *b = builder_new();
    struct ps_symbol *x[] = {ps_builder_variable(b, "x"), ps_builder_variable(b, "y"),
                             ps_builder_variable(b, "z"), ps_builder_variable(b, "u")};
    struct ps_symbol *out = NULL;
    assert_null(ps_builder_compose(b, op, "node", attrs, x, inputs));
    assert_null(ps_builder_op(b, "square", NULL, NULL, x[0])); /* the error stays */
    assert_int_equal(ps_builder_finish(b, NULL, &out, &err), PS_EINVAL);
    if (strstr(err.text, named) == NULL) {
        fail_msg("\"%s\" does not name %s", err.text, named);
    }
    ps_builder_destroy(b);
}

static void bad_compositions_are_refused_by_name(void **state)
{
    (void)state;
    expect_refused("FullyConected", "num_hidden=2", 1, "FullyConnected");
    expect_refused("FullyConnected", "num_hiden=2", 1, "num_hiden");
    expect_refused("FullyConnected", NULL, 1, "num_hidden");
    expect_refused("FullyConnected", "num_hidden=2", 4, "4 given");
    expect_refused("FullyConnected", "num_hidden", 1, "key=value");
    expect_refused("Convolution", "kernel=(3,3 num_filter=2", 1, "brackets");
}

static void a_deep_chain_is_walked_and_freed_without_recursion(void **state)
{
    (void)state;
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    struct ps_error err = {0};
    struct ps_symbol *deep = ps_symbol_retain(x);
    for (int i = 0; i < 200000; i++) {
        struct ps_symbol *next = NULL;
        struct ps_compose compose = {
            .op = "square", .name = "n", .inputs = &deep, .input_count = 1};
        assert_int_equal(ps_symbol_compose(&compose, &next, &err), PS_OK);
        ps_symbol_release(deep);
        deep = next;
    }
    struct ps_names names = {0};
    assert_int_equal(ps_symbol_list_arguments(deep, &names), PS_OK);
    assert_int_equal(names.count, 1);
    ps_names_fini(&names);
    ps_symbol_release(deep);
    ps_builder_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_inputs_become_variables_named_after_the_node),
        cmocka_unit_test(auxiliary_states_are_listed_apart),
        cmocka_unit_test(nodes_without_a_name_are_counted_per_operator),
        cmocka_unit_test(groups_outputs_and_internals_pick_parts),
        cmocka_unit_test(attributes_of_the_graph_are_set_and_found),
        cmocka_unit_test(bad_compositions_are_refused_by_name),
        cmocka_unit_test(a_deep_chain_is_walked_and_freed_without_recursion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
