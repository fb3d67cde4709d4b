/* Requests cut into chunks, the worker's chunk queue, and what the servers answer.
 *
 * A chunk operation is one record in one frame: it waits in its lane's queue by priority,
 * then arrival; goes out as a call when the link has room; and is over when it was
 * answered and the transport has let go of its buffers (only then may the caller's memory
 * be touched again). Everything here but ps_dist_submit_chunks runs on the data loop. */
#include "kvstore/dist.h"

#include "base/str.h"

#include <inttypes.h>
#include <string.h>

#define DELAY_NS                                                           \
    (10 * PS_NS_PER_MS) /* before a chunk that was told to come again does \
                         */

struct chunk_op {
    struct ps_net_call call;
    struct ps_heap_item item;
    struct ps_list node; /* inbox, pending, delayed or finished */
    struct ps_dist_request *request;
    struct ps_dist_lane *lane;
    struct ps_record record;
    struct ps_buf records, payload; /* over 'record' and the request's memory */
    _Atomic int holds;              /* answer + buffers that are still out */
};

static void finish(struct chunk_op *op);

/* One hold less; the last one ends the operation on the loop. */
static void let_go(struct chunk_op *op)
{
    /* acq_rel: whoever ends it sees what the others did with the buffers */
    if (atomic_fetch_sub_explicit(&op->holds, 1, memory_order_acq_rel) != 1) {
        return;
    }
    struct ps_dist *dist = op->lane->dist;
    if (ps_loop_is_current(dist->loop)) {
        finish(op);
        return;
    }
    ps_mutex_lock(&dist->mutex);
    ps_list_push_back(&dist->finished, &op->node);
    ps_doorbell_ring(&dist->bell); /* under the lock: the loop may end the last request,
                                      and its waiter the store, as soon as it is free */
    ps_mutex_unlock(&dist->mutex);
}

static void release_part(struct ps_buf *buf)
{
    let_go(buf->owner);
}

static void buf_init(struct ps_buf *buf, void *data, size_t size, struct chunk_op *op)
{
    atomic_init(&buf->refs, 1);
    buf->data = data;
    buf->size = size;
    buf->release = release_part;
    buf->owner = op;
}

/* ---- answers ---- */

static const struct ps_record *reply_record(const struct ps_frame *reply)
{
    return reply->record_count == 1 && reply->records != NULL ? reply->records->data
                                                              : NULL;
}

/* Whether the answer is the value of exactly this chunk. */
static bool answers_chunk(const struct chunk_op *op, const struct ps_frame *reply,
                          size_t payload_bytes)
{
    const struct ps_record *record = reply_record(reply);
    return record != NULL && record->status == PS_OK &&
           record->handle == op->record.handle && record->first == op->record.first &&
           record->count == op->record.count && record->dtype == op->record.dtype &&
           payload_bytes == record->bytes &&
           (size_t)record->bytes == (size_t)record->count * ps_dtype_size(record->dtype);
}

static bool wants_value(const struct chunk_op *op)
{
    return op->record.op == PS_REC_PULL || op->record.op == PS_REC_PUSHPULL;
}

static char *chunk_dst(const struct chunk_op *op, uint32_t i)
{
    return (char *)op->request->user->dst[i] +
           op->record.first * ps_dtype_size(op->record.dtype);
}

static void *on_place(struct ps_net_call *call, const struct ps_frame *reply)
{
    struct chunk_op *op = PS_CONTAINER_OF(call, struct chunk_op, call);
    if (!wants_value(op) || op->request->user->dst_count == 0 ||
        !answers_chunk(op, reply, reply->payload_bytes)) {
        return NULL;
    }
    return chunk_dst(op, 0);
}

static void request_fail(struct ps_dist_request *request, enum ps_status status,
                         const char *text)
{
    if (request->error.status == PS_OK) {
        (void)ps_error_set(&request->error, status, "key %s step %" PRIu64 ": %s",
                           request->key->row.name, request->step, text);
    }
}

