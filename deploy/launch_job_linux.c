/* The supervisor's loop: one poll over signals, the front's lifeline, the scheduler's
 * report, what the processes write, and the two descriptors it goes to.  Decisions are in
 * launch_rules.c. */
#include "deploy/launch_job.h"

#include "base/clock.h"
#include "base/options.h"
#include "base/util.h"
#include "deploy/launch_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define FLUSH_MS 5000 /* for the last lines, when their reader is slow */

/* Slots of the poll array before the children's two each. */
enum { SLOT_SIGNAL, SLOT_LIFELINE, SLOT_READY, SLOT_STDOUT, SLOT_STDERR, SLOT_CHILDREN };

uint64_t ps_launch_after(uint32_t ms)
{
    return ps_clock_now_ns(ps_clock_real()) + ms * PS_NS_PER_MS;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

static void reap(struct ps_launch_job *job)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (size_t i = 0; i < job->count; i++) {
            struct ps_launch_child *child = &job->children[i];
            if (child->pid != pid || !child->running) {
                continue; /* an adopted grandchild matches none */
            }
            child->running = false;
            child->signaled = WIFSIGNALED(status);
            child->code = child->signaled ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            job->running--;
            ps_launch_child_drain(job, child);
            ps_launch_on_exit(job, child);
            break;
        }
    }
}

static void read_signals(struct ps_launch_job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD) {
            reap(job);
        } else {
            ps_launch_on_signal(job, (int)info.ssi_signo);
        }
    }
}

static void read_ready(struct ps_launch_job *job)
{
    size_t room = sizeof(job->ready_line) - 1 - job->ready_size;
    ssize_t size = read(job->ready_fd, job->ready_line + job->ready_size, room);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (size > 0) {
        job->ready_size += (size_t)size;
        job->ready_line[job->ready_size] = '\0';
    }
    char *end = strchr(job->ready_line, '\n');
    if (end || size <= 0 || (size_t)size == room) {
        if (end) {
            *end = '\0';
        }
        close_fd(&job->ready_fd);
        ps_launch_on_ready(job);
    }
}

static int poll_timeout(const struct ps_launch_job *job)
{
    if (job->deadline == PS_NEVER) {
        return -1;
    }
    uint64_t now = ps_clock_now_ns(ps_clock_real());
    if (job->deadline <= now) {
        return 0;
    }
    uint64_t ms = (job->deadline - now + PS_NS_PER_MS - 1) / PS_NS_PER_MS;
    return (int)PS_MIN(ms, (uint64_t)60000);
}

static void set_slot(struct pollfd *slot, int fd, short events)
{
    *slot = (struct pollfd){.fd = fd, .events = events};
}

static void fill_slots(const struct ps_launch_job *job, struct pollfd *slots)
{
    bool full =
        ps_launch_sink_is_full(&job->sinks[0]) || ps_launch_sink_is_full(&job->sinks[1]);

    set_slot(&slots[SLOT_SIGNAL], job->signal_fd, POLLIN);
    set_slot(&slots[SLOT_LIFELINE], job->lifeline_fd, POLLIN);
    set_slot(&slots[SLOT_READY], job->ready_fd, POLLIN);
    for (int which = 0; which < 2; which++) {
        bool empty = ps_launch_sink_is_empty(&job->sinks[which]);
        set_slot(&slots[SLOT_STDOUT + which], empty ? -1 : job->sinks[which].fd, POLLOUT);
        for (size_t i = 0; i < job->count; i++) {
            set_slot(&slots[SLOT_CHILDREN + 2 * i + (size_t)which],
                     full ? -1 : job->children[i].fds[which], POLLIN);
        }
    }
}

static void handle_slots(struct ps_launch_job *job, const struct pollfd *slots)
{
    /* What they wrote comes before how they ended. */
    for (size_t i = 0; i < job->count; i++) {
        for (int which = 0; which < 2; which++) {
            if (slots[SLOT_CHILDREN + 2 * i + (size_t)which].revents) {
                (void)ps_launch_child_read(job, &job->children[i], which);
            }
        }
    }
    if (slots[SLOT_READY].revents && job->ready_fd >= 0) {
        read_ready(job);
    }
    if (slots[SLOT_SIGNAL].revents) {
        read_signals(job);
    }
    if (slots[SLOT_LIFELINE].revents) {
        close_fd(&job->lifeline_fd);
        ps_launch_on_front_lost(job);
    }
    for (int which = 0; which < 2; which++) {
        if (slots[SLOT_STDOUT + which].revents) {
            ps_launch_sink_write(&job->sinks[which]);
        }
    }
}

