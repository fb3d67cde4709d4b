/* The ways out: DONE, LEAVE, STOP, and the scheduler's own end.
 *
 * A worker that is done (or leaves) is taken out of the quorum of all servers before it
 * gets its answer.  When the last worker has left, servers are told to stop, drain and
 * leave; then the job has ended well.
 * Thread: the control loop. */
#include "scheduler/job.h"

#include <stdio.h>
#include <string.h>

/* ---- the end ---- */

static void on_drained(struct ps_timer *timer)
{
    struct ps_scheduler *s = PS_CONTAINER_OF(timer, struct ps_scheduler, drain_timer);
    s->state = PS_JOB_ENDED;
    ps_timer_cancel(&s->beat_timer);
    if (s->ended != NULL) {
        s->ended(s->ctx, &s->result);
    }
    ps_event_set(&s->ended_event);
}

/* Answers may be lost on a link that loses frames: then the askers ask again, and we stay
 * for that long. */
static uint64_t drain_ns(const struct ps_scheduler *s)
{
    for (size_t i = 0; i < s->member_count; i++) {
        const struct ps_net_link *link = s->members[i]->link;
        if (link != NULL && !ps_net_link_lossless(link)) {
            return 4 * s->resend_timeout_ns;
        }
    }
    return PS_SCHED_DRAIN_MS * PS_NS_PER_MS;
}

void ps_sched_finish(struct ps_scheduler *s, enum ps_status status, const char *text)
{
    if (s->finishing) {
        return;
    }
    s->finishing = true;
    (void)ps_error_set(&s->result, status, "%s", status == PS_OK ? "" : text);
    PS_LOG(s->node->log, INFO, SCHEDULER, "job ended: %s",
           status == PS_OK ? "all left" : text);
    ps_timer_cancel(&s->start_timer);
    ps_timer_cancel(&s->end_timer);
    s->drain_timer.run = on_drained;
    s->drain_timer.label = "scheduler.drain";
    if (ps_timer_start(s->node->loop, &s->drain_timer, drain_ns(s)) != PS_OK) {
        on_drained(&s->drain_timer);
    }
}

/* ---- STOP ---- */

void ps_sched_server_gone(struct ps_scheduler *s)
{
    if (ps_sched_count(s, PS_ROLE_SERVER, PS_MEMBER_JOINED) == 0) {
        ps_sched_finish(s, PS_OK, "");
    }
}

static void on_stop_heard(void *ctx, struct ps_sched_fanout *fanout,
                          const struct ps_error *err)
{
    struct ps_scheduler *s = ctx;
    PS_UNUSED(fanout);
    if (!s->closing && err->status != PS_OK) {
        PS_LOG(s->node->log, WARN, SCHEDULER, "%s", err->text);
    }
}

static void on_stop_deadline(struct ps_timer *timer)
{
    struct ps_scheduler *s = PS_CONTAINER_OF(timer, struct ps_scheduler, end_timer);
    char label[PS_SCHED_LABEL_BYTES];
    for (size_t i = 0; i < s->member_count; i++) {
        if (s->members[i]->state == PS_MEMBER_JOINED) {
            PS_LOG(s->node->log, WARN, SCHEDULER, "%s did not leave in %d s",
                   ps_sched_label(s->members[i], label),
                   PS_SCHED_STOP_DEADLINE_MS / 1000);
        }
    }
    ps_sched_finish(s, PS_OK, "");
}

static void stop_servers(struct ps_scheduler *s)
{
    struct ps_sched_fanout_options options = {.scheduler = s,
                                              .kind = PS_KIND_STOP,
                                              .what = "stop",
                                              .timeout_ns = PS_SCHED_STOP_DEADLINE_MS *
                                                            PS_NS_PER_MS,
                                              .done = on_stop_heard,
                                              .ctx = s};
    PS_LOG(s->node->log, INFO, SCHEDULER, "all workers left, servers stop");
    s->state = PS_JOB_STOPPING;
    s->end_timer.run = on_stop_deadline;
    s->end_timer.label = "scheduler.stop_deadline";
    enum ps_status status = PS_FAULT(s->node, "scheduler.before_stop");
    if (status == PS_OK) {
        status = ps_timer_start(s->node->loop, &s->end_timer,
                                PS_SCHED_STOP_DEADLINE_MS * PS_NS_PER_MS);
    }
    if (status == PS_OK) {
        status = ps_sched_fanout_servers(&options, NULL);
    }
    if (status != PS_OK) {
        /* Servers hear it from their heartbeats' answers too. */
        PS_LOG(s->node->log, WARN, SCHEDULER, "STOP not sent: %s",
               ps_status_text(status));
    }
    ps_sched_server_gone(s);
}

/* ---- QUORUM ---- */

static void worker_left(struct ps_scheduler *s, struct ps_sched_member *member)
{
    char label[PS_SCHED_LABEL_BYTES];
    if (member->state != PS_MEMBER_JOINED) {
        return;
    }
    member->state = PS_MEMBER_LEFT;
    ps_sched_epoch_bump(s);
    PS_LOG(s->node->log, INFO, SCHEDULER, "%s left", ps_sched_label(member, label));
    if (ps_sched_count(s, PS_ROLE_WORKER, PS_MEMBER_JOINED) == 0) {
        stop_servers(s);
    } else {
        ps_sched_barriers_check(s);
    }
}