static void take_answer(struct chunk_op *op, const struct ps_frame *reply)
{
    struct ps_dist_request *request = op->request;
    const struct ps_record *record = reply_record(reply);
    if (record == NULL) {
        request_fail(request, PS_EPROTO, "the server's answer has no record");
        return;
    }
    if (record->status != PS_OK) {
        struct ps_error words = {.status = PS_OK};
        if (reply->payload != NULL) {
            ps_msg_error_read(reply->payload->data, reply->payload->size, &words);
        }
        enum ps_status status = (enum ps_status)record->status;
        request_fail(request, status,
                     words.text[0] != '\0' ? words.text : ps_status_text(status));
        return;
    }
    request->version = record->version;
    request->contributors = (uint32_t)record->segment_offset;
    if (!wants_value(op)) {
        return;
    }
    if (!answers_chunk(op, reply, reply->payload_bytes)) {
        request_fail(request, PS_EPROTO, "the server's answer does not fit the chunk");
        return;
    }
    uint32_t i = 0;
    const void *value = reply->payload != NULL ? reply->payload->data : NULL;
    if (reply->placed != NULL) {
        value = reply->placed;
        i = 1;
    }
    for (; i < op->request->user->dst_count; i++) {
        memcpy(chunk_dst(op, i), value, record->bytes);
    }
}

static void on_done(struct ps_net_call *call, enum ps_status status,
                    const struct ps_frame *reply, const struct ps_error *err)
{
    struct chunk_op *op = PS_CONTAINER_OF(call, struct chunk_op, call);
    struct ps_dist *dist = op->lane->dist;
    struct ps_error job;
    ps_list_remove(&op->node);
    const struct ps_record *record = reply != NULL ? reply_record(reply) : NULL;
    bool again = status == PS_EAGAIN || (record != NULL && record->status == PS_EAGAIN);
    if (again && ps_dist_error(dist, NULL) == PS_OK) {
        ps_list_push_back(&dist->delayed, &op->node);
        if (dist->delay_timer.slot == 0 &&
            ps_timer_start(dist->loop, &dist->delay_timer, DELAY_NS) == PS_OK) {
            return;
        }
        if (dist->delay_timer.slot != 0) {
            return;
        }
        ps_list_remove(&op->node);
    }
    if (record != NULL) {
        take_answer(op, reply);
    } else if (ps_dist_error(dist, &job) != PS_OK) {
        request_fail(op->request, job.status, job.text);
    } else {
        request_fail(op->request, status != PS_OK ? status : PS_EPROTO,
                     err != NULL && err->text[0] != '\0' ? err->text
                                                         : ps_status_text(status));
    }
    ps_buf_release(&op->records);
    ps_buf_release(&op->payload);
    let_go(op);
}

static void finish(struct chunk_op *op)
{
    struct ps_dist_request *request = op->request;
    ps_pool_put(op->lane->dist->chunk_pool, op);
    if (--request->remaining == 0) {
        ps_dist_request_done(request);
    }
}

/* Ends an operation that never went out (or never will again). */
static void drop(struct chunk_op *op, const struct ps_error *err)
{
    request_fail(op->request, err->status, err->text);
    ps_buf_release(&op->records);
    ps_buf_release(&op->payload);
    let_go(op);
}

/* ---- the queue ---- */

void ps_dist_dispatch(struct ps_dist_lane *lane)
{
    struct ps_heap_item *item;
    while (lane->up && (item = ps_heap_peek(&lane->queue)) != NULL) {
        struct chunk_op *op = PS_CONTAINER_OF(item, struct chunk_op, item);
        ps_list_push_back(&lane->dist->pending, &op->node);
        enum ps_status status = ps_net_call_start(lane->link, &op->call);
        if (status == PS_EAGAIN) {
            ps_list_remove(&op->node);
            return; /* 'ready' comes */
        }
        (void)ps_heap_pop(&lane->queue);
        if (status != PS_OK) {
            struct ps_error error;
            ps_list_remove(&op->node);
            (void)ps_error_set(&error, status, "server %" PRIu32 ": %s",
                               lane->server->rank, ps_status_text(status));
            drop(op, &error);
        }
    }
}

void ps_dist_lane_fail(struct ps_dist_lane *lane, const struct ps_error *err)
{
    struct ps_heap_item *item;
    while ((item = ps_heap_pop(&lane->queue)) != NULL) {
        drop(PS_CONTAINER_OF(item, struct chunk_op, item), err);
    }
}

