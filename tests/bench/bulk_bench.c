/* What bulk saves: the same networks bound with it and without it, run in turn.
 *
 *   bulk_bench [-r ROUNDS] [-e TYPE] [-p] [NAME]
 *
 * Chains of 120 operators of about 0 and 1 microseconds and of 45 of about 10 (one
 * element; as many as a calibration says), training and inference, and a bucketing LSTM:
 * three lengths, their executors sharing one pool of memory, alternating.  In each round
 * every variant runs once, in turn; a round's ratio is of neighbours in time.  -p pushes
 * operations one by one instead of replaying captured steps; -e is an enum
 * ps_engine_type.  NAME: only rows that begin so ("chain_0us", "lstm").
 *
 * Rows: R,bulk,NAME,0,METRIC,VALUE with ns_per_op_on, ns_per_op_off (an operator of the
 * network, medians), speedup (median of the rounds' ratios off / on), speedup_quiet (of
 * the tenth of the rounds that was shortest for each), operations_on. */
#include "base/clock.h"
#include "base/node.h"
#include "base/str.h"
#include "engine/graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 3, MOST_ROUNDS = 1000 };

struct bench {
    struct ps_node *node;
    struct ps_kernels *kernels;
    struct ps_engine *engine;
    struct ps_error err;
    int64_t rounds;
    int replay;
    const char *only; /* NULL: everything */
};

/* A network in one of the two ways: one executor, or one for each bucket. */
struct net {
    struct ps_executor *executors[BUCKETS];
    size_t count;
    size_t operators, operations; /* of all executors, forward and backward */
};

static _Noreturn void die(const struct bench *bench, const char *what)
{
    fprintf(stderr, "bulk_bench: %s: %s\n", what, bench->err.text);
    exit(1);
}

/* ---- networks ---- */

static struct ps_symbol *finish(struct bench *bench, struct ps_builder *b,
                                struct ps_symbol *x)
{
    struct ps_symbol *symbol;
    if (ps_builder_finish(b, x, &symbol, &bench->err) != PS_OK) {
        die(bench, "network");
    }
    ps_builder_destroy(b);
    return symbol;
}

static struct ps_builder *builder(struct bench *bench)
{
    struct ps_builder *b;
    if (ps_builder_create(&b) != PS_OK) {
        die(bench, "out of memory");
    }
    return b;
}

static struct ps_symbol *chain(struct bench *bench, int length)
{
    struct ps_builder *b = builder(bench);
    struct ps_symbol *x = ps_builder_variable(b, "data");
    for (int i = 0; i < length; i++) {
        x = ps_builder_op(b, "negative", NULL, NULL, x);
    }
    return finish(bench, b, ps_builder_op(b, "MakeLoss", "loss", NULL, x));
}

/* One step of an LSTM; '*h' and '*c' go to the next. */
static void lstm_step(struct ps_builder *b, struct ps_symbol *x, int units,
                      struct ps_symbol **weights, struct ps_symbol **h,
                      struct ps_symbol **c)
{
    const char *four = ps_builder_text(b, "num_hidden=%d", 4 * units);
    struct ps_symbol *gates =
        ps_builder_op(b, "FullyConnected", NULL, four, x, weights[0], weights[1]);
    if (*h != NULL) {
        gates = ps_builder_op(
            b, "elemwise_add", NULL, NULL, gates,
            ps_builder_op(b, "FullyConnected", NULL, four, *h, weights[2], weights[3]));
    }
    struct ps_symbol *parts =
        ps_builder_op(b, "SliceChannel", NULL, "num_outputs=4", gates);
    struct ps_symbol *g[4];
    for (size_t i = 0; i < 4; i++) {
        g[i] = ps_builder_op(b, i == 3 ? "tanh" : "sigmoid", NULL, NULL,
                             ps_builder_output(b, parts, i));
    }
    struct ps_symbol *next = ps_builder_op(b, "elemwise_mul", NULL, NULL, g[0], g[3]);
    if (*c != NULL) {
        next = ps_builder_op(b, "elemwise_add", NULL, NULL, next,
                             ps_builder_op(b, "elemwise_mul", NULL, NULL, g[1], *c));
    }
    *c = next;
    *h = ps_builder_op(b, "elemwise_mul", NULL, NULL, g[2],
                       ps_builder_op(b, "tanh", NULL, NULL, next));
}

