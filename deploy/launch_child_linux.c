/* Spawning, signalling and sweeping of launch_child.h; see launch_front_linux.c for the
 * front. */
#include "deploy/launch_child.h"

#include "base/clock.h"
#include "base/util.h"
#include "deploy/launch_plan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A process that SIGKILL does not end sits in the kernel, waiting for a device. */
#define SWEEP_LIMIT_MS 10000

/* Everything the child needs, made before the fork. */
struct launch_pipes {
    int out[2], err[2], failed[2];
    int null_fd;
};

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

static void close_pipes(struct launch_pipes *pipes)
{
    for (int end = 0; end < 2; end++) {
        close_fd(&pipes->out[end]);
        close_fd(&pipes->err[end]);
        close_fd(&pipes->failed[end]);
    }
    close_fd(&pipes->null_fd);
}

static bool open_pipes(struct launch_pipes *pipes)
{
    *pipes = (struct launch_pipes){{-1, -1}, {-1, -1}, {-1, -1}, -1};
    pipes->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (pipes->null_fd < 0 || pipe2(pipes->out, O_CLOEXEC) != 0 ||
        pipe2(pipes->err, O_CLOEXEC) != 0 || pipe2(pipes->failed, O_CLOEXEC) != 0) {
        int code = errno;
        close_pipes(pipes);
        errno = code;
        return false;
    }
    return true;
}

static void reset_signals(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int number = 1; number < NSIG; number++) {
        struct sigaction old;
        if (sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_IGN &&
            number != SIGHUP) { /* nohup is meant for the job */
            (void)sigaction(number, &action, NULL);
        }
    }
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* As execvp does, then the working directory, as MXNet's launcher did for bare names. */
static void exec_program(const struct ps_launch_spawn *spawn)
{
    execvpe(spawn->path, spawn->argv, spawn->env);
    if (errno == ENOENT && !strchr(spawn->path, '/')) {
        char here[PATH_MAX];
        int size = snprintf(here, sizeof(here), "./%s", spawn->path);
        if (size > 0 && (size_t)size < sizeof(here)) {
            execve(here, spawn->argv, spawn->env);
        }
    }
}

/* Runs between fork and exec: only async-signal-safe calls. */
static _Noreturn void run_child(const struct ps_launch_spawn *spawn,
                                struct launch_pipes *pipes, pid_t parent)
{
    int ready_fd = spawn->ready_fd;
    int code = 0;

    (void)setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
        _exit(127); /* the parent died in between: the signal will not come */
    }
    /* Out of the way first: 0 to 3 are overwritten below, and the launcher itself may
     * have been started without some of them. */
    int *fds[] = {&pipes->failed[1], &pipes->out[1], &pipes->err[1], &pipes->null_fd,
                  &ready_fd};
    for (size_t i = 0; i < PS_COUNT(fds); i++) {
        if (*fds[i] >= 0) {
            *fds[i] = fcntl(*fds[i], F_DUPFD_CLOEXEC, PS_LAUNCH_READY_FD + 1);
            code = *fds[i] < 0 ? errno : code;
        }
    }
    if (code == 0 && ready_fd >= 0 && dup2(ready_fd, PS_LAUNCH_READY_FD) < 0) {
        code = errno;
    }
    if (code == 0 && (dup2(pipes->null_fd, STDIN_FILENO) < 0 ||
                      dup2(pipes->out[1], STDOUT_FILENO) < 0 ||
                      dup2(pipes->err[1], STDERR_FILENO) < 0)) {
        code = errno;
    }
    if (code == 0) {
        reset_signals();
        exec_program(spawn);
        code = errno;
    }
    ssize_t done = write(pipes->failed[1], &code, sizeof(code));
    _exit(done == (ssize_t)sizeof(code) ? 127 : 126);
}

static enum ps_status spawn_error(const char *path, int code, struct ps_error *err)
{
    enum ps_status status = code == ENOENT || code == ENOTDIR   ? PS_ENOENT
                            : code == EACCES || code == ENOEXEC ? PS_EPERM
                                                                : PS_EAGAIN;
    return ps_error_set(err, status, "cannot start '%s': %s", path, strerror(code));
}

/* The errno of a failed start, 0 when the program runs: exec closed the pipe's other end.
 */
static int read_failure(int fd)
{
    int code = 0;
    ssize_t done;
    do {
        done = read(fd, &code, sizeof(code));
    } while (done < 0 && errno == EINTR);
    return done == (ssize_t)sizeof(code) ? code : 0;
}

