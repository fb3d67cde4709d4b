/* DATA: a request's records go to their entries; one reply when all are answered.
 *
 * Parts of other lanes travel there as tasks and come back as answers; two counters
 * say when the payload (all handled) and the request (all answered too) are over.
 * Whatever a record holds, it is answered with a status; a frame that is no DATA at all
 * is answered as a whole. Threads: landed, flush and replies on the home lane; a part on
 * its shard's lane. */
#include "base/util.h"
#include "server/state.h"

#include <stdlib.h>
#include <string.h>

static void request_answered(struct server_request *request);

/* ---- ends of a request ---- */

static void free_request(struct server_request *request)
{
    struct server_lane *home = request->home;
    for (uint32_t i = 0; i < request->count; i++) {
        ps_buf_release(request->parts[i].value);
    }
    if (request->parts != &request->one) {
        free(request->parts);
    }
    ps_buf_release(request->payload);
    ps_list_remove(&request->node);
    ps_list_remove(&request->unsent);
    ps_pool_put(home->requests, request);
}

/* All values one behind the other. */
static struct ps_buf *join_values(const struct server_request *request, size_t bytes)
{
    struct ps_buf *out = ps_buf_create(bytes);
    char *at = out != NULL ? out->data : NULL;
    for (uint32_t i = 0; out != NULL && i < request->count; i++) {
        const struct ps_buf *value = request->parts[i].value;
        if (value != NULL) {
            memcpy(at, value->data, value->size);
            at += value->size;
        }
    }
    return out;
}

static enum ps_status send_reply(struct server_request *request)
{
    struct ps_net_link *link = request->peer->link;
    struct ps_buf records = {.data = &request->one.record,
                             .size = sizeof(struct ps_record)};
    struct ps_frame frame = {.records = &records, .record_count = request->count};
    struct ps_buf *own_records = NULL, *own_payload = NULL;
    enum ps_status status = PS_FAULT(request->home->server->node, "server.before_reply");
    if (status != PS_OK) {
        return ps_net_reply(link, &request->head, status, NULL);
    }
    if (request->count == 1) {
        frame.payload = request->one.value; /* by reference: nothing is copied */
    } else {
        size_t bytes = 0;
        own_records = ps_buf_create(request->count * sizeof(struct ps_record));
        for (uint32_t i = 0; own_records != NULL && i < request->count; i++) {
            ((struct ps_record *)own_records->data)[i] = request->parts[i].record;
            bytes += request->parts[i].record.bytes;
        }
        own_payload = bytes > 0 ? join_values(request, bytes) : NULL;
        if (own_records == NULL || (bytes > 0 && own_payload == NULL)) {
            status = PS_ENOMEM;
        }
        frame.records = own_records;
        frame.payload = own_payload;
    }
    frame.payload_bytes = frame.payload != NULL ? frame.payload->size : 0;
    status = status == PS_OK ? ps_net_reply(link, &request->head, PS_OK, &frame)
                             : ps_net_reply(link, &request->head, status, NULL);
    ps_buf_release(own_records);
    ps_buf_release(own_payload);
    return status;
}

/* False: no room, it waits for 'ready'. */
static bool reply(struct server_request *request)
{
    bool superseded = false;
    for (uint32_t i = 0; i < request->count; i++) {
        superseded = superseded || request->parts[i].superseded;
    }
    if (request->peer != NULL && !superseded && !request->home->server->closing &&
        send_reply(request) == PS_EAGAIN) {
        return false;
    }
    free_request(request);
    return true;
}

static void request_answered(struct server_request *request)
{
    struct lane_peer *peer = request->peer;
    if (peer != NULL && !ps_list_empty(&peer->unsent)) {
        ps_list_push_back(&peer->unsent, &request->unsent); /* in order */
    } else if (!reply(request)) {
        ps_list_push_back(&peer->unsent, &request->unsent);
    }
}

void server_data_flush(struct lane_peer *peer)
{
    while (!ps_list_empty(&peer->unsent)) {
        struct server_request *request =
            PS_CONTAINER_OF(peer->unsent.next, struct server_request, unsent);
        if (!reply(request)) {
            return;
        }
    }
}

void server_data_peer_gone(struct lane_peer *peer)
{
    struct ps_list *item = peer->lane->live.next;
    while (item != &peer->lane->live) {
        struct server_request *request =
            PS_CONTAINER_OF(item, struct server_request, node);
        item = item->next;
        if (request->peer == peer) {
            bool over = !ps_list_empty(&request->unsent);
            request->peer = NULL;
            if (over) {
                free_request(request);
            }
        }
    }
}

