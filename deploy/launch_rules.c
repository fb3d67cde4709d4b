/* What the launcher does when something happens; launch_job.h has the picture.
 *
 * The first process that fails decides the job's result.  One that only says "I lost my
 * peer" (exit codes 76 and 75) is seldom the cause: for a second a better cause may still
 * come. */
#include "deploy/launch_job.h"

#include "base/clock.h"
#include "base/options.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ps_launch_say(struct ps_launch_job *job, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    int size = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (size > 0) {
        ps_launch_sink_line(&job->sinks[1], "launch", 0, text, strlen(text));
    }
}

/* "worker 1 (pid 4711) exited with 3" */
static void describe(const struct ps_launch_child *child, char *out, size_t size)
{
    static const char *const roles[] = {"scheduler", "server", "worker"};
    char who[48];
    if (child->proc->role == PS_LAUNCH_SCHEDULER) {
        (void)snprintf(who, sizeof(who), "%s (pid %ld)", roles[0], (long)child->pid);
    } else {
        (void)snprintf(who, sizeof(who), "%s %u (pid %ld)", roles[child->proc->role],
                       child->proc->rank, (long)child->pid);
    }
    if (child->signaled) {
        (void)snprintf(out, size, "%s was killed by signal %d (%s)", who,
                       child->code - 128, strsignal(child->code - 128));
    } else {
        (void)snprintf(out, size, "%s exited with %d", who, child->code);
    }
}

/* Takes the next step of a stop: a signal, and how long to wait for what it does. */
static void take_step(struct ps_launch_job *job)
{
    if (job->step >= job->step_count) {
        job->deadline = PS_NEVER; /* SIGKILL was sent: the end comes by itself */
        return;
    }
    const struct ps_launch_step *step = &job->steps[job->step++];
    ps_launch_signal_groups(job, step->signal);
    job->deadline = ps_launch_after(step->wait_ms);
}

static void stop(struct ps_launch_job *job, const struct ps_launch_step *steps,
                 size_t count)
{
    job->phase = PS_LAUNCH_STOPPING;
    memcpy(job->steps, steps, count * sizeof(*steps));
    job->step_count = count;
    job->step = 0;
    take_step(job);
}

static void stop_after_failure(struct ps_launch_job *job)
{
    static const struct ps_launch_step steps[] = {{SIGTERM, PS_LAUNCH_STOP_MS},
                                                  {SIGKILL, 0}};
    if (job->failed && job->running) {
        char text[160];
        describe(job->failed, text, sizeof(text));
        ps_launch_say(job, "%s; stopping the others", text);
    }
    stop(job, steps, 2);
}

/* 75 and 76 are what a process says that missed or lost the others. */
static bool is_consequence(const struct ps_launch_child *child)
{
    return !child->signaled &&
           (child->code == PS_EXIT_PEER || child->code == PS_EXIT_RETRY);
}

static void fail(struct ps_launch_job *job, const struct ps_launch_child *child)
{
    if (job->phase == PS_LAUNCH_STOPPING || (job->failed && is_consequence(child))) {
        return;
    }
    job->failed = child;
    job->result = child->code ? child->code : PS_EXIT_FAIL;
    if (is_consequence(child) && job->running) {
        job->phase = PS_LAUNCH_CAUSE;
        job->deadline = ps_launch_after(PS_LAUNCH_CAUSE_MS);
    } else {
        stop_after_failure(job);
    }
}

/* A failure of the launcher's own, which no process's exit code tells. */
static void fail_job(struct ps_launch_job *job, int code)
{
    job->result = code;
    stop_after_failure(job);
}

static void start_members(struct ps_launch_job *job)
{
    const struct ps_launch_request *request = job->options->plan->request;
    job->phase = PS_LAUNCH_RUNNING;
    job->deadline = PS_NEVER;
    ps_launch_say(job, "scheduler at %s port %u; starting %u server%s and %u worker%s",
                  job->root.uri, job->root.port, request->servers,
                  request->servers == 1 ? "" : "s", request->workers,
                  request->workers == 1 ? "" : "s");
    for (size_t i = 1; i < job->count; i++) {
        if (!ps_launch_child_start(job, &job->children[i])) {
            fail_job(job, job->result);
            return;
        }
    }
}

void ps_launch_on_start(struct ps_launch_job *job)
{
    const struct ps_launch_plan *plan = job->options->plan;
    job->phase = PS_LAUNCH_STARTING;
    job->deadline = ps_launch_after((uint32_t)job->options->start_timeout_ms);
    if (!ps_launch_child_start(job, &job->children[0])) {
        fail_job(job, job->result);
    } else if (!plan->procs[0].reports) {
        (void)snprintf(job->root.uri, sizeof(job->root.uri), "127.0.0.1");
        job->root.port = plan->request->port;
        start_members(job);
    }
}