static void quorum_settled(struct ps_scheduler *s, struct ps_sched_member *member,
                           const struct ps_error *err)
{
    member->quorum_pending = false;
    if (s->state != PS_JOB_RUNNING) {
        return;
    }
    if (err->status != PS_OK) {
        member->done = member->leaving = false;
        ps_sched_asks_refuse(s, &member->quorum_asks, err->status, err->text);
        return;
    }
    ps_sched_asks_answer(s, &member->quorum_asks, PS_OK, NULL);
    if (member->leaving) {
        worker_left(s, member);
    }
}

static void on_quorum(void *ctx, struct ps_sched_fanout *fanout,
                      const struct ps_error *err)
{
    struct ps_sched_member *member = ctx;
    struct ps_scheduler *s = ps_sched_fanout_scheduler(fanout);
    if (!s->closing) {
        quorum_settled(s, member, err);
    }
}

static void send_quorum(struct ps_scheduler *s, struct ps_sched_member *member)
{
    struct ps_msg_quorum msg = {.rank = member->rank, .member = member->id};
    struct ps_sched_fanout_options options = {.scheduler = s,
                                              .kind = PS_KIND_QUORUM,
                                              .what = "quorum",
                                              .done = on_quorum,
                                              .ctx = member};
    struct ps_buf *body = NULL;
    member->quorum_pending = true;
    member->done = true;
    enum ps_status status = PS_FAULT(s->node, "scheduler.before_quorum");
    if (status == PS_OK) {
        status = ps_msg_quorum_pack(&msg, &body);
    }
    if (status == PS_OK) {
        status = ps_sched_fanout_servers(&options, body);
    }
    ps_buf_release(body);
    if (status != PS_OK) {
        struct ps_error err;
        (void)ps_error_set(&err, status, "quorum: %s", ps_status_text(status));
        quorum_settled(s, member, &err);
    }
}

static bool is_last_worker(const struct ps_scheduler *s)
{
    return ps_sched_count(s, PS_ROLE_WORKER, PS_MEMBER_JOINED) == 1;
}

void ps_sched_on_done(struct ps_scheduler *s, struct ps_net_link *link,
                      struct ps_sched_member *member, const struct ps_frame *frame)
{
    if (member->role != PS_ROLE_WORKER) {
        ps_sched_refuse(s, link, &frame->head, PS_EPERM, "only workers say DONE");
    } else if (member->state == PS_MEMBER_LEFT ||
               (member->done && !member->quorum_pending)) {
        ps_sched_reply(s, link, &frame->head, PS_OK, NULL);
    } else if (ps_sched_ask_add(s, &member->quorum_asks, link, &frame->head) != NULL &&
               !member->quorum_pending) {
        send_quorum(s, member);
    }
}

/* ---- LEAVE ---- */

static void server_leaves(struct ps_scheduler *s, struct ps_net_link *link,
                          struct ps_sched_member *member, const struct ps_frame *frame)
{
    char label[PS_SCHED_LABEL_BYTES];
    if (s->state != PS_JOB_STOPPING && !s->finishing) {
        ps_sched_reply(s, link, &frame->head, PS_OK, NULL);
        member->state = PS_MEMBER_LOST;
        char text[PS_ERROR_TEXT_BYTES];
        (void)snprintf(text, sizeof(text), "%s left while the job was running",
                       ps_sched_label(member, label));
        ps_sched_abort(s, PS_EPEER, member->id, text);
        return;
    }
    member->state = PS_MEMBER_LEFT;
    ps_sched_epoch_bump(s);
    PS_LOG(s->node->log, INFO, SCHEDULER, "%s left", ps_sched_label(member, label));
    ps_sched_reply(s, link, &frame->head, PS_OK, NULL);
    ps_sched_server_gone(s);
}

void ps_sched_on_leave(struct ps_scheduler *s, struct ps_net_link *link,
                       struct ps_sched_member *member, const struct ps_frame *frame)
{
    if (member == NULL || member->state == PS_MEMBER_LEFT ||
        member->state == PS_MEMBER_LOST || s->state == PS_JOB_ABORTED) {
        ps_sched_reply(s, link, &frame->head, PS_OK, NULL);
    } else if (member->state == PS_MEMBER_WAITING) {
        ps_sched_reply(s, link, &frame->head, PS_OK, NULL);
        ps_sched_unregister(s, member, "it left");
    } else if (member->role == PS_ROLE_SERVER) {
        server_leaves(s, link, member, frame);
    } else if (member->quorum_pending || !(member->done || is_last_worker(s))) {
        member->leaving = true;
        if (ps_sched_ask_add(s, &member->quorum_asks, link, &frame->head) != NULL &&
            !member->quorum_pending) {
            send_quorum(s, member);
        }
    } else {
        ps_sched_reply(s, link, &frame->head, PS_OK, NULL);
        worker_left(s, member);
    }
}
