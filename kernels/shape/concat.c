/* Concat(num_args, dim): tensors joined along one axis.
 *   in_k [A, c_k, B], output [A, sum of c_k, B], where A, B are the dims before and after
 * Copies of rows; exact for every dtype. */
#include "kernels/reduce.h"
#include "kernels/registry.h"

#include <string.h>

struct concat_params {
    int64_t num_args; /* first: op.c reads it */
    int64_t dim;
};

static const struct ps_attr_row attrs[] = {
    {"num_args", PS_ATTR_INT, offsetof(struct concat_params, num_args), NULL, 1,
     PS_OP_MAX_INPUTS, NULL},
    {"dim", PS_ATTR_INT, offsetof(struct concat_params, dim), "1", -PS_MAX_DIM,
     PS_MAX_DIM - 1, NULL},
    PS_ATTR_END};

/* Everything but the joined axis is common to all. */
static enum ps_status merge_common(const struct ps_op *op, const char *what,
                                   struct ps_shape *common, const struct ps_shape *shape,
                                   int axis, struct ps_error *err)
{
    struct ps_shape other = *shape;
    if (other.ndim > axis) {
        other.dim[axis] = -1;
    }
    return ps_infer_merge(op, what, common, &other, err);
}

static int first_known(const struct ps_op *op, const struct ps_shape in[],
                       const struct ps_shape *out)
{
    for (int i = 0; i < op->input_count; i++) {
        if (in[i].ndim >= 0) {
            return in[i].ndim;
        }
    }
    return out->ndim;
}

/* The joined axis: the output's is the sum; one missing input's is the rest. */
static enum ps_status infer_joined(const struct ps_op *op, struct ps_shape in[],
                                   struct ps_shape *out, int axis, struct ps_error *err)
{
    int64_t sum = 0;
    int missing = -1, missing_count = 0;
    for (int i = 0; i < op->input_count; i++) {
        if (in[i].dim[axis] < 0) {
            missing = i;
            missing_count++;
        } else if (__builtin_add_overflow(sum, in[i].dim[axis], &sum)) {
            return PS_OP_FAIL(op, err, PS_ESHAPE, "dim %d is too large", axis);
        }
    }
    if (missing_count == 0) {
        return ps_infer_dim(op, "output", out, axis, sum, err);
    }
    if (missing_count == 1 && out->dim[axis] >= 0) {
        if (out->dim[axis] < sum) {
            return PS_OP_FAIL(op, err, PS_ESHAPE,
                              "output has %lld in dim %d, inputs %lld",
                              (long long)out->dim[axis], axis, (long long)sum);
        }
        in[missing].dim[axis] = out->dim[axis] - sum;
    }
    return PS_OK;
}

static enum ps_status infer_shape(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err)
{
    const struct concat_params *p = op->params;
    struct ps_shape common = PS_SHAPE_UNKNOWN;
    int axis, ndim = first_known(op, in, &out[0]);
    PS_UNUSED(aux);
    if (ndim < 0) {
        return PS_OK;
    }
    PS_TRY(ps_infer_axis(op, p->dim, ndim, &axis, err));
    for (int i = 0; i < op->input_count; i++) {
        PS_TRY(merge_common(op, ps_op_input_name(op, i), &common, &in[i], axis, err));
    }
    PS_TRY(merge_common(op, "output", &common, &out[0], axis, err));
    for (int i = 0; i < op->input_count; i++) {
        PS_TRY(ps_infer_merge(op, ps_op_input_name(op, i), &in[i], &common, err));
    }
    PS_TRY(ps_infer_merge(op, "output", &out[0], &common, err));
    return infer_joined(op, in, &out[0], axis, err);
}

/* Bytes of one row of tensor [A, c, B]: c * B elements. */
static size_t row_bytes(const struct ps_op_plan *plan, const struct ps_shape *shape,
                        int axis)
{
    return (size_t)ps_shape_product(shape, axis, shape->ndim) *
           ps_dtype_size(plan->dtype);
}

static int axis_of(const struct ps_op_plan *plan)
{
    int64_t dim = ((const struct concat_params *)plan->op->params)->dim;
    return (int)(dim < 0 ? dim + plan->out[0].ndim : dim);
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    int axis = axis_of(plan);
    int64_t rows = ps_shape_product(&plan->out[0], 0, axis);
    size_t out_row = row_bytes(plan, &plan->out[0], axis), off = 0;
    PS_UNUSED(err);
    for (int i = 0; i < plan->op->input_count; i++) {
        size_t in_row = row_bytes(plan, &plan->in[i], axis);
        for (int64_t r = 0; r < rows && in_row > 0; r++) {
            memcpy((char *)run->out[0].data + (size_t)r * out_row + off,
                   (const char *)run->in[i].data + (size_t)r * in_row, in_row);
        }
        off += in_row;
    }
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    int axis = axis_of(plan);
    int64_t rows = ps_shape_product(&plan->out[0], 0, axis);
    size_t out_row = row_bytes(plan, &plan->out[0], axis), off = 0;
    size_t size = ps_dtype_size(plan->dtype);
    PS_UNUSED(err);
    for (int i = 0; i < plan->op->input_count; i++) {
        size_t in_row = row_bytes(plan, &plan->in[i], axis);
        for (int64_t r = 0; r < rows && in_row > 0 && ps_wants(run, i); r++) {
            char *dst = (char *)run->in_grad[i].data + (size_t)r * in_row;
            const char *src =
                (const char *)run->out_grad[0].data + (size_t)r * out_row + off;
            if (ps_adds(run, i)) {
                ps_reduce_accumulate(dst, src, plan->dtype, in_row / size);
            } else {
                memcpy(dst, src, in_row);
            }
        }
        off += in_row;
    }
    return PS_OK;
}

const struct ps_op_def ps_ops_concat[] = {
    {.name = "Concat",
     .aliases = {"concat"},
     .flags = PS_OP_VARIABLE_INPUTS | PS_OP_ADDS_EXACTLY,
     .params_bytes = sizeof(struct concat_params),
     .attrs = attrs,
     .outputs = {"output"},
     .infer_shape = infer_shape,
     .needs = ps_needs_head,
     .forward = forward,
     .backward = backward,
     .any_dtype = true},
};
const size_t ps_ops_concat_count = PS_COUNT(ps_ops_concat);
