/* What a link goes through besides its HELLO: connections that stand and break, timers,
 * the goodbye, the end.
 *
 * A link whose connection broke waits LINK_GRACE_MS for the peer; its queue and its calls
 * wait with it.  A dialer's goodbye is a HELLO with a status, a listener's is the reply
 * to a HELLO with a status; the other side then need not wait.
 * Thread: the end's loop. */
#include "net/end.h"

#include "net/hello.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- the end of a link ---- */

void ps_link_fail(struct ps_net_link *link, enum ps_status status, const char *fmt, ...)
{
    struct ps_net_end *end = link->end;
    if (link->state == PS_LINK_DEAD) {
        return;
    }
    struct ps_error err = {.status = status, .text = ""};
    va_list args;
    va_start(args, fmt);
    vsnprintf(err.text, sizeof(err.text), fmt, args);
    va_end(args);
    PS_LOG(end->node->log, DEBUG, NET, "link down: %s", err.text);
    bool tell = link->dialed || link->was_up;
    ps_link_kill(link, PS_EPEER, err.text);
    if (tell && end->handler.down != NULL) {
        end->handler.down(end->ctx, link, &err);
    }
}

static void on_link_timer(struct ps_timer *timer)
{
    struct ps_net_link *link = PS_CONTAINER_OF(timer, struct ps_net_link, timer);
    struct ps_net_end *end = link->end;
    uint64_t now = ps_loop_now_ns(end->loop);
    ps_end_enter(end);
    if (now < link->deadline_ns) {
        if (link->state == PS_LINK_GREETING && link->dialed) {
            ps_link_greet(link);
        }
        ps_link_arm(link, link->deadline_ns - now);
    } else if (link->was_up) {
        ps_link_fail(link, PS_EPEER, "lost %s: not back within %llu ms", link->text,
                     (unsigned long long)(end->grace_ns / PS_NS_PER_MS));
    } else {
        ps_link_fail(link, PS_ETIMEDOUT, "no %s from %s within %llu ms",
                     link->state == PS_LINK_DIALING ? "connection" : "answer to HELLO",
                     link->url, (unsigned long long)(end->connect_ns / PS_NS_PER_MS));
    }
    ps_end_leave(end);
}

void ps_link_arm(struct ps_net_link *link, uint64_t delay_ns)
{
    struct ps_net_end *end = link->end;
    link->timer.run = on_link_timer;
    link->timer.label = "link";
    if (link->state == PS_LINK_GREETING) {
        delay_ns = PS_MIN(delay_ns, end->resend_ns);
    }
    if (ps_timer_start(end->loop, &link->timer, delay_ns) != PS_OK) {
        PS_LOG(end->node->log, ERROR, NET, "%s: no memory for a timer", link->text);
    }
}

void ps_link_greet(struct ps_net_link *link)
{
    struct ps_net_end *end = link->end;
    struct ps_buf *body;
    if (ps_hello_encode(&end->self, &body) != PS_OK) {
        return; /* the timer tries again */
    }
    struct ps_link_head head = {
        .kind = PS_KIND_HELLO, .dst = link->hello.member, .req = link->dial_id};
    ps_end_send_now(end, link->ops, link->peer, &head, body);
    ps_buf_release(body);
}

void ps_link_goodbye(struct ps_net_link *link, bool queued)
{
    struct ps_net_end *end = link->end;
    if (link->state != PS_LINK_UP) {
        return;
    }
    struct ps_frame frame = {.head = {.kind = PS_KIND_HELLO,
                                      .dst = link->hello.member,
                                      .flags = link->dialed ? 0 : PS_FLAG_REPLY,
                                      .req = link->dial_id,
                                      .status = PS_ECLOSED}};
    if (queued) {
        link->blocked = false; /* the transport takes everything while the end closes */
        if (ps_link_submit(link, &frame, true, 0) != PS_OK) {
            PS_LOG(end->node->log, DEBUG, NET, "%s: left without a goodbye", link->text);
        }
    } else {
        ps_end_send_now(end, link->ops, link->peer, &frame.head, NULL);
    }
}

/* ---- connections ---- */

void ps_end_connected(void *owner, struct ps_wire_peer *peer, void **peer_ctx)
{
    struct ps_mount *mount = owner;
    struct ps_net_link *link = *peer_ctx;
    if (link == NULL || !link->dialed || link->state == PS_LINK_DEAD) {
        return;
    }
    ps_end_enter(mount->end);
    uint64_t now = ps_loop_now_ns(mount->end->loop);
    link->peer = peer;
    link->state = PS_LINK_GREETING;
    ps_link_greet(link);
    ps_link_arm(link, link->deadline_ns > now ? link->deadline_ns - now : 0);
    ps_end_leave(mount->end);
}

void ps_end_disconnected(void *owner, struct ps_wire_peer *peer, void **peer_ctx)
{
    struct ps_mount *mount = owner;
    struct ps_net_end *end = mount->end;
    struct ps_net_link *link = *peer_ctx;
    if (link == NULL || link->peer != peer || link->state == PS_LINK_DEAD) {
        return;
    }
    ps_end_enter(end);
    if (!link->dialed) {
        link->peer = NULL;
    }
    if (link->state == PS_LINK_UP) {
        link->state = PS_LINK_LOST;
        link->deadline_ns = ps_loop_now_ns(end->loop) + end->grace_ns;
        PS_LOG(end->node->log, DEBUG, NET, "link lost: %s, waiting %llu ms", link->text,
               (unsigned long long)(end->grace_ns / PS_NS_PER_MS));
        ps_link_arm(link, end->grace_ns);
    } else if (link->dialed) {
        link->state = link->was_up ? PS_LINK_LOST : PS_LINK_DIALING;
    }
    ps_end_leave(end);
}
