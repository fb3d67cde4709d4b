/* `penstock train`: the flags that MXNet's users know, turned into a trainer's options.
 */
#include "worker/commands.h"

#include "base/options.h"
#include "base/str.h"
#include "kernels/optimizer.h"
#include "worker/models/models.h"
#include "worker/trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LR_STEPS_MAX 64

/* What the command line says, with its defaults. */
struct flags {
    const char *network, *data, *optimizer, *kv_store, *model_prefix, *metrics;
    const char *lr_step_epochs, *gpus;
    struct ps_option_list set;
    int64_t batch_size, num_epochs, cpus, load_epoch, disp_batches, seed, max_steps;
    double lr, lr_factor, mom, wd;
    bool progress;
};

static const struct flags defaults = {
    .network = "lenet",
    .data = "fashion-mnist",
    .optimizer = "sgd",
    .kv_store = "local",
    .lr_step_epochs = "",
    .gpus = "",
    .batch_size = 64,
    .num_epochs = 10,
    .load_epoch = -1,
    .disp_batches = 20,
    .lr = 0.05,
    .lr_factor = 0.1,
    .mom = 0.9,
    .wd = 0.0,
    .progress = true,
};

#define OPTION_COUNT 21

static void make_options(struct flags *f, struct ps_option options[OPTION_COUNT])
{
    const struct ps_option table[OPTION_COUNT] = {
        {"network", 0, PS_OPT_TEXT, &f->network, 0, 0, NULL, "NAME", "mlp or lenet"},
        {"data", 0, PS_OPT_TEXT, &f->data, 0, 0, NULL, "NAME",
         "fashion-mnist, mnist, or a folder of the four IDX files, gzipped or not"},
        {"batch-size", 0, PS_OPT_INT, &f->batch_size, 1, 1 << 20, NULL, "N",
         "samples of one step of this worker, split over its devices"},
        {"num-epochs", 0, PS_OPT_INT, &f->num_epochs, 0, INT32_MAX, NULL, "N",
         "passes over the training set, those before load-epoch counted"},
        {"max-steps", 0, PS_OPT_INT, &f->max_steps, 0, INT64_MAX, NULL, "N",
         "stop after so many steps; 0: no limit"},
        {"lr", 0, PS_OPT_DOUBLE, &f->lr, 0, 1000000, NULL, "X", "learning rate"},
        {"lr-factor", 0, PS_OPT_DOUBLE, &f->lr_factor, 0, 1000000, NULL, "X",
         "what the learning rate is multiplied with at each of lr-step-epochs"},
        {"lr-step-epochs", 0, PS_OPT_TEXT, &f->lr_step_epochs, 0, 0, NULL, "A,B,...",
         "epochs at which the learning rate falls"},
        {"optimizer", 0, PS_OPT_TEXT, &f->optimizer, 0, 0, NULL, "NAME",
         "sgd, nag, adam, adamw, rmsprop or adagrad"},
        {"mom", 0, PS_OPT_DOUBLE, &f->mom, 0, 1, NULL, "X", "momentum, for sgd and nag"},
        {"wd", 0, PS_OPT_DOUBLE, &f->wd, 0, 1000000, NULL, "X", "weight decay"},
        {"kv-store", 0, PS_OPT_TEXT, &f->kv_store, 0, 0, NULL, "TYPE",
         "local, device, dist_sync, dist_async or dist_device_sync"},
        {"cpus", 0, PS_OPT_INT, &f->cpus, 1, PS_KV_TENSORS_MAX, NULL, "N",
         "CPU devices of this worker; 1 when no gpus are named"},
        {"gpus", 0, PS_OPT_TEXT, &f->gpus, 0, 0, NULL, "I,J,...",
         "GPUs of this worker, in place of CPU devices"},
        {"model-prefix", 0, PS_OPT_TEXT, &f->model_prefix, 0, 0, NULL, "PREFIX",
         "save PREFIX-symbol.json and PREFIX-0001.safetensors, ... after each epoch"},
        {"load-epoch", 0, PS_OPT_INT, &f->load_epoch, 0, INT32_MAX, NULL, "N",
         "go on from checkpoint N's weights; momentum and other optimizer states begin "
         "anew"},
        {"disp-batches", 0, PS_OPT_INT, &f->disp_batches, 0, INT32_MAX, NULL, "N",
         "a line after so many steps; 0: none"},
        {"seed", 0, PS_OPT_INT, &f->seed, 0, INT64_MAX, NULL, "N",
         "of first weights, shuffles and dropout; the same on every worker"},
        {"metrics", 0, PS_OPT_TEXT, &f->metrics, 0, 0, NULL, "FILE",
         "rank 0 writes a JSON object a line for each epoch of the whole job"},
        {"progress", 0, PS_OPT_FLAG, &f->progress, 0, 0, NULL, NULL,
         "a progress bar, where stderr is a terminal"},
        {"set", 0, PS_OPT_LIST, &f->set, 0, 0, NULL, "NAME=VALUE",
         "a setting, as from the environment; may be given many times"},
    };
    memcpy(options, table, sizeof(table));
}

