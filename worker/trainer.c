/* The training loop. */
#include "worker/trainer.h"

#include "worker/checkpoint.h"
#include "worker/initializer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCORE_STORE "penstock.score" /* where workers add up how they did */
#define SCORE_KEY "epoch"
#define SCORE_FIELDS 5 /* train samples, correct, loss; test samples, correct */

struct ps_trainer {
    struct ps_trainer_options options;
    struct ps_context devices[PS_KV_TENSORS_MAX];
    struct ps_replica **replicas; /* one a device */
    size_t param_count;
    struct ps_key *keys;
    struct ps_kvstore *store, *scores;
    struct ps_report *report;
    uint32_t *order;                     /* the epoch's shuffle */
    struct ps_tensor **grads, **weights; /* of one parameter, over the devices */
    int64_t steps;
    double lr; /* in force */
};

/* ---- creation ---- */

static enum ps_status check_options(const struct ps_trainer_options *o,
                                    struct ps_error *err)
{
    if (o->device_count < 1 || o->device_count > PS_KV_TENSORS_MAX) {
        return ps_error_set(err, PS_ERANGE, "%zu devices: 1 to %d are accepted",
                            o->device_count, PS_KV_TENSORS_MAX);
    }
    if (o->batch == 0 || o->batch % (uint32_t)o->device_count != 0) {
        return ps_error_set(err, PS_EINVAL,
                            "batch size %" PRIu32
                            " cannot be split evenly over %zu devices",
                            o->batch, o->device_count);
    }
    if (o->test != NULL &&
        (o->test->rows != o->train->rows || o->test->columns != o->train->columns)) {
        return ps_error_set(err, PS_ESHAPE,
                            "images of the test set are %u x %u, those to train on %u x "
                            "%u: one size is accepted",
                            o->test->rows, o->test->columns, o->train->rows,
                            o->train->columns);
    }
    if (o->load_epoch >= 0 && o->model_prefix == NULL) {
        return ps_error_set(err, PS_EINVAL, "load-epoch %" PRId64 " needs a model prefix",
                            o->load_epoch);
    }
    return PS_OK;
}

static enum ps_status make_replicas(struct ps_trainer *trainer, struct ps_error *err)
{
    const struct ps_trainer_options *o = &trainer->options;
    size_t devices = o->device_count;
    trainer->replicas = calloc(devices, sizeof(*trainer->replicas));
    trainer->grads = calloc(devices, sizeof(*trainer->grads));
    trainer->weights = calloc(devices, sizeof(*trainer->weights));
    trainer->order = calloc(o->train->count, sizeof(*trainer->order));
    if (trainer->replicas == NULL || trainer->grads == NULL || trainer->weights == NULL ||
        trainer->order == NULL) {
        return ps_error_set(err, PS_ENOMEM, "trainer: out of memory");
    }
    for (size_t d = 0; d < o->device_count; d++) {
        struct ps_replica_options options = {
            .engine = o->engine,
            .kernels = o->kernels,
            .symbol = o->symbol,
            .context = o->devices[d],
            .devices = (int)(o->device_count * ps_kvstore_local_workers(trainer->store)),
            .batch = o->batch / (uint32_t)o->device_count,
            .rows = o->train->rows,
            .columns = o->train->columns,
            .seed = o->seed + (uint64_t)ps_kvstore_rank(trainer->store) * 1000003u +
                    (uint64_t)d,
        };
        PS_TRY(ps_replica_create(&options, &trainer->replicas[d], err));
    }
    trainer->param_count = ps_replica_param_count(trainer->replicas[0]);
    trainer->keys = calloc(trainer->param_count + 1, sizeof(*trainer->keys));
    if (trainer->keys == NULL) {
        return ps_error_set(err, PS_ENOMEM, "trainer: out of memory");
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        trainer->keys[i] = PS_KEY_NAMED(ps_replica_param_name(trainer->replicas[0], i));
    }
    return PS_OK;
}

