/* A network trained through worker/trainer.h by whole jobs in this process: what the
 * weights may depend on (seed, data, the job's batch) and what they may not (who did the
 * work, over which transport, cut how, scheduled by which engine).
 *
 * The data set is made here: 1280 images of 28 x 28, each its class's pattern and noise.
 * usage: train_suite_test GROUP, of the groups at the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/support/cluster.h"
#include "worker/models/models.h"
#include "worker/trainer.h"

#define SAMPLES 1280
#define SIDE 28
#define CLASSES 10
#define WORKERS_MAX 4
#define PARAMS_MAX 16
#define LIMIT_S 600 /* virtual */

static struct ps_dataset dataset;

/* What a training is made of; the fields that are zero mean the reference. */
struct recipe {
    const char *network;           /* NULL: mlp */
    uint32_t workers, servers;     /* workers 0: one process, kv_store local */
    uint32_t batch;                /* of each worker */
    int cpus;                      /* devices of each worker; 0: 1 */
    int gpus;                      /* simulated accelerators in place of them */
    const char *transport;         /* NULL: inproc */
    const char *engine;            /* ENGINE_TYPE; NULL: the default */
    const char *bound;             /* KVSTORE_BIGARRAY_BOUND; NULL: the default */
    const char *optimizer, *hyper; /* NULL: sgd with momentum 0.9 */
    double lr;                     /* 0: 0.05 */
    int64_t steps;
};

/* All parameters of a device after the training. */
struct weights {
    size_t count;
    char name[PARAMS_MAX][48];
    size_t size[PARAMS_MAX]; /* elements */
    float *values[PARAMS_MAX];
};

/* One run of a recipe: the weights of every worker. */
struct run {
    const struct recipe *recipe;
    struct weights of[WORKERS_MAX];
};

static void weights_fini(struct weights *weights)
{
    for (size_t i = 0; i < weights->count; i++) {
        free(weights->values[i]);
    }
    weights->count = 0;
}

static void weights_read(const struct ps_replica *replica, struct weights *out)
{
    struct ps_error err = {.status = PS_OK};
    out->count = ps_replica_param_count(replica);
    assert_in_range(out->count, 1, PARAMS_MAX);
    for (size_t i = 0; i < out->count; i++) {
        struct ps_tensor *param = ps_replica_param(replica, i);
        size_t bytes = ps_tensor_bytes(param);
        (void)snprintf(out->name[i], sizeof(out->name[i]), "%s",
                       ps_replica_param_name(replica, i));
        out->size[i] = bytes / sizeof(float);
        out->values[i] = malloc(bytes);
        assert_non_null(out->values[i]);
        assert_int_equal(ps_tensor_read(param, out->values[i], bytes, &err), PS_OK);
    }
}

static void assert_same_bits(const struct weights *a, const struct weights *b,
                             const char *what)
{
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_string_equal(a->name[i], b->name[i]);
        assert_int_equal(a->size[i], b->size[i]);
        for (size_t j = 0; j < a->size[i]; j++) {
            if (memcmp(&a->values[i][j], &b->values[i][j], sizeof(float)) != 0) {
                fail_msg("%s: %s[%zu] is %a and %a", what, a->name[i], j,
                         (double)a->values[i][j], (double)b->values[i][j]);
            }
        }
    }
}

/* |a - b| / |b| of every tensor, in the 2-norm; the largest. */
static double largest_distance(const struct weights *a, const struct weights *b)
{
    double largest = 0;
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        double apart = 0, norm = 0;
        assert_int_equal(a->size[i], b->size[i]);
        for (size_t j = 0; j < a->size[i]; j++) {
            double d = (double)a->values[i][j] - (double)b->values[i][j];
            apart += d * d;
            norm += (double)b->values[i][j] * (double)b->values[i][j];
        }
        assert_true(norm > 0);
        largest = fmax(largest, sqrt(apart / norm));
    }
    return largest;
}

/* ---- running ---- */

