/* Element types, with MXNet's codes (they stand in its files and in our records), and
 * shapes. Threads: any; all functions are pure. */
#ifndef PENSTOCK_BASE_DTYPE_H
#define PENSTOCK_BASE_DTYPE_H

#include "base/status.h"
#include "base/util.h"

enum ps_dtype {
    PS_F32 = 0,
    PS_F64 = 1,
    PS_F16 = 2,
    PS_U8 = 3,
    PS_I32 = 4,
    PS_I8 = 5,
    PS_I64 = 6,
    PS_BF16 = 12,
    PS_DTYPE_UNKNOWN = -1
};

/* Bytes of one element; 0 for an unknown code. */
size_t ps_dtype_size(int dtype);
/* "float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bfloat16"; "?"
 * unknown. */
const char *ps_dtype_name(int dtype);
/* Accepts the names above; PS_DTYPE_UNKNOWN otherwise. */
int ps_dtype_from_name(const char *name);
/* The type sums of 'dtype' are kept in: f32 for f16/bf16/f32, f64 for f64, i64 for
 * integers. */
enum ps_dtype ps_dtype_accumulator(enum ps_dtype dtype);

/* IEEE half and bfloat16, round to nearest even, NaN kept. */
float ps_f16_to_f32(uint16_t h);
uint16_t ps_f32_to_f16(float f);
float ps_bf16_to_f32(uint16_t h);
uint16_t ps_f32_to_bf16(float f);

/* A shape.  ndim < 0: nothing known (MXNet's "()"); a dim of -1: that dimension unknown
 * (MXNet writes 0 there; readers of its files translate).  ndim 0 is a scalar of one
 * element. */
#define PS_MAX_DIM 8
struct ps_shape {
    int ndim;
    int64_t dim[PS_MAX_DIM];
};

#define PS_SHAPE_UNKNOWN ((struct ps_shape){.ndim = -1})
/* PS_SHAPE(2, 3) */
#define PS_SHAPE(...)                                                     \
    ((struct ps_shape){.ndim = (int)PS_COUNT(((int64_t[]){__VA_ARGS__})), \
                       .dim = {__VA_ARGS__}})

bool ps_shape_known(const struct ps_shape *shape); /* every dimension is known */
/* Elements of a fully known shape; -1 when unknown or above INT64_MAX. */
int64_t ps_shape_count(const struct ps_shape *shape);
bool ps_shape_equal(const struct ps_shape *a, const struct ps_shape *b);
/* Merges what 'from' knows into 'into'.  PS_ESHAPE when they contradict; 'into' untouched
 * then. */
PS_MUST_CHECK enum ps_status ps_shape_merge(struct ps_shape *into,
                                            const struct ps_shape *from);
/* "(2, 3)", "(4,)", "()", unknown dims as "?".  Returns 'out'. */
#define PS_SHAPE_TEXT_BYTES 192
const char *ps_shape_text(const struct ps_shape *shape, char out[PS_SHAPE_TEXT_BYTES]);

#endif
