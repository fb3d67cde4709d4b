/* An operator: definition + parsed attributes; its names, counts, inference and what the
 * planner asks.  Immutable after create.  Threads: any. */
#include "kernels/op_def.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ps_op_name(const struct ps_op_def *def)
{
    return def->name;
}

uint32_t ps_op_flags(const struct ps_op_def *def)
{
    return def->flags;
}

const struct ps_op_def *ps_op_at(size_t i)
{
    return i < ps_registry_count() ? ps_registry_at(i) : NULL;
}

const char *ps_op_attr_name(const struct ps_op_def *def, size_t i)
{
    for (size_t j = 0; def->attrs != NULL && def->attrs[j].name != NULL; j++) {
        if (j == i) {
            return def->attrs[j].name;
        }
    }
    return NULL;
}

static int count_names(const char *const *names)
{
    int n = 0;
    while (n < PS_OP_MAX_NAMES && names[n] != NULL) {
        n++;
    }
    return n;
}

/* "arg0", "arg1"..., "output0"...: MXNet's names of what there is a variable number of.
 * num_args (num_outputs) is the first field of the parameters. */
static enum ps_status name_variables(struct ps_op *op)
{
    bool inputs = (op->def->flags & PS_OP_VARIABLE_INPUTS) != 0;
    int64_t n = *(const int64_t *)op->params;
    char(*names)[12] = calloc((size_t)n, sizeof names[0]);
    if (names == NULL) {
        return PS_ENOMEM;
    }
    for (int64_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "%s%d", inputs ? "arg" : "output", (int)i);
    }
    if (inputs) {
        op->arg_names = names;
        op->input_count = (int)n;
    } else {
        op->out_names = names;
        op->output_count = op->visible_count = (int)n;
    }
    return PS_OK;
}

enum ps_status ps_op_create(const struct ps_op_def *def, const struct ps_attr *attrs,
                            size_t attr_count, struct ps_op **op_out,
                            struct ps_error *err)
{
    enum ps_status status;
    struct ps_op *op = calloc(1, sizeof *op);
    if (op == NULL) {
        return ps_error_set(err, PS_ENOMEM, "%s: out of memory", def->name);
    }
    op->def = def;
    op->params = calloc(1, def->params_bytes + 1);
    if (op->params == NULL) {
        status = ps_error_set(err, PS_ENOMEM, "%s: out of memory", def->name);
        goto fail;
    }
    op->input_count = count_names(def->inputs);
    op->output_count = count_names(def->outputs);
    op->aux_count = count_names(def->aux);
    op->visible_count =
        def->visible_outputs > 0 ? def->visible_outputs : op->output_count;
    PS_TRY_GOTO(status, ps_attr_parse(def, attrs, attr_count, op->params, err), fail);
    if ((def->flags & (PS_OP_VARIABLE_INPUTS | PS_OP_VARIABLE_OUTPUTS)) != 0) {
        PS_TRY_GOTO(status, name_variables(op), fail);
    }
    if (def->finish != NULL) {
        PS_TRY_GOTO(status, def->finish(op, err), fail);
    }
    *op_out = op;
    return PS_OK;
fail:
    ps_op_destroy(op);
    return status;
}

void ps_op_destroy(struct ps_op *op)
{
    if (op == NULL) {
        return;
    }
    free(op->arg_names);
    free(op->out_names);
    free(op->params);
    free(op);
}

const struct ps_op_def *ps_op_definition(const struct ps_op *op)
{
    return op->def;
}

int ps_op_input_count(const struct ps_op *op)
{
    return op->input_count;
}

int ps_op_output_count(const struct ps_op *op)
{
    return op->output_count;
}

int ps_op_visible_output_count(const struct ps_op *op)
{
    return op->visible_count;
}

int ps_op_aux_count(const struct ps_op *op)
{
    return op->aux_count;
}

const char *ps_op_input_name(const struct ps_op *op, int i)
{
    return op->arg_names != NULL ? op->arg_names[i] : op->def->inputs[i];
}

const char *ps_op_output_name(const struct ps_op *op, int i)
{
    return op->out_names != NULL ? op->out_names[i] : op->def->outputs[i];
}

