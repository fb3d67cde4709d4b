/* Preparing the operators' kernels, once per executor: one plan for each forward node,
 * used by its backward too, and one scratch workspace as large as the largest asks.
 *
 * The workspace is written by every operation that uses it, so these run one after the
 * other; several workspaces (EXEC_NUM_TEMP, coloured paths) have their place here. */
#include "engine/graph/exec_core.h"

#include <stdlib.h>

/* The backward node of a forward node, or NULL. */
static const struct ps_graph_node *find_backward(const struct ps_graph *graph, uint32_t n)
{
    for (size_t b = graph->forward_count; b < graph->node_count; b++) {
        if (graph->nodes[b].kind == PS_NODE_BACKWARD && graph->nodes[b].forward == n) {
            return &graph->nodes[b];
        }
    }
    return NULL;
}

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

static enum ps_status make_kernel(struct ps_exec_core *core, uint32_t n,
                                  struct ps_error *err)
{
    const struct ps_graph_node *node = &core->graph.nodes[n];
    struct ps_exec_kernel *kernel = &core->kernels[n];
    PS_TRY(prepare(core, node, &kernel->plan, err));
    size_t forward = ps_op_plan_workspace(kernel->plan, false);
    core->workspace_bytes = PS_MAX(core->workspace_bytes, forward);
    const struct ps_graph_node *backward =
        core->differentiates ? find_backward(&core->graph, n) : NULL;
    if (backward == NULL) {
        return PS_OK;
    }
    core->workspace_bytes =
        PS_MAX(core->workspace_bytes, ps_op_plan_workspace(kernel->plan, true));
    return PS_OK;
}

enum ps_status ps_exec_make_kernels(struct ps_exec_core *core, struct ps_error *err)
{
    const struct ps_graph *graph = &core->graph;
    core->kernels = calloc(graph->forward_count + 1, sizeof(core->kernels[0]));
    if (core->kernels == NULL) {
        return PS_ENOMEM;
    }
    for (uint32_t n = 0; n < graph->forward_count; n++) {
        if (graph->nodes[n].kind == PS_NODE_FORWARD) {
            PS_TRY(make_kernel(core, n, err));
        }
    }
    return PS_OK;
}

static size_t scratch_of(const struct ps_exec_core *core, size_t n)
{
    const struct ps_graph_node *node = &core->graph.nodes[n];
    if (node->kind == PS_NODE_BACKWARD) {
        return ps_op_plan_workspace(core->kernels[node->forward].plan, true);
    }
    if (node->kind != PS_NODE_FORWARD) {
        return 0;
    }
    size_t original = node->mirror_of == PS_NO_INDEX ? n : node->mirror_of;
    return ps_op_plan_workspace(core->kernels[original].plan, false);
}

enum ps_status ps_exec_make_workspaces(struct ps_exec_core *core)
{
    core->workspaces = calloc(1, sizeof(core->workspaces[0]));
    core->workspace_of = calloc(core->graph.node_count + 1, sizeof(struct ps_tensor *));
    if (core->workspaces == NULL || core->workspace_of == NULL) {
        return PS_ENOMEM;
    }
    if (core->workspace_bytes == 0) {
        return PS_OK;
    }
    struct ps_shape shape = PS_SHAPE((int64_t)core->workspace_bytes);
    PS_TRY(ps_tensor_create(core->options.engine, core->options.context, PS_U8, &shape,
                            &core->workspaces[0]));
    core->workspace_count = 1;
    for (size_t n = 0; n < core->graph.node_count; n++) {
        core->workspace_of[n] = scratch_of(core, n) > 0 ? core->workspaces[0] : NULL;
    }
    return PS_OK;
}
