/* Captured segments: a replay is what pushing its operations one by one would be, and
 * its variables are granted and handed on operation by operation.  The naive engine runs
 * a replay in its push, so what shows overlap is for the other two. */
#include "tests/suite/engine_suite_capture.h"

/* ---- order ---- */

static void a_replay_keeps_the_order_of_its_operations(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite), *b = new_var(suite);
    struct trail trail;
    struct step steps[4];
    struct capture capture = {.suite = suite};
    trail_init(&trail);
    for (int i = 0; i < 4; i++) {
        steps[i] = (struct step){.trail = &trail, .number = i, .result = PS_OK};
    }
    capture_add(&capture, "w a", run_step, &steps[0], NULL, a);
    capture_add(&capture, "a to b", run_step, &steps[1], a, b);
    capture_add(&capture, "b to a", run_step, &steps[2], b, a);
    capture_add(&capture, "r a", run_step, &steps[3], a, NULL);
    capture_seal(&capture);
    for (int i = 0; i < 100; i++) {
        capture_replay(&capture);
    }
    wait_all_ok(suite);
    assert_int_equal(trail.count, 400);
    for (int i = 0; i < 400; i += 1) {
        /* the last read of a replay and the first write of the next exclude each other */
        assert_int_equal(trail.items[i], i % 4);
    }
    assert_int_equal(ps_var_version(a), 200); /* every write counts */
    assert_int_equal(ps_var_version(b), 100);
    capture_release(&capture);
    delete_vars(suite, (struct ps_var *[]){a, b}, 2);
    trail_fini(&trail);
}

static void a_call_may_occur_twice(void **state)
{
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite);
    _Atomic int ran = 0;
    struct capture capture = {.suite = suite};
    struct ps_engine_call *twice[3];
    capture_add(&capture, "count", capture_count, &ran, NULL, var);
    for (int i = 0; i < 3; i++) {
        twice[i] = capture.calls[0];
    }
    assert_int_equal(ps_segment_create(suite->engine, twice, 3, &capture.segment), PS_OK);
    capture_replay(&capture);
    capture_replay(&capture);
    wait_var_ok(suite, var);
    assert_int_equal(ran, 6);
    assert_int_equal(ps_var_version(var), 6);
    capture_release(&capture);
    ps_var_delete(suite->engine, var);
}

static void nothing_is_captured_from_nothing(void **state)
{
    struct suite *suite = *state;
    struct suite other;
    struct ps_segment *segment = NULL;
    _Atomic int ran = 0;
    struct capture capture = {.suite = &other};
    suite_open(&other, NULL, suite_type);
    struct ps_var *var = new_var(&other);
    capture_add(&capture, "other", capture_count, &ran, NULL, var);
    assert_int_equal(ps_segment_create(suite->engine, capture.calls, 0, &segment),
                     PS_EINVAL);
    assert_int_equal(ps_segment_create(suite->engine, capture.calls, 1, &segment),
                     PS_EINVAL);
    assert_null(segment);
    ps_segment_destroy(NULL);
    capture_release(&capture);
    ps_var_delete(other.engine, var);
    suite_close(&other);
}

/* ---- granted and handed on, operation by operation ---- */

static void what_follows_does_not_wait_for_the_whole_replay(void **state)
{
    struct suite *suite = *state;
    if (suite_type == PS_ENGINE_NAIVE) {
        skip();
    }
    struct ps_var *a = new_var(suite), *b = new_var(suite), *probe = new_var(suite);
    struct gate gate;
    _Atomic int ran = 0, first = 0;
    struct capture capture = {.suite = suite};
    gate_init(&gate, false);
    capture_add(&capture, "w a", capture_count, &first, NULL, a);
    capture_add(&capture, "w b", run_gate, &gate, NULL, b);
    capture_add(&capture, "a to b", capture_count, &first, a, b);
    capture_seal(&capture);
    capture_replay(&capture);
    push(suite, "outside", capture_count, &ran, a, probe);
    wait_var_ok(suite, a); /* the last write of 'a' is complete, a read of it waits */
    assert_int_equal(first, 1);
    push(suite, "reads a", capture_count, &ran, a, probe);
    wait_var_ok(suite, probe); /* reads beside the replay's own read */
    assert_int_equal(ran, 2);
    push(suite, "writes a", capture_count, &ran, NULL, a);
    assert_int_equal(ps_engine_pending(suite->engine), 3);
    assert_int_equal(ran, 2); /* not before the replay has read it */
    gate_open(&gate);
    wait_all_ok(suite);
    assert_int_equal(first, 2);
    assert_int_equal(ran, 3);
    capture_release(&capture);
    delete_vars(suite, (struct ps_var *[]){a, b, probe}, 3);
    gate_fini(&gate);
}

