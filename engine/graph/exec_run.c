/* What the engine runs: an operator forward, an operator backward, a sum of gradients, a
 * zero.  Addresses are asked for at each run; nothing is allocated.  Runs on a device's
 * lane thread, one run of an operation at a time. */
#include "engine/graph/exec_core.h"

#include "kernels/reduce.h"

#include <string.h>

/* Fills the addresses of the views that are given. */
static enum ps_status locate(struct ps_exec_views *views, struct ps_error *err)
{
    for (uint32_t i = 0; i < views->count; i++) {
        struct ps_tensor *tensor = views->tensors[i];
        if (tensor == NULL) {
            continue;
        }
        views->views[i].data = ps_tensor_data(tensor);
        if (views->views[i].data == NULL && ps_tensor_bytes(tensor) > 0) {
            return ps_error_set(err, PS_ENOMEM, "no memory for a tensor of %zu bytes",
                                ps_tensor_bytes(tensor));
        }
    }
    return PS_OK;
}

static enum ps_status locate_workspace(const struct ps_exec_op *op, void **out,
                                       struct ps_error *err)
{
    *out = NULL;
    if (op->core->workspace != NULL) {
        *out = ps_tensor_data(op->core->workspace);
        if (*out == NULL) {
            return ps_error_set(err, PS_ENOMEM, "no memory for a workspace of %zu bytes",
                                op->core->workspace_bytes);
        }
    }
    return PS_OK;
}

enum ps_status ps_exec_run_forward(void *arg, const struct ps_run *run,
                                   struct ps_error *err)
{
    struct ps_exec_op *op = arg;
    PS_UNUSED(run);
    PS_TRY(locate(&op->in, err));
    PS_TRY(locate(&op->out, err));
    PS_TRY(locate(&op->aux, err));
    /* the step's numbers: neither the engine nor the lanes have a say in them */
    uint64_t step = op->training ? op->runs++ : 0;
    struct ps_op_run kernel = {.in = op->in.views,
                               .out = op->out.views,
                               .aux = op->aux.count > 0 ? op->aux.views : NULL,
                               .seed = op->core->options.seed,
                               .stream = op->stream + (step << 24),
                               .training = op->training};
    PS_TRY(locate_workspace(op, &kernel.workspace, err));
    return ps_op_forward(op->plan, &kernel, err);
}

enum ps_status ps_exec_run_backward(void *arg, const struct ps_run *run,
                                    struct ps_error *err)
{
    struct ps_exec_op *op = arg;
    PS_UNUSED(run);
    PS_TRY(locate(&op->in, err));
    PS_TRY(locate(&op->out, err));
    PS_TRY(locate(&op->aux, err));
    PS_TRY(locate(&op->out_grad, err));
    PS_TRY(locate(&op->in_grad, err));
    struct ps_op_run kernel = {.in = op->in.views,
                               .out = op->out.views,
                               .aux = op->aux.count > 0 ? op->aux.views : NULL,
                               .out_grad = op->out_grad.views,
                               .in_grad = op->in_grad.views,
                               .req = op->reqs,
                               .training = true};
    PS_TRY(locate_workspace(op, &kernel.workspace, err));
    return ps_op_backward(op->plan, &kernel, err);
}

/* Elements summed at a time: accumulators stay in the nearest cache, and all terms are
 * read before the output, which may be one of them, is written. */
enum { SUM_BLOCK = 1024 };

enum ps_status ps_exec_run_sum(void *arg, const struct ps_run *run, struct ps_error *err)
{
    struct ps_exec_op *op = arg;
    PS_UNUSED(run);
    PS_TRY(locate(&op->in, err));
    PS_TRY(locate(&op->out, err));
    double sum[SUM_BLOCK]; /* as wide as the widest accumulator */
    const struct ps_view *out = &op->out.views[0];
    size_t element = ps_dtype_size(out->dtype);
    size_t count = (size_t)ps_shape_count(&out->shape);
    for (size_t at = 0; at < count; at += SUM_BLOCK) {
        size_t n = PS_MIN(count - at, (size_t)SUM_BLOCK);
        size_t offset = at * element;
        ps_reduce_load(sum, (const char *)op->in.views[0].data + offset, out->dtype, n);
        for (uint32_t i = 1; i < op->in.count; i++) {
            ps_reduce_add(sum, (const char *)op->in.views[i].data + offset, out->dtype,
                          n);
        }
        char *to = (char *)out->data + offset;
        if (op->reqs[0] == PS_GRAD_ADD) {
            ps_reduce_add(sum, to, out->dtype, n);
        }
        ps_reduce_store(to, sum, out->dtype, n);
    }
    return PS_OK;
}

enum ps_status ps_exec_run_zero(void *arg, const struct ps_run *run, struct ps_error *err)
{
    struct ps_exec_op *op = arg;
    PS_UNUSED(run);
    PS_TRY(locate(&op->out, err));
    const struct ps_view *out = &op->out.views[0];
    size_t bytes = (size_t)ps_shape_count(&out->shape) * ps_dtype_size(out->dtype);
    if (bytes > 0) {
        memset(out->data, 0, bytes); /* all bits zero is 0 in every type we have */
    }
    return PS_OK;
}
