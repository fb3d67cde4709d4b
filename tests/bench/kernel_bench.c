/* Operators of kernels/ as plain code and through oneDNN, side by side.
 *
 *   kernel_bench [-r REPS] [-t THREADS]      (defaults 15, 1)
 *
 * Rows: R,kernels,IMPLEMENTATION/OP/SHAPE/DIRECTION,BYTES,us,VALUE.  BYTES are those of
 * the data tensor; the value is a median.  The implementations alternate, so that both
 * see the same machine.  "plain" is USE_ONEDNN=0, "onednn" is oneDNN wherever it can,
 * "default" what a plan takes by itself. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/settings.h"
#include "kernels/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 3, MAX_REPS = 101, PLAIN = 0, ONEDNN, DEFAULT, KINDS };

static const char *const kind_names[KINDS] = {"plain", "onednn", "default"};

static const struct bench_case {
    const char *op, *label;
    struct ps_attr attrs[4];
    size_t attr_count;
    struct ps_shape data;
} cases[] = {
#define POOL(label, type, kernel, stride, pad, ...)                                      \
    {                                                                                    \
        "Pooling", label,                                                                \
            {{"pool_type", type}, {"kernel", kernel}, {"stride", stride}, {"pad", pad}}, \
            4, PS_SHAPE(__VA_ARGS__)                                                     \
    }
#define NORM(label, ...)                                                       \
    {                                                                          \
        "BatchNorm", label, {{"fix_gamma", "False"}}, 1, PS_SHAPE(__VA_ARGS__) \
    }
    POOL("max2s2", "max", "(2, 2)", "(2, 2)", "(0, 0)", 64, 20, 24, 24),
    POOL("max2s2", "max", "(2, 2)", "(2, 2)", "(0, 0)", 64, 50, 8, 8),
    POOL("avg2s2", "avg", "(2, 2)", "(2, 2)", "(0, 0)", 64, 20, 24, 24),
    POOL("max3s2", "max", "(3, 3)", "(2, 2)", "(1, 1)", 16, 64, 112, 112),
    POOL("avg3s2", "avg", "(3, 3)", "(2, 2)", "(1, 1)", 16, 64, 112, 112),
    POOL("avg7", "avg", "(7, 7)", "(1, 1)", "(0, 0)", 16, 512, 7, 7),
    NORM("bn", 64, 64, 56, 56),
    NORM("bn", 64, 256, 14, 14),
    NORM("bn", 16, 512, 7, 7),
    NORM("bn", 64, 64, 6, 6),
    NORM("bn", 64, 256, 4, 4),
    NORM("bn", 64, 50, 4, 4),
    NORM("bn", 64, 20, 2, 2),
    NORM("bn", 64, 20, 12, 12),
    NORM("bn", 128, 512),
};

/* One operator of one implementation, with its tensors. */
struct subject {
    struct ps_op *op;
    struct ps_op_plan *plan;
    struct ps_view in[SLOTS], out[SLOTS], aux[SLOTS], out_grad[SLOTS], in_grad[SLOTS];
    enum ps_grad_req req[SLOTS];
    struct ps_op_run run;
    void *workspace;
};

static void die(const char *what, const struct ps_error *err)
{
    fprintf(stderr, "kernel_bench: %s: %s\n", what, err->text);
    exit(1);
}

static void view_open(struct ps_view *view, const struct ps_shape *shape, uint64_t stream)
{
    int64_t n = ps_shape_count(shape);
    float *x = ps_mem_alloc((size_t)n * sizeof(float) + 64);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)ps_rng_unit_at(1, stream, (uint64_t)i) + 0.1f;
    }
    *view = (struct ps_view){x, PS_F32, *shape, NULL};
}

static void subject_open(struct subject *s, const struct ps_kernels *kernels,
                         const struct bench_case *c, int threads)
{
    struct ps_error err = {0};
    struct ps_plan_options options = {.threads = threads, .training = true};
    struct ps_shape in[SLOTS], out[SLOTS], aux[SLOTS];
    static const int dtypes[SLOTS] = {PS_F32, PS_F32, PS_F32};
    memset(s, 0, sizeof *s);
    for (int i = 0; i < SLOTS; i++) {
        in[i] = out[i] = aux[i] = PS_SHAPE_UNKNOWN;
    }
    in[0] = c->data;
    if (ps_op_create(ps_op_find(c->op), c->attrs, c->attr_count, &s->op, &err) != PS_OK ||
        ps_op_infer_shape(s->op, in, out, aux, &err) != PS_OK ||
        ps_op_prepare(kernels, s->op, in, dtypes, &options, &s->plan, &err) != PS_OK) {
        die(c->op, &err);
    }
    for (int i = 0; i < ps_op_input_count(s->op); i++) {
        view_open(&s->in[i], &in[i], 1 + (uint64_t)i);
        view_open(&s->in_grad[i], &in[i], 11 + (uint64_t)i);
        s->req[i] = PS_GRAD_WRITE;
    }
    for (int i = 0; i < ps_op_output_count(s->op); i++) {
        view_open(&s->out[i], &out[i], 21 + (uint64_t)i);
        view_open(&s->out_grad[i], &out[i], 31 + (uint64_t)i);
    }
    for (int i = 0; i < ps_op_aux_count(s->op); i++) {
        view_open(&s->aux[i], &aux[i], 41 + (uint64_t)i);
    }
    s->workspace = ps_mem_calloc(PS_MAX(ps_op_plan_workspace(s->plan, false),
                                        ps_op_plan_workspace(s->plan, true)) +
                                 64);
    s->run = (struct ps_op_run){.in = s->in,
                                .out = s->out,
                                .aux = s->aux,
                                .out_grad = s->out_grad,
                                .in_grad = s->in_grad,
                                .req = s->req,
                                .workspace = s->workspace,
                                .training = true};
}

