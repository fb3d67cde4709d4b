/* An entry's life, its versions, INIT and PULL; entry_round.c and entry_async.c do the
 * contributions.  Threads: one at a time. */
#include "kvstore/shard/entry.h"

#include "base/util.h"
#include "kvstore/shard/entry_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- quorum ---- */

enum ps_status ps_quorum_init(struct ps_quorum *quorum, uint32_t ranks)
{
    if (ranks == 0) {
        return PS_EINVAL;
    }
    quorum->gone = calloc((ranks + 63) / 64, sizeof(*quorum->gone));
    if (quorum->gone == NULL) {
        return PS_ENOMEM;
    }
    quorum->ranks = ranks;
    quorum->gone_count = 0;
    return PS_OK;
}

void ps_quorum_fini(struct ps_quorum *quorum)
{
    free(quorum->gone);
    quorum->gone = NULL;
}

bool ps_quorum_leave(struct ps_quorum *quorum, uint32_t rank)
{
    if (!ps_quorum_has(quorum, rank)) {
        return false;
    }
    quorum->gone[rank / 64] |= UINT64_C(1) << (rank % 64);
    quorum->gone_count++;
    return true;
}

/* ---- life ---- */

enum ps_status ps_entry_init(struct ps_entry *entry, const struct ps_entry_env *env,
                             const struct ps_entry_key *key, uint64_t first,
                             uint32_t count)
{
    uint64_t bytes = (uint64_t)count * ps_dtype_size((int)key->dtype);
    if (bytes == 0 || bytes > UINT32_MAX) {
        return PS_ERANGE;
    }
    *entry = (struct ps_entry){
        .env = env, .key = key, .first = first, .count = count, .bytes = (uint32_t)bytes};
    ps_list_init(&entry->pulls);
    return key->mode == PS_MODE_ASYNC ? ps_async_init(entry) : PS_OK;
}

static void drop_pulls(struct ps_entry *entry, enum ps_status status, const char *text)
{
    struct ps_list *item;
    while ((item = ps_list_pop_front(&entry->pulls)) != NULL) {
        entry->pull_count--;
        ps_entry_answer_error(entry, PS_CONTAINER_OF(item, struct ps_entry_ask, node),
                              status, text);
    }
}

void ps_entry_fini(struct ps_entry *entry)
{
    if (entry->env == NULL) {
        return;
    }
    drop_pulls(entry, PS_ECANCELED, "");
    ps_round_drop(entry, PS_ECANCELED, "", true);
    ps_async_drop(entry, PS_ECANCELED, "");
    free(entry->async);
    ps_buf_release(entry->value);
    for (size_t i = 0; i < PS_ENTRY_TWINS; i++) {
        ps_buf_release(entry->twins[i]);
    }
    ps_mem_free(entry->state);
    free(entry->aborts);
    entry->env = NULL;
}

void ps_entry_fail(struct ps_entry *entry, enum ps_status status, const char *text)
{
    drop_pulls(entry, status, text);
    ps_round_drop(entry, status, text, false);
    ps_async_drop(entry, status, text);
}

/* ---- answers ---- */

void ps_entry_answer_ok(struct ps_entry *entry, struct ps_entry_ask *ask)
{
    bool carries = ask->op == PS_REC_PULL || ask->op == PS_REC_PUSHPULL;
    struct ps_entry_answer answer = {.status = PS_OK,
                                     .value = carries ? entry->value : NULL,
                                     .version = entry->version,
                                     .contributors = entry->contributors,
                                     .text = ""};
    entry->env->answer(entry->env->ctx, ask, &answer);
}

void ps_entry_answer_error(struct ps_entry *entry, struct ps_entry_ask *ask,
                           enum ps_status status, const char *text)
{
    struct ps_entry_answer answer = {
        .status = status, .version = entry->version, .contributors = 0, .text = text};
    entry->env->answer(entry->env->ctx, ask, &answer);
}