enum ps_status ps_launch_spawn(const struct ps_launch_spawn *spawn,
                               struct ps_launch_spawned *spawned_out,
                               struct ps_error *err)
{
    struct launch_pipes pipes;
    pid_t parent = getpid();

    if (!open_pipes(&pipes)) {
        return spawn_error(spawn->path, errno, err);
    }
    pid_t pid = fork();
    if (pid < 0) {
        int code = errno;
        close_pipes(&pipes);
        return spawn_error(spawn->path, code, err);
    }
    if (pid == 0) {
        run_child(spawn, &pipes, parent);
    }
    (void)setpgid(pid, pid); /* also here: whoever comes first */
    close_fd(&pipes.out[1]);
    close_fd(&pipes.err[1]);
    close_fd(&pipes.failed[1]);
    int code = read_failure(pipes.failed[0]);
    if (code) {
        (void)waitpid(pid, NULL, 0);
        close_pipes(&pipes);
        return spawn_error(spawn->path, code, err);
    }
    (void)fcntl(pipes.out[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(pipes.err[0], F_SETFL, O_NONBLOCK);
    *spawned_out = (struct ps_launch_spawned){
        .pid = pid, .out_fd = pipes.out[0], .err_fd = pipes.err[0]};
    pipes.out[0] = -1;
    pipes.err[0] = -1;
    close_pipes(&pipes);
    return PS_OK;
}

/* The parent of a process from /proc/<pid>/stat: "pid (name) state ppid ..."; the name
 * may hold anything, so the fields start behind its last bracket. */
static pid_t parent_of(const char *pid_text)
{
    char path[64];
    char text[512];
    int size = snprintf(path, sizeof(path), "/proc/%.20s/stat", pid_text);
    int fd = size > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        return -1;
    }
    ssize_t done = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    if (done <= 0) {
        return -1;
    }
    text[done] = '\0';
    const char *fields = strrchr(text, ')');
    long parent = -1;
    if (!fields || sscanf(fields + 1, " %*c %ld", &parent) != 1) {
        return -1;
    }
    return (pid_t)parent;
}

int ps_launch_signal_children(int signal)
{
    pid_t self = getpid();
    int count = 0;
    DIR *dir = opendir("/proc");
    if (!dir) {
        return 0;
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
            parent_of(entry->d_name) != self) {
            continue;
        }
        /* A child of ours keeps its number until we wait for it: no stranger can be hit.
         */
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (*end == '\0' && pid > 1) {
            (void)kill((pid_t)pid, signal);
            count++;
        }
    }
    (void)closedir(dir);
    return count;
}

/* Reaps what has ended.  False when there is no child at all. */
static bool reap_all(void)
{
    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid == 0) {
            return true;
        }
        if (pid < 0 && errno != EINTR) {
            return false;
        }
    }
}

/* Waits for a SIGCHLD, at most 'ms': a blocked signal stays pending, so none is missed.
 */
static void wait_child(long ms)
{
    sigset_t set;
    struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    (void)sigtimedwait(&set, NULL, &limit);
}

void ps_launch_sweep(uint64_t grace_ms)
{
    struct ps_clock *clock = ps_clock_real();
    uint64_t deadline = ps_clock_now_ns(clock) + grace_ms * PS_NS_PER_MS;

    if (grace_ms && reap_all()) {
        (void)ps_launch_signal_children(SIGTERM);
    }
    uint64_t limit = deadline + SWEEP_LIMIT_MS * PS_NS_PER_MS;
    while (reap_all() && ps_clock_now_ns(clock) < limit) {
        bool late = ps_clock_now_ns(clock) >= deadline;
        if (late) {
            (void)ps_launch_signal_children(SIGKILL);
        }
        wait_child(late ? 20 : 50);
    }
}

void ps_launch_signals(sigset_t *set_out)
{
    struct sigaction hangup;
    sigemptyset(set_out);
    sigaddset(set_out, SIGCHLD);
    sigaddset(set_out, SIGINT);
    sigaddset(set_out, SIGTERM);
    sigaddset(set_out, SIGQUIT);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
        sigaddset(set_out, SIGHUP);
    }
}

void ps_launch_remove_dir(const char *path)
{
    DIR *dir = path ? opendir(path) : NULL;
    if (!dir) {
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    (void)closedir(dir);
    (void)rmdir(path);
}
