/* `penstock plan`: its JSON, its text, its picture, what settings change, and what a
 * wrong command line is told.  The program's words go to a file here for the length of a
 * call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/options.h"
#include "base/util.h"
#include "worker/commands.h"
#include "worker/models/models.h"

#define ARGS_MAX 16
#define WORDS_BYTES (256 * 1024)

/* Runs the command; 'words' gets what it wrote to both streams. */
static int plan(const char *const *args, char words[WORDS_BYTES])
{
    char path[] = "/tmp/penstock-test-XXXXXX";
    char *argv[ARGS_MAX + 2] = {"plan"};
    int argc = 1;
    for (; args[argc - 1] != NULL; argc++) {
        assert_in_range(argc, 1, ARGS_MAX);
        argv[argc] = strdup(args[argc - 1]);
    }
    int file = mkstemp(path), out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    assert_true(file >= 0 && out >= 0 && err >= 0);
    assert_int_equal(unlink(path), 0);
    (void)fflush(stdout);
    assert_true(dup2(file, STDOUT_FILENO) >= 0 && dup2(file, STDERR_FILENO) >= 0);
    int code = ps_cmd_plan(argc, argv);
    (void)fflush(stdout);
    assert_true(dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0);
    ssize_t size = pread(file, words, WORDS_BYTES - 1, 0);
    assert_true(size >= 0);
    words[size] = '\0';
    (void)close(out);
    (void)close(err);
    (void)close(file);
    for (int i = 1; i < argc; i++) {
        free(argv[i]);
    }
    return code;
}
#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static char words[WORDS_BYTES];

/* The JSON of a plan that must succeed; json_decref. */
static json_t *plan_json(const char *const *args)
{
    json_error_t why;
    int code = plan(args, words);
    if (code != PS_EXIT_OK) {
        fail_msg("exit code %d: %s", code, words);
    }
    json_t *plan = json_loads(words, 0, &why);
    if (plan == NULL) {
        fail_msg("line %d: %s\n%s", why.line, why.text, words);
    }
    return plan;
}

static long long number(const json_t *plan, const char *key)
{
    const json_t *value = json_object_get(plan, key);
    if (!json_is_integer(value)) {
        fail_msg("no integer %s", key);
    }
    return json_integer_value(value);
}

/* A small residual network under one setting ("" for none); peak, or another key. */
static long long of_setting(const char *setting, const char *key)
{
    bool set = setting[0] != '\0';
    json_t *plan =
        plan_json(ARGS("--network", "resnet-18", "--batch-size", "4", "--data-shape",
                       "3,64,64", "--json", set ? "--set" : NULL, setting));
    long long value = number(plan, key);
    json_decref(plan);
    return value;
}

static void json_has_every_figure_of_a_plan(void **state)
{
    json_t *plan = plan_json(ARGS("--network", "LeNet", "--batch-size", "8", "--json"));
    (void)state;
    assert_string_equal(json_string_value(json_object_get(plan, "network")), "lenet");
    assert_true(number(plan, "batch_size") == 8);
    assert_true(json_is_false(json_object_get(plan, "inference")));
    assert_true(number(plan, "parameters") == 431080);
    /* the parameters, data, labels; gradients of the parameters alone */
    assert_true(number(plan, "argument_bytes") == 4 * (431080 + 8 * 784 + 8));
    assert_true(number(plan, "gradient_bytes") == 4 * 431080);
    assert_true(number(plan, "auxiliary_bytes") == 0);
    assert_true(number(plan, "internal_bytes") > 0);
    assert_true(number(plan, "peak_bytes") ==
                number(plan, "internal_bytes") + number(plan, "workspace_bytes"));
    assert_true(number(plan, "blocks") > 0);
    assert_true(number(plan, "block_bytes") < number(plan, "unplanned_bytes"));
    assert_true(number(plan, "mirrored_nodes") == 0 && number(plan, "extra_work") == 0);
    assert_true(json_array_size(json_object_get(plan, "mirrored")) == 0);
    assert_true(number(plan, "segments") < number(plan, "operators"));
    assert_true(json_is_true(
        json_object_get(json_object_get(plan, "settings"), "EXEC_ENABLE_INPLACE")));
    json_decref(plan);
}

