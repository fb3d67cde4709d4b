/* The conformance suite of transports: every test runs over tcp, ipc, inproc and sim. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/suite/net_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_rig(void **state)
{
    static const char *const overrides[] = {"LINK_GRACE_MS=500", "RESEND_TIMEOUT_MS=200",
                                            NULL};
    struct net_rig *rig = malloc(sizeof(*rig));
    assert_non_null(rig);
    net_rig_open(rig, *state, overrides);
    *state = rig;
    return 0;
}

static int close_rig(void **state)
{
    net_rig_close(*state);
    free(*state);
    return 0;
}

/* ---- handshake ---- */

static void both_sides_know_who_they_talk_to(void **state)
{
    struct net_rig *rig = *state;
    net_rig_connect(rig);
    const struct ps_hello *server = ps_net_link_peer(rig->client.link);
    const struct ps_hello *client = ps_net_link_peer(rig->server.link);
    assert_int_equal(server->role, PS_ROLE_SERVER);
    assert_int_equal(server->member, 2);
    assert_int_equal(client->role, PS_ROLE_WORKER);
    assert_int_equal(client->member, 3);
    assert_int_not_equal(client->nonce, server->nonce);
    assert_non_null(
        strstr(ps_net_link_text(rig->client.link), "server/0 (member 2, pid"));
    assert_non_null(strstr(ps_net_link_text(rig->client.link), rig->server.url));
    assert_int_equal(atomic_load(&rig->server.hellos), 1);
    assert_int_equal(atomic_load(&rig->client.hellos), 1);
}

static void a_refusal_reaches_the_dialer_in_the_listeners_words(void **state)
{
    struct net_rig *rig = *state;
    rig->server.refuse = "rank 3 is taken by pid 17";
    net_rig_listen(&rig->server);
    net_rig_dial(&rig->client, rig->server.url);
    net_rig_wait(&rig->client, &rig->client.downs, 1);
    assert_int_equal(rig->client.down_error.status, PS_EPERM);
    assert_string_equal(rig->client.down_error.text, "rank 3 is taken by pid 17");
    assert_int_equal(atomic_load(&rig->client.ups), 0);
    assert_int_equal(atomic_load(&rig->server.downs), 0);
}

static void a_dialer_may_refuse_the_listener(void **state)
{
    struct net_rig *rig = *state;
    rig->client.refuse = "not the server I asked for";
    net_rig_listen(&rig->server);
    net_rig_dial(&rig->client, rig->server.url);
    net_rig_wait(&rig->client, &rig->client.downs, 1);
    assert_string_equal(rig->client.down_error.text, "not the server I asked for");
}

/* ---- frames ---- */

struct order {
    uint64_t next;
    bool broken;
};

static void expect_next(struct net_side *side, struct ps_net_link *link,
                        const struct ps_frame *frame)
{
    struct order *order = side->user;
    (void)link;
    order->broken = order->broken || frame->head.req != order->next;
    order->next = frame->head.req + 1;
}

static void send_many(struct net_side *side, void *arg)
{
    size_t n = *(size_t *)arg;
    struct ps_buf *payload = net_rig_payload(100, 1);
    for (size_t i = 0; i < n; i++) {
        struct ps_frame frame = {.head = {.kind = PS_KIND_DATA, .req = i},
                                 .payload = i % 2 == 0 ? payload : NULL};
        assert_int_equal(ps_net_send(side->link, &frame), PS_OK);
    }
    ps_buf_release(payload);
}

static void frames_arrive_once_and_in_order(void **state)
{
    struct net_rig *rig = *state;
    struct order order = {0, false};
    size_t n = 1000;
    rig->server.user = &order;
    rig->server.on_landed = expect_next;
    net_rig_connect(rig);
    net_rig_on(&rig->client, send_many, &n);
    net_rig_wait(&rig->server, &rig->server.landed, n);
    assert_false(order.broken);
    assert_int_equal(order.next, n);
}

