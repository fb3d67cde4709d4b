/* cpu(i): the host's own memory.  The number i is a name for a lane and a pool; all of
 * them reach all memory. */
#include "engine/device/device_ops.h"

#include "base/mem.h"

#include <string.h>

static enum ps_status cpu_open(struct ps_device *device, struct ps_error *err)
{
    PS_UNUSED(err);
    device->impl = NULL;
    return PS_OK;
}

static void cpu_close(struct ps_device *device)
{
    PS_UNUSED(device);
}

static void *cpu_alloc(struct ps_device *device, size_t size)
{
    PS_UNUSED(device);
    return ps_mem_alloc(size);
}

static void cpu_free(struct ps_device *device, void *ptr, size_t size)
{
    PS_UNUSED(device);
    PS_UNUSED(size);
    ps_mem_free(ptr);
}

static enum ps_status cpu_copy(struct ps_device *device, void *to, const void *from,
                               size_t size, struct ps_stream *stream)
{
    PS_UNUSED(device);
    PS_UNUSED(stream);
    memcpy(to, from, size);
    return PS_OK;
}

static enum ps_status cpu_sync(struct ps_device *device, struct ps_stream *stream)
{
    PS_UNUSED(device); /* every call is complete when it returns */
    PS_UNUSED(stream);
    return PS_OK;
}

const struct ps_device_ops ps_device_cpu_ops = {
    .name = "cpu",
    .abi = PS_DEVICE_ABI,
    .kind = PS_CONTEXT_CPU,
    .host = true,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy = cpu_copy,
    .sync = cpu_sync,
};
