/* Entries as bytes: round trips, truncation, mutation, mismatches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "entry_fixture.h"

#include <stdlib.h>
#include <string.h>

static struct entry_fixture f, g;

static const struct fixture_options sync_options = {
    .ranks = 2, .count = 6, .dtype = PS_F32, .optimized = true};
static const struct fixture_options async_options = {
    .ranks = 2, .count = 6, .dtype = PS_F32, .mode = PS_MODE_ASYNC, .optimized = true};

static struct ps_buf *make(const struct fixture_options *options)
{
    struct ps_buf *bytes = NULL;
    void *state;
    bool fresh;
    fixture_open(&f, options);
    fixture_f32(&f, PS_REC_INIT, 0, 0, 1);
    assert_int_equal(ps_entry_state(&f.entry, 77, 100, &state, &fresh), PS_OK);
    assert_true(fresh);
    memset(state, 0x5a, 100);
    for (uint64_t step = 1; step <= 3; step++) {
        fixture_f32(&f, PS_REC_PUSH, 0, step, 1);
        fixture_f32(&f, PS_REC_PUSH, 1, step, 2);
    }
    fixture_f32(&f, PS_REC_PUSH, 0, 4, 100); /* sync: an open round, not exported */
    assert_int_equal(ps_entry_export(&f.entry, &bytes), PS_OK);
    return bytes;
}

static void an_entry_survives_the_trip(void **state)
{
    PS_UNUSED(state);
    const struct fixture_options *all[] = {&sync_options, &async_options};
    for (size_t i = 0; i < PS_COUNT(all); i++) {
        struct ps_buf *bytes = make(all[i]), *again = NULL;
        struct ps_error err = {0};
        fixture_open(&g, all[i]);
        struct test_ask *pull = fixture_ask(&g, PS_REC_PULL, 1, 3, NULL, NULL);
        assert_int_equal(ps_entry_import(&g.entry, bytes->data, bytes->size, &err),
                         PS_OK);
        assert_int_equal(pull->status, PS_OK);
        assert_int_equal(g.entry.version, f.entry.version);
        assert_int_equal(g.entry.updates, f.entry.updates);
        assert_memory_equal(g.entry.value->data, f.entry.value->data, 24);
        assert_int_equal(g.entry.state_tag, 77);
        assert_memory_equal(g.entry.state, f.entry.state, 100);
        assert_int_equal(ps_entry_export(&g.entry, &again), PS_OK);
        assert_int_equal(again->size, bytes->size);
        assert_memory_equal(again->data, bytes->data, bytes->size);
        /* a step that is in it is known there */
        assert_int_equal(fixture_f32(&g, PS_REC_PUSH, 1, 3, 9)->status, PS_OK);
        assert_int_equal(g.updates, 0);
        assert_int_equal(ps_entry_import(&g.entry, bytes->data, bytes->size, &err),
                         PS_EEXIST);
        ps_buf_release(again);
        ps_buf_release(bytes);
        fixture_close(&g);
        fixture_close(&f);
    }
}

static void an_entry_without_a_value_survives_too(void **state)
{
    PS_UNUSED(state);
    struct ps_buf *bytes = NULL;
    fixture_open(&f, &sync_options);
    fixture_open(&g, &sync_options);
    assert_int_equal(ps_entry_export(&f.entry, &bytes), PS_OK);
    assert_int_equal(ps_entry_import(&g.entry, bytes->data, bytes->size, NULL), PS_OK);
    assert_null(g.entry.value);
    ps_buf_release(bytes);
    fixture_close(&g);
    fixture_close(&f);
}

static void every_truncation_and_every_flipped_bit_is_refused(void **state)
{
    PS_UNUSED(state);
    struct ps_buf *bytes = make(&async_options);
    fixture_open(&g, &async_options);
    for (size_t size = 0; size < bytes->size; size++) {
        unsigned char *copy = malloc(size + 1); /* exact, so that ASan sees overreads */
        assert_non_null(copy);
        memcpy(copy, bytes->data, size);
        struct ps_error err = {0};
        assert_int_equal(ps_entry_import(&g.entry, copy, size, &err), PS_ECORRUPT);
        assert_true(err.text[0] != '\0');
        free(copy);
    }
    for (size_t bit = 0; bit < bytes->size * 8; bit++) {
        unsigned char *at = (unsigned char *)bytes->data + bit / 8;
        *at ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(ps_entry_import(&g.entry, bytes->data, bytes->size, NULL),
                             PS_OK);
        *at ^= (unsigned char)(1u << bit % 8);
    }
    assert_null(g.entry.value);
    assert_int_equal(ps_entry_import(&g.entry, bytes->data, bytes->size, NULL), PS_OK);
    ps_buf_release(bytes);
    fixture_close(&g);
    fixture_close(&f);
}

static void entries_of_another_place_or_job_are_refused(void **state)
{
    PS_UNUSED(state);
    struct ps_buf *bytes = make(&async_options);
    struct fixture_options other[3] = {async_options, async_options, async_options};
    other[0].count = 7;
    other[1].mode = PS_MODE_SYNC;
    other[2].ranks = 3;
    for (size_t i = 0; i < PS_COUNT(other); i++) {
        struct ps_error err = {0};
        fixture_open(&g, &other[i]);
        assert_int_equal(ps_entry_import(&g.entry, bytes->data, bytes->size, &err),
                         PS_EMISMATCH);
        fixture_close(&g);
    }
    ps_buf_release(bytes);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_survives_the_trip),
        cmocka_unit_test(an_entry_without_a_value_survives_too),
        cmocka_unit_test(every_truncation_and_every_flipped_bit_is_refused),
        cmocka_unit_test(entries_of_another_place_or_job_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
