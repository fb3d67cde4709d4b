/* Starting and ending processes so that none is left behind.
 *
 * Two processes watch each other.  The one the user started, the front, forks the
 * supervisor, passes signals on and waits.  The supervisor starts the job's processes,
 * each in a process group of its own and with a parent-death signal.  Both are child
 * subreapers, so that a grandchild whose parent is gone comes to them and can be ended.
 * When the front is killed, the supervisor sees its pipe end and stops the job; when the
 * supervisor is killed, the front ends whatever comes to it.  Neither has threads: the
 * parent-death signal follows the forking thread. */
#ifndef PENSTOCK_DEPLOY_LAUNCH_CHILD_H
#define PENSTOCK_DEPLOY_LAUNCH_CHILD_H

#include "base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ps_launch_spawn {
    const char
        *path; /* with a slash: as it is; without: searched on the PATH, then here */
    char *const *argv;
    char *const *env;
    int ready_fd; /* becomes PS_LAUNCH_READY_FD in the child; -1 = none */
};

struct ps_launch_spawned {
    pid_t pid;          /* also its process group */
    int out_fd, err_fd; /* what it writes; not blocking; yours to close */
};

/* Starts a process with /dev/null as its input, default signals, and death by SIGKILL
 * with its parent. Returns when the program runs.  Errors: PS_ENOENT, PS_EPERM (not
 * executable), PS_EAGAIN (no more processes or descriptors) with 'err'. */
PS_MUST_CHECK enum ps_status ps_launch_spawn(const struct ps_launch_spawn *spawn,
                                             struct ps_launch_spawned *spawned_out,
                                             struct ps_error *err);

/* Sends 'signal' to every process whose parent is this one, the adopted ones included.
 * Returns how many there were. */
int ps_launch_signal_children(int signal);
/* Ends every child, adopted ones included: SIGTERM, up to 'grace_ms', then SIGKILL until
 * there is none. Blocks.  SIGCHLD must be blocked. */
void ps_launch_sweep(uint64_t grace_ms);

/* The signals that the front passes on, and SIGCHLD.  SIGHUP is left out when it was
 * ignored at the start (nohup). */
void ps_launch_signals(sigset_t *set_out);

/* Runs 'work' in a supervisor process and returns its exit code.  'lifeline_fd' ends when
 * the front dies. A second SIGINT, or a supervisor that does not stop in time, ends
 * everything at once. 'job_dir' (may be NULL) is removed at the end. */
int ps_launch_front(int (*work)(void *arg, int lifeline_fd), void *arg,
                    const char *job_dir);

/* Removes a job's socket directory and the files in it; no subdirectories. */
void ps_launch_remove_dir(const char *path);

#endif
