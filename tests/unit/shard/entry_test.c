/* Sync entries: rounds, duplicates, early steps, aborts, quorum, versions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "entry_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct entry_fixture f;

static void open_sync(uint32_t ranks, bool optimized)
{
    struct fixture_options o = {
        .ranks = ranks, .count = 6, .dtype = PS_F32, .optimized = optimized};
    fixture_open(&f, &o);
}

static void a_value_is_given_once_and_by_rank_0(void **state)
{
    PS_UNUSED(state);
    open_sync(2, false);
    assert_int_equal(fixture_f32(&f, PS_REC_INIT, 1, 0, 9)->status, PS_EPERM);
    struct test_ask *first = fixture_f32(&f, PS_REC_INIT, 0, 0, 1);
    assert_int_equal(first->status, PS_OK);
    assert_int_equal(first->version, 0);
    float other[6] = {5, 5, 5, 5, 5, 5};
    assert_int_equal(fixture_again(&f, first, other)->status, PS_OK);
    assert_int_equal(fixture_f32(&f, PS_REC_INIT, 0, 0, 2)->status, PS_EEXIST);
    assert_float_equal(fixture_value(f.entry.value, 3), 1, 0);
    fixture_close(&f);
}

static void case_025_a_pull_waits_for_the_first_value(void **state)
{
    PS_UNUSED(state);
    open_sync(2, false);
    struct test_ask *pull = fixture_ask(&f, PS_REC_PULL, 1, 0, NULL, NULL);
    assert_int_equal(pull->answers, 0);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 3);
    assert_int_equal(pull->answers, 1);
    assert_int_equal(pull->status, PS_OK);
    assert_float_equal(fixture_value(pull->value, 5), 3, 0);
    fixture_close(&f);
}

/* Rounds of W workers that push rank + 1, scale 2, start 1. */
static void sum_rounds(uint32_t w, float start, float scale)
{
    open_sync(w, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, start);
    float expect = start;
    for (uint64_t step = 1; step <= 7; step++) {
        struct test_ask *pushes[8];
        for (uint32_t k = 0; k < w; k++) {
            uint32_t r = (k + (uint32_t)step) % w; /* arrival order changes */
            pushes[r] = fixture_f32(&f, PS_REC_PUSHPULL, r, step, scale * (float)(r + 1));
        }
        expect += scale * (float)(w * (w + 1) / 2);
        for (uint32_t r = 0; r < w; r++) {
            assert_int_equal(pushes[r]->status, PS_OK);
            assert_int_equal(pushes[r]->version, step);
            assert_int_equal(pushes[r]->contributors, w);
            assert_float_equal(fixture_value(pushes[r]->value, 0), expect, 0);
        }
    }
    fixture_close(&f);
}

static void case_019_sums_of_seven_rounds(void **state)
{
    PS_UNUSED(state);
    static const uint32_t workers[] = {2, 3, 4, 7};
    for (size_t i = 0; i < PS_COUNT(workers); i++) {
        sum_rounds(workers[i], 1, 2);
    }
}

static void case_020_an_sgd_step_of_dense_weights(void **state)
{
    PS_UNUSED(state);
    static const uint32_t workers[] = {2, 3, 4, 7};
    static const float expect[] = {-2, -5, -9, -27};
    for (size_t i = 0; i < PS_COUNT(workers); i++) {
        open_sync(workers[i], true);
        fixture_f32(&f, PS_REC_INIT, 0, 0, 1);
        for (uint32_t r = 0; r < workers[i]; r++) {
            fixture_f32(&f, PS_REC_PUSH, r, 1, -(float)(r + 1)); /* lr 1, w -= g */
        }
        assert_float_equal(fixture_value(f.entry.value, 0), expect[i], 0);
        fixture_close(&f);
    }
}

