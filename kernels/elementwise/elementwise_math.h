/* Per-element math of elementwise and activation operators: one static inline function
 * for CPU loops and, later, CUDA kernels.
 *
 * f32 exp and tanh are polynomials without branches, so that loops over them vectorise
 * and give the same bits on every instruction set; error below 2 ulp (exp) and 3 ulp
 * (tanh), tested.  Source: Cephes (S. Moshier) expf.c, tanhf.c.  f64 uses libm.
 * Threads: pure. */
#ifndef PENSTOCK_KERNELS_ELEMENTWISE_MATH_H
#define PENSTOCK_KERNELS_ELEMENTWISE_MATH_H

#include "kernels/half.h"
#include "kernels/simd.h"

#include <math.h>

/* e^x = 2^n * e^r, n = round(x / ln 2), |r| <= ln 2 / 2.  Results below 2^-126 are 0. */
PS_INLINE float ps_exp_f32(float x)
{
    const float magic = 12582912.0F; /* 1.5 * 2^23: adding it rounds to an integer */
    float c = x > 88.72284F ? 88.72284F : x;
    c = c < -87.33654F ? -87.33654F : c;
    float t = c * 1.44269504F + magic;
    float n = t - magic;
    float r = c - n * 0.693359375F;
    r = r + n * 2.12194440e-4F; /* ln 2 in two parts */
    float p = 1.9875691500e-4F;
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * (r * r) + r + 1.0F;
    /* 2^n as a product of two: n may be 128 or -126, where one factor would overflow */
    int32_t power = (int32_t)(ps_f32_bits(t) - ps_f32_bits(magic)), part = power >> 1;
    float y = p * ps_bits_f32((uint32_t)(part + 127) << 23) *
              ps_bits_f32((uint32_t)(power - part + 127) << 23);
    y = x > 88.72284F ? INFINITY : y;
    return x < -87.33654F ? 0.0F : y;
}

PS_INLINE double ps_exp_f64(double x)
{
    return exp(x);
}

PS_INLINE float ps_tanh_f32(float x)
{
    float a = x < 0.0F ? -x : x;
    float s = x * x;
    float p = -5.70498872745e-3F;
    p = p * s + 2.06390887954e-2F;
    p = p * s - 5.37397155531e-2F;
    p = p * s + 1.33314422036e-1F;
    p = p * s - 3.33332819422e-1F;
    float near = p * s * x + x;
    float far = 1.0F - 2.0F / (ps_exp_f32(a + a) + 1.0F);
    far = x < 0.0F ? -far : far;
    return a < 0.625F ? near : far;
}

PS_INLINE double ps_tanh_f64(double x)
{
    return tanh(x);
}

PS_INLINE float ps_sigmoid_f32(float x)
{
    return 1.0F / (1.0F + ps_exp_f32(-x));
}

PS_INLINE double ps_sigmoid_f64(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* log(1 + e^x) without overflow */
PS_INLINE float ps_softrelu_f32(float x)
{
    return (x > 0.0F ? x : 0.0F) + log1pf(ps_exp_f32(x > 0.0F ? -x : x));
}

PS_INLINE double ps_softrelu_f64(double x)
{
    return (x > 0.0 ? x : 0.0) + log1p(exp(x > 0.0 ? -x : x));
}

#define PS_LIBM(name)                          \
    PS_INLINE float ps_##name##_f32(float x)   \
    {                                          \
        return name##f(x);                     \
    }                                          \
    PS_INLINE double ps_##name##_f64(double x) \
    {                                          \
        return name(x);                        \
    }
PS_LIBM(log)
PS_LIBM(log1p)
PS_LIBM(expm1)
PS_LIBM(sqrt)
PS_LIBM(sin)
PS_LIBM(cos)
PS_LIBM(fabs)
#undef PS_LIBM

PS_INLINE float ps_pow_f32(float a, float b)
{
    return powf(a, b);
}

PS_INLINE double ps_pow_f64(double a, double b)
{
    return pow(a, b);
}

/* Unary functions: X(name, what the gradient reads, y = f(x), dx from g and v).
 * T is the element type, M(f) the function of that type; v is x (READS_INPUT) or y
 * (READS_OUTPUT).  relu keeps NaN. */
#define PS_UNARY_MAP(X)                                                    \
    X(negative, READS_NOTHING, -x, -g)                                     \
    X(exp, READS_OUTPUT, M(exp)(x), g *v)                                  \
    X(log, READS_INPUT, M(log)(x), g / v)                                  \
    X(sqrt, READS_OUTPUT, M(sqrt)(x), g *(T)0.5 / v)                       \
    X(square, READS_INPUT, x *x, g *(v + v))                               \
    X(abs, READS_INPUT, M(fabs)(x), v > (T)0 ? g : v < (T)0 ? -g : (T)0)   \
    X(relu, READS_OUTPUT, x<(T)0 ? (T)0 : x, v>(T) 0 ? g : (T)0)           \
    X(sigmoid, READS_OUTPUT, M(sigmoid)(x), g *(v * ((T)1 - v)))           \
    X(tanh, READS_OUTPUT, M(tanh)(x), g *((T)1 - v * v))                   \
    X(softrelu, READS_OUTPUT, M(softrelu)(x), g *((T)1 - M(exp)(-v)))      \
    X(softsign, READS_INPUT, x / ((T)1 + M(fabs)(x)),                      \
      g / (((T)1 + M(fabs)(v)) * ((T)1 + M(fabs)(v))))                     \
    X(reciprocal, READS_OUTPUT, (T)1 / x, -g * (v * v))                    \
    X(rsqrt, READS_OUTPUT, (T)1 / M(sqrt)(x), g * ((T)-0.5 * (v * v * v))) \
    X(log1p, READS_INPUT, M(log1p)(x), g / ((T)1 + v))                     \
    X(expm1, READS_OUTPUT, M(expm1)(x), g *(v + (T)1))                     \
    X(sin, READS_INPUT, M(sin)(x), g *M(cos)(v))                           \
    X(cos, READS_INPUT, M(cos)(x), -g *M(sin)(v))

/* Binary functions: X(name, gradient reads inputs, y = f(a, b), da, db).
 * Ties of maximum and minimum go to a, as in MXNet. */
#define PS_BINARY_MAP(X)                                                \
    X(add, 0, a + b, g, g)                                              \
    X(sub, 0, a - b, g, -g)                                             \
    X(mul, 1, a *b, g *b, g *a)                                         \
    X(div, 1, a / b, g / b, -g * a / (b * b))                           \
    X(maximum, 1, a >= b ? a : b, a >= b ? g : (T)0, a >= b ? (T)0 : g) \
    X(minimum, 1, a <= b ? a : b, a <= b ? g : (T)0, a <= b ? (T)0 : g) \
    X(power, 1, M(pow)(a, b), g *(b * M(pow)(a, b - (T)1)), g *(M(pow)(a, b) * M(log)(a)))

enum ps_reads { READS_NOTHING, READS_INPUT, READS_OUTPUT };

#define PS_UNARY_ENUM(name, reads, f, d) PS_UNARY_##name,
enum ps_unary { PS_UNARY_MAP(PS_UNARY_ENUM) PS_UNARY_COUNT };
#undef PS_UNARY_ENUM

#define PS_BINARY_ENUM(name, reads, f, da, db) PS_BINARY_##name,
enum ps_binary { PS_BINARY_MAP(PS_BINARY_ENUM) PS_BINARY_COUNT };
#undef PS_BINARY_ENUM

#endif
