/* STATUS: the job as JSON, with what the servers say of themselves.
 *
 * Asks every joined server (short deadline), then answers; a server that does not answer,
 * or answers with what is not JSON, shows null.
 * Thread: the control loop. */
#include "scheduler/job.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct query {
    struct ps_list node; /* in scheduler->statuses */
    struct ps_scheduler *scheduler;
    struct ps_list asker;
    bool placement;
};

static const char *const job_states[] = {"starting", "running", "stopping", "aborted",
                                         "ended"};
static const char *const member_states[] = {"waiting", "joined", "left", "lost"};

/* jansson owns what is set; a NULL value (out of memory) only leaves the field out. */
static void set_text(json_t *object, const char *name, const char *text)
{
    json_t *value = json_string(text);
    if (json_object_set_new(object, name, value != NULL ? value : json_string("?")) !=
        0) {
        return;
    }
}

static void set_u64(json_t *object, const char *name, uint64_t number)
{
    (void)json_object_set_new(object, name, json_integer((json_int_t)number));
}

static json_t *describe_member(const struct ps_scheduler *s,
                               const struct ps_sched_member *member, uint64_t now_ns)
{
    json_t *out = json_object();
    json_t *urls = json_array();
    set_u64(out, "member", member->id);
    set_text(out, "role", ps_role_name(member->role));
    if (member->state == PS_MEMBER_WAITING && member->rank_asked < 0) {
        (void)json_object_set_new(out, "rank", json_null());
    } else {
        set_u64(out, "rank",
                member->state == PS_MEMBER_WAITING ? (uint64_t)member->rank_asked
                                                   : member->rank);
    }
    set_text(out, "state", member_states[member->state]);
    set_text(out, "host", member->host);
    set_u64(out, "pid", member->pid);
    for (size_t i = 0; i < member->url_count; i++) {
        (void)json_array_append_new(urls, json_string(member->urls[i]));
    }
    (void)json_object_set_new(out, "urls", urls);
    set_u64(out, "heartbeat_age_ms", (now_ns - member->heard_ns) / PS_NS_PER_MS);
    (void)json_object_set_new(out, "done", json_boolean(member->done));
    PS_UNUSED(s);
    return out;
}

/* What server 'rank' said of itself. */
static json_t *counters_of(const struct ps_sched_fanout *fanout, uint32_t rank)
{
    for (size_t i = 0; fanout != NULL && i < ps_sched_fanout_count(fanout); i++) {
        const struct ps_buf *body = ps_sched_fanout_reply(fanout, i);
        struct ps_msg_status msg = {0};
        if (ps_sched_fanout_member(fanout, i)->rank != rank || body == NULL ||
            ps_msg_status_unpack(body->data, body->size, &msg, NULL) != PS_OK) {
            continue;
        }
        json_t *out =
            msg.json != NULL ? json_loadb(msg.json->data, msg.json->size, 0, NULL) : NULL;
        ps_msg_status_fini(&msg);
        return out != NULL ? out : json_null();
    }
    return json_null();
}

static json_t *describe_servers(const struct ps_scheduler *s,
                                const struct ps_sched_fanout *fanout)
{
    json_t *out = json_array();
    for (uint32_t rank = 0; s->placement != NULL && rank < s->num_server; rank++) {
        json_t *server = json_object();
        set_u64(server, "rank", rank);
        set_u64(server, "bytes", ps_placement_server_bytes(s->placement, rank));
        (void)json_object_set_new(server, "counters", counters_of(fanout, rank));
        (void)json_array_append_new(out, server);
    }
    return out;
}

static json_t *describe_stores(const struct ps_scheduler *s)
{
    json_t *out = json_array();
    const char *name;
    void *value;
    for (size_t it = 0; ps_strmap_next(&s->stores, &it, &name, &value);) {
        const struct ps_sched_store *store = value;
        json_t *entry = json_object();
        set_text(entry, "name", store->name);
        set_u64(entry, "id", store->id);
        set_text(entry, "optimizer", store->held.name);
        set_text(entry, "hyper", store->held.hyper);
        (void)json_array_append_new(out, entry);
    }
    return out;
}

/* ---- placement ---- */

