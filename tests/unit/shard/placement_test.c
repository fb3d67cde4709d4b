/* Placement: goldens of reference/behaviour.md 4.5, balance, names, chunks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "kvstore/shard/placement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ps_placement *make(size_t servers, uint64_t bound)
{
    uint32_t members[16];
    struct ps_placement *p;
    for (size_t i = 0; i < servers; i++) {
        members[i] = (uint32_t)(100 + i);
    }
    struct ps_placement_options o = {.shard_count = 1024,
                                     .bigarray_bound = bound,
                                     .chunk_bytes = 1 << 20,
                                     .server_count = servers,
                                     .servers = members};
    assert_int_equal(ps_placement_create(&o, &p), PS_OK);
    return p;
}

static struct ps_key_row row_of(const char *name, int64_t count)
{
    struct ps_key_row row = {.numeric = true, .dtype = PS_F32, .shape = PS_SHAPE(count)};
    snprintf(row.name, sizeof(row.name), "%s", name);
    return row;
}

static void each_server_holds_its_golden_share(void **state)
{
    PS_UNUSED(state);
    static const struct {
        int64_t n;
        size_t servers;
        uint64_t share[7];
    } golden[] = {
        {1440000, 2, {720000, 720000}},
        {1440000, 3, {480000, 480000, 480000}},
        {1440000, 7, {205714, 205715, 205714, 205714, 205714, 205715, 205714}},
        {1466521, 2, {733261, 733260}},
        {1466521, 3, {488840, 488841, 488840}},
        {1466521, 7, {209503, 209503, 209503, 209503, 209503, 209503, 209503}},
        {4000000, 2, {2000000, 2000000}},
        {4000000, 3, {1333333, 1333334, 1333333}},
        {4000000, 7, {571429, 571428, 571429, 571428, 571429, 571428, 571429}},
        {1000003, 2, {500002, 500001}},
        {1000003, 3, {333334, 333335, 333334}},
        {1000003, 7, {142858, 142857, 142858, 142857, 142858, 142857, 142858}},
    };
    for (size_t g = 0; g < PS_COUNT(golden); g++) {
        struct ps_placement *p = make(golden[g].servers, 1000000);
        struct ps_key_row row = row_of("99", golden[g].n);
        uint64_t share[7] = {0}, end = 0;
        assert_int_equal(ps_placement_add(p, 0, &row, 1, NULL), PS_OK);
        for (size_t e = 0; e < row.extent_count; e++) {
            assert_true(row.extents[e].first == end); /* ascending, no holes */
            assert_true(row.extents[e].count <= (uint64_t)PS_EXTENT_COUNT_MAX);
            end += row.extents[e].count;
            share[ps_placement_server_of(p, row.extents[e].shard)] +=
                row.extents[e].count;
        }
        assert_true(end == (uint64_t)golden[g].n);
        for (size_t s = 0; s < golden[g].servers; s++) {
            assert_true(share[s] == golden[g].share[s]);
        }
        ps_key_row_fini(&row);
        ps_placement_destroy(p);
    }
}

static void below_the_bound_a_key_is_one_extent(void **state)
{
    PS_UNUSED(state);
    struct ps_placement *p = make(3, 1000000);
    struct ps_key_row rows[2] = {row_of("1", 999999), row_of("2", 1000000)};
    assert_int_equal(ps_placement_add(p, 0, rows, 2, NULL), PS_OK);
    assert_int_equal(rows[0].extent_count, 1);
    assert_int_equal(rows[1].extent_count, 3);
    ps_key_row_fini(&rows[0]);
    ps_key_row_fini(&rows[1]);
    ps_placement_destroy(p);
}

static void case_029_any_u64_key_has_a_server(void **state)
{
    PS_UNUSED(state);
    static const uint64_t keys[] = {0, 215329, 215330, 300000, UINT64_MAX};
    struct ps_placement *p = make(4, 1000000);
    for (size_t i = 0; i < PS_COUNT(keys); i++) {
        char name[32];
        snprintf(name, sizeof(name), "%" PRIu64, keys[i]);
        struct ps_key_row row = row_of(name, 100);
        assert_int_equal(ps_placement_add(p, 0, &row, 1, NULL), PS_OK);
        assert_true(ps_placement_server_of(p, row.extents[0].shard) < 4);
        ps_key_row_fini(&row);
    }
    ps_placement_destroy(p);
}

static void spread(const struct ps_placement *p, size_t servers, uint64_t *min,
                   uint64_t *max)
{
    *min = UINT64_MAX;
    *max = 0;
    for (uint32_t s = 0; s < servers; s++) {
        uint64_t bytes = ps_placement_server_bytes(p, s);
        *min = PS_MIN(*min, bytes);
        *max = PS_MAX(*max, bytes);
    }
}

