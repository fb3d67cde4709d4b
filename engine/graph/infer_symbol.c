/* Inference asked of a symbol: names in, lists out. */
#include "engine/graph/graph_ir.h"

#include <stdlib.h>
#include <string.h>

static enum ps_status find_variable(const struct ps_graph *graph, const char *name,
                                    struct ps_graph_entry **entry_out,
                                    struct ps_error *err)
{
    for (size_t n = 0; n < graph->forward_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        if (node->kind == PS_NODE_VARIABLE && strcmp(node->name, name) == 0) {
            *entry_out = &graph->entries[node->first_entry];
            return PS_OK;
        }
    }
    struct ps_names names = {0};
    PS_TRY(ps_symbol_list_arguments(graph->symbol, &names));
    const char *near = ps_nearest(name, (const char *const *)names.names);
    enum ps_status status =
        ps_error_set(err, PS_ENOENT, "no argument is called %s%s%s", name,
                     near != NULL ? "; nearest is " : "", near != NULL ? near : "");
    ps_names_fini(&names);
    return status;
}

enum ps_status ps_graph_set_shape(struct ps_graph *graph, const char *name,
                                  const struct ps_shape *shape, struct ps_error *err)
{
    struct ps_graph_entry *entry;
    PS_TRY(find_variable(graph, name, &entry, err));
    entry->shape = *shape;
    return PS_OK;
}

enum ps_status ps_graph_set_dtype(struct ps_graph *graph, const char *name, int dtype,
                                  struct ps_error *err)
{
    struct ps_graph_entry *entry;
    PS_TRY(find_variable(graph, name, &entry, err));
    entry->dtype = dtype;
    return PS_OK;
}

void ps_inferred_shapes_fini(struct ps_inferred_shapes *shapes)
{
    free(shapes->arguments);
    free(shapes->outputs);
    free(shapes->auxiliaries);
    *shapes = (struct ps_inferred_shapes){0};
}

void ps_inferred_dtypes_fini(struct ps_inferred_dtypes *dtypes)
{
    free(dtypes->arguments);
    free(dtypes->outputs);
    free(dtypes->auxiliaries);
    *dtypes = (struct ps_inferred_dtypes){0};
}

static enum ps_status shapes_from(const struct ps_graph *graph,
                                  struct ps_inferred_shapes *out)
{
    struct ps_inferred_shapes shapes = {
        .arguments = calloc(graph->argument_count + 1, sizeof(struct ps_shape)),
        .outputs = calloc(graph->output_count + 1, sizeof(struct ps_shape)),
        .auxiliaries = calloc(graph->auxiliary_count + 1, sizeof(struct ps_shape)),
        .argument_count = graph->argument_count,
        .output_count = graph->output_count,
        .auxiliary_count = graph->auxiliary_count,
        .complete = ps_graph_unknown_shape(graph) == PS_NO_ENTRY};
    if (shapes.arguments == NULL || shapes.outputs == NULL ||
        shapes.auxiliaries == NULL) {
        ps_inferred_shapes_fini(&shapes);
        return PS_ENOMEM;
    }
    const struct ps_graph_entry *entries = graph->entries;
    for (size_t i = 0; i < graph->argument_count; i++) {
        shapes.arguments[i] =
            entries[graph->nodes[graph->arguments[i]].first_entry].shape;
    }
    for (size_t i = 0; i < graph->output_count; i++) {
        shapes.outputs[i] = entries[graph->outputs[i]].shape;
    }
    for (size_t i = 0; i < graph->auxiliary_count; i++) {
        shapes.auxiliaries[i] =
            entries[graph->nodes[graph->auxiliaries[i]].first_entry].shape;
    }
    *out = shapes;
    return PS_OK;
}

static enum ps_status dtypes_from(const struct ps_graph *graph,
                                  struct ps_inferred_dtypes *out)
{
    struct ps_inferred_dtypes dtypes = {
        .arguments = calloc(graph->argument_count + 1, sizeof(int)),
        .outputs = calloc(graph->output_count + 1, sizeof(int)),
        .auxiliaries = calloc(graph->auxiliary_count + 1, sizeof(int)),
        .argument_count = graph->argument_count,
        .output_count = graph->output_count,
        .auxiliary_count = graph->auxiliary_count,
        .complete = ps_graph_unknown_dtype(graph) == PS_NO_ENTRY};
    if (dtypes.arguments == NULL || dtypes.outputs == NULL ||
        dtypes.auxiliaries == NULL) {
        ps_inferred_dtypes_fini(&dtypes);
        return PS_ENOMEM;
    }
    const struct ps_graph_entry *entries = graph->entries;
    for (size_t i = 0; i < graph->argument_count; i++) {
        dtypes.arguments[i] =
            entries[graph->nodes[graph->arguments[i]].first_entry].dtype;
    }
    for (size_t i = 0; i < graph->output_count; i++) {
        dtypes.outputs[i] = entries[graph->outputs[i]].dtype;
    }
    for (size_t i = 0; i < graph->auxiliary_count; i++) {
        dtypes.auxiliaries[i] =
            entries[graph->nodes[graph->auxiliaries[i]].first_entry].dtype;
    }
    *out = dtypes;
    return PS_OK;
}

