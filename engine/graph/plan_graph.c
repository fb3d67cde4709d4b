/* The graph as the planner sees it: every operator node is a step, entries are values.
 * Arguments, auxiliary states, head gradients and the gradients of arguments are somebody
 * else's memory; outputs of a backward node that nobody uses have none. */
#include "engine/graph/exec_core.h"

#include <stdlib.h>
#include <string.h>

static enum ps_status fill_values(const struct ps_graph *graph,
                                  struct ps_plan_value *values)
{
    for (size_t e = 0; e < graph->entry_count; e++) {
        const struct ps_graph_entry *entry = &graph->entries[e];
        enum ps_node_kind kind = graph->nodes[entry->node].kind;
        int64_t count = ps_shape_count(&entry->shape);
        values[e].count = count;
        values[e].dtype = entry->dtype;
        values[e].external = kind == PS_NODE_VARIABLE || kind == PS_NODE_HEAD_GRAD ||
                             entry->gradient_of != PS_NO_INDEX;
        if (count < 0 ||
            !ps_mul_size((size_t)count, ps_dtype_size(entry->dtype), &values[e].bytes)) {
            return PS_ESHAPE;
        }
    }
    for (size_t i = 0; i < graph->output_count; i++) {
        values[graph->outputs[i]].keep = true;
    }
    return PS_OK;
}

/* The entry behind one side of an operator's in-place pair; PS_NO_ENTRY when it is not an
 * input of the step. */
static uint32_t pair_source(const struct ps_graph_node *node,
                            const struct ps_inplace *pair)
{
    if (node->kind == PS_NODE_FORWARD) {
        return node->inputs[pair->from_index];
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->slots[i].kind == pair->from &&
            node->slots[i].index == (uint32_t)pair->from_index) {
            return node->inputs[i];
        }
    }
    return PS_NO_ENTRY;
}

static enum ps_status fill_pairs(struct ps_graph *graph, const struct ps_graph_node *node,
                                 struct ps_plan_step *step)
{
    struct ps_inplace found[PS_OP_MAX_INPLACE];
    bool sum = node->kind == PS_NODE_SUM;
    int count = 0;
    if (node->kind == PS_NODE_FORWARD) {
        count = ps_op_inplace_forward(node->op, found);
    } else if (node->kind == PS_NODE_BACKWARD) {
        count = ps_op_inplace_backward(node->op, found);
    } else if (sum) {
        count = (int)node->input_count;
    }
    struct ps_plan_pair *pairs =
        ps_arena_calloc(&graph->arena, (size_t)count, sizeof(*pairs));
    if (pairs == NULL) {
        return PS_ENOMEM;
    }
    for (int i = 0; i < count; i++) {
        uint32_t from = sum ? node->inputs[i] : pair_source(node, &found[i]);
        uint32_t to = node->first_entry + (sum ? 0 : (uint32_t)found[i].to);
        if (from != PS_NO_ENTRY) {
            pairs[step->pair_count++] = (struct ps_plan_pair){.from = from, .to = to};
        }
    }
    step->pairs = pairs;
    return PS_OK;
}

static enum ps_status fill_step(struct ps_graph *graph, const struct ps_graph_node *node,
                                struct ps_plan_step *step)
{
    *step = (struct ps_plan_step){0};
    if (node->kind == PS_NODE_VARIABLE || node->kind == PS_NODE_HEAD_GRAD) {
        return PS_OK;
    }
    uint32_t *writes =
        ps_arena_calloc(&graph->arena, node->output_count, sizeof(*writes));
    if (writes == NULL) {
        return PS_ENOMEM;
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        uint32_t e = node->first_entry + i;
        if (node->kind != PS_NODE_BACKWARD || graph->entries[e].wanted) {
            writes[step->write_count++] = e;
        }
    }
    step->writes = writes;
    step->reads = node->inputs;
    step->read_count = node->input_count;
    return fill_pairs(graph, node, step);
}

enum ps_status ps_graph_plan(struct ps_graph *graph, bool inplace, size_t match_range,
                             struct ps_memory_plan *plan_out)
{
    struct ps_plan_value *values = calloc(graph->entry_count + 1, sizeof(*values));
    struct ps_plan_step *steps = calloc(graph->node_count + 1, sizeof(*steps));
    enum ps_status status = PS_ENOMEM;
    if (values != NULL && steps != NULL) {
        status = fill_values(graph, values);
    }
    for (size_t n = 0; n < graph->node_count && status == PS_OK; n++) {
        status = fill_step(graph, &graph->nodes[n], &steps[n]);
    }
    if (status == PS_OK) {
        struct ps_plan_input input = {.values = values,
                                      .steps = steps,
                                      .value_count = graph->entry_count,
                                      .step_count = graph->node_count,
                                      .inplace = inplace,
                                      .match_range = match_range};
        status = ps_plan_memory(&input, plan_out);
    }
    free(steps);
    free(values);
    return status;
}
