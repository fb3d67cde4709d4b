/* Captured segments: making and ending them, and their stock of replays.  A push takes a
 * replay from the stock and makes one when all are in flight, so the stock grows to what
 * ENGINE_MAX_INFLIGHT lets in and no further. */
#include "engine/segment.h"

#include "base/mem.h"
#include "engine/engine_trace.h"

#include <stdlib.h>

static void replay_free(struct ps_replay *replay)
{
    if (replay != NULL) {
        ps_mem_free(replay->blocks);
        free(replay->holds);
        free(replay->waiting);
        ps_mem_free(replay);
    }
}

static void segment_free(struct ps_segment *segment) PS_NO_THREAD_SAFETY
{
    for (struct ps_replay *replay = segment->all, *next; replay != NULL; replay = next) {
        next = replay->all_next;
        replay_free(replay);
    }
    free(segment->woken);
    free(segment->lanes);
    free(segment->holds);
    free(segment->readers);
    free(segment->roots);
    free(segment->waiting);
    free(segment->uses);
    free(segment->edges);
    free(segment->ops);
    free(segment->calls);
    ps_mem_free(segment);
}

void ps_segment_free_all(struct ps_segment *list)
{
    for (struct ps_segment *segment = list, *next; segment != NULL; segment = next) {
        next = segment->due_next;
        segment_free(segment);
    }
}

/* ---- replays ---- */

static void init_block(struct ps_replay *replay, uint32_t op)
{
    const struct ps_segment *segment = replay->segment;
    struct ps_engine_call *call = segment->calls[op];
    replay->blocks[op] = (struct ps_block){
        .engine = segment->engine,
        .run = call->op.run,
        .start = call->op.start,
        .arg = call->op.arg,
        .name = call->op.name != NULL ? call->op.name : "op",
        .lane = segment->lanes != NULL ? segment->lanes[op] : NULL,
        .replay = replay,
        .call = call,
        .priority = call->op.priority,
        .context_kind = (uint8_t)call->op.context.kind,
        .context_id = (uint8_t)call->op.context.id,
        .no_skip = call->op.no_skip,
        .state = PS_BLOCK_QUEUED,
        .role = PS_BLOCK_REPLAYED,
        .trace = ps_op_trace_byte(&call->op),
    };
}

static struct ps_replay *replay_create(struct ps_segment *segment)
{
    struct ps_replay *replay = ps_mem_calloc(sizeof(*replay));
    if (replay == NULL) {
        return NULL;
    }
    replay->segment = segment;
    replay->entry.role = PS_BLOCK_ENTRY;
    replay->entry.replay = replay;
    replay->waiting = calloc(segment->count, sizeof(*replay->waiting));
    replay->holds = calloc((size_t)segment->hold_count + 1, sizeof(*replay->holds));
    replay->blocks = ps_mem_calloc(segment->count * sizeof(*replay->blocks));
    if (replay->waiting == NULL || replay->holds == NULL || replay->blocks == NULL) {
        replay_free(replay);
        return NULL;
    }
    for (uint32_t i = 0; i < segment->hold_count; i++) {
        replay->holds[i].dep.block = &replay->entry;
    }
    for (uint32_t i = 0; i < segment->count; i++) {
        init_block(replay, i);
    }
    return replay;
}

struct ps_replay *ps_replay_get(struct ps_engine *engine, struct ps_segment *segment)
{
    struct ps_replay *replay = segment->spare;
    if (replay == NULL) {
        ps_mutex_lock(&engine->state);
        replay = segment->freed;
        segment->freed = NULL;
        ps_mutex_unlock(&engine->state);
    }
    if (replay != NULL) {
        segment->spare = replay->next;
        return replay;
    }
    replay = replay_create(segment);
    if (replay != NULL) {
        replay->all_next = segment->all;
        segment->all = replay;
    }
    return replay;
}

void ps_replay_start(struct ps_engine *engine, struct ps_replay *replay)
{
    struct ps_segment *segment = replay->segment;
    /* relaxed: only pushers write it, one at a time */
    uint64_t ticket = atomic_load_explicit(&engine->ticket, memory_order_relaxed);
    replay->first_ticket = ticket + 1;
    replay->entry.keep_ready = false;
    segment->pushed++;
    atomic_store_explicit(&engine->ticket, ticket + segment->count, memory_order_release);
}

void ps_segment_check(struct ps_engine *engine, struct ps_segment *segment)
{
    if (!segment->closed || segment->finished != segment->closed_at) {
        return;
    }
    for (uint32_t i = 0; i < segment->count; i++) {
        segment->calls[i]->finished++;
        ps_core_call_check(engine, segment->calls[i]);
    }
    segment->due_next = engine->due.segments;
    engine->due.segments = segment;
}

/* ---- the front door ---- */

enum ps_status ps_segment_create(struct ps_engine *engine,
                                 struct ps_engine_call *const *calls, size_t count,
                                 struct ps_segment **segment_out)
{
    if (ps_fork_guard_is_child(&engine->fork_guard)) {
        return PS_EFORK;
    }
    if (count == 0 || count >= PS_SEGMENT_NONE) {
        return PS_EINVAL;
    }
    struct ps_segment *segment = ps_mem_calloc(sizeof(*segment));
    if (segment == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status = PS_ENOMEM;
    segment->engine = engine;
    segment->count = (uint32_t)count;
    segment->calls = calloc(count, sizeof(struct ps_engine_call *));
    if (segment->calls == NULL) {
        goto fail;
    }
    for (size_t i = 0; i < count; i++) {
        if (calls[i]->engine != engine) {
            status = PS_EINVAL;
            goto fail;
        }
        segment->calls[i] = calls[i];
        segment->unbounded |= calls[i]->op.unbounded;
        segment->starts |= calls[i]->op.kind == PS_ENGINE_ASYNC;
    }
    ps_mutex_lock(&engine->push);
    status = ps_segment_plan(engine, segment);
    for (size_t i = 0; status == PS_OK && i < count; i++) {
        calls[i]->pushed++;
    }
    ps_mutex_unlock(&engine->push);
    if (status != PS_OK) {
        goto fail;
    }
    *segment_out = segment;
    return PS_OK;
fail:
    segment_free(segment);
    return status;
}

enum ps_status ps_segment_push(struct ps_segment *segment)
{
    struct ps_engine *engine = segment->engine;
    if (ps_fork_guard_is_child(&engine->fork_guard)) {
        return PS_EFORK;
    }
    return engine->ops->push_segment(engine, segment);
}

void ps_segment_destroy(struct ps_segment *segment)
{
    if (segment == NULL || ps_fork_guard_is_child(&segment->engine->fork_guard)) {
        return;
    }
    struct ps_engine *engine = segment->engine;
    ps_mutex_lock(&engine->push);
    ps_mutex_lock(&engine->state);
    segment->closed = true;
    segment->closed_at = segment->pushed;
    ps_segment_check(engine, segment);
    ps_core_unlock(engine);
}
