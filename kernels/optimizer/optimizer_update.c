/* ps_optimizer_update: one range of one key.  f32 and f64 directly; f16 and bf16 in
 * blocks widened to f32, updated, rounded (or the f32 master updated and rounded into
 * them); integers for add and test.  Threads: pure; ranges of one key may run on several.
 */
#include "kernels/optimizer.h"

#include "base/util.h"
#include "kernels/reduce.h"
#include "kernels/simd.h"

#include <math.h>
#include <string.h>

#define T float
#define NAME(x) x##_f32
#define SQRT(x) sqrtf(x)
#include "kernels/optimizer/optimizer_loops.inc"
#undef T
#undef NAME
#undef SQRT
#define T double
#define NAME(x) x##_f64
#define SQRT(x) sqrt(x)
#include "kernels/optimizer/optimizer_loops.inc"
#undef T
#undef NAME
#undef SQRT

enum { BLOCK = 512 };

static char *bytes_at(const void *base, size_t off)
{
    return base == NULL ? NULL : (char *)(uintptr_t)base + off;
}

/* Half weights: block by block through f32. */
static void update_half(const struct ps_optimizer *opt, const struct hyper_f32 *h,
                        const struct ps_optimizer_range *r)
{
    float weight[BLOCK], grad[BLOCK];
    size_t size = ps_dtype_size(r->dtype), grad_size = ps_dtype_size(r->grad_dtype);
    char *out = r->weight_out == NULL ? bytes_at(r->weight, 0) : r->weight_out;
    for (size_t i = 0; i < r->count; i += BLOCK) {
        size_t n = PS_MIN(r->count - i, (size_t)BLOCK);
        float *w = r->master == NULL ? weight : r->master + i;
        const float *g = grad;
        if (r->master == NULL) {
            ps_reduce_load(weight, bytes_at(r->weight, i * size), r->dtype, n);
        }
        if (r->grad_dtype == PS_F32) {
            g = (const float *)r->grad + i;
        } else {
            ps_reduce_load(grad, bytes_at(r->grad, i * grad_size), r->grad_dtype, n);
        }
        update_f32(opt, h, w, w, g, (float *)(void *)bytes_at(r->states[0], i * 4),
                   (float *)(void *)bytes_at(r->states[1], i * 4), n);
        ps_reduce_store(out + i * size, w, r->dtype, n);
    }
}

/* w += rescale * g in integers: exact when rescale is 1, else the product is truncated
 * toward zero.  Wraps on i64 overflow, saturates in narrower types. */
static void update_integer(const struct ps_optimizer *opt,
                           const struct ps_optimizer_key_state *key,
                           const struct ps_optimizer_range *r)
{
    int64_t weight[BLOCK], grad[BLOCK];
    double rescale = opt->rescale_grad * key->rescale;
    size_t size = ps_dtype_size(r->dtype), grad_size = ps_dtype_size(r->grad_dtype);
    char *out = r->weight_out == NULL ? bytes_at(r->weight, 0) : r->weight_out;
    for (size_t i = 0; i < r->count; i += BLOCK) {
        size_t n = PS_MIN(r->count - i, (size_t)BLOCK);
        ps_reduce_load(weight, bytes_at(r->weight, i * size), r->dtype, n);
        ps_reduce_load(grad, bytes_at(r->grad, i * grad_size), r->grad_dtype, n);
        for (size_t k = 0; k < n && rescale != 1.0; k++) {
            double d = (double)grad[k] * rescale;
            grad[k] = d >= 0x1p63 ? INT64_MAX : d <= -0x1p63 ? INT64_MIN : (int64_t)d;
        }
        ps_reduce_merge(weight, grad, r->dtype, n);
        ps_reduce_store(out + i * size, weight, r->dtype, n);
        if (opt->kind == PS_OPT_TEST) {
            ps_reduce_store(bytes_at(r->states[0], i * size), weight, r->dtype, n);
        }
    }
}

static bool grad_fits(const struct ps_optimizer_range *r)
{
    if (r->grad_dtype == r->dtype) {
        return true;
    }
    return ps_dtype_size(r->dtype) > 0 && ps_dtype_size(r->grad_dtype) > 0 &&
           r->grad_dtype == (int)ps_dtype_accumulator((enum ps_dtype)r->dtype);
}

enum ps_status ps_optimizer_update(const struct ps_optimizer *opt,
                                   const struct ps_optimizer_key_state *key,
                                   const struct ps_optimizer_range *range)
{
    struct ps_optimizer_range r = *range;
    int state_dtype = ps_optimizer_state_dtype(opt, r.dtype);
    if (state_dtype == PS_DTYPE_UNKNOWN || !grad_fits(&r)) {
        return PS_EDTYPE;
    }
    for (int i = 0; i < ps_optimizer_state_count(opt); i++) {
        if (r.states[i] == NULL && r.count > 0) {
            return PS_EINVAL;
        }
    }
    if (r.weight_out == NULL) {
        r.weight_out = bytes_at(r.weight, 0);
    }
    if (r.dtype == PS_F64) {
        struct hyper_f64 h;
        hyper_fill_f64(&h, opt, key);
        update_f64(opt, &h, r.weight, r.weight_out, r.grad, r.states[0], r.states[1],
                   r.count);
    } else if (r.dtype == PS_F32) {
        struct hyper_f32 h;
        hyper_fill_f32(&h, opt, key);
        update_f32(opt, &h, r.weight, r.weight_out, r.grad, r.states[0], r.states[1],
                   r.count);
    } else if (state_dtype == PS_F32) {
        struct hyper_f32 h;
        hyper_fill_f32(&h, opt, key);
        update_half(opt, &h, &r);
    } else {
        update_integer(opt, key, &r);
    }
    return PS_OK;
}
