/* Sums of one array over the devices of a worker, by several threads.
 *
 * The order of sums is the pairwise tree of shard/merge.h and each element is summed on
 * its own, so the bits do not depend on the number of threads.  Arrays below the bound
 * are summed by the caller alone; KVSTORE_REDUCTION_NTHREADS threads (the caller is one
 * of them) share larger ones. Threads: create/destroy by the owner; run from one thread
 * at a time (it locks). */
#ifndef PENSTOCK_KVSTORE_REDUCER_H
#define PENSTOCK_KVSTORE_REDUCER_H

#include "base/dtype.h"
#include "base/status.h"

#include <stdint.h>

#define PS_REDUCE_BLOCK 4096   /* elements of one piece of work, MXNet's unit */
#define PS_REDUCE_SRC_MAX 1024 /* local devices */

struct ps_reducer;

/* 'threads' at least 1; 'bound' in elements.  Threads start at the first large sum. */
PS_MUST_CHECK enum ps_status ps_reducer_create(int threads, uint64_t bound,
                                               struct ps_reducer **reducer_out);
void ps_reducer_destroy(struct ps_reducer *reducer);

/* What to do with one finished block: 'sum' is 'count' elements in the accumulation type
 * of 'dtype', element 'first' of the array on.  Runs on any of the threads, blocks in any
 * order. */
typedef enum ps_status (*ps_reduce_block_fn)(void *ctx, uint64_t first, size_t count,
                                             const void *sum);
/* Sums src[0..n) block by block and hands each to 'fn'; n at least 1.  Returns the first
 * failure. Waits.  Errors: PS_ERANGE (too many sources), PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_reducer_run(struct ps_reducer *reducer,
                                            const void *const *src, uint32_t n, int dtype,
                                            uint64_t count, ps_reduce_block_fn fn,
                                            void *ctx);
/* Threads that took part in the last run; for tests of KVSTORE_REDUCTION_NTHREADS. */
int ps_reducer_last_threads(const struct ps_reducer *reducer);

#endif
