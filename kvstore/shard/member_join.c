/* Joining: dial until the start-up deadline, REGISTER, the job.
 *
 * The scheduler may start later than its members, so a dial that fails is tried again.
 * The same nonce on every try makes them one registration.
 * Thread: the node's control loop. */
#include "kvstore/shard/member_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REDIAL_MS 100
#define LAST_WORD_MS 2000 /* the scheduler's deadline, with its text, comes first */

static void dial(struct ps_member *member);

static void on_redial(struct ps_timer *timer)
{
    struct ps_member *member = PS_CONTAINER_OF(timer, struct ps_member, redial_timer);
    if (!member->over && member->link == NULL) {
        dial(member);
    }
}

void ps_member_dial_again(struct ps_member *member, const struct ps_error *err)
{
    switch (err->status) {
    case PS_EMISMATCH:
    case PS_EPERM:
    case PS_EPROTO:
    case PS_EADDR:
    case PS_EINVAL:
    case PS_EUNSUPPORTED:
    case PS_ENOMEM:
        ps_member_fail(member, err->status, "scheduler %s: %s", member->root_url,
                       err->text);
        return;
    default:
        break;
    }
    member->last_error = *err;
    if (ps_timer_start(member->node->loop, &member->redial_timer,
                       REDIAL_MS * PS_NS_PER_MS) != PS_OK) {
        ps_member_fail(member, PS_ENOMEM, "no memory for a timer");
    }
}

static void dial(struct ps_member *member)
{
    struct ps_error err = {0};
    struct ps_net_link *link = NULL;
    enum ps_status status =
        ps_net_dial(member->end, member->root_url, member, &link, &err);
    if (status == PS_OK) {
        member->link = link;
    } else {
        err.status = status;
        ps_member_dial_again(member, &err);
    }
}

static void on_start_deadline(struct ps_timer *timer)
{
    struct ps_member *member = PS_CONTAINER_OF(timer, struct ps_member, start_timer);
    double seconds =
        (double)ps_settings_int(member->node->settings, PS_SET_START_TIMEOUT_MS) / 1e3;
    if (!member->link_up) {
        ps_member_fail(member, PS_ETIMEDOUT,
                       "the scheduler %s does not answer after %.1f s: %s",
                       member->root_url, seconds,
                       member->last_error.text[0] != '\0' ? member->last_error.text
                                                          : "no connection");
    } else if (!member->start_extended &&
               ps_timer_start(member->node->loop, &member->start_timer,
                              LAST_WORD_MS * PS_NS_PER_MS) == PS_OK) {
        member->start_extended = true;
    } else {
        ps_member_fail(member, PS_ETIMEDOUT, "the job is not complete after %.1f s: %s",
                       seconds,
                       member->waiting[0] != '\0' ? member->waiting
                                                  : "the scheduler does not say why");
    }
}

void ps_member_start(struct ps_member *member)
{
    uint64_t deadline_ns =
        (uint64_t)ps_settings_int(member->node->settings, PS_SET_START_TIMEOUT_MS) *
        PS_NS_PER_MS;
    for (size_t i = 0; i < PS_MEMBER_BEATS; i++) {
        member->beats[i].member = member;
    }
    member->start_timer.run = on_start_deadline;
    member->start_timer.label = "member.start_deadline";
    member->redial_timer.run = on_redial;
    member->redial_timer.label = "member.redial";
    if (ps_timer_start(member->node->loop, &member->start_timer, deadline_ns) != PS_OK) {
        ps_member_fail(member, PS_ENOMEM, "no memory for a timer");
        return;
    }
    dial(member);
}

/* ---- the job ---- */

/* What the scheduler says must hold together: everything later relies on it. */
static enum ps_status check_job(const struct ps_member *member,
                                const struct ps_msg_job *job, struct ps_error *err)
{
    uint32_t size = member->role == PS_ROLE_WORKER ? job->num_worker : job->num_server;
    size_t servers = 0, workers = 0;
    bool found = false;
    if (job->member <= PS_MEMBER_SCHEDULER || job->rank >= size) {
        return ps_error_set(err, PS_EPROTO, "JOB: member %u rank %u of %u", job->member,
                            job->rank, size);
    }
    if (job->shard_count == 0 || (job->shard_count & (job->shard_count - 1)) != 0 ||
        job->chunk_bytes == 0 || job->bigarray_bound == 0) {
        return ps_error_set(err, PS_EPROTO, "JOB: shards %u chunk bytes %u",
                            job->shard_count, job->chunk_bytes);
    }
    for (size_t i = 0; i < job->member_count; i++) {
        const struct ps_member_row *row = &job->members[i];
        bool server = row->role == PS_ROLE_SERVER;
        servers += server;
        workers += row->role == PS_ROLE_WORKER;
        if (row->rank >= (server ? job->num_server : job->num_worker) ||
            (server && row->url_count == 0)) {
            return ps_error_set(err, PS_EPROTO, "JOB: row of member %u", row->member);
        }
        found = found || (row->member == job->member && row->role == member->role &&
                          row->rank == job->rank);
    }
    if (!found || servers != job->num_server || workers != job->num_worker) {
        return ps_error_set(err, PS_EPROTO, "JOB: %zu servers, %zu workers, %s", servers,
                            workers, found ? "me" : "without me");
    }
    return PS_OK;
}

