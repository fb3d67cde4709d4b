/* SoftmaxOutput: softmax forward, cross-entropy gradient backward.
 *                          letters: N rows, K classes, S positions (multi_output), else 1
 *   data   [N, K, S] f32/f64 (any dims; without multi_output K is all after the first,
 *          with preserve_shape the last)
 *   label  [N, S] class ids of any dtype, or probabilities of data's shape
 *   output [N, K, S] = exp(x - max) / sum
 * ddata = (p - onehot(label)) * grad_scale / norm, 0 where ignored; the head gradient
 * counts only with out_grad.  norm: null 1 (multi_output: S), batch N, valid the rows
 * not ignored.  One thread owns a row; deterministic.  Tolerance 1e-6.
 * Source: MXNet's softmax_output-inl.h semantics as documented. */
#include "kernels/par.h"
#include "kernels/registry.h"
#include "kernels/softmax/labels.h"

#include "kernels/elementwise/elementwise_math.h"

enum { DATA, LABEL, NORM_NULL = 0, NORM_BATCH, NORM_VALID, GRAIN = 64 };

struct softmax_params {
    double grad_scale, ignore_label, smooth_alpha;
    bool multi_output, use_ignore, preserve_shape, out_grad;
    int normalization;
};

#define ROW(name, type, field, text, min, max)                                   \
    {                                                                            \
        name, type, offsetof(struct softmax_params, field), text, min, max, NULL \
    }
static const struct ps_attr_row attrs[] = {
    ROW("grad_scale", PS_ATTR_REAL, grad_scale, "1", -1e38, 1e38),
    ROW("ignore_label", PS_ATTR_REAL, ignore_label, "-1", -1e15, 1e15),
    ROW("smooth_alpha", PS_ATTR_REAL, smooth_alpha, "0", 0, 1),
    ROW("multi_output", PS_ATTR_BOOL, multi_output, "False", 0, 0),
    ROW("use_ignore", PS_ATTR_BOOL, use_ignore, "False", 0, 0),
    ROW("preserve_shape", PS_ATTR_BOOL, preserve_shape, "False", 0, 0),
    ROW("out_grad", PS_ATTR_BOOL, out_grad, "False", 0, 0),
    {"normalization", PS_ATTR_CHOICE, offsetof(struct softmax_params, normalization),
     "null", 0, 0, "null|batch|valid"},
    PS_ATTR_END};
#undef ROW

/* The label's usual shape for this data. */
static struct ps_shape label_shape(const struct softmax_params *p,
                                   const struct ps_shape *data)
{
    struct ps_shape shape = *data;
    if (p->multi_output) {
        shape.ndim--;
        for (int i = 1; i < shape.ndim; i++) {
            shape.dim[i] = data->dim[i + 1];
        }
        return shape;
    }
    shape.ndim = p->preserve_shape ? data->ndim - 1 : 1;
    return shape;
}

static enum ps_status infer_shape(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err)
{
    const struct softmax_params *p = op->params;
    PS_UNUSED(aux);
    PS_TRY(ps_infer_merge(op, "data", &in[DATA], &out[0], err));
    if (in[DATA].ndim < 0) {
        return PS_OK;
    }
    if (in[DATA].ndim < 2) {
        return PS_OP_FAIL(op, err, PS_ESHAPE, "data has %d dims, expected 2 or more",
                          in[DATA].ndim);
    }
    struct ps_shape label = label_shape(p, &in[DATA]), flat = label;
    if (in[LABEL].ndim == in[DATA].ndim) {
        label = in[DATA]; /* probabilities */
    } else if (p->multi_output && in[LABEL].ndim == 2 && label.ndim > 2) {
        flat = PS_SHAPE(label.dim[0], ps_shape_product(&label, 1, label.ndim));
        label = flat; /* MXNet also takes [N, S] */
    }
    PS_TRY(ps_infer_merge(op, "label", &in[LABEL], &label, err));
    PS_TRY(ps_infer_dim(op, "data", &in[DATA], 0, in[LABEL].dim[0], err));
    return ps_infer_merge(op, "output", &out[0], &in[DATA], err);
}

/* The label may have a dtype of its own; unknown, it takes the data's. */
static enum ps_status infer_dtype(const struct ps_op *op, int in[], int out[], int aux[],
                                  struct ps_error *err)
{
    return ps_label_infer_dtype(op, in, out, aux, err);
}

struct geometry {
    int64_t n, k, s;
    bool probabilities;
};

