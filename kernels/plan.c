/* Plans: prepare once for fixed shapes, run many times.  All checks of views stand here,
 * so that kernels may trust what they get.  Threads: a plan is run by one at a time. */
#include "kernels/op_def.h"
#include "kernels/reduce.h"

#include <stdlib.h>
#include <string.h>

size_t ps_view_bytes(const struct ps_view *view)
{
    return (size_t)ps_shape_count(&view->shape) * ps_dtype_size(view->dtype);
}

void ps_grad_zero(const struct ps_op_run *run, int i)
{
    if (run->req[i] == PS_GRAD_NULL || run->req[i] == PS_GRAD_ADD) {
        return;
    }
    size_t bytes = ps_view_bytes(&run->in_grad[i]);
    if (bytes > 0) {
        memset(run->in_grad[i].data, 0, bytes);
    }
}

void ps_grad_copy(const struct ps_op_run *run, int i, const void *src)
{
    const struct ps_view *dst = &run->in_grad[i];
    if (run->req[i] == PS_GRAD_NULL) {
        return;
    }
    size_t bytes = ps_view_bytes(dst);
    if (run->req[i] == PS_GRAD_ADD) {
        ps_reduce_accumulate(dst->data, src, dst->dtype,
                             (size_t)ps_shape_count(&dst->shape));
    } else if (bytes > 0 && dst->data != src) {
        memcpy(dst->data, src, bytes);
    }
}

static void fill_unknown(struct ps_shape *shapes, int *dtypes, int count)
{
    for (int i = 0; i < count; i++) {
        shapes[i] = PS_SHAPE_UNKNOWN;
        dtypes[i] = PS_DTYPE_UNKNOWN;
    }
}

/* A fully known shape whose bytes fit comfortably into a size_t. */
static bool sane(const struct ps_shape *shape)
{
    int64_t count = ps_shape_known(shape) ? ps_shape_count(shape) : -1;
    return count >= 0 && count <= INT64_MAX / 64;
}

static enum ps_status check_shapes(const struct ps_op *op, const struct ps_shape *shapes,
                                   int count, bool inputs, struct ps_error *err)
{
    char text[PS_SHAPE_TEXT_BYTES];
    for (int i = 0; i < count; i++) {
        if (!sane(&shapes[i])) {
            return PS_OP_FAIL(op, err, PS_ESHAPE, "shape of %s is not fully known: %s",
                              inputs ? ps_op_input_name(op, i) : ps_op_output_name(op, i),
                              ps_shape_text(&shapes[i], text));
        }
    }
    return PS_OK;
}

static enum ps_status infer_plan(struct ps_op_plan *plan,
                                 const struct ps_shape *in_shapes, const int *in_dtypes,
                                 struct ps_error *err)
{
    const struct ps_op *op = plan->op;
    if (op->input_count > 0) {
        memcpy(plan->in, in_shapes, sizeof plan->in[0] * (size_t)op->input_count);
        memcpy(plan->in_dtype, in_dtypes, sizeof(int) * (size_t)op->input_count);
    }
    fill_unknown(plan->out, plan->out_dtype, op->output_count);
    fill_unknown(plan->aux, plan->aux_dtype, op->aux_count);
    PS_TRY(check_shapes(op, plan->in, op->input_count, true, err));
    PS_TRY(ps_op_infer_shape(op, plan->in, plan->out, plan->aux, err));
    PS_TRY(check_shapes(op, plan->out, op->output_count, false, err));
    PS_TRY(ps_op_infer_dtype(op, plan->in_dtype, plan->out_dtype, plan->aux_dtype, err));
    plan->dtype = op->input_count > 0 ? plan->in_dtype[0] : plan->out_dtype[0];
    for (int i = 0; i < op->input_count; i++) {
        if (ps_dtype_size(plan->in_dtype[i]) == 0) {
            return PS_OP_FAIL(op, err, PS_EDTYPE, "dtype of %s is not known",
                              ps_op_input_name(op, i));
        }
    }
    if (!op->def->any_dtype && plan->dtype != PS_F32 && plan->dtype != PS_F64) {
        return PS_OP_FAIL(op, err, PS_EUNSUPPORTED,
                          "no CPU kernel for %s; float32 and float64 are supported",
                          ps_dtype_name(plan->dtype));
    }
    return PS_OK;
}

