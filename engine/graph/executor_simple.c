/* Binding from shapes alone, and again for other shapes. */
#include "engine/graph/executor.h"

#include "base/rng.h"
#include "engine/graph/exec_core.h"
#include "engine/graph/place.h"

#include <stdlib.h>
#include <string.h>

/* The tensors of a binding while they are made. */
struct made {
    struct ps_tensor **arguments, **gradients, **auxiliaries;
    enum ps_grad_req *reqs;
    size_t argument_count, auxiliary_count;
};

static void made_fini(struct made *made)
{
    for (size_t i = 0; i < made->argument_count; i++) {
        ps_tensor_release(made->arguments == NULL ? NULL : made->arguments[i]);
        ps_tensor_release(made->gradients == NULL ? NULL : made->gradients[i]);
    }
    for (size_t i = 0; made->auxiliaries != NULL && i < made->auxiliary_count; i++) {
        ps_tensor_release(made->auxiliaries[i]);
    }
    free(made->arguments);
    free(made->gradients);
    free(made->auxiliaries);
    free(made->reqs);
}

static enum ps_status made_init(struct made *made, const struct ps_graph *graph)
{
    *made = (struct made){
        .arguments = calloc(graph->argument_count + 1, sizeof(struct ps_tensor *)),
        .gradients = calloc(graph->argument_count + 1, sizeof(struct ps_tensor *)),
        .auxiliaries = calloc(graph->auxiliary_count + 1, sizeof(struct ps_tensor *)),
        .reqs = calloc(graph->argument_count + 1, sizeof(enum ps_grad_req)),
        .argument_count = graph->argument_count,
        .auxiliary_count = graph->auxiliary_count};
    return made->arguments == NULL || made->gradients == NULL ||
                   made->auxiliaries == NULL || made->reqs == NULL
               ? PS_ENOMEM
               : PS_OK;
}

static const struct ps_graph_entry *entry_of(const struct ps_graph *graph, uint32_t node)
{
    return &graph->entries[graph->nodes[node].first_entry];
}

/* A tensor for the variable 'node' in 'context', zero (undefined when it is never run).
 */
static enum ps_status make_zero(const struct ps_bind_options *options,
                                const struct ps_graph *graph, uint32_t node,
                                struct ps_context context, struct ps_tensor **out,
                                struct ps_error *err)
{
    const struct ps_graph_entry *entry = entry_of(graph, node);
    const char *name = graph->nodes[node].name;
    enum ps_status status =
        ps_tensor_create(options->engine, context, entry->dtype, &entry->shape, out);
    if (status == PS_OK) {
        ps_tensor_set_label(*out, name);
    }
    if (status == PS_OK && !options->plan_only) {
        status = ps_tensor_fill(*out, 0.0);
    }
    if (status != PS_OK) {
        char text[PS_SHAPE_TEXT_BYTES];
        return ps_error_set(err, status, "%s: a tensor of %s %s: %s", name,
                            ps_dtype_name(entry->dtype),
                            ps_shape_text(&entry->shape, text), ps_status_text(status));
    }
    return PS_OK;
}

