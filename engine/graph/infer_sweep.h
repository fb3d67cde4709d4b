/* What inference of shapes and of types have in common: one value in each entry, which an
 * operator's own function fills in any direction.  Private to infer_*.c. */
#ifndef PENSTOCK_ENGINE_GRAPH_INFER_SWEEP_H
#define PENSTOCK_ENGINE_GRAPH_INFER_SWEEP_H

#include "engine/graph/graph_ir.h"

struct ps_inference {
    const char *hint;    /* attribute of a variable: "__shape__" */
    size_t offset, size; /* of the value in an entry */
    /* How much of the entry's value is missing; 0: nothing. */
    size_t (*missing)(const struct ps_graph_entry *entry);
    /* The operator's function over its values. */
    enum ps_status (*infer)(const struct ps_op *op, void *in, void *out, void *aux,
                            struct ps_error *err);
    /* What 'node' says of entry 'e' goes into it; an error where they contradict. */
    enum ps_status (*merge)(struct ps_graph *graph, const struct ps_graph_node *node,
                            uint32_t e, const void *said, struct ps_error *err);
    /* Reads a hint into an entry of which nothing is known. */
    enum ps_status (*read_hint)(const char *name, const char *hint,
                                struct ps_graph_entry *entry, struct ps_error *err);
};

/* Hints, then full forward and full backward sweeps over the operators until what is
 * missing stops falling. */
PS_MUST_CHECK enum ps_status ps_graph_sweep(struct ps_graph *graph,
                                            const struct ps_inference *inference,
                                            struct ps_error *err);
/* The first entry of which something is missing, or PS_NO_ENTRY. */
uint32_t ps_graph_first_missing(const struct ps_graph *graph,
                                const struct ps_inference *inference);

#endif
