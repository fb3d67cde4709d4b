/* The grammar of settings, their sources, and what other projects' variables do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/settings.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Loads from one or two "NAME=value". */
static enum ps_status load(const char *a, const char *b, struct ps_settings **out,
                           struct ps_error *err)
{
    const char *env[] = {"PATH=/bin", a, a == NULL ? NULL : b, NULL};
    *err = (struct ps_error){0};
    *out = NULL;
    return ps_settings_load(env, NULL, out, err);
}

static void accepts_int(const char *entry, enum ps_setting_id id, int64_t value)
{
    struct ps_settings *settings;
    struct ps_error err;
    if (load(entry, NULL, &settings, &err) != PS_OK) {
        fail_msg("%s: %s", entry, err.text);
    }
    if (ps_settings_int(settings, id) != value) {
        fail_msg("%s: got %lld", entry, (long long)ps_settings_int(settings, id));
    }
    assert_true(ps_settings_is_set(settings, id));
    ps_settings_destroy(settings);
}

/* The error must hold all of 'words' (separated by '~'). */
static void refuses(const char *entry, const char *words)
{
    struct ps_settings *settings;
    struct ps_error err;
    char word[128];
    if (load(entry, NULL, &settings, &err) == PS_OK) {
        fail_msg("%s was accepted", entry);
    }
    while (*words != '\0') {
        size_t size = strcspn(words, "~");
        (void)snprintf(word, sizeof(word), "%.*s", (int)size, words);
        if (strstr(err.text, word) == NULL) {
            fail_msg("%s: '%s' lacks '%s'", entry, err.text, word);
        }
        words += size + (words[size] == '~' ? 1 : 0);
    }
}

static void integers_have_a_grammar(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } rows[] = {
        {"1000000", 1000000},
        {"1e6", 1000000},
        {"1E6", 1000000},
        {"1M", 1000000},
        {"0x10", 16},
        {"0XfF", 255},
        {"3K", 3000},
        {"2G", 2000000000},
        {"3Ki", 3072},
        {"1Mi", 1048576},
        {"1Gi", 1073741824},
        {"+7", 7},
        {"007", 7},
        {"25e0", 25},
        {"9223372036854775807", INT64_MAX},
        {"0x7fffffffffffffff", INT64_MAX},
    };
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        char entry[96];
        (void)snprintf(entry, sizeof(entry), "KVSTORE_BIGARRAY_BOUND=%s", rows[i].text);
        accepts_int(entry, PS_SET_KVSTORE_BIGARRAY_BOUND, rows[i].value);
    }
    accepts_int("PENSTOCK_CHUNK_BYTES=64K", PS_SET_CHUNK_BYTES, 65536);
    accepts_int("PENSTOCK_CHUNK_BYTES=1M", PS_SET_CHUNK_BYTES, 1048576);
    accepts_int("PENSTOCK_CHUNK_BYTES=64Ki", PS_SET_CHUNK_BYTES, 65536);
    accepts_int("PENSTOCK_RANK=-1", PS_SET_RANK, -1);
}

static void texts_that_have_a_form_are_checked_like_the_rest(void **state)
{
    static const char *const good[] = {"MEMONGER=sqrt",      "MEMONGER=SQRT",
                                       "MEMONGER=400M",      "MEMONGER=1Gi",
                                       "MEMONGER=5e8",       "SIM_GPU_PEERS=all",
                                       "SIM_GPU_PEERS=None", "SIM_GPU_PEERS=0-1,2-3"};
    static const char *const bad[] = {
        "MEMONGER=foo",        "MEMONGER=0",           "MEMONGER=-5",
        "MEMONGER=sqrt ",      "MEMONGER=4TB",         "SIM_GPU_PEERS=some",
        "SIM_GPU_PEERS=0-",    "SIM_GPU_PEERS=0-1,",   "SIM_GPU_PEERS=-1",
        "SIM_GPU_PEERS=0-1-2", "SIM_GPU_PEERS=0-1 2-3"};
    (void)state;
    for (size_t i = 0; i < PS_COUNT(good); i++) {
        const char *const env[] = {good[i], NULL};
        struct ps_settings *settings = NULL;
        assert_int_equal(ps_settings_load(env, NULL, &settings, NULL), PS_OK);
        ps_settings_destroy(settings);
    }
    for (size_t i = 0; i < PS_COUNT(bad); i++) {
        refuses(bad[i], bad[i][0] == 'M' ? "MEMONGER~sqrt, or bytes such as"
                                         : "SIM_GPU_PEERS~all, none, or pairs such as");
    }
}

