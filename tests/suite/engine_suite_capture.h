/* Captured segments, for the groups of tests about them. */
#ifndef PENSTOCK_TESTS_SUITE_ENGINE_SUITE_CAPTURE_H
#define PENSTOCK_TESTS_SUITE_ENGINE_SUITE_CAPTURE_H

#include "tests/suite/engine_suite.h"

#include <stdatomic.h>

typedef enum ps_status (*run_fn)(void *arg, const struct ps_run *run,
                                 struct ps_error *err);

/* A segment in the making: operations with at most two variables. */
#define CAPTURE_MAX 8
struct capture {
    struct suite *suite;
    struct ps_engine_call *calls[CAPTURE_MAX];
    size_t count;
    struct ps_segment *segment;
};

/* cmocka's setup: threads enough for an operation before a gate and others beside it. */
int capture_setup(void **state);
/* An operation that reads '*read' and writes '*write' (each may be NULL). */
struct ps_engine_op capture_op(const char *name, run_fn run, void *arg,
                               struct ps_var *const *read, struct ps_var *const *write);
void capture_add_op(struct capture *capture, const struct ps_engine_op *op);
void capture_add(struct capture *capture, const char *name, run_fn run, void *arg,
                 struct ps_var *read, struct ps_var *write);
void capture_seal(struct capture *capture);
void capture_replay(struct capture *capture);
/* The segment and its calls go. */
void capture_release(struct capture *capture);
void delete_vars(struct suite *suite, struct ps_var *const *vars, size_t count);

/* An operation's function that counts: 'arg' is an _Atomic int. */
enum ps_status capture_count(void *arg, const struct ps_run *run, struct ps_error *err);

#define SEGMENT_TEST(name) \
    cmocka_unit_test_setup_teardown(name, capture_setup, suite_teardown)

#endif
