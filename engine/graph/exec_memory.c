/* From plan to tensors: blocks and workspaces (or the arena), and a tensor over them for
 * each entry and each node's scratch. */
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
        return ps_settings_int(settings, options->context.kind == PS_CONTEXT_CPU
                                             ? PS_SET_CPU_WORKER_NTHREADS
                                             : PS_SET_GPU_WORKER_NTHREADS) == 1;
    default:
        return false;
    }
}

void ps_exec_plan_options(const struct ps_exec_core *core,
                          struct ps_graph_plan_options *options_out)
{
    const struct ps_bind_options *options = &core->options;
    bool none = options->plan == PS_PLAN_NONE;
    *options_out = (struct ps_graph_plan_options){
        .inplace = !none && options->inplace != 0,
        .identity = core->differentiates,
        .match_range = none ? 0 : (size_t)options->match_range,
        .colours = (uint32_t)PS_MAX(options->num_temp, 1),
        .workspace_bytes = core->scratch_bytes,
        .effort = PS_EFFORT_FULL};
}

enum ps_plan_layout ps_exec_plan_layout(const struct ps_exec_core *core)
{
    switch (core->options.plan) {
    case PS_PLAN_OFFSETS:
        return PS_LAYOUT_OFFSETS;
    case PS_PLAN_AUTO:
        return runs_one_at_a_time(&core->options) ? PS_LAYOUT_OFFSETS : PS_LAYOUT_BLOCKS;
    default:
        return PS_LAYOUT_BLOCKS;
    }
}

static enum ps_status make_plan(struct ps_exec_core *core)
{
    enum ps_plan_kind asked = core->options.plan;
    struct ps_graph_plan_options options;
    ps_exec_plan_options(core, &options);
    PS_TRY(ps_graph_accumulate(&core->graph, &options, &core->accumulated_count));
    PS_TRY(ps_graph_plan(&core->graph, &options, &core->plan));
    for (size_t e = 0; e < core->graph.entry_count; e++) {
        const struct ps_graph_entry *entry = &core->graph.entries[e];
        if (entry->adds_into != PS_NO_ENTRY) { /* a value too, as far as that counts */
            core->plan.unplanned_bytes +=
                (size_t)ps_shape_count(&entry->shape) * ps_dtype_size(entry->dtype);
        }
    }
    size_t blocks = ps_memory_plan_peak(&core->plan, PS_LAYOUT_BLOCKS);
    size_t offsets = ps_memory_plan_peak(&core->plan, PS_LAYOUT_OFFSETS);
    enum ps_plan_layout layout = PS_LAYOUT_BLOCKS;
    core->plan_kind = asked == PS_PLAN_NONE ? PS_PLAN_NONE : PS_PLAN_BLOCKS;
    if (offsets != SIZE_MAX &&
        (asked == PS_PLAN_OFFSETS || (asked == PS_PLAN_AUTO && offsets < blocks &&
                                      runs_one_at_a_time(&core->options)))) {
        core->plan_kind = PS_PLAN_OFFSETS;
        layout = PS_LAYOUT_OFFSETS;
    }
    core->peak_bytes = ps_memory_plan_peak(&core->plan, layout);
    core->workspace_bytes = ps_memory_plan_scratch(&core->plan, layout);
    core->internal_bytes = core->peak_bytes - core->workspace_bytes;
    core->colour_of = options.colours > 1 ? core->plan.colour_of : NULL;
    return PS_OK;
}

/* ---- memory: from the shared executor's pool where large enough ---- */

/* Memory that the plan asks for: its blocks (or the arena and the kept groups), then its
 * workspaces. */
struct wanted {
    size_t bytes;
    struct ps_context context;
};

struct supply {
    struct ps_exec_core *core;
    struct ps_exec_core *shared;
    bool *used; /* per tensor of the shared pool */
    struct wanted *wanted;
    size_t count; /* of 'wanted' */
};

