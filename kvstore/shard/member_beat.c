/* Heartbeats, and what their answers say: running, aborted, stopping.
 *
 * Silence is summed tick by tick, each counted at most twice its length: a member that
 * was itself paused does not blame the scheduler.
 * Thread: the node's control loop. */
#include "kvstore/shard/member_private.h"

#include <stdio.h>

static void on_answer(struct ps_net_call *call, enum ps_status status,
                      const struct ps_frame *reply, const struct ps_error *err)
{
    struct ps_member *member = PS_CONTAINER_OF(call, struct ps_beat, call)->member;
    struct ps_msg_heartbeat msg;
    PS_UNUSED(err);
    if (member->over || reply == NULL) {
        return;
    }
    member->silent_ns = 0;
    if (status != PS_OK || reply->payload == NULL ||
        ps_msg_heartbeat_unpack(reply->payload->data, reply->payload->size, &msg, NULL) !=
            PS_OK) {
        return; /* alive, and that is what counts */
    }
    if (atomic_load_explicit(&member->joined, memory_order_relaxed)) {
        ps_net_end_set_epoch(member->end, reply->head.epoch);
    }
    if (msg.state == 1) {
        ps_member_fail(member, PS_EPEER, "%s", msg.text);
    } else if (msg.state == 2) {
        ps_member_stop_heard(member);
    } else {
        (void)snprintf(member->waiting, sizeof(member->waiting), "%.255s", msg.text);
    }
    ps_msg_heartbeat_fini(&msg);
}

static void send_beat(struct ps_member *member)
{
    for (size_t i = 0; i < PS_MEMBER_BEATS && member->link_up; i++) {
        struct ps_net_call *call = &member->beats[i].call;
        if (call->pending) {
            continue;
        }
        *call = (struct ps_net_call){.done = on_answer,
                                     .frame = {.head = {.kind = PS_KIND_HEARTBEAT}},
                                     .timeout_ns = member->beat_timeout_ns,
                                     .what = "heartbeat"};
        enum ps_status status = ps_net_call_start(member->link, call);
        if (status != PS_OK) {
            PS_LOG(member->node->log, DEBUG, SHARD, "heartbeat not sent: %s",
                   ps_status_text(status));
        }
        return;
    }
}

static void on_tick(struct ps_timer *timer)
{
    struct ps_member *member = PS_CONTAINER_OF(timer, struct ps_member, beat_timer);
    uint64_t now = ps_loop_now_ns(member->node->loop);
    if (member->over || member->beat_ns == 0) {
        return;
    }
    member->silent_ns += PS_MIN(now - member->tick_ns, 2 * member->beat_ns);
    member->tick_ns = now;
    if (member->silent_ns > member->beat_timeout_ns &&
        atomic_load_explicit(&member->joined, memory_order_relaxed)) {
        ps_member_fail(member, PS_EPEER,
                       "lost the scheduler %s: heartbeats unanswered for %.1f s",
                       member->root_url, (double)member->silent_ns / 1e9);
        return;
    }
    if (PS_FAULT(member->node, "member.before_heartbeat") == PS_OK) {
        send_beat(member);
    }
    if (ps_timer_start(member->node->loop, &member->beat_timer, member->beat_ns) !=
        PS_OK) {
        ps_member_fail(member, PS_ENOMEM, "no memory for a timer");
    }
}

void ps_member_beat_start(struct ps_member *member)
{
    const struct ps_settings *settings = member->node->settings;
    bool joined = atomic_load_explicit(&member->joined, memory_order_relaxed);
    uint64_t beat_ms = joined ? member->job.heartbeat_ms
                              : (uint64_t)ps_settings_int(settings, PS_SET_HEARTBEAT_MS);
    uint64_t timeout_ms =
        joined ? member->job.heartbeat_timeout_ms
               : (uint64_t)ps_settings_int(settings, PS_SET_HEARTBEAT_TIMEOUT_MS);
    member->beat_ns = beat_ms * PS_NS_PER_MS;
    member->beat_timeout_ns = timeout_ms * PS_NS_PER_MS;
    member->silent_ns = 0;
    member->tick_ns = ps_loop_now_ns(member->node->loop);
    member->beat_timer.run = on_tick;
    member->beat_timer.label = "member.beat";
    ps_timer_cancel(&member->beat_timer);
    if (member->beat_ns == 0) {
        return;
    }
    if (ps_timer_start(member->node->loop, &member->beat_timer, member->beat_ns) !=
        PS_OK) {
        ps_member_fail(member, PS_ENOMEM, "no memory for a timer");
    }
}
