/* The device memory pool, over a source that counts and can run dry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "engine/device/pool.h"

#include <stdlib.h>
#include <string.h>

struct source { /* addresses only; nothing is touched */
    size_t held_bytes, peak_bytes, limit_bytes;
    size_t piece_bytes; /* the largest block it gives; 0: any */
    uintptr_t next;
    int allocs, frees;
};

static void *source_alloc(void *owner, size_t size)
{
    struct source *source = owner;
    if (size > source->limit_bytes - source->held_bytes ||
        (source->piece_bytes > 0 && size > source->piece_bytes)) {
        return NULL;
    }
    source->held_bytes += size;
    source->peak_bytes = PS_MAX(source->peak_bytes, source->held_bytes);
    source->allocs++;
    source->next += 64;
    return (void *)source->next;
}

static void source_free(void *owner, void *ptr, size_t size)
{
    struct source *source = owner;
    assert_non_null(ptr);
    assert_true(size <= source->held_bytes);
    source->held_bytes -= size;
    source->frees++;
}

static struct source source;
static struct ps_device_pool pool;

static int setup(void **state)
{
    PS_UNUSED(state);
    source = (struct source){.limit_bytes = SIZE_MAX};
    struct ps_pool_source functions = {
        .alloc = source_alloc, .free = source_free, .owner = &source};
    ps_device_pool_init(&pool, &functions, (size_t)64 << 20);
    return 0;
}

static int teardown(void **state)
{
    PS_UNUSED(state);
    ps_device_pool_fini(&pool);
    assert_int_equal(source.held_bytes, 0);
    return 0;
}

static void a_freed_block_serves_the_next_request_of_its_class(void **state)
{
    PS_UNUSED(state);
    void *a = ps_device_pool_alloc(&pool, 1000);
    ps_device_pool_free(&pool, a, 1000);
    assert_ptr_equal(ps_device_pool_alloc(&pool, 990), a);
    assert_int_equal(source.allocs, 1);
    ps_device_pool_free(&pool, a, 990);
    ps_device_pool_free(&pool, NULL, 5);
    assert_null(ps_device_pool_alloc(&pool, 0));
}

static void case_116_random_sizes_do_not_grow_the_pool(void **state)
{
    struct ps_rng rng;
    struct ps_device_usage usage;
    size_t size = 0;
    void *block = NULL;
    PS_UNUSED(state);
    ps_rng_init(&rng, 116);
    for (int i = 0; i < 500; i++) {
        size_t next = 2000 * (1500 + ps_rng_below(&rng, 1001)) * sizeof(float);
        void *more = ps_device_pool_alloc(&pool, next); /* two are alive at a time */
        assert_non_null(more);
        ps_device_pool_free(&pool, block, size);
        block = more;
        size = next;
    }
    ps_device_pool_usage(&pool, &usage);
    size_t largest = ps_device_pool_rounded((size_t)2000 * 2500 * sizeof(float));
    assert_true(usage.peak_bytes <= 3 * largest + ((size_t)64 << 20));
    assert_int_equal(source.peak_bytes, usage.peak_bytes);
    ps_device_pool_free(&pool, block, size);
    ps_device_pool_trim(&pool, 0);
    assert_int_equal(source.held_bytes, 0);
}

static void case_117_rounding_stays_within_an_eighth(void **state)
{
    struct ps_rng rng;
    PS_UNUSED(state);
    ps_rng_init(&rng, 117);
    for (int i = 0; i < 20000; i++) {
        size_t size = 1 + (size_t)(ps_rng_u64(&rng) >> (2 + ps_rng_below(&rng, 60)));
        size_t rounded = ps_device_pool_rounded(size);
        assert_true(rounded >= size && rounded % 64 == 0);
        assert_true(rounded - size <= PS_MAX(size / 8, 63));
        assert_int_equal(ps_device_pool_rounded(rounded), rounded); /* its own class */
    }
    assert_int_equal(ps_device_pool_rounded(SIZE_MAX), 0);
    assert_null(ps_device_pool_alloc(&pool, SIZE_MAX));
}

static void case_117_requested_and_reserved_are_reported(void **state)
{
    struct ps_device_usage usage;
    PS_UNUSED(state);
    void *a = ps_device_pool_alloc(&pool, 1000), *b = ps_device_pool_alloc(&pool, 5000);
    ps_device_pool_free(&pool, a, 1000);
    ps_device_pool_usage(&pool, &usage);
    assert_int_equal(usage.requested_bytes, 5000);
    assert_int_equal(usage.used_bytes, 5120);
    assert_int_equal(usage.reserved_bytes, 5120 + 1024);
    assert_int_equal(usage.misses, 2);
    ps_device_pool_free(&pool, b, 5000);
}

