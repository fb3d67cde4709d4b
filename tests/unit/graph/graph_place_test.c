/* Placement: ctx groups, what follows whom, copies between devices, and that a network
 * over two devices computes the bits of one. */
#include "engine/device/device.h"
#include "tests/unit/graph/graph_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ps_symbol *in_group(struct ps_builder *b, const char *group,
                                  struct ps_symbol *symbol)
{
    ps_builder_attr(b, symbol, "ctx_group", group);
    return symbol;
}

static struct ps_bind_options grouped(const struct graph_world *world,
                                      const struct ps_context_group *groups, size_t count)
{
    struct ps_bind_options options = world_options(world);
    options.groups = groups;
    options.group_count = count;
    return options;
}

static struct ps_executor *bind_grouped(struct ps_symbol *symbol,
                                        const struct ps_bind_options *options,
                                        const struct ps_named_shape *shapes,
                                        size_t shape_count, enum ps_grad_req req)
{
    static const char *const no_gradient[] = {"data", "softmax_label", NULL};
    struct ps_simple_bind bind = {.shapes = shapes,
                                  .shape_count = shape_count,
                                  .req = req,
                                  .no_gradient = no_gradient};
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    if (ps_executor_simple_bind(symbol, options, &bind, &executor, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    return executor;
}

static void expect_context(struct ps_tensor *tensor, struct ps_context context,
                           const char *what)
{
    char have[PS_CONTEXT_TEXT_BYTES], want[PS_CONTEXT_TEXT_BYTES];
    assert_non_null(tensor);
    if (!ps_context_equal(ps_tensor_context(tensor), context)) {
        fail_msg("%s lies on %s, expected %s", what,
                 ps_context_text(ps_tensor_context(tensor), have),
                 ps_context_text(context, want));
    }
}

static size_t copies_of(const struct ps_executor *executor)
{
    struct ps_executor_memory memory;
    ps_executor_memory(executor, &memory);
    return memory.copy_count;
}

/* ---- ctx groups ---- */

/* MXNet's test_ctx_group: two stages; what is not marked follows. */
static struct ps_symbol *two_stages(void)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = in_group(b, "stage1",
                 ps_builder_op(b, "FullyConnected", "fc1", "num_hidden=8", x));
    x = ps_builder_op(b, "Activation", "relu1", "act_type=relu", x);
    x = in_group(b, "stage2",
                 ps_builder_op(b, "FullyConnected", "fc2", "num_hidden=6", x));
    x = ps_builder_op(b, "Activation", "relu2", "act_type=relu", x);
    x = ps_builder_op(b, "FullyConnected", "fc3", "num_hidden=5", x);
    return finish(b, ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x));
}

static void ctx_groups_put_arguments_on_their_devices(void **state)
{
    const struct graph_world *world = *state;
    const struct ps_context_group groups[] = {{"stage1", PS_CPU(1)},
                                              {"stage2", PS_CPU(2)}};
    struct ps_symbol *symbol = two_stages();
    struct ps_bind_options options = grouped(world, groups, 2);
    struct ps_named_shape shape = {"data", PS_SHAPE(3, 7)};
    struct ps_executor *executor =
        bind_grouped(symbol, &options, &shape, 1, PS_GRAD_WRITE);
    for (size_t i = 0; i < ps_executor_argument_count(executor); i++) {
        const char *name = ps_executor_argument_name(executor, i);
        bool first = strcmp(name, "data") == 0 || strncmp(name, "fc1", 3) == 0;
        struct ps_context context = first ? PS_CPU(1) : PS_CPU(2);
        expect_context(ps_executor_argument(executor, i), context, name);
        if (ps_executor_gradient(executor, i) != NULL) {
            expect_context(ps_executor_gradient(executor, i), context, name);
        }
    }
    expect_context(ps_executor_output(executor, 0), PS_CPU(2), "softmax_output");
    assert_int_equal(copies_of(executor), 2); /* relu1, and its gradient back */
    for (size_t i = 0; i < ps_executor_step_count(executor); i++) {
        struct ps_executor_step step;
        assert_int_equal(ps_executor_step(executor, i, &step), PS_OK);
        bool first = strncmp(step.name, "fc1", 3) == 0 ||
                     strncmp(step.name, "relu1_b", 7) == 0 ||
                     strcmp(step.name, "relu1") == 0 ||
                     strcmp(step.name, "fc2_backward_0_to_cpu(1)") == 0;
        assert_true(ps_context_equal(step.context, first ? PS_CPU(1) : PS_CPU(2)));
    }
    ps_executor_destroy(executor);
    ps_symbol_release(symbol);
}