void ps_launch_on_ready(struct ps_launch_job *job)
{
    struct ps_error err = {0};
    if (job->phase != PS_LAUNCH_STARTING) {
        return;
    }
    if (job->ready_size == 0) {
        /* Its exit, if that is why, is about to be seen and tells more. */
        job->deadline = ps_launch_after(PS_LAUNCH_CAUSE_MS);
    } else if (ps_launch_parse_root(job->ready_line, &job->root, &err) != PS_OK) {
        ps_launch_say(job, "%s", err.text);
        fail_job(job, PS_EXIT_FAIL);
    } else {
        start_members(job);
    }
}

/* The workers are done: servers and scheduler were told by their goodbyes, or never met
 * them. */
static void end_job(struct ps_launch_job *job)
{
    job->phase = PS_LAUNCH_ENDING;
    job->deadline = ps_launch_after(PS_LAUNCH_END_MS);
}

static void on_worker_exit(struct ps_launch_job *job, struct ps_launch_child *child)
{
    if (child->code == 0) {
        job->workers_left--;
        if (job->workers_left == 0 && job->phase == PS_LAUNCH_RUNNING) {
            end_job(job);
        }
        return;
    }
    if (job->phase == PS_LAUNCH_RUNNING && child->attempt < job->options->max_restarts) {
        char text[160];
        describe(child, text, sizeof(text));
        child->attempt++;
        ps_launch_say(job, "%s; starting it again, attempt %u of %u", text,
                      child->attempt, job->options->max_restarts);
        if (!ps_launch_child_start(job, child)) {
            fail_job(job, job->result);
        }
        return;
    }
    fail(job, child);
}

void ps_launch_on_exit(struct ps_launch_job *job, struct ps_launch_child *child)
{
    if (job->phase == PS_LAUNCH_STOPPING) {
        return;
    }
    if (child->proc->role == PS_LAUNCH_WORKER) {
        on_worker_exit(job, child);
    } else if (job->phase == PS_LAUNCH_STARTING) {
        ps_launch_say(job, "the scheduler ended before it reported its address");
        fail(job, child);
    } else if (child->code != 0 && job->phase == PS_LAUNCH_ENDING) {
        char text[160];
        describe(child, text, sizeof(text));
        ps_launch_say(job, "%s after the workers had succeeded", text);
    } else if (child->code != 0) {
        fail(job, child);
    }
}

void ps_launch_on_signal(struct ps_launch_job *job, int number)
{
    static const struct ps_launch_step now[] = {{SIGKILL, 0}};
    struct ps_launch_step steps[] = {
        {number, PS_LAUNCH_INTERRUPT_MS}, {SIGTERM, PS_LAUNCH_HURRY_MS}, {SIGKILL, 0}};
    if (job->hurry) {
        stop(job, now, 1);
        return;
    }
    job->hurry = true;
    job->failed = NULL;
    job->result = 128 + number;
    ps_launch_say(job, "%s: stopping the job", strsignal(number));
    stop(job, steps, 3);
}

void ps_launch_on_front_lost(struct ps_launch_job *job)
{
    static const struct ps_launch_step steps[] = {{SIGTERM, PS_LAUNCH_HURRY_MS},
                                                  {SIGKILL, 0}};
    if (job->hurry && job->phase == PS_LAUNCH_STOPPING) {
        return;
    }
    job->hurry = true;
    job->result = 128 + SIGKILL;
    stop(job, steps, 2);
}

void ps_launch_on_deadline(struct ps_launch_job *job)
{
    static const struct ps_launch_step end_steps[] = {{SIGTERM, PS_LAUNCH_STOP_MS},
                                                      {SIGKILL, 0}};
    switch (job->phase) {
    case PS_LAUNCH_STARTING:
        ps_launch_say(
            job, "the scheduler (pid %ld) did not report its address within %lld ms",
            (long)job->children[0].pid, (long long)job->options->start_timeout_ms);
        fail_job(job, PS_EXIT_RETRY);
        break;
    case PS_LAUNCH_CAUSE:
        stop_after_failure(job);
        break;
    case PS_LAUNCH_ENDING:
        stop(job, end_steps, 2);
        break;
    case PS_LAUNCH_STOPPING:
        take_step(job);
        break;
    case PS_LAUNCH_RUNNING:
        job->deadline = PS_NEVER;
        break;
    }
}

void ps_launch_report(struct ps_launch_job *job)
{
    struct ps_str tail = {0};
    char text[160];
    if (!job->failed) {
        return;
    }
    describe(job->failed, text, sizeof(text));
    if (job->failed->tail.count == 0) {
        ps_launch_say(job, "%s; it had written nothing", text);
        return;
    }
    ps_launch_say(job, "%s; its last %zu line%s:", text, job->failed->tail.count,
                  job->failed->tail.count == 1 ? "" : "s");
    ps_launch_tail_print(&job->failed->tail, "    ", &tail);
    ps_str_append(&job->sinks[1].queue, ps_str_text(&tail), tail.size);
    ps_str_fini(&tail);
}
