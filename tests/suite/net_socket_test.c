/* Sockets in particular: garbage, strangers, addresses, broken connections. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/suite/net_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

static unsigned port_of(const char *url)
{
    return (unsigned)strtoul(strrchr(url, ':') + 1, NULL, 10);
}

static int raw_connect(unsigned port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void raw_send(unsigned port, const void *data, size_t size)
{
    int fd = raw_connect(port);
    /* The other side may hang up in the middle. */
    ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
    (void)n;
    shutdown(fd, SHUT_WR);
    char sink[256];
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    while (poll(&poller, 1, 1000) == 1 && recv(fd, sink, sizeof(sink), 0) > 0) {
    }
    close(fd);
}

/* ---- a raw ZeroMQ peer ---- */

struct stranger {
    void *context, *socket;
};

static void stranger_open(struct stranger *stranger, const char *url)
{
    int linger = 1000, timeout = 5000;
    stranger->context = zmq_ctx_new();
    stranger->socket = zmq_socket(stranger->context, ZMQ_DEALER);
    zmq_setsockopt(stranger->socket, ZMQ_LINGER, &linger, sizeof(linger));
    zmq_setsockopt(stranger->socket, ZMQ_RCVTIMEO, &timeout, sizeof(timeout));
    assert_int_equal(zmq_connect(stranger->socket, url), 0);
}

static void stranger_close(struct stranger *stranger)
{
    zmq_close(stranger->socket);
    zmq_ctx_term(stranger->context);
}

/* {"nonce": 5, "role": 1, "proto_min": 1, "proto_max": 1, "uuid": bin16 of 'fill'} */
static size_t hello_body(unsigned char *out, unsigned char fill, unsigned char proto)
{
    static const char start[] = "\x85\xa5nonce\x05\xa4role\x01\xa9proto_min";
    size_t n = sizeof(start) - 1;
    memcpy(out, start, n);
    out[n++] = proto;
    memcpy(out + n, "\xa9proto_max", 10);
    n += 10;
    out[n++] = proto;
    memcpy(out + n, "\xa4uuid\xc4\x10", 7);
    n += 7;
    memset(out + n, fill, 16);
    return n + 16;
}

static void send_frame(struct stranger *stranger, struct ps_link_head head,
                       const void *body, size_t size)
{
    head.magic = PS_WIRE_MAGIC;
    head.head_bytes = PS_LINK_HEAD_BYTES;
    head.body_bytes = (uint32_t)size;
    ps_link_head_seal(&head);
    zmq_send(stranger->socket, &head, sizeof(head), size > 0 ? ZMQ_SNDMORE : 0);
    if (size > 0) {
        zmq_send(stranger->socket, body, size, 0);
    }
}

/* The status of the HELLO's answer; the words go to 'words'. */
static int answer(struct stranger *stranger, char words[256])
{
    struct ps_link_head head;
    memset(words, 0, 256);
    assert_int_equal(zmq_recv(stranger->socket, &head, sizeof(head), 0), sizeof(head));
    assert_true(zmq_recv(stranger->socket, words, 255, 0) >= 0);
    for (size_t i = 0; i < 255; i++) { /* msgpack's lengths are not text */
        words[i] = (char)(words[i] < 32 || words[i] > 126 ? '.' : words[i]);
    }
    return head.status;
}

static void check_job_goes_on(struct net_rig *rig, unsigned seed)
{
    struct net_rig_call call = {.seed = seed};
    net_rig_call_start(&rig->client, &call, net_rig_payload(1000, seed));
    net_rig_wait(&rig->client, &call.dones, 1);
    assert_int_equal(call.status, PS_OK);
    assert_true(call.reply_ok);
}

