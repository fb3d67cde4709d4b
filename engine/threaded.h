/* What the pooled and the per-device engine share: the inbox of pushes, lanes with their
 * threads, waits.  Private to engine/; the two differ in routing only.
 *
 *   pusher ──inbox (ring)──► whoever resolves ──ready queue──► lane thread
 *
 * A push fills a block and leaves it in the inbox.  A lane's thread empties the inbox
 * before it takes its next operation (when its own queue is empty; always, where
 * priorities count) and before it sleeps, so resolving happens in batches on the core
 * that will run what becomes ready.  Only when a push finds a sleeping thread in its
 * operation's lane does the pusher resolve, and wake it. */
#ifndef PENSTOCK_ENGINE_THREADED_H
#define PENSTOCK_ENGINE_THREADED_H

#include "engine/device/device.h"
#include "engine/engine_ops.h"
#include "engine/ready_queue.h"

#define PS_INBOX_SLOTS 1024u /* a power of two; a full inbox is emptied by the pusher */

struct ps_lane {
    /* Read by pushers after they have put something into the inbox: a thread sleeps and
     * nobody has set out to wake one. */
    alignas(PS_CACHE_LINE) _Atomic bool asleep;
    _Atomic bool called; /* something became ready while a thread looked around */
    /* under the engine's lock 'state' */
    alignas(PS_CACHE_LINE) struct ps_ready_queue ready;
    uint32_t idle; /* threads that sleep, or are about to wake */
    bool waking;   /* a wake-up is on its way: one at a time, handed on */
    bool looking;  /* a thread looks around before it sleeps: one at a time */
    uint32_t look_failures, looks_to_leave_out; /* see lane.c */
    uint64_t looks;                             /* so far */
    bool stop;                                  /* leave when nothing is ready */
    struct ps_lane *wake_next;
    struct ps_cond cond;
    struct ps_engine *engine;
    struct ps_lane *all_next;
    struct ps_lane_thread *threads;
    uint32_t thread_count;
    char name[16];
};

/* One thread of a lane, with the streams it owns: one of each GPU that the lane serves.
 * They are made under 'push', before the first operation that may use them. */
struct ps_lane_thread {
    struct ps_lane *lane;
    struct ps_thread thread;
    struct ps_stream *streams[PS_CONTEXT_MAX_ID + 1];
};

/* What a lane is for. */
enum ps_lane_use {
    PS_LANE_CPU,
    PS_LANE_CPU_PRIORITY, /* one for all CPU devices: place 0 */
    PS_LANE_GPU,
    PS_LANE_GPU_COPY,
    PS_LANE_GPU_PRIORITY,
    PS_LANE_POOL,      /* of the pooled engine: place 0 */
    PS_LANE_POOL_COPY, /* likewise */
    PS_LANE_USE_COUNT
};

/* Lanes by what they are for and by device; under 'push'. */
struct ps_lane_table {
    struct ps_lane *of[PS_LANE_USE_COUNT][PS_CONTEXT_MAX_ID + 1];
    bool has_streams[PS_CONTEXT_MAX_ID + 1]; /* the pooled engine's, by GPU */
};

struct ps_threaded {
    /* the pusher's line, under 'push' */
    alignas(PS_CACHE_LINE) _Atomic uint64_t inbox_tail;
    uint64_t inbox_head_seen;
    uint64_t completed_seen;
    uint64_t max_inflight;
    uint32_t look_cores; /* constant: all but the pusher's; see lane.c */
    struct ps_lane_table lanes;
    /* the resolver's, under 'state' */
    alignas(PS_CACHE_LINE) _Atomic uint64_t inbox_head;
    struct ps_lane *wake; /* lanes to signal once the lock is free */
    struct ps_lane *all;  /* every lane */
    uint32_t running;     /* synchronous operations */
    uint32_t looking;     /* lanes with a thread that looks */
    uint32_t async_out;   /* asynchronous operations started and not completed */
    uint32_t all_waiters, room_waiters;
    uint64_t low_water; /* constant: who waits for room is woken at this many */
    struct ps_cond all_done, room;
    alignas(PS_CACHE_LINE) struct ps_block *inbox[PS_INBOX_SLOTS];
};

/* Tells the core that this is a waiting loop: about 20 ns on x86. */
static inline void ps_threaded_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* ---- lane.c ---- */
struct ps_lane_options {
    const char *name; /* at most 11 bytes count; copied */
    uint32_t thread_count;
    bool by_priority;
    struct ps_device *device; /* each thread gets a stream of it; NULL: no stream */
    enum ps_stream_kind stream_kind;
};
/* A lane with threads named "name/i".  Errors: PS_ENOMEM, PS_EAGAIN, those of
 * ps_device_stream_create. */
