/* The lines that log parsers read, and the metrics file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/str.h"
#include "worker/report.h"

struct fixture {
    struct ps_node *node;
    struct ps_fs *fs;
    struct ps_str log;
};

static void take_line(void *arg, const char *line, size_t size)
{
    struct fixture *f = arg;
    ps_str_append(&f->log, line, size);
}

static int setup(void **state)
{
    static const char *const no_env[] = {NULL};
    struct fixture *f = calloc(1, sizeof(*f));
    struct ps_error err = {.status = PS_OK};
    if (f == NULL || ps_fs_sim_create(&f->fs) != PS_OK) {
        return -1;
    }
    struct ps_node_options options = {.name = "worker/0",
                                      .env = no_env,
                                      .fs = f->fs,
                                      .log_sink = take_line,
                                      .log_sink_arg = f};
    *state = f;
    return ps_node_open(&options, &f->node, &err) == PS_OK ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    ps_node_close(f->node);
    ps_fs_sim_destroy(f->fs);
    ps_str_fini(&f->log);
    free(f);
    return 0;
}

static struct ps_report *open_report(struct fixture *f, const char *metrics, bool first)
{
    struct ps_report *report = NULL;
    struct ps_error err = {.status = PS_OK};
    struct ps_report_options options = {
        .node = f->node, .metrics_path = metrics, .first = first, .progress_bar = true};
    assert_int_equal(ps_report_open(&options, &report, &err), PS_OK);
    return report;
}

static const struct ps_epoch_result epoch = {.epoch = 3,
                                             .samples = 60000,
                                             .seconds = 12.5,
                                             .train_accuracy = 0.84375,
                                             .loss = 0.5,
                                             .test_accuracy = 0.8125};

static void finish_epoch(struct ps_report *report, const struct ps_epoch_result *result)
{
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_report_epoch(report, result, &err), PS_OK);
}

/* The pattern (extended) is in the log; the first group's text goes to 'group'. */
static void expect_match(const struct fixture *f, const char *pattern, char group[64])
{
    regex_t regex;
    regmatch_t match[3];
    const char *text = ps_str_text(&f->log);
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NEWLINE), 0);
    if (regexec(&regex, text, 3, match, 0) != 0) {
        fail_msg("no %s in:\n%s", pattern, text);
    }
    size_t size = (size_t)(match[1].rm_eo - match[1].rm_so);
    assert_in_range(size, 1, 63);
    memcpy(group, text + match[1].rm_so, size);
    group[size] = '\0';
    regfree(&regex);
}

/* tools/parse_log.py of MXNet: r'.*Epoch\[(\d+)\] Train-accuracy=([.\d]+)' and so on. */
static void an_epochs_lines_have_the_shape_that_parsers_read(void **state)
{
    struct fixture *f = *state;
    char group[64];
    struct ps_report *report = open_report(f, NULL, true);
    finish_epoch(report, &epoch);
    expect_match(f, "Epoch\\[([0-9]+)\\] Train-accuracy=[.0-9]+", group);
    assert_string_equal(group, "3");
    expect_match(f, "Epoch\\[3\\] Train-accuracy=([.0-9]+)", group);
    assert_string_equal(group, "0.843750");
    expect_match(f, "Epoch\\[3\\] Validation-accuracy=([.0-9]+)", group);
    assert_string_equal(group, "0.812500");
    expect_match(f, "Epoch\\[3\\] Time.*=([.0-9]+)", group);
    assert_string_equal(group, "12.500");
    ps_report_close(report);
}

static void a_batchs_line_has_the_shape_that_parsers_read(void **state)
{
    struct fixture *f = *state;
    struct ps_report *report = open_report(f, NULL, true);
    ps_report_progress(report, 0, 20, 100);
    ps_report_batch(report, 0, 20, 1234.5, 0.8125);
    assert_non_null(
        strstr(ps_str_text(&f->log),
               "Epoch[0] Batch [20] Speed: 1234.50 samples/sec accuracy=0.812500\n"));
    ps_report_close(report);
}

static void without_a_test_set_there_is_no_validation_line(void **state)
{
    struct fixture *f = *state;
    struct ps_epoch_result result = epoch;
    result.test_accuracy = -1;
    struct ps_report *report = open_report(f, NULL, true);
    finish_epoch(report, &result);
    assert_null(strstr(ps_str_text(&f->log), "Validation"));
    ps_report_close(report);
}

