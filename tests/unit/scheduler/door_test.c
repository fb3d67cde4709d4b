/* The scheduler as a process on real sockets: its signals, and what strangers send. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/node.h"
#include "base/options.h"
#include "base/rng.h"
#include "kvstore/shard/member.h"
#include "scheduler/commands.h"
#include "scheduler/scheduler.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

static const char *const no_env[] = {NULL};

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
    }
}

static struct ps_node *open_node(const char *const *settings)
{
    struct ps_error err = {0};
    struct ps_node *node = NULL;
    struct ps_node_options options = {.env = no_env, .overrides = settings};
    if (ps_node_open(&options, &node, &err) != PS_OK) {
        fail_msg("node: %s", err.text);
    }
    return node;
}

static int listening_socket(uint16_t *port_out)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof(at);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    *port_out = ntohs(at.sin_port);
    return fd;
}

/* ---- a real job in one process, each node with its own threads ---- */

struct real_member {
    struct ps_node *node;
    struct ps_member *member;
    struct ps_event joined, ended; /* ended: left or failed */
    struct ps_error err;
    enum ps_status left;
};

static void on_joined(void *ctx, const struct ps_msg_job *job)
{
    struct real_member *m = ctx;
    (void)job;
    ps_event_set(&m->joined);
}

static void on_failed(void *ctx, const struct ps_error *err)
{
    struct real_member *m = ctx;
    m->err = *err;
    ps_event_set(&m->joined);
    ps_event_set(&m->ended);
}

static void on_left(void *ctx, enum ps_status status)
{
    struct real_member *m = ctx;
    m->left = status;
    ps_event_set(&m->ended);
}

static void on_stop(void *ctx)
{
    struct real_member *m = ctx;
    ps_member_leave(m->member, on_left, m);
}

static void on_request(void *ctx, struct ps_net_link *link, const struct ps_frame *frame)
{
    (void)ctx;
    struct ps_frame reply = {.payload = NULL};
    assert_int_equal(ps_net_reply(link, &frame->head, PS_OK, &reply), PS_OK);
}

static void real_open(struct real_member *m, enum ps_role role, const char *url)
{
    static const struct ps_member_handler handler = {
        .joined = on_joined, .failed = on_failed, .stop = on_stop, .request = on_request};
    static const char *const settings[] = {"LOG=error", "NUM_SERVER=1", "NUM_WORKER=2",
                                           "START_TIMEOUT_MS=20000", NULL};
    char urls[1][PS_URL_BYTES] = {"tcp://127.0.0.1:1"};
    struct ps_error err = {0};
    memset(m, 0, sizeof(*m));
    m->left = PS_EINTERNAL;
    m->node = open_node(settings);
    assert_int_equal(ps_event_init(&m->joined, m->node->driver), PS_OK);
    assert_int_equal(ps_event_init(&m->ended, m->node->driver), PS_OK);
    struct ps_member_options options = {.node = m->node,
                                        .role = role,
                                        .handler = &handler,
                                        .ctx = m,
                                        .urls = urls,
                                        .url_count = role == PS_ROLE_SERVER,
                                        .root_url = url};
    assert_int_equal(ps_member_open(&options, &m->member, &err), PS_OK);
}

static uint64_t soon(const struct ps_node *node)
{
    return ps_clock_now_ns(node->clock) + 20 * PS_NS_PER_S;
}

static void real_close(struct real_member *m)
{
    ps_member_close(m->member);
    ps_event_fini(&m->joined);
    ps_event_fini(&m->ended);
    ps_node_close(m->node);
}

struct leave_task {
    struct ps_task task;
    struct real_member *m;
};

static void run_leave(struct ps_task *task)
{
    struct real_member *m = PS_CONTAINER_OF(task, struct leave_task, task)->m;
    ps_member_leave(m->member, on_left, m);
}

/* Three members join at 'url' and leave; the scheduler ends well. */
static void live(struct ps_scheduler *scheduler, struct ps_node *node, const char *url)
{
    struct real_member members[3];
    struct leave_task leaves[2] = {{.task = {.run = run_leave, .label = "leave"}},
                                   {.task = {.run = run_leave, .label = "leave"}}};
    struct ps_error result = {0};
    for (int i = 0; i < 3; i++) {
        real_open(&members[i], i == 2 ? PS_ROLE_SERVER : PS_ROLE_WORKER, url);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ps_event_wait(&members[i].joined, soon(node)), PS_OK);
        if (ps_member_job(members[i].member) == NULL) {
            fail_msg("member %d: %s", i, members[i].err.text);
        }
    }
    for (int i = 0; i < 2; i++) {
        leaves[i].m = &members[i];
        (void)ps_loop_post(members[i].node->loop, &leaves[i].task);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ps_event_wait(&members[i].ended, soon(node)), PS_OK);
        assert_int_equal(members[i].left, PS_OK);
        real_close(&members[i]);
    }
    assert_int_equal(ps_scheduler_wait(scheduler, soon(node), &result), PS_OK);
    assert_int_equal(result.status, PS_OK);
}

