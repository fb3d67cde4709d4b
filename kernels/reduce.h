/* Sums and conversions of arrays, as servers and local reductions use them.
 *
 * Element-wise, so results do not depend on how arrays are cut; order of sums is the
 * caller's (the pairwise tree over ranks).  Partial sums live in the accumulation type
 * of ps_dtype_accumulator: f32 for f16/bf16/f32, f64 for f64, i64 for integers.
 * Conversions: float to float rounds to nearest even; i64 to a narrower integer
 * saturates; float to integer truncates toward zero and saturates, NaN gives 0.  Integer
 * sums wrap. Threads: any; ranges of one array may be worked on by several. */
#ifndef PENSTOCK_KERNELS_REDUCE_H
#define PENSTOCK_KERNELS_REDUCE_H

#include "base/dtype.h"

#include <stddef.h>

/* acc[i] = src[i], widened.  acc: accumulator of 'dtype'.  For f32, f64, i64 a copy. */
void ps_reduce_load(void *acc, const void *src, int dtype, size_t count);
/* acc[i] += src[i], src widened. */
void ps_reduce_add(void *acc, const void *src, int dtype, size_t count);
/* acc[i] = a[i] + b[i], both of 'dtype', widened: the first level of a tree in one pass.
 */
void ps_reduce_sum2(void *acc, const void *a, const void *b, int dtype, size_t count);
/* acc[i] += other[i], both accumulators of 'dtype': inner nodes of the tree. */
void ps_reduce_merge(void *acc, const void *other, int dtype, size_t count);
/* acc[i] /= divisor, for a mean over ranks; integer accumulators are divided with
 * truncation toward zero. */
void ps_reduce_divide(void *acc, int dtype, double divisor, size_t count);
/* dst[i] = acc[i] rounded to 'dtype'.  dst may equal acc when the types are the same. */
void ps_reduce_store(void *dst, const void *acc, int dtype, size_t count);

/* dst[i] += src[i] in memory of one dtype: for f16/bf16 widened, added, rounded once. */
void ps_reduce_accumulate(void *dst, const void *src, int dtype, size_t count);
/* dst[i] = src[i], any pair of dtypes; must not overlap unless equal types and address.
 * Errors: PS_EDTYPE for an unknown code. */
PS_MUST_CHECK enum ps_status ps_convert(void *dst, int dst_dtype, const void *src,
                                        int src_dtype, size_t count);

#endif
