/* kernels/softmax/labels.h.  Threads: pure. */
#include "kernels/softmax/labels.h"

#include "kernels/half.h"

double ps_label_real_at(const struct ps_view *view, int64_t i)
{
    switch (view->dtype) {
    case PS_F32:
        return (double)((const float *)view->data)[i];
    case PS_F64:
        return ((const double *)view->data)[i];
    case PS_F16:
        return (double)ps_half_load(((const uint16_t *)view->data)[i]);
    case PS_BF16:
        return (double)ps_bfloat_load(((const uint16_t *)view->data)[i]);
    case PS_U8:
        return ((const uint8_t *)view->data)[i];
    case PS_I8:
        return ((const int8_t *)view->data)[i];
    case PS_I32:
        return ((const int32_t *)view->data)[i];
    default:
        return (double)((const int64_t *)view->data)[i];
    }
}

int64_t ps_label_at(const struct ps_view *view, int64_t i)
{
    if (view->dtype == PS_I64) {
        return ((const int64_t *)view->data)[i];
    }
    double v = ps_label_real_at(view, i);
    if (v != v) {
        return -1;
    }
    return v >= 0x1p62 ? INT64_MAX : v <= -0x1p62 ? INT64_MIN : (int64_t)v;
}

enum ps_status ps_label_infer_dtype(const struct ps_op *op, int in[], int out[],
                                    int aux[], struct ps_error *err)
{
    PS_UNUSED(aux);
    if (in[0] != PS_DTYPE_UNKNOWN && out[0] != PS_DTYPE_UNKNOWN && in[0] != out[0]) {
        return PS_OP_FAIL(op, err, PS_EDTYPE, "output has dtype %s, expected %s",
                          ps_dtype_name(out[0]), ps_dtype_name(in[0]));
    }
    in[0] = in[0] == PS_DTYPE_UNKNOWN ? out[0] : in[0];
    out[0] = in[0];
    in[1] = in[1] == PS_DTYPE_UNKNOWN ? in[0] : in[1];
    return PS_OK;
}
