/* tests/unit/kernels/op_fixture.h */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op_fixture.h"

#include "base/mem.h"
#include "base/rng.h"

#include <string.h>

enum { SEED = 123, MAX_ATTRS = 16 };

enum ps_status fixture_op(const char *name, const char *attrs, struct ps_op **op_out,
                          struct ps_error *err)
{
    char text[512];
    struct ps_attr list[MAX_ATTRS];
    size_t n = 0;
    const struct ps_op_def *def = ps_op_find(name);
    assert_non_null(def);
    assert_true(strlen(attrs == NULL ? "" : attrs) < sizeof text);
    strncpy(text, attrs == NULL ? "" : attrs, sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (char *save = NULL, *p = strtok_r(text, ";", &save); p != NULL;
         p = strtok_r(NULL, ";", &save)) {
        char *equals = strchr(p, '=');
        assert_non_null(equals);
        assert_true(n < MAX_ATTRS);
        *equals = '\0';
        list[n++] = (struct ps_attr){p, equals + 1};
    }
    return ps_op_create(def, list, n, op_out, err);
}

int64_t fixture_count(const struct ps_view *view)
{
    return ps_shape_count(&view->shape);
}

double fixture_get(const struct ps_view *view, int64_t i)
{
    return view->dtype == PS_F64 ? ((double *)view->data)[i]
                                 : (double)((float *)view->data)[i];
}

void fixture_set(const struct ps_view *view, int64_t i, double value)
{
    if (view->dtype == PS_F64) {
        ((double *)view->data)[i] = value;
    } else {
        ((float *)view->data)[i] = (float)value;
    }
}

void fixture_fill(const struct ps_view *view, double value)
{
    for (int64_t i = 0; i < fixture_count(view); i++) {
        fixture_set(view, i, value);
    }
}

void fixture_random(const struct ps_view *view, uint64_t stream, double low, double high)
{
    for (int64_t i = 0; i < fixture_count(view); i++) {
        double u = (double)ps_rng_unit_at(SEED, stream, (uint64_t)i);
        fixture_set(view, i, low + (high - low) * u);
    }
}

static void view_open(struct ps_view *view, const struct ps_shape *shape, int dtype)
{
    size_t bytes = (size_t)ps_shape_count(shape) * ps_dtype_size(dtype);
    *view = (struct ps_view){ps_mem_calloc(bytes + 1), dtype, *shape, NULL};
    assert_non_null(view->data);
}

void fixture_open(struct fixture *f, const struct ps_kernels *kernels,
                  const struct fixture_options *o)
{
    struct ps_shape in[FIXTURE_MAX], out[FIXTURE_MAX], aux[FIXTURE_MAX];
    int dtypes[FIXTURE_MAX];
    struct ps_plan_options plan = {.threads = o->threads > 0 ? o->threads : 1,
                                   .training = true};
    memset(f, 0, sizeof *f);
    f->kernels = kernels;
    assert_int_equal(fixture_op(o->op, o->attrs, &f->op, &f->err), PS_OK);
    int n = ps_op_input_count(f->op);
    for (int i = 0; i < n; i++) {
        in[i] = o->in[i].ndim == 0 && o->in[i].dim[0] == 0 ? PS_SHAPE_UNKNOWN : o->in[i];
        dtypes[i] = o->dtype;
    }
    for (int i = 0; i < FIXTURE_MAX; i++) {
        out[i] = PS_SHAPE_UNKNOWN;
        aux[i] = PS_SHAPE_UNKNOWN;
    }
    assert_int_equal(ps_op_infer_shape(f->op, in, out, aux, &f->err), PS_OK);
    assert_int_equal(ps_op_prepare(kernels, f->op, in, dtypes, &plan, &f->plan, &f->err),
                     PS_OK);
    for (int i = 0; i < n; i++) {
        view_open(&f->in[i], &in[i], o->dtype);
        view_open(&f->in_grad[i], &in[i], o->dtype);
        fixture_random(&f->in[i], (uint64_t)i, o->low, o->high);
        f->req[i] = PS_GRAD_WRITE;
    }
    for (int i = 0; i < ps_op_output_count(f->op); i++) {
        view_open(&f->out[i], &out[i], o->dtype);
        view_open(&f->out_grad[i], &out[i], o->dtype);
        fixture_random(&f->out_grad[i], 100 + (uint64_t)i, -1.0, 1.0);
    }
    for (int i = 0; i < ps_op_aux_count(f->op); i++) {
        view_open(&f->aux[i], &aux[i], o->dtype);
        fixture_random(&f->aux[i], 200 + (uint64_t)i, 0.5, 1.5);
    }
    size_t bytes =
        PS_MAX(ps_op_plan_workspace(f->plan, false), ps_op_plan_workspace(f->plan, true));
    f->workspace = ps_mem_alloc(bytes + 1);
    f->run = (struct ps_op_run){.in = f->in,
                                .out = f->out,
                                .aux = f->aux,
                                .out_grad = f->out_grad,
                                .in_grad = f->in_grad,
                                .req = f->req,
                                .workspace = f->workspace,
                                .seed = SEED,
                                .stream = 7,
                                .training = true,
                                .keep_aux = true};
}

void fixture_close(struct fixture *f)
{
    for (int i = 0; i < FIXTURE_MAX; i++) {
        ps_mem_free(f->in[i].data);
        ps_mem_free(f->out[i].data);
        ps_mem_free(f->aux[i].data);
        ps_mem_free(f->out_grad[i].data);
        ps_mem_free(f->in_grad[i].data);
    }
    ps_mem_free(f->workspace);
    ps_op_plan_destroy(f->plan);
    ps_op_destroy(f->op);
}

/* Other plans write the workspace between runs: nothing in it may be relied on. */
static void poison(struct fixture *f, bool backward)
{
    memset(f->workspace, 0xff, ps_op_plan_workspace(f->plan, backward));
}

void fixture_forward(struct fixture *f)
{
    poison(f, false);
    enum ps_status status = ps_op_forward(f->plan, &f->run, &f->err);
    if (status != PS_OK) {
        fail_msg("%s", f->err.text);
    }
}

void fixture_backward(struct fixture *f)
{
    poison(f, true);
    enum ps_status status = ps_op_backward(f->plan, &f->run, &f->err);
    if (status != PS_OK) {
        fail_msg("%s", f->err.text);
    }
}
