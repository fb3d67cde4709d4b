/* What an executor is made of.  Private to exec_*.c and executor*.c.
 *
 * The core (graph, tensors, kernel plans, operations) is counted: the executor holds it,
 * and each prepared engine operation does, so that pushes already made can still run when
 * the executor is gone.  An operation's own fields are touched only by its runs, which
 * the variables it writes put in order.
 *
 *   bind -> ps_exec_core_create -> [ plan -> tensors -> kernel plans -> operations ]
 *
 * Threads: built by the executor's thread; operations run on the engine's. */
#ifndef PENSTOCK_ENGINE_GRAPH_EXEC_CORE_H
#define PENSTOCK_ENGINE_GRAPH_EXEC_CORE_H

#include "engine/graph/executor.h"
#include "engine/graph/graph_ir.h"
#include "engine/graph/plan_graph.h"

#include <stdatomic.h>

struct ps_exec_core;

/* One array of views for a kernel: where each comes from (NULL: not given) and what is
 * known of it; the address is filled in at each run. */
struct ps_exec_views {
    struct ps_tensor **tensors; /* borrows from the core */
    struct ps_view *views;
    uint32_t count;
};

/* A node's kernel plan, shared by its forward and backward operations.  Only one of them
 * may run at a time: where their data does not put them in order, 'order' does. */
struct ps_exec_kernel {
    struct ps_op_plan *plan;
    struct ps_var *order; /* NULL: not needed */
};

/* One engine operation. */
struct ps_exec_op {
    struct ps_exec_core *core;
    const struct ps_graph_node *node;
    struct ps_op_plan *plan; /* FORWARD, BACKWARD */
    struct ps_exec_views in, out, aux, out_grad, in_grad;
    enum ps_grad_req *reqs; /* BACKWARD: per input; SUM, ZERO: of the output */
    bool training;
    uint64_t stream;             /* FORWARD: of the random numbers, without the step */
    uint64_t runs;               /* FORWARD with training: steps so far */
    struct ps_engine_call *call; /* NULL: nothing to push */
};

struct ps_exec_core {
    _Atomic uint32_t refs;
    struct ps_bind_options options; /* 'shared' is NULL; threads are decided */
    struct ps_graph graph;
    struct ps_memory_plan plan;
    enum ps_plan_kind plan_kind; /* used */
    size_t internal_bytes;
    bool differentiates;

    struct ps_tensor **entries; /* per graph entry; NULL: has no memory */
    struct ps_tensor **blocks;  /* by block, or [0] the arena and one per kept group */
    size_t block_count;
    struct ps_tensor **pool; /* all internal memory, reused blocks of 'shared' too */
    size_t pool_count;
    struct ps_tensor *workspace;
    size_t workspace_bytes;
    struct ps_exec_kernel *kernels; /* per forward node */

    struct ps_exec_op *ops;       /* per node */
    struct ps_exec_op *inference; /* per forward node: where a run without training is a
                                     different operation; call NULL otherwise */
};

/* What binding knows before the core is built. */
struct ps_exec_inputs {
    struct ps_tensor *const *arguments;
    struct ps_tensor *const *gradients; /* per argument; NULL where the request is NULL */
    const enum ps_grad_req *reqs;
    struct ps_tensor *const *auxiliaries;
};

/* Builds everything.  Takes '*graph' (inferred, not differentiated) on success and leaves
 * it empty. */
PS_MUST_CHECK enum ps_status ps_exec_core_create(const struct ps_bind_options *options,
                                                 struct ps_graph *graph,
                                                 const struct ps_exec_inputs *inputs,
                                                 struct ps_exec_core **core_out,
                                                 struct ps_error *err);
void ps_exec_core_release(struct ps_exec_core *core); /* NULL is fine */
/* Ends the prepared operations; the core goes with the last push. */
void ps_exec_core_close(struct ps_exec_core *core);

/* exec_memory.c: plans and makes the tensors of all entries. */
PS_MUST_CHECK enum ps_status ps_exec_make_memory(struct ps_exec_core *core,
                                                 const struct ps_exec_inputs *inputs,
                                                 const struct ps_exec_core *shared,
                                                 struct ps_error *err);
/* exec_kernel.c: prepares the operators' kernels and the workspace. */
PS_MUST_CHECK enum ps_status ps_exec_make_kernels(struct ps_exec_core *core,
                                                  struct ps_error *err);
/* exec_build.c: the engine operations. */
PS_MUST_CHECK enum ps_status ps_exec_make_ops(struct ps_exec_core *core,
                                              const struct ps_exec_inputs *inputs,
                                              struct ps_error *err);
/* exec_run.c: what the engine calls. */
enum ps_status ps_exec_run_forward(void *arg, const struct ps_run *run,
                                   struct ps_error *err);
enum ps_status ps_exec_run_backward(void *arg, const struct ps_run *run,
                                    struct ps_error *err);
enum ps_status ps_exec_run_sum(void *arg, const struct ps_run *run, struct ps_error *err);
enum ps_status ps_exec_run_zero(void *arg, const struct ps_run *run,
                                struct ps_error *err);

struct ps_executor {
    struct ps_exec_core *core;
    struct ps_names argument_names, auxiliary_names;
    struct ps_tensor **arguments, **gradients, **auxiliaries; /* each retained */
    enum ps_grad_req *reqs;
    bool backward_due; /* a forward with training ran since the last backward */
    uint64_t reshapes; /* executors made from this one: each gets a seed of its own */
};

/* Takes '*graph'.  Errors as ps_executor_bind. */
PS_MUST_CHECK enum ps_status ps_executor_over(const struct ps_bind_options *options,
                                              struct ps_graph *graph,
                                              const struct ps_exec_inputs *inputs,
                                              struct ps_executor **executor_out,
                                              struct ps_error *err);
/* Every shape and type must be known; PS_ESHAPE, PS_EDTYPE naming the first that is
 * not. */
PS_MUST_CHECK enum ps_status ps_graph_check_known(const struct ps_graph *graph,
                                                  struct ps_error *err);

#endif
