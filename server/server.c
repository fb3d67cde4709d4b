/* The server's life: lanes that listen, a member that registers, the end.
 *
 * Thread: handlers run on the node's control loop; open, wait and close come from
 * outside. */
#include "server/server.h"

#include "base/on_loop.h"
#include "base/util.h"
#include "kvstore/shard/root.h"
#include "server/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIM_LANES 2 /* the same on every machine, and more than one */

/* ---- the end ---- */

static void finish(struct ps_server *server, enum ps_status status, const char *text)
{
    if (server->finished) {
        return;
    }
    server->finished = true;
    (void)ps_error_set(&server->result, status, "%s", text);
    if (status != PS_OK) {
        PS_LOG(server->node->log, ERROR, SERVER, "%s", text);
        server_control_fail_lanes(server, &server->result);
    }
    ps_event_set(&server->ended_event);
    if (server->ended != NULL) {
        server->ended(server->ctx, &server->result);
    }
}

static void on_left(void *ctx, enum ps_status status)
{
    struct ps_server *server = ctx;
    PS_LOG(server->node->log, INFO, SERVER, "left the job: %s", ps_status_text(status));
    finish(server, PS_OK, "");
}

static void leave(struct ps_server *server)
{
    if (server->ending || server->finished) {
        return;
    }
    server->ending = true;
    enum ps_status status = PS_FAULT(server->node, "server.before_leave");
    if (status != PS_OK) {
        finish(server, status, "fault before leaving");
        return;
    }
    ps_member_leave(server->member, on_left, server);
}

/* ---- what the member reports ---- */

static void on_joined(void *ctx, const struct ps_msg_job *job)
{
    struct ps_server *server = ctx;
    char name[32];
    (void)snprintf(name, sizeof(name), "server/%u", job->rank);
    ps_node_set_name(server->node, name);
    enum ps_status status = PS_FAULT(server->node, "server.after_register");
    for (uint32_t i = 0; i < server->lane_count && status == PS_OK; i++) {
        status = server_lane_start(&server->lanes[i], job);
    }
    if (status != PS_OK) {
        char text[PS_ERROR_TEXT_BYTES];
        (void)snprintf(text, sizeof(text), "server %u could not start its lanes: %s",
                       job->rank, ps_status_text(status));
        ps_member_abort(server->member, status, job->member, text);
        finish(server, status, text);
        return;
    }
    server->joined = true;
    PS_LOG(server->node->log, INFO, SERVER, "member %u serves with %u lanes from %s",
           job->member, server->lane_count, server->lanes[0].url);
}

static void on_failed(void *ctx, const struct ps_error *err)
{
    finish(ctx, err->status, err->text);
}

static void on_stop(void *ctx)
{
    leave(ctx);
}

static const struct ps_member_handler member_handler = {.joined = on_joined,
                                                        .failed = on_failed,
                                                        .stop = on_stop,
                                                        .request =
                                                            server_control_request};

/* ---- stop from outside ---- */

static void on_stop_asked(struct ps_task *task)
{
    struct ps_server *server = PS_CONTAINER_OF(task, struct ps_server, stop_task);
    const struct ps_msg_job *job = ps_member_job(server->member);
    char text[PS_ERROR_TEXT_BYTES];
    if (server->finished) {
        return;
    }
    if (job == NULL || server->gone >= job->num_worker) {
        leave(server);
        return;
    }
    (void)snprintf(text, sizeof(text), "server %u was ended: %.200s", job->rank,
                   server->stop_why);
    ps_member_abort(server->member, PS_ECANCELED, job->member, text);
    finish(server, PS_ECANCELED, text);
}

void ps_server_stop(struct ps_server *server, const char *why)
{
    /* acq_rel: the first caller's text is what the loop reads. */
    if (!atomic_exchange_explicit(&server->stop_asked, true, memory_order_acq_rel)) {
        (void)snprintf(server->stop_why, sizeof(server->stop_why), "%s", why);
        (void)ps_loop_post(server->node->loop, &server->stop_task);
    }
}

/* ---- open ---- */

static uint32_t choose_lanes(const struct ps_server_options *options)
{
    const struct ps_settings *settings = options->node->settings;
    int64_t lanes = options->lanes != 0 ? options->lanes
                                        : ps_settings_int(settings, PS_SET_SERVER_LANES);
    if (lanes > 0) {
        return (uint32_t)PS_MIN(lanes, PS_MEMBER_URLS_MAX);
    }
    if (options->node->sim != NULL) {
        return SIM_LANES;
    }
    /* cores over servers of this host: all of the job's when the job is on loopback */
    const char *root = ps_settings_text(settings, PS_SET_ROOT_URI);
    int64_t servers = PS_MAX(1, ps_settings_int(settings, PS_SET_NUM_SERVER));
    bool one_host = strncmp(root, "ipc:", 4) == 0 || ps_root_is_loopback(root);
    lanes = ps_cpu_count() / (one_host ? servers : 1);
    return (uint32_t)PS_MAX(1, PS_MIN(lanes, 64));
}

