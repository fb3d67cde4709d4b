/* A lane: one loop, one net end, the entries of its shards.
 *
 * The end listens before the server has registered (its address is part of the
 * registration), but the loop starts when the job is known: whoever dials earlier waits
 * in the transport for a HELLO that can say who we are.
 * Thread: the lane's loop; open, start, stop and close come from outside. */
#include "base/util.h"
#include "kvstore/shard/root.h"
#include "server/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- links ---- */

static const struct ps_member_row *find_member(const struct ps_msg_job *job,
                                               uint32_t member)
{
    for (size_t i = 0; i < job->member_count; i++) {
        if (job->members[i].member == member) {
            return &job->members[i];
        }
    }
    return NULL;
}

static enum ps_status on_hello(void *ctx, struct ps_net_link *link,
                               const struct ps_hello *hello, struct ps_error *err)
{
    struct server_lane *lane = ctx;
    const struct ps_msg_job *job = ps_member_job(lane->server->member);
    if (memcmp(hello->uuid, job->uuid, sizeof(job->uuid)) != 0) {
        return ps_error_set(err, PS_EPERM, "another job's member");
    }
    const struct ps_member_row *row = find_member(job, hello->member);
    if (hello->role != PS_ROLE_WORKER || row == NULL || row->role != PS_ROLE_WORKER) {
        return ps_error_set(err, PS_EPERM, "member %" PRIu32 " (%s) is no worker here",
                            hello->member, ps_role_name(hello->role));
    }
    struct lane_peer *peer = ps_net_link_ctx(link);
    if (peer == NULL) {
        peer = calloc(1, sizeof(*peer));
        if (peer == NULL) {
            return ps_error_set(err, PS_ENOMEM, "out of memory");
        }
        ps_list_push_back(&lane->peers, &peer->node);
        ps_list_init(&peer->unsent);
        peer->lane = lane;
        ps_net_link_set_ctx(link, peer);
    }
    peer->link = link;
    peer->member = row->member;
    peer->rank = row->rank;
    return PS_OK;
}

static void free_peer(struct lane_peer *peer)
{
    server_data_peer_gone(peer);
    ps_list_remove(&peer->node);
    free(peer);
}

static void on_down(void *ctx, struct ps_net_link *link, const struct ps_error *err)
{
    struct server_lane *lane = ctx;
    struct lane_peer *peer = ps_net_link_ctx(link);
    PS_LOG(lane->server->node->log, DEBUG, SERVER, "lane %u %s down: %s", lane->index,
           ps_net_link_text(link), err->text);
    if (peer != NULL) {
        ps_net_link_set_ctx(link, NULL);
        free_peer(peer);
    }
}

static void refuse(struct ps_net_link *link, const struct ps_frame *frame,
                   enum ps_status status, const char *text)
{
    struct ps_buf *body = ps_msg_error_pack(text);
    struct ps_frame reply = {.payload = body,
                             .payload_bytes = body != NULL ? body->size : 0};
    if (ps_net_reply(link, &frame->head, status, &reply) != PS_OK) {
        PS_UNUSED(status); /* no room for it: its sender's deadline speaks */
    }
    ps_buf_release(body);
}

static void on_landed(void *ctx, struct ps_net_link *link, const struct ps_frame *frame)
{
    struct server_lane *lane = ctx;
    struct lane_peer *peer = ps_net_link_ctx(link);
    if ((frame->head.flags & PS_FLAG_REPLY) != 0) {
        return; /* a lane asks nobody */
    }
    if (frame->head.kind != PS_KIND_DATA || peer == NULL) {
        refuse(link, frame, PS_EUNSUPPORTED, "a server's lane serves DATA only");
        return;
    }
    server_data_landed(lane, peer, frame);
}

static void on_ready(void *ctx, struct ps_net_link *link)
{
    struct lane_peer *peer = ps_net_link_ctx(link);
    PS_UNUSED(ctx);
    if (peer != NULL) {
        server_data_flush(peer);
    }
}

