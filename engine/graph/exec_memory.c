/* From plan to tensors: blocks (or the arena), and a tensor over them for each entry. */
#include "engine/graph/exec_core.h"

#include "base/node.h"

#include <stdlib.h>
#include <string.h>

/* The arena has one engine variable, so that no two operators overlap; that costs nothing
 * where the device runs one operation at a time. */
static bool runs_one_at_a_time(const struct ps_bind_options *options)
{
    const struct ps_settings *settings = ps_engine_node(options->engine)->settings;
    switch (ps_engine_type(options->engine)) {
    case PS_ENGINE_NAIVE:
        return true;
    case PS_ENGINE_PER_DEVICE:
        return options->context.kind == PS_CONTEXT_CPU &&
               ps_settings_int(settings, PS_SET_CPU_WORKER_NTHREADS) == 1;
    default:
        return false;
    }
}

static enum ps_status make_plan(struct ps_exec_core *core)
{
    struct ps_bind_options *options = &core->options;
    bool none = options->plan == PS_PLAN_NONE;
    size_t range = none ? 0 : (size_t)options->match_range;
    struct ps_graph_plan_options plan = {.inplace = !none && options->inplace != 0,
                                         .identity = core->differentiates,
                                         .match_range = range};
    PS_TRY(ps_graph_plan(&core->graph, &plan, &core->plan));
    core->plan_kind = none ? PS_PLAN_NONE : PS_PLAN_BLOCKS;
    bool made = core->plan.offset_bytes > 0;
    if (made && (options->plan == PS_PLAN_OFFSETS ||
                 (options->plan == PS_PLAN_AUTO && runs_one_at_a_time(options) &&
                  core->plan.offset_bytes < core->plan.total_bytes))) {
        core->plan_kind = PS_PLAN_OFFSETS;
    }
    core->internal_bytes = core->plan_kind == PS_PLAN_OFFSETS ? core->plan.offset_bytes
                                                              : core->plan.total_bytes;
    return PS_OK;
}

/* ---- internal memory: from the shared executor's pool where large enough ---- */

struct supply {
    struct ps_exec_core *core;
    const struct ps_exec_core *shared;
    bool *used; /* per tensor of the shared pool */
};

static enum ps_status make_bytes(struct supply *supply, size_t bytes,
                                 struct ps_tensor **tensor_out)
{
    struct ps_exec_core *core = supply->core;
    size_t count = supply->shared == NULL ? 0 : supply->shared->pool_count;
    size_t best = count;
    for (size_t i = 0; i < count; i++) {
        size_t have = ps_tensor_bytes(supply->shared->pool[i]);
        if (!supply->used[i] && have >= bytes &&
            (best == count || have < ps_tensor_bytes(supply->shared->pool[best]))) {
            best = i;
        }
    }
    struct ps_tensor *made;
    if (best < count) {
        supply->used[best] = true;
        made = ps_tensor_retain(supply->shared->pool[best]);
    } else {
        struct ps_shape shape = PS_SHAPE((int64_t)bytes);
        PS_TRY(ps_tensor_create(core->options.engine, core->options.context, PS_U8,
                                &shape, &made));
    }
    core->pool[core->pool_count++] = made;
    *tensor_out = made;
    return PS_OK;
}

/* Largest first, so that a pool's large blocks are not taken by small requests. */
static enum ps_status make_blocks(struct supply *supply, const size_t *bytes,
                                  size_t count)
{
    struct ps_exec_core *core = supply->core;
    for (size_t made = 0; made < count; made++) {
        size_t largest = count;
        for (size_t b = 0; b < count; b++) {
            if (core->blocks[b] == NULL &&
                (largest == count || bytes[b] > bytes[largest])) {
                largest = b;
            }
        }
        PS_TRY(make_bytes(supply, bytes[largest], &core->blocks[largest]));
        core->block_count++;
    }
    return PS_OK;
}

/* Blocks of the plan with offsets: the arena, then one for each kept group.  Their
 * numbers go to groups[].block. */
