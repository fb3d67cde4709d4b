/* NaiveEngine: an operation runs inside its push, on the caller's thread.
 *
 * One operation at a time: threads (or, in the simulation, programs) that push meanwhile
 * take turns in the order they came.  A push from inside an operation is put off until
 * that operation has ended, so it sees its results, as in the other engines.
 * Asynchronous operations are waited for through ps_event, so that the naive engine
 * works on the simulation's virtual clock. */
#include "base/loop.h"
#include "base/mem.h"
#include "base/node.h"
#include "engine/device/device.h"
#include "engine/engine_ops.h"
#include "engine/engine_trace.h"
#include "engine/segment.h"

#include <stdlib.h>

/* Somebody who waits for his turn. */
struct turn {
    struct ps_list link;
    struct ps_event event;
};

struct ps_naive {
    /* under the engine's lock 'state' */
    bool busy;
    struct ps_list turns;
    struct ps_block *deferred, *deferred_tail; /* pushed from inside an operation */
    /* of the asynchronous operation that is being waited for; one at a time */
    struct ps_block *async_block;
    struct ps_event async_done;
    struct ps_error async_error; /* filled by the completer before it sets the event */
    /* one of each GPU, made under 'push' at its first operation */
    struct ps_stream *streams[PS_CONTEXT_MAX_ID + 1];
};

static void unlock(struct ps_engine *engine) PS_RELEASE(engine->state)
{
    struct ps_due due;
    while (ps_core_due_take(engine, &due)) {
        ps_mutex_unlock(&engine->state);
        ps_core_due_run(&due);
        ps_mutex_lock(&engine->state);
        ps_core_due_end(engine, &due);
    }
    ps_mutex_unlock(&engine->state);
}

/* ---- turns ---- */

static enum ps_status take_turn(struct ps_engine *engine)
{
    struct ps_naive *naive = engine->naive;
    struct turn turn;
    enum ps_status status = PS_OK;
    ps_mutex_lock(&engine->state);
    if (!naive->busy) {
        naive->busy = true;
        ps_mutex_unlock(&engine->state);
        return PS_OK;
    }
    status = ps_event_init(&turn.event, engine->node->driver);
    if (status != PS_OK) {
        ps_mutex_unlock(&engine->state);
        return status;
    }
    ps_list_push_back(&naive->turns, &turn.link);
    ps_mutex_unlock(&engine->state);
    /* the one before us has a deadline of its own, so this wait ends */
    status = ps_event_wait(&turn.event, PS_NEVER);
    ps_mutex_lock(&engine->state);
    if (status != PS_OK && turn.link.next != &turn.link) {
        ps_list_remove(&turn.link); /* the simulation says that nobody will ever call */
    } else {
        status = PS_OK;
    }
    ps_mutex_unlock(&engine->state);
    ps_event_fini(&turn.event);
    return status;
}

static void give_turn(struct ps_engine *engine)
{
    struct ps_naive *naive = engine->naive;
    ps_mutex_lock(&engine->state);
    struct ps_list *next = ps_list_pop_front(&naive->turns);
    if (next == NULL) {
        naive->busy = false;
    } else {
        ps_event_set(&PS_CONTAINER_OF(next, struct turn, link)->event);
    }
    ps_mutex_unlock(&engine->state);
}

/* ---- running ---- */

/* Runs 'start' and waits for the completion. */
static enum ps_status run_async(struct ps_engine *engine, struct ps_block *block,
                                const struct ps_run *run, struct ps_error *err)
{
    struct ps_naive *naive = engine->naive;
    ps_event_reset(&naive->async_done);
    naive->async_error.status = PS_OK;
    ps_mutex_lock(&engine->state);
    naive->async_block = block;
    ps_mutex_unlock(&engine->state);
    ps_engine_set_inside(engine, true);
    block->start(block->arg, run, (struct ps_completion *)block);
    ps_engine_set_inside(engine, false);
    /* the operation's own deadline ends this wait */
    enum ps_status status = ps_event_wait(&naive->async_done, PS_NEVER);
    ps_mutex_lock(&engine->state);
    naive->async_block = NULL;
    ps_mutex_unlock(&engine->state);
    if (status != PS_OK) {
        return ps_error_set(err, status, "nothing is left that could complete it");
    }
    *err = naive->async_error;
    return err->status;
}

