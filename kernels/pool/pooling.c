/* Pooling(kernel, stride, pad, pool_type = max | avg | sum, global_pool,
 *         pooling_convention = valid | full, count_include_pad), 1-D and 2-D.
 *     letters: N batch, C channels, [H,W] image, [P,Q] output
 *   data [N,C,H,W] f32/f64, output [N,C,P,Q]; valid rounds P down, full rounds it up
 *   max: gradient to the first largest element of each window, found again from data, so
 *   nothing but data is kept; avg divides by the window clipped to the padded image (or
 *   to the image, with count_include_pad=False).  f32 goes through oneDNN (pool_onednn.c)
 * but for disjoint 2x2 maxima, where the loop here is faster (figures: kernels/README.md)
 * and needs no index.  Parallel over planes (n, c); deterministic.  Tolerance 1e-6. */
#include "kernels/context.h"
#include "kernels/onednn.h"
#include "kernels/par.h"
#include "kernels/registry.h"
#include "kernels/simd.h"

#include <math.h>
#include <stdlib.h>

enum { MAX, AVG, SUM, VALID = 0, FULL = 1, GRAIN = 16384 /* elements per thread */ };

struct pool_params {
    struct ps_shape kernel, stride, pad;
    int type, convention, layout;
    bool global, count_include_pad;
};

#define FIELD(name) offsetof(struct pool_params, name)
static const struct ps_attr_row attrs[] = {
    {"kernel", PS_ATTR_TUPLE, FIELD(kernel), "()", 1, 1 << 20, NULL},
    {"stride", PS_ATTR_TUPLE, FIELD(stride), "()", 1, 1 << 20, NULL},
    {"pad", PS_ATTR_TUPLE, FIELD(pad), "()", 0, 1 << 20, NULL},
    {"pool_type", PS_ATTR_CHOICE, FIELD(type), "max", 0, 0, "max|avg|sum"},
    {"pooling_convention", PS_ATTR_CHOICE, FIELD(convention), "valid", 0, 0,
     "valid|full"},
    {"global_pool", PS_ATTR_BOOL, FIELD(global), "False", 0, 0, NULL},
    {"count_include_pad", PS_ATTR_BOOL, FIELD(count_include_pad), "True", 0, 0, NULL},
    {"layout", PS_ATTR_CHOICE, FIELD(layout), "None", 0, 0, "None|NCHW|NCW"},
    {"cudnn_off", PS_ATTR_IGNORED, 0, "", 0, 0, NULL},
    PS_ATTR_END};

static enum ps_status finish(struct ps_op *op, struct ps_error *err)
{
    struct pool_params *p = op->params;
    int dims = p->kernel.ndim;
    if (p->global) {
        return PS_OK;
    }
    if (dims < 1 || dims > 2) {
        return PS_OP_FAIL(op, err, PS_EINVAL, "kernel of %d dims; 1 and 2 are supported",
                          dims);
    }
    for (int i = 0; i < dims; i++) {
        p->stride.dim[i] = p->stride.ndim == 0 ? 1 : p->stride.dim[i];
        p->pad.dim[i] = p->pad.ndim == 0 ? 0 : p->pad.dim[i];
        if (p->pad.dim[i] >= p->kernel.dim[i]) {
            return PS_OP_FAIL(op, err, PS_EINVAL, "pad %lld must be below kernel %lld",
                              (long long)p->pad.dim[i], (long long)p->kernel.dim[i]);
        }
    }
    if ((p->stride.ndim != 0 && p->stride.ndim != dims) ||
        (p->pad.ndim != 0 && p->pad.ndim != dims)) {
        return PS_OP_FAIL(op, err, PS_EINVAL,
                          "stride and pad must have as many elements as kernel, %d",
                          dims);
    }
    return PS_OK;
}

