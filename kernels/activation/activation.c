/* Activation(act_type = relu | sigmoid | tanh | softrelu | softsign).
 *   data, output [..] f32/f64; all but softsign differentiate from the output alone, so
 *   data may be freed or overwritten.  Math: kernels/elementwise/elementwise_math.h. */
#include "kernels/elementwise/unary.h"
#include "kernels/registry.h"

struct activation_params {
    int type;
};

static const struct ps_attr_row attrs[] = {
    {"act_type", PS_ATTR_CHOICE, offsetof(struct activation_params, type), NULL, 0, 0,
     "relu|sigmoid|tanh|softrelu|softsign"},
    PS_ATTR_END};

static enum ps_unary kind_of(const struct ps_op *op)
{
    static const enum ps_unary kinds[] = {PS_UNARY_relu, PS_UNARY_sigmoid, PS_UNARY_tanh,
                                          PS_UNARY_softrelu, PS_UNARY_softsign};
    return kinds[((const struct activation_params *)op->params)->type];
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    PS_UNUSED(err);
    return ps_unary_forward(plan, run, kind_of(plan->op));
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    PS_UNUSED(err);
    return ps_unary_backward(plan, run, kind_of(plan->op));
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(i);
    return ps_unary_needs(kind_of(op), slot);
}

const struct ps_op_def ps_ops_activation[] = {
    {.name = "Activation",
     .flags = PS_OP_CHEAP | PS_OP_ADDS_EXACTLY,
     .params_bytes = sizeof(struct activation_params),
     .attrs = attrs,
     .inputs = {"data"},
     .outputs = {"output"},
     .infer_shape = ps_infer_same,
     .needs = needs,
     .inplace_forward = ps_inplace_first,
     .inplace_backward = ps_inplace_head,
     .forward = forward,
     .backward = backward},
};
const size_t ps_ops_activation_count = PS_COUNT(ps_ops_activation);
