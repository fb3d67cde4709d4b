/* Opening a network for planning, and binding it without memory.  See plan_net.h. */
#include "worker/plan_net.h"

#include "base/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), e = strlen(ending);
    return n >= e && strcmp(name + n - e, ending) == 0;
}

/* What is fed to a network: no parameter. */
static bool is_fed(const struct ps_net *net, const char *name)
{
    for (size_t i = 0; i < net->input_count; i++) {
        if (strcmp(net->inputs[i].name, name) == 0) {
            return true;
        }
    }
    return ends_with(name, "label");
}

static enum ps_status open_model(struct ps_net *net, struct ps_error *err)
{
    const struct ps_net_options *o = &net->options;
    const struct ps_model *model = NULL;
    PS_TRY(ps_model_find(o->network, &model, err));
    PS_TRY(ps_model_build_sized(model, &o->size, &net->symbol, err));
    net->name = model->name;
    net->input_count = ps_model_inputs(model, &o->size, o->batch, net->inputs);
    return PS_OK;
}

static enum ps_status open_file(struct ps_net *net, struct ps_error *err)
{
    const struct ps_net_options *o = &net->options;
    struct ps_fs *fs = ps_engine_node(o->engine)->fs;
    PS_TRY(ps_symbol_load(fs, o->symbol_path, &net->symbol, err));
    net->name = o->symbol_path;
    net->inputs[net->input_count++].name = "data";
    return PS_OK;
}

enum ps_status ps_net_open(const struct ps_net_options *options, struct ps_net *net,
                           struct ps_error *err)
{
    *net = (struct ps_net){.options = *options};
    PS_TRY(options->network != NULL ? open_model(net, err) : open_file(net, err));
    if (options->sample.ndim > 0) {
        struct ps_shape *data = &net->inputs[0].shape;
        *data = (struct ps_shape){.ndim = options->sample.ndim + 1};
        data->dim[0] = options->batch;
        memcpy(data->dim + 1, options->sample.dim,
               (size_t)options->sample.ndim * sizeof(data->dim[0]));
    }
    PS_TRY(ps_symbol_list_arguments(net->symbol, &net->arguments));
    net->no_gradient = calloc(net->arguments.count + 1, sizeof(net->no_gradient[0]));
    if (net->no_gradient == NULL) {
        return PS_ENOMEM;
    }
    for (size_t i = 0, n = 0; i < net->arguments.count; i++) {
        if (is_fed(net, net->arguments.names[i])) {
            net->no_gradient[n++] = net->arguments.names[i];
        }
    }
    return PS_OK;
}

void ps_net_close(struct ps_net *net)
{
    free(net->no_gradient);
    ps_names_fini(&net->arguments);
    ps_symbol_release(net->symbol);
    *net = (struct ps_net){0};
}

static void count_parameters(const struct ps_net *net, struct ps_net_plan *plan)
{
    for (size_t i = 0; i < ps_executor_argument_count(plan->executor); i++) {
        if (!is_fed(net, ps_executor_argument_name(plan->executor, i))) {
            plan->parameter_arrays++;
            plan->parameter_count +=
                ps_tensor_count(ps_executor_argument(plan->executor, i));
        }
    }
}

static void choose(const struct ps_net_choice *choice, struct ps_bind_options *options)
{
    switch (choice->change) {
    case PS_NET_AS_SET:
        break;
    case PS_NET_INPLACE:
        options->inplace = choice->value;
        break;
    case PS_NET_MATCH_RANGE:
        options->match_range = choice->value;
        break;
    case PS_NET_NUM_TEMP:
        options->num_temp = choice->value;
        break;
    case PS_NET_MIRROR:
        options->mirror = choice->value;
        break;
    case PS_NET_SQRT:
        options->memonger = "sqrt";
        break;
    case PS_NET_PLAIN:
        options->mirror = 0;
        options->memonger = "";
        break;
    case PS_NET_SINGLE:
        options->bulk = 1;
        break;
    case PS_NET_UNPLANNED:
        options->plan = PS_PLAN_NONE;
        break;
    }
}

enum ps_status ps_net_plan(const struct ps_net *net, const struct ps_net_choice *choice,
                           struct ps_net_plan *plan_out, struct ps_error *err)
{
    const struct ps_net_options *o = &net->options;
    struct ps_bind_options options = PS_BIND_OPTIONS(o->engine, o->kernels);
    options.context = o->context;
    options.plan_only = true;
    choose(choice, &options);
    struct ps_simple_bind bind = {.shapes = net->inputs,
                                  .shape_count = net->input_count,
                                  .req = o->inference ? PS_GRAD_NULL : PS_GRAD_WRITE,
                                  .no_gradient = net->no_gradient};
    struct ps_net_plan plan = {.choice = choice};
    struct ps_error why = {.status = PS_OK};
    enum ps_status status =
        ps_executor_simple_bind(net->symbol, &options, &bind, &plan.executor, &why);
    if (status == PS_ERANGE) {
        (void)snprintf(plan.refused, sizeof(plan.refused), "%s", why.text);
    } else if (status != PS_OK) {
        return ps_error_set(err, status, "network %s: %s", net->name,
                            why.status != PS_OK ? why.text : ps_status_text(status));
    } else {
        ps_executor_memory(plan.executor, &plan.memory);
        count_parameters(net, &plan);
    }
    *plan_out = plan;
    return PS_OK;
}

void ps_net_plan_fini(struct ps_net_plan *plan)
{
    ps_executor_destroy(plan->executor);
    plan->executor = NULL;
}

enum ps_status ps_net_live(const struct ps_net_plan *plan, size_t **bytes_out,
                           size_t *count_out)
{
    size_t count = ps_executor_step_count(plan->executor);
    size_t *bytes = calloc(count + 1, sizeof(bytes[0]));
    if (bytes == NULL) {
        return PS_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        struct ps_executor_step step;
        if (ps_executor_step(plan->executor, i, &step) == PS_OK) {
            bytes[i] = step.live_bytes + step.workspace_bytes;
        }
    }
    *bytes_out = bytes;
    *count_out = count;
    return PS_OK;
}

const char *ps_net_layout_text(enum ps_plan_kind kind)
{
    switch (kind) {
    case PS_PLAN_OFFSETS:
        return "arena";
    case PS_PLAN_NONE:
        return "a block each";
    default:
        return "blocks";
    }
}
