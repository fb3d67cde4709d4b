/* penstock scheduler: a scheduler as a process.
 * Thread: main waits; signals are heard on the node's loop (base/signals.h). */
#include "scheduler/commands.h"

#include "base/options.h"
#include "base/signals.h"
#include "base/str.h"
#include "scheduler/scheduler.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct scheduler_command {
    int64_t ready_fd, port; /* -1: not given */
    const char *host;       /* NULL: not given */
    struct ps_node *node;
    struct ps_scheduler *scheduler;
    struct ps_signals signals;
};

/* "tcp://127.0.0.1:45123" -> "127.0.0.1 45123"; other schemes -> "<url> 0". */
static void write_ready(void *ctx, const char *url)
{
    struct scheduler_command *command = ctx;
    const char *colon = strrchr(url, ':');
    int n;
    if (command->ready_fd < 0) {
        return;
    }
    if (strncmp(url, "tcp://", 6) == 0 && colon > url + 6) {
        n = dprintf((int)command->ready_fd, "%.*s %s\n", (int)(colon - url - 6), url + 6,
                    colon + 1);
    } else {
        n = dprintf((int)command->ready_fd, "%s 0\n", url);
    }
    if (n < 0) {
        PS_LOG(command->node->log, WARN, SCHEDULER, "ready fd %" PRId64 ": not written",
               command->ready_fd);
    }
    (void)close((int)command->ready_fd);
    command->ready_fd = -1;
}

static void on_signal(void *ctx, int number)
{
    struct scheduler_command *command = ctx;
    char why[32];
    (void)snprintf(why, sizeof(why), "signal %d", number);
    ps_scheduler_stop(command->scheduler, why);
}

static int exit_of(const struct scheduler_command *command, const struct ps_error *result)
{
    int number = atomic_load(&command->signals.number);
    if (result->status == PS_OK) {
        return PS_EXIT_OK;
    }
    if (number != 0) {
        return 128 + number;
    }
    fprintf(stderr, "penstock scheduler: %s\n", result->text);
    return result->status == PS_EABORT ? PS_EXIT_PEER : ps_exit_code(result->status);
}

static int run_scheduler(struct scheduler_command *command)
{
    struct ps_error err = {0}, result = {0};
    struct ps_scheduler_options options = {
        .node = command->node, .ready = write_ready, .ctx = command};
    int code = PS_EXIT_FAIL;
    enum ps_status status = ps_scheduler_open(&options, &command->scheduler, &err);
    if (status != PS_OK) {
        fprintf(stderr, "penstock scheduler: %s\n", err.text);
        code = ps_exit_code(status);
        return code == PS_EXIT_FAIL ? PS_EXIT_CONFIG : code;
    }
    status = ps_signals_open(&command->signals, command->node->loop, on_signal, command);
    if (status == PS_OK) {
        status = ps_scheduler_wait(command->scheduler, PS_NEVER, &result);
        ps_signals_close(&command->signals);
    }
    if (status == PS_OK) {
        code = exit_of(command, &result);
    } else {
        fprintf(stderr, "penstock scheduler: %s\n", ps_status_text(status));
    }
    ps_scheduler_close(command->scheduler);
    return code;
}

static int open_and_run(struct scheduler_command *command)
{
    char port[40], host[PS_URL_BYTES + 16];
    const char *overrides[3] = {NULL, NULL, NULL};
    size_t n = 0;
    struct ps_error err = {0};
    if (command->port >= 0) {
        (void)snprintf(port, sizeof(port), "ROOT_PORT=%" PRId64, command->port);
        overrides[n++] = port;
    }
    if (command->host != NULL) {
        (void)snprintf(host, sizeof(host), "ROOT_URI=%s", command->host);
        overrides[n++] = host;
    }
    struct ps_node_options options = {.name = "scheduler", .overrides = overrides};
    enum ps_status status = ps_node_open(&options, &command->node, &err);
    if (status != PS_OK) {
        fprintf(stderr, "penstock scheduler: %s\n", err.text);
        return PS_EXIT_CONFIG;
    }
    if (command->ready_fd < 0) { /* a user's program in this role has no such option */
        command->ready_fd = ps_settings_int(command->node->settings, PS_SET_READY_FD);
    }
    int code = run_scheduler(command);
    ps_node_close(command->node);
    return code;
}

int ps_cmd_scheduler(int argc, char **argv)
{
    struct scheduler_command command = {.ready_fd = -1, .port = -1};
    const struct ps_option options[] = {
        {.name = "host",
         .type = PS_OPT_TEXT,
         .out = &command.host,
         .value_name = "HOST",
         .doc = "the root address, a host or a whole url (else ROOT_URI)"},
        {.name = "port",
         .type = PS_OPT_INT,
         .out = &command.port,
         .min = 0,
         .max = 65535,
         .value_name = "N",
         .doc = "the TCP port, 0 for any free one (else ROOT_PORT)"},
        {.name = "ready-fd",
         .type = PS_OPT_INT,
         .out = &command.ready_fd,
         .min = 0,
         .max = 1 << 20,
         .value_name = "N",
         .doc = "write \"<host or url> <port>\" to this descriptor when bound"}};
    const struct ps_command about = {
        .name = "penstock scheduler",
        .synopsis = "penstock scheduler [options]",
        .summary = "Runs the scheduler of a job until the job ends. Sizes and addresses "
                   "come from\nNUM_WORKER, NUM_SERVER, ROOT_URI, ROOT_PORT (DMLC_*).",
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
        fprintf(stderr, "penstock scheduler: %s\n", err.text);
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
