#include "tests/unit/graph/graph_fixture.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void world_open(struct graph_world *world, int engine_type, const char *setting)
{
    struct ps_error err = {0};
    const char *env[] = {NULL};
    const char *overrides[] = {"LOG=error", setting, NULL};
    struct ps_node_options options = {.name = "test", .env = env, .overrides = overrides};
    if (ps_node_open(&options, &world->node, &err) != PS_OK) {
        fail_msg("node: %s", err.text);
    }
    if (ps_kernels_create(world->node->settings, world->node->log, &world->kernels,
                          &err) != PS_OK) {
        fail_msg("kernels: %s", err.text);
    }
    if (ps_engine_create(world->node, engine_type, &world->engine, &err) != PS_OK) {
        fail_msg("engine: %s", err.text);
    }
}

void world_close(struct graph_world *world)
{
    ps_engine_destroy(world->engine);
    ps_kernels_destroy(world->kernels);
    ps_node_close(world->node);
}

struct ps_bind_options world_options(const struct graph_world *world)
{
    struct ps_bind_options options = PS_BIND_OPTIONS(world->engine, world->kernels);
    options.threads = 1;
    return options;
}

void tensor_set(struct ps_tensor *tensor, const float *values)
{
    struct ps_error err = {0};
    size_t count = (size_t)ps_tensor_count(tensor);
    if (ps_tensor_dtype(tensor) == PS_F64) {
        double *wide = malloc((count + 1) * sizeof(*wide));
        for (size_t i = 0; i < count; i++) {
            wide[i] = values[i];
        }
        if (ps_tensor_write(tensor, wide, count * sizeof(*wide), &err) != PS_OK) {
            fail_msg("write: %s", err.text);
        }
        free(wide);
        return;
    }
    assert_int_equal(ps_tensor_dtype(tensor), PS_F32);
    if (ps_tensor_write(tensor, values, count * sizeof(float), &err) != PS_OK) {
        fail_msg("write: %s", err.text);
    }
}

struct ps_tensor *tensor_from(const struct graph_world *world, struct ps_shape shape,
                              const float *values)
{
    struct ps_tensor *tensor = NULL;
    assert_int_equal(ps_tensor_create(world->engine, PS_CPU(0), PS_F32, &shape, &tensor),
                     PS_OK);
    tensor_set(tensor, values);
    return tensor;
}

float *tensor_get(struct ps_tensor *tensor)
{
    struct ps_error err = {0};
    size_t count = (size_t)ps_tensor_count(tensor);
    float *values = malloc((count + 1) * sizeof(*values));
    bool wide = ps_tensor_dtype(tensor) == PS_F64;
    double *from = malloc((count + 1) * sizeof(*from));
    if (ps_tensor_read(tensor, wide ? (void *)from : (void *)values,
                       ps_tensor_bytes(tensor), &err) != PS_OK) {
        fail_msg("read: %s", err.text);
    }
    for (size_t i = 0; wide && i < count; i++) {
        values[i] = (float)from[i];
    }
    free(from);
    return values;
}

void tensor_fill_random(struct ps_tensor *tensor, uint64_t seed, float scale)
{
    size_t count = (size_t)ps_tensor_count(tensor);
    float *values = malloc((count + 1) * sizeof(*values));
    for (size_t i = 0; i < count; i++) {
        values[i] = scale * ps_rng_normal_at(seed, 7, i);
    }
    tensor_set(tensor, values);
    free(values);
}

void tensor_expect(struct ps_tensor *tensor, const float *expected, double tolerance)
{
    float *values = tensor_get(tensor);
    for (int64_t i = 0; i < ps_tensor_count(tensor); i++) {
        double bound = tolerance * fmax(1.0, fabs((double)expected[i]));
        if (!(fabs((double)values[i] - (double)expected[i]) <= bound)) {
            fail_msg("element %lld is %.9g, expected %.9g", (long long)i,
                     (double)values[i], (double)expected[i]);
        }
    }
    free(values);
}

struct ps_builder *builder_new(void)
{
    struct ps_builder *builder = NULL;
    assert_int_equal(ps_builder_create(&builder), PS_OK);
    return builder;
}

struct ps_symbol *finish(struct ps_builder *builder, struct ps_symbol *symbol)
{
    struct ps_error err = {0};
    struct ps_symbol *out = NULL;
    if (ps_builder_finish(builder, symbol, &out, &err) != PS_OK) {
        fail_msg("builder: %s", err.text);
    }
    ps_builder_destroy(builder);
    return out;
}

