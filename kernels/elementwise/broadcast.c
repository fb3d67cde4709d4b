/* Binary operators that broadcast: broadcast_add, _sub, _mul, _div, _maximum, _minimum,
 * _power.
 *   lhs, rhs, output of equal ndim; a dim of 1 repeats.  dlhs is the sum of da(g, a, b)
 *   over the axes that lhs repeats along; drhs alike.
 * One thread: the sums run in row order, so they are deterministic.  Nothing in place.
 * Tolerance 1e-6. */
#include "kernels/elementwise/loops.h"
#include "kernels/elementwise/rows.h"
#include "kernels/registry.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512 }; /* elements of gradient made at a time, on the stack */

struct broadcast_state {
    struct ps_rows rows;
};

static enum ps_status infer_shape(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err)
{
    struct ps_shape full = {.ndim = in[0].ndim};
    char a[PS_SHAPE_TEXT_BYTES], b[PS_SHAPE_TEXT_BYTES];
    PS_UNUSED(aux);
    if (in[0].ndim < 0 || in[1].ndim < 0) {
        return PS_OK;
    }
    if (in[0].ndim != in[1].ndim) {
        return PS_OP_FAIL(op, err, PS_ESHAPE, "lhs %.80s and rhs %.80s differ in dims",
                          ps_shape_text(&in[0], a), ps_shape_text(&in[1], b));
    }
    for (int i = 0; i < full.ndim; i++) {
        int64_t l = in[0].dim[i], r = in[1].dim[i];
        if (l >= 0 && r >= 0 && l != r && l != 1 && r != 1) {
            return PS_OP_FAIL(op, err, PS_ESHAPE, "lhs %.80s and rhs %.80s do not match",
                              ps_shape_text(&in[0], a), ps_shape_text(&in[1], b));
        }
        if (l >= 0 && r >= 0) {
            full.dim[i] = l == 1 ? r : l;
        } else {
            /* a dim other than 1 decides, whatever the unknown one turns out to be */
            int64_t known = PS_MAX(l, r);
            full.dim[i] = known == 1 ? -1 : known;
        }
    }
    return ps_infer_merge(op, "output", &out[0], &full, err);
}

static const struct ps_binary_loops *loops_of(const struct ps_op *op, int dtype)
{
    return ps_binary_loops((enum ps_binary)op->def->variant, dtype);
}

static enum ps_status prepare(struct ps_op_plan *plan, struct ps_error *err)
{
    struct broadcast_state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        return PS_OP_FAIL(plan->op, err, PS_ENOMEM, "out of memory");
    }
    ps_rows_init(&state->rows, &plan->out[0], &plan->in[0], &plan->in[1]);
    plan->state = state;
    return PS_OK;
}

static void destroy(struct ps_op_plan *plan)
{
    free(plan->state);
}