PS_MUST_CHECK enum ps_status ps_lane_create(struct ps_engine *engine,
                                            const struct ps_lane_options *options,
                                            struct ps_lane **lane_out)
    PS_EXCLUDES(engine->state);
/* Gives each thread a stream of 'device'; all or none.  Under 'push', before the first
 * operation of that device.  Errors as ps_device_stream_create. */
PS_MUST_CHECK enum ps_status ps_lane_add_streams(struct ps_lane *lane,
                                                 struct ps_device *device,
                                                 enum ps_stream_kind kind);
void ps_lane_remove_streams(struct ps_lane *lane, int id);
/* Ends the threads; ready operations are finished (or skipped) first. */
void ps_lane_join(struct ps_lane *lane);
/* Joins and frees. */
void ps_lane_destroy(struct ps_lane *lane);
/* Notes that one sleeping thread, if any, is to be woken. */
void ps_lane_wake_idle(struct ps_engine *engine, struct ps_lane *lane)
    PS_REQUIRES(engine->state);
static inline void ps_lane_wake(struct ps_engine *engine, struct ps_lane *lane)
    PS_REQUIRES(engine->state)
{
    if (lane->idle > 0 || lane->looking) { /* else all its threads are at work */
        ps_lane_wake_idle(engine, lane);
    }
}

/* ---- threaded.c ---- */
PS_MUST_CHECK enum ps_status ps_threaded_create(struct ps_engine *engine,
                                                struct ps_error *err);
/* The slots of both engines (struct ps_engine_ops). */
bool ps_threaded_stop(struct ps_engine *engine);
void ps_threaded_var_delete(struct ps_engine *engine, struct ps_var *var);
void ps_threaded_complete(struct ps_block *block, enum ps_status status,
                          const char *text);
enum ps_status ps_threaded_wait_var(struct ps_engine *engine, struct ps_var *var,
                                    struct ps_error *err);
enum ps_status ps_threaded_wait_all(struct ps_engine *engine, struct ps_error *err);
void ps_threaded_ready(struct ps_engine *engine, struct ps_block *block)
    PS_REQUIRES(engine->state);
void ps_threaded_waiter_ready(struct ps_engine *engine, struct ps_block *block)
    PS_REQUIRES(engine->state);
/* Finds the lane of an operation; under 'push'. */
typedef enum ps_status (*ps_route_fn)(struct ps_engine *engine,
                                      const struct ps_engine_op *op,
                                      struct ps_lane **lane_out);
enum ps_status ps_threaded_push(struct ps_engine *engine, const struct ps_engine_op *op,
                                struct ps_engine_call *call, ps_route_fn route);

/* Waits, without the lock 'push', until few enough operations are unfinished. */
void ps_threaded_admit(struct ps_engine *engine, bool unbounded)
    PS_REQUIRES(engine->push);
/* Leaves 'block' in the inbox. */
void ps_threaded_put(struct ps_engine *engine, struct ps_block *block)
    PS_REQUIRES(engine->push);
/* ps_threaded_run on the pusher's thread. */
void ps_threaded_run_here(struct ps_engine *engine, struct ps_block *block)
    PS_REQUIRES(engine->state);

/* ---- threaded_segment.c ---- */
enum ps_status ps_threaded_push_segment(struct ps_engine *engine,
                                        struct ps_segment *segment, ps_route_fn route);

/* ---- threaded_wait.c ---- */
void ps_threaded_wait_for_room(struct ps_engine *engine)
    PS_EXCLUDES(engine->push, engine->state);

/* For lanes.  lock: spins shortly, then sleeps.  unlock: then does what waited for the
 * lock to be free (wakes lanes, calls deletion and release functions). */
void ps_threaded_lock(struct ps_engine *engine) PS_ACQUIRE(engine->state);
void ps_threaded_unlock(struct ps_engine *engine) PS_RELEASE(engine->state);
/* The same for who holds 'push', or may (a lane is made by the first push to it): no
 * function of a user's may run there.  Those are left to the threads of lanes, one of
 * which is awake when a push finds the inbox full. */
void ps_threaded_unlock_pusher(struct ps_engine *engine) PS_RELEASE(engine->state);
/* Enters everything in the inbox. */
void ps_threaded_resolve(struct ps_engine *engine) PS_REQUIRES(engine->state);
/* Enters at most 'count'; whether something is left. */
bool ps_threaded_resolve_some(struct ps_engine *engine, uint64_t count)
    PS_REQUIRES(engine->state);
/* Whether ps_threaded_unlock would have something to do. */
bool ps_threaded_has_due(struct ps_engine *engine) PS_REQUIRES(engine->state);
/* Runs or skips a ready operation; the lock is free meanwhile.  'thread' NULL: on a
 * pusher's thread, which has no streams. */
void ps_threaded_run(struct ps_engine *engine, struct ps_block *block,
                     const struct ps_lane_thread *thread) PS_REQUIRES(engine->state);

#endif
