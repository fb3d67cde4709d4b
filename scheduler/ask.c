/* Requests that wait for an answer, and answers.  An ask outlives its link: when the link
 * goes, the ask stays in its list without anybody to tell. */
#include "scheduler/job.h"

#include <stdlib.h>

void ps_sched_reply(struct ps_scheduler *s, struct ps_net_link *link,
                    const struct ps_link_head *head, enum ps_status status,
                    struct ps_buf *body)
{
    struct ps_frame frame = {.payload = body,
                             .payload_bytes = body != NULL ? body->size : 0};
    enum ps_status sent = ps_net_reply(link, head, status, &frame);
    if (sent != PS_OK) {
        PS_LOG_LIMITED(s->node->log, &s->noise, WARN, SCHEDULER,
                       "%s reply to %s not sent: %s", ps_frame_kind_name(head->kind),
                       ps_net_link_text(link), ps_status_text(sent));
    }
}

void ps_sched_refuse(struct ps_scheduler *s, struct ps_net_link *link,
                     const struct ps_link_head *head, enum ps_status status,
                     const char *text)
{
    struct ps_buf *body = ps_msg_error_pack(text);
    ps_sched_reply(s, link, head, status, body);
    ps_buf_release(body);
}

struct ps_sched_ask *ps_sched_ask_add(struct ps_scheduler *s, struct ps_list *list,
                                      struct ps_net_link *link,
                                      const struct ps_link_head *head)
{
    for (struct ps_list *at = list->next; at != list; at = at->next) {
        struct ps_sched_ask *have = PS_CONTAINER_OF(at, struct ps_sched_ask, waiting);
        if (have->link == link && have->head.req == head->req) {
            return have;
        }
    }
    struct ps_sched_ask *ask = calloc(1, sizeof(*ask));
    if (ask == NULL) {
        ps_sched_refuse(s, link, head, PS_ENOMEM, "the scheduler is out of memory");
        return NULL;
    }
    ask->link = link;
    ask->head = *head;
    ask->member = ps_net_link_ctx(link);
    ps_list_push_back(list, &ask->waiting);
    ps_list_push_back(&s->asks, &ask->all);
    return ask;
}

static void ask_free(struct ps_sched_ask *ask)
{
    ps_list_remove(&ask->waiting);
    ps_list_remove(&ask->all);
    free(ask);
}

void ps_sched_ask_answer(struct ps_scheduler *s, struct ps_sched_ask *ask,
                         enum ps_status status, struct ps_buf *body)
{
    if (ask->link != NULL && !s->closing) {
        ps_sched_reply(s, ask->link, &ask->head, status, body);
    }
    ask_free(ask);
}

void ps_sched_asks_answer(struct ps_scheduler *s, struct ps_list *list,
                          enum ps_status status, struct ps_buf *body)
{
    while (!ps_list_empty(list)) {
        ps_sched_ask_answer(s, PS_CONTAINER_OF(list->next, struct ps_sched_ask, waiting),
                            status, body);
    }
}

void ps_sched_asks_refuse(struct ps_scheduler *s, struct ps_list *list,
                          enum ps_status status, const char *text)
{
    if (ps_list_empty(list)) {
        return;
    }
    struct ps_buf *body = ps_msg_error_pack(text);
    ps_sched_asks_answer(s, list, status, body);
    ps_buf_release(body);
}

void ps_sched_asks_forget_link(struct ps_scheduler *s, const struct ps_net_link *link)
{
    for (struct ps_list *at = s->asks.next; at != &s->asks; at = at->next) {
        struct ps_sched_ask *ask = PS_CONTAINER_OF(at, struct ps_sched_ask, all);
        if (ask->link == link) {
            ask->link = NULL;
        }
    }
}

void ps_sched_asks_free(struct ps_list *list)
{
    while (!ps_list_empty(list)) {
        ask_free(PS_CONTAINER_OF(list->next, struct ps_sched_ask, waiting));
    }
}
