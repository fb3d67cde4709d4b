/* OpenMP behind kernels/par.h; without it everything runs on the calling thread.
 * Thread: the caller's, and OpenMP's team of that caller. */
#include "kernels/par.h"

#include "base/thread.h"
#include "base/util.h"

#ifdef _OPENMP
#include <omp.h>
#endif

void ps_par_for(int threads, int64_t n, int64_t grain, ps_range_fn fn, void *arg)
{
    int64_t most = grain > 0 ? n / grain : n;
    int64_t parts = PS_MIN((int64_t)threads, most);
    if (n <= 0) {
        return;
    }
    if (parts <= 1) {
        fn(arg, 0, n);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel for num_threads((int)parts) schedule(static, 1)
    for (int64_t p = 0; p < parts; p++) {
        ps_thread_compute_mode();
        fn(arg, n * p / parts, n * (p + 1) / parts);
    }
#else
    fn(arg, 0, n);
#endif
}

void ps_par_team(int threads)
{
    ps_thread_compute_mode();
#ifdef _OPENMP
    if (omp_get_max_threads() != threads) {
        omp_set_num_threads(threads);
    }
    if (threads > 1) {
#pragma omp parallel num_threads(threads)
        ps_thread_compute_mode();
    }
#else
    PS_UNUSED(threads);
#endif
}
