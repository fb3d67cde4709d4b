/* Errors that travel along variables: reference/behaviour.md 2.4 and 7.9. */
#include "tests/suite/engine_suite.h"

#include <string.h>

static enum ps_status run_fail(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(run);
    return ps_error_set(err, PS_ERANGE, "%s", (const char *)arg);
}

static enum ps_status run_fail_silently(void *arg, const struct ps_run *run,
                                        struct ps_error *err)
{
    PS_UNUSED(arg);
    PS_UNUSED(run);
    PS_UNUSED(err);
    return PS_EIO;
}

static enum ps_status run_count(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(run);
    PS_UNUSED(err);
    atomic_fetch_add((_Atomic int *)arg, 1);
    return PS_OK;
}

static char bad_scale[] = "scale -1: must be >= 0";

static void case_003_an_error_stays_on_the_variables_written(void **state)
{
    struct suite *suite = *state;
    struct ps_var *bad = new_var(suite), *good = new_var(suite);
    struct ps_error err = {.status = PS_OK};
    _Atomic int ran = 0;
    push(suite, "normal", run_fail, bad_scale, NULL, bad);
    push(suite, "other", run_count, &ran, NULL, good);
    wait_var_ok(suite, good);
    assert_int_equal(ran, 1);
    assert_int_equal(ps_engine_wait_var(suite->engine, bad, &err), PS_ERANGE);
    assert_int_equal(err.status, PS_ERANGE);
    assert_string_equal(err.text, "normal: scale -1: must be >= 0");
    wait_var_ok(suite, bad); /* cleared by the wait */
    push(suite, "again", run_count, &ran, NULL, bad);
    wait_var_ok(suite, bad);
    assert_int_equal(ran, 2);
    ps_var_delete(suite->engine, bad);
    ps_var_delete(suite->engine, good);
}

static void an_error_without_words_has_those_of_its_status(void **state)
{
    struct suite *suite = *state;
    struct ps_var *var = new_var(suite);
    struct ps_error err = {.status = PS_OK};
    push(suite, "quiet", run_fail_silently, NULL, NULL, var);
    assert_int_equal(ps_engine_wait_var(suite->engine, var, &err), PS_EIO);
    assert_string_equal(err.text, "quiet: input/output error");
    ps_var_delete(suite->engine, var);
}

static void dependants_are_skipped_and_inherit_the_root_error(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite), *b = new_var(suite), *c = new_var(suite);
    struct ps_error err = {.status = PS_OK};
    _Atomic int ran = 0;
    push(suite, "root", run_fail, bad_scale, NULL, a);
    push(suite, "middle", run_count, &ran, a, b);
    push(suite, "leaf", run_count, &ran, b, c);
    assert_int_equal(ps_engine_wait_var(suite->engine, c, &err), PS_ERANGE);
    assert_non_null(strstr(err.text, "root: scale"));
    assert_int_equal(ran, 0);
    wait_var_ok(suite, a); /* one error, shared by all three: cleared for all */
    wait_var_ok(suite, b);
    assert_int_equal(ps_var_version(c), 1); /* a skipped write is complete, too */
    ps_var_delete(suite->engine, a);
    ps_var_delete(suite->engine, b);
    ps_var_delete(suite->engine, c);
}

static void two_failures_in_a_row_come_out_one_by_one(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite), *b = new_var(suite);
    struct ps_error err = {.status = PS_OK};
    for (int round = 0; round < 2; round++) {
        push(suite, "first", run_fail, bad_scale, NULL, a);
        push(suite, "second", run_fail, bad_scale, NULL, b);
        assert_int_equal(ps_engine_wait_var(suite->engine, b, &err), PS_ERANGE);
        assert_non_null(strstr(err.text, "second"));
        assert_int_equal(ps_engine_wait_var(suite->engine, a, &err), PS_ERANGE);
        assert_non_null(strstr(err.text, "first"));
    }
    wait_all_ok(suite);
    ps_var_delete(suite->engine, a);
    ps_var_delete(suite->engine, b);
}

static void after_a_wait_on_one_output_its_sibling_can_be_read(void **state)
{
    struct suite *suite = *state;
    struct ps_var *both[] = {new_var(suite), new_var(suite)};
    struct ps_error err = {.status = PS_OK};
    _Atomic int ran = 0;
    struct ps_engine_op op = {.name = "two outputs",
                              .run = run_fail,
                              .arg = bad_scale,
                              .writes = both,
                              .write_count = 2};
    assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
    push(suite, "uses it", run_count, &ran, both[1], NULL);
    assert_int_equal(ps_engine_wait_var(suite->engine, both[0], &err), PS_ERANGE);
    wait_var_ok(suite, both[1]);
    push(suite, "reads", run_count, &ran, both[1], NULL);
    wait_all_ok(suite);
    assert_true(ran >= 1); /* the second reader; the first was skipped or came late */
    ps_var_delete(suite->engine, both[0]);
    ps_var_delete(suite->engine, both[1]);
}

static void case_004_wait_all_returns_the_first_error_once(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite), *b = new_var(suite);
    struct ps_error err = {.status = PS_OK};
    push(suite, "first", run_fail, bad_scale, NULL, a);
    wait_var_ok(suite, b);
    push(suite, "second", run_fail_silently, NULL, a, b);
    assert_int_equal(ps_engine_wait_all(suite->engine, &err), PS_ERANGE);
    assert_non_null(strstr(err.text, "first"));
    wait_all_ok(suite);
    wait_var_ok(suite, a);
    wait_var_ok(suite, b);
    ps_var_delete(suite->engine, a);
    ps_var_delete(suite->engine, b);
}

