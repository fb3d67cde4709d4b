/* The front of launch_child.h: the process that the user started.  It does as little as
 * possible, so that nothing can keep it from ending the job: it waits for signals and for
 * its supervisor. */
#include "deploy/launch_child.h"

#include "base/clock.h"
#include "base/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* After a signal the supervisor needs at most this (launch_job.h has its steps); then it
 * is taken to be stuck. */
#define STOP_LIMIT_MS 8000

struct front {
    pid_t supervisor;
    int signals;       /* received and passed on */
    int interrupts;    /* SIGINT among them */
    int first;         /* the first signal */
    uint64_t deadline; /* ns; PS_NEVER before a signal */
};

static _Noreturn void run_supervisor(int (*work)(void *arg, int lifeline_fd), void *arg,
                                     int lifeline_fd)
{
    /* A group of its own: a Ctrl-C reaches the front only, which passes it on once. */
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    int code = work(arg, lifeline_fd);
    (void)fflush(NULL);
    _exit(code);
}

static void on_signal(struct front *front, int number)
{
    front->interrupts += number == SIGINT;
    if (front->interrupts > 1) {
        (void)kill(front->supervisor, SIGKILL);
        return;
    }
    if (front->signals++ == 0) {
        front->first = number;
        front->deadline = ps_clock_now_ns(ps_clock_real()) + STOP_LIMIT_MS * PS_NS_PER_MS;
    }
    (void)kill(front->supervisor, number);
}

/* Waits for one of 'set' until the deadline.  0 when it passed. */
static int next_signal(const struct front *front, const sigset_t *set)
{
    for (;;) {
        struct timespec limit = {.tv_sec = 3600};
        if (front->deadline != PS_NEVER) {
            uint64_t now = ps_clock_now_ns(ps_clock_real());
            uint64_t left = front->deadline > now ? front->deadline - now : 0;
            limit = (struct timespec){.tv_sec = (time_t)(left / PS_NS_PER_S),
                                      .tv_nsec = (long)(left % PS_NS_PER_S)};
        }
        int number = sigtimedwait(set, NULL, &limit);
        if (number > 0) {
            return number;
        }
        if (errno == EAGAIN && front->deadline != PS_NEVER) {
            return 0;
        }
    }
}

/* Waits for the supervisor and reaps whom it left.  Returns its wait status. */
static int wait_supervisor(struct front *front, const sigset_t *set)
{
    for (;;) {
        int number = next_signal(front, set);
        if (number == 0) {
            (void)kill(front->supervisor, SIGKILL);
            front->deadline = PS_NEVER;
        } else if (number != SIGCHLD) {
            on_signal(front, number);
        }
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            if (pid == front->supervisor) {
                return status;
            }
        }
    }
}

int ps_launch_front(int (*work)(void *arg, int lifeline_fd), void *arg,
                    const char *job_dir)
{
    sigset_t set, before;
    int lifeline[2];

    ps_launch_signals(&set);
    (void)sigprocmask(SIG_BLOCK, &set, &before);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (pipe2(lifeline, O_CLOEXEC) != 0) {
        fprintf(stderr, "penstock launch: pipe: %s\n", strerror(errno));
        return PS_EXIT_FAIL;
    }
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(lifeline[1]);
        run_supervisor(work, arg, lifeline[0]);
    }
    (void)close(lifeline[0]);
    int code = PS_EXIT_FAIL;
    if (pid < 0) {
        fprintf(stderr, "penstock launch: fork: %s\n", strerror(errno));
    } else {
        struct front front = {.supervisor = pid, .deadline = PS_NEVER};
        int status = wait_supervisor(&front, &set);
        ps_launch_sweep(0);
        if (WIFEXITED(status)) {
            code = WEXITSTATUS(status);
        } else {
            code = 128 + (front.first ? front.first : WTERMSIG(status));
        }
    }
    ps_launch_remove_dir(job_dir);
    (void)close(lifeline[1]);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return code;
}