/* One block for the plan and its arrays: six tables. */
static struct ps_op_plan *plan_alloc(const struct ps_op *op)
{
    size_t in = (size_t)op->input_count, out = (size_t)op->output_count;
    size_t aux = (size_t)op->aux_count;
    struct ps_op_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return NULL;
    }
    plan->in = calloc(in + out + aux, sizeof plan->in[0]);
    plan->in_dtype = calloc(in + out + aux, sizeof(int));
    if (plan->in == NULL || plan->in_dtype == NULL) {
        free(plan->in);
        free(plan->in_dtype);
        free(plan);
        return NULL;
    }
    plan->out = plan->in + in;
    plan->aux = plan->out + out;
    plan->out_dtype = plan->in_dtype + in;
    plan->aux_dtype = plan->out_dtype + out;
    return plan;
}

enum ps_status ps_op_prepare(const struct ps_kernels *kernels, const struct ps_op *op,
                             const struct ps_shape in_shapes[], const int in_dtypes[],
                             const struct ps_plan_options *options,
                             struct ps_op_plan **plan_out, struct ps_error *err)
{
    enum ps_status status;
    struct ps_op_plan *plan = plan_alloc(op);
    if (plan == NULL) {
        return PS_OP_FAIL(op, err, PS_ENOMEM, "out of memory");
    }
    plan->kernels = kernels;
    plan->op = op;
    plan->threads = options->threads > 0 ? options->threads : ps_kernels_threads(kernels);
    plan->training = options->training;
    PS_TRY_GOTO(status, infer_plan(plan, in_shapes, in_dtypes, err), fail);
    if (op->def->prepare != NULL) {
        PS_TRY_GOTO(status, op->def->prepare(plan, err), fail);
    }
    *plan_out = plan;
    return PS_OK;
fail:
    ps_op_plan_destroy(plan);
    return status;
}

void ps_op_plan_destroy(struct ps_op_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    if (plan->op->def->destroy != NULL) {
        plan->op->def->destroy(plan);
    }
    free(plan->in_dtype);
    free(plan->in);
    free(plan);
}

size_t ps_op_plan_workspace(const struct ps_op_plan *plan, bool backward)
{
    return backward ? plan->workspace_backward : plan->workspace_forward;
}

static enum ps_status check_view(const struct ps_op *op, const char *what,
                                 const struct ps_view *view, const struct ps_shape *shape,
                                 int dtype, struct ps_error *err)
{
    char a[PS_SHAPE_TEXT_BYTES], b[PS_SHAPE_TEXT_BYTES];
    if (view->layout != NULL) {
        return PS_OP_FAIL(op, err, PS_EUNSUPPORTED, "%s: blocked layouts", what);
    }
    if (!ps_shape_equal(&view->shape, shape)) {
        return PS_OP_FAIL(op, err, PS_ESHAPE, "%s: view %.80s, plan %.80s", what,
                          ps_shape_text(&view->shape, a), ps_shape_text(shape, b));
    }
    if (view->dtype != dtype) {
        return PS_OP_FAIL(op, err, PS_EDTYPE, "%s: view %s, plan %s", what,
                          ps_dtype_name(view->dtype), ps_dtype_name(dtype));
    }
    if (view->data == NULL && ps_shape_count(shape) > 0) {
        return PS_OP_FAIL(op, err, PS_EINVAL, "%s: no data", what);
    }
    return PS_OK;
}

