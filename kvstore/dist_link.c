/* The data loop's links: one to every lane of every server, dialed once the job is
 * complete. */
#include "kvstore/dist.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static enum ps_status on_hello(void *ctx, struct ps_net_link *link,
                               const struct ps_hello *peer, struct ps_error *err)
{
    PS_UNUSED(ctx);
    const struct ps_dist_lane *lane = ps_net_link_ctx(link);
    if (lane == NULL || peer->role != PS_ROLE_SERVER ||
        peer->member != lane->server->member) {
        return ps_error_set(err, PS_EPROTO,
                            "member %" PRIu32 " (%s) answers where server %" PRIu32
                            " (member %" PRIu32 ") should",
                            peer->member, ps_role_name(peer->role),
                            lane != NULL ? lane->server->rank : 0,
                            lane != NULL ? lane->server->member : 0);
    }
    return PS_OK;
}

static void on_up(void *ctx, struct ps_net_link *link)
{
    struct ps_dist *dist = ctx;
    struct ps_dist_lane *lane = ps_net_link_ctx(link);
    if (!lane->up) {
        lane->up = true;
        dist->lanes_up++;
    }
    if (dist->lanes_up == dist->lanes_total) {
        ps_event_set(&dist->linked);
    }
    ps_dist_dispatch(lane);
}

struct abort_task {
    struct ps_task task;
    struct ps_dist *dist;
    uint32_t member;
    struct ps_error error;
};

static void tell_scheduler(struct ps_task *task)
{
    struct abort_task *abort = PS_CONTAINER_OF(task, struct abort_task, task);
    ps_member_abort(abort->dist->member, abort->error.status, abort->member,
                    abort->error.text);
    free(abort);
}

static void on_down(void *ctx, struct ps_net_link *link, const struct ps_error *err)
{
    struct ps_dist *dist = ctx;
    struct ps_dist_lane *lane = ps_net_link_ctx(link);
    if (lane->up) {
        lane->up = false;
        dist->lanes_up--;
    }
    lane->link = NULL;
    struct ps_error error = *err;
    PS_LOG(dist->node->log, WARN, KVSTORE, "server %" PRIu32 " lost: %s",
           lane->server->rank, err->text);
    ps_dist_lane_fail(lane, &error);
    struct abort_task *abort = calloc(1, sizeof(*abort));
    if (abort != NULL && ps_dist_error(dist, NULL) == PS_OK) {
        abort->task.run = tell_scheduler;
        abort->task.label = "kvstore.server_lost";
        abort->dist = dist;
        abort->member = lane->server->member;
        abort->error = error;
        (void)ps_loop_post(dist->node->loop, &abort->task);
    } else {
        free(abort);
    }
    ps_dist_fail(dist, &error);
}

static void on_landed(void *ctx, struct ps_net_link *link, const struct ps_frame *frame)
{
    struct ps_dist *dist = ctx;
    PS_LOG(dist->node->log, DEBUG, KVSTORE,
           "%s sent kind %u, which a worker does not expect", ps_net_link_text(link),
           frame->head.kind);
}

static void on_ready(void *ctx, struct ps_net_link *link)
{
    PS_UNUSED(ctx);
    ps_dist_dispatch(ps_net_link_ctx(link));
}

static const struct ps_net_handler link_handler = {
    .hello = on_hello,
    .up = on_up,
    .down = on_down,
    .landed = on_landed,
    .ready = on_ready,
};

struct ps_dist_lane *ps_dist_lane_of(struct ps_dist *dist, uint32_t shard)
{
    const struct ps_msg_job *job = ps_member_job(dist->member);
    uint32_t server = ps_shard_home(shard, job->shard_count, job->num_server);
    return &dist->lanes[server][ps_shard_lane(shard, dist->lane_counts[server])];
}

