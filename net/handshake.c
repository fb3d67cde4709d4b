/* HELLO both ways.
 *
 * The dialer says HELLO as soon as its connection stands, again until it is answered, and
 * after each reconnect; the listener knows a returning link by the dialer's nonce and
 * link number and goes on with it.  A refusal is the HELLO's reply with a status and the
 * reason; so is a listener's goodbye, later (link_state.c).
 * Thread: the end's loop. */
#include "net/end.h"

#include "net/hello.h"

#include <inttypes.h>
#include <string.h>

/* ---- coming up ---- */

static void link_is_up(struct ps_net_link *link)
{
    struct ps_net_end *end = link->end;
    bool again = link->was_up;
    link->state = PS_LINK_UP;
    link->was_up = true;
    link->blocked = false;
    link->tx_seq = link->rx_seq = 0;
    link->rx_window = 0;
    ps_timer_cancel(&link->timer);
    ps_link_describe(link);
    PS_LOG(end->node->log, DEBUG, NET, "link %s: %s", again ? "back" : "up", link->text);
    if (again) {
        ps_link_resend_calls(link);
    } else if (end->handler.up != NULL) {
        end->handler.up(end->ctx, link);
    }
    if (link->state == PS_LINK_UP) {
        ps_link_drain(link);
        ps_link_ready(link);
    }
}

static bool uuid_is_known(const uint8_t uuid[PS_UUID_BYTES])
{
    static const uint8_t none[PS_UUID_BYTES];
    return memcmp(uuid, none, PS_UUID_BYTES) != 0;
}

static enum ps_status check_peer(const struct ps_net_end *end,
                                 const struct ps_hello *peer,
                                 const struct ps_link_head *head, struct ps_error *err)
{
    const struct ps_hello *self = &end->self;
    if (head->src != peer->member) {
        return ps_error_set(err, PS_EPROTO,
                            "HELLO from member %" PRIu32 " says it is member %" PRIu32,
                            head->src, peer->member);
    }
    if (peer->nonce == 0) {
        return ps_error_set(err, PS_EPROTO, "HELLO without a nonce");
    }
    if (peer->proto_min > self->proto_max || peer->proto_max < self->proto_min) {
        return ps_error_set(err, PS_EMISMATCH,
                            "protocol %u to %u: this side speaks %u to %u",
                            (unsigned)peer->proto_min, (unsigned)peer->proto_max,
                            (unsigned)self->proto_min, (unsigned)self->proto_max);
    }
    if (uuid_is_known(peer->uuid) && uuid_is_known(self->uuid) &&
        memcmp(peer->uuid, self->uuid, PS_UUID_BYTES) != 0) {
        return ps_error_set(err, PS_EMISMATCH,
                            "another job: its uuid begins %02x%02x%02x%02x, ours "
                            "%02x%02x%02x%02x",
                            peer->uuid[0], peer->uuid[1], peer->uuid[2], peer->uuid[3],
                            self->uuid[0], self->uuid[1], self->uuid[2], self->uuid[3]);
    }
    return PS_OK;
}

/* ---- the listener's side ---- */

static void answer_hello(struct ps_net_end *end, const struct ps_net_ops *ops,
                         struct ps_wire_peer *peer, const struct ps_link_head *request,
                         const struct ps_error *refusal)
{
    struct ps_buf *body;
    enum ps_status status = refusal == NULL ? ps_hello_encode(&end->self, &body)
                                            : ps_error_body_encode(refusal->text, &body);
    if (status != PS_OK) {
        return; /* the dialer asks again */
    }
    struct ps_link_head head = {.kind = PS_KIND_HELLO,
                                .flags = PS_FLAG_REPLY,
                                .dst = request->src,
                                .req = request->req,
                                .status = refusal == NULL ? PS_OK : refusal->status};
    ps_end_send_now(end, ops, peer, &head, body);
    ps_buf_release(body);
}

