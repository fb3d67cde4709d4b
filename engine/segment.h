/* Captured segments, for the engines: what core.c, threaded.c and naive.c call, and the
 * records behind it.  The front door is engine.h.
 *
 * A segment is a plan that never changes; a replay is a set of counters over it.  Within
 * the segment the uses of one variable, in order, are three stretches, each may be empty:
 *
 *      r r r   w r r w w   r r
 *      lead    span        trail
 *
 * Towards the world a replay stands for them with one place in the variable's queue (a
 * hold): it is granted as a read for the lead, waits at the front of the queue to write
 * when the lead is done, and becomes a read again when the last write is; what others
 * pushed before and after sees exactly what single pushes would show.  Inside the span
 * operations count down to each other (edges).  See docs/decisions/0006.
 *
 * Everything of a replay runs under the engine's lock 'state', like the variables. */
#ifndef PENSTOCK_ENGINE_SEGMENT_H
#define PENSTOCK_ENGINE_SEGMENT_H

#include "engine/engine_ops.h"

#define PS_SEGMENT_NONE UINT32_MAX

/* What the end of an operation does to a hold: its number << 2 | one of these. */
enum ps_hold_use {
    PS_HOLD_READ,      /* one of the lead's or the trail's readers is done */
    PS_HOLD_WRITE,     /* a write that another one follows */
    PS_HOLD_LAST_WRITE /* the span is done */
};

/* A variable of the segment. */
struct ps_hold_plan {
    struct ps_var *var;
    uint32_t readers_at; /* in segment->readers: the lead's operations, the trail's */
    uint32_t lead_count, trail_count;
    uint32_t first_write; /* PS_SEGMENT_NONE: only read */
};

/* Where an operation's part of 'edges' and 'uses' begins; the next one's is the end. */
struct ps_op_plan {
    uint32_t edges_at, uses_at;
};

struct ps_segment {
    struct ps_engine *engine;
    /* the plan: constant */
    uint32_t count, hold_count, root_count;
    struct ps_engine_call **calls; /* each counts as pushed until the segment is freed */
    struct ps_op_plan *ops;        /* count + 1 */
    uint32_t *edges;               /* operations that wait for this one */
    uint32_t *uses;                /* holds, see ps_hold_use */
    uint32_t *waiting; /* what an operation waits for but for the first grant of holds */
    uint32_t *roots;   /* operations that wait for nothing else */
    uint32_t *readers; /* of holds, see ps_hold_plan */
    struct ps_hold_plan *holds;
    bool unbounded; /* an operation of it is */
    bool starts;    /* an operation of it is of kind 'async' */
    /* under 'push' */
    struct ps_lane **lanes; /* of each operation; found at the first push */
    struct ps_lane **woken; /* the different ones */
    uint32_t woken_count;
    struct ps_replay *spare;
    struct ps_replay *all;
    uint64_t pushed;
    /* under 'state' */
    alignas(PS_CACHE_LINE) struct ps_replay *freed;
    uint64_t finished;
    bool closed; /* ps_segment_destroy was called */
    uint64_t closed_at;
    struct ps_segment *due_next;
};

/* A variable in a replay. */
struct ps_hold {
    struct ps_dep dep; /* its block is the replay's entry */
    uint32_t left;     /* readers of the lead, later of the trail, not done */
    bool span_follows; /* the lead is not done */
    bool deleted;      /* the variable was, before the push: nothing to hold */
};

struct ps_replay {
    struct ps_block entry;
    struct ps_segment *segment;
    struct ps_replay *next, *all_next;
    uint64_t first_ticket;
    uint32_t left;         /* operations not finished */
    struct ps_block *kept; /* ready while 'entry.keep_ready': the pusher runs them */
    struct ps_block **kept_end;
    uint32_t *waiting; /* of each operation */
    struct ps_hold *holds;
    struct ps_block *blocks; /* of each operation */
};

/* ---- segment.c ---- */
/* A replay that nobody uses.  NULL: out of memory. */
struct ps_replay *ps_replay_get(struct ps_engine *engine, struct ps_segment *segment)
    PS_REQUIRES(engine->push) PS_EXCLUDES(engine->state);
/* Takes the tickets of 'replay' and counts it. */
void ps_replay_start(struct ps_engine *engine, struct ps_replay *replay)
    PS_REQUIRES(engine->push);
/* A segment was destroyed, or a replay ended. */
void ps_segment_check(struct ps_engine *engine, struct ps_segment *segment)
    PS_REQUIRES(engine->state);
void ps_segment_free_all(struct ps_segment *list);

/* ---- segment_plan.c ---- */
/* Fills the plan of 'segment', whose calls are set.  Errors: PS_EINVAL (too large),
 * PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_segment_plan(struct ps_engine *engine,
                                             struct ps_segment *segment)
    PS_REQUIRES(engine->push);

/* ---- segment_replay.c ---- */
/* Takes the replay's place in the queues of its variables; ops->ready for what can go. */
void ps_replay_enter(struct ps_engine *engine, struct ps_replay *replay)
    PS_REQUIRES(engine->state);
/* 'dep', of a hold, came to the front of its queue and was granted. */
void ps_replay_granted(struct ps_engine *engine, struct ps_dep *dep)
    PS_REQUIRES(engine->state);
/* As ps_core_leave, for an operation of a replay. */
void ps_replay_leave(struct ps_engine *engine, struct ps_block *block,
                     struct ps_failure *failure) PS_REQUIRES(engine->state);

#endif
