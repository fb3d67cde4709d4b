/* Convolution(kernel, stride, dilate, pad, num_filter, num_group, no_bias), 1-D and 2-D.
 *     letters: N batch, C channels in, O filters, G groups, [H,W] image, [P,Q] output,
 *              [R,S] kernel
 *   data [N,C,H,W] f32/f64, weight [O,C/G,R,S], bias [O], output [N,O,P,Q]; 1-D: H = R =
 * 1 P = (H + 2 pad - dilate (R - 1) - 1) / stride + 1 f32 through oneDNN where it is
 * built in and on; else plain code (conv_plain.c). Deterministic for a thread count.
 * Tolerance 1e-4 relative. */
#include "kernels/conv/conv.h"

#include "kernels/context.h"
#include "kernels/registry.h"

#include <stdlib.h>

enum { DATA, WEIGHT, BIAS };

struct conv_params {
    struct ps_shape kernel, stride, dilate, pad;
    int64_t num_filter, num_group;
    bool no_bias;
    int layout;
};

#define TUPLE(name, text, min)                                                        \
    {                                                                                 \
#name, PS_ATTR_TUPLE, offsetof(struct conv_params, name), text, min, 1 << 20, \
            NULL                                                                      \
    }
static const struct ps_attr_row attrs[] = {
    TUPLE(kernel, NULL, 1),
    TUPLE(stride, "()", 1),
    TUPLE(dilate, "()", 1),
    TUPLE(pad, "()", 0),
    {"num_filter", PS_ATTR_INT, offsetof(struct conv_params, num_filter), NULL, 1, 1e9,
     NULL},
    {"num_group", PS_ATTR_INT, offsetof(struct conv_params, num_group), "1", 1, 8192,
     NULL},
    {"no_bias", PS_ATTR_BOOL, offsetof(struct conv_params, no_bias), "False", 0, 0, NULL},
    {"layout", PS_ATTR_CHOICE, offsetof(struct conv_params, layout), "None", 0, 0,
     "None|NCHW|NCW"},
    {"workspace", PS_ATTR_IGNORED, 0, "", 0, 0, NULL},
    {"cudnn_tune", PS_ATTR_IGNORED, 0, "", 0, 0, NULL},
    {"cudnn_off", PS_ATTR_IGNORED, 0, "", 0, 0, NULL},
    PS_ATTR_END};
#undef TUPLE

static enum ps_status fill(struct ps_op *op, const char *name, struct ps_shape *tuple,
                           int dims, int64_t value, struct ps_error *err)
{
    if (tuple->ndim == 0) {
        for (int i = 0; i < dims; i++) {
            tuple->dim[i] = value;
        }
        tuple->ndim = dims;
    }
    if (tuple->ndim != dims) {
        return PS_OP_FAIL(op, err, PS_EINVAL,
                          "attribute %s has %d elements, kernel has %d", name,
                          tuple->ndim, dims);
    }
    return PS_OK;
}

static enum ps_status finish(struct ps_op *op, struct ps_error *err)
{
    struct conv_params *p = op->params;
    int dims = p->kernel.ndim;
    if (dims < 1 || dims > 2) {
        return PS_OP_FAIL(op, err, PS_EUNSUPPORTED,
                          "kernel of %d dims; 1 and 2 are supported", dims);
    }
    PS_TRY(fill(op, "stride", &p->stride, dims, 1, err));
    PS_TRY(fill(op, "dilate", &p->dilate, dims, 1, err));
    PS_TRY(fill(op, "pad", &p->pad, dims, 0, err));
    if (p->num_filter % p->num_group != 0) {
        return PS_OP_FAIL(op, err, PS_EINVAL,
                          "num_filter %lld is no multiple of num_group %lld",
                          (long long)p->num_filter, (long long)p->num_group);
    }
    op->input_count = p->no_bias ? 2 : 3;
    return PS_OK;
}

static enum ps_status infer_image(const struct ps_op *op, const struct ps_shape *data,
                                  struct ps_shape *out, struct ps_error *err)
{
    const struct conv_params *p = op->params;
    for (int i = 0; i < p->kernel.ndim; i++) {
        int64_t size = data->dim[i + 2], reach;
        reach = p->dilate.dim[i] * (p->kernel.dim[i] - 1) + 1;
        out->dim[i + 2] = -1;
        if (size < 0) {
            continue;
        }
        if (size + 2 * p->pad.dim[i] < reach) {
            return PS_OP_FAIL(op, err, PS_ESHAPE,
                              "kernel reaches over %lld, padded data has %lld in dim %d",
                              (long long)reach, (long long)(size + 2 * p->pad.dim[i]),
                              i + 2);
        }
        out->dim[i + 2] = (size + 2 * p->pad.dim[i] - reach) / p->stride.dim[i] + 1;
    }
    return PS_OK;
}

