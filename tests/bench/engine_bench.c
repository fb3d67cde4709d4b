/* What an operation costs in the engine: pushes of empty functions over the workloads of
 * workload.h.
 *
 *   engine_bench [-v] [-r REPS] [-e TYPE] [WORKLOAD ...]
 *
 * Rows: R,engine,penstock,TYPE,WORKLOAD,TASKS,SUBMIT_NS,TOTAL_NS   (per task, each
 * repetition one row; the first, which warms pools up, is not printed).  -v runs a body
 * that checks the order of conflicting tasks and prints "verify WORKLOAD ok". */
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
    bool verify;
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

static enum ps_status push_all(struct bench *bench, const struct workload *workload,
                               struct bench_task *args)
{
    for (size_t i = 0; i < workload->task_count; i++) {
        const struct workload_task *task = &workload->tasks[i];
        struct ps_var *vars[WORKLOAD_MAX_VARS];
        size_t count = (size_t)task->write_count + task->read_count;
        for (size_t k = 0; k < count; k++) {
            vars[k] = bench->vars[task->vars[k]];
        }
        struct ps_engine_op op = {
            .name = "task",
            .run = bench->verify ? run_task : run_nothing,
            .arg = bench->verify ? &args[i] : NULL,
            .writes = vars,
            .write_count = task->write_count,
            .reads = vars + task->write_count,
            .read_count = task->read_count,
        };
        PS_TRY(ps_engine_push(bench->engine, &op));
    }
    return PS_OK;
}

static enum ps_status repeat(struct bench *bench, const struct workload *workload,
                             struct bench_task *args)
{
    struct ps_clock *clock = ps_clock_real();
    double count = (double)workload->task_count;
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
            printf("R,engine,penstock,%s,%s,%zu,%.1f,%.1f\n",
                   ps_engine_name(bench->engine), workload->name, workload->task_count,
                   (double)(pushed - begin) / count, (double)(end - begin) / count);
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
    status = repeat(bench, &workload, args);
out:
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
        } else if (value == NULL || ++at == argc ||
                   ps_parse_i64(argv[at], value) != PS_OK) {
            fprintf(stderr,
                    "usage: engine_bench [-v] [-r REPS] [-e TYPE] [WORKLOAD ...]\n");
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
