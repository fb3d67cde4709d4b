/* ZeroMQ sockets: their options, their monitors, their watches.
 *
 * Congestion control has no option in libzmq, but the monitor tells the descriptors: see
 * ps_tcp_tune_loopback.  A descriptor that was closed and used again meanwhile is at
 * worst another loopback connection.  Thread: the end's loop. */
#include "net/zmq_wire.h"

#include "net/nic.h"
#include "net/secure.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECONNECT_MIN_MS 20
#define RECONNECT_MAX_MS 1000
#define RECEIVE_FRAMES_MAX 128 /* read from the kernel before the loop takes them */
#define BACKLOG 1024
#define KEEPALIVE_IDLE_S 10
#define KEEPALIVE_INTERVAL_S 5
#define KEEPALIVE_COUNT 3
#define MONITORED                                                           \
    (ZMQ_EVENT_CONNECTED | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED |    \
     ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | \
     ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)

struct option {
    int name, value;
};

static int setting_ms(const struct ps_node *node, enum ps_setting_id id)
{
    return (int)PS_MIN(ps_settings_int(node->settings, id), INT32_MAX);
}

static enum ps_status set_options(struct ps_zmq_wire *wire, void *socket, bool listening,
                                  struct ps_error *err)
{
    const struct ps_node *node = wire->node;
    int64_t frame_max = ps_settings_int(node->settings, PS_SET_FRAME_BYTES_MAX);
    const struct option options[] = {
        {ZMQ_LINGER, PS_ZMQ_LINGER_MS},
        {ZMQ_SNDHWM, 0}, /* we count bytes: zmq_wire.h */
        {ZMQ_RCVHWM, RECEIVE_FRAMES_MAX},
        {ZMQ_HANDSHAKE_IVL, setting_ms(node, PS_SET_CONNECT_TIMEOUT_MS)},
        {ZMQ_CONNECT_TIMEOUT, setting_ms(node, PS_SET_CONNECT_TIMEOUT_MS)},
        {ZMQ_RECONNECT_IVL, RECONNECT_MIN_MS},
        {ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS},
        {ZMQ_TCP_KEEPALIVE, 1},
        {ZMQ_TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_S},
        {ZMQ_TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL_S},
        {ZMQ_TCP_KEEPALIVE_CNT, KEEPALIVE_COUNT},
        {ZMQ_TCP_MAXRT, setting_ms(node, PS_SET_HEARTBEAT_TIMEOUT_MS)},
        {ZMQ_BACKLOG, BACKLOG},
        {ZMQ_ROUTER_MANDATORY, 1}, /* ROUTER only, DEALER only: the last two */
        {ZMQ_IMMEDIATE, 1},
    };
    size_t count = PS_COUNT(options) - 2;
    int rc = zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_max, sizeof(frame_max));
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = zmq_setsockopt(socket, options[i].name, &options[i].value, sizeof(int));
    }
    if (rc == 0) {
        const struct option *own = &options[listening ? count : count + 1];
        rc = zmq_setsockopt(socket, own->name, &own->value, sizeof(int));
    }
    if (rc != 0) {
        return ps_error_set(err, PS_EIO, "socket option: %s", zmq_strerror(errno));
    }
    const struct ps_secure *secure = ps_secure_of(node);
    return secure->setup(secure, socket, listening, err);
}

static enum ps_status open_monitor(struct ps_zmq_socket *socket, struct ps_error *err)
{
    struct ps_zmq_wire *wire = socket->wire;
    char name[64];
    snprintf(name, sizeof(name), "inproc://monitor-%" PRIu64, ++wire->monitor_count);
    socket->monitor = zmq_socket(wire->context, ZMQ_PAIR);
    if (socket->monitor == NULL ||
        zmq_socket_monitor(socket->socket, name, MONITORED) != 0 ||
        zmq_connect(socket->monitor, name) != 0) {
        return ps_error_set(err, PS_EIO, "socket monitor: %s", zmq_strerror(errno));
    }
    return PS_OK;
}

