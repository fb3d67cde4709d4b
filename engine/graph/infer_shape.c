/* Shape inference: the sweeps of infer_sweep.c over shapes, of which single dimensions
 * may be unknown. */
#include "engine/graph/infer_sweep.h"

#include <stddef.h>

static size_t missing(const struct ps_graph_entry *entry)
{
    const struct ps_shape *shape = &entry->shape;
    size_t count = shape->ndim < 0 ? PS_MAX_DIM + 1 : 0;
    for (int d = 0; d < shape->ndim; d++) {
        count += shape->dim[d] < 0 ? 1 : 0;
    }
    return count;
}

static enum ps_status infer(const struct ps_op *op, void *in, void *out, void *aux,
                            struct ps_error *err)
{
    return ps_op_infer_shape(op, in, out, aux, err);
}

static enum ps_status merge(struct ps_graph *graph, const struct ps_graph_node *node,
                            uint32_t e, const void *said, struct ps_error *err)
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

static enum ps_status read_hint(const char *name, const char *hint,
                                struct ps_graph_entry *entry, struct ps_error *err)
{
    return ps_shape_parse_hint(hint, &entry->shape) == PS_OK
               ? PS_OK
               : ps_error_set(err, PS_EINVAL,
                              "%s: __shape__ %.64s: not a shape like (2, 3)", name, hint);
}

static const struct ps_inference shapes = {.hint = "__shape__",
                                           .offset =
                                               offsetof(struct ps_graph_entry, shape),
                                           .size = sizeof(struct ps_shape),
                                           .missing = missing,
                                           .infer = infer,
                                           .merge = merge,
                                           .read_hint = read_hint};

enum ps_status ps_graph_infer_shapes(struct ps_graph *graph, struct ps_error *err)
{
    return ps_graph_sweep(graph, &shapes, err);
}

uint32_t ps_graph_unknown_shape(const struct ps_graph *graph)
{
    return ps_graph_first_missing(graph, &shapes);
}
