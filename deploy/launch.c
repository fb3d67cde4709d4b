/* `penstock launch`: the command line, checked, turned into a plan and run.
 * The flags are those of MXNet's tools/launch.py where it had them (behaviour.md 6.1). */
#include "base/fs.h"
#include "base/options.h"
#include "base/settings.h"
#include "base/thread.h"
#include "base/util.h"
#include "deploy/commands.h"
#include "deploy/launch_child.h"
#include "deploy/launch_hosts.h"
#include "deploy/launch_job.h"
#include "deploy/launch_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HOSTFILE_BYTES_MAX (16U << 20)
/* A unix socket's path has at most 107 bytes; the rest is for the sockets' names. */
#define JOB_DIR_BYTES_MAX 72

extern char **environ;

struct launch_args {
    int64_t workers, servers, port, start_timeout_s, max_restarts;
    const char *launcher, *hostfile, *log_dir, *transport;
    struct ps_option_list env, env_server, env_worker;
    bool dry_run, same_command, p3;
    int64_t start_timeout_ms; /* from the option or the setting */
    uint32_t worker_threads;  /* 0 = the user says */
    char *temp_dir;           /* owned */
};

static const char *const launchers[] = {"local", "ssh", NULL};
static const char *const transports[] = {"tcp", "ipc", NULL};

static enum ps_status parse(struct launch_args *args, int argc, char **argv,
                            int *operand_out, bool *help_out, struct ps_error *err)
{
    const struct ps_option options[] = {
        {"num-workers", 'n', PS_OPT_INT, &args->workers, 1, 4096, NULL, "N",
         "workers to start; required"},
        {"num-servers", 's', PS_OPT_INT, &args->servers, 0, 4096, NULL, "N",
         "servers to start; default: as many as workers"},
        {"launcher", 0, PS_OPT_CHOICE, &args->launcher, 0, 0, launchers, "NAME",
         "where processes run: local; default local, or ssh when a hostfile is given"},
        {"hostfile", 'H', PS_OPT_TEXT, &args->hostfile, 0, 0, NULL, "FILE",
         "hosts, one 'host[:port] [slots=N]' a line"},
        {"env", 0, PS_OPT_LIST, &args->env, 0, 0, NULL, "NAME=VALUE",
         "variable for every process; may be repeated"},
        {"env-server", 0, PS_OPT_LIST, &args->env_server, 0, 0, NULL, "NAME=VALUE",
         "variable for servers"},
        {"env-worker", 0, PS_OPT_LIST, &args->env_worker, 0, 0, NULL, "NAME=VALUE",
         "variable for workers"},
        {"log-dir", 0, PS_OPT_TEXT, &args->log_dir, 0, 0, NULL, "DIR",
         "also write each process's output to DIR/worker-0.log and so on"},
        {"transport", 0, PS_OPT_CHOICE, &args->transport, 0, 0, transports, "NAME",
         "tcp (loopback) or ipc (unix sockets in a private directory)"},
        {"port", 0, PS_OPT_INT, &args->port, 0, 65535, NULL, "N",
         "the scheduler's TCP port; 0: a free one"},
        {"start-timeout", 0, PS_OPT_INT, &args->start_timeout_s, 0, 86400, NULL, "S",
         "seconds for the job's members to come up; 0: as START_TIMEOUT_MS says"},
        {"max-restarts", 0, PS_OPT_INT, &args->max_restarts, 0, 1000, NULL, "N",
         "times a failed worker is started again; also DMLC_NUM_ATTEMPT"},
        {"same-command", 0, PS_OPT_FLAG, &args->same_command, 0, 0, NULL, NULL,
         "run the command in every role, as MXNet's launcher did"},
        {"dry-run", 0, PS_OPT_FLAG, &args->dry_run, 0, 0, NULL, NULL,
         "print what would be started, and start nothing"},
        {"p3", 0, PS_OPT_FLAG, &args->p3, 0, 0, NULL, NULL,
         "accepted: pushes are always cut in chunks and sent by priority"}};
    const struct ps_command command = {
        .name = "penstock launch",
        .synopsis = "penstock launch -n WORKERS [-s SERVERS] [options] [--] command "
                    "[argument...]",
        .summary = "Starts a scheduler, servers and the command as workers on this "
                   "machine, and ends\n"
                   "with the first failing process's exit code, or 0 when every worker "
                   "ended well.",
        .options = options,
        .option_count = PS_COUNT(options),
        .stop_at_operand = true};
    return ps_options_parse(&command, argc, argv, operand_out, help_out, err);
}

