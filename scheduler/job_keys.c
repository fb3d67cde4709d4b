/* Stores and keys: KEYS -> placement -> ENTRIES to the servers concerned -> the rows.
 *
 * All workers create the same keys at once: the first request places them, the others
 * find them on their way and wait too.  A key counts as held when every server of its
 * extents has answered; when one refuses, those who wait are told, and the next request
 * sends ENTRIES again.
 * Thread: the control loop. */
#include "scheduler/job.h"

#include <stdlib.h>
#include <string.h>

/* A KEYS request whose keys are on their way. */
struct key_ask {
    struct ps_list node;  /* in scheduler->key_asks */
    struct ps_list asker; /* one ps_sched_ask */
    struct ps_msg_keys msg;
};

/* ENTRIES of some keys, to all servers concerned. */
struct key_batch {
    struct ps_scheduler *scheduler;
    size_t count;
    uint64_t handles[];
};

enum ps_status ps_sched_store(struct ps_scheduler *s, const char *name,
                              struct ps_sched_store **store_out, struct ps_error *err)
{
    struct ps_sched_store *store = ps_strmap_get(&s->stores, name);
    if (store != NULL) {
        *store_out = store;
        return PS_OK;
    }
    if (name[0] == '\0' || strnlen(name, sizeof(store->name)) >= sizeof(store->name)) {
        return ps_error_set(err, PS_EINVAL, "a store needs a name of 1 to %zu bytes",
                            sizeof(store->name) - 1);
    }
    if (s->stores.count >= PS_STORE_MAX) {
        return ps_error_set(err, PS_EFULL, "store %s: a job has at most %u stores", name,
                            PS_STORE_MAX);
    }
    store = calloc(1, sizeof(*store));
    if (store == NULL) {
        return ps_error_set(err, PS_ENOMEM, "the scheduler is out of memory");
    }
    memcpy(store->name, name, strlen(name) + 1);
    store->id = (uint32_t)s->stores.count + 1;
    ps_list_init(&store->changes);
    if (ps_strmap_put(&s->stores, store->name, store, NULL) != PS_OK) {
        free(store);
        return ps_error_set(err, PS_ENOMEM, "the scheduler is out of memory");
    }
    PS_LOG(s->node->log, INFO, SCHEDULER, "store %s has number %u", store->name,
           store->id);
    *store_out = store;
    return PS_OK;
}

/* ---- answers ---- */

static void key_ask_free(struct key_ask *ask)
{
    ps_list_remove(&ask->node);
    ps_sched_asks_free(&ask->asker);
    ps_msg_keys_fini(&ask->msg);
    free(ask);
}

static bool waits(const struct ps_scheduler *s, const struct key_ask *ask)
{
    for (size_t i = 0; i < ask->msg.row_count; i++) {
        if (ps_map_get(&s->pending_keys, ask->msg.rows[i].handle) != NULL) {
            return true;
        }
    }
    return false;
}

static bool holds_any(const struct key_ask *ask, const struct key_batch *batch)
{
    for (size_t i = 0; i < ask->msg.row_count; i++) {
        for (size_t k = 0; k < batch->count; k++) {
            if (ask->msg.rows[i].handle == batch->handles[k]) {
                return true;
            }
        }
    }
    return false;
}

static void answer(struct ps_scheduler *s, struct key_ask *ask)
{
    struct ps_buf *body = NULL;
    if (ps_msg_keys_pack(&ask->msg, &body) == PS_OK) {
        ps_sched_asks_answer(s, &ask->asker, PS_OK, body);
    } else {
        ps_sched_asks_refuse(s, &ask->asker, PS_ENOMEM, "the scheduler is out of memory");
    }
    ps_buf_release(body);
    key_ask_free(ask);
}

static void on_entries(void *ctx, struct ps_sched_fanout *fanout,
                       const struct ps_error *err)
{
    struct key_batch *batch = ctx;
    struct ps_scheduler *s = batch->scheduler;
    enum ps_status status = err->status;
    PS_UNUSED(fanout);
    for (size_t i = 0; i < batch->count; i++) {
        (void)ps_map_remove(&s->pending_keys, batch->handles[i]);
        if (status == PS_OK) {
            status = ps_map_put(&s->held_keys, batch->handles[i], s, NULL);
        }
    }
    for (struct ps_list *at = s->key_asks.next, *next; at != &s->key_asks && !s->closing;
         at = next) {
        struct key_ask *ask = PS_CONTAINER_OF(at, struct key_ask, node);
        next = at->next;
        if (status != PS_OK && holds_any(ask, batch)) {
            ps_sched_asks_refuse(s, &ask->asker, status,
                                 err->text[0] != '\0' ? err->text
                                                      : ps_status_text(status));
            key_ask_free(ask);
        } else if (!waits(s, ask)) {
            answer(s, ask);
        }
    }
    free(batch);
}

/* ---- ENTRIES ---- */

