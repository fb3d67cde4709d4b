/* A replay of a captured segment: counters, under the engine's lock 'state'. */
#include "engine/segment.h"
#include "engine/threaded.h"

#include <string.h>

/* ---- what can go ---- */

static void op_ready(struct ps_engine *engine, struct ps_replay *replay, uint32_t op)
    PS_REQUIRES(engine->state)
{
    struct ps_block *block = &replay->blocks[op];
    block->ticket = replay->first_ticket + op;
    if (replay->entry.keep_ready && block->call->op.kind == PS_ENGINE_ASYNC) {
        block->next = NULL;
        *replay->kept_end = block;
        replay->kept_end = &block->next;
        return;
    }
    /* the naive engine has no replays, so this is a threaded one */
    ps_ready_push(&block->lane->ready, block);
    ps_lane_wake(engine, block->lane);
}

static inline void count_down(struct ps_engine *engine, struct ps_replay *replay,
                              uint32_t op) PS_REQUIRES(engine->state)
{
    if (--replay->waiting[op] == 0) {
        op_ready(engine, replay, op);
    }
}

/* ---- entering ---- */

/* The variable was deleted before the push: nobody else wants it, and every operation
 * that names it fails. */
static void enter_deleted(struct ps_replay *replay, uint32_t number)
{
    const struct ps_segment *segment = replay->segment;
    const struct ps_var *var = segment->holds[number].var;
    for (uint32_t op = 0; op < segment->count; op++) {
        const struct ps_engine_call *call = segment->calls[op];
        size_t count = call->op.write_count + call->op.read_count;
        for (size_t i = 0; i < count; i++) {
            if (call->vars[i] == var) {
                replay->blocks[op].invalid = true;
                break;
            }
        }
    }
}

/* Takes the hold's place; false when its first operations must wait for it. */
static bool enter_hold(struct ps_hold *hold, const struct ps_hold_plan *plan)
{
    struct ps_var *var = plan->var;
    bool writes = plan->first_write != PS_SEGMENT_NONE;
    bool writes_first = plan->lead_count == 0;
    hold->dep = ps_dep_make(hold->dep.block, var, writes_first);
    hold->left = plan->lead_count;
    hold->span_follows = writes && !writes_first;
    var->writes += writes;
    if (var->head != NULL || var->writing || (writes_first && var->readers > 0)) {
        ps_core_append(var, &hold->dep);
        return false;
    }
    if (writes_first) {
        var->writing = true;
        return true;
    }
    var->readers++;
    if (writes) { /* at the front from now on: later readers come after the span */
        hold->dep = ps_dep_make(hold->dep.block, var, true);
        ps_core_append(var, &hold->dep);
    }
    return true;
}

static void wait_for_hold(struct ps_replay *replay, const struct ps_hold_plan *plan)
{
    if (plan->lead_count == 0) {
        replay->waiting[plan->first_write]++;
        return;
    }
    const uint32_t *readers = &replay->segment->readers[plan->readers_at];
    for (uint32_t i = 0; i < plan->lead_count; i++) {
        replay->waiting[readers[i]]++;
    }
}

void ps_replay_enter(struct ps_engine *engine, struct ps_replay *replay)
{
    const struct ps_segment *segment = replay->segment;
    replay->left = segment->count;
    replay->kept = NULL;
    replay->kept_end = &replay->kept;
    memcpy(replay->waiting, segment->waiting, segment->count * sizeof(*replay->waiting));
    for (uint32_t i = 0; i < segment->hold_count; i++) {
        const struct ps_hold_plan *plan = &segment->holds[i];
        struct ps_hold *hold = &replay->holds[i];
        hold->deleted = plan->var->deleted;
        if (hold->deleted) {
            enter_deleted(replay, i);
            hold->left = plan->lead_count;
            hold->span_follows =
                plan->lead_count > 0 && plan->first_write != PS_SEGMENT_NONE;
        } else if (!enter_hold(hold, plan)) {
            wait_for_hold(replay, plan);
        }
    }
    for (uint32_t i = 0; i < segment->root_count; i++) {
        uint32_t op = segment->roots[i];
        if (replay->waiting[op] == 0) {
            op_ready(engine, replay, op);
        }
    }
}

/* ---- grants and releases ---- */

void ps_replay_granted(struct ps_engine *engine, struct ps_dep *dep)
{
    struct ps_replay *replay = dep->block->replay;
    struct ps_hold *hold = PS_CONTAINER_OF(dep, struct ps_hold, dep);
    const struct ps_segment *segment = replay->segment;
    const struct ps_hold_plan *plan = &segment->holds[hold - replay->holds];
    struct ps_var *var = plan->var;
    if (ps_dep_writes(dep)) {
        var->head = dep->next;
        count_down(engine, replay, plan->first_write);
        return;
    }
    if (hold->span_follows) { /* stays at the front, now to write */
        dep->var = ps_dep_make(dep->block, var, true).var;
    } else {
        var->head = dep->next;
    }
    const uint32_t *readers = &segment->readers[plan->readers_at];
    for (uint32_t i = 0; i < plan->lead_count; i++) {
        count_down(engine, replay, readers[i]);
    }
}

