/* Executors that share: buckets over one pool of memory, reshaped executors, and what a
 * request does to a gradient, argument by argument. */
#include "engine/device/device.h"
#include "tests/unit/graph/graph_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- buckets ---- */

enum { BUCKETS = 3, UNITS = 8, BATCH = 4, WEIGHTS = 6, ARGUMENTS = WEIGHTS + 2 };
static const int lengths[BUCKETS] = {7, 4, 2}; /* the largest first */

/* h[t] = tanh(x[t] A + a + h[t-1] B + b), softmax of the last. */
static struct ps_symbol *rnn(int length)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_op(b, "SliceChannel", "steps",
                                        ps_builder_text(b, "num_outputs=%d", length),
                                        ps_builder_variable(b, "data"));
    struct ps_symbol *w[4] = {
        ps_builder_variable(b, "i2h_weight"), ps_builder_variable(b, "i2h_bias"),
        ps_builder_variable(b, "h2h_weight"), ps_builder_variable(b, "h2h_bias")};
    struct ps_symbol *h = NULL;
    for (int t = 0; t < length; t++) {
        struct ps_symbol *in =
            ps_builder_op(b, "FullyConnected", NULL, "num_hidden=8",
                          ps_builder_output(b, x, (size_t)t), w[0], w[1]);
        if (h != NULL) {
            h = ps_builder_op(b, "FullyConnected", NULL, "num_hidden=8", h, w[2], w[3]);
            in = ps_builder_op(b, "elemwise_add", NULL, NULL, in, h);
        }
        h = ps_builder_op(b, "tanh", NULL, NULL, in);
    }
    h = ps_builder_op(b, "FullyConnected", "fc", "num_hidden=5", h);
    return finish(b, ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, h));
}

struct buckets {
    struct ps_executor *executors[BUCKETS];
    struct ps_tensor *arguments[BUCKETS][ARGUMENTS]; /* weights are of bucket 0 */
    struct ps_tensor *gradients[BUCKETS][ARGUMENTS];
};

static bool is_weight(const char *name)
{
    return strcmp(name, "data") != 0 && strcmp(name, "softmax_label") != 0;
}

static size_t place_in(const struct ps_symbol *symbol, const char *name)
{
    struct ps_names names = {0};
    assert_int_equal(ps_symbol_list_arguments(symbol, &names), PS_OK);
    int64_t at = ps_names_index(&names, name);
    assert_true(at >= 0);
    ps_names_fini(&names);
    return (size_t)at;
}

/* Tensors of one bucket: weights and their gradients are bucket 0's. */
static void make_arrays(const struct graph_world *world, struct buckets *buckets,
                        size_t k, struct ps_symbol *symbol, struct ps_symbol *first)
{
    struct ps_named_shape known = {"data", PS_SHAPE(BATCH, lengths[k] * UNITS)};
    struct ps_inferred_shapes s = {0};
    struct ps_names names = {0};
    struct ps_error err = {0};
    assert_int_equal(ps_symbol_infer_shapes(symbol, &known, 1, &s, &err), PS_OK);
    assert_int_equal(ps_symbol_list_arguments(symbol, &names), PS_OK);
    assert_int_equal(names.count, ARGUMENTS);
    for (size_t i = 0; i < ARGUMENTS; i++) {
        bool weight = is_weight(names.names[i]);
        size_t at = weight ? place_in(first, names.names[i]) : 0;
        struct ps_tensor **argument = &buckets->arguments[k][i];
        struct ps_tensor **gradient = &buckets->gradients[k][i];
        if (weight && k > 0) {
            *argument = ps_tensor_retain(buckets->arguments[0][at]);
            *gradient = ps_tensor_retain(buckets->gradients[0][at]);
            continue;
        }
        assert_int_equal(
            ps_tensor_create(world->engine, PS_CPU(0), PS_F32, &s.arguments[i], argument),
            PS_OK);
        if (weight) {
            tensor_fill_random(*argument, 20 + i, 0.4f);
            assert_int_equal(ps_tensor_like(*argument, gradient), PS_OK);
            assert_int_equal(ps_tensor_fill(*gradient, 0), PS_OK);
        }
    }
    ps_names_fini(&names);
    ps_inferred_shapes_fini(&s);
}

static void bind_bucket(const struct graph_world *world, struct buckets *buckets,
                        size_t k, struct ps_symbol *symbol, bool shared,
                        enum ps_plan_kind plan)
{
    enum ps_grad_req reqs[ARGUMENTS];
    for (size_t i = 0; i < ARGUMENTS; i++) {
        reqs[i] = buckets->gradients[k][i] != NULL ? PS_GRAD_ADD : PS_GRAD_NULL;
    }
    struct ps_bind_arrays arrays = {.arguments = buckets->arguments[k],
                                    .gradients = buckets->gradients[k],
                                    .reqs = reqs};
    struct ps_bind_options options = world_options(world);
    struct ps_error err = {0};
    options.plan = plan;
    options.shared = shared && k > 0 ? buckets->executors[0] : NULL;
    if (ps_executor_bind(symbol, &options, &arrays, &buckets->executors[k], &err) !=
        PS_OK) {
        fail_msg("%s", err.text);
    }
    float labels[BATCH] = {0, 1, 2, 3};
    tensor_set(ps_executor_find_argument(buckets->executors[k], "softmax_label"), labels);
    tensor_fill_random(ps_executor_find_argument(buckets->executors[k], "data"), 50 + k,
                       1);
}