static void anything_else_is_an_error(void **state)
{
    (void)state;
    static const char *const texts[] = {"abc",
                                        "1.5",
                                        "1e",
                                        "1e-3",
                                        "e6",
                                        " 1",
                                        "1 ",
                                        "1k",
                                        "1KB",
                                        "1Kib",
                                        "0x",
                                        "0xg",
                                        "--1",
                                        "1M1",
                                        "True",
                                        "1_000",
                                        "1,000",
                                        "0",
                                        "-5",
                                        "1e19",
                                        "1e99999",
                                        "9223372036854775808",
                                        "9G9",
                                        "0x10000000000000000",
                                        "99999999999999999999",
                                        "1T"};
    for (size_t i = 0; i < PS_COUNT(texts); i++) {
        char entry[96];
        char words[128];
        (void)snprintf(entry, sizeof(entry), "MXNET_KVSTORE_BIGARRAY_BOUND=%s", texts[i]);
        (void)snprintf(words, sizeof(words),
                       "MXNET_KVSTORE_BIGARRAY_BOUND~'%s'~from 1 to", texts[i]);
        refuses(entry, words);
    }
}

static void booleans_ignore_case_and_empty_is_unset(void **state)
{
    (void)state;
    static const char *const yes[] = {"1", "true", "TRUE", "on", "On", "yes"};
    static const char *const no[] = {"0", "false", "False", "off", "no", "NO"};
    for (size_t i = 0; i < PS_COUNT(yes); i++) {
        char entry[64];
        (void)snprintf(entry, sizeof(entry), "PENSTOCK_RESEND=%s", yes[i]);
        accepts_int(entry, PS_SET_RESEND, 1);
        (void)snprintf(entry, sizeof(entry), "MXNET_EXEC_ENABLE_INPLACE=%s", no[i]);
        accepts_int(entry, PS_SET_EXEC_ENABLE_INPLACE, 0);
    }
    refuses("PS_RESEND=2", "PS_RESEND~'2'~yes or no");
    struct ps_settings *settings;
    struct ps_error err;
    assert_int_equal(load("PENSTOCK_RESEND=", "PS_RESEND=1", &settings, &err), PS_OK);
    assert_true(ps_settings_bool(settings, PS_SET_RESEND));
    assert_string_equal(ps_settings_variable(settings, PS_SET_RESEND), "PS_RESEND");
    ps_settings_destroy(settings);
}

static void
case_012_engine_type_empty_is_the_default_and_a_typo_lists_the_names(void **state)
{
    struct ps_settings *settings;
    struct ps_error err;
    (void)state;
    assert_int_equal(load("ENGINE_TYPE=", "MXNET_ENGINE_TYPE=", &settings, &err), PS_OK);
    assert_string_equal(ps_settings_text(settings, PS_SET_ENGINE_TYPE),
                        "ThreadedEnginePerDevice");
    assert_int_equal(ps_settings_choice(settings, PS_SET_ENGINE_TYPE), 3);
    assert_false(ps_settings_is_set(settings, PS_SET_ENGINE_TYPE));
    ps_settings_destroy(settings);
    assert_int_equal(load("ENGINE_TYPE=naiveengine", NULL, &settings, &err), PS_OK);
    assert_string_equal(ps_settings_text(settings, PS_SET_ENGINE_TYPE), "NaiveEngine");
    ps_settings_destroy(settings);
    refuses("ENGINE_TYPE=naive ",
            "ENGINE_TYPE~'naive "
            "'~NaiveEngine~ThreadedEngine,~ThreadedEnginePooled~ThreadedEnginePerDevice");
    refuses("MXNET_ENGINE_TYPE=NaiveEngine ", "MXNET_ENGINE_TYPE='NaiveEngine '~one of");
}