static void a_forward_alone_needs_less(void **state)
{
    json_t *plan = plan_json(ARGS("--network", "resnet-18", "--batch-size", "4",
                                  "--data-shape", "3,64,64", "--json", "--inference"));
    (void)state;
    assert_true(json_is_true(json_object_get(plan, "inference")));
    assert_true(number(plan, "gradient_bytes") == 0);
    assert_true(number(plan, "segments") == 1); /* bulk inference is on */
    assert_true(number(plan, "peak_bytes") < of_setting("", "peak_bytes") / 2);
    json_decref(plan);
}

static void every_setting_of_memory_changes_the_plan(void **state)
{
    (void)state;
    long long peak = of_setting("", "peak_bytes"), blocks = of_setting("", "block_bytes");
    assert_true(of_setting("EXEC_ENABLE_INPLACE=0", "block_bytes") >= blocks);
    assert_true(of_setting("EXEC_ENABLE_INPLACE=0", "inplace") <
                of_setting("", "inplace"));
    assert_true(of_setting("EXEC_MATCH_RANGE=0", "peak_bytes") > peak);
    assert_true(of_setting("EXEC_MATCH_RANGE=1", "block_bytes") >= blocks);
    assert_true(of_setting("EXEC_NUM_TEMP=2", "peak_bytes") >= peak);
    assert_true(of_setting("BACKWARD_DO_MIRROR=1", "peak_bytes") < peak);
    assert_true(of_setting("BACKWARD_DO_MIRROR=1", "mirrored_nodes") > 0);
    assert_true(of_setting("MEMONGER=sqrt", "peak_bytes") <
                of_setting("BACKWARD_DO_MIRROR=1", "peak_bytes"));
}

static void settings_of_bulk_change_the_segments(void **state)
{
    (void)state;
    long long operators = of_setting("", "operators");
    assert_true(of_setting("EXEC_BULK_EXEC_TRAIN=0", "segments") == operators);
    assert_true(of_setting("EXEC_BULK_EXEC_MAX_NODE_TRAIN=1", "segments") == operators);
    assert_true(of_setting("EXEC_BULK_EXEC_MAX_NODE_TRAIN=4", "segments") >
                of_setting("", "segments"));
}

static void a_budget_is_met_or_refused_with_the_least_that_can_be(void **state)
{
    long long plain = of_setting("", "peak_bytes"), budget = plain * 8 / 10;
    char setting[64];
    (void)state;
    (void)snprintf(setting, sizeof(setting), "MEMONGER=%lld", budget);
    assert_true(of_setting(setting, "peak_bytes") <= budget);
    long long work = of_setting(setting, "extra_work");
    assert_true(work > 0 && work < of_setting(setting, "forward_work"));
    (void)snprintf(setting, sizeof(setting), "MEMONGER=%lld", plain * 9 / 10);
    assert_true(of_setting(setting, "extra_work") <= work);
    (void)snprintf(setting, sizeof(setting), "MEMONGER=%lld", plain / 100);
    assert_int_equal(plan(ARGS("--network", "resnet-18", "--batch-size", "4",
                               "--data-shape", "3,64,64", "--json", "--set", setting),
                          words),
                     PS_EXIT_FAIL);
    assert_non_null(strstr(words, "the least is"));
}

