/* Streams and events of the simulated accelerator.
 *
 * A stream is a ring of commands, counted: 'submitted' and 'done'.  A point (stream, n)
 * is reached when n commands of the stream are done; an event is a point, and so is what
 * a waiting command waits for.  Whoever waits performs the commands ('drive'): those of
 * the stream in question, and of other streams where it waits for them.  A command can
 * only wait for one that was submitted earlier, so this ends; no lock is held from one
 * stream to the next. */
#include "engine/device/device_sim.h"

#include "base/node.h"

#include <stdlib.h>

enum { FIRST_COMMANDS = 16 };

struct stream;

struct point {
    struct stream *stream; /* holds a reference; NULL: reached */
    uint64_t ticket;       /* commands that must be done */
    uint64_t end_ns;       /* virtual time when they are */
};

struct command {
    struct point wait; /* when its stream is set: no copy */
    struct ps_device_sim_copy copy;
};

struct stream {
    struct ps_stream base;
    struct ps_list link; /* in its device's list, under the device's lock */
    uint64_t number;     /* of its device's streams, from 1 */
    _Atomic uint32_t refs;
    struct ps_mutex lock;
    struct command *ring PS_GUARDED_BY(lock);
    size_t capacity PS_GUARDED_BY(lock);      /* a power of two */
    _Atomic uint64_t submitted, done;         /* written under 'lock' */
    uint64_t end_ns PS_GUARDED_BY(lock);      /* virtual time, of the last command */
    enum ps_status error PS_GUARDED_BY(lock); /* the first, until it is told */
};

struct event {
    struct ps_device_event base;
    struct ps_mutex lock;
    struct point at PS_GUARDED_BY(lock);
};

static struct stream *stream_of(struct ps_stream *stream)
{
    return PS_CONTAINER_OF(stream, struct stream, base);
}

static struct event *event_of(struct ps_device_event *event)
{
    return PS_CONTAINER_OF(event, struct event, base);
}

static struct stream *retain(struct stream *stream)
{
    atomic_fetch_add_explicit(&stream->refs, 1, memory_order_relaxed);
    return stream;
}

static void release(struct stream *stream)
{
    /* acq_rel: the last holder sees what the others did */
    if (stream != NULL &&
        atomic_fetch_sub_explicit(&stream->refs, 1, memory_order_acq_rel) == 1) {
        ps_mutex_fini(&stream->lock);
        free(stream->ring);
        free(stream);
    }
}

static uint64_t done_of(const struct stream *stream)
{
    /* acquire: who sees a command done sees its bytes */
    return atomic_load_explicit(&stream->done, memory_order_acquire);
}

/* ---- time ---- */

static uint64_t now_ns(const struct ps_device *device)
{
    return ps_clock_now_ns(device->node->clock);
}

static bool is_due(const struct ps_device *device, uint64_t end_ns)
{
    return device->node->sim == NULL || now_ns(device) >= end_ns;
}

static void wait_until(const struct ps_device *device, uint64_t end_ns)
{
    while (!is_due(device, end_ns)) {
        ps_driver_sleep(device->node->driver, end_ns - now_ns(device));
    }
}

/* ---- performing ---- */

static bool is_reached(const struct point *point)
{
    return point->stream == NULL || done_of(point->stream) >= point->ticket;
}

/* Performs commands of 'stream' until 'ticket' of them are done.  True when one waits for
 * a point that is not reached: '*point_out', with a reference. */
static bool advance(struct stream *stream, uint64_t ticket, struct point *point_out)
{
    bool blocked = false;
    ps_mutex_lock(&stream->lock);
    for (uint64_t done = done_of(stream); done < ticket; done++) {
        struct command *command = &stream->ring[done & (stream->capacity - 1)];
        if (!is_reached(&command->wait)) {
            *point_out = command->wait;
            (void)retain(point_out->stream);
            blocked = true;
            break;
        }
        if (command->wait.stream != NULL) {
            release(command->wait.stream);
        } else {
            enum ps_status status = ps_device_sim_copy_perform(&command->copy);
            stream->error = stream->error == PS_OK ? status : stream->error;
        }
        atomic_store_explicit(&stream->done, done + 1, memory_order_release);
    }
    ps_mutex_unlock(&stream->lock);
    return blocked;
}