static enum ps_status make_bytes(struct supply *supply, const struct wanted *wanted,
                                 struct ps_tensor **tensor_out)
{
    struct ps_exec_core *core = supply->core;
    size_t count = supply->shared == NULL ? 0 : supply->shared->pool_count;
    size_t best = count, best_bytes = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        struct ps_tensor *have = supply->shared->pool[i];
        size_t bytes = ps_tensor_bytes(have);
        if (!supply->used[i] && bytes >= wanted->bytes && bytes < best_bytes &&
            ps_context_equal(ps_tensor_context(have), wanted->context)) {
            best = i;
            best_bytes = bytes;
        }
    }
    struct ps_tensor *made;
    if (best < count) {
        supply->used[best] = true;
        made = ps_tensor_retain(supply->shared->pool[best]);
    } else {
        struct ps_shape shape = PS_SHAPE((int64_t)wanted->bytes);
        PS_TRY(ps_tensor_create(core->options.engine, wanted->context, PS_U8, &shape,
                                &made));
    }
    core->pool[core->pool_count++] = made;
    *tensor_out = made;
    return PS_OK;
}

/* Largest first, so that a pool's large blocks are not taken by small requests. */
static enum ps_status make_blocks(struct supply *supply)
{
    struct ps_exec_core *core = supply->core;
    for (size_t made = 0; made < supply->count; made++) {
        size_t largest = supply->count;
        for (size_t b = 0; b < supply->count; b++) {
            if (core->blocks[b] == NULL &&
                (largest == supply->count ||
                 supply->wanted[b].bytes > supply->wanted[largest].bytes)) {
                largest = b;
            }
        }
        PS_TRY(make_bytes(supply, &supply->wanted[largest], &core->blocks[largest]));
    }
    return PS_OK;
}

static void want(struct supply *supply, size_t bytes, uint32_t device)
{
    supply->wanted[supply->count++] =
        (struct wanted){.bytes = bytes, .context = ps_plan_context(device)};
}

/* The arena, then one block for each kept group.  Their numbers go to groups[].block. */
static void want_offsets(struct supply *supply)
{
    struct ps_memory_plan *plan = &supply->core->plan;
    want(supply, plan->arena_bytes, plan->arena_device);
    for (size_t g = 0; g < plan->group_count; g++) {
        struct ps_plan_group *group = &plan->groups[g];
        group->block = group->keep ? (uint32_t)supply->count : 0;
        if (group->keep) {
            group->offset = 0;
            want(supply, group->bytes, group->device);
        }
    }
    supply->core->block_count = supply->count;
}

static void want_blocks(struct supply *supply)
{
    struct ps_memory_plan *plan = &supply->core->plan;
    for (size_t b = 0; b < plan->block_count; b++) {
        want(supply, plan->block_bytes[b], plan->block_device[b]);
    }
    for (size_t g = 0; g < plan->group_count; g++) {
        plan->groups[g].offset = 0;
    }
    supply->core->block_count = supply->count;
    for (size_t w = 0; w < plan->workspace_count; w++) {
        want(supply, plan->workspaces[w].bytes, plan->workspaces[w].device);
    }
}

/* Both pools hold all there is: what is new is the shared executor's too, so that the
 * next one bound with it finds it. */
static enum ps_status join_pools(struct supply *supply)
{
    struct ps_exec_core *core = supply->core, *shared = supply->shared;
    if (shared == NULL) {
        return PS_OK;
    }
    size_t before = shared->pool_count, own = core->pool_count;
    struct ps_tensor **pool =
        realloc(shared->pool, (before + own) * sizeof(struct ps_tensor *));
    if (pool == NULL && before + own > 0) {
        return PS_ENOMEM;
    }
    shared->pool = pool;
    for (size_t i = 0; i < own; i++) {
        bool found = false;
        for (size_t k = 0; k < before; k++) {
            found = found || (supply->used[k] && pool[k] == core->pool[i]);
        }
        if (!found) {
            pool[shared->pool_count++] = ps_tensor_retain(core->pool[i]);
        }
    }
    for (size_t i = 0; i < before; i++) {
        if (!supply->used[i]) {
            core->pool[core->pool_count++] = ps_tensor_retain(pool[i]);
        }
    }
    return PS_OK;
}

static enum ps_status make_internal(struct ps_exec_core *core,
                                    struct ps_exec_core *shared)
{
    const struct ps_memory_plan *plan = &core->plan;
    size_t room = plan->group_count + plan->workspace_count + 2;
    size_t pool = room + (shared == NULL ? 0 : shared->pool_count);
    struct supply supply = {.core = core,
                            .shared = shared,
                            .used = calloc(pool, 1),
                            .wanted = calloc(room, sizeof(struct wanted))};
    core->blocks = calloc(room, sizeof(struct ps_tensor *));
    core->pool = calloc(pool, sizeof(struct ps_tensor *));
    enum ps_status status = PS_ENOMEM;
    if (supply.used != NULL && supply.wanted != NULL && core->blocks != NULL &&
        core->pool != NULL) {
        if (core->plan_kind == PS_PLAN_OFFSETS) {
            want_offsets(&supply);
        } else {
            want_blocks(&supply);
        }
        PS_TRY_GOTO(status, make_blocks(&supply), out);
        status = join_pools(&supply);
    }
out:
    free(supply.wanted);
    free(supply.used);
    return status;
}

