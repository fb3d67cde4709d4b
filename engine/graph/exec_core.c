/* The core's life: built in one go, freed when the executor and the last push are gone.
 */
#include "engine/graph/exec_core.h"

#include "base/node.h"
#include "base/thread.h"

#include <stdlib.h>

/* What the settings decide where the caller did not. */
static void decide(struct ps_bind_options *options)
{
    const struct ps_settings *settings = ps_engine_node(options->engine)->settings;
    if (options->threads <= 0) {
        options->threads = (int)ps_settings_int(settings, PS_SET_CPU_NNPACK_NTHREADS);
    }
    if (options->threads <= 0) {
        int fair = ps_cpu_count() / PS_MAX(options->devices, 1);
        options->threads = PS_MAX(fair, 1);
    }
    if (options->match_range < 0) {
        options->match_range = (int)ps_settings_int(settings, PS_SET_EXEC_MATCH_RANGE);
    }
    if (options->inplace < 0) {
        options->inplace = ps_settings_bool(settings, PS_SET_EXEC_ENABLE_INPLACE) ? 1 : 0;
    }
}

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
    ps_tensor_release(core->workspace);
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
    for (size_t n = 0; core->ops != NULL && n < core->graph.node_count; n++) {
        ps_engine_call_destroy(core->ops[n].call);
    }
    for (size_t n = 0; core->inference != NULL && n < core->graph.forward_count; n++) {
        ps_engine_call_destroy(core->inference[n].call);
    }
    ps_exec_core_release(core);
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
    decide(&core->options);
    core->graph = *graph;
    *graph = (struct ps_graph){0};
    for (size_t i = 0; i < core->graph.argument_count; i++) {
        core->differentiates = core->differentiates || inputs->reqs[i] != PS_GRAD_NULL;
    }
    enum ps_status status = PS_OK;
    if (core->differentiates) {
        PS_TRY_GOTO(status, ps_graph_differentiate(&core->graph, inputs->reqs, err),
                    fail);
    }
    const struct ps_exec_core *shared =
        options->shared == NULL ? NULL : options->shared->core;
    PS_TRY_GOTO(status, ps_exec_make_memory(core, inputs, shared, err), fail);
    PS_TRY_GOTO(status, ps_exec_make_kernels(core, err), fail);
    PS_TRY_GOTO(status, ps_exec_make_ops(core, inputs, err), fail);
    *core_out = core;
    return PS_OK;
fail:
    ps_exec_core_close(core);
    return status;
}