static void without_optimizer_the_value_becomes_the_reduction(void **state)
{
    PS_UNUSED(state);
    for (uint8_t reduction = PS_REDUCE_SUM; reduction <= PS_REDUCE_MEAN; reduction++) {
        struct fixture_options o = {
            .ranks = 4, .count = 6, .dtype = PS_F32, .reduction = reduction};
        fixture_open(&f, &o);
        fixture_f32(&f, PS_REC_INIT, 0, 0, 100);
        struct test_ask *last = NULL;
        for (uint32_t r = 0; r < 4; r++) {
            last = fixture_f32(&f, PS_REC_PUSHPULL, 3 - r, 1, (float)(r + 1));
        }
        assert_float_equal(fixture_value(last->value, 2),
                           reduction == PS_REDUCE_SUM ? 10 : 2.5, 0);
        assert_int_equal(f.updates, 0);
        fixture_close(&f);
    }
}

static void a_mean_counts_empty_votes_and_not_those_who_left(void **state)
{
    PS_UNUSED(state);
    struct fixture_options o = {
        .ranks = 4, .count = 6, .dtype = PS_F32, .reduction = PS_REDUCE_MEAN};
    fixture_open(&f, &o);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    fixture_f32(&f, PS_REC_PUSH, 0, 1, 6);
    fixture_ask(&f, PS_REC_PUSH, 1, 1, NULL, NULL);
    fixture_f32(&f, PS_REC_PUSH, 2, 1, 3);
    assert_true(ps_quorum_leave(&f.quorum, 3));
    ps_entry_rank_left(&f.entry, 3);
    assert_int_equal(f.entry.version, 1);
    assert_int_equal(f.entry.contributors, 3);
    assert_float_equal(fixture_value(f.entry.value, 0), 3, 0);
    fixture_close(&f);
}

static void empty_votes_only_leave_the_value_and_the_count_alone(void **state)
{
    PS_UNUSED(state);
    open_sync(2, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 4);
    fixture_ask(&f, PS_REC_PUSH, 0, 1, NULL, NULL);
    struct test_ask *last = fixture_ask(&f, PS_REC_PUSHPULL, 1, 1, NULL, NULL);
    assert_int_equal(last->version, 1);
    assert_float_equal(fixture_value(last->value, 0), 4, 0);
    assert_int_equal(f.entry.updates, 0);
    fixture_close(&f);
}

