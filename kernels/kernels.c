/* The room's context.  Created and destroyed on one thread, read by all. */
#include "kernels/kernels.h"

#include "base/thread.h"
#include "kernels/context.h"
#include "kernels/onednn.h"

#include <stdlib.h>

static int default_threads(const struct ps_settings *settings)
{
    int64_t threads = 0, workers = 1;
    if (settings != NULL) {
        threads = ps_settings_int(settings, PS_SET_CPU_NNPACK_NTHREADS);
        workers = ps_settings_int(settings, PS_SET_CPU_WORKER_NTHREADS);
    }
    if (threads <= 0) {
        threads = ps_cpu_count() / PS_MAX(workers, 1);
    }
    return (int)PS_MAX(threads, 1);
}

enum ps_status ps_kernels_create(const struct ps_settings *settings, struct ps_log *log,
                                 struct ps_kernels **kernels_out, struct ps_error *err)
{
    bool onednn = settings == NULL || ps_settings_bool(settings, PS_SET_USE_ONEDNN);
    struct ps_kernels *kernels = calloc(1, sizeof *kernels);
    if (kernels == NULL) {
        return ps_error_set(err, PS_ENOMEM, "kernels: out of memory");
    }
    kernels->log = log;
    kernels->threads = default_threads(settings);
    ps_blas_open(&kernels->blas, log);
    if (onednn) {
        kernels->onednn = ps_onednn_create(log);
    }
    *kernels_out = kernels;
    return PS_OK;
}

void ps_kernels_destroy(struct ps_kernels *kernels)
{
    if (kernels == NULL) {
        return;
    }
    ps_onednn_destroy(kernels->onednn);
    ps_blas_close(&kernels->blas);
    free(kernels);
}

void ps_kernels_describe(const struct ps_kernels *kernels, struct ps_str *out)
{
    char onednn[64];
    ps_str_printf(out, "blas %s core %s, onednn %s, threads %d",
                  kernels->blas.library != NULL ? kernels->blas.version : "plain code",
                  kernels->blas.core,
                  ps_onednn_version(kernels->onednn, onednn, sizeof onednn),
                  kernels->threads);
}

int ps_kernels_threads(const struct ps_kernels *kernels)
{
    return kernels->threads;
}
