/* First fit with coalescing over a range of 'total' bytes: the free ranges, by offset.
 * What is taken is not listed: its owner knows offset and size. */
#include "engine/device/device_sim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 64, GRAIN_BYTES = 64 }; /* alignment: a cache line */

enum ps_status ps_device_sim_memory_init(struct ps_device_sim_memory *memory,
                                         size_t total)
{
    struct ps_device_sim_range *ranges = malloc(FIRST_CAPACITY * sizeof(*ranges));
    if (ranges == NULL) {
        return PS_ENOMEM;
    }
    ranges[0] = (struct ps_device_sim_range){.offset = 0, .size = total};
    *memory = (struct ps_device_sim_memory){.free = ranges,
                                            .free_count = 1,
                                            .capacity = FIRST_CAPACITY,
                                            .free_bytes = total,
                                            .total_bytes = total};
    return PS_OK;
}

void ps_device_sim_memory_fini(struct ps_device_sim_memory *memory)
{
    free(memory->free);
    memory->free = NULL;
}

/* n blocks in use part at most n + 1 free ranges; with room for one more of each, giving
 * back cannot fail. */
static bool has_room(struct ps_device_sim_memory *memory)
{
    if (memory->used_count + 2 <= memory->capacity) {
        return true;
    }
    size_t capacity = 2 * memory->capacity;
    struct ps_device_sim_range *ranges =
        realloc(memory->free, capacity * sizeof(*ranges));
    if (ranges == NULL) {
        return false;
    }
    memory->free = ranges;
    memory->capacity = capacity;
    return true;
}

static void remove_range(struct ps_device_sim_memory *memory, size_t index)
{
    memory->free_count--;
    memmove(memory->free + index, memory->free + index + 1,
            (memory->free_count - index) * sizeof(*memory->free));
}

bool ps_device_sim_memory_take(struct ps_device_sim_memory *memory, size_t size,
                               size_t *offset_out)
{
    if (size > memory->total_bytes || !has_room(memory)) {
        return false;
    }
    size = ps_align_up(size, GRAIN_BYTES);
    for (size_t i = 0; i < memory->free_count; i++) {
        struct ps_device_sim_range *range = &memory->free[i];
        if (range->size < size) {
            continue;
        }
        *offset_out = range->offset;
        range->offset += size;
        range->size -= size;
        if (range->size == 0) {
            remove_range(memory, i);
        }
        memory->free_bytes -= size;
        memory->used_count++;
        return true;
    }
    return false;
}

/* The first free range behind 'offset'. */
static size_t find_behind(const struct ps_device_sim_memory *memory, size_t offset)
{
    size_t low = 0, high = memory->free_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (memory->free[middle].offset > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

struct ps_device_sim_range ps_device_sim_memory_give(struct ps_device_sim_memory *memory,
                                                     size_t offset, size_t size)
{
    size = ps_align_up(size, GRAIN_BYTES);
    size_t next = find_behind(memory, offset);
    struct ps_device_sim_range *ranges = memory->free;
    assert(next == 0 || ranges[next - 1].offset + ranges[next - 1].size <= offset);
    assert(next == memory->free_count || offset + size <= ranges[next].offset);
    bool joins_last =
        next > 0 && ranges[next - 1].offset + ranges[next - 1].size == offset;
    bool joins_next = next < memory->free_count && offset + size == ranges[next].offset;
    memory->free_bytes += size;
    memory->used_count--;
    if (joins_last && joins_next) {
        ranges[next - 1].size += size + ranges[next].size;
        remove_range(memory, next);
        return ranges[next - 1];
    }
    if (joins_last) {
        ranges[next - 1].size += size;
        return ranges[next - 1];
    }
    if (joins_next) {
        ranges[next].offset = offset;
        ranges[next].size += size;
        return ranges[next];
    }
    assert(memory->free_count < memory->capacity);
    memmove(ranges + next + 1, ranges + next,
            (memory->free_count - next) * sizeof(*ranges));
    memory->free_count++;
    ranges[next] = (struct ps_device_sim_range){.offset = offset, .size = size};
    return ranges[next];
}

size_t ps_device_sim_memory_largest(const struct ps_device_sim_memory *memory)
{
    size_t largest = 0;
    for (size_t i = 0; i < memory->free_count; i++) {
        largest = PS_MAX(largest, memory->free[i].size);
    }
    return largest;
}
