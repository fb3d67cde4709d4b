/* The front door of kernels/: operators as pure functions on memory.
 *
 * An operator is found by MXNet's name (ps_op_find), made from MXNet's string attributes
 * (ps_op_create), asked for shapes and dtypes (ps_op_infer_*), prepared for one set of
 * shapes (ps_op_prepare: allocations, primitives, layouts, once) and run many times
 * (ps_op_forward, ps_op_backward: no allocation).  Nothing here knows engines, networks
 * or graphs, and nothing starts threads except OpenMP's and the BLAS's own.
 *
 *   find -> create -> infer shapes, dtypes -> prepare -> { forward, backward }* ->
 * destroy
 *
 * Optimizers stand in kernels/optimizer.h, sums and conversions of arrays in
 * kernels/reduce.h. Threads: definitions and ps_op are immutable, any thread; a plan is
 * run by one thread at a time; ps_kernels is constant after create and shared by all. */
#ifndef PENSTOCK_KERNELS_KERNELS_H
#define PENSTOCK_KERNELS_KERNELS_H

#include "base/dtype.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/str.h"
#include "base/util.h"

/* ---- the room's context ---- */

/* What the kernels share: the BLAS (opened with the right core type), whether oneDNN is
 * used, default thread count. */
struct ps_kernels;

/* Opens the BLAS and checks it against plain code; one per process is enough, more are
 * fine.  Sets OPENBLAS_CORETYPE in the process's environment when the user did not, so
 * call it before other threads read the environment.  'settings' and 'log' may be NULL
 * (defaults, silent); both are borrowed until destroy.  A missing or wrong BLAS is a
 * warning, not an error: the plain code replaces it.  Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_kernels_create(const struct ps_settings *settings,
                                               struct ps_log *log,
                                               struct ps_kernels **kernels_out,
                                               struct ps_error *err);
void ps_kernels_destroy(
    struct ps_kernels *kernels); /* no plan may be left; NULL is fine */
/* "blas openblas 0.3.21 core SkylakeX threads 2, onednn 2.6.3"; for reports, benches,
 * `penstock version`. */
void ps_kernels_describe(const struct ps_kernels *kernels, struct ps_str *out);
/* Threads one operator uses when options.threads is 0: CPU_NNPACK_NTHREADS, else
 * max(1, cores / CPU_WORKER_NTHREADS). */
int ps_kernels_threads(const struct ps_kernels *kernels);

/* ---- memory ---- */

/* A tensor in memory.  layout NULL: dense, row-major.  Not NULL: opaque, known to the
 * device's kernels only (reserved for blocked layouts; refused with PS_EUNSUPPORTED on
 * the CPU today).  The view borrows 'data'. */
struct ps_view {
    void *data;
    int dtype; /* enum ps_dtype */
    struct ps_shape shape;
    const void *layout;
};

/* What a run does with an output: MXNet's codes.  INPLACE is WRITE where the output
 * shares memory with an input of a declared in-place pair; kernels treat both alike. */
enum ps_grad_req {
    PS_GRAD_NULL = 0,    /* not wanted; the view is not touched and may be empty */
    PS_GRAD_WRITE = 1,   /* overwritten */
    PS_GRAD_INPLACE = 2, /* overwritten, aliases an input */
    PS_GRAD_ADD = 3,     /* added to what is there */
};

/* ---- definitions ---- */

enum ps_op_flags {
    PS_OP_LOSS_HEAD = 1 << 0,  /* backward ignores the head gradient (SoftmaxOutput...) */
    PS_OP_NEEDS_RNG = 1 << 1,  /* reads run.seed and run.stream in training */
    PS_OP_TRAIN_MODE = 1 << 2, /* forward differs with run.training */
    PS_OP_MUTATES_AUX = 1 << 3, /* forward in training writes the auxiliary states */
    PS_OP_ZERO_GRAD = 1 << 4,   /* gradients of all inputs are zero (BlockGrad, _zeros) */
    PS_OP_NO_GRAD = 1 << 5,  /* not differentiable: binding it for training is an error */
    PS_OP_CHEAP = 1 << 6,    /* recomputing it costs less than keeping its output */
    PS_OP_IDENTITY = 1 << 7, /* output 0 has the bytes of input 0 (Reshape, _copy) */
    PS_OP_VARIABLE_INPUTS = 1 << 8,  /* input count is the attribute "num_args" */
    PS_OP_VARIABLE_OUTPUTS = 1 << 9, /* output count is the attribute "num_outputs" */
    PS_OP_ADDS_EXACTLY = 1 << 10, /* backward with ADD gives, to the bit, what was there
                                    plus what WRITE gives (f32, f64): it may accumulate in
                                    place of a sum of its own */
    PS_OP_GRAD_IS_HEAD = 1 << 11  /* the gradient of every input is head gradient 0, as it
                                     is (sums of equal shapes) */
};