static void case_093_close_delivers_all_that_was_queued(void **state)
{
    struct net_rig *rig = *state;
    struct order order = {0, false};
    size_t n = 5000;
    rig->server.user = &order;
    rig->server.on_landed = expect_next;
    net_rig_connect(rig);
    net_rig_on(&rig->client, send_many, &n);
    net_rig_close_end(&rig->client);
    net_rig_wait(&rig->server, &rig->server.landed, n);
    assert_false(order.broken);
    net_rig_wait(&rig->server, &rig->server.downs, 1);
    assert_int_equal(rig->server.down_error.status, PS_ECLOSED);
}

/* ---- calls ---- */

static const size_t sizes[] = {0, 1, 63, 64, 4096, 65537, (1u << 20) - 1, 8u << 20};

static void calls_carry_payloads_of_every_size(void **state)
{
    struct net_rig *rig = *state;
    rig->server.echo = true;
    net_rig_connect(rig);
    for (size_t i = 0; i < PS_COUNT(sizes); i++) {
        struct net_rig_call call = {.seed = (unsigned)i};
        struct ps_buf *payload =
            sizes[i] == 0 ? NULL : net_rig_payload(sizes[i], (unsigned)i);
        net_rig_call_start(&rig->client, &call, payload);
        net_rig_wait(&rig->client, &call.dones, 1);
        assert_int_equal(call.status, PS_OK);
        assert_int_equal(call.reply_bytes, sizes[i]);
        assert_true(call.reply_ok);
    }
}

static void payloads_land_where_the_receiver_says(void **state)
{
    struct net_rig *rig = *state;
    size_t size = 3u << 20;
    void *place = malloc(size), *reply_place = malloc(size);
    net_rig_connect(rig);
    rig->server.place = place;
    struct net_rig_call call = {.seed = 5, .place = reply_place};
    rig->server.echo = true;
    net_rig_call_start(&rig->client, &call, net_rig_payload(size, 5));
    net_rig_wait(&rig->client, &call.dones, 1);
    assert_true(net_rig_payload_ok(place, size, 5));
    /* The echo had no buffer to send back. */
    assert_int_equal(call.reply_bytes, 0);

    rig->server.place = NULL;
    struct net_rig_call again = {.seed = 6, .place = reply_place};
    net_rig_call_start(&rig->client, &again, net_rig_payload(size, 6));
    net_rig_wait(&rig->client, &again.dones, 1);
    assert_true(again.reply_ok);
    assert_true(net_rig_payload_ok(reply_place, size, 6));
    free(place);
    free(reply_place);
}

static void check_records(struct net_side *side, struct ps_net_link *link,
                          const struct ps_frame *frame)
{
    (void)link;
    _Atomic bool *ok = side->user;
    *ok = frame->record_count == 3 && frame->records->size == 3 * PS_RECORD_BYTES &&
          net_rig_payload_ok(frame->records->data, 3 * PS_RECORD_BYTES, 9) &&
          (frame->head.flags & PS_FLAG_BUNDLE) != 0 && frame->payload_bytes == 50;
}

static void records_travel_with_the_head(void **state)
{
    struct net_rig *rig = *state;
    _Atomic bool ok = false;
    rig->server.user = &ok;
    rig->server.on_landed = check_records;
    rig->server.echo = true;
    net_rig_connect(rig);
    struct ps_buf *records = net_rig_payload(3 * PS_RECORD_BYTES, 9);
    struct net_rig_call call = {.seed = 2};
    call.call.frame.records = records;
    call.call.frame.record_count = 3;
    call.call.frame.head.flags = PS_FLAG_BODY_CRC;
    net_rig_call_start(&rig->client, &call, net_rig_payload(50, 2));
    ps_buf_release(records);
    net_rig_wait(&rig->client, &call.dones, 1);
    assert_int_equal(call.status, PS_OK);
    assert_true(ok);
    assert_true(call.reply_ok);
}

static void keep_request(struct net_side *side, struct ps_net_link *link,
                         const struct ps_frame *frame)
{
    (void)link;
    *(struct ps_link_head *)side->user = frame->head;
}