/* ---- scratch ---- */

/* With blocks, the nodes of one colour share a workspace; in the arena each has its place
 * there. */
static enum ps_status make_workspaces(struct ps_exec_core *core)
{
    const struct ps_memory_plan *plan = &core->plan;
    bool arena = core->plan_kind == PS_PLAN_OFFSETS;
    size_t room = arena ? plan->step_count : plan->workspace_count;
    core->workspaces = calloc(room + 1, sizeof(struct ps_tensor *));
    core->workspace_of = calloc(plan->step_count + 1, sizeof(struct ps_tensor *));
    if (core->workspaces == NULL || core->workspace_of == NULL) {
        return PS_ENOMEM;
    }
    for (size_t w = 0; !arena && w < plan->workspace_count; w++) {
        core->workspaces[core->workspace_count++] =
            ps_tensor_retain(core->blocks[core->block_count + w]);
    }
    for (size_t s = 0; s < plan->step_count; s++) {
        if (plan->scratch_bytes[s] == 0) {
            continue;
        }
        if (!arena) {
            core->workspace_of[s] = core->workspaces[plan->workspace_of[s]];
            continue;
        }
        struct ps_shape shape = PS_SHAPE((int64_t)plan->scratch_bytes[s]);
        struct ps_tensor **at = &core->workspaces[core->workspace_count];
        PS_TRY(ps_tensor_at(core->blocks[0], plan->scratch_offset[s], PS_U8, &shape, at));
        core->workspace_of[s] = *at;
        core->workspace_count++;
    }
    return PS_OK;
}

/* ---- entries ---- */

static enum ps_status place_entry(struct ps_exec_core *core, size_t e)
{
    const struct ps_graph_entry *entry = &core->graph.entries[e];
    const struct ps_graph_node *node = &core->graph.nodes[entry->node];
    uint32_t group = core->plan.group_of[e];
    if (node->kind == PS_NODE_HEAD_GRAD) {
        return ps_tensor_create(core->options.engine, node->context, entry->dtype,
                                &entry->shape, &core->entries[e]);
    }
    if (core->entries[e] != NULL || group == PS_PLAN_NOWHERE) {
        return PS_OK;
    }
    const struct ps_plan_group *place = &core->plan.groups[group];
    return ps_tensor_at(core->blocks[place->block], place->offset, entry->dtype,
                        &entry->shape, &core->entries[e]);
}

/* What is added into a sum's place lies there. */
static enum ps_status place_added(struct ps_exec_core *core)
{
    const struct ps_graph *graph = &core->graph;
    for (size_t e = 0; e < graph->entry_count; e++) {
        uint32_t into = graph->entries[e].adds_into;
        if (into == PS_NO_ENTRY) {
            continue;
        }
        uint32_t running = graph->nodes[graph->entries[into].node].inputs[0];
        if (core->entries[into] == NULL ||
            core->plan.group_of[into] != core->plan.group_of[running]) {
            return PS_EINTERNAL; /* the plan is another than ps_graph_accumulate saw */
        }
        core->entries[e] = ps_tensor_retain(core->entries[into]);
    }
    return PS_OK;
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
                                   struct ps_exec_core *shared, struct ps_error *err)
{
    size_t entries = core->graph.entry_count;
    core->entries = calloc(entries + 1, sizeof(struct ps_tensor *));
    if (core->entries == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status;
    PS_TRY_GOTO(status, make_plan(core), out);
    PS_TRY_GOTO(status, make_internal(core, shared), out);
    PS_TRY_GOTO(status, make_workspaces(core), out);
    place_given(core, inputs);
    for (size_t e = 0; e < entries; e++) {
        PS_TRY_GOTO(status, place_entry(core, e), out);
    }
    PS_TRY_GOTO(status, place_added(core), out);
out:
    return status == PS_OK ? PS_OK
                           : ps_error_set(err, status, "internal memory of %zu bytes: %s",
                                          core->peak_bytes, ps_status_text(status));
}
