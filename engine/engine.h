/* The dependency engine: operations over variables, run when what they read and write is
 * ready.
 *
 * An operation names the variables it reads and writes; operations that conflict run in
 * the order of their pushes, the others whenever a lane has a thread.  A push is atomic
 * over its whole set of variables, whatever other threads push; a variable named twice
 * counts once, and as written when it is named as both.  An operation that fails puts its
 * error on the variables it writes; operations that need them are skipped and hand the
 * error on; the next wait on any of them returns the root error and clears it.
 *
 * Three engines stand behind this header: NaiveEngine (runs inside the push),
 * ThreadedEngine (alias ThreadedEnginePooled, one FIFO and 16 threads) and
 * ThreadedEnginePerDevice (the default: lanes of their own for each device, and a
 * priority pool).
 *
 * After fork() the engine does not work in the child: every call answers PS_EFORK there,
 * ps_engine_destroy does nothing, and the child's exit does not hang.
 *
 * Threads: any, for every call, unless said otherwise.  Waits are for a user's thread:
 * from inside an operation they are refused with PS_EPERM. */
#ifndef PENSTOCK_ENGINE_ENGINE_H
#define PENSTOCK_ENGINE_ENGINE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_node;
struct ps_engine;
struct ps_var;
struct ps_engine_call;
struct ps_device;
struct ps_stream;

/* Where an operation runs and a tensor lies. */
enum ps_context_kind { PS_CONTEXT_CPU, PS_CONTEXT_GPU, PS_CONTEXT_KIND_COUNT };
#define PS_CONTEXT_MAX_ID 255
struct ps_context {
    enum ps_context_kind kind;
    int id; /* 0 .. PS_CONTEXT_MAX_ID */
};
#define PS_CPU(i) ((struct ps_context){.kind = PS_CONTEXT_CPU, .id = (i)})
#define PS_GPU(i) ((struct ps_context){.kind = PS_CONTEXT_GPU, .id = (i)})
bool ps_context_equal(struct ps_context a, struct ps_context b);
/* "cpu(0)"; returns 'out'. */
#define PS_CONTEXT_TEXT_BYTES 24
const char *ps_context_text(struct ps_context context, char out[PS_CONTEXT_TEXT_BYTES]);

/* In the order of the choices of the setting ENGINE_TYPE. */
enum ps_engine_type {
    PS_ENGINE_FROM_SETTING = -1,
    PS_ENGINE_NAIVE = 0,
    PS_ENGINE_POOLED = 1,       /* "ThreadedEngine" */
    PS_ENGINE_POOLED_ALIAS = 2, /* "ThreadedEnginePooled" */
    PS_ENGINE_PER_DEVICE = 3
};

/* Which lane an operation goes to.  'priority' counts in the priority pool (and in GPU
 * copy lanes); elsewhere first in, first out. */
enum ps_engine_op_kind {
    PS_ENGINE_NORMAL,          /* the pool of its device */
    PS_ENGINE_COPY_FROM_GPU,   /* the device's copy lane; on a CPU its ordinary pool */
    PS_ENGINE_COPY_TO_GPU,     /* likewise */
    PS_ENGINE_CPU_PRIORITIZED, /* the priority pool: reductions, communication */
    PS_ENGINE_GPU_PRIORITIZED, /* a GPU's priority pool; on a CPU its ordinary pool */
    PS_ENGINE_ASYNC, /* only starts work: runs inside the push when nothing is in its way,
                    else in its device's pool */
    PS_ENGINE_OP_KIND_COUNT
};

/* What an operation gets when it runs. */
struct ps_run {
    struct ps_engine *engine;
    struct ps_context context;
    /* The lane thread's; NULL on a CPU, and for an operation inside its push.  What 'run'
     * leaves in it is waited for before the operation ends, and fails it. */
    struct ps_stream *stream;
    const struct ps_error *upstream; /* only for 'no_skip': the error of a variable it
                                        needs, else NULL; borrows until return */
};

/* The other end of an asynchronous operation; complete it exactly once. */
struct ps_completion;

/* Zero-initialise, then set.  Exactly one of 'run' and 'start'. */
struct ps_engine_op {
    const char *name; /* constant text; stands in errors and traces */
    /* Runs to completion.  On failure it fills 'err' or only returns a status. */
    enum ps_status (*run)(void *arg, const struct ps_run *run, struct ps_error *err);
    /* Starts work and returns; ps_engine_complete(done, ...) ends the operation, from any
     * thread, possibly before 'start' has returned. */
    void (*start)(void *arg, const struct ps_run *run, struct ps_completion *done);
    void *arg; /* taken: 'release' frees it */
    /* Called once with 'arg' after the operation ran or was skipped, before its
     * variables are handed on.  May release tensors and delete variables; must not push
     * or wait.  May be NULL. */
    void (*release)(void *arg);
    struct ps_var *const *reads; /* borrows until the push returns */
    size_t read_count;
    struct ps_var *const *writes; /* borrows until the push returns */
    size_t write_count;
    struct ps_context context;
    enum ps_engine_op_kind kind;
    int priority;   /* higher first */
    bool symbolic;  /* an operator of a network: what PROFILER_MODE 0 records */
    bool no_skip;   /* runs even when a variable carries an error; sees run->upstream */
    bool unbounded; /* does not wait for room (ENGINE_MAX_INFLIGHT): for pushes from a
                       loop's handler.  Pushes from inside operations never wait either */
};

/* ---- lifecycle ---- */

