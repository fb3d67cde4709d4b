/* Convolution through oneDNN 2.x.  Each direction (forward, data gradient, weight
 * gradient) is a stage (kernels/onednn_stage.h) with layouts of the library's choice.
 * The data gradient is added (ADD) by its reorder where it has one; the dense temporary
 * of a stage takes any other that must be added, or that is not wanted but comes with the
 * other (weight and bias).  Algorithm: direct, for its
 * accuracy.  Deterministic for a thread count.  Thread: the plan's. */
#include "kernels/onednn.h"

#include "kernels/onednn_stage.h"

#include <stdlib.h>

enum { DATA, WEIGHT, BIAS };

struct ps_onednn_conv {
    struct ps_onednn_lane lane;
    dnnl_memory_desc_t data, weight, bias, out; /* dense */
    bool has_bias, training;
    struct ps_onednn_stage forward, backward_data, backward_weight;
};

void ps_onednn_conv_destroy(struct ps_onednn_conv *conv)
{
    if (conv == NULL) {
        return;
    }
    ps_onednn_stage_fini(&conv->forward);
    ps_onednn_stage_fini(&conv->backward_data);
    ps_onednn_stage_fini(&conv->backward_weight);
    ps_onednn_lane_fini(&conv->lane);
    free(conv);
}

static enum ps_status dense_desc(dnnl_memory_desc_t *desc, int ndims,
                                 const dnnl_dim_t *dims, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(desc, ndims, dims, dnnl_f32, tag) == dnnl_success
               ? PS_OK
               : PS_EUNSUPPORTED;
}

static enum ps_status describe(struct ps_onednn_conv *conv,
                               const struct ps_conv_geometry *g)
{
    dnnl_dims_t data = {g->n, g->c, g->h, g->w}, out = {g->n, g->o, g->oh, g->ow};
    dnnl_dims_t weight = {g->o, g->c, g->kh, g->kw}, bias = {g->o};
    dnnl_dims_t grouped = {g->group, g->o / g->group, g->c / g->group, g->kh, g->kw};
    PS_TRY(dense_desc(&conv->data, 4, data, dnnl_nchw));
    PS_TRY(dense_desc(&conv->out, 4, out, dnnl_nchw));
    PS_TRY(dense_desc(&conv->bias, 1, bias, dnnl_x));
    return g->group > 1 ? dense_desc(&conv->weight, 5, grouped, dnnl_goihw)
                        : dense_desc(&conv->weight, 4, weight, dnnl_oihw);
}

struct convolution {
    dnnl_dims_t strides, dilates, left, right;
    dnnl_memory_desc_t data, weight, out; /* any layout */
};

static enum ps_status convolution_init(struct convolution *c,
                                       const struct ps_onednn_conv *conv,
                                       const struct ps_conv_geometry *g)
{
    int64_t reach_h = (g->oh - 1) * g->stride_h + g->dilate_h * (g->kh - 1) + 1;
    int64_t reach_w = (g->ow - 1) * g->stride_w + g->dilate_w * (g->kw - 1) + 1;
    *c = (struct convolution){
        .strides = {g->stride_h, g->stride_w},
        .dilates = {g->dilate_h - 1, g->dilate_w - 1},
        .left = {g->pad_h, g->pad_w},
        /* what the last window reaches over, less than the pad where stride skips it */
        .right = {reach_h - g->h - g->pad_h, reach_w - g->w - g->pad_w},
    };
    PS_TRY(ps_onednn_any_layout(&conv->data, &c->data));
    PS_TRY(ps_onednn_any_layout(&conv->weight, &c->weight));
    return ps_onednn_any_layout(&conv->out, &c->out);
}

static const dnnl_memory_desc_t *bias_of(const struct ps_onednn_conv *conv)
{
    return conv->has_bias ? &conv->bias : NULL;
}

static void add_bias(const struct ps_onednn_conv *conv,
                     struct ps_onednn_stage_shape *shape, int slot)
{
    if (conv->has_bias) {
        shape->extra_count = 1;
        shape->extra_slot[0] = slot;
        shape->extra[0] = &conv->bias;
    }
}