/* "2,4,6": ascending epochs. */
static enum ps_status parse_steps(const char *text, int64_t steps[LR_STEPS_MAX],
                                  size_t *count_out, struct ps_error *err)
{
    size_t count = 0;
    const char *at = text;
    while (*at != '\0') {
        char word[24];
        size_t size = strcspn(at, ",");
        if (size >= sizeof(word) || count == LR_STEPS_MAX) {
            return ps_error_set(err, PS_EINVAL,
                                "lr-step-epochs \"%s\": at most %d epochs are accepted",
                                text, LR_STEPS_MAX);
        }
        memcpy(word, at, size);
        word[size] = '\0';
        if (ps_parse_i64(word, &steps[count]) != PS_OK || steps[count] < 0 ||
            (count > 0 && steps[count] <= steps[count - 1])) {
            return ps_error_set(
                err, PS_EINVAL,
                "lr-step-epochs \"%s\": ascending epochs like 2,4,6 are accepted", text);
        }
        count++;
        at += size + (at[size] == ',' ? 1 : 0);
    }
    *count_out = count;
    return PS_OK;
}

/* The devices to train on: "0,1" for gpu(0) and gpu(1), else cpu(0) .. cpu(cpus - 1). */
static enum ps_status parse_devices(const struct flags *f,
                                    struct ps_context devices[PS_KV_TENSORS_MAX],
                                    size_t *count_out, struct ps_error *err)
{
    size_t count = 0;
    if (f->gpus[0] == '\0') {
        for (; count < (size_t)PS_MAX(f->cpus, 1); count++) {
            devices[count] = PS_CPU((int)count);
        }
    } else if (f->cpus > 0) {
        return ps_error_set(err, PS_EINVAL,
                            "gpus \"%s\" and cpus %" PRId64 ": one of them is accepted",
                            f->gpus, f->cpus);
    }
    for (const char *at = f->gpus; *at != '\0';) {
        char word[8] = "";
        int64_t id = -1;
        size_t size = strcspn(at, ",");
        if (size < sizeof(word)) {
            memcpy(word, at, size);
        }
        bool again = false, good = ps_parse_i64(word, &id) == PS_OK && id >= 0 &&
                                   id <= PS_CONTEXT_MAX_ID && count < PS_KV_TENSORS_MAX;
        for (size_t i = 0; i < count; i++) {
            again = again || devices[i].id == id;
        }
        if (!good || again || (at[size] == ',' && at[size + 1] == '\0')) {
            return ps_error_set(
                err, PS_EINVAL,
                "gpus \"%s\": up to %d different device numbers like 0,1 are accepted",
                f->gpus, PS_KV_TENSORS_MAX);
        }
        devices[count++] = PS_GPU((int)id);
        at += size + (at[size] == ',' ? 1 : 0);
    }
    *count_out = count;
    return PS_OK;
}

/* Momentum and weight decay for the optimizers that have them. */
static void make_hyper(const struct flags *f, struct ps_str *hyper)
{
    bool has_momentum =
        strcasecmp(f->optimizer, "sgd") == 0 || strcasecmp(f->optimizer, "nag") == 0;
    if (has_momentum) {
        ps_str_printf(hyper, "momentum=%.17g,", f->mom);
    }
    ps_str_printf(hyper, "wd=%.17g", f->wd);
}

/* What can be told from the command line alone is told before anything is opened. */
static enum ps_status check_flags(const struct flags *f, struct ps_error *err)
{
    int64_t steps[LR_STEPS_MAX];
    struct ps_context devices[PS_KV_TENSORS_MAX];
    size_t step_count, device_count;
    struct ps_optimizer optimizer;
    struct ps_str text = {0};
    PS_TRY(ps_model_check(f->network, err));
    PS_TRY(ps_kvstore_type_check(f->kv_store, err));
    PS_TRY(parse_steps(f->lr_step_epochs, steps, &step_count, err));
    PS_TRY(parse_devices(f, devices, &device_count, err));
    if (f->batch_size % (int64_t)device_count != 0) {
        return ps_error_set(
            err, PS_EINVAL, "batch size %" PRId64 " cannot be split evenly over %zu %s",
            f->batch_size, device_count, f->gpus[0] != '\0' ? "gpus" : "cpus");
    }
    if (f->load_epoch > 0 && f->model_prefix == NULL) {
        return ps_error_set(err, PS_EINVAL, "load-epoch %" PRId64 " needs a model-prefix",
                            f->load_epoch);
    }
    if (f->model_prefix != NULL && f->model_prefix[0] == '\0') {
        return ps_error_set(
            err, PS_EINVAL,
            "model-prefix \"\": the beginning of a file name is accepted");
    }
    ps_str_printf(&text, "%s,", f->optimizer);
    make_hyper(f, &text);
    enum ps_status status = text.failed
                                ? ps_error_set(err, PS_ENOMEM, "optimizer: out of memory")
                                : ps_optimizer_parse(ps_str_text(&text), &optimizer, err);
    ps_str_fini(&text);
    return status;
}

struct world {
    struct ps_node *node;
    struct ps_kernels *kernels;
    struct ps_engine *engine;
    struct ps_symbol *symbol;
    struct ps_dataset train, test;
};