/* ResNet-50 at batch 16: what PyTorch saves for backward is 1311 MiB. */
static void resnet_50_plans_what_was_promised(void **state)
{
    static const struct {
        const char *setting;
        double most; /* of plain; plain: MiB */
    } rows[] = {
        {"MEMONGER=", 1311}, {"BACKWARD_DO_MIRROR=1", 0.60}, {"MEMONGER=sqrt", 0.30}};
    double plain = 1;
    (void)state;
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        json_t *p = plan_json(ARGS("--network", "resnet-50", "--batch-size", "16",
                                   "--json", "--set", rows[i].setting));
        double mib = (double)number(p, "peak_bytes") / (1 << 20);
        if (mib / plain > rows[i].most) {
            fail_msg("%s: %.1f MiB, plain %.1f MiB", rows[i].setting, mib, plain);
        }
        assert_true(number(p, "parameters") == 25557032);
        assert_int_equal(json_array_size(json_object_get(p, "mirrored")),
                         number(p, "mirrored_nodes"));
        plain = i == 0 ? mib : plain;
        json_decref(p);
    }
}

static void text_tells_plan_settings_and_advice(void **state)
{
    static const char *const parts[] = {"lenet, batch 4, training, cpu(0)",
                                        "parameters",
                                        "431080",
                                        "internal + workspace",
                                        "segments:",
                                        "mirrored:",
                                        "EXEC_ENABLE_INPLACE=0",
                                        "EXEC_MATCH_RANGE=0",
                                        "EXEC_NUM_TEMP=2",
                                        "BACKWARD_DO_MIRROR=1",
                                        "MEMONGER=sqrt",
                                        "bulk off",
                                        "settings for minimum memory",
                                        "more GPU parallelism",
                                        "GPU_WORKER_NTHREADS=2"};
    (void)state;
    assert_int_equal(plan(ARGS("--network", "lenet", "--batch-size", "4"), words),
                     PS_EXIT_OK);
    for (size_t i = 0; i < PS_COUNT(parts); i++) {
        if (strstr(words, parts[i]) == NULL) {
            fail_msg("no %s in\n%s", parts[i], words);
        }
    }
    /* of an inference there is nothing to compute again */
    assert_int_equal(
        plan(ARGS("--network", "lenet", "--batch-size", "4", "--inference"), words),
        PS_EXIT_OK);
    assert_null(strstr(words, "BACKWARD_DO_MIRROR"));
}

static void an_lstm_is_planned_for_any_number_of_steps(void **state)
{
    json_t *few = plan_json(
        ARGS("--network", "lstm", "--batch-size", "32", "--seq-len", "8", "--json"));
    json_t *more = plan_json(
        ARGS("--network", "lstm", "--batch-size", "32", "--seq-len", "32", "--json"));
    (void)state;
    assert_true(number(few, "parameters") == number(more, "parameters"));
    assert_true(number(few, "peak_bytes") < number(more, "peak_bytes"));
    assert_true(number(few, "operators") < number(more, "operators"));
    json_decref(few);
    json_decref(more);
}

/* ---- symbol files and pictures ---- */

struct folder {
    char path[32];
};

static int make_folder(void **state)
{
    struct folder *folder = calloc(1, sizeof(*folder));
    *state = folder;
    if (folder == NULL) {
        return -1;
    }
    (void)snprintf(folder->path, sizeof(folder->path), "/tmp/penstock-plan-XXXXXX");
    return mkdtemp(folder->path) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    struct folder *folder = *state;
    static const char *const names[] = {"net.json", "net.svg"};
    for (size_t i = 0; i < PS_COUNT(names); i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "%s/%s", folder->path, names[i]);
        (void)unlink(path);
    }
    int gone = rmdir(folder->path);
    free(folder);
    return gone;
}

