/* add_n (ElementWiseSum): the sum of num_args equal tensors, in argument order.
 *   out[i] = ((in0[i] + in1[i]) + in2[i]) + ...
 * Built block by block on the stack, so the output may be any of the inputs (the bug of
 * mxnet #14889 zeroed it first).  Gradients are copies of the head's.  Parallel over
 * elements; deterministic.  Tolerance 1e-6. */
#include "kernels/par.h"
#include "kernels/reduce.h"
#include "kernels/registry.h"

#include <string.h>

enum { GRAIN = 16384, BLOCK = 1024 };

struct add_n_params {
    int64_t num_args; /* first: op.c reads it */
};

static const struct ps_attr_row attrs[] = {{"num_args", PS_ATTR_INT,
                                            offsetof(struct add_n_params, num_args), NULL,
                                            1, PS_OP_MAX_INPUTS, NULL},
                                           PS_ATTR_END};

struct add_job {
    const struct ps_op_run *run;
    int inputs, dtype;
};

static void add_range(void *arg, int64_t begin, int64_t end)
{
    const struct add_job *j = arg;
    size_t size = ps_dtype_size(j->dtype);
    double block[BLOCK]; /* room for accumulators of any dtype */
    for (int64_t i = begin; i < end; i += BLOCK) {
        size_t n = (size_t)PS_MIN(end - i, (int64_t)BLOCK), off = (size_t)i * size;
        ps_reduce_load(block, (const char *)j->run->in[0].data + off, j->dtype, n);
        for (int k = 1; k < j->inputs; k++) {
            ps_reduce_add(block, (const char *)j->run->in[k].data + off, j->dtype, n);
        }
        ps_reduce_store((char *)j->run->out[0].data + off, block, j->dtype, n);
    }
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    struct add_job job = {run, plan->op->input_count, plan->dtype};
    PS_UNUSED(err);
    ps_par_for(plan->threads, ps_shape_count(&plan->out[0]), GRAIN, add_range, &job);
    return PS_OK;
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    PS_UNUSED(err);
    for (int i = plan->op->input_count - 1; i >= 0; i--) {
        if (ps_wants(run, i)) {
            ps_grad_copy(run, i, run->out_grad[0].data);
        }
    }
    return PS_OK;
}

static int inplace_forward(const struct ps_op *op, struct ps_inplace *pairs)
{
    int n = PS_MIN(op->input_count, PS_OP_MAX_INPLACE);
    for (int i = 0; i < n; i++) {
        pairs[i] = (struct ps_inplace){PS_SLOT_INPUT, i, 0};
    }
    return n;
}

const struct ps_op_def ps_ops_add_n[] = {
    {.name = "add_n",
     .aliases = {"ElementWiseSum", "_sum", "element_wise_sum"},
     .flags =
         PS_OP_CHEAP | PS_OP_VARIABLE_INPUTS | PS_OP_ADDS_EXACTLY | PS_OP_GRAD_IS_HEAD,
     .params_bytes = sizeof(struct add_n_params),
     .attrs = attrs,
     .outputs = {"output"},
     .infer_shape = ps_infer_same,
     .needs = ps_needs_head,
     .inplace_forward = inplace_forward,
     .inplace_backward = ps_inplace_head,
     .forward = forward,
     .backward = backward,
     .any_dtype = true},
};
const size_t ps_ops_add_n_count = PS_COUNT(ps_ops_add_n);