static enum ps_status infer_shape(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err)
{
    const struct pool_params *p = op->params;
    struct ps_shape shape = in[0];
    PS_UNUSED(aux);
    if (in[0].ndim < 0) {
        return PS_OK;
    }
    int dims = in[0].ndim - 2;
    if (dims < 1 || dims > 2 || (!p->global && dims != p->kernel.ndim)) {
        return PS_OP_FAIL(op, err, PS_ESHAPE, "data of %d dims, kernel of %d", in[0].ndim,
                          p->kernel.ndim);
    }
    for (int i = 0; i < dims; i++) {
        int64_t size = in[0].dim[i + 2];
        if (p->global) {
            shape.dim[i + 2] = 1;
            continue;
        }
        int64_t room = size + 2 * p->pad.dim[i] - p->kernel.dim[i], s = p->stride.dim[i];
        if (size >= 0 && room < 0) {
            return PS_OP_FAIL(op, err, PS_ESHAPE, "kernel %lld exceeds padded data %lld",
                              (long long)p->kernel.dim[i],
                              (long long)(size + 2 * p->pad.dim[i]));
        }
        shape.dim[i + 2] =
            size < 0 ? -1 : (room + (p->convention == FULL ? s - 1 : 0)) / s + 1;
    }
    PS_TRY(ps_infer_merge(op, "output", &out[0], &shape, err));
    PS_TRY(ps_infer_dim(op, "data", &in[0], 0, out[0].dim[0], err));
    return ps_infer_dim(op, "data", &in[0], 1, out[0].dim[1], err);
}

/* One plane's geometry; 1-D has h = kh = 1. */
struct pool_state {
    int64_t planes, h, w, oh, ow, kh, kw, sh, sw, ph, pw;
    int type;
    bool include_pad;
    bool quads;                    /* max over disjoint 2x2 windows: the common case */
    struct ps_onednn_pool *onednn; /* NULL: plain code */
};

/* What oneDNN computes exactly as we do: max and averages of windows that all lie inside
 * the padded image.  'full' windows that reach over it divide by less than KH KW. */
static bool onednn_has(const struct pool_state *s)
{
    return s->type != SUM && (s->oh - 1) * s->sh + s->kh <= s->h + 2 * s->ph &&
           (s->ow - 1) * s->sw + s->kw <= s->w + 2 * s->pw;
}

static void use_onednn(struct ps_op_plan *plan, struct pool_state *s)
{
    const struct ps_kernels *kernels = plan->kernels;
    struct ps_pool_geometry g = {.n = plan->in[0].dim[0],
                                 .c = plan->in[0].dim[1],
                                 .h = s->h,
                                 .w = s->w,
                                 .oh = s->oh,
                                 .ow = s->ow,
                                 .kh = s->kh,
                                 .kw = s->kw,
                                 .stride_h = s->sh,
                                 .stride_w = s->sw,
                                 .pad_h = s->ph,
                                 .pad_w = s->pw,
                                 .kind = s->type == MAX   ? PS_POOL_MAX
                                         : s->include_pad ? PS_POOL_AVG
                                                          : PS_POOL_AVG_IMAGE};
    if (plan->dtype == PS_F32 && kernels->onednn != NULL && onednn_has(s) &&
        (!s->quads || kernels->onednn_always) && ps_shape_count(&plan->in[0]) > 0) {
        s->onednn =
            ps_onednn_pool_create(kernels->onednn, &g, plan->training, plan->threads,
                                  &plan->workspace_forward, &plan->workspace_backward);
    }
}

static enum ps_status prepare(struct ps_op_plan *plan, struct ps_error *err)
{
    const struct pool_params *p = plan->op->params;
    const struct ps_shape *d = &plan->in[0], *o = &plan->out[0];
    int last = d->ndim - 3;
    bool flat = last == 0;
    struct pool_state *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return PS_OP_FAIL(plan->op, err, PS_ENOMEM, "out of memory");
    }
    *s = (struct pool_state){.planes = d->dim[0] * d->dim[1],
                             .h = flat ? 1 : d->dim[2],
                             .w = d->dim[last + 2],
                             .oh = flat ? 1 : o->dim[2],
                             .ow = o->dim[last + 2],
                             .type = p->type,
                             .include_pad = p->count_include_pad};
    s->kh = flat ? 1 : p->global ? s->h : p->kernel.dim[0];
    s->kw = p->global ? s->w : p->kernel.dim[last];
    s->sh = flat || p->global ? 1 : p->stride.dim[0];
    s->sw = p->global ? 1 : p->stride.dim[last];
    s->ph = flat || p->global ? 0 : p->pad.dim[0];
    s->pw = p->global ? 0 : p->pad.dim[last];
    s->quads = s->type == MAX && s->kh == 2 && s->kw == 2 && s->sh == 2 && s->sw == 2 &&
               s->ph == 0 && s->pw == 0 && s->oh * 2 <= s->h && s->ow * 2 <= s->w;
    plan->state = s;
    use_onednn(plan, s);
    return PS_OK;
}

