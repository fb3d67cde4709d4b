/* The scheduler's state and what its files offer each other.  Private to scheduler.
 *
 * scheduler.c  lifecycle, dispatch      members.c    table, ranks, the job's begin
 * register.c   REGISTER                 job_settings.c   the environment, checked
 * heartbeat.c  silence, loss, ABORT     barrier.c    barriers
 * job_keys.c   stores, placement        optimizer.c  OPTIMIZER, HYPER
 * job_status.c STATUS                   leave.c      DONE, LEAVE, STOP, the end
 * fanout.c     calls to many members    ask.c        requests that wait for an answer
 * Threads: the node's control loop. */
#ifndef PENSTOCK_SCHEDULER_JOB_H
#define PENSTOCK_SCHEDULER_JOB_H

#include "base/map.h"
#include "base/queue.h"
#include "kvstore/shard/control.h"
#include "kvstore/shard/placement.h"
#include "scheduler/scheduler.h"

#define PS_SCHED_STOP_DEADLINE_MS                                                      \
    10000                               /* servers drain and leave; then we end anyway \
                                         */
#define PS_SCHED_ABORT_DEADLINE_MS 2000 /* members acknowledge ABORT */
#define PS_SCHED_STATUS_DEADLINE_MS 2000
#define PS_SCHED_DRAIN_MS 20 /* last replies reach the sockets; close flushes too */
#define PS_SCHED_BARRIERS_MAX 4096
#define PS_SCHED_STATUS_MAX 16 /* STATUS requests in progress */

enum ps_sched_job_state {
    PS_JOB_STARTING, /* members register */
    PS_JOB_RUNNING,
    PS_JOB_STOPPING, /* all workers left; servers drain */
    PS_JOB_ABORTED,
    PS_JOB_ENDED
};

enum ps_sched_member_state {
    PS_MEMBER_WAITING, /* registered, the job is not complete */
    PS_MEMBER_JOINED,
    PS_MEMBER_LEFT,
    PS_MEMBER_LOST
};

/* A request that waits: whom to answer.  In one waiting list and in scheduler->asks. */
struct ps_sched_ask {
    struct ps_list waiting, all;
    struct ps_net_link *link; /* NULL: the asker is gone */
    struct ps_link_head head;
    struct ps_sched_member *member; /* NULL: not registered (STATUS) */
};

struct ps_sched_member {
    uint32_t id;
    enum ps_role role;
    int32_t rank_asked; /* -1 = any */
    uint32_t rank;      /* set when the job begins; before, what it would be */
    uint64_t nonce;
    uint32_t pid;
    char host[PS_HOST_BYTES];
    char (*urls)[PS_URL_BYTES];
    size_t url_count;
    enum ps_sched_member_state state;
    struct ps_net_link *link;   /* NULL: down */
    struct ps_list registering; /* asks for the job */
    uint64_t heard_ns, silent_ns;
    bool done; /* contributes no more; QUORUM is on its way or acknowledged */
    struct ps_list quorum_asks; /* DONE and LEAVE that wait for QUORUM */
    bool quorum_pending, leaving;
};

struct ps_sched_store {
    char name[64];
    uint32_t id;                  /* in handles; from 1 */
    struct ps_list changes;       /* OPTIMIZER and HYPER, the first is on its way */
    struct ps_msg_optimizer held; /* what all servers have; name "" = none */
    struct ps_map hyper_done;     /* member -> last acknowledged HYPER sequence */
};

struct ps_scheduler {
    struct ps_node *node;
    struct ps_net_end *end;
    char url[PS_URL_BYTES];
    void (*ended)(void *ctx, const struct ps_error *result);
    void *ctx;
    struct ps_event ended_event;
    bool event_ready, closing;

    /* settings, constant */
    uint32_t num_worker, num_server, shard_count, chunk_bytes;
    uint64_t bigarray_bound;
    uint64_t heartbeat_ns, heartbeat_timeout_ns, start_timeout_ns, resend_timeout_ns;

    enum ps_sched_job_state state;
    uint8_t uuid[PS_UUID_BYTES];
    uint64_t epoch_number;
    struct ps_sched_member **members; /* in order of registration */
    size_t member_count, member_capacity;
    uint32_t next_member;
    uint64_t started_ns, tick_ns;
    struct ps_timer start_timer, beat_timer, end_timer, drain_timer;
    struct ps_error failure; /* why, when ABORTED (text may be cut) */
    char failure_text[PS_TEXT_MAX];
    uint32_t failure_member;
    struct ps_error result;
    bool finishing;

