/* oneDNN 2.x's CPU engine (C API, oneapi/dnnl/dnnl.h).  Threads: the engine is shared;
 * streams and primitives belong to a plan. */
#include "kernels/onednn.h"

#include "kernels/onednn_ops.h"

#include <stdio.h>
#include <stdlib.h>

struct ps_onednn {
    dnnl_engine_t engine;
};

struct ps_onednn *ps_onednn_create(struct ps_log *log)
{
    struct ps_onednn *onednn = calloc(1, sizeof *onednn);
    if (onednn == NULL) {
        return NULL;
    }
    if (dnnl_engine_create(&onednn->engine, dnnl_cpu, 0) != dnnl_success) {
        PS_LOG(log, WARN, KERNELS, "onednn engine refused, using plain code");
        free(onednn);
        return NULL;
    }
    return onednn;
}

void ps_onednn_destroy(struct ps_onednn *onednn)
{
    if (onednn != NULL) {
        dnnl_engine_destroy(onednn->engine);
        free(onednn);
    }
}

dnnl_engine_t ps_onednn_engine(const struct ps_onednn *onednn)
{
    return onednn->engine;
}

const char *ps_onednn_version(const struct ps_onednn *onednn, char *out, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    if (onednn == NULL) {
        snprintf(out, size, "off");
    } else {
        snprintf(out, size, "%d.%d.%d", v->major, v->minor, v->patch);
    }
    return out;
}
