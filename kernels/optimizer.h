/* Optimizers: named, versioned, native; the same code updates a worker's weights and a
 * server's shards.
 *
 * An optimizer is plain data (struct ps_optimizer): its kind, its hyper-parameters and
 * nothing else, so it can be sent, stored and changed live.  Update is a function of each
 * element alone: the result does not depend on how an array is cut into ranges, bit for
 * bit (no reduction, no contraction, same code in vector body and tail).
 *
 * Names (version 1): sgd, nag, adam, adamw, rmsprop, adagrad, add, test.  Formulas are
 * MXNet's, except adamw (Loshchilov, Hutter 2019); they stand at each in
 * kernels/optimizer/optimizer_math.inc.  Threads: pure functions, any. */
#ifndef PENSTOCK_KERNELS_OPTIMIZER_H
#define PENSTOCK_KERNELS_OPTIMIZER_H

#include "base/dtype.h"
#include "base/status.h"
#include "base/str.h"

#include <stdint.h>

enum ps_optimizer_kind {
    PS_OPT_NONE = 0, /* no optimizer: the value becomes the reduction */
    PS_OPT_SGD = 1,  /* momentum 0: no state */
    PS_OPT_NAG = 2,
    PS_OPT_ADAM = 3,
    PS_OPT_ADAMW = 4,
    PS_OPT_RMSPROP = 5,
    PS_OPT_ADAGRAD = 6,
    PS_OPT_ADD = 7,  /* w += rescale_grad * g */
    PS_OPT_TEST = 8, /* w += rescale_grad * g; state := w (MXNet's test optimizer) */
};

/* Bumped when the meaning of a kind or of a hyper-parameter changes; peers compare it. */
#define PS_OPTIMIZER_VERSION 1
#define PS_OPTIMIZER_MAX_STATES 2

/* Plain data; may be copied, compared field by field, sent.  Doubles, so that a text
 * survives a round trip. */
struct ps_optimizer {
    int32_t kind;    /* enum ps_optimizer_kind */
    int32_t version; /* PS_OPTIMIZER_VERSION */
    double lr; /* "learning_rate" or "lr", default 0.01 (adam, adamw, rmsprop 0.001) */
    double momentum;      /* sgd 0, nag 0; [0, 1) */
    double wd;            /* 0; weight decay, multiplied by wd_mult of the key */
    double rescale_grad;  /* 1 */
    double clip_gradient; /* -1: off */
    double beta1, beta2;  /* adam, adamw: 0.9, 0.999 */
    double epsilon;       /* adam, adamw 1e-8; adagrad "eps" 1e-7; rmsprop 1e-8 */
    double gamma1;        /* rmsprop: 0.9 */
    double clip_weights;  /* rmsprop: -1: off */
};

/* "sgd", "adam"...; ignoring case.  Errors: PS_EINVAL naming the nearest. */
PS_MUST_CHECK enum ps_status
ps_optimizer_init(const char *name, struct ps_optimizer *opt_out, struct ps_error *err);
/* Sets one hyper-parameter from text ("momentum", "0.9"); used for live changes too.
 * Errors: PS_EINVAL, PS_ERANGE naming key, value and what is accepted; 'opt' untouched.
 */
PS_MUST_CHECK enum ps_status ps_optimizer_set(struct ps_optimizer *opt, const char *key,
                                              const char *value, struct ps_error *err);
/* Sets several: "learning_rate=0.1,momentum=0.9", "" is none.  Errors as
 * ps_optimizer_set; 'opt' is untouched then. */
PS_MUST_CHECK enum ps_status ps_optimizer_change(struct ps_optimizer *opt,
                                                 const char *text, struct ps_error *err);
/* "sgd,learning_rate=0.1,momentum=0.9": name, then key=value, separated by commas; and
 * back (every field that the kind reads, 17 digits). */
PS_MUST_CHECK enum ps_status
ps_optimizer_parse(const char *text, struct ps_optimizer *opt_out, struct ps_error *err);
void ps_optimizer_format(const struct ps_optimizer *opt, struct ps_str *out);
/* For an optimizer that came over the wire: kind, version and every range. */
PS_MUST_CHECK enum ps_status ps_optimizer_check(const struct ps_optimizer *opt,
                                                struct ps_error *err);
const char *ps_optimizer_name(int kind); /* "?" when unknown */
/* The hyper-parameter names that a kind reads, NULL at the end. */
const char *ps_optimizer_key(int kind, size_t i);

/* State arrays per key, each as long as the weight, of ps_optimizer_state_dtype, zero at
 * the start.  sgd: 1 with momentum, else 0; nag 1; adam, adamw 2; rmsprop 1; adagrad 1;
 * add 0; test 1.  Turning sgd's momentum from 0 to more live changes the count: the owner
 * allocates zeros. */
int ps_optimizer_state_count(const struct ps_optimizer *opt);
/* f64 for f64 weights, f32 for f32, f16 and bf16.  Errors in the dtype give
 * PS_DTYPE_UNKNOWN: integers cannot be optimized, except by add and test (whose state has
 * the weight's dtype). */
int ps_optimizer_state_dtype(const struct ps_optimizer *opt, int weight_dtype);

/* What a key adds to the optimizer: MXNet's multipliers and the update count. */
struct ps_optimizer_key_state {
    double lr_mult, wd_mult; /* 1, 1 */
    uint64_t update;         /* t of this update, from 1; adam's bias correction */
    double rescale;          /* times rescale_grad: 1, or 1/contributors for a mean */
};

/* Updates elements [0, count) of a range of one key, in place.
 *   weight, grad   same dtype: f32, f64, f16, bf16; add and test: integers too
 *   states[i]      ps_optimizer_state_dtype, the same range, borrowed
 *   master         f32 copy of an f16/bf16 weight that carries its precision, or NULL
 *                  (then the weight itself is widened, updated and rounded); when given,
 *                  the weight is the rounded master
 * 'grad' has dtype 'grad_dtype': the weight's, or f32 (an accumulator) for f16/bf16.
 * 'weight_out' NULL: in place; else the result goes there and 'weight' is only read (the
 * twin of a published version).  Errors: PS_EDTYPE; never allocates. */
struct ps_optimizer_range {
    const void *weight;
    void *weight_out; /* may equal 'weight' */
    const void *grad;
    void *states[PS_OPTIMIZER_MAX_STATES];
    float *master;
    int dtype, grad_dtype;
    size_t count;
};
PS_MUST_CHECK enum ps_status ps_optimizer_update(const struct ps_optimizer *opt,
                                                 const struct ps_optimizer_key_state *key,
                                                 const struct ps_optimizer_range *range);

#endif
