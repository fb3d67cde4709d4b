/* The scheduler's lifecycle, and which handler a frame goes to.
 *
 * A peer is known by its link: a link's context is the member that registered on it.
 * What a frame says of its source is compared with that and otherwise not believed.
 * Thread: the control loop; open, close and wait come from outside. */
#include "scheduler/scheduler.h"

#include "base/on_loop.h"
#include "kvstore/shard/root.h"
#include "scheduler/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- dispatch ---- */

struct route {
    unsigned kind;
    bool member;  /* only from a registered link */
    bool running; /* only while the job runs */
    void (*run)(struct ps_scheduler *s, struct ps_net_link *link,
                struct ps_sched_member *member, const struct ps_frame *frame);
};

static const struct route routes[] = {
    {PS_KIND_REGISTER, false, false, ps_sched_on_register},
    {PS_KIND_HEARTBEAT, false, false, ps_sched_on_heartbeat},
    {PS_KIND_BARRIER, true, true, ps_sched_on_barrier},
    {PS_KIND_KEYS, true, true, ps_sched_on_keys},
    {PS_KIND_OPTIMIZER, true, true, ps_sched_on_optimizer},
    {PS_KIND_HYPER, true, true, ps_sched_on_optimizer},
    {PS_KIND_DONE, true, false, ps_sched_on_done},
    {PS_KIND_ABORT, true, false, ps_sched_on_abort},
    {PS_KIND_LEAVE, false, false, ps_sched_on_leave},
    {PS_KIND_STATUS, false, false, ps_sched_on_status},
};

static const struct route *find_route(unsigned kind)
{
    for (size_t i = 0; i < PS_COUNT(routes); i++) {
        if (routes[i].kind == kind) {
            return &routes[i];
        }
    }
    return NULL;
}

/* Why the job cannot serve this now; PS_OK when it can. */
static enum ps_status check_running(const struct ps_scheduler *s,
                                    const struct ps_sched_member *member,
                                    struct ps_error *err)
{
    if (s->state == PS_JOB_STARTING) {
        return ps_error_set(err, PS_ENOTREADY, "the job has not begun");
    }
    if (s->state == PS_JOB_ABORTED) {
        return ps_error_set(err, s->failure.status, "%s", s->failure_text);
    }
    if (s->state != PS_JOB_RUNNING) {
        return ps_error_set(err, PS_ECLOSED, "the job is ending");
    }
    if (member->state != PS_MEMBER_JOINED) {
        return ps_error_set(err, PS_ECLOSED, "member %u has left the job", member->id);
    }
    return PS_OK;
}

static enum ps_status check_route(const struct ps_scheduler *s, const struct route *route,
                                  const struct ps_frame *frame,
                                  const struct ps_sched_member *member,
                                  struct ps_error *err)
{
    const char *kind = ps_frame_kind_name(frame->head.kind);
    if (route == NULL) {
        return ps_error_set(err, PS_EPROTO, "%s: a scheduler does not serve it", kind);
    }
    if (member == NULL && route->member) {
        return ps_error_set(err, PS_EPERM, "%s before REGISTER", kind);
    }
    if (member != NULL && frame->head.src != PS_MEMBER_NONE &&
        frame->head.src != member->id) {
        return ps_error_set(err, PS_EPERM, "%s from member %u on the link of member %u",
                            kind, frame->head.src, member->id);
    }
    return route->running ? check_running(s, member, err) : PS_OK;
}

static void on_landed(void *ctx, struct ps_net_link *link, const struct ps_frame *frame)
{
    struct ps_scheduler *s = ctx;
    struct ps_sched_member *member = ps_net_link_ctx(link);
    const struct route *route = find_route(frame->head.kind);
    struct ps_error err = {0};
    if ((frame->head.flags & PS_FLAG_REPLY) != 0) {
        return; /* of a request that has ended */
    }
    if (member != NULL) {
        ps_sched_heard(member, ps_loop_now_ns(s->node->loop));
    }
    enum ps_status status = check_route(s, route, frame, member, &err);
    if (status != PS_OK) {
        PS_LOG_LIMITED(s->node->log, &s->noise, WARN, SCHEDULER, "%s refused: %s",
                       ps_net_link_text(link), err.text);
        ps_sched_refuse(s, link, &frame->head, status, err.text);
        return;
    }
    route->run(s, link, member, frame);
}

static enum ps_status on_hello(void *ctx, struct ps_net_link *link,
                               const struct ps_hello *peer, struct ps_error *err)
{
    PS_UNUSED(ctx);
    PS_UNUSED(link);
    if (peer->role == PS_ROLE_SCHEDULER) {
        return ps_error_set(err, PS_EPERM, "a scheduler does not dial a scheduler");
    }
    return PS_OK;
}

