/* Command lines from a table.  getopt_long splits; values are checked here. */
#include "base/options.h"

#include "base/str.h"
#include "base/util.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAMES_MAX 64 /* options of one command */

/* Codes of long options: index of the row, doubled, odd for --no-<flag>; above all
 * letters. */
#define CODE_BASE 1000
#define CODE_HELP 999

static enum ps_status bad_value(const struct ps_option *option, const char *text,
                                const char *want, struct ps_error *err)
{
    return ps_error_set(err, PS_EINVAL, "--%s '%.60s': want %s", option->name, text,
                        want);
}

static enum ps_status store_int(const struct ps_option *option, const char *text,
                                struct ps_error *err)
{
    char want[80];
    int64_t value;
    if (ps_parse_i64(text, &value) != PS_OK || value < option->min ||
        value > option->max) {
        (void)snprintf(want, sizeof(want), "an integer from %lld to %lld",
                       (long long)option->min, (long long)option->max);
        return bad_value(option, text, want, err);
    }
    *(int64_t *)option->out = value;
    return PS_OK;
}

static enum ps_status store_double(const struct ps_option *option, const char *text,
                                   struct ps_error *err)
{
    char want[80] = "a number";
    bool any = option->min == 0 && option->max == 0;
    double value;
    if (!any) {
        (void)snprintf(want, sizeof(want), "a number from %lld to %lld",
                       (long long)option->min, (long long)option->max);
    }
    if (ps_parse_f64(text, &value) != PS_OK ||
        (!any && (value < (double)option->min || value > (double)option->max))) {
        return bad_value(option, text, want, err);
    }
    *(double *)option->out = value;
    return PS_OK;
}

static enum ps_status store_choice(const struct ps_option *option, const char *text,
                                   struct ps_error *err)
{
    for (const char *const *choice = option->choices; *choice != NULL; choice++) {
        if (strcasecmp(*choice, text) == 0) {
            *(const char **)option->out = *choice;
            return PS_OK;
        }
    }
    char list[160];
    char want[240];
    const char *near = ps_nearest(text, option->choices);
    (void)snprintf(want, sizeof(want), "one of %s%s%s%s",
                   ps_join(option->choices, list, sizeof(list)),
                   near == NULL ? "" : "; did you mean ", near == NULL ? "" : near,
                   near == NULL ? "" : "?");
    return bad_value(option, text, want, err);
}

static enum ps_status store_item(const struct ps_option *option, const char *text)
{
    struct ps_option_list *list = option->out;
    const char **items = realloc(list->items, (list->count + 1) * sizeof(*items));
    if (items == NULL) {
        return PS_ENOMEM;
    }
    items[list->count++] = text;
    list->items = items;
    return PS_OK;
}

static enum ps_status store(const struct ps_option *option, const char *text,
                            struct ps_error *err)
{
    switch (option->type) {
    case PS_OPT_FLAG:
        *(bool *)option->out = true;
        return PS_OK;
    case PS_OPT_INT:
        return store_int(option, text, err);
    case PS_OPT_DOUBLE:
        return store_double(option, text, err);
    case PS_OPT_TEXT:
        *(const char **)option->out = text;
        return PS_OK;
    case PS_OPT_CHOICE:
        return store_choice(option, text, err);
    case PS_OPT_LIST:
        return store_item(option, text);
    }
    return PS_EINTERNAL;
}

/* The tables of getopt_long.  'negative' holds the text of the --no- names. */
struct tables {
    struct option longs[2 * NAMES_MAX + 2];
    char letters[2 * NAMES_MAX + 8];
    char negative[NAMES_MAX][48];
    const char *names[2 * NAMES_MAX + 2]; /* for the nearest name */
};

static void fill_tables(const struct ps_command *command, struct tables *tables)
{
    size_t used = 0;
    size_t n = 0;
    if (command->stop_at_operand) {
        tables->letters[used++] = '+';
    }
    tables->letters[used++] = ':'; /* a missing value is reported as ':' */
    for (size_t i = 0; i < command->option_count && i < NAMES_MAX; i++) {
        const struct ps_option *option = &command->options[i];
        bool flag = option->type == PS_OPT_FLAG;
        int code = CODE_BASE + 2 * (int)i;
        tables->names[n] = option->name;
        tables->longs[n++] = (struct option){
            option->name, flag ? no_argument : required_argument, NULL, code};
        if (flag) {
            (void)snprintf(tables->negative[i], sizeof(tables->negative[i]), "no-%s",
                           option->name);
            tables->names[n] = tables->negative[i];
            tables->longs[n++] =
                (struct option){tables->negative[i], no_argument, NULL, code + 1};
        }
        if (option->letter != 0) {
            tables->letters[used++] = option->letter;
            if (!flag) {
                tables->letters[used++] = ':';
            }
        }
    }
    tables->names[n] = "help";
    tables->longs[n] = (struct option){"help", no_argument, NULL, CODE_HELP};
}

static const struct ps_option *find_letter(const struct ps_command *command, int letter)
{
    for (size_t i = 0; i < command->option_count; i++) {
        if (command->options[i].letter == letter) {
            return &command->options[i];
        }
    }
    return NULL;
}

/* getopt_long takes any unambiguous beginning of a name; we want whole names, so that a
 * script does not break when an option is added. */
