/* Xavier and constants. */
#include "worker/initializer.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

#define XAVIER_MAGNITUDE \
    3.0 /* MXNet's default; uniform in +-sqrt(magnitude / fan average) */

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), e = strlen(ending);
    return n >= e && strcmp(name + n - e, ending) == 0;
}

/* Weight [out, in, kernel...]: fan in = in * kernel, fan out = out * kernel. */
static double xavier_bound(const struct ps_shape *shape)
{
    double kernel = 1;
    for (int i = 2; i < shape->ndim; i++) {
        kernel *= (double)shape->dim[i];
    }
    double out = shape->ndim > 0 ? (double)shape->dim[0] : 1;
    double in = shape->ndim > 1 ? (double)shape->dim[1] : out;
    return sqrt(XAVIER_MAGNITUDE / ((in + out) * kernel / 2));
}

void ps_initialize(const char *name, const struct ps_shape *shape, uint64_t seed,
                   float *out)
{
    int64_t count = ps_shape_count(shape);
    if (ends_with(name, "_weight")) {
        double bound = xavier_bound(shape);
        uint64_t stream = ps_hash_bytes(name, strlen(name));
        for (int64_t i = 0; i < count; i++) {
            double u = (double)ps_rng_unit_at(seed, stream, (uint64_t)i);
            out[i] = (float)((2 * u - 1) * bound);
        }
        return;
    }
    float value = ends_with(name, "_gamma") || ends_with(name, "_var") ? 1.0F : 0.0F;
    for (int64_t i = 0; i < count; i++) {
        out[i] = value;
    }
}
