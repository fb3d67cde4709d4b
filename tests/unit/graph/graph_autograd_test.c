/* Gradients through bound executors: requests, ends, communication beside backward; sums:
 * graph_grad_sums_test.c. */
#include "tests/unit/graph/graph_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ps_symbol *binary_symbol(const char *op)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x"), *y = ps_builder_variable(b, "y");
    return finish(b, ps_builder_op(b, op, "z", NULL, x, y));
}

/* ---- ends ---- */

static size_t planned(const struct graph_world *world, bool stop, enum ps_grad_req req)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    for (int i = 0; i < 10; i++) {
        x = ps_builder_op(b, "elemwise_mul", NULL, NULL, x, x);
    }
    if (stop) {
        x = ps_builder_op(b, "BlockGrad", NULL, NULL, x);
    }
    struct ps_symbol *net = finish(b, x);
    struct ps_named_shape shape = {"x", PS_SHAPE(10, 3, 256, 256)};
    struct ps_executor *executor = simple_bind(world, net, &shape, 1, req);
    struct ps_executor_memory memory;
    ps_executor_memory(executor, &memory);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
    return memory.internal_bytes;
}

static void zero_prop_plans_nothing_behind_a_stopped_gradient(void **state)
{
    size_t with = planned(*state, false, PS_GRAD_WRITE);
    size_t stopped = planned(*state, true, PS_GRAD_WRITE);
    size_t none = planned(*state, false, PS_GRAD_NULL);
    assert_true(with > stopped);
    assert_int_equal(stopped, none);
}

static void a_stopped_gradient_is_zero_and_add_leaves_it(void **state)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    x = ps_builder_op(b, "BlockGrad", NULL, NULL,
                      ps_builder_op(b, "square", NULL, NULL, x));
    struct ps_symbol *net = finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, x));
    struct ps_named_shape shape = {"x", PS_SHAPE(2)};
    for (int add = 0; add < 2; add++) {
        struct ps_executor *executor =
            simple_bind(*state, net, &shape, 1, add ? PS_GRAD_ADD : PS_GRAD_WRITE);
        struct ps_tensor *gradient = ps_executor_find_gradient(executor, "x");
        tensor_set(gradient, (const float[]){5, 6});
        run_forward(executor, true);
        run_backward(executor, NULL);
        tensor_expect(gradient, add ? (const float[]){5, 6} : (const float[]){0, 0}, 0);
        ps_executor_destroy(executor);
    }
    ps_symbol_release(net);
}

static void an_output_that_is_no_loss_needs_a_gradient(void **state)
{
    struct ps_error err = {0};
    struct ps_symbol *net = binary_symbol("elemwise_mul");
    struct ps_named_shape shape = {"x", PS_SHAPE(2)};
    struct ps_executor *executor = simple_bind(*state, net, &shape, 1, PS_GRAD_WRITE);
    run_forward(executor, true);
    assert_int_equal(ps_executor_backward(executor, NULL, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "MakeLoss"));
    assert_non_null(strstr(err.text, "(z)"));
    struct ps_tensor *wrong = tensor_from(*state, PS_SHAPE(3), (const float[3]){0});
    assert_int_equal(ps_executor_backward(executor, &wrong, &err), PS_ESHAPE);
    struct ps_tensor *head = tensor_from(*state, PS_SHAPE(2), (const float[]){1, 1});
    assert_int_equal(ps_executor_backward(executor, &head, &err), PS_OK);
    assert_int_equal(ps_executor_backward(executor, &head, &err), PS_EINVAL);
    ps_executor_forward(executor, false, &err) == PS_OK ? (void)0 : fail();
    assert_int_equal(ps_executor_backward(executor, &head, &err), PS_EINVAL);
    ps_tensor_release(head);
    ps_tensor_release(wrong);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
}

static void an_output_that_is_an_argument_hands_its_gradient_on(void **state)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    struct ps_symbol *outputs[] = {x, ps_builder_op(b, "square", NULL, NULL, x)};
    struct ps_symbol *net = finish(b, ps_builder_group(b, outputs, 2));
    struct ps_named_shape shape = {"x", PS_SHAPE(2)};
    struct ps_error err = {0};
    struct ps_executor *executor = simple_bind(*state, net, &shape, 1, PS_GRAD_WRITE);
    tensor_set(ps_executor_find_argument(executor, "x"), (const float[]){3, 4});
    struct ps_tensor *heads[] = {
        tensor_from(*state, PS_SHAPE(2), (const float[]){10, 20}),
        tensor_from(*state, PS_SHAPE(2), (const float[]){1, 1})};
    run_forward(executor, true);
    assert_int_equal(ps_executor_backward(executor, heads, &err), PS_OK);
    tensor_expect(ps_executor_find_gradient(executor, "x"), (const float[]){16, 28}, 0);
    ps_tensor_release(heads[0]);
    ps_tensor_release(heads[1]);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
}

