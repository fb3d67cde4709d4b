/* BatchNorm(eps, momentum, fix_gamma, use_global_stats, output_mean_var, axis).
 *     letters: C channels along 'axis', A before it, S after it, M = A S per channel
 *   data, output [A,C,S] f32/f64; gamma, beta, mean, var, moving_* [C]
 *   training: mean = sum x / M, var = sum (x - mean)^2 / M; else the moving statistics
 *   output = gamma (x - mean) / sqrt(var + eps) + beta; fix_gamma reads gamma as 1
 *   moving = momentum moving + (1 - momentum) batch, in a training forward, unless
 *   keep_aux (a recomputation must not count twice)
 *   xh = (x - mean) / sqrt(var + eps);  dbeta = sum g;  dgamma = sum g xh (fix_gamma: 0)
 *   dx = gamma / sqrt(var + eps) (g - dbeta / M - xh dgamma / M); with global statistics
 *   dx = gamma g / sqrt(var + eps)
 * Short rows (S) go through oneDNN (norm_onednn.c), the rest through the loops here,
 * where one thread owns a channel: deterministic, whatever the thread count.  Tolerance
 * 1e-4. Source: Ioffe, Szegedy 2015; MXNet's parameters. */
#include "kernels/context.h"
#include "kernels/onednn.h"
#include "kernels/par.h"
#include "kernels/registry.h"
#include "kernels/simd.h"

#include <math.h>

enum { DATA, GAMMA, BETA, OUT = 0, MEAN, VAR, MOVING_MEAN = 0, MOVING_VAR };

/* From this S on our rows are long enough to outrun oneDNN and its two or three reorders;
 * earlier where its blocks of channels would be padded (figures: kernels/README.md). */
enum { LONG_ROW = 48, LONG_ROW_PADDED = 16, BLOCK = 16 };

static bool onednn_is_faster(const struct ps_norm_geometry *g)
{
    return g->s < (g->c % BLOCK == 0 ? LONG_ROW : LONG_ROW_PADDED);
}

struct norm_params {
    double eps, momentum;
    bool fix_gamma, use_global_stats, output_mean_var;
    int64_t axis;
};

#define FIELD(name) offsetof(struct norm_params, name)
static const struct ps_attr_row attrs[] = {
    {"eps", PS_ATTR_REAL, FIELD(eps), "0.001", 1e-12, 1, NULL},
    {"momentum", PS_ATTR_REAL, FIELD(momentum), "0.9", 0, 1, NULL},
    {"fix_gamma", PS_ATTR_BOOL, FIELD(fix_gamma), "True", 0, 0, NULL},
    {"use_global_stats", PS_ATTR_BOOL, FIELD(use_global_stats), "False", 0, 0, NULL},
    {"output_mean_var", PS_ATTR_BOOL, FIELD(output_mean_var), "False", 0, 0, NULL},
    {"axis", PS_ATTR_INT, FIELD(axis), "1", -PS_MAX_DIM, PS_MAX_DIM - 1, NULL},
    {"cudnn_off", PS_ATTR_IGNORED, 0, "", 0, 0, NULL},
    PS_ATTR_END};

static enum ps_status finish(struct ps_op *op, struct ps_error *err)
{
    PS_UNUSED(err);
    op->visible_count = ((const struct norm_params *)op->params)->output_mean_var ? 3 : 1;
    return PS_OK;
}

static enum ps_status infer_shape(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err)
{
    const struct norm_params *p = op->params;
    int axis;
    PS_TRY(ps_infer_merge(op, "data", &in[DATA], &out[OUT], err));
    if (in[DATA].ndim < 0) {
        return PS_OK;
    }
    PS_TRY(ps_infer_axis(op, p->axis, in[DATA].ndim, &axis, err));
    struct ps_shape c = PS_SHAPE(in[DATA].dim[axis]);
    PS_TRY(ps_infer_merge(op, "gamma", &in[GAMMA], &c, err));
    PS_TRY(ps_infer_merge(op, "beta", &in[BETA], &in[GAMMA], err));
    PS_TRY(ps_infer_dim(op, "data", &in[DATA], axis, in[BETA].dim[0], err));
    PS_TRY(ps_infer_merge(op, "output", &out[OUT], &in[DATA], err));
    PS_TRY(ps_infer_merge(op, "mean", &out[MEAN], &in[BETA], err));
    PS_TRY(ps_infer_merge(op, "var", &out[VAR], &in[BETA], err));
    PS_TRY(ps_infer_merge(op, "moving_mean", &aux[MOVING_MEAN], &in[BETA], err));
    return ps_infer_merge(op, "moving_var", &aux[MOVING_VAR], &in[BETA], err);
}

