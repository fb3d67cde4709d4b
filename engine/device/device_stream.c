/* Streams, events, copies and peers: what is the same for all devices.  Checks, the
 * fork's child, and hosts together with accelerators. */
#include "engine/device/device.h"

#include "engine/device/device_ops.h"

/* ---- streams ---- */

enum ps_status ps_device_stream_create(struct ps_device *device, enum ps_stream_kind kind,
                                       struct ps_stream **stream_out)
{
    struct ps_stream *stream;
    if (ps_device_is_child(device)) {
        return PS_EFORK;
    }
    PS_TRY(device->ops->stream_create(device, kind, &stream));
    stream->device = device;
    stream->kind = kind;
    *stream_out = stream;
    return PS_OK;
}

void ps_stream_destroy(struct ps_stream *stream)
{
    if (stream != NULL && !ps_device_is_child(stream->device)) {
        stream->device->ops->stream_destroy(stream);
    }
}

struct ps_device *ps_stream_device(const struct ps_stream *stream)
{
    return stream->device;
}

enum ps_stream_kind ps_stream_kind(const struct ps_stream *stream)
{
    return stream->kind;
}

enum ps_status ps_stream_sync(struct ps_stream *stream)
{
    if (stream == NULL) {
        return PS_OK;
    }
    struct ps_device *device = stream->device;
    if (ps_device_is_child(device)) {
        return PS_EFORK;
    }
    enum ps_status injected = ps_device_fault(device, "device.sync");
    enum ps_status status = device->ops->stream_sync(stream);
    return status != PS_OK ? status : injected;
}

void ps_stream_enter(struct ps_stream *stream)
{
    if (stream != NULL && !ps_device_is_child(stream->device)) {
        stream->device->ops->stream_enter(stream);
    }
}

enum ps_status ps_device_sync(struct ps_device *device)
{
    return ps_device_is_child(device) ? PS_EFORK : device->ops->sync(device);
}

/* ---- events ---- */

enum ps_status ps_device_event_create(struct ps_device *device,
                                      struct ps_device_event **event_out)
{
    struct ps_device_event *event;
    if (ps_device_is_child(device)) {
        return PS_EFORK;
    }
    PS_TRY(device->ops->event_create(device, &event));
    event->device = device;
    *event_out = event;
    return PS_OK;
}

void ps_event_destroy(struct ps_device_event *event)
{
    if (event != NULL && !ps_device_is_child(event->device)) {
        event->device->ops->event_destroy(event);
    }
}

enum ps_status ps_event_record(struct ps_device_event *event, struct ps_stream *stream)
{
    if (ps_device_is_child(event->device)) {
        return PS_EFORK;
    }
    if (stream != NULL && stream->device != event->device) {
        return PS_EINVAL;
    }
    return event->device->ops->event_record(event, stream);
}

enum ps_status ps_stream_wait(struct ps_stream *stream, struct ps_device_event *event)
{
    if (ps_device_is_child(event->device)) {
        return PS_EFORK;
    }
    if (stream == NULL || stream->device->ops != event->device->ops) {
        return event->device->ops->event_sync(event); /* the caller waits instead */
    }
    return stream->device->ops->stream_wait(stream, event);
}

enum ps_status ps_event_sync(struct ps_device_event *event)
{
    return ps_device_is_child(event->device) ? PS_EFORK
                                             : event->device->ops->event_sync(event);
}

bool ps_event_done(struct ps_device_event *event)
{
    return ps_device_is_child(event->device) || event->device->ops->event_done(event);
}

/* ---- copies and peers ---- */

enum ps_status ps_device_copy(struct ps_device *to, void *to_ptr, struct ps_device *from,
                              const void *from_ptr, size_t size, struct ps_stream *stream)
{
    struct ps_device_copy copy = {to, from, to_ptr, from_ptr, size, PS_OK};
    /* the device that is not the host knows how to reach its own memory */
    struct ps_device *owner = from->ops->host ? to : from;
    if (ps_device_is_child(to)) {
        return PS_EFORK;
    }
    if (stream != NULL && stream->device != to && stream->device != from) {
        return PS_EINVAL;
    }
    if (size == 0) {
        return PS_OK;
    }
    if (stream != NULL && stream->device->ops != owner->ops) {
        PS_TRY(ps_stream_sync(stream)); /* a host's: the copy is its next command */
        stream = NULL;
    }
    copy.fault = ps_device_fault(owner, "device.copy");
    return owner->ops->copy(owner, &copy, stream);
}

void ps_device_traffic(struct ps_device *device, struct ps_device_traffic *traffic_out)
{
    *traffic_out = (struct ps_device_traffic){.to_host_count = 0};
    if (!ps_device_is_child(device)) {
        device->ops->traffic(device, traffic_out);
    }
}

bool ps_device_can_reach(const struct ps_device *device, const struct ps_device *peer)
{
    if (device == peer || (device->ops->host && peer->ops->host)) {
        return true;
    }
    return device->ops == peer->ops && device->ops->can_reach(device, peer);
}

bool ps_device_peer_enabled(const struct ps_device *device, const struct ps_device *peer)
{
    unsigned id = (unsigned)peer->context.id;
    if (device == peer || (device->ops->host && peer->ops->host)) {
        return true;
    }
    /* relaxed: whoever enabled it told its users some other way */
    return device->ops == peer->ops &&
           (atomic_load_explicit(&device->peers[id / 64], memory_order_relaxed) >>
                (id % 64) &
            1) != 0;
}

enum ps_status ps_device_enable_peer(struct ps_device *device, struct ps_device *peer)
{
    unsigned id = (unsigned)peer->context.id;
    if (ps_device_is_child(device)) {
        return PS_EFORK;
    }
    if (ps_device_peer_enabled(device, peer)) {
        return PS_OK;
    }
    if (!ps_device_can_reach(device, peer)) {
        return PS_EUNSUPPORTED;
    }
    PS_TRY(device->ops->enable_peer(device, peer));
    (void)atomic_fetch_or_explicit(&device->peers[id / 64], UINT64_C(1) << (id % 64),
                                   memory_order_relaxed);
    return PS_OK;
}
