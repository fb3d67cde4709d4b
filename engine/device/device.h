/* Devices: memory, streams, events and copies of cpu(i) and gpu(i), behind one contract.
 *
 * A device has an address space of its own: the address that ps_device_alloc gives is a
 * name for the memory, which only ps_device_copy and work of that device may use
 * (ps_device_address).  Only a host device's memory (ps_device_is_host) is read and
 * written by anybody.
 *
 * Work is submitted to a stream, runs there in the order of submission, and is complete
 * only after ps_stream_sync, or once an event that was recorded after it is waited for.
 * Buffers of submitted work stay as they are until then.  Without a stream (NULL) a call
 * is complete when it returns.
 *
 * Memory comes from a pool of size classes, so that a training step's temporaries do not
 * go to the system each time; the pool is capped and can be trimmed.  On an accelerator
 * it keeps GPU_MEM_POOL_RESERVE percent of the memory free.
 *
 * Devices belong to an engine (ps_engine_device); streams, events and memory go before
 * it.  In a fork's child calls answer PS_EFORK, and those that undo something do nothing.
 *
 * Threads: any; one stream takes work from one thread at a time. */
#ifndef PENSTOCK_ENGINE_DEVICE_DEVICE_H
#define PENSTOCK_ENGINE_DEVICE_DEVICE_H

#include "base/queue.h"
#include "engine/engine.h"

struct ps_device;
struct ps_stream;
struct ps_device_event;

/* ---- what it is ---- */

struct ps_context ps_device_context(const struct ps_device *device);
/* Whether the host's processors may read and write its memory. */
bool ps_device_is_host(const struct ps_device *device);

/* ---- memory ---- */

struct ps_device_usage {      /* bytes */
    uint64_t requested_bytes; /* asked for and not freed */
    uint64_t used_bytes;      /* the same, after rounding to size classes */
    uint64_t reserved_bytes;  /* used_bytes and what the pool keeps for reuse */
    uint64_t peak_bytes;      /* largest reserved_bytes so far */
    uint64_t hits, misses;    /* allocations served from the pool, and not */
    uint64_t flushes;         /* times all cached blocks were given back to find memory */
};

/* A piece of a device's memory with a name, for who wants to know where it went.
 * Embedded by value in its owner; zero-initialise, then only the calls below. */
#define PS_LABEL_BYTES 40
struct ps_device_block {
    struct ps_list link;
    void *ptr; /* NULL: holds nothing */
    size_t size_bytes, block_bytes;
    char label[PS_LABEL_BYTES];
};

/* 'size' 0 gives PS_OK and NULL.  Aligned to 64 bytes.  Errors: PS_ENOMEM, after the pool
 * was emptied and the allocation tried once more, or when the reserve would be touched;
 * PS_EFORK.  'size' of the free is that of the alloc; NULL is fine.  The memory's work
 * must be complete before the free. */
PS_MUST_CHECK enum ps_status ps_device_alloc(struct ps_device *device, size_t size,
                                             void **ptr_out);
void ps_device_free(struct ps_device *device, void *ptr, size_t size);
/* The same, named: 'block' must stay until the free.  A request that fits above the
 * reserve only without rounding is met without it.  A block that holds memory already
 * keeps it (PS_OK), so threads that race for the first use need no lock of their own. */
PS_MUST_CHECK enum ps_status ps_device_alloc_block(struct ps_device *device, size_t size,
                                                   struct ps_device_block *block);
void ps_device_free_block(struct ps_device *device, struct ps_device_block *block);
/* Copies 'label' (cut at PS_LABEL_BYTES - 1), before or after the allocation. */
void ps_device_label_block(struct ps_device *device, struct ps_device_block *block,
                           const char *label);
/* The words for a failed allocation of 'size' bytes: device, requested, reserved, largest
 * free and the top holders.  Returns PS_ENOMEM. */
enum ps_status ps_device_no_memory(struct ps_device *device, size_t size,
                                   struct ps_error *err);
/* Gives all cached blocks back to the system. */
void ps_device_trim(struct ps_device *device);
/* Bytes of free blocks the pool may keep; 256 MiB at first. */
void ps_device_set_cap(struct ps_device *device, size_t bytes);
void ps_device_usage(struct ps_device *device, struct ps_device_usage *usage_out);
/* Bytes of the device's memory that nobody holds (cached blocks are held), and all of
 * them.  A host device: of the machine.  Errors: PS_EIO (the device does not say),
 * PS_EFORK. */
PS_MUST_CHECK enum ps_status ps_device_memory(struct ps_device *device, size_t *free_out,
                                              size_t *total_out);
/* What work of this device dereferences for its memory 'ptr'; NULL for NULL.  Whether
 * another device's work may use it too: ps_device_can_reach, ps_device_enable_peer. */