static enum ps_status first_value(const char *name, struct ps_tensor *tensor,
                                  uint64_t seed, struct ps_error *err)
{
    size_t bytes = ps_tensor_bytes(tensor);
    float *values = malloc(bytes);
    if (values == NULL) {
        return ps_error_set(err, PS_ENOMEM, "%s of %zu bytes: out of memory", name,
                            bytes);
    }
    ps_initialize(name, ps_tensor_shape(tensor), seed, values);
    enum ps_status status = ps_tensor_write(tensor, values, bytes, err);
    free(values);
    return status;
}

/* Parameters on the first device, from where the store has them; auxiliary states, which
 * no store holds, on every device. */
static enum ps_status first_values(struct ps_trainer *trainer, struct ps_error *err)
{
    const struct ps_trainer_options *o = &trainer->options;
    struct ps_replica *first = trainer->replicas[0];
    for (size_t d = 0; d < o->device_count; d++) {
        struct ps_executor *executor = ps_replica_executor(trainer->replicas[d]);
        for (size_t i = 0; i < ps_executor_auxiliary_count(executor); i++) {
            PS_TRY(first_value(ps_executor_auxiliary_name(executor, i),
                               ps_executor_auxiliary(executor, i), o->seed, err));
        }
        if (o->load_epoch >= 0) { /* its auxiliary states too */
            PS_TRY(ps_checkpoint_load(o->node, o->model_prefix, o->load_epoch,
                                      trainer->replicas[d], err));
        }
    }
    for (size_t i = 0; i < trainer->param_count && o->load_epoch < 0; i++) {
        PS_TRY(first_value(ps_replica_param_name(first, i), ps_replica_param(first, i),
                           o->seed, err));
    }
    return PS_OK;
}

/* The store's values, in every device's weights. */
static enum ps_status pull_all(struct ps_trainer *trainer, struct ps_error *err)
{
    for (size_t i = 0; i < trainer->param_count; i++) {
        for (size_t d = 0; d < trainer->options.device_count; d++) {
            trainer->weights[d] = ps_replica_param(trainer->replicas[d], i);
        }
        PS_TRY(ps_kvstore_pushpull(
            trainer->store, trainer->keys[i], NULL, 0, trainer->weights,
            (uint32_t)trainer->options.device_count, -(int)i, err));
    }
    return ps_engine_wait_all(trainer->options.engine, err);
}

static enum ps_status fill_store(struct ps_trainer *trainer, struct ps_error *err)
{
    struct ps_tensor **values = calloc(trainer->param_count + 1, sizeof(*values));
    if (values == NULL) {
        return ps_error_set(err, PS_ENOMEM, "trainer: out of memory");
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        values[i] = ps_replica_param(trainer->replicas[0], i);
    }
    enum ps_status status = ps_kvstore_init_tensors(
        trainer->store, trainer->keys, values, trainer->param_count, PS_REDUCE_MEAN, err);
    free(values);
    return status;
}

static enum ps_status set_optimizer(struct ps_trainer *trainer, struct ps_error *err)
{
    const struct ps_trainer_options *o = &trainer->options;
    struct ps_str hyper = {0};
    ps_str_printf(&hyper, "learning_rate=%.17g,rescale_grad=%.17g", trainer->lr,
                  1.0 / (double)o->batch);
    if (o->hyper != NULL && o->hyper[0] != '\0') {
        ps_str_printf(&hyper, ",%s", o->hyper);
    }
    enum ps_status status = hyper.failed
                                ? ps_error_set(err, PS_ENOMEM, "optimizer: out of memory")
                                : ps_kvstore_set_optimizer(trainer->store, o->optimizer,
                                                           hyper.data, false, err);
    ps_str_fini(&hyper);
    return status;
}

/* The learning rate of an epoch. */
static double lr_at(const struct ps_trainer_options *o, int64_t epoch)
{
    double lr = o->lr;
    for (size_t i = 0; i < o->lr_step_count; i++) {
        lr *= epoch >= o->lr_step_epochs[i] ? o->lr_factor : 1;
    }
    return lr;
}

