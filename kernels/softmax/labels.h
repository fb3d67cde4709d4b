/* Labels: tensors of any dtype read as class ids or numbers.  Private to the room.
 * Threads: pure. */
#ifndef PENSTOCK_KERNELS_SOFTMAX_LABELS_H
#define PENSTOCK_KERNELS_SOFTMAX_LABELS_H

#include "kernels/op_def.h"

/* Element i as a class id; a number that is none (NaN, out of range) gives -1 for NaN and
 * saturates otherwise. */
int64_t ps_label_at(const struct ps_view *view, int64_t i);
double ps_label_real_at(const struct ps_view *view, int64_t i);

/* Input 0 and output 0 share a dtype; input 1, the label, has its own, and takes input
 * 0's when nobody said. */
enum ps_status ps_label_infer_dtype(const struct ps_op *op, int in[], int out[],
                                    int aux[], struct ps_error *err);

#endif
