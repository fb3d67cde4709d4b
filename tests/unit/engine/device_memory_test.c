/* The first-fit allocator of the simulated accelerator, against a map of bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine/device/device_sim.h"

#include <string.h>

enum { GRAIN = 64, GRAINS = 512, TOTAL = GRAIN * GRAINS, BLOCKS = 200, STEPS = 20000 };

struct block {
    size_t offset, size; /* in grains; size 0: not there */
};

static bool used[GRAINS];

/* The first place that 'size' grains fit into; GRAINS: none. */
static size_t first_fit(size_t size)
{
    size_t run = 0;
    for (size_t i = 0; i < GRAINS; i++) {
        run = used[i] ? 0 : run + 1;
        if (run == size) {
            return i + 1 - size;
        }
    }
    return GRAINS;
}

static void check(const struct ps_device_sim_memory *memory)
{
    size_t free_grains = 0, largest = 0, run = 0, ranges = 0;
    for (size_t i = 0; i < GRAINS; i++) {
        run = used[i] ? 0 : run + 1;
        ranges += run == 1;
        largest = run > largest ? run : largest;
        free_grains += !used[i];
    }
    assert_int_equal(memory->free_bytes, free_grains * GRAIN);
    assert_int_equal(memory->free_count, ranges);
    assert_int_equal(ps_device_sim_memory_largest(memory), largest * GRAIN);
}

static void take(struct ps_device_sim_memory *memory, struct block *block, size_t bytes)
{
    size_t size = (bytes + GRAIN - 1) / GRAIN, expected = first_fit(size), offset = 0;
    bool found = ps_device_sim_memory_take(memory, bytes, &offset);
    assert_int_equal(found, expected < GRAINS);
    if (found) {
        assert_int_equal(offset, expected * GRAIN);
        memset(used + expected, true, size);
        *block = (struct block){expected, size};
    }
}

static void give(struct ps_device_sim_memory *memory, struct block *block)
{
    struct ps_device_sim_range range =
        ps_device_sim_memory_give(memory, block->offset * GRAIN, block->size * GRAIN);
    memset(used + block->offset, false, block->size);
    assert_true(range.offset <= block->offset * GRAIN &&
                range.offset + range.size >= (block->offset + block->size) * GRAIN);
    block->size = 0;
}

static void the_first_range_that_fits_is_taken_and_neighbours_join(void **state)
{
    struct ps_device_sim_memory memory;
    struct block blocks[BLOCKS] = {{0, 0}};
    struct ps_rng rng;
    (void)state;
    ps_rng_init(&rng, 9);
    assert_int_equal(ps_device_sim_memory_init(&memory, TOTAL), PS_OK);
    for (int i = 0; i < STEPS; i++) {
        struct block *block = &blocks[ps_rng_below(&rng, BLOCKS)];
        if (block->size > 0) {
            give(&memory, block);
        } else {
            size_t limit = i % 1000 < 500 ? 300 : 4000; /* many, then large ones */
            take(&memory, block, 1 + (size_t)ps_rng_below(&rng, limit));
        }
        check(&memory);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i].size > 0) {
            give(&memory, &blocks[i]);
        }
    }
    assert_int_equal(memory.free_count, 1);
    assert_int_equal(memory.free_bytes, TOTAL);
    ps_device_sim_memory_fini(&memory);
}

static void impossible_sizes_are_refused(void **state)
{
    struct ps_device_sim_memory memory;
    size_t offset;
    (void)state;
    assert_int_equal(ps_device_sim_memory_init(&memory, TOTAL), PS_OK);
    assert_false(ps_device_sim_memory_take(&memory, TOTAL + 1, &offset));
    assert_false(ps_device_sim_memory_take(&memory, SIZE_MAX, &offset));
    assert_true(ps_device_sim_memory_take(&memory, TOTAL, &offset));
    assert_false(ps_device_sim_memory_take(&memory, 1, &offset));
    (void)ps_device_sim_memory_give(&memory, offset, TOTAL);
    ps_device_sim_memory_fini(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_range_that_fits_is_taken_and_neighbours_join),
        cmocka_unit_test(impossible_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
