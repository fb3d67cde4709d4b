/* One request to several members, one answer when all have answered or failed. */
#include "scheduler/job.h"

#include <stdlib.h>

struct target {
    struct ps_net_call call;
    struct ps_sched_fanout *fanout;
    struct ps_sched_member *member;
    struct ps_buf *reply;
};

struct ps_sched_fanout {
    struct ps_list node; /* in scheduler->fanouts */
    struct ps_sched_fanout_options options;
    struct ps_error first; /* failure */
    size_t count, remaining;
    struct target targets[];
};

enum ps_status ps_sched_fanout_create(const struct ps_sched_fanout_options *options,
                                      struct ps_sched_fanout **fanout_out)
{
    size_t bytes;
    if (!ps_mul_size(options->capacity, sizeof(struct target), &bytes) ||
        !ps_add_size(bytes, sizeof(struct ps_sched_fanout), &bytes)) {
        return PS_ENOMEM;
    }
    struct ps_sched_fanout *fanout = calloc(1, bytes);
    if (fanout == NULL) {
        return PS_ENOMEM;
    }
    fanout->options = *options;
    ps_list_push_back(&options->scheduler->fanouts, &fanout->node);
    *fanout_out = fanout;
    return PS_OK;
}

void ps_sched_fanout_add(struct ps_sched_fanout *fanout, struct ps_sched_member *member,
                         struct ps_buf *body)
{
    if (fanout->count >= fanout->options.capacity) {
        return;
    }
    struct target *target = &fanout->targets[fanout->count++];
    target->fanout = fanout;
    target->member = member;
    target->call.frame.head.kind = (uint16_t)fanout->options.kind;
    target->call.timeout_ns = fanout->options.timeout_ns;
    target->call.what = fanout->options.what;
    if (body != NULL) {
        target->call.frame.payload = ps_buf_retain(body);
        target->call.frame.payload_bytes = body->size;
    }
}

/* One target less; the last one reports and frees. */
static void finish_one(struct ps_sched_fanout *fanout)
{
    if (--fanout->remaining > 0) {
        return;
    }
    fanout->options.done(fanout->options.ctx, fanout, &fanout->first);
    ps_list_remove(&fanout->node);
    for (size_t i = 0; i < fanout->count; i++) {
        ps_buf_release(fanout->targets[i].call.frame.payload);
        ps_buf_release(fanout->targets[i].reply);
    }
    free(fanout);
}

static void note_failure(struct target *target, enum ps_status status, const char *text)
{
    struct ps_sched_fanout *fanout = target->fanout;
    char label[PS_SCHED_LABEL_BYTES];
    if (fanout->first.status == PS_OK) {
        (void)ps_error_set(&fanout->first, status, "%s: %s",
                           ps_sched_label(target->member, label), text);
    }
}

static void on_answer(struct ps_net_call *call, enum ps_status status,
                      const struct ps_frame *reply, const struct ps_error *err)
{
    struct target *target = PS_CONTAINER_OF(call, struct target, call);
    if (status != PS_OK) {
        bool told = err != NULL && err->text[0] != '\0';
        note_failure(target, status, told ? err->text : ps_status_text(status));
    } else if (reply != NULL && reply->payload != NULL) {
        target->reply = ps_buf_retain(reply->payload);
    }
    finish_one(target->fanout);
}

void ps_sched_fanout_fail(struct ps_sched_fanout *fanout, enum ps_status status,
                          const char *text)
{
    if (fanout->first.status == PS_OK) {
        (void)ps_error_set(&fanout->first, status, "%s", text);
    }
}

void ps_sched_fanout_go(struct ps_sched_fanout *fanout)
{
    fanout->remaining = fanout->count + 1;
    for (size_t i = 0; i < fanout->count; i++) {
        struct target *target = &fanout->targets[i];
        target->call.done = on_answer;
        enum ps_status status =
            target->member->link == NULL
                ? PS_EPEER
                : ps_net_call_start(target->member->link, &target->call);
        if (status != PS_OK) {
            note_failure(target, status, ps_status_text(status));
            finish_one(fanout);
        }
    }
    finish_one(fanout);
}

void ps_sched_fanouts_cancel(struct ps_scheduler *s)
{
    while (!ps_list_empty(&s->fanouts)) {
        struct ps_sched_fanout *fanout =
            PS_CONTAINER_OF(s->fanouts.next, struct ps_sched_fanout, node);
        size_t count = fanout->count;
        fanout->remaining++; /* stays until all its calls are cancelled */
        for (size_t i = 0; i < count; i++) {
            ps_net_call_cancel(&fanout->targets[i].call);
        }
        finish_one(fanout);
    }
}

struct ps_scheduler *ps_sched_fanout_scheduler(const struct ps_sched_fanout *fanout)
{
    return fanout->options.scheduler;
}

size_t ps_sched_fanout_count(const struct ps_sched_fanout *fanout)
{
    return fanout->count;
}

struct ps_sched_member *ps_sched_fanout_member(const struct ps_sched_fanout *fanout,
                                               size_t i)
{
    return fanout->targets[i].member;
}

const struct ps_buf *ps_sched_fanout_reply(const struct ps_sched_fanout *fanout, size_t i)
{
    return fanout->targets[i].reply;
}

enum ps_status ps_sched_fanout_servers(const struct ps_sched_fanout_options *options,
                                       struct ps_buf *body)
{
    struct ps_scheduler *s = options->scheduler;
    struct ps_sched_fanout_options sized = *options;
    struct ps_sched_fanout *fanout;
    sized.capacity = s->num_server;
    PS_TRY(ps_sched_fanout_create(&sized, &fanout));
    for (size_t i = 0; i < s->member_count; i++) {
        struct ps_sched_member *member = s->members[i];
        if (member->role == PS_ROLE_SERVER && member->state == PS_MEMBER_JOINED) {
            ps_sched_fanout_add(fanout, member, body);
        }
    }
    ps_sched_fanout_go(fanout);
    return PS_OK;
}
