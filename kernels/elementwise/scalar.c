/* Operators with one scalar: y = f(x, s), or f(s, x) for the reversed ones.
 *   data, output [..] f32/f64; scalar: the attribute "scalar"
 * Parallel over elements; deterministic; in place both ways.  Tolerance 1e-6. */
#include "kernels/elementwise/loops.h"
#include "kernels/par.h"
#include "kernels/registry.h"

enum {
    GRAIN = 16384,
    REVERSED = 256 /* added to the variant: the scalar is operand a */
};

struct scalar_params {
    double scalar;
};

static const struct ps_attr_row attrs[] = {{"scalar", PS_ATTR_REAL,
                                            offsetof(struct scalar_params, scalar), NULL,
                                            -1e308, 1e308, NULL},
                                           PS_ATTR_END};

struct scalar_job {
    void (*loop)(const struct ps_binary_args *args);
    const char *g, *x;
    char *out;
    double s;
    size_t size;
    bool reversed, add;
};

static const struct ps_binary_loops *loops_of(const struct ps_op *op, int dtype)
{
    return ps_binary_loops((enum ps_binary)(op->def->variant % REVERSED), dtype);
}

static void scalar_range(void *arg, int64_t begin, int64_t end)
{
    const struct scalar_job *j = arg;
    size_t off = (size_t)begin * j->size;
    const char *x = j->x == NULL ? NULL : j->x + off;
    struct ps_binary_args args = {.a = j->reversed ? NULL : x,
                                  .b = j->reversed ? x : NULL,
                                  .g = j->g == NULL ? NULL : j->g + off,
                                  .out = j->out + off,
                                  .s = j->s,
                                  .n = end - begin,
                                  .add = j->add};
    j->loop(&args);
}

static struct scalar_job make_job(const struct ps_op_plan *plan)
{
    const struct scalar_params *p = plan->op->params;
    return (struct scalar_job){.s = p->scalar,
                               .size = ps_dtype_size(plan->dtype),
                               .reversed = plan->op->def->variant >= REVERSED};
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    struct scalar_job job = make_job(plan);
    PS_UNUSED(err);
    job.loop = loops_of(plan->op, plan->dtype)->forward;
    job.x = run->in[0].data;
    job.out = run->out[0].data;
    ps_par_for(plan->threads, ps_shape_count(&plan->out[0]), GRAIN, scalar_range, &job);
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    const struct ps_binary_loops *loops = loops_of(plan->op, plan->dtype);
    struct scalar_job job = make_job(plan);
    PS_UNUSED(err);
    if (!ps_wants(run, 0)) {
        return PS_OK;
    }
    /* mul's gradient is g * s: the scalar stands where the loop reads the other side */
    job.loop = job.reversed ? loops->grad_b : loops->grad_a;
    job.g = run->out_grad[0].data;
    job.x = loops->reads_inputs ? run->in[0].data : NULL;
    job.out = run->in_grad[0].data;
    job.add = ps_adds(run, 0);
    ps_par_for(plan->threads, ps_shape_count(&plan->in[0]), GRAIN, scalar_range, &job);
    return PS_OK;
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(i);
    return slot == PS_SLOT_OUT_GRAD ||
           (slot == PS_SLOT_INPUT && loops_of(op, PS_F32)->reads_inputs);
}

#define SCALAR_OP(text, alias, kind)                                                     \
    {                                                                                    \
        .name = text, .aliases = {alias}, .flags = PS_OP_CHEAP | PS_OP_ADDS_EXACTLY,     \
        .variant = (kind), .params_bytes = sizeof(struct scalar_params), .attrs = attrs, \
        .inputs = {"data"}, .outputs = {"output"}, .infer_shape = ps_infer_same,         \
        .needs = needs, .inplace_forward = ps_inplace_first,                             \
        .inplace_backward = ps_inplace_head, .forward = forward, .backward = backward    \
    }

const struct ps_op_def ps_ops_scalar[] = {
    SCALAR_OP("_plus_scalar", "_PlusScalar", PS_BINARY_add),
    SCALAR_OP("_minus_scalar", "_MinusScalar", PS_BINARY_sub),
    SCALAR_OP("_rminus_scalar", "_RMinusScalar", PS_BINARY_sub + REVERSED),
    SCALAR_OP("_mul_scalar", "_MulScalar", PS_BINARY_mul),
    SCALAR_OP("_div_scalar", "_DivScalar", PS_BINARY_div),
    SCALAR_OP("_rdiv_scalar", "_RDivScalar", PS_BINARY_div + REVERSED),
    SCALAR_OP("_maximum_scalar", "_MaximumScalar", PS_BINARY_maximum),
    SCALAR_OP("_minimum_scalar", "_MinimumScalar", PS_BINARY_minimum),
    SCALAR_OP("_power_scalar", "_PowerScalar", PS_BINARY_power),
    SCALAR_OP("_rpower_scalar", "_RPowerScalar", PS_BINARY_power + REVERSED),
};
const size_t ps_ops_scalar_count = PS_COUNT(ps_ops_scalar);
