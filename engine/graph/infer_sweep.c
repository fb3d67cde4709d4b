/* Full forward and full backward sweeps over the operators until the amount of what is
 * unknown stops falling.  Each operator fills what it can in every direction; what two
 * operators say about one entry is merged. */
#include "engine/graph/infer_sweep.h"

#include <stdlib.h>
#include <string.h>

/* Working copies of one operator's values; merged back when the operator agrees. */
struct scratch {
    char *values;
    size_t capacity;
};

static void *value_of(const struct ps_graph *graph, const struct ps_inference *inference,
                      uint32_t e)
{
    return (char *)&graph->entries[e] + inference->offset;
}

static enum ps_status read_hints(struct ps_graph *graph,
                                 const struct ps_inference *inference,
                                 struct ps_error *err)
{
    struct ps_graph_entry nothing = {.shape = PS_SHAPE_UNKNOWN,
                                     .dtype = PS_DTYPE_UNKNOWN};
    for (size_t n = 0; n < graph->forward_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        struct ps_graph_entry *entry = &graph->entries[node->first_entry];
        if (node->kind != PS_NODE_VARIABLE ||
            inference->missing(entry) < inference->missing(&nothing)) {
            continue; /* what was said explicitly wins over the hint */
        }
        const char *hint = ps_sym_node_attr(node->sym, inference->hint);
        if (hint != NULL) {
            PS_TRY(inference->read_hint(node->name, hint, entry, err));
        }
    }
    return PS_OK;
}

static enum ps_status infer_node(struct ps_graph *graph,
                                 const struct ps_inference *inference,
                                 struct scratch *scratch,
                                 const struct ps_graph_node *node, struct ps_error *err)
{
    size_t size = inference->size;
    size_t total = (size_t)node->input_count + node->output_count;
    PS_TRY(
        ps_array_reserve((void **)&scratch->values, &scratch->capacity, total * size, 1));
    char *in = scratch->values;
    char *aux = in + (size_t)ps_op_input_count(node->op) * size;
    char *out = in + node->input_count * size;
    for (uint32_t i = 0; i < node->input_count; i++) {
        memcpy(in + i * size, value_of(graph, inference, node->inputs[i]), size);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        memcpy(out + i * size, value_of(graph, inference, node->first_entry + i), size);
    }
    struct ps_error why = {0};
    enum ps_status status = inference->infer(node->op, in, out, aux, &why);
    if (status != PS_OK) {
        return ps_graph_fail(node, status, &why, err);
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        PS_TRY(inference->merge(graph, node, node->inputs[i], in + i * size, err));
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        PS_TRY(inference->merge(graph, node, node->first_entry + i, out + i * size, err));
    }
    return PS_OK;
}

static enum ps_status sweep_once(struct ps_graph *graph,
                                 const struct ps_inference *inference,
                                 struct scratch *scratch, bool forward,
                                 struct ps_error *err)
{
    for (size_t i = 0; i < graph->forward_count; i++) {
        size_t n = forward ? i : graph->forward_count - 1 - i;
        if (graph->nodes[n].kind == PS_NODE_FORWARD) {
            PS_TRY(infer_node(graph, inference, scratch, &graph->nodes[n], err));
        }
    }
    return PS_OK;
}

static size_t missing_of(const struct ps_graph *graph,
                         const struct ps_inference *inference)
{
    size_t missing = 0;
    for (size_t e = 0; e < graph->entry_count; e++) {
        missing += inference->missing(&graph->entries[e]);
    }
    return missing;
}

enum ps_status ps_graph_sweep(struct ps_graph *graph,
                              const struct ps_inference *inference, struct ps_error *err)
{
    struct scratch scratch = {0};
    enum ps_status status = read_hints(graph, inference, err);
    size_t missing = SIZE_MAX;
    /* both sweeps also where all is known: they check what the operators say */
    for (bool forward = true; status == PS_OK; forward = !forward) {
        status = sweep_once(graph, inference, &scratch, forward, err);
        size_t left = missing_of(graph, inference);
        if (!forward && left == missing) {
            break;
        }
        if (!forward || missing == SIZE_MAX) {
            missing = left;
        }
    }
    free(scratch.values);
    return status;
}

uint32_t ps_graph_first_missing(const struct ps_graph *graph,
                                const struct ps_inference *inference)
{
    for (size_t e = 0; e < graph->entry_count; e++) {
        if (inference->missing(&graph->entries[e]) > 0) {
            return (uint32_t)e;
        }
    }
    return PS_NO_ENTRY;
}
