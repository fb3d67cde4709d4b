/* Runs of unary functions, shared by the unary operators and Activation.
 * Private to the room.  Threads: as a plan. */
#ifndef PENSTOCK_KERNELS_ELEMENTWISE_UNARY_H
#define PENSTOCK_KERNELS_ELEMENTWISE_UNARY_H

#include "kernels/elementwise/loops.h"
#include "kernels/op_def.h"

enum ps_status ps_unary_forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                                enum ps_unary kind);
enum ps_status ps_unary_backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                                 enum ps_unary kind);
/* What the gradient of 'kind' reads, for slot index 0. */
bool ps_unary_needs(enum ps_unary kind, enum ps_op_slot slot);

#endif
