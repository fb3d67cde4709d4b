/* Reductions over axes: sum, mean, max, min.
 *   data [..]; axis: (), an int or a tuple, negative from the end; exclude: the other
 * axes output: data without those axes, or with 1 there (keepdims); all axes: (1,) sum:
 * dx = g; mean: dx = g / n; max, min: dx = g where x equals the result One thread, rows
 * in order, eight running sums along a row: deterministic. Tolerance 1e-6. */
#include "kernels/elementwise/rows.h"
#include "kernels/registry.h"
#include "kernels/simd.h"

#include <math.h>
#include <stdlib.h>

enum { SUM, MEAN, MAXIMUM, MINIMUM };

struct sum_params {
    struct ps_shape axis;
    bool keepdims, exclude;
};

static const struct ps_attr_row attrs[] = {
    {"axis", PS_ATTR_TUPLE, offsetof(struct sum_params, axis), "()", -PS_MAX_DIM,
     PS_MAX_DIM - 1, NULL},
    {"keepdims", PS_ATTR_BOOL, offsetof(struct sum_params, keepdims), "False", 0, 0,
     NULL},
    {"exclude", PS_ATTR_BOOL, offsetof(struct sum_params, exclude), "False", 0, 0, NULL},
    PS_ATTR_END};

struct sum_state {
    struct ps_rows rows; /* a: data, b: output */
    int64_t reduced;     /* elements of data per element of output */
};

/* Which axes go: a bit each. */
static enum ps_status axes_of(const struct ps_op *op, int ndim, uint32_t *mask_out,
                              struct ps_error *err)
{
    const struct sum_params *p = op->params;
    uint32_t all = (1U << ndim) - 1U, mask = 0;
    for (int i = 0; i < p->axis.ndim; i++) {
        int axis;
        PS_TRY(ps_infer_axis(op, p->axis.dim[i], ndim, &axis, err));
        mask |= 1U << axis;
    }
    if (p->exclude) {
        mask = all & ~mask;
    }
    *mask_out = p->axis.ndim == 0 ? all : mask;
    return PS_OK;
}

static enum ps_status infer_shape(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err)
{
    const struct sum_params *p = op->params;
    struct ps_shape shape = {.ndim = 0};
    uint32_t mask;
    PS_UNUSED(aux);
    if (in[0].ndim < 0) {
        return PS_OK;
    }
    PS_TRY(axes_of(op, in[0].ndim, &mask, err));
    for (int i = 0; i < in[0].ndim; i++) {
        bool gone = (mask >> i & 1U) != 0;
        if (!gone || p->keepdims) {
            shape.dim[shape.ndim++] = gone ? 1 : in[0].dim[i];
        }
    }
    if (shape.ndim == 0) {
        shape = PS_SHAPE(1);
    }
    return ps_infer_merge(op, "output", &out[0], &shape, err);
}

static enum ps_status prepare(struct ps_op_plan *plan, struct ps_error *err)
{
    struct sum_state *state = calloc(1, sizeof *state);
    struct ps_shape kept = plan->in[0];
    uint32_t mask;
    if (state == NULL) {
        return PS_OP_FAIL(plan->op, err, PS_ENOMEM, "out of memory");
    }
    plan->state = state;
    PS_TRY(axes_of(plan->op, kept.ndim, &mask, err));
    state->reduced = 1;
    for (int i = 0; i < kept.ndim; i++) {
        if ((mask >> i & 1U) != 0) {
            state->reduced *= kept.dim[i];
            kept.dim[i] = 1;
        }
    }
    ps_rows_init(&state->rows, &plan->in[0], &plan->in[0], &kept);
    return PS_OK;
}

static void destroy(struct ps_op_plan *plan)
{
    free(plan->state);
}

#define T float
#define NAME(x) x##_f32
#include "kernels/reduce/sum.inc"
#undef T
#undef NAME
#define T double
#define NAME(x) x##_f64
#include "kernels/reduce/sum.inc"
#undef T
#undef NAME

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    PS_UNUSED(err);
    if (plan->dtype == PS_F32) {
        forward_f32(plan, run);
    } else {
        forward_f64(plan, run);
    }
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    PS_UNUSED(err);
    if (!ps_wants(run, 0)) {
        return PS_OK;
    }
    if (plan->dtype == PS_F32) {
        backward_f32(plan, run);
    } else {
        backward_f64(plan, run);
    }
    return PS_OK;
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(i);
    return slot == PS_SLOT_OUT_GRAD || op->def->variant >= MAXIMUM;
}

#define REDUCE_OP(text, kind, ...)                                                       \
    {                                                                                    \
        .name = text, .aliases = {__VA_ARGS__}, .flags = PS_OP_CHEAP, .variant = kind,   \
        .params_bytes = sizeof(struct sum_params), .attrs = attrs, .inputs = {"data"},   \
        .outputs = {"output"}, .infer_shape = infer_shape, .needs = needs,               \
        .prepare = prepare, .destroy = destroy, .forward = forward, .backward = backward \
    }

const struct ps_op_def ps_ops_sum[] = {
    REDUCE_OP("sum", SUM, "sum_axis"),
    REDUCE_OP("mean", MEAN, NULL),
    REDUCE_OP("max", MAXIMUM, "max_axis"),
    REDUCE_OP("min", MINIMUM, "min_axis"),
};
const size_t ps_ops_sum_count = PS_COUNT(ps_ops_sum);
