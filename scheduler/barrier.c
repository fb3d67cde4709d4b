/* Barriers by name: who asked, not how many messages came.
 *
 * A member's barriers of one name are numbered from 1.  Barrier n is released when every
 * worker that has not left asked for n; asking again for one that is released is answered
 * again.  Thread: the control loop.  Source: reference/behaviour.md 5.8. */
#include "scheduler/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct barrier {
    uint64_t released;   /* this many have been passed */
    struct ps_list asks; /* for number released + 1 */
};

static struct barrier *find_barrier(struct ps_scheduler *s, const char *name)
{
    struct barrier *barrier = ps_strmap_get(&s->barriers, name);
    if (barrier != NULL || s->barriers.count >= PS_SCHED_BARRIERS_MAX) {
        return barrier;
    }
    barrier = calloc(1, sizeof(*barrier));
    if (barrier == NULL) {
        return NULL;
    }
    ps_list_init(&barrier->asks);
    if (ps_strmap_put(&s->barriers, name, barrier, NULL) != PS_OK) {
        free(barrier);
        return NULL;
    }
    return barrier;
}

static bool asked(const struct barrier *barrier, const struct ps_sched_member *member)
{
    for (const struct ps_list *at = barrier->asks.next; at != &barrier->asks;
         at = at->next) {
        if (PS_CONTAINER_OF(at, struct ps_sched_ask, waiting)->member == member) {
            return true;
        }
    }
    return false;
}

static bool complete(const struct ps_scheduler *s, const struct barrier *barrier)
{
    for (size_t i = 0; i < s->member_count; i++) {
        const struct ps_sched_member *member = s->members[i];
        if (member->role == PS_ROLE_WORKER && member->state == PS_MEMBER_JOINED &&
            !member->leaving && !asked(barrier, member)) {
            return false;
        }
    }
    return !ps_list_empty(&barrier->asks);
}

static void release_if_complete(struct ps_scheduler *s, struct barrier *barrier)
{
    if (!complete(s, barrier)) {
        return;
    }
    enum ps_status status = PS_FAULT(s->node, "scheduler.before_barrier_reply");
    barrier->released++;
    if (status == PS_OK) {
        ps_sched_asks_answer(s, &barrier->asks, PS_OK, NULL);
    } else {
        ps_sched_asks_refuse(s, &barrier->asks, status, "the barrier failed");
    }
}

void ps_sched_on_barrier(struct ps_scheduler *s, struct ps_net_link *link,
                         struct ps_sched_member *member, const struct ps_frame *frame)
{
    struct ps_msg_barrier msg;
    struct ps_error err = {0};
    char text[PS_ERROR_TEXT_BYTES];
    const struct ps_buf *body = frame->payload;
    enum ps_status status = ps_msg_barrier_unpack(
        body != NULL ? body->data : NULL, body != NULL ? body->size : 0, &msg, &err);
    if (status != PS_OK) {
        ps_sched_refuse(s, link, &frame->head, status, err.text);
        return;
    }
    struct barrier *barrier = find_barrier(s, msg.name);
    if (member->role != PS_ROLE_WORKER) {
        ps_sched_refuse(s, link, &frame->head, PS_EPERM, "barriers are among workers");
    } else if (barrier == NULL) {
        ps_sched_refuse(s, link, &frame->head, PS_EFULL,
                        "no room for another barrier name");
    } else if (msg.sequence == 0) {
        ps_sched_refuse(s, link, &frame->head, PS_EINVAL,
                        "a member's barriers are numbered from 1");
    } else if (msg.sequence <= barrier->released) {
        ps_sched_reply(s, link, &frame->head, PS_OK, NULL);
    } else if (msg.sequence > barrier->released + 1) {
        (void)snprintf(text, sizeof(text),
                       "barrier %s number %" PRIu64 ": the next is %" PRIu64, msg.name,
                       msg.sequence, barrier->released + 1);
        ps_sched_refuse(s, link, &frame->head, PS_EINVAL, text);
    } else if (ps_sched_ask_add(s, &barrier->asks, link, &frame->head) != NULL) {
        release_if_complete(s, barrier);
    }
    ps_msg_barrier_fini(&msg);
}

void ps_sched_barriers_check(struct ps_scheduler *s)
{
    void *value;
    const char *name;
    for (size_t it = 0; ps_strmap_next(&s->barriers, &it, &name, &value);) {
        release_if_complete(s, value);
    }
}

void ps_sched_barriers_refuse(struct ps_scheduler *s, enum ps_status status,
                              const char *text)
{
    void *value;
    const char *name;
    for (size_t it = 0; ps_strmap_next(&s->barriers, &it, &name, &value);) {
        struct barrier *barrier = value;
        ps_sched_asks_refuse(s, &barrier->asks, status, text);
    }
}

void ps_sched_barriers_fini(struct ps_scheduler *s)
{
    void *value;
    const char *name;
    for (size_t it = 0; ps_strmap_next(&s->barriers, &it, &name, &value);) {
        struct barrier *barrier = value;
        ps_sched_asks_free(&barrier->asks);
        free(barrier);
    }
    ps_strmap_fini(&s->barriers);
}
