/* Tensors and their storage: making, sharing, releasing, addresses. */
#include "engine/tensor/tensor.h"

#include "engine/tensor/tensor_private.h"
#include "kernels/kernels.h"

#include <stdlib.h>

static enum ps_status measure(int dtype, const struct ps_shape *shape, int64_t *count_out,
                              size_t *bytes_out)
{
    size_t element = ps_dtype_size(dtype);
    int64_t count = ps_shape_known(shape) ? ps_shape_count(shape) : -1;
    size_t bytes;
    if (element == 0) {
        return PS_EDTYPE;
    }
    if (count < 0 || !ps_mul_size((size_t)count, element, &bytes)) {
        return PS_ESHAPE;
    }
    *count_out = count;
    *bytes_out = bytes;
    return PS_OK;
}

/* ---- storage ---- */

/* Every operation on it has ended. */
static void storage_free(void *arg)
{
    struct ps_storage *storage = arg;
    if (storage->owned) {
        ps_device_free_block(storage->device, &storage->block);
    } else if (storage->deleter != NULL) {
        storage->deleter(storage->deleter_arg);
    }
    free(storage);
}

static void storage_release(struct ps_storage *storage)
{
    /* acq_rel: the last holder sees what the others did */
    if (atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) == 1) {
        ps_var_delete_then(storage->engine, storage->var, storage_free, storage);
    }
}

