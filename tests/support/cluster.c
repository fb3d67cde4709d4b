/* A job in one process. */
#include "tests/support/cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "base/thread.h"
#include "scheduler/scheduler.h"
#include "server/server.h"

#define SETTINGS_MAX 48
#define TEXT_BYTES 320
#define END_NS (60 * PS_NS_PER_S)

struct node_slot {
    struct ps_node *node;
    struct ps_server *server;
    struct ps_error result;
    char name[32];
    char settings[SETTINGS_MAX][TEXT_BYTES];
    const char *overrides[SETTINGS_MAX + 1];
    size_t setting_count;
    /* worker */
    struct cluster *cluster;
    uint32_t index;
    struct ps_thread thread;
};

struct cluster {
    struct cluster_options options;
    struct ps_sim *sim;
    struct ps_net_world *world;
    struct ps_scheduler *scheduler;
    struct node_slot scheduler_slot;
    struct node_slot *servers, *workers;
    cluster_program program;
    void *arg;
    char dir[128]; /* of unix sockets */
    char root[PS_URL_BYTES];
    struct ps_mutex mutex; /* guards 'log' */
    struct ps_str log;
};

static bool is(const struct cluster *cluster, const char *transport)
{
    return strcmp(cluster->options.transport, transport) == 0;
}

static void take_line(void *arg, const char *line, size_t size)
{
    struct cluster *cluster = arg;
    ps_mutex_lock(&cluster->mutex);
    ps_str_append(&cluster->log, line, size);
    ps_mutex_unlock(&cluster->mutex);
}

__attribute__((format(printf, 2, 3))) static void set(struct node_slot *slot,
                                                      const char *fmt, ...)
{
    va_list args;
    assert_true(slot->setting_count < SETTINGS_MAX);
    va_start(args, fmt);
    (void)vsnprintf(slot->settings[slot->setting_count], TEXT_BYTES, fmt, args);
    va_end(args);
    slot->overrides[slot->setting_count] = slot->settings[slot->setting_count];
    slot->setting_count++;
}

/* Opens the slot's node under the name 'role/index'. */
static void open_node(struct cluster *cluster, struct node_slot *slot, const char *role,
                      uint32_t index)
{
    static const char *const no_env[] = {NULL};
    struct ps_error err = {.status = PS_OK};
    const struct cluster_options *o = &cluster->options;
    slot->setting_count = 0;
    (void)snprintf(slot->name, sizeof(slot->name), "%s/%" PRIu32, role, index);
    set(slot, "NUM_WORKER=%" PRIu32, o->workers);
    set(slot, "NUM_SERVER=%" PRIu32, o->servers);
    set(slot, "RANDOM_SEED=%" PRIu64, o->seed);
    set(slot, "START_TIMEOUT_MS=30000");
    set(slot, "SERVER_LANES=1");
    if (strcmp(role, "scheduler") != 0) {
        set(slot, "ROOT_URI=%s", cluster->root);
        set(slot, "RANK=%" PRIu32, index);
    }
    if (is(cluster, "ipc")) {
        set(slot, "TRANSPORT=ipc");
        set(slot, "JOB_DIR=%s", cluster->dir);
    }
    if (is(cluster, "tcp")) {
        set(slot, "TRANSPORT=tcp");
    }
    for (size_t i = 0; o->settings != NULL && o->settings[i] != NULL; i++) {
        set(slot, "%s", o->settings[i]);
    }
    slot->overrides[slot->setting_count] = NULL;
    struct ps_node_options options = {
        .name = slot->name,
        .env = no_env,
        .overrides = slot->overrides,
        .sim = cluster->sim,
        .net_world = cluster->world,
        .log_sink = take_line,
        .log_sink_arg = cluster,
    };
    if (!o->keep_log) {
        set(slot, "LOG=error");
        slot->overrides[slot->setting_count] = NULL;
    }
    if (cluster->sim != NULL) {
        ps_sim_enter_node(cluster->sim, slot->name);
    }
    if (ps_node_open(&options, &slot->node, &err) != PS_OK) {
        fail_msg("%s: %s", slot->name, err.text);
    }
}

