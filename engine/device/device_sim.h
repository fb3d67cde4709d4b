/* Inside engine/device/: the simulated accelerator (SIM_GPUS=n gives gpu(0) .. gpu(n-1)).
 *
 * Memory.  A device reserves a range of addresses that nobody may touch and hands out
 * pieces of it; the bytes lie at a fixed distance behind it (struct ps_device.alias),
 * where copies and kernels, which are the CPU's, find them.  A host that dereferences a
 * device address faults.  The range is as large as SIM_GPU_MEMORY says, so a full or a
 * fragmented device refuses like a real one.
 *
 * Time.  A stream is a queue that nobody works on by itself: commands are performed, in
 * order, by whoever waits for them (sync, a waited event, the kernel that comes next), so
 * a wait that was forgotten shows.  On a simulated node every copy also takes virtual
 * time, from its submission on, after the stream's earlier commands and when the copy
 * engine of its direction is free; a wait lasts until then.  On a real node only the
 * copying itself takes time.
 *
 * Locks: stream -> device.  Nothing is waited for under either. */
#ifndef PENSTOCK_ENGINE_DEVICE_DEVICE_SIM_H
#define PENSTOCK_ENGINE_DEVICE_DEVICE_SIM_H

#include "engine/device/device_ops.h"

/* A virtual copy of n bytes takes LATENCY + n / rate.  Rates are bytes a microsecond (so
 * 1000 is 1 GB/s), of the order of a card of 2020: PCIe 3 x16, a bridge, its memory. */
enum {
    PS_DEVICE_SIM_LATENCY_NS = 10000,
    PS_DEVICE_SIM_HOST_RATE = 12000,
    PS_DEVICE_SIM_PEER_RATE = 50000,
    PS_DEVICE_SIM_LOCAL_RATE = 500000
};
#define PS_DEVICE_SIM_STAGING_BYTES ((size_t)256 << 10) /* of a copy through the host */
#define PS_DEVICE_SIM_MAX 64                            /* as SIM_GPUS in settings.def */

/* ---- device_sim_map_linux.c: address space ---- */

struct ps_device_sim_map {
    void *base; /* of the forbidden range; the bytes lie 'distance' behind it */
    size_t size_bytes, distance_bytes;
    void *start; /* of all that is mapped */
    size_t mapped_bytes;
};
/* Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_device_sim_map(struct ps_device_sim_map *map,
                                               size_t size);
void ps_device_sim_unmap(struct ps_device_sim_map *map);
/* The whole pages inside [offset, offset + size) go back to the system. */
void ps_device_sim_discard(const struct ps_device_sim_map *map, size_t offset,
                           size_t size);

/* ---- device_sim_memory.c: first fit inside the range; one thread at a time ---- */

struct ps_device_sim_range {
    size_t offset, size;
};
struct ps_device_sim_memory {
    struct ps_device_sim_range *free; /* by offset, none touches the next */
    size_t free_count, capacity, used_count;
    size_t free_bytes, total_bytes;
};
PS_MUST_CHECK enum ps_status
ps_device_sim_memory_init(struct ps_device_sim_memory *memory, size_t total);
void ps_device_sim_memory_fini(struct ps_device_sim_memory *memory);
/* False: no range is large enough, or out of memory. */
bool ps_device_sim_memory_take(struct ps_device_sim_memory *memory, size_t size,
                               size_t *offset_out);
/* Gives a range back; the free range it is part of then. */
struct ps_device_sim_range ps_device_sim_memory_give(struct ps_device_sim_memory *memory,
                                                     size_t offset, size_t size);
size_t ps_device_sim_memory_largest(const struct ps_device_sim_memory *memory);

/* ---- device_sim_peers.c: the matrix ---- */

/* Bit j of 'rows[i]': accelerator i reaches j.  'variable' names 'text' in the error.
 * Errors: PS_EINVAL. */
PS_MUST_CHECK enum ps_status ps_device_sim_peers(const char *variable, const char *text,
                                                 unsigned count,
                                                 uint64_t rows[PS_DEVICE_SIM_MAX],
                                                 struct ps_error *err);

/* ---- device_sim.c ---- */

enum ps_device_sim_engine { PS_DEVICE_SIM_IN, PS_DEVICE_SIM_OUT, PS_DEVICE_SIM_ENGINES };

struct ps_device_sim {
    struct ps_device *device;
    struct ps_device_sim_map map;
    uint64_t peers; /* it can reach these */
    struct ps_mutex lock;
    struct ps_device_sim_memory memory PS_GUARDED_BY(lock);
    struct ps_list streams PS_GUARDED_BY(lock); /* in the order they were made */
    uint64_t stream_count PS_GUARDED_BY(lock);  /* ever made */
    uint64_t engine_free_ns[PS_DEVICE_SIM_ENGINES] PS_GUARDED_BY(lock);
    struct ps_device_traffic traffic PS_GUARDED_BY(lock);
    struct ps_mutex staging_lock;              /* inside 'stream', never with 'lock' */
    void *staging PS_GUARDED_BY(staging_lock); /* on the host; made when first used */
};

static inline struct ps_device_sim *ps_device_sim_of(const struct ps_device *device)
{
    return device->impl;
}

/* ---- device_sim_copy.c ---- */

/* A copy that was checked, on its way. */
struct ps_device_sim_copy {
    struct ps_device_copy copy;
    bool direct; /* between two accelerators: not through the host */
};
/* Checks the addresses.  Errors: PS_EINVAL. */
PS_MUST_CHECK enum ps_status ps_device_sim_copy_make(const struct ps_device_copy *copy,
                                                     struct ps_device_sim_copy *copy_out);
/* Reserves its copy engines from 'start_ns' on; when it is through.  The same on a real
 * node, where nobody asks for time. */
uint64_t ps_device_sim_copy_reserve(const struct ps_device_sim_copy *copy,
                                    uint64_t start_ns);
/* Does it and counts it.  Errors: PS_ENOMEM, that of copy->fault. */
PS_MUST_CHECK enum ps_status
ps_device_sim_copy_perform(const struct ps_device_sim_copy *copy);

/* ---- device_sim_stream.c, device_sim_event.c: slots of struct ps_device_ops ---- */

enum ps_status ps_device_sim_stream_create(struct ps_device *device,
                                           enum ps_stream_kind kind,
                                           struct ps_stream **stream_out);
void ps_device_sim_stream_destroy(struct ps_stream *stream);
enum ps_status ps_device_sim_stream_sync(struct ps_stream *stream);
void ps_device_sim_stream_enter(struct ps_stream *stream);
enum ps_status ps_device_sim_sync(struct ps_device *device);
enum ps_status ps_device_sim_event_create(struct ps_device *device,
                                          struct ps_device_event **event_out);
void ps_device_sim_event_destroy(struct ps_device_event *event);
enum ps_status ps_device_sim_event_record(struct ps_device_event *event,
                                          struct ps_stream *stream);
enum ps_status ps_device_sim_stream_wait(struct ps_stream *stream,
                                         struct ps_device_event *event);
enum ps_status ps_device_sim_event_sync(struct ps_device_event *event);
bool ps_device_sim_event_done(struct ps_device_event *event);
enum ps_status ps_device_sim_copy(struct ps_device *device,
                                  const struct ps_device_copy *copy,
                                  struct ps_stream *stream);

#endif
