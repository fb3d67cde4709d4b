/* Frames in: parts are taken until EAGAIN, payloads wrapped without a copy unless the
 * receiver named a place.  What is not a frame of ours is dropped part by part.
 * Thread: the end's loop. */
#include "net/zmq_wire.h"

#include "net/secure.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TURN_FRAMES 64
#define TURN_BYTES ((size_t)8 << 20)
#define ROUTING_ID_BYTES 5 /* what ROUTER gives to peers that bring none: 0, u32 */

/* A received message as a ps_buf. */
struct ps_zmq_buf {
    struct ps_buf buf;
    zmq_msg_t message;
};

static void release_buf(struct ps_buf *buf)
{
    struct ps_zmq_buf *zbuf = PS_CONTAINER_OF(buf, struct ps_zmq_buf, buf);
    (void)zmq_msg_close(&zbuf->message);
    free(zbuf);
}

void ps_zmq_buf_free(struct ps_zmq_buf *zbuf)
{
    free(zbuf);
}

/* Moves 'message' into the wire's spare wrapper; one reference.  NULL: out of memory. */
static struct ps_zmq_buf *wrap(struct ps_zmq_wire *wire, zmq_msg_t *message)
{
    struct ps_zmq_buf *zbuf = wire->spare;
    if (zbuf == NULL) {
        zbuf = malloc(sizeof(*zbuf));
        if (zbuf == NULL) {
            return NULL;
        }
    }
    wire->spare = NULL;
    (void)zmq_msg_init(&zbuf->message);
    (void)zmq_msg_move(&zbuf->message, message);
    atomic_init(&zbuf->buf.refs, 1);
    zbuf->buf.flags = 0;
    zbuf->buf.size = zmq_msg_size(&zbuf->message);
    zbuf->buf.data = zmq_msg_data(&zbuf->message);
    zbuf->buf.release = release_buf;
    zbuf->buf.owner = NULL;
    return zbuf;
}

/* Nobody kept it: the wrapper serves the next payload. */
static void unwrap(struct ps_zmq_wire *wire, struct ps_zmq_buf *zbuf)
{
    /* acquire: with the releases of other holders */
    if (wire->spare == NULL &&
        atomic_load_explicit(&zbuf->buf.refs, memory_order_acquire) == 1) {
        (void)zmq_msg_close(&zbuf->message);
        wire->spare = zbuf;
    } else {
        ps_buf_release(&zbuf->buf);
    }
}

/* ---- whose message it is ---- */

static void refuse_strangers(struct ps_zmq_socket *socket, struct ps_zmq_peer *peer,
                             zmq_msg_t *message)
{
    struct ps_zmq_wire *wire = socket->wire;
    struct ps_error err;
    if (wire->ops->local) {
        return;
    }
    const char *address = zmq_msg_gets(message, "Peer-Address");
    if (ps_secure_admit(wire->node, address == NULL ? "?" : address, &err) != PS_OK) {
        peer->refused = true;
        PS_LOG_LIMITED(wire->node->log, &wire->garbage_limit, WARN, NET, "%s: %s",
                       socket->url, err.text);
    }
}

/* A connection's first message.  NULL: out of memory. */
static struct ps_zmq_peer *new_peer(struct ps_zmq_socket *socket, uint32_t id,
                                    zmq_msg_t *message)
{
    struct ps_zmq_peer *peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return NULL;
    }
    atomic_init(&peer->refs, 1);
    peer->socket = socket;
    peer->id = id;
    peer->fd = -1;
    /* All that the monitor knew when this message was sent on: a connection that had this
     * descriptor before is out of by_fd then. */
    ps_zmq_monitor_drain(socket);
    if (ps_map_put(&socket->by_id, (uint64_t)id + 1, peer, NULL) != PS_OK) {
        free(peer);
        return NULL;
    }
    int fd = zmq_msg_get(message, ZMQ_SRCFD);
    uint64_t key = (uint64_t)(uint32_t)fd + 1;
    if (fd >= 0 && ps_map_get(&socket->open, key) != NULL &&
        ps_map_put(&socket->by_fd, key, peer, NULL) == PS_OK) {
        peer->fd = fd;
        ps_list_push_back(&socket->peers, &peer->node);
    } else {
        ps_list_push_back(&socket->gone, &peer->node); /* it said all and left */
    }
    refuse_strangers(socket, peer, message);
    return peer;
}

static struct ps_zmq_peer *peer_of(struct ps_zmq_socket *socket, zmq_msg_t *id,
                                   zmq_msg_t *head)
{
    if (!socket->listening) {
        return socket->dialed;
    }
    const unsigned char *data = zmq_msg_data(id);
    uint32_t number;
    if (zmq_msg_size(id) != ROUTING_ID_BYTES || data[0] != 0) {
        return NULL; /* none of ours brings a name of its own */
    }
    memcpy(&number, data + 1, sizeof(number));
    struct ps_zmq_peer *peer = ps_map_get(&socket->by_id, (uint64_t)number + 1);
    return peer != NULL ? peer : new_peer(socket, number, head);
}

/* ---- one frame ---- */

