/* `penstock train`: what a wrong command line is told.  The program's own words go to
 * stderr, which is a file here for the length of a call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/options.h"
#include "base/util.h"
#include "worker/commands.h"

#define ARGS_MAX 8

/* Runs the command; 'words' gets what it wrote to both streams. */
static int train(const char *const *args, char words[4096])
{
    char path[] = "/tmp/penstock-test-XXXXXX";
    char *argv[ARGS_MAX + 2] = {"train"};
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
    int code = ps_cmd_train(argc, argv);
    (void)fflush(stdout);
    assert_true(dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0);
    ssize_t size = pread(file, words, 4095, 0);
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

static void a_wrong_flag_is_a_usage_error_that_names_it(void **state)
{
    static const struct {
        const char *args[3], *named;
    } rows[] = {
        {{"--batch-size", "0", NULL}, "batch-size"},
        {{"--batch-size", "many", NULL}, "batch-size"},
        {{"--num-epochs", "-1", NULL}, "num-epochs"},
        {{"--cpus", "0", NULL}, "cpus"},
        {{"--cpus", "65", NULL}, "cpus"},
        {{"--gpus", "0,x", NULL}, "0,x"},
        {{"--gpus", "0,0", NULL}, "different device numbers"},
        {{"--gpus", "0,", NULL}, "gpus"},
        {{"--gpus", "-1", NULL}, "gpus"},
        {{"--gpus", "1000000000000", NULL}, "gpus"},
        {{"--gpus=0", "--cpus=1", NULL}, "one of them"},
        {{"--gpus=0,1,2", "--batch-size=64", NULL}, "3 gpus"},
        {{"--lr", "fast", NULL}, "lr"},
        {{"--mom", "1.5", NULL}, "mom"},
        {{"--seed", "99999999999999999999", NULL}, "seed"},
        {{"--batch", NULL}, "batch"},
        {{"--batchsize", "1", NULL}, "batch-size"}, /* the nearest */
        {{"--lr-step-epochs", "4,2", NULL}, "lr-step-epochs"},
        {{"--lr-step-epochs", "1,x", NULL}, "lr-step-epochs"},
        {{"--network", "lenett", NULL}, "lenet"},
        {{"--kv-store", "dist_asnyc", NULL}, "dist_async"},
        {{"--optimizer", "sdg", NULL}, "sgd"},
        {{"--model-prefix", "", NULL}, "model-prefix"},
        {{"extra", NULL}, "extra"},
    };
    (void)state;
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        char words[4096];
        int code = train(rows[i].args, words);
        if (code != PS_EXIT_USAGE || strstr(words, rows[i].named) == NULL) {
            fail_msg("%s: exit code %d, words: %s", rows[i].args[0], code, words);
        }
    }
}

static void a_batch_that_devices_cannot_share_is_a_usage_error(void **state)
{
    static const char *const args[] = {"--batch-size", "5", "--cpus", "2", NULL};
    char words[4096];
    (void)state;
    assert_int_equal(train(args, words), PS_EXIT_USAGE);
    assert_non_null(strstr(words, "batch size 5"));
}

static void a_wrong_setting_has_its_own_exit_code(void **state)
{
    static const char *const args[] = {"--set", "CPU_WORKER_NTHREADS=0", NULL};
    char words[4096];
    (void)state;
    assert_int_equal(train(args, words), PS_EXIT_CONFIG);
    assert_non_null(strstr(words, "CPU_WORKER_NTHREADS"));
}

static void data_that_is_not_there_is_named(void **state)
{
    static const char *const args[] = {"--data", "/nowhere", NULL};
    char words[4096];
    (void)state;
    assert_int_equal(train(args, words), PS_EXIT_FAIL);
    assert_non_null(strstr(words, "/nowhere"));
}

static void help_is_no_error(void **state)
{
    static const char *const args[] = {"--help", NULL};
    char words[4096];
    (void)state;
    assert_int_equal(train(args, words), PS_EXIT_OK);
    assert_non_null(strstr(words, "--batch-size"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_flag_is_a_usage_error_that_names_it),
        cmocka_unit_test(a_batch_that_devices_cannot_share_is_a_usage_error),
        cmocka_unit_test(a_wrong_setting_has_its_own_exit_code),
        cmocka_unit_test(data_that_is_not_there_is_named),
        cmocka_unit_test(help_is_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
