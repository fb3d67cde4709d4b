/* What an executor is made of.  Private to exec_*.c and executor*.c.
 *
 * The core (graph, tensors, kernel plans, operations) is counted: the executor holds it,
 * and each prepared engine operation does, so that pushes already made can still run when
 * the executor is gone.  An operation's own fields are touched only by its runs, which
 * the variables it writes put in order.
 *
 *   bind -> ps_exec_core_create: differentiate, place, kernel plans, mirror, memory plan
 *           and tensors, bulk and operations
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

/* A forward node's kernel plan, shared by its forward and backward operations and by the
 * nodes that compute it again.  Only one of them may run at a time: where their data does
 * not put them in order, 'order' does. */
struct ps_exec_kernel {
    struct ps_op_plan *plan;
    struct ps_var *order; /* NULL: not needed */
    uint64_t steps;       /* forward runs with training: only its operations touch it */
};

/* One node, ready to run. */
struct ps_exec_op {
    struct ps_exec_core *core;
    const struct ps_graph_node *node;
    /* NULL: nothing to run */
    enum ps_status (*run)(struct ps_exec_op *op, const struct ps_run *run,
                          struct ps_error *err);
    struct ps_exec_kernel *kernel; /* FORWARD, BACKWARD */
    struct ps_exec_views in, out, aux, out_grad, in_grad;
    struct ps_tensor *workspace; /* borrows from the core; NULL: none */
    enum ps_grad_req *reqs;      /* BACKWARD: per input; SUM, ZERO: of the output */
    bool training;               /* FORWARD */
    bool recomputes;             /* FORWARD: it has mirror_of */
    bool checked;                /* it ran before: its views need no check again */
    uint64_t stream;             /* FORWARD: of the random numbers, without the step */
    struct ps_var **reads, **writes; /* in the arena; may name one twice */
    uint32_t read_count, write_count;
};

/* One engine operation: one or more nodes, run one after the other. */
struct ps_exec_batch {
    struct ps_exec_core *core;
    struct ps_exec_op **ops; /* in the arena */
    uint32_t count;
    const char *name; /* of the node, or "[a,b,...]" */
    struct ps_engine_call *call;
};

/* What one run pushes. */
enum ps_exec_part_kind {
    PS_PART_TRAINING,  /* forward with training */
    PS_PART_INFERENCE, /* forward without */
    PS_PART_BACKWARD,
    PS_PART_COUNT
};
struct ps_exec_part {
    struct ps_exec_batch *batches;
    struct ps_engine_call **calls; /* of the batches, for the segment */
    size_t count;
    struct ps_segment *segment; /* NULL: pushed one by one */
    uint64_t runs;
};

struct ps_exec_core {
    _Atomic uint32_t refs;
    struct ps_bind_options options; /* all is decided, 'shared' is NULL, what it points at
                                       is in the graph's arena */
    struct ps_graph graph;
    struct ps_memory_plan plan;  /* a step for each node */
    enum ps_plan_kind plan_kind; /* used */
    size_t internal_bytes, workspace_bytes, peak_bytes;
    bool differentiates;
    size_t copy_count, mirrored_count;
    double forward_work, extra_work; /* as ps_mirror_report */
    size_t accumulated_count;        /* sums that backward operators add up in place */
    size_t bulk_limit;               /* most operators in one engine operation */

    struct ps_tensor **entries; /* per graph entry; NULL: has no memory */
    struct ps_tensor **blocks;  /* by block, or [0] the arena and one per kept group */
    size_t block_count;
    struct ps_tensor **pool; /* all internal memory, reused blocks of 'shared' too */
    size_t pool_count;
    struct ps_tensor **workspaces; /* each retained */
    size_t workspace_count;
    struct ps_tensor **workspace_of; /* per node: borrows from 'workspaces'; NULL: none */
    const uint32_t *colour_of;       /* per node: of the memory plan; NULL: one */
    const size_t
        *scratch_bytes; /* as ps_graph_plan_options.workspace_bytes; in the arena */
    struct ps_exec_kernel *kernels; /* per forward node; these keep their numbers from
                                       here on */

    struct ps_exec_op *ops;       /* per node */
    struct ps_exec_op *inference; /* per forward node: where a run without training is
                                     different; 'run' is NULL otherwise */
    uint32_t *steps; /* the nodes of operators, in the arena: what is asked for */
    size_t step_count;
    uint32_t *operation_of; /* per node, in the arena: its batch in a training step */
    struct ps_exec_part parts[PS_PART_COUNT];
    struct ps_exec_part single[PS_PART_COUNT]; /* every node by itself: for a monitor */
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

/* exec_kernel.c: prepares the operators' kernels. */
PS_MUST_CHECK enum ps_status ps_exec_make_kernels(struct ps_exec_core *core,
                                                  struct ps_error *err);
/* exec_memory.c: how the graph will be planned; after the kernels. */
void ps_exec_plan_options(const struct ps_exec_core *core,
                          struct ps_graph_plan_options *options_out);
/* The layout that will be used; LIVE: the better one. */
enum ps_plan_layout ps_exec_plan_layout(const struct ps_exec_core *core);
/* Plans and makes the tensors of all entries, and the workspaces. */
PS_MUST_CHECK enum ps_status ps_exec_make_memory(struct ps_exec_core *core,
                                                 const struct ps_exec_inputs *inputs,
                                                 struct ps_exec_core *shared,
                                                 struct ps_error *err);
/* exec_build.c: what each node runs, on what. */
PS_MUST_CHECK enum ps_status ps_exec_make_ops(struct ps_exec_core *core,
                                              const struct ps_exec_inputs *inputs,
                                              struct ps_error *err);
/* exec_batch.c: the engine operations, as bulk decides or (single) one for each node. */
PS_MUST_CHECK enum ps_status ps_exec_make_parts(struct ps_exec_core *core, bool single,
                                                struct ps_error *err);
void ps_exec_parts_close(struct ps_exec_part *parts); /* PS_PART_COUNT of them */
/* Pushes operation i of a part. */
PS_MUST_CHECK enum ps_status ps_exec_push_batch(const struct ps_exec_part *part, size_t i,
                                                struct ps_error *err);
/* Pushes one part: by its captured segment where there is one. */
PS_MUST_CHECK enum ps_status ps_exec_push_part(struct ps_exec_core *core,
                                               struct ps_exec_part *part,
                                               struct ps_error *err);
/* exec_run.c: what the engine calls. */
enum ps_status ps_exec_run_batch(void *arg, const struct ps_run *run,
                                 struct ps_error *err);
enum ps_status ps_exec_run_forward(struct ps_exec_op *op, const struct ps_run *run,
                                   struct ps_error *err);
enum ps_status ps_exec_run_backward(struct ps_exec_op *op, const struct ps_run *run,
                                    struct ps_error *err);
enum ps_status ps_exec_run_sum(struct ps_exec_op *op, const struct ps_run *run,
                               struct ps_error *err);
enum ps_status ps_exec_run_zero(struct ps_exec_op *op, const struct ps_run *run,
                                struct ps_error *err);
enum ps_status ps_exec_run_copy(struct ps_exec_op *op, const struct ps_run *run,
                                struct ps_error *err);

struct ps_executor {
    struct ps_exec_core *core;
    struct ps_names argument_names, auxiliary_names;
    struct ps_tensor **arguments, **gradients, **auxiliaries; /* each retained */
    enum ps_grad_req *reqs;
    bool backward_due;     /* a forward with training ran since the last backward */
    ps_monitor_fn monitor; /* NULL: none */
    void *monitor_arg;
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
