/* The door of the room net: frames between the members of a job.  No keys, no tensors
 * here.
 *
 * An *end* is one member's place on one loop: it listens, dials, or both.  A *link* joins
 * two ends after a HELLO.  A *frame* is a link head, n records of 64 bytes, and a
 * payload. The contract is announce, place, land: a head announces a frame; the receiver
 * names where the payload goes (or takes the transport's buffer); the bytes land there;
 * landed is reported. A sender's buffer is released at local completion; remote
 * completion is the reply. A *call* is a request with its reply, deadline and (where
 * links lose frames) resends.
 *
 * URLs: tcp://host:port  ipc://path  inproc://name  sim://name  (the last two live in a
 * ps_net_world that the node carries).
 * Threads: an end, its links and calls belong to the end's loop; everything here is
 * called on it (or before it is started) unless said otherwise.  Nothing blocks. */
#ifndef PENSTOCK_NET_NET_H
#define PENSTOCK_NET_NET_H

#include "base/loop.h"
#include "base/mem.h"
#include "base/node.h"
#include "base/queue.h"
#include "net/wire.h"

#define PS_URL_BYTES 256
#define PS_HOST_BYTES 128
#define PS_UUID_BYTES 16

enum ps_role {
    PS_ROLE_NONE = 0,
    PS_ROLE_WORKER = 1,
    PS_ROLE_SERVER = 2,
    PS_ROLE_SCHEDULER = 3
};
const char *ps_role_name(enum ps_role role); /* "worker" ... */

/* What both sides say first. */
struct ps_hello {
    uint8_t uuid[PS_UUID_BYTES]; /* of the job; all 0 = not known yet (started by hand) */
    uint32_t member;             /* 0 = not registered yet */
    enum ps_role role;
    uint32_t rank; /* UINT32_MAX = not known */
    uint16_t proto_min, proto_max;
    uint64_t features;
    uint32_t frame_bytes_max;
    uint16_t lane, lane_count; /* of a server's end; 0 of 1 otherwise */
    uint64_t nonce; /* one for each life of a process; a reconnect shows the same */
    uint32_t pid;
    char host[PS_HOST_BYTES];
};

struct ps_net_end;
struct ps_net_link;

/* A frame, sent or received.  Sending: set
 * head.{kind,flags,req,priority,deadline,status}, the records and the payload; the end
 * fills in the rest.  'records' (n * 64 bytes) and 'payload' may be NULL. */
struct ps_frame {
    struct ps_link_head head;
    struct ps_buf *records;
    size_t record_count;
    struct ps_buf *payload;
    void
        *placed; /* received: where the payload landed, when the receiver named a place */
    size_t payload_bytes;
};

/* What an end's owner answers.  All run on the end's loop; the frame is borrowed until
 * return (retain its buffers to keep them). */
struct ps_net_handler {
    /* A dialer says hello (listening side), or the listener answered (dialing side).  A
     * status other than PS_OK refuses the link; 'err' travels to the peer. */
    enum ps_status (*hello)(void *ctx, struct ps_net_link *link,
                            const struct ps_hello *peer, struct ps_error *err);
    /* The link is usable. */
    void (*up)(void *ctx, struct ps_net_link *link);
    /* Final: refused (err tells), or lost for longer than LINK_GRACE_MS, or the dial's
     * deadline passed.  Pending calls have ended with PS_EPEER before.  The link dies
     * after return. */
    void (*down)(void *ctx, struct ps_net_link *link, const struct ps_error *err);
    /* A checked head with its records: returns where 'payload_bytes' bytes shall land, or
     * NULL to get them as frame->payload.  May be NULL itself. */
    void *(*place)(void *ctx, struct ps_net_link *link, const struct ps_frame *frame);
    /* A whole frame that is not a reply to a pending call. */
    void (*landed)(void *ctx, struct ps_net_link *link, const struct ps_frame *frame);
    /* After a send was answered PS_EAGAIN: there is room again.  May be NULL. */
    void (*ready)(void *ctx, struct ps_net_link *link);
};

struct ps_net_end_options {
    struct ps_node *node; /* keeps a borrow */
    struct ps_loop *loop; /* keeps a borrow */
    const struct ps_net_handler *handler;
    void *ctx;
    struct ps_hello
        self;           /* nonce, pid, host, proto, limits are filled in by open when 0 */
    size_t queue_bytes; /* bound of each link's send queue; 0 = 8 MiB and at least one
                           frame */
};

/* ---- lifecycle; the loop must not be running, or call on the loop ---- */
PS_MUST_CHECK enum ps_status ps_net_end_open(const struct ps_net_end_options *options,
                                             struct ps_net_end **end_out,
                                             struct ps_error *err);
/* Sends what is queued for at most 'linger_ms' (a timer drives it; it does not block),
 * then frees. Simplest use: after the loop has stopped, with 0... the call then flushes
 * what it can at once. */
void ps_net_end_close(struct ps_net_end *end);
/* After registration: who we are now.  Frames carry it from here on. */
void ps_net_end_set_self(struct ps_net_end *end, const struct ps_hello *self,
                         uint64_t epoch);
void ps_net_end_set_epoch(struct ps_net_end *end, uint64_t epoch);
const struct ps_hello *ps_net_end_self(const struct ps_net_end *end);

