/* Preparing the operators' kernels, once per executor: one plan for each forward node,
 * used by its backward and by what computes it again, and how much scratch each wants.
 * Where the scratch lies is the memory plan's to say (exec_memory.c). */
#include "engine/graph/exec_core.h"

#include <stdlib.h>

static enum ps_status prepare(struct ps_exec_core *core, const struct ps_graph_node *node,
                              struct ps_op_plan **plan_out, struct ps_error *err)
{
    int count = ps_op_input_count(node->op);
    struct ps_shape *shapes = calloc((size_t)count + 1, sizeof(*shapes));
    int *dtypes = calloc((size_t)count + 1, sizeof(*dtypes));
    enum ps_status status = PS_ENOMEM;
    if (shapes != NULL && dtypes != NULL) {
        for (int i = 0; i < count; i++) {
            shapes[i] = core->graph.entries[node->inputs[i]].shape;
            dtypes[i] = core->graph.entries[node->inputs[i]].dtype;
        }
        uint32_t flags = ps_op_flags(ps_op_definition(node->op));
        struct ps_plan_options options = {.threads = core->options.threads,
                                          .training = core->differentiates ||
                                                      (flags & PS_OP_TRAIN_MODE) != 0};
        struct ps_error why = {0};
        status = ps_op_prepare(core->options.kernels, node->op, shapes, dtypes, &options,
                               plan_out, &why);
        if (status != PS_OK) {
            status = ps_graph_fail(node, status, &why, err);
        }
    }
    free(dtypes);
    free(shapes);
    return status;
}

enum ps_status ps_exec_make_kernels(struct ps_exec_core *core, struct ps_error *err)
{
    const struct ps_graph *graph = &core->graph;
    core->kernels = calloc(graph->forward_count + 1, sizeof(core->kernels[0]));
    size_t *scratch =
        ps_arena_calloc(&core->graph.arena, 2 * graph->forward_count, sizeof(scratch[0]));
    if (core->kernels == NULL || scratch == NULL) {
        return PS_ENOMEM;
    }
    for (uint32_t n = 0; n < graph->forward_count; n++) {
        if (graph->nodes[n].kind == PS_NODE_FORWARD) {
            struct ps_op_plan **plan = &core->kernels[n].plan;
            PS_TRY(prepare(core, &graph->nodes[n], plan, err));
            scratch[2 * n] = ps_op_plan_workspace(*plan, false);
            scratch[2 * n + 1] = ps_op_plan_workspace(*plan, true);
        }
    }
    core->scratch_bytes = scratch;
    return PS_OK;
}
