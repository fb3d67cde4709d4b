/* Executors: a symbol bound to tensors on one or several devices, run forward and
 * backward through the engine.
 *
 * Binding infers shapes and types, derives the backward graph, places the operators on
 * devices, prepares each one's kernel, plans the memory of everything in between (with
 * what is computed again, where that was asked for) and builds engine operations of one
 * or more operators each, once.  A run only pushes these, as a captured segment; it
 * allocates nothing and returns at once.  Reading a tensor waits for it.
 *
 * An engine operation of several operators ("bulk", named "[conv1,bn1,relu1]") starts
 * when everything that one of them needs is there, is skipped when any of that carries an
 * error, and ends as a unit: when one fails, those behind it in the operation do not run
 * and all that the operation writes carries the error, which names the operator.  It runs
 * on one thread of its device's lane: where a lane has several threads, parallel branches
 * run side by side only with EXEC_NUM_TEMP above 1, which keeps branches of different
 * colour apart, or without bulk.
 *
 * The gradient of an argument is written by the operation that computes it, into a
 * tensor with an engine variable of its own; an operation that reads that tensor (a
 * push to the store) starts as soon as this one gradient is there, while the rest of
 * backward still runs.
 *
 * Threads: an executor belongs to one thread at a time. */
#ifndef PENSTOCK_ENGINE_GRAPH_EXECUTOR_H
#define PENSTOCK_ENGINE_GRAPH_EXECUTOR_H

#include "engine/engine.h"
#include "engine/graph/symbol.h"
#include "engine/tensor/tensor.h"
#include "kernels/kernels.h"

struct ps_executor;

/* How the memory between operators is laid out. */
enum ps_plan_kind {
    PS_PLAN_AUTO,    /* offsets where they need less and the device runs one op at a time,
                        else blocks */
    PS_PLAN_BLOCKS,  /* blocks that are reused, an engine variable for each */
    PS_PLAN_OFFSETS, /* one arena, values at offsets, one variable: no parallel branches
                      */
    PS_PLAN_NONE     /* every value has its own block; the reference */
};

/* Where the operators with the attribute ctx_group = 'name' run. */
struct ps_context_group {
    const char *name;
    struct ps_context context;
};

/* What is -1 or NULL is decided by a setting, read at each bind. */
struct ps_bind_options {
    struct ps_engine *engine;         /* keeps a borrow; its node has the settings */
    const struct ps_kernels *kernels; /* keeps a borrow */
    struct ps_context context; /* of what no group places; without groups, of everything,
                                  given tensors too */
    const struct ps_context_group *groups; /* NULL: one device; borrows until return */
    size_t group_count;
    uint64_t seed;   /* of dropout; the same seed draws the same numbers on any engine */
    int devices;     /* executors computing side by side on this host's cores; 0 = 1 */
    int threads;     /* of one operator; 0: CPU_NNPACK_NTHREADS, else cores / devices */
    int match_range; /* -1: the setting EXEC_MATCH_RANGE */
    int inplace;     /* -1: the setting EXEC_ENABLE_INPLACE; 0, 1 */
    int num_temp;    /* -1: the setting EXEC_NUM_TEMP, at most GPU_WORKER_NTHREADS */
    int bulk;   /* -1: the settings EXEC_BULK_EXEC_*; 0 and 1: every operator by itself;
                   n: at most n operators in one engine operation */
    int mirror; /* -1: the setting BACKWARD_DO_MIRROR; 0, 1 */
    const char *memonger; /* NULL: the setting MEMONGER; "": off; borrows until return */
    int replay;           /* -1: steps are pushed as captured segments; 0: one by one */
    bool plan_only; /* for asking only: nothing is filled, and running is PS_EPERM */
    enum ps_plan_kind plan;
    struct ps_executor
        *shared; /* its pool of internal memory is used where large enough, and takes up
                    what is new: executors of one pool, the largest bound first, need as
                    much as that one.  They order themselves by what they share, but hold
                    one's values only until another runs.  Borrows until return */
};
/* Settings decide; cpu(0), seed 0. */
#define PS_BIND_OPTIONS(engine_, kernels_)           \
    ((struct ps_bind_options){.engine = (engine_),   \
                              .kernels = (kernels_), \
                              .context = PS_CPU(0),  \
                              .match_range = -1,     \
                              .inplace = -1,         \
                              .num_temp = -1,        \
                              .bulk = -1,            \
                              .mirror = -1,          \
                              .replay = -1})