static void without_groups_every_array_must_lie_on_the_default_device(void **state)
{
    const struct graph_world *world = *state;
    struct ps_builder *b = builder_new();
    struct ps_symbol *z =
        finish(b, ps_builder_op(b, "negative", "z", NULL, ps_builder_variable(b, "x")));
    struct ps_tensor *x = NULL;
    struct ps_shape shape = PS_SHAPE(2);
    assert_int_equal(ps_tensor_create(world->engine, PS_CPU(1), PS_F32, &shape, &x),
                     PS_OK);
    struct ps_bind_arrays arrays = {.arguments = &x};
    struct ps_bind_options options = world_options(world);
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    assert_int_equal(ps_executor_bind(z, &options, &arrays, &executor, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "x: lies on cpu(1), bound on cpu(0)"));
    ps_tensor_release(x);
    ps_symbol_release(z);
}

static void a_group_without_a_device_is_an_error_by_name(void **state)
{
    const struct graph_world *world = *state;
    const struct ps_context_group groups[] = {{"stage1", PS_CPU(1)}};
    struct ps_symbol *symbol = two_stages();
    struct ps_bind_options options = grouped(world, groups, 1);
    struct ps_named_shape shape = {"data", PS_SHAPE(3, 7)};
    struct ps_simple_bind bind = {.shapes = &shape, .shape_count = 1};
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    assert_int_equal(ps_executor_simple_bind(symbol, &options, &bind, &executor, &err),
                     PS_EINVAL);
    assert_non_null(strstr(err.text, "fc2: ctx_group stage2"));
    ps_symbol_release(symbol);
}

/* An operator before the first mark: the reverse sweep puts it where its value is used.
 */
static void what_has_no_place_runs_where_its_value_is_used(void **state)
{
    const struct graph_world *world = *state;
    const struct ps_context_group groups[] = {{"late", PS_CPU(2)}};
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x");
    struct ps_symbol *early = ps_builder_op(b, "negative", "early", NULL, x);
    struct ps_symbol *late =
        in_group(b, "late", ps_builder_op(b, "tanh", "late", NULL, early));
    struct ps_symbol *alone =
        ps_builder_op(b, "tanh", "alone", NULL, ps_builder_variable(b, "y"));
    struct ps_symbol *both[] = {late, alone};
    struct ps_symbol *net = finish(b, ps_builder_group(b, both, 2));
    struct ps_bind_options options = grouped(world, groups, 1);
    struct ps_named_shape shapes[] = {{"x", PS_SHAPE(3)}, {"y", PS_SHAPE(3)}};
    struct ps_executor *executor = bind_grouped(net, &options, shapes, 2, PS_GRAD_WRITE);
    expect_context(ps_executor_find_argument(executor, "x"), PS_CPU(2), "x");
    expect_context(ps_executor_find_argument(executor, "y"), PS_CPU(0), "y");
    expect_context(ps_executor_output(executor, 1), PS_CPU(0), "alone");
    assert_int_equal(copies_of(executor), 0);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
}

/* ---- copies ---- */

static void a_value_is_copied_once_to_each_device(void **state)
{
    const struct graph_world *world = *state;
    const struct ps_context_group groups[] = {
        {"a", PS_CPU(0)}, {"b", PS_CPU(1)}, {"c", PS_CPU(2)}};
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = in_group(
        b, "a", ps_builder_op(b, "tanh", "x1", NULL, ps_builder_variable(b, "x")));
    struct ps_symbol *p = in_group(b, "b", ps_builder_op(b, "negative", "p", NULL, x));
    struct ps_symbol *q =
        in_group(b, "b", ps_builder_op(b, "elemwise_mul", "q", NULL, x, p));
    struct ps_symbol *r =
        in_group(b, "c", ps_builder_op(b, "elemwise_add", "r", NULL, x, q));
    struct ps_symbol *net = finish(b, r);
    struct ps_bind_options options = grouped(world, groups, 3);
    struct ps_named_shape shape = {"x", PS_SHAPE(2)};
    struct ps_executor *executor = bind_grouped(net, &options, &shape, 1, PS_GRAD_NULL);
    assert_int_equal(copies_of(executor), 3); /* x1 to b and c, q to c */
    tensor_set(ps_executor_find_argument(executor, "x"), (const float[]){0.5f, -1});
    run_forward(executor, false);
    float a = 0.46211715726f, c = -0.76159415596f;
    tensor_expect(ps_executor_output(executor, 0), (const float[]){a - a * a, c - c * c},
                  1e-6);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
}

