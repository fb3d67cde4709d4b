/* A member's life: open, what the scheduler asks, failure, goodbye, close.
 * Thread: the node's control loop; open and close come from outside. */
#include "kvstore/shard/member.h"

#include "base/on_loop.h"
#include "base/sim.h"
#include "kvstore/shard/member_private.h"
#include "kvstore/shard/root.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- failure ---- */

static void stop_timers(struct ps_member *member)
{
    ps_timer_cancel(&member->start_timer);
    ps_timer_cancel(&member->redial_timer);
    ps_timer_cancel(&member->beat_timer);
}

static void finish_leave(struct ps_member *member, enum ps_status status)
{
    void (*done)(void *ctx, enum ps_status status) = member->leave_done;
    member->over = true;
    member->leave_done = NULL;
    stop_timers(member);
    done(member->leave_ctx, status);
}

void ps_member_fail(struct ps_member *member, enum ps_status status, const char *fmt, ...)
{
    struct ps_error err = {.status = status};
    if (member->over) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(err.text, sizeof(err.text), fmt, args);
    va_end(args);
    if (member->leave_done != NULL) {
        PS_LOG(member->node->log, DEBUG, SHARD, "leaving unanswered: %s", err.text);
        finish_leave(member, status);
        return;
    }
    member->over = true;
    stop_timers(member);
    PS_LOG(member->node->log, ERROR, SHARD, "%s", err.text);
    member->handler.failed(member->ctx, &err);
}

/* ---- the link ---- */

static enum ps_status on_hello(void *ctx, struct ps_net_link *link,
                               const struct ps_hello *peer, struct ps_error *err)
{
    struct ps_member *member = ctx;
    PS_UNUSED(link);
    if (peer->role != PS_ROLE_SCHEDULER) {
        return ps_error_set(err, PS_EMISMATCH, "%s is a %s, not a scheduler",
                            member->root_url, ps_role_name(peer->role));
    }
    return PS_OK;
}

static void on_up(void *ctx, struct ps_net_link *link)
{
    struct ps_member *member = ctx;
    if (link == member->link && !member->over) {
        member->link_up = true;
        ps_member_on_up(member);
    }
}

static void on_down(void *ctx, struct ps_net_link *link, const struct ps_error *err)
{
    struct ps_member *member = ctx;
    if (link != member->link) {
        return;
    }
    member->link = NULL;
    member->link_up = false;
    if (member->over) {
        return;
    }
    if (atomic_load_explicit(&member->joined, memory_order_relaxed)) {
        ps_member_fail(member, PS_EPEER, "lost the scheduler %s: %s", member->root_url,
                       err->text);
    } else {
        ps_member_dial_again(member, err);
    }
}

/* ---- what the scheduler asks ---- */

static void answer(struct ps_member *member, struct ps_net_link *link,
                   const struct ps_frame *frame, enum ps_status status, const char *text)
{
    struct ps_buf *body = text != NULL ? ps_msg_error_pack(text) : NULL;
    struct ps_frame reply = {.payload = body,
                             .payload_bytes = body != NULL ? body->size : 0};
    if (ps_net_reply(link, &frame->head, status, &reply) != PS_OK) {
        PS_LOG(member->node->log, DEBUG, SHARD, "reply to the scheduler not sent");
    }
    ps_buf_release(body);
}

static void on_abort(struct ps_member *member, struct ps_net_link *link,
                     const struct ps_frame *frame)
{
    struct ps_msg_abort msg;
    struct ps_error err = {0};
    const struct ps_buf *body = frame->payload;
    enum ps_status status = ps_msg_abort_unpack(
        body != NULL ? body->data : NULL, body != NULL ? body->size : 0, &msg, &err);
    if (status != PS_OK) {
        answer(member, link, frame, status, err.text);
        return;
    }
    answer(member, link, frame, PS_OK, NULL);
    bool known = msg.status < 0 && msg.status >= PS_EINTERNAL;
    ps_member_fail(member, known ? (enum ps_status)msg.status : PS_EABORT, "%s",
                   msg.text);
    ps_msg_abort_fini(&msg);
}

void ps_member_stop_heard(struct ps_member *member)
{
    if (member->role == PS_ROLE_SERVER && !member->stopped && !member->over &&
        member->handler.stop != NULL) {
        member->stopped = true;
        member->handler.stop(member->ctx);
    }
}

