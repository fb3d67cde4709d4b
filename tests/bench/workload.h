/* Task workloads for engines and their peers: the same lists of variables read and
 * written for everyone.
 *
 *   chain    200,000 tasks, all write one variable
 *   indep    200,000 tasks, each writes a variable of its own
 *   net50    200 steps of a network of 50 layers: forward, backward, update (30,000)
 *   rand100  10,000 tasks, 1 to 10 random reads and 0 to 2 writes of 100 variables
 *   rand20   the same over 20 variables
 *
 * A variable stands at most once in a task.  Rows: "R,engine,NAME,...". */
#ifndef PENSTOCK_TESTS_BENCH_WORKLOAD_H
#define PENSTOCK_TESTS_BENCH_WORKLOAD_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define WORKLOAD_MAX_VARS 12

struct workload_task {
    uint8_t write_count, read_count;
    uint32_t vars[WORKLOAD_MAX_VARS]; /* writes, then reads */
};

struct workload {
    const char *name;
    size_t task_count, var_count;
    size_t step_tasks; /* the first so many tasks, over and over, are all of them */
    struct workload_task *tasks;
};

/* Errors: PS_ENOENT (no such name), PS_ENOMEM. */
PS_MUST_CHECK enum ps_status workload_create(const char *name,
                                             struct workload *workload_out);
void workload_fini(struct workload *workload);
/* How often the step is run again in one measurement, where it is built once: as often as
 * it takes for all tasks, and where that is once, for about 200,000. */
size_t workload_runs(const struct workload *workload, int verify);

/* What a task does to the values when results are checked: depends on the order of
 * conflicting tasks and is not protected against races. */
void workload_apply(const struct workload_task *task, uint64_t *values);
uint64_t workload_hash(const uint64_t *values, size_t count);
/* The hash after running every task in order; 0 when out of memory. */
uint64_t workload_expected(const struct workload *workload);

/* The names above; NULL-terminated. */
extern const char *const workload_names[];

#endif
