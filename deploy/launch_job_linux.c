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

#define READ_BYTES 16384
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

/* ---- one process ---- */

struct line_target {
    struct ps_launch_job *job;
    struct ps_launch_child *child;
    int which; /* 0 stdout, 1 stderr */
};

static void on_line(void *arg, const char *line, size_t size)
{
    struct line_target *target = arg;
    ps_launch_tail_add(&target->child->tail, line, size);
    ps_launch_sink_line(&target->job->sinks[target->which], target->child->proc->name,
                        target->child->index, line, size);
}

static void write_log(struct ps_launch_job *job, struct ps_launch_child *child,
                      const char *data, size_t size)
{
    while (child->log_fd >= 0 && size) {
        ssize_t done = write(child->log_fd, data, size);
        if (done > 0) {
            data += done;
            size -= (size_t)done;
        } else if (errno != EINTR) {
            ps_launch_say(job, "%s/%s: %s; no more is written there",
                          job->options->log_dir, child->proc->file_name, strerror(errno));
            close_fd(&child->log_fd);
        }
    }
}

/* Reads one piece.  False when nothing more is there to be read. */
static bool read_stream(struct ps_launch_job *job, struct ps_launch_child *child,
                        int which)
{
    struct line_target target = {job, child, which};
    char data[READ_BYTES];

    if (child->fds[which] < 0) {
        return false;
    }
    ssize_t size = read(child->fds[which], data, sizeof(data));
    if (size > 0) {
        write_log(job, child, data, (size_t)size);
        ps_launch_stream_feed(&child->streams[which], data, (size_t)size, on_line,
                              &target);
        return true;
    }
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        return errno == EINTR;
    }
    close_fd(&child->fds[which]);
    ps_launch_stream_flush(&child->streams[which], on_line, &target);
    return false;
}

/* What an ended process left in its pipes: bounded by what a pipe holds, unless a
 * grandchild goes on writing, which is why the pieces are counted. */
static void drain(struct ps_launch_job *job, struct ps_launch_child *child)
{
    for (int which = 0; which < 2; which++) {
        for (int piece = 0; piece < 64 && read_stream(job, child, which); piece++) {
        }
    }
}

static void close_streams(struct ps_launch_job *job, struct ps_launch_child *child)
{
    for (int which = 0; which < 2; which++) {
        struct line_target target = {job, child, which};
        close_fd(&child->fds[which]);
        ps_launch_stream_flush(&child->streams[which], on_line, &target);
    }
}

static void open_log(struct ps_launch_job *job, struct ps_launch_child *child)
{
    char path[4096];
    if (!job->options->log_dir || child->log_fd >= 0) {
        return; /* a restarted worker goes on in its file */
    }
    (void)snprintf(path, sizeof(path), "%s/%s", job->options->log_dir,
                   child->proc->file_name);
    child->log_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (child->log_fd < 0) {
        ps_launch_say(job, "%s: %s", path, strerror(errno));
    }
}

/* Opens the pipe for the scheduler's report; its write end goes to the child only. */
static enum ps_status spawn_child(struct ps_launch_job *job,
                                  struct ps_launch_child *child,
                                  struct ps_launch_strings *env,
                                  struct ps_launch_spawned *spawned, struct ps_error *err)
{
    int report[2] = {-1, -1};
    if (child->proc->reports && pipe2(report, O_CLOEXEC) != 0) {
        return ps_error_set(err, PS_EAGAIN, "pipe: %s", strerror(errno));
    }
    struct ps_launch_spawn spawn = {.path = child->proc->self ? "/proc/self/exe"
                                                              : child->proc->argv[0],
                                    .argv = (char *const *)child->proc->argv,
                                    .env = env->items,
                                    .ready_fd = report[1]};
    enum ps_status status = ps_launch_spawn(&spawn, spawned, err);
    close_fd(&report[1]);
    if (status != PS_OK) {
        close_fd(&report[0]);
    } else if (report[0] >= 0) {
        (void)fcntl(report[0], F_SETFL, O_NONBLOCK);
        job->ready_fd = report[0];
    }
    return status;
}

bool ps_launch_child_start(struct ps_launch_job *job, struct ps_launch_child *child)
{
    const struct ps_launch_job_options *options = job->options;
    struct ps_launch_strings env = {0};
    struct ps_launch_spawned spawned;
    struct ps_error err = {0};

    close_streams(job, child);
    open_log(job, child);
    enum ps_status status = ps_launch_plan_env(options->plan, child->proc, &job->root,
                                               child->attempt, options->inherited, &env);
    if (status == PS_OK) {
        status = spawn_child(job, child, &env, &spawned, &err);
    }
    ps_launch_strings_fini(&env);
    if (status != PS_OK) {
        ps_launch_say(job, "%s: %s", child->proc->name,
                      err.text[0] ? err.text : ps_status_text(status));
        /* As a shell answers for a program that is not there, or cannot run. */
        job->result = status == PS_ENOENT ? 127 : status == PS_EPERM ? 126 : PS_EXIT_FAIL;
        return false;
    }
    child->pid = spawned.pid;
    child->fds[0] = spawned.out_fd;
    child->fds[1] = spawned.err_fd;
    child->running = true;
    job->running++;
    return true;
}

void ps_launch_signal_groups(struct ps_launch_job *job, int signal)
{
    for (size_t i = 0; i < job->count; i++) {
        /* Not waited for yet, so its number is still its own. */
        if (job->children[i].running) {
            (void)kill(-job->children[i].pid, signal);
        }
    }
}

/* ---- events ---- */

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
            drain(job, child);
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
                (void)read_stream(job, &job->children[i], which);
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
        drain(job, &job->children[i]);
        close_streams(job, &job->children[i]);
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
