/* Lives of variables and of prepared operations, and what a fork's child may do. */
#include "tests/suite/engine_suite.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static enum ps_status run_count(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(run);
    PS_UNUSED(err);
    atomic_fetch_add((_Atomic int *)arg, 1);
    return PS_OK;
}

struct deletion {
    _Atomic int *ran;
    int ran_before; /* operations that had run when the variable went */
    _Atomic int calls;
};

static void deleted(void *arg)
{
    struct deletion *deletion = arg;
    deletion->ran_before = atomic_load(deletion->ran);
    atomic_fetch_add(&deletion->calls, 1);
}

static void a_variable_goes_after_all_its_users(void **state)
{
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite);
    struct gate gate;
    _Atomic int ran = 0;
    struct deletion deletion = {.ran = &ran};
    gate_init(&gate, suite_type == PS_ENGINE_NAIVE);
    push(suite, "hold", run_gate, &gate, NULL, var);
    for (int i = 0; i < 20; i++) {
        push(suite, "read", run_count, &ran, var, NULL);
    }
    ps_var_delete_then(suite->engine, var, deleted, &deletion);
    if (suite_type != PS_ENGINE_NAIVE) {
        assert_int_equal(deletion.calls, 0);
    }
    gate_open(&gate);
    wait_all_ok(suite);
    assert_int_equal(deletion.calls, 1);
    assert_int_equal(deletion.ran_before, 20);
    gate_fini(&gate);
}

static void an_idle_variable_goes_at_once(void **state)
{
    struct suite *suite = *state;
    _Atomic int ran = 0;
    struct deletion deletion = {.ran = &ran};
    ps_var_delete_then(suite->engine, new_var(suite), deleted, &deletion);
    assert_int_equal(deletion.calls, 1);
    ps_var_delete(suite->engine, NULL);
}

static void count_release(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1000000);
}

static void a_prepared_op_is_pushed_many_times_and_released_once(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite), *b = new_var(suite);
    struct ps_var *reads[] = {a, b, a}, *writes[] = {b, b};
    _Atomic int ran = 0;
    struct ps_engine_call *call;
    struct ps_engine_op op = {.name = "prepared",
                              .run = run_count,
                              .arg = &ran,
                              .release = count_release,
                              .reads = reads,
                              .read_count = 3,
                              .writes = writes,
                              .write_count = 2};
    assert_int_equal(ps_engine_call_create(suite->engine, &op, &call), PS_OK);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(ps_engine_call_push(call), PS_OK);
    }
    ps_engine_call_destroy(call); /* pushes that were made still run */
    wait_all_ok(suite);
    while (atomic_load(&ran) < 1000000) { /* released just after the last one ended */
        ps_driver_sleep(suite->node->driver, 10 * PS_NS_PER_US);
    }
    assert_int_equal(ran, 1000000 + 1000);
    assert_int_equal(ps_var_version(b), 1000);
    assert_int_equal(ps_var_version(a), 0);
    ps_engine_call_destroy(NULL);
    ps_var_delete(suite->engine, a);
    ps_var_delete(suite->engine, b);
}

/* ---- fork ---- */

/* In a child: every call is refused with words, nothing hangs.  Returns the exit code. */
static int child_main(struct suite *suite, struct ps_var *var,
                      struct ps_engine_call *call)
{
    struct ps_error err = {.status = PS_OK};
    struct ps_var *other;
    _Atomic int ran = 0;
    struct ps_engine_op op = {.name = "child", .run = run_count, .arg = &ran};
    if (ps_engine_push(suite->engine, &op) != PS_EFORK ||
        ps_engine_call_push(call) != PS_EFORK ||
        ps_var_create(suite->engine, &other) != PS_EFORK) {
        return 1;
    }
    if (ps_engine_wait_all(suite->engine, &err) != PS_EFORK ||
        strstr(err.text, "not usable after fork") == NULL ||
        ps_engine_wait_var(suite->engine, var, &err) != PS_EFORK) {
        return 2;
    }
    ps_var_delete(suite->engine, var);
    ps_engine_call_destroy(call);
    ps_engine_destroy(suite->engine);
    return ran == 0 ? 0 : 3;
}

/* In a child: an engine of its own works.  Samples of [6,8,32,12,12] zeros in batches. */
enum { SAMPLES = 200, BATCH = 64, SAMPLE_SIZE = 6 * 8 * 32 * 12 * 12 };

static enum ps_status run_zeros(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(run);
    PS_UNUSED(err);
    memset(arg, 0, SAMPLE_SIZE * sizeof(float));
    return PS_OK;
}

static int fresh_child_main(void)
{
    struct suite fresh;
    static float samples[4][SAMPLE_SIZE];
    struct ps_var *vars[4];
    suite_open(&fresh, NULL, (int)suite_type);
    for (int i = 0; i < 4; i++) {
        memset(samples[i], 0xff, sizeof(samples[i]));
        vars[i] = new_var(&fresh);
    }
    for (int sample = 0; sample < SAMPLES; sample++) {
        push(&fresh, "zeros", run_zeros, samples[sample % 4], NULL, vars[sample % 4]);
        if (sample % BATCH == BATCH - 1 || sample == SAMPLES - 1) {
            wait_all_ok(&fresh);
        }
    }
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < SAMPLE_SIZE; k++) {
            if (samples[i][k] != 0) {
                return 4;
            }
        }
        ps_var_delete(fresh.engine, vars[i]);
    }
    suite_close(&fresh);
    return 0;
}

static void fork_and_check(struct suite *suite)
{
    struct ps_var *var = new_var(suite);
    struct gate gate;
    struct ps_engine_call *call;
    _Atomic int ran = 0;
    struct ps_engine_op op = {.name = "parent", .run = run_count, .arg = &ran};
    gate_init(&gate, suite_type == PS_ENGINE_NAIVE);
    assert_int_equal(ps_engine_call_create(suite->engine, &op, &call), PS_OK);
    push(suite, "busy", run_gate, &gate, NULL, var); /* threads are at work meanwhile */
    for (int i = 0; i < 2; i++) {
        (void)fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            (void)alarm(20); /* a hang becomes a failure */
            int code = child_main(suite, var, call);
            /* TSan refuses threads in the child of a process with threads */
            _exit(code == 0 && !SUITE_SANITIZED ? fresh_child_main() : code);
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    gate_open(&gate);
    assert_int_equal(ps_engine_call_push(call), PS_OK); /* the parent goes on */
    wait_all_ok(suite);
    assert_int_equal(ran, 1);
    ps_engine_call_destroy(call);
    ps_var_delete(suite->engine, var);
    gate_fini(&gate);
}

static void case_007_a_forks_child_is_refused_with_words(void **state)
{
    if (suite_type == PS_ENGINE_NAIVE) {
        skip();
    }
    fork_and_check(*state);
}

static void case_008_the_same_with_the_synchronous_engine(void **state)
{
    if (suite_type != PS_ENGINE_NAIVE) {
        skip();
    }
    fork_and_check(*state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, suite_setup, suite_teardown)

static const struct CMUnitTest tests[] = {
    TEST(a_variable_goes_after_all_its_users),
    TEST(an_idle_variable_goes_at_once),
    TEST(a_prepared_op_is_pushed_many_times_and_released_once),
    TEST(case_007_a_forks_child_is_refused_with_words),
    TEST(case_008_the_same_with_the_synchronous_engine),
};

SUITE_GROUP(suite_life, "lives", tests);
