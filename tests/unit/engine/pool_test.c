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

struct source { /* addresses only; nothing is touched */
    size_t held_bytes, peak_bytes, limit_bytes;
    uintptr_t next;
    int allocs, frees;
};

static void *source_alloc(void *owner, size_t size)
{
    struct source *source = owner;
    if (size > source->limit_bytes - source->held_bytes) {
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
