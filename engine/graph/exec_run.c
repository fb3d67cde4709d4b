/* What the engine runs: some nodes, one after the other, each an operator forward or
 * backward, a sum of gradients, a zero, a copy from another device.  Addresses are asked
 * for at each run; nothing is allocated.  Runs on a device's lane thread, one run of an
 * operation at a time. */
#include "engine/graph/exec_core.h"

#include "engine/device/device.h"
#include "kernels/reduce.h"

#include <string.h>

enum ps_status ps_exec_run_batch(void *arg, const struct ps_run *run,
                                 struct ps_error *err)
{
    const struct ps_exec_batch *batch = arg;
    if (batch->count == 1) {
        return batch->ops[0]->run(batch->ops[0], run, err);
    }
    struct ps_error why; /* large: only its first byte is looked at without an error */
    why.text[0] = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        enum ps_status status = batch->ops[i]->run(batch->ops[i], run, &why);
        if (status != PS_OK) {
            return ps_graph_fail(batch->ops[i]->node, status, &why, err);
        }
    }
    return PS_OK;
}

static enum ps_status locate_one(struct ps_tensor *tensor, const struct ps_run *run,
                                 void **out, struct ps_error *err)
{
    /* all tensors of an operation lie on its device, and a CPU uses their own addresses
     */
    *out = run->context.kind == PS_CONTEXT_CPU ? ps_tensor_data(tensor)
                                               : ps_tensor_address(tensor, run);
    return *out == NULL && ps_tensor_bytes(tensor) > 0
               ? ps_tensor_no_address(tensor, run, err)
               : PS_OK;
}

/* Fills the addresses of the views that are given. */
static enum ps_status locate(struct ps_exec_views *views, const struct ps_run *run,
                             struct ps_error *err)
{
    for (uint32_t i = 0; i < views->count; i++) {
        if (views->tensors[i] != NULL) {
            PS_TRY(locate_one(views->tensors[i], run, &views->views[i].data, err));
        }
    }
    return PS_OK;
}

static enum ps_status locate_workspace(const struct ps_exec_op *op,
                                       const struct ps_run *run, void **out,
                                       struct ps_error *err)
{
    *out = NULL;
    return op->workspace == NULL ? PS_OK : locate_one(op->workspace, run, out, err);
}

/* The number of this run among the kernel's: neither the engine nor the lanes have a say
 * in it.  A run that computes the last one again has that one's. */
static uint64_t take_step(struct ps_exec_op *op)
{
    if (op->recomputes) {
        return op->kernel->steps - 1;
    }
    return op->training ? op->kernel->steps++ : 0;
}

enum ps_status ps_exec_run_forward(struct ps_exec_op *op, const struct ps_run *run,
                                   struct ps_error *err)
{
    PS_TRY(locate(&op->in, run, err));
    PS_TRY(locate(&op->out, run, err));
    PS_TRY(locate(&op->aux, run, err));
    struct ps_op_run kernel = {.in = op->in.views,
                               .out = op->out.views,
                               .aux = op->aux.count > 0 ? op->aux.views : NULL,
                               .seed = op->core->options.seed,
                               .stream = op->stream + (take_step(op) << 24),
                               .training = op->training,
                               .keep_aux = op->recomputes,
                               .checked = op->checked};
    PS_TRY(locate_workspace(op, run, &kernel.workspace, err));
    PS_TRY(ps_op_forward(op->kernel->plan, &kernel, err));
    op->checked = true;
    return PS_OK;
}

enum ps_status ps_exec_run_backward(struct ps_exec_op *op, const struct ps_run *run,
                                    struct ps_error *err)
{
    PS_TRY(locate(&op->in, run, err));
    PS_TRY(locate(&op->out, run, err));
    PS_TRY(locate(&op->aux, run, err));
    PS_TRY(locate(&op->out_grad, run, err));
    PS_TRY(locate(&op->in_grad, run, err));
    struct ps_op_run kernel = {.in = op->in.views,
                               .out = op->out.views,
                               .aux = op->aux.count > 0 ? op->aux.views : NULL,
                               .out_grad = op->out_grad.views,
                               .in_grad = op->in_grad.views,
                               .req = op->reqs,
                               .training = true,
                               .checked = op->checked};
    PS_TRY(locate_workspace(op, run, &kernel.workspace, err));
    PS_TRY(ps_op_backward(op->kernel->plan, &kernel, err));
    op->checked = true;
    return PS_OK;
}

/* Elements summed at a time: accumulators stay in the nearest cache, and all terms are
 * read before the output, which may be one of them, is written. */
enum { SUM_BLOCK = 1024 };

enum ps_status ps_exec_run_sum(struct ps_exec_op *op, const struct ps_run *run,
                               struct ps_error *err)
{
    PS_TRY(locate(&op->in, run, err));
    PS_TRY(locate(&op->out, run, err));
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

enum ps_status ps_exec_run_zero(struct ps_exec_op *op, const struct ps_run *run,
                                struct ps_error *err)
{
    PS_TRY(locate(&op->out, run, err));
    const struct ps_view *out = &op->out.views[0];
    size_t bytes = (size_t)ps_shape_count(&out->shape) * ps_dtype_size(out->dtype);
    if (bytes > 0) {
        memset(out->data, 0, bytes); /* all bits zero is 0 in every type we have */
    }
    return PS_OK;
}

/* Raw addresses: a copy knows both devices. */
enum ps_status ps_exec_run_copy(struct ps_exec_op *op, const struct ps_run *run,
                                struct ps_error *err)
{
    struct ps_tensor *from = op->in.tensors[0], *to = op->out.tensors[0];
    size_t bytes = ps_tensor_bytes(to);
    void *from_ptr = ps_tensor_data(from), *to_ptr = ps_tensor_data(to);
    if (bytes > 0 && (from_ptr == NULL || to_ptr == NULL)) {
        return ps_tensor_no_memory(to_ptr == NULL ? to : from, err);
    }
    struct ps_device *from_device, *to_device;
    struct ps_engine *engine = run->engine;
    PS_TRY(ps_engine_device(engine, ps_tensor_context(from), &from_device, err));
    PS_TRY(ps_engine_device(engine, ps_tensor_context(to), &to_device, err));
    return ps_device_copy(to_device, to_ptr, from_device, from_ptr, bytes, run->stream);
}