enum ps_status ps_entry_fault(const struct ps_entry *entry, const char *point)
{
    return entry->env->fault == NULL ? PS_OK : entry->env->fault(entry->env->ctx, point);
}

/* ---- versions ---- */

static uint32_t holders(const struct ps_buf *buf)
{
    /* acquire: a holder's last read comes before our next write */
    return atomic_load_explicit(&buf->refs, memory_order_acquire);
}

struct ps_buf *ps_entry_twin(struct ps_entry *entry)
{
    size_t victim = PS_ENTRY_TWINS;
    for (size_t i = 0; i < PS_ENTRY_TWINS; i++) {
        struct ps_buf *twin = entry->twins[i];
        if (twin == NULL) {
            entry->twins[i] = ps_buf_create(entry->bytes);
            return entry->twins[i];
        }
        if (twin != entry->value) {
            if (holders(twin) == 1) {
                return twin;
            }
            victim = i;
        }
    }
    /* All are out with slow readers: let one go with them, it is freed by the last. */
    struct ps_buf *fresh = ps_buf_create(entry->bytes);
    if (fresh != NULL) {
        ps_buf_release(entry->twins[victim]);
        entry->twins[victim] = fresh;
    }
    return fresh;
}

void ps_entry_publish(struct ps_entry *entry, struct ps_buf *buf)
{
    struct ps_buf *old = entry->value;
    entry->value = ps_buf_retain(buf);
    ps_buf_release(old);
}

/* Whether the value is ours and only we refer to it (as twin and as value). */
static bool value_is_private(const struct ps_entry *entry)
{
    for (size_t i = 0; i < PS_ENTRY_TWINS; i++) {
        if (entry->twins[i] == entry->value) {
            return holders(entry->value) == 2;
        }
    }
    return false;
}

enum ps_status ps_entry_apply(struct ps_entry *entry, struct ps_entry_update *update,
                              struct ps_error *err)
{
    struct ps_buf *out = value_is_private(entry) ? entry->value : ps_entry_twin(entry);
    if (out == NULL) {
        return ps_error_set(err, PS_ENOMEM, "key %.100s: out of memory for a version",
                            entry->key->name);
    }
    update->update = entry->updates + 1;
    update->weight = entry->value->data;
    update->weight_out = out->data;
    PS_TRY(entry->env->update(entry->env->ctx, entry, update, err));
    entry->updates++;
    if (out != entry->value) {
        ps_entry_publish(entry, out);
    }
    return PS_OK;
}

enum ps_status ps_entry_state(struct ps_entry *entry, uint64_t tag, size_t bytes,
                              void **state_out, bool *fresh_out)
{
    bool fresh = entry->state_tag != tag || entry->state_bytes != bytes;
    if (fresh && bytes > 0) {
        void *state = ps_mem_calloc(bytes);
        if (state == NULL) {
            return PS_ENOMEM;
        }
        ps_mem_free(entry->state);
        entry->state = state;
    } else if (fresh) {
        ps_mem_free(entry->state);
        entry->state = NULL;
    }
    entry->state_tag = tag;
    entry->state_bytes = bytes;
    *state_out = entry->state;
    *fresh_out = fresh;
    return PS_OK;
}

/* ---- INIT and PULL ---- */

static void ask_init(struct ps_entry *entry, struct ps_entry_ask *ask, const void *data)
{
    if (ask->rank != 0) {
        ps_entry_answer_error(entry, ask, PS_EPERM, "INIT comes from rank 0 only");
        return;
    }
    if (entry->value != NULL) {
        if (entry->init_id == ask->id) {
            ps_entry_answer_ok(entry, ask);
        } else {
            ps_entry_answer_error(entry, ask, PS_EEXIST, "the key has a value already");
        }
        return;
    }
    struct ps_buf *twin = ps_entry_twin(entry);
    if (twin == NULL) {
        ps_entry_answer_error(entry, ask, PS_ENOMEM, "out of memory");
        return;
    }
    memcpy(twin->data, data, entry->bytes);
    ps_entry_publish(entry, twin);
    entry->init_id = ask->id;
    ps_entry_answer_ok(entry, ask);
    if (entry->key->mode == PS_MODE_ASYNC) {
        ps_async_advance(entry);
    } else {
        ps_round_advance(entry);
    }
    ps_entry_wake_pulls(entry);
}

