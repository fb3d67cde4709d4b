/* Captured segments: failures, the lives of segments and engines, several threads. */
#include "tests/suite/engine_suite_capture.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static enum ps_status run_fail(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(run);
    return ps_error_set(err, PS_ERANGE, "%s", (const char *)arg);
}

static char bad_scale[] = "scale -1: must be >= 0";

/* ---- failures ---- */

static void a_failure_inside_spoils_what_depends_on_it(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite), *b = new_var(suite), *c = new_var(suite);
    struct ps_var *out = new_var(suite);
    struct ps_error err = {.status = PS_OK};
    _Atomic int skipped = 0, ran = 0, told = 0;
    struct capture capture = {.suite = suite};
    capture_add(&capture, "root", run_fail, bad_scale, NULL, a);
    capture_add(&capture, "inside", capture_count, &skipped, a, b);
    capture_add(&capture, "beside", capture_count, &ran, NULL, c);
    struct ps_engine_op op = capture_op("report", capture_count, &told, &b, &c);
    op.no_skip = true;
    capture_add_op(&capture, &op);
    capture_seal(&capture);
    capture_replay(&capture);
    push(suite, "outside", capture_count, &skipped, b, out);
    assert_int_equal(ps_engine_wait_var(suite->engine, out, &err), PS_ERANGE);
    assert_string_equal(err.text, "root: scale -1: must be >= 0");
    wait_all_ok(suite); /* one error, told once */
    assert_int_equal(skipped, 0);
    assert_int_equal(ran, 1);
    assert_int_equal(told, 1);
    assert_int_equal(ps_var_version(b), 1); /* a skipped write is complete, too */
    assert_int_equal(ps_var_version(c), 2);
    push(suite, "again", capture_count, &ran, b, out);
    wait_var_ok(suite, out);
    assert_int_equal(ran, 2);
    capture_release(&capture);
    delete_vars(suite, (struct ps_var *[]){a, b, c, out}, 4);
}

static void a_failure_from_outside_is_inherited(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite), *b = new_var(suite);
    struct ps_error err = {.status = PS_OK};
    _Atomic int ran = 0;
    struct capture capture = {.suite = suite};
    capture_add(&capture, "reads", capture_count, &ran, a, b);
    capture_add(&capture, "writes", capture_count, &ran, NULL, a);
    capture_seal(&capture);
    push(suite, "root", run_fail, bad_scale, NULL, a);
    capture_replay(&capture);
    assert_int_equal(ps_engine_wait_var(suite->engine, b, &err), PS_ERANGE);
    assert_string_equal(err.text, "root: scale -1: must be >= 0");
    wait_all_ok(suite);
    capture_replay(&capture);
    wait_all_ok(suite);
    assert_true(ran >= 2 && ran <= 3); /* 'writes' may see the error cleared already */
    capture_release(&capture);
    delete_vars(suite, (struct ps_var *[]){a, b}, 2);
}

static void an_operation_on_a_deleted_variable_fails_alone(void **state)
{
    struct suite *suite = *state;
    struct ps_var *gone = new_var(suite), *b = new_var(suite), *c = new_var(suite);
    struct ps_error err = {.status = PS_OK};
    _Atomic int ran = 0;
    struct capture capture = {.suite = suite};
    capture_add(&capture, "reads", capture_count, &ran, gone, b);
    capture_add(&capture, "writes", capture_count, &ran, NULL, gone);
    capture_add(&capture, "reads again", capture_count, &ran, gone, NULL);
    capture_add(&capture, "lives", capture_count, &ran, NULL, c);
    capture_seal(&capture);
    ps_var_delete(suite->engine, gone);
    capture_replay(&capture);
    wait_var_ok(suite, c);
    assert_int_equal(ran, 1);
    assert_int_equal(ps_engine_wait_var(suite->engine, b, &err), PS_EINVAL);
    assert_string_equal(err.text, "reads: uses a variable that was deleted");
    assert_int_equal(ps_engine_wait_all(suite->engine, &err), PS_EINVAL);
    capture_release(&capture);
    delete_vars(suite, (struct ps_var *[]){b, c}, 2);
}

