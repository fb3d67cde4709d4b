/* The subcommands that this room owns.  Threads: main. */
#ifndef PENSTOCK_WORKER_COMMANDS_H
#define PENSTOCK_WORKER_COMMANDS_H

int ps_cmd_train(int argc, char **argv);
int ps_cmd_plan(int argc, char **argv);

#endif