static void leave_node(struct cluster *cluster)
{
    if (cluster->sim != NULL) {
        ps_sim_enter_node(cluster->sim, NULL);
    }
}

static void open_scheduler(struct cluster *cluster)
{
    struct ps_error err = {.status = PS_OK};
    char url[PS_URL_BYTES];
    if (is(cluster, "tcp")) {
        (void)snprintf(url, sizeof(url), "tcp://127.0.0.1:0");
    } else if (is(cluster, "ipc")) {
        (void)snprintf(url, sizeof(url), "ipc://%s/scheduler", cluster->dir);
    } else {
        (void)snprintf(url, sizeof(url), "%s://scheduler", cluster->options.transport);
    }
    open_node(cluster, &cluster->scheduler_slot, "scheduler", 0);
    struct ps_scheduler_options options = {.node = cluster->scheduler_slot.node,
                                           .url = url};
    if (ps_scheduler_open(&options, &cluster->scheduler, &err) != PS_OK) {
        fail_msg("scheduler: %s", err.text);
    }
    (void)snprintf(cluster->root, sizeof(cluster->root), "%s",
                   ps_scheduler_url(cluster->scheduler));
    leave_node(cluster);
}

static void open_server(struct cluster *cluster, uint32_t index)
{
    struct ps_error err = {.status = PS_OK};
    struct node_slot *slot = &cluster->servers[index];
    char url[PS_URL_BYTES];
    bool named = !is(cluster, "tcp"); /* ports choose themselves */
    (void)snprintf(url, sizeof(url), "%s://server-%" PRIu32, cluster->options.transport,
                   index);
    open_node(cluster, slot, "server", index);
    struct ps_server_options options = {.node = slot->node, .url = named ? url : NULL};
    if (ps_server_open(&options, &slot->server, &err) != PS_OK) {
        fail_msg("server %" PRIu32 ": %s", index, err.text);
    }
    leave_node(cluster);
}

struct cluster *cluster_create(const struct cluster_options *options)
{
    struct cluster *cluster = calloc(1, sizeof(*cluster));
    assert_non_null(cluster);
    cluster->options = *options;
    ps_mutex_init(&cluster->mutex);
    if (is(cluster, "sim")) {
        assert_int_equal(ps_sim_create(options->seed, &cluster->sim), PS_OK);
    }
    if (is(cluster, "sim") || is(cluster, "inproc")) {
        assert_int_equal(ps_net_world_create(cluster->sim, &cluster->world), PS_OK);
    }
    if (options->weather != NULL) {
        ps_net_world_set_weather(cluster->world, options->weather);
    }
    if (is(cluster, "ipc")) {
        (void)snprintf(cluster->dir, sizeof(cluster->dir), "/tmp/penstock-test-XXXXXX");
        assert_non_null(mkdtemp(cluster->dir));
    }
    cluster->servers = calloc(options->servers, sizeof(*cluster->servers));
    cluster->workers = calloc(options->workers, sizeof(*cluster->workers));
    assert_non_null(cluster->servers);
    assert_non_null(cluster->workers);
    open_scheduler(cluster);
    for (uint32_t i = 0; i < options->servers; i++) {
        open_server(cluster, i);
    }
    return cluster;
}

static void run_worker(void *arg)
{
    struct node_slot *slot = arg;
    slot->cluster->program(slot->cluster, slot->node, slot->index, slot->cluster->arg);
}