static void enqueue(struct chunk_op *op)
{
    struct ps_error error;
    if (ps_dist_error(op->lane->dist, &error) != PS_OK) {
        drop(op, &error);
    } else if (op->lane->link == NULL) {
        (void)ps_error_set(&error, PS_EPEER, "server %" PRIu32 " is lost",
                           op->lane->server->rank);
        drop(op, &error);
    } else if (ps_heap_push(&op->lane->queue, &op->item) != PS_OK) {
        (void)ps_error_set(&error, PS_ENOMEM, "chunk queue: out of memory");
        drop(op, &error);
    }
}

static void dispatch_all(struct ps_dist *dist)
{
    for (uint32_t rank = 0; rank < dist->server_count; rank++) {
        for (uint32_t i = 0; i < dist->lane_counts[rank]; i++) {
            ps_dist_dispatch(&dist->lanes[rank][i]);
        }
    }
}

static void end_everything(struct ps_dist *dist, const struct ps_error *error)
{
    struct ps_list *node;
    for (uint32_t rank = 0; rank < dist->server_count; rank++) {
        for (uint32_t i = 0; i < dist->lane_counts[rank]; i++) {
            ps_dist_lane_fail(&dist->lanes[rank][i], error);
        }
    }
    while ((node = ps_list_pop_front(&dist->delayed)) != NULL) {
        drop(PS_CONTAINER_OF(node, struct chunk_op, node), error);
    }
    while (!ps_list_empty(&dist->pending)) { /* on_done takes it off the list */
        node = dist->pending.next;
        ps_net_call_cancel(&PS_CONTAINER_OF(node, struct chunk_op, node)->call);
    }
}

void ps_dist_bell(struct ps_doorbell *bell)
{
    struct ps_dist *dist = PS_CONTAINER_OF(bell, struct ps_dist, bell);
    struct ps_list inbox, finished;
    struct ps_list *node;
    struct ps_error error;
    ps_list_init(&inbox);
    ps_list_init(&finished);
    ps_mutex_lock(&dist->mutex);
    while ((node = ps_list_pop_front(&dist->inbox)) != NULL) {
        ps_list_push_back(&inbox, node);
    }
    while ((node = ps_list_pop_front(&dist->finished)) != NULL) {
        ps_list_push_back(&finished, node);
    }
    error = dist->error;
    ps_mutex_unlock(&dist->mutex);
    while ((node = ps_list_pop_front(&finished)) != NULL) {
        finish(PS_CONTAINER_OF(node, struct chunk_op, node));
    }
    bool any = !ps_list_empty(&inbox);
    while ((node = ps_list_pop_front(&inbox)) != NULL) {
        enqueue(PS_CONTAINER_OF(node, struct chunk_op, node));
    }
    if (error.status != PS_OK) {
        end_everything(dist, &error);
    } else if (any) {
        dispatch_all(dist);
    }
}

void ps_dist_delay_over(struct ps_timer *timer)
{
    struct ps_dist *dist = PS_CONTAINER_OF(timer, struct ps_dist, delay_timer);
    struct ps_list *node;
    while ((node = ps_list_pop_front(&dist->delayed)) != NULL) {
        enqueue(PS_CONTAINER_OF(node, struct chunk_op, node));
    }
    dispatch_all(dist);
}

/* ---- cutting ---- */

static int clamp_priority(int priority)
{
    return PS_MAX(INT16_MIN, PS_MIN(INT16_MAX, priority));
}

