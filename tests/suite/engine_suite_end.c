/* The end of an engine, and of a process that has one: nothing hangs, what has not
 * started is skipped, variables are deleted (reference/behaviour.md 2.3, 2.5). */
#include "tests/suite/engine_suite.h"

#include "engine/tensor/tensor.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static enum ps_status run_count(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(run);
    PS_UNUSED(err);
    atomic_fetch_add((_Atomic int *)arg, 1);
    return PS_OK;
}

static void count_release(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1000);
}

static void count_deletion(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void case_006_exit_without_wait_is_clean_and_quick(void **state)
{
    struct ps_clock *clock = ps_clock_real();
    PS_UNUSED(state);
    for (int repeat = 0; repeat < 200; repeat++) {
        struct suite suite;
        _Atomic int ran = 0;
        suite_open(&suite, NULL, (int)suite_type);
        struct ps_var *vars[3] = {new_var(&suite), new_var(&suite), new_var(&suite)};
        _Atomic int deletions = 0;
        for (int i = 0; i < 200; i++) {
            push(&suite, "left", run_count, &ran, vars[i % 3], vars[(i + 1) % 3]);
        }
        ps_var_delete_then(suite.engine, vars[0], count_deletion, &deletions);
        uint64_t begin = ps_clock_now_ns(clock);
        suite_close(&suite);
        assert_true(ps_clock_now_ns(clock) - begin < PS_NS_PER_S);
        assert_int_equal(deletions, 1); /* deletions are done even then */
    }
}

struct doubling {
    struct ps_tensor *data, *sum; /* [1,200] f32: sum = data + data */
};

static enum ps_status run_double(void *arg, const struct ps_run *run,
                                 struct ps_error *err)
{
    const struct doubling *doubling = arg;
    const float *data = ps_tensor_address(doubling->data, run);
    float *sum = ps_tensor_address(doubling->sum, run);
    PS_UNUSED(err);
    for (int i = 0; i < 200; i++) {
        sum[i] = data[i] + data[i];
    }
    return PS_OK;
}

/* Pushes and leaves without a wait, a release or a destroy. */
static void add_and_exit(void)
{
    struct suite suite;
    struct doubling doubling;
    struct ps_shape shape = PS_SHAPE(1, 200);
    suite_open(&suite, NULL, (int)suite_type);
    assert_int_equal(
        ps_tensor_create(suite.engine, PS_CPU(0), PS_F32, &shape, &doubling.data), PS_OK);
    assert_int_equal(ps_tensor_like(doubling.data, &doubling.sum), PS_OK);
    assert_int_equal(ps_tensor_fill(doubling.data, 1), PS_OK);
    for (int i = 0; i < 20; i++) {
        push(&suite, "add", run_double, &doubling, ps_tensor_var(doubling.data),
             ps_tensor_var(doubling.sum));
    }
    (void)alarm(SUITE_SANITIZED ? 20 : 1); /* a second from here on */
    exit(0);
}

static void case_006_a_process_may_end_while_ops_run(void **state)
{
    PS_UNUSED(state);
    int repeats = SUITE_SANITIZED ? 20 : suite_type == PS_ENGINE_PER_DEVICE ? 200 : 50;
    for (int repeat = 0; repeat < repeats; repeat++) {
        (void)fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            add_and_exit();
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

struct closer { /* destroys an engine on a thread of its own */
    struct ps_engine *engine;
};

static void run_closer(void *arg)
{
    ps_engine_destroy(((struct closer *)arg)->engine);
}

/* Pushes behind the gate until the engine refuses, once it has begun to close. */
static int push_until_closed(struct suite *suite, struct ps_var *var, _Atomic int *ran)
{
    for (int pushed = 0;; pushed++) {
        struct ps_engine_op op = {
            .name = "skipped",
            .run = run_count,
            .arg = ran,
            .release = count_release,
            .writes = &var,
            .write_count = 1,
            .context = pushed % 2 == 0 ? PS_CPU(0) : PS_GPU(0),
            .kind = (enum ps_engine_op_kind)(pushed / 2 % PS_ENGINE_OP_KIND_COUNT),
            .unbounded = true};
        enum ps_status status = ps_engine_push(suite->engine, &op);
        if (status != PS_OK) {
            assert_int_equal(status, PS_ECLOSED);
            return pushed;
        }
        ps_driver_sleep(suite->node->driver, 10 * PS_NS_PER_US);
    }
}

static void ops_that_have_not_started_are_skipped_at_the_end(void **state)
{
    struct suite suite;
    struct gate gate;
    struct ps_thread thread = {.started = false};
    _Atomic int ran = 0, deletions = 0;
    PS_UNUSED(state);
    if (suite_type == PS_ENGINE_NAIVE) {
        skip();
    }
    suite_open(&suite, NULL, (int)suite_type);
    gate_init(&gate, false);
    struct ps_var *var = new_var(&suite), *gone = new_var(&suite);
    push(&suite, "hold", run_gate, &gate, gone, var);
    gate_wait_arrived(&gate, 1);
    ps_var_delete_then(suite.engine, gone, count_deletion, &deletions);
    struct closer closer = {.engine = suite.engine};
    assert_int_equal(ps_thread_start(&thread, "closer", run_closer, &closer), PS_OK);
    int pushed = push_until_closed(&suite, var, &ran);
    assert_int_equal(ran, 0);
    assert_int_equal(deletions, 0);
    gate_open(&gate);
    ps_thread_join(&thread);
    assert_int_equal(ran, pushed * 1000); /* released without a run */
    assert_int_equal(deletions, 1);       /* done even then */
    ps_node_close(suite.node);
    gate_fini(&gate);
}

static void engines_start_and_stop_on_one_node(void **state)
{
    struct suite suite;
    PS_UNUSED(state);
    suite_open(&suite, NULL, (int)suite_type);
    for (int round = 0; round < 30; round++) {
        _Atomic int ran = 0;
        struct ps_var *var = new_var(&suite);
        for (int i = 0; i < 50; i++) {
            push(&suite, "count", run_count, &ran, NULL, var);
        }
        if (round % 2 == 0) { /* with and without something left to do */
            wait_all_ok(&suite);
            assert_int_equal(ran, 50);
        }
        ps_var_delete(suite.engine, var);
        ps_engine_destroy(suite.engine);
        assert_int_equal(
            ps_engine_create(suite.node, (int)suite_type, &suite.engine, NULL), PS_OK);
    }
    suite_close(&suite);
}

static enum ps_status run_destroy(void *arg, const struct ps_run *run,
                                  struct ps_error *err)
{
    PS_UNUSED(err);
    ps_engine_destroy(run->engine);
    atomic_fetch_add((_Atomic int *)arg, 1);
    return PS_OK;
}

static void a_stop_from_inside_an_op_is_ignored(void **state)
{
    struct suite suite;
    _Atomic int ran = 0;
    PS_UNUSED(state);
    suite_open(&suite, NULL, (int)suite_type);
    push(&suite, "stop", run_destroy, &ran, NULL, NULL);
    wait_all_ok(&suite);
    push(&suite, "goes on", run_count, &ran, NULL, NULL);
    wait_all_ok(&suite);
    assert_int_equal(ran, 2);
    suite_close(&suite);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(case_006_exit_without_wait_is_clean_and_quick),
    cmocka_unit_test(case_006_a_process_may_end_while_ops_run),
    cmocka_unit_test(ops_that_have_not_started_are_skipped_at_the_end),
    cmocka_unit_test(engines_start_and_stop_on_one_node),
    cmocka_unit_test(a_stop_from_inside_an_op_is_ignored),
};

SUITE_GROUP(suite_end, "ends", tests);
