/* What the files of the server share.  Private to the room.
 *
 * The control loop owns struct ps_server; a lane's loop owns its struct server_lane. They
 * talk by errands (control.c) only.  A request belongs to the lane whose link brought it
 * (its home); its parts visit the lanes of their shards. */
#ifndef PENSTOCK_SERVER_STATE_H
#define PENSTOCK_SERVER_STATE_H

#include "base/map.h"
#include "kvstore/shard/control.h"
#include "kvstore/shard/entry.h"
#include "kvstore/shard/member.h"
#include "server/server.h"
#include "server/update.h"

#define SERVER_REQUESTS_MAX 65536 /* that wait on one lane; further ones: PS_EAGAIN */

/* ---- keys on a lane ---- */
struct lane_extent {
    struct ps_extent place;
    struct ps_entry *chunks;
    uint64_t chunk_count;
};

struct lane_key {
    struct ps_entry_key shared;
    struct lane_store *store;
    uint64_t chunk_elements;
    struct ps_extent *places; /* the same places, for searching */
    struct lane_extent *extents;
    size_t extent_count;
};

struct lane_store {
    struct ps_update_rule rule;
};

/* ---- lanes ---- */
struct server_lane {
    struct ps_server *server;
    uint32_t index;
    char url[PS_URL_BYTES];
    struct ps_loop *loop;
    bool started;
    struct ps_net_end *end;
    struct ps_quorum quorum;
    bool has_quorum;
    struct ps_blocks *blocks;
    struct ps_entry_env env;
    struct ps_map keys;      /* handle -> lane_key */
    struct ps_strmap stores; /* name -> lane_store */
    struct ps_pool *requests;
    struct ps_list live; /* requests whose home this is */
    struct ps_list peers;
    struct ps_error failed; /* the job's error: everything is answered with it */
    struct ps_log_limit bad_limit;
    uint64_t requests_count, refused_count;
};

/* A worker's link to a lane. */
struct lane_peer {
    struct ps_list node;
    struct server_lane *lane;
    struct ps_net_link *link;
    uint32_t member, rank;
    struct ps_list unsent; /* requests that are answered but found no room */
};

/* ---- requests ---- */
struct server_request;
struct server_part { /* one record on its way */
    struct ps_entry_ask ask;
    struct ps_task task; /* to another lane */
    struct server_request *request;
    struct server_lane *lane;
    struct ps_record record; /* the request's, then the reply's */
    uint64_t offset;         /* of its bytes in the payload */
    struct ps_buf *value;    /* of the reply, retained; or the map of an error */
    bool superseded;
};

struct server_request {
    struct ps_list node;   /* lane->live */
    struct ps_list unsent; /* peer->unsent */
    struct server_lane *home;
    struct lane_peer *peer; /* home's; NULL when the link is gone */
    struct ps_link_head head;
    struct ps_buf *payload;    /* until all parts were handled */
    _Atomic uint32_t handling; /* parts not yet handled: they still read the payload */
    _Atomic uint32_t waiting;  /* steps to the reply: parts not handled, not answered */
    struct ps_task answered_task; /* back home */
    uint32_t count;
    struct server_part *parts; /* 'one', or an array of its own */
    struct server_part one;
};

/* ---- counters ---- */
struct lane_counters {
    uint64_t keys, chunks, bytes, pushes, pulls, open_rounds, requests, refused, live;
    uint64_t version_max, updates;
    bool waits; /* somebody is missing: */
    uint64_t wait_step;
    uint32_t wait_rank;
    char wait_key[PS_KEY_NAME_BYTES];
};

/* ---- the server ---- */
struct ps_server {
    struct ps_node *node;
    void (*ended)(void *ctx, const struct ps_error *result);
    void *ctx;
    struct ps_member *member;
    uint32_t lane_count;
    struct server_lane *lanes;
    bool joined, ending, finished;
    bool refusing; /* the control loop takes no more requests */
    bool closing;  /* no loop of a lane runs any more */
    struct ps_error result;
    struct ps_event ended_event;
    bool event_ready;
    struct ps_list errands; /* under way */
    uint32_t gone;          /* workers that left */
    struct ps_task stop_task;
    _Atomic bool stop_asked;
    char stop_why[PS_ERROR_TEXT_BYTES];
};

/* ---- server_lane.c ---- */
/* Opens the lane's loop and end and listens; the loop starts when the job is known. */
enum ps_status server_lane_open(struct server_lane *lane, struct ps_server *server,
                                uint32_t index, const char *url, struct ps_error *err);
/* The job is known: quorum, identity; the loop runs from here on. */
enum ps_status server_lane_start(struct server_lane *lane, const struct ps_msg_job *job);
void server_lane_stop(struct server_lane *lane);
/* The end, when all lanes have stopped: each step for all lanes before the next, since
 * lanes hold tasks and parts of each other's requests.  Answers what waits, to nobody;
 * closes links and loop; frees. */
void server_lane_drain(struct server_lane *lane);
void server_lane_close(struct server_lane *lane);
void server_lane_fini(struct server_lane *lane);
/* Ends everything that waits, now and later, with this error. */
void server_lane_fail(struct server_lane *lane, const struct ps_error *err);

/* ---- keys.c ---- */
enum ps_status server_keys_add(struct server_lane *lane, const struct ps_msg_keys *msg,
                               uint32_t chunk_bytes, struct ps_error *err);
void server_keys_fini(struct server_lane *lane);
/* The entry that a record is for.  Errors with 'err': PS_ENOENT, PS_EDTYPE, PS_ESTALE,
 * PS_ESHAPE. */
enum ps_status server_keys_find(const struct server_lane *lane,
                                const struct ps_record *record,
                                struct ps_entry **entry_out, struct ps_error *err);
/* fn on every entry of the lane. */
void server_keys_each(struct server_lane *lane,
                      void (*fn)(struct ps_entry *entry, void *arg), void *arg);
void server_env_init(struct server_lane *lane);
/* A new optimizer or a change, for the entries of one store. */
enum ps_status server_optimizer_set(struct server_lane *lane,
                                    const struct ps_msg_optimizer *msg,
                                    struct ps_error *err);
enum ps_status server_hyper_change(struct server_lane *lane,
                                   const struct ps_msg_optimizer *msg,
                                   struct ps_error *err);

/* ---- data.c ---- */
void server_data_landed(struct server_lane *lane, struct lane_peer *peer,
                        const struct ps_frame *frame);
/* An entry's answer (struct ps_entry_env). */
void server_data_answer(void *lane, struct ps_entry_ask *ask,
                        const struct ps_entry_answer *answer);
/* The link has room again. */
void server_data_flush(struct lane_peer *peer);
/* The link is gone: its requests are answered to nobody. */
void server_data_peer_gone(struct lane_peer *peer);
/* Frees what is left when all loops have stopped. */
void server_data_fini(struct server_lane *lane);

/* ---- control.c ---- */
void server_control_request(void *server, struct ps_net_link *link,
                            const struct ps_frame *frame);
void server_control_fail_lanes(struct ps_server *server, const struct ps_error *err);
void server_control_fini(struct ps_server *server);

/* ---- server_status.c ---- */
void server_counters(struct server_lane *lane, struct lane_counters *out);
enum ps_status server_status_json(const struct ps_server *server,
                                  const struct lane_counters *lanes,
                                  struct ps_buf **body_out);

#endif