/* The trainer of one worker, from its kernels to its weights. */
static void train(struct ps_node *node, const struct recipe *recipe,
                  struct weights *weights)
{
    struct ps_error err = {.status = PS_OK};
    struct ps_kernels *kernels = NULL;
    struct ps_engine *engine = NULL;
    struct ps_symbol *symbol = NULL;
    struct ps_trainer *trainer = NULL;
    const char *network = recipe->network != NULL ? recipe->network : "mlp";
    assert_int_equal(ps_kernels_create(node->settings, node->log, &kernels, &err), PS_OK);
    assert_int_equal(ps_engine_create(node, PS_ENGINE_FROM_SETTING, &engine, &err),
                     PS_OK);
    assert_int_equal(ps_model_build(network, CLASSES, &symbol, &err), PS_OK);
    struct ps_context devices[PS_KV_TENSORS_MAX];
    int device_count = recipe->gpus > 0 ? recipe->gpus : PS_MAX(recipe->cpus, 1);
    for (int d = 0; d < device_count; d++) {
        devices[d] = recipe->gpus > 0 ? PS_GPU(d) : PS_CPU(d);
    }
    struct ps_trainer_options options = {
        .node = node,
        .engine = engine,
        .kernels = kernels,
        .symbol = symbol,
        .train = &dataset,
        .kv_store = recipe->workers > 0 ? "dist_sync" : "local",
        .batch = recipe->batch,
        .devices = devices,
        .device_count = (size_t)device_count,
        .epochs = 1000,
        .load_epoch = -1,
        .max_steps = recipe->steps,
        .optimizer = recipe->optimizer != NULL ? recipe->optimizer : "sgd",
        .hyper = recipe->optimizer != NULL ? recipe->hyper : "momentum=0.9,wd=0.0001",
        .lr = recipe->lr > 0 ? recipe->lr : 0.05,
        .lr_factor = 1,
        .seed = 7,
    };
    if (ps_trainer_create(&options, &trainer, &err) != PS_OK ||
        ps_trainer_run(trainer, &err) != PS_OK) {
        fail_msg("%s: %s", node->name, err.text);
    }
    weights_read(ps_trainer_replica(trainer, 0), weights);
    for (int d = 1; d < device_count; d++) {
        struct weights other = {0};
        weights_read(ps_trainer_replica(trainer, (size_t)d), &other);
        assert_same_bits(weights, &other, "devices of one worker");
        weights_fini(&other);
    }
    ps_trainer_destroy(trainer);
    ps_symbol_release(symbol);
    ps_engine_destroy(engine);
    ps_kernels_destroy(kernels);
}

static void program(struct cluster *cluster, struct ps_node *node, uint32_t index,
                    void *arg)
{
    PS_UNUSED(cluster);
    struct run *run = arg;
    train(node, run->recipe, &run->of[index]);
}

/* The settings that a recipe asks for, behind those that make results repeatable. */
static void list_settings(const struct recipe *recipe, char text[2][64],
                          const char *settings[6])
{
    size_t count = 0;
    settings[count++] = "CPU_NNPACK_NTHREADS=1";
    settings[count++] = "LOG=error";
    if (recipe->engine != NULL) {
        (void)snprintf(text[0], 64, "ENGINE_TYPE=%s", recipe->engine);
        settings[count++] = text[0];
    }
    if (recipe->bound != NULL) {
        (void)snprintf(text[1], 64, "KVSTORE_BIGARRAY_BOUND=%s", recipe->bound);
        settings[count++] = text[1];
    }
    if (recipe->gpus > 0) {
        settings[count++] = "SIM_GPUS=2";
    }
    settings[count] = NULL;
}

static void run_alone(struct run *run, const char *const *settings)
{
    static const char *const no_env[] = {NULL};
    struct ps_error err = {.status = PS_OK};
    struct ps_node *node = NULL;
    struct ps_node_options options = {
        .name = "worker", .env = no_env, .overrides = settings};
    assert_int_equal(ps_node_open(&options, &node, &err), PS_OK);
    train(node, run->recipe, &run->of[0]);
    ps_node_close(node);
}

static void run_job(struct run *run, const char *const *settings)
{
    const struct recipe *recipe = run->recipe;
    struct cluster_options options = {
        .transport = recipe->transport != NULL ? recipe->transport : "inproc",
        .workers = recipe->workers,
        .servers = recipe->servers,
        .seed = 5,
        .settings = settings};
    struct cluster *cluster = cluster_create(&options);
    assert_true(cluster_run(cluster, program, run, LIMIT_S));
    cluster_end(cluster);
    assert_int_equal(cluster_scheduler_result(cluster).status, PS_OK);
    cluster_destroy(cluster);
}

/* Trains; every worker must end with the same weights, which 'out' gets. */
static void run(const struct recipe *recipe, struct weights *out)
{
    struct run run = {.recipe = recipe};
    char text[2][64];
    const char *settings[6];
    list_settings(recipe, text, settings);
    if (recipe->workers == 0) {
        run_alone(&run, settings);
    } else {
        run_job(&run, settings);
    }
    for (uint32_t i = 1; i < recipe->workers; i++) {
        assert_same_bits(&run.of[0], &run.of[i], "workers of one job");
        weights_fini(&run.of[i]);
    }
    *out = run.of[0];
}

static void expect_same(const struct recipe *a, const struct recipe *b, const char *what)
{
    struct weights of_a = {0}, of_b = {0};
    run(a, &of_a);
    run(b, &of_b);
    assert_same_bits(&of_a, &of_b, what);
    weights_fini(&of_a);
    weights_fini(&of_b);
}

