/* Inside the simulated accelerator: what its streams and events are made of.
 *
 * A stream is a ring of commands, counted: 'submitted' and 'done'.  A point (stream, n)
 * is reached when n commands of the stream are done; an event is a point, and so is what
 * a waiting command waits for.  Whoever waits performs the commands (drive): those of the
 * stream in question, and of other streams where it waits for them.  A command can only
 * wait for one that was submitted earlier, so this ends; no lock is held from one stream
 * to the next. */
#ifndef PENSTOCK_ENGINE_DEVICE_DEVICE_SIM_STREAM_H
#define PENSTOCK_ENGINE_DEVICE_DEVICE_SIM_STREAM_H

#include "engine/device/device_sim.h"

struct ps_device_sim_stream;

struct ps_device_sim_point {
    struct ps_device_sim_stream *stream; /* holds a reference; NULL: reached */
    uint64_t ticket;                     /* commands that must be done */
    uint64_t end_ns;                     /* virtual time when they are */
};

struct ps_device_sim_command {
    struct ps_device_sim_point wait; /* when its stream is set: no copy */
    struct ps_device_sim_copy copy;
};

struct ps_device_sim_stream {
    struct ps_stream base;
    struct ps_list link; /* in its device's list, under the device's lock */
    uint64_t number;     /* of its device's streams, from 1 */
    _Atomic uint32_t refs;
    struct ps_mutex lock;
    struct ps_device_sim_command *ring PS_GUARDED_BY(lock);
    size_t capacity PS_GUARDED_BY(lock);      /* a power of two */
    _Atomic uint64_t submitted, done;         /* written under 'lock' */
    uint64_t end_ns PS_GUARDED_BY(lock);      /* virtual time, of the last command */
    enum ps_status error PS_GUARDED_BY(lock); /* the first, until it is told */
};

static inline uint64_t ps_device_sim_done(const struct ps_device_sim_stream *stream)
{
    /* acquire: who sees a command done sees its bytes */
    return atomic_load_explicit(&stream->done, memory_order_acquire);
}

static inline bool ps_device_sim_is_reached(const struct ps_device_sim_point *point)
{
    return point->stream == NULL || ps_device_sim_done(point->stream) >= point->ticket;
}

static inline struct ps_device_sim_stream *ps_device_sim_stream_of(struct ps_stream *base)
{
    return PS_CONTAINER_OF(base, struct ps_device_sim_stream, base);
}

/* ---- device_sim_drive.c ---- */
struct ps_device_sim_stream *ps_device_sim_retain(struct ps_device_sim_stream *stream);
void ps_device_sim_release(struct ps_device_sim_stream *stream); /* NULL is fine */
uint64_t ps_device_sim_now_ns(const struct ps_device *device);
/* Whether virtual time has come to 'end_ns'; always on a real node. */
bool ps_device_sim_is_due(const struct ps_device *device, uint64_t end_ns);
void ps_device_sim_wait_until(const struct ps_device *device, uint64_t end_ns);
/* Performs what is needed for the first 'ticket' commands of 'stream'; with 'once' a
 * single command. */
void ps_device_sim_drive(struct ps_device_sim_stream *stream, uint64_t ticket, bool once);
/* Room for one more command.  Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_device_sim_grow(struct ps_device_sim_stream *stream)
    PS_REQUIRES(stream->lock);
/* There is room. */
void ps_device_sim_submit(struct ps_device_sim_stream *stream,
                          const struct ps_device_sim_command *command)
    PS_REQUIRES(stream->lock);

#endif
