/* REGISTER: who may join.
 *
 * A registration is known by its nonce, so one that is sent again (a lost answer, a new
 * link) is the same.  Ids are never reused.  What cannot be is refused with a text that
 * names the reason and, where there is one, the holder.
 * Thread: the control loop.  Source: DESIGN.md 1, 11; reference/behaviour.md 5.3. */
#include "scheduler/job.h"

#include <stdlib.h>
#include <string.h>

/* PS_OK, or why this registration cannot be. */
static enum ps_status check_sizes(const struct ps_scheduler *s,
                                  const struct ps_msg_register *msg, struct ps_error *err)
{
    const char *role = ps_role_name(msg->role);
    if (msg->role != PS_ROLE_WORKER && msg->role != PS_ROLE_SERVER) {
        return ps_error_set(err, PS_EINVAL, "role %s cannot register: worker or server",
                            role);
    }
    if (msg->num_worker != s->num_worker) {
        return ps_error_set(err, PS_EMISMATCH, "%s expects %u workers, the job has %u",
                            role, msg->num_worker, s->num_worker);
    }
    if (msg->num_server != s->num_server) {
        return ps_error_set(err, PS_EMISMATCH, "%s expects %u servers, the job has %u",
                            role, msg->num_server, s->num_server);
    }
    uint32_t size = ps_sched_role_size(s, msg->role);
    if (msg->rank < -1 || msg->rank >= (int64_t)size) {
        return ps_error_set(err, PS_ERANGE,
                            "%s asks for rank %d, the job has ranks 0 to %u", role,
                            msg->rank, size - 1);
    }
    if (msg->role == PS_ROLE_SERVER && msg->url_count == 0) {
        return ps_error_set(err, PS_EINVAL, "a server registers with its lanes' urls");
    }
    return PS_OK;
}

static const struct ps_sched_member *find_rank(const struct ps_scheduler *s,
                                               enum ps_role role, uint32_t rank)
{
    for (size_t i = 0; i < s->member_count; i++) {
        const struct ps_sched_member *member = s->members[i];
        bool waiting = member->state == PS_MEMBER_WAITING;
        if (member->role == role &&
            (waiting ? member->rank_asked == (int64_t)rank : member->rank == rank)) {
            return member;
        }
    }
    return NULL;
}

static enum ps_status refuse_full(const struct ps_scheduler *s, enum ps_role role,
                                  struct ps_error *err)
{
    struct ps_str text = {0};
    char label[PS_SCHED_LABEL_BYTES];
    uint32_t size = ps_sched_role_size(s, role);
    const char *separator = ": ";
    ps_str_printf(&text, "the job has all its %u %ss", size, ps_role_name(role));
    for (uint32_t rank = 0; rank < size; rank++) {
        const struct ps_sched_member *member = find_rank(s, role, rank);
        if (member != NULL) {
            ps_str_printf(&text, "%s%s%s", separator, ps_sched_label(member, label),
                          member->state == PS_MEMBER_LEFT ? " has left" : "");
            separator = ", ";
        }
    }
    enum ps_status status = ps_error_set(err, PS_EFULL, "%s", ps_str_text(&text));
    ps_str_fini(&text);
    return status;
}

static enum ps_status check_room(const struct ps_scheduler *s,
                                 const struct ps_msg_register *msg, struct ps_error *err)
{
    char label[PS_SCHED_LABEL_BYTES];
    uint32_t have = 0;
    for (size_t i = 0; i < s->member_count; i++) {
        const struct ps_sched_member *member = s->members[i];
        if (member->role != msg->role) {
            continue;
        }
        have++;
        if (s->state == PS_JOB_STARTING && msg->rank >= 0 &&
            member->rank_asked == msg->rank) {
            return ps_error_set(err, PS_EEXIST, "rank %d of the %ss is held by %s",
                                msg->rank, ps_role_name(msg->role),
                                ps_sched_label(member, label));
        }
    }
    if (have >= ps_sched_role_size(s, msg->role) || s->state != PS_JOB_STARTING) {
        return refuse_full(s, msg->role, err);
    }
    return PS_OK;
}

static enum ps_status reserve_member(struct ps_scheduler *s)
{
    if (s->member_count < s->member_capacity) {
        return PS_OK;
    }
    size_t capacity = s->member_capacity == 0 ? 8 : 2 * s->member_capacity;
    struct ps_sched_member **members =
        realloc(s->members, capacity * sizeof(struct ps_sched_member *));
    if (members == NULL) {
        return PS_ENOMEM;
    }
    s->members = members;
    s->member_capacity = capacity;
    return PS_OK;
}

/* Hosts are printed in logs and errors: only printable ASCII of a peer's text stays. */
static void copy_host(char out[PS_HOST_BYTES], const char *host)
{
    size_t n = strnlen(host, PS_HOST_BYTES - 1);
    for (size_t i = 0; i < n; i++) {
        out[i] = host[i] > ' ' && host[i] < 0x7f ? host[i] : '?';
    }
    memcpy(out + n, "", 1);
}

