/* For implementers of a device: device_cpu.c, device_sim.c, later the CUDA plugin.
 *
 * life cycle:  open -> (memory, streams, events, copies)* -> close
 * Slots may be called from any thread, never wait for the engine, and are not called in a
 * fork's child.  device.c has checked: sizes are not 0, streams and events belong to
 * devices of these ops, 'to' or 'from' of a copy is no host device unless these ops are
 * one's. */
#ifndef PENSTOCK_ENGINE_DEVICE_DEVICE_OPS_H
#define PENSTOCK_ENGINE_DEVICE_DEVICE_OPS_H

#include "base/node.h"
#include "engine/device/device.h"
#include "engine/device/pool.h"
#include "engine/fork_guard.h"

#include <stdatomic.h>

#define PS_DEVICE_ABI 2

struct ps_device_copy {
    struct ps_device *to, *from;
    void *to_ptr;
    const void *from_ptr;
    size_t size;
    enum ps_status fault; /* not PS_OK: the copying fails so, by a test's wish */
};

struct ps_device_ops {
    const char *name; /* "cpu" */
    uint32_t abi;     /* PS_DEVICE_ABI */
    enum ps_context_kind kind;
    bool host; /* memory is the host's own */

    /* Opens device 'id' as 'device->impl' and sets 'device->alias'.  Errors:
     * PS_EUNSUPPORTED (no such device; 'err' says why), PS_EINVAL (a bad setting),
     * PS_ENOMEM. */
    enum ps_status (*open)(struct ps_device *device, struct ps_error *err);
    /* Every allocation, stream and event is back. */
    void (*close)(struct ps_device *device);

    /* Raw memory, aligned to 64 bytes, size > 0; NULL when there is none. */
    void *(*alloc)(struct ps_device *device, size_t size);
    void (*free)(struct ps_device *device, void *ptr, size_t size);
    /* Errors: PS_EIO. */
    enum ps_status (*memory)(struct ps_device *device, struct ps_pool_memory *memory_out);

    /* Gives a stream whose first member is struct ps_stream, its fields filled by the
     * caller afterwards.  Errors: PS_ENOMEM. */
    enum ps_status (*stream_create)(struct ps_device *device, enum ps_stream_kind kind,
                                    struct ps_stream **stream_out);
    void (*stream_destroy)(struct ps_stream *stream);
    enum ps_status (*stream_sync)(struct ps_stream *stream);
    void (*stream_enter)(struct ps_stream *stream);
    enum ps_status (*sync)(struct ps_device *device);

    /* As streams: the first member is struct ps_device_event. */
    enum ps_status (*event_create)(struct ps_device *device,
                                   struct ps_device_event **event_out);
    void (*event_destroy)(struct ps_device_event *event);
    enum ps_status (*event_record)(struct ps_device_event *event,
                                   struct ps_stream *stream); /* not NULL */
    /* 'stream' and 'event' are both of these ops, perhaps of two devices. */
    enum ps_status (*stream_wait)(struct ps_stream *stream,
                                  struct ps_device_event *event);
    enum ps_status (*event_sync)(struct ps_device_event *event);
    bool (*event_done)(struct ps_device_event *event);

    /* 'stream' may be NULL: complete on return. */
    enum ps_status (*copy)(struct ps_device *device, const struct ps_device_copy *copy,
                           struct ps_stream *stream);
    void (*traffic)(struct ps_device *device, struct ps_device_traffic *traffic_out);

    /* Two different devices of these ops. */
    bool (*can_reach)(const struct ps_device *device, const struct ps_device *peer);
    /* It can be reached; once for each pair. */
    enum ps_status (*enable_peer)(struct ps_device *device, struct ps_device *peer);
};

struct ps_stream {
    struct ps_device *device;
    enum ps_stream_kind kind;
};

struct ps_device_event {
    struct ps_device *device;
};

struct ps_device {
    const struct ps_device_ops *ops;
    struct ps_context context;
    struct ps_node *node;
    struct ps_fork_guard fork_guard;
    struct ps_device_pool pool;
    uintptr_t alias; /* address for the device's work = address + alias */
    /* bit i: work may use gpu(i)'s memory.  Only set, never cleared: relaxed readers */
    _Atomic uint64_t peers[(PS_CONTEXT_MAX_ID + 1) / 64];
    void *impl;
};

/* Opens a device of the built-in list.  Errors as ops->open; PS_EUNSUPPORTED for a kind
 * nobody implements. */
PS_MUST_CHECK enum ps_status ps_device_open(struct ps_node *node,
                                            struct ps_context context,
                                            struct ps_device **device_out,
                                            struct ps_error *err);
void ps_device_close(struct ps_device *device); /* NULL is fine */

static inline bool ps_device_is_child(const struct ps_device *device)
{
    return ps_fork_guard_is_child(&device->fork_guard);
}

/* The fault points of accelerators; a host's memory is not a device's to break. */
static inline enum ps_status ps_device_fault(const struct ps_device *device,
                                             const char *point)
{
    return device->ops->host ? PS_OK : PS_FAULT(device->node, point);
}

extern const struct ps_device_ops ps_device_cpu_ops;
extern const struct ps_device_ops ps_device_sim_ops; /* gpu(i) when SIM_GPUS > i */

#endif
