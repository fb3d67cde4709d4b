/* The networks that live in memory: inproc:// (threads of one process) and sim:// (the
 * virtual clock).  Both join *halves*, one at each end of a connection, and move
 * *parcels* to a half; they differ only in when a parcel arrives.  Frames are never
 * copied: both sides hold references on the same buffers.  Private to net.
 *
 * Threads: everything marked so is guarded by the world's mutex, which is held for a few
 * list operations and never while an end's events run.  A half's 'hung' and 'ctx' belong
 * to its wire's loop. */
#ifndef PENSTOCK_NET_WORLD_H
#define PENSTOCK_NET_WORLD_H

#include "base/map.h"
#include "base/queue.h"
#include "base/sim.h"
#include "base/thread.h"
#include "net/net_ops.h"

/* Bytes on their way from one half before its sender has to wait. */
#define PS_HALF_BYTES_MAX ((size_t)8 << 20)

struct ps_partition {
    char a[32], b[32];
};

struct ps_net_world {
    struct ps_mutex mutex;
    struct ps_sim *sim;
    struct ps_strmap listeners PS_GUARDED_BY(mutex); /* url -> struct ps_memory_wire */
    struct ps_list waiting PS_GUARDED_BY(mutex);     /* dialed halves without listener */
    struct ps_list wires PS_GUARDED_BY(mutex);
    struct ps_pool *parcels PS_GUARDED_BY(mutex); /* unlocked */
    uint64_t next_name PS_GUARDED_BY(mutex);
    /* the simulation's: one thread, the mutex is taken all the same */
    struct ps_net_weather weather PS_GUARDED_BY(mutex);
    struct ps_partition partitions[32] PS_GUARDED_BY(mutex);
    size_t partition_count PS_GUARDED_BY(mutex);
    uint64_t swept_ns PS_GUARDED_BY(mutex);
};

struct ps_memory_wire {
    const struct ps_net_ops *ops;
    struct ps_net_world *world;
    struct ps_node *node;
    struct ps_loop *loop;
    struct ps_wire_events events;
    void *end;
    char node_name[32]; /* at the time of opening */
    bool closing, swept;
    struct ps_list node_in_world;
    struct ps_list halves;
    struct ps_list mailbox;     /* parcels: inproc's to be read, sim's in flight */
    struct ps_parcel *arriving; /* on the loop's stack: a kill may leave it there */
    struct ps_doorbell bell;
};

struct ps_half {
    struct ps_memory_wire *wire;
    struct ps_half *other; /* NULL: not connected */
    void *ctx;
    struct ps_list node;    /* in wire->halves */
    struct ps_list waiting; /* in world->waiting */
    bool dialed, hung;
    bool blocked;       /* a send was answered PS_EAGAIN */
    size_t bytes;       /* on their way to 'other' */
    uint32_t parcels;   /* addressed to this half; it lives until they are gone */
    uint64_t latest_ns; /* sim: the last delivery time chosen towards 'other' */
    char url[PS_URL_BYTES];
};

enum ps_parcel_kind {
    PS_PARCEL_FRAME,
    PS_PARCEL_CONNECTED,
    PS_PARCEL_BROKEN,
    PS_PARCEL_WRITABLE
};

struct ps_parcel {
    struct ps_list node; /* in the receiving wire's mailbox */
    enum ps_parcel_kind kind;
    struct ps_half *to;
    struct ps_buf *head, *payload;
    size_t bytes;
    struct ps_timer timer; /* sim */
};

/* ---- memory_wire.c: what both have in common ---- */
enum ps_status ps_memory_open(const struct ps_net_ops *ops, struct ps_node *node,
                              struct ps_loop *loop, const struct ps_wire_events *events,
                              void *end, struct ps_wire **wire_out, struct ps_error *err);
void ps_memory_close(struct ps_wire *wire);
void ps_memory_closing(struct ps_wire *wire);
void ps_memory_forget_listeners(struct ps_net_world *world, struct ps_memory_wire *wire)
    PS_REQUIRES(world->mutex);
enum ps_status ps_memory_listen(struct ps_wire *wire, const char *url,
                                char url_out[PS_URL_BYTES], struct ps_error *err);
enum ps_status ps_memory_dial(struct ps_wire *wire, const char *url, void *peer_ctx,
                              struct ps_wire_peer **peer_out, struct ps_error *err);
void ps_memory_hangup(struct ps_wire_peer *peer);
enum ps_status ps_memory_send(struct ps_wire_peer *peer, struct ps_buf *head,
                              struct ps_buf *payload);
enum ps_status ps_memory_register(struct ps_wire *wire, void *data, size_t size,
                                  uint64_t *out);
void ps_memory_unregister(struct ps_wire *wire, uint64_t registration);

/* ---- world.c ---- */
/* A parcel for 'to', counted there; NULL when out of memory. */
struct ps_parcel *ps_parcel_make(struct ps_net_world *world, enum ps_parcel_kind kind,
                                 struct ps_half *to) PS_REQUIRES(world->mutex);
/* Releases its buffers and its count; frees a half that nobody needs any more. */
void ps_parcel_free(struct ps_net_world *world, struct ps_parcel *parcel)
    PS_REQUIRES(world->mutex);
void ps_half_free_if_done(struct ps_half *half);
/* Puts it on its way: into the mailbox, or onto the virtual clock. */
void ps_parcel_post(struct ps_net_world *world, struct ps_parcel *parcel)
    PS_REQUIRES(world->mutex);
/* Runs the events of a parcel that has arrived; on the receiving wire's loop. */
void ps_parcel_arrive(struct ps_parcel *parcel);
/* Joins a dialed half with a new half of the listener; false when out of memory. */
bool ps_half_join(struct ps_net_world *world, struct ps_half *dialed,
                  struct ps_memory_wire *listener) PS_REQUIRES(world->mutex);
/* Cuts a half loose: its other half learns it after what is already on its way. */
void ps_half_cut(struct ps_net_world *world, struct ps_half *half)
    PS_REQUIRES(world->mutex);

/* ---- sim_net.c ---- */
/* The weather's word on a frame from 'from': how many copies arrive (0 to 2), and when.
 */
void ps_sim_net_post(struct ps_net_world *world, struct ps_parcel *parcel)
    PS_REQUIRES(world->mutex);
void ps_sim_net_trace(struct ps_net_world *world, const char *label,
                      const struct ps_parcel *parcel);
/* Connections of nodes that were killed break and their names are free again; looks at
 * most every 10 ms of virtual time unless 'now'. */
void ps_sim_net_sweep(struct ps_net_world *world, bool now) PS_REQUIRES(world->mutex);

#endif
