/* SliceChannel(num_outputs, axis, squeeze_axis), also split: one tensor cut into equal
 * parts along one axis.
 *   data [A, k c, B], output_i [A, c, B], i < k; squeeze_axis (c = 1): [A, B]
 * Copies of rows; exact for every dtype.  The gradient is the head gradients side by
 * side. */
#include "kernels/reduce.h"
#include "kernels/registry.h"

#include <string.h>

struct slice_params {
    int64_t num_outputs; /* first: op.c reads it */
    int64_t axis;
    bool squeeze;
};

#define FIELD(name) offsetof(struct slice_params, name)
static const struct ps_attr_row attrs[] = {
    {"num_outputs", PS_ATTR_INT, FIELD(num_outputs), NULL, 1, PS_OP_MAX_OUTPUTS, NULL},
    {"axis", PS_ATTR_INT, FIELD(axis), "1", -PS_MAX_DIM, PS_MAX_DIM - 1, NULL},
    {"squeeze_axis", PS_ATTR_BOOL, FIELD(squeeze), "False", 0, 0, NULL},
    PS_ATTR_END};

/* The part's shape of what is known of data's. */
static enum ps_status part_of(const struct ps_op *op, const struct ps_shape *data,
                              int axis, struct ps_shape *part_out, struct ps_error *err)
{
    const struct slice_params *p = op->params;
    struct ps_shape part = *data;
    int64_t whole = data->dim[axis];
    if (whole >= 0 &&
        (whole % p->num_outputs != 0 || (p->squeeze && whole != p->num_outputs))) {
        return PS_OP_FAIL(op, err, PS_ESHAPE,
                          "data has %lld in dim %d, which %lld outputs%s cannot share",
                          (long long)whole, axis, (long long)p->num_outputs,
                          p->squeeze ? " of one" : "");
    }
    part.dim[axis] = p->squeeze ? 1 : whole >= 0 ? whole / p->num_outputs : -1;
    if (p->squeeze) {
        part.ndim--;
        memmove(part.dim + axis, part.dim + axis + 1,
                (size_t)(part.ndim - axis) * sizeof(part.dim[0]));
    }
    *part_out = part;
    return PS_OK;
}

/* Data's shape of what is known of the parts'. */
static enum ps_status whole_of(const struct ps_op *op, const struct ps_shape *part,
                               int axis, struct ps_shape *data_out, struct ps_error *err)
{
    const struct slice_params *p = op->params;
    struct ps_shape data = *part;
    if (p->squeeze) {
        if (data.ndim == PS_MAX_DIM) {
            return PS_OP_FAIL(op, err, PS_ESHAPE, "output has too many dims");
        }
        memmove(data.dim + axis + 1, data.dim + axis,
                (size_t)(data.ndim - axis) * sizeof(data.dim[0]));
        data.ndim++;
        data.dim[axis] = 1;
    }
    if (data.dim[axis] >= 0 &&
        __builtin_mul_overflow(data.dim[axis], p->num_outputs, &data.dim[axis])) {
        return PS_OP_FAIL(op, err, PS_ESHAPE, "dim %d is too large", axis);
    }
    *data_out = data;
    return PS_OK;
}

static enum ps_status infer_shape(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err)
{
    const struct slice_params *p = op->params;
    struct ps_shape part = PS_SHAPE_UNKNOWN, data;
    int axis, ndim = in[0].ndim;
    PS_UNUSED(aux);
    for (int i = 0; i < op->output_count; i++) {
        PS_TRY(ps_infer_merge(op, ps_op_output_name(op, i), &part, &out[i], err));
    }
    if (ndim < 0 && part.ndim >= 0) {
        ndim = part.ndim + (p->squeeze ? 1 : 0);
    }
    if (ndim < 0) {
        return PS_OK;
    }
    PS_TRY(ps_infer_axis(op, p->axis, ndim, &axis, err));
    if (part.ndim >= 0) {
        PS_TRY(whole_of(op, &part, axis, &data, err));
        PS_TRY(ps_infer_merge(op, "data", &in[0], &data, err));
    }
    if (p->squeeze && in[0].dim[axis] < 0) {
        in[0].dim[axis] = p->num_outputs;
    }
    PS_TRY(part_of(op, &in[0], axis, &part, err));
    for (int i = 0; i < op->output_count; i++) {
        PS_TRY(ps_infer_merge(op, ps_op_output_name(op, i), &out[i], &part, err));
    }
    return PS_OK;
}

/* Data as 'rows' rows of num_outputs pieces of 'bytes' each. */
static void pieces(const struct ps_op_plan *plan, int64_t *rows_out, size_t *bytes_out)
{
    const struct slice_params *p = plan->op->params;
    const struct ps_shape *data = &plan->in[0];
    int axis = (int)(p->axis < 0 ? p->axis + data->ndim : p->axis);
    *rows_out = ps_shape_product(data, 0, axis);
    *bytes_out = (size_t)(ps_shape_product(data, axis, data->ndim) / p->num_outputs) *
                 ps_dtype_size(plan->dtype);
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    int64_t rows;
    size_t bytes, count = (size_t)plan->op->output_count;
    PS_UNUSED(err);
    pieces(plan, &rows, &bytes);
    for (size_t i = 0; i < count && bytes > 0; i++) {
        for (size_t r = 0; r < (size_t)rows; r++) {
            memcpy((char *)run->out[i].data + r * bytes,
                   (const char *)run->in[0].data + (r * count + i) * bytes, bytes);
        }
    }
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    int64_t rows;
    size_t bytes, count = (size_t)plan->op->output_count;
    size_t elements;
    PS_UNUSED(err);
    pieces(plan, &rows, &bytes);
    elements = bytes / ps_dtype_size(plan->dtype);
    for (size_t i = 0; i < count && bytes > 0 && ps_wants(run, 0); i++) {
        for (size_t r = 0; r < (size_t)rows; r++) {
            char *dst = (char *)run->in_grad[0].data + (r * count + i) * bytes;
            const char *src = (const char *)run->out_grad[i].data + r * bytes;
            if (ps_adds(run, 0)) {
                ps_reduce_accumulate(dst, src, plan->dtype, elements);
            } else {
                memcpy(dst, src, bytes);
            }
        }
    }
    return PS_OK;
}

/* All head gradients; ps_needs_head asks for the first only. */
static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(op);
    PS_UNUSED(i);
    return slot == PS_SLOT_OUT_GRAD;
}

const struct ps_op_def ps_ops_slice_channel[] = {
    {.name = "SliceChannel",
     .aliases = {"split"},
     .flags = PS_OP_VARIABLE_OUTPUTS | PS_OP_CHEAP | PS_OP_ADDS_EXACTLY,
     .params_bytes = sizeof(struct slice_params),
     .attrs = attrs,
     .inputs = {"data"},
     .infer_shape = infer_shape,
     .needs = needs,
     .forward = forward,
     .backward = backward,
     .any_dtype = true},
};
const size_t ps_ops_slice_channel_count = PS_COUNT(ps_ops_slice_channel);
