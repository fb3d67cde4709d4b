/* Frames that came: everything is checked before anything is believed.
 *
 * Order: the head by itself (wire.c), its lengths against what the transport brought,
 * the table of roles and states, source, destination, term, sequence number.  What fails
 * is dropped, counted and logged at most once a second; a request that a known peer may
 * not send is answered.  Nothing here can end the process or the link.
 * Thread: the end's loop. */
#include "net/end.h"

#include "net/hello.h"
#include "net/states.h"

#include <inttypes.h>
#include <string.h>

#define TERM_SHIFT 40
#define WINDOW 64

static void drop(struct ps_net_end *end, const struct ps_net_link *link,
                 const struct ps_error *why)
{
    end->counters.dropped++;
    PS_LOG_LIMITED(end->node->log, &end->garbage_limit, WARN, NET,
                   "frame dropped from %s: %s",
                   link == NULL ? "an unknown peer" : link->text, why->text);
}

/* A known peer's request that may not be: tell it why. */
static void answer_refusal(struct ps_net_link *link, const struct ps_link_head *head,
                           const struct ps_error *why)
{
    struct ps_frame frame;
    memset(&frame, 0, sizeof(frame));
    if ((head->flags & PS_FLAG_REPLY) != 0 || head->req == 0 ||
        ps_error_body_encode(why->text, &frame.payload) != PS_OK) {
        return;
    }
    if (ps_net_reply(link, head, why->status, &frame) != PS_OK) {
        PS_LOG(link->end->node->log, DEBUG, NET, "%s: refusal not sent", link->text);
    }
    ps_buf_release(frame.payload);
}

static enum ps_status check_ids(struct ps_net_link *link, const struct ps_link_head *head,
                                struct ps_error *err)
{
    const struct ps_net_end *end = link->end;
    /* 0: sent before it knew its number. */
    if (head->src != link->hello.member && head->src != PS_MEMBER_NONE) {
        if (link->hello.member != PS_MEMBER_NONE) {
            return ps_error_set(err, PS_EPROTO,
                                "source is member %" PRIu32 ", the link's is %" PRIu32,
                                head->src, link->hello.member);
        }
        link->hello.member = head->src; /* it has registered meanwhile */
        ps_link_describe(link);
    }
    if (head->dst != PS_MEMBER_NONE && end->self.member != PS_MEMBER_NONE &&
        head->dst != end->self.member) {
        return ps_error_set(err, PS_EPROTO,
                            "it is for member %" PRIu32 ", this is %" PRIu32, head->dst,
                            end->self.member);
    }
    return PS_OK;
}

static enum ps_status check_term(const struct ps_net_end *end,
                                 const struct ps_link_head *head, struct ps_error *err)
{
    uint64_t term = head->epoch >> TERM_SHIFT, ours = end->epoch >> TERM_SHIFT;
    if (head->epoch != 0 && term < ours && (head->flags & PS_FLAG_REPLY) == 0) {
        return ps_error_set(err, PS_ESTALE, "term %" PRIu64 " is over, this is %" PRIu64,
                            term, ours);
    }
    return PS_OK;
}

/* A sliding window over the last 64 numbers; what is older is let through, for nothing
 * says any more whether it came before.  False: it came before. */
static bool pass_sequence(struct ps_net_link *link, uint32_t seq)
{
    struct ps_net_end *end = link->end;
    uint32_t ahead = seq - link->rx_seq;
    if (ahead == 0) {
        return false;
    }
    if (ahead < UINT32_C(1) << 31) {
        if (ahead > 1 && link->ops->lossless) {
            end->counters.gaps += ahead - 1;
            PS_LOG_LIMITED(end->node->log, &end->gap_limit, WARN, NET,
                           "%s link_seq %" PRIu32 " after %" PRIu32, link->text, seq,
                           link->rx_seq);
        }
        link->rx_window = ahead >= WINDOW ? 0 : link->rx_window << ahead;
        link->rx_window |= 1;
        link->rx_seq = seq;
        return true;
    }
    uint32_t behind = 0 - ahead;
    if (behind >= WINDOW) {
        return true;
    }
    uint64_t bit = UINT64_C(1) << behind;
    if ((link->rx_window & bit) != 0) {
        return false;
    }
    link->rx_window |= bit;
    return true;
}

static enum ps_status check_link(struct ps_mount *mount, struct ps_net_link *link,
                                 const struct ps_link_head *head, struct ps_error *err)
{
    bool greeted = link != NULL && link->state == PS_LINK_UP;
    struct ps_frame_rule_query query = {
        .kind = head->kind,
        .reply = (head->flags & PS_FLAG_REPLY) != 0,
        .refusal = head->status != PS_OK,
        .from = greeted ? link->hello.role : PS_ROLE_NONE,
        .to = mount->end->self.role,
        .greeted = greeted,
        .registered = head->src != PS_MEMBER_NONE,
    };
    if (!greeted || head->kind == PS_KIND_HELLO) {
        return ps_frame_allowed(&query, err);
    }
    PS_TRY(check_ids(link, head, err));
    enum ps_status status = ps_frame_allowed(&query, err);
    if (status == PS_OK) {
        status = check_term(mount->end, head, err);
    }
    if (status != PS_OK) {
        answer_refusal(link, head, err);
    }
    return status;
}