static void on_down(void *ctx, struct ps_net_link *link, const struct ps_error *err)
{
    struct ps_scheduler *s = ctx;
    struct ps_sched_member *member = ps_net_link_ctx(link);
    ps_sched_asks_forget_link(s, link);
    if (member == NULL || member->link != link) {
        return;
    }
    member->link = NULL;
    ps_sched_lost(s, member,
                  err->status == PS_ECLOSED ? "it closed its link without LEAVE"
                                            : "its link broke and did not come back");
}

static const struct ps_net_handler handler = {
    .hello = on_hello, .landed = on_landed, .down = on_down};

/* ---- the start-up deadline ---- */

static void refuse_all_waiting(struct ps_scheduler *s, enum ps_status status,
                               const char *text)
{
    for (size_t i = 0; i < s->member_count; i++) {
        ps_sched_asks_refuse(s, &s->members[i]->registering, status, text);
    }
}

static void on_start_deadline(struct ps_timer *timer)
{
    struct ps_scheduler *s = PS_CONTAINER_OF(timer, struct ps_scheduler, start_timer);
    struct ps_str text = {0};
    if (s->state != PS_JOB_STARTING || s->finishing) {
        return;
    }
    ps_str_printf(&text, "the job is not complete after %.1f s: ",
                  (double)s->start_timeout_ns / 1e9);
    ps_sched_missing_text(s, &text);
    PS_LOG(s->node->log, ERROR, SCHEDULER, "%s", ps_str_text(&text));
    refuse_all_waiting(s, PS_ETIMEDOUT, ps_str_text(&text));
    ps_sched_finish(s, PS_ETIMEDOUT, ps_str_text(&text));
    ps_str_fini(&text);
}

/* ---- stop from outside ---- */

static void on_stop_asked(struct ps_task *task)
{
    struct ps_scheduler *s = PS_CONTAINER_OF(task, struct ps_scheduler, stop_task);
    char text[PS_ERROR_TEXT_BYTES];
    (void)snprintf(text, sizeof(text), "the scheduler was ended: %s", s->stop_why);
    if (s->state == PS_JOB_RUNNING) {
        ps_sched_abort(s, PS_ECANCELED, PS_MEMBER_SCHEDULER, text);
    } else if (s->state == PS_JOB_ABORTED) {
        ps_sched_finish(s, s->failure.status, s->failure_text); /* without the acks */
    } else if (s->state == PS_JOB_STOPPING) {
        ps_sched_finish(s, PS_OK, "");
    } else if (s->state == PS_JOB_STARTING && !s->finishing) {
        bool idle = ps_sched_count(s, PS_ROLE_WORKER, PS_MEMBER_WAITING) == 0;
        refuse_all_waiting(s, PS_ECANCELED, text);
        ps_sched_finish(s, idle ? PS_OK : PS_ECANCELED, text);
    }
}

void ps_scheduler_stop(struct ps_scheduler *scheduler, const char *why)
{
    /* acq_rel: the first caller's text is what the loop reads. */
    if (!atomic_exchange_explicit(&scheduler->stop_asked, true, memory_order_acq_rel)) {
        (void)snprintf(scheduler->stop_why, sizeof(scheduler->stop_why), "%s", why);
        (void)ps_loop_post(scheduler->node->loop, &scheduler->stop_task);
    }
}

/* ---- open ---- */

static enum ps_status make_uuid(struct ps_scheduler *s)
{
    struct ps_node *node = s->node;
    if (node->sim != NULL) {
        for (uint32_t i = 0; i < PS_UUID_BYTES / 4; i++) {
            uint32_t words[4];
            ps_rng_at(node->seed, 1, i, words); /* stream 1: the job's uuid */
            memcpy(s->uuid + 4 * i, words, 4);
        }
    } else {
        PS_TRY(ps_random_bytes(s->uuid, sizeof(s->uuid)));
    }
    s->uuid[0] |= 1; /* all 0 means: not known */
    return PS_OK;
}

struct open_errand {
    struct ps_scheduler *scheduler;
    const char *url; /* NULL: from the settings */
    enum ps_status status;
    struct ps_error *err;
};