static void world_fini(struct world *world)
{
    ps_engine_destroy(world->engine);
    ps_symbol_release(world->symbol);
    ps_kernels_destroy(world->kernels);
    ps_dataset_fini(&world->train);
    ps_dataset_fini(&world->test);
    ps_node_close(world->node);
}

static enum ps_status world_init(struct world *world, const struct flags *f,
                                 struct ps_error *err)
{
    struct ps_fs *fs = world->node->fs;
    PS_TRY(ps_dataset_load(fs, f->data, PS_DATASET_TRAIN, &world->train, err));
    PS_TRY(ps_dataset_load(fs, f->data, PS_DATASET_TEST, &world->test, err));
    uint32_t classes = PS_MAX(world->train.classes, world->test.classes);
    PS_TRY(ps_model_build(f->network, (int)classes, &world->symbol, err));
    PS_TRY(
        ps_kernels_create(world->node->settings, world->node->log, &world->kernels, err));
    return ps_engine_create(world->node, PS_ENGINE_FROM_SETTING, &world->engine, err);
}

static enum ps_status train(struct world *world, const struct flags *f,
                            struct ps_error *err)
{
    int64_t steps[LR_STEPS_MAX];
    struct ps_context devices[PS_KV_TENSORS_MAX];
    struct ps_trainer *trainer = NULL;
    struct ps_str hyper = {0};
    struct ps_trainer_options options = {
        .node = world->node,
        .epochs = f->num_epochs,
        /* Checkpoint N is what epoch N-1 left. */
        .load_epoch = f->load_epoch > 0 ? f->load_epoch - 1 : -1,
        .max_steps = f->max_steps,
        .train = &world->train,
        .test = &world->test,
        .kv_store = f->kv_store,
        .batch = (uint32_t)f->batch_size,
        .devices = devices,
        .optimizer = f->optimizer,
        .lr = f->lr,
        .lr_factor = f->lr_factor,
        .lr_step_epochs = steps,
        .seed = (uint64_t)f->seed,
        .model_prefix = f->model_prefix,
        .disp_batches = f->disp_batches,
        .metrics_path = f->metrics,
        .progress_bar = f->progress,
    };
    PS_TRY(parse_steps(f->lr_step_epochs, steps, &options.lr_step_count, err));
    PS_TRY(parse_devices(f, devices, &options.device_count, err));
    enum ps_status status = world_init(world, f, err);
    PS_TRY(status);
    options.engine = world->engine;
    options.kernels = world->kernels;
    options.symbol = world->symbol;
    make_hyper(f, &hyper);
    options.hyper = ps_str_text(&hyper);
    status = ps_trainer_create(&options, &trainer, err);
    if (status == PS_OK) {
        status = ps_trainer_run(trainer, err);
    }
    ps_trainer_destroy(trainer);
    ps_str_fini(&hyper);
    return status;
}

static int complain(const struct ps_error *err, enum ps_exit code)
{
    (void)fprintf(stderr, "penstock train: %s\n", err->text);
    return (int)code;
}

int ps_cmd_train(int argc, char **argv)
{
    struct flags f = defaults;
    struct ps_option options[OPTION_COUNT];
    make_options(&f, options);
    const struct ps_command command = {
        .name = "penstock train",
        .synopsis = "penstock train [options]",
        .summary =
            "Trains a network on this process's devices, alone or as a worker of a job.",
        .options = options,
        .option_count = OPTION_COUNT,
    };
    struct ps_error err = {.status = PS_OK};
    int operand = 0;
    bool help = false;
    if (ps_options_parse(&command, argc, argv, &operand, &help, &err) != PS_OK) {
        return complain(&err, PS_EXIT_USAGE);
    }
    if (help) {
        return PS_EXIT_OK;
    }
    if (operand < argc) {
        (void)ps_error_set(&err, PS_EINVAL, "\"%s\" is not an option; see --help",
                           argv[operand]);
        return complain(&err, PS_EXIT_USAGE);
    }
    if (check_flags(&f, &err) != PS_OK) {
        free((void *)f.set.items);
        return complain(&err, PS_EXIT_USAGE);
    }
    struct world world = {0};
    const char **overrides = calloc(f.set.count + 1, sizeof(*overrides));
    int code = PS_EXIT_FAIL;
    if (overrides == NULL) {
        goto done;
    }
    for (size_t i = 0; i < f.set.count; i++) {
        overrides[i] = f.set.items[i];
    }
    struct ps_node_options node_options = {.name = "worker", .overrides = overrides};
    if (ps_node_open(&node_options, &world.node, &err) != PS_OK) {
        code = complain(&err, PS_EXIT_CONFIG);
        goto done;
    }
    enum ps_status status = train(&world, &f, &err);
    if (status != PS_OK) {
        err.status = status;
        PS_LOG(world.node->log, ERROR, WORKER, "%s", err.text);
        code = ps_exit_code(status);
    } else {
        code = PS_EXIT_OK;
    }
    world_fini(&world);
done:
    free(overrides);
    free((void *)f.set.items);
    return code;
}
