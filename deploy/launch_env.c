/* Environments of launch_env.h. */
#include "deploy/launch_env.h"

#include "base/str.h"
#include "base/util.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Settings that say who a process is in a job, and their other spellings. */
static const char *const identity_names[] = {
    "DMLC_ROLE",           "DMLC_NUM_WORKER",
    "DMLC_NUM_SERVER",     "DMLC_PS_ROOT_URI",
    "DMLC_PS_ROOT_PORT",   "DMLC_RANK",
    "DMLC_WORKER_ID",      "DMLC_SERVER_ID",
    "DMLC_TASK_ID",        "DMLC_JOB_CLUSTER",
    "DMLC_NUM_ATTEMPT",    "DMLC_LOCAL",
    "PENSTOCK_ROLE",       "PENSTOCK_NUM_WORKER",
    "PENSTOCK_NUM_SERVER", "PENSTOCK_ROOT_URI",
    "PENSTOCK_ROOT_PORT",  "PENSTOCK_RANK",
    "PENSTOCK_JOB_DIR",    "PENSTOCK_TRANSPORT",
    "PENSTOCK_READY_FD",   "PENSTOCK_MAX_RESTARTS",
    "MXNET_ROLE",          "MXNET_NUM_WORKER",
    "MXNET_NUM_SERVER",    "MXNET_ROOT_URI",
    "MXNET_ROOT_PORT",     "MXNET_RANK",
    "MXNET_JOB_DIR",       "MXNET_TRANSPORT",
    "MXNET_READY_FD",      "MXNET_MAX_RESTARTS"};

void ps_launch_strings_fini(struct ps_launch_strings *strings)
{
    if (!strings) {
        return;
    }
    for (size_t i = 0; i < strings->count; i++) {
        free(strings->items[i]);
    }
    free(strings->items);
    *strings = (struct ps_launch_strings){0};
}

/* Takes 'item' (NULL: the failed allocation of the caller), also on failure. */
static enum ps_status strings_add(struct ps_launch_strings *strings, char *item)
{
    if (!item) {
        return PS_ENOMEM;
    }
    char **grown = realloc(strings->items, (strings->count + 2) * sizeof(*grown));
    if (!grown) {
        free(item);
        return PS_ENOMEM;
    }
    strings->items = grown;
    grown[strings->count++] = item;
    grown[strings->count] = NULL;
    return PS_OK;
}

/* Bytes of the name in "NAME=value". */
size_t ps_launch_env_name_size(const char *assignment)
{
    return strcspn(assignment, "=");
}

/* Sets "NAME=value"; a later one replaces an earlier one in its place. */
static enum ps_status env_put(struct ps_launch_strings *env, const char *assignment)
{
    size_t size = ps_launch_env_name_size(assignment);
    for (size_t i = 0; i < env->count; i++) {
        if (strncmp(env->items[i], assignment, size) == 0 && env->items[i][size] == '=') {
            char *copy = ps_strdup(assignment);
            if (!copy) {
                return PS_ENOMEM;
            }
            free(env->items[i]);
            env->items[i] = copy;
            return PS_OK;
        }
    }
    return strings_add(env, ps_strdup(assignment));
}

enum ps_status ps_launch_env_set(struct ps_launch_strings *env, const char *name,
                                 const char *value)
{
    struct ps_str text = {0};
    ps_str_printf(&text, "%s=%s", name, value);
    enum ps_status status = text.failed ? PS_ENOMEM : env_put(env, ps_str_text(&text));
    ps_str_fini(&text);
    return status;
}

enum ps_status ps_launch_env_set_number(struct ps_launch_strings *env, const char *name,
                                        int64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%lld", (long long)value);
    return ps_launch_env_set(env, name, text);
}

static bool is_identity(const char *name, size_t size)
{
    for (size_t i = 0; i < PS_COUNT(identity_names); i++) {
        if (strlen(identity_names[i]) == size &&
            memcmp(identity_names[i], name, size) == 0) {
            return true;
        }
    }
    return false;
}

/* MXNet wrote --env-server NAME:value; a shell's NAME=value is what people try first. */
static size_t user_name_size(const char *text)
{
    size_t size = 0;
    while (isalnum((unsigned char)text[size]) || text[size] == '_') {
        size++;
    }
    return size;
}

enum ps_status ps_launch_env_check(const char *option, const char *const *items,
                                   size_t count, struct ps_error *err)
{
    for (size_t i = 0; i < count; i++) {
        size_t size = user_name_size(items[i]);
        if (size == 0 || isdigit((unsigned char)items[i][0]) ||
            (items[i][size] != '=' && items[i][size] != ':')) {
            return ps_error_set(err, PS_EINVAL, "%s '%s': expected NAME=value", option,
                                items[i]);
        }
        if (is_identity(items[i], size)) {
            return ps_error_set(err, PS_EINVAL,
                                "%s '%s': the launcher sets this variable itself", option,
                                items[i]);
        }
    }
    return PS_OK;
}

enum ps_status ps_launch_env_put_user(struct ps_launch_strings *env,
                                      const char *const *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *copy = ps_strdup(items[i]);
        if (!copy) {
            return PS_ENOMEM;
        }
        copy[user_name_size(copy)] = '=';
        enum ps_status status = env_put(env, copy);
        free(copy);
        PS_TRY(status);
    }
    return PS_OK;
}

enum ps_status ps_launch_env_inherit(struct ps_launch_strings *env,
                                     char *const *inherited)
{
    for (; inherited && *inherited; inherited++) {
        if (!is_identity(*inherited, ps_launch_env_name_size(*inherited))) {
            PS_TRY(strings_add(env, ps_strdup(*inherited)));
        }
    }
    return PS_OK;
}