static double read_real(const void *p, int64_t i, int dtype)
{
    return dtype == PS_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static const void *element(const struct ps_view *view, int64_t i)
{
    return (const char *)view->data + (size_t)i * ps_dtype_size(view->dtype);
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    const struct ps_rows *rows = &((struct broadcast_state *)plan->state)->rows;
    const struct ps_binary_loops *loops = loops_of(plan->op, plan->dtype);
    int64_t n = ps_rows_length(rows);
    bool scalar_a = rows->step_a[rows->ndim - 1] == 0;
    bool scalar_b = rows->step_b[rows->ndim - 1] == 0 && !scalar_a;
    PS_UNUSED(err);
    for (int64_t r = 0; r < rows->count; r++) {
        int64_t a, b;
        ps_rows_at(rows, r, &a, &b);
        struct ps_binary_args args = {.a = scalar_a ? NULL : element(&run->in[0], a),
                                      .b = scalar_b ? NULL : element(&run->in[1], b),
                                      .out = (char *)run->out[0].data +
                                             (size_t)(r * n) * ps_dtype_size(plan->dtype),
                                      .n = n};
        if (scalar_a || scalar_b) {
            args.s = scalar_a ? read_real(run->in[0].data, a, plan->dtype)
                              : read_real(run->in[1].data, b, plan->dtype);
        }
        loops->forward(&args);
    }
    return PS_OK;
}

/* dst[0..n) += src, or dst[0] += sum of src when the row repeats. */
static void collect(void *dst, const void *src, int64_t n, bool repeats, int dtype)
{
    if (dtype == PS_F64) {
        double *d = dst;
        const double *s = src;
        for (int64_t i = 0; i < n; i++) {
            d[repeats ? 0 : i] += s[i];
        }
        return;
    }
    float *d = dst;
    const float *s = src;
    for (int64_t i = 0; i < n; i++) {
        d[repeats ? 0 : i] += s[i];
    }
}

struct row_grad {
    const struct ps_op_run *run;
    const struct ps_rows *rows;
    void (*loop)(const struct ps_binary_args *args);
    int dtype, target;
    bool reads_inputs;
};

/* Adds one row's gradient to the target, block by block. */
static void row_backward(const struct row_grad *job, int64_t r)
{
    const struct ps_rows *rows = job->rows;
    const struct ps_op_run *run = job->run;
    int64_t n = ps_rows_length(rows), a, b;
    int64_t step_a = rows->step_a[rows->ndim - 1], step_b = rows->step_b[rows->ndim - 1];
    bool scalar_a = step_a == 0 && job->reads_inputs;
    bool scalar_b = step_b == 0 && !scalar_a && job->reads_inputs;
    size_t size = ps_dtype_size(job->dtype);
    double block[BLOCK];
    ps_rows_at(rows, r, &a, &b);
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = PS_MIN(n - i, (int64_t)BLOCK);
        struct ps_binary_args args = {.g = (const char *)run->out_grad[0].data +
                                           (size_t)(r * n + i) * size,
                                      .out = block,
                                      .n = m};
        if (job->reads_inputs) {
            args.a = scalar_a ? NULL : element(&run->in[0], a + i * step_a);
            args.b = scalar_b ? NULL : element(&run->in[1], b + i * step_b);
            args.s = scalar_a   ? read_real(run->in[0].data, a, job->dtype)
                     : scalar_b ? read_real(run->in[1].data, b, job->dtype)
                                : 0.0;
        }
        job->loop(&args);
        int64_t step = job->target == 0 ? step_a : step_b;
        int64_t first = (job->target == 0 ? a : b) + i * step;
        collect((char *)run->in_grad[job->target].data + (size_t)first * size, block, m,
                step == 0, job->dtype);
    }
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    const struct ps_binary_loops *loops = loops_of(plan->op, plan->dtype);
    struct row_grad job = {.run = run,
                           .rows = &((struct broadcast_state *)plan->state)->rows,
                           .dtype = plan->dtype,
                           .reads_inputs = loops->reads_inputs};
    PS_UNUSED(err);
    for (int i = 0; i < 2; i++) {
        if (!ps_wants(run, i)) {
            continue;
        }
        ps_grad_zero(run, i);
        job.target = i;
        job.loop = i == 0 ? loops->grad_a : loops->grad_b;
        for (int64_t r = 0; r < job.rows->count; r++) {
            row_backward(&job, r);
        }
    }
    return PS_OK;
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(i);
    return slot == PS_SLOT_OUT_GRAD ||
           (slot == PS_SLOT_INPUT && loops_of(op, PS_F32)->reads_inputs);
}

#define BROADCAST_OP(text, kind, ...)                                                 \
    {                                                                                 \
        .name = text, .aliases = {__VA_ARGS__}, .flags = PS_OP_CHEAP,                 \
        .variant = PS_BINARY_##kind, .inputs = {"lhs", "rhs"}, .outputs = {"output"}, \
        .infer_shape = infer_shape, .needs = needs, .prepare = prepare,               \
        .destroy = destroy, .forward = forward, .backward = backward                  \
    }

const struct ps_op_def ps_ops_broadcast[] = {
    BROADCAST_OP("broadcast_add", add, "broadcast_plus"),
    BROADCAST_OP("broadcast_sub", sub, "broadcast_minus"),
    BROADCAST_OP("broadcast_mul", mul, NULL),
    BROADCAST_OP("broadcast_div", div, NULL),
    BROADCAST_OP("broadcast_maximum", maximum, NULL),
    BROADCAST_OP("broadcast_minimum", minimum, NULL),
    BROADCAST_OP("broadcast_power", power, NULL),
};
const size_t ps_ops_broadcast_count = PS_COUNT(ps_ops_broadcast);
