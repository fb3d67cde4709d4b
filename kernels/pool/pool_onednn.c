/* Pooling through oneDNN 2.x on dense tensors.  Max pooling needs, for its gradient, the
 * index tensor that the library's training forward writes; a plan's workspace does not
 * outlive a run, so the backward runs that forward again, from data, into the workspace:
 *   [ index | output again | gradient to be added | scratch of either stage ]
 * Ties go to the first largest element, as in the plain code; a window of -infinity only
 * gives -FLT_MAX.  Deterministic.  Tolerance 1e-4 against plain code.  Thread: the
 * plan's. */
#include "kernels/onednn.h"

#include "kernels/onednn_stage.h"

#include <stdlib.h>

struct ps_onednn_pool {
    struct ps_onednn_lane lane;
    dnnl_memory_desc_t data, out, index; /* dense */
    dnnl_alg_kind_t algorithm;
    dnnl_dims_t kernel, strides, dilates, pads;
    struct ps_onednn_stage forward, again, backward;
    size_t again_offset, added_offset, scratch_offset; /* in a backward's workspace */
};

void ps_onednn_pool_destroy(struct ps_onednn_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    ps_onednn_stage_fini(&pool->forward);
    ps_onednn_stage_fini(&pool->again);
    ps_onednn_stage_fini(&pool->backward);
    ps_onednn_lane_fini(&pool->lane);
    free(pool);
}

static enum ps_status describe(struct ps_onednn_pool *pool,
                               const struct ps_pool_geometry *g)
{
    enum ps_status status = PS_OK;
    dnnl_dims_t data = {g->n, g->c, g->h, g->w}, out = {g->n, g->c, g->oh, g->ow};
    pool->kernel[0] = g->kh;
    pool->kernel[1] = g->kw;
    pool->strides[0] = g->stride_h;
    pool->strides[1] = g->stride_w;
    pool->pads[0] = g->pad_h;
    pool->pads[1] = g->pad_w;
    pool->algorithm = g->kind == PS_POOL_MAX   ? dnnl_pooling_max
                      : g->kind == PS_POOL_AVG ? dnnl_pooling_avg_include_padding
                                               : dnnl_pooling_avg_exclude_padding;
    PS_DNNL_GOTO(status,
                 dnnl_memory_desc_init_by_tag(&pool->data, 4, data, dnnl_f32, dnnl_nchw),
                 done);
    PS_DNNL_GOTO(status,
                 dnnl_memory_desc_init_by_tag(&pool->out, 4, out, dnnl_f32, dnnl_nchw),
                 done);
done:
    return status;
}

static enum ps_status describe_forward(struct ps_onednn_pool *pool, dnnl_prop_kind_t kind,
                                       dnnl_primitive_desc_t *pd_out)
{
    enum ps_status status = PS_OK;
    dnnl_pooling_v2_desc_t desc;
    PS_DNNL_GOTO(status,
                 dnnl_pooling_v2_forward_desc_init(
                     &desc, kind, pool->algorithm, &pool->data, &pool->out, pool->strides,
                     pool->kernel, pool->dilates, pool->pads, pool->pads),
                 done);
    PS_DNNL_GOTO(status,
                 dnnl_primitive_desc_create(pd_out, &desc, pool->lane.attr,
                                            pool->lane.engine, NULL),
                 done);
    if (ps_onednn_is_reference(*pd_out)) {
        status = PS_EUNSUPPORTED;
    }
done:
    return status;
}

static enum ps_status init_forward(struct ps_onednn_pool *pool)
{
    enum ps_status status = PS_OK;
    dnnl_primitive_desc_t pd = NULL;
    struct ps_onednn_stage_shape shape = {.a = dnnl_query_src_md,
                                          .result = dnnl_query_dst_md,
                                          .a_slot = DNNL_ARG_SRC,
                                          .result_slot = DNNL_ARG_DST,
                                          .a_dense = &pool->data,
                                          .result_dense = &pool->out};
    PS_TRY_GOTO(status, describe_forward(pool, dnnl_forward_inference, &pd), done);
    status = ps_onednn_stage_init(&pool->lane, &pool->forward, pd, &shape);
done:
    if (pd != NULL) {
        dnnl_primitive_desc_destroy(pd);
    }
    return status;
}

/* The training forward of max pooling, for its index. */
static enum ps_status init_again(struct ps_onednn_pool *pool,
                                 const_dnnl_primitive_desc_t pd)
{
    const dnnl_memory_desc_t *index =
        dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0);
    struct ps_onednn_stage_shape shape = {.a = dnnl_query_src_md,
                                          .result = dnnl_query_dst_md,
                                          .a_slot = DNNL_ARG_SRC,
                                          .result_slot = DNNL_ARG_DST,
                                          .a_dense = &pool->data,
                                          .result_dense = &pool->out,
                                          .extra_count = 1,
                                          .extra_slot = {DNNL_ARG_WORKSPACE},
                                          .extra = {&pool->index}};
    if (index == NULL) {
        return PS_EUNSUPPORTED;
    }
    pool->index = *index;
    return ps_onednn_stage_init(&pool->lane, &pool->again, pd, &shape);
}