static void join(struct ps_member *member)
{
    const struct ps_msg_job *job = &member->job;
    struct ps_hello self = *ps_net_end_self(member->end);
    char name[32];
    memcpy(self.uuid, job->uuid, sizeof(self.uuid));
    self.member = job->member;
    self.rank = job->rank;
    ps_net_end_set_self(member->end, &self, job->epoch);
    (void)snprintf(name, sizeof(name), "%s/%u", ps_role_name(member->role), job->rank);
    ps_node_set_name(member->node, name);
    ps_timer_cancel(&member->start_timer);
    PS_LOG(member->node->log, INFO, SHARD, "joined member %u workers %u servers %u",
           job->member, job->num_worker, job->num_server);
    /* release: whoever sees 'joined' sees 'job' */
    atomic_store_explicit(&member->joined, true, memory_order_release);
    ps_member_beat_start(member);
    enum ps_status status = PS_FAULT(member->node, "member.after_join");
    if (status != PS_OK) {
        ps_member_fail(member, status, "fault after the join");
        return;
    }
    member->handler.joined(member->ctx, job);
}

static void on_registered(struct ps_net_call *call, enum ps_status status,
                          const struct ps_frame *reply, const struct ps_error *err)
{
    struct ps_member *member = PS_CONTAINER_OF(call, struct ps_member, register_call);
    struct ps_error cause = {0};
    if (member->over || reply == NULL) {
        return; /* the link went, or the deadline is near: both have their own handlers */
    }
    if (status != PS_OK) {
        ps_member_fail(member, status, "scheduler %s: %s", member->root_url, err->text);
        return;
    }
    const struct ps_buf *body = reply->payload;
    struct ps_msg_job job;
    status = ps_msg_job_unpack(body != NULL ? body->data : NULL,
                               body != NULL ? body->size : 0, &job, &cause);
    if (status != PS_OK) {
        ps_member_fail(member, status, "scheduler %s: %s", member->root_url, cause.text);
        return;
    }
    status = check_job(member, &job, &cause);
    if (status != PS_OK) {
        ps_msg_job_fini(&job);
        ps_member_fail(member, status, "scheduler %s: %s", member->root_url, cause.text);
        return;
    }
    member->job = job;
    join(member);
}

static enum ps_status pack_register(struct ps_member *member, struct ps_buf **body_out)
{
    const struct ps_settings *settings = member->node->settings;
    const struct ps_hello *self = ps_net_end_self(member->end);
    struct ps_msg_register msg = {
        .nonce = member->nonce,
        .role = member->role,
        .rank = (int32_t)ps_settings_int(settings, PS_SET_RANK),
        .num_worker = (uint32_t)ps_settings_int(settings, PS_SET_NUM_WORKER),
        .num_server = (uint32_t)ps_settings_int(settings, PS_SET_NUM_SERVER),
        .pid = self->pid,
        .urls = member->urls,
        .url_count = member->url_count};
    memcpy(msg.host, self->host, sizeof(msg.host));
    return ps_msg_register_pack(&msg, body_out);
}

void ps_member_on_up(struct ps_member *member)
{
    struct ps_buf *body = NULL;
    if (atomic_load_explicit(&member->joined, memory_order_relaxed)) {
        return;
    }
    enum ps_status status = PS_FAULT(member->node, "member.before_register");
    if (status == PS_OK) {
        status = pack_register(member, &body);
    }
    if (status == PS_OK) {
        /* The start-up deadline ends the wait, not the call's own. */
        member->register_call =
            (struct ps_net_call){.done = on_registered,
                                 .frame = {.head = {.kind = PS_KIND_REGISTER},
                                           .payload = body,
                                           .payload_bytes = body->size},
                                 .timeout_ns = UINT64_C(48) * 3600 * PS_NS_PER_S,
                                 .what = "register"};
        status = ps_net_call_start(member->link, &member->register_call);
    }
    ps_buf_release(body);
    if (status != PS_OK) {
        ps_member_fail(member, status, "registration not sent: %s",
                       ps_status_text(status));
        return;
    }
    ps_member_beat_start(member);
}
