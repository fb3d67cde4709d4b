/* The distributed store's inside: one membership for all dist stores of a node.
 *
 * dist.c       the store's slots: join, init, optimizer, barrier, done, leave (user
 * threads) dist_link.c  the data loop: a link to every lane of every server dist_chunk.c
 * requests cut into chunks, the chunk queue, replies dist_call.c  control calls to the
 * scheduler that a user waits for
 *
 * Threads: 'loop' means the data loop, node->loop the control loop (membership). */
#ifndef PENSTOCK_KVSTORE_DIST_H
#define PENSTOCK_KVSTORE_DIST_H

#include "base/mem.h"
#include "base/queue.h"
#include "engine/fork_guard.h"
#include "kvstore/kvstore_ops.h"
#include "kvstore/reducer.h"
#include "kvstore/shard/member.h"
#include "net/net.h"

#include <stdatomic.h>

/* One lane of a server and what waits to go there. */
struct ps_dist_lane {
    struct ps_dist *dist;
    const struct ps_member_row *server;
    struct ps_net_link *link; /* NULL once lost */
    bool up;
    struct ps_heap queue; /* chunk operations by priority, then arrival; loop */
};

struct ps_dist {
    struct ps_node *node;
    struct ps_member *member;
    struct ps_loop *loop;
    struct ps_net_end *end;
    unsigned stores;                 /* that share this */
    struct ps_fork_guard fork_guard; /* a fork's child has neither loops nor links */
    bool opened;                     /* joined and linked; guarded by the mutex */

    /* by server rank, then lane */
    struct ps_dist_lane **lanes;
    uint32_t *lane_counts;
    uint32_t server_count;
    uint64_t chunk_bytes;
    uint32_t lanes_up, lanes_total; /* loop */

    struct ps_event joined; /* JOB heard, or failed */
    struct ps_event linked; /* every lane is up, or failed */
    struct ps_mutex mutex;  /* guards 'error', 'inbox', 'finished' */
    struct ps_error error;  /* not PS_OK: the job is over; set once */
    struct ps_list inbox;   /* chunk operations on their way to the loop */
    struct ps_list
        finished; /* chunk operations whose buffers came back on another thread */
    struct ps_doorbell bell; /* rings for both lists and for 'error' */
    struct ps_list pending;  /* chunk operations with a call under way; loop */
    struct ps_list delayed;  /* told to come again; loop */
    struct ps_timer delay_timer;
    struct ps_pool *chunk_pool, *request_pool;

    _Atomic uint64_t barrier_sequence, optimizer_sequence;
};

/* A store's own part. */
struct ps_dist_store {
    struct ps_dist *dist;
    struct ps_reducer *reducer;
    uint32_t store_id;
    struct ps_mutex mutex;     /* guards 'requests' */
    uint64_t requests;         /* submitted and not done */
    struct ps_event drained;   /* set while there is none */
    _Atomic uint64_t max_step; /* the largest step any key has reached */
};

/* A key's own part. */
struct ps_dist_key {
    struct ps_mutex mutex; /* program order: step numbers and queueing are one */
    uint64_t step;         /* pushes so far */
    uint64_t chunk_elements;
    uint64_t chunk_count; /* over all extents */
    uint32_t pulls;       /* unfinished */
    int pull_priority;    /* their lowest: a later push may not overtake them */
    struct ps_buf *spare; /* a sum's buffer, kept for the next push */
};

struct ps_dist_request {
    struct ps_kvstore *store;
    struct ps_kv_key *key;
    struct ps_kv_request *user;
    uint8_t op;   /* enum ps_record_op */
    int priority; /* in the queue */
    uint64_t step;
    const char *payload;   /* what is sent: the caller's array or 'sum' */
    struct ps_buf *sum;    /* over several devices */
    uint64_t remaining;    /* chunks; loop */
    struct ps_error error; /* first failure; loop */
    uint64_t version;
    uint32_t contributors;
};

/* ---- dist_link.c ---- */
PS_MUST_CHECK enum ps_status ps_dist_links_open(struct ps_dist *dist,
                                                struct ps_error *err);
void ps_dist_links_close(struct ps_dist *dist);
struct ps_dist_lane *ps_dist_lane_of(struct ps_dist *dist, uint32_t shard);
/* The job is over: everything pending ends with 'err'.  Any thread; the first error
 * counts. */
void ps_dist_fail(struct ps_dist *dist, const struct ps_error *err);
/* Copies the job's error, PS_EFORK in a fork's child; PS_OK while it lives.  Any thread.
 */
enum ps_status ps_dist_error(struct ps_dist *dist, struct ps_error *err);

/* ---- dist_chunk.c ---- */
/* Cuts 'request' into chunk operations and hands them to the loop.  Any thread. */
PS_MUST_CHECK enum ps_status ps_dist_submit_chunks(struct ps_dist_request *request);
void ps_dist_dispatch(struct ps_dist_lane *lane);                              /* loop */
void ps_dist_lane_fail(struct ps_dist_lane *lane, const struct ps_error *err); /* loop */
void ps_dist_bell(struct ps_doorbell *bell);
void ps_dist_delay_over(struct ps_timer *timer);
PS_MUST_CHECK enum ps_status ps_dist_chunks_open(struct ps_dist *dist);
void ps_dist_chunks_close(struct ps_dist *dist);

/* ---- dist.c ---- */
/* A request is over: tells the user.  Loop. */
void ps_dist_request_done(struct ps_dist_request *request);

/* ---- dist_call.c ---- */
/* A control request to the scheduler; waits.  Takes 'body'.  'reply_out' (may be NULL)
 * gets a reference on the reply's body (NULL when it had none). */
PS_MUST_CHECK enum ps_status ps_dist_call(struct ps_dist *dist, enum ps_frame_kind kind,
                                          const char *what, struct ps_buf *body,
                                          struct ps_buf **reply_out,
                                          struct ps_error *err);

#endif