static void case_013_thread_counts_out_of_range_are_refused_with_the_range(void **state)
{
    (void)state;
    refuses("CPU_WORKER_NTHREADS=0", "CPU_WORKER_NTHREADS='0'~from 1 to 256 threads");
    refuses("MXNET_CPU_WORKER_NTHREADS=-1",
            "MXNET_CPU_WORKER_NTHREADS='-1'~from 1 to 256");
    refuses("CPU_WORKER_NTHREADS=abc",
            "CPU_WORKER_NTHREADS='abc'~an integer from 1 to 256");
    refuses("PENSTOCK_CPU_WORKER_NTHREADS=1e9",
            "PENSTOCK_CPU_WORKER_NTHREADS='1e9'~out of range~from 1 to 256");
    refuses("CPU_PRIORITY_NTHREADS=0", "CPU_PRIORITY_NTHREADS='0'~from 1 to 256");
    accepts_int("CPU_WORKER_NTHREADS=256", PS_SET_CPU_WORKER_NTHREADS, 256);
}

/* Counts and keeps the lines of a log. */
struct lines {
    int count;
    char last[512];
};

static void keep_line(void *arg, const char *line, size_t size)
{
    struct lines *lines = arg;
    lines->count++;
    (void)snprintf(lines->last, sizeof(lines->last), "%.*s", (int)size, line);
}

static int warnings_of(const char *entry, char last[512])
{
    struct ps_settings *settings;
    struct ps_error err;
    struct lines lines = {0};
    struct ps_log *log;
    struct ps_log_options options = {.fd = -1, .sink = keep_line, .sink_arg = &lines};
    if (load(entry, NULL, &settings, &err) != PS_OK) {
        fail_msg("%s: %s", entry, err.text);
    }
    assert_int_equal(ps_log_create(&options, &log, NULL), PS_OK);
    ps_settings_warn(settings, log);
    memcpy(last, lines.last, sizeof(lines.last));
    ps_log_destroy(log);
    ps_settings_destroy(settings);
    return lines.count;
}

static void case_089_port_in_the_environment_is_not_read(void **state)
{
    struct ps_settings *settings;
    struct ps_error err;
    char last[512];
    (void)state;
    assert_int_equal(load("PORT=8080", "ROLE=worker", &settings, &err), PS_OK);
    assert_int_equal(ps_settings_int(settings, PS_SET_ROOT_PORT), 0);
    assert_string_equal(ps_settings_text(settings, PS_SET_ROLE), "none");
    ps_settings_destroy(settings);
    assert_int_equal(warnings_of("PORT=8080", last), 0);
}

static void the_first_variable_in_order_wins(void **state)
{
    static const char *const env[] = {"KVSTORE_BIGARRAY_BOUND=3",
                                      "MXNET_KVSTORE_BIGARRAY_BOUND=2",
                                      "PENSTOCK_KVSTORE_BIGARRAY_BOUND=1", NULL};
    static const char *const overrides[] = {"KVSTORE_BIGARRAY_BOUND=9", NULL};
    struct ps_settings *settings;
    struct ps_error err = {0};
    (void)state;
    for (int64_t i = 1; i <= 3; i++) {
        const char *some[4] = {NULL};
        for (int64_t j = 0; j <= 3 - i; j++) {
            some[j] = env[j];
        }
        assert_int_equal(ps_settings_load(some, NULL, &settings, &err), PS_OK);
        assert_int_equal(ps_settings_int(settings, PS_SET_KVSTORE_BIGARRAY_BOUND), i);
        ps_settings_destroy(settings);
    }
    assert_int_equal(ps_settings_load(env, overrides, &settings, &err), PS_OK);
    assert_int_equal(ps_settings_int(settings, PS_SET_KVSTORE_BIGARRAY_BOUND), 9);
    ps_settings_destroy(settings);
}