struct ps_op_def; /* constant data, private to the room: see kernels/op_def.h */

/* By name or alias, exactly as MXNet spells it ("FullyConnected", "elemwise_add",
 * "_Plus").  NULL when unknown; ps_op_nearest then names the closest for the message. */
const struct ps_op_def *ps_op_find(const char *name);
const char *ps_op_nearest(const char *name);         /* NULL when none is near */
const char *ps_op_name(const struct ps_op_def *def); /* the canonical name */
uint32_t ps_op_flags(const struct ps_op_def *def);   /* enum ps_op_flags */
/* The i-th definition, NULL at the end. */
const struct ps_op_def *ps_op_at(size_t i);
/* The i-th attribute's name, NULL at the end; for listings. */
const char *ps_op_attr_name(const struct ps_op_def *def, size_t i);

/* ---- an operator: definition + parsed attributes ---- */

struct ps_attr {
    const char *key, *value; /* "kernel", "(3, 3)" */
};

/* Bounds on num_args and num_outputs, against foreign symbol files. */
#define PS_OP_MAX_INPUTS 4096
#define PS_OP_MAX_OUTPUTS 4096

struct ps_op; /* immutable after create */

/* Parses the attributes.  Keys of the form "__x__" are a graph's own and skipped; every
 * other unknown key, bad value or missing required one is PS_EINVAL with a text that
 * names op, attribute, value and what is accepted.  Borrows 'attrs' until return. */
PS_MUST_CHECK enum ps_status ps_op_create(const struct ps_op_def *def,
                                          const struct ps_attr *attrs, size_t attr_count,
                                          struct ps_op **op_out, struct ps_error *err);
void ps_op_destroy(struct ps_op *op); /* NULL is fine */

const struct ps_op_def *ps_op_definition(const struct ps_op *op);
int ps_op_input_count(const struct ps_op *op);
int ps_op_output_count(const struct ps_op *op); /* all, hidden ones too */
/* Outputs that a symbol shows; the rest (BatchNorm's mean and var, Dropout's mask) come
 * after them and are for the backward. */
int ps_op_visible_output_count(const struct ps_op *op);
int ps_op_aux_count(const struct ps_op *op);
/* "data", "weight", "bias"; "arg0"...; "output", "mask"; "output0"...; "moving_mean".
 * Constant while the op lives. */
const char *ps_op_input_name(const struct ps_op *op, int i);
const char *ps_op_output_name(const struct ps_op *op, int i);
const char *ps_op_aux_name(const struct ps_op *op, int i);

/* ---- inference ---- */

/* Fills what can be known, in every direction (inputs from outputs too); unknown shapes
 * and dims stay unknown.  Arrays have the op's counts; 'out' includes hidden outputs.
 * Errors: PS_ESHAPE with the contradiction in 'err' (arrays may then be half filled). */
PS_MUST_CHECK enum ps_status
ps_op_infer_shape(const struct ps_op *op, struct ps_shape in[], struct ps_shape out[],
                  struct ps_shape aux[], struct ps_error *err);
/* The same for dtypes; PS_DTYPE_UNKNOWN is unknown.  Errors: PS_EDTYPE. */
PS_MUST_CHECK enum ps_status ps_op_infer_dtype(const struct ps_op *op, int in[],
                                               int out[], int aux[],
                                               struct ps_error *err);

/* ---- what the planner wants to know ---- */

enum ps_op_slot { PS_SLOT_INPUT, PS_SLOT_OUTPUT, PS_SLOT_OUT_GRAD };

