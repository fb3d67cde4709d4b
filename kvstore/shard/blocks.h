/* Blocks of memory that are used again: power-of-two size classes with free lists.
 *
 * A server lane keeps one for partial sums and kept contributions, so that open rounds
 * share what is hot in the cache and nothing is allocated after warm-up.
 * Threads: one at a time. */
#ifndef PENSTOCK_KVSTORE_SHARD_BLOCKS_H
#define PENSTOCK_KVSTORE_SHARD_BLOCKS_H

#include "base/status.h"

#include <stddef.h>

struct ps_blocks;

PS_MUST_CHECK enum ps_status ps_blocks_create(struct ps_blocks **blocks_out);
void ps_blocks_destroy(struct ps_blocks *blocks); /* every block must be back */
/* 64-byte aligned, bytes undefined; NULL when out of memory. */
void *ps_blocks_get(struct ps_blocks *blocks, size_t size);
/* 'size' as it was asked for; NULL block is fine. */
void ps_blocks_put(struct ps_blocks *blocks, void *block, size_t size);
size_t ps_blocks_in_use(const struct ps_blocks *blocks); /* blocks out now */
size_t ps_blocks_bytes(const struct ps_blocks *blocks);  /* held and out */

#endif