static void unknown_overrides_are_errors(void **state)
{
    static const char *const env[] = {NULL};
    static const char *const typo[] = {"NUM_WORKERS=2", NULL};
    static const char *const shapeless[] = {"NUM_WORKER", NULL};
    struct ps_settings *settings;
    struct ps_error err = {0};
    (void)state;
    assert_int_equal(ps_settings_load(env, typo, &settings, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "did you mean NUM_WORKER?"));
    assert_int_equal(ps_settings_load(env, shapeless, &settings, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "NAME=value"));
}

static void the_variables_of_ps_lite_are_accepted(void **state)
{
    struct ps_settings *settings;
    struct ps_error err;
    (void)state;
    accepts_int("DMLC_NUM_WORKER=8", PS_SET_NUM_WORKER, 8);
    accepts_int("DMLC_NUM_SERVER=4", PS_SET_NUM_SERVER, 4);
    accepts_int("DMLC_PS_ROOT_PORT=9091", PS_SET_ROOT_PORT, 9091);
    accepts_int("PS_VERBOSE=2", PS_SET_VERBOSE, 2);
    accepts_int("PS_RESEND=1", PS_SET_RESEND, 1);
    accepts_int("PS_RESEND_TIMEOUT=500", PS_SET_RESEND_TIMEOUT_MS, 500);
    accepts_int("PS_HEARTBEAT_INTERVAL=2", PS_SET_HEARTBEAT_MS, 2000);
    accepts_int("PS_HEARTBEAT_INTERVAL=0", PS_SET_HEARTBEAT_MS, 0);
    accepts_int("PS_HEARTBEAT_TIMEOUT=20", PS_SET_HEARTBEAT_TIMEOUT_MS, 20000);
    accepts_int("DMLC_RANK=3", PS_SET_RANK, 3);
    accepts_int("NNVM_EXEC_MATCH_RANGE=0", PS_SET_EXEC_MATCH_RANGE, 0);
    refuses("PS_HEARTBEAT_INTERVAL=601", "PS_HEARTBEAT_INTERVAL='601'~from 0 to 600 s");
    refuses("DMLC_ROLE=joker", "DMLC_ROLE='joker'~worker, server, scheduler");
    static const struct {
        const char *entry;
        enum ps_setting_id id;
        const char *value;
    } texts[] = {{"DMLC_ROLE=server", PS_SET_ROLE, "server"},
                 {"DMLC_PS_ROOT_URI=10.0.0.1", PS_SET_ROOT_URI, "10.0.0.1"},
                 {"DMLC_NODE_HOST=h", PS_SET_ADVERTISE_HOST, "h"},
                 {"DMLC_INTERFACE=eth0", PS_SET_INTERFACE, "eth0"},
                 {"DMLC_LOCAL=1", PS_SET_TRANSPORT, "ipc"},
                 {"DMLC_LOCAL=0", PS_SET_TRANSPORT, "auto"},
                 {"DMLC_PS_VAN_TYPE=zmq", PS_SET_TRANSPORT, "auto"},
                 {"DMLC_PS_VAN_TYPE=p3", PS_SET_TRANSPORT, "auto"},
                 {"DMLC_USE_KUBERNETES=1", PS_SET_BIND_HOST, ""}};
    for (size_t i = 0; i < PS_COUNT(texts); i++) {
        assert_int_equal(load(texts[i].entry, NULL, &settings, &err), PS_OK);
        assert_string_equal(ps_settings_text(settings, texts[i].id), texts[i].value);
        ps_settings_destroy(settings);
    }
    assert_int_equal(
        load("DMLC_USE_KUBERNETES=1", "DMLC_ROLE=scheduler", &settings, &err), PS_OK);
    assert_string_equal(ps_settings_text(settings, PS_SET_BIND_HOST), "0.0.0.0");
    ps_settings_destroy(settings);
    assert_int_equal(load("DMLC_LOCAL=1", "PENSTOCK_TRANSPORT=tcp", &settings, &err),
                     PS_OK);
    assert_string_equal(ps_settings_text(settings, PS_SET_TRANSPORT), "tcp");
    ps_settings_destroy(settings);
}

