/* Aligned memory, counted buffers, object pools. */
#include "base/mem.h"

#include "base/thread.h"
#include "base/util.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define PS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PS_ASAN 1
#endif
#endif
#if defined(PS_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(addr, size) ((void)(addr), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(addr, size) ((void)(addr), (void)(size))
#endif

#define HUGE_PAGE ((size_t)2 << 20)

void *ps_mem_alloc(size_t size)
{
    size_t align = size >= HUGE_PAGE ? HUGE_PAGE : PS_CACHE_LINE;
    if (size > SIZE_MAX - align) {
        return NULL;
    }
    size_t rounded = ps_align_up(size == 0 ? 1 : size, PS_CACHE_LINE);
    void *ptr = NULL;
    if (posix_memalign(&ptr, align, rounded) != 0) {
        return NULL;
    }
    if (size >= HUGE_PAGE) {
        /* An advice; without it the memory works as well, with more page faults. */
        (void)madvise(ptr, rounded & ~(HUGE_PAGE - 1), MADV_HUGEPAGE);
    }
    return ptr;
}

void *ps_mem_calloc(size_t size)
{
    void *ptr = ps_mem_alloc(size);
    if (ptr != NULL) {
        memset(ptr, 0, size);
    }
    return ptr;
}

void ps_mem_free(void *ptr)
{
    free(ptr);
}

void ps_mem_keep_freed(void)
{
#if defined(__GLIBC__)
    /* The most that mallopt(3) takes, half of an arena's heap; freeing a block of that
     * size would set the same two limits. */
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

/* ---- buffers ---- */

/* Small buffers lie behind their head, on the next cache line. */
#define BUF_HEAD_BYTES PS_CACHE_LINE
_Static_assert(sizeof(struct ps_buf) <= BUF_HEAD_BYTES, "head fits a line");

static void release_inline(struct ps_buf *buf)
{
    ps_mem_free(buf);
}

static void release_apart(struct ps_buf *buf)
{
    ps_mem_free(buf->data);
    free(buf);
}

static void buf_init(struct ps_buf *buf, void *data, size_t size,
                     void (*release)(struct ps_buf *buf))
{
    atomic_init(&buf->refs, 1);
    buf->flags = 0;
    buf->size = size;
    buf->data = data;
    buf->release = release;
    buf->owner = NULL;
}

struct ps_buf *ps_buf_create(size_t size)
{
    if (size < HUGE_PAGE) {
        struct ps_buf *buf = ps_mem_alloc(BUF_HEAD_BYTES + size);
        if (buf != NULL) {
            buf_init(buf, (char *)buf + BUF_HEAD_BYTES, size, release_inline);
        }
        return buf;
    }
    struct ps_buf *buf = malloc(sizeof(*buf));
    void *data = ps_mem_alloc(size);
    if (buf == NULL || data == NULL) {
        ps_mem_free(data);
        free(buf);
        return NULL;
    }
    buf_init(buf, data, size, release_apart);
    return buf;
}

struct wrapped {
    struct ps_buf buf;
    void (*release)(void *arg);
};

static void release_wrapped(struct ps_buf *buf)
{
    struct wrapped *wrapped = PS_CONTAINER_OF(buf, struct wrapped, buf);
    if (wrapped->release != NULL) {
        wrapped->release(buf->owner);
    }
    free(wrapped);
}

struct ps_buf *ps_buf_wrap(void *data, size_t size, void (*release)(void *arg), void *arg)
{
    struct wrapped *wrapped = malloc(sizeof(*wrapped));
    if (wrapped == NULL) {
        return NULL;
    }
    buf_init(&wrapped->buf, data, size, release_wrapped);
    wrapped->buf.owner = arg;
    wrapped->release = release;
    return &wrapped->buf;
}

struct ps_buf *ps_buf_retain(struct ps_buf *buf)
{
    /* relaxed: whoever retains holds a reference already */
    uint32_t before = atomic_fetch_add_explicit(&buf->refs, 1, memory_order_relaxed);
    assert(before > 0);
    (void)before;
    return buf;
}

void ps_buf_release(struct ps_buf *buf)
{
    if (buf == NULL) {
        return;
    }
    /* acq_rel: what the other holders did with the bytes comes before their release */
    uint32_t before = atomic_fetch_sub_explicit(&buf->refs, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before == 1) {
        buf->release(buf);
    }
}

/* ---- pools ---- */

#define OBJECT_ALIGN ((size_t)16)

struct free_object {
    struct free_object *next;
};

struct slab {
    struct slab *next;
    size_t pad; /* objects begin 16 bytes in */
};

struct ps_pool {
    size_t object_size; /* rounded up to OBJECT_ALIGN */
    size_t grow, limit;
    bool unlocked;
    struct ps_mutex mutex;
    struct free_object *spare; /* the fields below: under 'mutex' unless 'unlocked' */
    struct slab *slabs;
    size_t total;
    _Atomic size_t in_use;
};

static void pool_lock(struct ps_pool *pool) PS_NO_THREAD_SAFETY
{
    if (!pool->unlocked) {
        ps_mutex_lock(&pool->mutex);
    }
}

static void pool_unlock(struct ps_pool *pool) PS_NO_THREAD_SAFETY
{
    if (!pool->unlocked) {
        ps_mutex_unlock(&pool->mutex);
    }
}

enum ps_status ps_pool_create(size_t object_size, size_t grow, size_t limit,
                              bool unlocked, struct ps_pool **pool_out)
{
    size_t bytes;
    if (object_size == 0 || grow == 0 || object_size > SIZE_MAX / 4 ||
        !ps_mul_size(ps_align_up(object_size, OBJECT_ALIGN), grow, &bytes) ||
        !ps_add_size(bytes, sizeof(struct slab), &bytes)) {
        return PS_EINVAL;
    }
    struct ps_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return PS_ENOMEM;
    }
    pool->object_size = ps_align_up(object_size, OBJECT_ALIGN);
    pool->grow = grow;
    pool->limit = limit;
    pool->unlocked = unlocked;
    ps_mutex_init(&pool->mutex);
    *pool_out = pool;
    return PS_OK;
}

