/* Bulk: how a run is cut into engine operations, the settings that decide it, and what an
 * operation of several operators does when one of them fails. */
#include "engine/graph/bulk.h"
#include "tests/unit/graph/graph_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the cut alone ---- */

enum { CHAIN = 40 };

/* The sizes of the operations, as "15 15 10". */
static const char *sizes_of(const struct ps_bulk_node *nodes, size_t count, size_t limit,
                            struct ps_str *text)
{
    uint32_t segment[64];
    assert_true(count <= PS_COUNT(segment));
    size_t segments = ps_bulk_cut(nodes, count, limit, segment);
    text->size = 0;
    for (size_t s = 0; s < segments; s++) {
        size_t size = 0;
        for (size_t i = 0; i < count; i++) {
            size += segment[i] == s;
        }
        assert_true(size > 0);
        ps_str_printf(text, "%s%zu", s > 0 ? " " : "", size);
    }
    for (size_t i = 0; i < count; i++) {
        assert_true((segment[i] == PS_NO_SEGMENT) == !nodes[i].runs);
    }
    return segments == 0 ? "" : ps_str_text(text);
}

static void fill_chain(struct ps_bulk_node *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        nodes[i] = (struct ps_bulk_node){.runs = true, .context = PS_CPU(0)};
    }
}

static void a_chain_is_cut_exactly_at_the_limit(void **state)
{
    (void)state;
    struct ps_bulk_node nodes[CHAIN];
    struct ps_str text = {0};
    fill_chain(nodes, CHAIN);
    assert_string_equal(sizes_of(nodes, CHAIN, 15, &text), "15 15 10");
    assert_string_equal(sizes_of(nodes, CHAIN, SIZE_MAX, &text), "40");
    assert_string_equal(sizes_of(nodes, CHAIN, 40, &text), "40");
    assert_string_equal(sizes_of(nodes, CHAIN, 39, &text), "39 1");
    assert_string_equal(sizes_of(nodes, 4, 1, &text), "1 1 1 1");
    assert_string_equal(sizes_of(nodes, 4, 0, &text), "1 1 1 1");
    assert_string_equal(sizes_of(nodes, 0, 15, &text), "");
    ps_str_fini(&text);
}

static void what_does_not_run_neither_counts_nor_cuts(void **state)
{
    (void)state;
    struct ps_bulk_node nodes[12];
    struct ps_str text = {0};
    fill_chain(nodes, 12);
    for (size_t i = 0; i < 12; i += 3) { /* weights between the operators */
        nodes[i].runs = false;
    }
    assert_string_equal(sizes_of(nodes, 12, 5, &text), "5 3");
    ps_str_fini(&text);
}

static void copies_devices_and_gradients_cut(void **state)
{
    (void)state;
    struct ps_bulk_node nodes[10];
    struct ps_str text = {0};
    fill_chain(nodes, 10);
    nodes[3].alone = true;
    assert_string_equal(sizes_of(nodes, 10, 15, &text), "3 1 6");
    nodes[3].alone = false;
    nodes[3].ends = true; /* it is the last of its operation */
    assert_string_equal(sizes_of(nodes, 10, 15, &text), "4 6");
    nodes[3].ends = false;
    for (size_t i = 6; i < 10; i++) {
        nodes[i].context = PS_CPU(1);
    }
    assert_string_equal(sizes_of(nodes, 10, 15, &text), "6 4");
    ps_str_fini(&text);
}

/* trunk 0-1, branch 2-4 of colour 0, branch 5-7 of colour 1, join 8: the branches are
 * operations of their own, and neither waits for the other. */
static void branches_of_different_colour_are_not_joined(void **state)
{
    (void)state;
    struct ps_bulk_node nodes[9];
    struct ps_str text = {0};
    fill_chain(nodes, 9);
    for (size_t i = 5; i < 8; i++) {
        nodes[i].colour = 1;
    }
    nodes[1].ends = nodes[7].ends = true;
    nodes[5].begins = nodes[8].begins = true;
    assert_string_equal(sizes_of(nodes, 9, 15, &text), "2 3 3 1");
    ps_str_fini(&text);
}

/* ---- the settings, read at each bind ---- */

/* x -> 40 times -x. */
static struct ps_symbol *chain(void)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    for (int i = 0; i < CHAIN; i++) {
        x = ps_builder_op(b, "negative", ps_builder_text(b, "n%d", i), NULL, x);
    }
    return finish(b, x);
}

static struct ps_executor *bind_chain(const struct graph_world *world,
                                      struct ps_symbol *symbol, enum ps_grad_req req)
{
    struct ps_named_shape shape = {"x", PS_SHAPE(4)};
    return simple_bind(world, symbol, &shape, 1, req);
}