static void a_read_before_the_first_write_shares_with_others(void **state)
{
    struct suite *suite = *state;
    if (suite_type == PS_ENGINE_NAIVE) {
        skip();
    }
    struct ps_var *a = new_var(suite), *probe = new_var(suite);
    struct gate gate;
    _Atomic int ran = 0, wrote = 0, after = 0;
    struct capture capture = {.suite = suite};
    gate_init(&gate, false);
    push(suite, "outside", run_gate, &gate, a, NULL);
    capture_add(&capture, "r a", capture_count, &ran, a, probe);
    capture_add(&capture, "w a", capture_count, &wrote, NULL, a);
    capture_seal(&capture);
    gate_wait_arrived(&gate, 1);
    capture_replay(&capture);
    push(suite, "later", capture_count, &after, a,
         NULL); /* must not overtake the write */
    wait_var_ok(suite, probe);
    assert_int_equal(ran, 1);
    assert_int_equal(wrote, 0);
    assert_int_equal(after, 0);
    gate_open(&gate);
    wait_all_ok(suite);
    assert_int_equal(wrote, 1);
    assert_int_equal(after, 1);
    capture_release(&capture);
    delete_vars(suite, (struct ps_var *[]){a, probe}, 2);
    gate_fini(&gate);
}

static void two_replays_are_in_flight(void **state)
{
    struct suite *suite = *state;
    if (suite_type == PS_ENGINE_NAIVE) {
        skip();
    }
    struct ps_var *first = new_var(suite), *last = new_var(suite);
    struct gate gate;
    _Atomic int ran = 0;
    struct capture capture = {.suite = suite};
    gate_init(&gate, false);
    capture_add(&capture, "first", capture_count, &ran, NULL, first);
    capture_add(&capture, "last", run_gate, &gate, NULL, last);
    capture_seal(&capture);
    capture_replay(&capture);
    capture_replay(&capture);
    capture_replay(&capture);
    wait_var_ok(suite, first); /* of all three, though no 'last' has passed */
    assert_int_equal(ran, 3);
    assert_true(ps_engine_pending(suite->engine) >= 3);
    gate_open(&gate);
    wait_all_ok(suite);
    assert_int_equal(ps_var_version(last), 3);
    assert_int_equal(ps_engine_pending(suite->engine), 0);
    capture_release(&capture);
    delete_vars(suite, (struct ps_var *[]){first, last}, 2);
    gate_fini(&gate);
}

/* ---- lanes and kinds ---- */

static enum ps_status run_thread_id(void *arg, const struct ps_run *run,
                                    struct ps_error *err)
{
    PS_UNUSED(run);
    PS_UNUSED(err);
    atomic_store((_Atomic uint32_t *)arg, ps_thread_id());
    return PS_OK;
}

