/* An end's lifecycle: its settings, its transports (opened when first used), its place in
 * calls that handlers nest.  Thread: the end's loop. */
#include "net/end.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUEUE_BYTES_DEFAULT ((size_t)8 << 20)
#define OUT_GROW 64

/* The built-in transports; a plain list, looked up by scheme. */
static const struct ps_net_ops *const transports[] = {
    &ps_net_tcp_ops,
    &ps_net_ipc_ops,
    &ps_net_inproc_ops,
    &ps_net_sim_ops,
};
_Static_assert(PS_COUNT(transports) <= PS_SCHEMES_MAX, "room for every transport");

/* ---- calls into the end ---- */

void ps_end_enter(struct ps_net_end *end)
{
    end->depth++;
}

void ps_end_leave(struct ps_net_end *end)
{
    assert(end->depth > 0);
    if (--end->depth > 0) {
        return;
    }
    struct ps_list *item;
    while ((item = ps_list_pop_front(&end->dead)) != NULL) {
        free(PS_CONTAINER_OF(item, struct ps_net_link, node));
    }
}

static void on_writable(void *owner, struct ps_wire_peer *peer, void **peer_ctx)
{
    struct ps_mount *mount = owner;
    struct ps_net_link *link = *peer_ctx;
    PS_UNUSED(peer);
    if (link == NULL || link->state != PS_LINK_UP) {
        return;
    }
    ps_end_enter(mount->end);
    link->blocked = false;
    ps_link_drain(link);
    ps_link_ready(link);
    ps_end_leave(mount->end);
}

const struct ps_wire_events ps_end_events = {
    .head = ps_end_head,
    .landed = ps_end_landed,
    .connected = ps_end_connected,
    .disconnected = ps_end_disconnected,
    .writable = on_writable,
};

/* ---- open and close ---- */

static uint64_t setting_ns(const struct ps_node *node, enum ps_setting_id id)
{
    return (uint64_t)ps_settings_int(node->settings, id) * PS_NS_PER_MS;
}

static enum ps_status fill_self(struct ps_net_end *end)
{
    struct ps_hello *self = &end->self;
    if (self->role == PS_ROLE_SCHEDULER && self->member == PS_MEMBER_NONE) {
        self->member = PS_MEMBER_SCHEDULER;
    }
    if (self->proto_max == 0) {
        self->proto_min = PS_WIRE_PROTO_MIN;
        self->proto_max = PS_WIRE_PROTO_MAX;
    }
    if (self->lane_count == 0) {
        self->lane_count = 1;
    }
    self->frame_bytes_max = (uint32_t)end->body_max;
    if (self->pid == 0) {
        self->pid = (uint32_t)getpid();
    }
    if (self->host[0] == '\0' && gethostname(self->host, sizeof(self->host) - 1) != 0) {
        memcpy(self->host, "localhost", sizeof("localhost"));
    }
    self->host[sizeof(self->host) - 1] = '\0';
    uint64_t random[2];
    if (end->node->sim != NULL) {
        /* The simulation's generator is the only source that repeats. */
        random[0] = ps_rng_u64(ps_sim_rng(end->node->sim));
        random[1] = ps_rng_u64(ps_sim_rng(end->node->sim));
    } else {
        PS_TRY(ps_random_bytes(random, sizeof(random)));
    }
    if (self->nonce == 0) {
        self->nonce = random[0] | 1; /* 0 means: not set */
    }
    /* Ends of one process may share a nonce; their links still differ by number. */
    end->next_dial = (uint32_t)random[1] >> 1;
    return PS_OK;
}

static void read_settings(struct ps_net_end *end, size_t queue_bytes)
{
    const struct ps_node *node = end->node;
    end->body_max = (uint64_t)ps_settings_int(node->settings, PS_SET_FRAME_BYTES_MAX);
    end->queue_bytes = queue_bytes != 0 ? queue_bytes : QUEUE_BYTES_DEFAULT;
    end->connect_ns = setting_ns(node, PS_SET_CONNECT_TIMEOUT_MS);
    end->grace_ns = setting_ns(node, PS_SET_LINK_GRACE_MS);
    end->resend_ns = setting_ns(node, PS_SET_RESEND_TIMEOUT_MS);
    end->request_ns = setting_ns(node, PS_SET_REQUEST_TIMEOUT_MS);
    end->resend = ps_settings_bool(node->settings, PS_SET_RESEND);
}

enum ps_status ps_net_end_open(const struct ps_net_end_options *options,
                               struct ps_net_end **end_out, struct ps_error *err)
{
    struct ps_net_end *end = calloc(1, sizeof(*end));
    if (end == NULL) {
        return ps_error_set(err, PS_ENOMEM, "no memory for an end");
    }
    end->node = options->node;
    end->loop = options->loop;
    end->handler = *options->handler;
    end->ctx = options->ctx;
    end->self = options->self;
    ps_list_init(&end->links);
    ps_list_init(&end->dead);
    for (size_t i = 0; i < PS_COUNT(transports); i++) {
        assert(transports[i]->abi == PS_NET_ABI);
        end->mounts[i].end = end;
        end->mounts[i].ops = transports[i];
    }
    read_settings(end, options->queue_bytes);
    enum ps_status status;
    PS_TRY_GOTO(status, fill_self(end), free_end);
    PS_TRY_GOTO(status, ps_head_pool_create(&end->heads), free_end);
    PS_TRY_GOTO(status,
                ps_pool_create(sizeof(struct ps_out), OUT_GROW, 0, true, &end->outs),
                release_heads);
    *end_out = end;
    return PS_OK;
release_heads:
    ps_head_pool_release(end->heads);
free_end:
    free(end);
    return ps_error_set(err, status, "end: %s", ps_status_text(status));
}

