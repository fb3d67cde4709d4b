/* One process of a job: started, read, logged; see launch_job.h.  The supervisor's
 * thread. */
#include "deploy/launch_job.h"

#include "base/options.h"
#include "deploy/launch_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES 16384
/* Pieces that are read from a pipe at its writer's end; a pipe holds 64 KiB. */
#define DRAIN_PIECES 64

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

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

bool ps_launch_child_read(struct ps_launch_job *job, struct ps_launch_child *child,
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

void ps_launch_child_drain(struct ps_launch_job *job, struct ps_launch_child *child)
{
    for (int which = 0; which < 2; which++) {
        for (int piece = 0;
             piece < DRAIN_PIECES && ps_launch_child_read(job, child, which); piece++) {
        }
    }
}

void ps_launch_child_close(struct ps_launch_job *job, struct ps_launch_child *child)
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

    ps_launch_child_close(job, child);
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
        pid_t pid = job->children[i].pid;
        if (job->children[i].running && kill(-pid, signal) != 0) {
            (void)kill(pid, signal); /* it left its group */
        }
    }
}