enum ps_status ps_symbol_infer_shapes_partial(const struct ps_symbol *symbol,
                                              const struct ps_named_shape *known,
                                              size_t known_count,
                                              struct ps_inferred_shapes *out,
                                              struct ps_error *err)
{
    struct ps_graph graph = {0};
    /* the graph only holds the symbol; the count of holders is not part of its value */
    PS_TRY(ps_graph_make((struct ps_symbol *)(uintptr_t)symbol, &graph));
    enum ps_status status = PS_OK;
    for (size_t i = 0; i < known_count && status == PS_OK; i++) {
        status = ps_graph_set_shape(&graph, known[i].name, &known[i].shape, err);
    }
    if (status == PS_OK) {
        status = ps_graph_infer_shapes(&graph, err);
    }
    if (status == PS_OK) {
        status = shapes_from(&graph, out);
    }
    ps_graph_fini(&graph);
    return status;
}

enum ps_status ps_symbol_infer_dtypes_partial(const struct ps_symbol *symbol,
                                              const struct ps_named_dtype *known,
                                              size_t known_count,
                                              struct ps_inferred_dtypes *out,
                                              struct ps_error *err)
{
    struct ps_graph graph = {0};
    PS_TRY(ps_graph_make((struct ps_symbol *)(uintptr_t)symbol, &graph));
    enum ps_status status = PS_OK;
    for (size_t i = 0; i < known_count && status == PS_OK; i++) {
        status = ps_graph_set_dtype(&graph, known[i].name, known[i].dtype, err);
    }
    if (status == PS_OK) {
        status = ps_graph_infer_dtypes(&graph, err);
    }
    if (status == PS_OK) {
        status = dtypes_from(&graph, out);
    }
    ps_graph_fini(&graph);
    return status;
}

/* The name of the first argument that stayed unknown; of an inner value else. */
static enum ps_status incomplete(const struct ps_symbol *symbol, size_t argument,
                                 const char *what, struct ps_error *err)
{
    struct ps_names names = {0};
    PS_TRY(ps_symbol_list_arguments(symbol, &names));
    enum ps_status status = ps_error_set(
        err, PS_ENOTREADY, "%s of %s cannot be inferred from what is given", what,
        argument < names.count ? names.names[argument] : "a value inside the graph");
    ps_names_fini(&names);
    return status;
}

enum ps_status ps_symbol_infer_shapes(const struct ps_symbol *symbol,
                                      const struct ps_named_shape *known,
                                      size_t known_count, struct ps_inferred_shapes *out,
                                      struct ps_error *err)
{
    struct ps_inferred_shapes shapes = {0};
    PS_TRY(ps_symbol_infer_shapes_partial(symbol, known, known_count, &shapes, err));
    if (!shapes.complete) {
        size_t i = 0;
        while (i < shapes.argument_count && ps_shape_known(&shapes.arguments[i])) {
            i++;
        }
        ps_inferred_shapes_fini(&shapes);
        return incomplete(symbol, i, "the shape", err);
    }
    *out = shapes;
    return PS_OK;
}

enum ps_status ps_symbol_infer_dtypes(const struct ps_symbol *symbol,
                                      const struct ps_named_dtype *known,
                                      size_t known_count, struct ps_inferred_dtypes *out,
                                      struct ps_error *err)
{
    struct ps_inferred_dtypes dtypes = {0};
    PS_TRY(ps_symbol_infer_dtypes_partial(symbol, known, known_count, &dtypes, err));
    if (!dtypes.complete) {
        size_t i = 0;
        while (i < dtypes.argument_count && dtypes.arguments[i] != PS_DTYPE_UNKNOWN) {
            i++;
        }
        ps_inferred_dtypes_fini(&dtypes);
        return incomplete(symbol, i, "the type", err);
    }
    *out = dtypes;
    return PS_OK;
}
