/* What a launch starts: processes, their command lines and environments, before anything
 * runs. Pure: no process, no file but a hostfile's text, so that tests and --dry-run see
 * exactly what a job would be.  launch_job_linux.c runs it. Threads: one. */
#ifndef PENSTOCK_DEPLOY_LAUNCH_PLAN_H
#define PENSTOCK_DEPLOY_LAUNCH_PLAN_H

#include "base/status.h"
#include "base/str.h"
#include "deploy/launch_env.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The descriptor on which a scheduler started by the launcher writes its address. */
#define PS_LAUNCH_READY_FD 3

enum ps_launch_role { PS_LAUNCH_SCHEDULER, PS_LAUNCH_SERVER, PS_LAUNCH_WORKER };

/* Borrows everything; must outlive the plan. */
struct ps_launch_request {
    uint32_t workers, servers; /* both at least 1 */
    char *const *command;      /* the workers' argv, at least one word */
    size_t command_count;
    bool same_command;      /* the command runs in every role */
    const char *const *env; /* "NAME=value" or "NAME:value"; for every role */
    size_t env_count;
    const char *const *env_server; /* servers only */
    size_t env_server_count;
    const char *const *env_worker; /* workers only */
    size_t env_worker_count;
    const char *job_dir;      /* unix sockets go here; NULL = loopback TCP */
    uint16_t port;            /* the scheduler's; 0 = it takes a free one */
    uint32_t worker_threads;  /* of one operation in a worker; 0 = not said */
    int64_t start_timeout_ms; /* 0 = the setting decides */
};

/* One process to start.  Owned by the plan. */
struct ps_launch_proc {
    enum ps_launch_role role;
    uint32_t rank;      /* in the role */
    char name[24];      /* "worker/3", "scheduler": output prefix */
    char file_name[32]; /* "worker-3.log" */
    const char **argv;  /* NULL-terminated, borrows the request's words */
    bool self;          /* runs this executable, whatever argv[0] says */
    bool reports;       /* writes its address to PS_LAUNCH_READY_FD */
};

/* Where the scheduler listens: what it reported. */
struct ps_launch_root {
    char uri[256]; /* "127.0.0.1" or "ipc:///path" */
    uint16_t port;
};

struct ps_launch_plan {
    const struct ps_launch_request *request;
    struct ps_launch_proc *procs; /* the scheduler, the servers, the workers */
    size_t count;
};

/* Errors: PS_EINVAL with 'err' (an assignment that is none, or of a variable that the
 * launcher itself sets); PS_ENOMEM. */
PS_MUST_CHECK enum ps_status
ps_launch_plan_create(const struct ps_launch_request *request,
                      struct ps_launch_plan **plan_out, struct ps_error *err);
void ps_launch_plan_destroy(struct ps_launch_plan *plan);

/* The environment of a process: 'inherited' (NULL-terminated; may be NULL) without what
 * earlier jobs may have left in it, then the job's variables, then the user's.  'root' is
 * not used for the scheduler.  Gives 'env_out'.  Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_launch_plan_env(const struct ps_launch_plan *plan,
                                                const struct ps_launch_proc *proc,
                                                const struct ps_launch_root *root,
                                                uint32_t attempt, char *const *inherited,
                                                struct ps_launch_strings *env_out);

/* The line "<uri> <port>" that a scheduler writes once it is bound.  Errors: PS_EPROTO
 * with 'err'. */
PS_MUST_CHECK enum ps_status ps_launch_parse_root(const char *line,
                                                  struct ps_launch_root *root_out,
                                                  struct ps_error *err);

/* --dry-run: for each process its name, variables and words, quoted for a shell. */
void ps_launch_plan_print(const struct ps_launch_plan *plan, struct ps_str *out);

#endif