static void a_call_ends_at_its_deadline_and_names_the_peer(void **state)
{
    struct net_rig *rig = *state;
    net_rig_connect(rig);
    struct net_rig_call call = {
        .call = {.what = "barrier", .timeout_ns = 100 * PS_NS_PER_MS}};
    net_rig_call_start(&rig->client, &call, NULL);
    net_rig_wait(&rig->client, &call.dones, 1);
    assert_int_equal(call.status, PS_ETIMEDOUT);
    assert_non_null(
        strstr(call.error.text, "barrier: no answer from server/0 (member 2"));
    assert_non_null(strstr(call.error.text, "within 100 ms"));
}

static void cancel_on(struct net_side *side, void *arg)
{
    (void)side;
    ps_net_call_cancel(arg);
    ps_net_call_cancel(arg);
}

static void late_reply(struct net_side *side, void *arg)
{
    assert_int_equal(ps_net_reply(side->link, arg, PS_OK, NULL), PS_OK);
}

static void a_canceled_call_ends_once_and_its_reply_is_dropped(void **state)
{
    struct net_rig *rig = *state;
    struct ps_link_head head;
    rig->server.user = &head;
    rig->server.on_landed = keep_request;
    net_rig_connect(rig);
    struct net_rig_call call = {.seed = 0};
    net_rig_call_start(&rig->client, &call, NULL);
    net_rig_wait(&rig->server, &rig->server.landed, 1);
    net_rig_on(&rig->client, cancel_on, &call.call);
    assert_int_equal(call.status, PS_ECANCELED);
    net_rig_on(&rig->server, late_reply, &head);
    /* Another call goes through after it. */
    rig->server.on_landed = NULL;
    rig->server.echo = true;
    struct net_rig_call next = {.seed = 3};
    net_rig_call_start(&rig->client, &next, net_rig_payload(10, 3));
    net_rig_wait(&rig->client, &next.dones, 1);
    assert_int_equal(next.status, PS_OK);
    assert_int_equal(atomic_load(&call.dones), 1);
}

static void refuse_request(struct net_side *side, struct ps_net_link *link,
                           const struct ps_frame *frame)
{
    /* {"error": "no such key"} */
    static const char body[] = "\x81\xa5"
                               "error\xab"
                               "no such key";
    (void)side;
    struct ps_frame reply = {.payload = ps_buf_create(sizeof(body) - 1)};
    memcpy(reply.payload->data, body, sizeof(body) - 1);
    assert_int_equal(ps_net_reply(link, &frame->head, PS_ENOENT, &reply), PS_OK);
    ps_buf_release(reply.payload);
}

static void an_error_comes_back_in_the_peers_words(void **state)
{
    struct net_rig *rig = *state;
    rig->server.on_landed = refuse_request;
    net_rig_connect(rig);
    struct net_rig_call call = {.seed = 0};
    net_rig_call_start(&rig->client, &call, NULL);
    net_rig_wait(&rig->client, &call.dones, 1);
    assert_int_equal(call.status, PS_ENOENT);
    assert_string_equal(call.error.text, "no such key");
}

static void a_kind_that_the_role_may_not_send_is_answered(void **state)
{
    struct net_rig *rig = *state;
    net_rig_connect(rig);
    struct net_rig_call call = {.seed = 0};
    call.call.frame.head.kind = PS_KIND_KEYS;
    net_rig_call_start(&rig->client, &call, NULL);
    net_rig_wait(&rig->client, &call.dones, 1);
    assert_int_equal(call.status, PS_EPERM);
    assert_non_null(strstr(call.error.text, "KEYS request: a worker does not send it"));
    assert_int_equal(atomic_load(&rig->server.landed), 0);
}

static void raise_term(struct net_side *side, void *arg)
{
    ps_net_end_set_epoch(side->end, *(uint64_t *)arg);
}

