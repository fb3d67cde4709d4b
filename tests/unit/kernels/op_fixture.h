/* One operator with its tensors, ready to run: what the kernel tests share.
 * Tensors are filled from a fixed seed.  One thread. */
#ifndef PENSTOCK_TESTS_KERNELS_OP_FIXTURE_H
#define PENSTOCK_TESTS_KERNELS_OP_FIXTURE_H

#include "kernels/kernels.h"

#define FIXTURE_MAX 8

struct fixture {
    const struct ps_kernels *kernels;
    struct ps_op *op;
    struct ps_op_plan *plan;
    struct ps_view in[FIXTURE_MAX], out[FIXTURE_MAX], aux[FIXTURE_MAX];
    struct ps_view out_grad[FIXTURE_MAX], in_grad[FIXTURE_MAX];
    enum ps_grad_req req[FIXTURE_MAX];
    void *workspace;
    struct ps_op_run run;
    struct ps_error err;
};

struct fixture_options {
    const char *op;
    const char *attrs; /* "kernel=(2, 2);pad=(1, 1)" or NULL */
    struct ps_shape in[FIXTURE_MAX];
    int dtype;
    double low, high; /* of the random inputs */
    int threads;
};

/* Asserts on every failure. */
void fixture_open(struct fixture *f, const struct ps_kernels *kernels,
                  const struct fixture_options *options);
void fixture_close(struct fixture *f);
void fixture_forward(struct fixture *f);
void fixture_backward(struct fixture *f);
double fixture_get(const struct ps_view *view, int64_t i);
void fixture_set(const struct ps_view *view, int64_t i, double value);
void fixture_fill(const struct ps_view *view, double value);
void fixture_random(const struct ps_view *view, uint64_t stream, double low, double high);
int64_t fixture_count(const struct ps_view *view);

/* Parses "key=value;key=value" and creates the op. */
enum ps_status fixture_op(const char *name, const char *attrs, struct ps_op **op_out,
                          struct ps_error *err);

#endif