static enum ps_status check_workspace(const struct ps_op *op, size_t bytes,
                                      const struct ps_op_run *run, struct ps_error *err)
{
    if (bytes > 0 && (run->workspace == NULL || (uintptr_t)run->workspace % 64 != 0)) {
        return PS_OP_FAIL(op, err, PS_EINVAL, "a workspace of %zu bytes, 64-byte aligned",
                          bytes);
    }
    return PS_OK;
}

static enum ps_status check_forward(const struct ps_op_plan *plan,
                                    const struct ps_op_run *run, struct ps_error *err)
{
    const struct ps_op *op = plan->op;
    PS_TRY(check_workspace(op, plan->workspace_forward, run, err));
    for (int i = 0; i < op->input_count; i++) {
        PS_TRY(check_view(op, ps_op_input_name(op, i), &run->in[i], &plan->in[i],
                          plan->in_dtype[i], err));
    }
    for (int i = 0; i < op->output_count; i++) {
        PS_TRY(check_view(op, ps_op_output_name(op, i), &run->out[i], &plan->out[i],
                          plan->out_dtype[i], err));
    }
    for (int i = 0; i < op->aux_count; i++) {
        PS_TRY(check_view(op, ps_op_aux_name(op, i), &run->aux[i], &plan->aux[i],
                          plan->aux_dtype[i], err));
    }
    return PS_OK;
}

enum ps_status ps_op_forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                             struct ps_error *err)
{
    if (!run->checked) {
        PS_TRY(check_forward(plan, run, err));
    }
    return plan->op->def->forward(plan, run, err);
}

static enum ps_status check_backward(const struct ps_op_plan *plan,
                                     const struct ps_op_run *run, struct ps_error *err)
{
    const struct ps_op *op = plan->op;
    PS_TRY(check_workspace(op, plan->workspace_backward, run, err));
    for (int i = 0; i < op->input_count; i++) {
        if (ps_op_backward_needs(op, PS_SLOT_INPUT, i)) {
            PS_TRY(check_view(op, ps_op_input_name(op, i), &run->in[i], &plan->in[i],
                              plan->in_dtype[i], err));
        }
        if (run->req[i] != PS_GRAD_NULL) {
            PS_TRY(check_view(op, ps_op_input_name(op, i), &run->in_grad[i], &plan->in[i],
                              plan->in_dtype[i], err));
        }
    }
    for (int i = 0; i < op->output_count; i++) {
        if (ps_op_backward_needs(op, PS_SLOT_OUTPUT, i)) {
            PS_TRY(check_view(op, ps_op_output_name(op, i), &run->out[i], &plan->out[i],
                              plan->out_dtype[i], err));
        }
        if (ps_op_backward_needs(op, PS_SLOT_OUT_GRAD, i)) {
            PS_TRY(check_view(op, "head gradient", &run->out_grad[i], &plan->out[i],
                              plan->out_dtype[i], err));
        }
    }
    for (int i = 0; i < op->aux_count; i++) {
        PS_TRY(check_view(op, ps_op_aux_name(op, i), &run->aux[i], &plan->aux[i],
                          plan->aux_dtype[i], err));
    }
    return PS_OK;
}

enum ps_status ps_op_backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    const struct ps_op *op = plan->op;
    if ((op->def->flags & PS_OP_NO_GRAD) != 0) {
        return PS_OP_FAIL(op, err, PS_EUNSUPPORTED, "not differentiable");
    }
    if (!plan->training) {
        return PS_OP_FAIL(op, err, PS_EINVAL, "the plan was not prepared for training");
    }
    if (!run->checked) {
        PS_TRY(check_backward(plan, run, err));
    }
    if ((op->def->flags & PS_OP_ZERO_GRAD) != 0 || op->def->backward == NULL) {
        for (int i = 0; i < op->input_count; i++) {
            if (ps_wants(run, i)) {
                ps_grad_zero(run, i);
            }
        }
        return PS_OK;
    }
    return op->def->backward(plan, run, err);
}
