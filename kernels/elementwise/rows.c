/* kernels/elementwise/rows.h.  Threads: pure. */
#include "kernels/elementwise/rows.h"

static void steps_of(const struct ps_shape *shape, int64_t *steps)
{
    int64_t step = 1;
    for (int i = shape->ndim - 1; i >= 0; i--) {
        steps[i] = shape->dim[i] == 1 ? 0 : step;
        step *= shape->dim[i];
    }
}

void ps_rows_init(struct ps_rows *rows, const struct ps_shape *full,
                  const struct ps_shape *a, const struct ps_shape *b)
{
    int64_t sa[PS_MAX_DIM] = {0}, sb[PS_MAX_DIM] = {0};
    int n = 0;
    *rows = (struct ps_rows){.count = 1};
    steps_of(a, sa);
    steps_of(b, sb);
    for (int i = 0; i < full->ndim; i++) {
        int64_t d = full->dim[i];
        if (d == 1) {
            continue;
        }
        /* joins with the axis before when both walk it as one run, or both repeat */
        if (n > 0 && rows->step_a[n - 1] == sa[i] * d &&
            rows->step_b[n - 1] == sb[i] * d) {
            rows->dim[n - 1] *= d;
            rows->step_a[n - 1] = sa[i];
            rows->step_b[n - 1] = sb[i];
            continue;
        }
        rows->dim[n] = d;
        rows->step_a[n] = sa[i];
        rows->step_b[n] = sb[i];
        n++;
    }
    if (n == 0) {
        rows->dim[n++] = 1;
    }
    rows->ndim = n;
    for (int i = 0; i + 1 < n; i++) {
        rows->count *= rows->dim[i];
    }
    if (rows->dim[n - 1] == 0) {
        rows->count = 0;
    }
}

void ps_rows_at(const struct ps_rows *rows, int64_t r, int64_t *a_out, int64_t *b_out)
{
    int64_t a = 0, b = 0;
    for (int i = rows->ndim - 2; i >= 0; i--) {
        int64_t k = r % rows->dim[i];
        r /= rows->dim[i];
        a += k * rows->step_a[i];
        b += k * rows->step_b[i];
    }
    *a_out = a;
    *b_out = b;
}