/* ---- lives ---- */

static void count_release(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void a_segment_and_its_calls_go_while_a_replay_runs(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite), *none = NULL;
    struct gate gate;
    _Atomic int released = 0;
    struct capture capture = {.suite = suite};
    gate_init(&gate, suite_type == PS_ENGINE_NAIVE);
    capture_add(&capture, "hold", run_gate, &gate, NULL, a);
    struct ps_engine_op op = capture_op("count", capture_count, &released, &none, &a);
    op.release = count_release;
    capture_add_op(&capture, &op);
    capture_seal(&capture);
    capture_replay(&capture);
    capture_replay(&capture);
    capture_release(&capture);
    if (suite_type != PS_ENGINE_NAIVE) {
        assert_int_equal(released, 0);
    }
    ps_var_delete(suite->engine, a);
    gate_open(&gate);
    wait_all_ok(suite);
    ps_engine_destroy(suite->engine);  /* who called 'release' has returned */
    assert_int_equal(released, 2 + 1); /* two runs; 'release' once, at the end */
    assert_int_equal(ps_engine_create(suite->node, (int)suite_type, &suite->engine, NULL),
                     PS_OK);
    gate_fini(&gate);
}

static void an_engine_ends_with_replays_in_flight(void **state)
{
    PS_UNUSED(state);
    if (suite_type == PS_ENGINE_NAIVE) {
        skip();
    }
    struct suite own;
    struct ps_var *none = NULL;
    struct gate gate;
    _Atomic int ran = 0;
    gate_init(&gate, false);
    suite_open(&own, NULL, suite_type);
    struct ps_var *a = new_var(&own);
    struct capture capture = {.suite = &own};
    capture_add(&capture, "hold", run_gate, &gate, NULL, a);
    struct ps_engine_op op = capture_op("count", capture_count, &ran, &none, &a);
    op.release = count_release;
    capture_add_op(&capture, &op);
    capture_seal(&capture);
    for (int i = 0; i < 5; i++) {
        capture_replay(&capture);
    }
    gate_wait_arrived(&gate, 1);
    capture_release(&capture);
    ps_var_delete(own.engine, a);
    gate_open(&gate);
    suite_close(&own); /* what has not started is skipped */
    assert_true(ran >= 1 && ran <= 5 + 1);
    gate_fini(&gate);
}

static void replays_count_by_operations(void **state)
{
    PS_UNUSED(state);
    if (suite_type == PS_ENGINE_NAIVE) {
        skip();
    }
    static const char *const overrides[] = {"LOG=error", "ENGINE_MAX_INFLIGHT=8", NULL};
    struct suite own;
    _Atomic int ran = 0;
    suite_open(&own, overrides, suite_type);
    struct ps_var *a = new_var(&own);
    struct capture capture = {.suite = &own};
    for (int i = 0; i < 5; i++) {
        capture_add(&capture, "count", capture_count, &ran, NULL, a);
    }
    capture_seal(&capture);
    for (int i = 0; i < 200; i++) {
        capture_replay(&capture);
        /* a replay is let in when fewer than 8 are unfinished */
        assert_true(ps_engine_pending(own.engine) <= 7 + 5);
    }
    wait_all_ok(&own);
    assert_int_equal(ran, 1000);
    capture_release(&capture);
    ps_var_delete(own.engine, a);
    suite_close(&own);
}