static void states_may_not_lie_on_another_device(void **state)
{
    const struct graph_world *world = *state;
    const struct ps_context_group groups[] = {{"g", PS_CPU(1)}};
    struct ps_builder *b = builder_new();
    struct ps_symbol *net =
        finish(b, in_group(b, "g",
                           ps_builder_op(b, "BatchNorm", "bn", NULL,
                                         ps_builder_variable(b, "data"))));
    struct ps_tensor *arguments[3], *states[2];
    struct ps_shape data = PS_SHAPE(2, 3), channels = PS_SHAPE(3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ps_tensor_create(world->engine, PS_CPU(1), PS_F32,
                                          i == 0 ? &data : &channels, &arguments[i]),
                         PS_OK);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(
            ps_tensor_create(world->engine, PS_CPU(0), PS_F32, &channels, &states[i]),
            PS_OK);
    }
    struct ps_bind_arrays arrays = {.arguments = arguments, .auxiliaries = states};
    struct ps_bind_options options = grouped(world, groups, 1);
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    assert_int_equal(ps_executor_bind(net, &options, &arrays, &executor, &err),
                     PS_EINVAL);
    assert_non_null(strstr(err.text, "bn: its state bn_moving_mean lies on cpu(0)"));
    for (size_t i = 0; i < 3; i++) {
        ps_tensor_release(arguments[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        ps_tensor_release(states[i]);
    }
    ps_symbol_release(net);
}

/* An argument on cpu(1), used on cpu(2): its gradient is where it is, written or added.
 */
static void a_gradient_ends_where_its_argument_lies(void **state)
{
    const struct graph_world *world = *state;
    const struct ps_context_group groups[] = {{"g", PS_CPU(2)}};
    struct ps_builder *b = builder_new();
    struct ps_symbol *net = finish(
        b, in_group(b, "g",
                    ps_builder_op(b, "square", "z", NULL, ps_builder_variable(b, "x"))));
    struct ps_shape shape = PS_SHAPE(3);
    struct ps_tensor *x, *dx, *head;
    assert_int_equal(ps_tensor_create(world->engine, PS_CPU(1), PS_F32, &shape, &x),
                     PS_OK);
    assert_int_equal(ps_tensor_like(x, &dx), PS_OK);
    head = tensor_from(world, shape, (const float[]){1, 1, 2});
    tensor_set(x, (const float[]){1, 2, 3});
    static const enum ps_grad_req reqs[] = {PS_GRAD_WRITE, PS_GRAD_ADD};
    static const float expected[][3] = {{2, 4, 12}, {12, 14, 22}};
    for (size_t r = 0; r < 2; r++) {
        struct ps_bind_arrays arrays = {
            .arguments = &x, .gradients = &dx, .reqs = &reqs[r]};
        struct ps_bind_options options = grouped(world, groups, 1);
        struct ps_executor *executor = NULL;
        struct ps_error err = {0};
        if (ps_executor_bind(net, &options, &arrays, &executor, &err) != PS_OK) {
            fail_msg("%s", err.text);
        }
        tensor_set(dx, (const float[]){10, 10, 10});
        run_forward(executor, true);
        run_backward(executor, head);
        expect_context(ps_executor_output(executor, 0), PS_CPU(2), "z");
        tensor_expect(dx, expected[r], 0);
        ps_executor_destroy(executor);
    }
    struct ps_tensor *elsewhere = tensor_from(world, shape, (const float[3]){0});
    struct ps_bind_arrays arrays = {.arguments = &x, .gradients = &elsewhere};
    struct ps_bind_options options = grouped(world, groups, 1);
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    assert_int_equal(ps_executor_bind(net, &options, &arrays, &executor, &err),
                     PS_EINVAL);
    assert_non_null(strstr(err.text, "x: gradient lies on cpu(0), argument on cpu(1)"));
    struct ps_tensor *all[] = {x, dx, head, elsewhere};
    for (size_t i = 0; i < PS_COUNT(all); i++) {
        ps_tensor_release(all[i]);
    }
    ps_symbol_release(net);
}

/* ---- two devices equal one ---- */

/* Convolution, statistics and dropout on one side, the rest on the other, a value used
 * on both, so that gradients of two devices are summed. */
static struct ps_symbol *split_net(void)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = in_group(b, "one",
                 ps_builder_op(b, "Convolution", "conv", "kernel=(3,3) num_filter=4", x));
    x = in_group(b, "one", ps_builder_op(b, "BatchNorm", "bn", "fix_gamma=False", x));
    x = in_group(b, "one", ps_builder_op(b, "Activation", "relu", "act_type=relu", x));
    x = in_group(b, "one", ps_builder_op(b, "Flatten", "flat", NULL, x));
    struct ps_symbol *l =
        in_group(b, "one", ps_builder_op(b, "FullyConnected", "l", "num_hidden=8", x));
    struct ps_symbol *r =
        in_group(b, "two", ps_builder_op(b, "FullyConnected", "r", "num_hidden=8", x));
    l = in_group(b, "one", ps_builder_op(b, "Dropout", "drop1", "p=0.5", l));
    x = in_group(b, "two", ps_builder_op(b, "elemwise_add", "join", NULL, l, r));
    x = in_group(b, "two", ps_builder_op(b, "Dropout", "drop2", "p=0.3", x));
    x = in_group(b, "one", ps_builder_op(b, "FullyConnected", "fc", "num_hidden=5", x));
    return finish(
        b, in_group(b, "two", ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x)));
}