static void case_074_garbage_is_dropped_logged_and_harms_nobody(void **state)
{
    struct net_rig rig;
    (void)state;
    net_rig_open(&rig, "tcp", NULL);
    rig.server.echo = true;
    net_rig_connect(&rig);
    unsigned port = port_of(rig.server.url);

    static const char http[] = "GET / HTTP/1.0\r\n\r\n";
    raw_send(port, http, sizeof(http) - 1);
    size_t size = 1u << 20;
    unsigned char *noise = malloc(size);
    struct ps_rng rng;
    ps_rng_init(&rng, 74);
    for (size_t i = 0; i < size; i++) {
        noise[i] = (unsigned char)ps_rng_u64(&rng);
    }
    raw_send(port, noise, size);
    /* A ZMTP greeting that ends too early, and one whose frame announces 2^63 bytes. */
    static const unsigned char greeting[64] = {0xff, 0,    0, 0, 0,   0,   0,   0,
                                               1,    0x7f, 3, 0, 'N', 'U', 'L', 'L'};
    raw_send(port, greeting, 20);
    unsigned char huge[64 + 9];
    memcpy(huge, greeting, 64);
    memset(huge + 64, 0x7f, 9);
    huge[64] = 2;
    raw_send(port, huge, sizeof(huge));
    check_job_goes_on(&rig, 1);

    struct stranger stranger;
    stranger_open(&stranger, rig.server.url);
    zmq_send(stranger.socket, "", 0, 0);
    zmq_send(stranger.socket, noise, 63, 0);
    zmq_send(stranger.socket, noise, 64, 0);
    for (int i = 0; i < 10; i++) { /* more parts than a frame has */
        zmq_send(stranger.socket, noise, 64, i < 9 ? ZMQ_SNDMORE : 0);
    }
    send_frame(&stranger, (struct ps_link_head){.kind = PS_KIND_DATA, .src = 3}, "x", 1);
    send_frame(&stranger, (struct ps_link_head){.kind = PS_KIND_HELLO, .req = 1}, noise,
               5000);
    stranger_close(&stranger);
    check_job_goes_on(&rig, 2);
    assert_true(net_rig_logged(&rig.server, "frame dropped from an unknown peer"));
    assert_true(net_rig_logged(&rig.server, "spoke no protocol of ours"));
    assert_int_equal(atomic_load(&rig.server.ups), 1);
    assert_int_equal(atomic_load(&rig.server.downs), 0);
    free(noise);
    net_rig_close(&rig);
}

static void a_hello_of_another_job_protocol_or_member_is_refused_in_words(void **state)
{
    struct net_rig rig;
    struct stranger stranger;
    unsigned char body[256];
    char words[256];
    (void)state;
    net_rig_open(&rig, "tcp", NULL);
    net_rig_listen(&rig.server);
    stranger_open(&stranger, rig.server.url);
    struct ps_link_head hello = {.kind = PS_KIND_HELLO, .req = 1};

    send_frame(&stranger, hello, body, hello_body(body, 0x22, 1));
    assert_int_equal(answer(&stranger, words), PS_EMISMATCH);
    assert_non_null(strstr(words, "another job"));

    send_frame(&stranger, hello, body, hello_body(body, 0x11, 9));
    assert_int_equal(answer(&stranger, words), PS_EMISMATCH);
    assert_non_null(strstr(words, "protocol 9 to 9: this side speaks 1 to 1"));

    hello.src = 77;
    send_frame(&stranger, hello, body, hello_body(body, 0x11, 1));
    assert_int_equal(answer(&stranger, words), PS_EPROTO);
    assert_non_null(strstr(words, "HELLO from member 77"));

    hello.src = 0;
    send_frame(&stranger, hello, body, hello_body(body, 0x11, 1));
    assert_int_equal(answer(&stranger, words), PS_OK);
    net_rig_wait(&rig.server, &rig.server.ups, 1);
    stranger_close(&stranger);
    net_rig_close(&rig);
}

/* ---- addresses ---- */

struct listen_try {
    const char *url;
    char out[PS_URL_BYTES];
    enum ps_status status;
    struct ps_error err;
};

static void try_listen(struct net_side *side, void *arg)
{
    struct listen_try *attempt = arg;
    attempt->status = ps_net_listen(side->end, attempt->url, attempt->out, &attempt->err);
}

