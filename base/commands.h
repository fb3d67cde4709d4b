/* Subcommands of `penstock` that live in this room.  Main-style: argv[0] is the
 * subcommand, the result is an exit code (base/options.h).  Threads: main only. */
#ifndef PENSTOCK_BASE_COMMANDS_H
#define PENSTOCK_BASE_COMMANDS_H

/* penstock settings [--json|--markdown] [--set NAME=VALUE]...: every setting with value,
 * source and documentation. */
int ps_cmd_settings(int argc, char **argv);

#endif