/* Whether the backward reads the values of input i, output i or head gradient i
 * (MXNet's backward dependency).  What is not needed may be freed, and its view may have
 * data NULL at run time.  Auxiliary states are never freed, so they are not asked. */
bool ps_op_backward_needs(const struct ps_op *op, enum ps_op_slot slot, int i);
/* Whether input i gets a gradient at all; labels do not: theirs is zero (WRITE clears the
 * view, ADD leaves it). */
bool ps_op_input_differentiable(const struct ps_op *op, int i);

struct ps_inplace {
    enum ps_op_slot from; /* forward: always PS_SLOT_INPUT */
    int from_index;
    int to; /* forward: output index; backward: index of the input gradient */
};
#define PS_OP_MAX_INPLACE 8
/* Pairs that may share memory exactly.  Return the number written to 'pairs'.  A pair is
 * safe for forward outputs and for gradients with WRITE; with ADD it is not in place. */
int ps_op_inplace_forward(const struct ps_op *op,
                          struct ps_inplace pairs[PS_OP_MAX_INPLACE]);
int ps_op_inplace_backward(const struct ps_op *op,
                           struct ps_inplace pairs[PS_OP_MAX_INPLACE]);

/* ---- plans ---- */

struct ps_plan_options {
    int threads;   /* of one run; 0: ps_kernels_threads() */
    bool training; /* the plan must be able to run backward, and forward with training */
};

struct ps_op_plan;

/* Allocates and creates everything a run needs for these fully known shapes and dtypes of
 * the inputs (the op's input count).  The plan keeps a borrow of 'op' and 'kernels' until
 * destroy.  Errors: PS_ESHAPE, PS_EDTYPE, PS_EUNSUPPORTED (a dtype the op has no kernel
 * for), PS_ENOMEM. */
PS_MUST_CHECK enum ps_status
ps_op_prepare(const struct ps_kernels *kernels, const struct ps_op *op,
              const struct ps_shape in_shapes[], const int in_dtypes[],
              const struct ps_plan_options *options, struct ps_op_plan **plan_out,
              struct ps_error *err);
void ps_op_plan_destroy(struct ps_op_plan *plan); /* NULL is fine */
/* Scratch bytes of a run, 64-byte aligned; contents need not survive between runs, so all
 * plans of a lane may share one.  0 = none. */
size_t ps_op_plan_workspace(const struct ps_op_plan *plan, bool backward);

/* One run's memory.  Every array has the op's count for that slot; the views of slots
 * that are not needed may have data NULL.  All is borrowed until return. */
struct ps_op_run {
    const struct ps_view *in;       /* inputs */
    const struct ps_view *out;      /* forward: written; backward: values, where needed */
    const struct ps_view *aux;      /* auxiliary states, or NULL when there are none */
    const struct ps_view *out_grad; /* backward: head gradients, where needed */
    const struct ps_view *in_grad;  /* backward: written as 'req' says */
    const enum ps_grad_req *req;    /* backward: one per input; forward: ignored */
    void *workspace;       /* at least ps_op_plan_workspace() bytes, 64-aligned */
    uint64_t seed, stream; /* of ps_rng_at: the caller gives each node and step its own
                            * stream; the same pair draws the same numbers, so that a
                            * recomputed forward is exact */
    bool training;         /* forward only */
    bool keep_aux;         /* forward: do not update auxiliary states (a recomputation) */
    bool checked; /* this plan ran on these views before; only addresses changed, and none
                     of them is missing: what follows is not checked again */
};

/* Views are checked against the plan's shapes and dtypes, unless 'checked'.  Errors:
 * PS_ESHAPE, PS_EDTYPE, PS_EINVAL (a needed view without data), PS_EUNSUPPORTED (layout),
 * PS_ERANGE (a label outside its classes...), with 'err'.  Neither allocates nor blocks.
 * Hidden outputs (mask, mean, var) are written by forward and must be given. */
PS_MUST_CHECK enum ps_status
ps_op_forward(struct ps_op_plan *plan, const struct ps_op_run *run, struct ps_error *err);
PS_MUST_CHECK enum ps_status ps_op_backward(struct ps_op_plan *plan,
                                            const struct ps_op_run *run,
                                            struct ps_error *err);

#endif
