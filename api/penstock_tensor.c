/* penstock.h: reading the caller's DLPack-shaped tensors. */
#include "api/handles.h"

#include <inttypes.h>

static int dtype_of(penstock_dtype dtype)
{
    static const struct {
        uint8_t code, bits;
        int dtype;
    } known[] = {{2, 32, PS_F32}, {2, 64, PS_F64}, {2, 16, PS_F16}, {4, 16, PS_BF16},
                 {0, 32, PS_I32}, {0, 64, PS_I64}, {0, 8, PS_I8},   {1, 8, PS_U8}};
    for (size_t i = 0; i < PS_COUNT(known); i++) {
        if (known[i].code == dtype.code && known[i].bits == dtype.bits &&
            dtype.lanes == 1) {
            return known[i].dtype;
        }
    }
    return PS_DTYPE_UNKNOWN;
}

static bool is_dense(const penstock_tensor *tensor)
{
    int64_t stride = 1;
    if (tensor->strides == NULL) {
        return true;
    }
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != stride) {
            return false;
        }
        stride *= tensor->shape[i];
    }
    return true;
}

enum ps_status penstock_read_tensor(const penstock_tensor *tensor, int *dtype_out,
                                    struct ps_shape *shape_out, void **data_out,
                                    struct ps_error *err)
{
    if (tensor == NULL) {
        return ps_error_set(err, PS_EINVAL, "the tensor is NULL");
    }
    struct ps_shape shape = {.ndim = tensor->ndim};
    int dtype = dtype_of(tensor->dtype);
    if (dtype == PS_DTYPE_UNKNOWN) {
        return ps_error_set(
            err, PS_EDTYPE,
            "tensor dtype code %u bits %u lanes %u is not one a store holds",
            tensor->dtype.code, tensor->dtype.bits, tensor->dtype.lanes);
    }
    if (tensor->ndim < 0 || tensor->ndim > PS_MAX_DIM ||
        (tensor->ndim > 0 && tensor->shape == NULL)) {
        return ps_error_set(err, PS_ESHAPE,
                            "tensor of %" PRId32 " dimensions: 0 to %d accepted",
                            tensor->ndim, PS_MAX_DIM);
    }
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] <= 0) {
            return ps_error_set(err, PS_ESHAPE,
                                "tensor dimension %" PRId32 " is %" PRId64
                                ": must be positive",
                                i, tensor->shape[i]);
        }
        shape.dim[i] = tensor->shape[i];
    }
    if (ps_shape_count(&shape) < 0) {
        return ps_error_set(err, PS_ESHAPE, "tensor has too many elements");
    }
    if (!is_dense(tensor)) {
        return ps_error_set(err, PS_EUNSUPPORTED,
                            "tensor has strides with gaps: a row-major copy is accepted");
    }
    if (tensor->device.device_type != PENSTOCK_CPU) {
        return ps_error_set(err, PS_EUNSUPPORTED,
                            "tensor lies on device type %" PRId32
                            ": this version takes CPU memory (1)",
                            tensor->device.device_type);
    }
    if (tensor->data == NULL) {
        return ps_error_set(err, PS_EINVAL, "tensor has no memory");
    }
    *dtype_out = dtype;
    *shape_out = shape;
    *data_out = (char *)tensor->data + tensor->byte_offset;
    return PS_OK;
}