static void log_counters(struct ps_net_end *end)
{
    const struct ps_net_counters *c = &end->counters;
    PS_LOG(end->node->log, DEBUG, NET,
           "end closed frames %llu in %llu out, dropped %llu gaps %llu duplicates %llu "
           "late %llu resends %llu",
           (unsigned long long)c->frames_in, (unsigned long long)c->frames_out,
           (unsigned long long)c->dropped, (unsigned long long)c->gaps,
           (unsigned long long)c->duplicates, (unsigned long long)c->late_replies,
           (unsigned long long)c->resends);
}

void ps_net_end_close(struct ps_net_end *end)
{
    if (end == NULL) {
        return;
    }
    if (end->node->sim != NULL &&
        ps_sim_node_is_killed(end->node->sim, end->node->sim_name)) {
        end->depth = 0; /* the handler in which its node was killed never returns */
    }
    assert(end->depth == 0); /* not from inside a handler of this end */
    ps_end_enter(end);
    for (size_t i = 0; i < PS_COUNT(transports); i++) {
        if (end->mounts[i].wire != NULL) {
            end->mounts[i].ops->closing(end->mounts[i].wire);
        }
    }
    while (!ps_list_empty(&end->links)) {
        struct ps_net_link *link =
            PS_CONTAINER_OF(end->links.next, struct ps_net_link, node);
        ps_link_goodbye(link, true);
        ps_link_kill(link, PS_ECANCELED, "the end closes");
    }
    ps_end_leave(end);
    for (size_t i = 0; i < PS_COUNT(transports); i++) {
        if (end->mounts[i].wire != NULL) {
            end->mounts[i].ops->close(end->mounts[i].wire);
        }
    }
    log_counters(end);
    ps_map_fini(&end->calls);
    ps_pool_destroy(end->outs);
    ps_head_pool_release(end->heads);
    free(end);
}

void ps_net_end_set_self(struct ps_net_end *end, const struct ps_hello *self,
                         uint64_t epoch)
{
    struct ps_hello old = end->self;
    end->self = *self;
    end->self.nonce = self->nonce != 0 ? self->nonce : old.nonce;
    end->self.proto_min = old.proto_min;
    end->self.proto_max = old.proto_max;
    end->self.frame_bytes_max = old.frame_bytes_max;
    end->self.lane_count = self->lane_count != 0 ? self->lane_count : old.lane_count;
    end->self.pid = self->pid != 0 ? self->pid : old.pid;
    if (self->host[0] == '\0') {
        memcpy(end->self.host, old.host, sizeof(old.host));
    }
    end->epoch = epoch;
}

void ps_net_end_set_epoch(struct ps_net_end *end, uint64_t epoch)
{
    end->epoch = epoch;
}

const struct ps_hello *ps_net_end_self(const struct ps_net_end *end)
{
    return &end->self;
}

/* ---- listening and dialing ---- */

static enum ps_status mount_for(struct ps_net_end *end, const char *url,
                                struct ps_mount **mount_out, struct ps_error *err)
{
    char scheme[16];
    const char *rest;
    if (strnlen(url, PS_URL_BYTES) == PS_URL_BYTES || !ps_url_split(url, scheme, &rest)) {
        return ps_error_set(err, PS_EADDR,
                            "address '%.100s': must be scheme://..., shorter than %d",
                            url, PS_URL_BYTES);
    }
    for (size_t i = 0; i < PS_COUNT(transports); i++) {
        struct ps_mount *mount = &end->mounts[i];
        if (strcmp(mount->ops->scheme, scheme) != 0) {
            continue;
        }
        if (mount->wire == NULL) {
            PS_TRY(mount->ops->open(end->node, end->loop, &ps_end_events, mount,
                                    &mount->wire, err));
        }
        *mount_out = mount;
        return PS_OK;
    }
    return ps_error_set(err, PS_EUNSUPPORTED,
                        "address '%s': no transport '%s'; there are tcp, ipc, inproc and "
                        "sim",
                        url, scheme);
}

enum ps_status ps_net_listen(struct ps_net_end *end, const char *url,
                             char url_out[PS_URL_BYTES], struct ps_error *err)
{
    struct ps_mount *mount = NULL;
    char real[PS_URL_BYTES];
    PS_TRY(mount_for(end, url, &mount, err));
    PS_TRY(mount->ops->listen(mount->wire, url, real, err));
    PS_LOG(end->node->log, DEBUG, NET, "listening at %s", real);
    memcpy(url_out, real, sizeof(real));
    return PS_OK;
}

enum ps_status ps_net_dial(struct ps_net_end *end, const char *url, void *link_ctx,
                           struct ps_net_link **link_out, struct ps_error *err)
{
    struct ps_mount *mount = NULL;
    struct ps_net_link *link;
    PS_TRY(mount_for(end, url, &mount, err));
    enum ps_status status = ps_link_create(end, mount->ops, &link);
    if (status != PS_OK) {
        return ps_error_set(err, status, "no memory for a link");
    }
    link->dialed = true;
    link->ctx = link_ctx;
    link->dial_id = ++end->next_dial;
    memcpy(link->url, url, strlen(url) + 1);
    ps_link_describe(link);
    link->deadline_ns = ps_loop_now_ns(end->loop) + end->connect_ns;
    ps_end_enter(end);
    status = mount->ops->dial(mount->wire, url, link, &link->peer, err);
    if (status != PS_OK) {
        ps_link_kill(link, status, "not dialed");
    } else {
        ps_link_arm(link, end->connect_ns);
        *link_out = link;
    }
    ps_end_leave(end);
    return status;
}
