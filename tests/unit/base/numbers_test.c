/* Random numbers against their published vectors; half precision; shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "base/rng.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

static void philox_has_its_known_answers(void **state)
{
    /* Random123's kat_vectors, philox4x32 with 10 rounds: counter, key, result. */
    static const struct {
        uint64_t seed, stream, index;
        uint32_t out[4];
    } rows[] = {
        {0, 0, 0, {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}},
        {UINT64_MAX,
         UINT64_MAX,
         UINT64_MAX,
         {0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}},
        {UINT64_C(0x299F31D0A4093822),
         UINT64_C(0x0370734413198A2E),
         UINT64_C(0x85A308D3243F6A88),
         {0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}},
    };
    (void)state;
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        uint32_t out[4];
        ps_rng_at(rows[i].seed, rows[i].stream, rows[i].index, out);
        assert_memory_equal(out, rows[i].out, sizeof(out));
    }
}

static void xoshiro_has_its_known_answers(void **state)
{
    /* The reference implementation's first outputs for the state {1, 2, 3, 4}. */
    static const uint64_t expected[] = {UINT64_C(41943041), UINT64_C(58720359),
                                        UINT64_C(3588806011781223),
                                        UINT64_C(3591011842654386)};
    struct ps_rng rng = {{1, 2, 3, 4}};
    (void)state;
    for (size_t i = 0; i < PS_COUNT(expected); i++) {
        assert_true(ps_rng_u64(&rng) == expected[i]);
    }
    /* splitmix64 from 0 */
    ps_rng_init(&rng, 0);
    assert_true(rng.s[0] == UINT64_C(0xE220A8397B1DCDAF));
    assert_true(rng.s[1] == UINT64_C(0x6E789E6AA1B965F4));
}

static void bounded_numbers_are_even(void **state)
{
    struct ps_rng rng;
    int counts[7] = {0};
    (void)state;
    ps_rng_init(&rng, 5);
    for (int i = 0; i < 70000; i++) {
        uint64_t n = ps_rng_below(&rng, 7);
        assert_true(n < 7);
        counts[n]++;
        double u = ps_rng_unit(&rng);
        assert_true(u >= 0 && u < 1);
        assert_true(ps_rng_below(&rng, UINT64_MAX) < UINT64_MAX);
        assert_int_equal(ps_rng_below(&rng, 1), 0);
    }
    for (int i = 0; i < 7; i++) {
        assert_in_range(counts[i], 9600, 10400);
    }
}

static void normal_numbers_have_their_moments(void **state)
{
    enum { N = 100000 };
    double sum = 0, squares = 0, units = 0;
    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        float x = ps_rng_normal_at(1, 2, i);
        assert_true(isfinite(x));
        sum += x;
        squares += (double)x * x;
        float u = ps_rng_unit_at(1, 3, i);
        assert_true(u >= 0 && u < 1);
        units += u;
    }
    assert_true(fabs(sum / N) < 0.015);
    assert_true(fabs(squares / N - 1) < 0.02);
    assert_true(fabs(units / N - 0.5) < 0.005);
    assert_true(ps_rng_normal_at(1, 2, 3) == ps_rng_normal_at(1, 2, 3));
}

static void the_kernel_gives_fresh_bytes(void **state)
{
    unsigned char a[32] = {0}, b[32] = {0};
    (void)state;
    assert_int_equal(ps_random_bytes(a, sizeof(a)), PS_OK);
    assert_int_equal(ps_random_bytes(b, sizeof(b)), PS_OK);
    assert_true(memcmp(a, b, sizeof(a)) != 0);
}

static void every_half_goes_round(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0xFFFF; h++) {
        float f = ps_f16_to_f32((uint16_t)h);
        float g = ps_bf16_to_f32((uint16_t)h);
        if (isnan(f)) {
            assert_true(isnan(ps_f16_to_f32(ps_f32_to_f16(f))));
        } else {
            assert_int_equal(ps_f32_to_f16(f), h);
        }
        if (isnan(g)) {
            assert_true(isnan(ps_bf16_to_f32(ps_f32_to_bf16(g))));
        } else {
            assert_int_equal(ps_f32_to_bf16(g), h);
        }
    }
}