/* The rank's last step that is in the value. */
static uint64_t clock_of(const struct ps_entry *entry, uint32_t rank)
{
    return entry->async != NULL ? entry->async->applied[rank] : entry->version;
}

static bool pull_is_ready(const struct ps_entry *entry, const struct ps_entry_ask *ask)
{
    return entry->value != NULL && clock_of(entry, ask->rank) >= ask->step;
}

void ps_entry_wake_pulls(struct ps_entry *entry)
{
    struct ps_list *item = entry->pulls.next;
    while (item != &entry->pulls) {
        struct ps_list *next = item->next;
        struct ps_entry_ask *ask = PS_CONTAINER_OF(item, struct ps_entry_ask, node);
        if (pull_is_ready(entry, ask)) {
            ps_list_remove(item);
            entry->pull_count--;
            ps_entry_answer_ok(entry, ask);
        }
        item = next;
    }
}

static void ask_pull(struct ps_entry *entry, struct ps_entry_ask *ask)
{
    entry->pull_requests++;
    if (pull_is_ready(entry, ask)) {
        ps_entry_answer_ok(entry, ask);
        return;
    }
    for (struct ps_list *i = entry->pulls.next; i != &entry->pulls; i = i->next) {
        struct ps_entry_ask *old = PS_CONTAINER_OF(i, struct ps_entry_ask, node);
        if (old->id == ask->id && old->rank == ask->rank) {
            ps_list_remove(i);
            entry->pull_count--;
            ps_entry_answer_error(entry, old, PS_ECANCELED, "");
            break;
        }
    }
    bool far = ask->step > clock_of(entry, ask->rank) + PS_ROUND_SLOTS;
    if (far || entry->pull_count >= 64 + 8 * entry->env->quorum->ranks) {
        ps_entry_answer_error(entry, ask, PS_EAGAIN,
                              far ? "the step is too far ahead" : "too many pulls wait");
        return;
    }
    ps_list_push_back(&entry->pulls, &ask->node);
    entry->pull_count++;
}

void ps_entry_ask(struct ps_entry *entry, struct ps_entry_ask *ask, const void *data,
                  size_t size, struct ps_buf *hold)
{
    /* One that said `done` may still read. */
    bool reads = ask->op == PS_REC_PULL && ask->rank < entry->env->quorum->ranks;
    if (!reads && !ps_quorum_has(entry->env->quorum, ask->rank)) {
        ps_entry_answer_error(entry, ask, PS_ESTALE, "the rank is not in the quorum");
        return;
    }
    switch (ask->op) {
    case PS_REC_INIT:
        ask_init(entry, ask, data);
        return;
    case PS_REC_PULL:
        ask_pull(entry, ask);
        return;
    default:
        entry->pushes++;
        if (entry->key->mode == PS_MODE_ASYNC) {
            ps_async_ask(entry, ask, data, size, hold);
        } else {
            ps_round_ask(entry, ask, data, size, hold);
        }
        return;
    }
}

void ps_entry_rank_left(struct ps_entry *entry, uint32_t rank)
{
    ps_round_rank_left(entry, rank);
}

void ps_entry_optimizer_changed(struct ps_entry *entry, bool forget_state)
{
    if (forget_state) {
        ps_mem_free(entry->state);
        entry->state = NULL;
        entry->state_bytes = 0;
        entry->state_tag = 0;
        entry->updates = 0;
    }
}
