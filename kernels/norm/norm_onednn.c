/* BatchNorm through oneDNN 2.x.  Letters as in batch_norm.c: data [A,C,S].
 *   S > 1: the primitive works on channel blocks, data is reordered in and out;
 *   S = 1: dense [A,C] is what the library calls channels-last with A pixels: no copies.
 * Statistics, their running means and what fix_gamma reads and writes are those of the
 * plain code.  Workspace of a backward:
 *   [ gradient to be added | dgamma | dbeta | the stage's ]
 * Deterministic for a thread count.  Tolerance 1e-4 against plain code.
 * Thread: the plan's. */
#include "kernels/onednn.h"

#include "kernels/onednn_stage.h"

#include <stdlib.h>
#include <string.h>

enum { DATA, GAMMA, BETA, OUT = 0, MEAN, VAR, MOVING_MEAN = 0, MOVING_VAR };

struct ps_onednn_norm {
    struct ps_onednn_lane lane;
    struct ps_norm_geometry geometry;
    dnnl_memory_desc_t dense, blocked, channels;
    float *ones; /* [C]; gamma where it is fixed, else NULL */
    struct ps_onednn_stage train, infer, backward;
    size_t gamma_offset, beta_offset, stage_offset; /* in a backward's workspace */
};

void ps_onednn_norm_destroy(struct ps_onednn_norm *norm)
{
    if (norm == NULL) {
        return;
    }
    ps_onednn_stage_fini(&norm->train);
    ps_onednn_stage_fini(&norm->infer);
    ps_onednn_stage_fini(&norm->backward);
    ps_onednn_lane_fini(&norm->lane);
    free(norm->ones);
    free(norm);
}

