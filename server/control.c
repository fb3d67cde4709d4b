/* Requests of the scheduler, brought to every lane and answered when all have done them.
 *
 * An errand is posted to each lane; the last lane to end posts it back to the control
 * loop, which replies.  Lanes do errands in the order in which they came.
 * Threads: request and finish on the control loop, 'run' on each lane. */
#include "base/util.h"
#include "server/state.h"

#include <stdlib.h>
#include <string.h>

struct errand;
struct errand_part {
    struct ps_task task;
    struct errand *errand;
    struct server_lane *lane;
    struct ps_error error;
    struct lane_counters counters;
};

struct errand {
    struct ps_list node; /* server->errands */
    struct ps_server *server;
    struct ps_net_link *link; /* NULL: nobody waits */
    struct ps_link_head head;
    void (*run)(struct server_lane *lane, struct errand_part *part);
    union {
        struct ps_msg_keys keys;
        struct ps_msg_optimizer optimizer;
        struct ps_msg_quorum quorum;
        struct ps_error failure;
    };
    uint32_t chunk_bytes;
    _Atomic uint32_t remaining;
    struct ps_task back;
    struct errand_part parts[];
};

static void errand_free(struct errand *errand)
{
    ps_list_remove(&errand->node);
    if (errand->head.kind == PS_KIND_ENTRIES) {
        ps_msg_keys_fini(&errand->keys);
    }
    free(errand);
}

/* The link may have died meanwhile. */
static void answer(struct ps_server *server, struct ps_net_link *link,
                   const struct ps_link_head *head, const struct ps_error *err,
                   struct ps_buf *body)
{
    struct ps_buf *words = body != NULL ? ps_buf_retain(body) : NULL;
    if (err->status != PS_OK) {
        ps_buf_release(words);
        words = ps_msg_error_pack(err->text);
    }
    struct ps_frame frame = {.payload = words,
                             .payload_bytes = words != NULL ? words->size : 0};
    if (server->member != NULL && link == ps_member_link(server->member)) {
        enum ps_status status = ps_net_reply(link, head, err->status, &frame);
        if (status != PS_OK) {
            PS_LOG(server->node->log, WARN, SERVER, "%s not answered: %s",
                   ps_frame_kind_name(head->kind), ps_status_text(status));
        }
    }
    ps_buf_release(words);
}

static void refuse(struct ps_server *server, struct ps_net_link *link,
                   const struct ps_frame *frame, const struct ps_error *err)
{
    PS_LOG(server->node->log, WARN, SERVER, "%s refused: %s",
           ps_frame_kind_name(frame->head.kind), err->text);
    answer(server, link, &frame->head, err, NULL);
}

/* ---- on the lanes ---- */

static void run_entries(struct server_lane *lane, struct errand_part *part)
{
    const struct errand *errand = part->errand;
    (void)server_keys_add(lane, &errand->keys, errand->chunk_bytes, &part->error);
}

static void run_optimizer(struct server_lane *lane, struct errand_part *part)
{
    const struct ps_msg_optimizer *msg = &part->errand->optimizer;
    (void)server_optimizer_set(lane, msg, &part->error);
}

static void run_hyper(struct server_lane *lane, struct errand_part *part)
{
    const struct ps_msg_optimizer *msg = &part->errand->optimizer;
    (void)server_hyper_change(lane, msg, &part->error);
}

static void rank_left(struct ps_entry *entry, void *arg)
{
    const uint32_t *rank = arg;
    ps_entry_rank_left(entry, *rank);
}

static void run_quorum(struct server_lane *lane, struct errand_part *part)
{
    uint32_t rank = part->errand->quorum.rank;
    if (ps_quorum_leave(&lane->quorum, rank)) {
        server_keys_each(lane, rank_left, &rank);
    }
}

static void run_status(struct server_lane *lane, struct errand_part *part)
{
    server_counters(lane, &part->counters);
}

static void run_failure(struct server_lane *lane, struct errand_part *part)
{
    server_lane_fail(lane, &part->errand->failure);
}

static void on_lane(struct ps_task *task)
{
    struct errand_part *part = PS_CONTAINER_OF(task, struct errand_part, task);
    struct errand *errand = part->errand;
    errand->run(part->lane, part);
    /* acq_rel: the control loop sees what all lanes wrote */
    if (atomic_fetch_sub_explicit(&errand->remaining, 1, memory_order_acq_rel) == 1) {
        (void)ps_loop_post(errand->server->node->loop, &errand->back);
    }
}

/* ---- on the control loop ---- */

static enum ps_status status_body(struct errand *errand, struct ps_buf **body_out)
{
    struct ps_server *server = errand->server;
    struct lane_counters *all = calloc(server->lane_count, sizeof(*all));
    if (all == NULL) {
        return PS_ENOMEM;
    }
    for (uint32_t i = 0; i < server->lane_count; i++) {
        all[i] = errand->parts[i].counters;
    }
    enum ps_status status = server_status_json(server, all, body_out);
    free(all);
    return status;
}

static void on_back(struct ps_task *task)
{
    struct errand *errand = PS_CONTAINER_OF(task, struct errand, back);
    struct ps_server *server = errand->server;
    struct ps_error err = {0};
    struct ps_buf *body = NULL;
    for (uint32_t i = 0; i < server->lane_count && err.status == PS_OK; i++) {
        err = errand->parts[i].error;
    }
    if (errand->link != NULL) {
        enum ps_status status = PS_OK;
        if (errand->head.kind == PS_KIND_ENTRIES) {
            status = PS_FAULT(server->node, "server.before_entries");
        } else if (errand->head.kind == PS_KIND_STATUS) {
            status = status_body(errand, &body);
        }
        if (status != PS_OK && err.status == PS_OK) {
            (void)ps_error_set(&err, status, "%s", ps_status_text(status));
        }
        answer(server, errand->link, &errand->head, &err, body);
        ps_buf_release(body);
    }
    errand_free(errand);
}

