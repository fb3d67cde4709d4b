/* For implementers of an engine: naive.c, and threaded.c for the pooled and the
 * per-device one.  core.c, block.c and failure.c hold what they share: variables, the
 * records of pushed operations, the rules of who waits for whom, errors.
 *
 * Two locks.  'push' orders pushes: it owns tickets and spare records.  'state' owns
 * variables, queues and failures.  Order: push before state.  Nothing of a user's runs
 * under either. */
#ifndef PENSTOCK_ENGINE_ENGINE_OPS_H
#define PENSTOCK_ENGINE_ENGINE_OPS_H

#include "base/log.h"
#include "base/queue.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "engine/fork_guard.h"
#include "engine/slab.h"

#include <stdalign.h>
#include <stdatomic.h>

struct ps_block;
struct ps_lane;
struct ps_failure;
struct ps_replay;
struct ps_threaded;
struct ps_naive;

/* One variable of one pushed operation, waiting in the variable's queue or granted. */
struct ps_dep {
    struct ps_dep *next;
    struct ps_block *block; /* NULL: the variable's own deletion */
    struct ps_var *var;     /* | 1 when written: ps_dep_make, ps_dep_var, ps_dep_writes */
};

struct ps_var {
    /* the first line is the resolver's: under the lock 'state' */
    alignas(PS_CACHE_LINE) struct ps_dep *head; /* waiting, oldest first; starts with a
                                                   write */
    struct ps_dep *tail;
    uint32_t readers;           /* granted and not complete */
    uint32_t writes;            /* granted or waiting */
    bool writing;               /* a write is granted */
    bool deleted;               /* ps_var_delete was called */
    struct ps_failure *failure; /* holds a count; may be cleared already */
    _Atomic uint64_t version;
    /* the second line is the pusher's, and the deletion's */
    alignas(PS_CACHE_LINE) uint64_t mark; /* engine->mark of the push that named it */
    struct ps_dep delete_dep;
    struct ps_var *due_next;
    void (*delete_fn)(void *arg);
    void *delete_arg;
};

enum ps_block_state { PS_BLOCK_FREE, PS_BLOCK_QUEUED, PS_BLOCK_STARTED };

enum ps_block_role {
    PS_BLOCK_PUSHED,   /* an operation pushed by itself, from a slab: ps_push_block */
    PS_BLOCK_WAITER,   /* never runs: ps_core_wait */
    PS_BLOCK_REPLAYED, /* an operation of a replay, which owns the memory: segment.h */
    PS_BLOCK_ENTRY     /* the place of a whole replay in the inbox and in queues */
};

/* One push of an operation.  Cache lines cross cores once: the pusher fills it, whoever
 * resolves reads it. */
struct ps_block {
    alignas(PS_CACHE_LINE) struct ps_engine *engine;
    enum ps_status (*run)(void *arg, const struct ps_run *run, struct ps_error *err);
    void (*start)(void *arg, const struct ps_run *run, struct ps_completion *done);
    void *arg;
    void (*release)(void *arg);
    const char *name;
    struct ps_lane *lane;
    uint64_t ticket;        /* position in the order of all pushes, from 1 */
    struct ps_block *next;  /* ready queue; in a heap: next sibling */
    struct ps_block *child; /* in a heap: first child */
    union {
        struct ps_dep *deps;      /* pushed, waiter */
        struct ps_replay *replay; /* replayed, entry */
    };
    struct ps_failure *failure; /* inherited; holds a count */
    struct ps_engine_call *call;
    uint32_t waiting; /* dependencies not granted yet */
    uint32_t dep_count;
    int32_t priority;
    uint8_t context_kind;
    uint8_t context_id;
    uint8_t dep_class; /* of the overflow slab, when deps is not 'inline_deps' */
    bool no_skip;
    bool keep_ready; /* the pusher runs it itself when ready */
    bool invalid;    /* names a deleted variable */
    uint8_t state;   /* enum ps_block_state */
    uint8_t trace;   /* ps_op_trace_byte */
    uint8_t role;    /* enum ps_block_role */
};

