/* Feeding, counting and stepping one device's executor. */
#include "worker/replica.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIXEL_SCALE (1.0F / 255.0F) /* u8 to [0, 1] */
#define LOSS_FLOOR 1e-30F           /* so that ln stays finite */

struct ps_replica {
    struct ps_replica_options options;
    struct ps_executor *executor;
    size_t *params; /* argument index of each parameter */
    size_t param_count;
    struct ps_tensor *data, *label, *output; /* the executor's */
    /* the same on the host: retained; other tensors where the device is not the host */
    struct ps_tensor *host_data, *host_label, *host_output;
    struct ps_var *score_var;
    struct ps_engine_call *count_call;
    struct ps_pool *feeds;
    uint32_t valid; /* samples of the batch that count; ordered by the label's variable */
    struct ps_score score; /* ordered by 'score_var' */
};

/* One batch on its way in. */
struct feed {
    struct ps_replica *replica;
    const struct ps_dataset *dataset;
    uint32_t count;
    uint32_t indices[];
};

static enum ps_status run_feed(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(run);
    struct feed *feed = arg;
    struct ps_replica *replica = feed->replica;
    const struct ps_dataset *dataset = feed->dataset;
    size_t pixels = (size_t)dataset->rows * dataset->columns;
    float *data = ps_tensor_data(replica->host_data);
    float *label = ps_tensor_data(replica->host_label);
    if (data == NULL || label == NULL) {
        return ps_error_set(err, PS_ENOMEM, "no memory for a batch of %u samples",
                            replica->options.batch);
    }
    for (uint32_t i = 0; i < feed->count; i++) {
        const uint8_t *image = dataset->images + (size_t)feed->indices[i] * pixels;
        float *row = data + (size_t)i * pixels;
        for (size_t p = 0; p < pixels; p++) {
            row[p] = (float)image[p] * PIXEL_SCALE;
        }
        label[i] = (float)dataset->labels[feed->indices[i]];
    }
    uint32_t rest = replica->options.batch - feed->count;
    memset(data + (size_t)feed->count * pixels, 0, (size_t)rest * pixels * sizeof(float));
    memset(label + feed->count, 0, rest * sizeof(float));
    replica->valid = feed->count;
    return PS_OK;
}

static void release_feed(void *arg)
{
    struct feed *feed = arg;
    ps_pool_put(feed->replica->feeds, feed);
}

/* Reads output [N,K] and label [N]; adds to the score. */
static enum ps_status run_count(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(run);
    PS_UNUSED(err);
    struct ps_replica *replica = arg;
    const float *p = ps_tensor_data(replica->host_output);
    const float *label = ps_tensor_data(replica->host_label);
    size_t classes = (size_t)ps_tensor_shape(replica->host_output)->dim[1];
    for (uint32_t n = 0; n < replica->valid; n++) {
        const float *row = p + n * classes;
        size_t best = 0, truth = (size_t)label[n];
        for (size_t k = 1; k < classes; k++) {
            best = row[k] > row[best] ? k : best;
        }
        replica->score.correct += best == truth ? 1 : 0;
        replica->score.loss -= (double)logf(fmaxf(row[truth], LOSS_FLOOR));
    }
    replica->score.samples += replica->valid;
    return PS_OK;
}

static enum ps_status bind(struct ps_replica *replica, struct ps_error *err)
{
    static const char *const inputs[] = {"data", "softmax_label", NULL};
    const struct ps_replica_options *o = &replica->options;
    struct ps_bind_options bind_options = PS_BIND_OPTIONS(o->engine, o->kernels);
    struct ps_named_shape shapes[] = {
        {"data", PS_SHAPE(o->batch, 1, o->rows, o->columns)}};
    struct ps_simple_bind simple = {.shapes = shapes,
                                    .shape_count = PS_COUNT(shapes),
                                    .req = PS_GRAD_WRITE,
                                    .no_gradient = inputs};
    bind_options.context = o->context;
    bind_options.devices = o->devices;
    bind_options.seed = o->seed;
    PS_TRY(ps_executor_simple_bind(o->symbol, &bind_options, &simple, &replica->executor,
                                   err));
    replica->data = ps_executor_find_argument(replica->executor, "data");
    replica->label = ps_executor_find_argument(replica->executor, "softmax_label");
    replica->output = ps_executor_output(replica->executor, 0);
    if (replica->data == NULL || replica->label == NULL ||
        ps_tensor_shape(replica->output)->ndim != 2) {
        return ps_error_set(
            err, PS_EINVAL,
            "a network for training needs the arguments data and softmax_label "
            "and one output of [samples, classes]");
    }
    return PS_OK;
}

