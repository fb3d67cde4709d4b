/* Element types, half precision, shapes. */
#include "base/dtype.h"

#include <stdio.h>
#include <string.h>

struct row {
    int code;
    const char *name;
    size_t size;
    enum ps_dtype accumulator;
};

static const struct row rows[] = {
    {PS_F32, "float32", 4, PS_F32}, {PS_F64, "float64", 8, PS_F64},
    {PS_F16, "float16", 2, PS_F32}, {PS_U8, "uint8", 1, PS_I64},
    {PS_I32, "int32", 4, PS_I64},   {PS_I8, "int8", 1, PS_I64},
    {PS_I64, "int64", 8, PS_I64},   {PS_BF16, "bfloat16", 2, PS_F32},
};

static const struct row *find(int dtype)
{
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        if (rows[i].code == dtype) {
            return &rows[i];
        }
    }
    return NULL;
}

size_t ps_dtype_size(int dtype)
{
    const struct row *row = find(dtype);
    return row == NULL ? 0 : row->size;
}

const char *ps_dtype_name(int dtype)
{
    const struct row *row = find(dtype);
    return row == NULL ? "?" : row->name;
}

int ps_dtype_from_name(const char *name)
{
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return rows[i].code;
        }
    }
    return PS_DTYPE_UNKNOWN;
}

enum ps_dtype ps_dtype_accumulator(enum ps_dtype dtype)
{
    const struct row *row = find(dtype);
    return row == NULL ? PS_DTYPE_UNKNOWN : row->accumulator;
}

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

float ps_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 0x1F;
    uint32_t mantissa = h & 0x3FF;
    if (exponent == 0x1F) {
        return from_bits(sign | 0x7F800000 | (mantissa << 13));
    }
    if (exponent != 0) {
        return from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
    }
    /* zero or subnormal: mantissa * 2^-24, normal in f32, so flush modes do not matter */
    float magnitude = (float)mantissa * 0x1p-24f;
    return from_bits(sign | to_bits(magnitude));
}

uint16_t ps_f32_to_f16(float f)
{
    uint32_t bits = to_bits(f);
    uint32_t sign = (bits >> 16) & 0x8000;
    uint32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) { /* NaN: quiet, the payload's high bits kept */
        return (uint16_t)(sign | 0x7E00 | ((magnitude >> 13) & 0x3FF));
    }
    if (magnitude >= 0x47800000) { /* from 65536 on */
        return (uint16_t)(sign | 0x7C00);
    }
    if (magnitude >= 0x38800000) { /* normal in f16: from 2^-14 on */
        /* The bias 127 - 15 comes off the exponent; a carry out of the mantissa raises
         * the exponent, up to infinity, as rounding wants. */
        uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
        return (uint16_t)(sign | ((rounded - 0x38000000) >> 13));
    }
    uint32_t exponent = magnitude >> 23;
    if (exponent < 102) { /* below half of the smallest subnormal, 2^-25 */
        return (uint16_t)sign;
    }
    uint32_t mantissa = (magnitude & 0x7FFFFF) | 0x800000;
    uint32_t shift = 126 - exponent; /* 14 .. 24 */
    uint32_t result = mantissa >> shift;
    uint32_t rest = mantissa & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);
    if (rest > half || (rest == half && (result & 1) != 0)) {
        result++;
    }
    return (uint16_t)(sign | result);
}

float ps_bf16_to_f32(uint16_t h)
{
    return from_bits((uint32_t)h << 16);
}

uint16_t ps_f32_to_bf16(float f)
{
    uint32_t bits = to_bits(f);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) { /* NaN: quiet, so that it stays one */
        return (uint16_t)((bits >> 16) | 0x40);
    }
    return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

bool ps_shape_known(const struct ps_shape *shape)
{
    for (int i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] < 0) {
            return false;
        }
    }
    return shape->ndim >= 0;
}

int64_t ps_shape_count(const struct ps_shape *shape)
{
    int64_t count = 1;
    if (!ps_shape_known(shape)) {
        return -1;
    }
    for (int i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] == 0) {
            return 0;
        }
    }
    for (int i = 0; i < shape->ndim; i++) {
        if (__builtin_mul_overflow(count, shape->dim[i], &count)) {
            return -1;
        }
    }
    return count;
}

bool ps_shape_equal(const struct ps_shape *a, const struct ps_shape *b)
{
    if (a->ndim < 0 || b->ndim < 0) {
        return a->ndim < 0 && b->ndim < 0;
    }
    return a->ndim == b->ndim &&
           memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof(a->dim[0])) == 0;
}

enum ps_status ps_shape_merge(struct ps_shape *into, const struct ps_shape *from)
{
    if (from->ndim < 0) {
        return PS_OK;
    }
    if (into->ndim < 0) {
        *into = *from;
        return PS_OK;
    }
    if (into->ndim != from->ndim) {
        return PS_ESHAPE;
    }
    struct ps_shape merged = *into;
    for (int i = 0; i < from->ndim; i++) {
        if (from->dim[i] < 0) {
            continue;
        }
        if (merged.dim[i] >= 0 && merged.dim[i] != from->dim[i]) {
            return PS_ESHAPE;
        }
        merged.dim[i] = from->dim[i];
    }
    *into = merged;
    return PS_OK;
}

const char *ps_shape_text(const struct ps_shape *shape, char out[PS_SHAPE_TEXT_BYTES])
{
    if (shape->ndim < 0) {
        (void)snprintf(out, PS_SHAPE_TEXT_BYTES, "?");
        return out;
    }
    /* 8 dimensions of at most 20 digits and ", " fit. */
    size_t used = (size_t)snprintf(out, PS_SHAPE_TEXT_BYTES, "(");
    for (int i = 0; i < shape->ndim; i++) {
        const char *sep = i + 1 < shape->ndim ? ", " : shape->ndim == 1 ? "," : "";
        int n = shape->dim[i] < 0
                    ? snprintf(out + used, PS_SHAPE_TEXT_BYTES - used, "?%s", sep)
                    : snprintf(out + used, PS_SHAPE_TEXT_BYTES - used, "%lld%s",
                               (long long)shape->dim[i], sep);
        used += (size_t)n;
    }
    (void)snprintf(out + used, PS_SHAPE_TEXT_BYTES - used, ")");
    return out;
}
