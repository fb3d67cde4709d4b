/* Operators that keep the bytes (Flatten, Reshape, identity, BlockGrad, MakeLoss,
 * _identity_with_attr_like_rhs), make constants (_zeros, _ones, zeros_like, ones_like) or
 * change the dtype (Cast).
 * Exact for every dtype; in place where the bytes stay.  Shape rules: kernels/shape/
 * shape_infer.c. */
#include "kernels/reduce.h"
#include "kernels/registry.h"
#include "kernels/shape/shape_infer.h"

#include <string.h>

static enum ps_status copy_forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                                   struct ps_error *err)
{
    size_t bytes = ps_view_bytes(&run->out[0]);
    PS_UNUSED(plan);
    PS_UNUSED(err);
    if (bytes > 0 && run->out[0].data != run->in[0].data) {
        memcpy(run->out[0].data, run->in[0].data, bytes);
    }
    return PS_OK;
}

static enum ps_status copy_backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                                    struct ps_error *err)
{
    PS_UNUSED(err);
    ps_grad_copy(run, 0, run->out_grad[0].data);
    for (int i = 1; i < plan->op->input_count; i++) {
        ps_grad_zero(run, i);
    }
    return PS_OK;
}

/* ---- MakeLoss: the gradient is a constant ---- */

enum { NORM_NULL, NORM_BATCH, NORM_VALID };

struct make_loss_params {
    double grad_scale, valid_thresh;
    int normalization;
};

static const struct ps_attr_row make_loss_attrs[] = {
    {"grad_scale", PS_ATTR_REAL, offsetof(struct make_loss_params, grad_scale), "1",
     -1e38, 1e38, NULL},
    {"valid_thresh", PS_ATTR_REAL, offsetof(struct make_loss_params, valid_thresh), "0",
     -1e38, 1e38, NULL},
    {"normalization", PS_ATTR_CHOICE, offsetof(struct make_loss_params, normalization),
     "null", 0, 0, "null|batch|valid"},
    PS_ATTR_END};

static double value_at(const struct ps_view *view, int64_t i)
{
    return view->dtype == PS_F64 ? ((const double *)view->data)[i]
                                 : (double)((const float *)view->data)[i];
}

static void add_constant(const struct ps_view *view, double value, bool add)
{
    int64_t n = ps_shape_count(&view->shape);
    for (int64_t i = 0; i < n && view->dtype == PS_F64; i++) {
        double *d = view->data;
        d[i] = add ? d[i] + value : value;
    }
    for (int64_t i = 0; i < n && view->dtype == PS_F32; i++) {
        float *d = view->data;
        d[i] = add ? d[i] + (float)value : (float)value;
    }
}

static enum ps_status make_loss_backward(struct ps_op_plan *plan,
                                         const struct ps_op_run *run,
                                         struct ps_error *err)
{
    const struct make_loss_params *p = plan->op->params;
    int64_t n = ps_shape_count(&plan->in[0]), divisor = 1;
    PS_UNUSED(err);
    if (!ps_wants(run, 0)) {
        return PS_OK;
    }
    if (p->normalization == NORM_BATCH && plan->in[0].ndim > 0) {
        divisor = plan->in[0].dim[0];
    } else if (p->normalization == NORM_VALID) {
        divisor = 0;
        for (int64_t i = 0; i < n; i++) {
            divisor += value_at(&run->in[0], i) > p->valid_thresh ? 1 : 0;
        }
    }
    add_constant(&run->in_grad[0], p->grad_scale / (double)PS_MAX(divisor, 1),
                 ps_adds(run, 0));
    return PS_OK;
}

static bool make_loss_needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    const struct make_loss_params *p = op->params;
    PS_UNUSED(i);
    return slot == PS_SLOT_INPUT && p->normalization == NORM_VALID;
}

/* ---- constants ---- */