/* Between two neighbouring halves the nearer is taken, and the even one in the middle. */
static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7BFF; h++) {
        double low = ps_f16_to_f32((uint16_t)h), high = ps_f16_to_f32((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2);
        uint32_t even = (h & 1) == 0 ? h : h + 1;
        assert_int_equal(ps_f32_to_f16(middle), even);
        assert_int_equal(ps_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(ps_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(ps_f32_to_f16(-middle), even | 0x8000);
    }
    assert_int_equal(ps_f32_to_f16(65519.0f), 0x7BFF);
    assert_int_equal(ps_f32_to_f16(65520.0f), 0x7C00);
    assert_int_equal(ps_f32_to_f16(1e30f), 0x7C00);
    assert_int_equal(ps_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(ps_f32_to_f16(nextafterf(0x1p-25f, 1)), 1);
    assert_int_equal(ps_f32_to_bf16(1.00390625f),
                     0x3F80); /* half of the last bit: even */
    assert_int_equal(ps_f32_to_bf16(1.01171875f), 0x3F82);
    assert_int_equal(ps_f32_to_bf16(3.4e38f), 0x7F80);
}

static void halves_are_the_same_with_denormals_flushed(void **state)
{
    (void)state;
    ps_thread_compute_mode();
    every_half_goes_round(state);
}

static void dtypes_have_mxnets_codes(void **state)
{
    (void)state;
    assert_int_equal(ps_dtype_from_name("float16"), 2);
    assert_int_equal(ps_dtype_from_name("bfloat16"), 12);
    assert_int_equal(ps_dtype_from_name("complex64"), PS_DTYPE_UNKNOWN);
    assert_int_equal(ps_dtype_size(PS_I64), 8);
    assert_int_equal(ps_dtype_size(7), 0);
    assert_string_equal(ps_dtype_name(3), "uint8");
    assert_string_equal(ps_dtype_name(99), "?");
    assert_int_equal(ps_dtype_accumulator(PS_F16), PS_F32);
    assert_int_equal(ps_dtype_accumulator(PS_I8), PS_I64);
    assert_int_equal(ps_dtype_accumulator(PS_F64), PS_F64);
}

static void shapes_count_merge_and_print(void **state)
{
    char text[PS_SHAPE_TEXT_BYTES];
    struct ps_shape a = PS_SHAPE(2, -1, 4), b = PS_SHAPE(-1, 3, 4),
                    unknown = PS_SHAPE_UNKNOWN;
    (void)state;
    assert_false(ps_shape_known(&a));
    assert_int_equal(ps_shape_count(&a), -1);
    assert_string_equal(ps_shape_text(&a, text), "(2, ?, 4)");
    assert_int_equal(ps_shape_merge(&a, &b), PS_OK);
    assert_int_equal(ps_shape_count(&a), 24);
    struct ps_shape wrong = PS_SHAPE(2, 5, 4);
    assert_int_equal(ps_shape_merge(&a, &wrong), PS_ESHAPE);
    assert_true(ps_shape_equal(&a, &PS_SHAPE(2, 3, 4)));
    assert_int_equal(ps_shape_merge(&a, &PS_SHAPE(2, 3)), PS_ESHAPE);
    assert_int_equal(ps_shape_merge(&unknown, &a), PS_OK);
    assert_true(ps_shape_equal(&unknown, &a));
    struct ps_shape scalar = {.ndim = 0};
    assert_int_equal(ps_shape_count(&scalar), 1);
    assert_string_equal(ps_shape_text(&scalar, text), "()");
    assert_string_equal(ps_shape_text(&PS_SHAPE(4), text), "(4,)");
    struct ps_shape huge = PS_SHAPE(INT64_C(1) << 40, INT64_C(1) << 40);
    assert_int_equal(ps_shape_count(&huge), -1);
    struct ps_shape empty = PS_SHAPE(INT64_C(1) << 40, INT64_C(1) << 40, 0);
    assert_int_equal(ps_shape_count(&empty), 0);
    struct ps_shape longest = {.ndim = PS_MAX_DIM};
    for (int i = 0; i < PS_MAX_DIM; i++) {
        longest.dim[i] = INT64_MAX;
    }
    assert_true(strlen(ps_shape_text(&longest, text)) < PS_SHAPE_TEXT_BYTES);
    assert_int_equal(text[strlen(text) - 1], ')');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_has_its_known_answers),
        cmocka_unit_test(xoshiro_has_its_known_answers),
        cmocka_unit_test(bounded_numbers_are_even),
        cmocka_unit_test(normal_numbers_have_their_moments),
        cmocka_unit_test(the_kernel_gives_fresh_bytes),
        cmocka_unit_test(every_half_goes_round),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(dtypes_have_mxnets_codes),
        cmocka_unit_test(shapes_count_merge_and_print),
        cmocka_unit_test(halves_are_the_same_with_denormals_flushed),
    };
    return cmocka_run_group_tests_name("numbers", tests, NULL, NULL);
}
