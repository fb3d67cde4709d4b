/* The record: 64 bytes that say what a piece of a DATA frame is; checked after the link
 * head.
 *
 * A DATA frame carries n records and one payload; record i's bytes follow those of record
 * i-1. Requests go worker -> server, replies back with the same keys, first, count and
 * step. Layout: DESIGN.md section 4.  Little-endian, naturally aligned. Threads: any;
 * pure. */
#ifndef PENSTOCK_KVSTORE_SHARD_RECORD_H
#define PENSTOCK_KVSTORE_SHARD_RECORD_H

#include "base/dtype.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ps_record_op {
    PS_REC_INIT =
        1, /* the first value; from the worker with rank 0 only; a round of its own */
    PS_REC_PUSH =
        2, /* contribute 'step'; the reply (no payload) comes when it is applied */
    PS_REC_PULL =
        3, /* read; waits until this member's 'step' (its last push) is applied */
    PS_REC_PUSHPULL =
        4, /* contribute 'step'; the reply carries the value after it is applied */
    PS_REC_ABORT = 5, /* instead of PUSH: the contribution failed; payload is a text */
    PS_REC_LIMIT = 6
};

#define PS_RECORD_TEXT_MAX                                      \
    1024u /* bytes of an error's text, ABORT and failed replies \
           */

enum ps_codec { PS_CODEC_NONE = 0, PS_CODEC_LIMIT = 1 };

/* Key handles: store 12 | index 36 | generation 16, from the top. */
#define PS_STORE_MAX 4095u
#define PS_KEY_INDEX_MAX ((UINT64_C(1) << 36) - 1)
static inline uint64_t ps_handle_make(uint32_t store, uint64_t index, uint16_t generation)
{
    return ((uint64_t)store << 52) | (index << 16) | generation;
}
static inline uint32_t ps_handle_store(uint64_t handle)
{
    return (uint32_t)(handle >> 52);
}
static inline uint64_t ps_handle_index(uint64_t handle)
{
    return (handle >> 16) & PS_KEY_INDEX_MAX;
}
static inline uint16_t ps_handle_generation(uint64_t handle)
{
    return (uint16_t)handle;
}

struct ps_record {
    uint64_t handle;
    uint64_t
        step; /* the member's clock of this key: 1 for its first push; 0 = none yet */
    uint64_t version; /* request: last seen; reply: applied updates of the data */
    uint64_t first;   /* element within the KEY */
    uint32_t count;   /* elements */
    uint32_t bytes;   /* of payload, after the codec; 0 in a pull, an empty vote */
    uint32_t shard;   /* owner check without a look-up */
    union {
        struct {
            uint16_t rank_first, rank_count; /* request: whose contribution */
        };
        int32_t status; /* reply: enum ps_status of this record */
    };
    uint8_t dtype, codec, codec_gen, op;
    uint32_t segment; /* 0 = inline */
    uint64_t
        segment_offset; /* 0 when inline; a reply in sync mode: the contributors' count */
};
_Static_assert(sizeof(struct ps_record) == 64, "record is 64 bytes");
_Static_assert(offsetof(struct ps_record, count) == 32, "count at 32");
_Static_assert(offsetof(struct ps_record, dtype) == 48, "dtype at 48");
_Static_assert(offsetof(struct ps_record, segment_offset) == 56, "segment offset at 56");

/* Checks n records against the payload's size and each against itself: op, dtype, codec
 * known; count > 0; first + count does not overflow; bytes == count *
 * dtype size or 0 where the op carries none (a push of 0 bytes is an empty vote; an ABORT
 * carries a text, a reply whose status is not PS_OK a map {"error": text}, of at most
 * PS_RECORD_TEXT_MAX bytes); contributions have a step; the sum of bytes equals
 * 'payload_bytes'. 'data' may be unaligned; the checked records are copied to 'out' (room
 * for n).  Errors: PS_EPROTO with 'err' (may be NULL) naming record and field. */
PS_MUST_CHECK enum ps_status ps_records_check(const void *data, size_t n,
                                              uint64_t payload_bytes, bool reply,
                                              struct ps_record *out,
                                              struct ps_error *err);
const char *ps_record_op_name(unsigned op);

#endif
