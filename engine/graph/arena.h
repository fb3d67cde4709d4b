/* Memory for one graph: many small pieces that go together, and arrays that grow.
 *
 * Binding makes thousands of short lists (inputs, slots, names); they come from an arena
 * and are freed at once with it.  Threads: one at a time. */
#ifndef PENSTOCK_ENGINE_GRAPH_ARENA_H
#define PENSTOCK_ENGINE_GRAPH_ARENA_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct ps_arena { /* zero-initialised = empty */
    struct ps_arena_chunk *chunks;
    size_t used, capacity; /* of the newest chunk */
};
void ps_arena_fini(struct ps_arena *arena);
/* Zeroed, 16-byte aligned; count 0 gives a valid pointer.  NULL when out of memory. */
void *ps_arena_calloc(struct ps_arena *arena, size_t count, size_t size);
char *ps_arena_printf(struct ps_arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Makes room for 'need' elements of 'size' bytes in a malloc'ed array; new elements are
 * zero.  Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_array_reserve(void **array, size_t *capacity, size_t need,
                                              size_t size);

#endif