static enum ps_status run_block(struct ps_engine *engine, struct ps_block *block,
                                const struct ps_run *run, struct ps_error *err)
{
    if (block->start != NULL) {
        return run_async(engine, block, run, err);
    }
    ps_engine_set_inside(engine, true);
    enum ps_status status = block->run(block->arg, run, err);
    ps_engine_set_inside(engine, false);
    return ps_engine_end_run(run, status, err);
}

/* The caller has the turn: every earlier operation is complete. */
static void execute(struct ps_engine *engine, struct ps_block *block)
{
    struct ps_error error = {.status = PS_OK};
    struct ps_failure *failure;
    ps_mutex_lock(&engine->state);
    ps_core_enter(engine, block);
    if (block->invalid) {
        failure = ps_failure_make(engine, block->name, PS_EINVAL,
                                  "uses a variable that was deleted");
    } else {
        failure = engine->failure_count > 0 ? ps_failure_inherited(block) : NULL;
    }
    if (failure != NULL) {
        ps_failure_hold(failure);
        block->failure = failure;
    }
    bool skip =
        engine->skipping || block->invalid || (failure != NULL && !block->no_skip);
    block->state = PS_BLOCK_STARTED;
    unlock(engine);

    struct ps_run run = {
        .engine = engine,
        .context = {.kind = (enum ps_context_kind)block->context_kind,
                    .id = block->context_id},
        .stream = block->context_kind == PS_CONTEXT_GPU
                      ? engine->naive->streams[block->context_id]
                      : NULL,
        .upstream = failure != NULL ? &failure->error : NULL,
    };
    uint64_t mode = ps_thread_compute_begin(); /* as on the other engines' threads */
    bool traced = !skip && ps_op_is_traced(engine, block);
    uint64_t begin_ns = traced ? ps_trace_now(engine->trace) : 0;
    enum ps_status status = skip ? PS_OK : run_block(engine, block, &run, &error);
    if (traced) {
        ps_op_trace_span(engine, block, begin_ns, status, 0);
    }
    ps_thread_compute_end(mode);
    if (block->release != NULL) {
        block->release(block->arg);
    }
    ps_mutex_lock(&engine->state);
    if (!skip && status == PS_OK) {
        failure = NULL;
    } else if (!skip && failure == NULL) {
        failure = ps_failure_make(engine, block->name, status, error.text);
    }
    ps_core_leave(engine, block, failure);
    unlock(engine);
}

static struct ps_block *take_deferred(struct ps_engine *engine)
{
    struct ps_naive *naive = engine->naive;
    ps_mutex_lock(&engine->state);
    struct ps_block *block = naive->deferred;
    if (block != NULL) {
        naive->deferred = block->next;
    }
    ps_mutex_unlock(&engine->state);
    return block;
}

static void defer(struct ps_engine *engine, struct ps_block *block)
{
    struct ps_naive *naive = engine->naive;
    ps_mutex_lock(&engine->state);
    block->next = NULL;
    if (naive->deferred == NULL) {
        naive->deferred = block;
    } else {
        naive->deferred_tail->next = block;
    }
    naive->deferred_tail = block;
    ps_mutex_unlock(&engine->state);
}

static void naive_ready(struct ps_engine *engine, struct ps_block *block)
{
    PS_UNUSED(engine); /* the pusher runs it */
    PS_UNUSED(block);
}

/* ---- the slots ---- */

/* The device and the stream of an operation on a GPU; under 'push'. */
static enum ps_status open_gpu(struct ps_engine *engine, struct ps_context context)
{
    struct ps_stream **place = &engine->naive->streams[context.id];
    struct ps_device *device;
    struct ps_error error = {.status = PS_OK};
    if (*place != NULL) {
        return PS_OK;
    }
    enum ps_status status = ps_engine_device(engine, context, &device, &error);
    if (status == PS_OK) {
        status = ps_device_stream_create(device, PS_STREAM_COMPUTE, place);
    }
    if (status != PS_OK) {
        ps_engine_log_no_lane(engine, context, status, &error);
    }
    return status;
}