const char *ps_op_aux_name(const struct ps_op *op, int i)
{
    return op->def->aux[i];
}

/* Larger dims can only be garbage, and arithmetic below this bound cannot overflow. */
static enum ps_status check_dims(const struct ps_op *op, const struct ps_shape shapes[],
                                 int count, struct ps_error *err)
{
    const int64_t most = INT64_C(1) << 48;
    char text[PS_SHAPE_TEXT_BYTES];
    for (int i = 0; i < count; i++) {
        bool right = shapes[i].ndim <= PS_MAX_DIM;
        for (int d = 0; right && d < shapes[i].ndim; d++) {
            right = shapes[i].dim[d] >= -1 && shapes[i].dim[d] <= most;
        }
        if (!right) {
            return PS_OP_FAIL(
                op, err, PS_ESHAPE,
                "shape %.100s: accepted are at most %d dims of at most 2^48",
                shapes[i].ndim <= PS_MAX_DIM ? ps_shape_text(&shapes[i], text)
                                             : "of too many dims",
                PS_MAX_DIM);
        }
    }
    return PS_OK;
}

enum ps_status ps_op_infer_shape(const struct ps_op *op, struct ps_shape in[],
                                 struct ps_shape out[], struct ps_shape aux[],
                                 struct ps_error *err)
{
    PS_TRY(check_dims(op, in, op->input_count, err));
    PS_TRY(check_dims(op, out, op->output_count, err));
    return op->def->infer_shape(op, in, out, aux, err);
}

static enum ps_status same_dtype(const struct ps_op *op, const char *what, int dtype,
                                 int *all, struct ps_error *err)
{
    if (dtype == PS_DTYPE_UNKNOWN) {
        return PS_OK;
    }
    if (*all != PS_DTYPE_UNKNOWN && *all != dtype) {
        return PS_OP_FAIL(op, err, PS_EDTYPE, "%s has dtype %s, expected %s", what,
                          ps_dtype_name(dtype), ps_dtype_name(*all));
    }
    *all = dtype;
    return PS_OK;
}

enum ps_status ps_op_infer_dtype(const struct ps_op *op, int in[], int out[], int aux[],
                                 struct ps_error *err)
{
    int all = PS_DTYPE_UNKNOWN;
    if (op->def->infer_dtype != NULL) {
        return op->def->infer_dtype(op, in, out, aux, err);
    }
    for (int i = 0; i < op->input_count; i++) {
        PS_TRY(same_dtype(op, ps_op_input_name(op, i), in[i], &all, err));
    }
    for (int i = 0; i < op->output_count; i++) {
        PS_TRY(same_dtype(op, ps_op_output_name(op, i), out[i], &all, err));
    }
    for (int i = 0; i < op->aux_count; i++) {
        PS_TRY(same_dtype(op, ps_op_aux_name(op, i), aux[i], &all, err));
    }
    for (int i = 0; i < op->input_count; i++) {
        in[i] = all;
    }
    for (int i = 0; i < op->output_count; i++) {
        out[i] = all;
    }
    for (int i = 0; i < op->aux_count; i++) {
        aux[i] = all;
    }
    return PS_OK;
}

bool ps_op_backward_needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    return op->def->needs != NULL && op->def->needs(op, slot, i);
}

bool ps_op_input_differentiable(const struct ps_op *op, int i)
{
    if ((op->def->flags & (PS_OP_ZERO_GRAD | PS_OP_NO_GRAD)) != 0) {
        return false;
    }
    return op->def->differentiable == NULL || op->def->differentiable(op, i);
}

int ps_op_inplace_forward(const struct ps_op *op,
                          struct ps_inplace pairs[PS_OP_MAX_INPLACE])
{
    return op->def->inplace_forward != NULL ? op->def->inplace_forward(op, pairs) : 0;
}

int ps_op_inplace_backward(const struct ps_op *op,
                           struct ps_inplace pairs[PS_OP_MAX_INPLACE])
{
    return op->def->inplace_backward != NULL ? op->def->inplace_backward(op, pairs) : 0;
}