static enum ps_status add_member(struct ps_scheduler *s, struct ps_msg_register *msg,
                                 struct ps_sched_member **member_out)
{
    PS_TRY(reserve_member(s));
    struct ps_sched_member *member = calloc(1, sizeof(*member));
    if (member == NULL) {
        return PS_ENOMEM;
    }
    member->id = s->next_member++;
    member->role = msg->role;
    member->rank_asked = msg->rank;
    member->nonce = msg->nonce;
    member->pid = msg->pid;
    copy_host(member->host, msg->host);
    member->urls = msg->urls;
    member->url_count = msg->url_count;
    msg->urls = NULL;
    msg->url_count = 0;
    ps_list_init(&member->registering);
    ps_list_init(&member->quorum_asks);
    s->members[s->member_count++] = member;
    *member_out = member;
    return PS_OK;
}

static struct ps_sched_member *find_nonce(const struct ps_scheduler *s,
                                          const struct ps_msg_register *msg)
{
    for (size_t i = 0; i < s->member_count; i++) {
        if (s->members[i]->nonce == msg->nonce && s->members[i]->role == msg->role) {
            return s->members[i];
        }
    }
    return NULL;
}

/* The member of this registration, new or known.  '*fresh_out' tells which. */
static enum ps_status admit(struct ps_scheduler *s, struct ps_net_link *link,
                            struct ps_msg_register *msg,
                            struct ps_sched_member **member_out, bool *fresh_out,
                            struct ps_error *err)
{
    struct ps_sched_member *owner = ps_net_link_ctx(link);
    struct ps_sched_member *known = find_nonce(s, msg);
    if (s->state == PS_JOB_ABORTED || s->finishing) {
        bool failed = s->state == PS_JOB_ABORTED;
        return ps_error_set(err, PS_ECLOSED, "the job has ended%s%s", failed ? ": " : "",
                            failed ? s->failure_text : "");
    }
    if (owner != NULL && owner != known) {
        return ps_error_set(err, PS_EEXIST, "this link is member %u already", owner->id);
    }
    if (known != NULL) {
        if (known->state != PS_MEMBER_WAITING && known->state != PS_MEMBER_JOINED) {
            return ps_error_set(err, PS_ECLOSED, "member %u has left the job", known->id);
        }
        *member_out = known;
        *fresh_out = false;
        return PS_OK;
    }
    if (ps_net_link_peer(link)->role != msg->role) {
        return ps_error_set(err, PS_EMISMATCH, "a %s cannot register as %s",
                            ps_role_name(ps_net_link_peer(link)->role),
                            ps_role_name(msg->role));
    }
    PS_TRY(check_sizes(s, msg, err));
    PS_TRY(check_room(s, msg, err));
    PS_TRY(add_member(s, msg, member_out));
    *fresh_out = true;
    return PS_OK;
}

void ps_sched_on_register(struct ps_scheduler *s, struct ps_net_link *link,
                          struct ps_sched_member *member, const struct ps_frame *frame)
{
    struct ps_msg_register msg;
    struct ps_error err = {0};
    char label[PS_SCHED_LABEL_BYTES];
    const struct ps_buf *body = frame->payload;
    bool fresh = false;
    enum ps_status status = ps_msg_register_unpack(
        body != NULL ? body->data : NULL, body != NULL ? body->size : 0, &msg, &err);
    if (status == PS_OK) {
        status = admit(s, link, &msg, &member, &fresh, &err);
        ps_msg_register_fini(&msg);
    }
    if (status != PS_OK) {
        const char *text = err.text[0] != '\0' ? err.text : ps_status_text(status);
        PS_LOG_LIMITED(s->node->log, &s->noise, WARN, SCHEDULER,
                       "registration of %s refused: %s", ps_net_link_text(link), text);
        ps_sched_refuse(s, link, &frame->head, status, text);
        return;
    }
    if (member->link != NULL && member->link != link) {
        ps_net_link_set_ctx(member->link, NULL); /* the old link of a reconnected one */
    }
    member->link = link;
    ps_net_link_set_ctx(link, member);
    ps_sched_heard(member, ps_loop_now_ns(s->node->loop));
    if (ps_sched_ask_add(s, &member->registering, link, &frame->head) == NULL) {
        return;
    }
    if (member->state == PS_MEMBER_JOINED) {
        ps_sched_answer_job(s, member);
    } else if (fresh) {
        PS_LOG(s->node->log, INFO, SCHEDULER, "%s registered, %zu of %u members are here",
               ps_sched_label(member, label), s->member_count,
               s->num_worker + s->num_server);
        if (s->member_count == (size_t)s->num_worker + s->num_server) {
            ps_sched_begin_job(s);
        }
    }
}