static enum ps_status read_hostfile(const char *path, struct ps_error *err)
{
    struct ps_launch_hosts hosts = {0};
    char *text = NULL;
    size_t size = 0;
    PS_TRY(ps_fs_read_all(ps_fs_real(), path, HOSTFILE_BYTES_MAX, &text, &size, err));
    enum ps_status status = ps_launch_hosts_parse(text, path, &hosts, err);
    if (status == PS_OK && strlen(text) != size) {
        status = ps_error_set(err, PS_EINVAL, "%s: has a zero byte in it", path);
    }
    ps_launch_hosts_fini(&hosts);
    free(text);
    return status;
}

/* Which launcher, and whether this version has it. */
static enum ps_status check_launcher(const struct launch_args *args, struct ps_error *err)
{
    const char *launcher = args->launcher   ? args->launcher
                           : args->hostfile ? "ssh"
                                            : "local";
    bool ssh = strcmp(launcher, "ssh") == 0;

    if (ssh && !args->hostfile) {
        return ps_error_set(err, PS_EINVAL,
                            "hostfile required: --launcher ssh needs -H FILE with one "
                            "'host[:port] [slots=N]' a line");
    }
    if (args->hostfile) {
        PS_TRY(read_hostfile(args->hostfile, err));
    }
    if (ssh) {
        return ps_error_set(err, PS_EUNSUPPORTED,
                            "the ssh launcher is not in this version; start 'penstock "
                            "scheduler', 'penstock "
                            "server' and the workers on their hosts by hand, with DMLC_* "
                            "variables (deploy/README.md)");
    }
    return PS_OK;
}

static enum ps_status check_args(struct launch_args *args, bool has_command,
                                 struct ps_error *err)
{
    if (args->workers == 0) {
        return ps_error_set(err, PS_EINVAL, "-n is required: the number of workers");
    }
    if (args->servers < 0) {
        args->servers = args->workers;
    }
    if (args->servers == 0) {
        return ps_error_set(
            err, PS_EINVAL,
            "-s 0: a job has at least one server; to train in one process, run "
            "the command without the launcher and with --kv-store local");
    }
    if (!has_command) {
        return ps_error_set(err, PS_EINVAL, "no command to run as worker");
    }
    return check_launcher(args, err);
}

/* Whether a user's assignment is of setting 'name' under any of its prefixes. */
static bool gives(const struct ps_option_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        const char *found = strstr(list->items[i], name);
        size_t end = strcspn(list->items[i], "=:");
        if (found && (size_t)(found - list->items[i]) + strlen(name) == end) {
            return true;
        }
    }
    return false;
}

/* Workers on one host share its cores, unless the user says how many threads each takes.
 */
static uint32_t worker_threads(const struct launch_args *args,
                               const struct ps_settings *settings)
{
    static const char name[] = "CPU_NNPACK_NTHREADS";
    if (args->workers < 2 || ps_settings_is_set(settings, PS_SET_CPU_NNPACK_NTHREADS) ||
        gives(&args->env, name) || gives(&args->env_worker, name)) {
        return 0;
    }
    int64_t share = ps_cpu_count() / args->workers;
    return (uint32_t)PS_MAX(share, 1);
}

/* What the environment says where the command line does not; a wrong value of any setting
 * is found here, before it fails every process of the job. */
static enum ps_status apply_settings(struct launch_args *args, struct ps_error *err)
{
    struct ps_settings *settings = NULL;
    PS_TRY(ps_settings_load(NULL, NULL, &settings, err));
    if (args->max_restarts < 0) {
        args->max_restarts = ps_settings_int(settings, PS_SET_MAX_RESTARTS);
    }
    if (!args->transport) {
        bool ipc = strcmp(ps_settings_text(settings, PS_SET_TRANSPORT), "ipc") == 0;
        args->transport = ipc ? "ipc" : "tcp";
    }
    if (args->port && strcmp(args->transport, "ipc") == 0) {
        ps_settings_destroy(settings);
        return ps_error_set(err, PS_EINVAL, "--port %lld: unix sockets have no port",
                            (long long)args->port);
    }
    args->start_timeout_ms = args->start_timeout_s
                                 ? args->start_timeout_s * 1000
                                 : ps_settings_int(settings, PS_SET_START_TIMEOUT_MS);
    args->worker_threads = worker_threads(args, settings);
    args->temp_dir = ps_strdup(ps_settings_text(settings, PS_SET_TMPDIR));
    ps_settings_destroy(settings);
    return args->temp_dir ? PS_OK : PS_ENOMEM;
}

/* mkdir -p */
static enum ps_status make_dirs(const char *path, struct ps_error *err)
{
    char *copy = ps_strdup(path);
    if (!copy) {
        return PS_ENOMEM;
    }
    for (char *at = copy + 1;; at++) {
        if (*at != '/' && *at != '\0') {
            continue;
        }
        char end = *at;
        *at = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST) {
            enum ps_status status = ps_error_set(err, PS_EIO, "--log-dir %s: %s: %s",
                                                 path, copy, strerror(errno));
            free(copy);
            return status;
        }
        *at = end;
        if (end == '\0') {
            break;
        }
    }
    free(copy);
    return PS_OK;
}