static void on_landed(void *ctx, struct ps_net_link *link, const struct ps_frame *frame)
{
    struct ps_member *member = ctx;
    if (link != member->link || (frame->head.flags & PS_FLAG_REPLY) != 0) {
        return;
    }
    member->silent_ns = 0;
    if (frame->head.kind == PS_KIND_ABORT) {
        on_abort(member, link, frame);
    } else if (frame->head.kind == PS_KIND_STOP) {
        answer(member, link, frame, PS_OK, NULL);
        ps_member_stop_heard(member);
    } else if (!atomic_load_explicit(&member->joined, memory_order_relaxed)) {
        /* It overtook the answer to REGISTER, so the link reorders, so it is sent again.
         */
        PS_LOG(member->node->log, DEBUG, SHARD, "%s before the job, dropped",
               ps_frame_kind_name(frame->head.kind));
    } else if (member->over || member->handler.request == NULL) {
        answer(member, link, frame, member->over ? PS_ECLOSED : PS_EUNSUPPORTED,
               member->over ? "this member has ended" : "a worker does not serve this");
    } else {
        member->handler.request(member->ctx, link, frame);
    }
}

/* ---- open, close ---- */

static const struct ps_net_handler net_handler = {
    .hello = on_hello, .up = on_up, .down = on_down, .landed = on_landed};

static void on_start(struct ps_task *task)
{
    struct ps_member *member = PS_CONTAINER_OF(task, struct ps_member, start_task);
    struct ps_error err = {0};
    int64_t rank = ps_settings_int(member->node->settings, PS_SET_RANK);
    struct ps_net_end_options options = {
        .node = member->node,
        .loop = member->node->loop,
        .handler = &net_handler,
        .ctx = member,
        .self = {.role = member->role, .rank = rank >= 0 ? (uint32_t)rank : UINT32_MAX}};
    enum ps_status status = ps_net_end_open(&options, &member->end, &err);
    if (status != PS_OK) {
        ps_member_fail(member, status, "%s", err.text);
        return;
    }
    ps_member_start(member);
}

static enum ps_status make_nonce(struct ps_member *member)
{
    if (member->node->sim != NULL) {
        member->nonce = ps_rng_u64(ps_sim_rng(member->node->sim));
    } else {
        PS_TRY(ps_random_bytes(&member->nonce, sizeof(member->nonce)));
    }
    return PS_OK;
}

static enum ps_status fill(struct ps_member *member,
                           const struct ps_member_options *options, struct ps_error *err)
{
    if (options->role != PS_ROLE_WORKER && options->role != PS_ROLE_SERVER) {
        return ps_error_set(err, PS_EINVAL, "role %s is no member: worker or server",
                            ps_role_name(options->role));
    }
    if (options->url_count > PS_MEMBER_URLS_MAX) {
        return ps_error_set(err, PS_ERANGE, "%zu lanes: at most %d", options->url_count,
                            PS_MEMBER_URLS_MAX);
    }
    if (options->url_count > 0) {
        member->urls = calloc(options->url_count, sizeof(*member->urls));
        if (member->urls == NULL) {
            return PS_ENOMEM;
        }
        memcpy(member->urls, options->urls, options->url_count * sizeof(*member->urls));
        member->url_count = options->url_count;
    }
    if (options->root_url == NULL) {
        PS_TRY(ps_root_dial_url(options->node->settings, member->root_url, err));
    } else if (strlen(options->root_url) < sizeof(member->root_url)) {
        memcpy(member->root_url, options->root_url, strlen(options->root_url) + 1);
    } else {
        return ps_error_set(err, PS_EADDR, "the root address is longer than %d bytes",
                            PS_URL_BYTES - 1);
    }
    return make_nonce(member);
}

enum ps_status ps_member_open(const struct ps_member_options *options,
                              struct ps_member **member_out, struct ps_error *err)
{
    struct ps_error cause = {0};
    struct ps_member *member = calloc(1, sizeof(*member));
    if (member == NULL) {
        return ps_error_set(err, PS_ENOMEM, "no memory for a member");
    }
    member->node = options->node;
    member->role = options->role;
    member->handler = *options->handler;
    member->ctx = options->ctx;
    enum ps_status status = fill(member, options, &cause);
    if (status != PS_OK) {
        free(member->urls);
        free(member);
        return ps_error_set(err, status, "%s",
                            cause.text[0] != '\0' ? cause.text : ps_status_text(status));
    }
    member->start_task = (struct ps_task){.run = on_start, .label = "member.start"};
    *member_out = member;
    (void)ps_loop_post(member->node->loop, &member->start_task);
    return PS_OK;
}