static void
case_117_a_full_system_gets_the_cache_back_before_a_request_fails(void **state)
{
    PS_UNUSED(state);
    source.limit_bytes = 100000;
    void *blocks[10];
    for (int i = 0; i < 10; i++) {
        blocks[i] = ps_device_pool_alloc(&pool, 9000);
        assert_non_null(blocks[i]);
    }
    for (int i = 0; i < 10; i++) {
        ps_device_pool_free(&pool, blocks[i], 9000);
    }
    assert_true(source.held_bytes > 90000); /* cached, in pieces */
    void *large = ps_device_pool_alloc(&pool, 80000);
    assert_non_null(large);
    assert_null(ps_device_pool_alloc(&pool, 80000)); /* and here there is none */
    ps_device_pool_free(&pool, large, 80000);
}

static void the_cap_holds_and_can_change(void **state)
{
    struct ps_device_usage usage;
    PS_UNUSED(state);
    ps_device_pool_set_cap(&pool, 10240);
    void *a = ps_device_pool_alloc(&pool, 8192), *b = ps_device_pool_alloc(&pool, 4096);
    void *c = ps_device_pool_alloc(&pool, 20480);
    ps_device_pool_free(&pool, a, 8192);
    ps_device_pool_free(&pool, b, 4096);  /* the older class makes room */
    ps_device_pool_free(&pool, c, 20480); /* larger than the cap: not kept */
    ps_device_pool_usage(&pool, &usage);
    assert_int_equal(usage.reserved_bytes, 4096);
    ps_device_pool_set_cap(&pool, 0);
    assert_int_equal(source.held_bytes, 0);
}

/* ---- the reserve: behaviour.md 1.9 ---- */

enum { UNIT = 1 << 20 };

static enum ps_status source_memory(void *owner, struct ps_pool_memory *memory_out)
{
    const struct source *from = owner;
    size_t left = from->limit_bytes - from->held_bytes;
    *memory_out = (struct ps_pool_memory){left, from->limit_bytes, left};
    return PS_OK;
}

/* A device of 100 units with 'cached' units of free blocks in its pool. */
static void hundred_units(unsigned percent, int cached)
{
    struct ps_device_block blocks[50];
    ps_device_pool_fini(&pool); /* what it keeps goes back */
    assert_int_equal(source.held_bytes, 0);
    source = (struct source){.limit_bytes = (size_t)100 * UNIT};
    struct ps_pool_source functions = {.alloc = source_alloc,
                                       .free = source_free,
                                       .memory = source_memory,
                                       .owner = &source,
                                       .reserve_percent = percent};
    ps_device_pool_init(&pool, &functions, (size_t)100 * UNIT);
    for (int i = 0; i < cached; i++) {
        blocks[i] = (struct ps_device_block){.ptr = NULL};
        assert_true(ps_device_pool_alloc_block(&pool, UNIT, &blocks[i]));
    }
    for (int i = 0; i < cached; i++) {
        ps_device_pool_free_block(&pool, &blocks[i]);
    }
    assert_int_equal(source.held_bytes, (size_t)cached * UNIT);
}

/* Asks for 'units'; whether it got them, and whether the cache was emptied. */
static void ask(size_t units, bool granted, bool emptied)
{
    struct ps_device_block block = {.ptr = NULL};
    struct ps_device_usage before, after;
    ps_device_pool_usage(&pool, &before);
    assert_int_equal(ps_device_pool_alloc_block(&pool, units * UNIT, &block), granted);
    ps_device_pool_usage(&pool, &after);
    assert_int_equal(after.flushes - before.flushes, emptied);
    assert_true(granted || block.ptr == NULL);
    ps_device_pool_free_block(&pool, &block);
}

static void a_request_that_would_eat_into_the_reserve_empties_the_cache(void **state)
{
    PS_UNUSED(state);
    hundred_units(5, 50);
    ask(45, true, false); /* 45 <= 50 - 5 */
    hundred_units(5, 50);
    ask(46, true, true); /* 46 > 50 - 5 */
    hundred_units(0, 50);
    ask(50, true, false); /* only what exceeds the free memory */
    hundred_units(0, 50);
    ask(51, true, true);
    hundred_units(50, 50);
    ask(45, true, true); /* free <= reserve: every miss */
    hundred_units(50, 50);
    ask(1, true, false); /* a hit asks nobody */
    hundred_units(90, 0);
    ask(1, true, false);
}

