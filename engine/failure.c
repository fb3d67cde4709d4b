/* Errors that travel along variables.
 *
 * A failure is made once, where an operation failed, and shared by every variable that it
 * spoiled: waiting on one of them reports and clears it for all.  Everything here runs
 * under the engine's lock 'state'. */
#include "base/log.h"
#include "base/node.h"
#include "engine/engine_ops.h"

#include <stdlib.h>

/* Failures that nobody has asked for and no variable carries; more are not kept, so that
 * a program that never waits does not grow. */
enum { MAX_REMEMBERED = 256 };

struct ps_failure *ps_failure_make(struct ps_engine *engine, const char *name,
                                   enum ps_status status, const char *text)
{
    const char *words = text != NULL && text[0] != '\0' ? text : ps_status_text(status);
    struct ps_failure *failure = calloc(1, sizeof(*failure));
    if (failure == NULL) {
        if (engine->reserve_in_use) {
            /* no memory, twice: it joins the oldest error, which is the one reported */
            return PS_CONTAINER_OF(engine->failures.next, struct ps_failure, link);
        }
        failure = &engine->reserve;
        *failure = (struct ps_failure){.refs = 0};
        engine->reserve_in_use = true;
    }
    failure->engine = engine;
    (void)ps_error_set(&failure->error, status, "%s: %s", name, words);
    PS_LOG(engine->node->log, DEBUG, ENGINE, "op %s failed: %s", name, words);
    ps_list_push_back(&engine->failures, &failure->link);
    engine->failure_count++;
    return failure;
}

void ps_failure_hold(struct ps_failure *failure)
{
    failure->refs++;
}

static void failure_free(struct ps_failure *failure) PS_NO_THREAD_SAFETY
{
    struct ps_engine *engine = failure->engine;
    ps_list_remove(&failure->link);
    engine->failure_count -= failure->cleared ? 0 : 1;
    if (failure == &engine->reserve) {
        engine->reserve_in_use = false;
    } else {
        free(failure);
    }
}

void ps_failure_drop(struct ps_failure *failure) PS_NO_THREAD_SAFETY
{
    if (failure == NULL || --failure->refs > 0) {
        return;
    }
    struct ps_engine *engine = failure->engine;
    bool oldest = engine->failures.next == &failure->link;
    if (failure->cleared || (!oldest && engine->failure_count > MAX_REMEMBERED)) {
        failure_free(failure);
    }
}

/* What 'var' carries; forgets a failure that was cleared elsewhere. */
static struct ps_failure *var_failure(struct ps_var *var)
{
    if (var->failure != NULL && var->failure->cleared) {
        ps_failure_drop(var->failure);
        var->failure = NULL;
    }
    return var->failure;
}

/* Of the variables of a prepared operation: its reads, then its writes. */
static struct ps_failure *call_failure(const struct ps_engine_call *call)
{
    size_t writes = call->op.write_count, count = writes + call->op.read_count;
    for (size_t i = 0; i < count; i++) {
        struct ps_failure *failure = var_failure(call->vars[(writes + i) % count]);
        if (failure != NULL) {
            return failure;
        }
    }
    return NULL;
}

struct ps_failure *ps_failure_inherited(const struct ps_block *block)
{
    if (block->role == PS_BLOCK_REPLAYED) {
        return call_failure(block->call);
    }
    for (int writes = 0; writes <= 1; writes++) {
        for (uint32_t i = 0; i < block->dep_count; i++) {
            const struct ps_dep *dep = &block->deps[i];
            struct ps_failure *failure =
                ps_dep_writes(dep) == (writes != 0) ? var_failure(ps_dep_var(dep)) : NULL;
            if (failure != NULL) {
                return failure;
            }
        }
    }
    return NULL;
}

void ps_failure_set(struct ps_var *var, struct ps_failure *failure)
{
    if (failure == NULL || var_failure(var) != NULL) {
        return; /* the older one is nearer to the root */
    }
    ps_failure_hold(failure);
    var->failure = failure;
}

static void clear(struct ps_engine *engine, struct ps_failure *failure)
    PS_REQUIRES(engine->state)
{
    if (failure->refs == 0) {
        failure_free(failure);
        return;
    }
    failure->cleared = true; /* its variables forget it when they next look */
    ps_list_remove(&failure->link);
    ps_list_push_back(&engine->cleared, &failure->link);
    engine->failure_count--;
}

enum ps_status ps_failure_take(struct ps_engine *engine, struct ps_failure *failure,
                               struct ps_error *err)
{
    if (failure == NULL || failure->cleared) {
        return PS_OK;
    }
    enum ps_status status = failure->error.status;
    if (err != NULL) {
        *err = failure->error;
    }
    clear(engine, failure);
    return status;
}

enum ps_status ps_failure_take_all(struct ps_engine *engine, struct ps_error *err)
{
    enum ps_status status = PS_OK;
    while (!ps_list_empty(&engine->failures)) {
        struct ps_failure *failure =
            PS_CONTAINER_OF(engine->failures.next, struct ps_failure, link);
        if (status == PS_OK) {
            status = ps_failure_take(engine, failure, err);
        } else {
            clear(engine, failure);
        }
    }
    return status;
}

void ps_failure_free_all(struct ps_engine *engine)
{
    (void)ps_failure_take_all(engine, NULL);
    while (!ps_list_empty(&engine->cleared)) {
        failure_free(PS_CONTAINER_OF(engine->cleared.next, struct ps_failure, link));
    }
}
