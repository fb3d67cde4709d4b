/* Who is alive: silence, broken links, reports; and what follows a loss.
 *
 * Silence is summed tick by tick, each tick counted at most twice its length, so that a
 * scheduler that was itself paused (stopped, swapped out) does not take everybody for
 * dead.  Any frame of a member ends its silence.
 * Thread: the control loop. */
#include "scheduler/job.h"

#include <stdio.h>
#include <string.h>

void ps_sched_heard(struct ps_sched_member *member, uint64_t now_ns)
{
    member->heard_ns = now_ns;
    member->silent_ns = 0;
}

static uint64_t tick_length_ns(const struct ps_scheduler *s)
{
    uint64_t tick = PS_MIN(s->heartbeat_ns, s->heartbeat_timeout_ns / 4);
    return PS_MAX(tick, PS_NS_PER_MS);
}

static void check_silence(struct ps_scheduler *s, uint64_t passed_ns)
{
    char seen[96];
    for (size_t i = s->member_count; i-- > 0;) {
        struct ps_sched_member *member = s->members[i];
        if (member->state != PS_MEMBER_JOINED) {
            continue; /* those who wait need not beat; their links tell when they go */
        }
        member->silent_ns += passed_ns;
        if (member->silent_ns > s->heartbeat_timeout_ns) {
            (void)snprintf(seen, sizeof(seen), "no heartbeat for %.1f s",
                           (double)member->silent_ns / 1e9);
            ps_sched_lost(s, member, seen);
        }
    }
}

static void on_tick(struct ps_timer *timer)
{
    struct ps_scheduler *s = PS_CONTAINER_OF(timer, struct ps_scheduler, beat_timer);
    uint64_t now = ps_loop_now_ns(s->node->loop);
    uint64_t tick = tick_length_ns(s);
    uint64_t passed = PS_MIN(now - s->tick_ns, 2 * tick);
    s->tick_ns = now;
    if (s->state == PS_JOB_ENDED) {
        return;
    }
    check_silence(s, passed);
    if (ps_timer_start(s->node->loop, &s->beat_timer, tick) != PS_OK) {
        PS_LOG(s->node->log, ERROR, SCHEDULER, "no timer: heartbeats are not watched");
    }
}

void ps_sched_heartbeat_start(struct ps_scheduler *s)
{
    if (s->heartbeat_ns == 0) {
        return;
    }
    s->beat_timer.run = on_tick;
    s->beat_timer.label = "scheduler.beat";
    s->tick_ns = ps_loop_now_ns(s->node->loop);
    if (ps_timer_start(s->node->loop, &s->beat_timer, tick_length_ns(s)) != PS_OK) {
        PS_LOG(s->node->log, ERROR, SCHEDULER, "no timer: heartbeats are not watched");
    }
}

/* A heartbeat before registration says nothing about the job and disturbs nothing. */
void ps_sched_on_heartbeat(struct ps_scheduler *s, struct ps_net_link *link,
                           struct ps_sched_member *member, const struct ps_frame *frame)
{
    struct ps_msg_heartbeat msg = {.wall_ns = ps_clock_wall_ns(s->node->clock)};
    struct ps_buf *body = NULL;
    PS_UNUSED(member);
    if (s->state == PS_JOB_ABORTED) {
        msg.state = 1;
        memcpy(msg.text, s->failure_text, sizeof(msg.text));
    } else if (s->state == PS_JOB_STOPPING || s->state == PS_JOB_ENDED) {
        msg.state = 2;
    } else if (s->state == PS_JOB_STARTING) {
        struct ps_str text = {0};
        ps_sched_missing_text(s, &text);
        (void)snprintf(msg.text, sizeof(msg.text), "%s", ps_str_text(&text));
        ps_str_fini(&text);
    }
    if (ps_msg_heartbeat_pack(&msg, &body) == PS_OK) {
        ps_sched_reply(s, link, &frame->head, PS_OK, body);
    }
    ps_buf_release(body);
}

/* ---- loss ---- */

void ps_sched_lost(struct ps_scheduler *s, struct ps_sched_member *member,
                   const char *seen)
{
    char text[PS_ERROR_TEXT_BYTES], label[PS_SCHED_LABEL_BYTES];
    if (member->state == PS_MEMBER_WAITING) {
        ps_sched_unregister(s, member, seen);
        return;
    }
    if (member->state != PS_MEMBER_JOINED) {
        return;
    }
    member->state = PS_MEMBER_LOST;
    if (s->state == PS_JOB_STOPPING && member->role == PS_ROLE_SERVER) {
        PS_LOG(s->node->log, WARN, SCHEDULER, "%s went without LEAVE: %s",
               ps_sched_label(member, label), seen);
        ps_sched_server_gone(s);
        return;
    }
    (void)snprintf(text, sizeof(text), "lost %s: %s", ps_sched_label(member, label),
                   seen);
    ps_sched_abort(s, PS_EPEER, member->id, text);
}

/* ---- ABORT ---- */

