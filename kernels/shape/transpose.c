/* transpose(axes) and SwapAxis(dim1, dim2): the dims in another order.
 *   output[i_a0, i_a1, ...] = data[i_0, i_1, ...], output dim d is data dim axes[d]
 * transpose without axes turns the order round.  Copies, gathered in blocks of the
 * output; exact for every dtype.  The gradient is gathered the other way. */
#include "kernels/reduce.h"
#include "kernels/registry.h"

#include <string.h>

enum { TRANSPOSE, SWAP, BLOCK = 256 /* elements */ };

struct transpose_params {
    struct ps_shape axes; /* TRANSPOSE */
    int64_t dim1, dim2;   /* SWAP */
};

#define FIELD(name) offsetof(struct transpose_params, name)
static const struct ps_attr_row transpose_attrs[] = {
    {"axes", PS_ATTR_TUPLE, FIELD(axes), "()", -PS_MAX_DIM, PS_MAX_DIM - 1, NULL},
    PS_ATTR_END};
static const struct ps_attr_row swap_attrs[] = {
    {"dim1", PS_ATTR_INT, FIELD(dim1), "0", -PS_MAX_DIM, PS_MAX_DIM - 1, NULL},
    {"dim2", PS_ATTR_INT, FIELD(dim2), "0", -PS_MAX_DIM, PS_MAX_DIM - 1, NULL},
    PS_ATTR_END};

/* axes_out[d]: the dim of data that is dim d of the output. */
static enum ps_status find_axes(const struct ps_op *op, int ndim,
                                int axes_out[PS_MAX_DIM], struct ps_error *err)
{
    const struct transpose_params *p = op->params;
    unsigned used = 0;
    int a, b;
    for (int d = 0; d < ndim; d++) {
        axes_out[d] = op->def->variant == SWAP ? d : ndim - 1 - d;
    }
    if (op->def->variant == SWAP) {
        PS_TRY(ps_infer_axis(op, p->dim1, ndim, &a, err));
        PS_TRY(ps_infer_axis(op, p->dim2, ndim, &b, err));
        axes_out[a] = b;
        axes_out[b] = a;
        return PS_OK;
    }
    if (p->axes.ndim > 0 && p->axes.ndim != ndim) {
        return PS_OP_FAIL(op, err, PS_ESHAPE, "%d axes for data of %d dims", p->axes.ndim,
                          ndim);
    }
    for (int d = 0; d < p->axes.ndim; d++) {
        PS_TRY(ps_infer_axis(op, p->axes.dim[d], ndim, &axes_out[d], err));
        if ((used & 1U << axes_out[d]) != 0) {
            return PS_OP_FAIL(op, err, PS_ESHAPE, "axes name dim %d twice", axes_out[d]);
        }
        used |= 1U << axes_out[d];
    }
    return PS_OK;
}

static enum ps_status infer_shape(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err)
{
    int axes[PS_MAX_DIM], ndim = in[0].ndim >= 0 ? in[0].ndim : out[0].ndim;
    PS_UNUSED(aux);
    if (ndim < 0) {
        return PS_OK;
    }
    struct ps_shape data = {.ndim = ndim}, turned = {.ndim = ndim};
    PS_TRY(find_axes(op, ndim, axes, err));
    for (int d = 0; d < ndim; d++) {
        data.dim[d] = -1;
    }
    PS_TRY(ps_infer_merge(op, "output", &out[0], &data, err)); /* as many dims */
    for (int d = 0; d < ndim; d++) {
        data.dim[axes[d]] = out[0].dim[d];
    }
    PS_TRY(ps_infer_merge(op, "data", &in[0], &data, err));
    for (int d = 0; d < ndim; d++) {
        turned.dim[d] = in[0].dim[axes[d]];
    }
    return ps_infer_merge(op, "output", &out[0], &turned, err);
}

/* One side is read in its own order, the other written in blocks. */
struct gather {
    int ndim;
    int64_t dim[PS_MAX_DIM];    /* of the side that is written */
    int64_t stride[PS_MAX_DIM]; /* of the side that is read, in elements */
    int64_t index[PS_MAX_DIM];
    int64_t at; /* in the side that is read */
};