static enum ps_status make_block(struct ps_engine *engine, const struct ps_engine_op *op,
                                 struct ps_engine_call *call, struct ps_block **block_out)
    PS_REQUIRES(engine->push)
{
    if (engine->closing) {
        return PS_ECLOSED;
    }
    if (op->context.kind == PS_CONTEXT_GPU) {
        PS_TRY(open_gpu(engine, op->context));
    }
    return ps_block_make(engine, op, call, block_out);
}

static enum ps_status make_one(struct ps_engine *engine, const struct ps_engine_op *op,
                               struct ps_engine_call *call, struct ps_block **block_out)
{
    ps_mutex_lock(&engine->push);
    enum ps_status status = make_block(engine, op, call, block_out);
    ps_mutex_unlock(&engine->push);
    return status;
}

/* A block of each operation of 'segment', in order and linked; all or none. */
static enum ps_status make_all(struct ps_engine *engine, struct ps_segment *segment,
                               struct ps_block **first_out)
{
    struct ps_block *first = NULL, **end = &first;
    enum ps_status status = PS_OK;
    ps_mutex_lock(&engine->push);
    uint64_t ticket = atomic_load_explicit(&engine->ticket, memory_order_relaxed);
    for (uint32_t i = 0; i < segment->count && status == PS_OK; i++) {
        struct ps_engine_call *call = segment->calls[i];
        status = make_block(engine, &call->op, call, end);
        if (status == PS_OK) {
            (*end)->next = NULL;
            end = &(*end)->next;
        }
    }
    if (status == PS_OK) {
        *first_out = first;
    } else { /* nobody else pushed meanwhile: as if nothing had been made */
        ps_mutex_lock(&engine->state);
        for (struct ps_block *block = first, *next; block != NULL; block = next) {
            next = block->next;
            block->call->pushed--;
            ps_block_free(engine, block);
        }
        ps_mutex_unlock(&engine->state);
        atomic_store_explicit(&engine->ticket, ticket, memory_order_release);
    }
    ps_mutex_unlock(&engine->push);
    return status;
}

static enum ps_status naive_push(struct ps_engine *engine, const struct ps_engine_op *op,
                                 struct ps_engine_call *call)
{
    struct ps_block *block;
    if (ps_engine_is_inside(engine)) {
        PS_TRY(make_one(engine, op, call, &block));
        defer(engine, block);
        return PS_OK;
    }
    PS_TRY(take_turn(engine));
    enum ps_status status = make_one(engine, op, call, &block);
    if (status == PS_OK) {
        do {
            execute(engine, block);
            block = take_deferred(engine);
        } while (block != NULL);
    }
    give_turn(engine);
    return status;
}

/* Its operations are put off, in order, and then done with what they push. */
static enum ps_status naive_push_segment(struct ps_engine *engine,
                                         struct ps_segment *segment)
{
    bool inside = ps_engine_is_inside(engine);
    struct ps_block *block = NULL;
    if (!inside) {
        PS_TRY(take_turn(engine));
    }
    enum ps_status status = make_all(engine, segment, &block);
    for (struct ps_block *next; status == PS_OK && block != NULL; block = next) {
        next = block->next;
        defer(engine, block);
    }
    if (inside) {
        return status;
    }
    while ((block = take_deferred(engine)) != NULL) {
        execute(engine, block);
    }
    give_turn(engine);
    return status;
}

static void naive_var_delete(struct ps_engine *engine, struct ps_var *var)
{
    ps_mutex_lock(&engine->push);
    /* relaxed: only pushers write it, one at a time */
    uint64_t ticket = atomic_load_explicit(&engine->ticket, memory_order_relaxed);
    atomic_store_explicit(&engine->ticket, ticket + 1, memory_order_release);
    ps_mutex_lock(&engine->state);
    ps_core_delete(engine, var);
    ps_mutex_unlock(&engine->push);
    unlock(engine);
}