/* ---- who does the work ---- */

static void two_workers_give_the_bits_of_one_process_with_two_devices(void **state)
{
    PS_UNUSED(state);
    const struct recipe job = {
        .network = "lenet", .workers = 2, .servers = 2, .batch = 64, .steps = 100};
    const struct recipe alone = {
        .network = "lenet", .batch = 128, .cpus = 2, .steps = 100};
    expect_same(&job, &alone, "two workers and two devices");
}

static void two_workers_follow_one_device(void **state)
{
    PS_UNUSED(state);
    const struct recipe job = {.network = "lenet",
                               .workers = 2,
                               .servers = 2,
                               .batch = 64,
                               .lr = 0.01,
                               .steps = 10};
    const struct recipe alone = {
        .network = "lenet", .batch = 128, .lr = 0.01, .steps = 10};
    struct weights of_job = {0}, of_alone = {0};
    run(&job, &of_job);
    run(&alone, &of_alone);
    double distance = largest_distance(&of_job, &of_alone);
    print_message("largest distance of a tensor: %.3g of its norm\n", distance);
    assert_true(distance < 1e-5);
    weights_fini(&of_job);
    weights_fini(&of_alone);
}

/* Two accelerators, each with half of the batch: the bits of two CPU devices, and the
 * weights of one accelerator with the whole batch. */
static void two_simulated_gpus_train_as_one_with_the_doubled_batch(void **state)
{
    PS_UNUSED(state);
    const struct recipe two = {
        .network = "lenet", .batch = 128, .gpus = 2, .lr = 0.01, .steps = 10};
    const struct recipe cpus = {
        .network = "lenet", .batch = 128, .cpus = 2, .lr = 0.01, .steps = 10};
    const struct recipe one = {
        .network = "lenet", .batch = 128, .gpus = 1, .lr = 0.01, .steps = 10};
    struct weights of_two = {0}, of_one = {0};
    expect_same(&two, &cpus, "two accelerators and two CPU devices");
    run(&two, &of_two);
    run(&one, &of_one);
    double distance = largest_distance(&of_two, &of_one);
    print_message("largest distance of a tensor: %.3g of its norm\n", distance);
    assert_true(distance < 1e-5);
    weights_fini(&of_two);
    weights_fini(&of_one);
}

/* Workers with accelerators in a job: what servers see are the same gradients. */
static void workers_with_simulated_gpus_give_the_bits_of_those_without(void **state)
{
    PS_UNUSED(state);
    const struct recipe gpus = {
        .workers = 2, .servers = 2, .batch = 32, .gpus = 2, .steps = 20};
    const struct recipe cpus = {
        .workers = 2, .servers = 2, .batch = 32, .cpus = 2, .steps = 20};
    expect_same(&gpus, &cpus, "workers with accelerators");
}

/* The same samples a step, cut over 1, 2 and 4 workers: the mean is the same mean. */
static void case_133_the_jobs_batch_counts_not_the_number_of_workers(void **state)
{
    static const struct {
        const char *name, *hyper;
        double lr;
    } optimizers[] = {{"sgd", "momentum=0.9,wd=0.001", 0.05},
                      {"adam", "wd=0.001", 0.001}};
    PS_UNUSED(state);
    for (size_t o = 0; o < PS_COUNT(optimizers); o++) {
        struct weights first = {0};
        for (uint32_t workers = 1; workers <= WORKERS_MAX; workers *= 2) {
            const struct recipe recipe = {.workers = workers,
                                          .servers = 2,
                                          .batch = 64 / workers,
                                          .optimizer = optimizers[o].name,
                                          .hyper = optimizers[o].hyper,
                                          .lr = optimizers[o].lr,
                                          .steps = 10};
            struct weights of = {0};
            run(&recipe, &of);
            if (workers == 1) {
                first = of;
                continue;
            }
            double distance = largest_distance(&of, &first);
            print_message("%s, %" PRIu32 " workers: %.3g\n", optimizers[o].name, workers,
                          distance);
            assert_true(distance < 1e-5);
            weights_fini(&of);
        }
        weights_fini(&first);
    }
}

/* ---- what must not matter: one factor at a time ---- */

static const struct recipe reference = {
    .workers = 2, .servers = 2, .batch = 64, .steps = 20};

/* The reference's weights, made once. */
static const struct weights *reference_weights(void **state)
{
    return *state;
}

static int make_reference(void **state)
{
    struct weights *weights = calloc(1, sizeof(*weights));
    if (weights == NULL) {
        return -1;
    }
    run(&reference, weights);
    *state = weights;
    return 0;
}

static int free_reference(void **state)
{
    weights_fini(*state);
    free(*state);
    return 0;
}