static enum ps_status find_params(struct ps_replica *replica, struct ps_error *err)
{
    size_t count = ps_executor_argument_count(replica->executor);
    replica->params = calloc(count, sizeof(*replica->params));
    if (replica->params == NULL) {
        return ps_error_set(err, PS_ENOMEM, "network: out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        if (ps_executor_gradient(replica->executor, i) != NULL) {
            replica->params[replica->param_count++] = i;
        }
    }
    return PS_OK;
}

/* Where the host makes batches and reads outputs of a device. */
static struct ps_context host_of(struct ps_context context)
{
    return PS_CPU(context.kind == PS_CONTEXT_CPU ? context.id : 0);
}

static bool is_host(const struct ps_replica *replica)
{
    return replica->options.context.kind == PS_CONTEXT_CPU;
}

static enum ps_status host_tensor(const struct ps_replica *replica,
                                  struct ps_tensor *tensor, struct ps_tensor **host_out)
{
    if (is_host(replica)) {
        *host_out = ps_tensor_retain(tensor);
        return PS_OK;
    }
    return ps_tensor_create(replica->options.engine, host_of(replica->options.context),
                            (int)ps_tensor_dtype(tensor), ps_tensor_shape(tensor),
                            host_out);
}

static enum ps_status make_host_tensors(struct ps_replica *replica)
{
    PS_TRY(host_tensor(replica, replica->data, &replica->host_data));
    PS_TRY(host_tensor(replica, replica->label, &replica->host_label));
    return host_tensor(replica, replica->output, &replica->host_output);
}

static enum ps_status make_calls(struct ps_replica *replica)
{
    const struct ps_replica_options *o = &replica->options;
    PS_TRY(make_host_tensors(replica));
    PS_TRY(ps_pool_create(sizeof(struct feed) + o->batch * sizeof(uint32_t), 4, 0, false,
                          &replica->feeds));
    PS_TRY(ps_var_create(o->engine, &replica->score_var));
    struct ps_var *reads[] = {ps_tensor_var(replica->host_output),
                              ps_tensor_var(replica->host_label)};
    struct ps_engine_op count_op = {
        .name = "Count",
        .run = run_count,
        .arg = replica,
        .reads = reads,
        .read_count = PS_COUNT(reads),
        .writes = &replica->score_var,
        .write_count = 1,
        .context = host_of(o->context),
    };
    return ps_engine_call_create(o->engine, &count_op, &replica->count_call);
}

enum ps_status ps_replica_create(const struct ps_replica_options *options,
                                 struct ps_replica **replica_out, struct ps_error *err)
{
    char text[PS_CONTEXT_TEXT_BYTES];
    const char *name = ps_context_text(options->context, text);
    struct ps_replica *replica = calloc(1, sizeof(*replica));
    if (replica == NULL) {
        return ps_error_set(err, PS_ENOMEM, "%s: out of memory", name);
    }
    replica->options = *options;
    ps_symbol_retain(options->symbol);
    enum ps_status status;
    struct ps_device *device; /* asked for here because it says why there is none */
    PS_TRY_GOTO(status, ps_engine_device(options->engine, options->context, &device, err),
                fail);
    PS_TRY_GOTO(status, bind(replica, err), fail);
    PS_TRY_GOTO(status, find_params(replica, err), fail);
    status = make_calls(replica);
    if (status != PS_OK) {
        (void)ps_error_set(err, status, "%s: %s", name, ps_status_text(status));
        goto fail;
    }
    *replica_out = replica;
    return PS_OK;
fail:
    ps_replica_destroy(replica);
    return status;
}

void ps_replica_destroy(struct ps_replica *replica)
{
    if (replica == NULL) {
        return;
    }
    /* its operations use it: let them end; what failed was told by the step's own wait */
    enum ps_status status = ps_engine_wait_all(replica->options.engine, NULL);
    PS_UNUSED(status);
    ps_engine_call_destroy(replica->count_call);
    if (replica->score_var != NULL) {
        ps_var_delete(replica->options.engine, replica->score_var);
    }
    ps_tensor_release(replica->host_data);
    ps_tensor_release(replica->host_label);
    ps_tensor_release(replica->host_output);
    ps_executor_destroy(replica->executor);
    ps_pool_destroy(replica->feeds);
    ps_symbol_release(replica->options.symbol);
    free(replica->params);
    free(replica);
}

