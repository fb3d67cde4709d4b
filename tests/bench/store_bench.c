/* Push and pull in one round trip through a real server, against a raw ZeroMQ echo that
 * moves the same bytes both ways on the same kind of socket.
 *
 *   penstock launch -n 1 -s 1 [--transport ipc] -- store_bench [-r ROUNDS] [BYTES ...]
 *
 * Run as the one worker of a job, with ROOT_URI in the environment (the launcher sets
 * it). For every size, rounds alternate between the echo and the store, so that both see
 * the same moment of a shared machine; the row is the median of the rounds.
 *
 *   store/TRANSPORT/echo            one message of that size at a time
 *   store/TRANSPORT/echo_place      the same, copied to the caller's memory as a pull is
 *   store/TRANSPORT/echo_1MiB       cut into pieces of 1 MiB, all of them on their way
 *   store/TRANSPORT/pushpull        penstock_pushpull, dist_sync, one request at a time
 *   .../echo_many, .../pushpull_many   up to 64 of them (4 MiB) on their way
 *
 * metrics: us_rtt; GB/s, bytes up and bytes down together; of_PEER, rate over rate, the
 * median of the rounds' own ratios. */
#include "api/penstock.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/util.h"
#include "tests/bench/zmq_echo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANY_MAX 64
#define MANY_BYTES ((size_t)4 << 20)
#define PIECE_BYTES ((size_t)1 << 20)
#define ROUND_NS (UINT64_C(120) * 1000 * 1000) /* of each measurement, and 2 trips */
#define ROUNDS_MAX 99
#define SIZES_MAX 16

enum way { ECHO, ECHO_PLACE, ECHO_PIECES, PUSHPULL, ECHO_MANY, PUSHPULL_MANY, WAYS };
static const char *const way_names[WAYS] = {"echo",     "echo_place", "echo_1MiB",
                                            "pushpull", "echo_many",  "pushpull_many"};

struct bench {
    const char *transport;
    struct zmq_echo *echo;
    penstock_node *node;
    penstock_store *store;
    int only; /* the one way to measure; -1 = all */
    size_t bytes, many;
    uint64_t first_key;
    float *src[MANY_MAX], *dst[MANY_MAX];
    double seconds[WAYS][ROUNDS_MAX]; /* a trip */
};

static bool complain(const struct bench *bench, const char *what)
{
    fprintf(stderr, "store_bench: %s: %s\n", what,
            bench->node != NULL ? penstock_last_error(bench->node) : "failed");
    return false;
}

/* ---- one trip ---- */

static penstock_tensor tensor_of(float *data, const int64_t *count)
{
    return penstock_tensor_of(data, PENSTOCK_FLOAT32, 1, count);
}

static bool pushpull(struct bench *bench, size_t count)
{
    penstock_request *requests[MANY_MAX] = {0};
    int64_t elements = (int64_t)(bench->bytes / sizeof(float));
    int status = 0;
    for (size_t i = 0; i < count && status == 0; i++) {
        penstock_tensor src = tensor_of(bench->src[i], &elements);
        penstock_tensor dst = tensor_of(bench->dst[i], &elements);
        status = penstock_pushpull(bench->store, penstock_key_of(bench->first_key + i),
                                   &src, &dst, 0, NULL, count > 1 ? &requests[i] : NULL);
    }
    for (size_t i = 0; i < count && count > 1; i++) {
        if (requests[i] != NULL) {
            int waited = penstock_request_wait(requests[i], -1);
            status = status == 0 ? waited : status;
            penstock_request_free(requests[i]);
        }
    }
    return status == 0 || complain(bench, "pushpull");
}

static bool echo(struct bench *bench, enum way way)
{
    size_t piece = way == ECHO_PIECES ? PIECE_BYTES : bench->bytes;
    size_t times = way == ECHO_MANY ? bench->many : 1;
    void *place = way == ECHO_PLACE ? bench->dst[0] : NULL;
    return zmq_echo_trip(bench->echo, bench->src[0], bench->bytes, piece, times, place) ==
               PS_OK ||
           complain(bench, "echo");
}

static bool trip(struct bench *bench, enum way way)
{
    switch (way) {
    case PUSHPULL:
        return pushpull(bench, 1);
    case PUSHPULL_MANY:
        return pushpull(bench, bench->many);
    default:
        return echo(bench, way);
    }
}