static void what_cannot_be_honoured_is_refused_with_its_reason(void **state)
{
    (void)state;
    refuses("DMLC_PS_VAN_TYPE=ibverbs",
            "DMLC_PS_VAN_TYPE~ibverbs~zmq|p3~no ibverbs transport");
    refuses("DMLC_PS_VAN_TYPE=tcp", "DMLC_PS_VAN_TYPE~'tcp'~zmq|p3");
    refuses("PS_DROP_MSG=10", "PS_DROP_MSG~'10'~simulated network");
    refuses("DMLC_LOCAL=maybe", "DMLC_LOCAL~'maybe'~yes or no");
    refuses("PENSTOCK_SHARDS=1000", "PENSTOCK_SHARDS~1000~power of two");
    char last[512];
    assert_int_equal(warnings_of("PS_DROP_MSG=0", last), 0);
}

static void ranks_of_a_role_count_for_that_role_only(void **state)
{
    struct ps_settings *settings;
    struct ps_error err;
    (void)state;
    assert_int_equal(load("DMLC_WORKER_ID=3", "DMLC_ROLE=worker", &settings, &err),
                     PS_OK);
    assert_int_equal(ps_settings_int(settings, PS_SET_RANK), 3);
    ps_settings_destroy(settings);
    assert_int_equal(load("DMLC_WORKER_ID=3", "DMLC_ROLE=server", &settings, &err),
                     PS_OK);
    assert_int_equal(ps_settings_int(settings, PS_SET_RANK), -1);
    ps_settings_destroy(settings);
    assert_int_equal(load("DMLC_SERVER_ID=2", "DMLC_ROLE=server", &settings, &err),
                     PS_OK);
    assert_int_equal(ps_settings_int(settings, PS_SET_RANK), 2);
    ps_settings_destroy(settings);
}

static void unknown_names_warn_with_the_nearest(void **state)
{
    char last[512];
    (void)state;
    static const struct {
        const char *entry;
        const char *near; /* NULL: no warning */
    } rows[] = {
        {"MXNET_KVSTORE_BIGARAY_BOUND=5", "did you mean MXNET_KVSTORE_BIGARRAY_BOUND?"},
        {"PENSTOCK_HEARTBEAT_M=5", "did you mean PENSTOCK_HEARTBEAT_MS?"},
        {"DMLC_NUM_WORKERS=5", "did you mean DMLC_NUM_WORKER?"},
        {"DMLC_PS_ROOT_UR=h", "did you mean DMLC_PS_ROOT_URI?"},
        {"NNVM_EXEC_MATCH_RANG=5", "did you mean NNVM_EXEC_MATCH_RANGE?"},
        {"MXNET_GPU_WORKER_NTHREAD=5", "did you mean MXNET_GPU_WORKER_NTHREADS?"},
        {"MXNET_SOMETHING_ELSE_ENTIRELY=1", "is not a known variable"},
        {"MXNET_GPU_TEMP_COPY=2", "known, has no effect in this version"},
        {"MXNET_ENGINE_INFO=1", "known, has no effect in this version"},
        {"NNVM_AUTO_SEARCH_MATCH_RANGE=1", "known, has no effect in this version"},
        {"DMLC_PS_WATER_MARK=10", "is ignored: bytes in flight"},
        {"DMLC_TASK_ID=1", NULL},
        {"DMLC_JOB_CLUSTER=local", NULL},
        {"DMLC_NUM_ATTEMPT=1", NULL},
        {"MXNET_SOMETHING_EMPTY=", NULL},
        {"PS_FORMAT=pid", NULL},
        {"PENSTOCK_NUM_WORKER=2", NULL}};
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        int count = warnings_of(rows[i].entry, last);
        if (count != (rows[i].near == NULL ? 0 : 1) ||
            (rows[i].near != NULL && strstr(last, rows[i].near) == NULL)) {
            fail_msg("%s: %d warnings, last '%s'", rows[i].entry, count, last);
        }
    }
}

