#include "tests/suite/net_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static void count(struct net_side *side, _Atomic uint64_t *counter)
{
    atomic_fetch_add(counter, 1);
    ps_event_set(&side->changed);
}

static enum ps_status on_hello(void *ctx, struct ps_net_link *link,
                               const struct ps_hello *peer, struct ps_error *err)
{
    struct net_side *side = ctx;
    (void)link;
    (void)peer;
    count(side, &side->hellos);
    const char *words = side->refuse;
    return words == NULL ? PS_OK : ps_error_set(err, PS_EPERM, "%s", words);
}

static void on_up(void *ctx, struct ps_net_link *link)
{
    struct net_side *side = ctx;
    side->link = link;
    count(side, &side->ups);
}

static void on_down(void *ctx, struct ps_net_link *link, const struct ps_error *err)
{
    struct net_side *side = ctx;
    if (side->link == link) {
        side->link = NULL;
    }
    if (atomic_load(&side->downs) == 0) {
        side->down_error = *err; /* the first; tests read it while others may follow */
    }
    count(side, &side->downs);
}

static void *on_place(void *ctx, struct ps_net_link *link, const struct ps_frame *frame)
{
    struct net_side *side = ctx;
    (void)link;
    (void)frame;
    return side->place;
}

static void on_landed(void *ctx, struct ps_net_link *link, const struct ps_frame *frame)
{
    struct net_side *side = ctx;
    void (*landed)(struct net_side *, struct ps_net_link *, const struct ps_frame *) =
        side->on_landed;
    if (landed != NULL) {
        landed(side, link, frame);
    }
    if (side->echo && frame->head.req != 0) {
        struct ps_frame body = {.records = frame->records,
                                .record_count = frame->record_count,
                                .payload = frame->payload};
        assert_int_equal(ps_net_reply(link, &frame->head, PS_OK, &body), PS_OK);
    }
    atomic_fetch_add(&side->bytes, frame->payload_bytes);
    count(side, &side->landed);
}

static void on_ready(void *ctx, struct ps_net_link *link)
{
    struct net_side *side = ctx;
    (void)link;
    count(side, &side->readies);
}

static const struct ps_net_handler handler = {.hello = on_hello,
                                              .up = on_up,
                                              .down = on_down,
                                              .place = on_place,
                                              .landed = on_landed,
                                              .ready = on_ready};

static void keep_log(void *arg, const char *line, size_t size)
{
    struct net_side *side = arg;
    ps_mutex_lock(&side->log_mutex);
    if (side->log_size + size < sizeof(side->log)) {
        memcpy(side->log + side->log_size, line, size);
        side->log_size += size;
    }
    ps_mutex_unlock(&side->log_mutex);
}

bool net_rig_logged(struct net_side *side, const char *words)
{
    ps_mutex_lock(&side->log_mutex);
    bool found = strstr(side->log, words) != NULL;
    ps_mutex_unlock(&side->log_mutex);
    return found;
}

void net_rig_node(struct net_rig *rig, struct net_side *side, const char *name,
                  const char *const *overrides)
{
    static const char *const empty_env[] = {NULL};
    struct ps_node_options options = {.name = name,
                                      .env = empty_env,
                                      .overrides = overrides,
                                      .sim = rig->sim,
                                      .net_world = rig->world,
                                      .log_sink = keep_log,
                                      .log_sink_arg = side};
    struct ps_error err;
    side->rig = rig;
    ps_mutex_init(&side->log_mutex);
    if (rig->sim != NULL) {
        ps_sim_enter_node(rig->sim, name);
    }
    if (ps_node_open(&options, &side->node, &err) != PS_OK) {
        fail_msg("node: %s", err.text);
    }
    if (rig->sim != NULL) {
        ps_sim_enter_node(rig->sim, NULL);
    }
    assert_int_equal(ps_event_init(&side->changed, side->node->driver), PS_OK);
}

