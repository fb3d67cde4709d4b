/* OPTIMIZER and HYPER: a worker's change of a store's update rule, brought to all
 * servers.
 *
 * The changes of a store go one after the other, in order of arrival.  Every worker sends
 * the same OPTIMIZER: one that equals the change that is last in the queue, or what the
 * servers hold when the queue is empty, is the same change.  A HYPER is known by (member,
 * sequence).
 * Thread: the control loop. */
#include "scheduler/job.h"

#include <stdlib.h>
#include <string.h>

struct change {
    struct ps_list node; /* in store->changes */
    struct ps_scheduler *scheduler;
    struct ps_sched_store *store;
    unsigned kind; /* PS_KIND_OPTIMIZER or PS_KIND_HYPER */
    uint32_t member;
    struct ps_msg_optimizer msg;
    struct ps_list asks;
};

static void change_free(struct change *change)
{
    ps_list_remove(&change->node);
    ps_sched_asks_free(&change->asks);
    ps_msg_optimizer_fini(&change->msg);
    free(change);
}

void ps_sched_store_fini(struct ps_sched_store *store)
{
    while (!ps_list_empty(&store->changes)) {
        change_free(PS_CONTAINER_OF(store->changes.next, struct change, node));
    }
    ps_map_fini(&store->hyper_done);
    free(store);
}

static bool same_optimizer(const struct ps_msg_optimizer *a,
                           const struct ps_msg_optimizer *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->hyper, b->hyper) == 0 &&
           a->multi_precision == b->multi_precision;
}

static void send_first(struct ps_sched_store *store);

static void on_all_have_it(void *ctx, struct ps_sched_fanout *fanout,
                           const struct ps_error *err)
{
    struct change *change = ctx;
    struct ps_scheduler *s = change->scheduler;
    struct ps_sched_store *store = change->store;
    PS_UNUSED(fanout);
    if (s->closing) {
        change_free(change);
        return;
    }
    if (err->status != PS_OK) {
        ps_sched_asks_refuse(s, &change->asks, err->status, err->text);
    } else {
        if (change->kind == PS_KIND_OPTIMIZER) {
            store->held = change->msg; /* fixed-size fields only */
        } else if (ps_map_put(&store->hyper_done, change->member,
                              (void *)(uintptr_t)change->msg.sequence, NULL) != PS_OK) {
            PS_LOG(s->node->log, WARN, SCHEDULER, "member %u: a resent HYPER will count",
                   change->member);
        }
        PS_LOG(s->node->log, INFO, SCHEDULER, "store %s %s %s %s", store->name,
               ps_frame_kind_name(change->kind), change->msg.name, change->msg.hyper);
        ps_sched_asks_answer(s, &change->asks, PS_OK, NULL);
    }
    change_free(change);
    send_first(store);
}

static void send_change(struct change *change)
{
    struct ps_sched_fanout_options options = {.scheduler = change->scheduler,
                                              .kind = change->kind,
                                              .what = "optimizer",
                                              .done = on_all_have_it,
                                              .ctx = change};
    struct ps_buf *body = NULL;
    enum ps_status status =
        PS_FAULT(change->scheduler->node, "scheduler.before_optimizer");
    if (status == PS_OK) {
        status = ps_msg_optimizer_pack(&change->msg, &body);
    }
    if (status == PS_OK) {
        status = ps_sched_fanout_servers(&options, body);
    }
    ps_buf_release(body);
    if (status != PS_OK) {
        struct ps_error err;
        (void)ps_error_set(&err, status, "the optimizer could not be sent: %s",
                           ps_status_text(status));
        on_all_have_it(change, NULL, &err);
    }
}

static void send_first(struct ps_sched_store *store)
{
    if (!ps_list_empty(&store->changes)) {
        send_change(PS_CONTAINER_OF(store->changes.next, struct change, node));
    }
}

/* The queued change that 'msg' repeats, or NULL. */
static struct change *find_same(struct ps_sched_store *store, unsigned kind,
                                uint32_t member, const struct ps_msg_optimizer *msg)
{
    for (struct ps_list *at = store->changes.prev; at != &store->changes; at = at->prev) {
        struct change *change = PS_CONTAINER_OF(at, struct change, node);
        if (change->kind != kind) {
            continue;
        }
        if (kind == PS_KIND_OPTIMIZER) {
            return same_optimizer(&change->msg, msg) ? change : NULL;
        }
        if (change->member == member && change->msg.sequence == msg->sequence) {
            return change;
        }
    }
    return NULL;
}

