/* A whole job in the simulation: 1 scheduler, 3 servers, 4 workers that train with
 * momentum.
 *
 * usage: job_sim_test calm|seeds FIRST COUNT|kill
 *   calm   the same seed gives the same trace; other servers, bounds and chunks the same
 * weights seeds  under delay, reordering, duplication and 10 % loss every seed gives the
 * same weights kill   any one node killed at any fault point: the job ends with an error
 * that names it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"
#include "base/util.h"
#include "tests/support/cluster.h"
#include "tests/support/store_calls.h"

#define WORKERS 4
#define SERVERS 3
#define STEPS 4
#define KEYS 3
#define LIMIT_S 600 /* virtual */

static const int64_t key_counts[KEYS] = {40, 3000, 5000};
static uint64_t first_seed = 1, seed_count = 20; /* of "seeds", from the command line */

struct outcome {
    uint64_t weights; /* hash of what worker 0 pulled at the end */
    struct ps_error errors[WORKERS];
    bool finished[WORKERS];
    uint64_t pause_ns; /* of each worker after each step */
};

static void noop(struct ps_kv_request *request)
{
    PS_UNUSED(request);
}

/* One step of one key: the gradient depends on rank, step, key and element only. */
static enum ps_status step_key(struct ps_kvstore *store, uint32_t rank, uint64_t step,
                               size_t k, float *weights, struct ps_error *err)
{
    size_t count = (size_t)key_counts[k];
    float *grad = malloc(count * sizeof(*grad));
    assert_non_null(grad);
    for (size_t i = 0; i < count; i++) {
        grad[i] = ps_rng_normal_at(rank * 100 + k, step, i);
    }
    const void *src = grad;
    void *dst = weights;
    struct ps_kv_request request = {.op = PS_KV_PUSHPULL,
                                    .key = PS_KEY(k),
                                    .dtype = PS_F32,
                                    .count = count,
                                    .src = &src,
                                    .src_count = 1,
                                    .dst = &dst,
                                    .dst_count = 1,
                                    .done = noop};
    enum ps_status status = ps_kvstore_call(store, &request);
    *err = request.error;
    free(grad);
    return status;
}

static enum ps_status train(struct ps_kvstore *store, struct ps_node *node,
                            uint64_t pause_ns, uint64_t *hash_out, struct ps_error *err)
{
    float *weights[KEYS];
    uint32_t rank = ps_kvstore_rank(store);
    enum ps_status status = PS_OK;
    uint64_t hash = 0;
    for (size_t k = 0; k < KEYS; k++) {
        weights[k] = calloc((size_t)key_counts[k], sizeof(float));
        assert_non_null(weights[k]);
    }
    status = ps_kvstore_set_optimizer(store, "sgd", "learning_rate=0.1,momentum=0.9",
                                      false, err);
    for (size_t k = 0; k < KEYS && status == PS_OK; k++) {
        struct ps_kv_init init = {.key = PS_KEY(k),
                                  .dtype = PS_F32,
                                  .shape = PS_SHAPE(key_counts[k]),
                                  .data = weights[k]};
        status = ps_kvstore_init(store, &init, 1, err);
    }
    for (uint64_t step = 0; step < STEPS && status == PS_OK; step++) {
        for (size_t k = 0; k < KEYS && status == PS_OK; k++) {
            status = step_key(store, rank, step, k, weights[k], err);
        }
        ps_driver_sleep(node->driver, pause_ns);
    }
    if (status == PS_OK) {
        status = ps_kvstore_barrier(store, err);
    }
    for (size_t k = 0; k < KEYS; k++) {
        hash ^=
            ps_hash_bytes(weights[k], (size_t)key_counts[k] * sizeof(float)) * (k + 1);
        free(weights[k]);
    }
    *hash_out = hash;
    return status;
}

static void program(struct cluster *cluster, struct ps_node *node, uint32_t index,
                    void *arg)
{
    PS_UNUSED(cluster);
    struct outcome *outcome = arg;
    struct ps_error *err = &outcome->errors[index];
    struct ps_kvstore *store = NULL;
    struct ps_kvstore_options options = {.node = node, .type = "dist_sync"};
    uint64_t hash = 0;
    enum ps_status status = ps_kvstore_create(&options, &store, err);
    if (status == PS_OK) {
        status = train(store, node, outcome->pause_ns, &hash, err);
        ps_kvstore_destroy(store);
    }
    err->status = status;
    if (index == 0) {
        outcome->weights = hash;
    }
    outcome->finished[index] = true;
}

struct job {
    uint64_t seed;
    uint32_t servers;
    const char *extra; /* a setting, or NULL */
    const struct ps_net_weather *weather;
};

