/* The plan of launch_plan.h: names, words and environments of a job's processes.
 *
 * Variables are the ones that MXNet's launcher gave (behaviour.md 6.2 and 6.3):
 * DMLC_ROLE, DMLC_NUM_WORKER, DMLC_NUM_SERVER, DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT,
 * DMLC_TASK_ID (workers from 0, then servers), DMLC_JOB_CLUSTER, DMLC_NUM_ATTEMPT, and
 * the rank that we ask for, DMLC_WORKER_ID or DMLC_SERVER_ID.  Our own spellings of the
 * same settings would win over them, so they are taken out of what is inherited. */
#include "deploy/launch_plan.h"

#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The setting CPU_NNPACK_NTHREADS: workers on one host share its cores. */
#define THREADS_VARIABLE "PENSTOCK_CPU_NNPACK_NTHREADS"

static const char *const role_names[] = {"scheduler", "server", "worker"};

static void name_proc(struct ps_launch_proc *proc)
{
    const char *role = role_names[proc->role];
    if (proc->role == PS_LAUNCH_SCHEDULER) {
        (void)snprintf(proc->name, sizeof(proc->name), "%s", role);
        (void)snprintf(proc->file_name, sizeof(proc->file_name), "%s.log", role);
    } else {
        (void)snprintf(proc->name, sizeof(proc->name), "%s/%u", role, proc->rank);
        (void)snprintf(proc->file_name, sizeof(proc->file_name), "%s-%u.log", role,
                       proc->rank);
    }
}

/* The words of a process: ours for server and scheduler, else the user's command.  A
 * command called plainly "penstock" is this executable, which need not be on the PATH. */
static enum ps_status set_words(const struct ps_launch_request *request,
                                struct ps_launch_proc *proc)
{
    bool users = request->same_command || proc->role == PS_LAUNCH_WORKER;
    size_t count = users ? request->command_count : 4;

    proc->argv = calloc(count + 1, sizeof(*proc->argv));
    if (!proc->argv) {
        return PS_ENOMEM;
    }
    if (users) {
        for (size_t i = 0; i < count; i++) {
            proc->argv[i] = request->command[i];
        }
    } else {
        proc->argv[0] = "penstock";
        proc->argv[1] = role_names[proc->role];
        if (proc->role == PS_LAUNCH_SCHEDULER) {
            proc->argv[2] = "--ready-fd";
            proc->argv[3] = "3"; /* PS_LAUNCH_READY_FD */
        }
    }
    proc->self = strcmp(proc->argv[0], "penstock") == 0;
    /* With a fixed port everybody knows the address already; a user's own program need
     * not report. */
    proc->reports = proc->role == PS_LAUNCH_SCHEDULER && !(users && request->port);
    return PS_OK;
}

enum ps_status ps_launch_plan_create(const struct ps_launch_request *request,
                                     struct ps_launch_plan **plan_out,
                                     struct ps_error *err)
{
    enum ps_status status;
    PS_TRY(ps_launch_env_check("--env", request->env, request->env_count, err));
    PS_TRY(ps_launch_env_check("--env-server", request->env_server,
                               request->env_server_count, err));
    PS_TRY(ps_launch_env_check("--env-worker", request->env_worker,
                               request->env_worker_count, err));

    struct ps_launch_plan *plan = calloc(1, sizeof(*plan));
    if (!plan) {
        return PS_ENOMEM;
    }
    plan->request = request;
    plan->count = 1 + (size_t)request->servers + request->workers;
    plan->procs = calloc(plan->count, sizeof(*plan->procs));
    if (!plan->procs) {
        status = PS_ENOMEM;
        goto fail;
    }
    for (size_t i = 0; i < plan->count; i++) {
        struct ps_launch_proc *proc = &plan->procs[i];
        proc->role = i == 0                  ? PS_LAUNCH_SCHEDULER
                     : i <= request->servers ? PS_LAUNCH_SERVER
                                             : PS_LAUNCH_WORKER;
        proc->rank = proc->role == PS_LAUNCH_WORKER   ? (uint32_t)i - 1 - request->servers
                     : proc->role == PS_LAUNCH_SERVER ? (uint32_t)i - 1
                                                      : 0;
        name_proc(proc);
        PS_TRY_GOTO(status, set_words(request, proc), fail);
    }
    *plan_out = plan;
    return PS_OK;
fail:
    ps_launch_plan_destroy(plan);
    return status;
}

