/* The rules of who waits for whom (reference/behaviour.md 2.2).
 *
 * A variable keeps the dependencies that are not granted in push order; those at its
 * front are granted as soon as the ones before them are complete: adjacent reads
 * together, a write alone.  All of it runs under the engine's lock 'state', usually by
 * the lane thread that will run what becomes ready, so no field here is atomic except
 * the version, which anyone may read. */
#include "base/mem.h"
#include "engine/engine_ops.h"
#include "engine/segment.h"

#include <stdlib.h>

static void granted(struct ps_engine *engine, struct ps_dep *dep)
    PS_REQUIRES(engine->state)
{
    struct ps_block *block = dep->block;
    if (block == NULL) { /* the variable's deletion: nobody can follow */
        struct ps_var *var = ps_dep_var(dep);
        var->due_next = engine->due.vars;
        engine->due.vars = var;
        return;
    }
    if (--block->waiting == 0) {
        engine->ops->ready(engine, block);
    }
}

void ps_core_advance(struct ps_engine *engine, struct ps_var *var)
{
    while (var->head != NULL && !var->writing) {
        struct ps_dep *dep = var->head;
        bool writes = ps_dep_writes(dep);
        if (writes && var->readers > 0) {
            return;
        }
        enum ps_block_role role =
            dep->block != NULL ? (enum ps_block_role)dep->block->role : PS_BLOCK_PUSHED;
        if (role == PS_BLOCK_WAITER) {
            var->head = dep->next;
            engine->ops->waiter_ready(engine, dep->block);
            continue;
        }
        var->writing = writes;
        var->readers += writes ? 0 : 1;
        if (role == PS_BLOCK_ENTRY) { /* leaves the queue, or waits there to write */
            ps_replay_granted(engine, dep);
            continue;
        }
        var->head = dep->next;
        granted(engine, dep);
    }
}

void ps_core_enter(struct ps_engine *engine, struct ps_block *block)
{
    if (block->role == PS_BLOCK_ENTRY) {
        ps_replay_enter(engine, block->replay);
        return;
    }
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < block->dep_count; i++) {
        struct ps_dep *dep = &block->deps[i];
        struct ps_var *var = ps_dep_var(dep);
        if (var->deleted) { /* nobody can follow a deletion: the op will fail instead */
            block->invalid = true;
            *dep = block->deps[--block->dep_count];
            i--;
            continue;
        }
        if (ps_dep_writes(dep)) {
            var->writes++;
            if (var->head == NULL && !var->writing && var->readers == 0) {
                var->writing = true;
                continue;
            }
        } else if (var->head == NULL && !var->writing) {
            var->readers++;
            continue;
        }
        ps_core_append(var, dep);
        waiting++;
    }
    block->waiting = waiting;
    if (waiting == 0) {
        engine->ops->ready(engine, block);
    }
}

static void release_write(struct ps_var *var, struct ps_failure *failure)
{
    /* relaxed: whoever must see the bytes behind this version goes through 'state' */
    uint64_t version = atomic_load_explicit(&var->version, memory_order_relaxed);
    atomic_store_explicit(&var->version, version + 1, memory_order_relaxed);
    ps_failure_set(var, failure);
    var->writing = false;
    var->writes--;
}

void ps_core_leave(struct ps_engine *engine, struct ps_block *block,
                   struct ps_failure *failure)
{
    if (block->role == PS_BLOCK_REPLAYED) {
        ps_replay_leave(engine, block, failure);
        return;
    }
    if (failure != NULL) {
        ps_failure_hold(failure);
    }
    for (uint32_t i = 0; i < block->dep_count; i++) {
        struct ps_dep *dep = &block->deps[i];
        struct ps_var *var = ps_dep_var(dep);
        if (ps_dep_writes(dep)) {
            release_write(var, failure);
        } else if (--var->readers > 0) {
            continue; /* the front, if any, is a write that waits for all readers */
        }
        if (var->head != NULL) {
            ps_core_advance(engine, var);
        }
    }
    ps_failure_drop(failure);
    ps_failure_drop(block->failure);
    if (block->call != NULL) {
        block->call->finished++;
        ps_core_call_check(engine, block->call);
    }
    ps_block_free(engine, block);
    ps_core_count(engine);
}

void ps_core_delete(struct ps_engine *engine, struct ps_var *var)
{
    var->deleted = true;
    var->delete_dep = ps_dep_make(NULL, var, true);
    var->writes++;
    ps_core_append(var, &var->delete_dep);
    ps_core_advance(engine, var);
}

bool ps_core_due_take(struct ps_engine *engine, struct ps_due *due_out)
{
    bool any = ps_core_has_due(engine);
    *due_out = engine->due;
    engine->due = (struct ps_due){.vars = NULL};
    return any;
}

void ps_core_due_run(const struct ps_due *due)
{
    for (struct ps_var *var = due->vars; var != NULL; var = var->due_next) {
        if (var->delete_fn != NULL) {
            var->delete_fn(var->delete_arg);
        }
    }
    for (struct ps_engine_call *call = due->calls, *next; call != NULL; call = next) {
        next = call->due_next;
        if (call->op.release != NULL) {
            call->op.release(call->op.arg);
        }
        free(call->vars);
        ps_mem_free(call);
    }
    ps_segment_free_all(due->segments);
}

void ps_core_due_end(struct ps_engine *engine, const struct ps_due *due)
{
    for (struct ps_var *var = due->vars, *next; var != NULL; var = next) {
        next = var->due_next;
        ps_failure_drop(var->failure);
        var->failure = NULL;
        ps_slab_put(&engine->vars, var);
        ps_core_count(engine);
    }
}

void ps_core_unlock(struct ps_engine *engine) PS_NO_THREAD_SAFETY
{
    ps_mutex_unlock(&engine->push); /* whose functions are due may delete variables */
    engine->ops->unlock(engine);
}

void ps_core_call_check(struct ps_engine *engine, struct ps_engine_call *call)
{
    if (call->closed && call->finished == call->closed_at) {
        call->due_next = engine->due.calls;
        engine->due.calls = call;
    }
}

void ps_core_wait(struct ps_engine *engine, struct ps_block *block)
{
    PS_UNUSED(engine);
    ps_core_append(ps_dep_var(&block->deps[0]), &block->deps[0]);
}
