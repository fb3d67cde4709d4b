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
    ps_list_init(&pool->named);
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

/* Everything cached goes back, perhaps for a request that needs it in another size. */
static void flush(struct ps_device_pool *pool) PS_REQUIRES(pool->lock)
{
    if (pool->cached_bytes > 0) {
        pool->usage.flushes++;
        evict(pool, 0);
    }
}

size_t ps_device_pool_reserve(const struct ps_device_pool *pool, size_t total_bytes)
{
    size_t percent = pool->source.reserve_percent;
    return total_bytes / 100 * percent + total_bytes % 100 * percent / 100;
}

/* Bytes the source may give without touching the reserve; SIZE_MAX when none is kept. */
static size_t above_reserve(struct ps_device_pool *pool) PS_REQUIRES(pool->lock)
{
    struct ps_pool_memory memory;
    if (pool->source.memory == NULL ||
        pool->source.memory(pool->source.owner, &memory) != PS_OK) {
        return SIZE_MAX;
    }
    size_t reserve = ps_device_pool_reserve(pool, memory.total_bytes);
    return memory.free_bytes > reserve ? memory.free_bytes - reserve : 0;
}

/* Memory of 'rounded' bytes from the source, or of 'least' when there is not so much;
 * '*bytes_out' says which. */
static void *from_source(struct ps_device_pool *pool, size_t rounded, size_t least,
                         size_t *bytes_out) PS_REQUIRES(pool->lock)
{
    size_t room = above_reserve(pool);
    if (least > room) {
        flush(pool);
        room = above_reserve(pool);
    }
    if (least > room) {
        return NULL;
    }
    *bytes_out = rounded <= room ? rounded : least;
    void *ptr = pool->source.alloc(pool->source.owner, *bytes_out);
    if (ptr == NULL) {
        flush(pool); /* perhaps the memory lies in blocks of other sizes */
        ptr = pool->source.alloc(pool->source.owner, *bytes_out);
    }
    if (ptr == NULL && least < *bytes_out) {
        *bytes_out = least;
        ptr = pool->source.alloc(pool->source.owner, least);
    }
    return ptr;
}

/* A block for 'size' bytes; '*bytes_out' is what it has: its class's, or, when 'exact'
 * allows it, only 'size' rounded to a cache line. */
static void *take(struct ps_device_pool *pool, size_t size, bool exact, size_t *bytes_out)
    PS_REQUIRES(pool->lock)
{
    size_t rounded;
    size_t index = class_of(size, &rounded);
    struct ps_pool_class *class = &pool->classes[index];
    void *ptr;
    if (class->count > 0) {
        ptr = class->blocks[--class->count];
        pool->cached_bytes -= rounded;
        pool->usage.hits++;
        *bytes_out = rounded;
    } else {
        size_t least = exact ? ps_align_up(size, SMALL_STEP) : rounded;
        ptr = from_source(pool, rounded, least, bytes_out);
        pool->usage.misses++;
        pool->usage.reserved_bytes += ptr != NULL ? *bytes_out : 0;
    }
    if (ptr != NULL) {
        pool->usage.requested_bytes += size;
        pool->usage.used_bytes += *bytes_out;
        pool->usage.peak_bytes =
            PS_MAX(pool->usage.peak_bytes, pool->usage.reserved_bytes);
    }
    return ptr;
}

void *ps_device_pool_alloc(struct ps_device_pool *pool, size_t size)
{
    size_t bytes;
    if (size == 0 || !size_is_possible(size)) {
        return NULL;
    }
    ps_mutex_lock(&pool->lock);
    void *ptr = take(pool, size, false, &bytes);
    ps_mutex_unlock(&pool->lock);
    return ptr;
}

bool ps_device_pool_alloc_block(struct ps_device_pool *pool, size_t size,
                                struct ps_device_block *block)
{
    size_t bytes;
    if (size == 0 || !size_is_possible(size)) {
        return false;
    }
    ps_mutex_lock(&pool->lock);
    void *ptr = block->ptr;
    if (ptr == NULL && (ptr = take(pool, size, true, &bytes)) != NULL) {
        block->ptr = ptr;
        block->size_bytes = size;
        block->block_bytes = bytes;
        ps_list_push_back(&pool->named, &block->link);
    }
    ps_mutex_unlock(&pool->lock);
    return ptr != NULL;
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

/* 'bytes' is what the block has. */
static void give_back(struct ps_device_pool *pool, void *ptr, size_t size, size_t bytes)
    PS_REQUIRES(pool->lock)
{
    size_t rounded;
    struct ps_pool_class *class = &pool->classes[class_of(size, &rounded)];
    pool->usage.requested_bytes -= size;
    pool->usage.used_bytes -= bytes;
    bool keep = bytes == rounded && rounded <= pool->cap_bytes;
    if (keep && pool->cached_bytes > pool->cap_bytes - rounded) {
        evict(pool, pool->cap_bytes - rounded);
    }
    if (keep && class_has_room(class)) {
        class->blocks[class->count++] = ptr;
        pool->cached_bytes += rounded;
    } else {
        pool->source.free(pool->source.owner, ptr, bytes);
        pool->usage.reserved_bytes -= bytes;
    }
}

void ps_device_pool_free(struct ps_device_pool *pool, void *ptr, size_t size)
{
    if (ptr == NULL) {
        return;
    }
    ps_mutex_lock(&pool->lock);
    give_back(pool, ptr, size, ps_device_pool_rounded(size));
    ps_mutex_unlock(&pool->lock);
}

void ps_device_pool_free_block(struct ps_device_pool *pool, struct ps_device_block *block)
{
    if (block->ptr == NULL) {
        return;
    }
    ps_mutex_lock(&pool->lock);
    ps_list_remove(&block->link);
    give_back(pool, block->ptr, block->size_bytes, block->block_bytes);
    block->ptr = NULL;
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
