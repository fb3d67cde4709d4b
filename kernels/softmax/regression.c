/* Regression heads: LinearRegressionOutput, LogisticRegressionOutput,
 * MAERegressionOutput.                           letters: N batch, D outputs per sample
 *   data, output [N, ...] f32/f64; label of the same shape, or [N] when D is 1; any dtype
 *   output = data (logistic: sigmoid)
 *   ddata = (output - label) * grad_scale / D (MAE: its sign); the head gradient is not
 *   read.  One thread; deterministic.  Tolerance 1e-6. */
#include "kernels/elementwise/unary.h"
#include "kernels/registry.h"
#include "kernels/softmax/labels.h"

#include <string.h>

enum { LINEAR, LOGISTIC, MAE };

struct regression_params {
    double grad_scale;
};

static const struct ps_attr_row attrs[] = {
    {"grad_scale", PS_ATTR_REAL, offsetof(struct regression_params, grad_scale), "1",
     -1e38, 1e38, NULL},
    PS_ATTR_END};

static enum ps_status infer_shape(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err)
{
    PS_UNUSED(aux);
    PS_TRY(ps_infer_merge(op, "data", &in[0], &out[0], err));
    PS_TRY(ps_infer_merge(op, "output", &out[0], &in[0], err));
    if (in[0].ndim == 2 && in[0].dim[1] == 1 && in[1].ndim == 1) {
        return ps_infer_dim(op, "label", &in[1], 0, in[0].dim[0], err);
    }
    return ps_infer_merge(op, "label", &in[1], &in[0], err);
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    size_t bytes = ps_view_bytes(&run->out[0]);
    PS_UNUSED(err);
    if (plan->op->def->variant == LOGISTIC) {
        return ps_unary_forward(plan, run, PS_UNARY_sigmoid);
    }
    if (bytes > 0 && run->out[0].data != run->in[0].data) {
        memcpy(run->out[0].data, run->in[0].data, bytes);
    }
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    const struct regression_params *p = plan->op->params;
    int64_t n = ps_shape_count(&plan->in[0]);
    int64_t batch = plan->in[0].ndim > 0 ? plan->in[0].dim[0] : 1;
    double scale = n > 0 ? p->grad_scale * (double)batch / (double)n : 0.0;
    bool add = ps_adds(run, 0);
    PS_UNUSED(err);
    ps_grad_zero(run, 1);
    for (int64_t i = 0; i < n && ps_wants(run, 0); i++) {
        double d = ps_label_real_at(&run->out[0], i) - ps_label_real_at(&run->in[1], i);
        if (plan->op->def->variant == MAE) {
            d = d > 0.0 ? 1.0 : d < 0.0 ? -1.0 : 0.0;
        }
        d *= scale;
        if (plan->dtype == PS_F32) {
            float *dx = run->in_grad[0].data;
            dx[i] = add ? dx[i] + (float)d : (float)d;
        } else {
            double *dx = run->in_grad[0].data;
            dx[i] = add ? dx[i] + d : d;
        }
    }
    return PS_OK;
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(op);
    return slot == PS_SLOT_OUTPUT || (slot == PS_SLOT_INPUT && i == 1);
}

static int inplace_backward(const struct ps_op *op, struct ps_inplace *pairs)
{
    PS_UNUSED(op);
    pairs[0] = (struct ps_inplace){PS_SLOT_OUTPUT, 0, 0};
    return 1;
}

#define REGRESSION_OP(text, kind)                                                       \
    {                                                                                   \
        .name = text, .flags = PS_OP_LOSS_HEAD, .variant = kind,                        \
        .params_bytes = sizeof(struct regression_params), .attrs = attrs,               \
        .inputs = {"data", "label"}, .outputs = {"output"}, .infer_shape = infer_shape, \
        .infer_dtype = ps_label_infer_dtype, .needs = needs,                            \
        .differentiable = ps_differentiable_first, .inplace_forward = ps_inplace_first, \
        .inplace_backward = inplace_backward, .forward = forward, .backward = backward  \
    }

const struct ps_op_def ps_ops_regression[] = {
    REGRESSION_OP("LinearRegressionOutput", LINEAR),
    REGRESSION_OP("LogisticRegressionOutput", LOGISTIC),
    REGRESSION_OP("MAERegressionOutput", MAE),
};
const size_t ps_ops_regression_count = PS_COUNT(ps_ops_regression);
