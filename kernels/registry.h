/* The list of all operators; private to the room.  Threads: constant data. */
#ifndef PENSTOCK_KERNELS_REGISTRY_H
#define PENSTOCK_KERNELS_REGISTRY_H

#include "kernels/op_def.h"

size_t ps_registry_count(void);
const struct ps_op_def *ps_registry_at(size_t i); /* i < count */

/* One table of definitions per family; 'count' of each beside it. */
#define PS_OP_FAMILY_MAP(X) \
    X(dense)                \
    X(dot)                  \
    X(conv)                 \
    X(pool)                 \
    X(activation)           \
    X(softmax)              \
    X(regression)           \
    X(norm)                 \
    X(unary)                \
    X(scalar)               \
    X(binary)               \
    X(broadcast)            \
    X(sum)                  \
    X(shape)                \
    X(concat)               \
    X(slice_channel)        \
    X(transpose)            \
    X(embedding)            \
    X(add_n)                \
    X(dropout)

#define PS_OP_FAMILY_DECLARE(name)                 \
    extern const struct ps_op_def ps_ops_##name[]; \
    extern const size_t ps_ops_##name##_count;
PS_OP_FAMILY_MAP(PS_OP_FAMILY_DECLARE)
#undef PS_OP_FAMILY_DECLARE

#endif
