/* Convolution by columns: for each image n and group k,
 *   out_nk [O/G, PQ] = W_k [O/G, CRS/G] col_nk [CRS/G, PQ] + bias
 *   dW_k (+)= g_nk col_nk^T,  dcol_nk = W_k^T g_nk,  dx_nk (+)= col2im(dcol_nk)
 * Images in order, so sums over n are deterministic.  Workspace: one column buffer. */
#include "kernels/conv/conv.h"

#include "kernels/context.h"

#include <string.h>

enum { DATA, WEIGHT, BIAS };

#define T float
#define NAME(x) x##_f32
#include "kernels/conv/conv_plain.inc"
#undef T
#undef NAME
#define T double
#define NAME(x) x##_f64
#include "kernels/conv/conv_plain.inc"
#undef T
#undef NAME

/* The three kinds of blocks that one (image, group) works on, in elements. */
struct block {
    int64_t filters, columns, pixels; /* O/G, CRS/G, PQ */
    int64_t data, weight, out;        /* elements of one group's part */
};

static struct block block_of(const struct ps_conv_geometry *g)
{
    struct block b = {.filters = g->o / g->group,
                      .columns = g->c / g->group * g->kh * g->kw,
                      .pixels = g->oh * g->ow};
    b.data = g->c / g->group * g->h * g->w;
    b.weight = b.filters * b.columns;
    b.out = b.filters * b.pixels;
    return b;
}

bool ps_conv_plain_workspace(const struct ps_conv_geometry *g, int dtype,
                             size_t *bytes_out)
{
    struct block b = block_of(g);
    size_t count;
    return ps_mul_size((size_t)b.columns, (size_t)b.pixels, &count) &&
           ps_mul_size(count, ps_dtype_size(dtype), bytes_out);
}

static void *part(const struct ps_view *view, int64_t elements)
{
    return (char *)view->data + (size_t)elements * ps_dtype_size(view->dtype);
}

static void columns(const struct ps_op_plan *plan, const struct ps_conv_geometry *g,
                    const void *x, void *col)
{
    if (plan->dtype == PS_F32) {
        im2col_f32(g, x, col);
    } else {
        im2col_f64(g, x, col);
    }
}

void ps_conv_plain_forward(struct ps_op_plan *plan, const struct ps_conv_geometry *g,
                           const struct ps_op_run *run)
{
    struct block b = block_of(g);
    for (int64_t i = 0; i < g->n * g->group; i++) {
        int64_t n = i / g->group, k = i % g->group;
        void *out = part(&run->out[0], i * b.out);
        const void *bias = g->bias ? part(&run->in[BIAS], k * b.filters) : NULL;
        columns(plan, g, part(&run->in[DATA], (n * g->group + k) * b.data),
                run->workspace);
        if (plan->dtype == PS_F32) {
            fill_bias_f32(out, bias, b.filters, b.pixels);
        } else {
            fill_bias_f64(out, bias, b.filters, b.pixels);
        }
        struct ps_gemm product = {.dtype = plan->dtype,
                                  .m = b.filters,
                                  .n = b.pixels,
                                  .k = b.columns,
                                  .a = part(&run->in[WEIGHT], k * b.weight),
                                  .lda = b.columns,
                                  .b = run->workspace,
                                  .ldb = b.pixels,
                                  .c = out,
                                  .ldc = b.pixels,
                                  .beta = 1.0,
                                  .threads = plan->threads};
        ps_gemm(&plan->kernels->blas, &product);
    }
}

static void weight_backward(struct ps_op_plan *plan, const struct ps_conv_geometry *g,
                            const struct ps_op_run *run, int64_t i)
{
    struct block b = block_of(g);
    int64_t k = i % g->group;
    columns(plan, g, part(&run->in[DATA], i * b.data), run->workspace);
    struct ps_gemm product = {.dtype = plan->dtype,
                              .transpose_b = true,
                              .m = b.filters,
                              .n = b.columns,
                              .k = b.pixels,
                              .a = part(&run->out_grad[0], i * b.out),
                              .lda = b.pixels,
                              .b = run->workspace,
                              .ldb = b.pixels,
                              .c = part(&run->in_grad[WEIGHT], k * b.weight),
                              .ldc = b.columns,
                              .beta = 1.0,
                              .threads = plan->threads};
    ps_gemm(&plan->kernels->blas, &product);
}

static void data_backward(struct ps_op_plan *plan, const struct ps_conv_geometry *g,
                          const struct ps_op_run *run, int64_t i)
{
    struct block b = block_of(g);
    int64_t k = i % g->group;
    void *dx = part(&run->in_grad[DATA], i * b.data);
    struct ps_gemm product = {.dtype = plan->dtype,
                              .transpose_a = true,
                              .m = b.columns,
                              .n = b.pixels,
                              .k = b.filters,
                              .a = part(&run->in[WEIGHT], k * b.weight),
                              .lda = b.columns,
                              .b = part(&run->out_grad[0], i * b.out),
                              .ldb = b.pixels,
                              .c = run->workspace,
                              .ldc = b.pixels,
                              .threads = plan->threads};
    ps_gemm(&plan->kernels->blas, &product);
    if (plan->dtype == PS_F32) {
        col2im_f32(g, run->workspace, dx);
    } else {
        col2im_f64(g, run->workspace, dx);
    }
}

void ps_conv_plain_backward(struct ps_op_plan *plan, const struct ps_conv_geometry *g,
                            const struct ps_op_run *run)
{
    ps_grad_zero(run, DATA);
    ps_grad_zero(run, WEIGHT);
    for (int64_t i = 0; i < g->n * g->group; i++) {
        if (ps_wants(run, WEIGHT)) {
            weight_backward(plan, g, run, i);
        }
        if (ps_wants(run, DATA)) {
            data_backward(plan, g, run, i);
        }
    }
    if (g->bias && ps_wants(run, BIAS)) {
        ps_grad_zero(run, BIAS);
        if (plan->dtype == PS_F32) {
            bias_gradient_f32(run->in_grad[BIAS].data, run->out_grad[0].data, g);
        } else {
            bias_gradient_f64(run->in_grad[BIAS].data, run->out_grad[0].data, g);
        }
    }
}
