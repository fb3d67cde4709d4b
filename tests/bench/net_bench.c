/* Request and reply of one payload size between two processes, ours against raw ZeroMQ.
 *
 *   net_bench [tcp|ipc [BYTES]]     rows: R,group,name,bytes,metric,value
 *
 * Both echo what they get, without touching it, over ROUTER and DEALER sockets, payloads
 * handed over without a copy; raw blocks in zmq_msg_recv, ours runs a loop, checks heads
 * and matches replies to calls.  "place" has the reply copied to a given place, as a pull
 * does.  us_rtt: one request at a time; GB/s: bytes both ways with WINDOW_BYTES (at least
 * 2 requests) on their way.  The measurements of one size follow each other directly;
 * the machine is noisy: take ratios of one run, medians of several. */
#include "base/str.h"
#include "net/net.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#define WINDOW_BYTES ((size_t)4 << 20)
#define WINDOW_MAX 64
#define RUN_NS (200 * PS_NS_PER_MS) /* of each measurement */
#define ROUNDS 3

static double now_s(void)
{
    return (double)ps_clock_now_ns(ps_clock_real()) / 1e9;
}

static size_t window_of(size_t bytes)
{
    return PS_MIN(PS_MAX(WINDOW_BYTES / bytes, (size_t)2), (size_t)WINDOW_MAX);
}

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "net_bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- raw ZeroMQ ---- */

static void keep(void *data, void *hint)
{
    PS_UNUSED(data);
    PS_UNUSED(hint);
}

static void raw_server(int report, const char *bind)
{
    char url[256] = {0};
    size_t size = sizeof(url);
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_ROUTER);
    zmq_msg_t part;
    if (zmq_bind(socket, bind) != 0 ||
        zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, url, &size) != 0 ||
        write(report, url, sizeof(url)) != (ssize_t)sizeof(url)) {
        die("bind");
    }
    for (;;) { /* until killed */
        zmq_msg_init(&part);
        if (zmq_msg_recv(&part, socket, 0) < 0) {
            continue;
        }
        zmq_msg_send(&part, socket, zmq_msg_more(&part) ? ZMQ_SNDMORE : 0);
    }
}

static void raw_send(void *socket, void *head, void *data, size_t bytes)
{
    zmq_msg_t part;
    zmq_send(socket, head, PS_LINK_HEAD_BYTES, ZMQ_SNDMORE);
    zmq_msg_init_data(&part, data, bytes, keep, NULL);
    zmq_msg_send(&part, socket, 0);
}

static void raw_receive(void *socket)
{
    zmq_msg_t part;
    int more;
    do {
        zmq_msg_init(&part);
        zmq_msg_recv(&part, socket, 0);
        more = zmq_msg_more(&part);
        zmq_msg_close(&part);
    } while (more);
}

static double raw_run(void *socket, void *data, size_t bytes, size_t window)
{
    char head[PS_LINK_HEAD_BYTES] = {0};
    size_t done = 0, sent = 0;
    double start = now_s(), end = start + (double)RUN_NS / 1e9, now = start;
    while (now < end || done < sent) {
        while (now < end && sent - done < window) {
            raw_send(socket, head, data, bytes);
            sent++;
        }
        raw_receive(socket);
        done++;
        now = now_s();
    }
    return (now - start) / (double)done;
}

/* ---- ours ---- */

struct bench;

/* A call with the bench it belongs to. */
struct bench_call {
    struct ps_net_call call;
    struct bench *bench;
};

struct bench {
    struct ps_node *node;
    struct ps_net_end *end;
    struct ps_net_link *link;
    struct ps_event event;
    char url[PS_URL_BYTES];
    struct ps_buf *payload;
    void *place;
    struct bench_call calls[WINDOW_MAX];
    size_t done, running;
    double start, seconds;
};

static void on_up(void *ctx, struct ps_net_link *link)
{
    struct bench *bench = ctx;
    bench->link = link;
    ps_event_set(&bench->event);
}

static void on_landed(void *ctx, struct ps_net_link *link, const struct ps_frame *frame)
{
    struct ps_frame body = {.payload = frame->payload};
    PS_UNUSED(ctx);
    if (ps_net_reply(link, &frame->head, PS_OK, &body) != PS_OK) {
        die("reply"); /* the window is smaller than the queue */
    }
}

static void open_bench(struct bench *bench, enum ps_role role)
{
    static const struct ps_net_handler handler = {.up = on_up, .landed = on_landed};
    struct ps_node_options options = {.name = ps_role_name(role)};
    struct ps_error err;
    memset(bench, 0, sizeof(*bench));
    if (ps_node_open(&options, &bench->node, &err) != PS_OK ||
        ps_event_init(&bench->event, bench->node->driver) != PS_OK) {
        die("node");
    }
    struct ps_net_end_options end = {
        .node = bench->node,
        .loop = bench->node->loop,
        .handler = &handler,
        .ctx = bench,
        .self = {.role = role, .member = role == PS_ROLE_SERVER ? 2 : 3},
        .queue_bytes = (size_t)1 << 30};
    if (ps_net_end_open(&end, &bench->end, &err) != PS_OK) {
        die(err.text);
    }
}

