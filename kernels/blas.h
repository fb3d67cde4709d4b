/* Matrix products: OpenBLAS opened at run time, or plain blocked code.
 *
 * OpenBLAS chooses its kernels when it is loaded and 0.3.21 mistakes newer CPUs for a
 * Prescott (reference/platform.md 0.1), so it is never linked: the core type is set
 * first, then the library is opened and its result compared with plain code. Threads:
 * open and close on one; the rest any. */
#ifndef PENSTOCK_KERNELS_BLAS_H
#define PENSTOCK_KERNELS_BLAS_H

#include "base/log.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct ps_blas {
    void *library;    /* NULL: plain code */
    const char *name; /* as it was opened */
    void (*sgemm)(int order, int ta, int tb, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c,
                  int ldc);
    void (*dgemm)(int order, int ta, int tb, int m, int n, int k, double alpha,
                  const double *a, int lda, const double *b, int ldb, double beta,
                  double *c, int ldc);
    char core[32];    /* "SkylakeX"; "plain" */
    char version[64]; /* "OpenBLAS 0.3.21 ..." */
};

/* Opens OpenBLAS if it is there and right; never fails: plain code is the fallback. */
void ps_blas_open(struct ps_blas *blas, struct ps_log *log);
void ps_blas_close(struct ps_blas *blas);

/* C[m,n] = op(A)[m,k] * op(B)[k,n] + beta * C, row-major.
 *   a: [m,k], or [k,m] when transpose_a; lda its row length; b, c alike
 *   dtype PS_F32 or PS_F64; beta 0 does not read c; c aliases nothing
 * 'threads' of the BLAS's OpenMP team.  Deterministic for a given thread count. */
struct ps_gemm {
    int dtype;
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc;
    double beta;
    int threads;
};
void ps_gemm(const struct ps_blas *blas, const struct ps_gemm *g);
/* The same by plain code; the reference. */
void ps_gemm_plain(const struct ps_gemm *g);

#endif