/* ---- lifecycle ---- */

/* Tensors in the order of the symbol's lists.  All are retained; the arrays are borrowed
 * until return. */
struct ps_bind_arrays {
    struct ps_tensor *const *arguments;
    struct ps_tensor *const *gradients; /* NULL: none; an entry NULL: none of it */
    const enum ps_grad_req *reqs;       /* NULL: WRITE where there is a gradient */
    struct ps_tensor *const *auxiliaries;
};
/* With groups, arguments and auxiliary states lie where their tensors are, and a gradient
 * must lie where its argument does; values are copied to the devices that need them.
 * Errors: PS_EINVAL (a missing tensor, another context, auxiliary states on another
 * device than their operator, an op without a gradient on the way to one), PS_ESHAPE,
 * PS_EDTYPE (naming node or argument), PS_EUNSUPPORTED, PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_executor_bind(struct ps_symbol *symbol,
                                              const struct ps_bind_options *options,
                                              const struct ps_bind_arrays *arrays,
                                              struct ps_executor **executor_out,
                                              struct ps_error *err);

/* Infers from what is known and makes every tensor, filled with zero, each where the
 * first operator that takes it runs (or its own ctx_group says).  Types that stay unknown
 * become f32.  Errors as ps_executor_bind; PS_ENOENT (a shape or type for an
 * argument that is not there). */
struct ps_named_req {
    const char *name;
    enum ps_grad_req req;
};
struct ps_simple_bind {
    const struct ps_named_shape *shapes;
    size_t shape_count;
    const struct ps_named_dtype *dtypes;
    size_t dtype_count;
    enum ps_grad_req req; /* of every argument ... */
    /* ... but these (NULL-terminated, or NULL): data, labels; unknown names do no harm */
    const char *const *no_gradient;
    /* ... and these, each with its own.  PS_ENOENT for an unknown name. */
    const struct ps_named_req *reqs;
    size_t req_count;
};
PS_MUST_CHECK enum ps_status
ps_executor_simple_bind(struct ps_symbol *symbol, const struct ps_bind_options *options,
                        const struct ps_simple_bind *bind,
                        struct ps_executor **executor_out, struct ps_error *err);
/* Operations pushed so far still run; engine and kernels must outlive them
 * (ps_engine_wait_all before ps_kernels_destroy).  NULL is fine. */
void ps_executor_destroy(struct ps_executor *executor);

/* A new executor for other input shapes that shares arguments, gradients, auxiliary
 * states and internal memory with this one.  'partial': arguments that are not named may
 * change their shape too (PS_ESHAPE otherwise); 'up_sizing': arrays may grow, into new
 * memory (PS_ERANGE otherwise). */
PS_MUST_CHECK enum ps_status
ps_executor_reshape(struct ps_executor *executor, const struct ps_named_shape *shapes,
                    size_t shape_count, bool partial, bool up_sizing,
                    struct ps_executor **executor_out, struct ps_error *err);

/* ---- running ---- */

/* Pushes the forward operators.  'training': dropout draws, batch statistics are used and
 * running ones updated. */
PS_MUST_CHECK enum ps_status ps_executor_forward(struct ps_executor *executor,
                                                 bool training, struct ps_error *err);
/* Pushes the backward operators, after a forward with 'training'.  'head_gradients': one
 * per output, copied; NULL (or a NULL entry) where the output is a loss and needs none.
 * Errors: PS_EINVAL (nothing to differentiate; an output that needs a gradient: make it a
 * loss or pass one), PS_ESHAPE, PS_EDTYPE. */
PS_MUST_CHECK enum ps_status ps_executor_backward(struct ps_executor *executor,
                                                  struct ps_tensor *const *head_gradients,
                                                  struct ps_error *err);

/* Called on the executor's thread for each output of each operator, forward and backward,
 * as soon as that operator was pushed: 'name' is "<node>_<output>"; 'value' is borrowed
 * until return, and reading it waits for it.  Memory is reused: what is not read at once
 * is gone.  With a monitor every operator is pushed by itself. */
