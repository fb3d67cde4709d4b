/* What an operation costs in the engine: pushes of empty functions over the workloads of
 * workload.h.
 *
 *   engine_bench [-c] [-v] [-r REPS] [-e TYPE] [WORKLOAD ...]
 *
 * Rows: R,engine,penstock,TYPE,WORKLOAD,TASKS,SUBMIT_NS,TOTAL_NS   (per task, each
 * repetition one row; the first, which warms pools up, is not printed).  -c captures the
 * workload's step and replays it, rows are then R,engine,replay,...  -v runs a body that
 * checks the order of conflicting tasks and prints "verify WORKLOAD ok". */
#include "base/clock.h"
#include "base/node.h"
#include "base/str.h"
#include "engine/engine.h"
#include "tests/bench/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
    struct ps_engine *engine;
    struct ps_var **vars;
    uint64_t *values;
    struct ps_engine_call **calls; /* of the step, when captured */
    struct ps_segment *segment;
    bool verify, capture;
    int64_t reps;
};

struct bench_task { /* one operation's argument when results are checked */
    const struct workload_task *task;
    uint64_t *values;
};

static enum ps_status run_nothing(void *arg, const struct ps_run *run,
                                  struct ps_error *err)
{
    PS_UNUSED(arg);
    PS_UNUSED(run);
    PS_UNUSED(err);
    return PS_OK;
}

static enum ps_status run_task(void *arg, const struct ps_run *run, struct ps_error *err)
{
    struct bench_task *task = arg;
    PS_UNUSED(run);
    PS_UNUSED(err);
    workload_apply(task->task, task->values);
    return PS_OK;
}

/* 'vars' has room for WORKLOAD_MAX_VARS and lives as long as the result. */
static struct ps_engine_op make_op(struct bench *bench, const struct workload *workload,
                                   size_t number, struct bench_task *args,
                                   struct ps_var **vars)
{
    const struct workload_task *task = &workload->tasks[number];
    size_t count = (size_t)task->write_count + task->read_count;
    for (size_t k = 0; k < count; k++) {
        vars[k] = bench->vars[task->vars[k]];
    }
    return (struct ps_engine_op){
        .name = "task",
        .run = bench->verify ? run_task : run_nothing,
        .arg = bench->verify ? &args[number] : NULL,
        .writes = vars,
        .write_count = task->write_count,
        .reads = vars + task->write_count,
        .read_count = task->read_count,
    };
}

static enum ps_status push_all(struct bench *bench, const struct workload *workload,
                               struct bench_task *args)
{
    struct ps_var *vars[WORKLOAD_MAX_VARS];
    if (bench->capture) {
        size_t replays = workload_runs(workload, bench->verify);
        for (size_t i = 0; i < replays; i++) {
            PS_TRY(ps_segment_push(bench->segment));
        }
        return PS_OK;
    }
    for (size_t i = 0; i < workload->task_count; i++) {
        struct ps_engine_op op = make_op(bench, workload, i, args, vars);
        PS_TRY(ps_engine_push(bench->engine, &op));
    }
    return PS_OK;
}

static enum ps_status capture(struct bench *bench, const struct workload *workload,
                              struct bench_task *args)
{
    struct ps_var *vars[WORKLOAD_MAX_VARS];
    bench->calls = calloc(workload->step_tasks, sizeof(struct ps_engine_call *));
    if (bench->calls == NULL) {
        return PS_ENOMEM;
    }
    for (size_t i = 0; i < workload->step_tasks; i++) {
        struct ps_engine_op op = make_op(bench, workload, i, args, vars);
        PS_TRY(ps_engine_call_create(bench->engine, &op, &bench->calls[i]));
    }
    return ps_segment_create(bench->engine, bench->calls, workload->step_tasks,
                             &bench->segment);
}

static void release(struct bench *bench, const struct workload *workload)
{
    ps_segment_destroy(bench->segment);
    for (size_t i = 0; bench->calls != NULL && i < workload->step_tasks; i++) {
        ps_engine_call_destroy(bench->calls[i]);
    }
    free(bench->calls);
    bench->segment = NULL;
    bench->calls = NULL;
}

