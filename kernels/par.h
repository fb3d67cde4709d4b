/* Work shared by the threads of one operator, through OpenMP where the compiler has it.
 * The only file of the room that knows OpenMP.  Every thread flushes denormals.
 * Threads: any; the split is static, so which thread owns which range is fixed by
 * (threads, n, grain) and sums inside a range do not depend on timing. */
#ifndef PENSTOCK_KERNELS_PAR_H
#define PENSTOCK_KERNELS_PAR_H

#include <stdint.h>

typedef void (*ps_range_fn)(void *arg, int64_t begin, int64_t end);

/* Runs fn over [0, n) cut into at most 'threads' ranges of at least 'grain'. */
void ps_par_for(int threads, int64_t n, int64_t grain, ps_range_fn fn, void *arg);

/* Sets the thread count that OpenMP libraries (BLAS, oneDNN) use when called from this
 * thread, and flushes denormals in that team. */
void ps_par_team(int threads);

#endif
