/* Control calls: a user's thread hands a request to the control loop and waits for the
 * answer. */
#include "kvstore/dist.h"

#include <string.h>

struct control_call {
    struct ps_net_call call;
    struct ps_task task;
    struct ps_dist *dist;
    struct ps_event event;
    enum ps_status status;
    struct ps_error *err;
    struct ps_buf *reply;
};

static void control_done(struct ps_net_call *call, enum ps_status status,
                         const struct ps_frame *reply, const struct ps_error *err)
{
    struct control_call *control = PS_CONTAINER_OF(call, struct control_call, call);
    control->status = status;
    if (status != PS_OK && control->err != NULL) {
        *control->err = *err;
    }
    if (reply != NULL && reply->payload != NULL && status == PS_OK) {
        control->reply = ps_buf_retain(reply->payload);
    }
    ps_event_set(&control->event);
}

static void control_start(struct ps_task *task)
{
    struct control_call *control = PS_CONTAINER_OF(task, struct control_call, task);
    struct ps_net_link *link = ps_member_link(control->dist->member);
    enum ps_status status =
        link != NULL ? ps_net_call_start(link, &control->call) : PS_EPEER;
    if (status != PS_OK) {
        control->status =
            ps_error_set(control->err, status, "%s: the scheduler is not there: %s",
                         control->call.what, ps_status_text(status));
        ps_event_set(&control->event);
    }
}

enum ps_status ps_dist_call(struct ps_dist *dist, enum ps_frame_kind kind,
                            const char *what, struct ps_buf *body,
                            struct ps_buf **reply_out, struct ps_error *err)
{
    struct control_call control = {
        .call = {.done = control_done, .what = what},
        .task = {.run = control_start, .label = "kvstore.control"},
        .dist = dist,
        .err = err,
    };
    control.call.frame.head.kind = (uint16_t)kind;
    control.call.frame.payload = body;
    control.call.frame.payload_bytes = body != NULL ? body->size : 0;
    enum ps_status status = ps_dist_error(dist, err);
    if (status != PS_OK) {
        goto release_body;
    }
    PS_TRY_GOTO(status, ps_event_init(&control.event, dist->node->driver), release_body);
    (void)ps_loop_post(dist->node->loop, &control.task);
    /* the call has a deadline of its own; the event is always set */
    status = ps_event_wait(&control.event, PS_NEVER);
    ps_event_fini(&control.event);
    if (status == PS_OK) {
        status = control.status;
    }
    if (status == PS_OK && reply_out != NULL) {
        *reply_out = control.reply;
    } else {
        ps_buf_release(control.reply);
    }
release_body:
    ps_buf_release(body);
    return status;
}
