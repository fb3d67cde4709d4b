/* FullyConnected(num_hidden, no_bias, flatten).     letters: N rows, C inputs, H hidden
 *   data   [N, ...] f32/f64, C = product of the rest; flatten=False: [..., C], N =
 * product weight [H, C], bias [H], output [N, H] (flatten=False: [..., H]) out[n,h] =
 * sum_c data[n,c] weight[h,c] + bias[h] dweight (+)= g^T data, dbias (+)= sum_n g, ddata
 * (+)= g weight; each one matrix product. Deterministic for a thread count.  Tolerance
 * 1e-5 relative. */
#include "kernels/context.h"
#include "kernels/registry.h"
#include "kernels/simd.h"

#include <string.h>

enum { DATA, WEIGHT, BIAS };

struct fc_params {
    int64_t num_hidden;
    bool no_bias, flatten;
};

static const struct ps_attr_row attrs[] = {
    {"num_hidden", PS_ATTR_INT, offsetof(struct fc_params, num_hidden), NULL, 1, 1e15,
     NULL},
    {"no_bias", PS_ATTR_BOOL, offsetof(struct fc_params, no_bias), "False", 0, 0, NULL},
    {"flatten", PS_ATTR_BOOL, offsetof(struct fc_params, flatten), "True", 0, 0, NULL},
    PS_ATTR_END};

static enum ps_status finish(struct ps_op *op, struct ps_error *err)
{
    PS_UNUSED(err);
    op->input_count = ((const struct fc_params *)op->params)->no_bias ? 2 : 3;
    return PS_OK;
}

/* Row length C of data, and the output's shape. */
static enum ps_status infer_data(const struct ps_op *op, struct ps_shape in[],
                                 struct ps_shape out[], int64_t *c_out,
                                 struct ps_error *err)
{
    const struct fc_params *p = op->params;
    struct ps_shape *data = &in[DATA];
    int last = data->ndim - 1;
    if (data->ndim == 0) {
        return PS_OP_FAIL(op, err, PS_ESHAPE, "data has no dims");
    }
    if (p->flatten) {
        struct ps_shape shape = PS_SHAPE(data->dim[0], p->num_hidden);
        PS_TRY(ps_infer_merge(op, "output", &out[0], &shape, err));
        PS_TRY(ps_infer_dim(op, "data", data, 0, out[0].dim[0], err));
        *c_out = ps_shape_product(data, 1, data->ndim);
        return PS_OK;
    }
    struct ps_shape shape = *data;
    shape.dim[last] = p->num_hidden;
    PS_TRY(ps_infer_merge(op, "output", &out[0], &shape, err));
    for (int i = 0; i < last; i++) {
        PS_TRY(ps_infer_dim(op, "data", data, i, out[0].dim[i], err));
    }
    *c_out = data->dim[last];
    return PS_OK;
}

static enum ps_status infer_shape(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err)
{
    const struct fc_params *p = op->params;
    int64_t c = -1;
    PS_UNUSED(aux);
    if (in[DATA].ndim >= 0) {
        PS_TRY(infer_data(op, in, out, &c, err));
    }
    struct ps_shape weight = PS_SHAPE(p->num_hidden, c), bias = PS_SHAPE(p->num_hidden);
    PS_TRY(ps_infer_merge(op, "weight", &in[WEIGHT], &weight, err));
    if (!p->no_bias) {
        PS_TRY(ps_infer_merge(op, "bias", &in[BIAS], &bias, err));
    }
    /* the row length from the weight, where one dim of data carries it alone */
    if (in[DATA].ndim == 2 || (in[DATA].ndim > 0 && !p->flatten)) {
        PS_TRY(ps_infer_dim(op, "data", &in[DATA], in[DATA].ndim - 1, in[WEIGHT].dim[1],
                            err));
    }
    return PS_OK;
}

#define DEFINE_BIAS(T, name)                                                      \
    static void add_bias_##name(T *out, const T *bias, int64_t n, int64_t h)      \
    {                                                                             \
        for (int64_t i = 0; i < n; i++) {                                         \
            memcpy(out + i * h, bias, (size_t)h * sizeof(T));                     \
        }                                                                         \
    }                                                                             \
    static PS_SIMD void sum_rows_##name(T *out, const T *g, int64_t n, int64_t h) \
    {                                                                             \
        for (int64_t i = 0; i < n; i++) {                                         \
            PS_INDEPENDENT for (int64_t j = 0; j < h; j++)                        \
            {                                                                     \
                out[j] += g[i * h + j];                                           \
            }                                                                     \
        }                                                                         \
    }