static bool is_measured(const struct bench *bench, enum way way)
{
    if (bench->only >= 0 && bench->only != (int)way) {
        return false;
    }
    switch (way) {
    case ECHO_PIECES:
        return bench->bytes > PIECE_BYTES;
    case ECHO_MANY:
    case PUSHPULL_MANY:
        return bench->many > 1;
    default:
        return true;
    }
}

static bool measure(struct bench *bench, enum way way, double *seconds_out)
{
    struct ps_clock *clock = ps_clock_real();
    uint64_t begin, now;
    size_t trips = 0;
    if (!trip(bench, way)) { /* wakes the other side up */
        return false;
    }
    begin = ps_clock_now_ns(clock);
    do {
        if (!trip(bench, way)) {
            return false;
        }
        trips++;
        now = ps_clock_now_ns(clock);
    } while (now - begin < ROUND_NS || trips < 2);
    *seconds_out = (double)(now - begin) / 1e9 / (double)trips;
    if (way == ECHO_MANY || way == PUSHPULL_MANY) {
        *seconds_out /= (double)bench->many;
    }
    return true;
}

/* ---- rows ---- */

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(const double *values, size_t count)
{
    double sorted[ROUNDS_MAX];
    memcpy(sorted, values, count * sizeof(*values));
    qsort(sorted, count, sizeof(*sorted), ascending);
    return sorted[count / 2];
}

static void row(const struct bench *bench, enum way way, const char *metric, double value)
{
    printf("R,store,%s/%s,%zu,%s,%.3f\n", bench->transport, way_names[way], bench->bytes,
           metric, value);
}

static void row_ratio(const struct bench *bench, enum way way, enum way peer,
                      size_t rounds)
{
    if (!is_measured(bench, way) || !is_measured(bench, peer)) {
        return;
    }
    double ratios[ROUNDS_MAX];
    char metric[32];
    for (size_t i = 0; i < rounds; i++) {
        ratios[i] = bench->seconds[peer][i] / bench->seconds[way][i];
    }
    snprintf(metric, sizeof(metric), "of_%s", way_names[peer]);
    row(bench, way, metric, median(ratios, rounds));
}

static void print_rows(const struct bench *bench, size_t rounds)
{
    for (enum way way = 0; way < WAYS; way++) {
        if (is_measured(bench, way)) {
            double seconds = median(bench->seconds[way], rounds);
            row(bench, way, "us_rtt", seconds * 1e6);
            row(bench, way, "GB/s", 2e-9 * (double)bench->bytes / seconds);
        }
    }
    row_ratio(bench, PUSHPULL, ECHO, rounds);
    row_ratio(bench, PUSHPULL, ECHO_PLACE, rounds);
    row_ratio(bench, PUSHPULL, ECHO_PIECES, rounds);
    row_ratio(bench, PUSHPULL_MANY, ECHO_MANY, rounds);
    (void)fflush(stdout);
}

/* ---- one size ---- */

static bool fill(struct bench *bench)
{
    size_t count = bench->bytes / sizeof(float);
    int64_t elements = (int64_t)count;
    for (size_t i = 0; i < bench->many; i++) {
        bench->src[i] = ps_mem_alloc(bench->bytes);
        bench->dst[i] = ps_mem_calloc(bench->bytes);
        if (bench->src[i] == NULL || bench->dst[i] == NULL) {
            return complain(bench, "memory");
        }
        for (size_t k = 0; k < count; k++) {
            bench->src[i][k] = (float)((k + i) % 1000); /* exact in f32 */
        }
        penstock_tensor value = tensor_of(bench->dst[i], &elements);
        if (penstock_init(bench->store, penstock_key_of(bench->first_key + i), &value) !=
            0) {
            return complain(bench, "init");
        }
    }
    return true;
}

/* Without an optimizer and with one worker a pushpull brings back what it took. */
static bool check(struct bench *bench)
{
    if (!pushpull(bench, bench->many)) {
        return false;
    }
    for (size_t i = 0; i < bench->many; i++) {
        if (memcmp(bench->src[i], bench->dst[i], bench->bytes) != 0) {
            fprintf(stderr, "store_bench: %zu bytes: the store returned other values\n",
                    bench->bytes);
            return false;
        }
    }
    return true;
}