static void on_abort_heard(void *ctx, struct ps_sched_fanout *fanout,
                           const struct ps_error *err)
{
    struct ps_scheduler *s = ctx;
    PS_UNUSED(fanout);
    if (s->closing) {
        return;
    }
    if (err->status != PS_OK) {
        PS_LOG(s->node->log, WARN, SCHEDULER, "%s", err->text);
    }
    ps_sched_finish(s, s->failure.status, s->failure_text);
}

static void tell_abort(struct ps_scheduler *s, enum ps_status status, uint32_t named)
{
    struct ps_msg_abort msg = {.status = status, .member = named};
    struct ps_sched_fanout_options options = {.scheduler = s,
                                              .kind = PS_KIND_ABORT,
                                              .capacity = s->member_count,
                                              .what = "abort",
                                              .timeout_ns = PS_SCHED_ABORT_DEADLINE_MS *
                                                            PS_NS_PER_MS,
                                              .done = on_abort_heard,
                                              .ctx = s};
    struct ps_sched_fanout *fanout;
    struct ps_buf *body = NULL;
    memcpy(msg.text, s->failure_text, sizeof(msg.text));
    if (ps_msg_abort_pack(&msg, &body) != PS_OK) {
        ps_sched_finish(s, status, s->failure_text);
        return;
    }
    if (ps_sched_fanout_create(&options, &fanout) != PS_OK) {
        ps_buf_release(body);
        ps_sched_finish(s, status, s->failure_text);
        return;
    }
    for (size_t i = 0; i < s->member_count; i++) {
        struct ps_sched_member *member = s->members[i];
        if (member->link == NULL) {
            continue;
        }
        if (member->state == PS_MEMBER_JOINED) {
            ps_sched_fanout_add(fanout, member, body);
        } else if (member->state == PS_MEMBER_LOST) {
            /* It may only have been slow: told, but not waited for. */
            struct ps_frame frame = {.head = {.kind = PS_KIND_ABORT},
                                     .payload = body,
                                     .payload_bytes = body->size};
            enum ps_status sent = ps_net_send(member->link, &frame);
            PS_LOG(s->node->log, DEBUG, SCHEDULER, "abort to lost member %u: %s",
                   member->id, ps_status_text(sent));
        }
    }
    ps_buf_release(body);
    ps_sched_fanout_go(fanout);
}

void ps_sched_abort(struct ps_scheduler *s, enum ps_status status, uint32_t named,
                    const char *text)
{
    if (s->finishing || s->state == PS_JOB_ABORTED || s->state == PS_JOB_ENDED) {
        return;
    }
    PS_LOG(s->node->log, ERROR, SCHEDULER, "job aborted: %s", text);
    s->state = PS_JOB_ABORTED;
    s->failure_member = named;
    (void)ps_error_set(&s->failure, status, "%s", text);
    (void)snprintf(s->failure_text, sizeof(s->failure_text), "%s", text);
    ps_timer_cancel(&s->end_timer);
    ps_sched_barriers_refuse(s, status, text);
    ps_sched_keys_refuse(s, status, text);
    ps_sched_optimizers_refuse(s, status, text);
    for (size_t i = 0; i < s->member_count; i++) {
        ps_sched_asks_refuse(s, &s->members[i]->quorum_asks, status, text);
    }
    tell_abort(s, status, named);
}

/* Whom a member may name: somebody of the job, or nobody. */
static void compose_abort(const struct ps_scheduler *s,
                          const struct ps_sched_member *member,
                          const struct ps_msg_abort *msg, char *out, size_t size)
{
    char from[PS_SCHED_LABEL_BYTES], about[PS_SCHED_LABEL_BYTES];
    const struct ps_sched_member *named = ps_sched_member_by_id(s, msg->member);
    (void)ps_sched_label(member, from);
    if (named == NULL || named == member) {
        (void)snprintf(out, size, "%s: %.200s", from, msg->text);
    } else {
        (void)snprintf(out, size, "%s: %.200s, says %s %u", ps_sched_label(named, about),
                       msg->text, ps_role_name(member->role), member->rank);
    }
}

void ps_sched_on_abort(struct ps_scheduler *s, struct ps_net_link *link,
                       struct ps_sched_member *member, const struct ps_frame *frame)
{
    struct ps_msg_abort msg;
    struct ps_error err = {0};
    char text[PS_ERROR_TEXT_BYTES + PS_SCHED_LABEL_BYTES];
    const struct ps_buf *body = frame->payload;
    enum ps_status status = ps_msg_abort_unpack(
        body != NULL ? body->data : NULL, body != NULL ? body->size : 0, &msg, &err);
    if (status != PS_OK) {
        ps_sched_refuse(s, link, &frame->head, status, err.text);
        return;
    }
    if (member->state == PS_MEMBER_WAITING) {
        ps_sched_reply(s, link, &frame->head, PS_OK, NULL);
        ps_sched_unregister(s, member, "it gave up");
    } else {
        bool known = msg.status < 0 && msg.status >= PS_EINTERNAL;
        compose_abort(s, member, &msg, text, sizeof(text));
        ps_sched_reply(s, link, &frame->head, PS_OK, NULL);
        ps_sched_abort(s, known ? (enum ps_status)msg.status : PS_EABORT, msg.member,
                       text);
    }
    ps_msg_abort_fini(&msg);
}