bool cluster_run(struct cluster *cluster, cluster_program program, void *arg,
                 unsigned limit_s)
{
    cluster->program = program;
    cluster->arg = arg;
    bool ended = true;
    for (uint32_t i = 0; i < cluster->options.workers; i++) {
        struct node_slot *slot = &cluster->workers[i];
        slot->cluster = cluster;
        slot->index = i;
        open_node(cluster, slot, "worker", i);
        if (cluster->sim != NULL) {
            assert_int_equal(ps_sim_spawn(cluster->sim, slot->name, run_worker, slot),
                             PS_OK);
        } else {
            assert_int_equal(ps_thread_start(&slot->thread, "worker", run_worker, slot),
                             PS_OK);
        }
        leave_node(cluster);
    }
    if (cluster->sim != NULL) {
        ended = ps_sim_run_programs(cluster->sim, limit_s * PS_NS_PER_S) == PS_OK;
    }
    for (uint32_t i = 0; i < cluster->options.workers; i++) {
        struct node_slot *slot = &cluster->workers[i];
        ps_thread_join(&slot->thread);
        if (cluster->sim == NULL || !ps_sim_node_is_killed(cluster->sim, slot->name)) {
            ps_node_close(slot->node);
        }
        slot->node = NULL;
    }
    return ended;
}

void cluster_end(struct cluster *cluster)
{
    uint64_t deadline = ps_clock_now_ns(cluster->scheduler_slot.node->clock) + END_NS;
    enum ps_status status =
        ps_scheduler_wait(cluster->scheduler, deadline, &cluster->scheduler_slot.result);
    assert_int_equal(status, PS_OK);
    for (uint32_t i = 0; i < cluster->options.servers; i++) {
        struct node_slot *slot = &cluster->servers[i];
        assert_int_equal(ps_server_wait(slot->server, deadline, &slot->result), PS_OK);
    }
}

static void free_cluster(struct cluster *cluster, bool whole)
{
    if (whole) { /* else the killed node still holds loops and ends of them */
        ps_net_world_destroy(cluster->world);
        ps_sim_destroy(cluster->sim);
    }
    if (cluster->dir[0] != '\0') {
        assert_int_equal(rmdir(cluster->dir), 0); /* sockets are gone */
    }
    ps_str_fini(&cluster->log);
    ps_mutex_fini(&cluster->mutex);
    free(cluster->servers);
    free(cluster->workers);
    free(cluster);
}

void cluster_abandon(struct cluster *cluster, const char *killed)
{
    bool whole = !ps_sim_node_is_killed(cluster->sim, killed);
    if (whole || strcmp(killed, cluster->scheduler_slot.name) != 0) {
        ps_scheduler_close(cluster->scheduler);
        ps_node_close(cluster->scheduler_slot.node);
    }
    for (uint32_t i = 0; i < cluster->options.servers; i++) {
        struct node_slot *slot = &cluster->servers[i];
        if (strcmp(killed, slot->name) != 0 ||
            !ps_sim_node_is_killed(cluster->sim, killed)) {
            ps_server_close(slot->server);
            ps_node_close(slot->node);
        }
    }
    free_cluster(cluster, whole);
}

void cluster_destroy(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->options.servers; i++) {
        ps_server_close(cluster->servers[i].server);
        ps_node_close(cluster->servers[i].node);
    }
    ps_scheduler_close(cluster->scheduler);
    ps_node_close(cluster->scheduler_slot.node);
    free_cluster(cluster, true);
}

struct ps_sim *cluster_sim(struct cluster *cluster)
{
    return cluster->sim;
}

struct ps_net_world *cluster_world(struct cluster *cluster)
{
    return cluster->world;
}

const char *cluster_root(const struct cluster *cluster)
{
    return cluster->root;
}

const char *cluster_log(struct cluster *cluster)
{
    return ps_str_text(&cluster->log);
}

struct ps_node *cluster_server_node(struct cluster *cluster, uint32_t rank)
{
    return cluster->servers[rank].node;
}

struct ps_node *cluster_scheduler_node(struct cluster *cluster)
{
    return cluster->scheduler_slot.node;
}

struct ps_error cluster_scheduler_result(const struct cluster *cluster)
{
    return cluster->scheduler_slot.result;
}

struct ps_error cluster_server_result(const struct cluster *cluster, uint32_t rank)
{
    return cluster->servers[rank].result;
}