static void a_request_of_an_old_term_is_answered_stale(void **state)
{
    struct net_rig *rig = *state;
    uint64_t old = UINT64_C(1) << 40 | 7, young = UINT64_C(2) << 40 | 1;
    rig->server.echo = true;
    net_rig_connect(rig);
    net_rig_on(&rig->client, raise_term, &old);
    net_rig_on(&rig->server, raise_term, &young);
    struct net_rig_call call = {.seed = 0};
    net_rig_call_start(&rig->client, &call, NULL);
    net_rig_wait(&rig->client, &call.dones, 1);
    assert_int_equal(call.status, PS_ESTALE);
}

/* ---- bounds ---- */

static void fill_queue(struct net_side *side, void *arg)
{
    uint64_t *sent = arg;
    struct ps_buf *payload = net_rig_payload(1u << 20, 4);
    struct ps_frame frame = {.head = {.kind = PS_KIND_DATA}, .payload = payload};
    enum ps_status status = PS_OK;
    while (status == PS_OK && *sent < 1000) {
        status = ps_net_send(side->link, &frame);
        *sent += status == PS_OK;
    }
    assert_int_equal(status, PS_EAGAIN);
    assert_true(ps_net_link_queued_bytes(side->link) <= (10u << 20));
    ps_buf_release(payload);
}

static void a_full_queue_refuses_and_later_tells_that_there_is_room(void **state)
{
    struct net_rig *rig = *state;
    uint64_t sent = 0;
    net_rig_connect(rig);
    net_rig_on(&rig->client, fill_queue, &sent);
    assert_true(sent >= 8);
    net_rig_wait(&rig->client, &rig->client.readies, 1);
    net_rig_wait(&rig->server, &rig->server.landed, sent);
    assert_int_equal(atomic_load(&rig->server.bytes), sent << 20);
}

static void send_too_much(struct net_side *side, void *arg)
{
    enum ps_status *status = arg;
    static char byte;
    /* Never read: the size alone is refused. */
    struct ps_buf *payload = ps_buf_wrap(&byte, (size_t)1 << 40, NULL, NULL);
    struct ps_frame frame = {.head = {.kind = PS_KIND_DATA}, .payload = payload};
    *status = ps_net_send(side->link, &frame);
    ps_buf_release(payload);
}

static void a_frame_beyond_the_peers_limit_is_refused_here(void **state)
{
    struct net_rig *rig = *state;
    enum ps_status status = PS_OK;
    net_rig_connect(rig);
    net_rig_on(&rig->client, send_too_much, &status);
    assert_int_equal(status, PS_ERANGE);
}

/* ---- loss ---- */

static void a_peer_that_leaves_takes_its_calls_along(void **state)
{
    struct net_rig *rig = *state;
    net_rig_connect(rig);
    struct net_rig_call call = {.call = {.what = "push"}};
    net_rig_call_start(&rig->client, &call, NULL);
    net_rig_wait(&rig->server, &rig->server.landed, 1);
    net_rig_close_end(&rig->server);
    net_rig_wait(&rig->client, &rig->client.downs, 1);
    assert_int_equal(call.status, PS_EPEER);
    assert_int_equal(atomic_load(&call.dones), 1);
    assert_non_null(strstr(call.error.text, "push: "));
    assert_int_equal(rig->client.down_error.status, PS_ECLOSED);
}

static void a_dial_without_a_listener_ends_at_its_deadline(void **state)
{
    static const char *const hurried[] = {"CONNECT_TIMEOUT_MS=100", NULL};
    struct net_rig *rig = *state;
    struct net_side late;
    memset(&late, 0, sizeof(late));
    net_rig_node(rig, &late, "worker/1", hurried);
    net_rig_end(&late, PS_ROLE_WORKER, 4, 0);
    const char *url = strcmp(rig->scheme, "tcp") == 0   ? "tcp://127.0.0.1:1"
                      : strcmp(rig->scheme, "ipc") == 0 ? "ipc:///tmp/penstock-nobody"
                      : strcmp(rig->scheme, "sim") == 0 ? "sim://nobody"
                                                        : "inproc://nobody";
    net_rig_dial(&late, url);
    struct net_rig_call call = {.call = {.what = "register"}};
    net_rig_call_start(&late, &call, NULL);
    net_rig_wait(&late, &late.downs, 1);
    assert_int_equal(late.down_error.status, PS_ETIMEDOUT);
    assert_non_null(strstr(late.down_error.text, url));
    assert_int_equal(call.status, PS_EPEER);
    net_rig_close_end(&late);
    ps_event_fini(&late.changed);
    ps_node_close(late.node);
}

