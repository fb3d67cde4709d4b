/* The slab: two stacks of pointers over chunks of objects.  Growth doubles, so the number
 * of calls to malloc is the logarithm of the largest number of objects in use. */
#include "engine/slab.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CHUNK = 64, LARGEST_CHUNK = 1024 };

/* How many objects before its turn one is fetched into the taker's cache. */
enum { AHEAD = 4 };

void ps_slab_init(struct ps_slab *slab, size_t object_bytes)
{
    *slab = (struct ps_slab){.object_bytes = ps_align_up(object_bytes, PS_CACHE_LINE)};
}

void ps_slab_fini(struct ps_slab *slab)
{
    for (size_t i = 0; i < slab->chunk_count; i++) {
        ps_mem_free(slab->chunks[i]);
    }
    free(slab->chunks);
    free(slab->spare);
    free(slab->freed);
    *slab = (struct ps_slab){.object_bytes = slab->object_bytes};
}

/* Both locks are held.  Each array that was grown stays grown on failure: harmless. */
static bool slab_grow(struct ps_slab *slab)
{
    size_t more = PS_MIN(PS_MAX(slab->total, (size_t)FIRST_CHUNK), (size_t)LARGEST_CHUNK);
    size_t total = slab->total + more;
    void **spare = realloc(slab->spare, total * sizeof(*spare));
    if (spare == NULL) {
        return false;
    }
    slab->spare = spare;
    void **freed = realloc(slab->freed, total * sizeof(*freed));
    if (freed == NULL) {
        return false;
    }
    slab->freed = freed;
    void **chunks = realloc(slab->chunks, (slab->chunk_count + 1) * sizeof(*chunks));
    if (chunks == NULL) {
        return false;
    }
    slab->chunks = chunks;
    char *chunk = ps_mem_calloc(more * slab->object_bytes);
    if (chunk == NULL) {
        return false;
    }
    slab->chunks[slab->chunk_count++] = chunk;
    for (size_t i = more; i > 0; i--) {
        slab->spare[slab->spare_count++] = chunk + (i - 1) * slab->object_bytes;
    }
    slab->total = total;
    return true;
}

static void slab_refill(struct ps_slab *slab, struct ps_mutex *givers)
{
    ps_mutex_lock(givers);
    void **empty = slab->spare;
    slab->spare = slab->freed;
    slab->spare_count = slab->freed_count;
    slab->freed = empty;
    slab->freed_count = 0;
    if (slab->spare_count == 0) {
        (void)slab_grow(slab); /* the caller sees that spare is still empty */
    }
    ps_mutex_unlock(givers);
}

void *ps_slab_get(struct ps_slab *slab, struct ps_mutex *givers)
{
    if (slab->spare_count == 0) {
        slab_refill(slab, givers);
        if (slab->spare_count == 0) {
            return NULL;
        }
    }
    void *object = slab->spare[--slab->spare_count];
    if (slab->spare_count >= AHEAD) {
        /* its lines come from the giver's core, which takes longer than a push: ask early
         */
        char *ahead = slab->spare[slab->spare_count - AHEAD];
        __builtin_prefetch(ahead, 1);
        __builtin_prefetch(ahead + PS_CACHE_LINE, 1);
        __builtin_prefetch(ahead + 2 * PS_CACHE_LINE, 1);
    }
    return object;
}

void ps_slab_put(struct ps_slab *slab, void *object)
{
    slab->freed[slab->freed_count++] = object;
}
