/* The simulated accelerator's address space: a range that faults, then the bytes.
 *
 *     [ forbidden: size ][ guard ][ bytes: size ][ guard ]
 *
 * Pages of the bytes come with their first use and go back with their block; none of it
 * is counted before (MAP_NORESERVE).  See mmap(2), madvise(2). */
#include "engine/device/device_sim.h"

#include <sys/mman.h>

enum { GUARD_BYTES = 2 << 20, PAGE_BYTES = 4096 }; /* a huge page; a small one */

enum ps_status ps_device_sim_map(struct ps_device_sim_map *map, size_t size)
{
    size_t half = ps_align_up(size, GUARD_BYTES) + GUARD_BYTES;
    size_t mapped = 2 * half + GUARD_BYTES;
    char *start =
        mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) {
        return PS_ENOMEM;
    }
    size_t skip = ps_align_up((uintptr_t)start, GUARD_BYTES) - (uintptr_t)start;
    char *bytes = start + skip + half;
    if (mprotect(bytes, size, PROT_READ | PROT_WRITE) != 0) {
        (void)munmap(start, mapped);
        return PS_ENOMEM;
    }
    (void)madvise(bytes, size, MADV_HUGEPAGE); /* faster first uses; without it, fine */
    (void)madvise(bytes, size, MADV_DONTDUMP);
    *map = (struct ps_device_sim_map){
        .base = start + skip,
        .size_bytes = size,
        .distance_bytes = half,
        .start = start,
        .mapped_bytes = mapped,
    };
    return PS_OK;
}

void ps_device_sim_unmap(struct ps_device_sim_map *map)
{
    (void)munmap(map->start, map->mapped_bytes);
    *map = (struct ps_device_sim_map){.base = NULL};
}

void ps_device_sim_discard(const struct ps_device_sim_map *map, size_t offset,
                           size_t size)
{
    size_t begin = ps_align_up(offset, PAGE_BYTES);
    size_t end = (offset + size) & ~(size_t)(PAGE_BYTES - 1);
    if (begin < end) {
        char *bytes = (char *)map->base + map->distance_bytes;
        (void)madvise(bytes + begin, end - begin, MADV_DONTNEED);
    }
}
