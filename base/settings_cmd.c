/* The subcommand `penstock settings`. */
#include "base/commands.h"

#include "base/options.h"
#include "base/settings.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>

/* Prints to stdout what 'overrides' (NULL-terminated) and the environment make. */
static int show(const char *const *overrides, enum ps_settings_format format)
{
    struct ps_settings *settings = NULL;
    struct ps_error err = {0};
    struct ps_str out = {0};
    struct ps_log *log = NULL;
    struct ps_log_options log_options = {.fd = 2, .spec = "warn"};
    if (ps_settings_load(NULL, overrides, &settings, &err) != PS_OK) {
        fprintf(stderr, "penstock settings: %s\n", err.text);
        return PS_EXIT_CONFIG;
    }
    if (ps_log_create(&log_options, &log, NULL) == PS_OK) {
        ps_log_set_name(log, "settings");
        ps_settings_warn(settings, log);
    }
    ps_settings_print(settings, format, &out);
    bool failed =
        out.failed || fputs(ps_str_text(&out), stdout) == EOF || fflush(stdout) != 0;
    ps_log_destroy(log);
    ps_str_fini(&out);
    ps_settings_destroy(settings);
    return failed ? PS_EXIT_FAIL : PS_EXIT_OK;
}

int ps_cmd_settings(int argc, char **argv)
{
    bool json = false, markdown = false, help = false;
    int operand = 0;
    struct ps_option_list sets = {0};
    struct ps_error err = {0};
    const struct ps_option options[] = {
        {.name = "json", .type = PS_OPT_FLAG, .out = &json, .doc = "print a JSON array"},
        {.name = "markdown",
         .type = PS_OPT_FLAG,
         .out = &markdown,
         .doc = "print docs/settings.md (defaults, not values)"},
        {.name = "set",
         .type = PS_OPT_LIST,
         .out = &sets,
         .value_name = "NAME=VALUE",
         .doc = "override a setting; may be given many times"},
    };
    const struct ps_command command = {
        .name = "penstock settings",
        .synopsis = "penstock settings [--json | --markdown] [--set NAME=VALUE]...",
        .summary =
            "Prints every setting with its value, where the value came from, what is\n"
            "accepted, and what it does.",
        .options = options,
        .option_count = PS_COUNT(options)};
    const char **overrides = NULL;
    int code = PS_EXIT_USAGE;
    if (ps_options_parse(&command, argc, argv, &operand, &help, &err) != PS_OK) {
        goto out;
    }
    if (help) {
        code = PS_EXIT_OK;
        goto out;
    }
    if (operand < argc || (json && markdown)) {
        (void)ps_error_set(&err, PS_EINVAL, "%s",
                           json && markdown ? "--json and --markdown exclude each other"
                                            : "no operands are taken");
        goto out;
    }
    overrides = calloc(sets.count + 1, sizeof(*overrides));
    if (overrides == NULL) {
        code = PS_EXIT_FAIL;
        goto out;
    }
    for (size_t i = 0; i < sets.count; i++) {
        overrides[i] = sets.items[i];
    }
    code = show(overrides, json       ? PS_SETTINGS_JSON
                           : markdown ? PS_SETTINGS_MARKDOWN
                                      : PS_SETTINGS_TEXT);
out:
    if (err.status != PS_OK) {
        fprintf(stderr, "penstock settings: %s\n", err.text);
    }
    free((void *)overrides);
    free((void *)sets.items);
    return code;
}
