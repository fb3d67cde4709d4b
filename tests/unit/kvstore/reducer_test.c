/* Sums over devices: bit-identical for any number of threads, by the pairwise tree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/reduce.h"
#include "kvstore/reducer.h"
#include "kvstore/shard/merge.h"

#define BOUND 10000

struct sink {
    float *out;
};

static enum ps_status take_block(void *ctx, uint64_t first, size_t count, const void *sum)
{
    const struct sink *sink = ctx;
    memcpy(sink->out + first, sum, count * sizeof(float));
    return PS_OK;
}

static float *random_array(uint64_t seed, size_t count)
{
    float *a = malloc(count * sizeof(*a));
    assert_non_null(a);
    for (size_t i = 0; i < count; i++) {
        a[i] = ps_rng_normal_at(7, seed, i);
    }
    return a;
}

static void sum_with(int threads, const void *const *src, uint32_t n, size_t count,
                     float *out)
{
    struct ps_reducer *reducer = NULL;
    struct sink sink = {.out = out};
    assert_int_equal(ps_reducer_create(threads, BOUND, &reducer), PS_OK);
    for (int repeat = 0; repeat < 2; repeat++) { /* the second run reuses the threads */
        assert_int_equal(
            ps_reducer_run(reducer, src, n, PS_F32, count, take_block, &sink), PS_OK);
        int expected = n > 1 && count >= BOUND ? threads : 1;
        assert_int_equal(ps_reducer_last_threads(reducer), expected);
    }
    ps_reducer_destroy(reducer);
}

static void sums_do_not_depend_on_threads_and_follow_the_ranks_tree(void **state)
{
    static const size_t counts[] = {1, 4095, 4097, 50001};
    PS_UNUSED(state);
    for (uint32_t n = 1; n <= 9; n++) {
        for (size_t c = 0; c < PS_COUNT(counts); c++) {
            size_t count = counts[c];
            const void *src[9];
            struct ps_merge *merge = NULL;
            float *one = malloc(count * sizeof(float)),
                  *many = malloc(count * sizeof(float));
            assert_int_equal(ps_merge_create(n, PS_F32, count, &merge), PS_OK);
            for (uint32_t i = 0; i < n; i++) {
                src[i] = random_array(i, count);
                assert_int_equal(ps_merge_add(merge, n - 1 - i, NULL), PS_OK);
            }
            ps_merge_reset(merge);
            for (uint32_t i = 0; i < n; i++) { /* arrives in another order than by rank */
                uint32_t rank = (i * 5 + 3) % n;
                while (ps_merge_has(merge, rank)) {
                    rank = (rank + 1) % n;
                }
                assert_int_equal(ps_merge_add(merge, rank, src[rank]), PS_OK);
            }
            sum_with(1, src, n, count, one);
            sum_with(3, src, n, count, many);
            assert_memory_equal(one, many, count * sizeof(float));
            assert_memory_equal(one, ps_merge_result(merge), count * sizeof(float));
            ps_merge_destroy(merge);
            for (uint32_t i = 0; i < n; i++) {
                free((void *)(uintptr_t)src[i]);
            }
            free(one);
            free(many);
        }
    }
}

/* Four devices' arrays of two million: N threads take part, the bits are the same. */
static void setting_kvstore_reduction_nthreads_threads_sum_a_large_array(void **state)
{
    enum { COUNT = 2000000, DEVICES = 4 };
    static const int counts[] = {1, 2, 4, 8};
    const void *src[DEVICES];
    PS_UNUSED(state);
    float *first = malloc(COUNT * sizeof(float)), *sum = malloc(COUNT * sizeof(float));
    assert_non_null(first);
    assert_non_null(sum);
    for (uint32_t i = 0; i < DEVICES; i++) {
        src[i] = random_array(i, COUNT);
    }
    for (size_t c = 0; c < PS_COUNT(counts); c++) {
        sum_with(counts[c], src, DEVICES, COUNT, c == 0 ? first : sum);
        if (c > 0) {
            assert_memory_equal(sum, first, COUNT * sizeof(float));
        }
        sum_with(counts[c], src, DEVICES, BOUND - 1, sum); /* alone, below the bound */
    }
    for (uint32_t i = 0; i < DEVICES; i++) {
        free((void *)(uintptr_t)src[i]);
    }
    free(sum);
    free(first);
}

static enum ps_status fail_block(void *ctx, uint64_t first, size_t count, const void *sum)
{
    PS_UNUSED(ctx);
    PS_UNUSED(count);
    PS_UNUSED(sum);
    return first == 0 ? PS_EIO : PS_OK;
}

static void a_block_that_fails_is_the_runs_status(void **state)
{
    PS_UNUSED(state);
    struct ps_reducer *reducer = NULL;
    float *a = random_array(1, 20000);
    const void *src[2] = {a, a};
    assert_int_equal(ps_reducer_create(2, BOUND, &reducer), PS_OK);
    assert_int_equal(ps_reducer_run(reducer, src, 2, PS_F32, 20000, fail_block, NULL),
                     PS_EIO);
    assert_int_equal(ps_reducer_run(reducer, src, 0, PS_F32, 20000, fail_block, NULL),
                     PS_ERANGE);
    ps_reducer_destroy(reducer);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_do_not_depend_on_threads_and_follow_the_ranks_tree),
        cmocka_unit_test(setting_kvstore_reduction_nthreads_threads_sum_a_large_array),
        cmocka_unit_test(a_block_that_fails_is_the_runs_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