/* Operators in each engine operation of forward (backward), as text. */
static const char *operations_of(const struct ps_executor *executor, bool backward,
                                 struct ps_str *text)
{
    size_t size = 0, operation = SIZE_MAX;
    text->size = 0;
    for (size_t i = 0; i <= ps_executor_step_count(executor); i++) {
        struct ps_executor_step step = {.operation = SIZE_MAX, .backward = backward};
        if (i < ps_executor_step_count(executor)) {
            assert_int_equal(ps_executor_step(executor, i, &step), PS_OK);
        }
        if (step.backward != backward || step.nothing) {
            continue;
        }
        if (step.operation != operation && size > 0) {
            ps_str_printf(text, "%s%zu", text->size > 0 ? " " : "", size);
            size = 0;
        }
        operation = step.operation;
        size++;
    }
    return text->size == 0 ? "" : ps_str_text(text);
}

static void expect_operations(const char *setting, enum ps_grad_req req,
                              const char *forward)
{
    struct graph_world world;
    struct ps_str text = {0};
    world_open(&world, PS_ENGINE_PER_DEVICE, setting);
    struct ps_symbol *symbol = chain();
    struct ps_executor *executor = bind_chain(&world, symbol, req);
    const char *found = operations_of(executor, false, &text);
    if (strcmp(found, forward) != 0) {
        fail_msg("%s: operations of %s, expected %s", setting, found, forward);
    }
    ps_executor_destroy(executor);
    ps_symbol_release(symbol);
    ps_str_fini(&text);
    world_close(&world);
}

/* n ones. */
#define ONES_10 "1 1 1 1 1 1 1 1 1 1"
#define ONES_40 ONES_10 " " ONES_10 " " ONES_10 " " ONES_10

static void training_is_cut_by_its_two_settings(void **state)
{
    (void)state;
    expect_operations(NULL, PS_GRAD_WRITE, "15 15 10"); /* the defaults */
    expect_operations("EXEC_BULK_EXEC_MAX_NODE_TRAIN=16", PS_GRAD_WRITE, "16 16 8");
    expect_operations("EXEC_BULK_EXEC_MAX_NODE_TRAIN=1000", PS_GRAD_WRITE, "40");
    expect_operations("EXEC_BULK_EXEC_MAX_NODE_TRAIN=1", PS_GRAD_WRITE, ONES_40);
    expect_operations("EXEC_BULK_EXEC_MAX_NODE_TRAIN=0", PS_GRAD_WRITE, ONES_40);
    expect_operations("EXEC_BULK_EXEC_TRAIN=0", PS_GRAD_WRITE, ONES_40);
    expect_operations("EXEC_BULK_EXEC_INFERENCE=0", PS_GRAD_WRITE, "15 15 10");
}

static void inference_is_one_operation_or_one_for_each(void **state)
{
    (void)state;
    expect_operations(NULL, PS_GRAD_NULL, "40");
    expect_operations("EXEC_BULK_EXEC_INFERENCE=0", PS_GRAD_NULL, ONES_40);
    expect_operations("EXEC_BULK_EXEC_TRAIN=0", PS_GRAD_NULL, "40");
    expect_operations("EXEC_BULK_EXEC_MAX_NODE_TRAIN=3", PS_GRAD_NULL, "40");
}

/* x -> t, from there two branches of five, and their sum. */
static struct ps_symbol *two_branches(void)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *t =
        ps_builder_op(b, "tanh", "t", NULL, ps_builder_variable(b, "x"));
    struct ps_symbol *branch[2] = {t, t};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 5; i++) {
            branch[k] = ps_builder_op(b, "negative", ps_builder_text(b, "b%d_%d", k, i),
                                      NULL, branch[k]);
        }
    }
    return finish(b,
                  ps_builder_op(b, "elemwise_add", "join", NULL, branch[0], branch[1]));
}

/* Several colours of the memory plan let branches run side by side, and bulk leaves them
 * that. */
static void with_several_colours_branches_are_operations_of_their_own(void **state)
{
    (void)state;
    struct graph_world world;
    struct ps_str text = {0};
    world_open(&world, PS_ENGINE_PER_DEVICE, "CPU_WORKER_NTHREADS=2");
    struct ps_symbol *symbol = two_branches();
    struct ps_named_shape shape = {"x", PS_SHAPE(4)};
    struct ps_simple_bind bind = {.shapes = &shape, .shape_count = 1};
    for (int colours = 1; colours <= 2; colours++) {
        struct ps_bind_options options = world_options(&world);
        struct ps_executor *executor = NULL;
        struct ps_error err = {0};
        options.num_temp = colours;
        assert_int_equal(
            ps_executor_simple_bind(symbol, &options, &bind, &executor, &err), PS_OK);
        assert_string_equal(operations_of(executor, false, &text),
                            colours == 1 ? "12" : "1 5 5 1");
        ps_executor_destroy(executor);
    }
    ps_str_fini(&text);
    ps_symbol_release(symbol);
    world_close(&world);
}

