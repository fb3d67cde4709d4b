/* The room's subcommands, for deploy/penstock.c.  They own the process's signals while
 * they run.  Threads: main only. */
#ifndef PENSTOCK_SCHEDULER_COMMANDS_H
#define PENSTOCK_SCHEDULER_COMMANDS_H

/* penstock scheduler [--host H] [--port P] [--ready-fd N]: runs one until its job ends.
 * Writes "<host or url> <port>\n" to fd N when bound ("127.0.0.1 45123", or "ipc:///path
 * 0"), then closes it.  Exit codes as base/options.h; after SIGTERM or SIGINT 0 when no
 * worker is registered or all have left, else 128 + the signal's number. */
int ps_cmd_scheduler(int argc, char **argv);
/* penstock status [--root HOST:PORT|URL] [--placement] [--json]: asks a running
 * scheduler, prints a table or its JSON. */
int ps_cmd_status(int argc, char **argv);

#endif
