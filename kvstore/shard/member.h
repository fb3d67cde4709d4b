/* A worker's or server's membership in a job: registers with the scheduler, beats, hears.
 *
 * Owns the link to the scheduler on the node's control loop.  Reports, each on that loop:
 * joined (once), aborted (the job ends with an error that names somebody), stop (a server
 * may end), lost (the scheduler is gone), entries/optimizer/hyper/quorum/status requests
 * (server). Threads: the node's control loop, but for open/close and the calls marked
 * "any". */
#ifndef PENSTOCK_KVSTORE_SHARD_MEMBER_H
#define PENSTOCK_KVSTORE_SHARD_MEMBER_H

#include "kvstore/shard/control.h"
#include "net/net.h"

struct ps_member;

struct ps_member_handler {
    /* The job is complete; 'job' is borrowed for the member's life (ps_member_job). */
    void (*joined)(void *ctx, const struct ps_msg_job *job);
    /* Once: registration refused or timed out (the text says who is missing), ABORT
     * heard, scheduler lost, or heartbeats unanswered.  The member does nothing
     * afterwards. */
    void (*failed)(void *ctx, const struct ps_error *err);
    /* STOP heard (server): all workers left. */
    void (*stop)(void *ctx);
    /* Any other request of the scheduler (ENTRIES, OPTIMIZER, HYPER, QUORUM, STATUS):
     * answer with ps_net_reply on 'link', now or later.  NULL for workers. */
    void (*request)(void *ctx, struct ps_net_link *link, const struct ps_frame *frame);
};

struct ps_member_options {
    struct ps_node *node;
    enum ps_role role;
    const struct ps_member_handler *handler;
    void *ctx;
    char (*urls)[PS_URL_BYTES]; /* a server's lanes; copied */
    size_t url_count;
    const char *root_url; /* NULL: from ROOT_URI and ROOT_PORT */
};

/* Starts registering; before the loop runs or from any thread.  'handler' reports the
 * rest. */
PS_MUST_CHECK enum ps_status ps_member_open(const struct ps_member_options *options,
                                            struct ps_member **member_out,
                                            struct ps_error *err);
/* Frees; with no goodbye unless ps_member_leave was answered before.  Not from the loop.
 */
void ps_member_close(struct ps_member *member);
/* The job once joined, else NULL.  Constant from then on. */
const struct ps_msg_job *ps_member_job(const struct ps_member *member);
const struct ps_member_row *ps_member_find(const struct ps_member *member,
                                           enum ps_role role, uint32_t rank);
/* The link for calls to the scheduler (BARRIER, KEYS, OPTIMIZER ...), on the control
 * loop. */
struct ps_net_link *ps_member_link(struct ps_member *member);
/* Tells the scheduler that the job cannot go on (and hears ABORT back like everyone).
 * Loop. */
void ps_member_abort(struct ps_member *member, enum ps_status status,
                     uint32_t named_member, const char *text);
/* Says goodbye: 'done(ctx, status)' on the loop when answered or given up, possibly
 * before return.  A status other than PS_OK: nobody answered, the scheduler may have
 * ended; the membership is over all the same and 'failed' is not called any more.  Loop.
 */
void ps_member_leave(struct ps_member *member,
                     void (*done)(void *ctx, enum ps_status status), void *ctx);

#endif
