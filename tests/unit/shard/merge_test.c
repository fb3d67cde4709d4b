/* Merge: the order of arrival does not matter, bit for bit; partials are bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "kvstore/shard/merge.h"

#include <stdlib.h>
#include <string.h>

#define COUNT 37
#define RANKS_MAX 9

static float data[RANKS_MAX][COUNT];

static void fill(uint64_t seed)
{
    struct ps_rng rng;
    ps_rng_init(&rng, seed);
    for (int r = 0; r < RANKS_MAX; r++) {
        for (int i = 0; i < COUNT; i++) {
            data[r][i] = (float)(ps_rng_unit(&rng) - 0.5) *
                         (ps_rng_below(&rng, 2) == 0 ? 1.0f : 1e6f);
        }
    }
}

/* The definition: level-wise pairing, absent ones skipped. */
static bool plain_tree(uint32_t n, unsigned present, float out[COUNT])
{
    static float level[RANKS_MAX][COUNT];
    bool there[RANKS_MAX];
    for (uint32_t r = 0; r < n; r++) {
        there[r] = (present >> r & 1) != 0;
        memcpy(level[r], data[r], sizeof(level[r]));
    }
    while (n > 1) {
        for (uint32_t p = 0; p < (n + 1) / 2; p++) {
            uint32_t a = 2 * p, b = 2 * p + 1;
            bool second = b < n && there[b];
            for (int i = 0; i < COUNT; i++) {
                level[p][i] = there[a] && second ? level[a][i] + level[b][i]
                              : second           ? level[b][i]
                                                 : level[a][i];
            }
            there[p] = there[a] || second;
        }
        n = (n + 1) / 2;
    }
    memcpy(out, level[0], sizeof(level[0]));
    return there[0];
}

/* One arrival, in one of the ways it can come. */
static void arrive(struct ps_merge *merge, uint32_t rank, unsigned present, int way)
{
    static unsigned char shifted[sizeof(data[0]) + 1];
    if ((present >> rank & 1) == 0) {
        if (way % 2 == 0) {
            assert_int_equal(ps_merge_skip(merge, rank), PS_OK);
        } else {
            assert_int_equal(ps_merge_add(merge, rank, NULL), PS_OK);
        }
    } else if (way % 3 == 0) {
        memcpy(shifted + 1, data[rank], sizeof(data[rank]));
        assert_int_equal(ps_merge_add(merge, rank, shifted + 1), PS_OK);
        memset(shifted, 0xff, sizeof(shifted));
    } else {
        struct ps_buf *buf = ps_buf_create(sizeof(data[rank]));
        assert_non_null(buf);
        memcpy(buf->data, data[rank], sizeof(data[rank]));
        assert_int_equal(ps_merge_add_buf(merge, rank, buf->data, buf), PS_OK);
        ps_buf_release(buf);
    }
}

static void run_order(struct ps_merge *merge, struct ps_blocks *blocks, uint32_t n,
                      const uint32_t *order, unsigned present, int way)
{
    float expect[COUNT], target[COUNT];
    bool any = plain_tree(n, present, expect);
    ps_merge_reset(merge);
    if (way % 2 == 1) {
        ps_merge_set_target(merge, target);
    }
    for (uint32_t k = 0; k < n; k++) {
        assert_false(ps_merge_complete(merge));
        assert_false(ps_merge_has(merge, order[k]));
        arrive(merge, order[k], present, way + (int)k);
        assert_true(ps_merge_has(merge, order[k]));
        assert_int_equal(ps_merge_add(merge, order[k], data[0]), PS_EEXIST);
        assert_true(ps_blocks_in_use(blocks) <= (n + 1) / 2);
    }
    assert_true(ps_merge_complete(merge));
    if (any) {
        assert_memory_equal(ps_merge_result(merge), expect, sizeof(expect));
    } else {
        assert_null(ps_merge_result(merge));
    }
}

static void permute(struct ps_merge *merge, struct ps_blocks *blocks, uint32_t *order,
                    uint32_t at, uint32_t n, unsigned present, int *way)
{
    if (at == n) {
        run_order(merge, blocks, n, order, present, (*way)++);
        return;
    }
    for (uint32_t i = at; i < n; i++) {
        uint32_t t = order[at];
        order[at] = order[i];
        order[i] = t;
        permute(merge, blocks, order, at + 1, n, present, way);
        order[i] = order[at];
        order[at] = t;
    }
}

static void every_order_of_arrival_gives_the_same_bits(void **state)
{
    PS_UNUSED(state);
    fill(7);
    for (uint32_t n = 1; n <= 5; n++) {
        struct ps_blocks *blocks;
        struct ps_merge *merge;
        assert_int_equal(ps_blocks_create(&blocks), PS_OK);
        assert_int_equal(ps_merge_create_in(blocks, n, PS_F32, COUNT, &merge), PS_OK);
        for (unsigned present = 0; present < 1u << n; present++) {
            uint32_t order[RANKS_MAX];
            int way = (int)present;
            for (uint32_t i = 0; i < n; i++) {
                order[i] = i;
            }
            permute(merge, blocks, order, 0, n, present, &way);
        }
        ps_merge_destroy(merge);
        assert_int_equal(ps_blocks_in_use(blocks), 0);
        ps_blocks_destroy(blocks);
    }
}

