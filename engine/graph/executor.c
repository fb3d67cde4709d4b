/* Binding given tensors, and what an executor shows: its tensors by place and by name. */
#include "engine/graph/executor.h"

#include "engine/graph/exec_core.h"

#include <stdlib.h>
#include <string.h>

enum ps_status ps_graph_check_known(const struct ps_graph *graph, struct ps_error *err)
{
    uint32_t shape = ps_graph_unknown_shape(graph);
    uint32_t dtype = ps_graph_unknown_dtype(graph);
    if (shape != PS_NO_ENTRY) {
        char text[PS_SHAPE_TEXT_BYTES];
        const struct ps_graph_entry *entry = &graph->entries[shape];
        return ps_error_set(err, PS_ESHAPE, "%s: the shape stays unknown, %s",
                            graph->nodes[entry->node].name,
                            ps_shape_text(&entry->shape, text));
    }
    if (dtype != PS_NO_ENTRY) {
        return ps_error_set(err, PS_EDTYPE, "%s: the type stays unknown",
                            graph->nodes[graph->entries[dtype].node].name);
    }
    return PS_OK;
}

/* ---- checking what was given ---- */

static enum ps_status take_variable(struct ps_graph *graph, uint32_t node,
                                    const struct ps_bind_options *options,
                                    const struct ps_tensor *tensor, struct ps_error *err)
{
    const char *name = graph->nodes[node].name;
    if (tensor == NULL) {
        return ps_error_set(err, PS_EINVAL, "%s: no tensor was given", name);
    }
    if (options->group_count == 0 &&
        !ps_context_equal(ps_tensor_context(tensor), options->context)) {
        char have[PS_CONTEXT_TEXT_BYTES], want[PS_CONTEXT_TEXT_BYTES];
        return ps_error_set(err, PS_EINVAL, "%s: lies on %s, bound on %s", name,
                            ps_context_text(ps_tensor_context(tensor), have),
                            ps_context_text(options->context, want));
    }
    struct ps_graph_entry *entry = &graph->entries[graph->nodes[node].first_entry];
    entry->shape = *ps_tensor_shape(tensor);
    entry->dtype = ps_tensor_dtype(tensor);
    return PS_OK;
}

static enum ps_status take_gradient(const struct ps_graph *graph, size_t i,
                                    const struct ps_bind_arrays *arrays,
                                    enum ps_grad_req *req, struct ps_error *err)
{
    const struct ps_graph_node *node = &graph->nodes[graph->arguments[i]];
    const struct ps_graph_entry *entry = &graph->entries[node->first_entry];
    const struct ps_tensor *gradient =
        arrays->gradients == NULL ? NULL : arrays->gradients[i];
    *req = arrays->reqs != NULL ? arrays->reqs[i]
           : gradient != NULL   ? PS_GRAD_WRITE
                                : PS_GRAD_NULL;
    if (*req == PS_GRAD_NULL) {
        return PS_OK;
    }
    if (gradient == NULL) {
        return ps_error_set(err, PS_EINVAL,
                            "%s: a gradient is asked for, no tensor was "
                            "given for it",
                            node->name);
    }
    if (!ps_context_equal(ps_tensor_context(gradient),
                          ps_tensor_context(arrays->arguments[i]))) {
        char have[PS_CONTEXT_TEXT_BYTES], want[PS_CONTEXT_TEXT_BYTES];
        return ps_error_set(
            err, PS_EINVAL, "%s: gradient lies on %s, argument on %s", node->name,
            ps_context_text(ps_tensor_context(gradient), have),
            ps_context_text(ps_tensor_context(arrays->arguments[i]), want));
    }
    if (ps_tensor_dtype(gradient) != (enum ps_dtype)entry->dtype) {
        return ps_error_set(err, PS_EDTYPE, "%s: gradient is %s, argument %s", node->name,
                            ps_dtype_name(ps_tensor_dtype(gradient)),
                            ps_dtype_name(entry->dtype));
    }
    if (!ps_shape_equal(ps_tensor_shape(gradient), &entry->shape)) {
        char have[PS_SHAPE_TEXT_BYTES], want[PS_SHAPE_TEXT_BYTES];
        return ps_error_set(err, PS_ESHAPE, "%s: gradient is %.64s, argument %.64s",
                            node->name, ps_shape_text(ps_tensor_shape(gradient), have),
                            ps_shape_text(&entry->shape, want));
    }
    return PS_OK;
}

