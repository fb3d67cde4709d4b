/* A device's memory pool: free blocks kept by size class.
 *
 * Up to 512 bytes classes are multiples of 64; above, each doubling is cut into 8, so a
 * block is at most an eighth larger than asked for.  Freed blocks stay for reuse up to a
 * cap; beyond it blocks of other classes go back to the system first, so sizes that are
 * no longer used do not stay.  When the system has no memory, everything cached goes
 * back and the allocation is tried once more.
 *
 * With a reserve of r percent (accelerators), a request that no cached block serves asks
 * the source: when its free memory is at most total * r / 100, or the request is larger
 * than what is free above that, everything cached goes back; a request that would still
 * eat into the reserve is refused (behaviour.md 1.9).
 *
 * Blocks that say who holds them are on a list, for the words of a failed allocation.
 * Threads: any (it locks). */
#ifndef PENSTOCK_ENGINE_DEVICE_POOL_H
#define PENSTOCK_ENGINE_DEVICE_POOL_H

#include "base/thread.h"
#include "engine/device/device.h"

#define PS_POOL_CLASSES 440 /* the last one ends at 2^63 */

struct ps_pool_memory { /* bytes */
    size_t free_bytes, total_bytes;
    size_t largest_bytes; /* of one piece */
};

struct ps_pool_source { /* raw memory */
    void *(*alloc)(void *owner, size_t size);
    void (*free)(void *owner, void *ptr, size_t size);
    /* What is left; NULL where no reserve is kept. */
    enum ps_status (*memory)(void *owner, struct ps_pool_memory *memory_out);
    void *owner;
    unsigned reserve_percent;
};

struct ps_pool_class {
    void **blocks;
    size_t count, capacity;
};

struct ps_device_pool {
    struct ps_mutex lock;
    struct ps_pool_source source;
    struct ps_pool_class classes[PS_POOL_CLASSES] PS_GUARDED_BY(lock);
    size_t cap_bytes PS_GUARDED_BY(lock);
    size_t cached_bytes PS_GUARDED_BY(lock);
    size_t evict_next PS_GUARDED_BY(lock);    /* class to look at first */
    struct ps_list named PS_GUARDED_BY(lock); /* blocks in use that have a holder */
    struct ps_device_usage usage PS_GUARDED_BY(lock);
};

void ps_device_pool_init(struct ps_device_pool *pool, const struct ps_pool_source *source,
                         size_t cap_bytes);
void ps_device_pool_fini(struct ps_device_pool *pool); /* every block must be back */
/* NULL when out of memory; 'size' > 0. */
void *ps_device_pool_alloc(struct ps_device_pool *pool, size_t size);
void ps_device_pool_free(struct ps_device_pool *pool, void *ptr, size_t size);
void ps_device_pool_trim(struct ps_device_pool *pool, size_t keep_bytes);
void ps_device_pool_set_cap(struct ps_device_pool *pool, size_t cap_bytes);
void ps_device_pool_usage(struct ps_device_pool *pool, struct ps_device_usage *usage_out);
/* The same with a holder, as ps_device_alloc_block.  False: no memory. */
bool ps_device_pool_alloc_block(struct ps_device_pool *pool, size_t size,
                                struct ps_device_block *block);
void ps_device_pool_free_block(struct ps_device_pool *pool,
                               struct ps_device_block *block);
void ps_device_pool_label(struct ps_device_pool *pool, struct ps_device_block *block,
                          const char *label);
/* Bytes of 'total' that the reserve keeps free. */
size_t ps_device_pool_reserve(const struct ps_device_pool *pool, size_t total_bytes);
/* Fills 'err' with why 'size' bytes of 'device' (its name) were not there; 'memory' is
 * what the source has left, NULL when it does not say.  Returns PS_ENOMEM. */
enum ps_status ps_device_pool_explain(struct ps_device_pool *pool, const char *device,
                                      size_t size, const struct ps_pool_memory *memory,
                                      struct ps_error *err);
/* The bytes a block for 'size' has; 0 when there is no such class. */
size_t ps_device_pool_rounded(size_t size);

#endif