static size_t offset_blocks(struct ps_memory_plan *plan, size_t *bytes)
{
    size_t count = 0;
    bytes[count++] = plan->arena_bytes;
    for (size_t g = 0; g < plan->group_count; g++) {
        plan->groups[g].block = plan->groups[g].keep ? (uint32_t)count : 0;
        if (plan->groups[g].keep) {
            plan->groups[g].offset = 0;
            bytes[count++] = plan->groups[g].bytes;
        }
    }
    return count;
}

static enum ps_status make_internal(struct ps_exec_core *core,
                                    const struct ps_exec_core *shared)
{
    struct ps_memory_plan *plan = &core->plan;
    size_t room = plan->group_count + 2;
    size_t pool = room + (shared == NULL ? 0 : shared->pool_count);
    struct supply supply = {.core = core, .shared = shared, .used = calloc(pool, 1)};
    size_t *bytes = calloc(room, sizeof(size_t));
    core->blocks = calloc(room, sizeof(struct ps_tensor *));
    core->pool = calloc(pool, sizeof(struct ps_tensor *));
    enum ps_status status = PS_ENOMEM;
    if (supply.used == NULL || bytes == NULL || core->blocks == NULL ||
        core->pool == NULL) {
        goto out;
    }
    size_t count = plan->block_count;
    if (core->plan_kind == PS_PLAN_OFFSETS) {
        count = offset_blocks(plan, bytes);
    } else {
        memcpy(bytes, plan->block_bytes, count * sizeof(size_t));
        for (size_t g = 0; g < plan->group_count; g++) {
            plan->groups[g].offset = 0;
        }
    }
    PS_TRY_GOTO(status, make_blocks(&supply, bytes, count), out);
    for (size_t i = 0; shared != NULL && i < shared->pool_count; i++) {
        if (!supply.used[i]) {
            core->pool[core->pool_count++] = ps_tensor_retain(shared->pool[i]);
        }
    }
out:
    free(bytes);
    free(supply.used);
    return status;
}

/* ---- entries ---- */

static enum ps_status place_entry(struct ps_exec_core *core, size_t e)
{
    const struct ps_graph_entry *entry = &core->graph.entries[e];
    enum ps_node_kind kind = core->graph.nodes[entry->node].kind;
    uint32_t group = core->plan.group_of[e];
    if (kind == PS_NODE_HEAD_GRAD) {
        return ps_tensor_create(core->options.engine, core->options.context, entry->dtype,
                                &entry->shape, &core->entries[e]);
    }
    if (core->entries[e] != NULL || group == PS_PLAN_NOWHERE) {
        return PS_OK;
    }
    const struct ps_plan_group *place = &core->plan.groups[group];
    return ps_tensor_at(core->blocks[place->block], place->offset, entry->dtype,
                        &entry->shape, &core->entries[e]);
}

static void place_given(struct ps_exec_core *core, const struct ps_exec_inputs *inputs)
{
    struct ps_graph *graph = &core->graph;
    for (size_t i = 0; i < graph->argument_count; i++) {
        core->entries[graph->nodes[graph->arguments[i]].first_entry] =
            ps_tensor_retain(inputs->arguments[i]);
        if (graph->gradients[i] != PS_NO_ENTRY) {
            core->entries[graph->gradients[i]] = ps_tensor_retain(inputs->gradients[i]);
        }
    }
    for (size_t i = 0; i < graph->auxiliary_count; i++) {
        core->entries[graph->nodes[graph->auxiliaries[i]].first_entry] =
            ps_tensor_retain(inputs->auxiliaries[i]);
    }
}

enum ps_status ps_exec_make_memory(struct ps_exec_core *core,
                                   const struct ps_exec_inputs *inputs,
                                   const struct ps_exec_core *shared,
                                   struct ps_error *err)
{
    size_t entries = core->graph.entry_count;
    core->entries = calloc(entries + 1, sizeof(struct ps_tensor *));
    if (core->entries == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status;
    PS_TRY_GOTO(status, make_plan(core), out);
    PS_TRY_GOTO(status, make_internal(core, shared), out);
    place_given(core, inputs);
    for (size_t e = 0; e < entries; e++) {
        PS_TRY_GOTO(status, place_entry(core, e), out);
    }
out:
    return status == PS_OK ? PS_OK
                           : ps_error_set(err, status, "internal memory of %zu bytes: %s",
                                          core->internal_bytes, ps_status_text(status));
}