static const struct ps_attr_row fill_attrs[] = {
    {"shape", PS_ATTR_TUPLE, offsetof(struct ps_fill_params, shape), "()", 0, 1e15, NULL},
    {"dtype", PS_ATTR_DTYPE, offsetof(struct ps_fill_params, dtype), "float32", 0, 0,
     NULL},
    {"ctx", PS_ATTR_IGNORED, 0, "", 0, 0, NULL},
    PS_ATTR_END};

static enum ps_status fill_dtype(const struct ps_op *op, int in[], int out[], int aux[],
                                 struct ps_error *err)
{
    const struct ps_fill_params *p = op->params;
    PS_UNUSED(in);
    PS_UNUSED(aux);
    if (out[0] != PS_DTYPE_UNKNOWN && out[0] != p->dtype) {
        return PS_OP_FAIL(op, err, PS_EDTYPE, "output has dtype %s, expected %s",
                          ps_dtype_name(out[0]), ps_dtype_name(p->dtype));
    }
    out[0] = p->dtype;
    return PS_OK;
}

/* The variant is the value: 0 or 1. */
static enum ps_status fill_forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                                   struct ps_error *err)
{
    size_t size = ps_dtype_size(run->out[0].dtype), bytes = ps_view_bytes(&run->out[0]);
    const float one = 1.0F;
    char *out = run->out[0].data;
    PS_UNUSED(err);
    if (bytes == 0) {
        return PS_OK;
    }
    memset(out, 0, bytes);
    if (plan->op->def->variant == 1) {
        PS_TRY(ps_convert(out, run->out[0].dtype, &one, PS_F32, 1));
        for (size_t i = size; i < bytes; i += size) {
            memcpy(out + i, out, size);
        }
    }
    return PS_OK;
}

/* ---- Cast ---- */

struct cast_params {
    int dtype;
};

static const struct ps_attr_row cast_attrs[] = {
    {"dtype", PS_ATTR_DTYPE, offsetof(struct cast_params, dtype), NULL, 0, 0, NULL},
    PS_ATTR_END};

static enum ps_status cast_dtype(const struct ps_op *op, int in[], int out[], int aux[],
                                 struct ps_error *err)
{
    const struct cast_params *p = op->params;
    PS_UNUSED(in);
    PS_UNUSED(aux);
    if (out[0] != PS_DTYPE_UNKNOWN && out[0] != p->dtype) {
        return PS_OP_FAIL(op, err, PS_EDTYPE, "output has dtype %s, expected %s",
                          ps_dtype_name(out[0]), ps_dtype_name(p->dtype));
    }
    out[0] = p->dtype;
    return PS_OK;
}

static enum ps_status cast_forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                                   struct ps_error *err)
{
    PS_UNUSED(err);
    return ps_convert(run->out[0].data, plan->out_dtype[0], run->in[0].data,
                      plan->in_dtype[0], (size_t)ps_shape_count(&plan->in[0]));
}

/* Block by block, so that ADD needs no workspace. */
static enum ps_status cast_backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                                    struct ps_error *err)
{
    enum { BLOCK = 256 };
    double block[BLOCK];
    size_t n = (size_t)ps_shape_count(&plan->in[0]);
    size_t from = ps_dtype_size(plan->out_dtype[0]),
           to = ps_dtype_size(plan->in_dtype[0]);
    PS_UNUSED(err);
    for (size_t i = 0; i < n && ps_wants(run, 0); i += BLOCK) {
        size_t m = PS_MIN(n - i, (size_t)BLOCK);
        const char *g = (const char *)run->out_grad[0].data + i * from;
        char *dx = (char *)run->in_grad[0].data + i * to;
        if (!ps_adds(run, 0)) {
            PS_TRY(ps_convert(dx, plan->in_dtype[0], g, plan->out_dtype[0], m));
            continue;
        }
        PS_TRY(ps_convert(block, plan->in_dtype[0], g, plan->out_dtype[0], m));
        ps_reduce_accumulate(dx, block, plan->in_dtype[0], m);
    }
    return PS_OK;
}

