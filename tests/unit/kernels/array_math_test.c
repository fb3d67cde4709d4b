/* Sums and conversions of arrays; half formats over all their values; exp and tanh
 * against libm; matrix products of the BLAS against plain code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kernels/blas.h"
#include "kernels/elementwise/elementwise_math.h"
#include "kernels/half.h"
#include "kernels/reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int dtypes[] = {PS_F32, PS_F64, PS_F16, PS_BF16,
                             PS_U8,  PS_I8,  PS_I32, PS_I64};

static void halves_agree_with_base_on_every_value(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= UINT16_MAX; h++) {
        float a = ps_half_load((uint16_t)h), b = ps_f16_to_f32((uint16_t)h);
        assert_true(a == b || (isnan(a) && isnan(b)));
        if (!isnan(a)) {
            assert_int_equal(ps_half_store(a), h);
            assert_int_equal(ps_bfloat_store(ps_bfloat_load((uint16_t)h)),
                             ps_f32_to_bf16(ps_bf16_to_f32((uint16_t)h)));
        }
    }
    for (uint64_t i = 0; i < 2000000; i++) { /* floats spread over all exponents */
        uint32_t bits = (uint32_t)(i * 2147 + i * i % 2147);
        float f = ps_bits_f32(bits);
        if (isnan(f)) {
            assert_true(isnan(ps_half_load(ps_half_store(f))));
            assert_true(isnan(ps_bfloat_load(ps_bfloat_store(f))));
            continue;
        }
        assert_int_equal(ps_half_store(f), ps_f32_to_f16(f));
        assert_int_equal(ps_bfloat_store(f), ps_f32_to_bf16(f));
    }
}

enum { COUNT = 777 };

static void sums_keep_the_accumulation_type(void **state)
{
    (void)state;
    for (size_t d = 0; d < PS_COUNT(dtypes); d++) {
        int dtype = dtypes[d];
        double x[COUNT], acc[COUNT], other[COUNT], out[COUNT];
        int64_t ids[COUNT];
        for (int i = 0; i < COUNT; i++) {
            ids[i] = i % 50;
        }
        assert_int_equal(ps_convert(x, dtype, ids, PS_I64, COUNT), PS_OK);
        ps_reduce_load(acc, x, dtype, COUNT);
        ps_reduce_add(acc, x, dtype, COUNT);
        ps_reduce_sum2(other, x, x, dtype, COUNT);
        ps_reduce_merge(acc, other, dtype, COUNT);
        ps_reduce_divide(acc, dtype, 2.0, COUNT);
        ps_reduce_store(out, acc, dtype, COUNT);
        ps_reduce_accumulate(x, x, dtype, COUNT); /* 2 x, the same */
        assert_memory_equal(out, x, COUNT * ps_dtype_size(dtype));
    }
    uint8_t small[1] = {200};
    int64_t acc[1];
    ps_reduce_sum2(acc, small, small, PS_U8, 1);
    assert_true(acc[0] == 400);
    ps_reduce_divide(acc, PS_U8, 2.0, 1);
    ps_reduce_store(small, acc, PS_U8, 1);
    assert_int_equal(small[0], 200);
}

static void conversions_round_once_saturate_and_truncate(void **state)
{
    static const double reals[] = {1.9, -1.9, 1e30, -1e30, NAN, 300};
    static const int64_t want_i64[] = {1, -1, INT64_MAX, INT64_MIN, 0, 300};
    int64_t wide[6];
    int8_t narrow[6];
    uint16_t half;
    (void)state;
    assert_int_equal(ps_convert(wide, PS_I64, reals, PS_F64, 6), PS_OK);
    assert_memory_equal(wide, want_i64, sizeof wide);
    assert_int_equal(ps_convert(narrow, PS_I8, wide, PS_I64, 6), PS_OK);
    assert_true(narrow[2] == 127 && narrow[3] == -128 && narrow[5] == 127);
    /* just above the tie of 1 and its successor: two roundings would give 1 */
    double above = 1.0 + 0x1p-11 + 0x1p-40;
    assert_int_equal(ps_convert(&half, PS_F16, &above, PS_F64, 1), PS_OK);
    assert_int_equal(half, 0x3c01);
    assert_int_equal(ps_convert(&half, PS_F16, &above, 99, 1), PS_EDTYPE);
}

static double ulps(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1.0, exponent - 24);
}

static void exp_and_tanh_are_close_to_libm(void **state)
{
    (void)state;
    for (int i = -870000; i <= 880000; i += 7) {
        float x = (float)i * 1e-4F;
        assert_true(ulps(ps_exp_f32(x), exp((double)x)) < 2.0);
    }
    for (int i = -200000; i <= 200000; i += 3) {
        float x = (float)i * 1e-4F;
        assert_true(i == 0 || ulps(ps_tanh_f32(x), tanh((double)x)) < 3.0);
    }
    assert_true(ps_exp_f32(200.0F) == INFINITY && ps_exp_f32(-200.0F) == 0.0F);
    assert_true(isnan(ps_exp_f32(NAN)) && isnan(ps_tanh_f32(NAN)));
    assert_true(ps_tanh_f32(INFINITY) == 1.0F && ps_tanh_f32(-INFINITY) == -1.0F);
    assert_true(ps_sigmoid_f32(-200.0F) == 0.0F && ps_sigmoid_f32(200.0F) == 1.0F);
}

static void blas_products_equal_plain_code(void **state)
{
    enum { M = 37, N = 53, K = 65 };
    struct ps_blas blas;
    (void)state;
    ps_blas_open(&blas, NULL);
    for (int way = 0; way < 8; way++) {
        int dtype = way < 4 ? PS_F32 : PS_F64;
        static double a[M * K], b[K * N], c[M * N], d[M * N];
        struct ps_gemm g = {.dtype = dtype,
                            .transpose_a = (way & 1) != 0,
                            .transpose_b = (way & 2) != 0,
                            .m = M,
                            .n = N,
                            .k = K,
                            .a = a,
                            .b = b,
                            .c = c,
                            .lda = (way & 1) != 0 ? M : K,
                            .ldb = (way & 2) != 0 ? K : N,
                            .ldc = N,
                            .beta = 0.5,
                            .threads = 1};
        for (int i = 0; i < M * K + K * N + M * N; i++) {
            double v = (double)ps_rng_unit_at(3, 1, (uint64_t)i) - 0.5;
            int k = i < M * K ? i : i < M * K + K * N ? i - M * K : i - M * K - K * N;
            double *to = i < M * K ? a : i < M * K + K * N ? b : c;
            if (dtype == PS_F32) {
                ((float *)(void *)to)[k] = (float)v;
            } else {
                to[k] = v;
            }
        }
        memcpy(d, c, sizeof d);
        ps_gemm(&blas, &g);
        g.c = d;
        ps_gemm_plain(&g);
        for (int i = 0; i < M * N; i++) {
            double x = dtype == PS_F32 ? (double)((float *)(void *)c)[i] : c[i];
            double y = dtype == PS_F32 ? (double)((float *)(void *)d)[i] : d[i];
            assert_true(fabs(x - y) <= (dtype == PS_F32 ? 1e-5 : 1e-13) * (1 + fabs(y)));
        }
    }
    ps_blas_close(&blas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_agree_with_base_on_every_value),
        cmocka_unit_test(sums_keep_the_accumulation_type),
        cmocka_unit_test(conversions_round_once_saturate_and_truncate),
        cmocka_unit_test(exp_and_tanh_are_close_to_libm),
        cmocka_unit_test(blas_products_equal_plain_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
