/* OpenBLAS by dlopen, and the choice of its core type.  Runs once per process, from
 * ps_kernels_create.  Source of the core rule: reference/platform.md 0.1. */
#include "kernels/blas.h"

#include "base/dtype.h"
#include "base/util.h"
#include "kernels/par.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* cblas.h */

static const char *best_core(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
        return "SkylakeX";
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return "Haswell";
    }
#endif
    return NULL;
}

/* C forbids a cast from object to function pointer; dlsym's result is copied instead. */
static bool load(void *library, const char *name, void *slot)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        return false;
    }
    memcpy(slot, &symbol, sizeof symbol);
    return true;
}

static bool open_library(struct ps_blas *blas)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    char *(*corename)(void) = NULL;
    char *(*config)(void) = NULL;
    *blas = (struct ps_blas){.core = "plain"};
    for (size_t i = 0; i < PS_COUNT(names) && blas->library == NULL; i++) {
        blas->name = names[i];
        blas->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (blas->library == NULL) {
        return false;
    }
    if (!load(blas->library, "cblas_sgemm", &blas->sgemm) ||
        !load(blas->library, "cblas_dgemm", &blas->dgemm) ||
        !load(blas->library, "openblas_get_corename", &corename) ||
        !load(blas->library, "openblas_get_config", &config)) {
        ps_blas_close(blas);
        return false;
    }
    snprintf(blas->core, sizeof blas->core, "%s", corename());
    snprintf(blas->version, sizeof blas->version, "%s", config());
    return true;
}

/* Small products in every orientation against plain code, with odd sizes so that edge
 * kernels run too.  Kernels of a wrong core give garbage, not rounding: 1e-4 is wide. */
enum { CHECK_M = 67, CHECK_N = 43, CHECK_K = 129 };

static bool check_one(const struct ps_blas *blas, float *memory, bool ta, bool tb)
{
    float *a = memory, *b = a + CHECK_M * CHECK_K, *c = b + CHECK_K * CHECK_N;
    float *d = c + CHECK_M * CHECK_N;
    struct ps_gemm g = {.dtype = PS_F32,
                        .transpose_a = ta,
                        .transpose_b = tb,
                        .m = CHECK_M,
                        .n = CHECK_N,
                        .k = CHECK_K,
                        .a = a,
                        .b = b,
                        .c = c,
                        .lda = ta ? CHECK_M : CHECK_K,
                        .ldb = tb ? CHECK_K : CHECK_N,
                        .ldc = CHECK_N,
                        .threads = 1};
    for (int i = 0; i < CHECK_M * CHECK_K + CHECK_K * CHECK_N; i++) {
        a[i] = (float)((i * 37) % 101 - 50) / 64.0F;
    }
    ps_gemm(blas, &g);
    g.c = d;
    ps_gemm_plain(&g);
    for (int i = 0; i < CHECK_M * CHECK_N; i++) {
        if (!(fabsf(c[i] - d[i]) <= 1e-4F * (1.0F + fabsf(d[i])))) {
            return false;
        }
    }
    return true;
}

static bool check(const struct ps_blas *blas)
{
    size_t count = CHECK_M * CHECK_K + CHECK_K * CHECK_N + 2 * CHECK_M * CHECK_N;
    float *memory = calloc(count, sizeof *memory);
    bool right = memory != NULL;
    for (int i = 0; right && i < 4; i++) {
        right = check_one(blas, memory, (i & 1) != 0, (i & 2) != 0);
    }
    free(memory);
    return right;
}

void ps_blas_open(struct ps_blas *blas, struct ps_log *log)
{
    const char *cores[] = {best_core(), "Haswell"};
    for (size_t i = 0; i < PS_COUNT(cores); i++) {
        /* The first time a choice of the user's stands; only a core that was found to
         * compute wrong is replaced. */
        if (cores[i] != NULL) {
            setenv("OPENBLAS_CORETYPE", cores[i], i > 0);
        }
        if (!open_library(blas)) {
            PS_LOG(log, WARN, KERNELS, "openblas absent, using plain matrix products");
            return;
        }
        if (check(blas)) {
            /* Pinned: its OpenMP threads outlive any close. */
            blas->library = dlopen(blas->name, RTLD_NOW | RTLD_NODELETE);
            return;
        }
        PS_LOG(log, WARN, KERNELS, "openblas core %s computes wrong products",
               blas->core);
        ps_blas_close(blas);
    }
}

void ps_blas_close(struct ps_blas *blas)
{
    if (blas->library != NULL) {
        dlclose(blas->library);
    }
    *blas = (struct ps_blas){.core = "plain"};
}

void ps_gemm(const struct ps_blas *blas, const struct ps_gemm *g)
{
    int64_t widest = PS_MAX(PS_MAX(g->m, g->n), g->k);
    widest = PS_MAX(PS_MAX(widest, g->lda), PS_MAX(g->ldb, g->ldc));
    if (blas->library == NULL || widest > INT_MAX || g->m == 0 || g->n == 0 ||
        g->k == 0) {
        ps_gemm_plain(g);
        return;
    }
    int ta = g->transpose_a ? TRANS : NO_TRANS, tb = g->transpose_b ? TRANS : NO_TRANS;
    int m = (int)g->m, n = (int)g->n, k = (int)g->k;
    int lda = (int)g->lda, ldb = (int)g->ldb, ldc = (int)g->ldc;
    ps_par_team(g->threads);
    if (g->dtype == PS_F32) {
        blas->sgemm(ROW_MAJOR, ta, tb, m, n, k, 1.0F, g->a, lda, g->b, ldb,
                    (float)g->beta, g->c, ldc);
    } else {
        blas->dgemm(ROW_MAJOR, ta, tb, m, n, k, 1.0, g->a, lda, g->b, ldb, g->beta, g->c,
                    ldc);
    }
}
