/* The threaded engines: pushes, the inbox, running, completion.  Waits and shutdown are
 * in threaded_wait.c, lanes in lane.c, who runs where in pooled.c and per_device.c. */
#include "engine/threaded.h"

#include "base/mem.h"
#include "base/node.h"
#include "engine/engine_trace.h"

#include <stdio.h>
#include <stdlib.h>

/* The lock 'state' is held for some hundred nanoseconds; a try costs about ten. */
enum { LOCK_TRIES = 100 };

enum { WAKE_BATCH = 8 };

enum ps_status ps_threaded_create(struct ps_engine *engine, struct ps_error *err)
{
    struct ps_threaded *threaded = ps_mem_calloc(sizeof(*threaded));
    if (threaded == NULL) {
        return ps_error_set(err, PS_ENOMEM, "engine: out of memory");
    }
    threaded->max_inflight =
        (uint64_t)ps_settings_int(engine->node->settings, PS_SET_ENGINE_MAX_INFLIGHT);
    /* so many must have finished that waking the pusher pays: half of the bound */
    threaded->low_water = threaded->max_inflight / 2;
    threaded->look_cores = (uint32_t)ps_cpu_count() - 1;
    ps_cond_init(&threaded->all_done);
    ps_cond_init(&threaded->room);
    engine->threaded = threaded;
    return PS_OK;
}

void ps_threaded_lock(struct ps_engine *engine) PS_NO_THREAD_SAFETY
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (ps_mutex_try_lock(&engine->state)) {
            return;
        }
        ps_threaded_pause();
    }
    ps_mutex_lock(&engine->state);
}

bool ps_threaded_has_due(struct ps_engine *engine)
{
    return ps_core_has_due(engine) || engine->threaded->wake != NULL;
}

/* Wakes those who wait for the number of unfinished operations to fall. */
static void check_waiters(struct ps_engine *engine) PS_REQUIRES(engine->state)
{
    struct ps_threaded *threaded = engine->threaded;
    if (threaded->all_waiters == 0 && threaded->room_waiters == 0) {
        return;
    }
    uint64_t pending = atomic_load_explicit(&engine->ticket, memory_order_acquire) -
                       atomic_load_explicit(&engine->completed, memory_order_relaxed);
    if (threaded->all_waiters > 0 && pending == 0) {
        ps_cond_broadcast(&threaded->all_done);
    }
    if (threaded->room_waiters > 0 && pending <= threaded->low_water) {
        threaded->room_waiters = 0; /* who is not content waits again */
        ps_cond_broadcast(&threaded->room);
    }
}

/* Takes up to WAKE_BATCH lanes off the list.  Their links are read under the lock: a lane
 * whose thread wakes by itself may be linked again at once. */
static size_t take_wakes(struct ps_threaded *threaded, struct ps_lane *wake[WAKE_BATCH])
{
    size_t count = 0;
    while (threaded->wake != NULL && count < WAKE_BATCH) {
        wake[count++] = threaded->wake;
        threaded->wake = threaded->wake->wake_next;
    }
    return count;
}

void ps_threaded_unlock_pusher(struct ps_engine *engine)
{
    for (;;) {
        struct ps_lane *wake[WAKE_BATCH];
        size_t wake_count = take_wakes(engine->threaded, wake);
        bool again = engine->threaded->wake != NULL;
        ps_mutex_unlock(&engine->state);
        for (size_t i = 0; i < wake_count; i++) {
            ps_cond_signal(&wake[i]->cond);
        }
        if (!again) {
            return;
        }
        ps_threaded_lock(engine);
    }
}

void ps_threaded_unlock(struct ps_engine *engine)
{
    if (!ps_threaded_has_due(engine)) {
        ps_mutex_unlock(&engine->state);
        return;
    }
    for (;;) {
        struct ps_lane *wake[WAKE_BATCH];
        struct ps_due due;
        size_t wake_count = take_wakes(engine->threaded, wake);
        bool again = ps_core_due_take(engine, &due) || engine->threaded->wake != NULL;
        ps_mutex_unlock(&engine->state);
        for (size_t i = 0; i < wake_count; i++) {
            ps_cond_signal(&wake[i]->cond);
        }
        if (!again) {
            return;
        }
        ps_core_due_run(&due);
        ps_threaded_lock(engine);
        ps_core_due_end(engine, &due);
        check_waiters(engine);
    }
}

void ps_threaded_ready(struct ps_engine *engine, struct ps_block *block)
{
    if (!block->keep_ready) {
        ps_ready_push(&block->lane->ready, block);
        ps_lane_wake(engine, block->lane);
    }
}

