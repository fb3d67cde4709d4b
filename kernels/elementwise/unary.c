/* Unary operators: exp, log, sqrt... and Activation's functions under their own names.
 *   x, y [..] f32/f64;  dx (+)= d(g, x or y)
 * Parallel over elements; deterministic.  Forward may run in place, backward may write
 * over the head gradient.  Tolerance of the tests: 1e-6 against finite differences. */
#include "kernels/elementwise/unary.h"

#include "kernels/par.h"
#include "kernels/registry.h"

enum {
    GRAIN = 16384
}; /* elements per thread at least: a team costs a few microseconds */

struct unary_job {
    const struct ps_unary_loops *loops;
    const char *a, *b;
    char *out;
    size_t size;
    bool add;
};

static void forward_range(void *arg, int64_t begin, int64_t end)
{
    const struct unary_job *j = arg;
    size_t off = (size_t)begin * j->size;
    j->loops->forward(j->a + off, j->out + off, end - begin);
}

static void backward_range(void *arg, int64_t begin, int64_t end)
{
    const struct unary_job *j = arg;
    size_t off = (size_t)begin * j->size;
    const void *v = j->b == NULL ? NULL : j->b + off;
    j->loops->backward(j->a + off, v, j->out + off, end - begin, j->add);
}

enum ps_status ps_unary_forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                                enum ps_unary kind)
{
    struct unary_job job = {.loops = ps_unary_loops(kind, plan->dtype),
                            .a = run->in[0].data,
                            .out = run->out[0].data,
                            .size = ps_dtype_size(plan->dtype)};
    ps_par_for(plan->threads, ps_shape_count(&plan->out[0]), GRAIN, forward_range, &job);
    return PS_OK;
}

enum ps_status ps_unary_backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                                 enum ps_unary kind)
{
    const struct ps_unary_loops *loops = ps_unary_loops(kind, plan->dtype);
    if (!ps_wants(run, 0)) {
        return PS_OK;
    }
    struct unary_job job = {.loops = loops,
                            .a = run->out_grad[0].data,
                            .out = run->in_grad[0].data,
                            .size = ps_dtype_size(plan->dtype),
                            .add = ps_adds(run, 0)};
    if (loops->reads != READS_NOTHING) {
        job.b = loops->reads == READS_INPUT ? run->in[0].data : run->out[0].data;
    }
    ps_par_for(plan->threads, ps_shape_count(&plan->in[0]), GRAIN, backward_range, &job);
    return PS_OK;
}

bool ps_unary_needs(enum ps_unary kind, enum ps_op_slot slot)
{
    enum ps_reads reads = ps_unary_loops(kind, PS_F32)->reads;
    return slot == PS_SLOT_OUT_GRAD || (slot == PS_SLOT_INPUT && reads == READS_INPUT) ||
           (slot == PS_SLOT_OUTPUT && reads == READS_OUTPUT);
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    PS_UNUSED(err);
    return ps_unary_forward(plan, run, (enum ps_unary)plan->op->def->variant);
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    PS_UNUSED(err);
    return ps_unary_backward(plan, run, (enum ps_unary)plan->op->def->variant);
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(i);
    return ps_unary_needs((enum ps_unary)op->def->variant, slot);
}

#define UNARY_OP(text, kind, ...)                                                     \
    {                                                                                 \
        .name = text, .aliases = {__VA_ARGS__},                                       \
        .flags = PS_OP_CHEAP | PS_OP_ADDS_EXACTLY, .variant = PS_UNARY_##kind,        \
        .inputs = {"data"}, .outputs = {"output"}, .infer_shape = ps_infer_same,      \
        .needs = needs, .inplace_forward = ps_inplace_first,                          \
        .inplace_backward = ps_inplace_head, .forward = forward, .backward = backward \
    }

const struct ps_op_def ps_ops_unary[] = {
    UNARY_OP("negative", negative, NULL),
    UNARY_OP("exp", exp, NULL),
    UNARY_OP("log", log, NULL),
    UNARY_OP("sqrt", sqrt, NULL),
    UNARY_OP("square", square, NULL),
    UNARY_OP("abs", abs, NULL),
    UNARY_OP("relu", relu, NULL),
    UNARY_OP("sigmoid", sigmoid, NULL),
    UNARY_OP("tanh", tanh, NULL),
    UNARY_OP("softsign", softsign, NULL),
    UNARY_OP("reciprocal", reciprocal, NULL),
    UNARY_OP("rsqrt", rsqrt, NULL),
    UNARY_OP("log1p", log1p, NULL),
    UNARY_OP("expm1", expm1, NULL),
    UNARY_OP("sin", sin, NULL),
    UNARY_OP("cos", cos, NULL),
};
const size_t ps_ops_unary_count = PS_COUNT(ps_ops_unary);
