/* Sums with a fixed order, whoever arrives first: a pairwise tree over ranks.
 *
 * Leaves are ranks 0..n-1; a node at level l, position p sums positions 2p and 2p+1 of
 * level l-1. Absent ranks are skipped, not added as zero; with one child absent a node is
 * the other. Partial sums keep the accumulation type (ps_dtype_accumulator).  At most n/2
 * partials (rounded up) are held, and at most log2(n) adds remain after the last arrival.
 * The same tree sums the devices of one worker. Threads: one at a time per merge. */
#ifndef PENSTOCK_KVSTORE_SHARD_MERGE_H
#define PENSTOCK_KVSTORE_SHARD_MERGE_H

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "kvstore/shard/blocks.h"

struct ps_merge;

/* For 'ranks' leaves of 'count' elements of 'dtype'.  Memory for partials is taken as
 * ranks arrive and kept for reuse. */
PS_MUST_CHECK enum ps_status ps_merge_create(uint32_t ranks, enum ps_dtype dtype,
                                             uint64_t count, struct ps_merge **merge_out);
/* The same with partials from 'blocks' (keeps a borrow), given back at each reset. */
PS_MUST_CHECK enum ps_status ps_merge_create_in(struct ps_blocks *blocks, uint32_t ranks,
                                                enum ps_dtype dtype, uint64_t count,
                                                struct ps_merge **merge_out);
void ps_merge_destroy(struct ps_merge *merge);
/* Forgets all arrivals; keeps the memory. */
void ps_merge_reset(struct ps_merge *merge);
/* Adds rank's contribution ('count' elements, any alignment; NULL = an empty vote:
 * arrived, adds nothing). Borrows 'data'.  Errors: PS_EEXIST (already there), PS_ERANGE,
 * PS_ENOMEM (the rank has not arrived then). */
PS_MUST_CHECK enum ps_status ps_merge_add(struct ps_merge *merge, uint32_t rank,
                                          const void *data);
/* The same for data inside 'hold': nothing is copied, a leaf that waits for its sibling
 * retains 'hold' instead (until it is added, or reset). */
PS_MUST_CHECK enum ps_status ps_merge_add_buf(struct ps_merge *merge, uint32_t rank,
                                              const void *data, struct ps_buf *hold);
/* 'rank' will not come (it left the quorum): its place in the tree is skipped.  Errors as
 * ps_merge_add. */
PS_MUST_CHECK enum ps_status ps_merge_skip(struct ps_merge *merge, uint32_t rank);
/* Where the tree's last addition shall write ('count' accumulators), so that the result
 * lies where it is wanted; NULL = wherever.  Keeps a borrow until reset.  The result may
 * still lie elsewhere (ps_merge_result tells). */
void ps_merge_set_target(struct ps_merge *merge, void *target);
/* Gives up what has been brought (buffers and partials); who has arrived stays known. */
void ps_merge_forget(struct ps_merge *merge);
bool ps_merge_has(const struct ps_merge *merge, uint32_t rank);
/* All leaves arrived or were skipped. */
bool ps_merge_complete(const struct ps_merge *merge);
/* Votes, empty ones too: the divisor of a mean. */
uint32_t ps_merge_arrived(const struct ps_merge *merge);
/* Those that brought data. */
uint32_t ps_merge_contributors(const struct ps_merge *merge);
/* The sum in the accumulation type, borrowed until reset; NULL when every vote was empty,
 * or not complete. */
const void *ps_merge_result(const struct ps_merge *merge);
/* The buffer that holds the result, when it is the only contribution as it came (and its
 * dtype is its accumulator); else NULL.  Borrows. */
struct ps_buf *ps_merge_result_buf(const struct ps_merge *merge);

/* out = sum of n arrays by the same tree, rounded to 'dtype' once at the end; out may
 * alias in[0]; NULL entries are absent (all absent: 'out' is untouched). 'scratch' holds
 * ps_tree_sum_scratch_bytes(n, dtype) bytes.  Works block by block, so the result does
 * not depend on how a caller cuts the array over threads. */
void ps_tree_sum(void *out, const void *const *in, uint32_t n, enum ps_dtype dtype,
                 uint64_t count, void *scratch);
size_t ps_tree_sum_scratch_bytes(uint32_t n, enum ps_dtype dtype);

#endif
