/* The `penstock` executable: only the table from subcommand to the function of the room
 * that owns it. Everything else is in the rooms. */
#include "base/commands.h"
#include "base/options.h"
#include "base/str.h"
#include "base/util.h"
#include "deploy/commands.h"
#include "scheduler/commands.h"
#include "server/commands.h"
#include "worker/commands.h"

#include <stdio.h>
#include <string.h>

struct subcommand {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *doc;
};

/* In the order of `penstock help`; ends with a row without a name. */
static const struct subcommand subcommands[] = {
    {"launch", ps_cmd_launch, "start a whole job on this machine"},
    {"train", ps_cmd_train, "train a network, alone or as a worker of a job"},
    {"plan", ps_cmd_plan, "show the memory that a network needs, and what settings do"},
    {"server", ps_cmd_server, "run a server of a job"},
    {"scheduler", ps_cmd_scheduler, "run the scheduler of a job"},
    {"status", ps_cmd_status, "ask a running scheduler about its job"},
    {"settings", ps_cmd_settings, "print every setting with its value and meaning"},
    {"version", ps_cmd_version, "print versions of this program and its libraries"},
    {NULL, NULL, NULL}};

static void print_help(FILE *out)
{
    fprintf(out, "usage: penstock <command> [options]\n\n");
    for (const struct subcommand *row = subcommands; row->name; row++) {
        fprintf(out, "  %-10s %s\n", row->name, row->doc);
    }
    fprintf(out, "\n`penstock <command> --help` lists a command's options; `penstock "
                 "settings` the\n"
                 "environment variables.\n");
}

static int unknown(const char *word)
{
    const char *names[PS_COUNT(subcommands)] = {NULL};
    char joined[256];
    for (size_t i = 0; subcommands[i].name; i++) {
        names[i] = subcommands[i].name;
    }
    const char *near = ps_nearest(word, names);
    if (near) {
        fprintf(stderr, "penstock: no command '%s'; did you mean '%s'?\n", word, near);
    } else {
        fprintf(stderr, "penstock: no command '%s'; there are: %s\n", word,
                ps_join(names, joined, sizeof(joined)));
    }
    return PS_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return PS_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 ||
        strcmp(word, "-h") == 0) {
        print_help(stdout);
        return PS_EXIT_OK;
    }
    if (strcmp(word, "--version") == 0) {
        word = "version";
    }
    for (const struct subcommand *row = subcommands; row->name; row++) {
        if (strcmp(row->name, word) == 0) {
            /* The command sees itself as argv[0]: "penstock train". */
            char name[64];
            (void)snprintf(name, sizeof(name), "penstock %s", row->name);
            argv[1] = name;
            return row->run(argc - 1, argv + 1);
        }
    }
    return unknown(word);
}