struct step {
    struct ps_task task;
    struct bench *bench;
    struct ps_event *done;
    const char *url;
    size_t bytes, window;
};

static void on_loop(struct bench *bench, struct step *step,
                    void (*run)(struct ps_task *task))
{
    step->bench = bench;
    step->task.run = run;
    step->task.label = "bench";
    (void)ps_loop_post(bench->node->loop, &step->task);
}

static void listen_step(struct ps_task *task)
{
    struct step *step = PS_CONTAINER_OF(task, struct step, task);
    struct ps_error err;
    if (ps_net_listen(step->bench->end, step->url, step->bench->url, &err) != PS_OK) {
        die(err.text);
    }
    ps_event_set(&step->bench->event);
}

static void dial_step(struct ps_task *task)
{
    struct step *step = PS_CONTAINER_OF(task, struct step, task);
    struct ps_error err;
    if (ps_net_dial(step->bench->end, step->url, NULL, &step->bench->link, &err) !=
        PS_OK) {
        die(err.text);
    }
}

static void our_server(int report, const char *url)
{
    struct bench *bench = malloc(sizeof(*bench));
    struct step step = {.url = url};
    open_bench(bench, PS_ROLE_SERVER);
    on_loop(bench, &step, listen_step);
    if (ps_event_wait(&bench->event, PS_NEVER) != PS_OK ||
        write(report, bench->url, sizeof(bench->url)) != (ssize_t)sizeof(bench->url)) {
        die("listen");
    }
    for (;;) {
        pause();
    }
}

static void *reply_place(struct ps_net_call *call, const struct ps_frame *reply)
{
    PS_UNUSED(reply);
    return PS_CONTAINER_OF(call, struct bench_call, call)->bench->place;
}

static void on_done(struct ps_net_call *base, enum ps_status status,
                    const struct ps_frame *reply, const struct ps_error *err)
{
    struct bench *bench = PS_CONTAINER_OF(base, struct bench_call, call)->bench;
    PS_UNUSED(reply);
    if (status != PS_OK) {
        die(err->text);
    }
    bench->done++;
    double now = now_s();
    if (now - bench->start < (double)RUN_NS / 1e9) {
        if (ps_net_call_start(bench->link, base) != PS_OK) {
            die("call");
        }
    } else if (--bench->running == 0) {
        bench->seconds = now - bench->start;
        ps_event_set(&bench->event);
    }
}

static void run_step(struct ps_task *task)
{
    struct step *step = PS_CONTAINER_OF(task, struct step, task);
    struct bench *bench = step->bench;
    bench->done = 0;
    bench->running = step->window;
    bench->start = now_s();
    for (size_t i = 0; i < step->window; i++) {
        struct bench_call *call = &bench->calls[i];
        memset(call, 0, sizeof(*call));
        call->bench = bench;
        call->call.done = on_done;
        call->call.place = reply_place;
        call->call.what = "echo";
        call->call.frame.head.kind = PS_KIND_DATA;
        call->call.frame.payload = bench->payload;
        if (ps_net_call_start(bench->link, &call->call) != PS_OK) {
            die("call");
        }
    }
}

static double our_run(struct bench *bench, void *data, size_t bytes, size_t window,
                      void *place)
{
    struct step step = {.bytes = bytes, .window = window};
    bench->payload = ps_buf_wrap(data, bytes, NULL, NULL);
    bench->place = place;
    ps_event_reset(&bench->event);
    on_loop(bench, &step, run_step);
    if (ps_event_wait(&bench->event, PS_NEVER) != PS_OK) {
        die("wait");
    }
    ps_buf_release(bench->payload);
    return bench->seconds / (double)bench->done;
}

/* ---- both, side by side ---- */

static pid_t start(void (*server)(int report, const char *url), const char *url,
                   char url_out[PS_URL_BYTES])
{
    int ends[2];
    pid_t pid = -1;
    if (pipe(ends) != 0 || (pid = fork()) < 0) {
        die("fork");
    }
    if (pid == 0) {
        close(ends[0]);
        server(ends[1], url);
        _exit(1);
    }
    close(ends[1]);
    if (read(ends[0], url_out, PS_URL_BYTES) != PS_URL_BYTES) {
        die("server");
    }
    close(ends[0]);
    return pid;
}

static void row(const char *scheme, const char *name, size_t bytes, const char *metric,
                double value)
{
    printf("R,net_%s,%s,%zu,%s,%.3f\n", scheme, name, bytes, metric, value);
    fflush(stdout);
}

