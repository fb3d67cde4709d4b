/* f16 and bf16 conversions that the compiler can vectorise: no branch, no call.  They
 * agree with base/dtype.h on every value (NaNs stay NaNs) and do not depend on the
 * flush-to-zero mode.  Source of the f32->f16 rounding: F. Giesen, "float->half variants"
 * (public domain).  Threads: pure. */
#ifndef PENSTOCK_KERNELS_HALF_H
#define PENSTOCK_KERNELS_HALF_H

#include "kernels/simd.h"

#include <stdint.h>
#include <string.h>

PS_INLINE float ps_bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

PS_INLINE uint32_t ps_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

PS_INLINE float ps_half_load(uint16_t h)
{
    uint32_t magnitude = (uint32_t)h & 0x7fffU, sign = ((uint32_t)h & 0x8000U) << 16;
    uint32_t bits = (magnitude << 13) + (112U << 23);
    bits = magnitude >= 0x7c00U ? bits + (112U << 23) : bits; /* infinity, NaN */
    /* subnormal half: its mantissa times 2^-24 */
    uint32_t tiny = ps_f32_bits((float)(int32_t)magnitude * 0x1p-24F);
    return ps_bits_f32((magnitude < 0x400U ? tiny : bits) | sign);
}

PS_INLINE uint16_t ps_half_store(float f)
{
    const uint32_t magic = 126U << 23; /* adding it shifts a subnormal half into place */
    uint32_t bits = ps_f32_bits(f), sign = bits & 0x80000000U, u = bits ^ sign;
    uint32_t normal = (u - (112U << 23) + 0xfffU + ((u >> 13) & 1U)) >> 13;
    uint32_t tiny = ps_f32_bits(ps_bits_f32(u) + ps_bits_f32(magic)) - magic;
    uint32_t huge = u > (255U << 23) ? 0x7e00U : 0x7c00U;
    uint32_t r = u < (113U << 23) ? tiny : normal;
    r = u >= (143U << 23) ? huge : r;
    return (uint16_t)(r | sign >> 16);
}

PS_INLINE float ps_bfloat_load(uint16_t h)
{
    return ps_bits_f32((uint32_t)h << 16);
}

PS_INLINE uint16_t ps_bfloat_store(float f)
{
    uint32_t u = ps_f32_bits(f);
    uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
    uint32_t nan = (u >> 16) | 0x40U;
    return (uint16_t)((u & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
}

#endif