enum ps_status ps_zmq_socket_open(struct ps_zmq_wire *wire, bool listening,
                                  struct ps_zmq_socket **socket_out, struct ps_error *err)
{
    struct ps_zmq_socket *socket = calloc(1, sizeof(*socket));
    if (socket == NULL) {
        return ps_error_set(err, PS_ENOMEM, "socket: no memory");
    }
    socket->wire = wire;
    socket->listening = listening;
    ps_list_init(&socket->node);
    ps_list_init(&socket->peers);
    ps_list_init(&socket->gone);
    enum ps_status status;
    socket->socket = zmq_socket(wire->context, listening ? ZMQ_ROUTER : ZMQ_DEALER);
    if (socket->socket == NULL) {
        status = ps_error_set(err, PS_EIO, "socket: %s", zmq_strerror(errno));
        goto fail;
    }
    PS_TRY_GOTO(status, set_options(wire, socket->socket, listening, err), fail);
    PS_TRY_GOTO(status, open_monitor(socket, err), fail);
    *socket_out = socket;
    return PS_OK;
fail:
    ps_zmq_socket_close(socket);
    return status;
}

static void drop_peers(struct ps_list *list)
{
    while (!ps_list_empty(list)) {
        ps_zmq_drop_peer(PS_CONTAINER_OF(list->next, struct ps_zmq_peer, node));
    }
}

void ps_zmq_socket_close(struct ps_zmq_socket *socket)
{
    if (socket->dialed != NULL) {
        ps_zmq_drop_peer(socket->dialed);
    }
    drop_peers(&socket->peers);
    drop_peers(&socket->gone);
    if (socket->monitor != NULL) {
        (void)zmq_socket_monitor(socket->socket, NULL, 0);
        (void)zmq_close(socket->monitor);
    }
    if (socket->socket != NULL) {
        (void)zmq_close(socket->socket);
    }
    if (socket->bound_path[0] != '\0') {
        (void)unlink(socket->bound_path); /* libzmq leaves it */
    }
    ps_map_fini(&socket->by_id);
    ps_map_fini(&socket->by_fd);
    ps_map_fini(&socket->open);
    free(socket);
}

/* ---- watches ---- */

static void on_readable(struct ps_fd_watch *watch, unsigned events)
{
    struct ps_zmq_socket *socket = PS_CONTAINER_OF(watch, struct ps_zmq_socket, watch);
    PS_UNUSED(events);
    ps_zmq_receive(socket);
}

static void on_monitor(struct ps_fd_watch *watch, unsigned events)
{
    struct ps_zmq_socket *socket =
        PS_CONTAINER_OF(watch, struct ps_zmq_socket, monitor_watch);
    PS_UNUSED(events);
    ps_zmq_monitor_drain(socket);
    /* What broken connections had sent is read, and then their end is told. */
    if (socket->watched) {
        ps_zmq_receive(socket);
    }
}

static enum ps_status watch(struct ps_zmq_socket *socket, void *zmq_socket,
                            struct ps_fd_watch *watch,
                            void (*run)(struct ps_fd_watch *, unsigned),
                            struct ps_error *err)
{
    size_t size = sizeof(watch->fd);
    if (zmq_getsockopt(zmq_socket, ZMQ_FD, &watch->fd, &size) != 0) {
        return ps_error_set(err, PS_EIO, "socket: %s", zmq_strerror(errno));
    }
    watch->run = run;
    watch->events = PS_FD_READ;
    enum ps_status status = ps_loop_watch(socket->wire->loop, watch);
    return status == PS_OK
               ? PS_OK
               : ps_error_set(err, status, "socket: the loop cannot watch it");
}

enum ps_status ps_zmq_socket_watch(struct ps_zmq_socket *socket, struct ps_error *err)
{
    PS_TRY(watch(socket, socket->socket, &socket->watch, on_readable, err));
    enum ps_status status =
        watch(socket, socket->monitor, &socket->monitor_watch, on_monitor, err);
    if (status != PS_OK) {
        ps_loop_unwatch(socket->wire->loop, &socket->watch);
        return status;
    }
    socket->watched = true;
    /* News that came before the watches stood would never come again. */
    socket->fresh = true;
    ps_zmq_schedule(socket);
    return PS_OK;
}

