/* What the tests of lanes share, on top of the engines' suite (its gates, trails and
 * opening of engines): which threads ran an operation, what their names are, how many
 * ran at once, what they cost.  Nothing here looks at a wall clock. */
#ifndef PENSTOCK_TESTS_UNIT_ENGINE_LANES_RIG_H
#define PENSTOCK_TESTS_UNIT_ENGINE_LANES_RIG_H

#include "tests/suite/engine_suite.h"

/* Opens an engine of 'type' with "SIM_GPUS=4", "LOG=error" and the settings given, such
 * as lanes_open(&suite, type, "CPU_WORKER_NTHREADS=3", NULL). */
void lanes_open(struct suite *suite, int type, ...) __attribute__((sentinel));

/* "NAME=value" */
char *lanes_setting(char text[64], const char *name, int value);

/* Threads of this process but the caller; those whose name begins with 'prefix'. */
int lanes_thread_count(const char *prefix);
/* Processor time that they have used, nanoseconds. */
uint64_t lanes_cpu_ns(const char *prefix);
/* How often they have gone to sleep (voluntary context switches). */
uint64_t lanes_sleeps(const char *prefix);

/* A crowd of operations: they stand at a gate, and note who they are. */
#define LANES_MAX_THREADS 64
struct crowd {
    struct gate gate;
    struct ps_mutex lock;
    uint32_t ids[LANES_MAX_THREADS]; /* threads that ran one */
    int id_count;
    int inside, most_inside; /* at once */
    char name[16];           /* of the thread that ran the last one */
    struct ps_stream *streams[LANES_MAX_THREADS]; /* by the place of the thread in ids */
};
void crowd_init(struct crowd *crowd, bool open);
void crowd_fini(struct crowd *crowd);
enum ps_status run_crowd(void *arg, const struct ps_run *run, struct ps_error *err);
void crowd_push(struct suite *suite, struct crowd *crowd, struct ps_context context,
                enum ps_engine_op_kind kind, int priority);

/* Pushes 'count' independent operations of 'kind' to 'context'; waits until 'together'
 * of them are inside, opens the gate, and asserts that never more than 'together' were
 * inside and that as many threads ran them.  'prefix' names the threads. */
void lanes_check_concurrency(struct suite *suite, struct ps_context context,
                             enum ps_engine_op_kind kind, int count, int together,
                             const char *prefix);

/* Holds the only thread of the lane of (context, kind) at a gate, pushes operations with
 * these priorities, opens, and fills 'order_out' with the indices in the order they ran.
 */
void lanes_run_behind_gate(struct suite *suite, struct ps_context context,
                           enum ps_engine_op_kind kind, const int *priorities, int count,
                           int *order_out);
/* The same with wild priorities; asserts that they ran in the order of their pushes. */
void lanes_check_fifo(struct suite *suite, struct ps_context context,
                      enum ps_engine_op_kind kind);

/* Fills the 'threads' threads of the lane of (held_context, held), and asserts that an
 * operation of (context, kind) runs meanwhile. */
void lanes_check_independent(struct suite *suite, struct ps_context held_context,
                             enum ps_engine_op_kind held, int threads,
                             struct ps_context context, enum ps_engine_op_kind kind);

#endif