void server_data_fini(struct server_lane *lane)
{
    while (!ps_list_empty(&lane->live)) {
        free_request(PS_CONTAINER_OF(lane->live.next, struct server_request, node));
    }
}

/* ---- counting parts ---- */

static void on_answered(struct ps_task *task)
{
    request_answered(PS_CONTAINER_OF(task, struct server_request, answered_task));
}

/* acq_rel: who counts the last sees what the other lanes wrote into their parts. */
static bool last(_Atomic uint32_t *counter)
{
    return atomic_fetch_sub_explicit(counter, 1, memory_order_acq_rel) == 1;
}

/* The last one lets the payload go, on whatever lane. */
static void part_handled(struct server_request *request)
{
    if (last(&request->handling)) {
        ps_buf_release(request->payload);
        request->payload = NULL;
    }
}

static void part_answered(struct server_request *request, struct server_lane *here)
{
    if (!last(&request->waiting)) {
        return;
    }
    if (here == request->home || here->server->closing) {
        request_answered(request);
    } else {
        (void)ps_loop_post(request->home->loop, &request->answered_task);
    }
}

void server_data_answer(void *ctx, struct ps_entry_ask *ask,
                        const struct ps_entry_answer *answer)
{
    struct server_part *part = PS_CONTAINER_OF(ask, struct server_part, ask);
    struct ps_record *record = &part->record;
    part->superseded = answer->status == PS_ECANCELED;
    record->status = answer->status;
    record->version = answer->version;
    record->segment_offset = answer->contributors;
    if (answer->status != PS_OK) {
        part->value = ps_msg_error_pack(answer->text);
    } else if (answer->value != NULL) {
        part->value = ps_buf_retain(answer->value);
    }
    record->bytes = part->value != NULL ? (uint32_t)part->value->size : 0;
    part_answered(part->request, ctx);
}

/* ---- parts ---- */

static void refuse_part(struct server_lane *lane, struct server_part *part,
                        enum ps_status status, const char *text)
{
    struct ps_entry_answer answer = {.status = status, .text = text};
    lane->refused_count++;
    server_data_answer(lane, &part->ask, &answer);
}

static enum ps_status check_part(const struct server_lane *lane,
                                 const struct server_part *part,
                                 struct ps_entry **entry_out, struct ps_error *err)
{
    const struct ps_record *r = &part->record;
    if (lane->failed.status != PS_OK) {
        return ps_error_set(err, lane->failed.status, "%s", lane->failed.text);
    }
    PS_TRY(server_keys_find(lane, r, entry_out, err));
    if (r->op != PS_REC_PULL) {
        enum ps_status status = PS_FAULT(lane->server->node, "server.before_merge");
        if (status != PS_OK) {
            return ps_error_set(err, status, "%s", ps_status_text(status));
        }
    }
    return PS_OK;
}

/* On the part's lane. */
static void run_part(struct server_part *part)
{
    struct server_request *request = part->request;
    struct server_lane *lane = part->lane;
    struct ps_entry *entry = NULL;
    struct ps_error err = {0};
    enum ps_status status = check_part(lane, part, &entry, &err);
    if (status != PS_OK) {
        refuse_part(lane, part, status, err.text);
        return;
    }
    size_t bytes = part->record.bytes;
    const char *data =
        bytes > 0 ? (const char *)request->payload->data + part->offset : NULL;
    /* In memory worlds the payload is the sender's own memory, which it wants back. */
    struct ps_buf *hold = lane->server->node->net_world == NULL ? request->payload : NULL;
    ps_entry_ask(entry, &part->ask, data, bytes, hold);
}

static void on_part(struct ps_task *task)
{
    struct server_part *part = PS_CONTAINER_OF(task, struct server_part, task);
    struct server_request *request = part->request;
    struct server_lane *lane = part->lane;
    run_part(part);
    part_handled(request);
    part_answered(request, lane); /* handled: the request may end now */
}

/* ---- arrival ---- */

