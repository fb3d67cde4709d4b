/* A member's state.  Private to member.c (life, requests), member_join.c (dial, REGISTER)
 * and member_beat.c (heartbeats).  Thread: the node's control loop. */
#ifndef PENSTOCK_KVSTORE_SHARD_MEMBER_PRIVATE_H
#define PENSTOCK_KVSTORE_SHARD_MEMBER_PRIVATE_H

#include "kvstore/shard/member.h"

/* Heartbeats that wait for their answers at once: one that is lost and sent again does
 * not hold up the next. */
#define PS_MEMBER_BEATS 4

struct ps_beat {
    struct ps_net_call call;
    struct ps_member *member;
};

struct ps_member {
    struct ps_node *node;
    enum ps_role role;
    struct ps_member_handler handler;
    void *ctx;
    char (*urls)[PS_URL_BYTES];
    size_t url_count;
    char root_url[PS_URL_BYTES];
    uint64_t nonce; /* of the registration */

    struct ps_net_end *end;
    struct ps_net_link *link; /* NULL: none now */
    bool link_up;
    struct ps_task start_task;
    struct ps_timer start_timer, redial_timer, beat_timer;
    bool start_extended;        /* the deadline passed; the scheduler has the last word */
    struct ps_error last_error; /* of the last dial */
    char waiting[PS_ERROR_TEXT_BYTES]; /* whom the scheduler waits for */

    struct ps_msg_job job;
    _Atomic bool joined; /* 'job' is constant from then on */
    bool over;           /* failed, left or closing: nothing more is reported */
    bool stopped;
    struct ps_net_call register_call, abort_call, leave_call;
    struct ps_beat beats[PS_MEMBER_BEATS];
    uint64_t beat_ns, beat_timeout_ns; /* 0 = off */
    uint64_t silent_ns, tick_ns;
    void (*leave_done)(void *ctx, enum ps_status status);
    void *leave_ctx;
};

/* ---- member.c ---- */
/* The end of this membership, reported once: to a pending leave, else as 'failed'. */
void ps_member_fail(struct ps_member *member, enum ps_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void ps_member_stop_heard(struct ps_member *member);

/* ---- member_join.c ---- */
void ps_member_start(struct ps_member *member);
void ps_member_on_up(struct ps_member *member);
/* The link to the scheduler is down for good, and the job has not begun. */
void ps_member_dial_again(struct ps_member *member, const struct ps_error *err);

/* ---- member_beat.c ---- */
void ps_member_beat_start(struct ps_member *member);

#endif