void ps_zmq_socket_unwatch(struct ps_zmq_socket *socket)
{
    if (socket->watched) {
        socket->watched = false;
        ps_loop_unwatch(socket->wire->loop, &socket->watch);
        ps_loop_unwatch(socket->wire->loop, &socket->monitor_watch);
    }
}

/* ---- the monitor ---- */

static void dialed_event(struct ps_zmq_socket *socket, unsigned event)
{
    struct ps_zmq_wire *wire = socket->wire;
    struct ps_zmq_peer *peer = socket->dialed;
    struct ps_wire_peer *base = (struct ps_wire_peer *)(void *)peer;
    if (peer == NULL) {
        return;
    }
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED && !peer->connected) {
        /* Lets the socket take in its new pipe, without which a send would be refused. */
        int events;
        size_t size = sizeof(events);
        (void)zmq_getsockopt(socket->socket, ZMQ_EVENTS, &events, &size);
        peer->connected = true;
        wire->events.connected(wire->end, base, &peer->ctx);
        if (socket->watched) {
            ps_zmq_schedule(socket);
        }
    } else if (event == ZMQ_EVENT_DISCONNECTED && peer->connected) {
        do { /* what it had sent comes first */
            ps_zmq_receive(socket);
        } while (socket->dirty && socket->watched);
        if (socket->dialed == peer) {
            peer->connected = false;
            wire->events.disconnected(wire->end, base, &peer->ctx);
        }
    }
}

static void accepted_event(struct ps_zmq_socket *socket, unsigned event, uint32_t value)
{
    uint64_t key = (uint64_t)value + 1;
    if (event == ZMQ_EVENT_ACCEPTED) {
        /* Without memory the connection counts as broken once it has said all. */
        (void)!ps_map_put(&socket->open, key, socket, NULL);
    } else if (event == ZMQ_EVENT_DISCONNECTED) {
        (void)ps_map_remove(&socket->open, key);
        struct ps_zmq_peer *peer = ps_map_remove(&socket->by_fd, key);
        if (peer != NULL) {
            peer->fd = -1;
            ps_list_remove(&peer->node);
            ps_list_push_back(&socket->gone, &peer->node);
            ps_zmq_schedule(socket);
        }
    }
}

bool ps_zmq_monitor_read(struct ps_zmq_socket *socket, unsigned *event_out,
                         uint32_t *value_out)
{
    unsigned char data[6];
    char address[PS_URL_BYTES];
    int n = zmq_recv(socket->monitor, data, sizeof(data), ZMQ_DONTWAIT);
    if (n < 0) {
        return false;
    }
    (void)zmq_recv(socket->monitor, address, sizeof(address), ZMQ_DONTWAIT);
    uint16_t event = 0;
    if (n == (int)sizeof(data)) { /* in the machine's byte order */
        memcpy(&event, data, sizeof(event));
        memcpy(value_out, data + 2, sizeof(*value_out));
    }
    *event_out = event;
    return true;
}

static void tune(const struct ps_zmq_socket *socket, int fd)
{
    if (socket->wire->ops->local) {
        ps_ipc_tune(fd);
    } else {
        ps_tcp_tune_loopback(fd);
    }
}

void ps_zmq_monitor_drain(struct ps_zmq_socket *socket)
{
    unsigned event;
    uint32_t value = 0;
    while (socket->monitor != NULL && ps_zmq_monitor_read(socket, &event, &value)) {
        if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL ||
            event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL ||
            event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
            /* No detail: the other end went, as a process that is ended does, or babbled.
             */
            bool vague = event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;
            PS_LOG_LIMITED(socket->wire->node->log, &socket->wire->garbage_limit, WARN,
                           NET, "%s: a connection %s (0x%x)", socket->url,
                           vague ? "ended in its handshake or spoke no protocol of ours"
                                 : "spoke no protocol of ours",
                           event);
            continue;
        }
        if (event == ZMQ_EVENT_CONNECTED || event == ZMQ_EVENT_ACCEPTED) {
            tune(socket, (int)value);
        }
        if (socket->listening) {
            accepted_event(socket, event, value);
        } else {
            dialed_event(socket, event);
            if (!socket->watched) {
                return; /* its handler hung up */
            }
        }
    }
}