static void naive_complete(struct ps_block *block, enum ps_status status,
                           const char *text)
{
    struct ps_engine *engine = block->engine;
    struct ps_naive *naive = engine->naive;
    ps_mutex_lock(&engine->state);
    bool expected = naive->async_block == block && block->state == PS_BLOCK_STARTED;
    if (expected) {
        block->state = PS_BLOCK_QUEUED; /* a second completion is refused from here on */
        if (status != PS_OK) {
            (void)ps_error_set(&naive->async_error, status, "%s",
                               text != NULL ? text : "");
        }
        ps_event_set(&naive->async_done);
    }
    ps_mutex_unlock(&engine->state);
    if (!expected) {
        PS_LOG(engine->node->log, ERROR, ENGINE, "op completed twice, ignored");
    }
}

static enum ps_status naive_wait_var(struct ps_engine *engine, struct ps_var *var,
                                     struct ps_error *err)
{
    enum ps_status status = take_turn(engine); /* whatever was pushed is then complete */
    if (status != PS_OK) {
        return ps_error_set(err, status, "an operation of another thread never ends");
    }
    ps_mutex_lock(&engine->state);
    if (var->deleted) {
        status = ps_error_set(err, PS_EINVAL, "wait on a variable that was deleted");
    } else {
        status = ps_failure_take(engine, var->failure, err);
    }
    ps_mutex_unlock(&engine->state);
    give_turn(engine);
    return status;
}

static enum ps_status naive_wait_all(struct ps_engine *engine, struct ps_error *err)
{
    enum ps_status status = take_turn(engine);
    if (status != PS_OK) {
        return ps_error_set(err, status, "an operation of another thread never ends");
    }
    ps_mutex_lock(&engine->state);
    status = ps_failure_take_all(engine, err);
    ps_mutex_unlock(&engine->state);
    give_turn(engine);
    return status;
}

/* Ends an operation whose program is gone. */
static void abandon(struct ps_engine *engine, struct ps_block *block, bool entered)
{
    if (block->release != NULL) {
        block->release(block->arg);
    }
    ps_mutex_lock(&engine->state);
    if (!entered) {
        ps_core_enter(engine, block);
    }
    ps_core_leave(engine, block, NULL);
    unlock(engine);
}

static bool naive_stop(struct ps_engine *engine)
{
    struct ps_naive *naive = engine->naive;
    if (naive == NULL) {
        return true;
    }
    ps_mutex_lock(&engine->push);
    engine->closing = true;
    ps_mutex_unlock(&engine->push);
    ps_mutex_lock(&engine->state);
    struct ps_block *out = naive->async_block;
    bool busy = naive->busy;
    engine->skipping = true;
    unlock(engine);
    if (busy && engine->node->sim == NULL) {
        PS_LOG(engine->node->log, ERROR, ENGINE,
               "a thread is in a push at the engine's end, memory left");
        return false;
    }
    /* a simulated program that was killed in its push never comes back to it */
    if (out != NULL) {
        abandon(engine, out, true);
    }
    for (struct ps_block *block = take_deferred(engine); block != NULL;
         block = take_deferred(engine)) {
        abandon(engine, block, false);
    }
    for (size_t i = 0; i < PS_COUNT(naive->streams); i++) {
        ps_stream_destroy(naive->streams[i]);
    }
    ps_event_fini(&naive->async_done);
    free(naive);
    engine->naive = NULL;
    return true;
}

static enum ps_status naive_start(struct ps_engine *engine, struct ps_error *err)
{
    struct ps_naive *naive = calloc(1, sizeof(*naive));
    if (naive == NULL) {
        return ps_error_set(err, PS_ENOMEM, "engine: out of memory");
    }
    enum ps_status status = ps_event_init(&naive->async_done, engine->node->driver);
    if (status != PS_OK) {
        free(naive);
        return ps_error_set(err, status, "engine: cannot make an event");
    }
    ps_list_init(&naive->turns);
    engine->naive = naive;
    return PS_OK;
}

const struct ps_engine_ops ps_engine_naive_ops = {
    .name = "NaiveEngine",
    .type = PS_ENGINE_NAIVE,
    .start = naive_start,
    .stop = naive_stop,
    .push = naive_push,
    .push_segment = naive_push_segment,
    .var_delete = naive_var_delete,
    .complete = naive_complete,
    .wait_var = naive_wait_var,
    .wait_all = naive_wait_all,
    .ready = naive_ready,
    .waiter_ready = naive_ready,
    .unlock = unlock,
};