static enum ps_status describe(struct ps_onednn_norm *norm)
{
    enum ps_status status = PS_OK;
    const struct ps_norm_geometry *g = &norm->geometry;
    bool wide = ((unsigned)dnnl_get_effective_cpu_isa() &
                 (unsigned)dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
    dnnl_format_tag_t block = wide ? dnnl_nChw16c : dnnl_nChw8c;
    dnnl_dims_t rows = {g->a, g->c, 1, g->s}, pixels = {1, g->c, 1, g->a}, c = {g->c};
    PS_DNNL_GOTO(status,
                 dnnl_memory_desc_init_by_tag(&norm->channels, 1, c, dnnl_f32, dnnl_x),
                 done);
    PS_DNNL_GOTO(status,
                 dnnl_memory_desc_init_by_tag(&norm->dense, 4, g->s > 1 ? rows : pixels,
                                              dnnl_f32, g->s > 1 ? dnnl_nchw : dnnl_nhwc),
                 done);
    PS_DNNL_GOTO(status,
                 dnnl_memory_desc_init_by_tag(&norm->blocked, 4, g->s > 1 ? rows : pixels,
                                              dnnl_f32, g->s > 1 ? block : dnnl_nhwc),
                 done);
done:
    return status;
}

static unsigned flags_of(bool global)
{
    return dnnl_use_scale | dnnl_use_shift | (global ? dnnl_use_global_stats : 0u);
}

static enum ps_status describe_forward(const struct ps_onednn_norm *norm,
                                       dnnl_prop_kind_t kind, bool global,
                                       dnnl_primitive_desc_t *pd_out)
{
    enum ps_status status = PS_OK;
    dnnl_batch_normalization_desc_t desc;
    PS_DNNL_GOTO(status,
                 dnnl_batch_normalization_forward_desc_init(&desc, kind, &norm->blocked,
                                                            (float)norm->geometry.eps,
                                                            flags_of(global)),
                 done);
    PS_DNNL_GOTO(status,
                 dnnl_primitive_desc_create(pd_out, &desc, norm->lane.attr,
                                            norm->lane.engine, NULL),
                 done);
    if (ps_onednn_is_reference(*pd_out)) {
        status = PS_EUNSUPPORTED;
    }
done:
    return status;
}

static enum ps_status init_forward(struct ps_onednn_norm *norm,
                                   struct ps_onednn_stage *stage, dnnl_prop_kind_t kind,
                                   bool global)
{
    enum ps_status status = PS_OK;
    const dnnl_memory_desc_t *c = &norm->channels;
    dnnl_primitive_desc_t pd = NULL;
    struct ps_onednn_stage_shape shape = {
        .a = dnnl_query_src_md,
        .result = dnnl_query_dst_md,
        .a_slot = DNNL_ARG_SRC,
        .result_slot = DNNL_ARG_DST,
        .a_dense = &norm->dense,
        .result_dense = &norm->dense,
        .extra_count = 4,
        .extra_slot = {DNNL_ARG_MEAN, DNNL_ARG_VARIANCE, DNNL_ARG_SCALE, DNNL_ARG_SHIFT},
        .extra = {c, c, c, c}};
    PS_TRY_GOTO(status, describe_forward(norm, kind, global, &pd), done);
    status = ps_onednn_stage_init(&norm->lane, stage, pd, &shape);
done:
    if (pd != NULL) {
        dnnl_primitive_desc_destroy(pd);
    }
    return status;
}

static enum ps_status init_backward(struct ps_onednn_norm *norm)
{
    enum ps_status status = PS_OK;
    bool global = norm->geometry.use_global_stats;
    const dnnl_memory_desc_t *c = &norm->channels;
    dnnl_batch_normalization_desc_t desc;
    dnnl_primitive_desc_t forward = NULL, pd = NULL;
    struct ps_onednn_stage_shape shape = {
        .a = dnnl_query_src_md,
        .b = dnnl_query_diff_dst_md,
        .result = dnnl_query_diff_src_md,
        .a_slot = DNNL_ARG_SRC,
        .b_slot = DNNL_ARG_DIFF_DST,
        .result_slot = DNNL_ARG_DIFF_SRC,
        .a_dense = &norm->dense,
        .b_dense = &norm->dense,
        .result_dense = &norm->dense,
        .extra_count = 6,
        .extra_slot = {DNNL_ARG_MEAN, DNNL_ARG_VARIANCE, DNNL_ARG_SCALE, DNNL_ARG_SHIFT,
                       DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT},
        .extra = {c, c, c, c, c, c}};
    PS_TRY_GOTO(status, describe_forward(norm, dnnl_forward_training, global, &forward),
                done);
    PS_DNNL_GOTO(status,
                 dnnl_batch_normalization_backward_desc_init(
                     &desc, dnnl_backward, &norm->blocked, &norm->blocked,
                     (float)norm->geometry.eps, flags_of(global)),
                 done);
    PS_DNNL_GOTO(status,
                 dnnl_primitive_desc_create(&pd, &desc, norm->lane.attr,
                                            norm->lane.engine, forward),
                 done);
    if (ps_onednn_is_reference(pd)) {
        status = PS_EUNSUPPORTED;
        goto done;
    }
    status = ps_onednn_stage_init(&norm->lane, &norm->backward, pd, &shape);
done:
    if (pd != NULL) {
        dnnl_primitive_desc_destroy(pd);
    }
    if (forward != NULL) {
        dnnl_primitive_desc_destroy(forward);
    }
    return status;
}

static enum ps_status norm_init(struct ps_onednn_norm *norm, bool training)
{
    const struct ps_norm_geometry *g = &norm->geometry;
    PS_TRY(describe(norm));
    if (g->fix_gamma) {
        norm->ones = calloc((size_t)g->c, sizeof(float));
        if (norm->ones == NULL) {
            return PS_ENOMEM;
        }
        for (int64_t i = 0; i < g->c; i++) {
            norm->ones[i] = 1.0f;
        }
    }
    PS_TRY(init_forward(norm, &norm->infer, dnnl_forward_inference, true));
    if (!g->use_global_stats) {
        /* a plan without gradients may still be asked for batch statistics */
        PS_TRY(init_forward(norm, &norm->train, dnnl_forward_training, false));
    }
    return training ? init_backward(norm) : PS_OK;
}

/* Lays the backward's workspace out; returns its bytes. */
static size_t lay_out(struct ps_onednn_norm *norm)
{
    size_t channels = ps_onednn_align((size_t)norm->geometry.c * sizeof(float));
    norm->gamma_offset = ps_onednn_align(dnnl_memory_desc_get_size(&norm->dense));
    norm->beta_offset = norm->gamma_offset + channels;
    norm->stage_offset = norm->beta_offset + channels;
    return norm->stage_offset + norm->backward.bytes;
}

struct ps_onednn_norm *ps_onednn_norm_create(struct ps_onednn *onednn,
                                             const struct ps_norm_geometry *geometry,
                                             bool training, int threads,
                                             size_t *forward_bytes,
                                             size_t *backward_bytes)
{
    struct ps_onednn_norm *norm = calloc(1, sizeof *norm);
    if (norm == NULL) {
        return NULL;
    }
    norm->geometry = *geometry;
    if (ps_onednn_lane_init(&norm->lane, onednn, threads) != PS_OK ||
        norm_init(norm, training) != PS_OK) {
        ps_onednn_norm_destroy(norm);
        return NULL;
    }
    *forward_bytes = PS_MAX(norm->train.bytes, norm->infer.bytes);
    *backward_bytes = training ? lay_out(norm) : 0;
    return norm;
}

static void *gamma_of(const struct ps_onednn_norm *norm, const struct ps_op_run *run)
{
    return norm->ones != NULL ? norm->ones : run->in[GAMMA].data;
}

/* moving = momentum moving + (1 - momentum) batch */
static void move(float *moving, const float *batch, const struct ps_norm_geometry *g)
{
    float keep = (float)g->momentum, take = (float)(1.0 - g->momentum);
    for (int64_t c = 0; c < g->c; c++) {
        moving[c] = keep * moving[c] + take * batch[c];
    }
}

enum ps_status ps_onednn_norm_forward(struct ps_onednn_norm *norm,
                                      const struct ps_op_run *run)
{
    const struct ps_norm_geometry *g = &norm->geometry;
    bool batch = run->training && !g->use_global_stats;
    float *mean = run->out[MEAN].data, *var = run->out[VAR].data;
    float *moving_mean = run->aux[MOVING_MEAN].data;
    float *moving_var = run->aux[MOVING_VAR].data;
    void *const dense[] = {
        run->in[DATA].data, NULL, run->out[OUT].data, mean, var, gamma_of(norm, run),
        run->in[BETA].data};
    if (!batch) {
        memcpy(mean, moving_mean, (size_t)g->c * sizeof(float));
        memcpy(var, moving_var, (size_t)g->c * sizeof(float));
    }
    PS_TRY(ps_onednn_stage_run(&norm->lane, batch ? &norm->train : &norm->infer, dense,
                               run->workspace, false));
    if (batch && !run->keep_aux) {
        move(moving_mean, mean, g);
        move(moving_var, var, g);
    }
    return PS_OK;
}

/* Where a gradient is written first: its own place, or the temporary. */
static void *target(const struct ps_op_run *run, int input, void *temporary)
{
    bool direct = ps_wants(run, input) && !ps_adds(run, input);
    return direct ? run->in_grad[input].data : temporary;
}

enum ps_status ps_onednn_norm_backward(struct ps_onednn_norm *norm,
                                       const struct ps_op_run *run)
{
    bool fixed = norm->geometry.fix_gamma;
    char *added = run->workspace, *gamma = added + norm->gamma_offset;
    char *beta = added + norm->beta_offset;
    void *const dense[] = {run->in[DATA].data,
                           run->out_grad[OUT].data,
                           target(run, DATA, added),
                           run->out[MEAN].data,
                           run->out[VAR].data,
                           gamma_of(norm, run),
                           gamma, /* in beta's place: only its presence is asked for */
                           fixed ? gamma : target(run, GAMMA, gamma),
                           target(run, BETA, beta)};
    memset(gamma, 0, (size_t)norm->geometry.c * sizeof(float));
    PS_TRY(ps_onednn_stage_run(&norm->lane, &norm->backward, dense,
                               added + norm->stage_offset, false));
    if (ps_adds(run, DATA)) {
        ps_grad_copy(run, DATA, added);
    }
    if (fixed) {
        ps_grad_zero(run, GAMMA);
    } else if (ps_adds(run, GAMMA)) {
        ps_grad_copy(run, GAMMA, gamma);
    }
    if (ps_adds(run, BETA)) {
        ps_grad_copy(run, BETA, beta);
    }
    return PS_OK;
}
