/* What the files that call oneDNN share.  Private to the room; only compiled where the
 * library is built in. */
#ifndef PENSTOCK_KERNELS_ONEDNN_OPS_H
#define PENSTOCK_KERNELS_ONEDNN_OPS_H

#include <oneapi/dnnl/dnnl.h>

struct ps_onednn;

dnnl_engine_t ps_onednn_engine(const struct ps_onednn *onednn);

/* Jumps to 'label' with PS_EUNSUPPORTED in 'status': the caller falls back. */
#define PS_DNNL_GOTO(status, expr, label) \
    do {                                  \
        if ((expr) != dnnl_success) {     \
            (status) = PS_EUNSUPPORTED;   \
            goto label;                   \
        }                                 \
    } while (0)

#endif