static double median(double values[ROUNDS])
{
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = i + 1; j < ROUNDS; j++) {
            if (values[j] < values[i]) {
                double t = values[i];
                values[i] = values[j];
                values[j] = t;
            }
        }
    }
    return values[ROUNDS / 2];
}

static void compare(const char *scheme, void *socket, struct bench *bench, char *data,
                    char *place, size_t bytes)
{
    double raw_rtt[ROUNDS], our_rtt[ROUNDS], raw[ROUNDS], ours[ROUNDS], placed[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        raw_rtt[i] = raw_run(socket, data, bytes, 1);
        our_rtt[i] = our_run(bench, data, bytes, 1, NULL);
        raw[i] = raw_run(socket, data, bytes, window_of(bytes));
        ours[i] = our_run(bench, data, bytes, window_of(bytes), NULL);
        placed[i] = our_run(bench, data, bytes, window_of(bytes), place);
    }
    double both = 2e-9 * (double)bytes;
    row(scheme, "zmq", bytes, "us_rtt", median(raw_rtt) * 1e6);
    row(scheme, "penstock", bytes, "us_rtt", median(our_rtt) * 1e6);
    row(scheme, "zmq", bytes, "GB/s", both / median(raw));
    row(scheme, "penstock", bytes, "GB/s", both / median(ours));
    row(scheme, "penstock_place", bytes, "GB/s", both / median(placed));
    row(scheme, "penstock", bytes, "throughput_of_zmq", median(raw) / median(ours));
    row(scheme, "penstock", bytes, "latency_of_zmq", median(our_rtt) / median(raw_rtt));
}

static void bench_scheme(const char *scheme, uint64_t only)
{
    static const size_t sizes[] = {4u << 10, 64u << 10, 1u << 20,
                                   4u << 20, 16u << 20, 64u << 20};
    char raw_url[PS_URL_BYTES], our_url[PS_URL_BYTES];
    size_t largest = sizes[PS_COUNT(sizes) - 1];
    bool tcp = strcmp(scheme, "tcp") == 0;
    char *data = ps_mem_calloc(largest), *place = ps_mem_calloc(largest);
    char dir[] = "/tmp/penstock-bench-XXXXXX", raw_ipc[64], our_ipc[64];
    if (mkdtemp(dir) == NULL) {
        die("mkdtemp");
    }
    snprintf(raw_ipc, sizeof(raw_ipc), "ipc://%s/raw", dir);
    snprintf(our_ipc, sizeof(our_ipc), "ipc://%s/ours", dir);
    pid_t raw_pid = start(raw_server, tcp ? "tcp://127.0.0.1:*" : raw_ipc, raw_url);
    pid_t our_pid = start(our_server, tcp ? "tcp://127.0.0.1:0" : our_ipc, our_url);
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    int linger = 0;
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger));
    struct bench *bench = malloc(sizeof(*bench));
    if (data == NULL || place == NULL || bench == NULL ||
        zmq_connect(socket, raw_url) != 0) {
        die("set up");
    }
    memset(place, 1, largest); /* its pages are there */
    memset(data, 1, largest);
    open_bench(bench, PS_ROLE_WORKER);
    struct step dial = {.url = our_url};
    on_loop(bench, &dial, dial_step);
    if (ps_event_wait(&bench->event,
                      ps_clock_now_ns(ps_clock_real()) + 10 * PS_NS_PER_S) != PS_OK) {
        die("link");
    }
    for (size_t i = 0; i < PS_COUNT(sizes); i++) {
        if (only == 0 || only == sizes[i]) {
            compare(scheme, socket, bench, data, place, sizes[i]);
        }
    }
    kill(raw_pid, SIGKILL);
    kill(our_pid, SIGKILL);
    waitpid(raw_pid, NULL, 0);
    waitpid(our_pid, NULL, 0);
    zmq_close(socket);
    zmq_ctx_term(context);
    ps_loop_stop(bench->node->loop);
    ps_net_end_close(bench->end);
    (void)unlink(raw_ipc + strlen("ipc://"));
    (void)unlink(our_ipc + strlen("ipc://"));
    (void)rmdir(dir);
    ps_event_fini(&bench->event);
    ps_node_close(bench->node);
    free(bench);
    ps_mem_free(data);
    ps_mem_free(place);
}

int main(int argc, char **argv)
{
    uint64_t only = 0;
    bool known = argc < 2 || strcmp(argv[1], "tcp") == 0 || strcmp(argv[1], "ipc") == 0;
    if (!known || argc > 3 || (argc == 3 && ps_parse_u64(argv[2], &only) != PS_OK)) {
        fprintf(stderr, "usage: net_bench [tcp|ipc [BYTES]]\n");
        return 64;
    }
    if (argc < 2) {
        bench_scheme("tcp", 0);
        bench_scheme("ipc", 0);
    } else {
        bench_scheme(argv[1], only);
    }
    return 0;
}