/* A directory for unix sockets that nobody else can open: mkdtemp makes it 0700. */
static enum ps_status make_job_dir(const char *parent, char out[JOB_DIR_BYTES_MAX],
                                   struct ps_error *err)
{
    int size = snprintf(out, JOB_DIR_BYTES_MAX, "%s/penstock-XXXXXX", parent);
    if (size < 0 || size >= JOB_DIR_BYTES_MAX) {
        return ps_error_set(
            err, PS_EADDR,
            "TMPDIR %s: too long for the paths of unix sockets (at most %d bytes)",
            parent, JOB_DIR_BYTES_MAX - 17);
    }
    if (!mkdtemp(out)) {
        return ps_error_set(err, PS_EIO, "%s: %s", out, strerror(errno));
    }
    return PS_OK;
}

struct work {
    const struct ps_launch_job_options *options;
};

static int work(void *arg, int lifeline_fd)
{
    const struct work *w = arg;
    return ps_launch_job_run(w->options, lifeline_fd);
}

static enum ps_status print_plan(const struct ps_launch_plan *plan)
{
    struct ps_str text = {0};
    ps_launch_plan_print(plan, &text);
    enum ps_status status = text.failed ? PS_ENOMEM : PS_OK;
    if (status == PS_OK) {
        fputs(ps_str_text(&text), stdout);
    }
    ps_str_fini(&text);
    return status;
}

/* Runs or prints the job.  The job's own failures are in '*code_out'. */
static enum ps_status run(const struct launch_args *args, char **command, size_t words,
                          int *code_out, struct ps_error *err)
{
    bool ipc = strcmp(args->transport, "ipc") == 0;
    char job_dir[JOB_DIR_BYTES_MAX] = "JOB_DIR"; /* as --dry-run shows it */
    struct ps_launch_plan *plan = NULL;
    struct ps_launch_request request = {.workers = (uint32_t)args->workers,
                                        .servers = (uint32_t)args->servers,
                                        .command = command,
                                        .command_count = words,
                                        .same_command = args->same_command,
                                        .env = args->env.items,
                                        .env_count = args->env.count,
                                        .env_server = args->env_server.items,
                                        .env_server_count = args->env_server.count,
                                        .env_worker = args->env_worker.items,
                                        .env_worker_count = args->env_worker.count,
                                        .job_dir = ipc ? job_dir : NULL,
                                        .port = (uint16_t)args->port,
                                        .worker_threads = args->worker_threads,
                                        .start_timeout_ms = args->start_timeout_s * 1000};

    PS_TRY(ps_launch_plan_create(&request, &plan, err));
    enum ps_status status = PS_OK;
    if (args->dry_run) {
        status = print_plan(plan);
        *code_out = PS_EXIT_OK;
        goto done;
    }
    if (args->log_dir) {
        PS_TRY_GOTO(status, make_dirs(args->log_dir, err), done);
    }
    if (ipc) {
        PS_TRY_GOTO(status, make_job_dir(args->temp_dir, job_dir, err), done);
    }
    struct ps_launch_job_options options = {.plan = plan,
                                            .log_dir = args->log_dir,
                                            .max_restarts = (uint32_t)args->max_restarts,
                                            .start_timeout_ms = args->start_timeout_ms,
                                            .inherited = environ};
    struct work w = {&options};
    *code_out = ps_launch_front(work, &w, request.job_dir);
done:
    ps_launch_plan_destroy(plan);
    return status;
}

int ps_cmd_launch(int argc, char **argv)
{
    struct launch_args args = {.servers = -1, .max_restarts = -1};
    struct ps_error err = {0};
    int operand = argc;
    bool help = false;
    int code = PS_EXIT_USAGE;

    enum ps_status status = parse(&args, argc, argv, &operand, &help, &err);
    if (status == PS_OK && help) {
        code = PS_EXIT_OK;
        goto done;
    }
    PS_TRY_GOTO(status, status, failed);
    PS_TRY_GOTO(status, check_args(&args, operand < argc, &err), failed);
    if (args.p3) {
        fprintf(stderr,
                "penstock launch: note: --p3 changes nothing: pushes are always cut in "
                "chunks and sent by priority\n");
    }
    code = PS_EXIT_CONFIG;
    PS_TRY_GOTO(status, apply_settings(&args, &err), failed);
    code = PS_EXIT_USAGE;
    PS_TRY_GOTO(status, run(&args, argv + operand, (size_t)(argc - operand), &code, &err),
                failed);
    goto done;
failed:
    fprintf(stderr, "penstock launch: %s\n",
            err.text[0] ? err.text : ps_status_text(status));
done:
    free(args.temp_dir);
    free((void *)args.env.items);
    free((void *)args.env_server.items);
    free((void *)args.env_worker.items);
    return code;
}
