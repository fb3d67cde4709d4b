/* Sync entries: rounds by step.  A round opens with its first vote, is reduced by the
 * tree as votes come, applied and published when all before it are closed.
 * Threads: one at a time. */
#include "base/util.h"
#include "kernels/reduce.h"
#include "kvstore/shard/entry_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ps_round *slot_of(const struct ps_entry *entry, uint64_t step)
{
    return entry->rounds[step % PS_ROUND_SLOTS];
}

static struct ps_round *open_at(const struct ps_entry *entry, uint64_t step)
{
    struct ps_round *round = slot_of(entry, step);
    return round != NULL && round->open && round->step == step ? round : NULL;
}

uint32_t ps_entry_open_rounds(const struct ps_entry *entry)
{
    uint32_t n = 0;
    for (size_t i = 0; i < PS_ROUND_SLOTS; i++) {
        n += entry->rounds[i] != NULL && entry->rounds[i]->open;
    }
    return n;
}

int64_t ps_entry_missing_rank(const struct ps_entry *entry)
{
    const struct ps_round *round = open_at(entry, entry->version + 1);
    for (uint32_t r = 0; round != NULL && r < entry->env->quorum->ranks; r++) {
        if (!ps_merge_has(round->merge, r)) {
            return r;
        }
    }
    return -1;
}

/* ---- opening ---- */

