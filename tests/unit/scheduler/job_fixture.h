/* A job for tests: one scheduler and members in the simulated network, on one thread and
 * in virtual time.  Members answer every request of the scheduler with PS_OK and keep
 * count. */
#ifndef PENSTOCK_TESTS_UNIT_SCHEDULER_JOB_FIXTURE_H
#define PENSTOCK_TESTS_UNIT_SCHEDULER_JOB_FIXTURE_H

#include "base/node.h"
#include "base/sim.h"
#include "kvstore/shard/member.h"
#include "net/net.h"
#include "scheduler/scheduler.h"

#define JOB_MEMBERS_MAX 16
#define JOB_URL "sim://scheduler"

struct job_member {
    struct job *job;
    struct ps_node *node;
    struct ps_member *member;
    enum ps_role role;
    bool joined, failed, stopped, left;
    bool over; /* failed or left */
    enum ps_status left_status;
    struct ps_error err;
    unsigned entries, optimizers, hypers, quorums, statuses; /* requests served */
    enum ps_status refuse_entries; /* what to answer ENTRIES with */
    bool leave_on_stop;            /* servers: LEAVE when STOP comes; on by default */
    char last_hyper[1024];
    uint64_t entry_elements; /* of all extents in ENTRIES */
};

struct job {
    struct ps_sim *sim;
    struct ps_net_world *world;
    struct ps_node *node;
    struct ps_scheduler *scheduler;
    unsigned num_worker, num_server;
    bool ended;
    struct ps_error result;
    struct job_member members[JOB_MEMBERS_MAX];
    size_t member_count;
    const char *extra[8]; /* settings for every node, NULL-terminated */
};

/* 'extra': NULL or a NULL-terminated list of "NAME=value". */
void job_open(struct job *job, uint64_t seed, unsigned workers, unsigned servers,
              const char *const *extra);
void job_close(struct job *job);
/* Opens a member that registers; 'rank' -1 = none asked; sizes are the job's. */
struct job_member *job_member(struct job *job, enum ps_role role, int rank);
struct job_member *job_member_sized(struct job *job, enum ps_role role, int rank,
                                    unsigned workers, unsigned servers);
/* All servers, then all workers, each asking for its rank; runs until all joined. */
void job_start(struct job *job);
struct job_member *job_find(struct job *job, enum ps_role role, uint32_t rank);
void job_run_ms(struct job *job, uint64_t ms);
/* Runs until '*flag' or 'ms' of virtual time have passed; returns '*flag'. */
bool job_run_until(struct job *job, const bool *flag, uint64_t ms);
/* Closes a member without goodbye, as a process that exits. */
void job_drop(struct job_member *member);
void job_leave(struct job_member *member);

/* One request of a member to the scheduler. */
struct job_call {
    struct ps_net_call call;
    bool done;
    enum ps_status status;
    struct ps_error err;
    struct ps_buf *reply;
};
/* Takes 'body' (may be NULL). */
void job_call_start(struct job_call *call, struct job_member *member, unsigned kind,
                    struct ps_buf *body);
void job_call_fini(struct job_call *call);
/* Starts and runs until answered. */
void job_call(struct job_call *call, struct job_member *member, unsigned kind,
              struct ps_buf *body);

struct ps_buf *job_barrier_body(const char *name, uint64_t sequence);
/* Keys named "k0".. of 'count' f32 elements each; sizes[i] elements. */
struct ps_buf *job_keys_body(const char *store, const uint64_t *sizes, size_t count,
                             bool lookup);
struct ps_buf *job_optimizer_body(const char *store, const char *name, const char *hyper,
                                  uint64_t sequence);

#endif
