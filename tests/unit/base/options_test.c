/* Command lines: values, errors that name the option, operands, help. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/commands.h"
#include "base/options.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct values {
    bool flag, on;
    int64_t size;
    double rate;
    const char *file, *store;
    struct ps_option_list list;
    int operand;
    bool help;
    struct ps_error err;
};

/* Parses 'line', words separated by blanks. */
static enum ps_status parse(struct values *v, bool stop, const char *line)
{
    static char words[256];
    static char *argv[32];
    static const char *const stores[] = {"local", "dist_sync", "dist_async", NULL};
    *v = (struct values){
        .on = true, .size = 32, .rate = 0.1, .file = "", .store = "local"};
    const struct ps_option options[] = {
        {.name = "flag",
         .letter = 'f',
         .type = PS_OPT_FLAG,
         .out = &v->flag,
         .doc = "a flag"},
        {.name = "on", .type = PS_OPT_FLAG, .out = &v->on, .doc = "on unless told"},
        {.name = "batch-size",
         .letter = 'b',
         .type = PS_OPT_INT,
         .out = &v->size,
         .min = 1,
         .max = 4096,
         .value_name = "N",
         .doc = "batch"},
        {.name = "rate", .type = PS_OPT_DOUBLE, .out = &v->rate, .doc = "rate"},
        {.name = "file", .type = PS_OPT_TEXT, .out = &v->file, .doc = "file"},
        {.name = "kv-store",
         .type = PS_OPT_CHOICE,
         .out = &v->store,
         .choices = stores,
         .doc = "store"},
        {.name = "set",
         .letter = 's',
         .type = PS_OPT_LIST,
         .out = &v->list,
         .doc = "list"},
    };
    const struct ps_command command = {.name = "test",
                                       .synopsis = "test [options]",
                                       .summary = "A test.",
                                       .options = options,
                                       .option_count = PS_COUNT(options),
                                       .stop_at_operand = stop};
    int argc = 0;
    (void)snprintf(words, sizeof(words), "test %s", line);
    for (char *word = words; word != NULL && *word != '\0';) {
        argv[argc++] = word;
        word = strchr(word, ' ');
        if (word != NULL) {
            *word++ = '\0';
        }
    }
    argv[argc] = NULL;
    return ps_options_parse(&command, argc, argv, &v->operand, &v->help, &v->err);
}

static void values_arrive(void **state)
{
    struct values v;
    (void)state;
    assert_int_equal(
        parse(&v, false,
              "-f --no-on --batch-size 64 --rate=0.5 --file x --kv-store DIST_SYNC "
              "--set A=1 -s B=2 operand"),
        PS_OK);
    assert_true(v.flag);
    assert_false(v.on);
    assert_int_equal(v.size, 64);
    assert_true(v.rate == 0.5);
    assert_string_equal(v.file, "x");
    assert_string_equal(v.store, "dist_sync");
    assert_int_equal(v.list.count, 2);
    assert_string_equal(v.list.items[1], "B=2");
    assert_int_equal(v.operand, 14);
    free((void *)v.list.items);
    assert_int_equal(parse(&v, false, ""), PS_OK);
    assert_int_equal(v.size, 32);
    assert_int_equal(parse(&v, false, "-b7"), PS_OK);
    assert_int_equal(v.size, 7);
    assert_int_equal(parse(&v, false, "--rate -1e-3"), PS_OK);
    assert_true(v.rate == -1e-3);
}

static void errors_name_option_value_and_what_is_accepted(void **state)
{
    struct values v;
    (void)state;
    static const struct {
        const char *line;
        const char *text;
    } rows[] = {
        {"--batch-size 0", "--batch-size '0': want an integer from 1 to 4096"},
        {"--batch-size=4097", "--batch-size '4097': want an integer from 1 to 4096"},
        {"--batch-size x", "--batch-size 'x': want an integer from 1 to 4096"},
        {"--rate fast", "--rate 'fast': want a number"},
        {"--rate nan", "--rate 'nan': want a number"},
        {"--kv-store dist_snyc", "--kv-store 'dist_snyc': want one of local, dist_sync, "
                                 "dist_async; did you mean dist_sync?"},
        {"--batch-sze 3", "option --batch-sze is not known; did you mean --batch-size?"},
        {"--batch 3", "option --batch is not known"},
        {"--batch=3", "option --batch=3 is not known"},
        {"--zebra", "option --zebra is not known"},
        {"-z", "option -z is not known"},
        {"--file", "option --file needs a value"},
        {"-b", "option -b needs a value"},
        {"--flag=1", "option --flag=1 takes no value"},
        {"operand --zebra", "option --zebra is not known"},
    };
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        if (parse(&v, false, rows[i].line) != PS_EINVAL ||
            strcmp(v.err.text, rows[i].text) != 0) {
            fail_msg("%s: '%s'", rows[i].line, v.err.text);
        }
    }
}

static void the_first_operand_may_end_the_options(void **state)
{
    struct values v;
    (void)state;
    assert_int_equal(parse(&v, true, "-f train --batch-size 7"), PS_OK);
    assert_true(v.flag);
    assert_int_equal(v.size, 32);
    assert_int_equal(v.operand, 2);
    assert_int_equal(parse(&v, true, "-f -- -b 7"), PS_OK);
    assert_int_equal(v.operand, 3);
    /* a parse does not disturb the next */
    assert_int_equal(parse(&v, false, "a b -f"), PS_OK);
    assert_true(v.flag);
    assert_int_equal(v.operand, 2);
}

static void help_is_said_and_nothing_else_done(void **state)
{
    struct values v;
    (void)state;
    assert_int_equal(parse(&v, false, "--help --zebra"), PS_OK);
    assert_true(v.help);
}

static void statuses_map_to_exit_codes(void **state)
{
    (void)state;
    assert_int_equal(ps_exit_code(PS_OK), 0);
    assert_int_equal(ps_exit_code(PS_EINVAL), 1);
    assert_int_equal(ps_exit_code(PS_EINUSE), 69);
    assert_int_equal(ps_exit_code(PS_ETIMEDOUT), 75);
    assert_int_equal(ps_exit_code(PS_EPEER), 76);
}

static void the_settings_command_checks_its_line(void **state)
{
    char *bad_option[] = {"settings", "--jsno", NULL};
    char *both[] = {"settings", "--json", "--markdown", NULL};
    char *bad_set[] = {"settings", "--set", "NUM_WORKER=0", NULL};
    char *good[] = {"settings", "--markdown", "--set", "NUM_WORKER=3", NULL};
    (void)state;
    assert_int_equal(ps_cmd_settings(2, bad_option), PS_EXIT_USAGE);
    assert_int_equal(ps_cmd_settings(3, both), PS_EXIT_USAGE);
    assert_int_equal(ps_cmd_settings(3, bad_set), PS_EXIT_CONFIG);
    assert_int_equal(ps_cmd_settings(4, good), PS_EXIT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_arrive),
        cmocka_unit_test(errors_name_option_value_and_what_is_accepted),
        cmocka_unit_test(the_first_operand_may_end_the_options),
        cmocka_unit_test(help_is_said_and_nothing_else_done),
        cmocka_unit_test(statuses_map_to_exit_codes),
        cmocka_unit_test(the_settings_command_checks_its_line),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
