/* A link's queue and the sending side.
 *
 * Frames are queued with head and records in one pooled buffer; ids, sequence number,
 * epoch and crc are stamped when the transport takes the frame, so that a frame queued
 * before a registration or a reconnect carries what holds then.  Within a link the order
 * is first in, first out.  Thread: the end's loop. */
#include "net/end.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum ps_status ps_link_create(struct ps_net_end *end, const struct ps_net_ops *ops,
                              struct ps_net_link **link_out)
{
    struct ps_net_link *link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return PS_ENOMEM;
    }
    link->end = end;
    link->ops = ops;
    link->hello.rank = UINT32_MAX;
    ps_list_init(&link->queue);
    ps_list_init(&link->calls);
    ps_list_push_back(&end->links, &link->node);
    *link_out = link;
    return PS_OK;
}

static void drop_out(struct ps_net_link *link, struct ps_out *out)
{
    ps_list_remove(&out->node);
    link->queued_bytes -= out->bytes;
    ps_buf_release(out->head);
    ps_buf_release(out->payload);
    ps_pool_put(link->end->outs, out);
}

static void drop_queue(struct ps_net_link *link)
{
    while (!ps_list_empty(&link->queue)) {
        drop_out(link, PS_CONTAINER_OF(link->queue.next, struct ps_out, node));
    }
}

void ps_link_kill(struct ps_net_link *link, enum ps_status status, const char *why)
{
    if (link->state == PS_LINK_DEAD) {
        return;
    }
    link->state = PS_LINK_DEAD;
    ps_timer_cancel(&link->timer);
    if (link->peer != NULL) {
        link->ops->hangup(link->peer);
        link->peer = NULL;
    }
    drop_queue(link);
    ps_list_remove(&link->node);
    ps_list_push_back(&link->end->dead, &link->node);
    while (!ps_list_empty(&link->calls)) {
        struct ps_net_call *call =
            PS_CONTAINER_OF(link->calls.next, struct ps_net_call, node);
        struct ps_error err;
        (void)ps_error_set(&err, status, "%s: %s (%s)", call->what, why, link->text);
        ps_call_finish(call, status, NULL, &err);
    }
}

void ps_net_link_close(struct ps_net_link *link)
{
    struct ps_net_end *end = link->end;
    ps_end_enter(end);
    ps_link_goodbye(link, false);
    ps_link_kill(link, PS_ECANCELED, "the link was closed");
    ps_end_leave(end);
}

/* ---- what a link is ---- */

void ps_link_describe(struct ps_net_link *link)
{
    const struct ps_hello *peer = &link->hello;
    const char *at = link->url[0] != '\0' ? link->url : peer->host;
    char who[32];
    if (peer->role == PS_ROLE_NONE) {
        snprintf(who, sizeof(who), "%s", peer->nonce != 0 ? "a tool" : "peer");
    } else if (peer->rank == UINT32_MAX || peer->role == PS_ROLE_SCHEDULER) {
        snprintf(who, sizeof(who), "%s", ps_role_name(peer->role));
    } else {
        snprintf(who, sizeof(who), "%s/%" PRIu32, ps_role_name(peer->role), peer->rank);
    }
    if (peer->nonce == 0) {
        snprintf(link->text, sizeof(link->text), "%s (%s)", who, at);
    } else if (peer->member == PS_MEMBER_NONE) {
        snprintf(link->text, sizeof(link->text), "%s (pid %" PRIu32 ", %s)", who,
                 peer->pid, at);
    } else {
        snprintf(link->text, sizeof(link->text),
                 "%s (member %" PRIu32 ", pid %" PRIu32 ", %s)", who, peer->member,
                 peer->pid, at);
    }
}

void ps_net_link_set_ctx(struct ps_net_link *link, void *link_ctx)
{
    link->ctx = link_ctx;
}

void *ps_net_link_ctx(const struct ps_net_link *link)
{
    return link->ctx;
}

const struct ps_hello *ps_net_link_peer(const struct ps_net_link *link)
{
    return &link->hello;
}

void ps_net_link_set_peer(struct ps_net_link *link, uint32_t member, uint32_t rank)
{
    link->hello.member = member;
    link->hello.rank = rank;
    ps_link_describe(link);
}

struct ps_net_end *ps_net_link_end(struct ps_net_link *link)
{
    return link->end;
}

const char *ps_net_link_text(const struct ps_net_link *link)
{
    return link->text;
}

bool ps_net_link_secure(const struct ps_net_link *link)
{
    PS_UNUSED(link);
    return false; /* no transport authenticates yet: net/secure.h */
}

bool ps_net_link_lossless(const struct ps_net_link *link)
{
    return link->ops->lossless;
}

size_t ps_net_link_queued_bytes(const struct ps_net_link *link)
{
    return link->queued_bytes;
}

/* ---- sending ---- */

static void stamp(const struct ps_net_end *end, struct ps_link_head *head, uint32_t dst,
                  uint32_t seq)
{
    head->link_seq = seq;
    head->src = end->self.member;
    head->dst = dst;
    head->epoch = end->epoch;
    ps_link_head_seal(head);
}

void ps_link_drain(struct ps_net_link *link)
{
    struct ps_net_end *end = link->end;
    while (link->state == PS_LINK_UP && !link->blocked && !ps_list_empty(&link->queue)) {
        struct ps_out *out = PS_CONTAINER_OF(link->queue.next, struct ps_out, node);
        stamp(end, out->head->data, link->hello.member, link->tx_seq + 1);
        enum ps_status status = link->ops->send(link->peer, out->head, out->payload);
        if (status != PS_OK) {
            /* Room, or the news of the loss, comes as an event. */
            link->blocked = true;
            return;
        }
        link->tx_seq++;
        end->counters.frames_out++;
        end->counters.bytes_out += out->bytes;
        if (out->call != 0) {
            ps_call_sent(end, out->call);
        }
        drop_out(link, out);
    }
}