DEFINE_BIAS(float, f32)
DEFINE_BIAS(double, f64)

struct sizes {
    int64_t n, c, h;
};

static struct sizes sizes_of(const struct ps_op_plan *plan)
{
    struct sizes s = {.h = plan->in[WEIGHT].dim[0], .c = plan->in[WEIGHT].dim[1]};
    s.n = ps_shape_count(&plan->out[0]) / s.h;
    return s;
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    struct sizes s = sizes_of(plan);
    bool bias = plan->op->input_count == 3;
    struct ps_gemm g = {.dtype = plan->dtype,
                        .transpose_b = true,
                        .m = s.n,
                        .n = s.h,
                        .k = s.c,
                        .a = run->in[DATA].data,
                        .lda = PS_MAX(s.c, 1),
                        .b = run->in[WEIGHT].data,
                        .ldb = PS_MAX(s.c, 1),
                        .c = run->out[0].data,
                        .ldc = s.h,
                        .beta = bias ? 1.0 : 0.0,
                        .threads = plan->threads};
    PS_UNUSED(err);
    if (bias && plan->dtype == PS_F32) {
        add_bias_f32(run->out[0].data, run->in[BIAS].data, s.n, s.h);
    } else if (bias) {
        add_bias_f64(run->out[0].data, run->in[BIAS].data, s.n, s.h);
    }
    ps_gemm(&plan->kernels->blas, &g);
    return PS_OK;
}

static void bias_backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                          const struct sizes *s)
{
    ps_grad_zero(run, BIAS);
    if (plan->dtype == PS_F32) {
        sum_rows_f32(run->in_grad[BIAS].data, run->out_grad[0].data, s->n, s->h);
    } else {
        sum_rows_f64(run->in_grad[BIAS].data, run->out_grad[0].data, s->n, s->h);
    }
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    struct sizes s = sizes_of(plan);
    const void *head = run->out_grad[0].data;
    PS_UNUSED(err);
    if (plan->op->input_count == 3 && ps_wants(run, BIAS)) {
        bias_backward(plan, run, &s);
    }
    if (ps_wants(run, WEIGHT)) {
        struct ps_gemm g = {.dtype = plan->dtype,
                            .transpose_a = true,
                            .m = s.h,
                            .n = s.c,
                            .k = s.n,
                            .a = head,
                            .lda = s.h,
                            .b = run->in[DATA].data,
                            .ldb = PS_MAX(s.c, 1),
                            .c = run->in_grad[WEIGHT].data,
                            .ldc = PS_MAX(s.c, 1),
                            .beta = ps_adds(run, WEIGHT) ? 1.0 : 0.0,
                            .threads = plan->threads};
        ps_gemm(&plan->kernels->blas, &g);
    }
    if (ps_wants(run, DATA)) {
        struct ps_gemm g = {.dtype = plan->dtype,
                            .m = s.n,
                            .n = s.c,
                            .k = s.h,
                            .a = head,
                            .lda = s.h,
                            .b = run->in[WEIGHT].data,
                            .ldb = PS_MAX(s.c, 1),
                            .c = run->in_grad[DATA].data,
                            .ldc = PS_MAX(s.c, 1),
                            .beta = ps_adds(run, DATA) ? 1.0 : 0.0,
                            .threads = plan->threads};
        ps_gemm(&plan->kernels->blas, &g);
    }
    return PS_OK;
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(op);
    return slot == PS_SLOT_OUT_GRAD || (slot == PS_SLOT_INPUT && i != BIAS);
}

const struct ps_op_def ps_ops_dense[] = {{
    .name = "FullyConnected",
    .params_bytes = sizeof(struct fc_params),
    .attrs = attrs,
    .inputs = {"data", "weight", "bias"},
    .outputs = {"output"},
    .finish = finish,
    .infer_shape = infer_shape,
    .needs = needs,
    .forward = forward,
    .backward = backward,
}};
const size_t ps_ops_dense_count = PS_COUNT(ps_ops_dense);
