/* The table of members: names, ranks, who is missing; and the job's begin.
 *
 * Ranks that were asked for are kept free for those who asked; the rest are dealt in
 * order of registration when the job is complete.
 * Thread: the control loop.  Source: DESIGN.md 1, 11; reference/behaviour.md 5.3. */
#include "scheduler/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ps_sched_label(const struct ps_sched_member *member,
                           char out[PS_SCHED_LABEL_BYTES])
{
    char rank[16] = "?";
    if (member->state != PS_MEMBER_WAITING) {
        (void)snprintf(rank, sizeof(rank), "%u", member->rank);
    } else if (member->rank_asked >= 0) {
        (void)snprintf(rank, sizeof(rank), "%d", member->rank_asked);
    }
    (void)snprintf(out, PS_SCHED_LABEL_BYTES, "%s %s (member %u, host %s, pid %u)",
                   ps_role_name(member->role), rank, member->id, member->host,
                   member->pid);
    return out;
}

struct ps_sched_member *ps_sched_member_by_id(const struct ps_scheduler *s, uint32_t id)
{
    for (size_t i = 0; i < s->member_count; i++) {
        if (s->members[i]->id == id) {
            return s->members[i];
        }
    }
    return NULL;
}

size_t ps_sched_count(const struct ps_scheduler *s, enum ps_role role,
                      enum ps_sched_member_state state)
{
    size_t n = 0;
    for (size_t i = 0; i < s->member_count; i++) {
        n += s->members[i]->role == role && s->members[i]->state == state;
    }
    return n;
}

void ps_sched_epoch_bump(struct ps_scheduler *s)
{
    s->epoch_number++;
    ps_net_end_set_epoch(s->end, (UINT64_C(1) << 40) | s->epoch_number);
}

void ps_sched_member_free(struct ps_sched_member *member)
{
    ps_sched_asks_free(&member->registering);
    ps_sched_asks_free(&member->quorum_asks);
    free(member->urls);
    free(member);
}

void ps_sched_unregister(struct ps_scheduler *s, struct ps_sched_member *member,
                         const char *why)
{
    char label[PS_SCHED_LABEL_BYTES];
    PS_LOG(s->node->log, WARN, SCHEDULER, "%s is gone before the job began: %s",
           ps_sched_label(member, label), why);
    if (member->link != NULL) {
        ps_net_link_set_ctx(member->link, NULL);
    }
    for (size_t i = 0; i < s->member_count; i++) {
        if (s->members[i] == member) {
            memmove(&s->members[i], &s->members[i + 1],
                    (s->member_count - i - 1) * sizeof(struct ps_sched_member *));
            s->member_count--;
            break;
        }
    }
    ps_sched_member_free(member);
}

/* ---- ranks ---- */

uint32_t ps_sched_role_size(const struct ps_scheduler *s, enum ps_role role)
{
    return role == PS_ROLE_WORKER ? s->num_worker : s->num_server;
}

/* Deals ranks of 'role': those asked for, then the lowest free ones in order of
 * registration.  'taken_out[r]' tells which are taken; it holds role_size flags. */
static void deal_ranks(struct ps_scheduler *s, enum ps_role role, bool *taken_out)
{
    uint32_t next = 0;
    for (size_t i = 0; i < s->member_count; i++) {
        struct ps_sched_member *member = s->members[i];
        if (member->role == role && member->rank_asked >= 0) {
            member->rank = (uint32_t)member->rank_asked;
            taken_out[member->rank] = true;
        }
    }
    for (size_t i = 0; i < s->member_count; i++) {
        struct ps_sched_member *member = s->members[i];
        if (member->role != role || member->rank_asked >= 0) {
            continue;
        }
        while (taken_out[next]) {
            next++;
        }
        member->rank = next;
        taken_out[next] = true;
    }
}

void ps_sched_missing_text(struct ps_scheduler *s, struct ps_str *out)
{
    static const enum ps_role roles[] = {PS_ROLE_SERVER, PS_ROLE_WORKER};
    const char *separator = "waiting for ";
    char label[PS_SCHED_LABEL_BYTES];
    for (size_t k = 0; k < PS_COUNT(roles); k++) {
        uint32_t size = ps_sched_role_size(s, roles[k]);
        bool *taken = calloc(size, sizeof(*taken));
        if (taken == NULL) {
            ps_str_printf(out, "%ssome %ss", separator, ps_role_name(roles[k]));
            continue;
        }
        deal_ranks(s, roles[k], taken);
        for (uint32_t r = 0; r < size; r++) {
            if (!taken[r]) {
                ps_str_printf(out, "%s%s %u", separator, ps_role_name(roles[k]), r);
                separator = ", ";
            }
        }
        free(taken);
    }
    ps_str_printf(out, "; have ");
    separator = "";
    for (size_t i = 0; i < s->member_count; i++) {
        ps_str_printf(out, "%s%s", separator, ps_sched_label(s->members[i], label));
        separator = ", ";
    }
    if (s->member_count == 0) {
        ps_str_printf(out, "nobody");
    }
}