static void case_030_large_and_small_keys_in_turn_are_balanced(void **state)
{
    PS_UNUSED(state);
    static const size_t servers[] = {2, 3, 4, 6};
    for (size_t k = 0; k < PS_COUNT(servers); k++) {
        for (int batch = 0; batch <= 1; batch++) {
            struct ps_placement *p = make(servers[k], 1000000);
            struct ps_key_row rows[20];
            for (int i = 0; i < 20; i++) {
                char name[32];
                snprintf(name, sizeof(name), "%d", i);
                rows[i] = row_of(name, i % 2 == 0 ? 500000 : 1000);
            }
            for (size_t i = 0; i < (batch != 0 ? 1 : 20); i++) {
                assert_int_equal(
                    ps_placement_add(p, 0, rows + i, batch != 0 ? 20 : 1, NULL), PS_OK);
            }
            uint64_t min, max;
            spread(p, servers[k], &min, &max);
            assert_true(max - min <= 500000 * 4);
            for (int i = 0; i < 20; i++) {
                ps_key_row_fini(&rows[i]);
            }
            ps_placement_destroy(p);
        }
    }
}

/* ---- real networks ---- */

static int64_t sizes[512];
static size_t size_count;

static void tensor(int64_t size)
{
    assert_true(size_count < PS_COUNT(sizes));
    sizes[size_count++] = size;
}

static void conv_bn(int64_t out, int64_t in, int64_t k)
{
    tensor(out * in * k * k);
    tensor(out); /* gamma */
    tensor(out); /* beta */
}

static void resnet50(void)
{
    static const int64_t width[] = {64, 128, 256, 512}, depth[] = {3, 4, 6, 3};
    int64_t in = 64;
    conv_bn(64, 3, 7);
    for (int s = 0; s < 4; s++) {
        for (int64_t b = 0; b < depth[s]; b++) {
            conv_bn(width[s], in, 1);
            conv_bn(width[s], width[s], 3);
            conv_bn(4 * width[s], width[s], 1);
            if (b == 0) {
                conv_bn(4 * width[s], in, 1);
            }
            in = 4 * width[s];
        }
    }
    tensor(1000 * 2048);
    tensor(1000);
}

static void vgg16(void)
{
    static const int64_t out[] = {64,  64,  128, 128, 256, 256, 256,
                                  512, 512, 512, 512, 512, 512};
    int64_t in = 3;
    for (size_t i = 0; i < PS_COUNT(out); i++) {
        tensor(out[i] * in * 9);
        tensor(out[i]);
        in = out[i];
    }
    tensor(4096 * 25088);
    tensor(4096);
    tensor(4096 * 4096);
    tensor(4096);
    tensor(1000 * 4096);
    tensor(1000);
}

static void alexnet(void)
{
    static const int64_t all[] = {96 * 3 * 121,  96,   256 * 96 * 25, 256,
                                  384 * 256 * 9, 384,  384 * 384 * 9, 384,
                                  256 * 384 * 9, 256,  4096 * 9216,   4096,
                                  4096 * 4096,   4096, 1000 * 4096,   1000};
    for (size_t i = 0; i < PS_COUNT(all); i++) {
        tensor(all[i]);
    }
}

static void networks_are_balanced_to_one_tenth(void **state)
{
    PS_UNUSED(state);
    static void (*const networks[])(void) = {resnet50, vgg16, alexnet};
    static const size_t tensors[] = {161, 32, 16};
    for (size_t k = 0; k < PS_COUNT(networks); k++) {
        size_count = 0;
        networks[k]();
        assert_int_equal(size_count, tensors[k]);
        uint64_t largest_unsplit = 0;
        for (size_t i = 0; i < size_count; i++) {
            if (sizes[i] < 1000000) {
                largest_unsplit = PS_MAX(largest_unsplit, (uint64_t)sizes[i]);
            }
        }
        for (size_t servers = 1; servers <= 8; servers++) {
            struct ps_placement *p = make(servers, 1000000);
            struct ps_key_row *rows = calloc(size_count, sizeof(*rows));
            assert_non_null(rows);
            for (size_t i = 0; i < size_count; i++) {
                char name[32];
                snprintf(name, sizeof(name), "%zu", i);
                rows[i] = row_of(name, sizes[i]);
            }
            uint64_t min, max;
            assert_int_equal(ps_placement_add(p, 0, rows, size_count, NULL), PS_OK);
            spread(p, servers, &min, &max);
            assert_true(max - min <= largest_unsplit * sizeof(float));
            /* From 7 servers on alexnet's 384*256*9 elements on one server alone are more
             * than a tenth of the even share of everything that is split: no placement of
             * whole keys can do better than this one's 1.12. */
            bool can = networks[k] != alexnet || servers < 7;
            assert_true((double)max <= (can ? 1.1 : 1.12) * (double)min);
            for (size_t i = 0; i < size_count; i++) {
                ps_key_row_fini(&rows[i]);
            }
            free(rows);
            ps_placement_destroy(p);
        }
    }
}

