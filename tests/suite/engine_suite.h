/* The conformance suite of engines: what every group of its tests uses.  The groups run
 * over the naive, the pooled and the per-device engine; order and concurrency are shown
 * with gated operations, never with times.  The helpers (engine_suite_rig.c) also serve
 * tests/unit/engine/lanes_*_test.c. */
#ifndef PENSTOCK_TESTS_SUITE_ENGINE_SUITE_H
#define PENSTOCK_TESTS_SUITE_ENGINE_SUITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/node.h"
#include "base/thread.h"
#include "base/util.h"
#include "engine/engine.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SUITE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SUITE_SANITIZED 1
#endif
#endif
#if !defined(SUITE_SANITIZED)
#define SUITE_SANITIZED 0
#endif

/* The engine that the running group is about. */
extern enum ps_engine_type suite_type;

struct suite {
    struct ps_node *node;
    struct ps_engine *engine;
};

/* cmocka's setup and teardown: *state is a struct suite. */
int suite_setup(void **state);
int suite_teardown(void **state);
/* Another engine on settings of its own ("NAME=value", NULL-terminated). */
void suite_open(struct suite *suite, const char *const *overrides, int type);
void suite_close(struct suite *suite);

/* A door in the path of operations: they stand before it until the test opens it. */
struct gate {
    struct ps_mutex lock;
    struct ps_cond cond;
    bool open;
    int arrived; /* operations that came to it */
};
void gate_init(struct gate *gate, bool open);
void gate_fini(struct gate *gate);
void gate_open(struct gate *gate);
void gate_pass(struct gate *gate);
/* Waits until 'count' operations have come to the gate. */
void gate_wait_arrived(struct gate *gate, int count);
/* An operation's function whose argument is a gate. */
enum ps_status run_gate(void *arg, const struct ps_run *run, struct ps_error *err);

/* A list of numbers that operations append to. */
#define TRAIL_MAX 2048
struct trail {
    struct ps_mutex lock;
    int items[TRAIL_MAX];
    int count;
};
void trail_init(struct trail *trail);
void trail_fini(struct trail *trail);
struct step { /* an operation's argument: pass 'gate' (may be NULL), append, return */
    struct trail *trail;
    struct gate *gate;
    int number;
    enum ps_status result;
};
enum ps_status run_step(void *arg, const struct ps_run *run, struct ps_error *err);

struct ps_var *new_var(struct suite *suite);
/* Pushes run(arg) that reads 'read' and writes 'write' (each may be NULL). */
void push(struct suite *suite, const char *name,
          enum ps_status (*run)(void *arg, const struct ps_run *run,
                                struct ps_error *err),
          void *arg, struct ps_var *read, struct ps_var *write);
void wait_all_ok(struct suite *suite);
void wait_var_ok(struct suite *suite, struct ps_var *var);

/* The groups. */
struct suite_group {
    const char *name;
    const struct CMUnitTest *tests;
    size_t count;
};
extern const struct suite_group suite_order, suite_errors, suite_threads, suite_life,
    suite_cases, suite_segment, suite_segment_life, suite_end;

#define SUITE_GROUP(variable, text, list) \
    const struct suite_group variable = { \
        .name = text, .tests = list, .count = PS_COUNT(list)}

#endif