/* Two steps; output, gradients and states as one hash. */
static uint64_t train_split(const struct graph_world *world, struct ps_context one,
                            struct ps_context two)
{
    const struct ps_context_group groups[] = {{"one", one}, {"two", two}};
    struct ps_symbol *symbol = split_net();
    struct ps_bind_options options = grouped(world, groups, 2);
    options.context = one;
    options.seed = 5;
    struct ps_named_shape shape = {"data", PS_SHAPE(4, 1, 6, 6)};
    struct ps_executor *executor = bind_grouped(symbol, &options, &shape, 1, PS_GRAD_ADD);
    fill_parameters(executor, 3, 0.3f);
    tensor_fill_random(ps_executor_find_argument(executor, "data"), 8, 1);
    tensor_set(ps_executor_find_argument(executor, "softmax_label"),
               (const float[]){0, 1, 2, 3});
    run_step(executor, true);
    run_step(executor, true);
    struct ps_tensor *seen[32] = {ps_executor_output(executor, 0)};
    size_t count = 1;
    for (size_t i = 0; i < ps_executor_argument_count(executor); i++) {
        if (ps_executor_gradient(executor, i) != NULL) {
            seen[count++] = ps_executor_gradient(executor, i);
        }
    }
    for (size_t i = 0; i < ps_executor_auxiliary_count(executor); i++) {
        seen[count++] = ps_executor_auxiliary(executor, i);
    }
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++) {
        float *values = tensor_get(seen[i]);
        hash = hash * 31 + ps_hash_bytes(values, ps_tensor_bytes(seen[i]));
        free(values);
    }
    assert_true((copies_of(executor) > 0) == !ps_context_equal(one, two));
    ps_executor_destroy(executor);
    ps_symbol_release(symbol);
    return hash;
}

static void a_network_over_two_devices_equals_one_device(void **state)
{
    (void)state;
    static const int engines[] = {PS_ENGINE_NAIVE, PS_ENGINE_POOLED,
                                  PS_ENGINE_PER_DEVICE};
    uint64_t expected = 0;
    for (size_t e = 0; e < PS_COUNT(engines); e++) {
        struct graph_world world;
        world_open(&world, engines[e], "SIM_GPUS=2");
        if (e == 0) {
            expected = train_split(&world, PS_CPU(0), PS_CPU(0));
        }
        assert_true(train_split(&world, PS_CPU(1), PS_CPU(2)) == expected);
        assert_true(train_split(&world, PS_CPU(0), PS_CPU(0)) == expected);
        assert_true(train_split(&world, PS_GPU(0), PS_GPU(0)) == expected);
        assert_true(train_split(&world, PS_GPU(0), PS_GPU(1)) == expected);
        assert_true(train_split(&world, PS_CPU(0), PS_GPU(1)) == expected);
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ctx_groups_put_arguments_on_their_devices),
        cmocka_unit_test(without_groups_every_array_must_lie_on_the_default_device),
        cmocka_unit_test(a_group_without_a_device_is_an_error_by_name),
        cmocka_unit_test(what_has_no_place_runs_where_its_value_is_used),
        cmocka_unit_test(a_value_is_copied_once_to_each_device),
        cmocka_unit_test(states_may_not_lie_on_another_device),
        cmocka_unit_test(a_gradient_ends_where_its_argument_lies),
        cmocka_unit_test(a_network_over_two_devices_equals_one_device),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