struct ps_executor *ps_replica_executor(const struct ps_replica *replica)
{
    return replica->executor;
}

size_t ps_replica_param_count(const struct ps_replica *replica)
{
    return replica->param_count;
}

const char *ps_replica_param_name(const struct ps_replica *replica, size_t i)
{
    return ps_executor_argument_name(replica->executor, replica->params[i]);
}

struct ps_tensor *ps_replica_param(const struct ps_replica *replica, size_t i)
{
    return ps_executor_argument(replica->executor, replica->params[i]);
}

struct ps_tensor *ps_replica_gradient(const struct ps_replica *replica, size_t i)
{
    return ps_executor_gradient(replica->executor, replica->params[i]);
}

static enum ps_status push_feed(struct ps_replica *replica,
                                const struct ps_dataset *dataset, const uint32_t *indices,
                                uint32_t count)
{
    struct feed *feed = ps_pool_get(replica->feeds);
    if (feed == NULL) {
        return PS_ENOMEM;
    }
    feed->replica = replica;
    feed->dataset = dataset;
    feed->count = count;
    memcpy(feed->indices, indices, count * sizeof(*indices));
    struct ps_var *writes[] = {ps_tensor_var(replica->host_data),
                               ps_tensor_var(replica->host_label)};
    struct ps_engine_op op = {
        .name = "Feed",
        .run = run_feed,
        .arg = feed,
        .release = release_feed,
        .writes = writes,
        .write_count = PS_COUNT(writes),
        .context = host_of(replica->options.context),
    };
    enum ps_status status = ps_engine_push(replica->options.engine, &op);
    if (status != PS_OK) {
        ps_pool_put(replica->feeds, feed);
        return status;
    }
    if (is_host(replica)) {
        return PS_OK;
    }
    PS_TRY(ps_tensor_copy(replica->host_data, replica->data, 0));
    return ps_tensor_copy(replica->host_label, replica->label, 0);
}

static enum ps_status push_count(struct ps_replica *replica)
{
    if (!is_host(replica)) {
        PS_TRY(ps_tensor_copy(replica->output, replica->host_output, 0));
    }
    return ps_engine_call_push(replica->count_call);
}

enum ps_status ps_replica_step(struct ps_replica *replica,
                               const struct ps_dataset *dataset, const uint32_t *indices,
                               uint32_t count, bool training, struct ps_error *err)
{
    if (count > replica->options.batch || dataset->rows != replica->options.rows ||
        dataset->columns != replica->options.columns) {
        return ps_error_set(
            err, PS_ESHAPE, "a batch of %u samples of %u x %u does not fit %u of %u x %u",
            count, dataset->rows, dataset->columns, replica->options.batch,
            replica->options.rows, replica->options.columns);
    }
    int64_t classes = ps_tensor_shape(replica->output)->dim[1];
    if (dataset->classes > classes) { /* a label would be read behind its row */
        return ps_error_set(err, PS_ESHAPE,
                            "the data has %u classes, the network's output %lld",
                            dataset->classes, (long long)classes);
    }
    enum ps_status status = push_feed(replica, dataset, indices, count);
    if (status != PS_OK) {
        return ps_error_set(err, status, "feeding a batch: %s", ps_status_text(status));
    }
    PS_TRY(ps_executor_forward(replica->executor, training, err));
    status = push_count(replica);
    if (status != PS_OK) {
        return ps_error_set(err, status, "counting a batch: %s", ps_status_text(status));
    }
    return training ? ps_executor_backward(replica->executor, NULL, err) : PS_OK;
}

enum ps_status ps_replica_score(struct ps_replica *replica, struct ps_score *score,
                                struct ps_error *err)
{
    PS_TRY(ps_engine_wait_var(replica->options.engine, replica->score_var, err));
    score->samples += replica->score.samples;
    score->correct += replica->score.correct;
    score->loss += replica->score.loss;
    replica->score = (struct ps_score){0};
    return PS_OK;
}
