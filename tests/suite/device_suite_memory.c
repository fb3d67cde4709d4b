/* The suite of devices: memory. */
#include "tests/suite/device_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

#include <string.h>

void freed_memory_serves_the_next_request_of_its_size(void **state)
{
    const struct device_rig *rig = *state;
    void *a = device_memory(rig->a, 1024);
    assert_non_null(a);
    assert_int_equal((uintptr_t)a % 64, 0);
    ps_device_free(rig->a, a, 1024);
    assert_ptr_equal(device_memory(rig->a, 1024), a);
    ps_device_free(rig->a, a, 1024);
    assert_null(device_memory(rig->a, 0));
    ps_device_free(rig->a, NULL, 1024);
}

void memory_is_counted_and_given_back(void **state)
{
    const struct device_rig *rig = *state;
    struct ps_device_usage usage;
    size_t free_bytes, total_bytes;
    void *a = device_memory(rig->a, 100000);
    ps_device_usage(rig->a, &usage);
    assert_int_equal(usage.requested_bytes, 100000);
    assert_true(usage.reserved_bytes >= 100000 && usage.reserved_bytes <= 112500);
    ps_device_free(rig->a, a, 100000);
    ps_device_usage(rig->a, &usage);
    assert_int_equal(usage.requested_bytes, 0);
    assert_true(usage.reserved_bytes >= 100000);
    ps_device_trim(rig->a);
    ps_device_usage(rig->a, &usage);
    assert_int_equal(usage.reserved_bytes, 0);
    assert_int_equal(ps_device_memory(rig->a, &free_bytes, &total_bytes), PS_OK);
    assert_true(free_bytes > 0 && free_bytes <= total_bytes);
}

void named_memory_is_named_where_there_is_none(void **state)
{
    const struct device_rig *rig = *state;
    struct ps_device_block weight = {.ptr = NULL}, other = {.ptr = NULL};
    struct ps_error err;
    ps_device_label_block(rig->a, &weight, "conv1_weight");
    assert_int_equal(ps_device_alloc_block(rig->a, 3 << 20, &weight), PS_OK);
    void *first = weight.ptr;
    assert_int_equal(ps_device_alloc_block(rig->a, 3 << 20, &weight), PS_OK);
    assert_ptr_equal(weight.ptr, first); /* it had its memory already */
    assert_int_equal(ps_device_alloc_block(rig->a, 1 << 20, &other), PS_OK);
    assert_int_equal(ps_device_no_memory(rig->a, 5 << 20, &err), PS_ENOMEM);
    assert_non_null(strstr(err.text, "no memory for 5.0 MiB: 4.0 MiB requested, "
                                     "4.0 MiB reserved, largest free "));
    assert_non_null(strstr(err.text, "top holders: conv1_weight 3.0 MiB, unnamed 1.0"));
    ps_device_free_block(rig->a, &weight);
    ps_device_free_block(rig->a, &other);
    ps_device_free_block(rig->a, &other); /* holds nothing any more */
}

void case_116_random_sizes_do_not_grow_a_device(void **state)
{
    const struct device_rig *rig = *state;
    struct ps_rng rng;
    struct ps_device_usage usage;
    size_t size = 0, cap = (size_t)64 << 20, largest = (size_t)2000 * 2500 * 4;
    void *block = NULL;
    ps_rng_init(&rng, 116);
    ps_device_set_cap(rig->a, cap);
    for (int i = 0; i < 500; i++) {
        size_t next = 2000 * (1500 + ps_rng_below(&rng, 1001)) * sizeof(float);
        void *more = device_memory(rig->a, next); /* two are alive at a time */
        ps_device_free(rig->a, block, size);
        block = more;
        size = next;
    }
    ps_device_usage(rig->a, &usage);
    assert_true(usage.peak_bytes <= 3 * (largest + largest / 8) + cap);
    ps_device_free(rig->a, block, size);
}

void case_117_what_is_reserved_is_at_most_twice_what_was_asked_for(void **state)
{
    const struct device_rig *rig = *state;
    struct ps_device_usage usage;
    struct ps_rng rng;
    void *blocks[200];
    size_t sizes[200];
    ps_rng_init(&rng, 117);
    for (size_t i = 0; i < PS_COUNT(blocks); i++) {
        sizes[i] = 33 + ps_rng_below(&rng, 200000);
        blocks[i] = device_memory(rig->a, sizes[i]);
    }
    ps_device_usage(rig->a, &usage);
    assert_true(usage.used_bytes <= 2 * usage.requested_bytes);
    assert_int_equal(usage.reserved_bytes, usage.used_bytes);
    for (size_t i = 0; i < PS_COUNT(blocks); i++) {
        ps_device_free(rig->a, blocks[i], sizes[i]);
    }
}