static enum ps_status take_arrays(struct ps_graph *graph,
                                  const struct ps_bind_options *options,
                                  const struct ps_bind_arrays *arrays,
                                  enum ps_grad_req *reqs, struct ps_error *err)
{
    for (size_t i = 0; i < graph->argument_count; i++) {
        PS_TRY(take_variable(graph, graph->arguments[i], options, arrays->arguments[i],
                             err));
        PS_TRY(take_gradient(graph, i, arrays, &reqs[i], err));
    }
    for (size_t i = 0; i < graph->auxiliary_count; i++) {
        PS_TRY(take_variable(graph, graph->auxiliaries[i], options,
                             arrays->auxiliaries == NULL ? NULL : arrays->auxiliaries[i],
                             err));
    }
    PS_TRY(ps_graph_infer_shapes(graph, err));
    PS_TRY(ps_graph_infer_dtypes(graph, err));
    return ps_graph_check_known(graph, err);
}

enum ps_status ps_executor_bind(struct ps_symbol *symbol,
                                const struct ps_bind_options *options,
                                const struct ps_bind_arrays *arrays,
                                struct ps_executor **executor_out, struct ps_error *err)
{
    struct ps_graph graph = {0};
    enum ps_grad_req *reqs = NULL;
    enum ps_status status;
    PS_TRY_GOTO(status, ps_graph_make(symbol, &graph), out);
    reqs = calloc(graph.argument_count + 1, sizeof(*reqs));
    if (reqs == NULL) {
        status = PS_ENOMEM;
        goto out;
    }
    PS_TRY_GOTO(status, take_arrays(&graph, options, arrays, reqs, err), out);
    struct ps_exec_inputs inputs = {.arguments = arrays->arguments,
                                    .gradients = arrays->gradients,
                                    .reqs = reqs,
                                    .auxiliaries = arrays->auxiliaries};
    status = ps_executor_over(options, &graph, &inputs, executor_out, err);
out:
    free(reqs);
    ps_graph_fini(&graph);
    return status;
}

/* ---- the executor over its core ---- */

static enum ps_status keep_tensors(struct ps_tensor *const *from, size_t count,
                                   struct ps_tensor ***out)
{
    *out = calloc(count + 1, sizeof(**out));
    if (*out == NULL) {
        return PS_ENOMEM;
    }
    for (size_t i = 0; from != NULL && i < count; i++) {
        (*out)[i] = from[i] == NULL ? NULL : ps_tensor_retain(from[i]);
    }
    return PS_OK;
}

/* Tensors are found by name: two variables of one name would be one to the caller. */
static enum ps_status check_names(const struct ps_names *names, struct ps_error *err)
{
    for (size_t i = 0; i < names->count; i++) {
        if (ps_names_index(names, names->names[i]) != (int64_t)i) {
            return ps_error_set(err, PS_EINVAL, "two variables are called %s",
                                names->names[i]);
        }
    }
    return PS_OK;
}