static void subject_close(struct subject *s)
{
    for (int i = 0; i < SLOTS; i++) {
        ps_mem_free(s->in[i].data);
        ps_mem_free(s->out[i].data);
        ps_mem_free(s->aux[i].data);
        ps_mem_free(s->out_grad[i].data);
        ps_mem_free(s->in_grad[i].data);
    }
    ps_mem_free(s->workspace);
    ps_op_plan_destroy(s->plan);
    ps_op_destroy(s->op);
}

static double run_us(struct subject *s, bool backward)
{
    struct ps_clock *clock = ps_clock_real();
    struct ps_error err = {0};
    uint64_t start = ps_clock_now_ns(clock);
    enum ps_status status = backward ? ps_op_backward(s->plan, &s->run, &err)
                                     : ps_op_forward(s->plan, &s->run, &err);
    if (status != PS_OK) {
        die("run", &err);
    }
    return (double)(ps_clock_now_ns(clock) - start) * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* "64x20x24x24" */
static void shape_label(const struct ps_shape *shape, char *out, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < shape->ndim && used < size; i++) {
        int n = snprintf(out + used, size - used, "%s%lld", i > 0 ? "x" : "",
                         (long long)shape->dim[i]);
        used += n > 0 ? (size_t)n : 0;
    }
}

static void measure(struct ps_kernels *const kernels[KINDS], const struct bench_case *c,
                    int reps, int threads)
{
    static const char *const directions[2] = {"forward", "backward"};
    double us[KINDS][2][MAX_REPS];
    struct subject subjects[KINDS];
    char shape[PS_SHAPE_TEXT_BYTES];
    for (int k = 0; k < KINDS; k++) {
        subject_open(&subjects[k], kernels[k], c, threads);
        (void)run_us(&subjects[k], false); /* warms caches and pages up */
        (void)run_us(&subjects[k], true);
    }
    for (int r = 0; r < reps; r++) {
        for (int k = 0; k < KINDS; k++) {
            us[k][0][r] = run_us(&subjects[k], false);
            us[k][1][r] = run_us(&subjects[k], true);
        }
    }
    shape_label(&c->data, shape, sizeof shape);
    for (int d = 0; d < 2; d++) {
        for (int k = 0; k < KINDS; k++) {
            qsort(us[k][d], (size_t)reps, sizeof(double), by_value);
            printf("R,kernels,%s/%s/%s/%s,%zu,us,%.1f\n", kind_names[k], c->label, shape,
                   directions[d], (size_t)ps_shape_count(&c->data) * sizeof(float),
                   us[k][d][reps / 2]);
        }
    }
    for (int k = 0; k < KINDS; k++) {
        subject_close(&subjects[k]);
    }
}

int main(int argc, char **argv)
{
    long reps = 15, threads = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "-r") == 0) {
            reps = strtol(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "-t") == 0) {
            threads = strtol(argv[i + 1], NULL, 10);
        }
    }
    if (argc % 2 == 0 || reps < 1 || reps > MAX_REPS || threads < 1 || threads > 256) {
        fprintf(stderr, "kernel_bench [-r 1..%d] [-t 1..256]\n", MAX_REPS);
        return 64;
    }
    struct ps_kernels *kernels[KINDS] = {0};
    struct ps_settings *settings = NULL;
    struct ps_error err = {0};
    const char *const env[] = {NULL};
    const char *const overrides[] = {"USE_ONEDNN=0", NULL};
    if (ps_settings_load(env, overrides, &settings, &err) != PS_OK ||
        ps_kernels_create(settings, NULL, &kernels[PLAIN], &err) != PS_OK ||
        ps_kernels_create(NULL, NULL, &kernels[ONEDNN], &err) != PS_OK ||
        ps_kernels_create(NULL, NULL, &kernels[DEFAULT], &err) != PS_OK) {
        die("start", &err);
    }
    kernels[ONEDNN]->onednn_always = true;
    struct ps_str text = {0};
    ps_kernels_describe(kernels[DEFAULT], &text);
    printf("# kernels %s; threads of a run %ld, reps %ld\n", ps_str_text(&text), threads,
           reps);
    for (size_t i = 0; i < PS_COUNT(cases); i++) {
        measure(kernels, &cases[i], (int)reps, (int)threads);
    }
    ps_str_fini(&text);
    for (int k = 0; k < KINDS; k++) {
        ps_kernels_destroy(kernels[k]);
    }
    ps_settings_destroy(settings);
    return 0;
}