/* A job that must end well; returns the trace's hash. */
static uint64_t run_job(const struct job *job, struct outcome *outcome)
{
    const char *settings[] = {"RESEND=1",
                              "RESEND_TIMEOUT_MS=50",
                              "KVSTORE_BIGARRAY_BOUND=1000",
                              "CHUNK_BYTES=4096",
                              job->extra,
                              NULL};
    struct cluster_options options = {.transport = "sim",
                                      .workers = WORKERS,
                                      .servers = job->servers,
                                      .seed = job->seed,
                                      .settings = settings,
                                      .weather = job->weather};
    memset(outcome, 0, sizeof(*outcome));
    struct cluster *cluster = cluster_create(&options);
    bool ended = cluster_run(cluster, program, outcome, LIMIT_S);
    for (uint32_t i = 0; i < WORKERS; i++) {
        if (!ended || outcome->errors[i].status != PS_OK) {
            fail_msg("seed %" PRIu64 " worker %" PRIu32 "%s: %s", job->seed, i,
                     ended ? "" : " did not end", outcome->errors[i].text);
        }
    }
    cluster_end(cluster);
    assert_int_equal(cluster_scheduler_result(cluster).status, PS_OK);
    uint64_t hash = ps_sim_trace_hash(cluster_sim(cluster));
    cluster_destroy(cluster);
    return hash;
}

static void the_same_seed_gives_the_same_trace(void **state)
{
    PS_UNUSED(state);
    struct outcome a, b, c;
    static const struct ps_net_weather breeze = {.delay_min_ns = 10 * PS_NS_PER_US,
                                                 .delay_max_ns = 3 * PS_NS_PER_MS,
                                                 .drop = 0.05,
                                                 .duplicate = 0.05};
    struct job job = {.seed = 42, .servers = SERVERS, .weather = &breeze};
    uint64_t first = run_job(&job, &a);
    uint64_t second = run_job(&job, &b);
    assert_true(first == second);
    job.seed = 43;
    assert_true(run_job(&job, &c) != first);
    assert_true(a.weights == b.weights && a.weights == c.weights);
}

static void case_032_weights_do_not_depend_on_servers_bounds_or_chunks(void **state)
{
    PS_UNUSED(state);
    static const char *const extras[] = {"KVSTORE_BIGARRAY_BOUND=1e6",
                                         "KVSTORE_BIGARRAY_BOUND=1e9",
                                         "CHUNK_BYTES=65536", "SERVER_LANES=3"};
    struct outcome reference, other;
    struct job job = {.seed = 1, .servers = 1};
    (void)run_job(&job, &reference);
    for (job.servers = 2; job.servers <= 3; job.servers++) {
        (void)run_job(&job, &other);
        assert_true(other.weights == reference.weights);
    }
    job.servers = 2;
    for (size_t i = 0; i < PS_COUNT(extras); i++) {
        job.extra = extras[i];
        (void)run_job(&job, &other);
        assert_true(other.weights == reference.weights);
    }
}

static void every_seed_gives_the_same_weights_in_bad_weather(void **state)
{
    PS_UNUSED(state);
    static const struct ps_net_weather storm = {.delay_min_ns = 10 * PS_NS_PER_US,
                                                .delay_max_ns = 20 * PS_NS_PER_MS,
                                                .drop = 0.10,
                                                .duplicate = 0.05};
    struct outcome reference, other;
    struct job job = {.seed = 1, .servers = SERVERS};
    (void)run_job(&job, &reference);
    job.weather = &storm;
    for (uint64_t seed = first_seed; seed < first_seed + seed_count; seed++) {
        job.seed = seed;
        (void)run_job(&job, &other);
        if (other.weights != reference.weights) {
            fail_msg("seed %" PRIu64 ": other weights", seed);
        }
    }
}

/* ---- one node killed ---- */

#define NODES (1 + SERVERS + WORKERS)

/* What the others must say: "server 1", "worker 2", "scheduler". */
static void victim_name(uint32_t victim, char sim_name[32], char says[32])
{
    if (victim == 0) {
        (void)snprintf(sim_name, 32, "scheduler/0");
        (void)snprintf(says, 32, "scheduler");
    } else if (victim <= SERVERS) {
        (void)snprintf(sim_name, 32, "server/%" PRIu32, victim - 1);
        (void)snprintf(says, 32, "server %" PRIu32, victim - 1);
    } else {
        (void)snprintf(sim_name, 32, "worker/%" PRIu32, victim - 1 - SERVERS);
        (void)snprintf(says, 32, "worker %" PRIu32, victim - 1 - SERVERS);
    }
}

struct kill_run {
    struct outcome outcome;
    uint32_t victim;
    const struct ps_fault_rule *rule;
};

static void kill_program(struct cluster *cluster, struct ps_node *node, uint32_t index,
                         void *arg)
{
    struct kill_run *run = arg;
    if (run->victim == 1 + SERVERS + index) {
        assert_int_equal(ps_faults_arm(node->faults, run->rule), PS_OK);
    }
    program(cluster, node, index, &run->outcome);
}

