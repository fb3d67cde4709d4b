/* Control messages: the bodies of frames of kind 32 and above, one msgpack map each.
 *
 * Packing allocates a ps_buf; unpacking checks every type, length and count against the
 * limits here, ignores unknown keys, and never trusts a peer.  Keys of the maps are the
 * field names. A failed request is answered with head.status and the body {"error":
 * text}. docs/wire.md tells who sends what when. Threads: any; pure. */
#ifndef PENSTOCK_KVSTORE_SHARD_CONTROL_H
#define PENSTOCK_KVSTORE_SHARD_CONTROL_H

#include "base/mem.h"
#include "kvstore/shard/placement.h"
#include "net/net.h"

#define PS_MEMBER_URLS_MAX 256 /* lanes of a server */
#define PS_TEXT_MAX 4096

/* REGISTER: member -> scheduler.  Answered when everyone is there. */
struct ps_msg_register {
    uint64_t nonce; /* of the process; the same registration sent twice is one */
    enum ps_role role;
    int32_t rank; /* asked for; -1 = any */
    uint32_t num_worker, num_server;
    char host[PS_HOST_BYTES];
    uint32_t pid;
    char (*urls)[PS_URL_BYTES]; /* a server's lanes, lane i at urls[i] */
    size_t url_count;
};

struct ps_member_row {
    uint32_t member;
    enum ps_role role;
    uint32_t rank;
    uint32_t pid;
    char host[PS_HOST_BYTES];
    char (*urls)[PS_URL_BYTES];
    size_t url_count;
};

/* The reply: the job. */
struct ps_msg_job {
    uint8_t uuid[PS_UUID_BYTES];
    uint64_t epoch;
    uint32_t member, rank; /* yours */
    uint32_t num_worker, num_server;
    uint32_t shard_count, chunk_bytes;
    uint64_t bigarray_bound;
    uint32_t heartbeat_ms, heartbeat_timeout_ms; /* the scheduler's; all obey */
    struct ps_member_row *members;               /* servers and workers */
    size_t member_count;
};

/* HEARTBEAT: member -> scheduler, empty body but for 'ready'; the reply carries the epoch
 * in its head and the job's state. */
struct ps_msg_heartbeat {
    uint32_t state;         /* 0 running, 1 aborted, 2 stopping */
    char text[PS_TEXT_MAX]; /* why, when aborted */
    uint64_t wall_ns;       /* the scheduler's clock, for traces */
};

/* BARRIER: worker -> scheduler; answered to all live workers when the last asked.
 * 'sequence' counts a member's barriers of that name from 1: asking twice is asking once.
 */
struct ps_msg_barrier {
    char name[64];
    uint64_t sequence;
};

/* KEYS: worker -> scheduler: create (or look up) keys of a store.  The reply holds the
 * rows in the same order. ENTRIES: scheduler -> server: the same rows, each with only the
 * extents of that server (kind of frame tells). */
struct ps_msg_keys {
    char store[64];    /* the store's name; the first use creates it */
    uint32_t store_id; /* reply and ENTRIES: its number in the handles */
    bool lookup;       /* do not create: PS_ENOENT names the missing key */
    struct ps_key_row *rows;
    size_t row_count;
};

/* OPTIMIZER and HYPER: worker -> scheduler -> every server, acknowledged when all have
 * it. OPTIMIZER replaces name, hyper-parameters and state unless it equals what is there.
 * HYPER changes single hyper-parameters for rounds of step >= from_step. */
struct ps_msg_optimizer {
    char store[64];
    char name[32];      /* "sgd"; "" in HYPER */
    char hyper[1024];   /* "learning_rate=0.1,momentum=0.9": exact decimal text (%.17g) */
    uint64_t from_step; /* HYPER: 0 = from the next update on */
    bool multi_precision; /* keep an f32 master of f16/bf16 weights */
    uint64_t sequence; /* of this member's changes to the store: resends are told apart */
};

/* QUORUM: scheduler -> servers, after DONE (worker -> scheduler, empty map) or a
 * permitted loss. */
struct ps_msg_quorum {
    uint32_t
        rank; /* leaves: rounds after its last applied or queued push go without it */
    uint32_t member;
};

/* ABORT: scheduler -> all; and member -> scheduler ("server 1 lost"). */
struct ps_msg_abort {
    int32_t status;
    uint32_t member; /* who is named; 0 = nobody */
    char text[PS_TEXT_MAX];
};

/* STATUS: anyone -> scheduler, scheduler -> server.  The reply is JSON text in a msgpack
 * str
 * {"json": "..."}: what `penstock status --json` prints (docs/wire.md). */
struct ps_msg_status {
    bool placement;
    struct ps_buf *json; /* reply; owned */
};

#define PS_CONTROL_DECLARE(name)                                                       \
    PS_MUST_CHECK enum ps_status ps_msg_##name##_pack(const struct ps_msg_##name *msg, \
                                                      struct ps_buf **body_out);       \
    /* 'msg_out' must be released with _fini after success. */                         \
    PS_MUST_CHECK enum ps_status ps_msg_##name##_unpack(const void *data, size_t size, \
                                                        struct ps_msg_##name *msg_out, \
                                                        struct ps_error *err);         \
    void ps_msg_##name##_fini(struct ps_msg_##name *msg)

PS_CONTROL_DECLARE(register);
PS_CONTROL_DECLARE(job);
PS_CONTROL_DECLARE(heartbeat);
PS_CONTROL_DECLARE(barrier);
PS_CONTROL_DECLARE(keys);
PS_CONTROL_DECLARE(optimizer);
PS_CONTROL_DECLARE(quorum);
PS_CONTROL_DECLARE(abort);
PS_CONTROL_DECLARE(status);

/* The body {"error": text} of a refused request, and its reading ("" when there is none).
 */
struct ps_buf *ps_msg_error_pack(const char *text);
void ps_msg_error_read(const void *data, size_t size, struct ps_error *err_out);

#endif