static enum ps_status storage_create(struct ps_engine *engine, struct ps_context context,
                                     size_t bytes, struct ps_storage **storage_out)
{
    struct ps_device *device;
    PS_TRY(ps_engine_device(engine, context, &device, NULL));
    struct ps_storage *storage = calloc(1, sizeof(*storage));
    if (storage == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status = ps_var_create(engine, &storage->var);
    if (status != PS_OK) {
        free(storage);
        return status;
    }
    atomic_init(&storage->refs, 1);
    storage->engine = engine;
    storage->device = device;
    storage->size_bytes = bytes;
    atomic_init(&storage->data, NULL);
    storage->owned = true;
    *storage_out = storage;
    return PS_OK;
}

/* Takes a reference on 'storage' on success. */
static enum ps_status tensor_over(struct ps_storage *storage, size_t offset, int dtype,
                                  const struct ps_shape *shape,
                                  struct ps_tensor **tensor_out)
{
    int64_t count;
    size_t bytes;
    PS_TRY(measure(dtype, shape, &count, &bytes));
    struct ps_tensor *tensor = calloc(1, sizeof(*tensor));
    if (tensor == NULL) {
        return PS_ENOMEM;
    }
    atomic_init(&tensor->refs, 1);
    atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
    tensor->storage = storage;
    tensor->offset_bytes = offset;
    tensor->dtype = (enum ps_dtype)dtype;
    tensor->shape = *shape;
    tensor->count = count;
    tensor->size_bytes = bytes;
    *tensor_out = tensor;
    return PS_OK;
}

/* ---- lifecycle ---- */

enum ps_status ps_tensor_create(struct ps_engine *engine, struct ps_context context,
                                int dtype, const struct ps_shape *shape,
                                struct ps_tensor **tensor_out)
{
    int64_t count;
    size_t bytes;
    struct ps_storage *storage;
    PS_TRY(measure(dtype, shape, &count, &bytes));
    PS_TRY(storage_create(engine, context, bytes, &storage));
    enum ps_status status = tensor_over(storage, 0, dtype, shape, tensor_out);
    storage_release(storage);
    return status;
}

enum ps_status ps_tensor_wrap(struct ps_engine *engine, struct ps_context context,
                              int dtype, const struct ps_shape *shape, void *data,
                              void (*deleter)(void *arg), void *arg,
                              struct ps_tensor **tensor_out)
{
    int64_t count;
    size_t bytes;
    struct ps_storage *storage;
    PS_TRY(measure(dtype, shape, &count, &bytes));
    if (data == NULL && bytes > 0) {
        return PS_EINVAL;
    }
    PS_TRY(storage_create(engine, context, bytes, &storage));
    storage->owned = false;
    atomic_store_explicit(&storage->data, data, memory_order_release);
    enum ps_status status = tensor_over(storage, 0, dtype, shape, tensor_out);
    if (status == PS_OK) { /* on failure 'data' is still the caller's */
        storage->deleter = deleter;
        storage->deleter_arg = arg;
    }
    storage_release(storage);
    return status;
}

enum ps_status ps_tensor_like(const struct ps_tensor *tensor,
                              struct ps_tensor **tensor_out)
{
    return ps_tensor_create(tensor->storage->engine, ps_tensor_context(tensor),
                            tensor->dtype, &tensor->shape, tensor_out);
}

enum ps_status ps_tensor_reshape(struct ps_tensor *tensor, const struct ps_shape *shape,
                                 struct ps_tensor **tensor_out)
{
    if (!ps_shape_known(shape) || ps_shape_count(shape) != tensor->count) {
        return PS_ESHAPE;
    }
    return tensor_over(tensor->storage, tensor->offset_bytes, tensor->dtype, shape,
                       tensor_out);
}

enum ps_status ps_tensor_slice(struct ps_tensor *tensor, int64_t begin, int64_t end,
                               struct ps_tensor **tensor_out)
{
    struct ps_shape shape = tensor->shape;
    if (shape.ndim < 1) {
        return PS_ESHAPE;
    }
    if (begin < 0 || begin > end || end > shape.dim[0]) {
        return PS_ERANGE;
    }
    size_t rows = (size_t)shape.dim[0];
    size_t row_bytes = rows > 0 ? tensor->size_bytes / rows : 0;
    shape.dim[0] = end - begin;
    return tensor_over(tensor->storage, tensor->offset_bytes + (size_t)begin * row_bytes,
                       tensor->dtype, &shape, tensor_out);
}

enum ps_status ps_tensor_at(struct ps_tensor *tensor, size_t offset, int dtype,
                            const struct ps_shape *shape, struct ps_tensor **tensor_out)
{
    int64_t count;
    size_t bytes;
    PS_TRY(measure(dtype, shape, &count, &bytes));
    if (offset > tensor->size_bytes || bytes > tensor->size_bytes - offset ||
        (tensor->offset_bytes + offset) % ps_dtype_size(dtype) != 0) {
        return PS_ERANGE;
    }
    return tensor_over(tensor->storage, tensor->offset_bytes + offset, dtype, shape,
                       tensor_out);
}

struct ps_tensor *ps_tensor_retain(struct ps_tensor *tensor)
{
    atomic_fetch_add_explicit(&tensor->refs, 1, memory_order_relaxed);
    return tensor;
}

void ps_tensor_release(struct ps_tensor *tensor)
{
    /* acq_rel: the last holder sees what the others did */
    if (tensor != NULL &&
        atomic_fetch_sub_explicit(&tensor->refs, 1, memory_order_acq_rel) == 1) {
        storage_release(tensor->storage);
        free(tensor);
    }
}

/* ---- what it is ---- */

const struct ps_shape *ps_tensor_shape(const struct ps_tensor *tensor)
{
    return &tensor->shape;
}

enum ps_dtype ps_tensor_dtype(const struct ps_tensor *tensor)
{
    return tensor->dtype;
}

struct ps_context ps_tensor_context(const struct ps_tensor *tensor)
{
    return ps_device_context(tensor->storage->device);
}

struct ps_engine *ps_tensor_engine(const struct ps_tensor *tensor)
{
    return tensor->storage->engine;
}

struct ps_var *ps_tensor_var(const struct ps_tensor *tensor)
{
    return tensor->storage->var;
}

int64_t ps_tensor_count(const struct ps_tensor *tensor)
{
    return tensor->count;
}

size_t ps_tensor_bytes(const struct ps_tensor *tensor)
{
    return tensor->size_bytes;
}

void ps_tensor_set_label(struct ps_tensor *tensor, const char *label)
{
    ps_device_label_block(tensor->storage->device, &tensor->storage->block, label);
}

bool ps_tensor_shares(const struct ps_tensor *a, const struct ps_tensor *b)
{
    return a->storage == b->storage;
}

/* ---- inside an operation ---- */

/* The storage's memory, taken now if this is the first use.  Readers of a tensor that
 * nobody wrote may come here at the same time: the block is filled once. */
static void *storage_data(struct ps_storage *storage)
{
    /* acquire pairs with the release below */
    void *data = atomic_load_explicit(&storage->data, memory_order_acquire);
    if (data != NULL || !storage->owned) {
        return data;
    }
    if (ps_device_alloc_block(storage->device, storage->size_bytes, &storage->block) !=
        PS_OK) {
        return NULL;
    }
    data = storage->block.ptr;
    atomic_store_explicit(&storage->data, data, memory_order_release);
    return data;
}

void *ps_tensor_data(struct ps_tensor *tensor)
{
    char *data = tensor->size_bytes > 0 ? storage_data(tensor->storage) : NULL;
    return data != NULL ? data + tensor->offset_bytes : NULL;
}

/* Whether work in the context of 'run' may use the storage's memory. */
static bool reaches(const struct ps_run *run, const struct ps_storage *storage)
{
    struct ps_context context = ps_device_context(storage->device);
    struct ps_device *device;
    if (run->context.kind != context.kind) {
        return false;
    }
    if (context.kind == PS_CONTEXT_CPU || context.id == run->context.id) {
        return true;
    }
    return ps_engine_device(run->engine, run->context, &device, NULL) == PS_OK &&
           ps_device_peer_enabled(device, storage->device);
}

void *ps_tensor_address(struct ps_tensor *tensor, const struct ps_run *run)
{
    if (!reaches(run, tensor->storage)) {
        return NULL;
    }
    ps_stream_enter(run->stream);
    return ps_device_address(tensor->storage->device, ps_tensor_data(tensor));
}

enum ps_status ps_tensor_no_address(struct ps_tensor *tensor, const struct ps_run *run,
                                    struct ps_error *err)
{
    char here[PS_CONTEXT_TEXT_BYTES], there[PS_CONTEXT_TEXT_BYTES];
    if (!reaches(run, tensor->storage)) {
        return ps_error_set(err, PS_EPERM, "work on %s cannot use a tensor of %s",
                            ps_context_text(run->context, here),
                            ps_context_text(ps_tensor_context(tensor), there));
    }
    return ps_tensor_no_memory(tensor, err);
}

enum ps_status ps_tensor_no_memory(struct ps_tensor *tensor, struct ps_error *err)
{
    return ps_device_no_memory(tensor->storage->device, tensor->storage->size_bytes, err);
}

enum ps_status ps_tensor_view(struct ps_tensor *tensor, struct ps_view *view_out)
{
    void *data = ps_tensor_data(tensor);
    if (data == NULL && tensor->size_bytes > 0) {
        return PS_ENOMEM;
    }
    *view_out = (struct ps_view){
        .data = data, .dtype = tensor->dtype, .shape = tensor->shape, .layout = NULL};
    return PS_OK;
}
