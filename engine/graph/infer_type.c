/* Element type inference: the sweeps of infer_sweep.c over dtype codes. */
#include "engine/graph/infer_sweep.h"

#include <stddef.h>
#include <string.h>

static size_t missing(const struct ps_graph_entry *entry)
{
    return entry->dtype == PS_DTYPE_UNKNOWN ? 1 : 0;
}

static enum ps_status infer(const struct ps_op *op, void *in, void *out, void *aux,
                            struct ps_error *err)
{
    return ps_op_infer_dtype(op, in, out, aux, err);
}

static enum ps_status merge(struct ps_graph *graph, const struct ps_graph_node *node,
                            uint32_t e, const void *said_value, struct ps_error *err)
{
    int *dtype = &graph->entries[e].dtype;
    int said;
    memcpy(&said, said_value, sizeof(said));
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

/* A name, or one of MXNet's codes; -1 is no hint. */
static enum ps_status read_hint(const char *name, const char *hint,
                                struct ps_graph_entry *entry, struct ps_error *err)
{
    int64_t code;
    entry->dtype = ps_dtype_from_name(hint);
    if (entry->dtype != PS_DTYPE_UNKNOWN || strcmp(hint, "-1") == 0) {
        return PS_OK;
    }
    if (ps_parse_i64(hint, &code) != PS_OK || code < 0 || code >= 128 ||
        ps_dtype_size((int)code) == 0) {
        return ps_error_set(err, PS_EINVAL, "%s: __dtype__ %.64s: not a type", name,
                            hint);
    }
    entry->dtype = (int)code;
    return PS_OK;
}

static const struct ps_inference dtypes = {.hint = "__dtype__",
                                           .offset =
                                               offsetof(struct ps_graph_entry, dtype),
                                           .size = sizeof(int),
                                           .missing = missing,
                                           .infer = infer,
                                           .merge = merge,
                                           .read_hint = read_hint};

enum ps_status ps_graph_infer_dtypes(struct ps_graph *graph, struct ps_error *err)
{
    return ps_graph_sweep(graph, &dtypes, err);
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
    return ps_graph_first_missing(graph, &dtypes);
}