/* The rows of 'msg' that are new to the servers. */
static enum ps_status collect_batch(struct ps_scheduler *s, const struct ps_msg_keys *msg,
                                    struct key_batch **batch_out)
{
    struct key_batch *batch =
        calloc(1, sizeof(*batch) + msg->row_count * sizeof(batch->handles[0]));
    if (batch == NULL) {
        return PS_ENOMEM;
    }
    batch->scheduler = s;
    for (size_t i = 0; i < msg->row_count; i++) {
        uint64_t handle = msg->rows[i].handle;
        if (ps_map_get(&s->held_keys, handle) != NULL ||
            ps_map_get(&s->pending_keys, handle) != NULL) {
            continue;
        }
        if (ps_map_put(&s->pending_keys, handle, s, NULL) != PS_OK) {
            while (batch->count > 0) {
                (void)ps_map_remove(&s->pending_keys, batch->handles[--batch->count]);
            }
            free(batch);
            return PS_ENOMEM;
        }
        batch->handles[batch->count++] = handle;
    }
    *batch_out = batch;
    return PS_OK;
}

static bool in_batch(const struct key_batch *batch, uint64_t handle, size_t *next)
{
    /* both follow the order of the request's rows */
    if (*next < batch->count && batch->handles[*next] == handle) {
        (*next)++;
        return true;
    }
    return false;
}

/* Rows of the batch with only the extents of server 'rank'; their extents are new. */
static enum ps_status rows_of_server(struct ps_scheduler *s,
                                     const struct ps_msg_keys *msg,
                                     const struct key_batch *batch, uint32_t rank,
                                     struct ps_msg_keys *out)
{
    size_t next = 0;
    for (size_t i = 0; i < msg->row_count; i++) {
        const struct ps_key_row *row = &msg->rows[i];
        if (!in_batch(batch, row->handle, &next)) {
            continue;
        }
        size_t mine = 0;
        for (size_t e = 0; e < row->extent_count; e++) {
            mine += ps_placement_server_of(s->placement, row->extents[e].shard) == rank;
        }
        if (mine == 0) {
            continue;
        }
        struct ps_key_row *to = &out->rows[out->row_count];
        *to = *row;
        to->extent_count = 0;
        to->extents = calloc(mine, sizeof(*to->extents));
        if (to->extents == NULL) {
            return PS_ENOMEM;
        }
        out->row_count++;
        for (size_t e = 0; e < row->extent_count; e++) {
            if (ps_placement_server_of(s->placement, row->extents[e].shard) == rank) {
                to->extents[to->extent_count++] = row->extents[e];
            }
        }
    }
    return PS_OK;
}