static void refuse_frame(struct server_lane *lane, struct lane_peer *peer,
                         const struct ps_frame *frame, enum ps_status status,
                         const char *text)
{
    struct ps_buf *body = ps_msg_error_pack(text);
    struct ps_frame reply_frame = {.payload = body,
                                   .payload_bytes = body != NULL ? body->size : 0};
    lane->refused_count++;
    PS_LOG_LIMITED(lane->server->node->log, &lane->bad_limit, WARN, SERVER,
                   "%s request refused: %s", ps_net_link_text(peer->link), text);
    if (ps_net_reply(peer->link, &frame->head, status, &reply_frame) != PS_OK) {
        PS_LOG(lane->server->node->log, DEBUG, SERVER, "refusal not sent to rank %u",
               peer->rank);
    }
    ps_buf_release(body);
}

static enum ps_status make_request(struct server_lane *lane, struct lane_peer *peer,
                                   const struct ps_frame *frame,
                                   struct server_request **request_out)
{
    struct server_request *request = ps_pool_get(lane->requests);
    if (request == NULL) {
        return PS_EAGAIN;
    }
    request->parts = &request->one;
    if (frame->record_count > 1) {
        request->parts = calloc(frame->record_count, sizeof(struct server_part));
    }
    if (request->parts == NULL) {
        ps_pool_put(lane->requests, request);
        return PS_ENOMEM;
    }
    request->home = lane;
    request->peer = peer;
    request->head = frame->head;
    request->count = (uint32_t)frame->record_count;
    request->answered_task =
        (struct ps_task){.run = on_answered, .label = "server.answered"};
    if (frame->payload != NULL) {
        request->payload = ps_buf_retain(frame->payload);
    }
    ps_list_init(&request->unsent);
    ps_list_push_back(&lane->live, &request->node);
    *request_out = request;
    return PS_OK;
}

/* Fills the parts from checked records; PS_EPERM when they speak for another rank. */
static enum ps_status fill_parts(struct server_request *request,
                                 const struct ps_record *records, struct ps_error *err)
{
    struct ps_server *server = request->home->server;
    uint64_t offset = 0;
    for (uint32_t i = 0; i < request->count; i++) {
        struct server_part *part = &request->parts[i];
        const struct ps_record *r = &records[i];
        if (r->rank_first != request->peer->rank || r->rank_count != 1) {
            return ps_error_set(err, PS_EPERM,
                                "record %u speaks for ranks %u+%u on the link of rank %u",
                                i, r->rank_first, r->rank_count, request->peer->rank);
        }
        part->request = request;
        part->lane = &server->lanes[ps_shard_lane(r->shard, server->lane_count)];
        part->record = *r;
        part->offset = offset;
        part->task = (struct ps_task){.run = on_part, .label = "server.part"};
        part->ask = (struct ps_entry_ask){
            .step = r->step,
            .id = ps_hash_u64((uint64_t)request->peer->member << 32 ^ request->head.req),
            .rank = r->rank_first,
            .op = r->op};
        offset += r->bytes;
    }
    return PS_OK;
}

static void dispatch(struct server_lane *lane, struct server_request *request)
{
    uint32_t count = request->count;
    /* A request is over when each part is handled and answered, and this function ends.
     */
    atomic_init(&request->handling, count + 1);
    atomic_init(&request->waiting, 2 * count + 1);
    for (uint32_t i = 0; i < count; i++) {
        struct server_part *part = &request->parts[i];
        if (part->lane == lane) {
            run_part(part);
            part_handled(request);
            part_answered(request, lane);
        } else {
            (void)ps_loop_post(part->lane->loop, &part->task);
        }
    }
    part_handled(request);
    part_answered(request, lane);
}

void server_data_landed(struct server_lane *lane, struct lane_peer *peer,
                        const struct ps_frame *frame)
{
    struct ps_record one, *records = &one;
    struct ps_error err = {0};
    struct server_request *request = NULL;
    size_t n = frame->record_count;
    lane->requests_count++;
    if (n > 1 && (records = malloc(n * sizeof(*records))) == NULL) {
        refuse_frame(lane, peer, frame, PS_ENOMEM, "out of memory");
        return;
    }
    enum ps_status status =
        ps_records_check(frame->records != NULL ? frame->records->data : NULL, n,
                         frame->payload_bytes, false, records, &err);
    if (status == PS_OK) {
        status = make_request(lane, peer, frame, &request);
    }
    if (status == PS_OK) {
        status = fill_parts(request, records, &err);
    }
    if (status == PS_OK) {
        dispatch(lane, request);
    } else {
        refuse_frame(lane, peer, frame, status,
                     err.text[0] != '\0' ? err.text : ps_status_text(status));
        if (request != NULL) {
            free_request(request);
        }
    }
    if (records != &one) {
        free(records);
    }
}