static bool listed(const char *const *names, const char *name)
{
    for (size_t i = 0; names != NULL && names[i] != NULL; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* The request for each argument: of all, none of the listed, then each one's own. */
static enum ps_status decide_requests(const struct ps_graph *graph,
                                      const struct ps_simple_bind *bind,
                                      struct made *made, struct ps_error *err)
{
    for (size_t i = 0; i < graph->argument_count; i++) {
        const char *name = graph->nodes[graph->arguments[i]].name;
        made->reqs[i] = listed(bind->no_gradient, name) ? PS_GRAD_NULL : bind->req;
    }
    for (size_t r = 0; r < bind->req_count; r++) {
        size_t i = 0;
        while (i < graph->argument_count &&
               strcmp(graph->nodes[graph->arguments[i]].name, bind->reqs[r].name) != 0) {
            i++;
        }
        if (i == graph->argument_count) {
            return ps_error_set(err, PS_ENOENT,
                                "a gradient is asked for of %s: no argument is called so",
                                bind->reqs[r].name);
        }
        made->reqs[i] = bind->reqs[r].req;
    }
    return PS_OK;
}

static enum ps_status make_tensors(const struct ps_graph *graph,
                                   const struct ps_bind_options *options,
                                   struct made *made, struct ps_error *err)
{
    for (size_t i = 0; i < graph->argument_count; i++) {
        uint32_t node = graph->arguments[i];
        struct ps_context context = graph->nodes[node].context;
        PS_TRY(make_zero(options, graph, node, context, &made->arguments[i], err));
        if (made->reqs[i] != PS_GRAD_NULL) {
            PS_TRY(make_zero(options, graph, node, context, &made->gradients[i], err));
        }
    }
    for (size_t i = 0; i < graph->auxiliary_count; i++) {
        uint32_t node = graph->auxiliaries[i];
        PS_TRY(make_zero(options, graph, node, graph->nodes[node].context,
                         &made->auxiliaries[i], err));
    }
    return PS_OK;
}

static enum ps_status bind_made(const struct ps_bind_options *options,
                                struct ps_graph *graph, const struct made *made,
                                struct ps_executor **executor_out, struct ps_error *err)
{
    struct ps_exec_inputs inputs = {.arguments = made->arguments,
                                    .gradients = made->gradients,
                                    .reqs = made->reqs,
                                    .auxiliaries = made->auxiliaries};
    return ps_executor_over(options, graph, &inputs, executor_out, err);
}

enum ps_status ps_executor_simple_bind(struct ps_symbol *symbol,
                                       const struct ps_bind_options *options,
                                       const struct ps_simple_bind *bind,
                                       struct ps_executor **executor_out,
                                       struct ps_error *err)
{
    struct ps_graph graph = {0};
    struct made made = {0};
    enum ps_status status;
    PS_TRY_GOTO(status, ps_graph_make(symbol, &graph), out);
    for (size_t i = 0; i < bind->shape_count; i++) {
        PS_TRY_GOTO(
            status,
            ps_graph_set_shape(&graph, bind->shapes[i].name, &bind->shapes[i].shape, err),
            out);
    }
    for (size_t i = 0; i < bind->dtype_count; i++) {
        PS_TRY_GOTO(
            status,
            ps_graph_set_dtype(&graph, bind->dtypes[i].name, bind->dtypes[i].dtype, err),
            out);
    }
    PS_TRY_GOTO(status, ps_graph_infer_shapes(&graph, err), out);
    PS_TRY_GOTO(status, ps_graph_default_dtypes(&graph, err), out);
    PS_TRY_GOTO(status, ps_graph_check_known(&graph, err), out);
    PS_TRY_GOTO(status, made_init(&made, &graph), out);
    PS_TRY_GOTO(status, decide_requests(&graph, bind, &made, err), out);
    struct ps_place place = {.context = options->context,
                             .groups = options->groups,
                             .group_count = options->group_count};
    PS_TRY_GOTO(status, ps_graph_assign(&graph, &place, err), out);
    PS_TRY_GOTO(status, make_tensors(&graph, options, &made, err), out);
    status = bind_made(options, &graph, &made, executor_out, err);
out:
    made_fini(&made);
    ps_graph_fini(&graph);
    return status;
}

/* ---- reshape ---- */

struct reshape {
    struct ps_executor *from;
    const struct ps_named_shape *shapes;
    size_t shape_count;
    bool partial, up_sizing;
};

static bool named(const struct reshape *reshape, const char *name)
{
    for (size_t i = 0; i < reshape->shape_count; i++) {
        if (strcmp(reshape->shapes[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* 'old' seen with the entry's shape: itself, its first bytes, or new memory. */
static enum ps_status reshape_tensor(const struct reshape *reshape,
                                     const struct ps_graph *graph, uint32_t node,
                                     struct ps_tensor *old, struct ps_tensor **out,
                                     struct ps_error *err)
{
    const char *name = graph->nodes[node].name;
    const struct ps_graph_entry *entry = entry_of(graph, node);
    if (ps_shape_equal(ps_tensor_shape(old), &entry->shape)) {
        *out = ps_tensor_retain(old);
        return PS_OK;
    }
    char have[PS_SHAPE_TEXT_BYTES], want[PS_SHAPE_TEXT_BYTES];
    ps_shape_text(ps_tensor_shape(old), have);
    ps_shape_text(&entry->shape, want);
    if (!reshape->partial && !named(reshape, name)) {
        return ps_error_set(err, PS_ESHAPE,
                            "reshape: %s would go from %.64s to %.64s; name it or allow "
                            "partial shaping",
                            name, have, want);
    }
    if (ps_shape_count(&entry->shape) <= ps_tensor_count(old)) {
        return ps_tensor_at(old, 0, entry->dtype, &entry->shape, out);
    }
    if (!reshape->up_sizing) {
        return ps_error_set(err, PS_ERANGE,
                            "reshape: %s would grow from %.64s to %.64s; allow up-sizing",
                            name, have, want);
    }
    return make_zero(&reshape->from->core->options, graph, node, ps_tensor_context(old),
                     out, err);
}

static enum ps_status reshape_tensors(const struct reshape *reshape,
                                      const struct ps_graph *graph, struct made *made,
                                      struct ps_error *err)
{
    const struct ps_executor *from = reshape->from;
    for (size_t i = 0; i < graph->argument_count; i++) {
        uint32_t node = graph->arguments[i];
        PS_TRY(reshape_tensor(reshape, graph, node, from->arguments[i],
                              &made->arguments[i], err));
        made->reqs[i] = from->reqs[i];
        if (made->reqs[i] != PS_GRAD_NULL) {
            PS_TRY(reshape_tensor(reshape, graph, node, from->gradients[i],
                                  &made->gradients[i], err));
        }
    }
    for (size_t i = 0; i < graph->auxiliary_count; i++) {
        PS_TRY(reshape_tensor(reshape, graph, graph->auxiliaries[i], from->auxiliaries[i],
                              &made->auxiliaries[i], err));
    }
    return PS_OK;
}

/* Types stay as they are; shapes come from what is named. */
static enum ps_status reshape_graph(const struct reshape *reshape, struct ps_graph *graph,
                                    struct ps_error *err)
{
    const struct ps_executor *from = reshape->from;
    for (size_t i = 0; i < reshape->shape_count; i++) {
        PS_TRY(ps_graph_set_shape(graph, reshape->shapes[i].name,
                                  &reshape->shapes[i].shape, err));
    }
    for (size_t i = 0; i < graph->argument_count; i++) {
        graph->entries[graph->nodes[graph->arguments[i]].first_entry].dtype =
            ps_tensor_dtype(from->arguments[i]);
    }
    for (size_t i = 0; i < graph->auxiliary_count; i++) {
        graph->entries[graph->nodes[graph->auxiliaries[i]].first_entry].dtype =
            ps_tensor_dtype(from->auxiliaries[i]);
    }
    PS_TRY(ps_graph_infer_shapes(graph, err));
    PS_TRY(ps_graph_infer_dtypes(graph, err));
    return ps_graph_check_known(graph, err);
}

enum ps_status ps_executor_reshape(struct ps_executor *executor,
                                   const struct ps_named_shape *shapes,
                                   size_t shape_count, bool partial, bool up_sizing,
                                   struct ps_executor **executor_out,
                                   struct ps_error *err)
{
    struct reshape reshape = {.from = executor,
                              .shapes = shapes,
                              .shape_count = shape_count,
                              .partial = partial,
                              .up_sizing = up_sizing};
    struct ps_graph graph = {0};
    struct made made = {0};
    enum ps_status status;
    PS_TRY_GOTO(status, ps_graph_make(executor->core->graph.symbol, &graph), out);
    PS_TRY_GOTO(status, reshape_graph(&reshape, &graph, err), out);
    PS_TRY_GOTO(status, made_init(&made, &graph), out);
    PS_TRY_GOTO(status, reshape_tensors(&reshape, &graph, &made, err), out);
    struct ps_bind_options options = executor->core->options;
    options.shared = executor;
    /* not the parent's dropout masks once more */
    options.seed = ps_hash_u64(options.seed + ++executor->reshapes);
    status = bind_made(&options, &graph, &made, executor_out, err);
out:
    made_fini(&made);
    ps_graph_fini(&graph);
    return status;
}
