/* Shape inference: full forward and full backward sweeps over the operators until the
 * number of unknown dimensions stops falling.  Each operator fills what it can in every
 * direction; what two operators say about one entry is merged. */
#include "engine/graph/graph_ir.h"

#include <stdlib.h>
#include <string.h>

/* Working copies of one operator's shapes; merged back when the operator agrees. */
struct scratch {
    struct ps_shape *shapes;
    size_t capacity;
};

static enum ps_status read_hints(struct ps_graph *graph, struct ps_error *err)
{
    for (size_t n = 0; n < graph->forward_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        struct ps_graph_entry *entry = &graph->entries[node->first_entry];
        if (node->kind != PS_NODE_VARIABLE || entry->shape.ndim >= 0) {
            continue; /* an explicit shape wins over the hint */
        }
        const char *hint = ps_sym_node_attr(node->sym, "__shape__");
        if (hint != NULL && ps_shape_parse_hint(hint, &entry->shape) != PS_OK) {
            return ps_error_set(err, PS_EINVAL,
                                "%s: __shape__ %.64s: not a shape like "
                                "(2, 3)",
                                node->name, hint);
        }
    }
    return PS_OK;
}

static size_t unknown_dims(const struct ps_graph *graph, size_t entries)
{
    size_t unknown = 0;
    for (size_t e = 0; e < entries; e++) {
        const struct ps_shape *shape = &graph->entries[e].shape;
        if (shape->ndim < 0) {
            unknown += PS_MAX_DIM + 1;
        }
        for (int d = 0; d < shape->ndim; d++) {
            unknown += shape->dim[d] < 0 ? 1 : 0;
        }
    }
    return unknown;
}

static enum ps_status merge_entry(struct ps_graph *graph,
                                  const struct ps_graph_node *node, uint32_t e,
                                  const struct ps_shape *said, struct ps_error *err)
{
    struct ps_shape *shape = &graph->entries[e].shape;
    if (ps_shape_merge(shape, said) == PS_OK) {
        return PS_OK;
    }
    char have[PS_SHAPE_TEXT_BYTES], want[PS_SHAPE_TEXT_BYTES];
    return ps_error_set(err, PS_ESHAPE, "%s: shape of %s is %.64s, inferred %.64s",
                        node->name, graph->nodes[graph->entries[e].node].name,
                        ps_shape_text(shape, have), ps_shape_text(said, want));
}

static enum ps_status infer_node(struct ps_graph *graph, struct scratch *scratch,
                                 const struct ps_graph_node *node, struct ps_error *err)
{
    size_t total = node->input_count + node->output_count;
    PS_TRY(ps_array_reserve((void **)&scratch->shapes, &scratch->capacity, total,
                            sizeof(scratch->shapes[0])));
    struct ps_shape *in = scratch->shapes;
    struct ps_shape *aux = in + ps_op_input_count(node->op);
    struct ps_shape *out = in + node->input_count;
    for (uint32_t i = 0; i < node->input_count; i++) {
        in[i] = graph->entries[node->inputs[i]].shape;
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        out[i] = graph->entries[node->first_entry + i].shape;
    }
    struct ps_error why = {0};
    enum ps_status status = ps_op_infer_shape(node->op, in, out, aux, &why);
    if (status != PS_OK) {
        return ps_graph_fail(node, status, &why, err);
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        PS_TRY(merge_entry(graph, node, node->inputs[i], &in[i], err));
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        PS_TRY(merge_entry(graph, node, node->first_entry + i, &out[i], err));
    }
    return PS_OK;
}

static enum ps_status sweep(struct ps_graph *graph, struct scratch *scratch, bool forward,
                            struct ps_error *err)
{
    for (size_t i = 0; i < graph->forward_count; i++) {
        size_t n = forward ? i : graph->forward_count - 1 - i;
        if (graph->nodes[n].kind == PS_NODE_FORWARD) {
            PS_TRY(infer_node(graph, scratch, &graph->nodes[n], err));
        }
    }
    return PS_OK;
}

enum ps_status ps_graph_infer_shapes(struct ps_graph *graph, struct ps_error *err)
{
    struct scratch scratch = {0};
    enum ps_status status = read_hints(graph, err);
    size_t entries = graph->entry_count;
    size_t unknown = SIZE_MAX;
    /* both sweeps also where all is known: they check what the operators say */
    for (bool forward = true; status == PS_OK; forward = !forward) {
        status = sweep(graph, &scratch, forward, err);
        size_t left = unknown_dims(graph, entries);
        if (!forward && left == unknown) {
            break;
        }
        if (!forward || unknown == SIZE_MAX) {
            unknown = left;
        }
    }
    free(scratch.shapes);
    return status;
}

uint32_t ps_graph_unknown_shape(const struct ps_graph *graph)
{
    for (size_t e = 0; e < graph->entry_count; e++) {
        if (!ps_shape_known(&graph->entries[e].shape)) {
            return (uint32_t)e;
        }
    }
    return PS_NO_ENTRY;
}
