/* Devices: memory and streams of cpu(i) and, later, gpu(i), behind one contract.
 *
 * A device hands out memory through a pool of size classes, so that a training step's
 * temporaries do not go to the system each time; the pool is capped and can be trimmed,
 * and says what was asked for and what it holds.  Devices belong to an engine
 * (ps_engine_device).  Threads: any. */
#ifndef PENSTOCK_ENGINE_DEVICE_DEVICE_H
#define PENSTOCK_ENGINE_DEVICE_DEVICE_H

#include "engine/engine.h"

struct ps_device;

struct ps_device_usage {
    uint64_t requested_bytes; /* asked for and not freed */
    uint64_t used_bytes;      /* the same, after rounding to size classes */
    uint64_t reserved_bytes;  /* used_bytes and what the pool keeps for reuse */
    uint64_t peak_bytes;      /* largest reserved_bytes so far */
    uint64_t hits, misses;    /* allocations served from the pool, and not */
};

/* 'size' 0 gives PS_OK and NULL.  Errors: PS_ENOMEM, after the pool was emptied and the
 * allocation tried once more. 'size' of the free is that of the alloc; NULL is fine. */
PS_MUST_CHECK enum ps_status ps_device_alloc(struct ps_device *device, size_t size,
                                             void **ptr_out);
void ps_device_free(struct ps_device *device, void *ptr, size_t size);
/* Gives all cached blocks back to the system. */
void ps_device_trim(struct ps_device *device);
/* Bytes of free blocks the pool may keep. */
void ps_device_set_cap(struct ps_device *device, size_t bytes);
void ps_device_usage(struct ps_device *device, struct ps_device_usage *usage_out);
struct ps_context ps_device_context(const struct ps_device *device);
/* Whether the host's processors may read and write its memory. */
bool ps_device_is_host(const struct ps_device *device);

/* Copies between two devices (or within one), complete on return for host memory, in the
 * order of 'stream' otherwise.  Ranges must not overlap. */
PS_MUST_CHECK enum ps_status ps_device_copy(struct ps_device *to, void *to_ptr,
                                            struct ps_device *from, const void *from_ptr,
                                            size_t size, struct ps_stream *stream);
/* Waits until 'stream' (NULL: everything) is done. */
PS_MUST_CHECK enum ps_status ps_device_sync(struct ps_device *device,
                                            struct ps_stream *stream);

#endif
