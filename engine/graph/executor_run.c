/* Running: pushing the prepared operations, in node order, and telling a monitor. */
#include "engine/graph/executor.h"

#include "engine/graph/exec_core.h"

/* Tells the monitor of the outputs of node 'n'. */
static enum ps_status report(const struct ps_executor *executor, uint32_t n,
                             struct ps_error *err)
{
    const struct ps_exec_core *core = executor->core;
    const struct ps_graph_node *node = &core->graph.nodes[n];
    for (uint32_t i = 0; i < node->output_count; i++) {
        struct ps_tensor *value = core->entries[node->first_entry + i];
        if (value == NULL) {
            continue; /* not computed */
        }
        struct ps_str name = {0};
        if (node->kind == PS_NODE_FORWARD && node->mirror_of == PS_NO_INDEX) {
            struct ps_sym_entry entry = {
                .node = (struct ps_sym_node *)(uintptr_t)node->sym, .index = i};
            ps_sym_entry_name(&entry, &name);
        } else if (node->output_count == 1) {
            ps_str_printf(&name, "%s_output", node->name);
        } else {
            ps_str_printf(&name, "%s_output%u", node->name, i);
        }
        if (name.failed) {
            ps_str_fini(&name);
            return ps_error_set(err, PS_ENOMEM, "%s: %s", node->name,
                                ps_status_text(PS_ENOMEM));
        }
        executor->monitor(executor->monitor_arg, ps_str_text(&name), value);
        ps_str_fini(&name);
    }
    return PS_OK;
}

/* Every operator by itself, and the monitor after each. */
static enum ps_status run_monitored(const struct ps_executor *executor,
                                    enum ps_exec_part_kind kind, struct ps_error *err)
{
    const struct ps_exec_core *core = executor->core;
    const struct ps_exec_part *part = &core->single[kind];
    size_t forward = core->graph.forward_count;
    size_t first = kind == PS_PART_BACKWARD ? forward : 0;
    size_t end = kind == PS_PART_BACKWARD ? core->graph.node_count : forward;
    size_t at = 0;
    for (size_t n = first; n < end; n++) {
        enum ps_node_kind node = core->graph.nodes[n].kind;
        if (core->ops[n].run != NULL) {
            PS_TRY(ps_exec_push_batch(part, at, err));
            at++;
        }
        if (node != PS_NODE_VARIABLE && node != PS_NODE_HEAD_GRAD) {
            PS_TRY(report(executor, (uint32_t)n, err));
        }
    }
    return PS_OK;
}

static enum ps_status run_part(const struct ps_executor *executor,
                               enum ps_exec_part_kind kind, struct ps_error *err)
{
    if (executor->monitor != NULL) {
        return run_monitored(executor, kind, err);
    }
    return ps_exec_push_part(executor->core, &executor->core->parts[kind], err);
}

static enum ps_status check_runs(const struct ps_executor *executor, const char *what,
                                 struct ps_error *err)
{
    return executor->core->options.plan_only
               ? ps_error_set(err, PS_EPERM, "%s: bound with plan_only, for asking only",
                              what)
               : PS_OK;
}

enum ps_status ps_executor_set_monitor(struct ps_executor *executor, ps_monitor_fn fn,
                                       void *arg)
{
    struct ps_exec_core *core = executor->core;
    struct ps_error err = {0};
    if (fn != NULL && core->single[PS_PART_TRAINING].batches == NULL) {
        PS_TRY(ps_exec_make_parts(core, true, &err));
    }
    executor->monitor = fn;
    executor->monitor_arg = arg;
    return PS_OK;
}

enum ps_status ps_executor_forward(struct ps_executor *executor, bool training,
                                   struct ps_error *err)
{
    PS_TRY(check_runs(executor, "forward", err));
    executor->backward_due = false;
    PS_TRY(run_part(executor, training ? PS_PART_TRAINING : PS_PART_INFERENCE, err));
    executor->backward_due = training;
    return PS_OK;
}

static enum ps_status copy_head(struct ps_exec_core *core, size_t i,
                                struct ps_tensor *given, struct ps_error *err)
{
    uint32_t entry = core->graph.head_grads[i];
    if (entry == PS_NO_ENTRY) {
        return PS_OK; /* a loss: what is given makes no difference */
    }
    const char *name =
        core->graph.nodes[core->graph.entries[core->graph.outputs[i]].node].name;
    if (given == NULL) {
        return ps_error_set(err, PS_EINVAL,
                            "backward: output %zu (%s) needs a gradient: it is no loss. "
                            "Pass one, end the network in a loss such as SoftmaxOutput "
                            "or MakeLoss, or put a BlockGrad on it",
                            i, name);
    }
    struct ps_tensor *head = core->entries[entry];
    if (!ps_shape_equal(ps_tensor_shape(given), ps_tensor_shape(head))) {
        char have[PS_SHAPE_TEXT_BYTES], want[PS_SHAPE_TEXT_BYTES];
        return ps_error_set(err, PS_ESHAPE,
                            "backward: gradient of output %zu (%s) is %.64s, must be "
                            "%.64s",
                            i, name, ps_shape_text(ps_tensor_shape(given), have),
                            ps_shape_text(ps_tensor_shape(head), want));
    }
    enum ps_status status = ps_tensor_copy(given, head, 0);
    return status == PS_OK
               ? PS_OK
               : ps_error_set(err, status, "backward: gradient of output %zu (%s): %s", i,
                              name, ps_status_text(status));
}

enum ps_status ps_executor_backward(struct ps_executor *executor,
                                    struct ps_tensor *const *head_gradients,
                                    struct ps_error *err)
{
    struct ps_exec_core *core = executor->core;
    PS_TRY(check_runs(executor, "backward", err));
    if (!core->differentiates) {
        return ps_error_set(err, PS_EINVAL,
                            "backward: bound without any argument's gradient");
    }
    if (!executor->backward_due) {
        return ps_error_set(err, PS_EINVAL,
                            "backward: needs a forward with training before it");
    }
    for (size_t i = 0; i < core->graph.output_count; i++) {
        PS_TRY(
            copy_head(core, i, head_gradients == NULL ? NULL : head_gradients[i], err));
    }
    executor->backward_due = false;
    return run_part(executor, PS_PART_BACKWARD, err);
}
