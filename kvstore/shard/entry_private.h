/* What the files of an entry share.  Private to the room. */
#ifndef PENSTOCK_KVSTORE_SHARD_ENTRY_PRIVATE_H
#define PENSTOCK_KVSTORE_SHARD_ENTRY_PRIVATE_H

#include "kvstore/shard/entry.h"

#define PS_ROUND_SLOTS (PS_STEPS_AHEAD + 1)

/* One step of a sync entry, from its first vote until it is closed. */
struct ps_round {
    uint64_t step;
    bool open;
    bool failed; /* an ABORT came: 'error' answers everybody */
    struct ps_merge *merge;
    struct ps_buf *target; /* the twin that the last addition writes; retained */
    struct ps_list asks;   /* contributors that wait */
    struct ps_error error;
};

struct ps_past_abort {
    uint64_t step;
    struct ps_error error;
};

/* A contribution that came before its turn. */
struct ps_early {
    struct ps_list node;
    struct ps_entry_ask *ask;
    uint32_t rank;
    uint64_t step;
    const void *data;
    struct ps_buf *hold;
    void *block; /* or a copy of its own */
};

struct ps_async {
    struct ps_list early;
    uint32_t early_count;
    uint64_t applied[]; /* by rank: the last step that is in the value */
};

/* ---- entry.c ---- */
void ps_entry_answer_ok(struct ps_entry *entry, struct ps_entry_ask *ask);
void ps_entry_answer_error(struct ps_entry *entry, struct ps_entry_ask *ask,
                           enum ps_status status, const char *text);
enum ps_status ps_entry_fault(const struct ps_entry *entry, const char *point);
/* A buffer of ours that nobody else refers to and that is not the value; borrowed. */
struct ps_buf *ps_entry_twin(struct ps_entry *entry);
/* Makes 'buf' the value (retains it). */
void ps_entry_publish(struct ps_entry *entry, struct ps_buf *buf);
/* Runs the optimizer on the value and publishes the result.  'grad' is aligned. */
enum ps_status ps_entry_apply(struct ps_entry *entry, struct ps_entry_update *update,
                              struct ps_error *err);
/* Answers the pulls that wait and can be. */
void ps_entry_wake_pulls(struct ps_entry *entry);

/* ---- entry_round.c ---- */
void ps_round_ask(struct ps_entry *entry, struct ps_entry_ask *ask, const void *data,
                  size_t size, struct ps_buf *hold);
void ps_round_advance(struct ps_entry *entry);
void ps_round_rank_left(struct ps_entry *entry, uint32_t rank);
/* Answers all that wait with this error; 'destroy': frees the rounds too. */
void ps_round_drop(struct ps_entry *entry, enum ps_status status, const char *text,
                   bool destroy);

/* ---- entry_async.c ---- */
enum ps_status ps_async_init(struct ps_entry *entry);
void ps_async_ask(struct ps_entry *entry, struct ps_entry_ask *ask, const void *data,
                  size_t size, struct ps_buf *hold);
void ps_async_advance(struct ps_entry *entry);
void ps_async_drop(struct ps_entry *entry, enum ps_status status, const char *text);

#endif
