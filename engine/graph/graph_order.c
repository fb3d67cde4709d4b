/* Another order for a graph's nodes: for the passes that put nodes where they are needed,
 * or drop some (mirror_build.c).  Entries keep their numbers, nodes get new ones. */
#include "engine/graph/graph_ir.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint32_t moved(const uint32_t *place, uint32_t node)
{
    return node == PS_NO_INDEX ? PS_NO_INDEX : place[node];
}

static void check_order(const struct ps_graph *graph)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->input_count; i++) {
            assert(graph->entries[node->inputs[i]].node < n && "producers first");
        }
    }
}

/* node -> argument, for every node of the new order. */
static enum ps_status renumber_arguments(struct ps_graph *graph, const uint32_t *place)
{
    uint32_t *argument_of =
        ps_arena_calloc(&graph->arena, graph->node_count, sizeof(uint32_t));
    if (argument_of == NULL) {
        return PS_ENOMEM;
    }
    memset(argument_of, 0xff, graph->node_count * sizeof(uint32_t)); /* PS_NO_INDEX */
    for (size_t i = 0; i < graph->argument_count; i++) {
        graph->arguments[i] = place[graph->arguments[i]];
        argument_of[graph->arguments[i]] = (uint32_t)i;
    }
    for (size_t i = 0; i < graph->auxiliary_count; i++) {
        graph->auxiliaries[i] = place[graph->auxiliaries[i]];
    }
    graph->argument_of = argument_of;
    return PS_OK;
}

enum ps_status ps_graph_reorder(struct ps_graph *graph, const uint32_t *order,
                                size_t forward_count)
{
    size_t count = graph->node_count;
    uint32_t *place = calloc(count + 1, sizeof(*place));
    struct ps_graph_node *nodes = calloc(count + 1, sizeof(*nodes));
    enum ps_status status = PS_ENOMEM;
    if (place == NULL || nodes == NULL) {
        goto out;
    }
    memset(place, 0xff, count * sizeof(*place));
    for (size_t i = 0; i < count; i++) {
        assert(order[i] < count && place[order[i]] == PS_NO_INDEX && "every node once");
        place[order[i]] = (uint32_t)i;
    }
    PS_TRY_GOTO(status, renumber_arguments(graph, place), out);
    for (size_t i = 0; i < count; i++) {
        nodes[i] = graph->nodes[order[i]];
        nodes[i].forward = moved(place, nodes[i].forward);
        nodes[i].mirror_of = moved(place, nodes[i].mirror_of);
    }
    for (size_t e = 0; e < graph->entry_count; e++) {
        graph->entries[e].node = place[graph->entries[e].node];
    }
    free(graph->nodes);
    graph->nodes = nodes;
    graph->node_capacity = count + 1;
    graph->forward_count = forward_count;
    nodes = NULL;
    check_order(graph);
out:
    free(nodes);
    free(place);
    return status;
}