static struct errand *errand_create(struct ps_server *server,
                                    void (*run)(struct server_lane *lane,
                                                struct errand_part *part))
{
    struct errand *errand =
        calloc(1, sizeof(*errand) + server->lane_count * sizeof(errand->parts[0]));
    if (errand == NULL) {
        return NULL;
    }
    errand->server = server;
    errand->run = run;
    errand->back = (struct ps_task){.run = on_back, .label = "server.errand_back"};
    ps_list_push_back(&server->errands, &errand->node);
    return errand;
}

static void errand_go(struct errand *errand)
{
    struct ps_server *server = errand->server;
    uint32_t count = server->lane_count;
    atomic_init(&errand->remaining, count);
    for (uint32_t i = 0; i < count; i++) {
        struct errand_part *part = &errand->parts[i];
        part->errand = errand;
        part->lane = &server->lanes[i];
        part->task = (struct ps_task){.run = on_lane, .label = "server.errand"};
    }
    /* Posted after all are filled: the last lane may free the errand's turn at once. */
    for (uint32_t i = 0; i < count; i++) {
        (void)ps_loop_post(server->lanes[i].loop, &errand->parts[i].task);
    }
}

/* ---- reading requests ---- */

static enum ps_status take_entries(struct errand *errand, const void *data, size_t size,
                                   struct ps_error *err)
{
    enum ps_status status = ps_msg_keys_unpack(data, size, &errand->keys, err);
    if (status != PS_OK) {
        memset(&errand->keys, 0, sizeof(errand->keys));
    }
    errand->chunk_bytes = ps_member_job(errand->server->member)->chunk_bytes;
    return status;
}

static enum ps_status take_optimizer(struct errand *errand, const void *data, size_t size,
                                     struct ps_error *err)
{
    return ps_msg_optimizer_unpack(data, size, &errand->optimizer, err);
}

static enum ps_status take_quorum(struct errand *errand, const void *data, size_t size,
                                  struct ps_error *err)
{
    const struct ps_msg_job *job = ps_member_job(errand->server->member);
    PS_TRY(ps_msg_quorum_unpack(data, size, &errand->quorum, err));
    if (errand->quorum.rank >= job->num_worker) {
        return ps_error_set(err, PS_ERANGE, "QUORUM: rank %u of %u workers",
                            errand->quorum.rank, job->num_worker);
    }
    return PS_OK;
}

static enum ps_status take_status(struct errand *errand, const void *data, size_t size,
                                  struct ps_error *err)
{
    struct ps_msg_status msg;
    PS_UNUSED(errand);
    PS_TRY(ps_msg_status_unpack(data, size, &msg, err));
    ps_msg_status_fini(&msg);
    return PS_OK;
}

static const struct route {
    uint16_t kind;
    enum ps_status (*take)(struct errand *errand, const void *data, size_t size,
                           struct ps_error *err);
    void (*run)(struct server_lane *lane, struct errand_part *part);
} routes[] = {{PS_KIND_ENTRIES, take_entries, run_entries},
              {PS_KIND_OPTIMIZER, take_optimizer, run_optimizer},
              {PS_KIND_HYPER, take_optimizer, run_hyper},
              {PS_KIND_QUORUM, take_quorum, run_quorum},
              {PS_KIND_STATUS, take_status, run_status}};

static const struct route *find_route(uint16_t kind)
{
    for (size_t i = 0; i < PS_COUNT(routes); i++) {
        if (routes[i].kind == kind) {
            return &routes[i];
        }
    }
    return NULL;
}

void server_control_request(void *ctx, struct ps_net_link *link,
                            const struct ps_frame *frame)
{
    struct ps_server *server = ctx;
    const struct route *route = find_route(frame->head.kind);
    struct ps_error err = {0};
    if (route == NULL) {
        (void)ps_error_set(&err, PS_EUNSUPPORTED, "%s: a server does not serve it",
                           ps_frame_kind_name(frame->head.kind));
        refuse(server, link, frame, &err);
        return;
    }
    if (!server->joined || server->refusing) {
        (void)ps_error_set(&err, PS_ENOTREADY, "%s",
                           server->refusing ? "the server is closing"
                                            : "the job has not begun");
        refuse(server, link, frame, &err);
        return;
    }
    struct errand *errand = errand_create(server, route->run);
    if (errand == NULL) {
        (void)ps_error_set(&err, PS_ENOMEM, "out of memory");
        refuse(server, link, frame, &err);
        return;
    }
    errand->link = link;
    errand->head = frame->head;
    const struct ps_buf *body = frame->payload;
    if (route->take(errand, body != NULL ? body->data : NULL,
                    body != NULL ? body->size : 0, &err) != PS_OK) {
        refuse(server, link, frame, &err);
        errand_free(errand);
        return;
    }
    if (frame->head.kind == PS_KIND_QUORUM) {
        server->gone++;
    }
    errand_go(errand);
}

void server_control_fail_lanes(struct ps_server *server, const struct ps_error *err)
{
    struct errand *errand = server->joined ? errand_create(server, run_failure) : NULL;
    if (errand != NULL) {
        errand->failure = *err;
        errand_go(errand);
    }
}

void server_control_fini(struct ps_server *server)
{
    while (!ps_list_empty(&server->errands)) {
        struct errand *errand =
            PS_CONTAINER_OF(server->errands.next, struct errand, node);
        ps_loop_forget(server->node->loop, &errand->back);
        errand_free(errand);
    }
}
