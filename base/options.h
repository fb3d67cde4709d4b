/* Command lines from one table: parsing (getopt_long underneath) and --help.
 * A subcommand is a `ps_cmd_<name>` in the room that owns it; deploy/penstock.c is the
 * table. Threads: main only. */
#ifndef PENSTOCK_BASE_OPTIONS_H
#define PENSTOCK_BASE_OPTIONS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ps_option_type {
    PS_OPT_FLAG,   /* bool: --name sets true, --no-name false */
    PS_OPT_INT,    /* int64_t, in [min, max] */
    PS_OPT_DOUBLE, /* double, in [min, max] (as doubles of the int bounds; both 0 = any)
                    */
    PS_OPT_TEXT,   /* const char *: borrows argv */
    PS_OPT_CHOICE, /* const char *: one of choices, ignoring case; the listed spelling is
                      set */
    PS_OPT_LIST    /* struct ps_option_list: may be given many times */
};

struct ps_option_list {
    const char **items; /* malloc'ed by the parser; free(items) */
    size_t count;
};

struct ps_option {
    const char *name; /* long name without dashes, as users type it ("batch-size") */
    char letter;      /* 0 = none */
    enum ps_option_type type;
    void *out; /* holds the default before parsing */
    int64_t min, max;
    const char *const *choices; /* NULL-terminated */
    const char *value_name;     /* in --help: "N", "FILE" */
    const char *doc;            /* one line */
};

struct ps_command {
    const char *name;     /* "penstock train" */
    const char *synopsis; /* "penstock train [options]" */
    const char *summary;  /* a line or two */
    const struct ps_option *options;
    size_t option_count;
    bool stop_at_operand; /* the first operand ends the options (launch) */
};

/* Parses argv[1..].  Operands start at *operand_out.  *help_out: --help was asked for and
 * has been printed to stdout.  Errors: PS_EINVAL with a text that names the option, the
 * value and what is accepted (an unknown option comes with the nearest name). */
PS_MUST_CHECK enum ps_status ps_options_parse(const struct ps_command *command, int argc,
                                              char **argv, int *operand_out,
                                              bool *help_out, struct ps_error *err);
void ps_options_print_help(const struct ps_command *command);

/* Exit codes of every command: 0 ok, 1 the work failed, 64 usage, 69 address in use, 75
 * retry (start-up deadline), 76 peer lost, 78 bad setting.  As sysexits(3) where it has
 * one. */
enum ps_exit {
    PS_EXIT_OK = 0,
    PS_EXIT_FAIL = 1,
    PS_EXIT_USAGE = 64,
    PS_EXIT_IN_USE = 69,
    PS_EXIT_RETRY = 75,
    PS_EXIT_PEER = 76,
    PS_EXIT_CONFIG = 78
};
int ps_exit_code(enum ps_status status);

#endif
