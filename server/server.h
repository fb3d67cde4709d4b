/* The door of the room server: a member that keeps shards of the store.
 *
 * A server is L lanes (a loop, a net end and the entries of its shards each) and handlers
 * on its node's control loop, which hears the scheduler through ps_member.  It dials
 * nobody but the scheduler and never waits.  Works under both loop drivers.
 * Threads: open, close, wait: not on a loop; the rest any. */
#ifndef PENSTOCK_SERVER_SERVER_H
#define PENSTOCK_SERVER_SERVER_H

#include "base/node.h"
#include "net/net.h"

struct ps_server;

struct ps_server_options {
    struct ps_node *node; /* its loop runs; keeps a borrow */
    /* Lane i listens at "<url>-<i>" (inproc://, sim://).  NULL: from ROOT_URI, TRANSPORT,
     * BIND_HOST (kvstore/shard/root.h). */
    const char *url;
    const char *root_url; /* the scheduler; NULL: from ROOT_URI, ROOT_PORT */
    uint32_t lanes;       /* 0: from SERVER_LANES */
    /* Ended, on the control loop, once; ps_server_wait returns the same.  May be NULL. */
    void (*ended)(void *ctx, const struct ps_error *result);
    void *ctx;
};

/* Listens and starts registering.  Errors: PS_EINVAL, PS_EADDR, PS_EINUSE, PS_EPERM,
 * PS_ENOMEM, with 'err'. */
PS_MUST_CHECK enum ps_status ps_server_open(const struct ps_server_options *options,
                                            struct ps_server **server_out,
                                            struct ps_error *err);
/* Frees, whatever state the job is in.  NULL is fine. */
void ps_server_close(struct ps_server *server);
/* Waits until the server has ended: after STOP (PS_OK), or with the error that ended the
 * job.  PS_OK: ended, '*result_out' says how.  PS_ETIMEDOUT: not yet.  'deadline_ns' on
 * the driver's clock; PS_NEVER is allowed: the member has deadlines of its own. */
PS_MUST_CHECK enum ps_status ps_server_wait(struct ps_server *server,
                                            uint64_t deadline_ns,
                                            struct ps_error *result_out);
/* Ends the server from outside (a signal): PS_OK when the job has not begun or all
 * workers have left, else PS_ECANCELED with 'why', which the job hears as an ABORT. */
void ps_server_stop(struct ps_server *server, const char *why);
uint32_t ps_server_lane_count(const struct ps_server *server);

#endif