static void an_error_of_an_op_without_writes_comes_out_of_wait_all(void **state)
{
    struct suite *suite = *state;
    struct ps_error err = {.status = PS_OK};
    push(suite, "alone", run_fail_silently, NULL, NULL, NULL);
    assert_int_equal(ps_engine_wait_all(suite->engine, &err), PS_EIO);
    assert_string_equal(err.text, "alone: input/output error");
}

struct seen {
    enum ps_status upstream;
    enum ps_status result;
    int released;
};

static enum ps_status run_see(void *arg, const struct ps_run *run, struct ps_error *err)
{
    struct seen *seen = arg;
    PS_UNUSED(err);
    seen->upstream = run->upstream != NULL ? run->upstream->status : PS_OK;
    return seen->result;
}

static void release_seen(void *arg)
{
    ((struct seen *)arg)->released++;
}

static void an_op_that_is_not_skipped_sees_the_error_and_hands_the_root_on(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite), *b = new_var(suite);
    struct ps_error err = {.status = PS_OK};
    for (int gives_up = 0; gives_up < 2; gives_up++) {
        struct seen seen = {.result = gives_up ? PS_EABORT : PS_OK};
        push(suite, "root", run_fail, bad_scale, NULL, a);
        struct ps_engine_op op = {.name = "vote",
                                  .run = run_see,
                                  .arg = &seen,
                                  .release = release_seen,
                                  .reads = &a,
                                  .read_count = 1,
                                  .writes = &b,
                                  .write_count = 1,
                                  .no_skip = true};
        assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
        enum ps_status expected = gives_up ? PS_ERANGE : PS_OK;
        assert_int_equal(ps_engine_wait_var(suite->engine, b, &err), expected);
        assert_int_equal(seen.upstream, PS_ERANGE);
        assert_int_equal(seen.released, 1);
        assert_int_equal(ps_engine_wait_all(suite->engine, &err),
                         gives_up ? PS_OK : PS_ERANGE);
    }
    ps_var_delete(suite->engine, a);
    ps_var_delete(suite->engine, b);
}

static void a_skipped_op_releases_its_argument(void **state)
{
    struct suite *suite = *state;
    struct ps_var *a = new_var(suite);
    struct seen seen = {.upstream = PS_EINTERNAL};
    struct ps_error err;
    push(suite, "root", run_fail, bad_scale, NULL, a);
    struct ps_engine_op op = {.name = "skipped",
                              .run = run_see,
                              .arg = &seen,
                              .release = release_seen,
                              .reads = &a,
                              .read_count = 1};
    assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
    assert_int_equal(ps_engine_wait_all(suite->engine, &err), PS_ERANGE);
    assert_int_equal(seen.released, 1);
    assert_int_equal(seen.upstream, PS_EINTERNAL); /* never ran */
    ps_var_delete(suite->engine, a);
}

static void failures_that_nobody_waits_for_are_bounded(void **state)
{
    struct suite *suite = *state;
    struct ps_error err = {.status = PS_OK};
    for (int i = 0; i < 3000; i++) {
        push(suite, "later", run_fail_silently, NULL, NULL, NULL);
    }
    assert_int_equal(ps_engine_wait_all(suite->engine, &err), PS_EIO);
    wait_all_ok(suite);
}

static void an_op_on_a_deleted_variable_fails(void **state)
{
    struct suite *suite = *state;
    struct ps_error err = {.status = PS_OK};
    struct ps_var *var = new_var(suite);
    _Atomic int ran = 0;
    ps_var_delete(suite->engine, var);
    push(suite, "late", run_count, &ran, NULL, var);
    assert_int_equal(ps_engine_wait_all(suite->engine, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "late: uses a variable that was deleted"));
    assert_int_equal(ran, 0);
}

static void ops_that_make_no_sense_are_refused(void **state)
{
    struct suite *suite = *state;
    struct ps_engine_op none = {.name = "none"};
    struct ps_engine_op gpu = {
        .name = "gpu", .run = run_fail_silently, .context = PS_GPU(2)};
    struct ps_engine_op far = {
        .name = "far", .run = run_fail_silently, .context = PS_CPU(256)};
    struct ps_device *device;
    assert_int_equal(ps_engine_push(suite->engine, &none), PS_EINVAL);
    assert_int_equal(ps_engine_push(suite->engine, &gpu), PS_EUNSUPPORTED);
    assert_int_equal(ps_engine_push(suite->engine, &far), PS_EINVAL);
    assert_int_equal(ps_engine_device(suite->engine, PS_GPU(2), &device, NULL),
                     PS_EUNSUPPORTED);
    assert_int_equal(ps_engine_device(suite->engine, PS_CPU(-1), &device, NULL),
                     PS_EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, suite_setup, suite_teardown)

static const struct CMUnitTest tests[] = {
    TEST(case_003_an_error_stays_on_the_variables_written),
    TEST(an_error_without_words_has_those_of_its_status),
    TEST(dependants_are_skipped_and_inherit_the_root_error),
    TEST(two_failures_in_a_row_come_out_one_by_one),
    TEST(after_a_wait_on_one_output_its_sibling_can_be_read),
    TEST(case_004_wait_all_returns_the_first_error_once),
    TEST(an_error_of_an_op_without_writes_comes_out_of_wait_all),
    TEST(an_op_that_is_not_skipped_sees_the_error_and_hands_the_root_on),
    TEST(a_skipped_op_releases_its_argument),
    TEST(failures_that_nobody_waits_for_are_bounded),
    TEST(an_op_on_a_deleted_variable_fails),
    TEST(ops_that_make_no_sense_are_refused),
};

SUITE_GROUP(suite_errors, "errors", tests);
