/* Running: pushing the prepared operations, in node order. */
#include "engine/graph/executor.h"

#include "engine/graph/exec_core.h"

static enum ps_status push(const struct ps_exec_op *op, struct ps_error *err)
{
    if (op->call == NULL) {
        return PS_OK;
    }
    enum ps_status status = ps_engine_call_push(op->call);
    return status == PS_OK ? PS_OK
                           : ps_error_set(err, status, "%s: %s", op->node->name,
                                          ps_status_text(status));
}

enum ps_status ps_executor_forward(struct ps_executor *executor, bool training,
                                   struct ps_error *err)
{
    struct ps_exec_core *core = executor->core;
    executor->backward_due = false;
    for (size_t n = 0; n < core->graph.forward_count; n++) {
        const struct ps_exec_op *op = &core->inference[n];
        PS_TRY(push(training || op->call == NULL ? &core->ops[n] : op, err));
    }
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
    for (size_t n = core->graph.forward_count; n < core->graph.node_count; n++) {
        PS_TRY(push(&core->ops[n], err));
    }
    return PS_OK;
}