static enum ps_status add_server(struct ps_scheduler *s, const struct ps_msg_keys *msg,
                                 const struct key_batch *batch,
                                 struct ps_sched_member *server,
                                 struct ps_sched_fanout *fanout)
{
    struct ps_msg_keys part = {.store_id = msg->store_id};
    struct ps_buf *body = NULL;
    memcpy(part.store, msg->store, sizeof(part.store));
    part.rows = calloc(msg->row_count, sizeof(*part.rows));
    if (part.rows == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status = rows_of_server(s, msg, batch, server->rank, &part);
    if (status == PS_OK && part.row_count > 0) {
        status = ps_msg_keys_pack(&part, &body);
        if (status == PS_OK) {
            ps_sched_fanout_add(fanout, server, body);
        }
    }
    ps_buf_release(body);
    for (size_t i = 0; i < part.row_count; i++) {
        ps_key_row_fini(&part.rows[i]);
    }
    free(part.rows);
    return status;
}

/* Sends what the servers do not have yet; '*sent_out' tells whether there was any.  Then
 * 'msg' may be answered and gone at return.  On failure nothing is pending. */
static enum ps_status send_entries(struct ps_scheduler *s, const struct ps_msg_keys *msg,
                                   bool *sent_out)
{
    struct key_batch *batch;
    struct ps_sched_fanout *fanout;
    PS_TRY(PS_FAULT(s->node, "scheduler.before_entries"));
    PS_TRY(collect_batch(s, msg, &batch));
    if (batch->count == 0) {
        free(batch);
        *sent_out = false;
        return PS_OK;
    }
    struct ps_sched_fanout_options options = {.scheduler = s,
                                              .kind = PS_KIND_ENTRIES,
                                              .capacity = s->num_server,
                                              .what = "entries",
                                              .done = on_entries,
                                              .ctx = batch};
    enum ps_status status = ps_sched_fanout_create(&options, &fanout);
    if (status != PS_OK) {
        for (size_t i = 0; i < batch->count; i++) {
            (void)ps_map_remove(&s->pending_keys, batch->handles[i]);
        }
        free(batch);
        return status;
    }
    ps_sched_epoch_bump(s);
    for (size_t i = 0; i < s->member_count && status == PS_OK; i++) {
        if (s->members[i]->role == PS_ROLE_SERVER) {
            status = add_server(s, msg, batch, s->members[i], fanout);
        }
    }
    if (status != PS_OK) {
        ps_sched_fanout_fail(fanout, status, "entries could not be packed");
    }
    ps_sched_fanout_go(fanout);
    *sent_out = true;
    return PS_OK;
}

/* ---- KEYS ---- */

static enum ps_status look_up(struct ps_scheduler *s, struct ps_msg_keys *msg,
                              struct ps_error *err)
{
    for (size_t i = 0; i < msg->row_count; i++) {
        struct ps_key_row *row = &msg->rows[i];
        const struct ps_key_row *have =
            ps_placement_find(s->placement, msg->store_id, row->name, row->numeric);
        if (have == NULL) {
            return ps_error_set(err, PS_ENOENT, "key %.120s does not exist in store %s",
                                row->name, msg->store);
        }
        struct ps_extent *extents = calloc(have->extent_count, sizeof(*extents));
        if (extents == NULL) {
            return ps_error_set(err, PS_ENOMEM, "the scheduler is out of memory");
        }
        memcpy(extents, have->extents, have->extent_count * sizeof(*extents));
        *row = *have;
        row->extents = extents;
    }
    return PS_OK;
}

static enum ps_status place(struct ps_scheduler *s, struct ps_msg_keys *msg,
                            struct ps_error *err)
{
    struct ps_sched_store *store;
    if (msg->lookup && ps_strmap_get(&s->stores, msg->store) == NULL) {
        return ps_error_set(err, PS_ENOENT, "store %s does not exist", msg->store);
    }
    PS_TRY(ps_sched_store(s, msg->store, &store, err));
    msg->store_id = store->id;
    for (size_t i = 0; i < msg->row_count; i++) {
        ps_key_row_fini(&msg->rows[i]); /* a request's extents mean nothing */
        msg->rows[i].handle = 0;
    }
    if (msg->lookup) {
        return look_up(s, msg, err);
    }
    return ps_placement_add(s->placement, store->id, msg->rows, msg->row_count, err);
}

/* Places the keys and answers, now or when the servers have them.  Takes 'ask' on
 * success. */
static enum ps_status serve_keys(struct ps_scheduler *s, struct key_ask *ask,
                                 struct ps_net_link *link, const struct ps_frame *frame,
                                 struct ps_error *err)
{
    bool sent = false;
    PS_TRY(place(s, &ask->msg, err));
    if (ps_sched_ask_add(s, &ask->asker, link, &frame->head) == NULL) {
        return PS_ENOMEM;
    }
    ps_list_push_back(&s->key_asks, &ask->node);
    enum ps_status status = send_entries(s, &ask->msg, &sent);
    if (status != PS_OK) {
        return ps_error_set(err, status, "the keys could not be placed: %s",
                            ps_status_text(status));
    }
    if (!sent && !waits(s, ask)) {
        answer(s, ask);
    }
    return PS_OK;
}

void ps_sched_on_keys(struct ps_scheduler *s, struct ps_net_link *link,
                      struct ps_sched_member *member, const struct ps_frame *frame)
{
    struct ps_error err = {0};
    const struct ps_buf *body = frame->payload;
    struct key_ask *ask = calloc(1, sizeof(*ask));
    PS_UNUSED(member);
    if (ask == NULL) {
        ps_sched_refuse(s, link, &frame->head, PS_ENOMEM, ps_status_text(PS_ENOMEM));
        return;
    }
    ps_list_init(&ask->node);
    ps_list_init(&ask->asker);
    enum ps_status status = ps_msg_keys_unpack(
        body != NULL ? body->data : NULL, body != NULL ? body->size : 0, &ask->msg, &err);
    if (status != PS_OK) {
        ps_sched_refuse(s, link, &frame->head, status, err.text);
        free(ask);
        return;
    }
    status = serve_keys(s, ask, link, frame, &err);
    if (status != PS_OK) {
        ps_sched_refuse(s, link, &frame->head, status,
                        err.text[0] != '\0' ? err.text : ps_status_text(status));
        key_ask_free(ask);
    }
}

void ps_sched_keys_refuse(struct ps_scheduler *s, enum ps_status status, const char *text)
{
    while (!ps_list_empty(&s->key_asks)) {
        struct key_ask *ask = PS_CONTAINER_OF(s->key_asks.next, struct key_ask, node);
        ps_sched_asks_refuse(s, &ask->asker, status, text);
        key_ask_free(ask);
    }
}

void ps_sched_keys_fini(struct ps_scheduler *s)
{
    const char *name;
    void *value;
    while (!ps_list_empty(&s->key_asks)) {
        key_ask_free(PS_CONTAINER_OF(s->key_asks.next, struct key_ask, node));
    }
    for (size_t it = 0; ps_strmap_next(&s->stores, &it, &name, &value);) {
        ps_sched_store_fini(value);
    }
    ps_strmap_fini(&s->stores);
    ps_map_fini(&s->held_keys);
    ps_map_fini(&s->pending_keys);
    ps_placement_destroy(s->placement);
}