static enum ps_status open_stores(struct ps_trainer *trainer, struct ps_error *err)
{
    const struct ps_trainer_options *o = &trainer->options;
    struct ps_kvstore_options options = {
        .node = o->node, .engine = o->engine, .type = o->kv_store};
    PS_TRY(ps_kvstore_create(&options, &trainer->store, err));
    options.type = ps_kvstore_is_dist(trainer->store) ? "dist_sync" : "local";
    options.name = SCORE_STORE;
    PS_TRY(ps_kvstore_create(&options, &trainer->scores, err));
    double zero[SCORE_FIELDS] = {0};
    struct ps_kv_init init = {.key = PS_KEY_NAMED(SCORE_KEY),
                              .dtype = PS_F64,
                              .shape = PS_SHAPE(SCORE_FIELDS),
                              .data = zero};
    return ps_kvstore_init(trainer->scores, &init, 1, err);
}

/* A worker that failed is lost to its job, not done with it: the others must not train on
 * as if they were all. */
static enum ps_status give_up(struct ps_trainer *trainer, enum ps_status status,
                              const struct ps_error *err)
{
    struct ps_error error = *err;
    error.status = status;
    if (trainer->store != NULL) {
        ps_kvstore_abandon(trainer->store, &error);
    }
    return status;
}

enum ps_status ps_trainer_create(const struct ps_trainer_options *options,
                                 struct ps_trainer **trainer_out, struct ps_error *err)
{
    PS_TRY(check_options(options, err));
    struct ps_trainer *trainer = calloc(1, sizeof(*trainer));
    if (trainer == NULL) {
        return ps_error_set(err, PS_ENOMEM, "trainer: out of memory");
    }
    trainer->options = *options;
    memcpy(trainer->devices, options->devices,
           options->device_count * sizeof(trainer->devices[0]));
    trainer->options.devices = trainer->devices;
    trainer->lr = lr_at(options, options->load_epoch + 1);
    enum ps_status status;
    PS_TRY_GOTO(status, open_stores(trainer, err), fail);
    PS_TRY_GOTO(status, make_replicas(trainer, err), fail);
    PS_TRY_GOTO(status, first_values(trainer, err), fail);
    PS_TRY_GOTO(status, set_optimizer(trainer, err), fail);
    PS_TRY_GOTO(status, fill_store(trainer, err), fail);
    PS_TRY_GOTO(status, pull_all(trainer, err), fail);
    struct ps_report_options report = {.node = options->node,
                                       .metrics_path = options->metrics_path,
                                       .resumed = options->load_epoch >= 0,
                                       .first = ps_kvstore_rank(trainer->store) == 0,
                                       .progress_bar = options->progress_bar};
    PS_TRY_GOTO(status, ps_report_open(&report, &trainer->report, err), fail);
    if (options->model_prefix != NULL && report.first) {
        PS_TRY_GOTO(status,
                    ps_checkpoint_begin(options->node, options->model_prefix,
                                        options->symbol, err),
                    fail);
    }
    *trainer_out = trainer;
    return PS_OK;
fail:
    (void)give_up(trainer, status, err);
    ps_trainer_destroy(trainer);
    return status;
}

void ps_trainer_destroy(struct ps_trainer *trainer)
{
    if (trainer == NULL) {
        return;
    }
    for (size_t d = 0; trainer->replicas != NULL && d < trainer->options.device_count;
         d++) {
        ps_replica_destroy(trainer->replicas[d]);
    }
    ps_report_close(trainer->report);
    ps_kvstore_destroy(trainer->scores);
    ps_kvstore_destroy(trainer->store);
    free(trainer->keys);
    free(trainer->order);
    free(trainer->weights);
    free(trainer->grads);
    free(trainer->replicas);
    free(trainer);
}

struct ps_replica *ps_trainer_replica(const struct ps_trainer *trainer, size_t device)
{
    return trainer->replicas[device];
}

/* ---- running ---- */

