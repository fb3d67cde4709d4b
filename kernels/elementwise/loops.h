/* Vector loops of the elementwise functions, by kind and dtype; used by the unary,
 * binary, scalar, broadcast and activation operators.  Any argument may alias the result
 * exactly.  Single-threaded over a range; callers cut.  Threads: pure. */
#ifndef PENSTOCK_KERNELS_ELEMENTWISE_LOOPS_H
#define PENSTOCK_KERNELS_ELEMENTWISE_LOOPS_H

#include "kernels/elementwise/elementwise_math.h"

#include <stdbool.h>

/* y = f(x); dx (+)= gradient(g, v). */
struct ps_unary_loops {
    void (*forward)(const void *x, void *y, int64_t n);
    void (*backward)(const void *g, const void *v, void *dx, int64_t n, bool add);
    enum ps_reads reads;
};
const struct ps_unary_loops *ps_unary_loops(enum ps_unary kind, int dtype);

/* Operands of a binary loop; a NULL side is the scalar 's'. */
struct ps_binary_args {
    const void *a, *b, *g;
    void *out;
    double s;
    int64_t n;
    bool add; /* gradients only */
};
struct ps_binary_loops {
    void (*forward)(const struct ps_binary_args *args);
    void (*grad_a)(const struct ps_binary_args *args);
    void (*grad_b)(const struct ps_binary_args *args);
    bool reads_inputs;
};
const struct ps_binary_loops *ps_binary_loops(enum ps_binary kind, int dtype);

#endif
