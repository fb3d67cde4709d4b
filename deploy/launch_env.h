/* Environments of the processes to start: lists of "NAME=value".
 * Our own spellings of the settings that say who a process is (PENSTOCK_RANK, MXNET_ROLE
 * ...) would win over the DMLC_* variables that the launcher sets, so none of them is
 * inherited, and a user cannot set them.  Pure.  Threads: any. */
#ifndef PENSTOCK_DEPLOY_LAUNCH_ENV_H
#define PENSTOCK_DEPLOY_LAUNCH_ENV_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* A NULL-terminated array of malloc'ed strings. */
struct ps_launch_strings {
    char **items;
    size_t count;
};
void ps_launch_strings_fini(struct ps_launch_strings *strings);

/* All but ps_launch_env_check return PS_OK or PS_ENOMEM. */

/* Appends 'inherited' (NULL-terminated; may be NULL) but for what an outer job may have
 * left. */
PS_MUST_CHECK enum ps_status ps_launch_env_inherit(struct ps_launch_strings *env,
                                                   char *const *inherited);
/* A later value replaces an earlier one in its place. */
PS_MUST_CHECK enum ps_status ps_launch_env_set(struct ps_launch_strings *env,
                                               const char *name, const char *value);
PS_MUST_CHECK enum ps_status ps_launch_env_set_number(struct ps_launch_strings *env,
                                                      const char *name, int64_t value);
/* Checks what a user gave with 'option': "NAME=value" or MXNet's "NAME:value", not a
 * variable of the launcher's own.  Errors: PS_EINVAL with 'err'. */
PS_MUST_CHECK enum ps_status ps_launch_env_check(const char *option,
                                                 const char *const *items, size_t count,
                                                 struct ps_error *err);
PS_MUST_CHECK enum ps_status ps_launch_env_put_user(struct ps_launch_strings *env,
                                                    const char *const *items,
                                                    size_t count);
/* Bytes of the name in "NAME=value". */
size_t ps_launch_env_name_size(const char *assignment);

#endif