static enum ps_status open_lanes(struct ps_dist *dist, uint32_t rank,
                                 struct ps_error *err)
{
    const struct ps_member_row *row = ps_member_find(dist->member, PS_ROLE_SERVER, rank);
    if (row == NULL || row->url_count == 0) {
        return ps_error_set(err, PS_EPROTO, "the job has no address for server %" PRIu32,
                            rank);
    }
    struct ps_dist_lane *lanes = calloc(row->url_count, sizeof(*lanes));
    if (lanes == NULL) {
        return ps_error_set(err, PS_ENOMEM, "links to server %" PRIu32 ": out of memory",
                            rank);
    }
    dist->lanes[rank] = lanes;
    dist->lane_counts[rank] = (uint32_t)row->url_count;
    for (uint32_t i = 0; i < row->url_count; i++) {
        lanes[i].dist = dist;
        lanes[i].server = row;
        PS_TRY(ps_net_dial(dist->end, row->urls[i], &lanes[i], &lanes[i].link, err));
        dist->lanes_total++;
    }
    return PS_OK;
}

enum ps_status ps_dist_links_open(struct ps_dist *dist, struct ps_error *err)
{
    const struct ps_msg_job *job = ps_member_job(dist->member);
    struct ps_hello self = {.member = job->member,
                            .role = PS_ROLE_WORKER,
                            .rank = job->rank,
                            .lane_count = 1};
    memcpy(self.uuid, job->uuid, sizeof(self.uuid));
    PS_TRY(ps_loop_create(dist->node->driver, "ps-data", &dist->loop));
    struct ps_net_end_options options = {
        .node = dist->node,
        .loop = dist->loop,
        .handler = &link_handler,
        .ctx = dist,
        .self = self,
        .queue_bytes =
            (size_t)ps_settings_int(dist->node->settings, PS_SET_SEND_BUDGET_BYTES),
    };
    PS_TRY(ps_net_end_open(&options, &dist->end, err));
    ps_net_end_set_epoch(dist->end, job->epoch);
    PS_TRY(ps_dist_chunks_open(dist));
    dist->server_count = job->num_server;
    dist->chunk_bytes = job->chunk_bytes;
    dist->lanes = calloc(job->num_server, sizeof(struct ps_dist_lane *));
    dist->lane_counts = calloc(job->num_server, sizeof(uint32_t));
    if (dist->lanes == NULL || dist->lane_counts == NULL) {
        return ps_error_set(err, PS_ENOMEM, "links to servers: out of memory");
    }
    for (uint32_t rank = 0; rank < job->num_server; rank++) {
        PS_TRY(open_lanes(dist, rank, err));
    }
    return ps_loop_start(dist->loop);
}

void ps_dist_links_close(struct ps_dist *dist)
{
    ps_mutex_lock(&dist->mutex);
    dist->opened = false; /* nobody rings the bell from here on */
    ps_mutex_unlock(&dist->mutex);
    if (dist->loop != NULL) {
        ps_loop_stop(dist->loop);
    }
    ps_net_end_close(dist->end);
    dist->end = NULL;
    ps_dist_chunks_close(dist);
    for (uint32_t rank = 0; dist->lanes != NULL && rank < dist->server_count; rank++) {
        for (uint32_t i = 0; dist->lanes[rank] != NULL && i < dist->lane_counts[rank];
             i++) {
            ps_heap_fini(&dist->lanes[rank][i].queue);
        }
        free(dist->lanes[rank]);
    }
    free(dist->lanes);
    free(dist->lane_counts);
    dist->lanes = NULL;
    dist->lane_counts = NULL;
    ps_loop_destroy(dist->loop);
    dist->loop = NULL;
}

void ps_dist_fail(struct ps_dist *dist, const struct ps_error *err)
{
    ps_mutex_lock(&dist->mutex);
    bool first = dist->error.status == PS_OK;
    if (first) {
        dist->error = *err;
    }
    if (first && dist->opened) {
        ps_doorbell_ring(&dist->bell); /* under the lock: links_close waits for it */
    }
    ps_mutex_unlock(&dist->mutex);
    ps_event_set(&dist->joined);
    ps_event_set(&dist->linked);
}

enum ps_status ps_dist_error(struct ps_dist *dist, struct ps_error *err)
{
    if (ps_fork_guard_is_child(&dist->fork_guard)) {
        return ps_error_set(err, PS_EFORK,
                            "the store belongs to the process that opened it: open a "
                            "node and a store in the child");
    }
    ps_mutex_lock(&dist->mutex);
    struct ps_error error = dist->error;
    ps_mutex_unlock(&dist->mutex);
    if (error.status != PS_OK && err != NULL) {
        *err = error;
    }
    return error.status;
}
