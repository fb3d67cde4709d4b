/* Devices: the list of those that are built in, and their pool. */
#include "engine/device/device.h"

#include "engine/device/device_ops.h"

#include <stdlib.h>

/* Free blocks a device keeps at first.  Enough for the temporaries of a training step;
 * small against a machine that trains. */
#define DEFAULT_CAP_BYTES ((size_t)256 << 20)

static const struct ps_device_ops *const built_in[] = {&ps_device_cpu_ops};

static void *source_alloc(void *owner, size_t size)
{
    struct ps_device *device = owner;
    return device->ops->alloc(device, size);
}

static void source_free(void *owner, void *ptr, size_t size)
{
    struct ps_device *device = owner;
    device->ops->free(device, ptr, size);
}

enum ps_status ps_device_open(struct ps_node *node, struct ps_context context,
                              struct ps_device **device_out, struct ps_error *err)
{
    const struct ps_device_ops *ops = NULL;
    char text[PS_CONTEXT_TEXT_BYTES];
    for (size_t i = 0; i < PS_COUNT(built_in); i++) {
        if (built_in[i]->kind == context.kind && built_in[i]->abi == PS_DEVICE_ABI) {
            ops = built_in[i];
        }
    }
    if (ops == NULL) {
        return ps_error_set(err, PS_EUNSUPPORTED, "no device %s: this build has cpu only",
                            ps_context_text(context, text));
    }
    struct ps_device *device = calloc(1, sizeof(*device));
    if (device == NULL) {
        return ps_error_set(err, PS_ENOMEM, "device %s: out of memory",
                            ps_context_text(context, text));
    }
    device->ops = ops;
    device->context = context;
    device->node = node;
    enum ps_status status = ops->open(device, err);
    if (status != PS_OK) {
        free(device);
        return status;
    }
    struct ps_pool_source source = {
        .alloc = source_alloc, .free = source_free, .owner = device};
    ps_device_pool_init(&device->pool, &source, DEFAULT_CAP_BYTES);
    *device_out = device;
    return PS_OK;
}

void ps_device_close(struct ps_device *device)
{
    if (device == NULL) {
        return;
    }
    ps_device_pool_fini(&device->pool);
    device->ops->close(device);
    free(device);
}

enum ps_status ps_device_alloc(struct ps_device *device, size_t size, void **ptr_out)
{
    void *ptr = NULL;
    if (size > 0) {
        ptr = ps_device_pool_alloc(&device->pool, size);
        if (ptr == NULL) {
            return PS_ENOMEM;
        }
    }
    *ptr_out = ptr;
    return PS_OK;
}

void ps_device_free(struct ps_device *device, void *ptr, size_t size)
{
    ps_device_pool_free(&device->pool, ptr, size);
}

void ps_device_trim(struct ps_device *device)
{
    ps_device_pool_trim(&device->pool, 0);
}

void ps_device_set_cap(struct ps_device *device, size_t bytes)
{
    ps_device_pool_set_cap(&device->pool, bytes);
}

void ps_device_usage(struct ps_device *device, struct ps_device_usage *usage_out)
{
    ps_device_pool_usage(&device->pool, usage_out);
}

struct ps_context ps_device_context(const struct ps_device *device)
{
    return device->context;
}

bool ps_device_is_host(const struct ps_device *device)
{
    return device->ops->host;
}

enum ps_status ps_device_copy(struct ps_device *to, void *to_ptr, struct ps_device *from,
                              const void *from_ptr, size_t size, struct ps_stream *stream)
{
    /* the device that is not the host knows how to reach its own memory */
    struct ps_device *owner = to->ops->host ? from : to;
    if (size == 0) {
        return PS_OK;
    }
    return owner->ops->copy(owner, to_ptr, from_ptr, size, stream);
}

enum ps_status ps_device_sync(struct ps_device *device, struct ps_stream *stream)
{
    return device->ops->sync(device, stream);
}