/* Keeps a borrow of 'node'.  'type' is an enum ps_engine_type; PS_ENGINE_FROM_SETTING
 * reads ENGINE_TYPE.  On a simulated node the naive engine is used whatever the setting
 * says, and asking for another is PS_EUNSUPPORTED.  Errors: PS_ENOMEM, PS_EAGAIN (no
 * thread), PS_EINVAL. */
PS_MUST_CHECK enum ps_status ps_engine_create(struct ps_node *node, int type,
                                              struct ps_engine **engine_out,
                                              struct ps_error *err);
/* Lets running operations finish, skips those that have not started (variable deletions
 * are still done), joins.  From inside an operation it is ignored, with an error in the
 * log.  NULL is fine. */
void ps_engine_destroy(struct ps_engine *engine);
/* "NaiveEngine", "ThreadedEngine", "ThreadedEnginePerDevice". */
const char *ps_engine_name(const struct ps_engine *engine);
enum ps_engine_type ps_engine_type(const struct ps_engine *engine); /* never an alias */
struct ps_node *ps_engine_node(const struct ps_engine *engine);
/* The device of a context, opened at first use; lives as long as the engine.  Errors:
 * PS_EINVAL (no such context), PS_EUNSUPPORTED (no such device on this machine),
 * PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_engine_device(struct ps_engine *engine,
                                              struct ps_context context,
                                              struct ps_device **device_out,
                                              struct ps_error *err);

/* ---- variables ---- */

PS_MUST_CHECK enum ps_status ps_var_create(struct ps_engine *engine,
                                           struct ps_var **var_out);
/* Takes 'var': it goes when every operation pushed so far has released it.  Cannot fail;
 * never waits.  NULL is fine. */
void ps_var_delete(struct ps_engine *engine, struct ps_var *var);
/* Likewise, and then calls fn(arg) once, on whichever thread released it last (this one
 * when it was idle).  fn must be short and must not call the engine. */
void ps_var_delete_then(struct ps_engine *engine, struct ps_var *var,
                        void (*fn)(void *arg), void *arg);
/* Completed operations that wrote 'var'; 0 at first. */
uint64_t ps_var_version(const struct ps_var *var);

/* ---- operations ---- */

/* Copies what it needs.  Takes 'op->arg' on PS_OK; on failure it is still yours.  Waits
 * while ENGINE_MAX_INFLIGHT operations are unfinished (not from inside an operation).
 * Errors: PS_EINVAL (an op without a function, a bad context),
 * PS_EUNSUPPORTED (a context without a lane here), PS_ENOMEM, PS_EFORK, PS_ECLOSED (the
 * engine is being destroyed).  An operation on a deleted variable ends with PS_EINVAL,
 * seen by the next wait. */
PS_MUST_CHECK enum ps_status ps_engine_push(struct ps_engine *engine,
                                            const struct ps_engine_op *op);

/* An operation prepared once and pushed many times; its variables must outlive it.
 * Pushes of one op may overlap when its variables allow.  'release' runs once, after
 * ps_engine_call_destroy and the last push. */
PS_MUST_CHECK enum ps_status ps_engine_call_create(struct ps_engine *engine,
                                                   const struct ps_engine_op *op,
                                                   struct ps_engine_call **call_out);
PS_MUST_CHECK enum ps_status
ps_engine_call_push(struct ps_engine_call *call); /* errors as ps_engine_push */
/* Pushes already made still run.  NULL is fine. */
void ps_engine_call_destroy(struct ps_engine_call *call);

/* A captured segment: the pushes of some prepared operations, in this order, resolved
 * once and replayed.  A replay is what pushing them one by one would be: every variable
 * is granted when its first operation in the segment can have it and handed on when its
 * last one is done, so what follows or precedes overlaps with it; inside, operations
 * count down to each other without queues.  Any number of replays may be in flight: the
 * first few allocate, later ones take what earlier ones left.  An operation may stand in
 * the array more than once.  The calls must outlive the segment.  Errors: PS_EINVAL (no
 * calls or too many; of another engine), PS_ENOMEM. */
struct ps_segment;
PS_MUST_CHECK enum ps_status ps_segment_create(struct ps_engine *engine,
                                               struct ps_engine_call *const *calls,
                                               size_t count,
                                               struct ps_segment **segment_out);
/* As pushing every call, atomically: no other push comes between.  Waits as a push does,
 * unless one of its calls is 'unbounded'; may then pass ENGINE_MAX_INFLIGHT by its own
 * length.  Errors as ps_engine_push; all or nothing. */
PS_MUST_CHECK enum ps_status ps_segment_push(struct ps_segment *segment);
/* Replays already pushed still run.  NULL is fine. */
void ps_segment_destroy(struct ps_segment *segment);

/* Ends an asynchronous operation, exactly once, from any thread.  'text' (may be NULL)
 * is copied when 'status' is an error.  Never waits. */
void ps_engine_complete(struct ps_completion *done, enum ps_status status,
                        const char *text);

/* ---- waits (a user's thread) ---- */

/* Returns once every write of 'var' pushed so far is complete; pending reads do not
 * block it.  PS_OK, or the root error that 'var' carries (status and text with the
 * operation's name, in 'err', may be NULL), which is then cleared on every variable that
 * carries it.  Also PS_EPERM (inside an operation), PS_EFORK. */
PS_MUST_CHECK enum ps_status ps_engine_wait_var(struct ps_engine *engine,
                                                struct ps_var *var, struct ps_error *err);
/* Returns once nothing is pending.  The first error not yet returned, if any; all are
 * cleared. */
PS_MUST_CHECK enum ps_status ps_engine_wait_all(struct ps_engine *engine,
                                                struct ps_error *err);
/* Operations pushed and not finished. */
size_t ps_engine_pending(struct ps_engine *engine);

#endif
