/* The slots of tcp:// and ipc://: opening, listening, dialing, hanging up, closing.
 * Thread: the end's loop. */
#include "net/zmq_wire.h"

#include "net/end.h"
#include "net/nic.h"
#include "net/secure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RELEASE_GROW 64

static struct ps_zmq_wire *wire_of(struct ps_wire *wire)
{
    return (struct ps_zmq_wire *)(void *)wire;
}

/* ---- turns of the loop ---- */

void ps_zmq_schedule(struct ps_zmq_socket *socket)
{
    socket->dirty = true;
    (void)ps_loop_post(socket->wire->loop, &socket->wire->turn);
}

static void close_doomed(struct ps_zmq_wire *wire)
{
    struct ps_list *item;
    while ((item = ps_list_pop_front(&wire->doomed)) != NULL) {
        ps_zmq_socket_close(PS_CONTAINER_OF(item, struct ps_zmq_socket, node));
    }
}

static void on_turn(struct ps_task *task)
{
    struct ps_zmq_wire *wire = PS_CONTAINER_OF(task, struct ps_zmq_wire, turn);
    /* Handlers may add sockets (at the end) and doom them (to the other list, freed only
     * below): a doomed one ends the walk early, and its turn is posted again. */
    for (struct ps_list *item = wire->sockets.next; item != &wire->sockets;) {
        struct ps_zmq_socket *socket = PS_CONTAINER_OF(item, struct ps_zmq_socket, node);
        if (socket->fresh) {
            socket->fresh = false;
            ps_zmq_monitor_drain(socket);
        }
        if (socket->dirty && socket->watched) {
            ps_zmq_receive(socket);
        }
        if (!socket->watched) {
            break; /* doomed by its handler */
        }
        item = item->next;
    }
    close_doomed(wire);
}

static void on_room(struct ps_doorbell *bell)
{
    struct ps_zmq_wire *wire = PS_CONTAINER_OF(bell, struct ps_zmq_wire, room);
    for (struct ps_list *item = wire->sockets.next; item != &wire->sockets;) {
        struct ps_zmq_socket *socket = PS_CONTAINER_OF(item, struct ps_zmq_socket, node);
        ps_zmq_tell_room(socket);
        if (!socket->watched) {
            ps_doorbell_ring(bell);
            break;
        }
        item = item->next;
    }
}

/* ---- lifecycle ---- */

static enum ps_status zmq_open(const struct ps_net_ops *ops, struct ps_node *node,
                               struct ps_loop *loop, const struct ps_wire_events *events,
                               void *end, struct ps_wire **wire_out, struct ps_error *err)
{
    if (node->sim != NULL) {
        return ps_error_set(err, PS_EUNSUPPORTED, "%s: not in a simulation", ops->scheme);
    }
    struct ps_zmq_wire *wire = calloc(1, sizeof(*wire));
    if (wire == NULL) {
        return ps_error_set(err, PS_ENOMEM, "%s: no memory", ops->scheme);
    }
    ps_mem_keep_freed(); /* libzmq receives payloads into malloc's memory */
    wire->ops = ops;
    wire->node = node;
    wire->loop = loop;
    wire->events = *events;
    wire->end = end;
    wire->turn.run = on_turn;
    wire->turn.label = "net.turn";
    ps_list_init(&wire->sockets);
    ps_list_init(&wire->doomed);
    ps_doorbell_init(&wire->room, loop, "net.room", on_room);
    enum ps_status status;
    PS_TRY_GOTO(
        status,
        ps_pool_create(ps_zmq_release_bytes(), RELEASE_GROW, 0, false, &wire->releases),
        free_wire);
    wire->context = zmq_ctx_new();
    if (wire->context == NULL || zmq_ctx_set(wire->context, ZMQ_IO_THREADS, 1) != 0 ||
        zmq_ctx_set(wire->context, ZMQ_MAX_SOCKETS,
                    zmq_ctx_get(wire->context, ZMQ_SOCKET_LIMIT)) != 0) {
        status = ps_error_set(err, PS_ENOMEM, "%s: no context", ops->scheme);
        goto destroy_pool;
    }
    *wire_out = (struct ps_wire *)(void *)wire;
    return PS_OK;
destroy_pool:
    if (wire->context != NULL) {
        (void)zmq_ctx_term(wire->context);
    }
    ps_pool_destroy(wire->releases);
free_wire:
    free(wire);
    return status;
}