/* Ends and listeners belong to lanes whose loops do not run yet. */
static enum ps_status open_lanes(struct ps_server *server,
                                 const struct ps_server_options *options,
                                 struct ps_error *err)
{
    server->lanes = calloc(server->lane_count, sizeof(*server->lanes));
    if (server->lanes == NULL) {
        return PS_ENOMEM;
    }
    for (uint32_t i = 0; i < server->lane_count; i++) {
        PS_TRY(server_lane_open(&server->lanes[i], server, i, options->url, err));
    }
    return PS_OK;
}

static enum ps_status open_member(struct ps_server *server,
                                  const struct ps_server_options *options,
                                  struct ps_error *err)
{
    char(*urls)[PS_URL_BYTES] = calloc(server->lane_count, PS_URL_BYTES);
    if (urls == NULL) {
        return PS_ENOMEM;
    }
    for (uint32_t i = 0; i < server->lane_count; i++) {
        memcpy(urls[i], server->lanes[i].url, PS_URL_BYTES);
    }
    struct ps_member_options member = {.node = server->node,
                                       .role = PS_ROLE_SERVER,
                                       .handler = &member_handler,
                                       .ctx = server,
                                       .urls = urls,
                                       .url_count = server->lane_count,
                                       .root_url = options->root_url};
    enum ps_status status = ps_member_open(&member, &server->member, err);
    free(urls);
    return status;
}

struct open_errand {
    struct ps_server *server;
    const struct ps_server_options *options;
    enum ps_status status;
    struct ps_error *err;
};

/* On the loop, so that nothing is reported before server->member is set. */
static void open_member_on_loop(void *arg)
{
    struct open_errand *errand = arg;
    errand->status = open_member(errand->server, errand->options, errand->err);
}

enum ps_status ps_server_open(const struct ps_server_options *options,
                              struct ps_server **server_out, struct ps_error *err)
{
    struct ps_error cause = {0};
    struct ps_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        return ps_error_set(err, PS_ENOMEM, "no memory for a server");
    }
    enum ps_status status;
    server->node = options->node;
    server->ended = options->ended;
    server->ctx = options->ctx;
    server->lane_count = choose_lanes(options);
    server->stop_task = (struct ps_task){.run = on_stop_asked, .label = "server.stop"};
    ps_list_init(&server->errands);
    PS_TRY_GOTO(status, ps_event_init(&server->ended_event, server->node->driver), fail);
    server->event_ready = true;
    PS_TRY_GOTO(status, open_lanes(server, options, &cause), fail);
    struct open_errand errand = {.server = server, .options = options, .err = &cause};
    PS_TRY_GOTO(status, ps_on_loop(server->node->loop, open_member_on_loop, &errand),
                fail);
    PS_TRY_GOTO(status, errand.status, fail);
    *server_out = server;
    return PS_OK;
fail:
    ps_server_close(server);
    return ps_error_set(err, status, "%s",
                        cause.text[0] != '\0' ? cause.text : ps_status_text(status));
}

/* ---- close ---- */

static void refuse_on_loop(void *arg)
{
    struct ps_server *server = arg;
    server->refusing = true;
    ps_loop_forget(server->node->loop, &server->stop_task);
}

static void fini_errands_on_loop(void *arg)
{
    server_control_fini(arg);
}

static void each_lane(struct ps_server *server, void (*fn)(struct server_lane *lane))
{
    for (uint32_t i = 0; server->lanes != NULL && i < server->lane_count; i++) {
        fn(&server->lanes[i]);
    }
}

void ps_server_close(struct ps_server *server)
{
    if (server == NULL) {
        return;
    }
    /* No more requests, then no more handlers, then nothing that they use. */
    if (ps_on_loop(server->node->loop, refuse_on_loop, server) != PS_OK) {
        return; /* out of memory: what still runs cannot be freed */
    }
    each_lane(server, server_lane_stop);
    server->closing = true;
    ps_member_close(server->member);
    server->member = NULL;
    each_lane(server, server_lane_drain);
    each_lane(server, server_lane_close);
    if (ps_on_loop(server->node->loop, fini_errands_on_loop, server) != PS_OK) {
        return;
    }
    each_lane(server, server_lane_fini);
    free(server->lanes);
    if (server->event_ready) {
        ps_event_fini(&server->ended_event);
    }
    free(server);
}

/* ---- questions ---- */

enum ps_status ps_server_wait(struct ps_server *server, uint64_t deadline_ns,
                              struct ps_error *result_out)
{
    PS_TRY(ps_event_wait(&server->ended_event, deadline_ns));
    *result_out = server->result;
    return PS_OK;
}

uint32_t ps_server_lane_count(const struct ps_server *server)
{
    return server->lane_count;
}
