/* penstock.h: becoming a server or scheduler when the settings say so, as MXNet's
 * programs did. */
#include "api/handles.h"

#include "base/options.h"
#include "net/net.h"
#include "scheduler/commands.h"
#include "server/commands.h"

#include <unistd.h>

int penstock_run_role(int *code_out)
{
    struct ps_settings *settings = NULL;
    struct ps_error err;
    char server[] = "penstock server", scheduler[] = "penstock scheduler";
    if (ps_settings_load(NULL, NULL, &settings, &err) != PS_OK) {
        struct ps_log_options log_options = {.fd = STDERR_FILENO};
        struct ps_log *log = NULL;
        if (ps_log_create(&log_options, &log, NULL) == PS_OK) {
            PS_LOG(log, ERROR, API, "%s", err.text);
        }
        ps_log_destroy(log);
        *code_out = PS_EXIT_CONFIG;
        return 1;
    }
    int role = ps_settings_choice(settings, PS_SET_ROLE);
    ps_settings_destroy(settings);
    if (role == PS_ROLE_SERVER) {
        char *argv[] = {server, NULL};
        *code_out = ps_cmd_server(1, argv);
        return 1;
    }
    if (role == PS_ROLE_SCHEDULER) {
        char *argv[] = {scheduler, NULL};
        *code_out = ps_cmd_scheduler(1, argv);
        return 1;
    }
    return 0;
}