static void every_gradient_has_a_variable_of_its_own(void **state)
{
    struct ps_symbol *net = small_lenet();
    struct ps_named_shape shape = {"data", PS_SHAPE(2, 1, 12, 12)};
    struct ps_executor *executor = simple_bind(*state, net, &shape, 1, PS_GRAD_WRITE);
    size_t count = ps_executor_argument_count(executor);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count; j++) {
            struct ps_var *var = ps_executor_gradient_ready(executor, i);
            assert_true(var == NULL || var != ps_executor_gradient_ready(executor, j));
        }
    }
    assert_null(ps_executor_find_gradient(executor, "data"));
    run_forward(executor, true);
    run_backward(executor, NULL);
    struct ps_var *var = ps_tensor_var(ps_executor_find_gradient(executor, "fc2_weight"));
    uint64_t before = ps_var_version(var);
    assert_int_equal(
        ps_engine_wait_var(((struct graph_world *)*state)->engine, var, NULL), PS_OK);
    run_forward(executor, true);
    run_backward(executor, NULL);
    assert_int_equal(ps_engine_wait_all(((struct graph_world *)*state)->engine, NULL),
                     PS_OK);
    assert_true(ps_var_version(var) > before);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
}

/* loss = (x + y + x)^2: operators that add have no backward; what several take is copied
 * into each one's tensor, and only there. */
static void a_sum_hands_its_gradient_on(void **state)
{
    const struct graph_world *world = *state;
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x"), *y = ps_builder_variable(b, "y");
    struct ps_symbol *s = ps_builder_op(b, "elemwise_add", "first", NULL, x, y);
    s = ps_builder_op(b, "elemwise_add", "second", NULL, s, x);
    s = ps_builder_op(b, "square", "square", NULL, s);
    struct ps_symbol *net = finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, s));
    struct ps_named_shape shapes[] = {{"x", PS_SHAPE(2)}, {"y", PS_SHAPE(2)}};
    struct ps_named_req req = {"y", PS_GRAD_ADD};
    struct ps_simple_bind bind = {.shapes = shapes,
                                  .shape_count = 2,
                                  .req = PS_GRAD_WRITE,
                                  .reqs = &req,
                                  .req_count = 1};
    struct ps_bind_options options = world_options(world);
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    assert_int_equal(ps_executor_simple_bind(net, &options, &bind, &executor, &err),
                     PS_OK);
    tensor_set(ps_executor_find_argument(executor, "x"), (const float[]){1, 2});
    tensor_set(ps_executor_find_argument(executor, "y"), (const float[]){10, 20});
    for (int step = 1; step <= 2; step++) {
        float k = 24 * (float)step;
        run_forward(executor, true);
        run_backward(executor, NULL);
        tensor_expect(ps_executor_find_gradient(executor, "x"), (const float[]){48, 96},
                      0);
        tensor_expect(ps_executor_find_gradient(executor, "y"), (const float[]){k, 2 * k},
                      0);
    }
    struct ps_str dump = {0};
    ps_executor_dump(executor, &dump);
    assert_non_null(strstr(ps_str_text(&dump), "square_backward"));
    assert_null(strstr(ps_str_text(&dump), "first_backward"));
    assert_null(strstr(ps_str_text(&dump), "second_backward"));
    ps_str_fini(&dump);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
}

/* ---- communication beside backward ---- */

struct gate {
    struct ps_completion *done;
};

static void hold(void *arg, const struct ps_run *run, struct ps_completion *done)
{
    (void)run;
    ((struct gate *)arg)->done = done;
}

/* The first layer's backward is held back by a gate on the data that it reads; the last
 * layer's gradient is there all the same, for a push to start. */
static void the_last_layers_gradient_is_ready_while_the_first_still_waits(void **state)
{
    const struct graph_world *world = *state;
    struct ps_error err = {0};
    struct ps_symbol *net = small_lenet();
    struct ps_named_shape shape = {"data", PS_SHAPE(2, 1, 12, 12)};
    struct ps_executor *executor = simple_bind(world, net, &shape, 1, PS_GRAD_WRITE);
    fill_parameters(executor, 5, 0.1f);
    run_forward(executor, true);
    assert_int_equal(ps_tensor_wait(ps_executor_output(executor, 0), &err), PS_OK);
    struct gate gate = {NULL};
    struct ps_var *data = ps_tensor_var(ps_executor_find_argument(executor, "data"));
    struct ps_engine_op op = {.name = "gate",
                              .start = hold,
                              .arg = &gate,
                              .writes = &data,
                              .write_count = 1,
                              .context = PS_CPU(0),
                              .kind = PS_ENGINE_ASYNC};
    assert_int_equal(ps_engine_push(world->engine, &op), PS_OK);
    run_backward(executor, NULL);
    struct ps_tensor *last = ps_executor_find_gradient(executor, "fc2_weight");
    struct ps_tensor *first = ps_executor_find_gradient(executor, "conv1_weight");
    uint64_t before = ps_var_version(ps_tensor_var(first));
    assert_int_equal(ps_tensor_wait(last, &err), PS_OK);
    assert_int_equal(ps_var_version(ps_tensor_var(first)), before);
    assert_non_null(gate.done);
    ps_engine_complete(gate.done, PS_OK, NULL);
    assert_int_equal(ps_tensor_wait(first, &err), PS_OK);
    assert_int_equal(ps_var_version(ps_tensor_var(first)), before + 1);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_prop_plans_nothing_behind_a_stopped_gradient),
        cmocka_unit_test(a_stopped_gradient_is_zero_and_add_leaves_it),
        cmocka_unit_test(an_output_that_is_no_loss_needs_a_gradient),
        cmocka_unit_test(an_output_that_is_an_argument_hands_its_gradient_on),
        cmocka_unit_test(a_sum_hands_its_gradient_on),
        cmocka_unit_test(every_gradient_has_a_variable_of_its_own),
        cmocka_unit_test(the_last_layers_gradient_is_ready_while_the_first_still_waits),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