void ps_pool_destroy(struct ps_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    assert(ps_pool_in_use(pool) == 0);
    while (pool->slabs != NULL) {
        struct slab *slab = pool->slabs;
        pool->slabs = slab->next;
        ASAN_UNPOISON_MEMORY_REGION(slab + 1, pool->grow * pool->object_size);
        ps_mem_free(slab);
    }
    ps_mutex_fini(&pool->mutex);
    free(pool);
}

/* A spare object may be touched only in its link word, as far as the sanitizer can see.
 */
static void give_spare(struct ps_pool *pool, void *object)
{
    struct free_object *spare = object;
    spare->next = pool->spare;
    pool->spare = spare;
    ASAN_POISON_MEMORY_REGION((char *)object + sizeof(*spare),
                              pool->object_size - sizeof(*spare));
}

static void pool_grow(struct ps_pool *pool)
{
    size_t count = pool->grow;
    if (pool->limit != 0) {
        count = PS_MIN(count, pool->limit - pool->total);
    }
    struct slab *slab =
        count == 0 ? NULL : ps_mem_alloc(sizeof(*slab) + pool->grow * pool->object_size);
    if (slab == NULL) {
        return;
    }
    slab->next = pool->slabs;
    pool->slabs = slab;
    pool->total += count;
    char *first = (char *)(slab + 1);
    for (size_t i = count; i-- > 0;) {
        give_spare(pool, first + i * pool->object_size);
    }
}

/* Under the lock; atomic, and relaxed, only for those who read it as a statistic. */
static void add_in_use(struct ps_pool *pool, size_t count)
{
    size_t before = atomic_load_explicit(&pool->in_use, memory_order_relaxed);
    atomic_store_explicit(&pool->in_use, before + count, memory_order_relaxed);
}

void *ps_pool_get(struct ps_pool *pool)
{
    pool_lock(pool);
    if (pool->spare == NULL) {
        pool_grow(pool);
    }
    struct free_object *object = pool->spare;
    if (object != NULL) {
        pool->spare = object->next;
        add_in_use(pool, 1);
    }
    pool_unlock(pool);
    if (object == NULL) {
        return NULL;
    }
    ASAN_UNPOISON_MEMORY_REGION(object, pool->object_size);
    memset(object, 0, pool->object_size);
    return object;
}

void ps_pool_put(struct ps_pool *pool, void *object)
{
    if (object == NULL) {
        return;
    }
    pool_lock(pool);
    add_in_use(pool, (size_t)-1);
    give_spare(pool, object);
    pool_unlock(pool);
}

size_t ps_pool_in_use(const struct ps_pool *pool)
{
    return atomic_load_explicit(&pool->in_use, memory_order_relaxed);
}
