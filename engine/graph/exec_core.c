/* The core's life: built in one go, freed when the executor and the last push are gone.
 */
#include "engine/graph/exec_core.h"

#include "base/node.h"
#include "base/thread.h"
#include "engine/graph/mirror.h"
#include "engine/graph/place.h"

#include <stdlib.h>

/* ---- what the settings decide where the caller did not ---- */

static void decide_threads(struct ps_bind_options *options,
                           const struct ps_settings *settings)
{
    if (options->threads <= 0) {
        options->threads = (int)ps_settings_int(settings, PS_SET_CPU_NNPACK_NTHREADS);
    }
    if (options->threads <= 0) {
        int fair = ps_cpu_count() / PS_MAX(options->devices, 1);
        options->threads = PS_MAX(fair, 1);
    }
}

static void decide_plan(struct ps_bind_options *options,
                        const struct ps_settings *settings)
{
    if (options->match_range < 0) {
        options->match_range = (int)ps_settings_int(settings, PS_SET_EXEC_MATCH_RANGE);
    }
    if (options->inplace < 0) {
        options->inplace = ps_settings_bool(settings, PS_SET_EXEC_ENABLE_INPLACE) ? 1 : 0;
    }
    if (options->num_temp <= 0) {
        int64_t temp = ps_settings_int(settings, PS_SET_EXEC_NUM_TEMP);
        int64_t most = ps_settings_int(settings, PS_SET_GPU_WORKER_NTHREADS);
        options->num_temp = (int)PS_MIN(temp, most);
    }
    if (options->mirror < 0) {
        options->mirror = ps_settings_bool(settings, PS_SET_BACKWARD_DO_MIRROR) ? 1 : 0;
    }
    if (options->memonger == NULL) {
        options->memonger = ps_settings_text(settings, PS_SET_MEMONGER);
    }
}

static void decide_bulk(struct ps_exec_core *core, const struct ps_settings *settings)
{
    size_t limit = 1;
    if (core->options.bulk >= 0) {
        limit = (size_t)PS_MAX(core->options.bulk, 1);
    } else if (!core->differentiates) {
        limit =
            ps_settings_bool(settings, PS_SET_EXEC_BULK_EXEC_INFERENCE) ? SIZE_MAX : 1;
    } else if (ps_settings_bool(settings, PS_SET_EXEC_BULK_EXEC_TRAIN)) {
        int64_t most = ps_settings_int(settings, PS_SET_EXEC_BULK_EXEC_MAX_NODE_TRAIN);
        limit = (size_t)PS_MAX(most, (int64_t)1);
    }
    core->bulk_limit = limit;
}

/* What the caller only lent goes to the graph's arena. */
static enum ps_status keep_options(struct ps_exec_core *core)
{
    struct ps_bind_options *options = &core->options;
    struct ps_arena *arena = &core->graph.arena;
    options->memonger = ps_arena_printf(arena, "%s", options->memonger);
    struct ps_context_group *groups =
        ps_arena_calloc(arena, options->group_count, sizeof(groups[0]));
    if (options->memonger == NULL || groups == NULL) {
        return PS_ENOMEM;
    }
    for (size_t i = 0; i < options->group_count; i++) {
        groups[i] = options->groups[i];
        groups[i].name = ps_arena_printf(arena, "%s", groups[i].name);
        if (groups[i].name == NULL) {
            return PS_ENOMEM;
        }
    }
    options->groups = groups;
    return PS_OK;
}

/* What is told of the executor: the nodes that are operators. */
static enum ps_status list_steps(struct ps_exec_core *core)
{
    struct ps_graph *graph = &core->graph;
    core->steps = ps_arena_calloc(&graph->arena, graph->node_count, sizeof(uint32_t));
    if (core->steps == NULL) {
        return PS_ENOMEM;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        enum ps_node_kind kind = graph->nodes[n].kind;
        if (kind != PS_NODE_VARIABLE && kind != PS_NODE_HEAD_GRAD) {
            core->steps[core->step_count++] = n;
        }
    }
    return PS_OK;
}

static enum ps_status decide(struct ps_exec_core *core)
{
    const struct ps_settings *settings = ps_engine_node(core->options.engine)->settings;
    decide_threads(&core->options, settings);
    decide_plan(&core->options, settings);
    decide_bulk(core, settings);
    return keep_options(core);
}

/* ---- the end ---- */

static void release_all(struct ps_tensor **tensors, size_t count)
{
    for (size_t i = 0; tensors != NULL && i < count; i++) {
        ps_tensor_release(tensors[i]);
    }
    free(tensors);
}

