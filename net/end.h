/* What the files of the end share: end.c (lifecycle), link.c (queue and sending),
 * link_state.c (loss, return, goodbye), handshake.c (HELLO), receive.c (frames that
 * came), call.c (requests). Private to net.
 *
 * States of a link:   dialing -> greeting -> up <-> lost -> dead       (dialed)
 *                                greeting -> up <-> lost -> dead       (accepted)
 * A handler may close links while the end works on them: links die at once (state dead)
 * and are freed when the outermost call into the end returns (ps_end_enter/leave).
 *
 * Threads: the end's loop. */
#ifndef PENSTOCK_NET_END_H
#define PENSTOCK_NET_END_H

#include "base/map.h"
#include "base/sim.h"
#include "base/str.h"
#include "net/head_pool.h"
#include "net/net_ops.h"

#define PS_SCHEMES_MAX 8

enum ps_link_state {
    PS_LINK_DIALING,
    PS_LINK_GREETING,
    PS_LINK_UP,
    PS_LINK_LOST,
    PS_LINK_DEAD
};

struct ps_net_end;

/* One transport of an end; the 'end' of its events. */
struct ps_mount {
    struct ps_net_end *end;
    const struct ps_net_ops *ops;
    struct ps_wire *wire; /* NULL until the scheme is used */
};

struct ps_net_counters {
    uint64_t frames_in, frames_out, bytes_in, bytes_out;
    uint64_t dropped, gaps, duplicates, late_replies, resends;
};

struct ps_net_end {
    struct ps_node *node;
    struct ps_loop *loop;
    struct ps_net_handler handler;
    void *ctx;
    struct ps_hello self;
    uint64_t epoch;
    size_t queue_bytes;
    uint64_t body_max;
    uint64_t connect_ns, grace_ns, resend_ns, request_ns;
    bool resend;

    struct ps_mount mounts[PS_SCHEMES_MAX];
    struct ps_list links, dead;
    struct ps_head_pool *heads;
    struct ps_pool *outs;
    struct ps_map calls; /* req -> struct ps_net_call */
    uint64_t next_req;
    uint32_t next_dial;
    unsigned depth; /* calls into the end that are on the stack */

    /* The frame whose head was checked and whose payload lands next. */
    struct ps_frame rx;
    uint64_t rx_call; /* its pending call; 0 = none */

    struct ps_net_counters counters;
    struct ps_log_limit garbage_limit, gap_limit, refuse_limit;
};

/* A frame in a link's queue. */
struct ps_out {
    struct ps_list node;
    struct ps_buf *head; /* link head and records; sealed when it is handed over */
    struct ps_buf *payload;
    size_t bytes;
    uint64_t call; /* req of the call it belongs to; 0 = none */
};

struct ps_net_link {
    struct ps_list node;
    struct ps_net_end *end;
    const struct ps_net_ops *ops;
    struct ps_wire_peer *peer; /* NULL: an accepted link that is lost, a dead one */
    void *ctx;
    enum ps_link_state state;
    bool dialed, was_up;
    struct ps_hello hello; /* the peer's */
    uint32_t dial_id;      /* the dialer's number of this link: HELLO's req */
    char url[PS_URL_BYTES];
    char text[PS_URL_BYTES + PS_HOST_BYTES];
    struct ps_timer timer; /* hello resend and deadline, or grace */
    uint64_t deadline_ns;

    struct ps_list queue;
    size_t queued_bytes;
    bool blocked;    /* the transport had no room */
    bool want_ready; /* a send was answered PS_EAGAIN */
    struct ps_list calls;

    uint32_t tx_seq, rx_seq; /* last used; 0 = none */
    uint64_t rx_window;      /* bit i: rx_seq - i was seen */
};

/* ---- end.c ---- */
void ps_end_enter(struct ps_net_end *end);
void ps_end_leave(struct ps_net_end *end);
extern const struct ps_wire_events ps_end_events;

/* ---- link.c ---- */
PS_MUST_CHECK enum ps_status ps_link_create(struct ps_net_end *end,
                                            const struct ps_net_ops *ops,
                                            struct ps_net_link **link_out);
/* Frees queue, calls (ended with 'status') and the transport's side; the struct follows
 * when the end is left. */
void ps_link_kill(struct ps_net_link *link, enum ps_status status, const char *why);
void ps_link_describe(struct ps_net_link *link);
/* Appends to the queue, past its bound when 'force', and sends what goes. */
PS_MUST_CHECK enum ps_status ps_link_submit(struct ps_net_link *link,
                                            const struct ps_frame *frame, bool force,
                                            uint64_t call);
void ps_link_drain(struct ps_net_link *link);
void ps_link_ready(struct ps_net_link *link);
/* One frame at once, in front of the queue: HELLO and its answers.  Whoever waits for it
 * asks again when it does not come. */
void ps_end_send_now(struct ps_net_end *end, const struct ps_net_ops *ops,
                     struct ps_wire_peer *peer, const struct ps_link_head *head,
                     struct ps_buf *payload);

/* ---- link_state.c ---- */
void ps_link_greet(struct ps_net_link *link);
void ps_link_goodbye(struct ps_net_link *link, bool queued);
void ps_link_arm(struct ps_net_link *link, uint64_t delay_ns);
/* The final word: pending calls end with PS_EPEER, 'down' is called. */
void ps_link_fail(struct ps_net_link *link, enum ps_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void ps_end_connected(void *mount, struct ps_wire_peer *peer, void **peer_ctx);
void ps_end_disconnected(void *mount, struct ps_wire_peer *peer, void **peer_ctx);
/* ---- handshake.c ---- */
/* 'mount': the transport the frame came by. */
void ps_end_hello(struct ps_mount *mount, struct ps_wire_peer *peer, void **peer_ctx,
                  const struct ps_link_head *head, const struct ps_buf *payload);

/* ---- receive.c ---- */
enum ps_status ps_end_head(void *mount, struct ps_wire_peer *peer, void **peer_ctx,
                           const void *data, size_t size, size_t payload_bytes,
                           void **place_out);
void ps_end_landed(void *mount, struct ps_wire_peer *peer, void **peer_ctx,
                   struct ps_buf *payload, size_t payload_bytes);

/* ---- call.c ---- */
void ps_call_sent(struct ps_net_end *end, uint64_t req);
void ps_call_finish(struct ps_net_call *call, enum ps_status status,
                    const struct ps_frame *reply, const struct ps_error *err);
void ps_call_reply(struct ps_net_call *call, const struct ps_frame *reply);
/* After the link came back: what was sent may be lost. */
void ps_link_resend_calls(struct ps_net_link *link);

/* ---- url.c ---- */
/* Splits "scheme://rest"; false when there is no scheme or it is too long. */
bool ps_url_split(const char *url, char scheme_out[16], const char **rest_out);
/* "host:port" or "[v6]:port"; an empty host and "*" mean all interfaces.  PS_EADDR with
 * 'err' naming the url. */
PS_MUST_CHECK enum ps_status ps_url_tcp(const char *url, char host_out[PS_HOST_BYTES],
                                        uint16_t *port_out, struct ps_error *err);

/* ---- the built-in transports ---- */
extern const struct ps_net_ops ps_net_tcp_ops, ps_net_ipc_ops, ps_net_inproc_ops,
    ps_net_sim_ops;

#endif