static uint64_t requested(const struct graph_world *world)
{
    struct ps_device *device;
    struct ps_device_usage usage;
    assert_int_equal(ps_engine_wait_all(world->engine, NULL), PS_OK);
    assert_int_equal(ps_engine_device(world->engine, PS_CPU(0), &device, NULL), PS_OK);
    ps_device_usage(device, &usage);
    return usage.requested_bytes;
}

/* Steps of all buckets in turn, pushed without a wait; the gradients' bits.
 * 'internal_out': bytes of the device that are neither argument nor gradient. */
static uint64_t train_buckets(const struct graph_world *world, bool shared,
                              enum ps_plan_kind plan, uint64_t *internal_out,
                              uint64_t *largest_out)
{
    static const size_t turns[] = {0, 1, 2, 0, 2, 1, 1, 0};
    struct buckets buckets = {0};
    struct ps_symbol *symbols[BUCKETS];
    uint64_t before = requested(world), own = 0;
    for (size_t k = 0; k < BUCKETS; k++) {
        symbols[k] = rnn(lengths[k]);
        make_arrays(world, &buckets, k, symbols[k], symbols[0]);
        bind_bucket(world, &buckets, k, symbols[k], shared, plan);
        struct ps_executor_memory memory;
        ps_executor_memory(buckets.executors[k], &memory);
        own += k == 0 ? memory.argument_bytes + memory.gradient_bytes
                      : BATCH * (size_t)(lengths[k] * UNITS + 1) * sizeof(float);
        run_step(buckets.executors[k], true);
        *largest_out = k == 0 ? requested(world) - before - own : *largest_out;
    }
    for (size_t t = 0; t < PS_COUNT(turns); t++) {
        run_step(buckets.executors[turns[t]], true);
    }
    *internal_out = requested(world) - before - own;
    uint64_t hash = 0;
    for (size_t i = 0; i < ARGUMENTS; i++) {
        if (buckets.gradients[0][i] != NULL) {
            float *values = tensor_get(buckets.gradients[0][i]);
            hash = hash * 31 +
                   ps_hash_bytes(values, ps_tensor_bytes(buckets.gradients[0][i]));
            free(values);
        }
    }
    for (size_t k = 0; k < BUCKETS; k++) {
        ps_executor_destroy(buckets.executors[k]);
        for (size_t i = 0; i < ARGUMENTS; i++) {
            ps_tensor_release(buckets.arguments[k][i]);
            ps_tensor_release(buckets.gradients[k][i]);
        }
        ps_symbol_release(symbols[k]);
    }
    return hash;
}

static void alternating_buckets_need_as_much_memory_as_the_largest(void **state)
{
    (void)state;
    static const enum ps_plan_kind plans[] = {PS_PLAN_OFFSETS, PS_PLAN_BLOCKS};
    uint64_t expected = 0;
    for (size_t e = 0; e < 2; e++) {
        struct graph_world world;
        world_open(&world, PS_ENGINE_PER_DEVICE,
                   e == 0 ? "CPU_WORKER_NTHREADS=1" : "CPU_WORKER_NTHREADS=3");
        for (size_t p = 0; p < PS_COUNT(plans); p++) {
            uint64_t apart, together, largest;
            uint64_t hash = train_buckets(&world, false, plans[p], &apart, &largest);
            expected = expected == 0 ? hash : expected;
            assert_true(hash == expected);
            assert_true(train_buckets(&world, true, plans[p], &together, &largest) ==
                        expected);
            assert_true(together < apart);
            assert_int_equal(together, largest);
        }
        world_close(&world);
    }
}

/* ---- reshape ---- */

static struct ps_executor *reshaped(struct ps_executor *from, const char *name,
                                    struct ps_shape shape, bool partial, bool up_sizing)
{
    struct ps_named_shape known = {name, shape};
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    if (ps_executor_reshape(from, &known, 1, partial, up_sizing, &executor, &err) !=
        PS_OK) {
        fail_msg("%s", err.text);
    }
    return executor;
}

static struct ps_executor *bind_layer(const struct graph_world *world)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *fc =
        finish(b, ps_builder_op(b, "FullyConnected", "fc", "num_hidden=4",
                                ps_builder_variable(b, "x")));
    struct ps_named_shape shape = {"x", PS_SHAPE(5, 4)};
    struct ps_executor *executor = simple_bind(world, fc, &shape, 1, PS_GRAD_WRITE);
    ps_symbol_release(fc);
    return executor;
}