/* Returns whether the victim passed the point, and so was killed. */
static bool kill_at(uint32_t victim, const char *point, uint64_t nth)
{
    static const char *const settings[] = {"RESEND=1",
                                           "RESEND_TIMEOUT_MS=50",
                                           "HEARTBEAT_MS=100",
                                           "HEARTBEAT_TIMEOUT_MS=2000",
                                           "REQUEST_TIMEOUT_MS=20000",
                                           "KVSTORE_BIGARRAY_BOUND=1000",
                                           "CHUNK_BYTES=4096",
                                           NULL};
    struct ps_fault_rule rule = {.point = point, .action = PS_FAULT_KILL, .nth = nth};
    struct kill_run run = {.victim = victim, .rule = &rule};
    run.outcome.pause_ns = 100 * PS_NS_PER_MS; /* so that heartbeats are due */
    char name[32], says[32];
    victim_name(victim, name, says);
    struct cluster_options options = {.transport = "sim",
                                      .workers = WORKERS,
                                      .servers = SERVERS,
                                      .seed = 7,
                                      .settings = settings,
                                      .keep_log = true};
    struct cluster *cluster = cluster_create(&options);
    if (victim == 0) {
        assert_int_equal(ps_faults_arm(cluster_scheduler_node(cluster)->faults, &rule),
                         PS_OK);
    } else if (victim <= SERVERS) {
        assert_int_equal(
            ps_faults_arm(cluster_server_node(cluster, victim - 1)->faults, &rule),
            PS_OK);
    }
    bool ended = cluster_run(cluster, kill_program, &run, LIMIT_S);
    bool killed = ps_sim_node_is_killed(cluster_sim(cluster), name);
    for (uint32_t i = 0; i < WORKERS; i++) {
        const struct ps_error *err = &run.outcome.errors[i];
        if (victim == 1 + SERVERS + i && killed) {
            continue;
        }
        if (!ended || !run.outcome.finished[i] ||
            (err->status != PS_OK && strstr(err->text, says) == NULL)) {
            (void)fputs(cluster_log(cluster), stderr);
        }
        if (!ended || !run.outcome.finished[i]) {
            fail_msg("%s killed at %s (%" PRIu64 "): worker %" PRIu32 " never ends", name,
                     point, nth, i);
        }
        if (!killed && err->status != PS_OK) {
            fail_msg("nobody killed at %s: worker %" PRIu32 ": %s", point, i, err->text);
        }
        if (err->status != PS_OK && strstr(err->text, says) == NULL) {
            fail_msg("%s killed at %s (%" PRIu64 "): worker %" PRIu32 " says: %s", name,
                     point, nth, i, err->text);
        }
    }
    cluster_abandon(cluster, name);
    return killed;
}

static void any_node_killed_anywhere_is_named(void **state)
{
    PS_UNUSED(state);
    const char *const *points = ps_fault_points();
    for (size_t p = 0; points[p] != NULL; p++) {
        uint32_t passed = 0;
        if (strncmp(points[p], "test.", 5) == 0 ||
            strncmp(points[p], "device.", 7) == 0) {
            continue; /* fault_test's own; those of accelerators, which no node here has
                       */
        }
        for (uint32_t victim = 0; victim < NODES; victim++) {
            passed += kill_at(victim, points[p], 1) ? 1 : 0;
            passed += kill_at(victim, points[p], 3) ? 1 : 0;
        }
        print_message("%s: %" PRIu32 " kills\n", points[p], passed);
        if (passed == 0 && strcmp(points[p], "scheduler.before_quorum") != 0) {
            fail_msg("no node passes %s", points[p]);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest calm[] = {
        cmocka_unit_test(the_same_seed_gives_the_same_trace),
        cmocka_unit_test(case_032_weights_do_not_depend_on_servers_bounds_or_chunks),
    };
    const struct CMUnitTest seeds[] = {
        cmocka_unit_test(every_seed_gives_the_same_weights_in_bad_weather)};
    const struct CMUnitTest kill[] = {
        cmocka_unit_test(any_node_killed_anywhere_is_named)};
    if (argc == 2 && strcmp(argv[1], "calm") == 0) {
        return cmocka_run_group_tests(calm, NULL, NULL);
    }
    if (argc == 4 && strcmp(argv[1], "seeds") == 0 &&
        ps_parse_u64(argv[2], &first_seed) == PS_OK &&
        ps_parse_u64(argv[3], &seed_count) == PS_OK) {
        return cmocka_run_group_tests(seeds, NULL, NULL);
    }
    if (argc == 2 && strcmp(argv[1], "kill") == 0) {
        return cmocka_run_group_tests(kill, NULL, NULL);
    }
    (void)fprintf(stderr, "usage: %s calm | seeds FIRST COUNT | kill\n", argv[0]);
    return 64;
}
