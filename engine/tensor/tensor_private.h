/* Inside engine/tensor/: what a tensor is made of. */
#ifndef PENSTOCK_ENGINE_TENSOR_TENSOR_PRIVATE_H
#define PENSTOCK_ENGINE_TENSOR_TENSOR_PRIVATE_H

#include "engine/device/device.h"
#include "engine/tensor/tensor.h"

#include <stdatomic.h>

struct ps_storage {
    _Atomic uint32_t refs; /* tensors */
    struct ps_engine *engine;
    struct ps_device *device;
    struct ps_var *var;
    size_t size_bytes;
    _Atomic(void *) data; /* NULL until the first operation asks, when 'owned' */
    bool owned;           /* memory of the device's pool: 'block' */
    struct ps_device_block block;
    void (*deleter)(void *arg);
    void *deleter_arg;
};

struct ps_tensor {
    _Atomic uint32_t refs;
    struct ps_storage *storage; /* shares */
    size_t offset_bytes;
    enum ps_dtype dtype;
    struct ps_shape shape;
    int64_t count;
    size_t size_bytes;
};

#endif