static double number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void the_metrics_file_has_a_json_object_a_line(void **state)
{
    struct fixture *f = *state;
    char *text = NULL;
    size_t size = 0;
    struct ps_error err = {.status = PS_OK};
    struct ps_epoch_result last = epoch;
    last.epoch = 4;
    last.test_accuracy = -1;
    last.seconds = 0;
    struct ps_report *report = open_report(f, "metrics.jsonl", true);
    finish_epoch(report, &epoch);
    finish_epoch(report, &last);
    ps_report_close(report);

    assert_int_equal(ps_fs_read_all(f->fs, "metrics.jsonl", 4096, &text, &size, &err),
                     PS_OK);
    char *end = strchr(text, '\n');
    assert_non_null(end);
    json_t *first = json_loadb(text, (size_t)(end - text), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(first);
    assert_int_equal(json_object_size(first), 7);
    assert_true(number(first, "epoch") == 3);
    assert_true(number(first, "samples") == 60000);
    assert_true(number(first, "seconds") == 12.5);
    assert_true(number(first, "samples_per_s") == 4800);
    assert_true(number(first, "train_accuracy") == 0.84375);
    assert_true(number(first, "test_accuracy") == 0.8125);
    assert_true(number(first, "loss") == 0.5);
    json_decref(first);

    char *rest = end + 1;
    assert_true(text[size - 1] == '\n');
    json_t *second = json_loads(rest, JSON_REJECT_DUPLICATES, NULL); /* that one only */
    assert_non_null(second);
    assert_true(number(second, "epoch") == 4);
    assert_true(number(second, "samples_per_s") == 0);
    assert_true(json_is_null(json_object_get(second, "test_accuracy")));
    json_decref(second);
    free(text);
}

/* A training that diverged has losses that JSON has no number for. */
static void a_loss_that_is_no_number_leaves_the_json_valid(void **state)
{
    static const double losses[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    struct fixture *f = *state;
    for (size_t i = 0; i < PS_COUNT(losses); i++) {
        char *text = NULL;
        size_t size = 0;
        struct ps_error err = {.status = PS_OK};
        struct ps_epoch_result result = epoch;
        result.loss = losses[i];
        struct ps_report *report = open_report(f, "metrics.jsonl", true);
        finish_epoch(report, &result);
        ps_report_close(report);
        assert_int_equal(ps_fs_read_all(f->fs, "metrics.jsonl", 4096, &text, &size, &err),
                         PS_OK);
        json_t *line = json_loads(text, 0, NULL);
        if (line == NULL) {
            fail_msg("not JSON: %s", text);
        }
        assert_true(json_is_null(json_object_get(line, "loss")));
        json_decref(line);
        free(text);
    }
}

static void a_resumed_training_keeps_the_lines_before(void **state)
{
    struct fixture *f = *state;
    struct ps_error err = {.status = PS_OK};
    char *text = NULL;
    size_t size = 0;
    struct ps_report *report = open_report(f, "metrics.jsonl", true);
    finish_epoch(report, &epoch);
    ps_report_close(report);
    struct ps_report_options options = {
        .node = f->node, .metrics_path = "metrics.jsonl", .first = true, .resumed = true};
    assert_int_equal(ps_report_open(&options, &report, &err), PS_OK);
    finish_epoch(report, &epoch);
    ps_report_close(report);
    assert_int_equal(ps_fs_read_all(f->fs, "metrics.jsonl", 4096, &text, &size, &err),
                     PS_OK);
    char *second = strchr(text, '\n');
    assert_non_null(second);
    assert_non_null(strstr(second, "\"epoch\": 3"));
    free(text);
}

static void other_workers_write_no_metrics_and_no_epoch_lines(void **state)
{
    struct fixture *f = *state;
    struct ps_report *report = open_report(f, "metrics.jsonl", false);
    finish_epoch(report, &epoch);
    ps_report_close(report);
    assert_false(ps_fs_exists(f->fs, "metrics.jsonl"));
    assert_null(strstr(ps_str_text(&f->log), "Epoch"));
}

static void a_full_disk_is_an_error_that_names_the_file(void **state)
{
    struct fixture *f = *state;
    struct ps_error err = {.status = PS_OK};
    struct ps_report *report = open_report(f, "metrics.jsonl", true);
    ps_fs_sim_set_capacity(f->fs, 10);
    assert_int_equal(ps_report_epoch(report, &epoch, &err), PS_EFULL);
    assert_non_null(strstr(err.text, "metrics.jsonl"));
    ps_report_close(report);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_epochs_lines_have_the_shape_that_parsers_read),
        CASE(a_batchs_line_has_the_shape_that_parsers_read),
        CASE(without_a_test_set_there_is_no_validation_line),
        CASE(the_metrics_file_has_a_json_object_a_line),
        CASE(a_loss_that_is_no_number_leaves_the_json_valid),
        CASE(a_resumed_training_keeps_the_lines_before),
        CASE(other_workers_write_no_metrics_and_no_epoch_lines),
        CASE(a_full_disk_is_an_error_that_names_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