/* Performs what is needed for the first 'ticket' commands of 'stream'; with 'once' a
 * single command. */
static void drive(struct stream *stream, uint64_t ticket, bool once)
{
    do {
        struct point at = {.stream = retain(stream), .ticket = ticket}, next;
        for (;;) {
            uint64_t until = once ? PS_MIN(at.ticket, done_of(at.stream) + 1) : at.ticket;
            bool blocked = advance(at.stream, until, &next);
            release(at.stream);
            if (!blocked) {
                break;
            }
            at = next;
        }
    } while (!once && done_of(stream) < ticket);
}

/* ---- streams ---- */

enum ps_status ps_device_sim_stream_create(struct ps_device *device,
                                           enum ps_stream_kind kind,
                                           struct ps_stream **stream_out)
{
    struct ps_device_sim *sim = ps_device_sim_of(device);
    struct stream *stream = calloc(1, sizeof(*stream));
    struct command *ring = calloc(FIRST_COMMANDS, sizeof(*ring));
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
    struct stream *stream = stream_of(base);
    struct ps_device_sim *sim = ps_device_sim_of(base->device);
    ps_mutex_lock(&sim->lock);
    ps_list_remove(&stream->link);
    ps_mutex_unlock(&sim->lock);
    ps_mutex_lock(&stream->lock);
    /* relaxed: written under this lock */
    uint64_t submitted = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    for (uint64_t done = done_of(stream); done < submitted; done++) {
        release(stream->ring[done & (stream->capacity - 1)].wait.stream);
    }
    atomic_store_explicit(&stream->done, submitted, memory_order_release);
    ps_mutex_unlock(&stream->lock);
    release(stream);
}

static enum ps_status sync_stream(struct stream *stream)
{
    ps_mutex_lock(&stream->lock);
    uint64_t ticket = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    uint64_t end_ns = stream->end_ns;
    ps_mutex_unlock(&stream->lock);
    wait_until(stream->base.device, end_ns);
    drive(stream, ticket, false);
    ps_mutex_lock(&stream->lock);
    enum ps_status status = stream->error;
    stream->error = PS_OK;
    ps_mutex_unlock(&stream->lock);
    return status;
}

enum ps_status ps_device_sim_stream_sync(struct ps_stream *base)
{
    return sync_stream(stream_of(base));
}

void ps_device_sim_stream_enter(struct ps_stream *base)
{
    struct stream *stream = stream_of(base);
    /* relaxed: this thread is the one that submits */
    uint64_t ticket = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    if (done_of(stream) >= ticket && base->device->node->sim == NULL) {
        return;
    }
    ps_mutex_lock(&stream->lock);
    uint64_t end_ns = stream->end_ns;
    ps_mutex_unlock(&stream->lock);
    wait_until(base->device, end_ns);
    drive(stream, ticket, false);
}