static struct geometry geometry_of(const struct ps_op_plan *plan)
{
    const struct softmax_params *p = plan->op->params;
    const struct ps_shape *d = &plan->in[DATA];
    struct geometry g = {.s = 1, .probabilities = plan->in[LABEL].ndim == d->ndim};
    if (p->multi_output) {
        g.n = d->dim[0];
        g.k = d->dim[1];
        g.s = ps_shape_product(d, 2, d->ndim);
    } else {
        g.k = p->preserve_shape ? d->dim[d->ndim - 1] : ps_shape_product(d, 1, d->ndim);
        g.n = g.k > 0 ? ps_shape_count(d) / g.k : 0;
    }
    return g;
}

struct softmax_job {
    const struct ps_op_run *run;
    struct geometry g;
    const struct softmax_params *p;
    double scale;
    bool add;
};

#define T float
#define NAME(x) x##_f32
#define M(f) ps_##f##_f32
#include "kernels/softmax/softmax_output.inc"
#undef T
#undef NAME
#undef M
#define T double
#define NAME(x) x##_f64
#define M(f) ps_##f##_f64
#include "kernels/softmax/softmax_output.inc"
#undef T
#undef NAME
#undef M

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    struct softmax_job job = {.run = run, .g = geometry_of(plan)};
    PS_UNUSED(err);
    ps_par_for(plan->threads, job.g.n, GRAIN,
               plan->dtype == PS_F32 ? forward_f32 : forward_f64, &job);
    return PS_OK;
}

static bool ignored(const struct softmax_params *p, int64_t label)
{
    return p->use_ignore && (double)label == p->ignore_label;
}

/* Labels come from data files: each is checked before it is used as an index. */
static enum ps_status check_labels(const struct ps_op_plan *plan,
                                   const struct ps_op_run *run, const struct geometry *g,
                                   int64_t *valid_out, struct ps_error *err)
{
    const struct softmax_params *p = plan->op->params;
    int64_t valid = 0;
    for (int64_t i = 0; i < g->n * g->s; i++) {
        int64_t label = ps_label_at(&run->in[LABEL], i);
        if (ignored(p, label)) {
            continue;
        }
        if (label < 0 || label >= g->k) {
            return PS_OP_FAIL(plan->op, err, PS_ERANGE,
                              "label %lld of row %lld: accepted is 0 to %lld",
                              (long long)label, (long long)i, (long long)g->k - 1);
        }
        valid++;
    }
    *valid_out = valid;
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    const struct softmax_params *p = plan->op->params;
    struct softmax_job job = {.run = run, .g = geometry_of(plan), .p = p};
    int64_t valid = job.g.n * job.g.s;
    if (!job.g.probabilities) {
        PS_TRY(check_labels(plan, run, &job.g, &valid, err));
    }
    ps_grad_zero(run, LABEL);
    if (!ps_wants(run, DATA)) {
        return PS_OK;
    }
    int64_t divisor = p->normalization == NORM_BATCH ? plan->in[DATA].dim[0] : 1;
    if (p->normalization == NORM_VALID) {
        divisor = PS_MAX(valid, 1);
    } else if (p->multi_output) {
        divisor *= PS_MAX(job.g.s, 1);
    }
    job.scale = p->grad_scale / (double)PS_MAX(divisor, 1);
    job.add = ps_adds(run, DATA);
    ps_par_for(plan->threads, job.g.n, GRAIN,
               plan->dtype == PS_F32 ? backward_f32 : backward_f64, &job);
    return PS_OK;
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    const struct softmax_params *p = op->params;
    return slot == PS_SLOT_OUTPUT || (slot == PS_SLOT_INPUT && i == LABEL) ||
           (slot == PS_SLOT_OUT_GRAD && p->out_grad);
}

static int inplace_backward(const struct ps_op *op, struct ps_inplace *pairs)
{
    PS_UNUSED(op);
    pairs[0] = (struct ps_inplace){PS_SLOT_OUTPUT, 0, DATA};
    return 1;
}

const struct ps_op_def ps_ops_softmax[] = {{
    .name = "SoftmaxOutput",
    .aliases = {"Softmax"},
    .flags = PS_OP_LOSS_HEAD,
    .params_bytes = sizeof(struct softmax_params),
    .attrs = attrs,
    .inputs = {"data", "label"},
    .outputs = {"output"},
    .infer_shape = infer_shape,
    .infer_dtype = infer_dtype,
    .needs = needs,
    .differentiable = ps_differentiable_first,
    .inplace_forward = ps_inplace_first,
    .inplace_backward = inplace_backward,
    .forward = forward,
    .backward = backward,
}};
const size_t ps_ops_softmax_count = PS_COUNT(ps_ops_softmax);