static void operations_of_a_replay_go_to_their_own_lanes(void **state)
{
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite), *none = NULL;
    _Atomic uint32_t threads[3];
    static const enum ps_engine_op_kind kinds[] = {
        PS_ENGINE_NORMAL, PS_ENGINE_CPU_PRIORITIZED, PS_ENGINE_NORMAL};
    struct capture capture = {.suite = suite};
    for (int i = 0; i < 3; i++) {
        struct ps_engine_op op =
            capture_op("where", run_thread_id, &threads[i], &none, &var);
        op.kind = kinds[i];
        op.context = PS_CPU(i / 2);
        capture_add_op(&capture, &op);
    }
    capture_seal(&capture);
    for (int i = 0; i < 20; i++) {
        capture_replay(&capture);
    }
    wait_all_ok(suite);
    if (suite_type == PS_ENGINE_PER_DEVICE) {
        assert_int_not_equal(threads[0], threads[1]);
        assert_int_not_equal(threads[1], threads[2]);
        assert_int_not_equal(threads[0], threads[2]);
    } else if (suite_type == PS_ENGINE_NAIVE) {
        assert_int_equal(threads[0], ps_thread_id());
        assert_int_equal(threads[1], ps_thread_id());
    }
    assert_int_equal(ps_var_version(var), 60);
    capture_release(&capture);
    ps_var_delete(suite->engine, var);
}

struct later { /* an operation that somebody else completes */
    struct gate gate;
    struct ps_completion *done;
    _Atomic uint32_t thread;
    struct ps_thread helper;
    enum ps_status status;
};

static void complete_later(void *arg)
{
    struct later *later = arg;
    gate_pass(&later->gate);
    ps_engine_complete(later->done, later->status, "said the helper");
}

static void start_later(void *arg, const struct ps_run *run, struct ps_completion *done)
{
    struct later *later = arg;
    PS_UNUSED(run);
    later->done = done;
    atomic_store(&later->thread, ps_thread_id());
    assert_int_equal(ps_thread_start(&later->helper, "helper", complete_later, later),
                     PS_OK);
}

static void an_operation_may_be_completed_from_elsewhere(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite), *b = new_var(suite), *none = NULL;
    struct later later = {.status = PS_OK};
    _Atomic int ran = 0;
    struct capture capture = {.suite = suite};
    struct ps_engine_op op = capture_op("later", NULL, &later, &none, &a);
    op.start = start_later;
    op.kind = PS_ENGINE_ASYNC;
    gate_init(&later.gate, suite_type == PS_ENGINE_NAIVE);
    capture_add_op(&capture, &op);
    capture_add(&capture, "then", capture_count, &ran, a, b);
    capture_seal(&capture);
    capture_replay(&capture);
    /* nothing was in its way: it only starts work, so it ran inside the push */
    assert_int_equal(later.thread, ps_thread_id());
    if (suite_type != PS_ENGINE_NAIVE) {
        assert_int_equal(ps_engine_pending(suite->engine), 2);
        assert_int_equal(ran, 0);
    }
    gate_open(&later.gate);
    wait_var_ok(suite, b);
    ps_thread_join(&later.helper);
    assert_int_equal(ran, 1);
    later.status = PS_EIO;
    capture_replay(&capture);
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_engine_wait_var(suite->engine, b, &err), PS_EIO);
    assert_string_equal(err.text, "later: said the helper");
    ps_thread_join(&later.helper);
    assert_int_equal(ran, 1);
    capture_release(&capture);
    delete_vars(suite, (struct ps_var *[]){a, b}, 2);
    gate_fini(&later.gate);
}

struct inner { /* an operation that replays a segment */
    struct ps_segment *segment;
    enum ps_status status;
};

static enum ps_status run_replay(void *arg, const struct ps_run *run,
                                 struct ps_error *err)
{
    struct inner *inner = arg;
    PS_UNUSED(run);
    PS_UNUSED(err);
    inner->status = ps_segment_push(inner->segment);
    return PS_OK;
}

static void a_segment_is_pushed_from_inside_an_operation(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite), *b = new_var(suite);
    _Atomic int ran = 0;
    struct capture capture = {.suite = suite}, outer = {.suite = suite};
    capture_add(&capture, "1", capture_count, &ran, NULL, a);
    capture_add(&capture, "2", capture_count, &ran, a, NULL);
    capture_seal(&capture);
    struct inner inner = {.segment = capture.segment, .status = PS_EINTERNAL};
    capture_add(&outer, "inner", run_replay, &inner, NULL, a);
    capture_add(&outer, "after", capture_count, &ran, a, b);
    capture_seal(&outer);
    capture_replay(&outer);
    wait_all_ok(suite);
    assert_int_equal(inner.status, PS_OK);
    assert_int_equal(ran, 3);
    assert_int_equal(ps_var_version(a), 2);
    capture_release(&outer);
    capture_release(&capture);
    delete_vars(suite, (struct ps_var *[]){a, b}, 2);
}