/* ---- running ---- */

static void finish(struct ps_engine *engine, struct ps_block *block,
                   struct ps_failure *failure) PS_REQUIRES(engine->state)
{
    ps_core_leave(engine, block, failure);
    check_waiters(engine);
}

/* Whether the operation must not run; '*failure_out' is what its variables then carry. */
static bool must_skip(struct ps_engine *engine, struct ps_block *block,
                      struct ps_failure **failure_out) PS_REQUIRES(engine->state)
{
    struct ps_failure *failure = NULL;
    if (block->invalid) {
        failure = ps_failure_make(engine, block->name, PS_EINVAL,
                                  "uses a variable that was deleted");
    } else if (engine->failure_count > 0) {
        failure = ps_failure_inherited(block);
    }
    if (failure != NULL) {
        ps_failure_hold(failure);
        block->failure = failure;
    }
    *failure_out = failure;
    return engine->skipping || block->invalid || (failure != NULL && !block->no_skip);
}

/* run_sync's work when the profiler wants it; the lock is free meanwhile. */
static enum ps_status run_traced(struct ps_engine *engine, const struct ps_block *block,
                                 const struct ps_run *run, struct ps_error *err)
    PS_RELEASE(engine->state)
{
    uint32_t ready = (uint32_t)block->lane->ready.count;
    ps_threaded_unlock(engine);
    uint64_t begin_ns = ps_trace_now(engine->trace);
    enum ps_status status = block->run(block->arg, run, err);
    status = ps_engine_end_run(run, status, err);
    ps_op_trace_span(engine, block, begin_ns, status, ready);
    return status;
}

static void run_sync(struct ps_engine *engine, struct ps_block *block,
                     const struct ps_run *run) PS_REQUIRES(engine->state)
{
    struct ps_error error;
    error.status = PS_OK;
    error.text[0] = '\0';
    engine->threaded->running++;
    enum ps_status status;
    if (ps_op_is_traced(engine, block)) {
        status = run_traced(engine, block, run, &error);
    } else {
        ps_threaded_unlock(engine);
        status = block->run(block->arg, run, &error);
        if (run->stream != NULL) {
            status = ps_engine_end_run(run, status, &error);
        }
    }
    if (block->release != NULL) {
        block->release(block->arg);
    }
    ps_threaded_lock(engine);
    engine->threaded->running--;
    struct ps_failure *failure = NULL;
    if (status != PS_OK) {
        /* an op that saw an error and gives up hands on the root, not a new one */
        failure = block->failure != NULL
                      ? block->failure
                      : ps_failure_make(engine, block->name, status, error.text);
    }
    finish(engine, block, failure);
}

void ps_threaded_run(struct ps_engine *engine, struct ps_block *block,
                     const struct ps_lane_thread *thread)
{
    bool has_stream = thread != NULL && block->context_kind == PS_CONTEXT_GPU;
    struct ps_failure *failure;
    bool skip = must_skip(engine, block, &failure);
    struct ps_run run = {
        .engine = engine,
        .context = {.kind = (enum ps_context_kind)block->context_kind,
                    .id = block->context_id},
        .stream = has_stream ? thread->streams[block->context_id] : NULL,
        .upstream = failure != NULL ? &failure->error : NULL,
    };
    block->state = PS_BLOCK_STARTED;
    if (skip) {
        if (block->release != NULL) {
            ps_threaded_unlock(engine);
            block->release(block->arg);
            ps_threaded_lock(engine);
        }
        finish(engine, block, failure);
    } else if (block->run != NULL) {
        run_sync(engine, block, &run);
    } else {
        engine->threaded->async_out++;
        ps_threaded_unlock(engine);
        if (ps_op_is_traced(engine, block)) {
            ps_op_trace_start(engine, block);
        }
        block->start(block->arg, &run, (struct ps_completion *)block);
        ps_threaded_lock(engine); /* the block may be gone by now */
    }
}