static enum ps_status open_end(struct ps_scheduler *s, const char *url,
                               struct ps_error *err)
{
    char listen_url[PS_URL_BYTES];
    struct ps_net_end_options options = {
        .node = s->node,
        .loop = s->node->loop,
        .handler = &handler,
        .ctx = s,
        .self = {.role = PS_ROLE_SCHEDULER, .member = PS_MEMBER_SCHEDULER, .rank = 0}};
    memcpy(options.self.uuid, s->uuid, sizeof(s->uuid));
    if (url == NULL) {
        PS_TRY(ps_root_listen_url(s->node->settings, listen_url, err));
        PS_TRY(ps_root_make_dir(s->node->settings, err));
        url = listen_url;
    }
    PS_TRY(ps_net_end_open(&options, &s->end, err));
    ps_sched_epoch_bump(s);
    enum ps_status status = ps_net_listen(s->end, url, s->url, err);
    if (status == PS_OK) {
        s->start_timer.run = on_start_deadline;
        s->start_timer.label = "scheduler.start_deadline";
        status = ps_timer_start(s->node->loop, &s->start_timer, s->start_timeout_ns);
    }
    if (status != PS_OK) {
        ps_net_end_close(s->end);
        s->end = NULL;
        return status;
    }
    s->started_ns = ps_loop_now_ns(s->node->loop);
    ps_sched_heartbeat_start(s);
    return PS_OK;
}

static void open_on_loop(void *arg)
{
    struct open_errand *errand = arg;
    errand->status = open_end(errand->scheduler, errand->url, errand->err);
}

static struct ps_scheduler *create(const struct ps_scheduler_options *options)
{
    struct ps_scheduler *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return NULL;
    }
    s->node = options->node;
    s->ended = options->ended;
    s->ctx = options->ctx;
    s->next_member = PS_MEMBER_SCHEDULER + 1;
    s->stop_task = (struct ps_task){.run = on_stop_asked, .label = "scheduler.stop"};
    ps_list_init(&s->asks);
    ps_list_init(&s->fanouts);
    ps_list_init(&s->key_asks);
    ps_list_init(&s->statuses);
    return s;
}

enum ps_status ps_scheduler_open(const struct ps_scheduler_options *options,
                                 struct ps_scheduler **scheduler_out,
                                 struct ps_error *err)
{
    struct ps_error cause = {0};
    struct ps_scheduler *s = create(options);
    if (s == NULL) {
        return ps_error_set(err, PS_ENOMEM, "no memory for a scheduler");
    }
    struct open_errand errand = {.scheduler = s, .url = options->url, .err = &cause};
    enum ps_status status;
    PS_TRY_GOTO(status, ps_sched_read_settings(s, &cause), fail);
    PS_TRY_GOTO(status, make_uuid(s), fail);
    PS_TRY_GOTO(status, ps_event_init(&s->ended_event, s->node->driver), fail);
    s->event_ready = true;
    PS_TRY_GOTO(status, ps_on_loop(s->node->loop, open_on_loop, &errand), fail);
    PS_TRY_GOTO(status, errand.status, fail);
    ps_node_set_name(s->node, "scheduler");
    PS_LOG(s->node->log, INFO, SCHEDULER, "listening at %s workers %u servers %u", s->url,
           s->num_worker, s->num_server);
    if (options->ready != NULL) {
        options->ready(options->ctx, s->url);
    }
    *scheduler_out = s;
    return PS_OK;
fail:
    ps_scheduler_close(s);
    return ps_error_set(err, status, "%s",
                        cause.text[0] != '\0' ? cause.text : ps_status_text(status));
}

/* ---- close ---- */

static void close_on_loop(void *arg)
{
    struct ps_scheduler *s = arg;
    s->closing = true;
    ps_timer_cancel(&s->start_timer);
    ps_timer_cancel(&s->beat_timer);
    ps_timer_cancel(&s->end_timer);
    ps_timer_cancel(&s->drain_timer);
    ps_loop_forget(s->node->loop, &s->stop_task);
    ps_sched_fanouts_cancel(s);
    ps_net_end_close(s->end);
    s->end = NULL;
}

void ps_scheduler_close(struct ps_scheduler *scheduler)
{
    struct ps_scheduler *s = scheduler;
    if (s == NULL) {
        return;
    }
    if (s->end != NULL && ps_on_loop(s->node->loop, close_on_loop, s) != PS_OK) {
        return; /* out of memory: what still runs cannot be freed */
    }
    ps_sched_status_fini(s);
    ps_sched_barriers_fini(s);
    ps_sched_keys_fini(s);
    for (size_t i = 0; i < s->member_count; i++) {
        ps_sched_member_free(s->members[i]);
    }
    free(s->members);
    if (s->event_ready) {
        ps_event_fini(&s->ended_event);
    }
    free(s);
}

/* ---- questions ---- */

enum ps_status ps_scheduler_wait(struct ps_scheduler *scheduler, uint64_t deadline_ns,
                                 struct ps_error *result_out)
{
    PS_TRY(ps_event_wait(&scheduler->ended_event, deadline_ns));
    *result_out = scheduler->result;
    return PS_OK;
}

const char *ps_scheduler_url(const struct ps_scheduler *scheduler)
{
    return scheduler->url;
}
