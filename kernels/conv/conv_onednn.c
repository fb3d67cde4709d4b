/* Convolution through oneDNN 2.x.  Each direction (forward, data gradient, weight
 * gradient) is a stage: one primitive, with layouts of the library's choice, and a
 * reorder on each side where that layout is not our dense one.
 *
 * All inner tensors and the scratchpad lie in the run's workspace, so a run allocates
 * nothing:  [ inner of A | inner of B | inner of result | scratchpad | dense temporary ].
 * The temporary takes a gradient that must be added (ADD) or is not wanted alone.
 * Memory objects get their addresses at run time.  Algorithm: direct, for its accuracy.
 * Deterministic for a thread count.  Thread: the plan's. */
#include "kernels/onednn.h"

#include "kernels/onednn_ops.h"
#include "kernels/par.h"

#include <stdlib.h>

enum { DATA, WEIGHT, BIAS };

/* One tensor of a stage. */
struct side {
    dnnl_memory_t dense, inner;
    dnnl_primitive_t reorder; /* NULL: the dense layout is used as it is */
    size_t offset;            /* of the inner tensor in the workspace */
    int slot;                 /* DNNL_ARG_* */
};

struct stage {
    dnnl_primitive_t primitive;
    struct side a, b, result; /* two read, one written */
    dnnl_memory_t bias, scratch;
    int bias_slot;
    size_t scratch_offset, temporary_offset, bytes;
};

struct ps_onednn_conv {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr;
    dnnl_memory_desc_t data, weight, bias, out; /* dense */
    int threads;
    bool has_bias, training;
    struct stage forward, backward_data, backward_weight;
};

static size_t align(size_t n)
{
    return ps_align_up(n, 64);
}

static void side_fini(struct side *side)
{
    if (side->reorder != NULL) {
        dnnl_primitive_destroy(side->reorder);
    }
    if (side->inner != NULL) {
        dnnl_memory_destroy(side->inner);
    }
    if (side->dense != NULL) {
        dnnl_memory_destroy(side->dense);
    }
}

static void stage_fini(struct stage *stage)
{
    if (stage->primitive != NULL) {
        dnnl_primitive_destroy(stage->primitive);
    }
    side_fini(&stage->a);
    side_fini(&stage->b);
    side_fini(&stage->result);
    if (stage->bias != NULL) {
        dnnl_memory_destroy(stage->bias);
    }
    if (stage->scratch != NULL) {
        dnnl_memory_destroy(stage->scratch);
    }
}

void ps_onednn_conv_destroy(struct ps_onednn_conv *conv)
{
    if (conv == NULL) {
        return;
    }
    stage_fini(&conv->forward);
    stage_fini(&conv->backward_data);
    stage_fini(&conv->backward_weight);
    if (conv->attr != NULL) {
        dnnl_primitive_attr_destroy(conv->attr);
    }
    if (conv->stream != NULL) {
        dnnl_stream_destroy(conv->stream);
    }
    free(conv);
}

/* Prepares one tensor; 'out' is written by the primitive, else read.  Reserves its inner
 * copy at '*bytes'. */
static enum ps_status side_init(struct ps_onednn_conv *conv, struct side *side,
                                const dnnl_memory_desc_t *dense,
                                const dnnl_memory_desc_t *inner, bool out, size_t *bytes)
{
    enum ps_status status = PS_OK;
    dnnl_primitive_desc_t pd = NULL;
    PS_DNNL_GOTO(status,
                 dnnl_memory_create(&side->dense, dense, conv->engine, DNNL_MEMORY_NONE),
                 done);
    if (dnnl_memory_desc_equal(dense, inner)) {
        goto done;
    }
    PS_DNNL_GOTO(status,
                 dnnl_memory_create(&side->inner, inner, conv->engine, DNNL_MEMORY_NONE),
                 done);
    PS_DNNL_GOTO(status,
                 dnnl_reorder_primitive_desc_create(&pd, out ? inner : dense,
                                                    conv->engine, out ? dense : inner,
                                                    conv->engine, conv->attr),
                 done);
    /* a reorder that wants scratch of its own does not occur for f32 to f32 */
    if (dnnl_memory_desc_get_size(
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0)) > 0) {
        status = PS_EUNSUPPORTED;
        goto done;
    }
    PS_DNNL_GOTO(status, dnnl_primitive_create(&side->reorder, pd), done);
    side->offset = *bytes;
    *bytes = align(*bytes + dnnl_memory_desc_get_size(inner));
done:
    if (pd != NULL) {
        dnnl_primitive_desc_destroy(pd);
    }
    return status;
}

struct stage_shape {
    dnnl_query_t a, b, result; /* which memory descriptors of the primitive */
    int a_slot, b_slot, result_slot, bias_slot;
    const dnnl_memory_desc_t *a_dense, *b_dense, *result_dense;
    size_t temporary; /* bytes of a dense temporary */
};