static void zmq_wire_close(struct ps_wire *base)
{
    struct ps_zmq_wire *wire = wire_of(base);
    struct ps_list *item;
    ps_zmq_settle(wire);
    close_doomed(wire);
    while ((item = ps_list_pop_front(&wire->sockets)) != NULL) {
        struct ps_zmq_socket *socket = PS_CONTAINER_OF(item, struct ps_zmq_socket, node);
        ps_zmq_socket_unwatch(socket);
        ps_zmq_socket_close(socket);
    }
    /* Waits for the linger of the sockets, at most; after it no release is out. */
    while (zmq_ctx_term(wire->context) != 0 && errno == EINTR) {
    }
    ps_loop_forget(wire->loop, &wire->turn);
    ps_loop_forget(wire->loop, &wire->room.task);
    ps_zmq_buf_free(wire->spare);
    ps_pool_destroy(wire->releases);
    if (wire->directory[0] != '\0') {
        ps_ipc_remove(wire->directory);
    }
    free(wire);
}

static void zmq_closing(struct ps_wire *wire)
{
    wire_of(wire)->closing = true;
}

/* ---- peers ---- */

void ps_zmq_unref_peer(struct ps_zmq_peer *peer)
{
    /* acq_rel: the last one frees what the others touched */
    if (atomic_fetch_sub_explicit(&peer->refs, 1, memory_order_acq_rel) == 1) {
        free(peer);
    }
}

void ps_zmq_drop_peer(struct ps_zmq_peer *peer)
{
    struct ps_zmq_socket *socket = peer->socket;
    if (socket == NULL) {
        return;
    }
    peer->socket = NULL;
    peer->hung = true;
    ps_list_remove(&peer->node);
    if (socket->dialed == peer) {
        socket->dialed = NULL;
    } else {
        if (ps_map_get(&socket->by_id, (uint64_t)peer->id + 1) == peer) {
            (void)ps_map_remove(&socket->by_id, (uint64_t)peer->id + 1);
        }
        uint64_t fd_key = (uint64_t)peer->fd + 1;
        if (peer->fd >= 0 && ps_map_get(&socket->by_fd, fd_key) == peer) {
            (void)ps_map_remove(&socket->by_fd, fd_key);
        }
    }
    ps_zmq_unref_peer(peer);
}

/* The end has queued its goodbye: zmq_settle.c waits for the answer. */
static void await_answer(struct ps_zmq_socket *socket, const struct ps_zmq_peer *peer)
{
    if (!socket->listening) {
        socket->awaited = peer->connected ? 1 : 0;
        return;
    }
    uint64_t key = (uint64_t)peer->fd + 1;
    if (peer->fd >= 0 && ps_map_get(&socket->open, key) == socket &&
        ps_map_put(&socket->open, key, &socket->awaited, NULL) == PS_OK) {
        socket->awaited++;
    }
}

static void zmq_hangup(struct ps_wire_peer *base)
{
    struct ps_zmq_peer *peer = (struct ps_zmq_peer *)(void *)base;
    struct ps_zmq_socket *socket = peer->socket;
    if (socket != NULL && socket->wire->closing) {
        await_answer(socket, peer);
    }
    ps_zmq_drop_peer(peer);
    if (socket != NULL && !socket->listening) {
        struct ps_zmq_wire *wire = socket->wire;
        ps_zmq_socket_unwatch(socket);
        ps_list_remove(&socket->node);
        ps_list_push_back(&wire->doomed, &socket->node);
        (void)ps_loop_post(wire->loop, &wire->turn);
    }
}

static enum ps_status zmq_dial(struct ps_wire *base, const char *url, void *peer_ctx,
                               struct ps_wire_peer **peer_out, struct ps_error *err)
{
    struct ps_zmq_wire *wire = wire_of(base);
    struct ps_zmq_socket *socket;
    char host[PS_HOST_BYTES];
    uint16_t port;
    if (!wire->ops->local) {
        PS_TRY(ps_url_tcp(url, host, &port, err));
        if (port == 0 || host[0] == '\0' || strcmp(host, "*") == 0) {
            return ps_error_set(err, PS_EADDR, "address '%s': needs a host and a port",
                                url);
        }
        PS_TRY(ps_secure_admit(wire->node, host, err));
    }
    struct ps_zmq_peer *peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return ps_error_set(err, PS_ENOMEM, "%s: no memory", url);
    }
    enum ps_status status;
    PS_TRY_GOTO(status, ps_zmq_socket_open(wire, false, &socket, err), free_peer);
    peer->socket = socket;
    peer->ctx = peer_ctx;
    peer->fd = -1;
    atomic_init(&peer->refs, 1);
    ps_list_init(&peer->node);
    socket->dialed = peer;
    snprintf(socket->url, sizeof(socket->url), "%s", url);
    if (zmq_connect(socket->socket, url) != 0) {
        status = ps_error_set(err, PS_EADDR, "%s: %s", url, zmq_strerror(errno));
        goto close_socket;
    }
    PS_TRY_GOTO(status, ps_zmq_socket_watch(socket, err), close_socket);
    ps_list_push_back(&wire->sockets, &socket->node);
    *peer_out = (struct ps_wire_peer *)(void *)peer;
    return PS_OK;