static void destroy(struct ps_op_plan *plan)
{
    struct pool_state *s = plan->state;
    if (s != NULL) {
        ps_onednn_pool_destroy(s->onednn);
        free(s);
    }
}

struct window {
    int64_t y0, y1, x0, x1; /* clipped to the image; may be empty */
    int64_t area;           /* what avg divides by */
};

static struct window window_at(const struct pool_state *s, int64_t p, int64_t q)
{
    int64_t y = p * s->sh - s->ph, x = q * s->sw - s->pw;
    int64_t y_end = PS_MIN(y + s->kh, s->h + s->ph),
            x_end = PS_MIN(x + s->kw, s->w + s->pw);
    struct window w = {.y0 = PS_MAX(y, 0),
                       .y1 = PS_MIN(y_end, s->h),
                       .x0 = PS_MAX(x, 0),
                       .x1 = PS_MIN(x_end, s->w)};
    w.area = s->include_pad ? (y_end - y) * (x_end - x) : (w.y1 - w.y0) * (w.x1 - w.x0);
    w.area = PS_MAX(w.area, 1);
    return w;
}

struct pool_job {
    const struct pool_state *s;
    const void *x, *g;
    void *out;
    bool add;
};

#define T float
#define NAME(x) x##_f32
#include "kernels/pool/pooling.inc"
#undef T
#undef NAME
#define T double
#define NAME(x) x##_f64
#include "kernels/pool/pooling.inc"
#undef T
#undef NAME

static int64_t grain_of(const struct pool_state *s)
{
    return GRAIN / PS_MAX(s->h * s->w, 1) + 1;
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    const struct pool_state *s = plan->state;
    struct pool_job job = {.s = s, .x = run->in[0].data, .out = run->out[0].data};
    if (s->onednn != NULL) {
        return ps_onednn_pool_forward(s->onednn, run) == PS_OK
                   ? PS_OK
                   : PS_OP_FAIL(plan->op, err, PS_EINTERNAL, "oneDNN failed in forward");
    }
    ps_par_for(plan->threads, s->planes, grain_of(s),
               plan->dtype == PS_F32 ? forward_f32 : forward_f64, &job);
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    const struct pool_state *s = plan->state;
    struct pool_job job = {.s = s, .g = run->out_grad[0].data};
    if (!ps_wants(run, 0)) {
        return PS_OK;
    }
    if (s->onednn != NULL) {
        return ps_onednn_pool_backward(s->onednn, run) == PS_OK
                   ? PS_OK
                   : PS_OP_FAIL(plan->op, err, PS_EINTERNAL, "oneDNN failed in backward");
    }
    job.x = s->type == MAX ? run->in[0].data : NULL;
    job.out = run->in_grad[0].data;
    job.add = ps_adds(run, 0);
    ps_par_for(plan->threads, s->planes, grain_of(s),
               plan->dtype == PS_F32 ? backward_f32 : backward_f64, &job);
    return PS_OK;
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    const struct pool_params *p = op->params;
    PS_UNUSED(i);
    return slot == PS_SLOT_OUT_GRAD || (slot == PS_SLOT_INPUT && p->type == MAX);
}

const struct ps_op_def ps_ops_pool[] = {{
    .name = "Pooling",
    .aliases = {"Pooling_v1"},
    .params_bytes = sizeof(struct pool_params),
    .attrs = attrs,
    .inputs = {"data"},
    .outputs = {"output"},
    .finish = finish,
    .infer_shape = infer_shape,
    .needs = needs,
    .prepare = prepare,
    .destroy = destroy,
    .forward = forward,
    .backward = backward,
}};
const size_t ps_ops_pool_count = PS_COUNT(ps_ops_pool);
