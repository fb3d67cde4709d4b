/* What an operator is made of: for the files of kernels/<family>/ and registry.c.
 *
 * A family's file holds constant struct ps_op_def; registry.c lists them.  An attribute
 * is a row {name, type, place in the params struct, default, range}; kernels/attr.c fills
 * the struct from text.  Life of a plan: ps_op_prepare checks and infers, fills the
 * shapes, then calls 'prepare', which may allocate 'state' and set the workspaces.
 * Threads: all of it is constant after create, except plan->state during a run. */
#ifndef PENSTOCK_KERNELS_OP_DEF_H
#define PENSTOCK_KERNELS_OP_DEF_H

#include "kernels/kernels.h"

enum ps_attr_type {
    PS_ATTR_INT,    /* int64_t */
    PS_ATTR_REAL,   /* double */
    PS_ATTR_BOOL,   /* bool */
    PS_ATTR_TUPLE,  /* struct ps_shape; "()" has ndim 0; dims inside [min, max] */
    PS_ATTR_CHOICE, /* int: index into 'choices' ("a|b|c") */
    PS_ATTR_DTYPE,  /* int: enum ps_dtype */
    PS_ATTR_IGNORED /* accepted for files that carry it, without effect here */
};

struct ps_attr_row {
    const char *name; /* NULL ends the table */
    enum ps_attr_type type;
    size_t offset;            /* in the params struct */
    const char *default_text; /* NULL: required */
    double min, max;          /* INT, REAL, TUPLE elements */
    const char *choices;      /* CHOICE */
};
#define PS_ATTR_END                  \
    {                                \
        NULL, 0, 0, NULL, 0, 0, NULL \
    }

#define PS_OP_MAX_NAMES 6

struct ps_op_def {
    const char *name;
    const char *aliases[8]; /* NULL-terminated */
    uint32_t flags;
    int variant; /* the family's own: which function of a table */
    size_t params_bytes;
    const struct ps_attr_row *attrs;      /* NULL: none */
    const char *inputs[PS_OP_MAX_NAMES];  /* NULL-terminated; VARIABLE_INPUTS: empty */
    const char *outputs[PS_OP_MAX_NAMES]; /* VARIABLE_OUTPUTS: empty */
    const char *aux[PS_OP_MAX_NAMES];
    int visible_outputs; /* 0: all */

    /* Checks attributes together and adjusts the counts of 'op'.  May be NULL. */
    enum ps_status (*finish)(struct ps_op *op, struct ps_error *err);
    enum ps_status (*infer_shape)(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err);
    /* NULL: all equal. */
    enum ps_status (*infer_dtype)(const struct ps_op *op, int in[], int out[], int aux[],
                                  struct ps_error *err);
    bool (*needs)(const struct ps_op *op, enum ps_op_slot slot, int i); /* NULL: none */
    bool (*differentiable)(const struct ps_op *op, int i);              /* NULL: all */
    int (*inplace_forward)(const struct ps_op *op, struct ps_inplace *pairs);
    int (*inplace_backward)(const struct ps_op *op, struct ps_inplace *pairs);

    enum ps_status (*prepare)(struct ps_op_plan *plan,
                              struct ps_error *err); /* or NULL */
    void (*destroy)(struct ps_op_plan *plan);        /* or NULL */
    enum ps_status (*forward)(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err);
    /* NULL with ZERO_GRAD: op.c writes zeros. */
    enum ps_status (*backward)(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err);
    bool any_dtype; /* false: f32 and f64 of input 0 only */
};

struct ps_op {
    const struct ps_op_def *def;
    int input_count, output_count, visible_count, aux_count;
    char (*arg_names)[12]; /* VARIABLE_INPUTS: "arg0"... */
    char (*out_names)[12]; /* VARIABLE_OUTPUTS: "output0"... */
    void *params;          /* def->params_bytes */
};

struct ps_op_plan {
    const struct ps_kernels *kernels;
    const struct ps_op *op;
    int threads;
    bool training;
    int dtype; /* of input 0, else of output 0 */
    struct ps_shape *in, *out, *aux;
    int *in_dtype, *out_dtype, *aux_dtype;
    size_t workspace_forward, workspace_backward;
    void *state; /* the op's own; 'destroy' frees it */
};

/* attr.c */
PS_MUST_CHECK enum ps_status ps_attr_parse(const struct ps_op_def *def,
                                           const struct ps_attr *attrs, size_t count,
                                           void *params, struct ps_error *err);

/* Fails with "<op>: <what>". */
#define PS_OP_FAIL(op, err, status, ...) \
    ps_op_fail((op)->def->name, (err), (status), __VA_ARGS__)
enum ps_status ps_op_fail(const char *op, struct ps_error *err, enum ps_status status,
                          const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* ---- pieces that many families share (infer.c) ---- */

/* Merges 'from' into 'into'; on contradiction a text that names both. */
PS_MUST_CHECK enum ps_status ps_infer_merge(const struct ps_op *op, const char *what,
                                            struct ps_shape *into,
                                            const struct ps_shape *from,
                                            struct ps_error *err);
/* Sets one dimension, if 'value' is known (>= 0). */
PS_MUST_CHECK enum ps_status ps_infer_dim(const struct ps_op *op, const char *what,
                                          struct ps_shape *shape, int dim, int64_t value,
                                          struct ps_error *err);
/* All inputs and outputs have one shape. */
enum ps_status ps_infer_same(const struct ps_op *op, struct ps_shape in[],
                             struct ps_shape out[], struct ps_shape aux[],
                             struct ps_error *err);
/* The product of dims [from, ndim), -1 when one is unknown. */
int64_t ps_shape_product(const struct ps_shape *shape, int from, int to);
/* "axis" of an attribute with negative values counted from the end; PS_ESHAPE outside. */
PS_MUST_CHECK enum ps_status ps_infer_axis(const struct ps_op *op, int64_t axis, int ndim,
                                           int *axis_out, struct ps_error *err);

/* Common answers of 'needs', 'differentiable', 'inplace_*'. */
bool ps_needs_head(const struct ps_op *op, enum ps_op_slot slot, int i);
bool ps_needs_head_output(const struct ps_op *op, enum ps_op_slot slot, int i);
bool ps_needs_head_inputs(const struct ps_op *op, enum ps_op_slot slot, int i);
bool ps_differentiable_first(const struct ps_op *op, int i); /* input 0 only */
int ps_inplace_first(const struct ps_op *op,
                     struct ps_inplace *pairs); /* in 0 -> out 0 */
int ps_inplace_head(const struct ps_op *op,
                    struct ps_inplace *pairs); /* head 0 -> grad 0 */

/* ---- memory helpers (run.c) ---- */

static inline bool ps_wants(const struct ps_op_run *run, int i)
{
    return run->req[i] != PS_GRAD_NULL;
}

static inline bool ps_adds(const struct ps_op_run *run, int i)
{
    return run->req[i] == PS_GRAD_ADD;
}

/* dst = 0 unless the request is ADD or NULL. */
void ps_grad_zero(const struct ps_op_run *run, int i);
/* dst (+)= src, same dtype, 'count' elements; src may equal dst. */
void ps_grad_copy(const struct ps_op_run *run, int i, const void *src);
size_t ps_view_bytes(const struct ps_view *view);

#endif