static void case_090_a_busy_port_names_its_owner(void **state)
{
    struct net_rig rig;
    char url[64], expected[64];
    (void)state;
    net_rig_open(&rig, "tcp", NULL);
    net_rig_listen(&rig.server);
    snprintf(url, sizeof(url), "tcp://0.0.0.0:%u", port_of(rig.server.url));
    snprintf(expected, sizeof(expected), "0.0.0.0:%u in use by pid %ld",
             port_of(rig.server.url), (long)getpid());
    struct listen_try attempt = {.url = url};
    net_rig_on(&rig.client, try_listen, &attempt);
    assert_int_equal(attempt.status, PS_EINUSE);
    assert_string_equal(attempt.err.text, expected);
    net_rig_close(&rig);
}

static void case_088_the_advertised_host_need_not_be_bound(void **state)
{
    static const char *const overrides[] = {"ADVERTISE_HOST=10.99.0.1",
                                            "BIND_HOST=0.0.0.0", NULL};
    struct net_rig rig;
    (void)state;
    net_rig_open(&rig, "tcp", overrides);
    struct listen_try attempt = {.url = "tcp://10.99.0.1:0"};
    net_rig_on(&rig.client, try_listen, &attempt);
    assert_int_equal(attempt.status, PS_OK);
    assert_int_equal(strncmp(attempt.out, "tcp://10.99.0.1:", 16), 0);
    assert_true(port_of(attempt.out) > 0);
    net_rig_close(&rig);
}

static void case_089_a_port_in_the_environment_means_nothing(void **state)
{
    static const char *const env[] = {"PORT=1", NULL};
    struct net_rig rig;
    struct net_side side;
    struct ps_node_options options = {.name = "server/9", .env = env, .log_fd = -1};
    struct ps_error err;
    (void)state;
    memset(&side, 0, sizeof(side));
    memset(&rig, 0, sizeof(rig));
    rig.scheme = "tcp";
    side.rig = &rig;
    assert_int_equal(ps_node_open(&options, &side.node, &err), PS_OK);
    net_rig_end(&side, PS_ROLE_SERVER, 5, 0);
    net_rig_listen(&side);
    assert_true(port_of(side.url) > 1);
    net_rig_close_end(&side);
    ps_node_close(side.node);
}

static void case_086_an_interface_is_found_by_its_exact_name(void **state)
{
    static const char *const exact[] = {"INTERFACE=lo", NULL};
    static const char *const prefix[] = {"INTERFACE=l", NULL};
    struct net_rig rig;
    (void)state;
    net_rig_open(&rig, "tcp", exact);
    struct listen_try attempt = {.url = "tcp://*:0"};
    net_rig_on(&rig.client, try_listen, &attempt);
    assert_int_equal(attempt.status, PS_OK);
    assert_int_equal(strncmp(attempt.out, "tcp://127.0.0.1:", 16), 0);
    net_rig_close(&rig);
    net_rig_open(&rig, "tcp", prefix);
    net_rig_on(&rig.client, try_listen, &attempt);
    assert_int_equal(attempt.status, PS_EADDR);
    assert_non_null(strstr(attempt.err.text, "INTERFACE l: no interface of exactly"));
    assert_non_null(strstr(attempt.err.text, "lo (127.0.0.1)"));
    net_rig_close(&rig);
}

struct dial_try {
    const char *url;
    enum ps_status status;
    struct ps_error err;
};

static void try_dial(struct net_side *side, void *arg)
{
    struct dial_try *attempt = arg;
    struct ps_net_link *link;
    attempt->status = ps_net_dial(side->end, attempt->url, NULL, &link, &attempt->err);
}

static void links_that_leave_the_host_need_insecure(void **state)
{
    static const char *const insecure[] = {"INSECURE=1", NULL};
    struct net_rig rig;
    struct dial_try attempt = {.url = "tcp://192.0.2.1:9"};
    (void)state;
    net_rig_open(&rig, "tcp", NULL);
    net_rig_on(&rig.client, try_dial, &attempt);
    assert_int_equal(attempt.status, PS_EPERM);
    assert_non_null(strstr(attempt.err.text, "PENSTOCK_INSECURE=1"));
    net_rig_close(&rig);
    net_rig_open(&rig, "tcp", insecure);
    net_rig_on(&rig.client, try_dial, &attempt);
    assert_int_equal(attempt.status, PS_OK);
    net_rig_close(&rig);
}