/* What the slab hands out. */
#define PS_BLOCK_INLINE_DEPS 10
struct ps_push_block {
    struct ps_block block;
    struct ps_dep inline_deps[PS_BLOCK_INLINE_DEPS];
};

/* A prepared operation. */
struct ps_engine_call {
    struct ps_engine *engine;
    struct ps_engine_op op;                   /* reads and writes point into 'vars' */
    struct ps_var **vars;                     /* writes, then reads; no duplicates */
    uint64_t pushed;                          /* under 'push' */
    alignas(PS_CACHE_LINE) uint64_t finished; /* under 'state' */
    bool closed;        /* under 'state': ps_engine_call_destroy was called */
    uint64_t closed_at; /* value of 'pushed' then */
    struct ps_engine_call *due_next;
};

/* An operation's error, carried by the variables it wrote and those it spoiled. */
struct ps_failure {
    struct ps_engine *engine;
    struct ps_list link; /* in engine->failures, or engine->cleared */
    uint32_t refs;       /* variables and blocks */
    bool cleared;
    struct ps_error error;
};

/* Deletions and ended prepared ops, whose functions are to be called, and ended segments,
 * to be freed. */
struct ps_due {
    struct ps_var *vars;
    struct ps_engine_call *calls;
    struct ps_segment *segments;
};

/* Sizes of the arrays for operations with more variables than fit into a block. */
#define PS_DEP_CLASSES 4
#define PS_DEP_CLASS_COUNTS \
    {                       \
        32, 128, 512, 2048  \
    }

struct ps_engine_ops {
    const char *name;
    enum ps_engine_type type;
    /* Starts threads.  Errors: PS_ENOMEM, PS_EAGAIN. */
    enum ps_status (*start)(struct ps_engine *engine, struct ps_error *err);
    /* Finishes or skips what is left and joins.  False when an asynchronous operation is
     * still out after a second: the engine's memory must then stay. */
    bool (*stop)(struct ps_engine *engine);
    /* 'call' may be NULL.  As ps_engine_push. */
    enum ps_status (*push)(struct ps_engine *engine, const struct ps_engine_op *op,
                           struct ps_engine_call *call);
    /* As ps_segment_push. */
    enum ps_status (*push_segment)(struct ps_engine *engine, struct ps_segment *segment);
    /* 'var' is marked with what to call; queue the deletion.  Cannot fail. */
    void (*var_delete)(struct ps_engine *engine, struct ps_var *var);
    void (*complete)(struct ps_block *block, enum ps_status status, const char *text);
    enum ps_status (*wait_var)(struct ps_engine *engine, struct ps_var *var,
                               struct ps_error *err);
    enum ps_status (*wait_all)(struct ps_engine *engine, struct ps_error *err);
    /* Under 'state': every dependency of 'block' is granted. */
    void (*ready)(struct ps_engine *engine, struct ps_block *block);
    /* Under 'state': the last write before the place of 'block', a waiter of
     * ps_core_wait, is complete. */
    void (*waiter_ready)(struct ps_engine *engine, struct ps_block *block);
    /* Lets 'state' go, does what is due, and wakes whom that lets go on. */
    void (*unlock)(struct ps_engine *engine);
};

struct ps_engine {
    const struct ps_engine_ops *ops;
    struct ps_node *node;
    struct ps_trace *trace; /* the node's */
    uint64_t trace_ids;     /* of asynchronous operations, before their ticket */
    struct ps_fork_guard fork_guard;
    pthread_key_t inside_key; /* non-NULL value: this thread is inside an operation */
    bool inside_key_made;
    struct ps_threaded *threaded; /* one of the two */
    struct ps_naive *naive;