static enum ps_status unknown(const struct tables *tables, const char *word,
                              struct ps_error *err)
{
    char name[64];
    size_t size = strcspn(word + (word[0] == '-' && word[1] == '-' ? 2 : 1), "=");
    const char *bare = word + (word[0] == '-' && word[1] == '-' ? 2 : 1);
    (void)snprintf(name, sizeof(name), "%.*s", (int)PS_MIN(size, sizeof(name) - 1), bare);
    const char *near = word[1] == '-' ? ps_nearest(name, tables->names) : NULL;
    return ps_error_set(err, PS_EINVAL, "option %.60s is not known%s%s%s", word,
                        near == NULL ? "" : "; did you mean --", near == NULL ? "" : near,
                        near == NULL ? "" : "?");
}

/* Was the long option written in full? */
static bool is_whole(const char *word, const struct option *found)
{
    size_t size = strlen(found->name);
    return strncmp(word, "--", 2) != 0 ||
           (strncmp(word + 2, found->name, size) == 0 &&
            (word[2 + size] == '\0' || word[2 + size] == '='));
}

static enum ps_status take(const struct ps_command *command, const struct tables *tables,
                           int code, int long_index, const char *word,
                           struct ps_error *err)
{
    if (code == '?') {
        if (optopt >= CODE_BASE) {
            return ps_error_set(err, PS_EINVAL, "option %.60s takes no value", word);
        }
        if (optopt != 0 && optopt != CODE_HELP) {
            return ps_error_set(err, PS_EINVAL, "option -%c is not known", optopt);
        }
        return unknown(tables, word, err);
    }
    if (code == ':') {
        return ps_error_set(err, PS_EINVAL, "option %.60s needs a value", word);
    }
    if (code < CODE_BASE) {
        return store(find_letter(command, code), optarg, err);
    }
    if (!is_whole(word, &tables->longs[long_index])) {
        return unknown(tables, word, err);
    }
    const struct ps_option *option = &command->options[(code - CODE_BASE) / 2];
    if ((code - CODE_BASE) % 2 == 1) {
        *(bool *)option->out = false;
        return PS_OK;
    }
    return store(option, optarg, err);
}

enum ps_status ps_options_parse(const struct ps_command *command, int argc, char **argv,
                                int *operand_out, bool *help_out, struct ps_error *err)
{
    struct tables *tables = calloc(1, sizeof(*tables));
    if (tables == NULL || command->option_count > NAMES_MAX) {
        free(tables);
        return ps_error_set(err, tables == NULL ? PS_ENOMEM : PS_EINTERNAL,
                            "%s: options: out of memory", command->name);
    }
    fill_tables(command, tables);
    enum ps_status status = PS_OK;
    bool help = false;
    optind = 0; /* glibc: start anew, with a fresh look at '+' */
    opterr = 0;
    while (status == PS_OK && !help) {
        int long_index = 0;
        /* The word that is read next, unless operands are permuted away before it. */
        optopt = 0;
        int code = getopt_long(argc, argv, tables->letters, tables->longs, &long_index);
        if (code == -1) {
            break;
        }
        const char *word = argv[optind > 1 ? optind - 1 : 1];
        bool apart = code != '?' && code != ':' && optarg != NULL && optarg == word;
        if (apart && optind > 2) {
            word = argv[optind - 2]; /* "--name value": the name is one before */
        }
        help = code == CODE_HELP;
        status = help ? PS_OK : take(command, tables, code, long_index, word, err);
    }
    free(tables);
    if (status != PS_OK) {
        return status;
    }
    if (help) {
        ps_options_print_help(command);
    }
    *operand_out = optind;
    *help_out = help;
    return PS_OK;
}

static void print_option(const struct ps_option *option)
{
    char left[80];
    char letter[8] = "    ";
    const char *value = option->value_name == NULL ? "VALUE" : option->value_name;
    if (option->letter != 0) {
        (void)snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    }
    bool flag = option->type == PS_OPT_FLAG;
    (void)snprintf(left, sizeof(left), "  %s--%s%s%s", letter, option->name,
                   flag ? "" : " ", flag ? "" : value);
    printf("%-34s %s", left, option->doc == NULL ? "" : option->doc);
    if (option->type == PS_OPT_CHOICE) {
        char list[200];
        printf(" (%s)", ps_join(option->choices, list, sizeof(list)));
    }
    const char *text = option->type == PS_OPT_TEXT || option->type == PS_OPT_CHOICE
                           ? *(const char **)option->out
                           : NULL;
    if (option->type == PS_OPT_INT) {
        printf(" [%lld]", (long long)*(int64_t *)option->out);
    } else if (option->type == PS_OPT_DOUBLE) {
        printf(" [%g]", *(double *)option->out);
    } else if (text != NULL && text[0] != '\0') {
        printf(" [%s]", text);
    } else if (flag && *(bool *)option->out) {
        printf(" [on; --no-%s]", option->name);
    }
    printf("\n");
}

void ps_options_print_help(const struct ps_command *command)
{
    printf("usage: %s\n\n%s\n\noptions:\n", command->synopsis, command->summary);
    for (size_t i = 0; i < command->option_count; i++) {
        print_option(&command->options[i]);
    }
    printf("%-34s %s\n", "      --help", "show this text");
}

int ps_exit_code(enum ps_status status)
{
    switch (status) {
    case PS_OK:
        return PS_EXIT_OK;
    case PS_EINUSE:
        return PS_EXIT_IN_USE;
    case PS_ETIMEDOUT:
        return PS_EXIT_RETRY;
    case PS_EPEER:
        return PS_EXIT_PEER;
    default:
        return PS_EXIT_FAIL;
    }
}
