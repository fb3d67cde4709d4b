/* cpu(i): the host's own memory.  The number i is a name for a lane and a pool; all of
 * them reach all memory.  Every call is complete when it returns, so a stream only
 * remembers whose it is, and an event is always reached. */
#include "engine/device/device_ops.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum ps_status cpu_open(struct ps_device *device, struct ps_error *err)
{
    PS_UNUSED(err);
    device->impl = NULL;
    device->alias = 0;
    return PS_OK;
}

static void cpu_close(struct ps_device *device)
{
    PS_UNUSED(device);
}

/* ---- memory ---- */

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

static enum ps_status cpu_memory(struct ps_device *device,
                                 struct ps_pool_memory *memory_out)
{
    long page = sysconf(_SC_PAGESIZE);
    long total = sysconf(_SC_PHYS_PAGES), available = sysconf(_SC_AVPHYS_PAGES);
    PS_UNUSED(device);
    if (page <= 0 || total <= 0 || available < 0) {
        return PS_EIO;
    }
    *memory_out = (struct ps_pool_memory){
        .free_bytes = (size_t)available * (size_t)page,
        .total_bytes = (size_t)total * (size_t)page,
        .largest_bytes = (size_t)available * (size_t)page,
    };
    return PS_OK;
}

/* ---- streams and events ---- */

static enum ps_status cpu_stream_create(struct ps_device *device,
                                        enum ps_stream_kind kind,
                                        struct ps_stream **stream_out)
{
    struct ps_stream *stream = calloc(1, sizeof(*stream));
    PS_UNUSED(device);
    PS_UNUSED(kind);
    if (stream == NULL) {
        return PS_ENOMEM;
    }
    *stream_out = stream;
    return PS_OK;
}

static void cpu_stream_destroy(struct ps_stream *stream)
{
    free(stream);
}

static enum ps_status cpu_stream_sync(struct ps_stream *stream)
{
    PS_UNUSED(stream);
    return PS_OK;
}

static void cpu_stream_enter(struct ps_stream *stream)
{
    PS_UNUSED(stream);
}

static enum ps_status cpu_sync(struct ps_device *device)
{
    PS_UNUSED(device);
    return PS_OK;
}

static enum ps_status cpu_event_create(struct ps_device *device,
                                       struct ps_device_event **event_out)
{
    struct ps_device_event *event = calloc(1, sizeof(*event));
    PS_UNUSED(device);
    if (event == NULL) {
        return PS_ENOMEM;
    }
    *event_out = event;
    return PS_OK;
}

static void cpu_event_destroy(struct ps_device_event *event)
{
    free(event);
}

static enum ps_status cpu_event_record(struct ps_device_event *event,
                                       struct ps_stream *stream)
{
    PS_UNUSED(event);
    PS_UNUSED(stream);
    return PS_OK;
}

static enum ps_status cpu_stream_wait(struct ps_stream *stream,
                                      struct ps_device_event *event)
{
    PS_UNUSED(stream);
    PS_UNUSED(event);
    return PS_OK;
}

static enum ps_status cpu_event_sync(struct ps_device_event *event)
{
    PS_UNUSED(event);
    return PS_OK;
}

static bool cpu_event_done(struct ps_device_event *event)
{
    PS_UNUSED(event);
    return true;
}

/* ---- copies and peers ---- */

static enum ps_status cpu_copy(struct ps_device *device,
                               const struct ps_device_copy *copy,
                               struct ps_stream *stream)
{
    PS_UNUSED(device);
    PS_UNUSED(stream);
    memcpy(copy->to_ptr, copy->from_ptr, copy->size);
    return PS_OK;
}

static void cpu_traffic(struct ps_device *device, struct ps_device_traffic *traffic_out)
{
    PS_UNUSED(device); /* a host's copies are those of the accelerators */
    PS_UNUSED(traffic_out);
}

static bool cpu_can_reach(const struct ps_device *device, const struct ps_device *peer)
{
    PS_UNUSED(device);
    PS_UNUSED(peer);
    return true;
}

static enum ps_status cpu_enable_peer(struct ps_device *device, struct ps_device *peer)
{
    PS_UNUSED(device);
    PS_UNUSED(peer);
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
    .memory = cpu_memory,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .stream_sync = cpu_stream_sync,
    .stream_enter = cpu_stream_enter,
    .sync = cpu_sync,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .event_record = cpu_event_record,
    .stream_wait = cpu_stream_wait,
    .event_sync = cpu_event_sync,
    .event_done = cpu_event_done,
    .copy = cpu_copy,
    .traffic = cpu_traffic,
    .can_reach = cpu_can_reach,
    .enable_peer = cpu_enable_peer,
};