struct ps_executor *simple_bind(const struct graph_world *world, struct ps_symbol *symbol,
                                const struct ps_named_shape *shapes, size_t shape_count,
                                enum ps_grad_req req)
{
    static const char *const no_gradient[] = {"data", "softmax_label", NULL};
    struct ps_error err = {0};
    struct ps_executor *executor = NULL;
    struct ps_bind_options options = world_options(world);
    struct ps_simple_bind bind = {.shapes = shapes,
                                  .shape_count = shape_count,
                                  .req = req,
                                  .no_gradient = no_gradient};
    if (ps_executor_simple_bind(symbol, &options, &bind, &executor, &err) != PS_OK) {
        fail_msg("simple_bind: %s", err.text);
    }
    return executor;
}

struct ps_symbol *small_lenet(void)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "Convolution", "conv1", "kernel=(3,3) num_filter=4", x);
    x = ps_builder_op(b, "Activation", NULL, "act_type=tanh", x);
    x = ps_builder_op(b, "Pooling", NULL, "pool_type=max kernel=(2,2) stride=(2,2)", x);
    x = ps_builder_op(b, "Convolution", "conv2", "kernel=(3,3) num_filter=6", x);
    x = ps_builder_op(b, "Activation", NULL, "act_type=relu", x);
    x = ps_builder_op(b, "Flatten", NULL, NULL, x);
    x = ps_builder_op(b, "FullyConnected", "fc1", "num_hidden=10", x);
    x = ps_builder_op(b, "Activation", NULL, "act_type=tanh", x);
    x = ps_builder_op(b, "FullyConnected", "fc2", "num_hidden=5", x);
    return finish(b, ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x));
}

void fill_parameters(struct ps_executor *executor, uint64_t seed, float scale)
{
    for (size_t i = 0; i < ps_executor_argument_count(executor); i++) {
        const char *name = ps_executor_argument_name(executor, i);
        if (strcmp(name, "data") != 0 && strcmp(name, "softmax_label") != 0) {
            tensor_fill_random(ps_executor_argument(executor, i), seed + i, scale);
        }
    }
}

int world_setup(void **state)
{
    struct graph_world *world = calloc(1, sizeof(*world));
    world_open(world, PS_ENGINE_PER_DEVICE, NULL);
    *state = world;
    return 0;
}

int world_teardown(void **state)
{
    world_close(*state);
    free(*state);
    return 0;
}

void run_forward(struct ps_executor *executor, bool training)
{
    struct ps_error err = {0};
    if (ps_executor_forward(executor, training, &err) != PS_OK) {
        fail_msg("forward: %s", err.text);
    }
}

void run_backward(struct ps_executor *executor, struct ps_tensor *head)
{
    struct ps_error err = {0};
    if (ps_executor_backward(executor, head == NULL ? NULL : &head, &err) != PS_OK) {
        fail_msg("backward: %s", err.text);
    }
}

void run_step(struct ps_executor *executor, bool training)
{
    run_forward(executor, training);
    if (training) {
        run_backward(executor, NULL);
    }
}

struct gate {
    struct ps_completion *done;
};

static void hold(void *arg, const struct ps_run *run, struct ps_completion *done)
{
    (void)run;
    ((struct gate *)arg)->done = done;
}

/* Keeps a write of 'tensor' open until ps_engine_complete(gate->done). */
static void close_gate(const struct graph_world *world, struct ps_tensor *tensor,
                       struct gate *gate)
{
    struct ps_var *var = ps_tensor_var(tensor);
    struct ps_engine_op op = {.name = "gate",
                              .start = hold,
                              .arg = gate,
                              .writes = &var,
                              .write_count = 1,
                              .kind = PS_ENGINE_ASYNC};
    assert_int_equal(ps_engine_wait_all(world->engine, NULL), PS_OK);
    assert_int_equal(ps_engine_push(world->engine, &op), PS_OK);
    assert_non_null(gate->done);
}

size_t pushed_by_forward(const struct graph_world *world, struct ps_executor *executor)
{
    struct gate gate = {0};
    close_gate(world, ps_executor_argument(executor, 0), &gate);
    run_forward(executor, true);
    size_t pending = ps_engine_pending(world->engine);
    ps_engine_complete(gate.done, PS_OK, NULL);
    assert_int_equal(ps_engine_wait_all(world->engine, NULL), PS_OK);
    return pending - 1;
}