enum ps_status ps_executor_over(const struct ps_bind_options *options,
                                struct ps_graph *graph,
                                const struct ps_exec_inputs *inputs,
                                struct ps_executor **executor_out, struct ps_error *err)
{
    size_t arguments = graph->argument_count, auxiliaries = graph->auxiliary_count;
    struct ps_symbol *symbol = graph->symbol;
    struct ps_executor *executor = calloc(1, sizeof(*executor));
    if (executor == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status;
    PS_TRY_GOTO(status, ps_symbol_list_arguments(symbol, &executor->argument_names),
                fail);
    PS_TRY_GOTO(status, ps_symbol_list_auxiliaries(symbol, &executor->auxiliary_names),
                fail);
    PS_TRY_GOTO(status, check_names(&executor->argument_names, err), fail);
    PS_TRY_GOTO(status, keep_tensors(inputs->arguments, arguments, &executor->arguments),
                fail);
    PS_TRY_GOTO(status, keep_tensors(inputs->gradients, arguments, &executor->gradients),
                fail);
    PS_TRY_GOTO(status,
                keep_tensors(inputs->auxiliaries, auxiliaries, &executor->auxiliaries),
                fail);
    executor->reqs = calloc(arguments + 1, sizeof(executor->reqs[0]));
    if (executor->reqs == NULL) {
        status = PS_ENOMEM;
        goto fail;
    }
    memcpy(executor->reqs, inputs->reqs, arguments * sizeof(executor->reqs[0]));
    PS_TRY_GOTO(status, ps_exec_core_create(options, graph, inputs, &executor->core, err),
                fail);
    *executor_out = executor;
    return PS_OK;
fail:
    ps_executor_destroy(executor);
    return status;
}

static void drop_tensors(struct ps_tensor **tensors, size_t count)
{
    for (size_t i = 0; tensors != NULL && i < count; i++) {
        ps_tensor_release(tensors[i]);
    }
    free(tensors);
}

void ps_executor_destroy(struct ps_executor *executor)
{
    if (executor == NULL) {
        return;
    }
    ps_exec_core_close(executor->core);
    drop_tensors(executor->arguments, executor->argument_names.count);
    drop_tensors(executor->gradients, executor->argument_names.count);
    drop_tensors(executor->auxiliaries, executor->auxiliary_names.count);
    free(executor->reqs);
    ps_names_fini(&executor->argument_names);
    ps_names_fini(&executor->auxiliary_names);
    free(executor);
}

/* ---- its tensors ---- */

size_t ps_executor_argument_count(const struct ps_executor *executor)
{
    return executor->argument_names.count;
}

size_t ps_executor_auxiliary_count(const struct ps_executor *executor)
{
    return executor->auxiliary_names.count;
}

size_t ps_executor_output_count(const struct ps_executor *executor)
{
    return executor->core->graph.output_count;
}

const char *ps_executor_argument_name(const struct ps_executor *executor, size_t i)
{
    return i < executor->argument_names.count ? executor->argument_names.names[i] : NULL;
}

const char *ps_executor_auxiliary_name(const struct ps_executor *executor, size_t i)
{
    return i < executor->auxiliary_names.count ? executor->auxiliary_names.names[i]
                                               : NULL;
}

struct ps_tensor *ps_executor_argument(const struct ps_executor *executor, size_t i)
{
    return i < executor->argument_names.count ? executor->arguments[i] : NULL;
}

struct ps_tensor *ps_executor_gradient(const struct ps_executor *executor, size_t i)
{
    return i < executor->argument_names.count && executor->reqs[i] != PS_GRAD_NULL
               ? executor->gradients[i]
               : NULL;
}

enum ps_grad_req ps_executor_req(const struct ps_executor *executor, size_t i)
{
    return i < executor->argument_names.count ? executor->reqs[i] : PS_GRAD_NULL;
}

struct ps_tensor *ps_executor_auxiliary(const struct ps_executor *executor, size_t i)
{
    return i < executor->auxiliary_names.count ? executor->auxiliaries[i] : NULL;
}

struct ps_tensor *ps_executor_output(const struct ps_executor *executor, size_t i)
{
    const struct ps_exec_core *core = executor->core;
    return i < core->graph.output_count ? core->entries[core->graph.outputs[i]] : NULL;
}

static size_t place_of(const struct ps_names *names, const char *name)
{
    int64_t i = ps_names_index(names, name);
    return i < 0 ? SIZE_MAX : (size_t)i;
}

struct ps_tensor *ps_executor_find_argument(const struct ps_executor *executor,
                                            const char *name)
{
    return ps_executor_argument(executor, place_of(&executor->argument_names, name));
}

struct ps_tensor *ps_executor_find_gradient(const struct ps_executor *executor,
                                            const char *name)
{
    return ps_executor_gradient(executor, place_of(&executor->argument_names, name));
}

struct ps_tensor *ps_executor_find_auxiliary(const struct ps_executor *executor,
                                             const char *name)
{
    return ps_executor_auxiliary(executor, place_of(&executor->auxiliary_names, name));
}

struct ps_var *ps_executor_gradient_ready(const struct ps_executor *executor, size_t i)
{
    struct ps_tensor *gradient = ps_executor_gradient(executor, i);
    return gradient == NULL ? NULL : ps_tensor_var(gradient);
}

struct ps_symbol *ps_executor_symbol(const struct ps_executor *executor)
{
    return executor->core->graph.symbol;
}
