/* The record of one push: filled by the pusher under the lock 'push', duplicates merged
 * (a variable that is written counts as written only). */
#include "engine/engine_ops.h"
#include "engine/engine_trace.h"

#include <stdlib.h>

/* Up to this many variables each is compared with each; beyond, a mark in the variable
 * says that this push has named it (one more cache line for each). */
enum { COMPARE_MAX = 24 };

static const uint32_t dep_class_count[PS_DEP_CLASSES] = PS_DEP_CLASS_COUNTS;
/* Above the last class: malloc; and those that lie in the block itself. */
enum { DEP_CLASS_MALLOC = PS_DEP_CLASSES, DEP_CLASS_INLINE };

static struct ps_dep *deps_get(struct ps_engine *engine, uint32_t count,
                               uint8_t *class_out) PS_REQUIRES(engine->push)
{
    for (uint8_t i = 0; i < PS_DEP_CLASSES; i++) {
        if (count <= dep_class_count[i]) {
            *class_out = i;
            return ps_slab_get(&engine->dep_slabs[i], &engine->state);
        }
    }
    *class_out = DEP_CLASS_MALLOC;
    return malloc(count * sizeof(struct ps_dep));
}

static void deps_put(struct ps_engine *engine, struct ps_block *block)
    PS_REQUIRES(engine->state)
{
    if (block->dep_class == DEP_CLASS_INLINE) {
        return;
    }
    if (block->dep_class == DEP_CLASS_MALLOC) {
        free(block->deps);
    } else {
        ps_slab_put(&engine->dep_slabs[block->dep_class], block->deps);
    }
}

/* Room for 'count' variables in a fresh block; the block goes back on failure. */
static enum ps_status block_get(struct ps_engine *engine, size_t count,
                                struct ps_block **block_out) PS_REQUIRES(engine->push)
{
    if (count > UINT32_MAX) {
        return PS_EINVAL;
    }
    struct ps_push_block *slot = ps_slab_get(&engine->blocks, &engine->state);
    if (slot == NULL) {
        return PS_ENOMEM;
    }
    struct ps_block *block = &slot->block;
    block->deps = slot->inline_deps;
    block->dep_class = DEP_CLASS_INLINE;
    if (count > PS_BLOCK_INLINE_DEPS) {
        block->deps = deps_get(engine, (uint32_t)count, &block->dep_class);
        if (block->deps == NULL) {
            ps_mutex_lock(&engine->state);
            ps_slab_put(&engine->blocks, slot);
            ps_mutex_unlock(&engine->state);
            return PS_ENOMEM;
        }
    }
    *block_out = block;
    return PS_OK;
}

uint32_t ps_block_merge(struct ps_engine *engine, const struct ps_engine_op *op,
                        struct ps_block *block)
{
    uint32_t count = 0;
    bool compare = op->read_count + op->write_count <= COMPARE_MAX;
    uint64_t mark = compare ? 0 : ++engine->mark;
    for (int reads = 0; reads < 2; reads++) {
        struct ps_var *const *from = reads ? op->reads : op->writes;
        size_t from_count = reads ? op->read_count : op->write_count;
        for (size_t i = 0; i < from_count; i++) {
            struct ps_var *var = from[i];
            bool again = !compare && var->mark == mark;
            for (uint32_t j = 0; compare && j < count && !again; j++) {
                again = ps_dep_var(&block->deps[j]) == var;
            }
            if (again) {
                continue;
            }
            if (!compare) {
                var->mark = mark;
            }
            block->deps[count++] = ps_dep_make(block, var, !reads);
        }
    }
    return count;
}

static uint32_t fill_prepared(struct ps_block *block, const struct ps_engine_call *call)
{
    uint32_t writes = (uint32_t)call->op.write_count;
    uint32_t count = writes + (uint32_t)call->op.read_count;
    for (uint32_t i = 0; i < count; i++) {
        block->deps[i] = ps_dep_make(block, call->vars[i], i < writes);
    }
    return count;
}

enum ps_status ps_block_make(struct ps_engine *engine, const struct ps_engine_op *op,
                             struct ps_engine_call *call, struct ps_block **block_out)
{
    struct ps_block *block;
    PS_TRY(block_get(engine, op->read_count + op->write_count, &block));
    /* relaxed: only pushers write it, one at a time */
    uint64_t ticket = atomic_load_explicit(&engine->ticket, memory_order_relaxed) + 1;
    block->engine = engine;
    block->run = op->run;
    block->start = op->start;
    block->arg = op->arg;
    block->release = call == NULL ? op->release : NULL;
    block->name = op->name != NULL ? op->name : "op";
    block->lane = NULL;
    block->ticket = ticket;
    block->failure = NULL;
    block->call = call;
    block->priority = op->priority;
    block->context_kind = (uint8_t)op->context.kind;
    block->context_id = (uint8_t)op->context.id;
    block->no_skip = op->no_skip;
    block->keep_ready = false;
    block->invalid = false;
    block->state = PS_BLOCK_QUEUED;
    block->trace = ps_op_trace_byte(op);
    block->role = PS_BLOCK_PUSHED;
    block->dep_count =
        call != NULL ? fill_prepared(block, call) : ps_block_merge(engine, op, block);
    if (call != NULL) {
        call->pushed++;
    }
    atomic_store_explicit(&engine->ticket, ticket, memory_order_release);
    *block_out = block;
    return PS_OK;
}

void ps_block_free(struct ps_engine *engine, struct ps_block *block)
{
    deps_put(engine, block);
    block->state = PS_BLOCK_FREE;
    ps_slab_put(&engine->blocks, block);
}