static enum ps_status init_forward(struct ps_onednn_conv *conv, struct convolution *c,
                                   dnnl_primitive_desc_t *pd_out)
{
    enum ps_status status = PS_OK;
    dnnl_convolution_desc_t desc;
    struct ps_onednn_stage_shape shape = {.a = dnnl_query_src_md,
                                          .b = dnnl_query_weights_md,
                                          .result = dnnl_query_dst_md,
                                          .a_slot = DNNL_ARG_SRC,
                                          .b_slot = DNNL_ARG_WEIGHTS,
                                          .result_slot = DNNL_ARG_DST,
                                          .a_dense = &conv->data,
                                          .b_dense = &conv->weight,
                                          .result_dense = &conv->out};
    add_bias(conv, &shape, DNNL_ARG_BIAS);
    PS_DNNL_GOTO(status,
                 dnnl_dilated_convolution_forward_desc_init(
                     &desc,
                     conv->training ? dnnl_forward_training : dnnl_forward_inference,
                     dnnl_convolution_direct, &c->data, &c->weight, bias_of(conv),
                     &c->out, c->strides, c->dilates, c->left, c->right),
                 done);
    PS_DNNL_GOTO(status,
                 dnnl_primitive_desc_create(pd_out, &desc, conv->lane.attr,
                                            conv->lane.engine, NULL),
                 done);
    status = ps_onednn_stage_init(&conv->lane, &conv->forward, *pd_out, &shape);
done:
    return status;
}

static enum ps_status init_backward_data(struct ps_onednn_conv *conv,
                                         struct convolution *c,
                                         const_dnnl_primitive_desc_t hint)
{
    enum ps_status status = PS_OK;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t pd = NULL;
    struct ps_onednn_stage_shape shape = {.a = dnnl_query_diff_dst_md,
                                          .b = dnnl_query_weights_md,
                                          .result = dnnl_query_diff_src_md,
                                          .a_slot = DNNL_ARG_DIFF_DST,
                                          .b_slot = DNNL_ARG_WEIGHTS,
                                          .result_slot = DNNL_ARG_DIFF_SRC,
                                          .a_dense = &conv->out,
                                          .b_dense = &conv->weight,
                                          .result_dense = &conv->data,
                                          .temporary =
                                              dnnl_memory_desc_get_size(&conv->data),
                                          .adds = true};
    PS_DNNL_GOTO(status,
                 dnnl_dilated_convolution_backward_data_desc_init(
                     &desc, dnnl_convolution_direct, &c->data, &c->weight, &c->out,
                     c->strides, c->dilates, c->left, c->right),
                 done);
    PS_DNNL_GOTO(
        status,
        dnnl_primitive_desc_create(&pd, &desc, conv->lane.attr, conv->lane.engine, hint),
        done);
    status = ps_onednn_stage_init(&conv->lane, &conv->backward_data, pd, &shape);
done:
    if (pd != NULL) {
        dnnl_primitive_desc_destroy(pd);
    }
    return status;
}

static enum ps_status init_backward_weight(struct ps_onednn_conv *conv,
                                           struct convolution *c,
                                           const_dnnl_primitive_desc_t hint)
{
    enum ps_status status = PS_OK;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t pd = NULL;
    struct ps_onednn_stage_shape shape = {
        .a = dnnl_query_src_md,
        .b = dnnl_query_diff_dst_md,
        .result = dnnl_query_diff_weights_md,
        .a_slot = DNNL_ARG_SRC,
        .b_slot = DNNL_ARG_DIFF_DST,
        .result_slot = DNNL_ARG_DIFF_WEIGHTS,
        .a_dense = &conv->data,
        .b_dense = &conv->out,
        .result_dense = &conv->weight,
        .temporary = ps_onednn_align(dnnl_memory_desc_get_size(&conv->weight)) +
                     dnnl_memory_desc_get_size(&conv->bias)};
    add_bias(conv, &shape, DNNL_ARG_DIFF_BIAS);
    PS_DNNL_GOTO(status,
                 dnnl_dilated_convolution_backward_weights_desc_init(
                     &desc, dnnl_convolution_direct, &c->data, &c->weight, bias_of(conv),
                     &c->out, c->strides, c->dilates, c->left, c->right),
                 done);
    PS_DNNL_GOTO(
        status,
        dnnl_primitive_desc_create(&pd, &desc, conv->lane.attr, conv->lane.engine, hint),
        done);
    status = ps_onednn_stage_init(&conv->lane, &conv->backward_weight, pd, &shape);
done:
    if (pd != NULL) {
        dnnl_primitive_desc_destroy(pd);
    }
    return status;
}

