/* Objects of one size that one side takes and the other gives back.
 *
 * The taker owns 'spare', the giver owns 'freed'; when spare runs dry the two stacks are
 * swapped, so the two sides meet once in many objects and never through the objects'
 * own cache lines.  Memory is cache-line aligned and stays with the slab until it is
 * destroyed, so a stale pointer still points at an object of the same kind.
 * Threads: takers hold one lock, givers another; each call says which. */
#ifndef PENSTOCK_ENGINE_SLAB_H
#define PENSTOCK_ENGINE_SLAB_H

#include "base/thread.h"

struct ps_slab {
    size_t object_bytes; /* a multiple of the cache line */
    void **spare;        /* the taker's stack */
    size_t spare_count;
    void **freed; /* the giver's stack */
    size_t freed_count;
    size_t total;  /* objects that exist = capacity of both stacks */
    void **chunks; /* each ps_mem_alloc'ed */
    size_t chunk_count;
};

void ps_slab_init(struct ps_slab *slab, size_t object_bytes);
void ps_slab_fini(struct ps_slab *slab); /* frees every object, taken or not */
/* An object, bytes as the last user left them (zero at first); NULL when out of memory.
 * The caller holds the takers' lock; 'givers' is taken when spare runs dry. */
void *ps_slab_get(struct ps_slab *slab, struct ps_mutex *givers) PS_EXCLUDES(givers);
/* The caller holds the givers' lock.  Cannot fail. */
void ps_slab_put(struct ps_slab *slab, void *object);

#endif