/* The variable was given back: whoever is at the front of its queue may have it.  A
 * replay that waits there to write is the common case, and needs no loop. */
static inline void hand_on(struct ps_engine *engine, struct ps_var *var)
    PS_REQUIRES(engine->state)
{
    struct ps_dep *dep = var->head;
    if (dep == NULL || (ps_dep_writes(dep) && var->readers > 0)) {
        return;
    }
    if (dep->block == NULL || dep->block->role != PS_BLOCK_ENTRY || !ps_dep_writes(dep)) {
        ps_core_advance(engine, var);
        return;
    }
    struct ps_replay *replay = dep->block->replay;
    struct ps_hold *hold = PS_CONTAINER_OF(dep, struct ps_hold, dep);
    var->writing = true;
    var->head = dep->next;
    count_down(engine, replay, replay->segment->holds[hold - replay->holds].first_write);
}

static inline void read_done(struct ps_engine *engine, struct ps_replay *replay,
                             struct ps_hold *hold) PS_REQUIRES(engine->state)
{
    if (--hold->left > 0) {
        return;
    }
    bool span_follows = hold->span_follows;
    hold->span_follows = false;
    if (hold->deleted) {
        if (span_follows) {
            const struct ps_segment *segment = replay->segment;
            count_down(engine, replay, segment->holds[hold - replay->holds].first_write);
        }
        return;
    }
    struct ps_var *var = ps_dep_var(&hold->dep);
    if (--var->readers == 0) {
        hand_on(engine, var);
    }
}

static void last_write_done(struct ps_engine *engine, struct ps_replay *replay,
                            struct ps_hold *hold) PS_REQUIRES(engine->state)
{
    const struct ps_segment *segment = replay->segment;
    const struct ps_hold_plan *plan = &segment->holds[hold - replay->holds];
    hold->left = plan->trail_count;
    if (!hold->deleted) {
        struct ps_var *var = plan->var;
        var->writing = false;
        var->writes--;
        var->readers += plan->trail_count > 0;
        hand_on(engine, var);
    }
    const uint32_t *readers = &segment->readers[plan->readers_at + plan->lead_count];
    for (uint32_t i = 0; i < plan->trail_count; i++) {
        count_down(engine, replay, readers[i]);
    }
}

static void wrote(struct ps_var *var, struct ps_failure *failure)
{
    /* relaxed: whoever must see the bytes behind this version goes through 'state' */
    uint64_t version = atomic_load_explicit(&var->version, memory_order_relaxed);
    atomic_store_explicit(&var->version, version + 1, memory_order_relaxed);
    if (failure != NULL) {
        ps_failure_set(var, failure);
    }
}

static void end_replay(struct ps_engine *engine, struct ps_replay *replay)
    PS_REQUIRES(engine->state)
{
    struct ps_segment *segment = replay->segment;
    replay->next = segment->freed;
    segment->freed = replay;
    segment->finished++;
    ps_segment_check(engine, segment);
}

void ps_replay_leave(struct ps_engine *engine, struct ps_block *block,
                     struct ps_failure *failure)
{
    struct ps_replay *replay = block->replay;
    const struct ps_segment *segment = replay->segment;
    const struct ps_op_plan *op = &segment->ops[block - replay->blocks];
    if (failure != NULL) {
        ps_failure_hold(failure);
    }
    block->state = PS_BLOCK_QUEUED;
    for (uint32_t i = op[0].uses_at; i < op[1].uses_at; i++) {
        uint32_t use = segment->uses[i];
        struct ps_hold *hold = &replay->holds[use >> 2];
        enum ps_hold_use kind = (enum ps_hold_use)(use & 3u);
        if (kind == PS_HOLD_READ) {
            read_done(engine, replay, hold);
            continue;
        }
        if (!hold->deleted) {
            wrote(ps_dep_var(&hold->dep), failure);
        }
        if (kind == PS_HOLD_LAST_WRITE) {
            last_write_done(engine, replay, hold);
        }
    }
    for (uint32_t i = op[0].edges_at; i < op[1].edges_at; i++) {
        count_down(engine, replay, segment->edges[i]);
    }
    if (failure != NULL || block->failure != NULL) {
        ps_failure_drop(failure);
        ps_failure_drop(block->failure);
        block->failure = NULL;
    }
    block->invalid = false;
    ps_core_count(engine);
    if (--replay->left == 0) {
        end_replay(engine, replay);
    }
}
