/* First values of parameters, by their names as MXNet does: *_weight Xavier (Glorot,
 * Bengio 2010; uniform, fan average, magnitude 3), *_bias and *_beta 0, *_gamma 1,
 * *_moving_var 1, *_moving_mean 0. The number at (seed, name, index) does not depend on
 * who asks. Threads: any; pure. */
#ifndef PENSTOCK_WORKER_INITIALIZER_H
#define PENSTOCK_WORKER_INITIALIZER_H

#include "base/dtype.h"

/* Fills 'out' (the shape's elements, f32). */
void ps_initialize(const char *name, const struct ps_shape *shape, uint64_t seed,
                   float *out);

#endif