static void expect_reference(void **state, const struct recipe *recipe, const char *what)
{
    struct weights of = {0};
    run(recipe, &of);
    assert_same_bits(&of, reference_weights(state), what);
    weights_fini(&of);
}

static void the_number_of_servers_does_not_matter(void **state)
{
    for (uint32_t servers = 1; servers <= 3; servers++) {
        struct recipe recipe = reference;
        char what[32];
        (void)snprintf(what, sizeof(what), "%" PRIu32 " servers", servers);
        recipe.servers = servers;
        expect_reference(state, &recipe, what);
    }
}

static void case_032_where_arrays_are_cut_does_not_matter(void **state)
{
    static const char *const bounds[] = {"1000", "1000000", "1000000000"};
    for (size_t i = 0; i < PS_COUNT(bounds); i++) {
        struct recipe recipe = reference;
        recipe.bound = bounds[i];
        recipe.servers = 3;
        expect_reference(state, &recipe, bounds[i]);
    }
}

static void the_transport_does_not_matter(void **state)
{
    static const char *const transports[] = {"tcp", "ipc", "sim"};
    for (size_t i = 0; i < PS_COUNT(transports); i++) {
        struct recipe recipe = reference;
        recipe.transport = transports[i];
        expect_reference(state, &recipe, transports[i]);
    }
}

static void the_engine_does_not_matter(void **state)
{
    static const char *const engines[] = {"NaiveEngine", "ThreadedEngine",
                                          "ThreadedEnginePerDevice"};
    for (size_t i = 0; i < PS_COUNT(engines); i++) {
        struct recipe recipe = reference;
        recipe.engine = engines[i];
        expect_reference(state, &recipe, engines[i]);
    }
}

/* Convolution and pooling are prepared for an engine's threads: once more with them. */
static void the_engine_does_not_matter_to_lenet(void **state)
{
    PS_UNUSED(state);
    struct recipe naive = {.network = "lenet",
                           .workers = 2,
                           .servers = 2,
                           .batch = 64,
                           .steps = 10,
                           .engine = "NaiveEngine"};
    struct recipe threaded = naive, per_device = naive;
    threaded.engine = "ThreadedEngine";
    threaded.transport = "tcp";
    per_device.engine = "ThreadedEnginePerDevice";
    per_device.transport = "sim"; /* which has the naive engine, on a program's stack */
    expect_same(&naive, &threaded, "naive and threaded engine");
    expect_same(&naive, &per_device, "naive engine, threads and simulation");
}

/* ---- the data ---- */

static void make_dataset(void)
{
    static uint8_t images[SAMPLES * SIDE * SIDE], labels[SAMPLES];
    for (uint32_t n = 0; n < SAMPLES; n++) {
        uint32_t label = n % CLASSES;
        /* one of five is wrong, so that gradients stay large to the end */
        labels[n] = (uint8_t)((label + (n % 5 == 0 ? 1 : 0)) % CLASSES);
        for (uint32_t p = 0; p < SIDE * SIDE; p++) {
            float noise = ps_rng_unit_at(11, n, p);
            float pattern = ps_rng_unit_at(12, label, p);
            images[n * SIDE * SIDE + p] =
                (uint8_t)(pattern > 0.8F ? 128.0F + 127.0F * noise : 100.0F * noise);
        }
    }
    dataset = (struct ps_dataset){.images = images,
                                  .labels = labels,
                                  .count = SAMPLES,
                                  .rows = SIDE,
                                  .columns = SIDE,
                                  .classes = CLASSES};
}

int main(int argc, char **argv)
{
    const struct CMUnitTest workers[] = {
        cmocka_unit_test(two_workers_give_the_bits_of_one_process_with_two_devices),
        cmocka_unit_test(two_workers_follow_one_device),
        cmocka_unit_test(two_simulated_gpus_train_as_one_with_the_doubled_batch),
        cmocka_unit_test(workers_with_simulated_gpus_give_the_bits_of_those_without),
        cmocka_unit_test(case_133_the_jobs_batch_counts_not_the_number_of_workers),
    };
    const struct CMUnitTest factors[] = {
        cmocka_unit_test(the_number_of_servers_does_not_matter),
        cmocka_unit_test(case_032_where_arrays_are_cut_does_not_matter),
        cmocka_unit_test(the_transport_does_not_matter),
        cmocka_unit_test(the_engine_does_not_matter),
        cmocka_unit_test(the_engine_does_not_matter_to_lenet),
    };
    make_dataset();
    if (argc == 2 && strcmp(argv[1], "workers") == 0) {
        return cmocka_run_group_tests(workers, NULL, NULL);
    }
    if (argc == 2 && strcmp(argv[1], "factors") == 0) {
        return cmocka_run_group_tests(factors, make_reference, free_reference);
    }
    (void)fprintf(stderr, "usage: %s workers|factors\n", argv[0]);
    return 64;
}
