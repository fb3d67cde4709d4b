/* Buffers for heads with their records: pooled, because every frame needs one and the
 * last holder may be another thread (a transport's, or a lane that keeps a request).
 * Private to net.  Threads: any. */
#ifndef PENSTOCK_NET_HEAD_POOL_H
#define PENSTOCK_NET_HEAD_POOL_H

#include "base/mem.h"

struct ps_head_pool;
PS_MUST_CHECK enum ps_status ps_head_pool_create(struct ps_head_pool **pool_out);
/* Buffers that are out keep the pool until they are back. */
void ps_head_pool_release(struct ps_head_pool *pool);
/* Gives a buffer of 'size' bytes (undefined), one reference; NULL when out of memory. */
struct ps_buf *ps_head_pool_get(struct ps_head_pool *pool, size_t size);

#endif