static enum ps_status create_round(struct ps_entry *entry, struct ps_round **round_out)
{
    struct ps_round *round = calloc(1, sizeof(*round));
    if (round == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status =
        ps_merge_create_in(entry->env->blocks, entry->env->quorum->ranks,
                           entry->key->dtype, entry->count, &round->merge);
    if (status != PS_OK) {
        free(round);
        return status;
    }
    ps_list_init(&round->asks);
    *round_out = round;
    return PS_OK;
}

static void close_round(struct ps_round *round)
{
    ps_merge_reset(round->merge);
    ps_buf_release(round->target);
    round->target = NULL;
    round->open = false;
    round->failed = false;
}

/* Ranks that left before are skipped from the start. */
static enum ps_status open_round(struct ps_entry *entry, uint64_t step,
                                 struct ps_round **round_out)
{
    const struct ps_quorum *quorum = entry->env->quorum;
    struct ps_round **slot = &entry->rounds[step % PS_ROUND_SLOTS];
    if (*slot == NULL) {
        PS_TRY(create_round(entry, slot));
    }
    struct ps_round *round = *slot;
    if (!round->open) {
        round->open = true;
        round->step = step;
        for (uint32_t r = 0; quorum->gone_count > 0 && r < quorum->ranks; r++) {
            enum ps_status status =
                ps_quorum_has(quorum, r) ? PS_OK : ps_merge_skip(round->merge, r);
            if (status != PS_OK) {
                close_round(round);
                return status;
            }
        }
    }
    *round_out = round;
    return PS_OK;
}

/* Lets the last addition of the tree write the next version where that is all there is
 * to do: no optimizer, and sums kept in the key's own type. */
static void aim(struct ps_entry *entry, struct ps_round *round)
{
    enum ps_dtype dtype = entry->key->dtype;
    if (round->target != NULL || round->step != entry->version + 1 ||
        entry->env->quorum->ranks == 1 || ps_dtype_accumulator(dtype) != dtype ||
        entry->env->optimized(entry->env->ctx, entry)) {
        return;
    }
    struct ps_buf *twin = ps_entry_twin(entry);
    if (twin != NULL) {
        round->target = ps_buf_retain(twin);
        ps_merge_set_target(round->merge, twin->data);
    }
}

/* ---- closing ---- */

/* The stored value becomes the reduction. */
static enum ps_status replace(struct ps_entry *entry, struct ps_round *round,
                              const void *sum, struct ps_error *err)
{
    int dtype = (int)entry->key->dtype;
    uint32_t voters = ps_merge_arrived(round->merge);
    bool divide = entry->key->reduction == PS_REDUCE_MEAN && voters > 1;
    struct ps_buf *whole = ps_merge_result_buf(round->merge);
    if (whole != NULL && !divide && whole->data == sum && whole->size == entry->bytes &&
        entry->bytes >= PS_ENTRY_ADOPT_BYTES) {
        ps_entry_publish(entry, whole);
        return PS_OK;
    }
    struct ps_buf *out = round->target;
    if (out == NULL || out->data != sum) {
        out = ps_entry_twin(entry);
        if (out == NULL) {
            return ps_error_set(err, PS_ENOMEM, "key %.100s: out of memory for a version",
                                entry->key->name);
        }
        if (divide && ps_merge_result_buf(round->merge) == NULL) {
            /* our own accumulators: divided before they are rounded */
            ps_reduce_divide((void *)(uintptr_t)sum, dtype, voters, entry->count);
            divide = false;
        }
        ps_reduce_store(out->data, sum, dtype, entry->count);
    }
    if (divide) { /* accumulators of the key's own type */
        ps_reduce_divide(out->data, dtype, voters, entry->count);
    }
    ps_entry_publish(entry, out);
    return PS_OK;
}

static enum ps_status apply(struct ps_entry *entry, struct ps_round *round,
                            struct ps_error *err)
{
    const void *sum = ps_merge_result(round->merge);
    enum ps_status status = ps_entry_fault(entry, "merge.before_publish");
    if (status != PS_OK) {
        return ps_error_set(err, status, "key %.100s step %" PRIu64 ": %s",
                            entry->key->name, round->step, ps_status_text(status));
    }
    if (sum == NULL) {
        return PS_OK; /* empty votes only: the value stays */
    }
    if (!entry->env->optimized(entry->env->ctx, entry)) {
        PS_TRY(replace(entry, round, sum, err));
        entry->updates++;
        return PS_OK;
    }
    bool mean = entry->key->reduction == PS_REDUCE_MEAN;
    struct ps_entry_update update = {
        .step = round->step,
        .rescale = mean ? 1.0 / ps_merge_arrived(round->merge) : 1.0,
        .grad = sum,
        .grad_dtype = (int)ps_dtype_accumulator(entry->key->dtype)};
    return ps_entry_apply(entry, &update, err);
}

static void remember_abort(struct ps_entry *entry, const struct ps_round *round)
{
    if (entry->aborts == NULL) {
        entry->aborts = calloc(PS_ROUND_SLOTS, sizeof(*entry->aborts));
    }
    if (entry->aborts != NULL) {
        struct ps_past_abort *past = &entry->aborts[round->step % PS_ROUND_SLOTS];
        past->step = round->step;
        past->error = round->error;
    }
}

static void answer_all(struct ps_entry *entry, struct ps_round *round,
                       enum ps_status status, const char *text)
{
    struct ps_list *item;
    while ((item = ps_list_pop_front(&round->asks)) != NULL) {
        struct ps_entry_ask *ask = PS_CONTAINER_OF(item, struct ps_entry_ask, node);
        if (status == PS_OK) {
            ps_entry_answer_ok(entry, ask);
        } else {
            ps_entry_answer_error(entry, ask, status, text);
        }
    }
}

static void fail_round(struct ps_entry *entry, struct ps_round *round)
{
    round->failed = true;
    ps_merge_forget(round->merge); /* nobody's buffers wait for the votes still missing */
    answer_all(entry, round, round->error.status, round->error.text);
}

void ps_round_advance(struct ps_entry *entry)
{
    struct ps_round *round;
    bool advanced = false;
    while ((round = open_at(entry, entry->version + 1)) != NULL &&
           ps_merge_complete(round->merge) && (entry->value != NULL || round->failed)) {
        if (!round->failed && apply(entry, round, &round->error) != PS_OK) {
            fail_round(entry, round);
        }
        entry->version = round->step;
        entry->contributors = round->failed ? 0 : ps_merge_arrived(round->merge);
        if (round->failed) {
            remember_abort(entry, round);
        }
        answer_all(entry, round, PS_OK, "");
        close_round(round);
        advanced = true;
    }
    if (advanced) {
        ps_entry_wake_pulls(entry);
    }
}

/* ---- votes ---- */

/* A step that is closed: the same answer again, with the current value. */
static void answer_again(struct ps_entry *entry, struct ps_entry_ask *ask)
{
    const struct ps_past_abort *past =
        entry->aborts == NULL ? NULL : &entry->aborts[ask->step % PS_ROUND_SLOTS];
    if (past != NULL && past->step == ask->step && ask->op != PS_REC_ABORT) {
        ps_entry_answer_error(entry, ask, past->error.status, past->error.text);
    } else {
        ps_entry_answer_ok(entry, ask);
    }
}

static void wait_for_round(struct ps_entry *entry, struct ps_round *round,
                           struct ps_entry_ask *ask)
{
    if (ask->op == PS_REC_ABORT) {
        ps_entry_answer_ok(entry, ask);
    } else if (round->failed) {
        ps_entry_answer_error(entry, ask, round->error.status, round->error.text);
    } else {
        ps_list_push_back(&round->asks, &ask->node);
    }
}

/* The rank voted before: the answer goes to the newer request. */
static void refresh(struct ps_entry *entry, struct ps_round *round,
                    struct ps_entry_ask *ask)
{
    for (struct ps_list *i = round->asks.next; i != &round->asks; i = i->next) {
        struct ps_entry_ask *old = PS_CONTAINER_OF(i, struct ps_entry_ask, node);
        if (old->rank == ask->rank) {
            ps_list_remove(i);
            ps_entry_answer_error(entry, old, PS_ECANCELED, "");
            break;
        }
    }
    wait_for_round(entry, round, ask);
}

static void note_abort(struct ps_entry *entry, struct ps_round *round,
                       const struct ps_entry_ask *ask, const void *text, size_t size)
{
    if (round->failed) {
        return; /* the first one's words stand */
    }
    (void)ps_error_set(&round->error, PS_EABORT,
                       "key %.80s step %" PRIu64 " rank %u: %.*s", entry->key->name,
                       ask->step, ask->rank,
                       (int)PS_MIN(size, (size_t)PS_RECORD_TEXT_MAX),
                       text == NULL ? "" : (const char *)text);
    fail_round(entry, round);
}

void ps_round_ask(struct ps_entry *entry, struct ps_entry_ask *ask, const void *data,
                  size_t size, struct ps_buf *hold)
{
    struct ps_round *round = NULL;
    if (ask->step <= entry->version) {
        answer_again(entry, ask);
        return;
    }
    if (ask->step > entry->version + PS_ROUND_SLOTS) {
        ps_entry_answer_error(entry, ask, PS_EAGAIN, "the step is too far ahead");
        return;
    }
    enum ps_status status = open_round(entry, ask->step, &round);
    if (status == PS_OK && ps_merge_has(round->merge, ask->rank)) {
        refresh(entry, round, ask);
        return;
    }
    if (status == PS_OK) {
        bool useless = ask->op == PS_REC_ABORT || round->failed;
        aim(entry, round);
        status = ps_merge_add_buf(round->merge, ask->rank, useless ? NULL : data, hold);
    }
    if (status != PS_OK) {
        ps_entry_answer_error(entry, ask, status, ps_status_text(status));
        return;
    }
    if (ask->op == PS_REC_ABORT) {
        note_abort(entry, round, ask, data, size);
    }
    wait_for_round(entry, round, ask);
    ps_round_advance(entry);
}

void ps_round_rank_left(struct ps_entry *entry, uint32_t rank)
{
    for (uint64_t step = entry->version + 1; step <= entry->version + PS_ROUND_SLOTS;
         step++) {
        struct ps_round *round = open_at(entry, step);
        if (round == NULL || ps_merge_has(round->merge, rank)) {
            continue;
        }
        enum ps_status status = ps_merge_skip(round->merge, rank);
        if (status != PS_OK) {
            (void)ps_error_set(&round->error, status, "key %.100s: %s", entry->key->name,
                               ps_status_text(status));
            fail_round(entry, round);
        }
    }
    ps_round_advance(entry);
}

void ps_round_drop(struct ps_entry *entry, enum ps_status status, const char *text,
                   bool destroy)
{
    for (size_t i = 0; i < PS_ROUND_SLOTS; i++) {
        struct ps_round *round = entry->rounds[i];
        if (round == NULL) {
            continue;
        }
        answer_all(entry, round, status, text);
        close_round(round);
        if (destroy) {
            ps_merge_destroy(round->merge);
            free(round);
            entry->rounds[i] = NULL;
        }
    }
}
