/* Memory: aligned blocks, reference-counted buffers, fixed-size object pools.
 *
 * ps_buf is what frames carry: immutable bytes with a count of holders.  It may wrap
 * memory of somebody else (a tensor, a message of the transport) whose release function
 * runs when the last holder lets go. ps_pool hands out objects of one size; after warm-up
 * it does not call malloc. Threads: ps_buf any; ps_pool any (it locks), or one thread
 * when created 'unlocked'. */
#ifndef PENSTOCK_BASE_MEM_H
#define PENSTOCK_BASE_MEM_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 64-byte aligned; from 2 MiB on aligned to 2 MiB and advised for huge pages.  NULL when
 * out of memory.  ps_mem_free takes NULL. */
void *ps_mem_alloc(size_t size);
void *ps_mem_calloc(size_t size);
void ps_mem_free(void *ptr);
/* From now on the process keeps what it frees, up to 64 MiB an arena, where the C
 * library would give blocks from 128 KiB on back to the kernel and take fresh pages,
 * fault by fault, for the next one.  For who receives large messages into malloc's
 * memory; any number of calls are one. */
void ps_mem_keep_freed(void);

struct ps_buf {
    _Atomic uint32_t refs;
    uint32_t flags; /* private */
    size_t size;
    void *data;
    void (*release)(struct ps_buf *buf); /* frees the struct too */
    void *owner;                         /* for 'release' */
};

/* A buffer with its own memory, one reference; bytes undefined.  NULL when out of memory.
 */
struct ps_buf *ps_buf_create(size_t size);
/* A buffer over 'data', one reference; 'release(arg)' runs once at the end (may be NULL).
 * Keeps a borrow of 'data' until then. */
struct ps_buf *ps_buf_wrap(void *data, size_t size, void (*release)(void *arg),
                           void *arg);
struct ps_buf *ps_buf_retain(struct ps_buf *buf);
void ps_buf_release(struct ps_buf *buf); /* NULL is fine */

struct ps_pool;
/* 'grow' objects at a time; 'limit' objects at most (0 = none).  Objects are 16-byte
 * aligned. */
PS_MUST_CHECK enum ps_status ps_pool_create(size_t object_size, size_t grow, size_t limit,
                                            bool unlocked, struct ps_pool **pool_out);
void ps_pool_destroy(struct ps_pool *pool); /* every object must be back */
void *ps_pool_get(struct ps_pool *pool); /* zeroed; NULL at the limit or out of memory */
void ps_pool_put(struct ps_pool *pool, void *object);
size_t ps_pool_in_use(const struct ps_pool *pool);

#endif
