/* What the graph tests share: a node with an engine and kernels, tensors from and to
 * arrays of float, small networks. */
#ifndef PENSTOCK_TESTS_UNIT_GRAPH_GRAPH_FIXTURE_H
#define PENSTOCK_TESTS_UNIT_GRAPH_GRAPH_FIXTURE_H

#include "base/node.h"
#include "engine/graph/graph.h"

struct graph_world {
    struct ps_node *node;
    struct ps_kernels *kernels;
    struct ps_engine *engine;
};

/* 'setting' is one override ("CPU_WORKER_NTHREADS=4") or NULL. */
void world_open(struct graph_world *world, int engine_type, const char *setting);
void world_close(struct graph_world *world);
/* As a group's setup and teardown: *state is a world with the default engine. */
int world_setup(void **state);
int world_teardown(void **state);
struct ps_bind_options world_options(const struct graph_world *world);

/* The parts of these calls that must succeed are asserted. */
struct ps_tensor *tensor_from(const struct graph_world *world, struct ps_shape shape,
                              const float *values);
void tensor_set(struct ps_tensor *tensor, const float *values);
float *tensor_get(struct ps_tensor *tensor); /* free it */
void tensor_fill_random(struct ps_tensor *tensor, uint64_t seed, float scale);
/* Asserts |tensor - expected| <= tolerance * max(1, |expected|) for every element. */
void tensor_expect(struct ps_tensor *tensor, const float *expected, double tolerance);

/* "a=variable" builder shorthand: finishes, destroys, asserts. */
struct ps_symbol *finish(struct ps_builder *builder, struct ps_symbol *symbol);
struct ps_builder *builder_new(void);
struct ps_executor *simple_bind(const struct graph_world *world, struct ps_symbol *symbol,
                                const struct ps_named_shape *shapes, size_t shape_count,
                                enum ps_grad_req req);
/* MNIST's LeNet with few filters, ending in SoftmaxOutput; data is [N,1,12,12]. */
struct ps_symbol *small_lenet(void);
/* Pushes; 'head' is the gradient of output 0, NULL for a loss. */
void run_forward(struct ps_executor *executor, bool training);
void run_backward(struct ps_executor *executor, struct ps_tensor *head);
/* Forward, and backward of a loss when training. */
void run_step(struct ps_executor *executor, bool training);
/* The engine operations that a forward is: counted behind a write that is held open. */
size_t pushed_by_forward(const struct graph_world *world, struct ps_executor *executor);
/* Every argument but data and softmax_label gets the same seeded numbers. */
void fill_parameters(struct ps_executor *executor, uint64_t seed, float scale);

#endif
