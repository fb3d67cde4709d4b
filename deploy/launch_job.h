/* A running job as the supervisor sees it: processes, phases, deadlines.
 *
 *   phase     begins                                   ends
 *   starting  the scheduler was started                its address was reported
 *   running   servers and workers were started         every worker exited with 0
 *   cause     one exited with 76 or 75: lost a peer    1 s later, or a better cause
 *   ending    every worker exited with 0               all are gone, or 2 s later
 *   stopping  a failure, a signal, a lost front,       all are gone
 *             the end of cause or ending
 *
 * launch_rules.c decides, launch_job_linux.c waits, launch_member_linux.c has one
 * process. One thread, one poll. */
#ifndef PENSTOCK_DEPLOY_LAUNCH_JOB_H
#define PENSTOCK_DEPLOY_LAUNCH_JOB_H

#include "deploy/launch_output.h"
#include "deploy/launch_plan.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Milliseconds.  After a signal everything must be gone within 5 s, after a failure
 * within 10 s. */
#define PS_LAUNCH_END_MS 2000       /* servers and scheduler end by themselves */
#define PS_LAUNCH_CAUSE_MS 1000     /* a lost peer's cause may be about to end too */
#define PS_LAUNCH_STOP_MS 5000      /* SIGTERM to SIGKILL: a failure, or the end */
#define PS_LAUNCH_INTERRUPT_MS 2000 /* the user's signal to SIGTERM */
#define PS_LAUNCH_HURRY_MS 1500     /* SIGTERM to SIGKILL: a signal, a lost front */
#define PS_LAUNCH_SWEEP_MS 300      /* for grandchildren that outlive their parents */

/* Borrows everything. */
struct ps_launch_job_options {
    const struct ps_launch_plan *plan;
    const char *log_dir;   /* NULL = no files; exists */
    uint32_t max_restarts; /* of each worker */
    int64_t start_timeout_ms;
    char *const *inherited; /* environment of the launcher */
};

struct ps_launch_child {
    const struct ps_launch_proc *proc;
    size_t index;
    pid_t pid; /* of the running or the last process; 0 = never started */
    bool running;
    bool signaled;    /* it ended by signal 'code' - 128 */
    int code;         /* exit code as a shell shows it */
    uint32_t attempt; /* 0 for the first */
    int fds[2];       /* what it writes to stdout and stderr; -1 = ended */
    struct ps_launch_stream streams[2];
    struct ps_launch_tail tail;
    int log_fd; /* -1 = none */
};

enum ps_launch_phase {
    PS_LAUNCH_STARTING,
    PS_LAUNCH_RUNNING,
    PS_LAUNCH_CAUSE,
    PS_LAUNCH_ENDING,
    PS_LAUNCH_STOPPING
};

struct ps_launch_step {
    int signal;
    uint32_t wait_ms; /* then comes the next */
};

struct ps_launch_job {
    const struct ps_launch_job_options *options;
    struct ps_launch_child *children; /* as the plan's processes */
    size_t count;
    size_t running;      /* processes */
    size_t workers_left; /* that have not ended well */
    enum ps_launch_phase phase;
    uint64_t deadline; /* ns; PS_NEVER = none */
    struct ps_launch_step steps[4];
    size_t step_count, step;
    bool hurry; /* a signal or a lost front: no grace for stragglers */
    int result; /* exit code of the launcher */
    const struct ps_launch_child *failed; /* the first; NULL = none */
    struct ps_launch_root root;
    char ready_line[320];
    size_t ready_size;
    int ready_fd, signal_fd, lifeline_fd;
    struct ps_launch_sink sinks[2]; /* stdout, stderr */
};

/* Runs the job in the calling process, the supervisor.  Returns the launcher's exit code.
 */
int ps_launch_job_run(const struct ps_launch_job_options *options, int lifeline_fd);

/* ---- launch_rules.c: what follows from what ---- */
void ps_launch_on_start(struct ps_launch_job *job);
/* The scheduler's line has come, or its descriptor was closed without one. */
void ps_launch_on_ready(struct ps_launch_job *job);
void ps_launch_on_exit(struct ps_launch_job *job, struct ps_launch_child *child);
void ps_launch_on_signal(struct ps_launch_job *job, int number);
void ps_launch_on_front_lost(struct ps_launch_job *job);
void ps_launch_on_deadline(struct ps_launch_job *job);
/* The last words: who failed, and what it wrote last. */
void ps_launch_report(struct ps_launch_job *job);
/* One line of the launcher's own, to stderr. */
void ps_launch_say(struct ps_launch_job *job, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- launch_member_linux.c: one process ---- */
/* Starts a process; on failure the job fails with 127 or 126 and false comes back. */
bool ps_launch_child_start(struct ps_launch_job *job, struct ps_launch_child *child);
/* Reads one piece of a stream.  False when nothing more is there to be read. */
bool ps_launch_child_read(struct ps_launch_job *job, struct ps_launch_child *child,
                          int which);
/* Reads what an ended process left in its pipes, without waiting for grandchildren that
 * still write. */
void ps_launch_child_drain(struct ps_launch_job *job, struct ps_launch_child *child);
/* Closes its pipes; a last line without its end is passed on. */
void ps_launch_child_close(struct ps_launch_job *job, struct ps_launch_child *child);
/* To the process groups of all that run. */
void ps_launch_signal_groups(struct ps_launch_job *job, int signal);

/* ---- launch_job_linux.c ---- */
uint64_t ps_launch_after(uint32_t ms); /* a deadline from now */

#endif
