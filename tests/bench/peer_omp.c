/* The peer of engine_bench: the same workloads as OpenMP tasks with dependencies
 * (libgomp with gcc).
 *
 *   peer_omp [-v] [-r REPS] [WORKLOAD ...]
 *
 * Rows: R,engine,omp,THREADS,WORKLOAD,TASKS,SUBMIT_NS,TOTAL_NS */
#include "base/clock.h"
#include "base/str.h"
#include "tests/bench/workload.h"

#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct peer {
    char *places; /* one byte a variable: the addresses that depend() names */
    uint64_t *values;
    bool verify;
    int64_t reps;
};

static void submit(const struct peer *peer, const struct workload *workload)
{
    uint64_t *values = peer->values;
    bool verify = peer->verify;
    for (size_t i = 0; i < workload->task_count; i++) {
        const struct workload_task *task = &workload->tasks[i];
        int writes = task->write_count, reads = task->read_count;
        if (reads == 0 && writes == 1) {
#pragma omp task firstprivate(task, values, verify) \
    depend(inout                                    \
           : peer->places[task->vars[0]])
            if (verify) {
                workload_apply(task, values);
            }
        } else {
#pragma omp task firstprivate(task, values, verify)                 \
    depend(iterator(int k = 0                                       \
                    : writes),                                      \
           inout                                                    \
           : peer->places[task->vars[k]]) depend(iterator(int k = 0 \
                                                          : reads), \
                                                 in                 \
                                                 : peer->places[task->vars[writes + k]])
            if (verify) {
                workload_apply(task, values);
            }
        }
    }
}

static bool repeat(struct peer *peer, const struct workload *workload)
{
    struct ps_clock *clock = ps_clock_real();
    double count = (double)workload->task_count;
    for (int64_t rep = 0; rep <= peer->reps; rep++) {
        uint64_t begin = 0, pushed = 0, end = 0;
        int threads = 0;
        memset(peer->values, 0, workload->var_count * sizeof(*peer->values));
#pragma omp parallel
#pragma omp single
        {
            threads = omp_get_num_threads();
            begin = ps_clock_now_ns(clock);
            submit(peer, workload);
            pushed = ps_clock_now_ns(clock);
#pragma omp taskwait
            end = ps_clock_now_ns(clock);
        }
        if (peer->verify) {
            bool same = workload_hash(peer->values, workload->var_count) ==
                        workload_expected(workload);
            printf("verify %s %s\n", workload->name, same ? "ok" : "FAILED");
            if (!same) {
                return false;
            }
        } else if (rep > 0) {
            printf("R,engine,omp,%d,%s,%zu,%.1f,%.1f\n", threads, workload->name,
                   workload->task_count, (double)(pushed - begin) / count,
                   (double)(end - begin) / count);
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    struct peer peer = {.reps = 5};
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (strcmp(argv[at], "-v") == 0) {
            peer.verify = true;
        } else if (strcmp(argv[at], "-r") != 0 || ++at == argc ||
                   ps_parse_i64(argv[at], &peer.reps) != PS_OK) {
            fprintf(stderr, "usage: peer_omp [-v] [-r REPS] [WORKLOAD ...]\n");
            return 2;
        }
    }
    const char *const *names =
        at < argc ? (const char *const *)&argv[at] : workload_names;
    for (; *names != NULL; names++) {
        struct workload workload;
        if (workload_create(*names, &workload) != PS_OK) {
            fprintf(stderr, "peer_omp: no workload %s\n", *names);
            return 1;
        }
        peer.places = calloc(workload.var_count, 1);
        peer.values = calloc(workload.var_count, sizeof(*peer.values));
        bool good =
            peer.places != NULL && peer.values != NULL && repeat(&peer, &workload);
        free(peer.values);
        free(peer.places);
        workload_fini(&workload);
        if (!good) {
            return 1;
        }
    }
    return 0;
}