static enum ps_status repeat(struct bench *bench, const struct workload *workload,
                             struct bench_task *args)
{
    struct ps_clock *clock = ps_clock_real();
    size_t tasks = bench->capture
                       ? workload_runs(workload, bench->verify) * workload->step_tasks
                       : workload->task_count;
    double count = (double)tasks;
    for (int64_t rep = 0; rep <= bench->reps; rep++) {
        memset(bench->values, 0, workload->var_count * sizeof(*bench->values));
        uint64_t begin = ps_clock_now_ns(clock);
        PS_TRY(push_all(bench, workload, args));
        uint64_t pushed = ps_clock_now_ns(clock);
        PS_TRY(ps_engine_wait_all(bench->engine, NULL));
        uint64_t end = ps_clock_now_ns(clock);
        if (bench->verify) {
            bool same = workload_hash(bench->values, workload->var_count) ==
                        workload_expected(workload);
            printf("verify %s %s\n", workload->name, same ? "ok" : "FAILED");
            if (!same) {
                return PS_EINTERNAL;
            }
        } else if (rep > 0) {
            printf("R,engine,%s,%s,%s,%zu,%.1f,%.1f\n",
                   bench->capture ? "replay" : "penstock", ps_engine_name(bench->engine),
                   workload->name, workload->task_count, (double)(pushed - begin) / count,
                   (double)(end - begin) / count);
        }
    }
    return PS_OK;
}

static enum ps_status run_workload(struct bench *bench, const char *name)
{
    struct workload workload;
    enum ps_status status = PS_ENOMEM;
    PS_TRY(workload_create(name, &workload));
    struct bench_task *args = calloc(workload.task_count, sizeof(*args));
    bench->vars = calloc(workload.var_count, sizeof(struct ps_var *));
    bench->values = calloc(workload.var_count, sizeof(*bench->values));
    if (args == NULL || bench->vars == NULL || bench->values == NULL) {
        goto out;
    }
    for (size_t i = 0; i < workload.task_count; i++) {
        args[i] = (struct bench_task){&workload.tasks[i], bench->values};
    }
    for (size_t i = 0; i < workload.var_count; i++) {
        PS_TRY_GOTO(status, ps_var_create(bench->engine, &bench->vars[i]), out);
    }
    if (bench->capture) {
        PS_TRY_GOTO(status, capture(bench, &workload, args), out);
    }
    status = repeat(bench, &workload, args);
out:
    release(bench, &workload);
    for (size_t i = 0; bench->vars != NULL && i < workload.var_count; i++) {
        ps_var_delete(bench->engine, bench->vars[i]);
    }
    free(bench->values);
    free(bench->vars);
    free(args);
    workload_fini(&workload);
    return status;
}

int main(int argc, char **argv)
{
    struct bench bench = {.reps = 5};
    struct ps_node *node = NULL;
    struct ps_error err = {.status = PS_OK};
    int64_t type = PS_ENGINE_FROM_SETTING;
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        int64_t *value = strcmp(argv[at], "-r") == 0   ? &bench.reps
                         : strcmp(argv[at], "-e") == 0 ? &type
                                                       : NULL;
        if (strcmp(argv[at], "-v") == 0) {
            bench.verify = true;
        } else if (strcmp(argv[at], "-c") == 0) {
            bench.capture = true;
        } else if (value == NULL || ++at == argc ||
                   ps_parse_i64(argv[at], value) != PS_OK) {
            fprintf(stderr,
                    "usage: engine_bench [-c] [-v] [-r REPS] [-e TYPE] [WORKLOAD ...]\n");
            return 2;
        }
    }
    struct ps_node_options options = {.name = "bench"};
    enum ps_status status = ps_node_open(&options, &node, &err);
    if (status == PS_OK) {
        status = ps_engine_create(node, (int)type, &bench.engine, &err);
    }
    const char *const *names =
        at < argc ? (const char *const *)&argv[at] : workload_names;
    for (; status == PS_OK && *names != NULL; names++) {
        status = run_workload(&bench, *names);
    }
    if (status != PS_OK) {
        fprintf(stderr, "engine_bench: %s %s\n", ps_status_text(status), err.text);
    }
    ps_engine_destroy(bench.engine);
    ps_node_close(node);
    return status == PS_OK ? 0 : 1;
}