/* ---- the table ---- */

#define SHAPE_OP(text, op_flags, infer, ...)                                   \
    .name = text, .aliases = {__VA_ARGS__}, .flags = PS_OP_CHEAP | (op_flags), \
    .inputs = {"data"}, .outputs = {"output"}, .infer_shape = (infer), .any_dtype = true
#define SAME_BYTES                                                            \
    .inplace_forward = ps_inplace_first, .inplace_backward = ps_inplace_head, \
    .needs = ps_needs_head, .forward = copy_forward, .backward = copy_backward

const struct ps_op_def ps_ops_shape[] = {
    {SHAPE_OP("Flatten", PS_OP_IDENTITY | PS_OP_ADDS_EXACTLY, ps_shape_infer_flatten,
              "flatten"),
     SAME_BYTES},
    {SHAPE_OP("Reshape", PS_OP_IDENTITY | PS_OP_ADDS_EXACTLY, ps_shape_infer_reshape,
              "reshape"),
     SAME_BYTES, .params_bytes = sizeof(struct ps_reshape_params),
     .attrs = ps_reshape_attrs},
    {SHAPE_OP("_copy", PS_OP_IDENTITY | PS_OP_ADDS_EXACTLY, ps_infer_same, "identity",
              "_CrossDeviceCopy"),
     SAME_BYTES},
    {SHAPE_OP("BlockGrad", PS_OP_IDENTITY | PS_OP_ZERO_GRAD, ps_infer_same,
              "stop_gradient"),
     .inplace_forward = ps_inplace_first, .forward = copy_forward},
    {SHAPE_OP("MakeLoss", PS_OP_IDENTITY | PS_OP_LOSS_HEAD, ps_infer_same, "make_loss"),
     .params_bytes = sizeof(struct make_loss_params), .attrs = make_loss_attrs,
     .inplace_forward = ps_inplace_first, .needs = make_loss_needs,
     .forward = copy_forward, .backward = make_loss_backward},
    {.name = "_identity_with_attr_like_rhs",
     .flags = PS_OP_CHEAP | PS_OP_IDENTITY,
     .inputs = {"lhs", "rhs"},
     .outputs = {"output"},
     .infer_shape = ps_infer_same,
     .differentiable = ps_differentiable_first,
     .any_dtype = true,
     SAME_BYTES},
    {SHAPE_OP("Cast", 0, ps_infer_same, "cast"),
     .params_bytes = sizeof(struct cast_params), .attrs = cast_attrs,
     .infer_dtype = cast_dtype, .needs = ps_needs_head, .forward = cast_forward,
     .backward = cast_backward},
    {SHAPE_OP("zeros_like", PS_OP_ZERO_GRAD, ps_infer_same, NULL), .variant = 0,
     .forward = fill_forward},
    {SHAPE_OP("ones_like", PS_OP_ZERO_GRAD, ps_infer_same, NULL), .variant = 1,
     .forward = fill_forward},
    {.name = "_zeros",
     .flags = PS_OP_CHEAP | PS_OP_ZERO_GRAD,
     .variant = 0,
     .params_bytes = sizeof(struct ps_fill_params),
     .attrs = fill_attrs,
     .outputs = {"output"},
     .infer_shape = ps_shape_infer_fill,
     .infer_dtype = fill_dtype,
     .forward = fill_forward,
     .any_dtype = true},
    {.name = "_ones",
     .flags = PS_OP_CHEAP | PS_OP_ZERO_GRAD,
     .variant = 1,
     .params_bytes = sizeof(struct ps_fill_params),
     .attrs = fill_attrs,
     .outputs = {"output"},
     .infer_shape = ps_shape_infer_fill,
     .infer_dtype = fill_dtype,
     .forward = fill_forward,
     .any_dtype = true},
};
const size_t ps_ops_shape_count = PS_COUNT(ps_ops_shape);