    alignas(PS_CACHE_LINE) struct ps_mutex push;
    _Atomic uint64_t ticket;           /* operations pushed; written under 'push' */
    uint64_t mark PS_GUARDED_BY(push); /* last value put into ps_var.mark */
    bool closing PS_GUARDED_BY(push);
    struct ps_slab blocks, vars, dep_slabs[PS_DEP_CLASSES];

    alignas(PS_CACHE_LINE) struct ps_mutex state;
    _Atomic uint64_t completed; /* operations finished; written under 'state' */
    struct ps_list failures PS_GUARDED_BY(state); /* not cleared, oldest first */
    uint32_t failure_count PS_GUARDED_BY(state);
    struct ps_list cleared PS_GUARDED_BY(state);    /* variables still point at them */
    struct ps_failure reserve PS_GUARDED_BY(state); /* for when there is no memory */
    bool reserve_in_use PS_GUARDED_BY(state);
    struct ps_due due PS_GUARDED_BY(state);
    bool skipping PS_GUARDED_BY(state); /* shutting down: do not run */

    struct ps_log_limit no_lane;
    alignas(PS_CACHE_LINE) struct ps_mutex device_lock; /* may be taken under 'push' */
    struct ps_device *
        devices[PS_CONTEXT_KIND_COUNT][PS_CONTEXT_MAX_ID + 1] PS_GUARDED_BY(device_lock);
};

extern const struct ps_engine_ops ps_engine_naive_ops;
extern const struct ps_engine_ops ps_engine_pooled_ops;
extern const struct ps_engine_ops ps_engine_per_device_ops;

static inline struct ps_dep ps_dep_make(struct ps_block *block, struct ps_var *var,
                                        bool writes)
{
    return (struct ps_dep){.next = NULL,
                           .block = block,
                           .var = (struct ps_var *)(void *)((char *)var + writes)};
}

static inline bool ps_dep_writes(const struct ps_dep *dep)
{
    return ((uintptr_t)dep->var & 1u) != 0;
}

static inline struct ps_var *ps_dep_var(const struct ps_dep *dep)
{
    return (struct ps_var *)(void *)((char *)dep->var - ((uintptr_t)dep->var & 1u));
}

/* ---- block.c ---- */
/* A block of 'op' (or 'call'), duplicates merged, with the next ticket; not entered.
 * Errors: PS_EINVAL, PS_ENOMEM. */
PS_MUST_CHECK enum ps_status
ps_block_make(struct ps_engine *engine, const struct ps_engine_op *op,
              struct ps_engine_call *call, struct ps_block **block_out)
    PS_REQUIRES(engine->push) PS_EXCLUDES(engine->state);
/* Back to the slab. */
void ps_block_free(struct ps_engine *engine, struct ps_block *block)
    PS_REQUIRES(engine->state);
/* Fills block->deps (room for both counts) with the variables of 'op', writes first,
 * each once; returns their number. */
uint32_t ps_block_merge(struct ps_engine *engine, const struct ps_engine_op *op,
                        struct ps_block *block) PS_REQUIRES(engine->push);

/* ---- core.c ---- */
/* Takes the block's place in the queues of its variables; ops->ready when nothing is in
 * its way. */
void ps_core_enter(struct ps_engine *engine, struct ps_block *block)
    PS_REQUIRES(engine->state);
/* The block is done: sets 'failure' (may be NULL) on what it wrote, hands its variables
 * on, counts it and frees it. */
void ps_core_leave(struct ps_engine *engine, struct ps_block *block,
                   struct ps_failure *failure) PS_REQUIRES(engine->state);
/* Queues the deletion of 'var'; it is due when granted. */
void ps_core_delete(struct ps_engine *engine, struct ps_var *var)
    PS_REQUIRES(engine->state);
/* What became due under 'state' and calls a user's functions: taken under the lock, run
 * without it, ended under it.  False when there is nothing. */
