/* One result: the same bits on every engine, with any number of lanes, under every plan,
 * however a step is cut, replayed, shared or computed again. */
#include "base/rng.h"
#include "tests/unit/graph/graph_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void fill_batch(struct ps_executor *executor, uint64_t seed)
{
    tensor_fill_random(ps_executor_find_argument(executor, "data"), seed, 1);
    struct ps_tensor *label = ps_executor_find_argument(executor, "softmax_label");
    float classes[64];
    for (int64_t i = 0; i < ps_tensor_count(label); i++) {
        classes[i] = (float)(i % 5);
    }
    tensor_set(label, classes);
}

static struct ps_symbol *lenet_with_dropout(void)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "Convolution", "conv", "kernel=(3,3) num_filter=4", x);
    x = ps_builder_op(b, "BatchNorm", "bn", "fix_gamma=False", x);
    ps_builder_attr(b, x, "force_mirroring", "True");
    x = ps_builder_op(b, "Activation", NULL, "act_type=relu", x);
    ps_builder_attr(b, x, "force_mirroring", "True");
    x = ps_builder_op(b, "Pooling", NULL, "pool_type=max kernel=(2,2) stride=(2,2)", x);
    struct ps_symbol *left = ps_builder_op(b, "FullyConnected", "l", "num_hidden=8", x);
    struct ps_symbol *right = ps_builder_op(b, "FullyConnected", "r", "num_hidden=8", x);
    x = ps_builder_op(b, "elemwise_add", NULL, NULL, left, right);
    x = ps_builder_op(b, "Dropout", NULL, "p=0.5", x);
    x = ps_builder_op(b, "FullyConnected", "fc", "num_hidden=5", x);
    return finish(b, ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x));
}

/* Three steps of plain descent; all weights and aux states in a row.  Weights are changed
 * on this side, so that the test needs no optimizer. */