/* One dense layer on images, with a name that XML would take for something else. */
static void save_symbol(const char *path)
{
    struct ps_builder *b = NULL;
    struct ps_symbol *symbol = NULL;
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_builder_create(&b), PS_OK);
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "FullyConnected", "<wide & \"big\">\x01\xff", "num_hidden=5000",
                      x);
    x = ps_builder_op(b, "FullyConnected", "<fc & \"big\">\x01\xff", "num_hidden=10", x);
    x = ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x);
    assert_int_equal(ps_builder_finish(b, x, &symbol, &err), PS_OK);
    enum ps_status status = ps_symbol_save(symbol, ps_fs_real(), path, &err);
    if (status != PS_OK) {
        fail_msg("%s", err.text);
    }
    ps_symbol_release(symbol);
    ps_builder_destroy(b);
}

static void a_symbol_file_is_planned_too(void **state)
{
    const struct folder *folder = *state;
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/net.json", folder->path);
    save_symbol(path);
    json_t *p = plan_json(
        ARGS("--symbol", path, "--data-shape", "3,8,8", "--batch-size", "2", "--json"));
    assert_string_equal(json_string_value(json_object_get(p, "network")), path);
    assert_true(number(p, "parameters") == 5000 * 193 + 10 * 5001);
    assert_true(number(p, "argument_bytes") ==
                4 * (5000 * 193 + 10 * 5001 + 2 * 192 + 2));
    json_decref(p);
}

static size_t count_of(const char *text, const char *word)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word)) {
        count++;
    }
    return count;
}

static char *picture(const struct folder *folder, const char *const *args)
{
    char path[64], *text = NULL;
    size_t size = 0;
    struct ps_error err = {.status = PS_OK};
    if (plan(args, words) != PS_EXIT_OK) {
        fail_msg("%s", words);
    }
    (void)snprintf(path, sizeof(path), "%s/net.svg", folder->path);
    assert_int_equal(ps_fs_read_all(ps_fs_real(), path, WORDS_BYTES, &text, &size, &err),
                     PS_OK);
    assert_true(strncmp(text, "<svg xmlns=", 11) == 0);
    assert_string_equal(text + size - 7, "</svg>\n");
    assert_int_equal(count_of(text, "<text"), count_of(text, "</text>"));
    assert_int_equal(count_of(text, "\"") % 2, 0);
    return text;
}

static void a_picture_shows_border_peak_and_both_curves(void **state)
{
    const struct folder *folder = *state;
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/net.svg", folder->path);
    char *text = picture(folder, ARGS("--network", "resnet-18", "--batch-size", "4",
                                      "--data-shape", "3,64,64", "--json", "--svg", path,
                                      "--set", "MEMONGER=sqrt"));
    assert_non_null(strstr(text, ">forward</text>"));
    assert_non_null(strstr(text, ">backward</text>"));
    assert_int_equal(count_of(text, "<circle"), 2); /* the peaks of two curves */
    assert_non_null(strstr(text, "nothing computed again"));
    free(text);
}

static void names_from_a_file_cannot_break_the_picture(void **state)
{
    const struct folder *folder = *state;
    char symbol[64], path[64];
    (void)snprintf(symbol, sizeof(symbol), "%s/net.json", folder->path);
    (void)snprintf(path, sizeof(path), "%s/net.svg", folder->path);
    save_symbol(symbol);
    char *text = picture(folder, ARGS("--symbol", symbol, "--data-shape", "300",
                                      "--batch-size", "900", "--json", "--svg", path));
    assert_true(strstr(text, "<wide") == NULL && strstr(text, "<fc") == NULL);
    assert_non_null(strstr(text, " &amp; &quot;big&quot;&gt;?")); /* at the peak */
    free(text);
}

/* ---- wrong command lines ---- */