static void names_are_found_again_and_differences_are_named(void **state)
{
    PS_UNUSED(state);
    struct ps_placement *p = make(2, 1000000);
    struct ps_error err = {0};
    struct ps_key_row a = row_of("17", 10), b = row_of("17", 10), c = row_of("17", 11);
    struct ps_key_row text = row_of("17", 10), two[2];
    text.numeric = false;
    assert_int_equal(ps_placement_add(p, 0, &a, 1, &err), PS_OK);
    assert_int_equal(ps_placement_add(p, 0, &b, 1, &err), PS_OK);
    assert_true(a.handle == b.handle && a.extents != b.extents);
    assert_int_equal(ps_placement_add(p, 0, &c, 1, &err), PS_EMISMATCH);
    assert_non_null(strstr(err.text, "shape"));
    c = row_of("17", 10);
    c.dtype = PS_F16;
    assert_int_equal(ps_placement_add(p, 0, &c, 1, &err), PS_EMISMATCH);
    assert_non_null(strstr(err.text, "dtype"));
    c = row_of("17", 10);
    c.mode = PS_MODE_ASYNC;
    assert_int_equal(ps_placement_add(p, 0, &c, 1, &err), PS_EMISMATCH);
    assert_non_null(strstr(err.text, "mode"));
    assert_int_equal(ps_placement_add(p, 0, &text, 1, &err), PS_OK);
    assert_true(text.handle != a.handle); /* 17 and "17" */
    assert_int_equal(ps_placement_key_count(p), 2);
    two[0] = row_of("3", 5);
    two[1] = row_of("3", 5);
    assert_int_equal(ps_placement_add(p, 0, two, 2, &err), PS_EEXIST);
    assert_non_null(strstr(err.text, "3"));
    assert_int_equal(ps_placement_key_count(p), 2); /* all or nothing */
    assert_null(ps_placement_find(p, 0, "3", true));
    assert_ptr_equal(ps_placement_find(p, 0, "17", true), ps_placement_key(p, 0));
    assert_null(ps_placement_find(p, 1, "17", true)); /* another store */
    c = row_of("18", 0);
    assert_int_equal(ps_placement_add(p, 0, &c, 1, &err), PS_ESHAPE);
    ps_key_row_fini(&a);
    ps_key_row_fini(&b);
    ps_key_row_fini(&text);
    ps_placement_destroy(p);
}

static void chunks_are_cut_at_multiples_of_1024(void **state)
{
    PS_UNUSED(state);
    assert_true(ps_chunk_elements(PS_F32, 1 << 20) == 262144);
    assert_true(ps_chunk_elements(PS_F64, 5000) == 1024);
    assert_true(ps_chunk_elements(PS_F16, 10000) == 4096);
    assert_true(ps_chunk_count(262145, 262144) == 2);
    struct ps_extent e = {.first = 100, .count = 2500, .shard = 1};
    assert_true(ps_chunk_find(&e, 1024, 100, 1024) == 0);
    assert_true(ps_chunk_find(&e, 1024, 2148, 452) == 2);
    assert_true(ps_chunk_find(&e, 1024, 2148, 1024) == UINT64_MAX);
    assert_true(ps_chunk_find(&e, 1024, 101, 1024) == UINT64_MAX);
    assert_true(ps_chunk_find(&e, 1024, 2600, 1) == UINT64_MAX);
    struct ps_extent list[] = {{0, 10, 0}, {20, 10, 1}, {30, 5, 2}};
    assert_int_equal(ps_extent_find(list, 3, 9), 0);
    assert_int_equal(ps_extent_find(list, 3, 29), 1);
    assert_int_equal(ps_extent_find(list, 3, 34), 2);
    assert_true(ps_extent_find(list, 3, 15) == SIZE_MAX);
    assert_true(ps_extent_find(list, 3, 35) == SIZE_MAX);
    for (uint32_t s = 0; s < 1024; s++) {
        assert_true(ps_shard_home(s, 1024, 7) < 7);
    }
    assert_int_equal(ps_shard_home(0, 1024, 7), 0);
    assert_int_equal(ps_shard_home(1023, 1024, 7), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_server_holds_its_golden_share),
        cmocka_unit_test(below_the_bound_a_key_is_one_extent),
        cmocka_unit_test(case_029_any_u64_key_has_a_server),
        cmocka_unit_test(case_030_large_and_small_keys_in_turn_are_balanced),
        cmocka_unit_test(networks_are_balanced_to_one_tenth),
        cmocka_unit_test(names_are_found_again_and_differences_are_named),
        cmocka_unit_test(chunks_are_cut_at_multiples_of_1024)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