void *ps_device_address(const struct ps_device *device, void *ptr);

/* ---- streams ---- */

enum ps_stream_kind {
    PS_STREAM_COMPUTE, /* kernels and copies */
    PS_STREAM_COPY     /* copies only: no handles of libraries */
};

/* Errors: PS_ENOMEM, PS_EFORK. */
PS_MUST_CHECK enum ps_status ps_device_stream_create(struct ps_device *device,
                                                     enum ps_stream_kind kind,
                                                     struct ps_stream **stream_out);
/* Never waits.  What was not complete is dropped or done; its buffers are not touched
 * after the return.  NULL is fine. */
void ps_stream_destroy(struct ps_stream *stream);
struct ps_device *ps_stream_device(const struct ps_stream *stream);
enum ps_stream_kind ps_stream_kind(const struct ps_stream *stream);
/* Waits until everything submitted so far is complete.  The first error of it, once;
 * PS_EFAULT (injected).  NULL: nothing to wait for. */
PS_MUST_CHECK enum ps_status ps_stream_sync(struct ps_stream *stream);
/* The caller is about to run a kernel as the stream's next command on its own processor
 * (ps_tensor_address calls it): what was submitted before is performed first.  Nothing to
 * do on hardware that orders by itself.  NULL is fine. */
void ps_stream_enter(struct ps_stream *stream);
/* Waits until every stream of the device is complete.  Errors as ps_stream_sync. */
PS_MUST_CHECK enum ps_status ps_device_sync(struct ps_device *device);

/* ---- events: points in a stream that others wait for ---- */

/* Not recorded yet it counts as complete.  Errors: PS_ENOMEM, PS_EFORK. */
PS_MUST_CHECK enum ps_status ps_device_event_create(struct ps_device *device,
                                                    struct ps_device_event **event_out);
void ps_event_destroy(struct ps_device_event *event); /* waits go on; NULL is fine */
/* The event stands for what 'stream' (of its device) was given so far; NULL: complete at
 * once.  May be recorded again; who waits already waits for the earlier record.
 * Errors: PS_ENOMEM, PS_EINVAL (a stream of another device), PS_EFORK. */
PS_MUST_CHECK enum ps_status ps_event_record(struct ps_device_event *event,
                                             struct ps_stream *stream);
/* What 'stream' (of any device; NULL: the caller) is given from now on waits for the
 * event's last record.  Errors: PS_ENOMEM, PS_EFORK. */
PS_MUST_CHECK enum ps_status ps_stream_wait(struct ps_stream *stream,
                                            struct ps_device_event *event);
/* Waits for the last record.  An error of the work stays with its stream.  Errors:
 * PS_EFORK. */
PS_MUST_CHECK enum ps_status ps_event_sync(struct ps_device_event *event);
/* Whether the last record is reached; asking again and again ends. */
bool ps_event_done(struct ps_device_event *event);

/* ---- copies ---- */

/* Copies 'size' bytes between two devices or within one; the ranges must not overlap.
 * 'stream' is one of either device's: the copy is its next command; NULL: complete on
 * return.  Between two host devices it is complete on return too.  Errors: PS_EINVAL
 * (memory or stream of another device), PS_ENOMEM, PS_EFORK; those of the copying itself
 * come out of the sync (without a stream: here). */
PS_MUST_CHECK enum ps_status ps_device_copy(struct ps_device *to, void *to_ptr,
                                            struct ps_device *from, const void *from_ptr,
                                            size_t size, struct ps_stream *stream);

/* Copies that the device performed: as the accelerator of the pair, between two of them
 * as the source. */
struct ps_device_traffic {
    uint64_t to_host_count, to_host_bytes;     /* to a host device */
    uint64_t from_host_count, from_host_bytes; /* from a host device */
    uint64_t local_count, local_bytes;         /* within the device */
    uint64_t peer_count, peer_bytes;           /* directly to another accelerator */
    uint64_t staged_count, staged_bytes;       /* to another one through the host */
};
void ps_device_traffic(struct ps_device *device, struct ps_device_traffic *traffic_out);

/* ---- peers ---- */

/* Whether 'device' could address the memory of 'peer' directly: two accelerators with a
 * link between them, or the same device, or two hosts.  Order matters. */
bool ps_device_can_reach(const struct ps_device *device, const struct ps_device *peer);
/* Lets work of 'device' use the memory of 'peer', and copies between them go directly.
 * Enabled already is PS_OK.  Errors: PS_EUNSUPPORTED (it cannot reach it). */
PS_MUST_CHECK enum ps_status ps_device_enable_peer(struct ps_device *device,
                                                   struct ps_device *peer);
/* Whether work of 'device' may use the memory of 'peer' now. */
bool ps_device_peer_enabled(const struct ps_device *device, const struct ps_device *peer);

#endif
