/* Events of the simulated accelerator: points of streams.  See device_sim_stream.h. */
#include "engine/device/device_sim_stream.h"

#include "base/node.h"

#include <stdlib.h>

struct event {
    struct ps_device_event base;
    struct ps_mutex lock;
    struct ps_device_sim_point at PS_GUARDED_BY(lock);
};

static struct event *event_of(struct ps_device_event *event)
{
    return PS_CONTAINER_OF(event, struct event, base);
}

enum ps_status ps_device_sim_event_create(struct ps_device *device,
                                          struct ps_device_event **event_out)
{
    struct event *event = calloc(1, sizeof(*event));
    PS_UNUSED(device);
    if (event == NULL) {
        return PS_ENOMEM;
    }
    ps_mutex_init(&event->lock);
    *event_out = &event->base;
    return PS_OK;
}

void ps_device_sim_event_destroy(struct ps_device_event *base)
{
    struct event *event = event_of(base);
    ps_device_sim_release(event->at.stream);
    ps_mutex_fini(&event->lock);
    free(event);
}

enum ps_status ps_device_sim_event_record(struct ps_device_event *base,
                                          struct ps_stream *stream_base)
{
    struct event *event = event_of(base);
    struct ps_device_sim_point at = {.stream = NULL};
    if (stream_base != NULL) {
        struct ps_device_sim_stream *stream = ps_device_sim_stream_of(stream_base);
        ps_mutex_lock(&stream->lock);
        at.stream = ps_device_sim_retain(stream);
        at.ticket = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
        at.end_ns = stream->end_ns;
        ps_mutex_unlock(&stream->lock);
    }
    ps_mutex_lock(&event->lock);
    struct ps_device_sim_stream *before = event->at.stream;
    event->at = at;
    ps_mutex_unlock(&event->lock);
    ps_device_sim_release(before);
    return PS_OK;
}

/* The event's point, with a reference. */
static struct ps_device_sim_point point_of(struct event *event)
{
    ps_mutex_lock(&event->lock);
    struct ps_device_sim_point at = event->at;
    if (at.stream != NULL) {
        (void)ps_device_sim_retain(at.stream);
    }
    ps_mutex_unlock(&event->lock);
    return at;
}

enum ps_status ps_device_sim_stream_wait(struct ps_stream *base,
                                         struct ps_device_event *event)
{
    struct ps_device_sim_stream *stream = ps_device_sim_stream_of(base);
    struct ps_device_sim_command command = {.wait = point_of(event_of(event))};
    enum ps_status status = PS_OK;
    ps_mutex_lock(&stream->lock);
    stream->end_ns = PS_MAX(stream->end_ns, command.wait.end_ns);
    bool needed =
        !ps_device_sim_is_reached(&command.wait) && command.wait.stream != stream;
    if (needed) {
        status = ps_device_sim_grow(stream);
    }
    if (needed && status == PS_OK) {
        ps_device_sim_submit(stream, &command);
        command.wait.stream = NULL; /* the command holds it now */
    }
    ps_mutex_unlock(&stream->lock);
    ps_device_sim_release(command.wait.stream);
    return status;
}

enum ps_status ps_device_sim_event_sync(struct ps_device_event *base)
{
    struct ps_device_sim_point at = point_of(event_of(base));
    ps_device_sim_wait_until(base->device, at.end_ns);
    if (at.stream != NULL) {
        ps_device_sim_drive(at.stream, at.ticket, false);
        ps_device_sim_release(at.stream);
    }
    return PS_OK;
}

bool ps_device_sim_event_done(struct ps_device_event *base)
{
    struct ps_device_sim_point at = point_of(event_of(base));
    bool due = ps_device_sim_is_due(base->device, at.end_ns);
    bool reached = due && ps_device_sim_is_reached(&at);
    if (!due) {
        ps_driver_sleep(base->device->node->driver, PS_NS_PER_US); /* time passes */
    } else if (!reached) {
        ps_device_sim_drive(at.stream, at.ticket, true);
    }
    ps_device_sim_release(at.stream);
    return reached;
}
