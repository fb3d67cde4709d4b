/* The ZeroMQ transport's parts: zmq_wire.c (slots), zmq_socket.c (sockets and their
 * options, monitors), zmq_receive.c (frames in), zmq_send.c (frames out), zmq_settle.c
 * (closing).
 *
 * One context, with one IO thread, for each end.  A ROUTER for each address listened at,
 * a DEALER for each dialed link.  Wire form: [head + records][payload]; the second part
 * is missing when there is no payload.
 *
 * ZeroMQ's descriptor tells that the socket's state *may* have changed, and any call on
 * the socket may swallow that news.  So: whoever sends marks the socket dirty; a dirty
 * socket is received from until EAGAIN in the same turn of the loop; a watch that fires
 * does the same.  The descriptor is watched level-triggered: draining the socket clears
 * it.
 *
 * Bounds: ZeroMQ counts messages, we count bytes: what was handed over and not yet
 * released by the IO thread is bounded for each peer (PS_ZMQ_BYTES_MAX), so SNDHWM is
 * unlimited.  Peers of a ROUTER are told apart by connection: the monitor says which
 * descriptor broke, ZMQ_SRCFD which one a message came by.
 *
 * Threads: the end's loop; release functions of buffers run on the IO thread and touch
 * only the atomic fields below and the doorbell.  Private to net. */
#ifndef PENSTOCK_NET_ZMQ_WIRE_H
#define PENSTOCK_NET_ZMQ_WIRE_H

#include "base/map.h"
#include "base/queue.h"
#include "net/net_ops.h"

#include <zmq.h>

#define PS_ZMQ_BYTES_MAX ((size_t)4 << 20) /* handed over, not yet sent, to one peer */
#define PS_ZMQ_FRAMES_MAX 256
#define PS_ZMQ_LINGER_MS 1000

struct ps_zmq_wire {
    const struct ps_net_ops *ops;
    struct ps_node *node;
    struct ps_loop *loop;
    struct ps_wire_events events;
    void *end;
    void *context;
    bool closing;
    struct ps_list sockets, doomed; /* doomed: hung up, closed at the next turn */
    struct ps_task turn;            /* receives from dirty sockets, closes doomed ones */
    struct ps_pool *releases;       /* struct ps_zmq_release; locked */
    struct ps_doorbell room;        /* a blocked peer has room again */
    struct ps_zmq_buf *spare;       /* a wrapper for the next payload */
    uint64_t monitor_count, file_count;
    char directory[PS_URL_BYTES]; /* of our own ipc sockets, removed at close; or "" */
    struct ps_log_limit garbage_limit;
};

struct ps_zmq_peer;

struct ps_zmq_socket {
    struct ps_list node;
    struct ps_zmq_wire *wire;
    void *socket, *monitor;
    struct ps_fd_watch watch, monitor_watch;
    bool listening, dirty, watched;
    bool fresh; /* its monitor has not been read since the watches stand */
    struct ps_zmq_peer *dialed; /* the one peer of a DEALER */
    size_t awaited;             /* closing: peers that have not answered the goodbye */
    /* ROUTER: */
    struct ps_map by_id; /* routing id -> struct ps_zmq_peer */
    struct ps_map by_fd; /* 1 + descriptor -> struct ps_zmq_peer */
    struct ps_map open;  /* 1 + descriptor -> accepted, not broken; &awaited: see there */
    struct ps_list peers, gone; /* gone: broken; told when all they sent is read */
    char url[PS_URL_BYTES];
    char bound_path[PS_URL_BYTES]; /* of a unix socket we listen at; or "" */
};

struct ps_zmq_peer {
    struct ps_zmq_socket *socket; /* NULL after hangup */
    void *ctx;
    struct ps_list node; /* in socket->peers or ->gone */
    uint32_t id;
    int fd; /* -1: none known */
    bool connected, hung, refused;
    _Atomic uint32_t refs; /* its socket, and each release that is out */
    _Atomic size_t bytes;
    _Atomic uint32_t frames;
    _Atomic bool blocked;
};

/* ---- zmq_wire.c ---- */
void ps_zmq_schedule(struct ps_zmq_socket *socket);
void ps_zmq_drop_peer(struct ps_zmq_peer *peer); /* its socket's reference */
void ps_zmq_unref_peer(struct ps_zmq_peer *peer);

/* ---- zmq_socket.c ---- */
enum ps_status ps_zmq_socket_open(struct ps_zmq_wire *wire, bool listening,
                                  struct ps_zmq_socket **socket_out,
                                  struct ps_error *err);
/* Starts the watches; the socket is bound or connected. */
enum ps_status ps_zmq_socket_watch(struct ps_zmq_socket *socket, struct ps_error *err);
void ps_zmq_socket_unwatch(struct ps_zmq_socket *socket);
void ps_zmq_socket_close(struct ps_zmq_socket *socket);
/* Reads what the monitor has to say. */
void ps_zmq_monitor_drain(struct ps_zmq_socket *socket);

/* One event; false when there is none. */
bool ps_zmq_monitor_read(struct ps_zmq_socket *socket, unsigned *event_out,
                         uint32_t *value_out);

/* ---- zmq_settle.c ---- */
/* Waits, bounded, until the peers that were told goodbye have read everything. */
void ps_zmq_settle(struct ps_zmq_wire *wire);

/* ---- zmq_receive.c ---- */
struct ps_zmq_buf;
/* Receives until EAGAIN or until the turn's budget is spent (then the socket stays
 * dirty). */
void ps_zmq_receive(struct ps_zmq_socket *socket);
void ps_zmq_buf_free(struct ps_zmq_buf *buf);

/* ---- zmq_send.c ---- */
size_t ps_zmq_release_bytes(void);
enum ps_status ps_zmq_send(struct ps_wire_peer *peer, struct ps_buf *head,
                           struct ps_buf *payload);
/* Tells peers that have room again. */
void ps_zmq_tell_room(struct ps_zmq_socket *socket);

/* ---- ipc_path_linux.c ---- */
/* "ipc" with the path "*": a fresh one in JOB_DIR, or in a private directory that is made
 * for the wire (its name in 'directory').  Other paths are checked: length, and whether
 * somebody listens (PS_EINUSE); a socket file that nobody listens at is removed. */
PS_MUST_CHECK enum ps_status ps_ipc_path(const struct ps_node *node, const char *url,
                                         uint64_t number, char directory[PS_URL_BYTES],
                                         char url_out[PS_URL_BYTES],
                                         struct ps_error *err);
/* Removes a private directory and whatever sockets are left in it. */
void ps_ipc_remove(const char *directory);
/* Gives a unix socket a send buffer of 512 KiB; does nothing to any other descriptor. */
void ps_ipc_tune(int fd);

#endif
