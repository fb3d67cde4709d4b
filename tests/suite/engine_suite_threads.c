/* Which thread runs what: pushes from many threads and from inside operations,
 * asynchronous operations, lanes, priorities, the bound on run-ahead. */
#include "tests/suite/engine_suite.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static enum ps_status run_count(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(run);
    PS_UNUSED(err);
    atomic_fetch_add((_Atomic int *)arg, 1);
    return PS_OK;
}

/* ---- pushes from many threads ---- */

enum { PUSHES = 3000 };

struct pusher {
    struct suite *suite;
    struct ps_var *read, *write;
    _Atomic int *ran;
};

static void push_many(void *arg)
{
    struct pusher *pusher = arg;
    for (int i = 0; i < PUSHES; i++) {
        push(pusher->suite, "cross", run_count, pusher->ran, pusher->read, pusher->write);
    }
}

static void a_push_is_atomic_over_its_variables(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite), *b = new_var(suite);
    struct ps_thread threads[2] = {{.started = false}, {.started = false}};
    _Atomic int ran = 0;
    struct pusher ab = {suite, a, b, &ran}, ba = {suite, b, a, &ran};
    assert_int_equal(ps_thread_start(&threads[0], "ab", push_many, &ab), PS_OK);
    assert_int_equal(ps_thread_start(&threads[1], "ba", push_many, &ba), PS_OK);
    ps_thread_join(&threads[0]);
    ps_thread_join(&threads[1]);
    wait_all_ok(suite);
    assert_int_equal(ran, 2 * PUSHES);
    assert_int_equal(ps_var_version(a) + ps_var_version(b), 2 * PUSHES);
    ps_var_delete(suite->engine, a);
    ps_var_delete(suite->engine, b);
}

struct nested {
    struct suite *suite;
    struct trail *trail;
    struct ps_var *var;
    struct step inner;
    enum ps_status wait_status;
};

static enum ps_status run_nested(void *arg, const struct ps_run *run,
                                 struct ps_error *err)
{
    struct nested *nested = arg;
    PS_UNUSED(run);
    PS_UNUSED(err);
    push(nested->suite, "inner", run_step, &nested->inner, NULL, nested->var);
    nested->wait_status = ps_engine_wait_all(nested->suite->engine, NULL);
    struct step outer = {.trail = nested->trail, .number = 1};
    return run_step(&outer, NULL, NULL);
}

static void an_op_may_push_but_not_wait(void **state)
{
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite);
    struct trail trail;
    trail_init(&trail);
    struct nested nested = {.suite = suite,
                            .trail = &trail,
                            .var = var,
                            .inner = {.trail = &trail, .number = 2}};
    push(suite, "outer", run_nested, &nested, NULL, var);
    wait_all_ok(suite);
    assert_int_equal(nested.wait_status, PS_EPERM);
    assert_int_equal(trail.count, 2);
    assert_int_equal(trail.items[0], 1); /* the inner one writes what the outer writes */
    assert_int_equal(trail.items[1], 2);
    ps_var_delete(suite->engine, var);
    trail_fini(&trail);
}

/* ---- asynchronous operations ---- */

struct later { /* completes what was started, on a thread of its own */
    struct ps_mutex lock;
    struct ps_cond cond;
    struct ps_completion *done;
    enum ps_status result;
    uint32_t start_thread;
    int released;
};

static void start_later(void *arg, const struct ps_run *run, struct ps_completion *done)
{
    struct later *later = arg;
    PS_UNUSED(run);
    ps_mutex_lock(&later->lock);
    later->start_thread = ps_thread_id();
    later->done = done;
    ps_cond_broadcast(&later->cond);
    ps_mutex_unlock(&later->lock);
}

static void release_later(void *arg)
{
    ((struct later *)arg)->released++;
}

static void complete_later(void *arg)
{
    struct later *later = arg;
    ps_mutex_lock(&later->lock);
    while (later->done == NULL) {
        ps_cond_wait(&later->cond, &later->lock);
    }
    ps_mutex_unlock(&later->lock);
    ps_engine_complete(later->done, later->result, "peer lost: server 1");
}

