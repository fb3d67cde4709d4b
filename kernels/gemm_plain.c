/* Matrix products without a library: the reference that OpenBLAS is checked against, and
 * the fallback where it is absent.  One thread.  Threads: pure. */
#include "base/dtype.h"
#include "kernels/blas.h"
#include "kernels/simd.h"

#define T float
#define NAME(x) x##_f32
#include "kernels/gemm_plain.inc"
#undef T
#undef NAME
#define T double
#define NAME(x) x##_f64
#include "kernels/gemm_plain.inc"
#undef T
#undef NAME

void ps_gemm_plain(const struct ps_gemm *g)
{
    if (g->dtype == PS_F32) {
        gemm_f32(g);
    } else {
        gemm_f64(g);
    }
}
