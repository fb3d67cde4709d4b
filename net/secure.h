/* The place where a socket becomes secure.  `none` is what stands: it encrypts nothing,
 * so links that leave the host are refused unless INSECURE=1.  CURVE comes as a second
 * instance: 'setup' then sets the socket's keys and the job's ZAP domain before it is
 * bound or connected, and 'encrypts' makes ps_net_link_secure true.  Private to net.
 * Threads: the end's loop. */
#ifndef PENSTOCK_NET_SECURE_H
#define PENSTOCK_NET_SECURE_H

#include "base/node.h"

struct ps_secure {
    const char *name;
    bool encrypts;
    /* Before bind or connect of a ZeroMQ socket.  Errors: PS_EPERM with 'err'. */
    enum ps_status (*setup)(const struct ps_secure *secure, void *socket, bool listening,
                            struct ps_error *err);
};

/* What the node's settings ask for. */
const struct ps_secure *ps_secure_of(const struct ps_node *node);
/* Whether a link to or from 'host' (a name or an address) may stand.  PS_EPERM with 'err'
 * naming the host and INSECURE=1. */
PS_MUST_CHECK enum ps_status ps_secure_admit(const struct ps_node *node, const char *host,
                                             struct ps_error *err);

#endif
