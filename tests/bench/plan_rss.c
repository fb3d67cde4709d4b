/* The memory a training step really takes beside what is planned: one network, bound
 * under the settings of the environment, one step, then the process's peak.
 *
 *   plan_rss NETWORK BATCH
 *
 * Prints one line of NAME=VALUE, bytes: base (resident before the network is bound),
 * argument, gradient, auxiliary, internal, workspace, peak (planned), rss (the process's
 * peak, VmHWM), mirrored (operators computed again), work (theirs, of one forward's) and
 * step_ms.  Weights are drawn, data is noise. */
#include "base/node.h"
#include "base/rng.h"
#include "engine/graph/executor.h"
#include "worker/initializer.h"
#include "worker/models/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
    struct ps_node *node;
    struct ps_kernels *kernels;
    struct ps_engine *engine;
    struct ps_symbol *symbol;
    struct ps_executor *executor;
    const struct ps_model *model;
};

/* A line "VmHWM:  123 kB" of /proc/self/status, as bytes. */
static size_t resident(const char *field)
{
    char line[256];
    long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    size_t size = strlen(field);
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, field, size) == 0) {
            kib = strtoll(line + size + 1, NULL, 10);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return (size_t)kib * 1024;
}

static enum ps_status bind(struct bench *b, int64_t batch, struct ps_error *err)
{
    struct ps_named_shape inputs[PS_MODEL_INPUTS_MAX];
    const char *no_gradient[PS_MODEL_INPUTS_MAX + 1] = {NULL};
    size_t count = ps_model_inputs(b->model, &b->model->size, batch, inputs);
    for (size_t i = 0; i < count; i++) {
        no_gradient[i] = inputs[i].name;
    }
    struct ps_bind_options options = PS_BIND_OPTIONS(b->engine, b->kernels);
    struct ps_simple_bind simple = {.shapes = inputs,
                                    .shape_count = count,
                                    .req = PS_GRAD_WRITE,
                                    .no_gradient = no_gradient};
    return ps_executor_simple_bind(b->symbol, &options, &simple, &b->executor, err);
}

/* Small pieces, so that filling does not count: one array at a time. */
static enum ps_status fill(struct bench *b, struct ps_tensor *tensor, const char *name,
                           struct ps_error *err)
{
    float *values = malloc(ps_tensor_bytes(tensor) + 1);
    if (values == NULL) {
        return PS_ENOMEM;
    }
    ps_initialize(name, ps_tensor_shape(tensor), 7, values);
    bool data = strcmp(name, "data") == 0;
    if (data || strcmp(name, "softmax_label") == 0) {
        bool numbers = !data || b->model->size.steps != 0;
        for (int64_t i = 0; i < ps_tensor_count(tensor); i++) {
            float unit = ps_rng_unit_at(7, data, (uint64_t)i);
            int whole = (int)(unit * (float)b->model->size.classes);
            values[i] = numbers ? (float)whole : unit;
        }
    }
    enum ps_status status = ps_tensor_write(tensor, values, ps_tensor_bytes(tensor), err);
    free(values);
    return status;
}

static enum ps_status fill_all(struct bench *b, struct ps_error *err)
{
    for (size_t i = 0; i < ps_executor_argument_count(b->executor); i++) {
        PS_TRY(fill(b, ps_executor_argument(b->executor, i),
                    ps_executor_argument_name(b->executor, i), err));
    }
    for (size_t i = 0; i < ps_executor_auxiliary_count(b->executor); i++) {
        PS_TRY(fill(b, ps_executor_auxiliary(b->executor, i),
                    ps_executor_auxiliary_name(b->executor, i), err));
    }
    return PS_OK;
}

static enum ps_status measure(struct bench *b, const char *network, int64_t batch,
                              struct ps_error *err)
{
    PS_TRY(ps_model_find(network, &b->model, err));
    PS_TRY(ps_model_build(network, 0, &b->symbol, err));
    PS_TRY(ps_node_open(&(struct ps_node_options){.name = "bench"}, &b->node, err));
    PS_TRY(ps_kernels_create(b->node->settings, b->node->log, &b->kernels, err));
    PS_TRY(ps_engine_create(b->node, PS_ENGINE_FROM_SETTING, &b->engine, err));
    size_t base = resident("VmRSS:");
    PS_TRY(bind(b, batch, err));
    PS_TRY(fill_all(b, err));
    uint64_t began = ps_clock_now_ns(b->node->clock);
    PS_TRY(ps_executor_forward(b->executor, true, err));
    PS_TRY(ps_executor_backward(b->executor, NULL, err));
    PS_TRY(ps_engine_wait_all(b->engine, err));
    double ms = (double)(ps_clock_now_ns(b->node->clock) - began) / 1e6;
    struct ps_executor_memory m;
    ps_executor_memory(b->executor, &m);
    printf("base=%zu argument=%zu gradient=%zu auxiliary=%zu internal=%zu workspace=%zu "
           "peak=%zu rss=%zu mirrored=%zu work=%.4f step_ms=%.0f\n",
           base, m.argument_bytes, m.gradient_bytes, m.auxiliary_bytes, m.internal_bytes,
           m.workspace_bytes, m.peak_bytes, resident("VmHWM:"), m.mirrored_count,
           m.forward_work > 0 ? m.extra_work / m.forward_work : 0.0, ms);
    return PS_OK;
}

int main(int argc, char **argv)
{
    struct bench b = {.node = NULL};
    struct ps_error err = {.status = PS_OK};
    int64_t batch = 0;
    if (argc != 3 || ps_parse_i64(argv[2], &batch) != PS_OK || batch < 1) {
        fprintf(stderr, "usage: plan_rss NETWORK BATCH\n");
        return 64;
    }
    enum ps_status status = measure(&b, argv[1], batch, &err);
    if (status != PS_OK) {
        fprintf(stderr, "plan_rss: %s\n",
                err.status != PS_OK ? err.text : ps_status_text(status));
    }
    if (b.engine != NULL) {
        enum ps_status ended = ps_engine_wait_all(b.engine, NULL);
        PS_UNUSED(ended);
    }
    ps_executor_destroy(b.executor);
    ps_engine_destroy(b.engine);
    ps_kernels_destroy(b.kernels);
    ps_symbol_release(b.symbol);
    ps_node_close(b.node);
    return status == PS_OK ? 0 : status == PS_ERANGE ? 3 : 1;
}
