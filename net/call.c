/* Calls: a request, its reply, its deadline, its resends.
 *
 * Every call is known by a number that is never used again in this end's life; whatever
 * comes under another number, from another link or a second time is dropped.  A resend is
 * the same number with PS_FLAG_RETRY: servers answer a duplicate again.  The wait before
 * a resend doubles up to 8 times RESEND_TIMEOUT_MS.  Thread: the end's loop. */
#include "net/end.h"

#include "net/hello.h"

#include <assert.h>
#include <string.h>

#define BACKOFF_MAX 8

static bool is_resent(const struct ps_net_call *call)
{
    return call->link->end->resend || !call->link->ops->lossless;
}

static void on_call_timer(struct ps_timer *timer);

/* Cannot fail for want of heap room once the timer has been in the heap; the first start
 * is checked by ps_net_call_start. */
static enum ps_status arm(struct ps_net_call *call)
{
    struct ps_net_end *end = call->link->end;
    uint64_t now = ps_loop_now_ns(end->loop);
    uint64_t wait = call->deadline_ns > now ? call->deadline_ns - now : 0;
    if (is_resent(call)) {
        unsigned doublings = PS_MIN(call->attempts > 0 ? call->attempts - 1 : 0, 3u);
        uint64_t factor = PS_MIN(UINT64_C(1) << doublings, BACKOFF_MAX);
        wait = PS_MIN(wait, end->resend_ns * factor);
    }
    return ps_timer_start(end->loop, &call->timer, wait);
}

static void resend(struct ps_net_call *call)
{
    struct ps_frame frame = call->frame;
    frame.head.flags |= PS_FLAG_RETRY;
    /* A full queue holds the first copy, or will have room at the next turn. */
    if (ps_link_submit(call->link, &frame, false, call->frame.head.req) == PS_OK) {
        call->link->end->counters.resends++;
    }
}

static void on_call_timer(struct ps_timer *timer)
{
    struct ps_net_call *call = PS_CONTAINER_OF(timer, struct ps_net_call, timer);
    struct ps_net_link *link = call->link;
    struct ps_net_end *end = link->end;
    ps_end_enter(end);
    if (ps_loop_now_ns(end->loop) >= call->deadline_ns) {
        struct ps_error err;
        (void)ps_error_set(&err, PS_ETIMEDOUT, "%s: no answer from %s within %llu ms%s",
                           call->what, link->text,
                           (unsigned long long)(call->timeout_ns / PS_NS_PER_MS),
                           link->state == PS_LINK_UP ? "" : ": the link is not up");
        ps_call_finish(call, PS_ETIMEDOUT, NULL, &err);
    } else {
        if (link->state == PS_LINK_UP && call->attempts > 0) {
            resend(call);
        }
        if (call->pending && arm(call) != PS_OK) {
            struct ps_error err;
            (void)ps_error_set(&err, PS_ENOMEM, "%s: no memory for a timer", call->what);
            ps_call_finish(call, PS_ENOMEM, NULL, &err);
        }
    }
    ps_end_leave(end);
}

enum ps_status ps_net_call_start(struct ps_net_link *link, struct ps_net_call *call)
{
    struct ps_net_end *end = link->end;
    assert(!call->pending && call->done != NULL);
    if (link->state == PS_LINK_DEAD) {
        return PS_EPEER;
    }
    if (call->what == NULL) {
        call->what = ps_frame_kind_name(call->frame.head.kind);
    }
    if (call->timeout_ns == 0) {
        call->timeout_ns = end->request_ns;
    }
    call->link = link;
    call->attempts = 0;
    call->timer.run = on_call_timer;
    call->timer.label = "call";
    call->sent_ns = ps_loop_now_ns(end->loop);
    call->deadline_ns = call->sent_ns + call->timeout_ns;
    call->frame.head.req = ++end->next_req;
    call->frame.head.flags &= ~(uint32_t)(PS_FLAG_REPLY | PS_FLAG_RETRY);
    call->frame.head.deadline =
        (uint16_t)PS_MIN(call->timeout_ns / (100 * PS_NS_PER_MS), UINT16_MAX);
    uint64_t req = call->frame.head.req;

    enum ps_status status;
    PS_TRY(ps_map_put(&end->calls, req, call, NULL));
    PS_TRY_GOTO(status, arm(call), forget);
    PS_TRY_GOTO(status, ps_link_submit(link, &call->frame, false, req), stop_timer);
    if (call->frame.records != NULL) {
        ps_buf_retain(call->frame.records);
    }
    if (call->frame.payload != NULL) {
        ps_buf_retain(call->frame.payload);
    }
    ps_list_push_back(&link->calls, &call->node);
    call->pending = true;
    return PS_OK;
stop_timer:
    ps_timer_cancel(&call->timer);
forget:
    (void)ps_map_remove(&end->calls, req);
    return status;
}

void ps_call_sent(struct ps_net_end *end, uint64_t req)
{
    struct ps_net_call *call = ps_map_get(&end->calls, req);
    if (call != NULL) {
        call->attempts++;
    }
}

void ps_call_finish(struct ps_net_call *call, enum ps_status status,
                    const struct ps_frame *reply, const struct ps_error *err)
{
    struct ps_net_end *end = call->link->end;
    struct ps_buf *records = call->frame.records, *payload = call->frame.payload;
    assert(call->pending);
    call->pending = false;
    ps_timer_cancel(&call->timer);
    ps_list_remove(&call->node);
    (void)ps_map_remove(&end->calls, call->frame.head.req);
    call->done(call, status, reply, err); /* may free the call, or start it again */
    ps_buf_release(records);
    ps_buf_release(payload);
}

void ps_call_reply(struct ps_net_call *call, const struct ps_frame *reply)
{
    enum ps_status status = (enum ps_status)reply->head.status;
    struct ps_error err = {.status = status, .text = ""};
    if (status != PS_OK &&
        (reply->payload == NULL ||
         !ps_error_body_decode(reply->payload->data, reply->payload_bytes, err.text))) {
        (void)ps_error_set(&err, status, "%s: %s answered %s", call->what,
                           call->link->text, ps_status_text(status));
    }
    ps_call_finish(call, status, reply, &err);
}

void ps_net_call_cancel(struct ps_net_call *call)
{
    if (!call->pending) {
        return;
    }
    struct ps_net_end *end = call->link->end;
    struct ps_error err;
    (void)ps_error_set(&err, PS_ECANCELED, "%s: canceled", call->what);
    ps_end_enter(end);
    ps_call_finish(call, PS_ECANCELED, NULL, &err);
    ps_end_leave(end);
}

void ps_link_resend_calls(struct ps_net_link *link)
{
    /* Submitting never ends a call, so the list stays as it is. */
    for (struct ps_list *item = link->calls.next; item != &link->calls;
         item = item->next) {
        struct ps_net_call *call = PS_CONTAINER_OF(item, struct ps_net_call, node);
        if (call->attempts > 0) {
            struct ps_frame frame = call->frame;
            frame.head.flags |= PS_FLAG_RETRY;
            if (ps_link_submit(link, &frame, true, frame.head.req) == PS_OK) {
                link->end->counters.resends++;
            }
        }
    }
}