static void a_request_that_eats_into_the_reserve_of_an_empty_pool_is_refused(void **state)
{
    PS_UNUSED(state);
    hundred_units(5, 50);
    ask(96, false, true);
    ask(95, true, false);
    hundred_units(0, 0);
    ask(101, false, false);
    ask(100, true, false);
    hundred_units(50, 50);
    ask(51, false, true);
    ask(50, true, false);
    hundred_units(90, 0);
    ask(11, false, false);
    ask(10, true, false);
}

static void a_block_without_its_class_is_not_kept(void **state)
{
    struct ps_device_block block = {.ptr = NULL};
    PS_UNUSED(state);
    hundred_units(5, 0);
    assert_true(ps_device_pool_alloc_block(&pool, (size_t)95 * UNIT, &block));
    assert_int_equal(source.held_bytes, (size_t)95 * UNIT); /* its class has 96 units */
    ps_device_pool_free_block(&pool, &block);
    assert_int_equal(source.held_bytes, 0);
    assert_null(ps_device_pool_alloc(&pool, (size_t)95 * UNIT)); /* without a holder */
    source.piece_bytes = (size_t)45 * UNIT; /* its memory is in pieces */
    assert_true(ps_device_pool_alloc_block(&pool, (size_t)45 * UNIT, &block));
    assert_int_equal(block.block_bytes, (size_t)45 * UNIT);
    ps_device_pool_free_block(&pool, &block);
}

/* ---- who holds it ---- */

static void the_words_of_a_failure_name_the_largest_holders(void **state)
{
    struct ps_device_block blocks[6];
    static const char *const labels[] = {"data", "fc_weight", "fc_weight",
                                         "tmp",  "",          "x"};
    struct ps_pool_memory memory;
    struct ps_error err;
    PS_UNUSED(state);
    hundred_units(5, 0);
    for (size_t i = 0; i < PS_COUNT(blocks); i++) {
        blocks[i] = (struct ps_device_block){.ptr = NULL};
        assert_true(ps_device_pool_alloc_block(&pool, (i + 1) * UNIT, &blocks[i]));
        ps_device_pool_label(&pool, &blocks[i], labels[i]);
    }
    assert_int_equal(source_memory(&source, &memory), PS_OK);
    assert_int_equal(
        ps_device_pool_explain(&pool, "gpu(3)", (size_t)80 * UNIT, &memory, &err),
        PS_ENOMEM);
    assert_string_equal(err.text, "gpu(3): no memory for 80.0 MiB: 21.0 MiB requested, "
                                  "21.0 MiB reserved, largest free 79.0 MiB of 79.0 MiB "
                                  "with 5.0 MiB kept as reserve; top holders: x 6.0 MiB, "
                                  "unnamed 5.0 MiB, tmp 4.0 MiB");
    ps_device_pool_free_block(&pool, &blocks[5]);
    ps_device_pool_free_block(&pool, &blocks[4]);
    ps_device_pool_free_block(&pool, &blocks[3]);
    (void)ps_device_pool_explain(&pool, "cpu(0)", 1000, NULL, &err);
    assert_string_equal(err.text, "cpu(0): no memory for 1000 B: 6.0 MiB requested, "
                                  "21.0 MiB reserved; top holders: fc_weight 5.0 MiB, "
                                  "data 1.0 MiB");
    for (int i = 0; i < 3; i++) {
        ps_device_pool_free_block(&pool, &blocks[i]);
    }
}

static void a_long_label_is_cut(void **state)
{
    struct ps_device_block block = {.ptr = NULL};
    char label[200];
    PS_UNUSED(state);
    memset(label, 'n', sizeof(label) - 1);
    label[sizeof(label) - 1] = '\0';
    ps_device_pool_label(&pool, &block, label);
    assert_int_equal(strlen(block.label), PS_LABEL_BYTES - 1);
    ps_device_pool_label(&pool, &block, "short");
    assert_string_equal(block.label, "short");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_freed_block_serves_the_next_request_of_its_class),
        TEST(case_116_random_sizes_do_not_grow_the_pool),
        TEST(case_117_rounding_stays_within_an_eighth),
        TEST(case_117_requested_and_reserved_are_reported),
        TEST(case_117_a_full_system_gets_the_cache_back_before_a_request_fails),
        TEST(the_cap_holds_and_can_change),
        TEST(a_request_that_would_eat_into_the_reserve_empties_the_cache),
        TEST(a_request_that_eats_into_the_reserve_of_an_empty_pool_is_refused),
        TEST(a_block_without_its_class_is_not_kept),
        TEST(the_words_of_a_failure_name_the_largest_holders),
        TEST(a_long_label_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
