/* penstock server: a server as a process.
 * Thread: main waits; signals are heard on the node's loop (base/signals.h). */
#include "server/commands.h"

#include "base/options.h"
#include "base/signals.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

struct server_command {
    int64_t lanes, rank; /* -1: not given */
    const char *root;    /* NULL: not given */
    struct ps_node *node;
    struct ps_server *server;
    struct ps_signals signals;
};

static void on_signal(void *ctx, int number)
{
    struct server_command *command = ctx;
    char why[32];
    (void)snprintf(why, sizeof(why), "signal %d", number);
    ps_server_stop(command->server, why);
}

static int exit_of(const struct server_command *command, const struct ps_error *result)
{
    int number = atomic_load(&command->signals.number);
    if (result->status == PS_OK) {
        return PS_EXIT_OK;
    }
    if (number != 0) {
        return 128 + number;
    }
    fprintf(stderr, "penstock server: %s\n", result->text);
    return result->status == PS_EABORT ? PS_EXIT_PEER : ps_exit_code(result->status);
}

static int run_server(struct server_command *command)
{
    struct ps_error err = {0}, result = {0};
    struct ps_server_options options = {
        .node = command->node,
        .lanes = command->lanes > 0 ? (uint32_t)command->lanes : 0};
    enum ps_status status = ps_server_open(&options, &command->server, &err);
    if (status != PS_OK) {
        fprintf(stderr, "penstock server: %s\n", err.text);
        int code = ps_exit_code(status);
        return code == PS_EXIT_FAIL ? PS_EXIT_CONFIG : code;
    }
    int code = PS_EXIT_FAIL;
    status = ps_signals_open(&command->signals, command->node->loop, on_signal, command);
    if (status == PS_OK) {
        status = ps_server_wait(command->server, PS_NEVER, &result);
        ps_signals_close(&command->signals);
    }
    if (status == PS_OK) {
        code = exit_of(command, &result);
    } else {
        fprintf(stderr, "penstock server: %s\n", ps_status_text(status));
    }
    ps_server_close(command->server);
    return code;
}

static int open_and_run(struct server_command *command)
{
    char rank[32], root[512];
    const char *overrides[4] = {"ROLE=server", NULL, NULL, NULL};
    size_t n = 1;
    struct ps_error err = {0};
    if (command->rank >= 0) {
        (void)snprintf(rank, sizeof(rank), "RANK=%" PRId64, command->rank);
        overrides[n++] = rank;
    }
    if (command->root != NULL) {
        (void)snprintf(root, sizeof(root), "ROOT_URI=%s", command->root);
        overrides[n++] = root;
    }
    struct ps_node_options options = {.name = "server", .overrides = overrides};
    enum ps_status status = ps_node_open(&options, &command->node, &err);
    if (status != PS_OK) {
        fprintf(stderr, "penstock server: %s\n", err.text);
        return PS_EXIT_CONFIG;
    }
    int code = run_server(command);
    ps_node_close(command->node);
    return code;
}

int ps_cmd_server(int argc, char **argv)
{
    struct server_command command = {.lanes = -1, .rank = -1};
    const struct ps_option options[] = {
        {.name = "root",
         .type = PS_OPT_TEXT,
         .out = &command.root,
         .value_name = "HOST|URL",
         .doc = "the scheduler's host or whole address (else ROOT_URI)"},
        {.name = "rank",
         .type = PS_OPT_INT,
         .out = &command.rank,
         .min = 0,
         .max = 65535,
         .value_name = "N",
         .doc = "the rank to ask for (else RANK)"},
        {.name = "lanes",
         .type = PS_OPT_INT,
         .out = &command.lanes,
         .min = 1,
         .max = 256,
         .value_name = "N",
         .doc = "threads that own shards (else SERVER_LANES)"}};
    const struct ps_command about = {
        .name = "penstock server",
        .synopsis = "penstock server [options]",
        .summary = "Keeps shards of a job's parameters until the job ends. Sizes and "
                   "addresses come from\nNUM_WORKER, NUM_SERVER, ROOT_URI, ROOT_PORT "
                   "(DMLC_*).",
        .options = options,
        .option_count = PS_COUNT(options)};
    struct ps_error err = {0};
    bool help = false;
    int operand = argc;
    enum ps_status status = ps_options_parse(&about, argc, argv, &operand, &help, &err);
    if (status == PS_OK && !help && operand < argc) {
        status = ps_error_set(&err, PS_EINVAL, "unexpected argument '%s'", argv[operand]);
    }
    if (status != PS_OK) {
        fprintf(stderr, "penstock server: %s\n", err.text);
        return PS_EXIT_USAGE;
    }
    if (help) {
        return PS_EXIT_OK;
    }
    /* Before any thread starts, so that the signals go to the descriptor alone. */
    ps_signals_block(&command.signals);
    int code = open_and_run(&command);
    ps_signals_restore(&command.signals);
    return code;
}