static const char *const job_settings[] = {"LOG=error", "NUM_SERVER=1", "NUM_WORKER=2",
                                           "ROOT_PORT=0", NULL};

static void a_job_lives_on_real_sockets_and_threads(void **state)
{
    static const char *const urls[] = {NULL, "ipc"};
    char dir[] = "/tmp/penstock-test-XXXXXX", ipc[PS_URL_BYTES];
    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(ipc, sizeof(ipc), "ipc://%s/scheduler", dir);
    for (size_t i = 0; i < PS_COUNT(urls); i++) {
        struct ps_node *node = open_node(job_settings);
        struct ps_scheduler *scheduler = NULL;
        struct ps_error err = {0};
        struct ps_scheduler_options options = {.node = node,
                                               .url = urls[i] == NULL ? NULL : ipc};
        if (ps_scheduler_open(&options, &scheduler, &err) != PS_OK) {
            fail_msg("%s", err.text);
        }
        live(scheduler, node, ps_scheduler_url(scheduler));
        ps_scheduler_close(scheduler);
        ps_node_close(node);
    }
    assert_int_equal(rmdir(dir), 0); /* no socket is left */
}

/* ---- strangers ---- */

static int connect_to(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void send_raw(int fd, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n <= 0) {
            return; /* hung up on: as it should be */
        }
        at += n;
        size -= (size_t)n;
    }
}

/* Valid ZMTP: empty frames, short frames, heads of nothing, random bytes in pieces. */
static void send_zmtp(const char *url, struct ps_rng *rng)
{
    void *context = zmq_ctx_new();
    void *dealer = zmq_socket(context, ZMQ_DEALER);
    int linger = 200;
    char bytes[512];
    assert_int_equal(zmq_setsockopt(dealer, ZMQ_LINGER, &linger, sizeof(linger)), 0);
    assert_int_equal(zmq_connect(dealer, url), 0);
    for (int i = 0; i < 200; i++) {
        size_t size = i % 4 == 0 ? 0 : ps_rng_below(rng, sizeof(bytes));
        for (size_t k = 0; k < size; k++) {
            bytes[k] = (char)ps_rng_u64(rng);
        }
        if (i % 3 == 0 && size >= 64) {
            uint32_t magic = PS_WIRE_MAGIC;
            memcpy(bytes, &magic, sizeof(magic));
        }
        (void)zmq_send(dealer, bytes, size, i % 5 == 0 ? ZMQ_SNDMORE : 0);
    }
    (void)zmq_send(dealer, "", 0, 0);
    (void)zmq_close(dealer);
    (void)zmq_ctx_term(context);
}

static void case_074_garbage_on_the_port_does_not_disturb_the_job(void **state)
{
    static const char http[] = "GET / HTTP/1.0\r\n\r\n";
    static const unsigned char greeting[] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3};
    struct ps_node *node = open_node(job_settings);
    struct ps_scheduler *scheduler = NULL;
    struct ps_scheduler_options options = {.node = node};
    struct ps_error err = {0};
    struct ps_rng rng;
    int64_t port = 0;
    (void)state;
    assert_int_equal(ps_scheduler_open(&options, &scheduler, &err), PS_OK);
    const char *url = ps_scheduler_url(scheduler);
    assert_int_equal(ps_parse_i64(strrchr(url, ':') + 1, &port), PS_OK);
    ps_rng_init(&rng, 74);

    int first = connect_to((uint16_t)port);
    send_raw(first, http, sizeof(http) - 1);
    int second = connect_to((uint16_t)port);
    char *noise = malloc(1 << 20);
    assert_non_null(noise);
    for (size_t i = 0; i < 1 << 20; i++) {
        noise[i] = (char)ps_rng_u64(&rng);
    }
    send_raw(second, noise, 1 << 20);
    free(noise);
    int third = connect_to((uint16_t)port);
    send_raw(third, greeting, sizeof(greeting)); /* a truncated handshake */
    send_zmtp(url, &rng);

    live(scheduler, node, url); /* while the strangers are still there */
    (void)close(first);
    (void)close(second);
    (void)close(third);
    ps_scheduler_close(scheduler);
    ps_node_close(node);
}