    struct ps_list asks, fanouts;
    struct ps_strmap barriers;
    struct ps_strmap stores;
    struct ps_placement *placement; /* from the job's begin on */
    struct ps_map held_keys;        /* handle -> set: all its servers have it */
    struct ps_map pending_keys;     /* handle -> its ENTRIES is on its way */
    struct ps_list key_asks;        /* KEYS that wait, struct key_ask of job_keys.c */
    struct ps_list statuses;        /* STATUS in progress, struct query of job_status.c */
    size_t status_count;

    struct ps_task stop_task;
    _Atomic bool stop_asked;
    char stop_why[128];
    struct ps_log_limit noise; /* faults that peers can repeat */
};

/* ---- job_settings.c ---- */
/* Errors: PS_EINVAL naming the setting, what it is and what is accepted. */
PS_MUST_CHECK enum ps_status ps_sched_read_settings(struct ps_scheduler *s,
                                                    struct ps_error *err);

/* ---- ask.c ---- */
/* Remembers who asked, at the end of 'list'; the same request sent again is the same ask.
 * NULL when out of memory (answered so). */
struct ps_sched_ask *ps_sched_ask_add(struct ps_scheduler *s, struct ps_list *list,
                                      struct ps_net_link *link,
                                      const struct ps_link_head *head);
/* Answers (the body is borrowed, may be NULL) and frees. */
void ps_sched_ask_answer(struct ps_scheduler *s, struct ps_sched_ask *ask,
                         enum ps_status status, struct ps_buf *body);
void ps_sched_asks_answer(struct ps_scheduler *s, struct ps_list *list,
                          enum ps_status status, struct ps_buf *body);
void ps_sched_asks_refuse(struct ps_scheduler *s, struct ps_list *list,
                          enum ps_status status, const char *text);
void ps_sched_asks_forget_link(struct ps_scheduler *s, const struct ps_net_link *link);
void ps_sched_asks_free(struct ps_list *list);
/* At once, without remembering.  'body' is borrowed. */
void ps_sched_reply(struct ps_scheduler *s, struct ps_net_link *link,
                    const struct ps_link_head *head, enum ps_status status,
                    struct ps_buf *body);
void ps_sched_refuse(struct ps_scheduler *s, struct ps_net_link *link,
                     const struct ps_link_head *head, enum ps_status status,
                     const char *text);

/* ---- fanout.c ---- */
struct ps_sched_fanout;
struct ps_sched_fanout_options {
    struct ps_scheduler *scheduler;
    unsigned kind;
    size_t capacity; /* targets at most */
    const char *what;
    uint64_t timeout_ns; /* 0 = REQUEST_TIMEOUT_MS */
    /* Once, after all answered or failed; 'err' is the first failure, naming the member.
     * The fanout is freed after return. */
    void (*done)(void *ctx, struct ps_sched_fanout *fanout, const struct ps_error *err);
    void *ctx;
};
PS_MUST_CHECK enum ps_status
ps_sched_fanout_create(const struct ps_sched_fanout_options *options,
                       struct ps_sched_fanout **fanout_out);
/* Shares 'body' (may be NULL). */
void ps_sched_fanout_add(struct ps_sched_fanout *fanout, struct ps_sched_member *member,
                         struct ps_buf *body);
/* Before it goes: what else went wrong is reported as its failure. */
void ps_sched_fanout_fail(struct ps_sched_fanout *fanout, enum ps_status status,
                          const char *text);
/* Sends; 'done' may run before return. */
void ps_sched_fanout_go(struct ps_sched_fanout *fanout);
/* At the end: each reports PS_ECANCELED. */
void ps_sched_fanouts_cancel(struct ps_scheduler *s);
struct ps_scheduler *ps_sched_fanout_scheduler(const struct ps_sched_fanout *fanout);
size_t ps_sched_fanout_count(const struct ps_sched_fanout *fanout);
struct ps_sched_member *ps_sched_fanout_member(const struct ps_sched_fanout *fanout,
                                               size_t i);
/* The reply's body, NULL when it failed; borrowed from the fanout. */
const struct ps_buf *ps_sched_fanout_reply(const struct ps_sched_fanout *fanout,
                                           size_t i);
/* A fanout with the same body to every joined server. */
PS_MUST_CHECK enum ps_status
ps_sched_fanout_servers(const struct ps_sched_fanout_options *options,
                        struct ps_buf *body);

/* ---- members.c ---- */
#define PS_SCHED_LABEL_BYTES 224
/* "worker 1 (member 5, host h, pid 812)".  Returns 'out'. */
const char *ps_sched_label(const struct ps_sched_member *member,
                           char out[PS_SCHED_LABEL_BYTES]);