static float *train_as(struct ps_symbol *symbol, const struct ps_bind_options *options,
                       size_t *count_out, struct ps_executor_memory *memory)
{
    struct ps_error err = {0};
    static const char *const no_gradient[] = {"data", "softmax_label", NULL};
    struct ps_named_shape shape = {"data", PS_SHAPE(8, 1, 12, 12)};
    struct ps_simple_bind bind = {.shapes = &shape,
                                  .shape_count = 1,
                                  .req = PS_GRAD_WRITE,
                                  .no_gradient = no_gradient};
    struct ps_executor *executor = NULL;
    if (ps_executor_simple_bind(symbol, options, &bind, &executor, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    fill_parameters(executor, 3, 0.3f);
    float *all = NULL;
    size_t count = 0;
    for (uint64_t t = 0; t < 3; t++) {
        fill_batch(executor, 100 + t);
        run_step(executor, true);
        count = 0;
        for (size_t i = 0; i < ps_executor_argument_count(executor); i++) {
            struct ps_tensor *gradient = ps_executor_gradient(executor, i);
            if (gradient == NULL) {
                continue;
            }
            size_t n = (size_t)ps_tensor_count(gradient);
            float *g = tensor_get(gradient);
            float *w = tensor_get(ps_executor_argument(executor, i));
            all = realloc(all, (count + n) * sizeof(float));
            for (size_t j = 0; j < n; j++) {
                w[j] -= 0.01f * g[j];
                all[count + j] = w[j];
            }
            tensor_set(ps_executor_argument(executor, i), w);
            count += n;
            free(g), free(w);
        }
    }
    for (size_t i = 0; i < ps_executor_auxiliary_count(executor); i++) {
        struct ps_tensor *aux = ps_executor_auxiliary(executor, i);
        size_t n = (size_t)ps_tensor_count(aux);
        float *values = tensor_get(aux);
        all = realloc(all, (count + n) * sizeof(float));
        memcpy(all + count, values, n * sizeof(float));
        count += n;
        free(values);
    }
    ps_executor_memory(executor, memory);
    ps_executor_destroy(executor);
    *count_out = count;
    return all;
}

static float *train(const struct graph_world *world, struct ps_symbol *symbol,
                    enum ps_plan_kind plan, size_t *count_out)
{
    struct ps_bind_options options = world_options(world);
    struct ps_executor_memory memory;
    options.seed = 42;
    options.plan = plan;
    return train_as(symbol, &options, count_out, &memory);
}

static void case_018_every_engine_gives_the_same_bits(void **state)
{
    (void)state;
    static const struct {
        int type;
        const char *setting;
    } engines[] = {{PS_ENGINE_NAIVE, NULL},
                   {PS_ENGINE_POOLED, NULL},
                   {PS_ENGINE_PER_DEVICE, NULL},
                   {PS_ENGINE_PER_DEVICE, "CPU_WORKER_NTHREADS=4"}};
    struct ps_symbol *symbol = lenet_with_dropout();
    float *first = NULL;
    size_t first_count = 0;
    for (size_t i = 0; i < PS_COUNT(engines); i++) {
        struct graph_world world;
        world_open(&world, engines[i].type, engines[i].setting);
        size_t count;
        float *weights = train(&world, symbol, PS_PLAN_AUTO, &count);
        if (first == NULL) {
            first = weights;
            first_count = count;
        } else {
            assert_int_equal(count, first_count);
            assert_memory_equal(weights, first, count * sizeof(float));
            free(weights);
        }
        world_close(&world);
    }
    free(first);
    ps_symbol_release(symbol);
}

static void every_plan_gives_the_same_bits(void **state)
{
    (void)state;
    static const enum ps_plan_kind plans[] = {PS_PLAN_NONE, PS_PLAN_BLOCKS,
                                              PS_PLAN_OFFSETS, PS_PLAN_AUTO};
    struct ps_symbol *symbol = lenet_with_dropout();
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, "CPU_WORKER_NTHREADS=4");
    float *first = NULL;
    for (size_t i = 0; i < PS_COUNT(plans); i++) {
        size_t count;
        float *weights = train(&world, symbol, plans[i], &count);
        if (first == NULL) {
            first = weights;
        } else {
            assert_memory_equal(weights, first, count * sizeof(float));
            free(weights);
        }
    }
    free(first);
    world_close(&world);
    ps_symbol_release(symbol);
}

/* ---- every way to run a step ---- */

/* Each is one way, the first the reference; the rest of what can be chosen is drawn. */
static void choose(struct ps_bind_options *options, struct ps_rng *rng)
{
    static const int bulks[] = {-1, 0, 2, 3, 15, 1000};
    static const int ranges[] = {-1, 0, 1, 2, 16};
    static const enum ps_plan_kind plans[] = {PS_PLAN_AUTO, PS_PLAN_BLOCKS,
                                              PS_PLAN_OFFSETS, PS_PLAN_NONE};
    static const char *const memongers[] = {"", "sqrt", "64M", NULL};
    options->bulk = bulks[ps_rng_below(rng, PS_COUNT(bulks))];
    options->match_range = ranges[ps_rng_below(rng, PS_COUNT(ranges))];
    options->plan = plans[ps_rng_below(rng, PS_COUNT(plans))];
    options->memonger = memongers[ps_rng_below(rng, PS_COUNT(memongers))];
    options->inplace = (int)ps_rng_below(rng, 2);
    options->mirror = (int)ps_rng_below(rng, 2);
    options->num_temp = 1 + (int)ps_rng_below(rng, 3);
    options->replay = -(int)ps_rng_below(rng, 2);
}

static void case_018_however_a_step_is_run_the_bits_are_the_same(void **state)
{
    (void)state;
    static const struct {
        int type;
        const char *setting;
    } engines[] = {{PS_ENGINE_NAIVE, NULL},
                   {PS_ENGINE_POOLED, NULL},
                   {PS_ENGINE_PER_DEVICE, NULL},
                   {PS_ENGINE_PER_DEVICE, "CPU_WORKER_NTHREADS=3"}};
    enum { WAYS = 30 };
    struct ps_symbol *symbol = lenet_with_dropout();
    float *first = NULL;
    size_t recomputed = 0;
    struct ps_rng rng;
    ps_rng_init(&rng, 77);
    for (size_t e = 0; e < PS_COUNT(engines); e++) {
        struct graph_world world;
        world_open(&world, engines[e].type, engines[e].setting);
        for (int way = 0; way < WAYS; way++) {
            struct ps_bind_options options = world_options(&world);
            struct ps_executor_memory memory;
            options.seed = 42;
            if (first == NULL) { /* the plainest */
                options.bulk = options.inplace = options.mirror = options.replay = 0;
                options.plan = PS_PLAN_NONE;
            } else {
                choose(&options, &rng);
            }
            size_t count;
            float *weights = train_as(symbol, &options, &count, &memory);
            recomputed += memory.mirrored_count > 0;
            if (first == NULL) {
                first = weights;
                continue;
            }
            if (memcmp(weights, first, count * sizeof(float)) != 0) {
                fail_msg("%s: bulk %d, match range %d, plan %d, memonger %s, inplace %d, "
                         "mirror %d, num_temp %d, replay %d: other bits",
                         ps_engine_name(world.engine), options.bulk, options.match_range,
                         (int)options.plan,
                         options.memonger == NULL ? "unset" : options.memonger,
                         options.inplace, options.mirror, options.num_temp,
                         options.replay);
            }
            free(weights);
        }
        world_close(&world);
    }
    assert_true(recomputed > WAYS);
    free(first);
    ps_symbol_release(symbol);
}

static const struct ps_context_group groups[] = {{"g0", {PS_CONTEXT_CPU, 0}},
                                                 {"g1", {PS_CONTEXT_CPU, 1}},
                                                 {"g2", {PS_CONTEXT_GPU, 0}}};

/* 200 nodes over two arguments, each of one of a few operators on recent values, and of
 * one of three device groups (which say nothing to an executor without groups). */
static struct ps_symbol *random_graph(uint64_t seed)
{
    static const char *const unary[] = {"tanh", "sigmoid", "relu", "negative", "Flatten"};
    static const char *const binary[] = {"elemwise_add", "elemwise_sub", "_maximum",
                                         "broadcast_add"};
    struct ps_rng rng;
    ps_rng_init(&rng, seed);
    struct ps_builder *b = builder_new();
    struct ps_symbol *values[202] = {ps_builder_variable(b, "x"),
                                     ps_builder_variable(b, "y")};
    struct ps_symbol *outputs[8];
    size_t count = 2, kept = 0;
    for (; count < 202; count++) {
        size_t back = PS_MIN(count, (size_t)10);
        struct ps_symbol *p = values[count - 1 - ps_rng_below(&rng, back)];
        struct ps_symbol *q = values[count - 1 - ps_rng_below(&rng, back)];
        if (ps_rng_below(&rng, 2) == 0) {
            values[count] = ps_builder_op(b, unary[ps_rng_below(&rng, 5)], NULL, NULL, p);
        } else {
            values[count] =
                ps_builder_op(b, binary[ps_rng_below(&rng, 4)], NULL, NULL, p, q);
        }
        ps_builder_attr(b, values[count], "ctx_group",
                        groups[ps_hash_u64(seed * 1000 + count) % 5 % 3].name);
        if (kept < 7 && ps_rng_below(&rng, 40) == 0) {
            outputs[kept++] = values[count];
        }
    }
    struct ps_symbol *both = /* so that each argument is used */
        ps_builder_op(b, "elemwise_mul", NULL, NULL, values[0], values[1]);
    outputs[kept++] =
        ps_builder_op(b, "elemwise_add", NULL, NULL, values[count - 1], both);
    struct ps_symbol *net = ps_builder_group(b, outputs, kept);
    return finish(b, net);
}

static uint64_t run_random_as(const struct ps_bind_options *options,
                              struct ps_symbol *symbol, struct ps_executor_memory *memory)
{
    struct ps_error err = {0};
    struct ps_named_shape shapes[] = {{"x", PS_SHAPE(5, 7)}, {"y", PS_SHAPE(5, 7)}};
    struct ps_simple_bind bind = {
        .shapes = shapes, .shape_count = 2, .req = PS_GRAD_WRITE};
    struct ps_executor *executor = NULL;
    if (ps_executor_simple_bind(symbol, options, &bind, &executor, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    tensor_fill_random(ps_executor_find_argument(executor, "x"), 1, 1);
    tensor_fill_random(ps_executor_find_argument(executor, "y"), 2, 1);
    size_t outputs = ps_executor_output_count(executor);
    struct ps_tensor *heads[8];
    for (size_t i = 0; i < outputs; i++) {
        assert_int_equal(ps_tensor_like(ps_executor_output(executor, i), &heads[i]),
                         PS_OK);
        tensor_fill_random(heads[i], 10 + i, 0.1f);
    }
    uint64_t hash = 0;
    for (int t = 0; t < 3; t++) { /* the third is replayed */
        assert_int_equal(ps_executor_forward(executor, true, &err), PS_OK);
        assert_int_equal(ps_executor_backward(executor, heads, &err), PS_OK);
        struct ps_tensor *seen[10] = {ps_executor_find_gradient(executor, "x"),
                                      ps_executor_find_gradient(executor, "y")};
        for (size_t i = 0; i < outputs; i++) {
            seen[2 + i] = ps_executor_output(executor, i);
        }
        for (size_t i = 0; i < 2 + outputs; i++) {
            float *values = tensor_get(seen[i]);
            hash = ps_hash_u64(hash ^ ps_hash_bytes(values, 35 * sizeof(float)));
            free(values);
        }
    }
    ps_executor_memory(executor, memory);
    for (size_t i = 0; i < outputs; i++) {
        ps_tensor_release(heads[i]);
    }
    ps_executor_destroy(executor);
    return hash;
}

static uint64_t run_random(const struct graph_world *world, struct ps_symbol *symbol,
                           enum ps_plan_kind plan, struct ps_executor_memory *memory)
{
    struct ps_bind_options options = world_options(world);
    options.plan = plan;
    return run_random_as(&options, symbol, memory);
}

static void random_graphs_over_three_devices_run_as_on_one(void **state)
{
    (void)state;
    static const int engines[] = {PS_ENGINE_NAIVE, PS_ENGINE_POOLED,
                                  PS_ENGINE_PER_DEVICE};
    struct ps_rng rng;
    ps_rng_init(&rng, 5);
    for (size_t e = 0; e < PS_COUNT(engines); e++) {
        struct graph_world world;
        world_open(&world, engines[e], "SIM_GPUS=1");
        for (uint64_t seed = 0; seed < 4; seed++) {
            struct ps_symbol *symbol = random_graph(seed);
            struct ps_executor_memory one, three;
            uint64_t expected = run_random(&world, symbol, PS_PLAN_NONE, &one);
            struct ps_bind_options options = world_options(&world);
            choose(&options, &rng);
            options.memonger = "";
            options.groups = groups;
            options.group_count = PS_COUNT(groups);
            assert_true(run_random_as(&options, symbol, &three) == expected);
            assert_int_equal(one.copy_count, 0);
            assert_true(three.copy_count > 50);
            ps_symbol_release(symbol);
        }
        world_close(&world);
    }
}

static void case_118_random_graphs_run_the_same_with_and_without_a_plan(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, "CPU_WORKER_NTHREADS=3");
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct ps_symbol *symbol = random_graph(seed);
        struct ps_executor_memory none, blocks, offsets;
        uint64_t expected = run_random(&world, symbol, PS_PLAN_NONE, &none);
        assert_true(run_random(&world, symbol, PS_PLAN_BLOCKS, &blocks) == expected);
        assert_true(run_random(&world, symbol, PS_PLAN_OFFSETS, &offsets) == expected);
        assert_true(blocks.internal_bytes < none.internal_bytes);
        assert_true(blocks.unplanned_bytes == none.internal_bytes);
        assert_int_equal(offsets.plan, PS_PLAN_OFFSETS);
        ps_symbol_release(symbol);
    }
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_018_every_engine_gives_the_same_bits),
        cmocka_unit_test(every_plan_gives_the_same_bits),
        cmocka_unit_test(case_018_however_a_step_is_run_the_bits_are_the_same),
        cmocka_unit_test(random_graphs_over_three_devices_run_as_on_one),
        cmocka_unit_test(case_118_random_graphs_run_the_same_with_and_without_a_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