static const struct ps_net_handler handler = {
    .hello = on_hello, .down = on_down, .landed = on_landed, .ready = on_ready};

/* ---- life ---- */

static enum ps_status lane_url(const struct server_lane *lane, const char *base,
                               char out[PS_URL_BYTES], struct ps_error *err)
{
    if (base == NULL) {
        return ps_root_lane_url(lane->server->node->settings, out, err);
    }
    int n = snprintf(out, PS_URL_BYTES, "%s-%u", base, lane->index);
    return n > 0 && n < PS_URL_BYTES
               ? PS_OK
               : ps_error_set(err, PS_EADDR, "address %.100s is too long", base);
}

enum ps_status server_lane_open(struct server_lane *lane, struct ps_server *server,
                                uint32_t index, const char *url, struct ps_error *err)
{
    char listen_url[PS_URL_BYTES];
    lane->server = server;
    lane->index = index;
    ps_list_init(&lane->live);
    ps_list_init(&lane->peers);
    PS_TRY(lane_url(lane, url, listen_url, err));
    PS_TRY(ps_blocks_create(&lane->blocks));
    PS_TRY(ps_pool_create(sizeof(struct server_request), 64, SERVER_REQUESTS_MAX, true,
                          &lane->requests));
    PS_TRY(ps_loop_create(server->node->driver, "ps-lane", &lane->loop));
    struct ps_net_end_options options = {
        .node = server->node,
        .loop = lane->loop,
        .handler = &handler,
        .ctx = lane,
        .self = {.role = PS_ROLE_SERVER,
                 .rank = UINT32_MAX,
                 .lane = (uint16_t)index,
                 .lane_count = (uint16_t)server->lane_count}};
    PS_TRY(ps_net_end_open(&options, &lane->end, err));
    return ps_net_listen(lane->end, listen_url, lane->url, err);
}

enum ps_status server_lane_start(struct server_lane *lane, const struct ps_msg_job *job)
{
    struct ps_hello self = *ps_net_end_self(lane->end);
    PS_TRY(ps_quorum_init(&lane->quorum, job->num_worker));
    lane->has_quorum = true;
    server_env_init(lane);
    memcpy(self.uuid, job->uuid, sizeof(self.uuid));
    self.member = job->member;
    self.rank = job->rank;
    ps_net_end_set_self(lane->end, &self, job->epoch);
    PS_TRY(ps_loop_start(lane->loop));
    lane->started = true;
    return PS_OK;
}

void server_lane_stop(struct server_lane *lane)
{
    if (lane->loop != NULL && lane->started) {
        ps_loop_stop(lane->loop);
    }
}

void server_lane_drain(struct server_lane *lane)
{
    server_keys_fini(lane);
}

void server_lane_close(struct server_lane *lane)
{
    if (lane->server == NULL) {
        return; /* open did not come this far */
    }
    ps_net_end_close(lane->end);
    while (!ps_list_empty(&lane->peers)) {
        free_peer(PS_CONTAINER_OF(lane->peers.next, struct lane_peer, node));
    }
    ps_loop_destroy(lane->loop);
}

void server_lane_fini(struct server_lane *lane)
{
    if (lane->server == NULL) {
        return;
    }
    server_data_fini(lane);
    ps_pool_destroy(lane->requests);
    if (lane->has_quorum) {
        ps_quorum_fini(&lane->quorum);
    }
    ps_blocks_destroy(lane->blocks);
}

static void fail_entry(struct ps_entry *entry, void *arg)
{
    const struct ps_error *err = arg;
    ps_entry_fail(entry, err->status, err->text);
}

void server_lane_fail(struct server_lane *lane, const struct ps_error *err)
{
    if (lane->failed.status == PS_OK) {
        lane->failed = *err;
        server_keys_each(lane, fail_entry, &lane->failed);
    }
}
