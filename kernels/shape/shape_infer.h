/* Shape rules of Flatten, Reshape and the constants.  Private to the room. */
#ifndef PENSTOCK_KERNELS_SHAPE_SHAPE_INFER_H
#define PENSTOCK_KERNELS_SHAPE_SHAPE_INFER_H

#include "kernels/op_def.h"

struct ps_reshape_params {
    struct ps_shape shape;  /* MXNet's codes 0, -1, -2, -3, -4 */
    struct ps_shape target; /* before 0.9: target_shape, 0 = infer */
    bool reverse, keep_highest;
};
extern const struct ps_attr_row ps_reshape_attrs[];

struct ps_fill_params {
    struct ps_shape shape; /* empty, and dims of 0: unknown, from the consumer */
    int dtype;
};

enum ps_status ps_shape_infer_flatten(const struct ps_op *op, struct ps_shape in[],
                                      struct ps_shape out[], struct ps_shape aux[],
                                      struct ps_error *err);
enum ps_status ps_shape_infer_reshape(const struct ps_op *op, struct ps_shape in[],
                                      struct ps_shape out[], struct ps_shape aux[],
                                      struct ps_error *err);
enum ps_status ps_shape_infer_fill(const struct ps_op *op, struct ps_shape in[],
                                   struct ps_shape out[], struct ps_shape aux[],
                                   struct ps_error *err);

#endif
