/* Opening and closing a node. */
#include "base/node.h"

#include "base/sim.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum ps_status open_log(struct ps_node *node,
                               const struct ps_node_options *options,
                               struct ps_error *err)
{
    const struct ps_settings *settings = node->settings;
    struct ps_error cause = {0};
    struct ps_str spec = {0};
    int64_t verbose = ps_settings_int(settings, PS_SET_VERBOSE);
    /* First, so that a level that LOG gives to net wins. */
    if (verbose > 0) {
        ps_str_printf(&spec, "net=%s,", verbose == 1 ? "debug" : "trace");
    }
    ps_str_printf(&spec, "%s", ps_settings_text(settings, PS_SET_LOG));
    struct ps_log_options log_options = {
        .fd = options->log_fd == 0 ? STDERR_FILENO : options->log_fd,
        .spec = ps_str_text(&spec),
        .json = ps_settings_choice(settings, PS_SET_LOG_FORMAT) == 1,
        .clock = node->clock,
        .sink = options->log_sink,
        .sink_arg = options->log_sink_arg,
    };
    enum ps_status status =
        spec.failed ? PS_ENOMEM : ps_log_create(&log_options, &node->log, &cause);
    ps_str_fini(&spec);
    if (status != PS_OK) {
        return ps_error_set(err, status, "%s: %.200s",
                            ps_settings_variable(settings, PS_SET_LOG), cause.text);
    }
    ps_log_set_name(node->log, node->name);
    return PS_OK;
}

static enum ps_status open_faults(struct ps_node *node, struct ps_error *err)
{
    struct ps_error cause = {0};
    PS_TRY(ps_faults_create(&node->faults));
    enum ps_status status = ps_faults_parse(
        node->faults, ps_settings_text(node->settings, PS_SET_FAULT), &cause);
    return status == PS_OK
               ? PS_OK
               : ps_error_set(err, status, "%s: %.200s",
                              ps_settings_variable(node->settings, PS_SET_FAULT),
                              cause.text);
}

static enum ps_status open_world(struct ps_node *node,
                                 const struct ps_node_options *options)
{
    node->net_world = options->net_world;
    node->fs = options->fs == NULL ? ps_fs_real() : options->fs;
    node->sim = options->sim;
    if (options->sim != NULL) {
        /* On a program of some node, the new node is that one; else it names itself, and
         * what is created from now on belongs to it. */
        const char *current = ps_sim_running_node(options->sim);
        if (current == NULL) {
            ps_sim_enter_node(options->sim, node->name);
            current = node->name;
        }
        (void)snprintf(node->sim_name, sizeof(node->sim_name), "%s", current);
        node->driver = ps_sim_driver(options->sim);
    } else {
        PS_TRY(ps_thread_driver_create(&node->driver));
        node->owns_driver = true;
    }
    node->clock = ps_driver_clock(node->driver);
    return PS_OK;
}

static enum ps_status open_trace(struct ps_node *node, struct ps_error *err)
{
    const struct ps_settings *settings = node->settings;
    static const enum ps_setting_id paths[] = {PS_SET_PROFILER_FILE,
                                               PS_SET_PROFILER_TABLE};
    for (size_t i = 0; i < PS_COUNT(paths); i++) {
        size_t size = strlen(ps_settings_text(settings, paths[i]));
        if (size > PS_TRACE_FILE_MAX) {
            return ps_error_set(err, PS_EINVAL, "%s: a path of %zu bytes, at most %d",
                                ps_settings_variable(settings, paths[i]), size,
                                PS_TRACE_FILE_MAX);
        }
    }
    const struct ps_trace_options options = {
        .clock = node->clock,
        .fs = node->fs,
        .log = node->log,
        .role = ps_settings_text(settings, PS_SET_ROLE),
        .name = node->name,
        .file = ps_settings_text(settings, PS_SET_PROFILER_FILE),
        .table = ps_settings_text(settings, PS_SET_PROFILER_TABLE),
        .mode = (int)ps_settings_int(settings, PS_SET_PROFILER_MODE),
        .autostart = ps_settings_bool(settings, PS_SET_PROFILER_AUTOSTART),
        .simulated = node->sim != NULL,
    };
    return ps_trace_create(&options, &node->trace);
}

static enum ps_status choose_seed(struct ps_node *node)
{
    int64_t seed = ps_settings_int(node->settings, PS_SET_RANDOM_SEED);
    if (seed >= 0) {
        node->seed = (uint64_t)seed;
        return PS_OK;
    }
    if (node->sim != NULL) {
        node->seed = ps_hash_bytes(node->sim_name, strlen(node->sim_name));
        return PS_OK;
    }
    return ps_random_bytes(&node->seed, sizeof(node->seed));
}

enum ps_status ps_node_open(const struct ps_node_options *options,
                            struct ps_node **node_out, struct ps_error *err)
{
    struct ps_error cause = {0};
    struct ps_node *node = calloc(1, sizeof(*node));
    if (node == NULL) {
        return ps_error_set(err, PS_ENOMEM, "node: out of memory");
    }
    enum ps_status status;
    (void)snprintf(node->name, sizeof(node->name), "%s",
                   options->name == NULL ? "node" : options->name);
    PS_TRY_GOTO(
        status,
        ps_settings_load(options->env, options->overrides, &node->settings, &cause),
        fail);
    PS_TRY_GOTO(status, open_world(node, options), fail);
    PS_TRY_GOTO(status, open_log(node, options, &cause), fail);
    PS_TRY_GOTO(status, open_faults(node, &cause), fail);
    PS_TRY_GOTO(status, open_trace(node, &cause), fail);
    PS_TRY_GOTO(status, choose_seed(node), fail);
    PS_TRY_GOTO(status, ps_loop_create(node->driver, "ps-node", &node->loop), fail);
    PS_TRY_GOTO(status, ps_loop_start(node->loop), fail);
    ps_settings_warn(node->settings, node->log);
    *node_out = node;
    return PS_OK;

fail:
    ps_node_close(node);
    return ps_error_set(err, status, "%s",
                        cause.text[0] == '\0' ? ps_status_text(status) : cause.text);
}

void ps_node_close(struct ps_node *node)
{
    if (node == NULL) {
        return;
    }
    ps_loop_stop(node->loop);
    ps_loop_destroy(node->loop);
    ps_trace_destroy(node->trace);
    ps_faults_destroy(node->faults);
    ps_log_destroy(node->log);
    if (node->owns_driver) {
        ps_driver_destroy(node->driver);
    }
    ps_settings_destroy(node->settings);
    free(node);
}

void ps_node_set_name(struct ps_node *node, const char *name)
{
    (void)snprintf(node->name, sizeof(node->name), "%s", name);
    ps_log_set_name(node->log, node->name);
    ps_trace_set_name(node->trace, node->name);
}
