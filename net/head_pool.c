/* A counted pool of small ps_bufs; frames with many records get a buffer of their own. */
#include "net/head_pool.h"

#include "base/util.h"

#include <stdlib.h>

#define INLINE_BYTES                                                   \
    1024 /* a link head and 15 records: more than a bundle usually has \
          */
#define GROW_COUNT 64

struct ps_head_pool {
    _Atomic uint32_t refs; /* its creator and every buffer that is out */
    struct ps_pool *pool;
};

/* Objects are aligned to 16 bytes; the data begins on the next cache line. */
#define OBJECT_BYTES (sizeof(struct ps_buf) + PS_CACHE_LINE + INLINE_BYTES)

enum ps_status ps_head_pool_create(struct ps_head_pool **pool_out)
{
    struct ps_head_pool *heads = malloc(sizeof(*heads));
    if (heads == NULL) {
        return PS_ENOMEM;
    }
    atomic_init(&heads->refs, 1);
    enum ps_status status =
        ps_pool_create(OBJECT_BYTES, GROW_COUNT, 0, false, &heads->pool);
    if (status != PS_OK) {
        free(heads);
        return status;
    }
    *pool_out = heads;
    return PS_OK;
}

void ps_head_pool_release(struct ps_head_pool *heads)
{
    /* acq_rel: the last one sees what the others did to the pool */
    if (heads != NULL &&
        atomic_fetch_sub_explicit(&heads->refs, 1, memory_order_acq_rel) == 1) {
        ps_pool_destroy(heads->pool);
        free(heads);
    }
}

static void release_pooled(struct ps_buf *buf)
{
    struct ps_head_pool *heads = buf->owner;
    ps_pool_put(heads->pool, buf);
    ps_head_pool_release(heads);
}

struct ps_buf *ps_head_pool_get(struct ps_head_pool *heads, size_t size)
{
    if (size > INLINE_BYTES) {
        return ps_buf_create(size);
    }
    struct ps_buf *buf = ps_pool_get(heads->pool);
    if (buf == NULL) {
        return NULL;
    }
    /* relaxed: the caller holds a reference */
    atomic_fetch_add_explicit(&heads->refs, 1, memory_order_relaxed);
    atomic_init(&buf->refs, 1);
    buf->flags = 0;
    buf->size = size;
    buf->data = (void *)ps_align_up((uintptr_t)(buf + 1), PS_CACHE_LINE);
    buf->release = release_pooled;
    buf->owner = heads;
    return buf;
}