static bool is_held(const struct ps_sched_store *store, unsigned kind, uint32_t member,
                    const struct ps_msg_optimizer *msg)
{
    if (kind == PS_KIND_OPTIMIZER) {
        for (const struct ps_list *at = store->changes.next; at != &store->changes;
             at = at->next) {
            if (PS_CONTAINER_OF(at, struct change, node)->kind == kind) {
                return false; /* another one will replace it */
            }
        }
        return store->held.name[0] != '\0' && same_optimizer(&store->held, msg);
    }
    uintptr_t last = (uintptr_t)ps_map_get(&store->hyper_done, member);
    return msg->sequence != 0 && msg->sequence <= last;
}

static enum ps_status check_change(unsigned kind, const struct ps_msg_optimizer *msg,
                                   struct ps_error *err)
{
    if (kind == PS_KIND_OPTIMIZER && msg->name[0] == '\0') {
        return ps_error_set(err, PS_EINVAL, "an optimizer needs a name");
    }
    if (kind == PS_KIND_HYPER && msg->sequence == 0) {
        return ps_error_set(err, PS_EINVAL, "a member's HYPER are numbered from 1");
    }
    return PS_OK;
}

/* Queues 'msg' (or joins the one it repeats). */
static void take_change(struct ps_scheduler *s, struct ps_sched_store *store,
                        struct ps_net_link *link, const struct ps_frame *frame,
                        const struct ps_msg_optimizer *msg)
{
    struct ps_sched_member *member = ps_net_link_ctx(link);
    struct change *change = find_same(store, frame->head.kind, member->id, msg);
    if (change != NULL) {
        (void)ps_sched_ask_add(s, &change->asks, link, &frame->head);
        return;
    }
    change = calloc(1, sizeof(*change));
    if (change == NULL) {
        ps_sched_refuse(s, link, &frame->head, PS_ENOMEM, ps_status_text(PS_ENOMEM));
        return;
    }
    ps_list_init(&change->node);
    ps_list_init(&change->asks);
    change->scheduler = s;
    change->store = store;
    change->kind = frame->head.kind;
    change->member = member->id;
    change->msg = *msg; /* fixed-size fields only */
    if (ps_sched_ask_add(s, &change->asks, link, &frame->head) == NULL) {
        change_free(change);
        return;
    }
    bool first = ps_list_empty(&store->changes);
    ps_list_push_back(&store->changes, &change->node);
    if (first) {
        send_change(change);
    }
}

void ps_sched_on_optimizer(struct ps_scheduler *s, struct ps_net_link *link,
                           struct ps_sched_member *member, const struct ps_frame *frame)
{
    struct ps_msg_optimizer msg;
    struct ps_sched_store *store;
    struct ps_error err = {0};
    unsigned kind = frame->head.kind;
    const struct ps_buf *body = frame->payload;
    enum ps_status status = ps_msg_optimizer_unpack(
        body != NULL ? body->data : NULL, body != NULL ? body->size : 0, &msg, &err);
    if (status != PS_OK) {
        ps_sched_refuse(s, link, &frame->head, status, err.text);
        return;
    }
    status = check_change(kind, &msg, &err);
    if (status == PS_OK) {
        status = ps_sched_store(s, msg.store, &store, &err);
    }
    if (status != PS_OK) {
        ps_sched_refuse(s, link, &frame->head, status, err.text);
    } else if (is_held(store, kind, member->id, &msg)) {
        ps_sched_reply(s, link, &frame->head, PS_OK, NULL);
    } else {
        take_change(s, store, link, frame, &msg);
    }
    ps_msg_optimizer_fini(&msg);
}

/* The changes themselves end with their fanouts. */
void ps_sched_optimizers_refuse(struct ps_scheduler *s, enum ps_status status,
                                const char *text)
{
    const char *name;
    void *value;
    for (size_t it = 0; ps_strmap_next(&s->stores, &it, &name, &value);) {
        struct ps_sched_store *store = value;
        for (struct ps_list *at = store->changes.next; at != &store->changes;
             at = at->next) {
            ps_sched_asks_refuse(s, &PS_CONTAINER_OF(at, struct change, node)->asks,
                                 status, text);
        }
    }
}