static void core_free(struct ps_exec_core *core)
{
    struct ps_graph *graph = &core->graph;
    release_all(core->entries, graph->entry_count);
    release_all(core->pool, core->pool_count);
    release_all(core->workspaces, core->workspace_count);
    free(core->workspace_of);
    for (size_t n = 0; core->kernels != NULL && n < graph->forward_count; n++) {
        ps_op_plan_destroy(core->kernels[n].plan);
        ps_var_delete(core->options.engine, core->kernels[n].order);
    }
    free(core->kernels);
    free(core->blocks);
    free(core->inference);
    free(core->ops);
    ps_memory_plan_fini(&core->plan);
    ps_graph_fini(graph);
    free(core);
}

void ps_exec_core_release(struct ps_exec_core *core)
{
    /* acq_rel: the last holder frees what the others used */
    if (core != NULL &&
        atomic_fetch_sub_explicit(&core->refs, 1, memory_order_acq_rel) == 1) {
        core_free(core);
    }
}

void ps_exec_core_close(struct ps_exec_core *core)
{
    if (core == NULL) {
        return;
    }
    ps_exec_parts_close(core->parts);
    ps_exec_parts_close(core->single);
    ps_exec_core_release(core);
}

/* Where the given tensors lie; the arrays in the arena. */
static enum ps_status places_of(struct ps_exec_core *core, struct ps_tensor *const *given,
                                size_t count, const struct ps_context **out)
{
    struct ps_context *places =
        ps_arena_calloc(&core->graph.arena, count, sizeof(places[0]));
    if (places == NULL) {
        return PS_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        places[i] = ps_tensor_context(given[i]);
    }
    *out = places;
    return PS_OK;
}

/* The passes over the graph that come before memory. */
static enum ps_status run_passes(struct ps_exec_core *core,
                                 const struct ps_exec_inputs *inputs,
                                 struct ps_error *err)
{
    struct ps_graph *graph = &core->graph;
    if (core->differentiates) {
        const struct ps_settings *settings =
            ps_engine_node(core->options.engine)->settings;
        graph->grad_sum_cap =
            (uint32_t)ps_settings_int(settings, PS_SET_EXEC_INPLACE_GRAD_SUM_CAP);
        PS_TRY(ps_graph_differentiate(graph, inputs->reqs, err));
    }
    struct ps_place place = {.context = core->options.context,
                             .groups = core->options.groups,
                             .group_count = core->options.group_count};
    PS_TRY(places_of(core, inputs->arguments, graph->argument_count, &place.arguments));
    PS_TRY(
        places_of(core, inputs->auxiliaries, graph->auxiliary_count, &place.auxiliaries));
    PS_TRY(ps_graph_place(graph, &place, &core->copy_count, err));
    PS_TRY(ps_exec_make_kernels(core, err));
    struct ps_mirror_options mirror = {.mirror = core->options.mirror != 0,
                                       .memonger = core->options.memonger,
                                       .layout = ps_exec_plan_layout(core)};
    struct ps_mirror_report report = {0};
    ps_exec_plan_options(core, &mirror.plan);
    if (core->differentiates) {
        PS_TRY(ps_graph_mirror(graph, &mirror, &report, err));
    }
    core->mirrored_count = report.mirrored_count;
    core->forward_work = report.forward_work;
    core->extra_work = report.extra_work;
    return PS_OK;
}

enum ps_status ps_exec_core_create(const struct ps_bind_options *options,
                                   struct ps_graph *graph,
                                   const struct ps_exec_inputs *inputs,
                                   struct ps_exec_core **core_out, struct ps_error *err)
{
    struct ps_exec_core *core = calloc(1, sizeof(*core));
    if (core == NULL) {
        return PS_ENOMEM;
    }
    atomic_init(&core->refs, 1);
    core->options = *options;
    core->options.shared = NULL;
    core->graph = *graph;
    *graph = (struct ps_graph){0};
    for (size_t i = 0; i < core->graph.argument_count; i++) {
        core->differentiates = core->differentiates || inputs->reqs[i] != PS_GRAD_NULL;
    }
    struct ps_exec_core *shared = options->shared == NULL ? NULL : options->shared->core;
    enum ps_status status;
    PS_TRY_GOTO(status, decide(core), fail);
    PS_TRY_GOTO(status, run_passes(core, inputs, err), fail);
    PS_TRY_GOTO(status, list_steps(core), fail);
    PS_TRY_GOTO(status, ps_exec_make_memory(core, inputs, shared, err), fail);
    PS_TRY_GOTO(status, ps_exec_make_ops(core, inputs, err), fail);
    PS_TRY_GOTO(status, ps_exec_make_parts(core, false, err), fail);
    *core_out = core;
    return PS_OK;
fail:
    ps_exec_core_close(core);
    return status;
}