static inline bool ps_core_has_due(const struct ps_engine *engine)
    PS_REQUIRES(engine->state)
{
    return engine->due.vars != NULL || engine->due.calls != NULL ||
           engine->due.segments != NULL;
}
bool ps_core_due_take(struct ps_engine *engine, struct ps_due *due_out)
    PS_REQUIRES(engine->state);
void ps_core_due_run(const struct ps_due *due);
void ps_core_due_end(struct ps_engine *engine, const struct ps_due *due)
    PS_REQUIRES(engine->state);
/* Grants what has come to the front of the queue of 'var'. */
void ps_core_advance(struct ps_engine *engine, struct ps_var *var)
    PS_REQUIRES(engine->state);
/* Puts 'dep' at the end of the queue of its variable. */
static inline void ps_core_append(struct ps_var *var, struct ps_dep *dep)
{
    dep->next = NULL;
    if (var->head == NULL) {
        var->head = dep;
    } else {
        var->tail->next = dep;
    }
    var->tail = dep;
}
/* One more operation is finished. */
static inline void ps_core_count(struct ps_engine *engine) PS_REQUIRES(engine->state)
{
    uint64_t completed = atomic_load_explicit(&engine->completed, memory_order_relaxed);
    /* release pairs with the acquire of readers outside 'state' */
    atomic_store_explicit(&engine->completed, completed + 1, memory_order_release);
}
/* Ends holding both locks: what became due is done without them. */
void ps_core_unlock(struct ps_engine *engine) PS_RELEASE(engine->push, engine->state);
/* A prepared op was destroyed, or one of its pushes ended. */
void ps_core_call_check(struct ps_engine *engine, struct ps_engine_call *call)
    PS_REQUIRES(engine->state);
/* Queues 'block' (one read dependency, never run) behind the writes of its variable. */
void ps_core_wait(struct ps_engine *engine, struct ps_block *block)
    PS_REQUIRES(engine->state);

/* ---- failure.c ---- */
/* A new failure "name: text", remembered for the next wait.  Never NULL. */
struct ps_failure *ps_failure_make(struct ps_engine *engine, const char *name,
                                   enum ps_status status, const char *text)
    PS_REQUIRES(engine->state);
void ps_failure_hold(struct ps_failure *failure);
void ps_failure_drop(struct ps_failure *failure);
/* The failure that 'block' inherits: of its reads, then of its writes; NULL when none. */
struct ps_failure *ps_failure_inherited(const struct ps_block *block);
void ps_failure_set(struct ps_var *var, struct ps_failure *failure);
/* Hands the failure of 'var' (or the oldest, or 'failure') to 'err' and clears it. */
enum ps_status ps_failure_take(struct ps_engine *engine, struct ps_failure *failure,
                               struct ps_error *err) PS_REQUIRES(engine->state);
enum ps_status ps_failure_take_all(struct ps_engine *engine, struct ps_error *err)
    PS_REQUIRES(engine->state);
void ps_failure_free_all(struct ps_engine *engine) PS_REQUIRES(engine->state);

/* ---- peers.c ---- */
/* 'device' was opened: peer access with the GPUs that are open, as ENABLE_GPU_P2P says.
 */
void ps_engine_meet_peers(struct ps_engine *engine, struct ps_device *device)
    PS_REQUIRES(engine->device_lock);

/* ---- engine.c ---- */
/* Marks the calling thread as inside an operation of this engine, or not. */
void ps_engine_set_inside(struct ps_engine *engine, bool inside);
bool ps_engine_is_inside(struct ps_engine *engine);
/* Says, at most once a second, why operations of 'context' are refused. */
void ps_engine_log_no_lane(struct ps_engine *engine, struct ps_context context,
                           enum ps_status status, const struct ps_error *error);
/* After an operation's function returned 'status': waits for what it left in its stream.
 * Returns the operation's status; the stream's error counts when it had none. */
enum ps_status ps_engine_end_run(const struct ps_run *run, enum ps_status status,
                                 struct ps_error *err);

#endif
