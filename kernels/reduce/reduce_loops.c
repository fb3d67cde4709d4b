/* Sums and conversions of arrays (kernels/reduce.h): one set of loops per dtype, made by
 * a macro over {name, element, accumulator, load, store}.  Element-wise and in one order,
 * so any cut of an array gives the same bits.  Threads: pure. */
#include "kernels/reduce.h"

#include "base/util.h"
#include "kernels/half.h"

#include <string.h>

#define LOAD_SAME(x) (x)
#define STORE_SAME(x) (x)
#define STORE_I32(x) \
    ((int32_t)((x) < INT32_MIN ? INT32_MIN : (x) > INT32_MAX ? INT32_MAX : (x)))
#define STORE_I8(x) \
    ((int8_t)((x) < INT8_MIN ? INT8_MIN : (x) > INT8_MAX ? INT8_MAX : (x)))
#define STORE_U8(x) ((uint8_t)((x) < 0 ? 0 : (x) > UINT8_MAX ? UINT8_MAX : (x)))
#define ADD_FLOAT(a, b) ((a) + (b))
#define ADD_WRAP(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define DIV_FLOAT(a, d) ((a) / (d))
/* Counts of ranks are exact integers. */
#define DIV_INT(a, d) ((d) == 0 ? 0 : (d) == -1 ? ADD_WRAP(0, -(uint64_t)(a)) : (a) / (d))

/*    code, name, element, accumulator, load, store, add, divide */
#define DTYPE_MAP(X)                                                                   \
    X(PS_F32, f32, float, float, LOAD_SAME, STORE_SAME, ADD_FLOAT, DIV_FLOAT)          \
    X(PS_F64, f64, double, double, LOAD_SAME, STORE_SAME, ADD_FLOAT, DIV_FLOAT)        \
    X(PS_F16, f16, uint16_t, float, ps_half_load, ps_half_store, ADD_FLOAT, DIV_FLOAT) \
    X(PS_BF16, bf16, uint16_t, float, ps_bfloat_load, ps_bfloat_store, ADD_FLOAT,      \
      DIV_FLOAT)                                                                       \
    X(PS_U8, u8, uint8_t, int64_t, LOAD_SAME, STORE_U8, ADD_WRAP, DIV_INT)             \
    X(PS_I8, i8, int8_t, int64_t, LOAD_SAME, STORE_I8, ADD_WRAP, DIV_INT)              \
    X(PS_I32, i32, int32_t, int64_t, LOAD_SAME, STORE_I32, ADD_WRAP, DIV_INT)          \
    X(PS_I64, i64, int64_t, int64_t, LOAD_SAME, STORE_SAME, ADD_WRAP, DIV_INT)

struct loops {
    void (*load)(void *acc, const void *src, size_t n);
    void (*add)(void *acc, const void *src, size_t n);
    void (*sum2)(void *acc, const void *a, const void *b, size_t n);
    void (*merge)(void *acc, const void *other, size_t n);
    void (*divide)(void *acc, double divisor, size_t n);
    void (*store)(void *dst, const void *acc, size_t n);
    void (*add_in_place)(void *dst, const void *src, size_t n);
};

