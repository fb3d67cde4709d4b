/* A network and its memory plans: what `penstock plan` measures, and what its text, JSON
 * and picture are made of.  A plan is an executor bound only to be asked (plan_only):
 * nothing is allocated for its values, nothing runs.
 *
 *   ps_net_open -> ps_net_plan (once for each choice of settings) -> text, JSON, picture
 *
 * Threads: one. */
#ifndef PENSTOCK_WORKER_PLAN_NET_H
#define PENSTOCK_WORKER_PLAN_NET_H

#include "engine/graph/executor.h"
#include "worker/models/models.h"

/* ---- the network ---- */

struct ps_net_options {
    const char *network;     /* a model's name; or NULL and ... */
    const char *symbol_path; /* ... a symbol file */
    struct ps_shape sample;  /* data of one sample; ndim 0: the model's own */
    int64_t batch;
    struct ps_model_size size; /* 0: the model's own */
    bool inference;
    struct ps_context context;
    struct ps_engine *engine;         /* keeps a borrow; its node has settings, files */
    const struct ps_kernels *kernels; /* keeps a borrow */
};

struct ps_net {
    struct ps_net_options options; /* what it points at is borrowed until close */
    const char *name;              /* the model's, or the file's path */
    struct ps_symbol *symbol;
    struct ps_named_shape inputs[PS_MODEL_INPUTS_MAX];
    size_t input_count;
    struct ps_names arguments;
    const char **no_gradient; /* data, labels, states; NULL-terminated, borrows names */
};

/* Errors: PS_EINVAL (unknown network, a size that it has not), of ps_symbol_load,
 * PS_ENOMEM.  Close a zeroed or failed one too. */
PS_MUST_CHECK enum ps_status ps_net_open(const struct ps_net_options *options,
                                         struct ps_net *net, struct ps_error *err);
void ps_net_close(struct ps_net *net);

/* ---- one plan ---- */

/* One thing that is not as the settings say. */
enum ps_net_change {
    PS_NET_AS_SET,
    PS_NET_INPLACE,     /* EXEC_ENABLE_INPLACE=value */
    PS_NET_MATCH_RANGE, /* EXEC_MATCH_RANGE=value */
    PS_NET_NUM_TEMP,    /* EXEC_NUM_TEMP=value, threads or not */
    PS_NET_MIRROR,      /* BACKWARD_DO_MIRROR=value */
    PS_NET_SQRT,        /* MEMONGER=sqrt */
    PS_NET_PLAIN,       /* nothing is computed again */
    PS_NET_SINGLE,      /* no bulk: every operator by itself */
    PS_NET_UNPLANNED    /* a block for each value */
};
struct ps_net_choice {
    const char *label; /* "BACKWARD_DO_MIRROR=1" */
    enum ps_net_change change;
    int value;
};

struct ps_net_plan {
    const struct ps_net_choice *choice;
    struct ps_executor *executor;      /* NULL: refused, or closed */
    char refused[PS_ERROR_TEXT_BYTES]; /* "": it is not */
    struct ps_executor_memory memory;
    int64_t parameter_count; /* elements of the arguments with a gradient (training) */
    size_t parameter_arrays;
};

/* Binds.  Errors: of ps_executor_simple_bind; a budget that cannot be met (PS_ERANGE) is
 * none: '*plan_out' is then refused and says why.  Give '*plan_out' (ps_net_plan_fini).
 */
PS_MUST_CHECK enum ps_status ps_net_plan(const struct ps_net *net,
                                         const struct ps_net_choice *choice,
                                         struct ps_net_plan *plan_out,
                                         struct ps_error *err);
/* Also closes: the figures stay.  A zeroed one is fine. */
void ps_net_plan_fini(struct ps_net_plan *plan);

/* One plan for each setting that is not in force and could matter, closed.  Gives
 * '*plans_out' (free).  Errors as ps_net_plan. */
PS_MUST_CHECK enum ps_status ps_net_plan_others(const struct ps_net *net,
                                                struct ps_net_plan **plans_out,
                                                size_t *count_out, struct ps_error *err);

/* Bytes alive at each operator, its scratch among them.  Gives '*bytes_out' (free). */
PS_MUST_CHECK enum ps_status ps_net_live(const struct ps_net_plan *plan,
                                         size_t **bytes_out, size_t *count_out);

/* "arena", "blocks" or "a block each". */
const char *ps_net_layout_text(enum ps_plan_kind kind);

#endif