/* data [N, T * units], one vector for each step. */
static struct ps_symbol *lstm(struct bench *bench, int steps, int units)
{
    static const char *const names[] = {"i2h_weight", "i2h_bias", "h2h_weight",
                                        "h2h_bias"};
    struct ps_builder *b = builder(bench);
    struct ps_symbol *weights[4], *h = NULL, *c = NULL;
    struct ps_symbol *data = ps_builder_op(b, "SliceChannel", "steps",
                                           ps_builder_text(b, "num_outputs=%d", steps),
                                           ps_builder_variable(b, "data"));
    for (size_t i = 0; i < PS_COUNT(names); i++) {
        weights[i] = ps_builder_variable(b, names[i]);
    }
    for (int t = 0; t < steps; t++) {
        lstm_step(b, ps_builder_output(b, data, (size_t)t), units, weights, &h, &c);
    }
    h = ps_builder_op(b, "FullyConnected", "fc", "num_hidden=10", h);
    return finish(bench, b, ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, h));
}

static void bind(struct bench *bench, struct net *net, struct ps_symbol *symbol,
                 struct ps_shape data, int bulk, enum ps_grad_req req)
{
    static const char *const no_gradient[] = {"softmax_label", NULL};
    struct ps_named_shape shape = {"data", data};
    struct ps_simple_bind bind = {
        .shapes = &shape, .shape_count = 1, .req = req, .no_gradient = no_gradient};
    struct ps_bind_options options = PS_BIND_OPTIONS(bench->engine, bench->kernels);
    struct ps_executor **made = &net->executors[net->count];
    options.bulk = bulk;
    options.replay = bench->replay;
    options.threads = 1;
    options.shared = net->count > 0 ? net->executors[0] : NULL;
    if (ps_executor_simple_bind(symbol, &options, &bind, made, &bench->err) != PS_OK) {
        die(bench, "bind");
    }
    struct ps_executor_memory memory;
    ps_executor_memory(*made, &memory);
    net->operators += memory.operator_count;
    net->operations += memory.operation_count;
    net->count++;
}

static void unbind(struct net *net)
{
    for (size_t i = 0; i < net->count; i++) {
        ps_executor_destroy(net->executors[i]);
    }
}

/* ---- measuring ---- */

static bool chosen(const struct bench *bench, const char *name)
{
    return bench->only == NULL || strncmp(name, bench->only, strlen(bench->only)) == 0;
}

/* Nanoseconds of an operator over 'steps' training steps of each executor in turn. */
static double run(struct bench *bench, const struct net *net, int steps, bool training)
{
    uint64_t start = ps_clock_now_ns(bench->node->clock);
    for (int s = 0; s < steps; s++) {
        for (size_t i = 0; i < net->count; i++) {
            if (ps_executor_forward(net->executors[i], training, &bench->err) != PS_OK ||
                (training &&
                 ps_executor_backward(net->executors[i], NULL, &bench->err) != PS_OK)) {
                die(bench, "run");
            }
        }
    }
    if (ps_engine_wait_all(bench->engine, &bench->err) != PS_OK) {
        die(bench, "run");
    }
    double took = (double)(ps_clock_now_ns(bench->node->clock) - start);
    return took / ((double)steps * (double)net->operators);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts. */
static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(values[0]), by_value);
    return values[count / 2];
}

static void compare(struct bench *bench, const char *name, const struct net *on,
                    const struct net *off, bool training)
{
    /* shorter than the slices in which a scheduler takes a busy core away, so that many
     * rounds see none of it */
    static const double round_ns = 1e6;
    double *times = calloc(3 * (size_t)bench->rounds, sizeof(times[0]));
    if (times == NULL) {
        die(bench, "out of memory");
    }
    double *with = times, *without = times + bench->rounds,
           *ratios = times + 2 * bench->rounds;
    (void)run(bench, off, 3, training); /* warms up, captures */
    (void)run(bench, on, 3, training);
    double step = run(bench, off, 2, training);
    for (int i = 0; i < 5; i++) {
        step = PS_MIN(step, run(bench, off, 2, training));
    }
    step *= (double)off->operators;
    int steps = (int)(round_ns / step) + 1;
    for (int64_t r = 0; r < bench->rounds; r++) {
        bool first = r % 2 == 0; /* neither is always the second */
        double a = run(bench, first ? on : off, steps, training);
        double b = run(bench, first ? off : on, steps, training);
        with[r] = first ? a : b;
        without[r] = first ? b : a;
        ratios[r] = without[r] / with[r];
    }
    size_t rounds = (size_t)bench->rounds;
    printf("R,bulk,%s,0,ns_per_op_on,%.1f\n", name, median(with, rounds));
    printf("R,bulk,%s,0,ns_per_op_off,%.1f\n", name, median(without, rounds));
    printf("R,bulk,%s,0,speedup,%.3f\n", name, median(ratios, rounds));
    /* sorted by now: the rounds that others' load disturbed least */
    printf("R,bulk,%s,0,speedup_quiet,%.3f\n", name,
           without[rounds / 10] / with[rounds / 10]);
    printf("R,bulk,%s,0,operations_on,%zu\n", name, on->operations);
    free(times);
}

