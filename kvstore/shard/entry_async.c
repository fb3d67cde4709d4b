/* Async entries: each contribution is applied when the earlier ones of its rank are.
 * Threads: one at a time. */
#include "base/util.h"
#include "kvstore/shard/entry_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum ps_status ps_async_init(struct ps_entry *entry)
{
    uint32_t ranks = entry->env->quorum->ranks;
    entry->async = calloc(1, sizeof(*entry->async) + ranks * sizeof(uint64_t));
    if (entry->async == NULL) {
        return PS_ENOMEM;
    }
    ps_list_init(&entry->async->early);
    return PS_OK;
}

/* ---- one contribution ---- */

static enum ps_status apply(struct ps_entry *entry, uint64_t step, const void *data,
                            struct ps_error *err)
{
    size_t size = ps_dtype_size((int)entry->key->dtype);
    void *block = NULL;
    enum ps_status status = ps_entry_fault(entry, "merge.before_publish");
    if (status != PS_OK) {
        return ps_error_set(err, status, "key %.100s step %" PRIu64 ": %s",
                            entry->key->name, step, ps_status_text(status));
    }
    if ((uintptr_t)data % size != 0) {
        block = ps_blocks_get(entry->env->blocks, entry->bytes);
        if (block == NULL) {
            return ps_error_set(err, PS_ENOMEM, "out of memory");
        }
        memcpy(block, data, entry->bytes);
        data = block;
    }
    struct ps_entry_update update = {
        .step = step, .rescale = 1.0, .grad = data, .grad_dtype = (int)entry->key->dtype};
    status = ps_entry_apply(entry, &update, err);
    ps_blocks_put(entry->env->blocks, block, entry->bytes);
    if (status == PS_OK) {
        entry->version = entry->updates;
        entry->contributors = 1;
    }
    return status;
}

/* Its turn has come: applied or refused, answered, and the rank's clock moves: a worker
 * counts a push that was refused, so what it pushes and pulls next must not wait for it.
 */
static void take(struct ps_entry *entry, struct ps_entry_ask *ask, const void *data)
{
    struct ps_error err = {0};
    enum ps_status status = PS_OK;
    if (ask->op != PS_REC_ABORT && data != NULL) {
        if (entry->env->optimized(entry->env->ctx, entry)) {
            status = apply(entry, ask->step, data, &err);
        } else {
            status =
                ps_error_set(&err, PS_EINVAL,
                             "dist_async needs an optimizer: call set_optimizer before "
                             "the first push");
        }
    }
    entry->async->applied[ask->rank] = ask->step;
    if (status != PS_OK) {
        ps_entry_answer_error(entry, ask, status, err.text);
    } else {
        ps_entry_answer_ok(entry, ask);
    }
}

/* ---- contributions before their turn ---- */

static void free_early(struct ps_entry *entry, struct ps_early *early)
{
    ps_list_remove(&early->node);
    entry->async->early_count--;
    ps_buf_release(early->hold);
    ps_blocks_put(entry->env->blocks, early->block, entry->bytes);
    ps_blocks_put(entry->env->blocks, early, sizeof(*early));
}

static enum ps_status keep(struct ps_entry *entry, struct ps_entry_ask *ask,
                           const void *data, struct ps_buf *hold)
{
    struct ps_early *early = ps_blocks_get(entry->env->blocks, sizeof(*early));
    if (early == NULL) {
        return PS_ENOMEM;
    }
    *early = (struct ps_early){.ask = ask,
                               .rank = ask->rank,
                               .step = ask->step,
                               .data = ask->op == PS_REC_ABORT ? NULL : data};
    if (early->data != NULL && hold != NULL) {
        early->hold = ps_buf_retain(hold);
    } else if (early->data != NULL) {
        early->block = ps_blocks_get(entry->env->blocks, entry->bytes);
        if (early->block == NULL) {
            ps_blocks_put(entry->env->blocks, early, sizeof(*early));
            return PS_ENOMEM;
        }
        memcpy(early->block, data, entry->bytes);
        early->data = early->block;
    }
    ps_list_push_back(&entry->async->early, &early->node);
    entry->async->early_count++;
    return PS_OK;
}

static struct ps_early *find_early(struct ps_entry *entry, uint32_t rank, uint64_t step)
{
    struct ps_list *head = &entry->async->early;
    for (struct ps_list *i = head->next; i != head; i = i->next) {
        struct ps_early *early = PS_CONTAINER_OF(i, struct ps_early, node);
        if (early->rank == rank && early->step == step) {
            return early;
        }
    }
    return NULL;
}

/* Those kept contributions of 'rank' whose turn has come. */
static void drain_rank(struct ps_entry *entry, uint32_t rank)
{
    struct ps_early *early;
    while (entry->async->early_count > 0 &&
           (early = find_early(entry, rank, entry->async->applied[rank] + 1)) != NULL) {
        take(entry, early->ask, early->data);
        free_early(entry, early);
    }
}

void ps_async_advance(struct ps_entry *entry)
{
    for (uint32_t r = 0; entry->async->early_count > 0 && r < entry->env->quorum->ranks;
         r++) {
        drain_rank(entry, r);
    }
    ps_entry_wake_pulls(entry);
}

void ps_async_ask(struct ps_entry *entry, struct ps_entry_ask *ask, const void *data,
                  size_t size, struct ps_buf *hold)
{
    uint64_t applied = entry->async->applied[ask->rank];
    PS_UNUSED(size);
    if (ask->step <= applied) {
        ps_entry_answer_ok(entry, ask);
        return;
    }
    if (ask->step > applied + PS_ROUND_SLOTS) {
        ps_entry_answer_error(entry, ask, PS_EAGAIN, "the step is too far ahead");
        return;
    }
    if (ask->step == applied + 1 && entry->value != NULL) {
        take(entry, ask, data);
        drain_rank(entry, ask->rank);
        ps_entry_wake_pulls(entry);
        return;
    }
    struct ps_early *early = find_early(entry, ask->rank, ask->step);
    if (early != NULL) {
        ps_entry_answer_error(entry, early->ask, PS_ECANCELED, "");
        early->ask = ask;
        return;
    }
    enum ps_status status = keep(entry, ask, data, hold);
    if (status != PS_OK) {
        ps_entry_answer_error(entry, ask, status, ps_status_text(status));
    }
}

void ps_async_drop(struct ps_entry *entry, enum ps_status status, const char *text)
{
    while (entry->async != NULL && !ps_list_empty(&entry->async->early)) {
        struct ps_early *early =
            PS_CONTAINER_OF(entry->async->early.next, struct ps_early, node);
        struct ps_entry_ask *ask = early->ask;
        free_early(entry, early);
        ps_entry_answer_error(entry, ask, status, text);
    }
}