/* The next element's place. */
static void advance(struct gather *g)
{
    for (int d = g->ndim - 1; d >= 0; d--) {
        g->at += g->stride[d];
        if (++g->index[d] < g->dim[d]) {
            return;
        }
        g->at -= g->dim[d] * g->stride[d];
        g->index[d] = 0;
    }
}

#define DEFINE_TAKE(T)                                                         \
    static void take_##T(struct gather *g, T *to, const T *from, size_t count) \
    {                                                                          \
        for (size_t i = 0; i < count; i++) {                                   \
            to[i] = from[g->at];                                               \
            advance(g);                                                        \
        }                                                                      \
    }
DEFINE_TAKE(uint8_t)
DEFINE_TAKE(uint16_t)
DEFINE_TAKE(uint32_t)
DEFINE_TAKE(uint64_t)

static void take(struct gather *g, void *to, const void *from, size_t size, size_t count)
{
    switch (size) {
    case 1:
        take_uint8_t(g, to, from, count);
        return;
    case 2:
        take_uint16_t(g, to, from, count);
        return;
    case 4:
        take_uint32_t(g, to, from, count);
        return;
    default:
        take_uint64_t(g, to, from, count);
    }
}

/* The gather that writes the output (or, 'back', data) in its order. */
static enum ps_status make_gather(const struct ps_op_plan *plan, bool back,
                                  struct gather *g, struct ps_error *err)
{
    const struct ps_shape *from = back ? &plan->out[0] : &plan->in[0];
    const struct ps_shape *to = back ? &plan->in[0] : &plan->out[0];
    int64_t stride[PS_MAX_DIM], step = 1;
    int axes[PS_MAX_DIM];
    PS_TRY(find_axes(plan->op, from->ndim, axes, err));
    for (int d = from->ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step *= from->dim[d];
    }
    *g = (struct gather){.ndim = to->ndim};
    for (int d = 0; d < to->ndim; d++) {
        g->dim[d] = to->dim[d];
        /* dim d of the output is dim axes[d] of data */
        g->stride[back ? axes[d] : d] = stride[back ? d : axes[d]];
    }
    return PS_OK;
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    struct gather g;
    PS_TRY(make_gather(plan, false, &g, err));
    take(&g, run->out[0].data, run->in[0].data, ps_dtype_size(plan->dtype),
         (size_t)ps_shape_count(&plan->out[0]));
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    size_t size = ps_dtype_size(plan->dtype);
    size_t count = (size_t)ps_shape_count(&plan->in[0]);
    uint64_t block[BLOCK];
    struct gather g;
    PS_TRY(make_gather(plan, true, &g, err));
    if (!ps_wants(run, 0)) {
        return PS_OK;
    }
    if (!ps_adds(run, 0)) {
        take(&g, run->in_grad[0].data, run->out_grad[0].data, size, count);
        return PS_OK;
    }
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t n = PS_MIN(count - i, (size_t)BLOCK);
        take(&g, block, run->out_grad[0].data, size, n);
        ps_reduce_accumulate((char *)run->in_grad[0].data + i * size, block, plan->dtype,
                             n);
    }
    return PS_OK;
}

#define ORDER_OP(text, which, ...)                                             \
    .name = text, .aliases = {__VA_ARGS__}, .variant = (which),                \
    .flags = PS_OP_CHEAP | PS_OP_ADDS_EXACTLY,                                 \
    .params_bytes = sizeof(struct transpose_params), .inputs = {"data"},       \
    .outputs = {"output"}, .infer_shape = infer_shape, .needs = ps_needs_head, \
    .forward = forward, .backward = backward, .any_dtype = true

const struct ps_op_def ps_ops_transpose[] = {
    {ORDER_OP("transpose", TRANSPOSE, NULL), .attrs = transpose_attrs},
    {ORDER_OP("SwapAxis", SWAP, "swapaxes"), .attrs = swap_attrs},
};
const size_t ps_ops_transpose_count = PS_COUNT(ps_ops_transpose);
