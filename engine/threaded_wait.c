/* Waits of user threads on the threaded engines, and their shutdown. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/node.h"
#include "engine/threaded.h"

#include <stdlib.h>

/* How long the end of an engine waits for asynchronous operations that somebody else
 * must complete. */
#define ASYNC_GRACE_NS PS_NS_PER_S

static uint64_t pending(struct ps_engine *engine)
{
    return atomic_load_explicit(&engine->ticket, memory_order_acquire) -
           atomic_load_explicit(&engine->completed, memory_order_relaxed);
}

void ps_threaded_wait_for_room(struct ps_engine *engine)
{
    struct ps_threaded *threaded = engine->threaded;
    ps_threaded_lock(engine);
    while (pending(engine) > threaded->low_water) {
        if (ps_threaded_has_due(engine)) {
            ps_threaded_unlock(engine);
            ps_threaded_lock(engine);
        } else {
            threaded->room_waiters++; /* taken back by who wakes us */
            ps_cond_wait(&threaded->room, &engine->state);
        }
    }
    ps_threaded_unlock(engine);
}

/* A user's thread in ps_engine_wait_var: a block with one read that never runs. */
struct var_waiter {
    struct ps_block block;
    struct ps_dep dep;
    struct ps_cond cond;
    struct ps_failure *failure; /* what the variable carried at that place in its order */
    bool done;
};

void ps_threaded_waiter_ready(struct ps_engine *engine, struct ps_block *block)
{
    struct var_waiter *waiter = PS_CONTAINER_OF(block, struct var_waiter, block);
    PS_UNUSED(engine);
    waiter->failure = ps_failure_inherited(block);
    if (waiter->failure != NULL) {
        ps_failure_hold(waiter->failure);
    }
    waiter->done = true;
    ps_cond_signal(&waiter->cond);
}

static struct ps_failure *wait_for_writes(struct ps_engine *engine, struct ps_var *var)
    PS_REQUIRES(engine->state)
{
    struct var_waiter waiter = {.failure = NULL, .done = false};
    waiter.block.role = PS_BLOCK_WAITER;
    waiter.block.deps = &waiter.dep;
    waiter.block.dep_count = 1;
    waiter.dep = ps_dep_make(&waiter.block, var, false);
    ps_cond_init(&waiter.cond);
    ps_core_wait(engine, &waiter.block);
    while (!waiter.done) {
        if (ps_threaded_has_due(engine)) {
            ps_threaded_unlock(engine);
            ps_threaded_lock(engine);
        } else {
            ps_cond_wait(&waiter.cond, &engine->state);
        }
    }
    ps_cond_fini(&waiter.cond);
    return waiter.failure;
}

enum ps_status ps_threaded_wait_var(struct ps_engine *engine, struct ps_var *var,
                                    struct ps_error *err)
{
    enum ps_status status = PS_OK;
    ps_threaded_lock(engine);
    ps_threaded_resolve(engine);
    if (var->deleted) {
        status = ps_error_set(err, PS_EINVAL, "wait on a variable that was deleted");
    } else if (var->writes > 0) {
        struct ps_failure *failure = wait_for_writes(engine, var);
        status = ps_failure_take(engine, failure, err);
        ps_failure_drop(failure);
    } else {
        status = ps_failure_take(engine, var->failure, err);
    }
    ps_threaded_unlock(engine);
    return status;
}

enum ps_status ps_threaded_wait_all(struct ps_engine *engine, struct ps_error *err)
{
    struct ps_threaded *threaded = engine->threaded;
    ps_threaded_lock(engine);
    threaded->all_waiters++;
    while (pending(engine) > 0) {
        if (ps_threaded_has_due(engine)) {
            ps_threaded_unlock(engine);
            ps_threaded_lock(engine);
        } else {
            ps_cond_wait(&threaded->all_done, &engine->state);
        }
    }
    threaded->all_waiters--;
    enum ps_status status = ps_failure_take_all(engine, err);
    ps_threaded_unlock(engine);
    return status;
}

/* ---- shutdown ---- */

/* Waits until nothing is pending; false when, a second after the last operation ran, an
 * asynchronous one is still out. */
static bool drain(struct ps_engine *engine) PS_REQUIRES(engine->state)
{
    struct ps_threaded *threaded = engine->threaded;
    struct ps_clock *clock = ps_clock_real();
    uint64_t deadline = ps_clock_now_ns(clock) + ASYNC_GRACE_NS;
    threaded->all_waiters++;
    bool clean = true;
    while (clean && pending(engine) > 0) {
        if (ps_threaded_has_due(engine)) {
            ps_threaded_unlock(engine);
            ps_threaded_lock(engine);
        } else if (!ps_cond_wait_until(&threaded->all_done, &engine->state, deadline)) {
            clean = threaded->async_out == 0;
            deadline = ps_clock_now_ns(clock) + ASYNC_GRACE_NS;
        }
    }
    threaded->all_waiters--;
    return clean;
}

bool ps_threaded_stop(struct ps_engine *engine)
{
    struct ps_threaded *threaded = engine->threaded;
    if (threaded == NULL) {
        return true;
    }
    ps_mutex_lock(&engine->push);
    engine->closing = true;
    ps_threaded_lock(engine);
    engine->skipping = true; /* before a push can be refused */
    ps_mutex_unlock(&engine->push);
    ps_threaded_resolve(engine);
    bool clean = drain(engine);
    uint32_t out = threaded->async_out;
    struct ps_lane *lanes = threaded->all;
    ps_threaded_unlock(engine);
    if (!clean) {
        PS_LOG(engine->node->log, ERROR, ENGINE,
               "async ops out %u a second after the engine's end, memory left", out);
    }
    for (struct ps_lane *lane = lanes, *next; lane != NULL; lane = next) {
        next = lane->all_next;
        if (clean) {
            ps_lane_destroy(lane);
        } else {
            ps_lane_join(lane); /* a late completion still looks at it */
        }
    }
    if (clean) {
        ps_cond_fini(&threaded->all_done);
        ps_cond_fini(&threaded->room);
        ps_mem_free(threaded);
        engine->threaded = NULL;
    }
    return clean;
}
