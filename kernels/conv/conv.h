/* Plain convolution: image to columns and matrix products; the reference and fallback.
 * Private to the room.  Threads: as a plan. */
#ifndef PENSTOCK_KERNELS_CONV_CONV_H
#define PENSTOCK_KERNELS_CONV_CONV_H

#include "kernels/onednn.h"
#include "kernels/op_def.h"

/* Bytes of one column buffer; false when they overflow. */
bool ps_conv_plain_workspace(const struct ps_conv_geometry *g, int dtype,
                             size_t *bytes_out);
void ps_conv_plain_forward(struct ps_op_plan *plan, const struct ps_conv_geometry *g,
                           const struct ps_op_run *run);
void ps_conv_plain_backward(struct ps_op_plan *plan, const struct ps_conv_geometry *g,
                            const struct ps_op_run *run);

#endif