static void partial_shaping_changes_what_is_not_named(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, NULL);
    struct ps_executor *parent = bind_layer(&world);
    tensor_fill_random(ps_executor_find_argument(parent, "fc_weight"), 3, 1);
    /* narrower: the weight is the first 12 elements of the parent's */
    struct ps_executor *narrow = reshaped(parent, "x", PS_SHAPE(5, 3), true, false);
    struct ps_tensor *weight = ps_executor_find_argument(narrow, "fc_weight");
    assert_true(ps_shape_equal(ps_tensor_shape(weight), &PS_SHAPE(4, 3)));
    assert_true(ps_tensor_shares(weight, ps_executor_find_argument(parent, "fc_weight")));
    assert_true(ps_tensor_shares(ps_executor_find_gradient(narrow, "fc_weight"),
                                 ps_executor_find_gradient(parent, "fc_weight")));
    /* wider: it does not fit, so it is new; the bias stays the parent's */
    struct ps_executor *wide = reshaped(parent, "x", PS_SHAPE(5, 6), true, true);
    weight = ps_executor_find_argument(wide, "fc_weight");
    assert_true(ps_shape_equal(ps_tensor_shape(weight), &PS_SHAPE(4, 6)));
    assert_false(
        ps_tensor_shares(weight, ps_executor_find_argument(parent, "fc_weight")));
    assert_true(ps_executor_find_argument(wide, "fc_bias") ==
                ps_executor_find_argument(parent, "fc_bias"));
    ps_executor_destroy(narrow);
    ps_executor_destroy(wide);
    ps_executor_destroy(parent);
    world_close(&world);
}

static void an_up_sized_executor_has_new_memory_and_may_shrink_again(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, NULL);
    struct ps_executor *parent = bind_layer(&world);
    struct ps_executor *large = reshaped(parent, "x", PS_SHAPE(50, 4), false, true);
    assert_false(ps_tensor_shares(ps_executor_find_argument(large, "x"),
                                  ps_executor_find_argument(parent, "x")));
    tensor_fill_random(ps_executor_find_argument(large, "fc_weight"), 3, 1);
    tensor_fill_random(ps_executor_find_argument(large, "x"), 4, 1);
    struct ps_executor *small = reshaped(large, "x", PS_SHAPE(2, 4), false, false);
    assert_true(ps_tensor_shares(ps_executor_find_argument(small, "x"),
                                 ps_executor_find_argument(large, "x")));
    run_forward(large, false);
    float *expected = tensor_get(ps_executor_output(large, 0));
    run_forward(small, false); /* the first two rows, through the parent's weight */
    tensor_expect(ps_executor_output(small, 0), expected, 1e-6);
    free(expected);
    ps_executor_destroy(large);
    ps_executor_destroy(parent);
    ps_executor_destroy(small);
    world_close(&world);
}

/* ---- requests ---- */

static void each_argument_has_its_own_request(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, NULL);
    struct ps_builder *b = builder_new();
    struct ps_symbol *x =
        ps_builder_op(b, "elemwise_mul", NULL, NULL, ps_builder_variable(b, "a"),
                      ps_builder_variable(b, "b"));
    x = ps_builder_op(b, "elemwise_mul", NULL, NULL, x, ps_builder_variable(b, "c"));
    struct ps_symbol *net = finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, x));
    struct ps_named_shape shapes[] = {
        {"a", PS_SHAPE(1)}, {"b", PS_SHAPE(1)}, {"c", PS_SHAPE(1)}};
    static const struct ps_named_req reqs[] = {{"b", PS_GRAD_ADD}, {"c", PS_GRAD_NULL}};
    struct ps_simple_bind bind = {.shapes = shapes,
                                  .shape_count = 3,
                                  .req = PS_GRAD_WRITE,
                                  .reqs = reqs,
                                  .req_count = 2};
    struct ps_bind_options options = world_options(&world);
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    assert_int_equal(ps_executor_simple_bind(net, &options, &bind, &executor, &err),
                     PS_OK);
    static const char *const names[] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++) {
        tensor_set(ps_executor_find_argument(executor, names[i]),
                   (const float[]){(float)(i + 2)});
    }
    assert_null(ps_executor_find_gradient(executor, "c"));
    for (int step = 1; step <= 3; step++) {
        run_step(executor, true);
        tensor_expect(ps_executor_find_gradient(executor, "a"), (const float[]){12}, 0);
        tensor_expect(ps_executor_find_gradient(executor, "b"),
                      (const float[]){(float)(8 * step)}, 0);
    }
    ps_executor_destroy(executor);
    static const struct ps_named_req wrong[] = {{"d", PS_GRAD_ADD}};
    bind.reqs = wrong;
    bind.req_count = 1;
    assert_int_equal(ps_executor_simple_bind(net, &options, &bind, &executor, &err),
                     PS_ENOENT);
    assert_non_null(strstr(err.text, "of d: no argument"));
    ps_symbol_release(net);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alternating_buckets_need_as_much_memory_as_the_largest),
        cmocka_unit_test(partial_shaping_changes_what_is_not_named),
        cmocka_unit_test(an_up_sized_executor_has_new_memory_and_may_shrink_again),
        cmocka_unit_test(each_argument_has_its_own_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