static enum ps_status init_backward(struct ps_onednn_pool *pool)
{
    enum ps_status status = PS_OK;
    bool max = pool->algorithm == dnnl_pooling_max;
    dnnl_pooling_v2_desc_t desc;
    dnnl_primitive_desc_t forward = NULL, pd = NULL;
    struct ps_onednn_stage_shape shape = {.a = dnnl_query_diff_dst_md,
                                          .result = dnnl_query_diff_src_md,
                                          .a_slot = DNNL_ARG_DIFF_DST,
                                          .result_slot = DNNL_ARG_DIFF_SRC,
                                          .a_dense = &pool->out,
                                          .result_dense = &pool->data,
                                          .extra_count = max ? 1 : 0,
                                          .extra_slot = {DNNL_ARG_WORKSPACE},
                                          .extra = {&pool->index}};
    PS_TRY_GOTO(status, describe_forward(pool, dnnl_forward_training, &forward), done);
    if (max) {
        PS_TRY_GOTO(status, init_again(pool, forward), done);
    }
    PS_DNNL_GOTO(status,
                 dnnl_pooling_v2_backward_desc_init(
                     &desc, pool->algorithm, &pool->data, &pool->out, pool->strides,
                     pool->kernel, pool->dilates, pool->pads, pool->pads),
                 done);
    PS_DNNL_GOTO(status,
                 dnnl_primitive_desc_create(&pd, &desc, pool->lane.attr,
                                            pool->lane.engine, forward),
                 done);
    if (ps_onednn_is_reference(pd)) {
        status = PS_EUNSUPPORTED;
        goto done;
    }
    status = ps_onednn_stage_init(&pool->lane, &pool->backward, pd, &shape);
done:
    if (pd != NULL) {
        dnnl_primitive_desc_destroy(pd);
    }
    if (forward != NULL) {
        dnnl_primitive_desc_destroy(forward);
    }
    return status;
}

static enum ps_status pool_init(struct ps_onednn_pool *pool,
                                const struct ps_pool_geometry *g, bool training)
{
    PS_TRY(describe(pool, g));
    PS_TRY(init_forward(pool));
    return training ? init_backward(pool) : PS_OK;
}

/* Lays the backward's workspace out; returns its bytes. */
static size_t lay_out(struct ps_onednn_pool *pool)
{
    if (pool->algorithm == dnnl_pooling_max) {
        pool->again_offset = ps_onednn_align(dnnl_memory_desc_get_size(&pool->index));
        pool->added_offset =
            pool->again_offset + ps_onednn_align(dnnl_memory_desc_get_size(&pool->out));
    }
    pool->scratch_offset =
        pool->added_offset + ps_onednn_align(dnnl_memory_desc_get_size(&pool->data));
    return pool->scratch_offset + PS_MAX(pool->again.bytes, pool->backward.bytes);
}

struct ps_onednn_pool *ps_onednn_pool_create(struct ps_onednn *onednn,
                                             const struct ps_pool_geometry *geometry,
                                             bool training, int threads,
                                             size_t *forward_bytes,
                                             size_t *backward_bytes)
{
    struct ps_onednn_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        return NULL;
    }
    if (ps_onednn_lane_init(&pool->lane, onednn, threads) != PS_OK ||
        pool_init(pool, geometry, training) != PS_OK) {
        ps_onednn_pool_destroy(pool);
        return NULL;
    }
    *forward_bytes = pool->forward.bytes;
    *backward_bytes = training ? lay_out(pool) : 0;
    return pool;
}

enum ps_status ps_onednn_pool_forward(struct ps_onednn_pool *pool,
                                      const struct ps_op_run *run)
{
    void *const dense[] = {run->in[0].data, NULL, run->out[0].data};
    return ps_onednn_stage_run(&pool->lane, &pool->forward, dense, run->workspace, false);
}

enum ps_status ps_onednn_pool_backward(struct ps_onednn_pool *pool,
                                       const struct ps_op_run *run)
{
    char *index = run->workspace, *scratch = index + pool->scratch_offset;
    char *added = index + pool->added_offset;
    if (!ps_wants(run, 0)) {
        return PS_OK;
    }
    if (pool->algorithm == dnnl_pooling_max) {
        void *const dense[] = {run->in[0].data, NULL, index + pool->again_offset, index};
        PS_TRY(ps_onednn_stage_run(&pool->lane, &pool->again, dense, scratch, false));
    }
    void *const dense[] = {run->out_grad[0].data, NULL,
                           ps_adds(run, 0) ? added : run->in_grad[0].data, index};
    PS_TRY(ps_onednn_stage_run(&pool->lane, &pool->backward, dense, scratch, false));
    if (ps_adds(run, 0)) {
        ps_grad_copy(run, 0, added);
    }
    return PS_OK;
}