/* Starts listening; 'url_out' is what peers can dial (port 0 resolved, ADVERTISE_HOST
 * applied). Several calls listen on several URLs.  Errors: PS_EADDR, PS_EINUSE
 * ("0.0.0.0:9000 in use by pid N" where it can be found), PS_EPERM, PS_EUNSUPPORTED
 * (unknown scheme). */
PS_MUST_CHECK enum ps_status ps_net_listen(struct ps_net_end *end, const char *url,
                                           char url_out[PS_URL_BYTES],
                                           struct ps_error *err);
/* Dials; 'up' or 'down' follows.  'ctx' can be asked from the link.  Links that leave the
 * host are refused with PS_EPERM unless INSECURE=1 (until CURVE stands). */
PS_MUST_CHECK enum ps_status ps_net_dial(struct ps_net_end *end, const char *url,
                                         void *link_ctx, struct ps_net_link **link_out,
                                         struct ps_error *err);
/* Drops the link and its queue without calling 'down'; pending calls end with
 * PS_ECANCELED. */
void ps_net_link_close(struct ps_net_link *link);
void ps_net_link_set_ctx(struct ps_net_link *link, void *link_ctx);
void *ps_net_link_ctx(const struct ps_net_link *link);
const struct ps_hello *ps_net_link_peer(const struct ps_net_link *link);
/* What the scheduler knows better than the peer's HELLO, once it has registered. */
void ps_net_link_set_peer(struct ps_net_link *link, uint32_t member, uint32_t rank);
struct ps_net_end *ps_net_link_end(struct ps_net_link *link);
/* "server/1 (member 4, pid 812, tcp://127.0.0.1:4411)", for logs and errors. */
const char *ps_net_link_text(const struct ps_net_link *link);
bool ps_net_link_secure(const struct ps_net_link *link); /* authenticated and encrypted */
bool ps_net_link_lossless(
    const struct ps_net_link *link); /* frames are not lost while it is up */
size_t ps_net_link_queued_bytes(const struct ps_net_link *link);

/* ---- sending ---- */
/* Retains the frame's buffers until local completion; the caller keeps its own
 * references. Errors: PS_EAGAIN (the queue is full; 'ready' will be called), PS_EPEER
 * (down), PS_ERANGE. */
PS_MUST_CHECK enum ps_status ps_net_send(struct ps_net_link *link,
                                         const struct ps_frame *frame);
/* Answers 'request' (kind and req are copied from it, PS_FLAG_REPLY set).  Control
 * replies are never refused for lack of room. */
PS_MUST_CHECK enum ps_status ps_net_reply(struct ps_net_link *link,
                                          const struct ps_link_head *request,
                                          enum ps_status status,
                                          const struct ps_frame *body);

/* ---- calls ---- */
struct ps_net_call {
    /* Exactly once.  'reply' is borrowed, NULL unless the peer answered; 'err' says what
     * failed (the peer's own words where it answered with an error and a msgpack body
     * {"error": text}). */
    void (*done)(struct ps_net_call *call, enum ps_status status,
                 const struct ps_frame *reply, const struct ps_error *err);
    /* Where the reply's payload shall land; NULL = as reply->payload. */
    void *(*place)(struct ps_net_call *call, const struct ps_frame *reply);
    struct ps_frame frame; /* the request; its buffers are retained until done */
    uint64_t timeout_ns;   /* 0 = REQUEST_TIMEOUT_MS */
    const char *what;      /* constant text for the error: "barrier", "push" */
    /* private */
    struct ps_net_link *link;
    struct ps_timer timer;
    struct ps_list node;
    uint64_t deadline_ns, sent_ns;
    unsigned attempts;
    bool pending;
};
/* Sends at once or when the link is up; resends (flag RETRY) where RESEND is on or the
 * link is not lossless, and after a reconnect.  Errors: PS_EAGAIN (queue full; nothing
 * was taken), PS_EPEER. */
PS_MUST_CHECK enum ps_status ps_net_call_start(struct ps_net_link *link,
                                               struct ps_net_call *call);
/* Ends it with PS_ECANCELED (done is called) if it is pending; a late reply is dropped.
 */
void ps_net_call_cancel(struct ps_net_call *call);

/* ---- the in-process and simulated networks ---- */
struct ps_net_world;
struct ps_sim;

/* 'sim' NULL: inproc:// only, links between loops on any threads of this process. */
PS_MUST_CHECK enum ps_status ps_net_world_create(struct ps_sim *sim,
                                                 struct ps_net_world **world_out);
void ps_net_world_destroy(struct ps_net_world *world);

struct ps_net_weather {
    uint64_t delay_min_ns, delay_max_ns; /* uniform; different draws reorder frames */
    double drop, duplicate;              /* probability for each frame */
    bool keep_order; /* no reordering on a link in spite of the delays */
};
void ps_net_world_set_weather(struct ps_net_world *world,
                              const struct ps_net_weather *weather);
/* Frames between nodes named 'a' and 'b' (as ps_sim_enter_node / ps_node name) vanish
 * while on. */
void ps_net_world_partition(struct ps_net_world *world, const char *a, const char *b,
                            bool on);

#endif