struct on_gpu { /* what an operation saw, in the order of the replay */
    enum ps_context_kind kind;
    bool has_stream;
    int place;
    _Atomic int *clock;
};

static enum ps_status run_on_gpu(void *arg, const struct ps_run *run,
                                 struct ps_error *err)
{
    struct on_gpu *seen = arg;
    PS_UNUSED(err);
    seen->kind = run->context.kind;
    seen->has_stream = run->stream != NULL;
    seen->place = atomic_fetch_add(seen->clock, 1);
    return PS_OK;
}

static void a_replay_goes_over_copy_compute_and_cpu_lanes(void **state)
{
    static const char *const overrides[] = {"LOG=error", "SIM_GPUS=1", NULL};
    static const struct {
        enum ps_engine_op_kind kind;
        struct ps_context context;
    } ops[] = {{PS_ENGINE_COPY_TO_GPU, {PS_CONTEXT_GPU, 0}},
               {PS_ENGINE_NORMAL, {PS_CONTEXT_GPU, 0}},
               {PS_ENGINE_COPY_FROM_GPU, {PS_CONTEXT_GPU, 0}},
               {PS_ENGINE_CPU_PRIORITIZED, {PS_CONTEXT_CPU, 0}},
               {PS_ENGINE_NORMAL, {PS_CONTEXT_CPU, 0}}};
    struct suite own;
    _Atomic int clock = 0;
    struct on_gpu seen[PS_COUNT(ops)];
    struct capture capture = {.suite = &own};
    PS_UNUSED(state);
    suite_open(&own, overrides, suite_type);
    struct ps_var *var = new_var(&own), *none = NULL;
    for (size_t i = 0; i < PS_COUNT(ops); i++) {
        seen[i] = (struct on_gpu){.clock = &clock};
        struct ps_engine_op op = capture_op("lanes", run_on_gpu, &seen[i], &none, &var);
        op.kind = ops[i].kind;
        op.context = ops[i].context;
        capture_add_op(&capture, &op);
    }
    capture_seal(&capture);
    for (int round = 0; round < 10; round++) {
        capture_replay(&capture);
    }
    wait_all_ok(&own);
    for (size_t i = 0; i < PS_COUNT(ops); i++) {
        assert_int_equal(seen[i].kind, ops[i].context.kind);
        assert_int_equal(seen[i].has_stream, ops[i].context.kind == PS_CONTEXT_GPU);
        assert_int_equal(seen[i].place, 9 * (int)PS_COUNT(ops) + (int)i);
    }
    assert_int_equal(ps_var_version(var), 10 * PS_COUNT(ops));
    capture_release(&capture);
    ps_var_delete(own.engine, var);
    suite_close(&own);
}

static const struct CMUnitTest tests[] = {
    SEGMENT_TEST(a_replay_keeps_the_order_of_its_operations),
    SEGMENT_TEST(a_call_may_occur_twice),
    SEGMENT_TEST(nothing_is_captured_from_nothing),
    SEGMENT_TEST(what_follows_does_not_wait_for_the_whole_replay),
    SEGMENT_TEST(a_read_before_the_first_write_shares_with_others),
    SEGMENT_TEST(two_replays_are_in_flight),
    SEGMENT_TEST(operations_of_a_replay_go_to_their_own_lanes),
    cmocka_unit_test(a_replay_goes_over_copy_compute_and_cpu_lanes),
    SEGMENT_TEST(an_operation_may_be_completed_from_elsewhere),
    SEGMENT_TEST(a_segment_is_pushed_from_inside_an_operation),
};

SUITE_GROUP(suite_segment, "segment", tests);