static void an_async_op_starts_on_the_pusher_and_ends_when_completed(void **state)
{
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite);
    struct ps_error err = {.status = PS_OK};
    for (int fails = 0; fails < 2; fails++) {
        struct later later = {.result = fails ? PS_EPEER : PS_OK};
        struct ps_thread thread = {.started = false};
        _Atomic int ran = 0;
        ps_mutex_init(&later.lock);
        ps_cond_init(&later.cond);
        assert_int_equal(ps_thread_start(&thread, "later", complete_later, &later),
                         PS_OK);
        struct ps_engine_op op = {.name = "pull",
                                  .start = start_later,
                                  .arg = &later,
                                  .release = release_later,
                                  .writes = &var,
                                  .write_count = 1,
                                  .kind = PS_ENGINE_ASYNC};
        assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
        push(suite, "use", run_count, &ran, var, NULL);
        if (fails) {
            assert_int_equal(ps_engine_wait_all(suite->engine, &err), PS_EPEER);
            assert_string_equal(err.text, "pull: peer lost: server 1");
        } else {
            wait_all_ok(suite);
        }
        assert_int_equal(ran, fails ? 0 : 1);
        assert_int_equal(later.start_thread, ps_thread_id());
        assert_int_equal(later.released, 1);
        ps_thread_join(&thread);
        ps_cond_fini(&later.cond);
        ps_mutex_fini(&later.lock);
    }
    ps_var_delete(suite->engine, var);
}

static void start_and_complete(void *arg, const struct ps_run *run,
                               struct ps_completion *done)
{
    PS_UNUSED(run);
    atomic_fetch_add((_Atomic int *)arg, 1);
    ps_engine_complete(done, PS_OK, NULL);
}

static void an_async_op_may_complete_inside_its_start(void **state)
{
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite);
    _Atomic int ran = 0;
    static const enum ps_engine_op_kind kinds[] = {PS_ENGINE_ASYNC, PS_ENGINE_NORMAL,
                                                   PS_ENGINE_CPU_PRIORITIZED};
    for (int i = 0; i < 300; i++) {
        struct ps_engine_op op = {.name = "quick",
                                  .start = start_and_complete,
                                  .arg = &ran,
                                  .writes = &var,
                                  .write_count = 1,
                                  .kind = kinds[i % 3]};
        assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
    }
    wait_var_ok(suite, var);
    assert_int_equal(ran, 300);
    assert_int_equal(ps_var_version(var), 300);
    ps_var_delete(suite->engine, var);
}

/* ---- lanes ---- */

static void case_016_priority_op_runs_next(void **state)
{
    static const char *const one[] = {"LOG=error", "CPU_PRIORITY_NTHREADS=1", NULL};
    struct suite suite;
    PS_UNUSED(state);
    if (suite_type != PS_ENGINE_PER_DEVICE) {
        skip();
    }
    suite_open(&suite, one, (int)suite_type);
    struct trail trail;
    struct gate gate;
    static struct step steps[1004];
    trail_init(&trail);
    gate_init(&gate, false);
    for (int i = 0; i < 1004; i++) {
        /* 0 holds the thread; 1..1000 have priority 0; then 10, 5, 10 */
        static const int late[] = {10, 5, 10};
        steps[i] =
            (struct step){.trail = &trail, .gate = i == 0 ? &gate : NULL, .number = i};
        struct ps_engine_op op = {.name = "prioritized",
                                  .run = run_step,
                                  .arg = &steps[i],
                                  .kind = PS_ENGINE_CPU_PRIORITIZED,
                                  .priority = i > 1000 ? late[i - 1001] : 0};
        assert_int_equal(ps_engine_push(suite.engine, &op), PS_OK);
        if (i == 0) {
            gate_wait_arrived(&gate, 1);
        }
    }
    gate_open(&gate);
    wait_all_ok(&suite);
    static const int first[] = {0, 1001, 1003, 1002, 1, 2, 3};
    assert_int_equal(trail.count, 1004);
    assert_memory_equal(trail.items, first, sizeof(first));
    for (int i = 1; i <= 1000; i++) { /* equal priorities: first in, first out */
        assert_int_equal(trail.items[3 + i], i);
    }
    gate_fini(&gate);
    trail_fini(&trail);
    suite_close(&suite);
}

