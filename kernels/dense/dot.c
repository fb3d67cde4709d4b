/* dot(transpose_a, transpose_b): matrix products.
 *   lhs [.., K], rhs [K, ..] -> [.., ..]: the last axis of lhs with the first of rhs.
 *   transpose_a: lhs is [K, M]; transpose_b: rhs is [N, K]; 2-D then.  1-D with 1-D:
 * (1,). dlhs (+)= g rhs^T, drhs (+)= lhs^T g (transposed as the attributes say).
 * Tolerance 1e-5 relative. */
#include "kernels/context.h"
#include "kernels/registry.h"

struct dot_params {
    bool transpose_a, transpose_b;
};

static const struct ps_attr_row attrs[] = {
    {"transpose_a", PS_ATTR_BOOL, offsetof(struct dot_params, transpose_a), "False", 0, 0,
     NULL},
    {"transpose_b", PS_ATTR_BOOL, offsetof(struct dot_params, transpose_b), "False", 0, 0,
     NULL},
    {"forward_stype", PS_ATTR_IGNORED, 0, "", 0, 0, NULL},
    PS_ATTR_END};

static enum ps_status infer_shape(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err)
{
    const struct dot_params *p = op->params;
    struct ps_shape *l = &in[0], *r = &in[1], shape = {.ndim = 0};
    PS_UNUSED(aux);
    if (l->ndim < 0 || r->ndim < 0) {
        return PS_OK;
    }
    if (l->ndim == 0 || r->ndim == 0 || (p->transpose_a && l->ndim != 2) ||
        (p->transpose_b && r->ndim != 2) || l->ndim + r->ndim - 2 > PS_MAX_DIM) {
        return PS_OP_FAIL(op, err, PS_ESHAPE,
                          "lhs of %d dims and rhs of %d dims (transposes need 2)",
                          l->ndim, r->ndim);
    }
    int ka = p->transpose_a ? 0 : l->ndim - 1, kb = p->transpose_b ? 1 : 0;
    PS_TRY(ps_infer_dim(op, "lhs", l, ka, r->dim[kb], err));
    PS_TRY(ps_infer_dim(op, "rhs", r, kb, l->dim[ka], err));
    for (int i = 0; i < l->ndim; i++) {
        if (i != ka) {
            shape.dim[shape.ndim++] = l->dim[i];
        }
    }
    for (int i = 0; i < r->ndim; i++) {
        if (i != kb) {
            shape.dim[shape.ndim++] = r->dim[i];
        }
    }
    if (shape.ndim == 0) {
        shape = PS_SHAPE(1);
    }
    return ps_infer_merge(op, "output", &out[0], &shape, err);
}

/* out[m,n] = op(a) op(b); row lengths follow from the orientation. */
static void product(struct ps_op_plan *plan, struct ps_gemm g)
{
    g.dtype = plan->dtype;
    g.lda = PS_MAX(g.transpose_a ? g.m : g.k, 1);
    g.ldb = PS_MAX(g.transpose_b ? g.k : g.n, 1);
    g.ldc = PS_MAX(g.n, 1);
    g.threads = plan->threads;
    ps_gemm(&plan->kernels->blas, &g);
}

struct sizes {
    int64_t m, n, k;
};

static struct sizes sizes_of(const struct ps_op_plan *plan)
{
    const struct dot_params *p = plan->op->params;
    const struct ps_shape *l = &plan->in[0], *r = &plan->in[1];
    int ka = p->transpose_a ? 0 : l->ndim - 1;
    struct sizes s = {.k = l->dim[ka]};
    s.m = p->transpose_a ? l->dim[1] : ps_shape_product(l, 0, l->ndim - 1);
    s.n = p->transpose_b ? r->dim[0] : ps_shape_product(r, 1, r->ndim);
    return s;
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    const struct dot_params *p = plan->op->params;
    struct sizes s = sizes_of(plan);
    PS_UNUSED(err);
    product(plan, (struct ps_gemm){.transpose_a = p->transpose_a,
                                   .transpose_b = p->transpose_b,
                                   .m = s.m,
                                   .n = s.n,
                                   .k = s.k,
                                   .a = run->in[0].data,
                                   .b = run->in[1].data,
                                   .c = run->out[0].data});
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    const struct dot_params *p = plan->op->params;
    struct sizes s = sizes_of(plan);
    const void *g = run->out_grad[0].data, *l = run->in[0].data, *r = run->in[1].data;
    PS_UNUSED(err);
    if (ps_wants(run, 0)) {
        struct ps_gemm job = {.c = run->in_grad[0].data,
                              .beta = ps_adds(run, 0) ? 1.0 : 0.0};
        if (p->transpose_a) { /* dlhs [K,M] = op(rhs) g^T */
            job.m = s.k, job.n = s.m, job.k = s.n;
            job.a = r, job.transpose_a = p->transpose_b;
            job.b = g, job.transpose_b = true;
        } else { /* dlhs [M,K] = g op(rhs)^T */
            job.m = s.m, job.n = s.k, job.k = s.n;
            job.a = g;
            job.b = r, job.transpose_b = !p->transpose_b;
        }
        product(plan, job);
    }
    if (ps_wants(run, 1)) {
        struct ps_gemm job = {.c = run->in_grad[1].data,
                              .beta = ps_adds(run, 1) ? 1.0 : 0.0};
        if (p->transpose_b) { /* drhs [N,K] = g^T op(lhs) */
            job.m = s.n, job.n = s.k, job.k = s.m;
            job.a = g, job.transpose_a = true;
            job.b = l, job.transpose_b = p->transpose_a;
        } else { /* drhs [K,N] = op(lhs)^T g */
            job.m = s.k, job.n = s.n, job.k = s.m;
            job.a = l, job.transpose_a = !p->transpose_a;
            job.b = g;
        }
        product(plan, job);
    }
    return PS_OK;
}

const struct ps_op_def ps_ops_dot[] = {{
    .name = "dot",
    .params_bytes = sizeof(struct dot_params),
    .attrs = attrs,
    .inputs = {"lhs", "rhs"},
    .outputs = {"output"},
    .infer_shape = infer_shape,
    .needs = ps_needs_head_inputs,
    .forward = forward,
    .backward = backward,
}};
const size_t ps_ops_dot_count = PS_COUNT(ps_ops_dot);