void ps_launch_plan_destroy(struct ps_launch_plan *plan)
{
    if (!plan) {
        return;
    }
    for (size_t i = 0; plan->procs && i < plan->count; i++) {
        free((void *)plan->procs[i].argv);
    }
    free(plan->procs);
    free(plan);
}

static enum ps_status set_root(const struct ps_launch_plan *plan,
                               const struct ps_launch_proc *proc,
                               const struct ps_launch_root *root,
                               struct ps_launch_strings *env)
{
    const struct ps_launch_request *request = plan->request;
    if (proc->role != PS_LAUNCH_SCHEDULER) {
        PS_TRY(ps_launch_env_set(env, "DMLC_PS_ROOT_URI", root->uri));
        return ps_launch_env_set_number(env, "DMLC_PS_ROOT_PORT", root->port);
    }
    if (request->job_dir) {
        struct ps_str uri = {0};
        ps_str_printf(&uri, "ipc://%s/scheduler", request->job_dir);
        enum ps_status status =
            uri.failed ? PS_ENOMEM
                       : ps_launch_env_set(env, "DMLC_PS_ROOT_URI", ps_str_text(&uri));
        ps_str_fini(&uri);
        PS_TRY(status);
    } else {
        PS_TRY(ps_launch_env_set(env, "DMLC_PS_ROOT_URI", "127.0.0.1"));
    }
    return ps_launch_env_set_number(env, "DMLC_PS_ROOT_PORT", request->port);
}

static enum ps_status set_identity(const struct ps_launch_plan *plan,
                                   const struct ps_launch_proc *proc, uint32_t attempt,
                                   struct ps_launch_strings *env)
{
    const struct ps_launch_request *request = plan->request;
    int64_t task = proc->rank;

    PS_TRY(ps_launch_env_set(env, "DMLC_ROLE", role_names[proc->role]));
    PS_TRY(ps_launch_env_set_number(env, "DMLC_NUM_WORKER", request->workers));
    PS_TRY(ps_launch_env_set_number(env, "DMLC_NUM_SERVER", request->servers));
    if (proc->role == PS_LAUNCH_SERVER) {
        PS_TRY(ps_launch_env_set_number(env, "DMLC_SERVER_ID", proc->rank));
        task += request->workers;
    } else if (proc->role == PS_LAUNCH_WORKER) {
        PS_TRY(ps_launch_env_set_number(env, "DMLC_WORKER_ID", proc->rank));
        if (request->worker_threads) {
            PS_TRY(
                ps_launch_env_set_number(env, THREADS_VARIABLE, request->worker_threads));
        }
    }
    if (proc->role != PS_LAUNCH_SCHEDULER) {
        PS_TRY(ps_launch_env_set_number(env, "DMLC_TASK_ID", task));
    }
    PS_TRY(ps_launch_env_set(env, "DMLC_JOB_CLUSTER", "local"));
    PS_TRY(ps_launch_env_set_number(env, "DMLC_NUM_ATTEMPT", attempt));
    PS_TRY(
        ps_launch_env_set(env, "PENSTOCK_TRANSPORT", request->job_dir ? "ipc" : "tcp"));
    if (request->job_dir) {
        PS_TRY(ps_launch_env_set(env, "PENSTOCK_JOB_DIR", request->job_dir));
    }
    if (proc->reports) {
        PS_TRY(ps_launch_env_set_number(env, "PENSTOCK_READY_FD", PS_LAUNCH_READY_FD));
    }
    if (request->start_timeout_ms) {
        PS_TRY(ps_launch_env_set_number(env, "PENSTOCK_START_TIMEOUT_MS",
                                        request->start_timeout_ms));
    }
    return PS_OK;
}

