/* Hostfiles: one `host[:port] [slots=N]` a line, '#' starts a comment, an IPv6 address
 * stands in brackets.  As dmlc-core's trackers and Open MPI read them.  Pure.  Threads:
 * any. */
#ifndef PENSTOCK_DEPLOY_LAUNCH_HOSTS_H
#define PENSTOCK_DEPLOY_LAUNCH_HOSTS_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define PS_LAUNCH_SSH_PORT 22

struct ps_launch_host {
    char name[256];
    uint16_t port;  /* of sshd */
    uint32_t slots; /* at least 1 */
};

struct ps_launch_hosts {
    struct ps_launch_host *items;
    size_t count;
};

/* Parses 'text', the contents of the file 'path' (for messages).  At least one host.
 * Gives 'hosts_out'. Errors: PS_EINVAL with "path:line: ..."; PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_launch_hosts_parse(const char *text, const char *path,
                                                   struct ps_launch_hosts *hosts_out,
                                                   struct ps_error *err);
void ps_launch_hosts_fini(struct ps_launch_hosts *hosts);

#endif