/* ---- the job's begin ---- */

static void fill_row(struct ps_member_row *row, const struct ps_sched_member *member)
{
    *row = (struct ps_member_row){.member = member->id,
                                  .role = member->role,
                                  .rank = member->rank,
                                  .pid = member->pid,
                                  .urls = member->urls,
                                  .url_count = member->url_count};
    memcpy(row->host, member->host, sizeof(row->host));
}

void ps_sched_answer_job(struct ps_scheduler *s, struct ps_sched_member *member)
{
    struct ps_msg_job job = {
        .epoch = (UINT64_C(1) << 40) | s->epoch_number,
        .member = member->id,
        .rank = member->rank,
        .num_worker = s->num_worker,
        .num_server = s->num_server,
        .shard_count = s->shard_count,
        .chunk_bytes = s->chunk_bytes,
        .bigarray_bound = s->bigarray_bound,
        .heartbeat_ms = (uint32_t)(s->heartbeat_ns / PS_NS_PER_MS),
        .heartbeat_timeout_ms = (uint32_t)(s->heartbeat_timeout_ns / PS_NS_PER_MS),
    };
    struct ps_buf *body = NULL;
    memcpy(job.uuid, s->uuid, sizeof(job.uuid));
    job.members = calloc(s->member_count, sizeof(*job.members));
    if (job.members != NULL) {
        for (size_t i = 0; i < s->member_count; i++) {
            fill_row(&job.members[job.member_count++], s->members[i]);
        }
    }
    /* The rows' urls are the members': 'job' is not finished with _fini. */
    if (job.members == NULL || ps_msg_job_pack(&job, &body) != PS_OK) {
        ps_sched_asks_refuse(s, &member->registering, PS_ENOMEM,
                             "the scheduler is out of memory");
    } else {
        ps_sched_asks_answer(s, &member->registering, PS_OK, body);
    }
    ps_buf_release(body);
    free(job.members);
}

static enum ps_status create_placement(struct ps_scheduler *s)
{
    uint32_t *servers = calloc(s->num_server, sizeof(*servers));
    if (servers == NULL) {
        return PS_ENOMEM;
    }
    for (size_t i = 0; i < s->member_count; i++) {
        if (s->members[i]->role == PS_ROLE_SERVER) {
            servers[s->members[i]->rank] = s->members[i]->id;
        }
    }
    struct ps_placement_options options = {.shard_count = s->shard_count,
                                           .bigarray_bound = s->bigarray_bound,
                                           .chunk_bytes = s->chunk_bytes,
                                           .server_count = s->num_server,
                                           .servers = servers};
    enum ps_status status = ps_placement_create(&options, &s->placement);
    free(servers);
    return status;
}

static enum ps_status deal_all_ranks(struct ps_scheduler *s)
{
    uint32_t size = PS_MAX(s->num_worker, s->num_server);
    bool *taken = calloc(size, sizeof(*taken));
    if (taken == NULL) {
        return PS_ENOMEM;
    }
    deal_ranks(s, PS_ROLE_WORKER, taken);
    memset(taken, 0, size * sizeof(*taken));
    deal_ranks(s, PS_ROLE_SERVER, taken);
    free(taken);
    return PS_OK;
}

void ps_sched_begin_job(struct ps_scheduler *s)
{
    char label[PS_SCHED_LABEL_BYTES];
    enum ps_status status;
    ps_timer_cancel(&s->start_timer);
    PS_TRY_GOTO(status, PS_FAULT(s->node, "scheduler.before_job"), failed);
    PS_TRY_GOTO(status, deal_all_ranks(s), failed);
    PS_TRY_GOTO(status, create_placement(s), failed);
    s->state = PS_JOB_RUNNING;
    ps_sched_epoch_bump(s);
    for (size_t i = 0; i < s->member_count; i++) {
        s->members[i]->state = PS_MEMBER_JOINED;
        s->members[i]->silent_ns = 0;
        PS_LOG(s->node->log, INFO, SCHEDULER, "%s joined",
               ps_sched_label(s->members[i], label));
    }
    for (size_t i = 0; i < s->member_count; i++) {
        ps_sched_answer_job(s, s->members[i]);
    }
    PS_LOG(s->node->log, INFO, SCHEDULER, "job begins workers %u servers %u",
           s->num_worker, s->num_server);
    return;
failed:
    for (size_t i = 0; i < s->member_count; i++) {
        ps_sched_asks_refuse(s, &s->members[i]->registering, status,
                             "the scheduler could not begin the job");
    }
    ps_sched_finish(s, status, "the job could not begin");
}