static void every_setting_is_printed_in_three_forms(void **state)
{
    struct ps_settings *settings;
    struct ps_error err;
    struct ps_str out = {0};
    (void)state;
    assert_int_equal(
        load("MXNET_CPU_WORKER_NTHREADS=3", "PENSTOCK_ROOT_URI=\"a|b\\", &settings, &err),
        PS_OK);
    ps_settings_print(settings, PS_SETTINGS_JSON, &out);
    json_error_t json_error;
    json_t *rows = json_loads(ps_str_text(&out), 0, &json_error);
    assert_non_null(rows);
    assert_int_equal(json_array_size(rows), PS_SETTING_COUNT);
    int found = 0;
    size_t index;
    json_t *row;
    json_array_foreach(rows, index, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        assert_non_null(name);
        assert_true(json_array_size(json_object_get(row, "variables")) >= 2);
        if (strcmp(name, "CPU_WORKER_NTHREADS") == 0) {
            assert_int_equal(json_integer_value(json_object_get(row, "value")), 3);
            assert_string_equal(json_string_value(json_object_get(row, "source")),
                                "MXNET_CPU_WORKER_NTHREADS");
            found++;
        }
        if (strcmp(name, "ROOT_URI") == 0) {
            assert_string_equal(json_string_value(json_object_get(row, "value")),
                                "\"a|b\\");
            found++;
        }
    }
    assert_int_equal(found, 2);
    json_decref(rows);
    ps_str_fini(&out);
    ps_settings_print(settings, PS_SETTINGS_TEXT, &out);
    assert_non_null(strstr(out.data, "MXNET_CPU_WORKER_NTHREADS\n"));
    ps_str_fini(&out);
    ps_settings_print(settings, PS_SETTINGS_MARKDOWN, &out);
    assert_non_null(strstr(out.data, "## the engine"));
    assert_non_null(strstr(
        out.data, "| `CPU_WORKER_NTHREADS` | `1` | an integer from 1 to 256 threads |"));
    assert_null(strstr(out.data, "a|b"));
    ps_str_fini(&out);
    ps_settings_destroy(settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_have_a_grammar),
        cmocka_unit_test(texts_that_have_a_form_are_checked_like_the_rest),
        cmocka_unit_test(anything_else_is_an_error),
        cmocka_unit_test(booleans_ignore_case_and_empty_is_unset),
        cmocka_unit_test(
            case_012_engine_type_empty_is_the_default_and_a_typo_lists_the_names),
        cmocka_unit_test(case_013_thread_counts_out_of_range_are_refused_with_the_range),
        cmocka_unit_test(case_089_port_in_the_environment_is_not_read),
        cmocka_unit_test(the_first_variable_in_order_wins),
        cmocka_unit_test(unknown_overrides_are_errors),
        cmocka_unit_test(the_variables_of_ps_lite_are_accepted),
        cmocka_unit_test(what_cannot_be_honoured_is_refused_with_its_reason),
        cmocka_unit_test(ranks_of_a_role_count_for_that_role_only),
        cmocka_unit_test(unknown_names_warn_with_the_nearest),
        cmocka_unit_test(every_setting_is_printed_in_three_forms),
    };
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