typedef void (*ps_monitor_fn)(void *arg, const char *name, struct ps_tensor *value);
/* From the next run on; NULL ends it.  Errors: PS_ENOMEM (it is then as before). */
PS_MUST_CHECK enum ps_status ps_executor_set_monitor(struct ps_executor *executor,
                                                     ps_monitor_fn fn, void *arg);

/* ---- its tensors: borrowed from the executor ---- */

size_t ps_executor_argument_count(const struct ps_executor *executor);
size_t ps_executor_auxiliary_count(const struct ps_executor *executor);
size_t ps_executor_output_count(const struct ps_executor *executor);
const char *ps_executor_argument_name(const struct ps_executor *executor, size_t i);
const char *ps_executor_auxiliary_name(const struct ps_executor *executor, size_t i);
struct ps_tensor *ps_executor_argument(const struct ps_executor *executor, size_t i);
/* NULL when the argument has none. */
struct ps_tensor *ps_executor_gradient(const struct ps_executor *executor, size_t i);
enum ps_grad_req ps_executor_req(const struct ps_executor *executor, size_t i);
struct ps_tensor *ps_executor_auxiliary(const struct ps_executor *executor, size_t i);
struct ps_tensor *ps_executor_output(const struct ps_executor *executor, size_t i);
/* By name; NULL when there is none of that name. */
struct ps_tensor *ps_executor_find_argument(const struct ps_executor *executor,
                                            const char *name);
struct ps_tensor *ps_executor_find_gradient(const struct ps_executor *executor,
                                            const char *name);
struct ps_tensor *ps_executor_find_auxiliary(const struct ps_executor *executor,
                                             const char *name);
/* The variable to depend on for the gradient of argument i: written once per backward, by
 * the operation that computes it.  NULL when there is none. */
struct ps_var *ps_executor_gradient_ready(const struct ps_executor *executor, size_t i);
struct ps_symbol *ps_executor_symbol(const struct ps_executor *executor);

/* ---- memory ---- */

struct ps_executor_memory {
    size_t internal_bytes;  /* between operators, as laid out (blocks or arena) */
    size_t workspace_bytes; /* scratch that the operators share, of all workspaces */
    size_t peak_bytes;      /* internal and workspace, as planned */
    size_t argument_bytes, gradient_bytes, auxiliary_bytes; /* given, or made by bind */
    size_t operator_count;  /* that run, forward and backward */
    size_t operation_count; /* engine operations that they became */
    size_t mirrored_count;  /* operators that backward computes again */
    double forward_work;    /* of one forward, in estimated operations (mirror.h) ... */
    double extra_work;      /* ... and of what is computed again; 0 when nothing is */
    size_t copy_count;      /* copies between devices */
    size_t block_count;     /* of the best plan with blocks ... */
    size_t block_bytes;     /* ... and their bytes */
    size_t offset_bytes;    /* of the plan with offsets; 0 when it was not made */
    size_t unplanned_bytes; /* one block for each value */
    size_t inplace_count;   /* outputs that took over an input's memory */
    int match_range;        /* the one that was best */
    enum ps_plan_kind plan; /* used */
};
void ps_executor_memory(const struct ps_executor *executor,
                        struct ps_executor_memory *memory_out);

/* One operator of a training step (of inference, without gradients), in the order in
 * which they run. */
struct ps_executor_step {
    const char *name; /* of the node; lives as the executor */
    const char *kind; /* the operator's name, "sum", "zero" or "copy" */
    bool backward;    /* run by backward */
    bool gradient;    /* computes gradients */
    bool mirrored;    /* computes an earlier operator again */
    bool nothing;     /* only hands its input on: is not run */
    struct ps_context context;
    size_t live_bytes;      /* values between operators that are alive meanwhile */
    size_t workspace_bytes; /* its scratch */
    size_t operation;       /* engine operation that it is part of, from 0 */
};
size_t ps_executor_step_count(const struct ps_executor *executor);
/* Errors: PS_ERANGE. */
PS_MUST_CHECK enum ps_status ps_executor_step(const struct ps_executor *executor,
                                              size_t i,
                                              struct ps_executor_step *step_out);
/* Every operator with its entries and where they lie; ends with the lines
 * "Total <n> MB allocated" (MiB, truncated; as MXNet's) and "Total <n> TempSpace resource
 * requested". */
void ps_executor_dump(const struct ps_executor *executor, struct ps_str *out);

#endif