static enum ps_status infer_shape(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err)
{
    const struct conv_params *p = op->params;
    int ndim = p->kernel.ndim + 2;
    struct ps_shape weight = {.ndim = ndim}, bias = PS_SHAPE(p->num_filter);
    struct ps_shape image = {.ndim = ndim};
    struct ps_shape any = {.ndim = ndim, .dim = {-1, -1, -1, -1, -1, -1, -1, -1}};
    PS_UNUSED(aux);
    if (in[DATA].ndim < 0 && out[0].ndim < 0 && in[WEIGHT].ndim < 0) {
        in[DATA] = any;
    }
    PS_TRY(ps_infer_merge(op, "data", &in[DATA], &any, err));
    int64_t c = in[DATA].dim[1];
    if (c >= 0 && c % p->num_group != 0) {
        return PS_OP_FAIL(op, err, PS_ESHAPE,
                          "%lld channels are no multiple of num_group %lld", (long long)c,
                          (long long)p->num_group);
    }
    weight.dim[0] = p->num_filter;
    weight.dim[1] = c < 0 ? -1 : c / p->num_group;
    for (int i = 0; i < p->kernel.ndim; i++) {
        weight.dim[i + 2] = p->kernel.dim[i];
    }
    PS_TRY(ps_infer_merge(op, "weight", &in[WEIGHT], &weight, err));
    if (in[WEIGHT].dim[1] >= 0) {
        PS_TRY(ps_infer_dim(op, "data", &in[DATA], 1, in[WEIGHT].dim[1] * p->num_group,
                            err));
    }
    if (!p->no_bias) {
        PS_TRY(ps_infer_merge(op, "bias", &in[BIAS], &bias, err));
    }
    image.dim[0] = in[DATA].dim[0];
    image.dim[1] = p->num_filter;
    PS_TRY(infer_image(op, &in[DATA], &image, err));
    PS_TRY(ps_infer_merge(op, "output", &out[0], &image, err));
    /* with a stride of 1 the output says how large the data is */
    for (int i = 0; i < p->kernel.ndim; i++) {
        int64_t reach = p->dilate.dim[i] * (p->kernel.dim[i] - 1) - 2 * p->pad.dim[i];
        int64_t side = out[0].dim[i + 2] + reach;
        if (p->stride.dim[i] == 1 && out[0].dim[i + 2] >= 0 && side > 0) {
            PS_TRY(ps_infer_dim(op, "data", &in[DATA], i + 2, side, err));
        }
    }
    return ps_infer_dim(op, "data", &in[DATA], 0, out[0].dim[0], err);
}

static struct ps_conv_geometry geometry_of(const struct ps_op_plan *plan)
{
    const struct conv_params *p = plan->op->params;
    const struct ps_shape *d = &plan->in[DATA], *o = &plan->out[0];
    int last = p->kernel.ndim - 1; /* W; H is the one before, where there is one */
    bool flat = last == 0;
    return (struct ps_conv_geometry){
        .n = d->dim[0],
        .c = d->dim[1],
        .h = flat ? 1 : d->dim[2],
        .w = d->dim[last + 2],
        .o = p->num_filter,
        .oh = flat ? 1 : o->dim[2],
        .ow = o->dim[last + 2],
        .kh = flat ? 1 : p->kernel.dim[0],
        .kw = p->kernel.dim[last],
        .group = p->num_group,
        .stride_h = flat ? 1 : p->stride.dim[0],
        .stride_w = p->stride.dim[last],
        .pad_h = flat ? 0 : p->pad.dim[0],
        .pad_w = p->pad.dim[last],
        .dilate_h = flat ? 1 : p->dilate.dim[0],
        .dilate_w = p->dilate.dim[last],
        .bias = !p->no_bias,
    };
}

struct conv_state {
    struct ps_conv_geometry geometry;
    struct ps_onednn_conv *onednn; /* NULL: plain code */
};

static enum ps_status prepare(struct ps_op_plan *plan, struct ps_error *err)
{
    struct conv_state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        return PS_OP_FAIL(plan->op, err, PS_ENOMEM, "out of memory");
    }
    plan->state = state;
    state->geometry = geometry_of(plan);
    if (plan->dtype == PS_F32 && plan->kernels->onednn != NULL &&
        ps_shape_count(&plan->in[DATA]) > 0) {
        state->onednn = ps_onednn_conv_create(
            plan->kernels->onednn, &state->geometry, plan->training, plan->threads,
            &plan->workspace_forward, &plan->workspace_backward);
    }
    if (state->onednn == NULL) {
        size_t bytes;
        if (!ps_conv_plain_workspace(&state->geometry, plan->dtype, &bytes)) {
            return PS_OP_FAIL(plan->op, err, PS_ENOMEM, "the column buffer is too large");
        }
        plan->workspace_forward = bytes;
        plan->workspace_backward = plan->training ? bytes : 0;
    }
    return PS_OK;
}

static void destroy(struct ps_op_plan *plan)
{
    struct conv_state *state = plan->state;
    if (state != NULL) {
        ps_onednn_conv_destroy(state->onednn);
        free(state);
    }
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    const struct conv_state *state = plan->state;
    if (state->onednn != NULL) {
        if (ps_onednn_conv_forward(state->onednn, run) != PS_OK) {
            return PS_OP_FAIL(plan->op, err, PS_EINTERNAL, "oneDNN failed in forward");
        }
        return PS_OK;
    }
    ps_conv_plain_forward(plan, &state->geometry, run);
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    const struct conv_state *state = plan->state;
    if (state->onednn != NULL) {
        if (ps_onednn_conv_backward(state->onednn, run) != PS_OK) {
            return PS_OP_FAIL(plan->op, err, PS_EINTERNAL, "oneDNN failed in backward");
        }
        return PS_OK;
    }
    ps_conv_plain_backward(plan, &state->geometry, run);
    return PS_OK;
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(op);
    return slot == PS_SLOT_OUT_GRAD || (slot == PS_SLOT_INPUT && i != BIAS);
}

const struct ps_op_def ps_ops_conv[] = {{
    .name = "Convolution",
    .aliases = {"Convolution_v1"},
    .params_bytes = sizeof(struct conv_params),
    .attrs = attrs,
    .inputs = {"data", "weight", "bias"},
    .outputs = {"output"},
    .finish = finish,
    .infer_shape = infer_shape,
    .needs = needs,
    .prepare = prepare,
    .destroy = destroy,
    .forward = forward,
    .backward = backward,
}};
const size_t ps_ops_conv_count = PS_COUNT(ps_ops_conv);