enum ps_status ps_launch_plan_env(const struct ps_launch_plan *plan,
                                  const struct ps_launch_proc *proc,
                                  const struct ps_launch_root *root, uint32_t attempt,
                                  char *const *inherited,
                                  struct ps_launch_strings *env_out)
{
    const struct ps_launch_request *request = plan->request;
    struct ps_launch_strings env = {0};
    enum ps_status status = PS_OK;

    PS_TRY_GOTO(status, ps_launch_env_inherit(&env, inherited), fail);
    PS_TRY_GOTO(status, set_identity(plan, proc, attempt, &env), fail);
    PS_TRY_GOTO(status, set_root(plan, proc, root, &env), fail);
    PS_TRY_GOTO(status, ps_launch_env_put_user(&env, request->env, request->env_count),
                fail);
    if (proc->role == PS_LAUNCH_SERVER) {
        PS_TRY_GOTO(
            status,
            ps_launch_env_put_user(&env, request->env_server, request->env_server_count),
            fail);
    } else if (proc->role == PS_LAUNCH_WORKER) {
        PS_TRY_GOTO(
            status,
            ps_launch_env_put_user(&env, request->env_worker, request->env_worker_count),
            fail);
    }
    *env_out = env;
    return PS_OK;
fail:
    ps_launch_strings_fini(&env);
    return status;
}

enum ps_status ps_launch_parse_root(const char *line, struct ps_launch_root *root_out,
                                    struct ps_error *err)
{
    struct ps_launch_root root = {0};
    const char *space = strchr(line, ' ');
    size_t size = space ? (size_t)(space - line) : 0;
    uint64_t port;

    if (size == 0 || size >= sizeof(root.uri) ||
        ps_parse_u64(space + 1, &port) != PS_OK || port > 65535) {
        return ps_error_set(err, PS_EPROTO,
                            "the scheduler reported '%.100s': expected '<uri> <port>'",
                            line);
    }
    memcpy(root.uri, line, size);
    root.port = (uint16_t)port;
    *root_out = root;
    return PS_OK;
}

/* A word as a shell would need it: bare when it is harmless, else in single quotes. */
static void print_word(struct ps_str *out, const char *word)
{
    static const char harmless[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789_-+=./:,@%";
    if (*word && word[strspn(word, harmless)] == '\0') {
        ps_str_printf(out, "%s", word);
        return;
    }
    ps_str_printf(out, "'");
    for (; *word; word++) {
        if (*word == '\'') {
            ps_str_printf(out, "'\\''");
        } else {
            ps_str_append(out, word, 1);
        }
    }
    ps_str_printf(out, "'");
}

void ps_launch_plan_print(const struct ps_launch_plan *plan, struct ps_str *out)
{
    /* What is only known when the scheduler has bound is shown as it will be reported. */
    struct ps_launch_root root = {.port = plan->request->port};
    if (plan->request->job_dir) {
        (void)snprintf(root.uri, sizeof(root.uri), "ipc://%s/scheduler",
                       plan->request->job_dir);
    } else {
        (void)snprintf(root.uri, sizeof(root.uri), "127.0.0.1");
    }
    for (size_t i = 0; i < plan->count && !out->failed; i++) {
        const struct ps_launch_proc *proc = &plan->procs[i];
        struct ps_launch_strings env = {0};
        if (ps_launch_plan_env(plan, proc, &root, 0, NULL, &env) != PS_OK) {
            out->failed = true;
            return;
        }
        ps_str_printf(out, "# %s\n", proc->name);
        for (size_t e = 0; e < env.count; e++) {
            bool reported = proc->role != PS_LAUNCH_SCHEDULER && root.port == 0 &&
                            !plan->request->job_dir &&
                            strncmp(env.items[e], "DMLC_PS_ROOT_PORT=", 18) == 0;
            size_t size = ps_launch_env_name_size(env.items[e]) + 1;
            ps_str_append(out, env.items[e], size);
            print_word(out, reported ? "REPORTED" : env.items[e] + size);
            ps_str_printf(out, " ");
        }
        for (size_t a = 0; proc->argv[a]; a++) {
            print_word(out, proc->argv[a]);
            ps_str_printf(out, proc->argv[a + 1] ? " " : "\n");
        }
        ps_launch_strings_fini(&env);
    }
}
