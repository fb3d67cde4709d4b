/* The room's subcommand, for deploy/penstock.c.  It owns the process's signals while it
 * runs.  Threads: main only. */
#ifndef PENSTOCK_SERVER_COMMANDS_H
#define PENSTOCK_SERVER_COMMANDS_H

/* penstock server [options]: one server until its job ends.  Exit codes as
 * base/options.h; after SIGTERM or SIGINT 0 when the job has not begun or all workers
 * have left, else 128 + the signal's number. */
int ps_cmd_server(int argc, char **argv);

#endif