close_socket:
    socket->dialed = NULL;
    ps_zmq_socket_close(socket);
free_peer:
    free(peer);
    return status;
}

/* ---- listening ---- */

static enum ps_status bind_failed(const char *bind, uint16_t port, int code,
                                  struct ps_error *err)
{
    const char *at = strstr(bind, "://");
    at = at == NULL ? bind : at + 3;
    if (code == EADDRINUSE) {
        uint32_t pid = port == 0 ? 0 : ps_port_owner(port);
        return pid == 0 ? ps_error_set(err, PS_EINUSE, "%s in use", at)
                        : ps_error_set(err, PS_EINUSE, "%s in use by pid %u", at, pid);
    }
    if (code == EACCES || code == EPERM) {
        return ps_error_set(err, PS_EPERM, "%s: %s", at, zmq_strerror(code));
    }
    return ps_error_set(err, PS_EADDR, "%s: %s", at, zmq_strerror(code));
}

static enum ps_status bind_and_watch(struct ps_zmq_socket *socket, const char *bind,
                                     uint16_t port, struct ps_error *err)
{
    size_t size = sizeof(socket->url);
    if (zmq_bind(socket->socket, bind) != 0) {
        return bind_failed(bind, port, errno, err);
    }
    if (zmq_getsockopt(socket->socket, ZMQ_LAST_ENDPOINT, socket->url, &size) != 0) {
        return ps_error_set(err, PS_EADDR, "%s: %s", bind, zmq_strerror(errno));
    }
    return ps_zmq_socket_watch(socket, err);
}

static enum ps_status zmq_listen(struct ps_wire *base, const char *url,
                                 char url_out[PS_URL_BYTES], struct ps_error *err)
{
    struct ps_zmq_wire *wire = wire_of(base);
    struct ps_zmq_socket *socket;
    char bind[PS_URL_BYTES], host[PS_HOST_BYTES] = "", ignored[PS_HOST_BYTES];
    uint16_t port = 0;
    if (wire->ops->local) {
        PS_TRY(
            ps_ipc_path(wire->node, url, ++wire->file_count, wire->directory, bind, err));
    } else {
        PS_TRY(ps_tcp_bind(wire->node, url, bind, host, err));
        PS_TRY(ps_url_tcp(bind, ignored, &port, err));
    }
    PS_TRY(ps_zmq_socket_open(wire, true, &socket, err));
    enum ps_status status = bind_and_watch(socket, bind, port, err);
    if (status == PS_OK && !wire->ops->local) {
        status = ps_url_tcp(socket->url, ignored, &port, err);
    }
    if (status != PS_OK) {
        ps_zmq_socket_unwatch(socket);
        ps_zmq_socket_close(socket);
        return status;
    }
    if (wire->ops->local) {
        memcpy(url_out, bind, sizeof(bind));
        snprintf(socket->bound_path, sizeof(socket->bound_path), "%s",
                 bind + strlen("ipc://"));
    } else {
        snprintf(url_out, PS_URL_BYTES, "tcp://%s:%u", host, (unsigned)port);
    }
    ps_list_push_back(&wire->sockets, &socket->node);
    return PS_OK;
}

static enum ps_status zmq_mem_register(struct ps_wire *wire, void *data, size_t size,
                                       uint64_t *out)
{
    PS_UNUSED(wire);
    PS_UNUSED(data);
    PS_UNUSED(size);
    *out = 0;
    return PS_OK;
}

static void zmq_mem_unregister(struct ps_wire *wire, uint64_t registration)
{
    PS_UNUSED(wire);
    PS_UNUSED(registration);
}

static enum ps_status tcp_open(struct ps_node *node, struct ps_loop *loop,
                               const struct ps_wire_events *events, void *end,
                               struct ps_wire **wire_out, struct ps_error *err)
{
    return zmq_open(&ps_net_tcp_ops, node, loop, events, end, wire_out, err);
}

static enum ps_status ipc_open(struct ps_node *node, struct ps_loop *loop,
                               const struct ps_wire_events *events, void *end,
                               struct ps_wire **wire_out, struct ps_error *err)
{
    return zmq_open(&ps_net_ipc_ops, node, loop, events, end, wire_out, err);
}

#define ZMQ_SLOTS                                                                        \
    .abi = PS_NET_ABI, .lossless = true, .close = zmq_wire_close, .listen = zmq_listen,  \
    .dial = zmq_dial, .hangup = zmq_hangup, .closing = zmq_closing, .send = ps_zmq_send, \
    .mem_register = zmq_mem_register, .mem_unregister = zmq_mem_unregister

const struct ps_net_ops ps_net_tcp_ops = {
    .scheme = "tcp", .local = false, .open = tcp_open, ZMQ_SLOTS};
const struct ps_net_ops ps_net_ipc_ops = {
    .scheme = "ipc", .local = true, .open = ipc_open, ZMQ_SLOTS};