static void a_wrong_command_line_is_told_what_is_accepted(void **state)
{
    static const struct {
        const char *args[5], *named;
        int code;
    } rows[] = {
        {{NULL}, "network", PS_EXIT_USAGE},
        {{"--network", "resnet50", NULL}, "nearest is resnet-50", PS_EXIT_USAGE},
        {{"--network", "lenet", "--batch-size", "0", NULL}, "from 1", PS_EXIT_USAGE},
        {{"--network", "lenet", "--symbol", "x", NULL}, "not both", PS_EXIT_USAGE},
        {{"--network", "lenet", "--seq-len", "3", NULL}, "steps", PS_EXIT_USAGE},
        {{"--network", "lstm", "--seq-len", "5000", NULL}, "4096", PS_EXIT_USAGE},
        {{"--network", "lstm", "--data-shape", "3", NULL}, "seq-len", PS_EXIT_USAGE},
        {{"--network", "lenet", "--data-shape", "1,x", NULL}, "1,x", PS_EXIT_USAGE},
        {{"--network", "lenet", "--data-shape", "1,0", NULL}, "1,0", PS_EXIT_USAGE},
        {{"--network", "lenet", "--data-shape", "1,", NULL}, "1,", PS_EXIT_USAGE},
        {{"--network", "lenet", "--data-shape", "1,1,1,1,1,1,1,1", NULL},
         "1,1,1",
         PS_EXIT_USAGE},
        {{"--symbol", "x.json", NULL}, "data-shape", PS_EXIT_USAGE},
        {{"--symbol", "x.json", "--classes", "3", NULL}, "classes", PS_EXIT_USAGE},
        {{"--network", "lenet", "extra", NULL}, "extra", PS_EXIT_USAGE},
        {{"--network", "lenet", "--jsn", NULL}, "json", PS_EXIT_USAGE},
        {{"--network", "lenet", "--set", "EXEC_NUM_TEMP=0", NULL},
         "EXEC_NUM_TEMP",
         PS_EXIT_CONFIG},
        {{"--network", "lenet", "--set", "MEMONGER=some", NULL}, "sqrt", PS_EXIT_CONFIG},
        {{"--network", "lenet", "--gpu", "0", NULL}, "SIM_GPUS", PS_EXIT_FAIL},
        {{"--network", "lenet", "--data-shape", "1,2,2", NULL}, "conv1", PS_EXIT_FAIL},
        {{"--symbol", "/nowhere", "--data-shape", "1", NULL}, "/nowhere", PS_EXIT_FAIL},
        {{"--network", "mlp", "--svg", "/nowhere/x.svg", NULL}, "/nowhere", PS_EXIT_FAIL},
        {{"--help", NULL}, "--batch-size", PS_EXIT_OK},
    };
    (void)state;
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        int code = plan(rows[i].args, words);
        if (code != rows[i].code || strstr(words, rows[i].named) == NULL) {
            fail_msg("row %zu: exit code %d, words: %s", i, code, words);
        }
    }
}

static void a_simulated_accelerator_is_planned_with_blocks(void **state)
{
    json_t *p = plan_json(ARGS("--network", "lenet", "--batch-size", "4", "--gpu", "0",
                               "--json", "--set", "SIM_GPUS=1"));
    (void)state;
    assert_string_equal(json_string_value(json_object_get(p, "context")), "gpu(0)");
    assert_string_equal(json_string_value(json_object_get(p, "layout")), "blocks");
    json_decref(p);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_every_figure_of_a_plan),
        cmocka_unit_test(a_forward_alone_needs_less),
        cmocka_unit_test(every_setting_of_memory_changes_the_plan),
        cmocka_unit_test(settings_of_bulk_change_the_segments),
        cmocka_unit_test(a_budget_is_met_or_refused_with_the_least_that_can_be),
        cmocka_unit_test(resnet_50_plans_what_was_promised),
        cmocka_unit_test(text_tells_plan_settings_and_advice),
        cmocka_unit_test(an_lstm_is_planned_for_any_number_of_steps),
        IN_FOLDER(a_symbol_file_is_planned_too),
        IN_FOLDER(a_picture_shows_border_peak_and_both_curves),
        IN_FOLDER(names_from_a_file_cannot_break_the_picture),
        cmocka_unit_test(a_wrong_command_line_is_told_what_is_accepted),
        cmocka_unit_test(a_simulated_accelerator_is_planned_with_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
