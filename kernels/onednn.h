/* oneDNN, behind plain functions: the only door to it.  onednn_none.c answers where the
 * library is not built in.  Private to the room. */
#ifndef PENSTOCK_KERNELS_ONEDNN_H
#define PENSTOCK_KERNELS_ONEDNN_H

#include "base/log.h"
#include "kernels/op_def.h"

#include <stddef.h>

struct ps_onednn; /* the library's CPU engine */

/* NULL when the library is not built in or refuses. */
struct ps_onednn *ps_onednn_create(struct ps_log *log);
void ps_onednn_destroy(struct ps_onednn *onednn); /* NULL is fine */
/* "2.6.3", or "off".  Returns 'out'. */
const char *ps_onednn_version(const struct ps_onednn *onednn, char *out, size_t size);

/* A convolution as oneDNN runs it: data [N,C,H,W] f32, weight [O,C/G,KH,KW], bias [O]. */
struct ps_conv_geometry {
    int64_t n, c, h, w;    /* data */
    int64_t o, oh, ow;     /* output */
    int64_t kh, kw, group; /* weight */
    int64_t stride_h, stride_w, pad_h, pad_w, dilate_h, dilate_w;
    bool bias;
};

struct ps_onednn_conv; /* primitives of one plan, with their memory objects */

/* NULL when oneDNN has no such convolution; the caller then uses plain code.  Workspaces
 * of the two directions are written on success. */
struct ps_onednn_conv *ps_onednn_conv_create(struct ps_onednn *onednn,
                                             const struct ps_conv_geometry *geometry,
                                             bool training, int threads,
                                             size_t *forward_bytes,
                                             size_t *backward_bytes);
void ps_onednn_conv_destroy(struct ps_onednn_conv *conv); /* NULL is fine */
/* Runs as ps_op_forward and ps_op_backward do; inputs data, weight, bias. */
PS_MUST_CHECK enum ps_status ps_onednn_conv_forward(struct ps_onednn_conv *conv,
                                                    const struct ps_op_run *run);
PS_MUST_CHECK enum ps_status ps_onednn_conv_backward(struct ps_onednn_conv *conv,
                                                     const struct ps_op_run *run);

/* Pooling of data [N,C,H,W] f32 whose windows all lie inside the padded image. */
enum ps_pool_kind {
    PS_POOL_MAX,
    PS_POOL_AVG,      /* divides by KH KW */
    PS_POOL_AVG_IMAGE /* divides by the part of the window inside the image */
};

struct ps_pool_geometry {
    int64_t n, c, h, w, oh, ow, kh, kw;
    int64_t stride_h, stride_w, pad_h, pad_w;
    enum ps_pool_kind kind;
};

struct ps_onednn_pool;

/* As ps_onednn_conv_*; input data. */
struct ps_onednn_pool *ps_onednn_pool_create(struct ps_onednn *onednn,
                                             const struct ps_pool_geometry *geometry,
                                             bool training, int threads,
                                             size_t *forward_bytes,
                                             size_t *backward_bytes);
void ps_onednn_pool_destroy(struct ps_onednn_pool *pool); /* NULL is fine */
PS_MUST_CHECK enum ps_status ps_onednn_pool_forward(struct ps_onednn_pool *pool,
                                                    const struct ps_op_run *run);
PS_MUST_CHECK enum ps_status ps_onednn_pool_backward(struct ps_onednn_pool *pool,
                                                     const struct ps_op_run *run);

/* Normalisation of data [A,C,S] f32 by channel c. */
struct ps_norm_geometry {
    int64_t a, c, s;
    double eps, momentum;
    bool fix_gamma, use_global_stats;
};

struct ps_onednn_norm;

/* As ps_onednn_conv_*; inputs data, gamma, beta, outputs output, mean, var, auxiliary
 * states moving_mean, moving_var: all as kernels/norm/batch_norm.c says. */
struct ps_onednn_norm *ps_onednn_norm_create(struct ps_onednn *onednn,
                                             const struct ps_norm_geometry *geometry,
                                             bool training, int threads,
                                             size_t *forward_bytes,
                                             size_t *backward_bytes);
void ps_onednn_norm_destroy(struct ps_onednn_norm *norm); /* NULL is fine */
PS_MUST_CHECK enum ps_status ps_onednn_norm_forward(struct ps_onednn_norm *norm,
                                                    const struct ps_op_run *run);
PS_MUST_CHECK enum ps_status ps_onednn_norm_backward(struct ps_onednn_norm *norm,
                                                     const struct ps_op_run *run);

#endif