/* The device's next stream behind number 'last', with a reference; NULL: none. */
static struct stream *next_stream(struct ps_device_sim *sim, uint64_t last)
{
    struct stream *found = NULL;
    ps_mutex_lock(&sim->lock);
    for (struct ps_list *at = sim->streams.next; at != &sim->streams; at = at->next) {
        struct stream *stream = PS_CONTAINER_OF(at, struct stream, link);
        if (stream->number > last) {
            found = retain(stream);
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
    for (struct stream *stream = next_stream(sim, last); stream != NULL;
         stream = next_stream(sim, last)) {
        enum ps_status its = sync_stream(stream);
        status = status == PS_OK ? its : status;
        last = stream->number;
        release(stream);
    }
    return status;
}

/* ---- submitting ---- */

/* Room for one more command. */
static enum ps_status grow(struct stream *stream) PS_REQUIRES(stream->lock)
{
    uint64_t done = done_of(stream);
    /* relaxed: written under the lock */
    uint64_t submitted = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    if (submitted - done < stream->capacity) {
        return PS_OK;
    }
    size_t capacity = 2 * stream->capacity;
    struct command *ring = calloc(capacity, sizeof(*ring));
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

/* There is room. */
static void submit(struct stream *stream, const struct command *command)
    PS_REQUIRES(stream->lock)
{
    uint64_t submitted = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    stream->ring[submitted & (stream->capacity - 1)] = *command;
    atomic_store_explicit(&stream->submitted, submitted + 1, memory_order_relaxed);
}

enum ps_status ps_device_sim_copy(struct ps_device *device,
                                  const struct ps_device_copy *copy,
                                  struct ps_stream *base)
{
    struct command command = {.wait.stream = NULL};
    PS_TRY(ps_device_sim_copy_make(copy, &command.copy));
    if (base == NULL) {
        wait_until(device, ps_device_sim_copy_reserve(&command.copy, now_ns(device)));
        return ps_device_sim_copy_perform(&command.copy);
    }
    struct stream *stream = stream_of(base);
    ps_mutex_lock(&stream->lock);
    enum ps_status status = grow(stream);
    if (status == PS_OK) {
        uint64_t start = PS_MAX(now_ns(device), stream->end_ns);
        stream->end_ns = ps_device_sim_copy_reserve(&command.copy, start);
        submit(stream, &command);
    }
    ps_mutex_unlock(&stream->lock);
    return status;
}

/* ---- events ---- */

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
    release(event->at.stream);
    ps_mutex_fini(&event->lock);
    free(event);
}

enum ps_status ps_device_sim_event_record(struct ps_device_event *base,
                                          struct ps_stream *stream_base)
{
    struct event *event = event_of(base);
    struct point at = {.stream = NULL};
    if (stream_base != NULL) {
        struct stream *stream = stream_of(stream_base);
        ps_mutex_lock(&stream->lock);
        at.stream = retain(stream);
        at.ticket = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
        at.end_ns = stream->end_ns;
        ps_mutex_unlock(&stream->lock);
    }
    ps_mutex_lock(&event->lock);
    struct stream *before = event->at.stream;
    event->at = at;
    ps_mutex_unlock(&event->lock);
    release(before);
    return PS_OK;
}

/* The event's point, with a reference. */
static struct point point_of(struct event *event)
{
    ps_mutex_lock(&event->lock);
    struct point at = event->at;
    if (at.stream != NULL) {
        (void)retain(at.stream);
    }
    ps_mutex_unlock(&event->lock);
    return at;
}

enum ps_status ps_device_sim_stream_wait(struct ps_stream *base,
                                         struct ps_device_event *event)
{
    struct stream *stream = stream_of(base);
    struct command command = {.wait = point_of(event_of(event))};
    enum ps_status status = PS_OK;
    ps_mutex_lock(&stream->lock);
    stream->end_ns = PS_MAX(stream->end_ns, command.wait.end_ns);
    bool needed = !is_reached(&command.wait) && command.wait.stream != stream;
    if (needed) {
        status = grow(stream);
    }
    if (needed && status == PS_OK) {
        submit(stream, &command);
        command.wait.stream = NULL; /* the command holds it now */
    }
    ps_mutex_unlock(&stream->lock);
    release(command.wait.stream);
    return status;
}

enum ps_status ps_device_sim_event_sync(struct ps_device_event *base)
{
    struct point at = point_of(event_of(base));
    wait_until(base->device, at.end_ns);
    if (at.stream != NULL) {
        drive(at.stream, at.ticket, false);
        release(at.stream);
    }
    return PS_OK;
}

bool ps_device_sim_event_done(struct ps_device_event *base)
{
    struct point at = point_of(event_of(base));
    bool due = is_due(base->device, at.end_ns);
    bool reached = due && is_reached(&at);
    if (!due) {
        ps_driver_sleep(base->device->node->driver, PS_NS_PER_US); /* time passes */
    } else if (!reached) {
        drive(at.stream, at.ticket, true);
    }
    release(at.stream);
    return reached;
}