static bool run_size(struct bench *bench, size_t bytes, size_t rounds)
{
    bench->bytes = bytes;
    bench->many = PS_MAX(PS_MIN(MANY_BYTES / bytes, (size_t)MANY_MAX), (size_t)1);
    bool good = fill(bench) && check(bench);
    for (size_t i = 0; i < rounds && good; i++) {
        for (size_t k = 0; k < WAYS && good; k++) {
            /* forwards and backwards in turn: nobody always follows the same one */
            enum way way = (enum way)(i % 2 == 0 ? k : WAYS - 1 - k);
            if (is_measured(bench, way)) {
                good = measure(bench, way, &bench->seconds[way][i]);
            }
        }
    }
    good = good && check(bench);
    if (good) {
        print_rows(bench, rounds);
    }
    for (size_t i = 0; i < bench->many; i++) {
        ps_mem_free(bench->src[i]);
        ps_mem_free(bench->dst[i]);
        bench->src[i] = bench->dst[i] = NULL;
    }
    bench->first_key += bench->many;
    return good;
}

/* ---- the program ---- */

static bool open_all(struct bench *bench, const char *ipc_path)
{
    char url[128] = "tcp://127.0.0.1:*";
    if (ipc_path != NULL) {
        snprintf(url, sizeof(url), "ipc://%s", ipc_path);
    }
    bench->transport = ipc_path != NULL ? "ipc" : "tcp";
    if (zmq_echo_start(url, &bench->echo) != PS_OK) {
        return complain(bench, "echo");
    }
    char error[256] = "";
    if (penstock_open_explained(NULL, &bench->node, error) != 0) {
        fprintf(stderr, "store_bench: %s\n", error);
        return false;
    }
    return penstock_store_create(bench->node, "dist_sync", NULL, &bench->store) == 0 ||
           complain(bench, "store");
}

struct options {
    bool ipc;
    int only;
    size_t rounds, size_count;
    size_t sizes[SIZES_MAX];
};

static int way_of(const char *name)
{
    for (int way = 0; way < WAYS; way++) {
        if (strcmp(name, way_names[way]) == 0) {
            return way;
        }
    }
    return -1;
}

static bool parse_flags(int argc, char **argv, int *at, struct options *options)
{
    for (; *at < argc && argv[*at][0] == '-'; ++*at) {
        const char *flag = argv[*at];
        int64_t rounds = 0;
        if (strcmp(flag, "-u") == 0) {
            options->ipc = true;
        } else if (++*at == argc) {
            return false;
        } else if (strcmp(flag, "-w") == 0 && way_of(argv[*at]) >= 0) {
            options->only = way_of(argv[*at]);
        } else if (strcmp(flag, "-r") == 0 && ps_parse_i64(argv[*at], &rounds) == PS_OK &&
                   rounds > 0 && rounds <= ROUNDS_MAX) {
            options->rounds = (size_t)rounds;
        } else {
            return false;
        }
    }
    return true;
}

static bool parse(int argc, char **argv, struct options *options)
{
    int at = 1;
    if (!parse_flags(argc, argv, &at, options)) {
        return false;
    }
    if (at < argc) {
        options->size_count = 0;
    }
    for (; at < argc; at++) {
        int64_t bytes;
        if (options->size_count == SIZES_MAX || ps_parse_i64(argv[at], &bytes) != PS_OK ||
            bytes < 4 || bytes % 4 != 0 || bytes > INT64_C(1) << 30) {
            return false;
        }
        options->sizes[options->size_count++] = (size_t)bytes;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options options = {.only = -1,
                              .rounds = 7,
                              .size_count = 7,
                              .sizes = {4u << 10, 64u << 10, 256u << 10, 1u << 20,
                                        4u << 20, 16u << 20, 64u << 20}};
    char dir[] = "/tmp/penstock-echo-XXXXXX", path[64];
    if (!parse(argc, argv, &options)) {
        fprintf(stderr, "usage: store_bench [-u] [-r ROUNDS] [-w WAY] [BYTES ...]\n"
                        "  -u: the echo uses a unix socket, as the job does\n"
                        "  -w: measures this way alone, for a profiler\n");
        return 64;
    }
    struct bench *bench = calloc(1, sizeof(*bench));
    if (bench == NULL || mkdtemp(dir) == NULL) {
        free(bench);
        return 1;
    }
    snprintf(path, sizeof(path), "%s/socket", dir);
    bench->only = options.only;
    bool good = open_all(bench, options.ipc ? path : NULL);
    for (size_t i = 0; i < options.size_count && good; i++) {
        good = run_size(bench, options.sizes[i], options.rounds);
    }
    if (bench->store != NULL) {
        penstock_store_destroy(bench->store);
    }
    penstock_close(bench->node);
    zmq_echo_stop(bench->echo);
    free(bench);
    (void)rmdir(dir);
    return good ? 0 : 1;
}
