/* ps_convert: any dtype to any.  Goes block by block through f64 or i64, which hold every
 * source exactly (an i64 to float conversion rounds once, from i64).  Threads: pure. */
#include "base/util.h"
#include "kernels/half.h"
#include "kernels/reduce.h"

#include <string.h>

enum { BLOCK = 256 };

static bool is_integer(int dtype)
{
    return dtype == PS_U8 || dtype == PS_I8 || dtype == PS_I32 || dtype == PS_I64;
}

#define LOAD_CASE(code, E, expr)         \
    case code: {                         \
        const E *s = src;                \
        for (size_t i = 0; i < n; i++) { \
            out[i] = (expr);             \
        }                                \
        break;                           \
    }

static void load_real(double *out, const void *src, int dtype, size_t n)
{
    switch (dtype) {
        LOAD_CASE(PS_F32, float, (double)s[i])
        LOAD_CASE(PS_F64, double, s[i])
        LOAD_CASE(PS_F16, uint16_t, (double)ps_half_load(s[i]))
        LOAD_CASE(PS_BF16, uint16_t, (double)ps_bfloat_load(s[i]))
    default:
        break;
    }
}

static void load_integer(int64_t *out, const void *src, int dtype, size_t n)
{
    switch (dtype) {
        LOAD_CASE(PS_U8, uint8_t, s[i])
        LOAD_CASE(PS_I8, int8_t, s[i])
        LOAD_CASE(PS_I32, int32_t, s[i])
        LOAD_CASE(PS_I64, int64_t, s[i])
    default:
        break;
    }
}

/* Toward zero, saturating, NaN to 0. */
static int64_t real_to_integer(double v)
{
    if (v != v) {
        return 0;
    }
    if (v >= 0x1p63) {
        return INT64_MAX;
    }
    return v <= -0x1p63 ? INT64_MIN : (int64_t)v;
}

/* f64 to a 16-bit float must round once: the f32 step keeps a sticky bit (round to odd),
 * which makes the second rounding exact. */
static float round_to_odd(double v)
{
    float f = (float)v;
    double back = (double)f;
    uint32_t bits = ps_f32_bits(f);
    if (back == v || v != v || back - back != 0.0 || (bits & 1U) != 0) {
        return f;
    }
    bool toward_zero = (v < 0 ? -v : v) > (back < 0 ? -back : back);
    return ps_bits_f32(toward_zero ? bits | 1U : bits - 1U);
}

#define STORE_CASE(code, E, expr)        \
    case code: {                         \
        E *d = dst;                      \
        for (size_t i = 0; i < n; i++) { \
            d[i] = (E)(expr);            \
        }                                \
        break;                           \
    }

static void store_real(void *dst, const double *in, int dtype, size_t n)
{
    switch (dtype) {
        STORE_CASE(PS_F32, float, in[i])
        STORE_CASE(PS_F64, double, in[i])
        STORE_CASE(PS_F16, uint16_t, ps_half_store(round_to_odd(in[i])))
        STORE_CASE(PS_BF16, uint16_t, ps_bfloat_store(round_to_odd(in[i])))
    default:
        break;
    }
}

static void store_integer(void *dst, const int64_t *in, int dtype, size_t n)
{
    switch (dtype) {
        STORE_CASE(PS_F32, float, in[i])
        STORE_CASE(PS_F64, double, in[i])
        STORE_CASE(PS_F16, uint16_t, ps_half_store(round_to_odd((double)in[i])))
        STORE_CASE(PS_BF16, uint16_t, ps_bfloat_store(round_to_odd((double)in[i])))
    default:
        ps_reduce_store(dst, in, dtype, n);
        break;
    }
}

enum ps_status ps_convert(void *dst, int dst_dtype, const void *src, int src_dtype,
                          size_t count)
{
    size_t from = ps_dtype_size(src_dtype), to = ps_dtype_size(dst_dtype);
    if (from == 0 || to == 0) {
        return PS_EDTYPE;
    }
    if (src_dtype == dst_dtype) {
        if (dst != src && count > 0) {
            memcpy(dst, src, count * to);
        }
        return PS_OK;
    }
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t n = PS_MIN(count - i, (size_t)BLOCK);
        const char *s = (const char *)src + i * from;
        char *d = (char *)dst + i * to;
        double real[BLOCK];
        int64_t integer[BLOCK];
        if (is_integer(src_dtype)) {
            load_integer(integer, s, src_dtype, n);
            store_integer(d, integer, dst_dtype, n);
            continue;
        }
        load_real(real, s, src_dtype, n);
        if (!is_integer(dst_dtype)) {
            store_real(d, real, dst_dtype, n);
            continue;
        }
        for (size_t j = 0; j < n; j++) {
            integer[j] = real_to_integer(real[j]);
        }
        store_integer(d, integer, dst_dtype, n);
    }
    return PS_OK;
}
