/* Frames out: the payload's own memory goes to ZeroMQ, whose IO thread releases it.
 *
 * The frame's last part carries the release; parts before it are copied (a routing id of
 * 5 bytes, a head of 64 bytes and its records).  Thread: the end's loop, except
 * on_release. */
#include "net/zmq_wire.h"

#include <errno.h>
#include <string.h>

struct ps_zmq_release {
    struct ps_buf *buf;
    struct ps_zmq_peer *peer;
    struct ps_zmq_wire *wire;
    size_t bytes;
};

size_t ps_zmq_release_bytes(void)
{
    return sizeof(struct ps_zmq_release);
}

/* Waking early would only fill the last gap; half of the budget keeps both sides busy. */
static bool has_room(struct ps_zmq_peer *peer)
{
    /* seq_cst, with on_release: either it sees 'blocked' or we see its subtraction */
    return atomic_load(&peer->bytes) <= PS_ZMQ_BYTES_MAX / 2 &&
           atomic_load(&peer->frames) <= PS_ZMQ_FRAMES_MAX / 2;
}

static void on_release(void *data, void *hint)
{
    struct ps_zmq_release *release = hint;
    struct ps_zmq_peer *peer = release->peer;
    struct ps_zmq_wire *wire = release->wire;
    PS_UNUSED(data);
    ps_buf_release(release->buf);
    atomic_fetch_sub(&peer->bytes, release->bytes);
    atomic_fetch_sub(&peer->frames, 1);
    if (atomic_load(&peer->blocked) && has_room(peer)) {
        ps_doorbell_ring(&wire->room);
    }
    ps_pool_put(wire->releases, release);
    ps_zmq_unref_peer(peer);
}

static struct ps_zmq_peer *find_freed(struct ps_zmq_socket *socket)
{
    struct ps_zmq_peer *peer = socket->dialed;
    if (!socket->listening) {
        return peer != NULL && atomic_load(&peer->blocked) && has_room(peer) ? peer
                                                                             : NULL;
    }
    for (struct ps_list *item = socket->peers.next; item != &socket->peers;
         item = item->next) {
        peer = PS_CONTAINER_OF(item, struct ps_zmq_peer, node);
        if (atomic_load(&peer->blocked) && has_room(peer)) {
            return peer;
        }
    }
    return NULL;
}

void ps_zmq_tell_room(struct ps_zmq_socket *socket)
{
    struct ps_zmq_wire *wire = socket->wire;
    struct ps_zmq_peer *peer;
    /* From the start each time: a handler may hang up any peer. */
    while (socket->watched && (peer = find_freed(socket)) != NULL) {
        atomic_store(&peer->blocked, false);
        wire->events.writable(wire->end, (struct ps_wire_peer *)(void *)peer, &peer->ctx);
    }
}

static bool is_full(struct ps_zmq_peer *peer)
{
    if (peer->socket->wire->closing) {
        return false;
    }
    return atomic_load(&peer->bytes) >= PS_ZMQ_BYTES_MAX ||
           atomic_load(&peer->frames) >= PS_ZMQ_FRAMES_MAX;
}

/* Sends one part; the message is closed in every case. */
static int send_part(void *socket, zmq_msg_t *message, int flags)
{
    if (zmq_msg_send(message, socket, flags | ZMQ_DONTWAIT) >= 0) {
        return 0;
    }
    int code = errno;
    (void)zmq_msg_close(message);
    return code == 0 ? EIO : code;
}

static int send_copy(void *socket, const void *data, size_t size)
{
    zmq_msg_t message;
    if (zmq_msg_init_size(&message, size) != 0) {
        return ENOMEM;
    }
    memcpy(zmq_msg_data(&message), data, size);
    return send_part(socket, &message, ZMQ_SNDMORE);
}

static int send_routing_id(const struct ps_zmq_peer *peer)
{
    unsigned char id[5] = {0};
    memcpy(id + 1, &peer->id, sizeof(peer->id));
    return send_copy(peer->socket->socket, id, sizeof(id));
}

/* The last part, whose release gives the buffer back. */
static int send_last(struct ps_zmq_peer *peer, struct ps_buf *buf, size_t bytes)
{
    struct ps_zmq_wire *wire = peer->socket->wire;
    struct ps_zmq_release *release = ps_pool_get(wire->releases);
    zmq_msg_t message;
    if (release == NULL) {
        return ENOMEM;
    }
    release->buf = ps_buf_retain(buf);
    release->peer = peer;
    release->wire = wire;
    release->bytes = bytes;
    atomic_fetch_add(&peer->refs, 1);
    atomic_fetch_add(&peer->bytes, bytes);
    atomic_fetch_add(&peer->frames, 1);
    if (zmq_msg_init_data(&message, buf->data, buf->size, on_release, release) != 0) {
        on_release(NULL, release);
        return ENOMEM;
    }
    return send_part(peer->socket->socket, &message, 0);
}

static enum ps_status status_of(int code)
{
    switch (code) {
    case 0:
        return PS_OK;
    case ENOMEM:
        return PS_ENOMEM;
    default:
        return PS_EPEER; /* no pipe: the connection's end is on its way as an event */
    }
}

enum ps_status ps_zmq_send(struct ps_wire_peer *base, struct ps_buf *head,
                           struct ps_buf *payload)
{
    struct ps_zmq_peer *peer = (struct ps_zmq_peer *)(void *)base;
    struct ps_zmq_socket *socket = peer->socket;
    size_t bytes = head->size + (payload == NULL ? 0 : payload->size);
    if (socket == NULL || (!socket->listening && !peer->connected)) {
        return PS_EPEER;
    }
    if (is_full(peer)) {
        atomic_store(&peer->blocked, true);
        if (!has_room(peer)) {
            return PS_EAGAIN; /* a release that is still out will ring */
        }
        atomic_store(&peer->blocked, false);
    }
    int code = socket->listening ? send_routing_id(peer) : 0;
    if (code == 0 && payload == NULL) {
        code = send_last(peer, head, bytes);
    } else if (code == 0) {
        code = send_copy(socket->socket, head->data, head->size);
        if (code == 0) {
            code = send_last(peer, payload, bytes);
        }
    }
    if (socket->watched && !socket->dirty) {
        ps_zmq_schedule(socket); /* the send may have swallowed news */
    }
    return status_of(code);
}