static enum ps_status check_head(struct ps_mount *mount, struct ps_net_link *link,
                                 const void *data, size_t size, size_t payload_bytes,
                                 struct ps_error *err)
{
    struct ps_link_head *head = &mount->end->rx.head;
    PS_TRY(ps_link_head_check(data, size, mount->end->body_max, head, err));
    if (head->head_bytes != size) {
        return ps_error_set(err, PS_EPROTO, "head_bytes %u: %zu came",
                            (unsigned)head->head_bytes, size);
    }
    if (head->body_bytes != payload_bytes) {
        return ps_error_set(err, PS_EPROTO, "body_bytes %" PRIu32 ": %zu came",
                            head->body_bytes, payload_bytes);
    }
    if (head->kind == PS_KIND_HELLO &&
        (payload_bytes > PS_HELLO_BYTES_MAX || size != PS_LINK_HEAD_BYTES)) {
        return ps_error_set(err, PS_EPROTO, "HELLO of %zu bytes", payload_bytes);
    }
    return check_link(mount, link, head, err);
}

static enum ps_status keep_records(struct ps_net_end *end, const void *data, size_t size)
{
    struct ps_frame *rx = &end->rx;
    rx->records = NULL;
    rx->record_count = (size - PS_LINK_HEAD_BYTES) / PS_RECORD_BYTES;
    if (rx->record_count == 0) {
        return PS_OK;
    }
    rx->records = ps_head_pool_get(end->heads, size - PS_LINK_HEAD_BYTES);
    if (rx->records == NULL) {
        return PS_ENOMEM;
    }
    memcpy(rx->records->data, (const char *)data + PS_LINK_HEAD_BYTES,
           size - PS_LINK_HEAD_BYTES);
    return PS_OK;
}

/* Where the payload goes, if its receiver cares. */
static void choose_place(struct ps_net_end *end, struct ps_net_link *link)
{
    struct ps_frame *rx = &end->rx;
    end->rx_call = 0;
    if ((rx->head.flags & PS_FLAG_REPLY) != 0) {
        struct ps_net_call *call = ps_map_get(&end->calls, rx->head.req);
        if (call == NULL || call->link != link) {
            return;
        }
        end->rx_call = rx->head.req;
        if (call->place != NULL && rx->head.status == PS_OK && rx->payload_bytes > 0) {
            rx->placed = call->place(call, rx);
        }
    } else if (end->handler.place != NULL && rx->payload_bytes > 0) {
        rx->placed = end->handler.place(end->ctx, link, rx);
    }
}

enum ps_status ps_end_head(void *owner, struct ps_wire_peer *peer, void **peer_ctx,
                           const void *data, size_t size, size_t payload_bytes,
                           void **place_out)
{
    struct ps_mount *mount = owner;
    struct ps_net_end *end = mount->end;
    struct ps_net_link *link = *peer_ctx;
    struct ps_error err;
    PS_UNUSED(peer);
    ps_end_enter(end);
    enum ps_status status = check_head(mount, link, data, size, payload_bytes, &err);
    if (status != PS_OK) {
        drop(end, link, &err);
        ps_end_leave(end);
        return status;
    }
    struct ps_frame *rx = &end->rx;
    rx->payload = NULL;
    rx->placed = NULL;
    rx->payload_bytes = payload_bytes;
    rx->records = NULL;
    rx->record_count = 0;
    end->counters.frames_in++;
    end->counters.bytes_in += size + payload_bytes;
    if (rx->head.kind != PS_KIND_HELLO) {
        if (!pass_sequence(link, rx->head.link_seq)) {
            end->counters.duplicates++;
            status = PS_EEXIST;
        } else {
            status = keep_records(end, data, size);
        }
        if (status == PS_OK) {
            choose_place(end, link);
            *place_out = rx->placed;
        }
    }
    ps_end_leave(end);
    return status;
}

static bool body_is_whole(const struct ps_frame *rx)
{
    if ((rx->head.flags & PS_FLAG_BODY_CRC) == 0) {
        return true;
    }
    uint32_t crc = 0;
    if (rx->record_count > 0) {
        crc = ps_crc32c(crc, rx->records->data, rx->records->size);
    }
    if (rx->payload_bytes > 0) {
        const void *data = rx->placed != NULL ? rx->placed : rx->payload->data;
        crc = ps_crc32c(crc, data, rx->payload_bytes);
    }
    return crc == rx->head.body_crc;
}

static void dispatch(struct ps_net_end *end, struct ps_net_link *link,
                     const struct ps_frame *frame, uint64_t call_req)
{
    if (link->state == PS_LINK_DEAD) {
        return; /* 'place' closed it */
    }
    if (!body_is_whole(frame)) {
        struct ps_error err;
        (void)ps_error_set(&err, PS_EPROTO, "body_crc differs");
        drop(end, link, &err);
    } else if ((frame->head.flags & PS_FLAG_REPLY) == 0) {
        if (end->handler.landed != NULL) {
            end->handler.landed(end->ctx, link, frame);
        }
    } else {
        struct ps_net_call *call =
            call_req == 0 ? NULL : ps_map_get(&end->calls, call_req);
        if (call == NULL) {
            end->counters.late_replies++;
        } else {
            ps_call_reply(call, frame);
        }
    }
}

void ps_end_landed(void *owner, struct ps_wire_peer *peer, void **peer_ctx,
                   struct ps_buf *payload, size_t payload_bytes)
{
    struct ps_mount *mount = owner;
    struct ps_net_end *end = mount->end;
    struct ps_net_link *link = *peer_ctx;
    PS_UNUSED(payload_bytes);
    ps_end_enter(end);
    /* A copy: handlers may cause frames to be received only after return, but a copy
     * costs nothing beside the frame itself and ends the question. */
    struct ps_frame frame = end->rx;
    uint64_t call_req = end->rx_call;
    end->rx.records = NULL;
    frame.payload = frame.placed != NULL ? NULL : payload;
    if (frame.head.kind == PS_KIND_HELLO) {
        ps_end_hello(mount, peer, peer_ctx, &frame.head, payload);
    } else if (link != NULL) {
        dispatch(end, link, &frame, call_req);
    }
    ps_buf_release(frame.records);
    ps_end_leave(end);
}