static enum ps_status push_step(struct ps_trainer *trainer, const uint32_t *indices,
                                struct ps_error *err)
{
    const struct ps_trainer_options *o = &trainer->options;
    uint32_t share = o->batch / (uint32_t)o->device_count;
    for (size_t d = 0; d < o->device_count; d++) {
        PS_TRY(ps_replica_step(trainer->replicas[d], o->train,
                               indices + (uint32_t)d * share, share, true, err));
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        for (size_t d = 0; d < o->device_count; d++) {
            trainer->grads[d] = ps_replica_gradient(trainer->replicas[d], i);
            trainer->weights[d] = ps_replica_param(trainer->replicas[d], i);
        }
        PS_TRY(ps_kvstore_pushpull(trainer->store, trainer->keys[i], trainer->grads,
                                   (uint32_t)o->device_count, trainer->weights,
                                   (uint32_t)o->device_count, -(int)i, err));
    }
    trainer->steps++;
    return PS_OK;
}

static enum ps_status read_score(struct ps_trainer *trainer, struct ps_score *score,
                                 struct ps_error *err)
{
    for (size_t d = 0; d < trainer->options.device_count; d++) {
        PS_TRY(ps_replica_score(trainer->replicas[d], score, err));
    }
    return PS_OK;
}

static bool at_limit(const struct ps_trainer *trainer)
{
    return trainer->options.max_steps > 0 && trainer->steps >= trainer->options.max_steps;
}

static enum ps_status train_epoch(struct ps_trainer *trainer, int64_t epoch,
                                  struct ps_score *total, struct ps_error *err)
{
    const struct ps_trainer_options *o = &trainer->options;
    uint32_t workers = ps_kvstore_num_workers(trainer->store);
    uint32_t rank = ps_kvstore_rank(trainer->store);
    uint32_t batches = ps_dataset_batches(o->train->count, workers, o->batch);
    if (batches == 0) {
        return ps_error_set(err, PS_EINVAL,
                            "%" PRIu32 " samples do not fill one batch of %" PRIu32
                            " for each of %" PRIu32 " workers",
                            o->train->count, o->batch, workers);
    }
    ps_dataset_shuffle(trainer->order, o->train->count, o->seed, (uint64_t)epoch);
    uint64_t since = ps_clock_now_ns(o->node->clock);
    for (uint32_t t = 0; t < batches && !at_limit(trainer); t++) {
        size_t first = ((size_t)t * workers + rank) * o->batch;
        PS_TRY(push_step(trainer, trainer->order + first, err));
        ps_report_progress(trainer->report, epoch, t + 1, batches);
        if (o->disp_batches > 0 && (t + 1) % o->disp_batches == 0) {
            struct ps_score score = {0};
            PS_TRY(read_score(trainer, &score, err));
            uint64_t now = ps_clock_now_ns(o->node->clock);
            double seconds =
                (double)PS_MAX(now - since, UINT64_C(1)) / (double)PS_NS_PER_S;
            ps_report_batch(trainer->report, epoch, t + 1, score.samples / seconds,
                            score.correct / PS_MAX(score.samples, 1));
            since = now;
            total->samples += score.samples;
            total->correct += score.correct;
            total->loss += score.loss;
        }
    }
    PS_TRY(read_score(trainer, total, err));
    return ps_engine_wait_all(o->engine, err);
}

/* This worker's part of the test set, over its devices. */
static enum ps_status validate(struct ps_trainer *trainer, struct ps_score *score,
                               struct ps_error *err)
{
    const struct ps_trainer_options *o = &trainer->options;
    uint64_t workers = ps_kvstore_num_workers(trainer->store);
    uint64_t rank = ps_kvstore_rank(trainer->store);
    uint32_t at = (uint32_t)(o->test->count * rank / workers);
    uint32_t end = (uint32_t)(o->test->count * (rank + 1) / workers);
    uint32_t share = o->batch / (uint32_t)o->device_count;
    uint32_t *indices = calloc(share, sizeof(*indices));
    if (indices == NULL) {
        return ps_error_set(err, PS_ENOMEM, "validation: out of memory");
    }
    enum ps_status status = PS_OK;
    for (size_t d = 0; at < end && status == PS_OK; d = (d + 1) % o->device_count) {
        uint32_t count = PS_MIN(share, end - at);
        for (uint32_t i = 0; i < count; i++) {
            indices[i] = at + i;
        }
        at += count;
        status =
            ps_replica_step(trainer->replicas[d], o->test, indices, count, false, err);
    }
    free(indices);
    PS_TRY(status);
    return read_score(trainer, score, err);
}

