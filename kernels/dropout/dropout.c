/* Dropout(p, mode): in training (or always) elements are zeroed with probability p and
 * the rest scaled by 1/(1-p); otherwise a copy.
 *   data, output, mask [..] f32/f64;  mask is 0 or 1/(1-p);  dx (+)= g * mask
 * Element i is kept when word i%4 of ps_rng_at(seed, stream, i/4) is below (1-p) * 2^32,
 * so the mask depends on neither threads nor order.  A training plan writes the mask in
 * both modes, so that a backward after an inference is exact. */
#include "base/rng.h"
#include "kernels/par.h"
#include "kernels/registry.h"

#include <string.h>

enum { GRAIN = 4096, TRAINING = 0 };

struct dropout_params {
    double p;
    int mode;
};

static const struct ps_attr_row attrs[] = {
    {"p", PS_ATTR_REAL, offsetof(struct dropout_params, p), "0.5", 0, 0.999999, NULL},
    {"mode", PS_ATTR_CHOICE, offsetof(struct dropout_params, mode), "training", 0, 0,
     "training|always"},
    {"cudnn_off", PS_ATTR_IGNORED, 0, "", 0, 0, NULL},
    PS_ATTR_END};

struct dropout_job {
    const struct ps_op_run *run;
    uint64_t threshold; /* of a 32-bit word */
    double scale;
    int64_t count;
};

/* Numbers come in fours; a range is in units of four elements. */
#define DEFINE_DROPOUT(T, name)                                          \
    static void dropout_##name(void *arg, int64_t begin, int64_t end)    \
    {                                                                    \
        const struct dropout_job *j = arg;                               \
        const T *x = j->run->in[0].data, scale = (T)j->scale;            \
        T *y = j->run->out[0].data, *mask = j->run->out[1].data;         \
        for (int64_t q = begin; q < end; q++) {                          \
            uint32_t words[4];                                           \
            int64_t last = PS_MIN(j->count, 4 * q + 4);                  \
            ps_rng_at(j->run->seed, j->run->stream, (uint64_t)q, words); \
            for (int64_t i = 4 * q; i < last; i++) {                     \
                T m = words[i - 4 * q] < j->threshold ? scale : (T)0;    \
                mask[i] = m;                                             \
                y[i] = x[i] * m;                                         \
            }                                                            \
        }                                                                \
    }                                                                    \
    static void ones_##name(T *mask, int64_t n)                          \
    {                                                                    \
        for (int64_t i = 0; i < n; i++) {                                \
            mask[i] = (T)1;                                              \
        }                                                                \
    }                                                                    \
    static void gradient_##name(const struct ps_op_run *run, int64_t n)  \
    {                                                                    \
        const T *g = run->out_grad[0].data, *mask = run->out[1].data;    \
        T *dx = run->in_grad[0].data;                                    \
        bool add = ps_adds(run, 0);                                      \
        for (int64_t i = 0; i < n; i++) {                                \
            T d = g[i] * mask[i];                                        \
            dx[i] = add ? dx[i] + d : d;                                 \
        }                                                                \
    }
DEFINE_DROPOUT(float, f32)
DEFINE_DROPOUT(double, f64)

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    const struct dropout_params *p = plan->op->params;
    int64_t n = ps_shape_count(&plan->out[0]);
    size_t bytes = ps_view_bytes(&run->out[0]);
    PS_UNUSED(err);
    if (run->training || p->mode != TRAINING) {
        struct dropout_job job = {run, (uint64_t)((1.0 - p->p) * 0x1p32),
                                  1.0 / (1.0 - p->p), n};
        ps_par_for(plan->threads, (n + 3) / 4, GRAIN,
                   plan->dtype == PS_F32 ? dropout_f32 : dropout_f64, &job);
        return PS_OK;
    }
    if (bytes > 0 && run->out[0].data != run->in[0].data) {
        memcpy(run->out[0].data, run->in[0].data, bytes);
    }
    if (plan->training && plan->dtype == PS_F32) {
        ones_f32(run->out[1].data, n);
    } else if (plan->training) {
        ones_f64(run->out[1].data, n);
    }
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    int64_t n = ps_shape_count(&plan->in[0]);
    PS_UNUSED(err);
    if (ps_wants(run, 0) && plan->dtype == PS_F32) {
        gradient_f32(run, n);
    } else if (ps_wants(run, 0)) {
        gradient_f64(run, n);
    }
    return PS_OK;
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(op);
    return (slot == PS_SLOT_OUT_GRAD && i == 0) || (slot == PS_SLOT_OUTPUT && i == 1);
}

const struct ps_op_def ps_ops_dropout[] = {
    {.name = "Dropout",
     .flags = PS_OP_NEEDS_RNG | PS_OP_TRAIN_MODE | PS_OP_ADDS_EXACTLY,
     .params_bytes = sizeof(struct dropout_params),
     .attrs = attrs,
     .inputs = {"data"},
     .outputs = {"output", "mask"},
     .visible_outputs = 1,
     .infer_shape = ps_infer_same,
     .needs = needs,
     .inplace_forward = ps_inplace_first,
     .inplace_backward = ps_inplace_head,
     .forward = forward,
     .backward = backward},
};
const size_t ps_ops_dropout_count = PS_COUNT(ps_ops_dropout);