static void close_link(struct net_side *side, void *arg)
{
    (void)arg;
    ps_net_link_close(side->link);
    side->link = NULL;
}

static void a_closed_link_cancels_its_calls_and_is_told_to_the_peer(void **state)
{
    struct net_rig *rig = *state;
    net_rig_connect(rig);
    struct net_rig_call call = {.seed = 0};
    net_rig_call_start(&rig->client, &call, NULL);
    net_rig_on(&rig->client, close_link, NULL);
    assert_int_equal(call.status, PS_ECANCELED);
    net_rig_wait(&rig->server, &rig->server.downs, 1);
    assert_int_equal(rig->server.down_error.status, PS_ECLOSED);
    assert_int_equal(atomic_load(&rig->client.downs), 0);
    /* And a new link between the same ends stands. */
    net_rig_dial(&rig->client, rig->server.url);
    net_rig_wait(&rig->client, &rig->client.ups, 2);
}

static void a_listener_that_closes_a_link_is_told_to_the_dialer(void **state)
{
    struct net_rig *rig = *state;
    net_rig_connect(rig);
    net_rig_on(&rig->server, close_link, NULL);
    net_rig_wait(&rig->client, &rig->client.downs, 1);
    assert_int_equal(rig->client.down_error.status, PS_ECLOSED);
}

#define T(test)     \
    {               \
#test, test \
    }
static const struct {
    const char *name;
    CMUnitTestFunction run;
} tests[] = {
    T(both_sides_know_who_they_talk_to),
    T(a_refusal_reaches_the_dialer_in_the_listeners_words),
    T(a_dialer_may_refuse_the_listener),
    T(frames_arrive_once_and_in_order),
    T(case_093_close_delivers_all_that_was_queued),
    T(calls_carry_payloads_of_every_size),
    T(payloads_land_where_the_receiver_says),
    T(records_travel_with_the_head),
    T(a_call_ends_at_its_deadline_and_names_the_peer),
    T(a_canceled_call_ends_once_and_its_reply_is_dropped),
    T(an_error_comes_back_in_the_peers_words),
    T(a_kind_that_the_role_may_not_send_is_answered),
    T(a_request_of_an_old_term_is_answered_stale),
    T(a_full_queue_refuses_and_later_tells_that_there_is_room),
    T(a_frame_beyond_the_peers_limit_is_refused_here),
    T(a_peer_that_leaves_takes_its_calls_along),
    T(a_dial_without_a_listener_ends_at_its_deadline),
    T(a_closed_link_cancels_its_calls_and_is_told_to_the_peer),
    T(a_listener_that_closes_a_link_is_told_to_the_dialer),
};

int main(int argc, char **argv)
{
    static const char *const schemes[] = {"tcp", "ipc", "inproc", "sim"};
    struct CMUnitTest all[PS_COUNT(tests) * PS_COUNT(schemes)];
    static char names[PS_COUNT(tests) * PS_COUNT(schemes)][120];
    size_t n = 0;
    for (size_t s = 0; s < PS_COUNT(schemes); s++) {
        if (argc > 1 && strcmp(argv[1], schemes[s]) != 0) {
            continue;
        }
        for (size_t t = 0; t < PS_COUNT(tests); t++) {
            snprintf(names[n], sizeof(names[n]), "%s: %s", schemes[s], tests[t].name);
            all[n] = (struct CMUnitTest){names[n], tests[t].run, open_rig, close_rig,
                                         (void *)(uintptr_t)schemes[s]};
            n++;
        }
    }
    return _cmocka_run_group_tests("transport", all, n, NULL, NULL);
}
