/* Operations that every tensor has: copy in and out, copy, fill.  All are pushes; those
 * that return a result wait for a variable of their own. */
#include "base/util.h"
#include "engine/device/device.h"
#include "engine/tensor/tensor_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum ps_status ps_tensor_wait(struct ps_tensor *tensor, struct ps_error *err)
{
    return ps_engine_wait_var(tensor->storage->engine, tensor->storage->var, err);
}

static enum ps_status wrong_size(const struct ps_tensor *tensor, size_t size,
                                 struct ps_error *err)
{
    return ps_error_set(err, PS_ESHAPE, "tensor has %zu bytes, not %zu",
                        tensor->size_bytes, size);
}

/* ---- in and out ---- */

struct host_copy {
    struct ps_tensor *tensor;
    void *host;
    bool to_host;
};

static enum ps_status host_copy_run(void *arg, const struct ps_run *run,
                                    struct ps_error *err)
{
    const struct host_copy *copy = arg;
    struct ps_device *device = copy->tensor->storage->device;
    size_t size = copy->tensor->size_bytes;
    struct ps_device *host = device;
    void *data = ps_tensor_data(copy->tensor);
    if (data == NULL && size > 0) {
        return ps_tensor_no_memory(copy->tensor, err);
    }
    if (!ps_device_is_host(device)) {
        PS_TRY(ps_engine_device(run->engine, PS_CPU(0), &host, err));
    }
    /* complete when the lane has synced its stream: 'done' is written then */
    if (copy->to_host) {
        return ps_device_copy(host, copy->host, device, data, size, run->stream);
    }
    return ps_device_copy(device, data, host, copy->host, size, run->stream);
}

/* Pushes the copy and waits for it: 'done' is a variable that the copy writes, so that
 * waiting for it waits for this copy and reports an error of the tensor. */
static enum ps_status host_copy(struct ps_tensor *tensor, void *host, bool to_host,
                                struct ps_error *err)
{
    struct ps_engine *engine = tensor->storage->engine;
    struct host_copy copy = {.tensor = tensor, .host = host, .to_host = to_host};
    struct ps_var *done;
    enum ps_status status = ps_var_create(engine, &done);
    if (status != PS_OK) {
        return ps_error_set(err, status, "tensor: %s", ps_status_text(status));
    }
    struct ps_var *reads[] = {tensor->storage->var};
    struct ps_var *writes[] = {done, tensor->storage->var};
    struct ps_engine_op op = {
        .name = to_host ? "tensor_read" : "tensor_write",
        .run = host_copy_run,
        .arg = &copy,
        .reads = reads,
        .read_count = 1,
        .writes = writes,
        .write_count = to_host ? 1 : 2,
        .context = ps_tensor_context(tensor),
        .kind = to_host ? PS_ENGINE_COPY_FROM_GPU : PS_ENGINE_COPY_TO_GPU,
    };
    status = ps_engine_push(engine, &op);
    if (status != PS_OK) {
        (void)ps_error_set(err, status, "%s: %s", op.name, ps_status_text(status));
    } else {
        status = ps_engine_wait_var(engine, done, err);
    }
    ps_var_delete(engine, done);
    return status;
}

enum ps_status ps_tensor_read(struct ps_tensor *tensor, void *out, size_t size,
                              struct ps_error *err)
{
    if (size != tensor->size_bytes) {
        return wrong_size(tensor, size, err);
    }
    return host_copy(tensor, out, true, err);
}

enum ps_status ps_tensor_write(struct ps_tensor *tensor, const void *data, size_t size,
                               struct ps_error *err)
{
    if (size != tensor->size_bytes) {
        return wrong_size(tensor, size, err);
    }
    return host_copy(tensor, (void *)(uintptr_t)data, false, err);
}

/* ---- copy ---- */

struct copy_arg {
    struct ps_tensor *from, *to; /* shares */
};

static enum ps_status copy_run(void *arg, const struct ps_run *run, struct ps_error *err)
{
    const struct copy_arg *copy = arg;
    size_t size = copy->to->size_bytes;
    void *to = ps_tensor_data(copy->to);
    const void *from = ps_tensor_data(copy->from);
    if (size > 0 && (to == NULL || from == NULL)) {
        return ps_tensor_no_memory(to == NULL ? copy->to : copy->from, err);
    }
    if (to == from) {
        return PS_OK;
    }
    return ps_device_copy(copy->to->storage->device, to, copy->from->storage->device,
                          from, size, run->stream);
}

static void copy_release(void *arg)
{
    struct copy_arg *copy = arg;
    ps_tensor_release(copy->from);
    ps_tensor_release(copy->to);
    free(copy);
}

static bool overlaps(const struct ps_tensor *a, const struct ps_tensor *b)
{
    return a->storage == b->storage && a->offset_bytes != b->offset_bytes &&
           a->offset_bytes < b->offset_bytes + b->size_bytes &&
           b->offset_bytes < a->offset_bytes + a->size_bytes;
}