struct on_task {
    struct ps_task task;
    struct net_side *side;
    void (*fn)(struct net_side *side, void *arg);
    void *arg;
    struct ps_event done;
};

static void run_on(struct ps_task *task)
{
    struct on_task *on = PS_CONTAINER_OF(task, struct on_task, task);
    on->fn(on->side, on->arg);
    ps_event_set(&on->done);
}

void net_rig_on(struct net_side *side, void (*fn)(struct net_side *side, void *arg),
                void *arg)
{
    struct on_task on = {
        .task = {.run = run_on, .label = "test"}, .side = side, .fn = fn, .arg = arg};
    assert_int_equal(ps_event_init(&on.done, side->node->driver), PS_OK);
    assert_true(ps_loop_post(side->node->loop, &on.task));
    assert_int_equal(ps_event_wait(&on.done, PS_NEVER), PS_OK);
    ps_event_fini(&on.done);
}

bool net_rig_wait_for(struct net_side *side, _Atomic uint64_t *counter, uint64_t at_least,
                      uint64_t ns)
{
    uint64_t deadline = ps_clock_now_ns(ps_driver_clock(side->node->driver)) + ns;
    for (;;) {
        ps_event_reset(&side->changed);
        if (atomic_load(counter) >= at_least) {
            return true;
        }
        if (ps_event_wait(&side->changed, deadline) != PS_OK) {
            return atomic_load(counter) >= at_least;
        }
    }
}

void net_rig_wait(struct net_side *side, _Atomic uint64_t *counter, uint64_t at_least)
{
    if (!net_rig_wait_for(side, counter, at_least, 20 * PS_NS_PER_S)) {
        fail_msg("waited for %llu, have %llu; log:\n%s", (unsigned long long)at_least,
                 (unsigned long long)atomic_load(counter), side->log);
    }
}

struct end_plan {
    enum ps_role role;
    uint32_t member;
    size_t queue_bytes;
};

static void open_end(struct net_side *side, void *arg)
{
    const struct end_plan *plan = arg;
    struct ps_error err;
    struct ps_net_end_options options = {
        .node = side->node,
        .loop = side->node->loop,
        .handler = &handler,
        .ctx = side,
        .self = {.member = plan->member, .role = plan->role, .rank = 0},
        .queue_bytes = plan->queue_bytes};
    memset(options.self.uuid, 0x11, PS_UUID_BYTES);
    if (ps_net_end_open(&options, &side->end, &err) != PS_OK) {
        fail_msg("end: %s", err.text);
    }
}

void net_rig_end(struct net_side *side, enum ps_role role, uint32_t member,
                 size_t queue_bytes)
{
    struct end_plan plan = {role, member, queue_bytes};
    net_rig_on(side, open_end, &plan);
}

static void listen_on(struct net_side *side, void *arg)
{
    struct ps_error err;
    (void)arg;
    const char *scheme = side->rig->scheme;
    const char *url = strcmp(scheme, "tcp") == 0   ? "tcp://127.0.0.1:0"
                      : strcmp(scheme, "ipc") == 0 ? "ipc://*"
                      : strcmp(scheme, "sim") == 0 ? "sim://server"
                                                   : "inproc://server";
    if (ps_net_listen(side->end, url, side->url, &err) != PS_OK) {
        fail_msg("listen: %s", err.text);
    }
}

void net_rig_listen(struct net_side *side)
{
    net_rig_on(side, listen_on, NULL);
}

static void dial_on(struct net_side *side, void *arg)
{
    struct ps_error err;
    struct ps_net_link *link;
    if (ps_net_dial(side->end, arg, side, &link, &err) != PS_OK) {
        fail_msg("dial: %s", err.text);
    }
    side->link = link;
}

void net_rig_dial(struct net_side *side, const char *url)
{
    net_rig_on(side, dial_on, (void *)(uintptr_t)url);
}