struct ps_sched_member *ps_sched_member_by_id(const struct ps_scheduler *s, uint32_t id);
/* Members of 'role' in 'state'. */
size_t ps_sched_count(const struct ps_scheduler *s, enum ps_role role,
                      enum ps_sched_member_state state);
/* Forgets a registration before the job began. */
void ps_sched_unregister(struct ps_scheduler *s, struct ps_sched_member *member,
                         const char *why);
void ps_sched_member_free(struct ps_sched_member *member);
/* "waiting for server 1; have worker 0 (member 2, ...), ..." */
void ps_sched_missing_text(struct ps_scheduler *s, struct ps_str *out);
uint32_t ps_sched_role_size(const struct ps_scheduler *s, enum ps_role role);
/* All are here: ranks, placement, the answers to REGISTER. */
void ps_sched_begin_job(struct ps_scheduler *s);
/* Answers what a member's registration waits for. */
void ps_sched_answer_job(struct ps_scheduler *s, struct ps_sched_member *member);
void ps_sched_epoch_bump(struct ps_scheduler *s);

/* ---- register.c ---- */
void ps_sched_on_register(struct ps_scheduler *s, struct ps_net_link *link,
                          struct ps_sched_member *member, const struct ps_frame *frame);

/* ---- heartbeat.c ---- */
void ps_sched_heartbeat_start(struct ps_scheduler *s);
void ps_sched_heard(struct ps_sched_member *member, uint64_t now_ns);
void ps_sched_on_heartbeat(struct ps_scheduler *s, struct ps_net_link *link,
                           struct ps_sched_member *member, const struct ps_frame *frame);
/* 'seen' says what was observed. */
void ps_sched_lost(struct ps_scheduler *s, struct ps_sched_member *member,
                   const char *seen);
/* Ends the job with an error that all members hear; the first one counts. */
void ps_sched_abort(struct ps_scheduler *s, enum ps_status status, uint32_t named,
                    const char *text);
void ps_sched_on_abort(struct ps_scheduler *s, struct ps_net_link *link,
                       struct ps_sched_member *member, const struct ps_frame *frame);

/* ---- barrier.c ---- */
void ps_sched_on_barrier(struct ps_scheduler *s, struct ps_net_link *link,
                         struct ps_sched_member *member, const struct ps_frame *frame);
/* After a worker left: those that waited only for it are released. */
void ps_sched_barriers_check(struct ps_scheduler *s);
void ps_sched_barriers_refuse(struct ps_scheduler *s, enum ps_status status,
                              const char *text);
void ps_sched_barriers_fini(struct ps_scheduler *s);

/* ---- job_keys.c ---- */
/* The store of that name, made when new.  Errors: PS_EINVAL, PS_EFULL, PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_sched_store(struct ps_scheduler *s, const char *name,
                                            struct ps_sched_store **store_out,
                                            struct ps_error *err);
void ps_sched_on_keys(struct ps_scheduler *s, struct ps_net_link *link,
                      struct ps_sched_member *member, const struct ps_frame *frame);
void ps_sched_keys_refuse(struct ps_scheduler *s, enum ps_status status,
                          const char *text);
void ps_sched_keys_fini(struct ps_scheduler *s);

/* ---- optimizer.c ---- */
void ps_sched_on_optimizer(struct ps_scheduler *s, struct ps_net_link *link,
                           struct ps_sched_member *member, const struct ps_frame *frame);
void ps_sched_optimizers_refuse(struct ps_scheduler *s, enum ps_status status,
                                const char *text);
void ps_sched_store_fini(struct ps_sched_store *store);

/* ---- job_status.c ---- */
void ps_sched_on_status(struct ps_scheduler *s, struct ps_net_link *link,
                        struct ps_sched_member *member, const struct ps_frame *frame);
void ps_sched_status_fini(struct ps_scheduler *s);

/* ---- leave.c ---- */
void ps_sched_on_done(struct ps_scheduler *s, struct ps_net_link *link,
                      struct ps_sched_member *member, const struct ps_frame *frame);
void ps_sched_on_leave(struct ps_scheduler *s, struct ps_net_link *link,
                       struct ps_sched_member *member, const struct ps_frame *frame);
/* A server went while stopping. */
void ps_sched_server_gone(struct ps_scheduler *s);
/* The job has ended so; reported after the last replies are out. */
void ps_sched_finish(struct ps_scheduler *s, enum ps_status status, const char *text);

#endif
