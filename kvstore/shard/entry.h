/* An entry: one chunk of a key on its server, as pure data and logic without a network.
 *
 * It keeps the published value (immutable, counted references: replies share it), the
 * optimizer's state, and what has been contributed.  Every record of a DATA frame becomes
 * an *ask*; each ask is answered exactly once through env->answer, at once or later:
 *
 *   sync   rounds by step: open -> reduced -> applied -> published; a round is applied
 *          when every rank of the quorum voted and all rounds before it are closed
 *   async  a contribution is applied when all earlier ones of its rank are
 *
 * A duplicate of a closed step is answered again with the current value; one that still
 * waits takes the place of the first (which is answered PS_ECANCELED: drop it silently).
 * Steps at most PS_STEPS_AHEAD beyond the open one are kept, farther ones get PS_EAGAIN.
 * After warm-up nothing is allocated while holders of old values are few.
 * Threads: one at a time; entries that share 'env' too. */
#ifndef PENSTOCK_KVSTORE_SHARD_ENTRY_H
#define PENSTOCK_KVSTORE_SHARD_ENTRY_H

#include "base/mem.h"
#include "base/queue.h"
#include "kvstore/shard/blocks.h"
#include "kvstore/shard/merge.h"
#include "kvstore/shard/placement.h"

#define PS_STEPS_AHEAD 4u
/* From this size on a contribution that is the whole result is kept instead of copied. */
#define PS_ENTRY_ADOPT_BYTES 65536u

/* ---- who votes ---- */
struct ps_quorum {
    uint32_t ranks;      /* 0..ranks-1 */
    uint32_t gone_count; /* ranks that left */
    uint64_t *gone;      /* bitmap */
};
PS_MUST_CHECK enum ps_status ps_quorum_init(struct ps_quorum *quorum, uint32_t ranks);
void ps_quorum_fini(struct ps_quorum *quorum);
/* False when it was gone already or is no rank. */
bool ps_quorum_leave(struct ps_quorum *quorum, uint32_t rank);
static inline bool ps_quorum_has(const struct ps_quorum *quorum, uint32_t rank)
{
    return rank < quorum->ranks && (quorum->gone[rank / 64] >> (rank % 64) & 1) == 0;
}

/* ---- asks and answers ---- */
struct ps_entry_ask {
    uint64_t step;
    uint64_t id; /* the same when the request is sent again: a hash of member and req */
    uint32_t rank;
    uint8_t op;          /* enum ps_record_op */
    struct ps_list node; /* private while it waits */
};

struct ps_entry_answer {
    enum ps_status status;
    struct ps_buf *value; /* PULL and PUSHPULL that succeeded: borrowed, exactly the
                             chunk's bytes; retain it to keep it */
    uint64_t version;
    uint32_t contributors; /* to that version, empty votes too */
    const char *text;      /* of a failure, borrowed; "" otherwise */
};

/* ---- what an entry asks of its owner ---- */
struct ps_entry;
struct ps_entry_update {
    uint64_t step;   /* of the round; async: of the member */
    uint64_t update; /* t: 1 for the key's first applied update */
    double rescale;  /* 1, or 1 / contributors where the key's reduction is mean */
    const void *weight;
    void *weight_out; /* may equal 'weight' */
    const void *grad;
    int grad_dtype; /* the accumulator's, or the key's own */
};

struct ps_entry_env {
    void *ctx;
    const struct ps_quorum *quorum;
    struct ps_blocks *blocks;
    /* Whether the key has an optimizer. */
    bool (*optimized)(void *ctx, const struct ps_entry *entry);
    /* Applies it; state through ps_entry_state.  A failure ends the round with it. */
    enum ps_status (*update)(void *ctx, struct ps_entry *entry,
                             const struct ps_entry_update *update, struct ps_error *err);
    /* The ask's only answer; the ask is its owner's again.  Must not call the entry. */
    void (*answer)(void *ctx, struct ps_entry_ask *ask,
                   const struct ps_entry_answer *answer);
    /* A fault point was reached; may be NULL. */
    enum ps_status (*fault)(void *ctx, const char *point);
};