static void after_fork_a_segment_is_refused(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite);
    _Atomic int ran = 0;
    struct capture capture = {.suite = suite};
    struct ps_segment *other = NULL;
    capture_add(&capture, "count", capture_count, &ran, NULL, a);
    capture_seal(&capture);
    pid_t child = fork();
    if (child == 0) {
        bool good =
            ps_segment_push(capture.segment) == PS_EFORK &&
            ps_segment_create(suite->engine, capture.calls, 1, &other) == PS_EFORK;
        ps_segment_destroy(capture.segment);
        _exit(good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    capture_replay(&capture);
    wait_var_ok(suite, a);
    assert_int_equal(ran, 1);
    capture_release(&capture);
    ps_var_delete(suite->engine, a);
}

/* ---- several pushing threads ---- */

enum { TEAM_REPLAYS = 300 };

struct team {
    struct suite *suite;
    struct ps_var *vars[3];
    int owner, steps, broken; /* under the variables */
};

struct member {
    struct team *team;
    int number;
    bool replays;
    struct ps_thread thread;
};

/* Each operation writes every variable: in a replay, no other thread's comes between. */
static enum ps_status run_first(void *arg, const struct ps_run *run, struct ps_error *err)
{
    struct member *member = arg;
    PS_UNUSED(run);
    PS_UNUSED(err);
    member->team->owner = member->number;
    member->team->steps++;
    return PS_OK;
}

static enum ps_status run_next(void *arg, const struct ps_run *run, struct ps_error *err)
{
    struct member *member = arg;
    PS_UNUSED(run);
    PS_UNUSED(err);
    member->team->broken += member->team->owner != member->number;
    member->team->steps++;
    return PS_OK;
}

static void member_main(void *arg)
{
    struct member *member = arg;
    struct team *team = member->team;
    struct capture capture = {.suite = team->suite};
    for (int i = 0; i < 3; i++) { /* each names the variables in another order */
        struct ps_var *vars[3];
        for (int k = 0; k < 3; k++) {
            vars[k] = team->vars[(k * (member->number % 2 + 1) + i) % 3];
        }
        struct ps_engine_op op = {.name = "team",
                                  .run = i == 0 ? run_first : run_next,
                                  .arg = member,
                                  .writes = vars,
                                  .write_count = 3};
        capture_add_op(&capture, &op);
    }
    capture_seal(&capture);
    for (int i = 0; i < TEAM_REPLAYS; i++) {
        if (member->replays) {
            capture_replay(&capture);
        } else {
            assert_int_equal(ps_engine_call_push(capture.calls[0]), PS_OK);
        }
    }
    capture_release(&capture);
}

static void a_replay_is_atomic_among_pushing_threads(void **state)
{
    struct suite *suite = *state;
    struct team team = {.suite = suite};
    struct member members[3];
    for (int i = 0; i < 3; i++) {
        team.vars[i] = new_var(suite);
    }
    for (int i = 0; i < 3; i++) {
        members[i] = (struct member){.team = &team, .number = i, .replays = i < 2};
        assert_int_equal(
            ps_thread_start(&members[i].thread, "member", member_main, &members[i]),
            PS_OK);
    }
    for (int i = 0; i < 3; i++) {
        ps_thread_join(&members[i].thread);
    }
    wait_all_ok(suite);
    assert_int_equal(team.broken, 0);
    assert_int_equal(team.steps, (2 * 3 + 1) * TEAM_REPLAYS);
    assert_int_equal(ps_var_version(team.vars[0]), (2 * 3 + 1) * TEAM_REPLAYS);
    delete_vars(suite, team.vars, 3);
}

static const struct CMUnitTest tests[] = {
    SEGMENT_TEST(a_failure_inside_spoils_what_depends_on_it),
    SEGMENT_TEST(a_failure_from_outside_is_inherited),
    SEGMENT_TEST(an_operation_on_a_deleted_variable_fails_alone),
    SEGMENT_TEST(a_segment_and_its_calls_go_while_a_replay_runs),
    SEGMENT_TEST(an_engine_ends_with_replays_in_flight),
    SEGMENT_TEST(replays_count_by_operations),
    SEGMENT_TEST(after_fork_a_segment_is_refused),
    SEGMENT_TEST(a_replay_is_atomic_among_pushing_threads),
};

SUITE_GROUP(suite_segment_life, "segment lives", tests);
