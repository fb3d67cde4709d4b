/* Streams of the simulated accelerator: the slots.  See device_sim_stream.h. */
#include "engine/device/device_sim_stream.h"

#include "base/node.h"

#include <stdlib.h>

enum { FIRST_COMMANDS = 16 };

enum ps_status ps_device_sim_stream_create(struct ps_device *device,
                                           enum ps_stream_kind kind,
                                           struct ps_stream **stream_out)
{
    struct ps_device_sim *sim = ps_device_sim_of(device);
    struct ps_device_sim_stream *stream = calloc(1, sizeof(*stream));
    struct ps_device_sim_command *ring = calloc(FIRST_COMMANDS, sizeof(*ring));
    PS_UNUSED(kind); /* both do everything */
    if (stream == NULL || ring == NULL) {
        free(ring);
        free(stream);
        return PS_ENOMEM;
    }
    stream->ring = ring;
    stream->capacity = FIRST_COMMANDS;
    atomic_init(&stream->refs, 1);
    ps_mutex_init(&stream->lock);
    ps_mutex_lock(&sim->lock);
    stream->number = ++sim->stream_count;
    ps_list_push_back(&sim->streams, &stream->link);
    ps_mutex_unlock(&sim->lock);
    *stream_out = &stream->base;
    return PS_OK;
}

void ps_device_sim_stream_destroy(struct ps_stream *base)
{
    struct ps_device_sim_stream *stream = ps_device_sim_stream_of(base);
    struct ps_device_sim *sim = ps_device_sim_of(base->device);
    ps_mutex_lock(&sim->lock);
    ps_list_remove(&stream->link);
    ps_mutex_unlock(&sim->lock);
    ps_mutex_lock(&stream->lock);
    /* relaxed: written under this lock */
    uint64_t submitted = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    for (uint64_t done = ps_device_sim_done(stream); done < submitted; done++) {
        ps_device_sim_release(stream->ring[done & (stream->capacity - 1)].wait.stream);
    }
    atomic_store_explicit(&stream->done, submitted, memory_order_release);
    ps_mutex_unlock(&stream->lock);
    ps_device_sim_release(stream);
}

static enum ps_status sync_stream(struct ps_device_sim_stream *stream)
{
    ps_mutex_lock(&stream->lock);
    uint64_t ticket = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    uint64_t end_ns = stream->end_ns;
    ps_mutex_unlock(&stream->lock);
    ps_device_sim_wait_until(stream->base.device, end_ns);
    ps_device_sim_drive(stream, ticket, false);
    ps_mutex_lock(&stream->lock);
    enum ps_status status = stream->error;
    stream->error = PS_OK;
    ps_mutex_unlock(&stream->lock);
    return status;
}

enum ps_status ps_device_sim_stream_sync(struct ps_stream *base)
{
    return sync_stream(ps_device_sim_stream_of(base));
}

void ps_device_sim_stream_enter(struct ps_stream *base)
{
    struct ps_device_sim_stream *stream = ps_device_sim_stream_of(base);
    /* relaxed: this thread is the one that submits */
    uint64_t ticket = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    if (ps_device_sim_done(stream) >= ticket && base->device->node->sim == NULL) {
        return;
    }
    ps_mutex_lock(&stream->lock);
    uint64_t end_ns = stream->end_ns;
    ps_mutex_unlock(&stream->lock);
    ps_device_sim_wait_until(base->device, end_ns);
    ps_device_sim_drive(stream, ticket, false);
}

/* The device's next stream behind number 'last', with a reference; NULL: none. */
static struct ps_device_sim_stream *next_stream(struct ps_device_sim *sim, uint64_t last)
{
    struct ps_device_sim_stream *found = NULL;
    ps_mutex_lock(&sim->lock);
    for (struct ps_list *at = sim->streams.next; at != &sim->streams; at = at->next) {
        struct ps_device_sim_stream *stream =
            PS_CONTAINER_OF(at, struct ps_device_sim_stream, link);
        if (stream->number > last) {
            found = ps_device_sim_retain(stream);
            break;
        }
    }
    ps_mutex_unlock(&sim->lock);
    return found;
}

enum ps_status ps_device_sim_sync(struct ps_device *device)
{
    struct ps_device_sim *sim = ps_device_sim_of(device);
    enum ps_status status = PS_OK;
    uint64_t last = 0;
    for (struct ps_device_sim_stream *stream = next_stream(sim, last); stream != NULL;
         stream = next_stream(sim, last)) {
        enum ps_status its = sync_stream(stream);
        status = status == PS_OK ? its : status;
        last = stream->number;
        ps_device_sim_release(stream);
    }
    return status;
}

enum ps_status ps_device_sim_copy(struct ps_device *device,
                                  const struct ps_device_copy *copy,
                                  struct ps_stream *base)
{
    struct ps_device_sim_command command = {.wait.stream = NULL};
    PS_TRY(ps_device_sim_copy_make(copy, &command.copy));
    if (base == NULL) {
        ps_device_sim_wait_until(
            device,
            ps_device_sim_copy_reserve(&command.copy, ps_device_sim_now_ns(device)));
        return ps_device_sim_copy_perform(&command.copy);
    }
    struct ps_device_sim_stream *stream = ps_device_sim_stream_of(base);
    ps_mutex_lock(&stream->lock);
    enum ps_status status = ps_device_sim_grow(stream);
    if (status == PS_OK) {
        uint64_t start = PS_MAX(ps_device_sim_now_ns(device), stream->end_ns);
        stream->end_ns = ps_device_sim_copy_reserve(&command.copy, start);
        ps_device_sim_submit(stream, &command);
    }
    ps_mutex_unlock(&stream->lock);
    return status;
}