static void refuse_hello(struct ps_mount *mount, struct ps_wire_peer *peer,
                         void **peer_ctx, const struct ps_link_head *request,
                         const struct ps_error *why)
{
    struct ps_net_end *end = mount->end;
    PS_LOG_LIMITED(end->node->log, &end->refuse_limit, WARN, NET, "link refused: %s",
                   why->text);
    answer_hello(end, mount->ops, peer, request, why);
    *peer_ctx = NULL;
    mount->ops->hangup(peer);
}

/* The link of the same dialer's life and number that an earlier connection carried. */
static struct ps_net_link *find_returning(struct ps_net_end *end,
                                          const struct ps_net_ops *ops,
                                          const struct ps_hello *peer, uint64_t dial_id)
{
    for (struct ps_list *item = end->links.next; item != &end->links; item = item->next) {
        struct ps_net_link *link = PS_CONTAINER_OF(item, struct ps_net_link, node);
        if (!link->dialed && link->ops == ops && link->dial_id == dial_id &&
            link->hello.nonce == peer->nonce && link->hello.role == peer->role) {
            return link;
        }
    }
    return NULL;
}

static void come_back(struct ps_net_link *link, struct ps_wire_peer *peer,
                      void **peer_ctx, const struct ps_link_head *head)
{
    if (link->peer != NULL) { /* the break of the old connection is still on its way */
        link->ops->hangup(link->peer);
    }
    link->peer = peer;
    *peer_ctx = link;
    answer_hello(link->end, link->ops, peer, head, NULL);
    link_is_up(link);
}

static void accept_new(struct ps_mount *mount, struct ps_wire_peer *peer, void **peer_ctx,
                       const struct ps_link_head *head, const struct ps_hello *hello)
{
    struct ps_net_end *end = mount->end;
    struct ps_net_link *link;
    struct ps_error err = {.status = PS_OK, .text = ""};
    enum ps_status status = ps_link_create(end, mount->ops, &link);
    if (status != PS_OK) {
        (void)ps_error_set(&err, status, "no memory for a link");
        refuse_hello(mount, peer, peer_ctx, head, &err);
        return;
    }
    link->state = PS_LINK_GREETING;
    link->peer = peer;
    link->hello = *hello;
    link->dial_id = (uint32_t)head->req;
    *peer_ctx = link;
    ps_link_describe(link);
    status = end->handler.hello == NULL
                 ? PS_OK
                 : end->handler.hello(end->ctx, link, &link->hello, &err);
    if (link->state == PS_LINK_DEAD) {
        return; /* the handler closed it */
    }
    if (status != PS_OK) {
        if (err.text[0] == '\0') {
            (void)ps_error_set(&err, status, "%s", ps_status_text(status));
        }
        err.status = status;
        link->peer = NULL;
        refuse_hello(mount, peer, peer_ctx, head, &err);
        ps_link_kill(link, status, err.text);
        return;
    }
    answer_hello(end, mount->ops, peer, head, NULL);
    link_is_up(link);
}