static void close_on_loop(void *arg)
{
    struct ps_member *member = arg;
    member->over = true;
    member->leave_done = NULL;
    stop_timers(member);
    ps_loop_forget(member->node->loop, &member->start_task);
    ps_net_end_close(member->end);
    member->end = NULL;
}

void ps_member_close(struct ps_member *member)
{
    if (member == NULL ||
        ps_on_loop(member->node->loop, close_on_loop, member) != PS_OK) {
        return; /* out of memory: what still runs cannot be freed */
    }
    if (atomic_load_explicit(&member->joined, memory_order_acquire)) {
        ps_msg_job_fini(&member->job);
    }
    free(member->urls);
    free(member);
}

/* ---- questions and requests ---- */

const struct ps_msg_job *ps_member_job(const struct ps_member *member)
{
    /* acquire: pairs with the release in member_join.c after 'job' was filled */
    return atomic_load_explicit(&member->joined, memory_order_acquire) ? &member->job
                                                                       : NULL;
}

const struct ps_member_row *ps_member_find(const struct ps_member *member,
                                           enum ps_role role, uint32_t rank)
{
    const struct ps_msg_job *job = ps_member_job(member);
    for (size_t i = 0; job != NULL && i < job->member_count; i++) {
        if (job->members[i].role == role && job->members[i].rank == rank) {
            return &job->members[i];
        }
    }
    return NULL;
}

struct ps_net_link *ps_member_link(struct ps_member *member)
{
    return member->link;
}

static void on_abort_answered(struct ps_net_call *call, enum ps_status status,
                              const struct ps_frame *reply, const struct ps_error *err)
{
    PS_UNUSED(call);
    PS_UNUSED(status);
    PS_UNUSED(reply);
    PS_UNUSED(err); /* the scheduler's ABORT follows, or its loss */
}

void ps_member_abort(struct ps_member *member, enum ps_status status,
                     uint32_t named_member, const char *text)
{
    struct ps_msg_abort msg = {.status = status, .member = named_member};
    struct ps_buf *body = NULL;
    if (member->over || member->link == NULL || member->abort_call.pending) {
        return;
    }
    (void)snprintf(msg.text, sizeof(msg.text), "%s", text);
    enum ps_status sent = ps_msg_abort_pack(&msg, &body);
    if (sent == PS_OK) {
        member->abort_call =
            (struct ps_net_call){.done = on_abort_answered,
                                 .frame = {.head = {.kind = PS_KIND_ABORT},
                                           .payload = body,
                                           .payload_bytes = body->size},
                                 .what = "abort"};
        sent = ps_net_call_start(member->link, &member->abort_call);
    }
    ps_buf_release(body);
    if (sent != PS_OK) {
        ps_member_fail(member, status, "%s", text);
    }
}

static void on_leave_answered(struct ps_net_call *call, enum ps_status status,
                              const struct ps_frame *reply, const struct ps_error *err)
{
    struct ps_member *member = PS_CONTAINER_OF(call, struct ps_member, leave_call);
    PS_UNUSED(reply);
    PS_UNUSED(err);
    if (member->leave_done != NULL) {
        finish_leave(member, status);
    }
}

void ps_member_leave(struct ps_member *member,
                     void (*done)(void *ctx, enum ps_status status), void *ctx)
{
    enum ps_status status = PS_FAULT(member->node, "member.before_leave");
    if (member->over || member->link == NULL || member->leave_call.pending) {
        done(ctx, PS_EPEER);
        return;
    }
    member->leave_done = done;
    member->leave_ctx = ctx;
    member->leave_call = (struct ps_net_call){.done = on_leave_answered,
                                              .frame = {.head = {.kind = PS_KIND_LEAVE}},
                                              .what = "leave"};
    if (status == PS_OK) {
        status = ps_net_call_start(member->link, &member->leave_call);
    }
    if (status != PS_OK && member->leave_done != NULL) {
        finish_leave(member, status);
    }
}