static void bad_addresses_are_named(void **state)
{
    static const char *const bad[] = {"tcp://127.0.0.1",      "tcp://127.0.0.1:70000",
                                      "tcp://127.0.0.1:x",    "nonsense",
                                      "tcp://::1:9",          "udp://127.0.0.1:1",
                                      "ipc:///no/such/dir/x", "tcp://a b:1"};
    struct net_rig rig;
    (void)state;
    net_rig_open(&rig, "tcp", NULL);
    for (size_t i = 0; i < PS_COUNT(bad); i++) {
        struct listen_try attempt = {.url = bad[i]};
        net_rig_on(&rig.client, try_listen, &attempt);
        assert_int_not_equal(attempt.status, PS_OK);
        assert_true(attempt.err.text[0] != '\0');
    }
    net_rig_close(&rig);
}

/* ---- unix sockets ---- */

static void case_098_sockets_are_private_and_stale_ones_are_reclaimed(void **state)
{
    char dir[] = "/tmp/penstock-test-XXXXXX", path[128], url[160], job[160];
    struct net_rig rig;
    struct stat st;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/left", dir);
    snprintf(url, sizeof(url), "ipc://%s", path);
    snprintf(job, sizeof(job), "JOB_DIR=%s/job", dir);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    close(fd); /* the file stays, as after kill -9 */

    const char *const overrides[] = {job, NULL};
    net_rig_open(&rig, "ipc", overrides);
    struct listen_try attempt = {.url = url};
    net_rig_on(&rig.server, try_listen, &attempt);
    assert_int_equal(attempt.status, PS_OK);
    /* Somebody listens there now. */
    net_rig_on(&rig.client, try_listen, &attempt);
    assert_int_equal(attempt.status, PS_EINUSE);
    struct listen_try fresh = {.url = "ipc://*"};
    net_rig_on(&rig.client, try_listen, &fresh);
    assert_int_equal(fresh.status, PS_OK);
    assert_int_equal(stat(strchr(job, '=') + 1, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    net_rig_close(&rig);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(rmdir(strchr(job, '=') + 1), 0); /* empty: nothing was left */

    /* A directory that others can enter is refused. */
    assert_int_equal(mkdir(strchr(job, '=') + 1, 0755), 0);
    net_rig_open(&rig, "ipc", overrides);
    net_rig_on(&rig.client, try_listen, &fresh);
    assert_int_equal(fresh.status, PS_EPERM);
    net_rig_close(&rig);
    assert_int_equal(rmdir(strchr(job, '=') + 1), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* ---- a connection that breaks ---- */

/* Forwards bytes between a port of its own and 'target'; 'cut' breaks what is joined. */
struct relay {
    pthread_t thread;
    int listener;
    unsigned port, target;
    _Atomic int cut, stop, joined;
};

static void pump(struct relay *relay, int a, int b)
{
    static _Thread_local char bytes[65536];
    struct pollfd fds[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
    while (!atomic_load(&relay->cut) && !atomic_load(&relay->stop)) {
        if (poll(fds, 2, 5) <= 0) {
            continue;
        }
        for (int i = 0; i < 2; i++) {
            if (fds[i].revents == 0) {
                continue;
            }
            ssize_t n = recv(fds[i].fd, bytes, sizeof(bytes), 0);
            if (n <= 0 || send(fds[1 - i].fd, bytes, (size_t)n, MSG_NOSIGNAL) != n) {
                return;
            }
        }
    }
}

static void *relay_main(void *arg)
{
    struct relay *relay = arg;
    while (!atomic_load(&relay->stop)) {
        struct pollfd poller = {.fd = relay->listener, .events = POLLIN};
        if (poll(&poller, 1, 20) != 1) {
            continue;
        }
        int a = accept(relay->listener, NULL, NULL), b = raw_connect(relay->target);
        atomic_fetch_add(&relay->joined, 1);
        pump(relay, a, b);
        close(a);
        close(b);
        atomic_store(&relay->cut, 0);
    }
    return NULL;
}

static void relay_start(struct relay *relay, unsigned target)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    memset(relay, 0, sizeof(*relay));
    relay->target = target;
    relay->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(relay->listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(relay->listener, 8), 0);
    assert_int_equal(getsockname(relay->listener, (struct sockaddr *)&at, &size), 0);
    relay->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&relay->thread, NULL, relay_main, relay), 0);
}

static void a_link_comes_back_within_the_grace_and_its_calls_are_sent_again(void **state)
{
    struct net_rig rig;
    struct relay relay;
    char url[64];
    (void)state;
    net_rig_open(&rig, "tcp", NULL);
    net_rig_listen(&rig.server);
    relay_start(&relay, port_of(rig.server.url));
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%u", relay.port);
    net_rig_dial(&rig.client, url);
    net_rig_wait(&rig.client, &rig.client.ups, 1);
    net_rig_wait(&rig.server, &rig.server.ups, 1);

    struct net_rig_call waiting = {.seed = 8};
    net_rig_call_start(&rig.client, &waiting, net_rig_payload(100, 8));
    net_rig_wait(&rig.server, &rig.server.landed, 1); /* arrived, not answered */
    rig.server.echo = true;
    atomic_store(&relay.cut, 1);
    net_rig_wait(&rig.client, &waiting.dones, 1); /* sent again over the new connection */
    assert_int_equal(waiting.status, PS_OK);
    assert_true(waiting.reply_ok);
    assert_true(atomic_load(&relay.joined) >= 2);
    check_job_goes_on(&rig, 3);
    assert_int_equal(atomic_load(&rig.client.downs), 0);
    assert_int_equal(atomic_load(&rig.server.downs), 0);
    assert_int_equal(atomic_load(&rig.client.ups), 1);
    assert_int_equal(atomic_load(&rig.server.ups), 1);
    net_rig_close(&rig);
    atomic_store(&relay.stop, 1);
    pthread_join(relay.thread, NULL);
    close(relay.listener);
}

static void a_link_that_stays_away_is_lost_after_the_grace(void **state)
{
    static const char *const overrides[] = {"LINK_GRACE_MS=200", NULL};
    struct net_rig rig;
    struct relay relay;
    char url[64];
    (void)state;
    net_rig_open(&rig, "tcp", overrides);
    net_rig_listen(&rig.server);
    relay_start(&relay, port_of(rig.server.url));
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%u", relay.port);
    net_rig_dial(&rig.client, url);
    net_rig_wait(&rig.client, &rig.client.ups, 1);
    net_rig_wait(&rig.server, &rig.server.ups, 1);
    atomic_store(&relay.stop, 1);
    pthread_join(relay.thread, NULL);
    close(relay.listener);
    net_rig_wait(&rig.client, &rig.client.downs, 1);
    net_rig_wait(&rig.server, &rig.server.downs, 1);
    assert_int_equal(rig.client.down_error.status, PS_EPEER);
    assert_non_null(strstr(rig.client.down_error.text, "not back within 200 ms"));
    net_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_074_garbage_is_dropped_logged_and_harms_nobody),
        cmocka_unit_test(a_hello_of_another_job_protocol_or_member_is_refused_in_words),
        cmocka_unit_test(case_086_an_interface_is_found_by_its_exact_name),
        cmocka_unit_test(case_088_the_advertised_host_need_not_be_bound),
        cmocka_unit_test(case_089_a_port_in_the_environment_means_nothing),
        cmocka_unit_test(case_090_a_busy_port_names_its_owner),
        cmocka_unit_test(links_that_leave_the_host_need_insecure),
        cmocka_unit_test(bad_addresses_are_named),
        cmocka_unit_test(case_098_sockets_are_private_and_stale_ones_are_reclaimed),
        cmocka_unit_test(a_link_comes_back_within_the_grace_and_its_calls_are_sent_again),
        cmocka_unit_test(a_link_that_stays_away_is_lost_after_the_grace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