static void supervise(struct ps_launch_job *job, struct pollfd *slots)
{
    ps_launch_on_start(job);
    while (job->running) {
        fill_slots(job, slots);
        int ready = poll(slots, SLOT_CHILDREN + 2 * job->count, poll_timeout(job));
        if (ready > 0) {
            handle_slots(job, slots);
        }
        if (job->deadline != PS_NEVER &&
            ps_clock_now_ns(ps_clock_real()) >= job->deadline) {
            ps_launch_on_deadline(job);
        }
    }
}

/* Writes what is queued, unless its reader has stopped reading. */
static void flush_sinks(struct ps_launch_job *job)
{
    uint64_t deadline = ps_launch_after(FLUSH_MS);
    for (;;) {
        struct pollfd slots[2];
        for (int which = 0; which < 2; which++) {
            bool empty = ps_launch_sink_is_empty(&job->sinks[which]);
            set_slot(&slots[which], empty ? -1 : job->sinks[which].fd, POLLOUT);
        }
        if ((slots[0].fd < 0 && slots[1].fd < 0) ||
            ps_clock_now_ns(ps_clock_real()) >= deadline) {
            return;
        }
        (void)poll(slots, 2, 200);
        for (int which = 0; which < 2; which++) {
            if (slots[which].revents) {
                ps_launch_sink_write(&job->sinks[which]);
            }
        }
    }
}

static void finish(struct ps_launch_job *job)
{
    ps_launch_sweep(job->hurry ? 0 : PS_LAUNCH_SWEEP_MS);
    for (size_t i = 0; i < job->count; i++) {
        ps_launch_child_drain(job, &job->children[i]);
        ps_launch_child_close(job, &job->children[i]);
    }
    ps_launch_report(job);
    flush_sinks(job);
    for (size_t i = 0; i < job->count; i++) {
        struct ps_launch_child *child = &job->children[i];
        close_fd(&child->log_fd);
        ps_launch_stream_fini(&child->streams[0]);
        ps_launch_stream_fini(&child->streams[1]);
        ps_launch_tail_fini(&child->tail);
    }
    ps_launch_sink_fini(&job->sinks[0]);
    ps_launch_sink_fini(&job->sinks[1]);
    ps_launch_remove_dir(job->options->plan->request->job_dir);
}

int ps_launch_job_run(const struct ps_launch_job_options *options, int lifeline_fd)
{
    const struct ps_launch_plan *plan = options->plan;
    struct ps_launch_job job = {.options = options,
                                .count = plan->count,
                                .workers_left = plan->request->workers,
                                .ready_fd = -1,
                                .lifeline_fd = lifeline_fd};
    struct pollfd *slots = calloc(SLOT_CHILDREN + 2 * plan->count, sizeof(*slots));
    sigset_t set;

    job.children = calloc(plan->count, sizeof(*job.children));
    ps_launch_signals(&set);
    job.signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (!slots || !job.children || job.signal_fd < 0) {
        fprintf(stderr, "penstock launch: %s\n", strerror(errno));
        free(slots);
        free(job.children);
        return PS_EXIT_FAIL;
    }
    for (size_t i = 0; i < plan->count; i++) {
        job.children[i] = (struct ps_launch_child){
            .proc = &plan->procs[i], .index = i, .fds = {-1, -1}, .log_fd = -1};
    }
    for (int which = 0; which < 2; which++) {
        job.sinks[which].fd = STDOUT_FILENO + which;
        job.sinks[which].colour = isatty(STDOUT_FILENO + which);
    }
    /* A reader that goes away ends the output only; a background process may write to its
     * terminal. */
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)sigaction(SIGTTOU, &ignore, NULL);

    supervise(&job, slots);
    finish(&job);
    close_fd(&job.signal_fd);
    close_fd(&job.ready_fd);
    free(slots);
    free(job.children);
    return job.result;
}