/* Builds a stage from a primitive descriptor. */
static enum ps_status stage_init(struct ps_onednn_conv *conv, struct stage *stage,
                                 const_dnnl_primitive_desc_t pd,
                                 const struct stage_shape *shape)
{
    enum ps_status status = PS_OK;
    size_t bytes = 0;
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    stage->a.slot = shape->a_slot;
    stage->b.slot = shape->b_slot;
    stage->result.slot = shape->result_slot;
    stage->bias_slot = shape->bias_slot;
    PS_TRY(side_init(conv, &stage->a, shape->a_dense,
                     dnnl_primitive_desc_query_md(pd, shape->a, 0), false, &bytes));
    PS_TRY(side_init(conv, &stage->b, shape->b_dense,
                     dnnl_primitive_desc_query_md(pd, shape->b, 0), false, &bytes));
    PS_TRY(side_init(conv, &stage->result, shape->result_dense,
                     dnnl_primitive_desc_query_md(pd, shape->result, 0), true, &bytes));
    PS_DNNL_GOTO(
        status,
        dnnl_memory_create(&stage->scratch, scratch, conv->engine, DNNL_MEMORY_NONE),
        done);
    if (conv->has_bias && shape->bias_slot != 0) {
        PS_DNNL_GOTO(
            status,
            dnnl_memory_create(&stage->bias, &conv->bias, conv->engine, DNNL_MEMORY_NONE),
            done);
    }
    stage->scratch_offset = bytes;
    bytes = align(bytes + dnnl_memory_desc_get_size(scratch));
    stage->temporary_offset = bytes;
    stage->bytes = bytes + shape->temporary;
    PS_DNNL_GOTO(status, dnnl_primitive_create(&stage->primitive, pd), done);
done:
    return status;
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

/* The same dimensions, layout left to the library. */
static enum ps_status any_layout(const dnnl_memory_desc_t *dense, dnnl_memory_desc_t *any)
{
    return dnnl_memory_desc_init_by_tag(any, dense->ndims, dense->dims, dnnl_f32,
                                        dnnl_format_tag_any) == dnnl_success
               ? PS_OK
               : PS_EUNSUPPORTED;
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
    PS_TRY(any_layout(&conv->data, &c->data));
    PS_TRY(any_layout(&conv->weight, &c->weight));
    return any_layout(&conv->out, &c->out);
}

static enum ps_status init_forward(struct ps_onednn_conv *conv, struct convolution *c,
                                   dnnl_primitive_desc_t *pd_out)
{
    enum ps_status status = PS_OK;
    dnnl_convolution_desc_t desc;
    struct stage_shape shape = {dnnl_query_src_md,
                                dnnl_query_weights_md,
                                dnnl_query_dst_md,
                                DNNL_ARG_SRC,
                                DNNL_ARG_WEIGHTS,
                                DNNL_ARG_DST,
                                DNNL_ARG_BIAS,
                                &conv->data,
                                &conv->weight,
                                &conv->out,
                                0};
    PS_DNNL_GOTO(status,
                 dnnl_dilated_convolution_forward_desc_init(
                     &desc,
                     conv->training ? dnnl_forward_training : dnnl_forward_inference,
                     dnnl_convolution_direct, &c->data, &c->weight,
                     conv->has_bias ? &conv->bias : NULL, &c->out, c->strides, c->dilates,
                     c->left, c->right),
                 done);
    PS_DNNL_GOTO(
        status, dnnl_primitive_desc_create(pd_out, &desc, conv->attr, conv->engine, NULL),
        done);
    status = stage_init(conv, &conv->forward, *pd_out, &shape);
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
    struct stage_shape shape = {dnnl_query_diff_dst_md,
                                dnnl_query_weights_md,
                                dnnl_query_diff_src_md,
                                DNNL_ARG_DIFF_DST,
                                DNNL_ARG_WEIGHTS,
                                DNNL_ARG_DIFF_SRC,
                                0,
                                &conv->out,
                                &conv->weight,
                                &conv->data,
                                dnnl_memory_desc_get_size(&conv->data)};
    PS_DNNL_GOTO(status,
                 dnnl_dilated_convolution_backward_data_desc_init(
                     &desc, dnnl_convolution_direct, &c->data, &c->weight, &c->out,
                     c->strides, c->dilates, c->left, c->right),
                 done);
    PS_DNNL_GOTO(status,
                 dnnl_primitive_desc_create(&pd, &desc, conv->attr, conv->engine, hint),
                 done);
    status = stage_init(conv, &conv->backward_data, pd, &shape);
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
    struct stage_shape shape = {dnnl_query_src_md,
                                dnnl_query_diff_dst_md,
                                dnnl_query_diff_weights_md,
                                DNNL_ARG_SRC,
                                DNNL_ARG_DIFF_DST,
                                DNNL_ARG_DIFF_WEIGHTS,
                                DNNL_ARG_DIFF_BIAS,
                                &conv->data,
                                &conv->out,
                                &conv->weight,
                                align(dnnl_memory_desc_get_size(&conv->weight)) +
                                    dnnl_memory_desc_get_size(&conv->bias)};
    PS_DNNL_GOTO(status,
                 dnnl_dilated_convolution_backward_weights_desc_init(
                     &desc, dnnl_convolution_direct, &c->data, &c->weight,
                     conv->has_bias ? &conv->bias : NULL, &c->out, c->strides, c->dilates,
                     c->left, c->right),
                 done);
    PS_DNNL_GOTO(status,
                 dnnl_primitive_desc_create(&pd, &desc, conv->attr, conv->engine, hint),
                 done);
    status = stage_init(conv, &conv->backward_weight, pd, &shape);
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
    PS_DNNL_GOTO(
        status,
        dnnl_stream_create(&conv->stream, conv->engine, dnnl_stream_default_flags), done);
    PS_DNNL_GOTO(status, dnnl_primitive_attr_create(&conv->attr), done);
    PS_DNNL_GOTO(
        status,
        dnnl_primitive_attr_set_scratchpad_mode(conv->attr, dnnl_scratchpad_mode_user),
        done);
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
    conv->engine = ps_onednn_engine(onednn);
    conv->threads = threads;
    conv->training = training;
    conv->has_bias = geometry->bias;
    ps_par_team(threads); /* primitives are planned for the team they will run on */
    if (conv_init(conv, geometry) != PS_OK) {
        ps_onednn_conv_destroy(conv);
        return NULL;
    }
    *forward_bytes = conv->forward.bytes;
    *backward_bytes = PS_MAX(conv->backward_data.bytes, conv->backward_weight.bytes);
    return conv;
}

/* Points a side at its dense memory, and returns what the primitive works on. */
static dnnl_memory_t bind(const struct side *side, void *dense, char *workspace)
{
    dnnl_memory_set_data_handle(side->dense, dense);
    if (side->reorder == NULL) {
        return side->dense;
    }
    dnnl_memory_set_data_handle(side->inner, workspace + side->offset);
    return side->inner;
}

static bool reorder(const struct side *side, dnnl_stream_t stream, bool out)
{
    if (side->reorder == NULL) {
        return true;
    }
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, out ? side->inner : side->dense},
                              {DNNL_ARG_TO, out ? side->dense : side->inner}};
    return dnnl_primitive_execute(side->reorder, stream, 2, args) == dnnl_success;
}