static void random_orders_of_nine_agree_too(void **state)
{
    PS_UNUSED(state);
    struct ps_rng rng;
    struct ps_blocks *blocks;
    struct ps_merge *merge;
    ps_rng_init(&rng, 9);
    fill(8);
    assert_int_equal(ps_blocks_create(&blocks), PS_OK);
    assert_int_equal(ps_merge_create_in(blocks, 9, PS_F32, COUNT, &merge), PS_OK);
    for (int k = 0; k < 2000; k++) {
        uint32_t order[9];
        for (uint32_t i = 0; i < 9; i++) {
            order[i] = i;
        }
        for (uint32_t i = 8; i > 0; i--) {
            uint32_t j = (uint32_t)ps_rng_below(&rng, i + 1), t = order[i];
            order[i] = order[j];
            order[j] = t;
        }
        run_order(merge, blocks, 9, order, (unsigned)ps_rng_below(&rng, 512), k);
    }
    ps_merge_destroy(merge);
    ps_blocks_destroy(blocks);
}

static void votes_and_contributors_are_counted_apart(void **state)
{
    PS_UNUSED(state);
    struct ps_merge *merge;
    assert_int_equal(ps_merge_create(4, PS_F32, COUNT, &merge), PS_OK);
    assert_int_equal(ps_merge_add(merge, 2, NULL), PS_OK);
    assert_int_equal(ps_merge_skip(merge, 3), PS_OK);
    assert_int_equal(ps_merge_add(merge, 0, data[0]), PS_OK);
    assert_int_equal(ps_merge_add(merge, 4, data[0]), PS_ERANGE);
    assert_int_equal(ps_merge_skip(merge, 2), PS_EEXIST);
    assert_int_equal(ps_merge_arrived(merge), 2);
    assert_int_equal(ps_merge_contributors(merge), 1);
    assert_null(ps_merge_result(merge));
    ps_merge_forget(merge);
    assert_true(ps_merge_has(merge, 0));
    assert_int_equal(ps_merge_add(merge, 1, NULL), PS_OK);
    assert_true(ps_merge_complete(merge));
    assert_null(ps_merge_result(merge));
    ps_merge_destroy(merge);
}

static void narrow_types_are_summed_wide(void **state)
{
    PS_UNUSED(state);
    struct ps_merge *merge;
    uint8_t bytes[3] = {200, 255, 1};
    assert_int_equal(ps_merge_create(3, PS_U8, 3, &merge), PS_OK);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(ps_merge_add(merge, r, bytes), PS_OK);
    }
    const int64_t *sum = ps_merge_result(merge);
    assert_int_equal(sum[0], 600);
    assert_int_equal(sum[1], 765);
    ps_merge_destroy(merge);

    uint16_t big[2] = {ps_f32_to_f16(60000), ps_f32_to_f16(0.0001f)};
    assert_int_equal(ps_merge_create(1, PS_F16, 2, &merge), PS_OK);
    struct ps_buf *buf = ps_buf_wrap(big, sizeof(big), NULL, NULL);
    assert_int_equal(ps_merge_add_buf(merge, 0, big, buf), PS_OK);
    ps_buf_release(buf);
    assert_null(ps_merge_result_buf(merge)); /* widened */
    assert_float_equal(((const float *)ps_merge_result(merge))[0], 60000, 16);
    ps_merge_destroy(merge);
}

static void a_tree_sum_equals_the_merge_for_any_cut(void **state)
{
    PS_UNUSED(state);
    enum { N = 5000 };
    static float in[7][N], whole[N], cut[N];
    static unsigned char scratch[1 << 20];
    struct ps_rng rng;
    ps_rng_init(&rng, 3);
    const void *ptrs[7], *parts[7];
    for (uint32_t n = 1; n <= 7; n++) {
        struct ps_merge *merge;
        assert_int_equal(ps_merge_create(n, PS_F32, N, &merge), PS_OK);
        assert_true(ps_tree_sum_scratch_bytes(n, PS_F32) <= sizeof(scratch));
        for (uint32_t r = 0; r < n; r++) {
            for (int i = 0; i < N; i++) {
                in[r][i] = (float)(ps_rng_unit(&rng) - 0.5);
            }
            ptrs[r] = in[r];
            assert_int_equal(ps_merge_add(merge, r, in[r]), PS_OK);
        }
        ps_tree_sum(whole, ptrs, n, PS_F32, N, scratch);
        assert_memory_equal(whole, ps_merge_result(merge), sizeof(whole));
        for (size_t at = 0; at < N; at += 777) {
            size_t k = PS_MIN((size_t)777, N - at);
            for (uint32_t r = 0; r < n; r++) {
                parts[r] = in[r] + at;
            }
            ps_tree_sum(cut + at, parts, n, PS_F32, k, scratch);
        }
        assert_memory_equal(whole, cut, sizeof(whole));
        ps_merge_destroy(merge);
    }
    ptrs[1] = ptrs[2] = ptrs[3] = NULL; /* absent */
    ps_tree_sum(whole, ptrs, 5, PS_F32, N, scratch);
    assert_float_equal(whole[4321], in[0][4321] + in[4][4321], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_of_arrival_gives_the_same_bits),
        cmocka_unit_test(random_orders_of_nine_agree_too),
        cmocka_unit_test(votes_and_contributors_are_counted_apart),
        cmocka_unit_test(narrow_types_are_summed_wide),
        cmocka_unit_test(a_tree_sum_equals_the_merge_for_any_cut)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
