/* Shape rules of Flatten, Reshape (with MXNet's codes) and the constants.
 * Reshape's codes: 0 copies a dim, -1 is inferred, -2 copies the rest, -3 joins two dims,
 * -4 splits one into the next two.  'reverse' reads them from the right.  Source: the
 * operator's documentation in MXNet 1.x.  Threads: pure. */
#include "kernels/shape/shape_infer.h"

const struct ps_attr_row ps_reshape_attrs[] = {
    {"shape", PS_ATTR_TUPLE, offsetof(struct ps_reshape_params, shape), "()", -4, 1e15,
     NULL},
    {"target_shape", PS_ATTR_TUPLE, offsetof(struct ps_reshape_params, target), "()", 0,
     1e15, NULL},
    {"reverse", PS_ATTR_BOOL, offsetof(struct ps_reshape_params, reverse), "False", 0, 0,
     NULL},
    {"keep_highest", PS_ATTR_BOOL, offsetof(struct ps_reshape_params, keep_highest),
     "False", 0, 0, NULL},
    PS_ATTR_END};

enum ps_status ps_shape_infer_flatten(const struct ps_op *op, struct ps_shape in[],
                                      struct ps_shape out[], struct ps_shape aux[],
                                      struct ps_error *err)
{
    PS_UNUSED(aux);
    if (in[0].ndim == 0) {
        return PS_OP_FAIL(op, err, PS_ESHAPE, "data has no dims");
    }
    if (in[0].ndim > 0) {
        struct ps_shape flat =
            PS_SHAPE(in[0].dim[0], ps_shape_product(&in[0], 1, in[0].ndim));
        PS_TRY(ps_infer_merge(op, "output", &out[0], &flat, err));
        return ps_infer_dim(op, "data", &in[0], 0, out[0].dim[0], err);
    }
    return PS_OK;
}

static void reverse_dims(struct ps_shape *shape)
{
    for (int i = 0, j = shape->ndim - 1; i < j; i++, j--) {
        int64_t d = shape->dim[i];
        shape->dim[i] = shape->dim[j];
        shape->dim[j] = d;
    }
}

struct decode {
    const struct ps_op *op;
    const struct ps_shape *in, *codes;
    struct ps_shape out;
    int source;   /* next dim of 'in' */
    int inferred; /* position of -1, or -1 */
};

static bool put(struct decode *d, int64_t dim)
{
    if (d->out.ndim == PS_MAX_DIM) {
        return false;
    }
    d->out.dim[d->out.ndim++] = dim;
    return true;
}

static bool take(struct decode *d, int64_t *dim_out)
{
    if (d->source >= d->in->ndim) {
        return false;
    }
    *dim_out = d->in->dim[d->source++];
    return true;
}

/* -4 a b: one dim becomes a, b; one of them may be -1. */
static bool decode_split(struct decode *d, int *i)
{
    int64_t dim, a, b;
    if (*i + 2 >= d->codes->ndim || !take(d, &dim)) {
        return false;
    }
    a = d->codes->dim[++*i];
    b = d->codes->dim[++*i];
    if (a < -1 || b < -1 || a == 0 || b == 0 || (a == -1 && b == -1)) {
        return false;
    }
    if (dim >= 0) {
        a = a == -1 ? dim / b : a;
        b = b == -1 ? dim / a : b;
        if (a == 0 || b == 0 ? dim != 0 : dim % a != 0 || dim / a != b) {
            return false;
        }
    }
    return put(d, a) && put(d, b);
}

static bool decode_one(struct decode *d, int *i)
{
    int64_t code = d->codes->dim[*i], a, b;
    switch (code) {
    case 0:
        return take(d, &a) && put(d, a);
    case -1:
        if (d->inferred >= 0) {
            return false;
        }
        d->inferred = d->out.ndim;
        d->source++;
        return put(d, -1);
    case -2:
        while (d->source < d->in->ndim) {
            if (!put(d, d->in->dim[d->source++])) {
                return false;
            }
        }
        return true;
    case -3:
        if (!take(d, &a) || !take(d, &b)) {
            return false;
        }
        if (a >= 0 && b >= 0 && __builtin_mul_overflow(a, b, &a)) {
            return false;
        }
        return put(d, a < 0 || b < 0 ? -1 : a);
    case -4:
        return decode_split(d, i);
    default:
        d->source++;
        return put(d, code);
    }
}

