/* Pieces of shape inference and of the planner's answers that many families share.
 * Threads: pure. */
#include "kernels/op_def.h"

enum ps_status ps_infer_merge(const struct ps_op *op, const char *what,
                              struct ps_shape *into, const struct ps_shape *from,
                              struct ps_error *err)
{
    char a[PS_SHAPE_TEXT_BYTES], b[PS_SHAPE_TEXT_BYTES];
    if (ps_shape_merge(into, from) != PS_OK) {
        return PS_OP_FAIL(op, err, PS_ESHAPE, "%s has shape %.80s, expected %.80s", what,
                          ps_shape_text(into, a), ps_shape_text(from, b));
    }
    return PS_OK;
}

enum ps_status ps_infer_dim(const struct ps_op *op, const char *what,
                            struct ps_shape *shape, int dim, int64_t value,
                            struct ps_error *err)
{
    char text[PS_SHAPE_TEXT_BYTES];
    if (value < 0 || shape->ndim < 0) {
        return PS_OK;
    }
    if (dim >= shape->ndim || (shape->dim[dim] >= 0 && shape->dim[dim] != value)) {
        return PS_OP_FAIL(op, err, PS_ESHAPE,
                          "%s has shape %.80s, expected %lld in dim %d", what,
                          ps_shape_text(shape, text), (long long)value, dim);
    }
    shape->dim[dim] = value;
    return PS_OK;
}

enum ps_status ps_infer_same(const struct ps_op *op, struct ps_shape in[],
                             struct ps_shape out[], struct ps_shape aux[],
                             struct ps_error *err)
{
    struct ps_shape all = PS_SHAPE_UNKNOWN;
    PS_UNUSED(aux);
    for (int i = 0; i < op->input_count; i++) {
        PS_TRY(ps_infer_merge(op, ps_op_input_name(op, i), &all, &in[i], err));
    }
    for (int i = 0; i < op->output_count; i++) {
        PS_TRY(ps_infer_merge(op, ps_op_output_name(op, i), &all, &out[i], err));
    }
    for (int i = 0; i < op->input_count; i++) {
        in[i] = all;
    }
    for (int i = 0; i < op->output_count; i++) {
        out[i] = all;
    }
    return PS_OK;
}

int64_t ps_shape_product(const struct ps_shape *shape, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++) {
        if (shape->dim[i] < 0 || __builtin_mul_overflow(n, shape->dim[i], &n)) {
            return -1;
        }
    }
    return n;
}

enum ps_status ps_infer_axis(const struct ps_op *op, int64_t axis, int ndim,
                             int *axis_out, struct ps_error *err)
{
    if (axis < -ndim || axis >= ndim) {
        return PS_OP_FAIL(op, err, PS_ESHAPE, "axis %lld outside a tensor of %d dims",
                          (long long)axis, ndim);
    }
    *axis_out = (int)(axis < 0 ? axis + ndim : axis);
    return PS_OK;
}

bool ps_needs_head(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(op);
    return slot == PS_SLOT_OUT_GRAD && i == 0;
}

bool ps_needs_head_output(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(op);
    return (slot == PS_SLOT_OUT_GRAD || slot == PS_SLOT_OUTPUT) && i == 0;
}

bool ps_needs_head_inputs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(op);
    return slot == PS_SLOT_INPUT || (slot == PS_SLOT_OUT_GRAD && i == 0);
}

bool ps_differentiable_first(const struct ps_op *op, int i)
{
    PS_UNUSED(op);
    return i == 0;
}

int ps_inplace_first(const struct ps_op *op, struct ps_inplace *pairs)
{
    PS_UNUSED(op);
    pairs[0] = (struct ps_inplace){PS_SLOT_INPUT, 0, 0};
    return 1;
}

int ps_inplace_head(const struct ps_op *op, struct ps_inplace *pairs)
{
    PS_UNUSED(op);
    pairs[0] = (struct ps_inplace){PS_SLOT_OUT_GRAD, 0, 0};
    return 1;
}