/* What all chunks of a key share; the owner's memory. */
struct ps_entry_key {
    uint64_t handle;
    char name[PS_KEY_NAME_BYTES]; /* for messages */
    enum ps_dtype dtype;
    uint8_t mode, reduction;
};

struct ps_round;
struct ps_async;
struct ps_past_abort;
#define PS_ENTRY_TWINS 3

/* Fields are read by the owner (counters, status), written by entry*.c only. */
struct ps_entry {
    const struct ps_entry_env *env;
    const struct ps_entry_key *key;
    uint64_t first; /* element within the key */
    uint32_t count;
    uint32_t bytes; /* of the value */

    struct ps_buf *value;  /* the published version; NULL before INIT */
    uint64_t version;      /* sync: the last closed round; async: applied updates */
    uint64_t updates;      /* applied updates: the optimizer's t */
    uint32_t contributors; /* to the version */
    uint64_t init_id;      /* of the ask that gave version 0 */

    struct ps_buf *twins[PS_ENTRY_TWINS]; /* our buffers; one may be the value */
    void *state;                          /* of the optimizer */
    size_t state_bytes;
    uint64_t state_tag;

    struct ps_round *rounds[PS_STEPS_AHEAD + 1]; /* sync, at step % (ahead + 1) */
    struct ps_async *async;
    struct ps_past_abort *aborts; /* PS_STEPS_AHEAD + 1 of them, once one happened */
    struct ps_list pulls;         /* asks that wait for a version */
    uint32_t pull_count;

    uint64_t pushes, pull_requests; /* counters */
};

/* Keeps a borrow of 'env' and 'key'.  Allocates no element memory. */
PS_MUST_CHECK enum ps_status ps_entry_init(struct ps_entry *entry,
                                           const struct ps_entry_env *env,
                                           const struct ps_entry_key *key, uint64_t first,
                                           uint32_t count);
/* Asks that wait are answered PS_ECANCELED. */
void ps_entry_fini(struct ps_entry *entry);

/* One record.  'data' (borrowed, any alignment): the payload, NULL = none (an empty vote;
 * an ABORT's text otherwise, 'size' bytes); 'hold' is the buffer it lies in, which may be
 * kept for as long as the value lives, NULL = copy what must be kept.
 * Shape and dtype have been checked.  The ask is answered now or later. */
void ps_entry_ask(struct ps_entry *entry, struct ps_entry_ask *ask, const void *data,
                  size_t size, struct ps_buf *hold);
/* 'rank' has left env->quorum: open rounds go on without it. */
void ps_entry_rank_left(struct ps_entry *entry, uint32_t rank);
/* The optimizer came or changed.  'forget_state': its state and t start again. */
void ps_entry_optimizer_changed(struct ps_entry *entry, bool forget_state);
/* Ends everything that waits with this error. */
void ps_entry_fail(struct ps_entry *entry, enum ps_status status, const char *text);

/* The optimizer's state of 'bytes' bytes for a 'tag' (kind and layout), kept as long as
 * both stay the same; '*fresh_out': it is new, and zero. */
PS_MUST_CHECK enum ps_status ps_entry_state(struct ps_entry *entry, uint64_t tag,
                                            size_t bytes, void **state_out,
                                            bool *fresh_out);
uint32_t ps_entry_open_rounds(const struct ps_entry *entry);
/* Rank that the open round waits for, -1 when none is open or nobody is missing. */
int64_t ps_entry_missing_rank(const struct ps_entry *entry);

/* ---- moving an entry ---- */
/* Value, versions, optimizer state and the ranks' clocks as bytes with a checksum.  Open
 * rounds are not in it: what has not been answered will be sent again. */
PS_MUST_CHECK enum ps_status ps_entry_export(const struct ps_entry *entry,
                                             struct ps_buf **bytes_out);
/* Into a fresh entry of the same key and place.  Errors: PS_ECORRUPT, PS_EMISMATCH with
 * 'err' naming what; PS_ENOMEM.  The entry is untouched then. */
PS_MUST_CHECK enum ps_status ps_entry_import(struct ps_entry *entry, const void *data,
                                             size_t size, struct ps_error *err);

#endif