void net_rig_connect(struct net_rig *rig)
{
    net_rig_listen(&rig->server);
    net_rig_dial(&rig->client, rig->server.url);
    net_rig_wait(&rig->client, &rig->client.ups, 1);
    net_rig_wait(&rig->server, &rig->server.ups, 1);
}

static void close_on(struct net_side *side, void *arg)
{
    (void)arg;
    ps_net_end_close(side->end);
    side->end = NULL;
}

void net_rig_close_end(struct net_side *side)
{
    net_rig_on(side, close_on, NULL);
}

void net_rig_open(struct net_rig *rig, const char *scheme, const char *const *overrides)
{
    memset(rig, 0, sizeof(*rig));
    rig->scheme = scheme;
    if (strcmp(scheme, "sim") == 0) {
        assert_int_equal(ps_sim_create(7, &rig->sim), PS_OK);
    }
    assert_int_equal(ps_net_world_create(rig->sim, &rig->world), PS_OK);
    net_rig_node(rig, &rig->server, "server/0", overrides);
    net_rig_node(rig, &rig->client, "worker/0", overrides);
    net_rig_end(&rig->server, PS_ROLE_SERVER, 2, 0);
    net_rig_end(&rig->client, PS_ROLE_WORKER, 3, 0);
}

static void close_side(struct net_side *side)
{
    if (side->node == NULL) {
        return;
    }
    bool killed =
        side->rig->sim != NULL && ps_sim_node_is_killed(side->rig->sim, side->node->name);
    if (side->end != NULL && !killed) {
        net_rig_close_end(side);
    } else if (side->end != NULL) {
        close_on(side, NULL);
    }
    ps_event_fini(&side->changed);
    ps_node_close(side->node);
    side->node = NULL;
}

void net_rig_close(struct net_rig *rig)
{
    close_side(&rig->client);
    close_side(&rig->server);
    ps_net_world_destroy(rig->world);
    if (rig->sim != NULL) {
        ps_sim_destroy(rig->sim);
    }
}

struct ps_buf *net_rig_payload(size_t size, unsigned seed)
{
    struct ps_buf *buf = ps_buf_create(size);
    assert_non_null(buf);
    unsigned char *data = buf->data;
    for (size_t i = 0; i < size; i++) {
        data[i] = (unsigned char)((i * 7 + seed) % 251);
    }
    return buf;
}

bool net_rig_payload_ok(const void *data, size_t size, unsigned seed)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != (unsigned char)((i * 7 + seed) % 251)) {
            return false;
        }
    }
    return true;
}

static void on_done(struct ps_net_call *base, enum ps_status status,
                    const struct ps_frame *reply, const struct ps_error *err)
{
    struct net_rig_call *call = PS_CONTAINER_OF(base, struct net_rig_call, call);
    call->status = status;
    call->error = *err;
    if (reply != NULL) {
        const void *data = reply->placed != NULL    ? reply->placed
                           : reply->payload != NULL ? reply->payload->data
                                                    : NULL;
        call->reply_bytes = reply->payload_bytes;
        call->reply_ok = net_rig_payload_ok(data, reply->payload_bytes, call->seed) &&
                         (call->place == NULL || reply->placed == call->place);
    }
    count(call->side, &call->dones);
}

static void *call_place(struct ps_net_call *base, const struct ps_frame *reply)
{
    (void)reply;
    return PS_CONTAINER_OF(base, struct net_rig_call, call)->place;
}

static void start_on(struct net_side *side, void *arg)
{
    struct net_rig_call *call = arg;
    assert_int_equal(ps_net_call_start(side->link, &call->call), PS_OK);
}

void net_rig_call_start(struct net_side *side, struct net_rig_call *call,
                        struct ps_buf *payload)
{
    call->side = side;
    call->call.done = on_done;
    call->call.place = call_place;
    if (call->call.frame.head.kind == 0) {
        call->call.frame.head.kind = PS_KIND_DATA;
    }
    call->call.frame.payload = payload;
    net_rig_on(side, start_on, call);
    ps_buf_release(payload); /* the call holds its own */
}