static const char *store_name(const struct ps_scheduler *s, uint32_t id)
{
    const char *name;
    void *value;
    for (size_t it = 0; ps_strmap_next(&s->stores, &it, &name, &value);) {
        const struct ps_sched_store *store = value;
        if (store->id == id) {
            return store->name;
        }
    }
    return "?";
}

static json_t *describe_parts(const struct ps_scheduler *s, const struct ps_key_row *row)
{
    json_t *out = json_array();
    for (uint32_t rank = 0; rank < s->num_server; rank++) {
        uint64_t extents = 0, elements = 0;
        for (size_t e = 0; e < row->extent_count; e++) {
            if (ps_placement_server_of(s->placement, row->extents[e].shard) == rank) {
                extents++;
                elements += row->extents[e].count;
            }
        }
        if (extents > 0) {
            json_t *part = json_object();
            set_u64(part, "server", rank);
            set_u64(part, "extents", extents);
            set_u64(part, "elements", elements);
            set_u64(part, "bytes", elements * ps_dtype_size(row->dtype));
            (void)json_array_append_new(out, part);
        }
    }
    return out;
}

static json_t *describe_extents(const struct ps_scheduler *s,
                                const struct ps_key_row *row)
{
    json_t *out = json_array();
    for (size_t e = 0; e < row->extent_count; e++) {
        const struct ps_extent *extent = &row->extents[e];
        json_t *entry = json_object();
        set_u64(entry, "first", extent->first);
        set_u64(entry, "count", extent->count);
        set_u64(entry, "shard", extent->shard);
        set_u64(entry, "server", ps_placement_server_of(s->placement, extent->shard));
        (void)json_array_append_new(out, entry);
    }
    return out;
}

static json_t *describe_placement(const struct ps_scheduler *s)
{
    json_t *out = json_array();
    char text[PS_SHAPE_TEXT_BYTES];
    for (size_t i = 0; s->placement != NULL && i < ps_placement_key_count(s->placement);
         i++) {
        const struct ps_key_row *row = ps_placement_key(s->placement, i);
        json_t *key = json_object();
        set_text(key, "store", store_name(s, ps_handle_store(row->handle)));
        set_text(key, "key", row->name);
        (void)json_object_set_new(key, "numeric", json_boolean(row->numeric));
        set_text(key, "dtype", ps_dtype_name(row->dtype));
        set_text(key, "shape", ps_shape_text(&row->shape, text));
        set_u64(key, "elements", row->count);
        set_u64(key, "bytes", row->count * ps_dtype_size(row->dtype));
        (void)json_object_set_new(key, "servers", describe_parts(s, row));
        (void)json_object_set_new(key, "extents", describe_extents(s, row));
        (void)json_array_append_new(out, key);
    }
    return out;
}

/* ---- the whole ---- */

static json_t *describe_job(struct ps_scheduler *s, const struct ps_sched_fanout *fanout,
                            bool placement)
{
    json_t *out = json_object();
    json_t *members = json_array();
    char uuid[2 * PS_UUID_BYTES + 1];
    uint64_t now = ps_loop_now_ns(s->node->loop);
    for (size_t i = 0; i < PS_UUID_BYTES; i++) {
        (void)snprintf(uuid + 2 * i, 3, "%02x", s->uuid[i]);
    }
    set_text(out, "uuid", uuid);
    set_text(out, "url", s->url);
    set_text(out, "state", job_states[s->state]);
    set_u64(out, "term", 1);
    set_u64(out, "epoch", s->epoch_number);
    set_u64(out, "uptime_ms", (now - s->started_ns) / PS_NS_PER_MS);
    set_u64(out, "num_worker", s->num_worker);
    set_u64(out, "num_server", s->num_server);
    if (s->state == PS_JOB_STARTING) {
        struct ps_str text = {0};
        ps_sched_missing_text(s, &text);
        set_text(out, "waiting", ps_str_text(&text));
        ps_str_fini(&text);
    }
    if (s->failure.status != PS_OK) {
        set_text(out, "failure", s->failure_text);
    }
    for (size_t i = 0; i < s->member_count; i++) {
        (void)json_array_append_new(members, describe_member(s, s->members[i], now));
    }
    (void)json_object_set_new(out, "members", members);
    (void)json_object_set_new(out, "servers", describe_servers(s, fanout));
    (void)json_object_set_new(out, "stores", describe_stores(s));
    set_u64(out, "keys", s->placement ? ps_placement_key_count(s->placement) : 0);
    if (placement) {
        (void)json_object_set_new(out, "placement", describe_placement(s));
    }
    return out;
}

