/* Symbol -> numbered graph, and growing it. */
#include "engine/graph/graph_ir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum ps_status ps_graph_add(struct ps_graph *graph, enum ps_node_kind kind,
                            const char *name, size_t input_count, size_t output_count,
                            uint32_t *node_out)
{
    size_t entries = graph->entry_count + output_count;
    if (graph->node_count >= INT32_MAX || entries >= INT32_MAX) {
        return PS_EUNSUPPORTED;
    }
    PS_TRY(ps_array_reserve((void **)&graph->nodes, &graph->node_capacity,
                            graph->node_count + 1, sizeof(graph->nodes[0])));
    PS_TRY(ps_array_reserve((void **)&graph->entries, &graph->entry_capacity, entries,
                            sizeof(graph->entries[0])));
    uint32_t *inputs = ps_arena_calloc(&graph->arena, input_count, sizeof(*inputs));
    if (inputs == NULL) {
        return PS_ENOMEM;
    }
    uint32_t at = (uint32_t)graph->node_count;
    graph->nodes[at] = (struct ps_graph_node){
        .kind = kind,
        .name = name,
        .forward = PS_NO_INDEX,
        .mirror_of = PS_NO_INDEX,
        .origin = PS_NO_INDEX,
        .inputs = inputs,
        .input_count = (uint32_t)input_count,
        .first_entry = (uint32_t)graph->entry_count,
        .output_count = (uint32_t)output_count,
    };
    for (size_t i = 0; i < output_count; i++) {
        graph->entries[graph->entry_count + i] =
            (struct ps_graph_entry){.node = at,
                                    .output = (uint32_t)i,
                                    .shape = PS_SHAPE_UNKNOWN,
                                    .dtype = PS_DTYPE_UNKNOWN,
                                    .gradient_of = PS_NO_INDEX,
                                    .adds_into = PS_NO_ENTRY};
    }
    graph->entry_count = entries;
    graph->node_count++;
    *node_out = at;
    return PS_OK;
}

static enum ps_status add_symbol_node(struct ps_graph *graph,
                                      const struct ps_sym_order *order, size_t n)
{
    const struct ps_sym_node *sym = order->nodes[n];
    uint32_t at;
    PS_TRY(ps_graph_add(graph, sym->op == NULL ? PS_NODE_VARIABLE : PS_NODE_FORWARD,
                        sym->name, sym->input_count, ps_sym_output_count(sym), &at));
    struct ps_graph_node *node = &graph->nodes[at];
    node->sym = sym;
    node->op = sym->op;
    node->origin = at;
    for (size_t i = 0; i < sym->input_count; i++) {
        size_t producer = ps_sym_order_find(order, sym->inputs[i].node);
        node->inputs[i] = graph->nodes[producer].first_entry + sym->inputs[i].index;
    }
    return PS_OK;
}

static enum ps_status list_variables(struct ps_graph *graph,
                                     const struct ps_sym_order *order)
{
    size_t count = PS_MAX(graph->node_count, (size_t)1);
    uint32_t *argument_of = ps_arena_calloc(&graph->arena, count, sizeof(uint32_t));
    graph->arguments = ps_arena_calloc(&graph->arena, count, sizeof(uint32_t));
    graph->auxiliaries = ps_arena_calloc(&graph->arena, count, sizeof(uint32_t));
    if (argument_of == NULL || graph->arguments == NULL || graph->auxiliaries == NULL) {
        return PS_ENOMEM;
    }
    for (size_t n = 0; n < graph->node_count; n++) {
        argument_of[n] = PS_NO_INDEX;
        if (graph->nodes[n].kind != PS_NODE_VARIABLE) {
            continue;
        }
        if (order->auxiliary[n]) {
            graph->auxiliaries[graph->auxiliary_count++] = (uint32_t)n;
        } else {
            argument_of[n] = (uint32_t)graph->argument_count;
            graph->arguments[graph->argument_count++] = (uint32_t)n;
        }
    }
    graph->argument_of = argument_of;
    return PS_OK;
}

static enum ps_status list_outputs(struct ps_graph *graph,
                                   const struct ps_sym_order *order)
{
    const struct ps_symbol *symbol = graph->symbol;
    graph->outputs = ps_arena_calloc(&graph->arena, symbol->count, sizeof(uint32_t));
    graph->head_grads = ps_arena_calloc(&graph->arena, symbol->count, sizeof(uint32_t));
    graph->gradients =
        ps_arena_calloc(&graph->arena, graph->argument_count, sizeof(uint32_t));
    if (graph->outputs == NULL || graph->head_grads == NULL || graph->gradients == NULL) {
        return PS_ENOMEM;
    }
    graph->output_count = symbol->count;
    for (size_t i = 0; i < symbol->count; i++) {
        size_t producer = ps_sym_order_find(order, symbol->entries[i].node);
        graph->outputs[i] = graph->nodes[producer].first_entry + symbol->entries[i].index;
        graph->head_grads[i] = PS_NO_ENTRY;
    }
    for (size_t i = 0; i < graph->argument_count; i++) {
        graph->gradients[i] = PS_NO_ENTRY;
    }
    return PS_OK;
}

enum ps_status ps_graph_make(struct ps_symbol *symbol, struct ps_graph *graph_out)
{
    struct ps_graph graph = {.symbol = ps_symbol_retain(symbol)};
    struct ps_sym_order order = {0};
    enum ps_status status;
    PS_TRY_GOTO(status, ps_sym_order_make(symbol->entries, symbol->count, &order), fail);
    for (size_t n = 0; n < order.count; n++) {
        PS_TRY_GOTO(status, add_symbol_node(&graph, &order, n), fail);
    }
    graph.forward_count = graph.node_count;
    PS_TRY_GOTO(status, list_variables(&graph, &order), fail);
    PS_TRY_GOTO(status, list_outputs(&graph, &order), fail);
    ps_sym_order_fini(&order);
    *graph_out = graph;
    return PS_OK;
fail:
    ps_sym_order_fini(&order);
    ps_graph_fini(&graph);
    return status;
}

void ps_graph_fini(struct ps_graph *graph)
{
    free(graph->nodes);
    free(graph->entries);
    ps_arena_fini(&graph->arena);
    ps_symbol_release(graph->symbol);
    *graph = (struct ps_graph){0};
}

enum ps_status ps_graph_fail(const struct ps_graph_node *node, enum ps_status status,
                             const struct ps_error *why, struct ps_error *err)
{
    const char *text = why->text[0] != 0 ? why->text : ps_status_text(status);
    return ps_error_set(err, status, "%s: %s", node->name, text);
}
