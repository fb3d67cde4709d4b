/* The link head: the first 64 bytes of every frame, checked before anything else.
 *
 * Little-endian, naturally aligned.  The layout is DESIGN.md section 4; docs/wire.md
 * lists the kinds with their bodies and who may send which in which state. Threads: any;
 * pure. */
#ifndef PENSTOCK_NET_WIRE_H
#define PENSTOCK_NET_WIRE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_WIRE_MAGIC UINT32_C(0x01505350) /* "PSP" and major version 1 */
#define PS_WIRE_PROTO_MIN 1
#define PS_WIRE_PROTO_MAX 1
#define PS_LINK_HEAD_BYTES 64
#define PS_RECORD_BYTES 64
#define PS_RECORDS_MAX 1022 /* head_bytes is a u16: 64 + 64 * 1022 */

enum ps_frame_kind {
    PS_KIND_HELLO = 1,
    PS_KIND_ANNOUNCE = 2, /* reserved */
    PS_KIND_GRANT = 3,    /* reserved */
    PS_KIND_EPOCH = 4,    /* yours is old: here is the current row */
    PS_KIND_EXPORT = 5,   /* reserved */
    PS_KIND_IMPORT = 6,   /* reserved */
    PS_KIND_SCALARS = 7,  /* reserved */
    PS_KIND_SNAPSHOT = 8, /* reserved */
    PS_KIND_DATA = 16,    /* records of kvstore/shard/record.h */
    /* control: body is one msgpack map, kvstore/shard/control.h */
    PS_KIND_REGISTER = 32,
    PS_KIND_HEARTBEAT = 33,
    PS_KIND_BARRIER = 34,
    PS_KIND_KEYS = 35,      /* worker -> scheduler: create keys */
    PS_KIND_ENTRIES = 36,   /* scheduler -> server: your extents of new keys */
    PS_KIND_OPTIMIZER = 37, /* worker -> scheduler -> servers */
    PS_KIND_HYPER = 38,     /* live hyper-parameter change, same way */
    PS_KIND_DONE = 39,      /* worker -> scheduler: no more pushes from me */
    PS_KIND_QUORUM = 40,    /* scheduler -> servers: who still votes */
    PS_KIND_ABORT =
        41, /* scheduler -> all, member -> scheduler: the job ends with an error */
    PS_KIND_LEAVE = 42,  /* member -> scheduler: a clean goodbye */
    PS_KIND_STOP = 43,   /* scheduler -> server: all workers left */
    PS_KIND_STATUS = 44, /* anyone -> scheduler, scheduler -> server: counters */
    PS_KIND_LIMIT = 64
};

enum ps_frame_flag {
    PS_FLAG_REPLY = 1u << 0,
    PS_FLAG_RETRY = 1u << 1,
    PS_FLAG_BUNDLE = 1u << 2,    /* more than one record */
    PS_FLAG_REFERENCE = 1u << 3, /* reserved: payload lies in a segment */
    PS_FLAG_PARTIAL = 1u << 4,   /* reserved: several ranks' sum */
    PS_FLAG_BODY_CRC = 1u << 5,
    PS_FLAG_TRACED = 1u << 6, /* reserved */
    PS_FLAG_EMPTY = 1u << 7,  /* a vote without data */
    PS_FLAG_ALL = (1u << 8) - 1
};

struct ps_link_head {
    uint32_t magic;
    uint16_t head_bytes; /* 64 + 64 * records */
    uint16_t kind;
    uint32_t flags;
    uint32_t link_seq;
    uint32_t src, dst; /* member ids; 0 = not registered yet; 1 = the scheduler */
    uint64_t epoch;    /* term in the upper 24 bits, number in the lower 40 */
    uint64_t req;      /* echoed by the reply */
    uint32_t body_bytes;
    uint32_t body_crc; /* crc32c of records and payload, with PS_FLAG_BODY_CRC */
    uint32_t credit;   /* cumulative */
    int16_t priority;
    uint16_t deadline; /* in 100 ms; 0 = none */
    int32_t status;    /* enum ps_status of a reply */
    uint32_t head_crc; /* crc32c of bytes 0-59 */
};
_Static_assert(sizeof(struct ps_link_head) == PS_LINK_HEAD_BYTES,
               "link head is 64 bytes");
_Static_assert(offsetof(struct ps_link_head, epoch) == 24, "epoch at 24");
_Static_assert(offsetof(struct ps_link_head, credit) == 48, "credit at 48");
_Static_assert(offsetof(struct ps_link_head, head_crc) == 60, "head_crc at 60");

#define PS_MEMBER_NONE UINT32_C(0)
#define PS_MEMBER_SCHEDULER UINT32_C(1)

/* Computes and stores head_crc (and nothing else). */
void ps_link_head_seal(struct ps_link_head *head);
/* Checks 'size' bytes that begin a frame: length, magic, major, head_bytes (64 + 64 n, at
 * most 'size'), crc, kind and flag ranges, and that body_bytes is at most 'body_max'.
 * Copies the head to 'head_out'.  Errors: PS_EPROTO with 'err' (may be NULL) naming the
 * field. */
PS_MUST_CHECK enum ps_status ps_link_head_check(const void *data, size_t size,
                                                uint64_t body_max,
                                                struct ps_link_head *head_out,
                                                struct ps_error *err);
/* Whether [data, data+size) begins with one whole msgpack value whose counts do not
 * exceed the bytes that are there, nested at most 8 deep: only such bytes go to
 * msgpack-c, which reserves memory by the announced counts. */
bool ps_msgpack_is_sane(const void *data, size_t size);
const char *ps_frame_kind_name(unsigned kind); /* "HELLO"; "?" */

#endif
