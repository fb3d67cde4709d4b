/* Which role may send which kind to which role, and in which state of the link.
 * Private to net.  Threads: any; pure. */
#ifndef PENSTOCK_NET_STATES_H
#define PENSTOCK_NET_STATES_H

#include "net/net.h"

/* A frame as the table sees it. */
struct ps_frame_rule_query {
    unsigned kind;
    bool reply;
    bool refusal; /* a reply whose status is not PS_OK: allowed for every kind */
    enum ps_role from, to;
    bool greeted;    /* a HELLO has been accepted on this link */
    bool registered; /* the sender has a member id */
};

/* PS_OK; PS_EPROTO (before HELLO, reserved kind) or PS_EPERM (not for this role), with
 * 'err' (may be NULL) naming kind and roles. */
PS_MUST_CHECK enum ps_status ps_frame_allowed(const struct ps_frame_rule_query *query,
                                              struct ps_error *err);

#endif