void ps_link_ready(struct ps_net_link *link)
{
    struct ps_net_end *end = link->end;
    if (link->want_ready && link->state == PS_LINK_UP &&
        link->queued_bytes <= end->queue_bytes / 2) {
        link->want_ready = false;
        if (end->handler.ready != NULL) {
            end->handler.ready(end->ctx, link);
        }
    }
}

void ps_end_send_now(struct ps_net_end *end, const struct ps_net_ops *ops,
                     struct ps_wire_peer *peer, const struct ps_link_head *head,
                     struct ps_buf *payload)
{
    struct ps_buf *buf = ps_head_pool_get(end->heads, PS_LINK_HEAD_BYTES);
    if (buf == NULL) {
        return;
    }
    struct ps_link_head full = *head;
    full.magic = PS_WIRE_MAGIC;
    full.head_bytes = PS_LINK_HEAD_BYTES;
    full.body_bytes = payload == NULL ? 0 : (uint32_t)payload->size;
    stamp(end, &full, head->dst, 0);
    memcpy(buf->data, &full, sizeof(full));
    enum ps_status status = ops->send(peer, buf, payload);
    if (status != PS_OK) {
        PS_LOG(end->node->log, DEBUG, NET, "HELLO not sent: %s", ps_status_text(status));
    }
    ps_buf_release(buf);
}

static enum ps_status check_outgoing(const struct ps_net_link *link,
                                     const struct ps_frame *frame)
{
    if (frame->record_count > PS_RECORDS_MAX ||
        (frame->record_count > 0 &&
         (frame->records == NULL ||
          frame->records->size < frame->record_count * PS_RECORD_BYTES))) {
        return PS_ERANGE;
    }
    uint64_t limit = link->hello.frame_bytes_max != 0 ? link->hello.frame_bytes_max
                                                      : link->end->body_max;
    if (frame->payload != NULL && frame->payload->size > PS_MIN(limit, UINT32_MAX)) {
        return PS_ERANGE;
    }
    return PS_OK;
}

static struct ps_out *make_out(struct ps_net_end *end, const struct ps_frame *frame)
{
    size_t records = frame->record_count * PS_RECORD_BYTES;
    struct ps_out *out = ps_pool_get(end->outs);
    if (out == NULL) {
        return NULL;
    }
    out->head = ps_head_pool_get(end->heads, PS_LINK_HEAD_BYTES + records);
    if (out->head == NULL) {
        ps_pool_put(end->outs, out);
        return NULL;
    }
    struct ps_link_head head = frame->head;
    head.magic = PS_WIRE_MAGIC;
    head.head_bytes = (uint16_t)(PS_LINK_HEAD_BYTES + records);
    head.flags = frame->record_count > 1 ? head.flags | PS_FLAG_BUNDLE
                                         : head.flags & ~(uint32_t)PS_FLAG_BUNDLE;
    head.body_bytes = frame->payload == NULL ? 0 : (uint32_t)frame->payload->size;
    head.body_crc = 0;
    head.credit = 0;
    char *data = out->head->data;
    if (records > 0) {
        memcpy(data + PS_LINK_HEAD_BYTES, frame->records->data, records);
    }
    if ((head.flags & PS_FLAG_BODY_CRC) != 0) {
        head.body_crc = ps_crc32c(0, data + PS_LINK_HEAD_BYTES, records);
        if (head.body_bytes > 0) {
            head.body_crc =
                ps_crc32c(head.body_crc, frame->payload->data, head.body_bytes);
        }
    }
    memcpy(data, &head, sizeof(head));
    if (head.body_bytes > 0) {
        out->payload = ps_buf_retain(frame->payload);
    }
    out->bytes = PS_LINK_HEAD_BYTES + records + head.body_bytes;
    return out;
}

enum ps_status ps_link_submit(struct ps_net_link *link, const struct ps_frame *frame,
                              bool force, uint64_t call)
{
    struct ps_net_end *end = link->end;
    if (link->state == PS_LINK_DEAD) {
        return PS_EPEER;
    }
    PS_TRY(check_outgoing(link, frame));
    size_t bytes = frame->payload == NULL ? 0 : frame->payload->size;
    if (!force && link->queued_bytes > 0 &&
        link->queued_bytes + bytes > end->queue_bytes) {
        link->want_ready = true;
        return PS_EAGAIN;
    }
    struct ps_out *out = make_out(end, frame);
    if (out == NULL) {
        return PS_ENOMEM;
    }
    out->call = call;
    ps_list_push_back(&link->queue, &out->node);
    link->queued_bytes += out->bytes;
    ps_link_drain(link);
    return PS_OK;
}

enum ps_status ps_net_send(struct ps_net_link *link, const struct ps_frame *frame)
{
    return ps_link_submit(link, frame, false, 0);
}

enum ps_status ps_net_reply(struct ps_net_link *link, const struct ps_link_head *request,
                            enum ps_status status, const struct ps_frame *body)
{
    static const struct ps_frame empty;
    struct ps_frame frame = body != NULL ? *body : empty;
    frame.head.kind = request->kind;
    frame.head.req = request->req;
    frame.head.flags = (frame.head.flags | PS_FLAG_REPLY) & ~(uint32_t)PS_FLAG_RETRY;
    frame.head.status = status;
    if (frame.head.priority == 0) {
        frame.head.priority = request->priority;
    }
    return ps_link_submit(link, &frame, request->kind != PS_KIND_DATA, 0);
}
