/* Binary operators on equal shapes: elemwise_add, _sub, _mul, _div, _maximum, _minimum,
 * _power.
 *   lhs, rhs, output [..] f32/f64; dlhs (+)= da(g, a, b), drhs (+)= db(g, a, b)
 * Parallel over elements; deterministic.  Forward may write over either input, backward
 * over the head gradient (so drhs is computed before dlhs).  Tolerance 1e-6. */
#include "kernels/elementwise/loops.h"
#include "kernels/par.h"
#include "kernels/registry.h"

enum { GRAIN = 16384 };

struct binary_job {
    void (*loop)(const struct ps_binary_args *args);
    const char *a, *b, *g;
    char *out;
    size_t size;
    bool add;
};

static const char *at(const char *base, size_t off)
{
    return base == NULL ? NULL : base + off;
}

static void binary_range(void *arg, int64_t begin, int64_t end)
{
    const struct binary_job *j = arg;
    size_t off = (size_t)begin * j->size;
    struct ps_binary_args args = {.a = at(j->a, off),
                                  .b = at(j->b, off),
                                  .g = at(j->g, off),
                                  .out = j->out + off,
                                  .n = end - begin,
                                  .add = j->add};
    j->loop(&args);
}

static const struct ps_binary_loops *loops_of(const struct ps_op *op, int dtype)
{
    return ps_binary_loops((enum ps_binary)op->def->variant, dtype);
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    struct binary_job job = {.loop = loops_of(plan->op, plan->dtype)->forward,
                             .a = run->in[0].data,
                             .b = run->in[1].data,
                             .out = run->out[0].data,
                             .size = ps_dtype_size(plan->dtype)};
    PS_UNUSED(err);
    ps_par_for(plan->threads, ps_shape_count(&plan->out[0]), GRAIN, binary_range, &job);
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    const struct ps_binary_loops *loops = loops_of(plan->op, plan->dtype);
    struct binary_job job = {.g = run->out_grad[0].data,
                             .size = ps_dtype_size(plan->dtype)};
    PS_UNUSED(err);
    if (loops->reads_inputs) {
        job.a = run->in[0].data;
        job.b = run->in[1].data;
    }
    for (int i = 1; i >= 0; i--) {
        if (!ps_wants(run, i)) {
            continue;
        }
        job.loop = i == 0 ? loops->grad_a : loops->grad_b;
        job.out = run->in_grad[i].data;
        job.add = ps_adds(run, i);
        ps_par_for(plan->threads, ps_shape_count(&plan->in[i]), GRAIN, binary_range,
                   &job);
    }
    return PS_OK;
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(i);
    return slot == PS_SLOT_OUT_GRAD ||
           (slot == PS_SLOT_INPUT && loops_of(op, PS_F32)->reads_inputs);
}

static int inplace_forward(const struct ps_op *op, struct ps_inplace *pairs)
{
    PS_UNUSED(op);
    pairs[0] = (struct ps_inplace){PS_SLOT_INPUT, 0, 0};
    pairs[1] = (struct ps_inplace){PS_SLOT_INPUT, 1, 0};
    return 2;
}

#define BINARY_OP(text, kind, ...)                                                    \
    {                                                                                 \
        .name = text, .aliases = {__VA_ARGS__},                                       \
        .flags = PS_OP_CHEAP | PS_OP_ADDS_EXACTLY |                                   \
                 (PS_BINARY_##kind == PS_BINARY_add ? PS_OP_GRAD_IS_HEAD : 0),        \
        .variant = PS_BINARY_##kind, .inputs = {"lhs", "rhs"}, .outputs = {"output"}, \
        .infer_shape = ps_infer_same, .needs = needs,                                 \
        .inplace_forward = inplace_forward, .inplace_backward = ps_inplace_head,      \
        .forward = forward, .backward = backward                                      \
    }

const struct ps_op_def ps_ops_binary[] = {
    BINARY_OP("elemwise_add", add, "_plus", "_Plus", "_add", "_grad_add"),
    BINARY_OP("elemwise_sub", sub, "_sub", "_minus", "_Minus"),
    BINARY_OP("elemwise_mul", mul, "_mul", "_Mul"),
    BINARY_OP("elemwise_div", div, "_div", "_Div"),
    BINARY_OP("_maximum", maximum, "_Maximum"),
    BINARY_OP("_minimum", minimum, "_Minimum"),
    BINARY_OP("_power", power, "_Power"),
};
const size_t ps_ops_binary_count = PS_COUNT(ps_ops_binary);