/* ---- the command ---- */

/* A child that runs the command; '*port_out' from its ready line, 0 when it had none. */
static pid_t start_command(const char *workers, const char *servers, int *port_out)
{
    int ends[2];
    char line[128] = "", fd_text[32];
    assert_int_equal(pipe(ends), 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char name[] = "penstock scheduler", ready[] = "--ready-fd", port[] = "--port",
             zero[] = "0";
        char *argv[] = {name, ready, fd_text, port, zero, NULL};
        (void)close(ends[0]);
        (void)snprintf(fd_text, sizeof(fd_text), "%d", ends[1]);
        (void)setenv("DMLC_NUM_WORKER", workers, 1);
        (void)setenv("DMLC_NUM_SERVER", servers, 1);
        (void)setenv("PENSTOCK_LOG", "error", 1);
        (void)freopen("/dev/null", "w", stderr);
        _exit(ps_cmd_scheduler(5, argv));
    }
    (void)close(ends[1]);
    size_t size = 0;
    ssize_t n;
    while (size < sizeof(line) - 1 &&
           (n = read(ends[0], line + size, sizeof(line) - 1 - size)) > 0) {
        size += (size_t)n;
    }
    (void)close(ends[0]); /* the child has closed its end, or is gone */
    *port_out = 0;
    (void)sscanf(line, "127.0.0.1 %d\n", port_out);
    return pid;
}

static int exit_of(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void sigterm_without_workers_ends_the_command_well(void **state)
{
    int port;
    (void)state;
    pid_t pid = start_command("2", "1", &port);
    assert_true(port > 0);
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(exit_of(pid), 0);
}

/* Whether `penstock status --json` prints 'part'. */
static bool status_shows(char *url, const char *part)
{
    static char text[8192];
    char name[] = "penstock status", root[] = "--root", json[] = "--json";
    char *argv[] = {name, root, url, json, NULL};
    FILE *file = tmpfile();
    assert_non_null(file);
    (void)fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    assert_true(kept >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    int code = ps_cmd_status(4, argv);
    (void)fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    (void)close(kept);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    assert_int_equal(code, 0);
    return strstr(text, part) != NULL;
}

static void sigterm_with_a_worker_that_waits_is_143_and_told(void **state)
{
    int port;
    char url[64];
    struct real_member worker;
    (void)state;
    pid_t pid = start_command("2", "1", &port);
    assert_true(port > 0);
    (void)snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", port);
    real_open(&worker, PS_ROLE_WORKER, url);
    for (int i = 0; !status_shows(url, "\"role\": \"worker\""); i++) {
        assert_true(i < 100);
        ps_driver_sleep(worker.node->driver, 100 * PS_NS_PER_MS);
    }
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(ps_event_wait(&worker.ended, soon(worker.node)), PS_OK);
    assert_contains(worker.err.text, "the scheduler was ended: signal 15");
    assert_int_equal(exit_of(pid), 143);
    real_close(&worker);
}

static void the_command_refuses_what_it_cannot_run(void **state)
{
    int port;
    char unknown[] = "--prot", name[] = "penstock scheduler";
    char *argv[] = {name, unknown, NULL};
    (void)state;
    pid_t pid = start_command("2", "0", &port);
    assert_int_equal(port, 0);
    assert_int_equal(exit_of(pid), PS_EXIT_CONFIG);
    assert_int_equal(ps_cmd_scheduler(2, argv), PS_EXIT_USAGE);
}

static void status_without_a_scheduler_says_so(void **state)
{
    uint16_t port;
    char root_text[64], name[] = "penstock status", root[] = "--root";
    (void)state;
    int fd = listening_socket(&port);
    (void)close(fd); /* nobody listens there now */
    (void)snprintf(root_text, sizeof(root_text), "127.0.0.1:%u", port);
    char *argv[] = {name, root, root_text, NULL};
    (void)setenv("PENSTOCK_CONNECT_TIMEOUT_MS", "300", 1);
    assert_int_equal(ps_cmd_status(3, argv), PS_EXIT_FAIL);
    (void)unsetenv("PENSTOCK_CONNECT_TIMEOUT_MS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sigterm_without_workers_ends_the_command_well),
        cmocka_unit_test(the_command_refuses_what_it_cannot_run),
        cmocka_unit_test(sigterm_with_a_worker_that_waits_is_143_and_told),
        cmocka_unit_test(status_without_a_scheduler_says_so),
        cmocka_unit_test(a_job_lives_on_real_sockets_and_threads),
        cmocka_unit_test(case_074_garbage_on_the_port_does_not_disturb_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