static enum ps_status pack_answer(struct ps_scheduler *s,
                                  const struct ps_sched_fanout *fanout, bool placement,
                                  struct ps_buf **body_out)
{
    json_t *job = describe_job(s, fanout, placement);
    char *text = job != NULL ? json_dumps(job, JSON_COMPACT) : NULL;
    enum ps_status status = PS_ENOMEM;
    struct ps_msg_status msg = {.placement = placement};
    if (text != NULL) {
        msg.json = ps_buf_wrap(text, strlen(text), NULL, NULL);
        status = msg.json != NULL ? ps_msg_status_pack(&msg, body_out) : PS_ENOMEM;
        ps_buf_release(msg.json);
    }
    free(text);
    json_decref(job);
    return status;
}

static void query_free(struct query *query)
{
    ps_list_remove(&query->node);
    ps_sched_asks_free(&query->asker);
    query->scheduler->status_count--;
    free(query);
}

static void on_servers(void *ctx, struct ps_sched_fanout *fanout,
                       const struct ps_error *err)
{
    struct query *query = ctx;
    struct ps_scheduler *s = query->scheduler;
    struct ps_buf *body = NULL;
    PS_UNUSED(err);
    if (!s->closing) {
        if (pack_answer(s, fanout, query->placement, &body) == PS_OK) {
            ps_sched_asks_answer(s, &query->asker, PS_OK, body);
        } else {
            ps_sched_asks_refuse(s, &query->asker, PS_ENOMEM, ps_status_text(PS_ENOMEM));
        }
        ps_buf_release(body);
    }
    query_free(query);
}

static void ask_servers(struct ps_scheduler *s, struct query *query)
{
    struct ps_sched_fanout_options options = {.scheduler = s,
                                              .kind = PS_KIND_STATUS,
                                              .what = "status",
                                              .timeout_ns = PS_SCHED_STATUS_DEADLINE_MS *
                                                            PS_NS_PER_MS,
                                              .done = on_servers,
                                              .ctx = query};
    struct ps_msg_status msg = {.placement = false};
    struct ps_buf *body = NULL;
    enum ps_status status = ps_msg_status_pack(&msg, &body);
    if (status == PS_OK) {
        status = ps_sched_fanout_servers(&options, body);
    }
    ps_buf_release(body);
    if (status != PS_OK) {
        struct ps_error err;
        (void)ps_error_set(&err, status, "status");
        on_servers(query, NULL, &err);
    }
}

void ps_sched_on_status(struct ps_scheduler *s, struct ps_net_link *link,
                        struct ps_sched_member *member, const struct ps_frame *frame)
{
    struct ps_msg_status msg = {0};
    struct ps_error err = {0};
    const struct ps_buf *body = frame->payload;
    PS_UNUSED(member);
    if (body != NULL && body->size > 0) {
        enum ps_status status = ps_msg_status_unpack(body->data, body->size, &msg, &err);
        if (status != PS_OK) {
            ps_sched_refuse(s, link, &frame->head, status, err.text);
            return;
        }
    }
    bool placement = msg.placement;
    ps_msg_status_fini(&msg);
    if (s->status_count >= PS_SCHED_STATUS_MAX) {
        ps_sched_refuse(s, link, &frame->head, PS_EAGAIN,
                        "too many STATUS requests at once");
        return;
    }
    struct query *query = calloc(1, sizeof(*query));
    if (query == NULL) {
        ps_sched_refuse(s, link, &frame->head, PS_ENOMEM, ps_status_text(PS_ENOMEM));
        return;
    }
    query->scheduler = s;
    query->placement = placement;
    ps_list_init(&query->asker);
    ps_list_push_back(&s->statuses, &query->node);
    s->status_count++;
    if (ps_sched_ask_add(s, &query->asker, link, &frame->head) == NULL) {
        query_free(query);
        return;
    }
    ask_servers(s, query);
}

void ps_sched_status_fini(struct ps_scheduler *s)
{
    while (!ps_list_empty(&s->statuses)) {
        query_free(PS_CONTAINER_OF(s->statuses.next, struct query, node));
    }
}