/* ---- what the engine gets ---- */

static void the_engine_gets_as_many_operations(void **state)
{
    (void)state;
    static const struct {
        int bulk;
        size_t operations;
    } cases[] = {{-1, 3}, {0, 40}, {1, 40}, {7, 6}, {1000, 1}};
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, NULL);
    struct ps_symbol *symbol = chain();
    struct ps_named_shape shape = {"x", PS_SHAPE(4)};
    struct ps_simple_bind bind = {
        .shapes = &shape, .shape_count = 1, .req = PS_GRAD_WRITE};
    for (size_t i = 0; i < PS_COUNT(cases); i++) {
        struct ps_bind_options options = world_options(&world);
        struct ps_error err = {0};
        struct ps_executor *executor = NULL;
        options.bulk = cases[i].bulk;
        assert_int_equal(
            ps_executor_simple_bind(symbol, &options, &bind, &executor, &err), PS_OK);
        assert_int_equal(pushed_by_forward(&world, executor), cases[i].operations);
        struct ps_executor_memory memory;
        ps_executor_memory(executor, &memory);
        assert_int_equal(memory.operator_count, 80); /* as many backward */
        ps_executor_destroy(executor);
    }
    ps_symbol_release(symbol);
    world_close(&world);
}

static void an_operator_that_writes_a_gradient_is_the_last_of_its_operation(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, NULL);
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    for (int i = 0; i < 4; i++) {
        x = ps_builder_op(b, "FullyConnected", ps_builder_text(b, "fc%d", i),
                          "num_hidden=4", x);
        x = ps_builder_op(b, "Activation", ps_builder_text(b, "tanh%d", i),
                          "act_type=tanh", x);
    }
    struct ps_symbol *net =
        finish(b, ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x));
    struct ps_named_shape shape = {"data", PS_SHAPE(3, 5)};
    struct ps_executor *executor = simple_bind(&world, net, &shape, 1, PS_GRAD_WRITE);
    struct ps_str text = {0};
    assert_string_equal(operations_of(executor, false, &text), "9");
    /* softmax tanh3 fc3 | tanh2 fc2 | tanh1 fc1 | tanh0 fc0 */
    assert_string_equal(operations_of(executor, true, &text), "3 2 2 2");
    ps_str_fini(&text);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
    world_close(&world);
}

/* ---- failures ---- */

static void a_failure_inside_names_the_operator_and_skips_what_is_behind(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, NULL);
    struct ps_symbol *lenet = small_lenet();
    struct ps_named_shape shape = {"data", PS_SHAPE(2, 1, 12, 12)};
    struct ps_executor *executor = simple_bind(&world, lenet, &shape, 1, PS_GRAD_WRITE);
    fill_parameters(executor, 1, 0.1f);
    struct ps_tensor *label = ps_executor_find_argument(executor, "softmax_label");
    struct ps_tensor *gradient = ps_executor_find_gradient(executor, "fc2_weight");
    struct ps_error err = {0};
    tensor_set(label, (const float[]){1, 99}); /* of five classes */
    run_forward(executor, true);
    run_backward(executor, NULL);
    /* the loss is the first of backward's first operation; its gradient is the last */
    assert_int_equal(ps_tensor_wait(gradient, &err), PS_ERANGE);
    assert_non_null(
        strstr(err.text, "[softmax_backward,fc2_backward]: softmax_backward: "));
    assert_int_equal(ps_engine_wait_all(world.engine, &err), PS_OK); /* it was taken */
    tensor_set(label, (const float[]){1, 2});
    run_step(executor, true);
    assert_int_equal(ps_tensor_wait(gradient, &err), PS_OK);
    ps_executor_destroy(executor);
    ps_symbol_release(lenet);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_cut_exactly_at_the_limit),
        cmocka_unit_test(what_does_not_run_neither_counts_nor_cuts),
        cmocka_unit_test(copies_devices_and_gradients_cut),
        cmocka_unit_test(branches_of_different_colour_are_not_joined),
        cmocka_unit_test(training_is_cut_by_its_two_settings),
        cmocka_unit_test(inference_is_one_operation_or_one_for_each),
        cmocka_unit_test(with_several_colours_branches_are_operations_of_their_own),
        cmocka_unit_test(the_engine_gets_as_many_operations),
        cmocka_unit_test(an_operator_that_writes_a_gradient_is_the_last_of_its_operation),
        cmocka_unit_test(a_failure_inside_names_the_operator_and_skips_what_is_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
