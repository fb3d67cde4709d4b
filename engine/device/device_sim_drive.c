/* Streams of the simulated accelerator at work: who waits performs what he waits for. */
#include "engine/device/device_sim_stream.h"

#include "base/node.h"

#include <stdlib.h>

struct ps_device_sim_stream *ps_device_sim_retain(struct ps_device_sim_stream *stream)
{
    atomic_fetch_add_explicit(&stream->refs, 1, memory_order_relaxed);
    return stream;
}

void ps_device_sim_release(struct ps_device_sim_stream *stream)
{
    /* acq_rel: the last holder sees what the others did */
    if (stream != NULL &&
        atomic_fetch_sub_explicit(&stream->refs, 1, memory_order_acq_rel) == 1) {
        ps_mutex_fini(&stream->lock);
        free(stream->ring);
        free(stream);
    }
}

/* ---- time ---- */

uint64_t ps_device_sim_now_ns(const struct ps_device *device)
{
    return ps_clock_now_ns(device->node->clock);
}

bool ps_device_sim_is_due(const struct ps_device *device, uint64_t end_ns)
{
    return device->node->sim == NULL || ps_device_sim_now_ns(device) >= end_ns;
}

void ps_device_sim_wait_until(const struct ps_device *device, uint64_t end_ns)
{
    while (!ps_device_sim_is_due(device, end_ns)) {
        ps_driver_sleep(device->node->driver, end_ns - ps_device_sim_now_ns(device));
    }
}

/* ---- performing ---- */

/* Performs commands of 'stream' until 'ticket' of them are done.  True when one waits for
 * a point that is not reached: '*point_out', with a reference. */
static bool advance(struct ps_device_sim_stream *stream, uint64_t ticket,
                    struct ps_device_sim_point *point_out)
{
    bool blocked = false;
    ps_mutex_lock(&stream->lock);
    for (uint64_t done = ps_device_sim_done(stream); done < ticket; done++) {
        struct ps_device_sim_command *command =
            &stream->ring[done & (stream->capacity - 1)];
        if (!ps_device_sim_is_reached(&command->wait)) {
            *point_out = command->wait;
            (void)ps_device_sim_retain(point_out->stream);
            blocked = true;
            break;
        }
        if (command->wait.stream != NULL) {
            ps_device_sim_release(command->wait.stream);
        } else {
            enum ps_status status = ps_device_sim_copy_perform(&command->copy);
            stream->error = stream->error == PS_OK ? status : stream->error;
        }
        atomic_store_explicit(&stream->done, done + 1, memory_order_release);
    }
    ps_mutex_unlock(&stream->lock);
    return blocked;
}

void ps_device_sim_drive(struct ps_device_sim_stream *stream, uint64_t ticket, bool once)
{
    do {
        struct ps_device_sim_point at = {.ticket = ticket}, next;
        at.stream = ps_device_sim_retain(stream);
        for (;;) {
            uint64_t until =
                once ? PS_MIN(at.ticket, ps_device_sim_done(at.stream) + 1) : at.ticket;
            bool blocked = advance(at.stream, until, &next);
            ps_device_sim_release(at.stream);
            if (!blocked) {
                break;
            }
            at = next;
        }
    } while (!once && ps_device_sim_done(stream) < ticket);
}

/* ---- submitting ---- */

enum ps_status ps_device_sim_grow(struct ps_device_sim_stream *stream)
{
    uint64_t done = ps_device_sim_done(stream);
    /* relaxed: written under the lock */
    uint64_t submitted = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    if (submitted - done < stream->capacity) {
        return PS_OK;
    }
    size_t capacity = 2 * stream->capacity;
    struct ps_device_sim_command *ring = calloc(capacity, sizeof(*ring));
    if (ring == NULL) {
        return PS_ENOMEM;
    }
    for (uint64_t i = done; i < submitted; i++) {
        ring[i & (capacity - 1)] = stream->ring[i & (stream->capacity - 1)];
    }
    free(stream->ring);
    stream->ring = ring;
    stream->capacity = capacity;
    return PS_OK;
}

void ps_device_sim_submit(struct ps_device_sim_stream *stream,
                          const struct ps_device_sim_command *command)
{
    /* relaxed: written under the lock */
    uint64_t submitted = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    stream->ring[submitted & (stream->capacity - 1)] = *command;
    atomic_store_explicit(&stream->submitted, submitted + 1, memory_order_relaxed);
}
