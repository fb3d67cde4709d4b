/* The door of the room scheduler: who is in the job, where keys live, barriers, the end.
 *
 * A scheduler is handlers on its node's control loop; it listens on one URL and dials
 * nobody: members dial it (kvstore/shard/member.h).  It is not on the path of gradients.
 * It ends by itself: with PS_OK when all workers and then all servers have left, with
 * PS_ETIMEDOUT at the start-up deadline, with PS_EPEER or the status of an ABORT when the
 * job failed.  Works under both loop drivers.
 * Threads: open, close, wait: not on the loop; the rest any. */
#ifndef PENSTOCK_SCHEDULER_SCHEDULER_H
#define PENSTOCK_SCHEDULER_SCHEDULER_H

#include "base/node.h"
#include "net/net.h"

struct ps_scheduler;

struct ps_scheduler_options {
    struct ps_node *node; /* its loop runs; keeps a borrow */
    const char *url;      /* to listen on; NULL: from ROOT_URI, ROOT_PORT, TRANSPORT,
                             BIND_HOST (kvstore/shard/root.h) */
    /* Bound: 'url' is what members dial.  Called inside ps_scheduler_open; may be NULL.
     */
    void (*ready)(void *ctx, const char *url);
    /* Ended, on the loop, once; ps_scheduler_wait returns the same.  May be NULL. */
    void (*ended)(void *ctx, const struct ps_error *result);
    void *ctx;
};

/* Checks the settings, listens, starts the start-up deadline.  Errors: PS_EINVAL (a
 * setting, by name: NUM_SERVER=0, SHARDS not a power of two, ON_WORKER_LOSS other than
 * fail), PS_EADDR, PS_EINUSE ("... in use by pid N"), PS_EPERM, PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_scheduler_open(const struct ps_scheduler_options *options,
                                               struct ps_scheduler **scheduler_out,
                                               struct ps_error *err);
/* Frees, whatever state the job is in; members learn it from their links.  NULL is fine.
 */
void ps_scheduler_close(struct ps_scheduler *scheduler);
/* Waits until the job has ended.  PS_OK: ended, '*result_out' says how.  PS_ETIMEDOUT:
 * not yet. 'deadline_ns' on the driver's clock, PS_NEVER allowed: the job has deadlines
 * of its own. */
PS_MUST_CHECK enum ps_status ps_scheduler_wait(struct ps_scheduler *scheduler,
                                               uint64_t deadline_ns,
                                               struct ps_error *result_out);
/* Constant from open on; what members dial. */
const char *ps_scheduler_url(const struct ps_scheduler *scheduler);
/* Ends the job from outside (a signal): PS_OK when no worker is registered or all have
 * left, else PS_ECANCELED with 'why', which all members hear as ABORT. */
void ps_scheduler_stop(struct ps_scheduler *scheduler, const char *why);

#endif