static enum ps_status conv_init(struct ps_onednn_conv *conv,
                                const struct ps_conv_geometry *g)
{
    enum ps_status status = PS_OK;
    struct convolution c;
    dnnl_primitive_desc_t forward = NULL;
    PS_TRY(describe(conv, g));
    PS_TRY(convolution_init(&c, conv, g));
    PS_TRY_GOTO(status, init_forward(conv, &c, &forward), done);
    if (conv->training) {
        PS_TRY_GOTO(status, init_backward_data(conv, &c, forward), done);
        PS_TRY_GOTO(status, init_backward_weight(conv, &c, forward), done);
    }
done:
    if (forward != NULL) {
        dnnl_primitive_desc_destroy(forward);
    }
    return status;
}

struct ps_onednn_conv *ps_onednn_conv_create(struct ps_onednn *onednn,
                                             const struct ps_conv_geometry *geometry,
                                             bool training, int threads,
                                             size_t *forward_bytes,
                                             size_t *backward_bytes)
{
    struct ps_onednn_conv *conv = calloc(1, sizeof *conv);
    if (conv == NULL) {
        return NULL;
    }
    conv->training = training;
    conv->has_bias = geometry->bias;
    if (ps_onednn_lane_init(&conv->lane, onednn, threads) != PS_OK ||
        conv_init(conv, geometry) != PS_OK) {
        ps_onednn_conv_destroy(conv);
        return NULL;
    }
    *forward_bytes = conv->forward.bytes;
    *backward_bytes = PS_MAX(conv->backward_data.bytes, conv->backward_weight.bytes);
    return conv;
}

enum ps_status ps_onednn_conv_forward(struct ps_onednn_conv *conv,
                                      const struct ps_op_run *run)
{
    void *const dense[4] = {run->in[DATA].data, run->in[WEIGHT].data, run->out[0].data,
                            conv->has_bias ? run->in[BIAS].data : NULL};
    return ps_onednn_stage_run(&conv->lane, &conv->forward, dense, run->workspace, false);
}

/* Where a gradient is written first: its own place, or the temporary. */
static void *target(const struct ps_op_run *run, int input, void *temporary)
{
    bool direct = ps_wants(run, input) && !ps_adds(run, input);
    return direct ? run->in_grad[input].data : temporary;
}

enum ps_status ps_onednn_conv_backward(struct ps_onednn_conv *conv,
                                       const struct ps_op_run *run)
{
    struct ps_onednn_stage *stage = &conv->backward_weight;
    bool bias = conv->has_bias && ps_wants(run, BIAS);
    if (ps_wants(run, WEIGHT) || bias) {
        char *weight_copy = (char *)run->workspace + stage->temporary_offset;
        char *bias_copy =
            weight_copy + ps_onednn_align(dnnl_memory_desc_get_size(&conv->weight));
        void *const dense[4] = {run->in[DATA].data, run->out_grad[0].data,
                                target(run, WEIGHT, weight_copy),
                                conv->has_bias ? target(run, BIAS, bias_copy) : NULL};
        PS_TRY(ps_onednn_stage_run(&conv->lane, stage, dense, run->workspace, false));
        if (ps_adds(run, WEIGHT)) {
            ps_grad_copy(run, WEIGHT, weight_copy);
        }
        if (bias && ps_adds(run, BIAS)) {
            ps_grad_copy(run, BIAS, bias_copy);
        }
    }
    if (ps_wants(run, DATA)) {
        stage = &conv->backward_data;
        bool in_place = ps_adds(run, DATA) && stage->result.add != NULL;
        char *copy = (char *)run->workspace + stage->temporary_offset;
        void *const dense[4] = {
            run->out_grad[0].data, run->in[WEIGHT].data,
            in_place ? run->in_grad[DATA].data : target(run, DATA, copy), NULL};
        PS_TRY(ps_onednn_stage_run(&conv->lane, stage, dense, run->workspace, in_place));
        if (ps_adds(run, DATA) && !in_place) {
            ps_grad_copy(run, DATA, copy);
        }
    }
    return PS_OK;
}
