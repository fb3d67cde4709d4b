/* Async entries: order per rank, needs an optimizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "entry_fixture.h"

#include <string.h>

static struct entry_fixture f;

static void open_async(uint32_t ranks, bool optimized)
{
    struct fixture_options o = {.ranks = ranks,
                                .count = 6,
                                .dtype = PS_F32,
                                .mode = PS_MODE_ASYNC,
                                .optimized = optimized};
    fixture_open(&f, &o);
}

static void case_044_push_push_pull_without_waiting_sees_both(void **state)
{
    PS_UNUSED(state);
    open_async(1, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    /* as they may arrive: the pull first, then the second push, then the first */
    struct test_ask *pull = fixture_ask(&f, PS_REC_PULL, 0, 2, NULL, NULL);
    struct test_ask *second = fixture_f32(&f, PS_REC_PUSH, 0, 2, 2);
    assert_int_equal(pull->answers + second->answers, 0);
    struct test_ask *first = fixture_f32(&f, PS_REC_PUSH, 0, 1, 1);
    assert_int_equal(first->status, PS_OK);
    assert_int_equal(second->status, PS_OK);
    assert_float_equal(fixture_value(pull->value, 0), 3, 0);
    fixture_close(&f);
}

static void case_048_ten_pushes_of_two_workers_make_twenty(void **state)
{
    PS_UNUSED(state);
    open_async(2, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    assert_float_equal(
        fixture_value(fixture_ask(&f, PS_REC_PULL, 1, 0, NULL, NULL)->value, 0), 0, 0);
    for (uint64_t step = 1; step <= 10; step++) {
        fixture_f32(&f, PS_REC_PUSH, 0, step, 1);
    }
    assert_float_equal(fixture_value(f.entry.value, 0), 10, 0);
    struct test_ask *last = NULL;
    for (uint64_t step = 1; step <= 10; step++) {
        last = fixture_f32(&f, PS_REC_PUSHPULL, 1, step, 1);
        assert_int_equal(last->version, 10 + step);
    }
    assert_float_equal(fixture_value(last->value, 0), 20, 0);
    fixture_close(&f);
}

static void case_022_a_push_without_optimizer_is_refused_and_named(void **state)
{
    PS_UNUSED(state);
    open_async(1, false);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    struct test_ask *t = fixture_f32(&f, PS_REC_PUSH, 0, 1, 1);
    assert_int_equal(t->status, PS_EINVAL);
    assert_non_null(strstr(t->text, "set_optimizer"));
    f.optimized = true; /* the worker counted the refused push: its next one is step 2 */
    t = fixture_f32(&f, PS_REC_PUSHPULL, 0, 2, 1);
    assert_int_equal(t->status, PS_OK);
    assert_float_equal(fixture_value(t->value, 0), 1, 0);
    fixture_close(&f);
}

static void duplicates_are_applied_once_and_answered_each_time(void **state)
{
    PS_UNUSED(state);
    open_async(1, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    float data[6] = {1, 1, 1, 1, 1, 1};
    struct test_ask *t = fixture_ask(&f, PS_REC_PUSHPULL, 0, 1, data, NULL);
    for (int i = 0; i < 3; i++) {
        struct test_ask *again = fixture_again(&f, t, data);
        assert_int_equal(again->status, PS_OK);
        assert_float_equal(fixture_value(again->value, 0), 1, 0);
    }
    assert_int_equal(f.updates, 1);
    t = fixture_ask(&f, PS_REC_PUSH, 0, 3, data, NULL); /* early, twice */
    struct test_ask *again = fixture_again(&f, t, data);
    assert_int_equal(t->status, PS_ECANCELED);
    fixture_f32(&f, PS_REC_PUSH, 0, 2, 1);
    assert_int_equal(again->status, PS_OK);
    assert_int_equal(f.updates, 3);
    fixture_close(&f);
}

static void contributions_before_the_first_value_wait_for_it(void **state)
{
    PS_UNUSED(state);
    open_async(3, true);
    struct ps_buf *payload = ps_buf_create(f.entry.bytes);
    assert_non_null(payload);
    float *data = payload->data;
    for (int i = 0; i < 6; i++) {
        data[i] = 5;
    }
    struct test_ask *a = fixture_ask(&f, PS_REC_PUSH, 2, 1, data, payload);
    struct test_ask *b = fixture_f32(&f, PS_REC_PUSH, 1, 1, 1);
    struct test_ask *none = fixture_ask(&f, PS_REC_PUSH, 1, 2, NULL, NULL);
    ps_buf_release(payload);
    assert_int_equal(a->answers + b->answers + none->answers, 0);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 10);
    assert_int_equal(a->status + b->status + none->status, PS_OK);
    assert_float_equal(fixture_value(f.entry.value, 0), 16, 0);
    assert_int_equal(f.entry.version, 2); /* an empty vote is no update */
    fixture_close(&f);
}

static void steps_too_far_ahead_come_again_and_aborts_move_the_clock(void **state)
{
    PS_UNUSED(state);
    open_async(1, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    assert_int_equal(fixture_f32(&f, PS_REC_PUSH, 0, 6, 1)->status, PS_EAGAIN);
    struct test_ask *five = fixture_f32(&f, PS_REC_PUSH, 0, 5, 1);
    assert_int_equal(five->answers, 0);
    assert_int_equal(fixture_ask(&f, PS_REC_ABORT, 0, 1, NULL, NULL)->status, PS_OK);
    fixture_f32(&f, PS_REC_PUSH, 0, 2, 1);
    fixture_f32(&f, PS_REC_PUSH, 0, 3, 1);
    fixture_f32(&f, PS_REC_PUSH, 0, 4, 1);
    assert_int_equal(five->status, PS_OK);
    assert_float_equal(fixture_value(f.entry.value, 0), 4, 0);
    fixture_close(&f);
}

static void what_waits_is_answered_when_the_entry_ends(void **state)
{
    PS_UNUSED(state);
    open_async(1, true);
    fixture_f32(&f, PS_REC_PUSH, 0, 1, 1);
    fixture_f32(&f, PS_REC_PUSH, 0, 2, 1);
    fixture_ask(&f, PS_REC_PULL, 0, 2, NULL, NULL);
    fixture_close(&f); /* checks it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_044_push_push_pull_without_waiting_sees_both),
        cmocka_unit_test(case_048_ten_pushes_of_two_workers_make_twenty),
        cmocka_unit_test(case_022_a_push_without_optimizer_is_refused_and_named),
        cmocka_unit_test(duplicates_are_applied_once_and_answered_each_time),
        cmocka_unit_test(contributions_before_the_first_value_wait_for_it),
        cmocka_unit_test(steps_too_far_ahead_come_again_and_aborts_move_the_clock),
        cmocka_unit_test(what_waits_is_answered_when_the_entry_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
