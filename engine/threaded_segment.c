/* Replays on the threaded engines.  A replay goes through the inbox as one entry, so the
 * pusher touches a few cache lines whatever the segment's length; who resolves it sets
 * the counters, and its operations go to their lanes as they become ready. */
#include "engine/segment.h"
#include "engine/threaded.h"

#include <stdlib.h>

/* Finds the lane of each operation, once. */
static enum ps_status find_lanes(struct ps_engine *engine, struct ps_segment *segment,
                                 ps_route_fn route) PS_REQUIRES(engine->push)
{
    if (segment->lanes != NULL) {
        return PS_OK;
    }
    enum ps_status status = PS_ENOMEM;
    uint32_t count = segment->count, woken_count = 0;
    struct ps_lane **lanes = calloc(count, sizeof(struct ps_lane *));
    struct ps_lane **woken = calloc(count, sizeof(struct ps_lane *));
    if (lanes == NULL || woken == NULL) {
        goto fail;
    }
    for (uint32_t i = 0; i < count; i++) {
        PS_TRY_GOTO(status, route(engine, &segment->calls[i]->op, &lanes[i]), fail);
        uint32_t k = 0;
        while (k < woken_count && woken[k] != lanes[i]) {
            k++;
        }
        if (k == woken_count) {
            woken[woken_count++] = lanes[i];
        }
    }
    segment->lanes = lanes;
    segment->woken = woken;
    segment->woken_count = woken_count;
    return PS_OK;
fail:
    free(woken);
    free(lanes);
    return status;
}

/* A segment with operations of kind 'async': entered at once, and those that nothing is
 * in the way of run here.  Takes the locks in order and leaves with neither. */
static void push_here(struct ps_engine *engine, struct ps_replay *replay)
    PS_RELEASE(engine->push)
{
    replay->entry.keep_ready = true;
    ps_threaded_lock(engine);
    ps_threaded_resolve(engine);
    ps_core_enter(engine, &replay->entry);
    replay->entry.keep_ready = false;
    struct ps_block *block = replay->kept;
    ps_mutex_unlock(&engine->push);
    while (block != NULL) {
        struct ps_block *next = block->next; /* the block may be in use again soon */
        ps_threaded_run_here(engine, block);
        block = next;
    }
    ps_threaded_unlock(engine);
}

static bool sleeps(const struct ps_segment *segment)
{
    for (uint32_t i = 0; i < segment->woken_count; i++) {
        if (atomic_load_explicit(&segment->woken[i]->asleep, memory_order_seq_cst)) {
            return true;
        }
    }
    return false;
}

enum ps_status ps_threaded_push_segment(struct ps_engine *engine,
                                        struct ps_segment *segment, ps_route_fn route)
{
    enum ps_status status = PS_OK;
    ps_mutex_lock(&engine->push);
    ps_threaded_admit(engine, segment->unbounded);
    if (engine->closing) {
        status = PS_ECLOSED;
        goto unlock;
    }
    PS_TRY_GOTO(status, find_lanes(engine, segment, route), unlock);
    struct ps_replay *replay = ps_replay_get(engine, segment);
    if (replay == NULL) {
        status = PS_ENOMEM;
        goto unlock;
    }
    ps_replay_start(engine, replay);
    if (segment->starts) {
        push_here(engine, replay);
        return PS_OK;
    }
    ps_threaded_put(engine, &replay->entry);
    ps_mutex_unlock(&engine->push);
    if (sleeps(segment)) {
        ps_threaded_lock(engine);
        ps_threaded_resolve(engine);
        ps_threaded_unlock(engine);
    }
    return PS_OK;
unlock:
    ps_mutex_unlock(&engine->push);
    return status;
}