struct norm_job {
    const struct norm_params *p;
    const struct ps_op_run *run;
    int64_t a, c, s;
    bool batch_stats;
};

static struct norm_job job_of(const struct ps_op_plan *plan, const struct ps_op_run *run)
{
    const struct norm_params *p = plan->op->params;
    const struct ps_shape *d = &plan->in[DATA];
    int axis = (int)(p->axis < 0 ? p->axis + d->ndim : p->axis);
    return (struct norm_job){.p = p,
                             .run = run,
                             .a = ps_shape_product(d, 0, axis),
                             .c = d->dim[axis],
                             .s = ps_shape_product(d, axis + 1, d->ndim)};
}

#define T float
#define NAME(x) x##_f32
#include "kernels/norm/batch_norm.inc"
#undef T
#undef NAME
#define T double
#define NAME(x) x##_f64
#include "kernels/norm/batch_norm.inc"
#undef T
#undef NAME

static enum ps_status prepare(struct ps_op_plan *plan, struct ps_error *err)
{
    const struct ps_kernels *kernels = plan->kernels;
    struct norm_job job = job_of(plan, NULL);
    struct ps_norm_geometry g = {.a = job.a,
                                 .c = job.c,
                                 .s = job.s,
                                 .eps = job.p->eps,
                                 .momentum = job.p->momentum,
                                 .fix_gamma = job.p->fix_gamma,
                                 .use_global_stats = job.p->use_global_stats};
    PS_UNUSED(err);
    if (plan->dtype == PS_F32 && kernels->onednn != NULL &&
        (onednn_is_faster(&g) || kernels->onednn_always) &&
        ps_shape_count(&plan->in[DATA]) > 0) {
        plan->state =
            ps_onednn_norm_create(kernels->onednn, &g, plan->training, plan->threads,
                                  &plan->workspace_forward, &plan->workspace_backward);
    }
    return PS_OK; /* no state: plain code */
}

static void destroy(struct ps_op_plan *plan)
{
    ps_onednn_norm_destroy(plan->state);
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    struct norm_job job = job_of(plan, run);
    if (plan->state != NULL) {
        return ps_onednn_norm_forward(plan->state, run) == PS_OK
                   ? PS_OK
                   : PS_OP_FAIL(plan->op, err, PS_EINTERNAL, "oneDNN failed in forward");
    }
    job.batch_stats = run->training && !job.p->use_global_stats;
    ps_par_for(plan->threads, job.c, 1, plan->dtype == PS_F32 ? forward_f32 : forward_f64,
               &job);
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    struct norm_job job = job_of(plan, run);
    if (plan->state != NULL) {
        return ps_onednn_norm_backward(plan->state, run) == PS_OK
                   ? PS_OK
                   : PS_OP_FAIL(plan->op, err, PS_EINTERNAL, "oneDNN failed in backward");
    }
    job.batch_stats = !job.p->use_global_stats;
    ps_par_for(plan->threads, job.c, 1,
               plan->dtype == PS_F32 ? backward_f32 : backward_f64, &job);
    return PS_OK;
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(op);
    return (slot == PS_SLOT_OUT_GRAD && i == OUT) ||
           (slot == PS_SLOT_OUTPUT && i != OUT) || (slot == PS_SLOT_INPUT && i != BETA);
}

const struct ps_op_def ps_ops_norm[] = {{
    .name = "BatchNorm",
    .aliases = {"BatchNorm_v1", "CuDNNBatchNorm"},
    .flags = PS_OP_TRAIN_MODE | PS_OP_MUTATES_AUX,
    .params_bytes = sizeof(struct norm_params),
    .attrs = attrs,
    .inputs = {"data", "gamma", "beta"},
    .outputs = {"output", "mean", "var"},
    .aux = {"moving_mean", "moving_var"},
    .finish = finish,
    .infer_shape = infer_shape,
    .needs = needs,
    .inplace_backward = ps_inplace_head,
    .prepare = prepare,
    .destroy = destroy,
    .forward = forward,
    .backward = backward,
}};
const size_t ps_ops_norm_count = PS_COUNT(ps_ops_norm);
