/* The loops of kernels/elementwise/loops.h for f32 and f64, and their tables.
 * Threads: pure. */
#include "kernels/elementwise/loops.h"

#include "base/dtype.h"
#include "base/util.h"

#define T float
#define NAME(x) x##_f32
#define M(f) ps_##f##_f32
#include "kernels/elementwise/loops.inc"
#undef T
#undef NAME
#undef M
#define T double
#define NAME(x) x##_f64
#define M(f) ps_##f##_f64
#include "kernels/elementwise/loops.inc"
#undef T
#undef NAME
#undef M

static const struct ps_unary_loops unary_table[PS_UNARY_COUNT][2] = {
#define ROW(name, reads, f, d)                    \
    {{fwd_##name##_f32, bwd_##name##_f32, reads}, \
     {fwd_##name##_f64, bwd_##name##_f64, reads}},
    PS_UNARY_MAP(ROW)
#undef ROW
};

static const struct ps_binary_loops binary_table[PS_BINARY_COUNT][2] = {
#define ROW(name, reads, f, da, db)                                               \
    {{fwd2_##name##_f32, grad_a_##name##_f32, grad_b_##name##_f32, (reads) != 0}, \
     {fwd2_##name##_f64, grad_a_##name##_f64, grad_b_##name##_f64, (reads) != 0}},
    PS_BINARY_MAP(ROW)
#undef ROW
};

const struct ps_unary_loops *ps_unary_loops(enum ps_unary kind, int dtype)
{
    return &unary_table[kind][dtype == PS_F64];
}

const struct ps_binary_loops *ps_binary_loops(enum ps_binary kind, int dtype)
{
    return &binary_table[kind][dtype == PS_F64];
}
