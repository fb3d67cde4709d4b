/* Walks two tensors side by side, row by row, where one may repeat along some axes
 * (stride 0): broadcasting and reductions are both that.  Axes that behave alike are
 * joined, so rows are as long as they can be.  Threads: pure. */
#ifndef PENSTOCK_KERNELS_ELEMENTWISE_ROWS_H
#define PENSTOCK_KERNELS_ELEMENTWISE_ROWS_H

#include "base/dtype.h"

struct ps_rows {
    int ndim;
    int64_t dim[PS_MAX_DIM];
    int64_t step_a[PS_MAX_DIM], step_b[PS_MAX_DIM]; /* elements; 0: repeats */
    int64_t count; /* rows: the product of all dims but the last */
};

/* 'full' is walked; a and b have its ndim with each dim equal to full's or 1. */
void ps_rows_init(struct ps_rows *rows, const struct ps_shape *full,
                  const struct ps_shape *a, const struct ps_shape *b);
/* First element of row r in a and in b. */
void ps_rows_at(const struct ps_rows *rows, int64_t r, int64_t *a_out, int64_t *b_out);

static inline int64_t ps_rows_length(const struct ps_rows *rows)
{
    return rows->dim[rows->ndim - 1];
}

#endif