static void hello_request(struct ps_mount *mount, struct ps_wire_peer *peer,
                          void **peer_ctx, const struct ps_link_head *head,
                          const struct ps_buf *payload)
{
    struct ps_net_end *end = mount->end;
    struct ps_net_link *link = *peer_ctx;
    if (link != NULL && link->dialed) {
        end->counters.dropped++;
        return; /* the listener does not ask */
    }
    if (head->status != PS_OK) {
        if (link != NULL) {
            /* The dialer may leave: everything it sent before has landed. */
            struct ps_error bye = {.status = PS_ECLOSED, .text = "goodbye"};
            answer_hello(end, mount->ops, peer, head, &bye);
            ps_link_fail(link, PS_ECLOSED, "%s closed the link", link->text);
        }
        return;
    }
    struct ps_hello hello;
    struct ps_error err;
    enum ps_status status =
        ps_hello_decode(payload == NULL ? NULL : payload->data,
                        payload == NULL ? 0 : payload->size, &hello, &err);
    if (status == PS_OK) {
        status = check_peer(end, &hello, head, &err);
    }
    if (status == PS_OK && (head->req == 0 || head->req > UINT32_MAX)) {
        status =
            ps_error_set(&err, PS_EPROTO, "HELLO with link number %" PRIu64, head->req);
    }
    if (status != PS_OK) {
        end->counters.dropped++;
        if (link == NULL) {
            refuse_hello(mount, peer, peer_ctx, head, &err);
        }
        return;
    }
    if (link != NULL) {
        if (link->hello.nonce == hello.nonce && link->dial_id == head->req) {
            answer_hello(end, mount->ops, peer, head, NULL); /* asked twice */
        } else {
            end->counters.dropped++;
        }
        return;
    }
    link = find_returning(end, mount->ops, &hello, head->req);
    if (link != NULL) {
        come_back(link, peer, peer_ctx, head);
    } else {
        accept_new(mount, peer, peer_ctx, head, &hello);
    }
}

/* ---- the dialer's side ---- */

static void hello_refused(struct ps_net_link *link, const struct ps_link_head *head,
                          const struct ps_buf *payload)
{
    char words[PS_ERROR_TEXT_BYTES];
    enum ps_status status = (enum ps_status)head->status;
    if (link->was_up) {
        ps_link_fail(link, PS_ECLOSED, "%s closed the link", link->text);
    } else if (payload != NULL &&
               ps_error_body_decode(payload->data, payload->size, words)) {
        ps_link_fail(link, status, "%s", words);
    } else {
        ps_link_fail(link, status, "%s refused the link: %s", link->url,
                     ps_status_text(status));
    }
}

static void hello_reply(struct ps_net_link *link, const struct ps_link_head *head,
                        const struct ps_buf *payload)
{
    struct ps_net_end *end = link->end;
    if (head->status != PS_OK) {
        hello_refused(link, head, payload);
        return;
    }
    if (link->state != PS_LINK_GREETING) {
        end->counters.duplicates++;
        return;
    }
    struct ps_hello hello;
    struct ps_error err = {.status = PS_OK, .text = ""};
    enum ps_status status =
        ps_hello_decode(payload == NULL ? NULL : payload->data,
                        payload == NULL ? 0 : payload->size, &hello, &err);
    if (status == PS_OK) {
        status = check_peer(end, &hello, head, &err);
    }
    if (status != PS_OK) {
        ps_link_fail(link, status, "%s: %s", link->url, err.text);
        return;
    }
    if (link->was_up && hello.nonce != link->hello.nonce) {
        ps_link_fail(link, PS_EPEER, "%s is gone: pid %" PRIu32 " answers in its place",
                     link->text, hello.pid);
        return;
    }
    uint32_t member = link->was_up ? link->hello.member : hello.member;
    link->hello = hello;
    link->hello.member = PS_MAX(member, hello.member);
    ps_link_describe(link);
    if (!link->was_up && end->handler.hello != NULL) {
        status = end->handler.hello(end->ctx, link, &link->hello, &err);
        if (status != PS_OK && link->state != PS_LINK_DEAD) {
            ps_link_fail(link, status, "%s",
                         err.text[0] != '\0' ? err.text : ps_status_text(status));
        }
        if (link->state == PS_LINK_DEAD) {
            return;
        }
    }
    link_is_up(link);
}

void ps_end_hello(struct ps_mount *mount, struct ps_wire_peer *peer, void **peer_ctx,
                  const struct ps_link_head *head, const struct ps_buf *payload)
{
    struct ps_net_link *link = *peer_ctx;
    if ((head->flags & PS_FLAG_REPLY) == 0) {
        hello_request(mount, peer, peer_ctx, head, payload);
    } else if (link != NULL && link->dialed && head->req == link->dial_id) {
        hello_reply(link, head, payload);
    } else {
        mount->end->counters.dropped++;
    }
}