/* The dim of -1, when everything else is known. */
static bool decode_inferred(struct decode *d)
{
    int64_t total = ps_shape_product(d->in, 0, d->in->ndim), rest = 1;
    for (int i = 0; i < d->out.ndim; i++) {
        if (i != d->inferred) {
            if (d->out.dim[i] < 0) {
                return true;
            }
            if (__builtin_mul_overflow(rest, d->out.dim[i], &rest)) {
                return false;
            }
        }
    }
    if (total < 0) {
        return true;
    }
    if (d->inferred < 0) {
        return rest == total;
    }
    if (rest == 0 || total % rest != 0) {
        return false;
    }
    d->out.dim[d->inferred] = total / rest;
    return true;
}

static void legacy_codes(const struct ps_reshape_params *p, struct ps_shape *codes)
{
    *codes = p->target;
    for (int i = 0; i < codes->ndim; i++) {
        codes->dim[i] = codes->dim[i] == 0 ? -1 : codes->dim[i];
    }
    if (p->keep_highest && codes->ndim > 0) {
        codes->dim[0] = 0;
    }
}

/* A single unknown dim of the input, from a known output. */
static void infer_back(struct ps_shape *in, const struct ps_shape *out)
{
    int64_t total = ps_shape_known(out) ? ps_shape_count(out) : -1, rest = 1;
    int unknown = -1;
    for (int i = 0; i < in->ndim; i++) {
        if (in->dim[i] < 0) {
            if (unknown >= 0) {
                return;
            }
            unknown = i;
        } else if (__builtin_mul_overflow(rest, in->dim[i], &rest)) {
            return;
        }
    }
    if (unknown >= 0 && total >= 0 && rest > 0 && total % rest == 0) {
        in->dim[unknown] = total / rest;
    }
}

enum ps_status ps_shape_infer_reshape(const struct ps_op *op, struct ps_shape in[],
                                      struct ps_shape out[], struct ps_shape aux[],
                                      struct ps_error *err)
{
    const struct ps_reshape_params *p = op->params;
    struct ps_shape from = in[0], codes = p->shape;
    char a[PS_SHAPE_TEXT_BYTES], b[PS_SHAPE_TEXT_BYTES];
    bool right = true;
    PS_UNUSED(aux);
    if (from.ndim < 0) {
        return PS_OK;
    }
    if (codes.ndim == 0) {
        legacy_codes(p, &codes);
    }
    if (codes.ndim == 0) {
        return PS_OP_FAIL(op, err, PS_EINVAL, "attribute shape is required");
    }
    if (p->reverse) {
        reverse_dims(&from);
        reverse_dims(&codes);
    }
    struct decode d = {op, &from, &codes, {.ndim = 0}, 0, -1};
    for (int i = 0; i < codes.ndim && right; i++) {
        right = decode_one(&d, &i);
    }
    if (!right || !decode_inferred(&d)) {
        return PS_OP_FAIL(op, err, PS_ESHAPE, "data %.80s cannot take shape %.80s",
                          ps_shape_text(&in[0], a), ps_shape_text(&p->shape, b));
    }
    if (p->reverse) {
        reverse_dims(&d.out);
    }
    PS_TRY(ps_infer_merge(op, "output", &out[0], &d.out, err));
    infer_back(&in[0], &out[0]);
    return PS_OK;
}

enum ps_status ps_shape_infer_fill(const struct ps_op *op, struct ps_shape in[],
                                   struct ps_shape out[], struct ps_shape aux[],
                                   struct ps_error *err)
{
    const struct ps_fill_params *p = op->params;
    struct ps_shape shape = p->shape;
    PS_UNUSED(in);
    PS_UNUSED(aux);
    if (shape.ndim == 0) {
        return PS_OK;
    }
    for (int i = 0; i < shape.ndim; i++) {
        shape.dim[i] = shape.dim[i] == 0 ? -1 : shape.dim[i];
    }
    return ps_infer_merge(op, "output", &out[0], &shape, err);
}