void ps_threaded_complete(struct ps_block *block, enum ps_status status, const char *text)
{
    struct ps_engine *engine = block->engine;
    ps_threaded_lock(engine);
    if (block->state != PS_BLOCK_STARTED) {
        ps_threaded_unlock(engine);
        PS_LOG(engine->node->log, ERROR, ENGINE, "op %s completed twice, ignored",
               block->name);
        return;
    }
    block->state = PS_BLOCK_QUEUED; /* a second completion is refused from here on */
    if (ps_op_is_traced(engine, block)) {
        ps_op_trace_end(engine, block);
    }
    char words[PS_ERROR_TEXT_BYTES] = "";
    if (status != PS_OK && text != NULL) { /* it may lie in what 'release' frees */
        (void)snprintf(words, sizeof(words), "%s", text);
    }
    if (block->release != NULL) {
        ps_threaded_unlock(engine);
        block->release(block->arg);
        ps_threaded_lock(engine);
    }
    engine->threaded->async_out--;
    struct ps_failure *failure = NULL;
    if (status != PS_OK) {
        failure = block->failure != NULL
                      ? block->failure
                      : ps_failure_make(engine, block->name, status, words);
    }
    finish(engine, block, failure);
    ps_threaded_unlock(engine);
}

/* ---- pushing ---- */

void ps_threaded_admit(struct ps_engine *engine, bool unbounded)
{
    struct ps_threaded *threaded = engine->threaded;
    uint64_t now = atomic_load_explicit(&engine->ticket, memory_order_relaxed);
    if (now - threaded->completed_seen < threaded->max_inflight || unbounded ||
        ps_engine_is_inside(engine)) {
        return;
    }
    for (;;) {
        uint64_t ticket = atomic_load_explicit(&engine->ticket, memory_order_relaxed);
        if (ticket - threaded->completed_seen < threaded->max_inflight) {
            return;
        }
        threaded->completed_seen =
            atomic_load_explicit(&engine->completed, memory_order_acquire);
        if (ticket - threaded->completed_seen < threaded->max_inflight) {
            return;
        }
        ps_mutex_unlock(&engine->push);
        ps_threaded_wait_for_room(engine);
        ps_mutex_lock(&engine->push);
    }
}

void ps_threaded_run_here(struct ps_engine *engine, struct ps_block *block)
{
    bool was_inside = ps_engine_is_inside(engine);
    uint64_t mode = ps_thread_compute_begin();
    ps_engine_set_inside(engine, true);
    ps_threaded_run(engine, block, NULL);
    ps_engine_set_inside(engine, was_inside);
    ps_thread_compute_end(mode);
}

/* An operation of kind 'async': entered at once, and run here when nothing is in its way.
 * Takes the locks in order and leaves with neither. */
static void push_async(struct ps_engine *engine, struct ps_block *block)
    PS_RELEASE(engine->push)
{
    block->keep_ready = true;
    ps_threaded_lock(engine);
    ps_threaded_resolve(engine);
    ps_core_enter(engine, block);
    block->keep_ready = false;
    ps_mutex_unlock(&engine->push);
    if (block->waiting == 0) {
        ps_threaded_run_here(engine, block);
    }
    ps_threaded_unlock(engine);
}

enum ps_status ps_threaded_push(struct ps_engine *engine, const struct ps_engine_op *op,
                                struct ps_engine_call *call, ps_route_fn route)
{
    struct ps_lane *lane;
    struct ps_block *block;
    enum ps_status status = PS_OK;
    ps_mutex_lock(&engine->push);
    ps_threaded_admit(engine, op->unbounded);
    if (engine->closing) {
        status = PS_ECLOSED;
        goto unlock;
    }
    PS_TRY_GOTO(status, route(engine, op, &lane), unlock);
    PS_TRY_GOTO(status, ps_block_make(engine, op, call, &block), unlock);
    block->lane = lane;
    if (op->kind == PS_ENGINE_ASYNC) {
        push_async(engine, block);
        return PS_OK;
    }
    ps_threaded_put(engine, block);
    ps_mutex_unlock(&engine->push);
    if (atomic_load_explicit(&lane->asleep, memory_order_seq_cst)) {
        ps_threaded_lock(engine);
        ps_threaded_resolve(engine);
        ps_threaded_unlock(engine);
    }
    return PS_OK;
unlock:
    ps_mutex_unlock(&engine->push);
    return status;
}

void ps_threaded_var_delete(struct ps_engine *engine, struct ps_var *var)
{
    ps_mutex_lock(&engine->push);
    /* relaxed: only pushers write it, one at a time */
    uint64_t ticket = atomic_load_explicit(&engine->ticket, memory_order_relaxed);
    atomic_store_explicit(&engine->ticket, ticket + 1, memory_order_release);
    ps_threaded_lock(engine);
    ps_threaded_resolve(engine);
    ps_core_delete(engine, var);
    ps_mutex_unlock(&engine->push);
    ps_threaded_unlock(engine);
}
