/* Embedding(input_dim, output_dim): rows of a table by number.
 *     letters: N numbers, V rows of the table (input_dim), E elements of a row
 *   data [...] any dtype, N elements; weight [V, E]; output [..., E] of weight's dtype
 *   out[n,e] = weight[r_n, e], r_n = data[n] cut to [0, V-1], NaN to 0, as MXNet does
 *   dweight[v,e] (+)= sum over n with r_n = v of g[n,e], in ascending n; ddata = 0
 * Exact forward for every dtype.  Backward is parallel over ranges of E, so every sum is
 * one thread's and its order does not depend on the threads.  Tolerance: none, the order
 * is fixed. */
#include "kernels/par.h"
#include "kernels/reduce.h"
#include "kernels/registry.h"
#include "kernels/softmax/labels.h"

#include <string.h>

enum { DATA, WEIGHT, GRAIN = 64 /* elements of a row per thread, a few cache lines */ };

struct embedding_params {
    int64_t input_dim, output_dim;
    int dtype; /* index into 'dtypes' */
};

static const int dtypes[] = {
    PS_DTYPE_UNKNOWN, PS_F32, PS_F64, PS_F16, PS_BF16, PS_U8, PS_I8, PS_I32, PS_I64};

#define FIELD(name) offsetof(struct embedding_params, name)
static const struct ps_attr_row attrs[] = {
    {"input_dim", PS_ATTR_INT, FIELD(input_dim), NULL, 1, 1e12, NULL},
    {"output_dim", PS_ATTR_INT, FIELD(output_dim), NULL, 1, 1e12, NULL},
    {"dtype", PS_ATTR_CHOICE, FIELD(dtype), "None", 0, 0,
     "None|float32|float64|float16|bfloat16|uint8|int8|int32|int64"},
    {"sparse_grad", PS_ATTR_IGNORED, 0, "", 0, 0, NULL},
    PS_ATTR_END};

static enum ps_status infer_shape(const struct ps_op *op, struct ps_shape in[],
                                  struct ps_shape out[], struct ps_shape aux[],
                                  struct ps_error *err)
{
    const struct embedding_params *p = op->params;
    struct ps_shape weight = PS_SHAPE(p->input_dim, p->output_dim), row = in[DATA];
    PS_UNUSED(aux);
    PS_TRY(ps_infer_merge(op, "weight", &in[WEIGHT], &weight, err));
    if (out[0].ndim == 0 || row.ndim == PS_MAX_DIM) {
        return PS_OP_FAIL(op, err, PS_ESHAPE, "output has one dim more than data");
    }
    if (out[0].ndim > 0) {
        struct ps_shape data = out[0];
        data.ndim--;
        PS_TRY(ps_infer_merge(op, "data", &in[DATA], &data, err));
        PS_TRY(ps_infer_dim(op, "output", &out[0], data.ndim, p->output_dim, err));
    }
    if (in[DATA].ndim >= 0) {
        row = in[DATA];
        row.dim[row.ndim++] = p->output_dim;
        PS_TRY(ps_infer_merge(op, "output", &out[0], &row, err));
    }
    return PS_OK;
}

static enum ps_status infer_dtype(const struct ps_op *op, int in[], int out[], int aux[],
                                  struct ps_error *err)
{
    int said = dtypes[((const struct embedding_params *)op->params)->dtype];
    int *all[] = {&in[WEIGHT], &out[0]};
    PS_UNUSED(aux);
    for (size_t i = 0; i < PS_COUNT(all); i++) {
        if (said != PS_DTYPE_UNKNOWN && *all[i] != PS_DTYPE_UNKNOWN && *all[i] != said) {
            return PS_OP_FAIL(op, err, PS_EDTYPE, "%s has dtype %s, expected %s",
                              i == 0 ? "weight" : "output", ps_dtype_name(*all[i]),
                              ps_dtype_name(said));
        }
        said = said == PS_DTYPE_UNKNOWN ? *all[i] : said;
    }
    in[WEIGHT] = out[0] = said;
    in[DATA] = in[DATA] == PS_DTYPE_UNKNOWN ? said : in[DATA];
    return PS_OK;
}

/* The row of the n-th number. */
static int64_t row_at(const struct ps_view *data, int64_t n, int64_t rows)
{
    int64_t row = ps_label_at(data, n);
    return PS_MAX(PS_MIN(row, rows - 1), 0);
}

static enum ps_status forward(struct ps_op_plan *plan, const struct ps_op_run *run,
                              struct ps_error *err)
{
    const struct embedding_params *p = plan->op->params;
    size_t bytes = (size_t)p->output_dim * ps_dtype_size(plan->in_dtype[WEIGHT]);
    int64_t count = ps_shape_count(&plan->in[DATA]);
    PS_UNUSED(err);
    for (int64_t n = 0; n < count; n++) {
        size_t row = (size_t)row_at(&run->in[DATA], n, p->input_dim);
        memcpy((char *)run->out[0].data + (size_t)n * bytes,
               (const char *)run->in[WEIGHT].data + row * bytes, bytes);
    }
    return PS_OK;
}

struct sums {
    const struct ps_op_plan *plan;
    const struct ps_op_run *run;
};

/* Elements [begin, end) of every row. */
static void add_rows(void *arg, int64_t begin, int64_t end)
{
    const struct sums *s = arg;
    const struct embedding_params *p = s->plan->op->params;
    int dtype = s->plan->in_dtype[WEIGHT];
    size_t size = ps_dtype_size(dtype), bytes = (size_t)p->output_dim * size;
    int64_t count = ps_shape_count(&s->plan->in[DATA]);
    for (int64_t n = 0; n < count; n++) {
        size_t row = (size_t)row_at(&s->run->in[DATA], n, p->input_dim);
        ps_reduce_accumulate((char *)s->run->in_grad[WEIGHT].data + row * bytes +
                                 (size_t)begin * size,
                             (const char *)s->run->out_grad[0].data + (size_t)n * bytes +
                                 (size_t)begin * size,
                             dtype, (size_t)(end - begin));
    }
}

static enum ps_status backward(struct ps_op_plan *plan, const struct ps_op_run *run,
                               struct ps_error *err)
{
    const struct embedding_params *p = plan->op->params;
    struct sums sums = {plan, run};
    PS_UNUSED(err);
    ps_grad_zero(run, DATA);
    ps_grad_zero(run, WEIGHT);
    if (ps_wants(run, WEIGHT)) {
        ps_par_for(plan->threads, p->output_dim, GRAIN, add_rows, &sums);
    }
    return PS_OK;
}

static bool needs(const struct ps_op *op, enum ps_op_slot slot, int i)
{
    PS_UNUSED(op);
    return slot == PS_SLOT_OUT_GRAD || (slot == PS_SLOT_INPUT && i == DATA);
}

static bool differentiable(const struct ps_op *op, int i)
{
    PS_UNUSED(op);
    return i == WEIGHT;
}

const struct ps_op_def ps_ops_embedding[] = {{
    .name = "Embedding",
    .params_bytes = sizeof(struct embedding_params),
    .attrs = attrs,
    .inputs = {"data", "weight"},
    .outputs = {"output"},
    .infer_shape = infer_shape,
    .infer_dtype = infer_dtype,
    .needs = needs,
    .differentiable = differentiable,
    .forward = forward,
    .backward = backward,
    .any_dtype = true,
}};
const size_t ps_ops_embedding_count = PS_COUNT(ps_ops_embedding);
