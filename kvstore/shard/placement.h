/* Where keys live: key -> extents -> shards -> server (DESIGN.md section 5).
 *
 * The scheduler owns a ps_placement and decides; everyone else holds copies of its rows.
 * Shards are virtual and fixed for a job; the shard map says which server holds each.
 * Sizes, counts and offsets are 64-bit.
 * Threads: one at a time. */
#ifndef PENSTOCK_KVSTORE_SHARD_PLACEMENT_H
#define PENSTOCK_KVSTORE_SHARD_PLACEMENT_H

#include "base/dtype.h"
#include "base/status.h"
#include "kvstore/shard/record.h"

enum ps_key_kind {
    PS_KEY_PARAMETER = 0,
    PS_KEY_AUXILIARY = 1,
    PS_KEY_TABLE = 2,
    PS_KEY_SCALAR = 3
};
enum ps_key_mode { PS_MODE_SYNC = 0, PS_MODE_ASYNC = 1 };
enum ps_key_reduction { PS_REDUCE_SUM = 0, PS_REDUCE_MEAN = 1 };

#define PS_KEY_NAME_BYTES 256
#define PS_EXTENT_COUNT_MAX                                            \
    (INT64_C(1) << 20)        /* elements of one extent of a split key \
                               */
#define PS_CHUNK_QUANTUM 1024 /* chunks are cut at multiples of this */

struct ps_extent {
    uint64_t first; /* element within the key */
    uint64_t count;
    uint32_t shard;
};

/* A key as all members know it.  'name' is "17" for the number 17, so that 17 and "17"
 * are told apart by 'numeric'. */
struct ps_key_row {
    uint64_t handle;
    char name[PS_KEY_NAME_BYTES];
    bool numeric;
    uint8_t kind, mode, reduction, codec;
    int dtype;
    struct ps_shape shape;
    uint64_t count;            /* elements */
    struct ps_extent *extents; /* ascending by first, no holes */
    size_t extent_count;
};
void ps_key_row_fini(struct ps_key_row *row);

struct ps_placement;

struct ps_placement_options {
    uint32_t shard_count;    /* power of two */
    uint64_t bigarray_bound; /* elements */
    uint32_t chunk_bytes;
    size_t server_count;
    const uint32_t *servers; /* member ids by server rank */
};
PS_MUST_CHECK enum ps_status
ps_placement_create(const struct ps_placement_options *options,
                    struct ps_placement **placement_out);
void ps_placement_destroy(struct ps_placement *placement);

/* Places a batch of new keys of one store, largest first, each to the server with the
 * least bytes (the lowest rank among equals); keys of at least the bound are split over
 * all servers, server i holding round(n/S*(i+1)) - round(n/S*i) elements.  Fills handle,
 * count and extents of each row (the caller has set the rest).  A name that exists
 * already in the store with the same dtype, shape and attributes gets the existing row's
 * copy; PS_EMISMATCH names the field that differs, PS_EEXIST a name twice in the batch.
 * All or nothing. */
PS_MUST_CHECK enum ps_status ps_placement_add(struct ps_placement *placement,
                                              uint32_t store, struct ps_key_row *rows,
                                              size_t count, struct ps_error *err);
const struct ps_key_row *ps_placement_find(const struct ps_placement *placement,
                                           uint32_t store, const char *name,
                                           bool numeric);
size_t ps_placement_key_count(const struct ps_placement *placement);
const struct ps_key_row *ps_placement_key(const struct ps_placement *placement,
                                          size_t index);
/* Server rank that holds 'shard'; its member id. */
uint32_t ps_placement_server_of(const struct ps_placement *placement, uint32_t shard);
uint64_t ps_placement_server_bytes(const struct ps_placement *placement,
                                   uint32_t server_rank);

/* Shard -> server rank, the initial map: contiguous runs. */
uint32_t ps_shard_home(uint32_t shard, uint32_t shard_count, uint32_t server_count);
/* Which lane of a server a shard belongs to. */
static inline uint32_t ps_shard_lane(uint32_t shard, uint32_t lane_count)
{
    return shard % lane_count;
}
/* Elements of one chunk of a key of 'dtype': the most that fit CHUNK_BYTES, a multiple of
 * PS_CHUNK_QUANTUM, at least one quantum.  Chunk c of an extent is elements [c*n,
 * min((c+1)*n, count)) counted from the extent's start. */
uint64_t ps_chunk_elements(int dtype, uint32_t chunk_bytes);
static inline uint64_t ps_chunk_count(uint64_t extent_count, uint64_t chunk_elements)
{
    return (extent_count + chunk_elements - 1) / chunk_elements;
}
/* Which of 'extents' (ascending) holds element 'first'; SIZE_MAX when none does. */
size_t ps_extent_find(const struct ps_extent *extents, size_t extent_count,
                      uint64_t first);
/* Which chunk of 'extent' is exactly elements [first, first + count); UINT64_MAX when
 * none is. */
uint64_t ps_chunk_find(const struct ps_extent *extent, uint64_t chunk_elements,
                       uint64_t first, uint64_t count);

#endif
