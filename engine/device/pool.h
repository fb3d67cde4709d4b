/* A device's memory pool: free blocks kept by size class.
 *
 * Up to 512 bytes classes are multiples of 64; above, each doubling is cut into 8, so a
 * block is at most an eighth larger than asked for.  Freed blocks stay for reuse up to a
 * cap; beyond it blocks of other classes go back to the system first, so sizes that are
 * no longer used do not stay.  When the system has no memory, everything cached goes
 * back and the allocation is tried once more.  Threads: any (it locks). */
#ifndef PENSTOCK_ENGINE_DEVICE_POOL_H
#define PENSTOCK_ENGINE_DEVICE_POOL_H

#include "base/thread.h"
#include "engine/device/device.h"

#define PS_POOL_CLASSES 440 /* the last one ends at 2^63 */

struct ps_pool_source { /* raw memory */
    void *(*alloc)(void *owner, size_t size);
    void (*free)(void *owner, void *ptr, size_t size);
    void *owner;
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
    size_t evict_next PS_GUARDED_BY(lock); /* class to look at first */
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
/* The bytes a block for 'size' has; 0 when there is no such class. */
size_t ps_device_pool_rounded(size_t size);

#endif