static void the_priority_pool_and_a_device_do_not_hold_each_other_up(void **state)
{
    struct suite *suite = *state;
    if (suite_type != PS_ENGINE_PER_DEVICE) {
        skip();
    }
    struct gate shut;
    _Atomic int ran = 0;
    gate_init(&shut, false);
    struct ps_var *var = new_var(suite);
    push(suite, "holds cpu0", run_gate, &shut, NULL, NULL);
    gate_wait_arrived(&shut, 1);
    struct ps_engine_op op = {.name = "reduce",
                              .run = run_count,
                              .arg = &ran,
                              .writes = &var,
                              .write_count = 1,
                              .kind = PS_ENGINE_CPU_PRIORITIZED};
    assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
    op.context = PS_CPU(1);
    op.kind = PS_ENGINE_NORMAL;
    assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
    wait_var_ok(suite, var);
    assert_int_equal(ran, 2);
    gate_open(&shut);
    wait_all_ok(suite);
    ps_var_delete(suite->engine, var);
    gate_fini(&shut);
}

static void an_op_that_becomes_ready_late_goes_before_younger_ones(void **state)
{
    struct suite *suite = *state;
    struct trail trail;
    static struct step steps[20];
    struct ps_var *sum = new_var(suite), *temporaries[10];
    if (suite_type == PS_ENGINE_POOLED) {
        ps_var_delete(suite->engine, sum);
        skip();
    }
    trail_init(&trail);
    struct gate gate;
    gate_init(&gate, suite_type == PS_ENGINE_NAIVE);
    push(suite, "hold", run_gate, &gate, NULL, NULL);
    for (int i = 0; i < 10; i++) { /* t = f(); sum += t */
        temporaries[i] = new_var(suite);
        for (int k = 0; k < 2; k++) {
            steps[2 * i + k] = (struct step){.trail = &trail, .number = 2 * i + k};
        }
        push(suite, "make", run_step, &steps[2 * i], NULL, temporaries[i]);
        push(suite, "add", run_step, &steps[2 * i + 1], temporaries[i], sum);
    }
    gate_open(&gate);
    wait_all_ok(suite);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(trail.items[i], i);
    }
    for (int i = 0; i < 10; i++) {
        ps_var_delete(suite->engine, temporaries[i]);
    }
    ps_var_delete(suite->engine, sum);
    gate_fini(&gate);
    trail_fini(&trail);
}

/* ---- the bound ---- */

struct bounded {
    struct suite *suite;
    struct gate *gate;
    _Atomic int pushed;
};

static void push_past_the_bound(void *arg)
{
    struct bounded *bounded = arg;
    for (int i = 0; i < 20; i++) {
        push(bounded->suite, "gated", run_gate, bounded->gate, NULL, NULL);
        atomic_fetch_add(&bounded->pushed, 1);
    }
}

static void a_push_waits_while_too_many_ops_are_unfinished(void **state)
{
    static const char *const four[] = {"LOG=error", "ENGINE_MAX_INFLIGHT=4", NULL};
    struct suite suite;
    PS_UNUSED(state);
    if (suite_type == PS_ENGINE_NAIVE) {
        skip();
    }
    suite_open(&suite, four, (int)suite_type);
    struct gate gate;
    struct bounded bounded = {.suite = &suite, .gate = &gate};
    struct ps_thread thread = {.started = false};
    gate_init(&gate, false);
    assert_int_equal(ps_thread_start(&thread, "pusher", push_past_the_bound, &bounded),
                     PS_OK);
    while (atomic_load(&bounded.pushed) < 4) {
        ps_driver_sleep(suite.node->driver, 10 * PS_NS_PER_US);
    }
    /* from a loop's handler a push must not wait */
    struct ps_engine_op op = {
        .name = "handler", .run = run_gate, .arg = &gate, .unbounded = true};
    assert_int_equal(ps_engine_push(suite.engine, &op), PS_OK);
    assert_int_equal(atomic_load(&bounded.pushed), 4);
    assert_int_equal(ps_engine_pending(suite.engine), 5);
    gate_open(&gate);
    ps_thread_join(&thread);
    wait_all_ok(&suite);
    assert_int_equal(gate.arrived, 21);
    gate_fini(&gate);
    suite_close(&suite);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, suite_setup, suite_teardown)

static const struct CMUnitTest tests[] = {
    TEST(a_push_is_atomic_over_its_variables),
    TEST(an_op_may_push_but_not_wait),
    TEST(an_async_op_starts_on_the_pusher_and_ends_when_completed),
    TEST(an_async_op_may_complete_inside_its_start),
    cmocka_unit_test(case_016_priority_op_runs_next),
    TEST(the_priority_pool_and_a_device_do_not_hold_each_other_up),
    TEST(an_op_that_becomes_ready_late_goes_before_younger_ones),
    cmocka_unit_test(a_push_waits_while_too_many_ops_are_unfinished),
};

SUITE_GROUP(suite_threads, "threads", tests);