/* Elements for which an operator of the chain takes about 'ns'. */
static int64_t calibrate(struct bench *bench, struct ps_symbol *symbol, double ns)
{
    int64_t elements = 1;
    for (double took = 0; ns > 0 && took < ns && elements < (1 << 22);) {
        struct net net = {0};
        elements += elements / 4 + 1;
        bind(bench, &net, symbol, PS_SHAPE(elements), 1000, PS_GRAD_WRITE);
        (void)run(bench, &net, 3, true);
        took = run(bench, &net, 2, true);
        for (int i = 0; i < 20; i++) { /* the least: what others' load added is not it */
            took = PS_MIN(took, run(bench, &net, 2, true));
        }
        unbind(&net);
    }
    return elements;
}

static void bench_chains(struct bench *bench)
{
    static const struct {
        const char *train, *infer;
        double ns;
        int length; /* a training step stays short beside a scheduler's slice */
    } cases[] = {{"chain_0us", "infer_0us", 0, 120},
                 {"chain_1us", "infer_1us", 1000, 120},
                 {"chain_10us", "infer_10us", 10000, 45}};
    for (size_t i = 0; i < PS_COUNT(cases); i++) {
        if (!chosen(bench, cases[i].train) && !chosen(bench, cases[i].infer)) {
            continue;
        }
        struct ps_symbol *symbol = chain(bench, cases[i].length);
        int64_t elements = calibrate(bench, symbol, cases[i].ns);
        for (int training = 1; training >= 0; training--) {
            const char *name = training ? cases[i].train : cases[i].infer;
            struct net on = {0}, off = {0};
            if (!chosen(bench, name)) {
                continue;
            }
            enum ps_grad_req req = training ? PS_GRAD_WRITE : PS_GRAD_NULL;
            bind(bench, &on, symbol, PS_SHAPE(elements), -1, req);
            bind(bench, &off, symbol, PS_SHAPE(elements), 0, req);
            compare(bench, name, &on, &off, training);
            unbind(&on);
            unbind(&off);
        }
        ps_symbol_release(symbol);
    }
}

/* The longest bucket first: its pool serves the others. */
static void bench_lstm(struct bench *bench, const char *name, int units, int64_t batch)
{
    static const int steps[BUCKETS] = {24, 16, 8};
    struct net on = {0}, off = {0};
    if (!chosen(bench, name)) {
        return;
    }
    for (size_t i = 0; i < BUCKETS; i++) {
        struct ps_symbol *symbol = lstm(bench, steps[i], units);
        struct ps_shape data = PS_SHAPE(batch, (int64_t)steps[i] * units);
        bind(bench, &on, symbol, data, -1, PS_GRAD_WRITE);
        bind(bench, &off, symbol, data, 0, PS_GRAD_WRITE);
        ps_symbol_release(symbol);
    }
    compare(bench, name, &on, &off, true);
    unbind(&on);
    unbind(&off);
}

int main(int argc, char **argv)
{
    struct bench bench = {.rounds = 201, .replay = -1};
    int64_t type = PS_ENGINE_FROM_SETTING;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "-p") == 0) {
            bench.replay = 0;
        } else if (strcmp(argv[i], "-r") == 0 && more &&
                   ps_parse_i64(argv[i + 1], &bench.rounds) == PS_OK &&
                   bench.rounds >= 1 && bench.rounds <= MOST_ROUNDS) {
            i++;
        } else if (strcmp(argv[i], "-e") == 0 && more &&
                   ps_parse_i64(argv[i + 1], &type) == PS_OK && type >= -1 && type <= 3) {
            i++;
        } else if (argv[i][0] != '-') {
            bench.only = argv[i];
        } else {
            fprintf(stderr, "usage: bulk_bench [-r ROUNDS] [-e TYPE] [-p] [NAME]\n");
            return 64;
        }
    }
    struct ps_node_options options = {.name = "bench"};
    if (ps_node_open(&options, &bench.node, &bench.err) != PS_OK ||
        ps_kernels_create(bench.node->settings, bench.node->log, &bench.kernels,
                          &bench.err) != PS_OK ||
        ps_engine_create(bench.node, (int)type, &bench.engine, &bench.err) != PS_OK) {
        die(&bench, "start");
    }
    bench_chains(&bench);
    bench_lstm(&bench, "lstm_16", 16, 1);
    bench_lstm(&bench, "lstm_128", 128, 8);
    ps_engine_destroy(bench.engine);
    ps_kernels_destroy(bench.kernels);
    ps_node_close(bench.node);
    return 0;
}