static enum ps_status stage_run(const struct ps_onednn_conv *conv,
                                const struct stage *stage, void *const dense[4],
                                char *workspace)
{
    dnnl_exec_arg_t args[5] = {
        {stage->a.slot, bind(&stage->a, dense[0], workspace)},
        {stage->b.slot, bind(&stage->b, dense[1], workspace)},
        {stage->result.slot, bind(&stage->result, dense[2], workspace)},
        {DNNL_ARG_SCRATCHPAD, stage->scratch}};
    int n = 4;
    ps_par_team(conv->threads);
    dnnl_memory_set_data_handle(stage->scratch, workspace + stage->scratch_offset);
    if (stage->bias != NULL) {
        dnnl_memory_set_data_handle(stage->bias, dense[3]);
        args[n++] = (dnnl_exec_arg_t){stage->bias_slot, stage->bias};
    }
    bool right =
        reorder(&stage->a, conv->stream, false) &&
        reorder(&stage->b, conv->stream, false) &&
        dnnl_primitive_execute(stage->primitive, conv->stream, n, args) == dnnl_success &&
        reorder(&stage->result, conv->stream, true) &&
        dnnl_stream_wait(conv->stream) == dnnl_success;
    return right ? PS_OK : PS_EINTERNAL;
}

enum ps_status ps_onednn_conv_forward(struct ps_onednn_conv *conv,
                                      const struct ps_op_run *run)
{
    void *const dense[4] = {run->in[DATA].data, run->in[WEIGHT].data, run->out[0].data,
                            conv->has_bias ? run->in[BIAS].data : NULL};
    return stage_run(conv, &conv->forward, dense, run->workspace);
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
    const struct stage *stage = &conv->backward_weight;
    bool bias = conv->has_bias && ps_wants(run, BIAS);
    if (ps_wants(run, WEIGHT) || bias) {
        char *weight_copy = (char *)run->workspace + stage->temporary_offset;
        char *bias_copy = weight_copy + align(dnnl_memory_desc_get_size(&conv->weight));
        void *const dense[4] = {run->in[DATA].data, run->out_grad[0].data,
                                target(run, WEIGHT, weight_copy),
                                conv->has_bias ? target(run, BIAS, bias_copy) : NULL};
        PS_TRY(stage_run(conv, stage, dense, run->workspace));
        if (ps_adds(run, WEIGHT)) {
            ps_grad_copy(run, WEIGHT, weight_copy);
        }
        if (bias && ps_adds(run, BIAS)) {
            ps_grad_copy(run, BIAS, bias_copy);
        }
    }
    if (ps_wants(run, DATA)) {
        stage = &conv->backward_data;
        char *copy = (char *)run->workspace + stage->temporary_offset;
        void *const dense[4] = {run->out_grad[0].data, run->in[WEIGHT].data,
                                target(run, DATA, copy), NULL};
        PS_TRY(stage_run(conv, stage, dense, run->workspace));
        if (ps_adds(run, DATA)) {
            ps_grad_copy(run, DATA, copy);
        }
    }
    return PS_OK;
}
