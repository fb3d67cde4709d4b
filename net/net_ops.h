/* For implementers of a transport: zmq.c (tcp, ipc), inproc.c, sim_net.c; later shm.
 *
 * A transport moves whole frames (head + records in one piece, payload in another) for an
 * end.  It knows nothing of HELLO, calls or resends: end.c does that once for all of
 * them. All slots run on the end's loop.  No slot may block. */
#ifndef PENSTOCK_NET_NET_OPS_H
#define PENSTOCK_NET_NET_OPS_H

#include "net/net.h"

#define PS_NET_ABI 1u

struct ps_wire; /* a transport's state for one end; first member: const struct ps_net_ops
                 * */
struct ps_wire_peer; /* a transport's connection */

/* What end.c gives a transport. */
struct ps_wire_events {
    /* A frame's first piece arrived (unchecked bytes); 'landed' of the same frame follows
     * before any other event of this end, unless this returns an error.  Returns the
     * peer's place for the payload through 'place_out' (NULL = keep it as a buffer).  A
     * status other than PS_OK: drop it. */
    enum ps_status (*head)(void *end, struct ps_wire_peer *peer, void **peer_ctx,
                           const void *data, size_t size, size_t payload_bytes,
                           void **place_out);
    /* The same frame with its payload: landed at the place, or as 'payload' (borrowed).
     */
    void (*landed)(void *end, struct ps_wire_peer *peer, void **peer_ctx,
                   struct ps_buf *payload, size_t payload_bytes);
    /* A dialed peer's connection stands (again). */
    void (*connected)(void *end, struct ps_wire_peer *peer, void **peer_ctx);
    /* It broke, and everything it brought has been delivered.  A dialed peer is dialed
     * again by the transport; an accepted one is gone after return. */
    void (*disconnected)(void *end, struct ps_wire_peer *peer, void **peer_ctx);
    void (*writable)(void *end, struct ps_wire_peer *peer, void **peer_ctx);
};

struct ps_net_ops {
    const char *scheme; /* "tcp", "ipc", "inproc", "sim"; "shm" later */
    uint32_t abi;       /* PS_NET_ABI */
    bool lossless;      /* frames arrive once and in order while connected */
    bool local;         /* never leaves the host */

    enum ps_status (*open)(struct ps_node *node, struct ps_loop *loop,
                           const struct ps_wire_events *events, void *end,
                           struct ps_wire **wire_out, struct ps_error *err);
    /* Delivers what was sent, for a bounded time where that needs waiting (sockets: 1 s);
     * every peer has been hung up before. */
    void (*close)(struct ps_wire *wire);
    enum ps_status (*listen)(struct ps_wire *wire, const char *url,
                             char url_out[PS_URL_BYTES], struct ps_error *err);
    /* 'peer_ctx' is what the events' peer_ctx begins with. */
    enum ps_status (*dial)(struct ps_wire *wire, const char *url, void *peer_ctx,
                           struct ps_wire_peer **peer_out, struct ps_error *err);
    /* The end is done with the peer; what was sent before is still delivered where the
     * transport can.  'peer' is gone afterwards, no event follows. */
    void (*hangup)(struct ps_wire_peer *peer);
    /* The end is about to close: from here on 'send' takes everything. */
    void (*closing)(struct ps_wire *wire);
    /* Takes a reference on both buffers (payload may be NULL) until local completion.
     * PS_EAGAIN: nothing was taken; 'writable' follows. */
    enum ps_status (*send)(struct ps_wire_peer *peer, struct ps_buf *head,
                           struct ps_buf *payload);
    /* Registers memory for fast paths; sockets: no-op.  PS_EUNSUPPORTED otherwise. */
    enum ps_status (*mem_register)(struct ps_wire *wire, void *data, size_t size,
                                   uint64_t *out);
    void (*mem_unregister)(struct ps_wire *wire, uint64_t registration);
};

#endif