#define DEFINE_LOOPS(code, name, E, A, LOAD, STORE, ADD, DIV)                          \
    static PS_SIMD void load_##name(void *acc, const void *src, size_t n)              \
    {                                                                                  \
        A *a = acc;                                                                    \
        const E *s = src;                                                              \
        PS_INDEPENDENT for (size_t i = 0; i < n; i++)                                  \
        {                                                                              \
            a[i] = LOAD(s[i]);                                                         \
        }                                                                              \
    }                                                                                  \
    static PS_SIMD void add_##name(void *acc, const void *src, size_t n)               \
    {                                                                                  \
        A *a = acc;                                                                    \
        const E *s = src;                                                              \
        PS_INDEPENDENT for (size_t i = 0; i < n; i++)                                  \
        {                                                                              \
            a[i] = ADD(a[i], LOAD(s[i]));                                              \
        }                                                                              \
    }                                                                                  \
    static PS_SIMD void sum2_##name(void *acc, const void *x, const void *y, size_t n) \
    {                                                                                  \
        A *a = acc;                                                                    \
        const E *s = x, *t = y;                                                        \
        PS_INDEPENDENT for (size_t i = 0; i < n; i++)                                  \
        {                                                                              \
            a[i] = ADD(LOAD(s[i]), LOAD(t[i]));                                        \
        }                                                                              \
    }                                                                                  \
    static PS_SIMD void merge_##name(void *acc, const void *other, size_t n)           \
    {                                                                                  \
        A *a = acc;                                                                    \
        const A *s = other;                                                            \
        PS_INDEPENDENT for (size_t i = 0; i < n; i++)                                  \
        {                                                                              \
            a[i] = ADD(a[i], s[i]);                                                    \
        }                                                                              \
    }                                                                                  \
    static PS_SIMD void divide_##name(void *acc, double divisor, size_t n)             \
    {                                                                                  \
        A *a = acc;                                                                    \
        const A d = (A)divisor;                                                        \
        PS_INDEPENDENT for (size_t i = 0; i < n; i++)                                  \
        {                                                                              \
            a[i] = DIV(a[i], d);                                                       \
        }                                                                              \
    }                                                                                  \
    static PS_SIMD void store_##name(void *dst, const void *acc, size_t n)             \
    {                                                                                  \
        E *d = dst;                                                                    \
        const A *a = acc;                                                              \
        PS_INDEPENDENT for (size_t i = 0; i < n; i++)                                  \
        {                                                                              \
            d[i] = STORE(a[i]);                                                        \
        }                                                                              \
    }                                                                                  \
    static PS_SIMD void add_in_place_##name(void *dst, const void *src, size_t n)      \
    {                                                                                  \
        E *d = dst;                                                                    \
        const E *s = src;                                                              \
        PS_INDEPENDENT for (size_t i = 0; i < n; i++)                                  \
        {                                                                              \
            A sum = ADD(LOAD(d[i]), LOAD(s[i]));                                       \
            d[i] = STORE(sum);                                                         \
        }                                                                              \
    }
DTYPE_MAP(DEFINE_LOOPS)

static const struct loops loops_of[] = {
#define LOOPS_ROW(code, name, E, A, LOAD, STORE, ADD, DIV)                   \
    [code] = {load_##name,   add_##name,   sum2_##name,        merge_##name, \
              divide_##name, store_##name, add_in_place_##name},
    DTYPE_MAP(LOOPS_ROW)};

static const struct loops *find(int dtype)
{
    return ps_dtype_size(dtype) > 0 && (size_t)dtype < PS_COUNT(loops_of)
               ? &loops_of[dtype]
               : NULL;
}

void ps_reduce_load(void *acc, const void *src, int dtype, size_t count)
{
    const struct loops *l = find(dtype);
    if (l != NULL && acc != src) {
        l->load(acc, src, count);
    }
}

void ps_reduce_add(void *acc, const void *src, int dtype, size_t count)
{
    const struct loops *l = find(dtype);
    if (l != NULL) {
        l->add(acc, src, count);
    }
}

void ps_reduce_sum2(void *acc, const void *a, const void *b, int dtype, size_t count)
{
    const struct loops *l = find(dtype);
    if (l != NULL) {
        l->sum2(acc, a, b, count);
    }
}

void ps_reduce_merge(void *acc, const void *other, int dtype, size_t count)
{
    const struct loops *l = find(dtype);
    if (l != NULL) {
        l->merge(acc, other, count);
    }
}

void ps_reduce_divide(void *acc, int dtype, double divisor, size_t count)
{
    const struct loops *l = find(dtype);
    if (l != NULL) {
        l->divide(acc, divisor, count);
    }
}

void ps_reduce_store(void *dst, const void *acc, int dtype, size_t count)
{
    const struct loops *l = find(dtype);
    if (l != NULL && dst != acc) {
        l->store(dst, acc, count);
    }
}

void ps_reduce_accumulate(void *dst, const void *src, int dtype, size_t count)
{
    const struct loops *l = find(dtype);
    if (l != NULL) {
        l->add_in_place(dst, src, count);
    }
}
