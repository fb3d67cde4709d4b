/* The commands that belong to deploy: `penstock launch` and `penstock version`.
 * argv[0] is "penstock launch"; the result is the process's exit code.  Threads: main
 * only. */
#ifndef PENSTOCK_DEPLOY_COMMANDS_H
#define PENSTOCK_DEPLOY_COMMANDS_H

int ps_cmd_launch(int argc, char **argv);
int ps_cmd_version(int argc, char **argv);

#endif
