/* The memory pool: arrays of free blocks, one for each size class.  The bookkeeping lies
 * outside of the blocks, since a device's memory may not be the host's. */
#include "engine/device/pool.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALL_STEP = 64,   /* a cache line */
    SMALL_LIMIT = 512, /* = 2^SMALL_LOG */
    SMALL_LOG = 9,     /* first exponent with its own classes */
    SMALL_CLASSES = 8, /* SMALL_LIMIT / SMALL_STEP */
    CLASSES_OF_DOUBLING = 8,
    STEP_LOG = 3, /* log2 of it */
    FIRST_CAPACITY = 8
};

/* Class of 'size' > 0; '*rounded_out' is the size of its blocks. */
static size_t class_of(size_t size, size_t *rounded_out)
{
    if (size <= SMALL_LIMIT) {
        *rounded_out = ps_align_up(size, SMALL_STEP);
        return *rounded_out / SMALL_STEP - 1;
    }
    /* 2^e < size <= 2^(e+1) */
    unsigned e = 63u - (unsigned)__builtin_clzll((unsigned long long)(size - 1));
    unsigned step = e - STEP_LOG;
    size_t k = (size - 1 - ((size_t)1 << e)) >> step;
    *rounded_out = ((size_t)1 << e) + ((k + 1) << step);
    return SMALL_CLASSES + (size_t)(e - SMALL_LOG) * CLASSES_OF_DOUBLING + k;
}

static size_t class_bytes(size_t index)
{
    if (index < SMALL_CLASSES) {
        return (index + 1) * SMALL_STEP;
    }
    size_t e = SMALL_LOG + (index - SMALL_CLASSES) / CLASSES_OF_DOUBLING;
    size_t k = (index - SMALL_CLASSES) % CLASSES_OF_DOUBLING;
    return ((size_t)1 << e) + ((k + 1) << (e - STEP_LOG));
}

static bool size_is_possible(size_t size)
{
    return size <= (size_t)1 << 62;
}

size_t ps_device_pool_rounded(size_t size)
{
    size_t rounded = 0;
    if (size > 0 && size_is_possible(size)) {
        (void)class_of(size, &rounded);
    }
    return rounded;
}

void ps_device_pool_init(struct ps_device_pool *pool, const struct ps_pool_source *source,
                         size_t cap_bytes)
{
    memset(pool, 0, sizeof(*pool));
    ps_mutex_init(&pool->lock);
    pool->source = *source;
    pool->cap_bytes = cap_bytes;
}

/* Gives cached blocks back until at most 'keep_bytes' are cached. */
static void evict(struct ps_device_pool *pool, size_t keep_bytes) PS_REQUIRES(pool->lock)
{
    for (size_t seen = 0; seen < PS_POOL_CLASSES && pool->cached_bytes > keep_bytes;
         seen++) {
        size_t index = pool->evict_next;
        struct ps_pool_class *class = &pool->classes[index];
        size_t bytes = class_bytes(index);
        while (class->count > 0 && pool->cached_bytes > keep_bytes) {
            pool->source.free(pool->source.owner, class->blocks[--class->count], bytes);
            pool->cached_bytes -= bytes;
            pool->usage.reserved_bytes -= bytes;
        }
        if (class->count == 0) {
            pool->evict_next = (index + 1) % PS_POOL_CLASSES;
        }
    }
}

void ps_device_pool_fini(struct ps_device_pool *pool)
{
    ps_device_pool_trim(pool, 0);
    for (size_t i = 0; i < PS_POOL_CLASSES; i++) {
        free(pool->classes[i].blocks);
    }
    ps_mutex_fini(&pool->lock);
}

void *ps_device_pool_alloc(struct ps_device_pool *pool, size_t size)
{
    size_t rounded;
    if (size == 0 || !size_is_possible(size)) {
        return NULL;
    }
    size_t index = class_of(size, &rounded);
    void *ptr;
    ps_mutex_lock(&pool->lock);
    struct ps_pool_class *class = &pool->classes[index];
    if (class->count > 0) {
        ptr = class->blocks[--class->count];
        pool->cached_bytes -= rounded;
        pool->usage.hits++;
    } else {
        ptr = pool->source.alloc(pool->source.owner, rounded);
        if (ptr == NULL) {
            evict(pool, 0); /* perhaps the memory lies in blocks of other sizes */
            ptr = pool->source.alloc(pool->source.owner, rounded);
        }
        pool->usage.misses++;
        pool->usage.reserved_bytes += ptr != NULL ? rounded : 0;
    }
    if (ptr != NULL) {
        pool->usage.requested_bytes += size;
        pool->usage.used_bytes += rounded;
        pool->usage.peak_bytes =
            PS_MAX(pool->usage.peak_bytes, pool->usage.reserved_bytes);
    }
    ps_mutex_unlock(&pool->lock);
    return ptr;
}

static bool class_has_room(struct ps_pool_class *class)
{
    if (class->count < class->capacity) {
        return true;
    }
    size_t capacity = PS_MAX(2 * class->capacity, (size_t)FIRST_CAPACITY);
    void **blocks = realloc(class->blocks, capacity * sizeof(*blocks));
    if (blocks == NULL) {
        return false;
    }
    class->blocks = blocks;
    class->capacity = capacity;
    return true;
}

void ps_device_pool_free(struct ps_device_pool *pool, void *ptr, size_t size)
{
    size_t rounded;
    if (ptr == NULL) {
        return;
    }
    size_t index = class_of(size, &rounded);
    ps_mutex_lock(&pool->lock);
    struct ps_pool_class *class = &pool->classes[index];
    pool->usage.requested_bytes -= size;
    pool->usage.used_bytes -= rounded;
    if (rounded <= pool->cap_bytes && pool->cached_bytes > pool->cap_bytes - rounded) {
        evict(pool, pool->cap_bytes - rounded);
    }
    if (rounded <= pool->cap_bytes && class_has_room(class)) {
        class->blocks[class->count++] = ptr;
        pool->cached_bytes += rounded;
    } else {
        pool->source.free(pool->source.owner, ptr, rounded);
        pool->usage.reserved_bytes -= rounded;
    }
    ps_mutex_unlock(&pool->lock);
}

void ps_device_pool_trim(struct ps_device_pool *pool, size_t keep_bytes)
{
    ps_mutex_lock(&pool->lock);
    evict(pool, keep_bytes);
    ps_mutex_unlock(&pool->lock);
}

void ps_device_pool_set_cap(struct ps_device_pool *pool, size_t cap_bytes)
{
    ps_mutex_lock(&pool->lock);
    pool->cap_bytes = cap_bytes;
    evict(pool, cap_bytes);
    ps_mutex_unlock(&pool->lock);
}

void ps_device_pool_usage(struct ps_device_pool *pool, struct ps_device_usage *usage_out)
{
    ps_mutex_lock(&pool->lock);
    *usage_out = pool->usage;
    ps_mutex_unlock(&pool->lock);
}
