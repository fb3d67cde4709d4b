/* Element type inference: the same sweeps as for shapes, over dtype codes. */
#include "engine/graph/graph_ir.h"

#include <stdlib.h>
#include <string.h>

struct scratch {
    int *dtypes;
    size_t capacity;
};

static enum ps_status read_hints(struct ps_graph *graph, struct ps_error *err)
{
    for (size_t n = 0; n < graph->forward_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        struct ps_graph_entry *entry = &graph->entries[node->first_entry];
        const char *hint = node->kind != PS_NODE_VARIABLE
                               ? NULL
                               : ps_sym_node_attr(node->sym, "__dtype__");
        if (hint == NULL || entry->dtype != PS_DTYPE_UNKNOWN) {
            continue;
        }
        int64_t code;
        entry->dtype = ps_dtype_from_name(hint);
        if (entry->dtype == PS_DTYPE_UNKNOWN && ps_parse_i64(hint, &code) == PS_OK &&
            code >= 0 && code < 128 && ps_dtype_size((int)code) > 0) {
            entry->dtype = (int)code;
        } else if (entry->dtype == PS_DTYPE_UNKNOWN && strcmp(hint, "-1") != 0) {
            return ps_error_set(err, PS_EINVAL, "%s: __dtype__ %.64s: not a type",
                                node->name, hint);
        }
    }
    return PS_OK;
}

static size_t unknown_dtypes(const struct ps_graph *graph)
{
    size_t unknown = 0;
    for (size_t e = 0; e < graph->entry_count; e++) {
        unknown += graph->entries[e].dtype == PS_DTYPE_UNKNOWN ? 1 : 0;
    }
    return unknown;
}

static enum ps_status merge_entry(struct ps_graph *graph,
                                  const struct ps_graph_node *node, uint32_t e, int said,
                                  struct ps_error *err)
{
    int *dtype = &graph->entries[e].dtype;
    if (said == PS_DTYPE_UNKNOWN || said == *dtype) {
        return PS_OK;
    }
    if (*dtype != PS_DTYPE_UNKNOWN) {
        return ps_error_set(err, PS_EDTYPE, "%s: type of %s is %s, inferred %s",
                            node->name, graph->nodes[graph->entries[e].node].name,
                            ps_dtype_name(*dtype), ps_dtype_name(said));
    }
    *dtype = said;
    return PS_OK;
}

static enum ps_status infer_node(struct ps_graph *graph, struct scratch *scratch,
                                 const struct ps_graph_node *node, struct ps_error *err)
{
    size_t total = node->input_count + node->output_count;
    PS_TRY(ps_array_reserve((void **)&scratch->dtypes, &scratch->capacity, total,
                            sizeof(scratch->dtypes[0])));
    int *in = scratch->dtypes;
    int *aux = in + ps_op_input_count(node->op);
    int *out = in + node->input_count;
    for (uint32_t i = 0; i < node->input_count; i++) {
        in[i] = graph->entries[node->inputs[i]].dtype;
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        out[i] = graph->entries[node->first_entry + i].dtype;
    }
    struct ps_error why = {0};
    enum ps_status status = ps_op_infer_dtype(node->op, in, out, aux, &why);
    if (status != PS_OK) {
        return ps_graph_fail(node, status, &why, err);
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        PS_TRY(merge_entry(graph, node, node->inputs[i], in[i], err));
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        PS_TRY(merge_entry(graph, node, node->first_entry + i, out[i], err));
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

enum ps_status ps_graph_infer_dtypes(struct ps_graph *graph, struct ps_error *err)
{
    struct scratch scratch = {0};
    enum ps_status status = read_hints(graph, err);
    size_t unknown = SIZE_MAX;
    for (bool forward = true; status == PS_OK; forward = !forward) {
        status = sweep(graph, &scratch, forward, err);
        size_t left = unknown_dtypes(graph);
        if (!forward && left == unknown) {
            break;
        }
        if (!forward || unknown == SIZE_MAX) {
            unknown = left;
        }
    }
    free(scratch.dtypes);
    return status;
}

enum ps_status ps_graph_default_dtypes(struct ps_graph *graph, struct ps_error *err)
{
    PS_TRY(ps_graph_infer_dtypes(graph, err));
    for (size_t i = 0; i < graph->argument_count; i++) {
        int *dtype = &graph->entries[graph->nodes[graph->arguments[i]].first_entry].dtype;
        if (*dtype == PS_DTYPE_UNKNOWN) {
            *dtype = PS_F32;
            PS_TRY(ps_graph_infer_dtypes(graph, err));
        }
    }
    for (size_t i = 0; i < graph->auxiliary_count; i++) {
        int *dtype =
            &graph->entries[graph->nodes[graph->auxiliaries[i]].first_entry].dtype;
        *dtype = *dtype == PS_DTYPE_UNKNOWN ? PS_F32 : *dtype;
    }
    return ps_graph_infer_dtypes(graph, err);
}

uint32_t ps_graph_unknown_dtype(const struct ps_graph *graph)
{
    for (size_t e = 0; e < graph->entry_count; e++) {
        if (graph->entries[e].dtype == PS_DTYPE_UNKNOWN) {
            return (uint32_t)e;
        }
    }
    return PS_NO_ENTRY;
}
