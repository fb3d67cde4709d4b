/* For implementers of a device: device_cpu.c now, the simulated accelerator and the CUDA
 * plugin later.
 *
 * life cycle:  open -> (alloc | free | copy | sync)* -> close
 * Slots may be called from any thread and never wait for the engine. */
#ifndef PENSTOCK_ENGINE_DEVICE_DEVICE_OPS_H
#define PENSTOCK_ENGINE_DEVICE_DEVICE_OPS_H

#include "engine/device/device.h"
#include "engine/device/pool.h"

#define PS_DEVICE_ABI 1

struct ps_device_ops {
    const char *name; /* "cpu" */
    uint32_t abi;     /* PS_DEVICE_ABI */
    enum ps_context_kind kind;
    bool host; /* memory is the host's own */

    /* Opens device 'id' as 'device->impl'.  Errors: PS_EUNSUPPORTED (no such device;
     * 'err' says why), PS_ENOMEM. */
    enum ps_status (*open)(struct ps_device *device, struct ps_error *err);
    /* Every allocation is back. */
    void (*close)(struct ps_device *device);
    /* Raw memory, aligned to 64 bytes, size > 0; NULL when there is none. */
    void *(*alloc)(struct ps_device *device, size_t size);
    void (*free)(struct ps_device *device, void *ptr, size_t size);
    /* One of 'to' and 'from' is 'device', the other is it too or a host device. */
    enum ps_status (*copy)(struct ps_device *device, void *to, const void *from,
                           size_t size, struct ps_stream *stream);
    enum ps_status (*sync)(struct ps_device *device, struct ps_stream *stream);
};

struct ps_device {
    const struct ps_device_ops *ops;
    struct ps_context context;
    struct ps_node *node;
    struct ps_device_pool pool;
    void *impl;
};

/* Opens a device of the built-in list.  Errors as ops->open; PS_EUNSUPPORTED for a kind
 * nobody implements. */
PS_MUST_CHECK enum ps_status ps_device_open(struct ps_node *node,
                                            struct ps_context context,
                                            struct ps_device **device_out,
                                            struct ps_error *err);
void ps_device_close(struct ps_device *device); /* NULL is fine */

extern const struct ps_device_ops ps_device_cpu_ops;

#endif