/* Adds up the scores of all workers. */
static enum ps_status share_scores(struct ps_trainer *trainer, struct ps_score *train,
                                   struct ps_score *test, struct ps_error *err)
{
    double values[SCORE_FIELDS] = {train->samples, train->correct, train->loss,
                                   test->samples, test->correct};
    const void *src = values;
    void *dst = values;
    struct ps_kv_request request = {.op = PS_KV_PUSHPULL,
                                    .key = PS_KEY_NAMED(SCORE_KEY),
                                    .dtype = PS_F64,
                                    .count = SCORE_FIELDS,
                                    .src = &src,
                                    .src_count = 1,
                                    .dst = &dst,
                                    .dst_count = 1};
    enum ps_status status = ps_kvstore_call(trainer->scores, &request);
    if (status != PS_OK) {
        return ps_error_set(err, status, "%s", request.error.text);
    }
    *train = (struct ps_score){values[0], values[1], values[2]};
    *test = (struct ps_score){values[3], values[4], 0};
    return PS_OK;
}

static enum ps_status finish_epoch(struct ps_trainer *trainer, int64_t epoch,
                                   uint64_t began, struct ps_score *train,
                                   struct ps_error *err)
{
    const struct ps_trainer_options *o = &trainer->options;
    double seconds =
        (double)(ps_clock_now_ns(o->node->clock) - began) / (double)PS_NS_PER_S;
    struct ps_score test = {0};
    if (o->test != NULL) {
        PS_TRY(validate(trainer, &test, err));
    }
    PS_TRY(share_scores(trainer, train, &test, err));
    struct ps_epoch_result result = {
        .epoch = epoch,
        .samples = train->samples,
        .seconds = seconds,
        .train_accuracy = train->correct / PS_MAX(train->samples, 1),
        .loss = train->loss / PS_MAX(train->samples, 1),
        .test_accuracy = test.samples > 0 ? test.correct / test.samples : -1,
    };
    PS_TRY(ps_report_epoch(trainer->report, &result, err));
    if (o->model_prefix != NULL && ps_kvstore_rank(trainer->store) == 0) {
        PS_TRY(ps_checkpoint_save(o->node, o->model_prefix, epoch, o->symbol,
                                  trainer->replicas[0], err));
    }
    return PS_OK;
}

static enum ps_status run_epochs(struct ps_trainer *trainer, struct ps_error *err)
{
    const struct ps_trainer_options *o = &trainer->options;
    if (o->load_epoch + 1 >= o->epochs) {
        PS_LOG(o->node->log, WARN, WORKER,
               "nothing to train: %" PRId64 " epochs are asked for in all, %" PRId64
               " are done",
               o->epochs, o->load_epoch + 1);
    }
    for (int64_t epoch = o->load_epoch + 1; epoch < o->epochs && !at_limit(trainer);
         epoch++) {
        double lr = lr_at(o, epoch);
        if (lr != trainer->lr) {
            char hyper[64];
            (void)snprintf(hyper, sizeof(hyper), "learning_rate=%.17g", lr);
            PS_TRY(ps_kvstore_set_hyper(trainer->store, hyper, err));
            trainer->lr = lr;
        }
        struct ps_score train = {0};
        uint64_t began = ps_clock_now_ns(o->node->clock);
        PS_TRY(train_epoch(trainer, epoch, &train, err));
        PS_TRY(finish_epoch(trainer, epoch, began, &train, err));
    }
    return PS_OK;
}

enum ps_status ps_trainer_run(struct ps_trainer *trainer, struct ps_error *err)
{
    enum ps_status status = run_epochs(trainer, err);
    return status == PS_OK ? PS_OK : give_up(trainer, status, err);
}