static void case_021_two_pushes_of_one_worker_are_two_rounds(void **state)
{
    PS_UNUSED(state);
    open_sync(2, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    struct test_ask *first = fixture_f32(&f, PS_REC_PUSHPULL, 0, 1, 1);
    struct test_ask *second = fixture_f32(&f, PS_REC_PUSHPULL, 0, 2, 1);
    assert_int_equal(first->answers + second->answers, 0);
    assert_int_equal(f.updates, 0);
    fixture_f32(&f, PS_REC_PUSH, 1, 1, 10);
    assert_float_equal(fixture_value(first->value, 0), 11, 0);
    assert_int_equal(second->answers, 0);
    fixture_f32(&f, PS_REC_PUSH, 1, 2, 20);
    assert_float_equal(fixture_value(second->value, 0), 32, 0);
    fixture_close(&f);
}

static void a_duplicate_that_waits_takes_the_place_of_the_first(void **state)
{
    PS_UNUSED(state);
    open_sync(2, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    float data[6] = {1, 1, 1, 1, 1, 1};
    struct test_ask *first = fixture_ask(&f, PS_REC_PUSHPULL, 0, 1, data, NULL);
    struct test_ask *again = fixture_again(&f, first, data);
    assert_int_equal(first->status, PS_ECANCELED);
    fixture_f32(&f, PS_REC_PUSH, 1, 1, 2);
    assert_int_equal(again->status, PS_OK);
    assert_float_equal(fixture_value(again->value, 0), 3, 0); /* added once */
    fixture_close(&f);
}

static void case_082_a_duplicate_of_a_closed_step_is_answered_again(void **state)
{
    PS_UNUSED(state);
    open_sync(1, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    float data[6] = {1, 1, 1, 1, 1, 1};
    struct test_ask *first = fixture_ask(&f, PS_REC_PUSHPULL, 0, 1, data, NULL);
    for (int i = 0; i < 3; i++) {
        struct test_ask *again = fixture_again(&f, first, data);
        assert_int_equal(again->status, PS_OK);
        assert_int_equal(again->version, 1);
        assert_float_equal(fixture_value(again->value, 0), 1, 0);
    }
    assert_int_equal(f.updates, 1);
    fixture_close(&f);
}

static void early_steps_are_kept_within_the_bound(void **state)
{
    PS_UNUSED(state);
    open_sync(1, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    struct test_ask *asks[8];
    for (uint64_t step = 6; step >= 2; step--) {
        asks[step] = fixture_f32(&f, PS_REC_PUSHPULL, 0, step, (float)step);
    }
    assert_int_equal(asks[6]->status, PS_EAGAIN);
    assert_int_equal(asks[5]->answers, 0);
    fixture_f32(&f, PS_REC_PUSHPULL, 0, 1, 1);
    float expect = 1;
    for (uint64_t step = 2; step <= 5; step++) {
        expect += (float)step;
        assert_int_equal(asks[step]->version, step);
        assert_float_equal(fixture_value(asks[step]->value, 0), expect, 0);
    }
    fixture_close(&f);
}

static void an_abort_ends_the_round_for_all_with_its_text(void **state)
{
    PS_UNUSED(state);
    open_sync(3, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 7);
    struct test_ask *waits = fixture_f32(&f, PS_REC_PUSHPULL, 0, 1, 1);
    struct test_ask *aborts =
        fixture_ask(&f, PS_REC_ABORT, 1, 1, "conv1 failed: out of memory", NULL);
    assert_int_equal(aborts->status, PS_OK);
    assert_int_equal(waits->status, PS_EABORT);
    assert_non_null(strstr(waits->text, "rank 1"));
    assert_non_null(strstr(waits->text, "conv1"));
    assert_int_equal(ps_blocks_in_use(f.blocks), 0); /* nothing is held any more */
    struct test_ask *late = fixture_f32(&f, PS_REC_PUSHPULL, 2, 1, 1);
    assert_int_equal(late->status, PS_EABORT);
    assert_int_equal(f.entry.version, 1);
    assert_float_equal(fixture_value(f.entry.value, 0), 7, 0);
    float data[6] = {0};
    assert_int_equal(fixture_again(&f, late, data)->status, PS_EABORT);
    for (uint32_t r = 0; r < 3; r++) { /* and life goes on */
        late = fixture_f32(&f, PS_REC_PUSHPULL, r, 2, 1);
    }
    assert_int_equal(late->status, PS_OK);
    assert_int_equal(f.last.update, 1); /* the optimizer's t did not move */
    assert_float_equal(fixture_value(late->value, 0), 10, 0);
    fixture_close(&f);
}

static void rounds_go_on_without_a_rank_that_left(void **state)
{
    PS_UNUSED(state);
    open_sync(3, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    struct test_ask *a = fixture_f32(&f, PS_REC_PUSHPULL, 0, 1, 1);
    fixture_f32(&f, PS_REC_PUSHPULL, 1, 1, 2);
    fixture_f32(&f, PS_REC_PUSHPULL, 0, 2, 10);
    assert_int_equal(ps_entry_missing_rank(&f.entry), 2);
    assert_true(ps_quorum_leave(&f.quorum, 2));
    assert_false(ps_quorum_leave(&f.quorum, 2));
    ps_entry_rank_left(&f.entry, 2);
    assert_float_equal(fixture_value(a->value, 0), 3, 0);
    assert_int_equal(a->contributors, 2);
    struct test_ask *b = fixture_f32(&f, PS_REC_PUSHPULL, 1, 2, 20);
    assert_float_equal(fixture_value(b->value, 0), 33, 0);
    assert_int_equal(fixture_f32(&f, PS_REC_PUSH, 2, 3, 1)->status, PS_ESTALE);
    assert_int_equal(fixture_ask(&f, PS_REC_PULL, 2, 1, NULL, NULL)->status, PS_OK);
    assert_int_equal(fixture_f32(&f, PS_REC_PUSH, 9, 3, 1)->status, PS_ESTALE);
    fixture_close(&f);
}

static void a_pull_waits_for_its_members_push(void **state)
{
    PS_UNUSED(state);
    open_sync(2, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    fixture_f32(&f, PS_REC_PUSH, 0, 1, 5);
    struct test_ask *mine = fixture_ask(&f, PS_REC_PULL, 0, 1, NULL, NULL);
    struct test_ask *other = fixture_ask(&f, PS_REC_PULL, 1, 0, NULL, NULL);
    assert_int_equal(mine->answers, 0);
    assert_float_equal(fixture_value(other->value, 0), 0, 0);
    fixture_f32(&f, PS_REC_PUSH, 1, 1, 6);
    assert_float_equal(fixture_value(mine->value, 0), 11, 0);
    assert_int_equal(fixture_ask(&f, PS_REC_PULL, 0, 100, NULL, NULL)->status, PS_EAGAIN);
    fixture_close(&f);
}

static void waiting_pulls_are_bounded_and_a_resent_one_counts_once(void **state)
{
    PS_UNUSED(state);
    open_sync(1, true);
    struct test_ask *first = fixture_ask(&f, PS_REC_PULL, 0, 0, NULL, NULL);
    struct test_ask *again = fixture_again(&f, first, NULL);
    assert_int_equal(first->status, PS_ECANCELED);
    assert_int_equal(again->answers, 0);
    assert_int_equal(f.entry.pull_count, 1);
    struct test_ask *pull = again;
    for (int i = 0; i < 1000 && pull->answers == 0; i++) {
        pull = fixture_ask(&f, PS_REC_PULL, 0, 0, NULL, NULL);
    }
    assert_int_equal(pull->status, PS_EAGAIN);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    assert_int_equal(again->status, PS_OK);
    fixture_close(&f);
}

static void a_version_is_never_written_while_somebody_refers_to_it(void **state)
{
    PS_UNUSED(state);
    for (int optimized = 0; optimized <= 1; optimized++) {
        open_sync(2, optimized != 0);
        fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
        struct test_ask *kept[10];
        for (uint64_t step = 1; step <= 9; step++) {
            fixture_f32(&f, PS_REC_PUSH, 0, step, (float)step);
            kept[step] = fixture_f32(&f, PS_REC_PUSHPULL, 1, step, 0);
        }
        float sum = 0;
        for (uint64_t step = 1; step <= 9; step++) { /* all still as they were */
            sum = optimized != 0 ? sum + (float)step : (float)step;
            for (size_t i = 0; i < 6; i++) {
                assert_float_equal(fixture_value(kept[step]->value, i), sum, 0);
            }
        }
        fixture_close(&f);
    }
}

static void after_warm_up_versions_come_from_the_same_buffers(void **state)
{
    PS_UNUSED(state);
    open_sync(2, false);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    void *seen[2] = {NULL, NULL};
    size_t bytes = 0;
    for (uint64_t step = 1; step <= 40; step++) {
        fixture_f32(&f, PS_REC_PUSH, 0, step, 1);
        fixture_f32(&f, PS_REC_PUSH, 1, step, 2);
        void *data = f.entry.value->data;
        if (step <= 2) {
            seen[step - 1] = data;
        } else {
            assert_true(data == seen[0] || data == seen[1]);
        }
        if (step == 4) {
            bytes = ps_blocks_bytes(f.blocks);
        }
    }
    assert_int_equal(ps_blocks_bytes(f.blocks), bytes);
    fixture_close(&f);
}

static void a_lone_large_contribution_becomes_the_value_without_a_copy(void **state)
{
    PS_UNUSED(state);
    struct fixture_options o = {.ranks = 1, .count = 32768, .dtype = PS_F32};
    fixture_open(&f, &o);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    struct ps_buf *payload = ps_buf_create(f.entry.bytes);
    assert_non_null(payload);
    memset(payload->data, 0, payload->size);
    struct test_ask *ask = fixture_ask(&f, PS_REC_PUSHPULL, 0, 1, payload->data, payload);
    assert_ptr_equal(ask->value, payload);
    assert_ptr_equal(f.entry.value, payload);
    ps_buf_release(payload);
    fixture_f32(&f, PS_REC_PUSH, 0, 2, 1);
    fixture_close(&f);
}

static void a_failed_update_ends_its_round_and_nothing_else(void **state)
{
    PS_UNUSED(state);
    open_sync(2, true);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 1);
    f.update_status = PS_EDTYPE;
    struct test_ask *a = fixture_f32(&f, PS_REC_PUSH, 0, 1, 1);
    struct test_ask *b = fixture_f32(&f, PS_REC_PUSH, 1, 1, 1);
    assert_int_equal(a->status, PS_EDTYPE);
    assert_int_equal(b->status, PS_EDTYPE);
    assert_string_equal(a->text, "update refused");
    f.update_status = PS_OK;
    f.fault_status = PS_EFAULT;
    fixture_f32(&f, PS_REC_PUSH, 0, 2, 1);
    assert_int_equal(fixture_f32(&f, PS_REC_PUSH, 1, 2, 1)->status, PS_EFAULT);
    f.fault_status = PS_OK;
    fixture_f32(&f, PS_REC_PUSH, 0, 3, 1);
    b = fixture_f32(&f, PS_REC_PUSHPULL, 1, 3, 1);
    assert_float_equal(fixture_value(b->value, 0), 3, 0);
    fixture_close(&f);
}

static void failing_an_entry_answers_everything_that_waits(void **state)
{
    PS_UNUSED(state);
    open_sync(2, true);
    struct test_ask *pull = fixture_ask(&f, PS_REC_PULL, 1, 0, NULL, NULL);
    struct test_ask *push = fixture_f32(&f, PS_REC_PUSH, 0, 1, 1);
    ps_entry_fail(&f.entry, PS_EPEER, "worker 1 lost");
    assert_int_equal(pull->status, PS_EPEER);
    assert_string_equal(push->text, "worker 1 lost");
    fixture_close(&f);
}

static void case_036_three_half_elements_are_six_bytes(void **state)
{
    PS_UNUSED(state);
    struct fixture_options o = {.ranks = 2, .count = 3, .dtype = PS_F16};
    fixture_open(&f, &o);
    assert_int_equal(f.entry.bytes, 6);
    uint16_t zero[3] = {0}, a[3], b[3], expect[3];
    static const float x[3] = {1.5f, -2.25f, 1024.5f}, y[3] = {0.25f, 4, 0.5f};
    for (int i = 0; i < 3; i++) {
        a[i] = ps_f32_to_f16(x[i]);
        b[i] = ps_f32_to_f16(y[i]);
        expect[i] = ps_f32_to_f16(ps_f16_to_f32(a[i]) + ps_f16_to_f32(b[i]));
    }
    fixture_ask(&f, PS_REC_INIT, 0, 0, zero, NULL);
    fixture_ask(&f, PS_REC_PUSH, 0, 1, a, NULL);
    struct test_ask *t = fixture_ask(&f, PS_REC_PUSHPULL, 1, 1, b, NULL);
    assert_int_equal(t->value->size, 6);
    assert_memory_equal(t->value->data, expect, 6);
    fixture_close(&f);
}

static void payloads_of_any_alignment_are_read(void **state)
{
    PS_UNUSED(state);
    open_sync(3, false);
    unsigned char raw[6 * 4 + 3];
    fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
    struct test_ask *t = NULL;
    for (uint32_t r = 0; r < 3; r++) {
        for (int i = 0; i < 6; i++) {
            float v = (float)(i + 1) * (float)(r + 1);
            memcpy(raw + 1 + 4 * i, &v, 4);
        }
        t = fixture_ask(&f, PS_REC_PUSHPULL, r, 1, raw + 1, NULL);
    }
    for (size_t i = 0; i < 6; i++) {
        assert_float_equal(fixture_value(t->value, i), 6 * (float)(i + 1), 0);
    }
    fixture_close(&f);
}

/* 400 random schedules of 4 ranks and 12 steps with resends and run-ahead: the values of
 * each step are those of the plain order. */
static void any_schedule_gives_the_same_values(void **state)
{
    PS_UNUSED(state);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct ps_rng rng;
        ps_rng_init(&rng, seed);
        open_sync(4, true);
        fixture_f32(&f, PS_REC_INIT, 0, 0, 0);
        uint64_t next[4] = {1, 1, 1, 1};
        struct test_ask *asks[4][13] = {{NULL}};
        for (int i = 0; i < 2000 && f.ask_count < TEST_ASKS - 1; i++) {
            uint32_t r = (uint32_t)ps_rng_below(&rng, 4);
            if (next[r] > 12) {
                continue;
            }
            bool resend = next[r] > 1 && ps_rng_below(&rng, 4) == 0;
            uint64_t step = resend ? next[r] - 1 : next[r];
            struct test_ask *t =
                fixture_f32(&f, PS_REC_PUSHPULL, r, step, 0.1f * (float)(r + step));
            bool refused = t->answers == 1 && t->status == PS_EAGAIN;
            if (!refused && (!resend || asks[r][step]->status == PS_ECANCELED)) {
                asks[r][step] = t;
            }
            next[r] += !resend && !refused;
        }
        float expect = 0;
        for (uint64_t step = 1; step <= 12; step++) {
            float g[4];
            for (uint32_t r = 0; r < 4; r++) {
                g[r] = 0.1f * (float)(r + step);
            }
            expect += (g[0] + g[1]) + (g[2] + g[3]);
            for (uint32_t r = 0; r < 4; r++) {
                assert_int_equal(asks[r][step]->status, PS_OK);
                float got = fixture_value(asks[r][step]->value, 0);
                assert_memory_equal(&got, &expect, sizeof(got));
            }
        }
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_given_once_and_by_rank_0),
        cmocka_unit_test(case_025_a_pull_waits_for_the_first_value),
        cmocka_unit_test(case_019_sums_of_seven_rounds),
        cmocka_unit_test(case_020_an_sgd_step_of_dense_weights),
        cmocka_unit_test(without_optimizer_the_value_becomes_the_reduction),
        cmocka_unit_test(a_mean_counts_empty_votes_and_not_those_who_left),
        cmocka_unit_test(empty_votes_only_leave_the_value_and_the_count_alone),
        cmocka_unit_test(case_021_two_pushes_of_one_worker_are_two_rounds),
        cmocka_unit_test(a_duplicate_that_waits_takes_the_place_of_the_first),
        cmocka_unit_test(case_082_a_duplicate_of_a_closed_step_is_answered_again),
        cmocka_unit_test(early_steps_are_kept_within_the_bound),
        cmocka_unit_test(an_abort_ends_the_round_for_all_with_its_text),
        cmocka_unit_test(rounds_go_on_without_a_rank_that_left),
        cmocka_unit_test(a_pull_waits_for_its_members_push),
        cmocka_unit_test(waiting_pulls_are_bounded_and_a_resent_one_counts_once),
        cmocka_unit_test(a_version_is_never_written_while_somebody_refers_to_it),
        cmocka_unit_test(after_warm_up_versions_come_from_the_same_buffers),
        cmocka_unit_test(a_lone_large_contribution_becomes_the_value_without_a_copy),
        cmocka_unit_test(a_failed_update_ends_its_round_and_nothing_else),
        cmocka_unit_test(failing_an_entry_answers_everything_that_waits),
        cmocka_unit_test(case_036_three_half_elements_are_six_bytes),
        cmocka_unit_test(payloads_of_any_alignment_are_read),
        cmocka_unit_test(any_schedule_gives_the_same_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