static struct chunk_op *make_op(struct ps_dist_request *request,
                                const struct ps_extent *extent, uint64_t first,
                                uint64_t count)
{
    struct ps_dist_store *store = request->store->impl;
    struct ps_dist *dist = store->dist;
    const struct ps_key_row *row = &request->key->row;
    struct chunk_op *op = ps_pool_get(dist->chunk_pool);
    if (op == NULL) {
        return NULL;
    }
    op->request = request;
    op->lane = ps_dist_lane_of(dist, extent->shard);
    op->item.priority = request->priority;
    op->record = (struct ps_record){
        .handle = row->handle,
        .step = request->step,
        .first = first,
        .count = (uint32_t)count,
        .shard = extent->shard,
        .rank_first = (uint16_t)request->store->rank,
        .rank_count = 1,
        .dtype = (uint8_t)row->dtype,
        .codec = PS_CODEC_NONE,
        .op = request->op,
    };
    const char *data = NULL;
    if (request->op == PS_REC_ABORT) {
        data = request->user->error.text;
        op->record.bytes = (uint32_t)strlen(data);
    } else if (request->op != PS_REC_PULL && request->payload != NULL) {
        data = request->payload + first * ps_dtype_size(row->dtype);
        op->record.bytes = (uint32_t)(count * ps_dtype_size(row->dtype));
    }
    atomic_init(&op->holds, 3); /* the answer, the records, the payload */
    buf_init(&op->records, &op->record, sizeof(op->record), op);
    buf_init(&op->payload, (void *)(uintptr_t)data, op->record.bytes, op);
    op->call.done = on_done;
    op->call.place = on_place;
    op->call.what = ps_record_op_name(request->op);
    op->call.frame.head.kind = PS_KIND_DATA;
    op->call.frame.head.priority = (int16_t)clamp_priority(request->priority);
    bool empty = request->op == PS_REC_PUSH || request->op == PS_REC_PUSHPULL;
    op->call.frame.head.flags = empty && data == NULL ? PS_FLAG_EMPTY : 0;
    op->call.frame.records = &op->records;
    op->call.frame.record_count = 1;
    op->call.frame.payload = op->record.bytes > 0 ? &op->payload : NULL;
    op->call.frame.payload_bytes = op->record.bytes;
    ps_list_init(&op->node);
    return op;
}

enum ps_status ps_dist_submit_chunks(struct ps_dist_request *request)
{
    struct ps_dist_store *store = request->store->impl;
    struct ps_dist *dist = store->dist;
    struct ps_dist_key *key = request->key->impl;
    const struct ps_key_row *row = &request->key->row;
    struct ps_list ops, *node;
    ps_list_init(&ops);
    for (size_t e = 0; e < row->extent_count; e++) {
        const struct ps_extent *extent = &row->extents[e];
        for (uint64_t at = 0; at < extent->count; at += key->chunk_elements) {
            uint64_t count = PS_MIN(extent->count - at, key->chunk_elements);
            struct chunk_op *op = make_op(request, extent, extent->first + at, count);
            if (op == NULL) {
                while ((node = ps_list_pop_front(&ops)) != NULL) {
                    ps_pool_put(dist->chunk_pool,
                                PS_CONTAINER_OF(node, struct chunk_op, node));
                }
                return PS_ENOMEM;
            }
            ps_list_push_back(&ops, &op->node);
        }
    }
    request->remaining = key->chunk_count;
    ps_mutex_lock(&dist->mutex);
    while ((node = ps_list_pop_front(&ops)) != NULL) {
        ps_list_push_back(&dist->inbox, node);
    }
    ps_mutex_unlock(&dist->mutex);
    ps_doorbell_ring(&dist->bell);
    return PS_OK;
}

enum ps_status ps_dist_chunks_open(struct ps_dist *dist)
{
    ps_list_init(&dist->inbox);
    ps_list_init(&dist->finished);
    ps_list_init(&dist->pending);
    ps_list_init(&dist->delayed);
    dist->delay_timer.run = ps_dist_delay_over;
    dist->delay_timer.label = "kvstore.delayed";
    ps_doorbell_init(&dist->bell, dist->loop, "kvstore.inbox", ps_dist_bell);
    PS_TRY(ps_pool_create(sizeof(struct chunk_op), 64, 0, false, &dist->chunk_pool));
    return ps_pool_create(sizeof(struct ps_dist_request), 64, 0, false,
                          &dist->request_pool);
}

void ps_dist_chunks_close(struct ps_dist *dist)
{
    ps_pool_destroy(dist->request_pool);
    ps_pool_destroy(dist->chunk_pool);
    dist->request_pool = NULL;
    dist->chunk_pool = NULL;
}