struct parts {
    zmq_msg_t id, head, payload;
    bool extra; /* more parts than a frame has */
};

static void deliver(struct ps_zmq_socket *socket, struct ps_zmq_peer *peer,
                    struct parts *parts)
{
    struct ps_zmq_wire *wire = socket->wire;
    struct ps_wire_peer *base = (struct ps_wire_peer *)(void *)peer;
    size_t payload_bytes = zmq_msg_size(&parts->payload);
    void *place = NULL;
    if (wire->events.head(wire->end, base, &peer->ctx, zmq_msg_data(&parts->head),
                          zmq_msg_size(&parts->head), payload_bytes, &place) != PS_OK) {
        return;
    }
    if (payload_bytes == 0) {
        wire->events.landed(wire->end, base, &peer->ctx, NULL, 0);
        return;
    }
    if (place != NULL) {
        memcpy(place, zmq_msg_data(&parts->payload), payload_bytes);
        wire->events.landed(wire->end, base, &peer->ctx, NULL, payload_bytes);
        return;
    }
    struct ps_zmq_buf *zbuf = wrap(wire, &parts->payload);
    if (zbuf != NULL) {
        wire->events.landed(wire->end, base, &peer->ctx, &zbuf->buf, payload_bytes);
        unwrap(wire, zbuf);
    }
}

static void drop_garbage(struct ps_zmq_socket *socket, const struct parts *parts)
{
    PS_LOG_LIMITED(socket->wire->node->log, &socket->wire->garbage_limit, WARN, NET,
                   "%s: dropped a message that is no frame (first part %zu bytes)",
                   socket->url, zmq_msg_size((zmq_msg_t *)(uintptr_t)&parts->head));
}

/* The next part of the message at hand; false when there is none. */
static bool next_part(void *socket, zmq_msg_t *part)
{
    if (zmq_msg_recv(part, socket, ZMQ_DONTWAIT) >= 0) {
        return true;
    }
    return false;
}

/* Takes one whole message; false at EAGAIN. */
static bool take(struct ps_zmq_socket *socket, struct parts *parts)
{
    void *zs = socket->socket;
    zmq_msg_t rest;
    parts->extra = false;
    (void)zmq_msg_init(&parts->id);
    (void)zmq_msg_init(&parts->head);
    (void)zmq_msg_init(&parts->payload);
    if (socket->listening && (!next_part(zs, &parts->id) || !zmq_msg_more(&parts->id))) {
        return false;
    }
    if (!next_part(zs, &parts->head)) {
        return false;
    }
    if (!zmq_msg_more(&parts->head) || !next_part(zs, &parts->payload)) {
        return true;
    }
    bool more = zmq_msg_more(&parts->payload);
    while (more) {
        parts->extra = true;
        (void)zmq_msg_init(&rest);
        more = next_part(zs, &rest) && zmq_msg_more(&rest);
        (void)zmq_msg_close(&rest);
    }
    return true;
}

static void close_parts(struct parts *parts)
{
    (void)zmq_msg_close(&parts->id);
    (void)zmq_msg_close(&parts->head);
    (void)zmq_msg_close(&parts->payload);
}

static void handle(struct ps_zmq_socket *socket, struct parts *parts)
{
    struct ps_zmq_peer *peer =
        parts->extra ? NULL : peer_of(socket, &parts->id, &parts->head);
    if (peer == NULL) {
        drop_garbage(socket, parts);
    } else if (!peer->refused) {
        atomic_fetch_add(&peer->refs, 1); /* the end may hang it up */
        deliver(socket, peer, parts);
        ps_zmq_unref_peer(peer);
    }
}

/* ---- a turn ---- */

static void tell_gone(struct ps_zmq_socket *socket)
{
    struct ps_zmq_wire *wire = socket->wire;
    while (socket->watched && !ps_list_empty(&socket->gone)) {
        struct ps_zmq_peer *peer =
            PS_CONTAINER_OF(socket->gone.next, struct ps_zmq_peer, node);
        atomic_fetch_add(&peer->refs, 1);
        wire->events.disconnected(wire->end, (struct ps_wire_peer *)(void *)peer,
                                  &peer->ctx);
        ps_zmq_drop_peer(peer);
        ps_zmq_unref_peer(peer);
    }
}

void ps_zmq_receive(struct ps_zmq_socket *socket)
{
    size_t bytes = 0;
    for (int frames = 0; frames < TURN_FRAMES && bytes < TURN_BYTES; frames++) {
        struct parts parts;
        /* A handler's send marks the socket again, and the news that it may have
         * swallowed is looked for once more. */
        socket->dirty = false;
        bool taken = take(socket, &parts);
        if (taken) {
            bytes += zmq_msg_size(&parts.head) + zmq_msg_size(&parts.payload);
            socket->dirty = true; /* what follows need not be posted */
            handle(socket, &parts);
        }
        close_parts(&parts);
        if (!socket->watched) {
            return; /* hung up by its handler */
        }
        if (!taken) {
            tell_gone(socket);
            return;
        }
    }
    ps_zmq_schedule(socket);
}