enum ps_status ps_tensor_copy(struct ps_tensor *from, struct ps_tensor *to, int priority)
{
    if (from->dtype != to->dtype) {
        return PS_EDTYPE;
    }
    if (from->count != to->count) {
        return PS_ESHAPE;
    }
    if (overlaps(from, to)) {
        return PS_EINVAL;
    }
    struct copy_arg *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        return PS_ENOMEM;
    }
    copy->from = ps_tensor_retain(from);
    copy->to = ps_tensor_retain(to);
    bool from_gpu = ps_tensor_context(from).kind == PS_CONTEXT_GPU;
    bool to_gpu = ps_tensor_context(to).kind == PS_CONTEXT_GPU;
    static const char *const copy_names[2][2] = {{"CopyCPU2CPU", "CopyCPU2GPU"},
                                                 {"CopyGPU2CPU", "CopyGPU2GPU"}};
    struct ps_engine_op op = {
        .name = copy_names[from_gpu][to_gpu],
        .run = copy_run,
        .arg = copy,
        .release = copy_release,
        .reads = &from->storage->var,
        .read_count = 1,
        .writes = &to->storage->var,
        .write_count = 1,
        .context = ps_tensor_context(from_gpu ? from : to),
        .kind = from_gpu ? PS_ENGINE_COPY_FROM_GPU
                         : (to_gpu ? PS_ENGINE_COPY_TO_GPU : PS_ENGINE_NORMAL),
        .priority = priority,
    };
    enum ps_status status = ps_engine_push(to->storage->engine, &op);
    if (status != PS_OK) {
        copy_release(copy);
    }
    return status;
}

/* ---- fill ---- */

struct fill_arg {
    struct ps_tensor *tensor; /* shares */
    double value;
};

/* 'value' in [low, high], NaN as 0; 'high' may round up when it is converted. */
static int64_t saturate(double value, int64_t low, int64_t high)
{
    if (isnan(value)) {
        return 0;
    }
    if (value <= (double)low) {
        return low;
    }
    return value >= (double)high ? high : (int64_t)value;
}

/* One element of 'dtype' with 'value'. */
static void convert(double value, int dtype, unsigned char out[8])
{
    float f = (float)value;
    uint16_t half = dtype == PS_F16 ? ps_f32_to_f16(f) : ps_f32_to_bf16(f);
    int64_t i64 = saturate(value, INT64_MIN, INT64_MAX);
    int32_t i32 = (int32_t)saturate(value, INT32_MIN, INT32_MAX);
    uint8_t u8 = (uint8_t)saturate(value, 0, UINT8_MAX);
    int8_t i8 = (int8_t)saturate(value, INT8_MIN, INT8_MAX);
    const void *from[] = {
        [PS_F32] = &f,   [PS_F64] = &value, [PS_F16] = &half, [PS_U8] = &u8,
        [PS_I32] = &i32, [PS_I8] = &i8,     [PS_I64] = &i64,  [PS_BF16] = &half};
    memcpy(out, from[dtype], ps_dtype_size(dtype));
}

/* data[i] = element for i in [0, count); doubles what is filled, so memcpy does the work
 */
static void repeat(unsigned char *data, const unsigned char *element,
                   size_t element_bytes, size_t bytes)
{
    memcpy(data, element, element_bytes);
    for (size_t done = element_bytes; done < bytes;) {
        size_t more = PS_MIN(done, bytes - done);
        memcpy(data + done, data, more);
        done += more;
    }
}

static enum ps_status fill_run(void *arg, const struct ps_run *run, struct ps_error *err)
{
    const struct fill_arg *fill = arg;
    struct ps_tensor *tensor = fill->tensor;
    unsigned char element[8];
    void *data = ps_tensor_address(tensor, run);
    if (tensor->size_bytes == 0) {
        return PS_OK;
    }
    if (data == NULL) {
        return ps_tensor_no_address(tensor, run, err);
    }
    convert(fill->value, tensor->dtype, element);
    if (element[0] == 0 &&
        memcmp(element, element + 1, ps_dtype_size(tensor->dtype) - 1) == 0) {
        memset(data, 0, tensor->size_bytes);
    } else {
        repeat(data, element, ps_dtype_size(tensor->dtype), tensor->size_bytes);
    }
    return PS_OK;
}

static void fill_release(void *arg)
{
    struct fill_arg *fill = arg;
    ps_tensor_release(fill->tensor);
    free(fill);
}

enum ps_status ps_tensor_fill(struct ps_tensor *tensor, double value)
{
    struct fill_arg *fill = malloc(sizeof(*fill));
    if (fill == NULL) {
        return PS_ENOMEM;
    }
    fill->tensor = ps_tensor_retain(tensor);
    fill->value = value;
    struct ps_engine_op op = {
        .name = "tensor_fill",
        .run = fill_run,
        .arg = fill,
        .release = fill_release,
        .writes = &tensor->storage->var,
        .write_count = 1,
        .context = ps_tensor_context(tensor),
    };
    enum ps_status status = ps_engine_push(tensor->storage->engine, &op);
    if (status != PS_OK) {
        fill_release(fill);
    }
    return status;
}
