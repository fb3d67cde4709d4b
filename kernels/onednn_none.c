/* kernels/onednn.h where oneDNN is not built in: nothing is there, plain code runs. */
#include "kernels/onednn.h"

#include <stdio.h>

struct ps_onednn *ps_onednn_create(struct ps_log *log)
{
    PS_UNUSED(log);
    return NULL;
}

void ps_onednn_destroy(struct ps_onednn *onednn)
{
    PS_UNUSED(onednn);
}

const char *ps_onednn_version(const struct ps_onednn *onednn, char *out, size_t size)
{
    PS_UNUSED(onednn);
    snprintf(out, size, "off");
    return out;
}

struct ps_onednn_conv *ps_onednn_conv_create(struct ps_onednn *onednn,
                                             const struct ps_conv_geometry *geometry,
                                             bool training, int threads,
                                             size_t *forward_bytes,
                                             size_t *backward_bytes)
{
    PS_UNUSED(onednn);
    PS_UNUSED(geometry);
    PS_UNUSED(training);
    PS_UNUSED(threads);
    PS_UNUSED(forward_bytes);
    PS_UNUSED(backward_bytes);
    return NULL;
}

void ps_onednn_conv_destroy(struct ps_onednn_conv *conv)
{
    PS_UNUSED(conv);
}

enum ps_status ps_onednn_conv_forward(struct ps_onednn_conv *conv,
                                      const struct ps_op_run *run)
{
    PS_UNUSED(conv);
    PS_UNUSED(run);
    return PS_EUNSUPPORTED;
}

enum ps_status ps_onednn_conv_backward(struct ps_onednn_conv *conv,
                                       const struct ps_op_run *run)
{
    PS_UNUSED(conv);
    PS_UNUSED(run);
    return PS_EUNSUPPORTED;
}

struct ps_onednn_pool *ps_onednn_pool_create(struct ps_onednn *onednn,
                                             const struct ps_pool_geometry *geometry,
                                             bool training, int threads,
                                             size_t *forward_bytes,
                                             size_t *backward_bytes)
{
    PS_UNUSED(onednn);
    PS_UNUSED(geometry);
    PS_UNUSED(training);
    PS_UNUSED(threads);
    PS_UNUSED(forward_bytes);
    PS_UNUSED(backward_bytes);
    return NULL;
}

void ps_onednn_pool_destroy(struct ps_onednn_pool *pool)
{
    PS_UNUSED(pool);
}

enum ps_status ps_onednn_pool_forward(struct ps_onednn_pool *pool,
                                      const struct ps_op_run *run)
{
    PS_UNUSED(pool);
    PS_UNUSED(run);
    return PS_EUNSUPPORTED;
}

enum ps_status ps_onednn_pool_backward(struct ps_onednn_pool *pool,
                                       const struct ps_op_run *run)
{
    PS_UNUSED(pool);
    PS_UNUSED(run);
    return PS_EUNSUPPORTED;
}

struct ps_onednn_norm *ps_onednn_norm_create(struct ps_onednn *onednn,
                                             const struct ps_norm_geometry *geometry,
                                             bool training, int threads,
                                             size_t *forward_bytes,
                                             size_t *backward_bytes)
{
    PS_UNUSED(onednn);
    PS_UNUSED(geometry);
    PS_UNUSED(training);
    PS_UNUSED(threads);
    PS_UNUSED(forward_bytes);
    PS_UNUSED(backward_bytes);
    return NULL;
}

void ps_onednn_norm_destroy(struct ps_onednn_norm *norm)
{
    PS_UNUSED(norm);
}

enum ps_status ps_onednn_norm_forward(struct ps_onednn_norm *norm,
                                      const struct ps_op_run *run)
{
    PS_UNUSED(norm);
    PS_UNUSED(run);
    return PS_EUNSUPPORTED;
}

enum ps_status ps_onednn_norm_backward(struct ps_onednn_norm *norm,
                                       const struct ps_op_run *run)
{
    PS_UNUSED(norm);
    PS_UNUSED(run);
    return PS_EUNSUPPORTED;
}
