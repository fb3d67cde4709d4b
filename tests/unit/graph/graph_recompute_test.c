/* Recomputation is exact: outputs, gradients and running statistics have the same bits
 * with and without it, on every engine and under every plan; and it is done at all. */
#include "base/rng.h"
#include "tests/unit/graph/graph_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* With groups, the nodes with a 1 in their name are on a device of their own. */
static struct ps_symbol *forced(struct ps_builder *b, struct ps_symbol *x, bool force)
{
    bool one = strchr(ps_symbol_name(x), '1') != NULL;
    ps_builder_attr(b, x, "ctx_group", one ? "one" : "others");
    return force ? ps_builder_attr(b, x, "force_mirroring", "True") : x;
}

/* Two residual blocks with dropout inside, pooling both ways and a concat, slices that
 * are used twice, two losses of which one is in the middle.  'force': every operator that
 * may be computed again is. */
static struct ps_symbol *rich_network(bool force)
{
    struct ps_builder *b = builder_new();
#define OP(...) forced(b, ps_builder_op(b, __VA_ARGS__), force)
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = OP("Convolution", "stem", "kernel=(3,3) pad=(1,1) num_filter=8 no_bias=True", x);
    for (int i = 0; i < 3; i++) {
        struct ps_symbol *shortcut = x;
        x = OP("BatchNorm", ps_builder_text(b, "bn%d", i), "fix_gamma=False", x);
        x = OP("Activation", ps_builder_text(b, "relu%d", i), "act_type=relu", x);
        x = OP("Dropout", ps_builder_text(b, "drop%d", i), "p=0.3", x);
        x = OP("Convolution", ps_builder_text(b, "conv%d", i),
               "kernel=(3,3) pad=(1,1) num_filter=8 no_bias=True", x);
        x = OP("elemwise_add", ps_builder_text(b, "add%d", i), NULL, x, shortcut);
    }
    struct ps_symbol *most =
        OP("Pooling", "most", "pool_type=max kernel=(2,2) stride=(2,2)", x);
    struct ps_symbol *mean =
        OP("Pooling", "mean", "pool_type=avg kernel=(2,2) stride=(2,2)", x);
    x = OP("Concat", "both", "dim=1", most, mean);
    x = OP("Activation", "squash", "act_type=tanh", x);
    struct ps_symbol *flat = OP("Flatten", "flat", NULL, x);
    struct ps_symbol *wide = OP("FullyConnected", "wide", "num_hidden=32", flat);
    struct ps_symbol *cut = OP("SliceChannel", "cut", "num_outputs=2", wide);
    struct ps_symbol *left = ps_builder_output(b, cut, 0);
    struct ps_symbol *right = ps_builder_output(b, cut, 1);
    struct ps_symbol *both = OP("elemwise_mul", "product", NULL, left, right);
    both = OP("elemwise_add", "again", NULL, both, left);
    both = OP("Dropout", "drop_last", "p=0.5", both);
    struct ps_symbol *square = OP("square", "square", NULL, both);
    struct ps_symbol *loss = ps_builder_op(b, "MakeLoss", "loss", NULL, square);
    x = OP("FullyConnected", "fc", "num_hidden=5", both);
    x = ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x);
#undef OP
    struct ps_symbol *heads[] = {x, loss};
    return finish(b, ps_builder_group(b, heads, 2));
}

static struct ps_executor *bind(struct ps_symbol *symbol,
                                const struct ps_bind_options *options,
                                struct ps_shape data, enum ps_grad_req req)
{
    static const char *const no_gradient[] = {"softmax_label", NULL};
    struct ps_error err = {0};
    struct ps_named_shape shape = {"data", data};
    struct ps_simple_bind bind = {
        .shapes = &shape, .shape_count = 1, .req = req, .no_gradient = no_gradient};
    struct ps_executor *executor = NULL;
    if (ps_executor_simple_bind(symbol, options, &bind, &executor, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    return executor;
}

struct bits {
    float *values;
    size_t count;
};

static void take(struct bits *bits, struct ps_tensor *tensor)
{
    if (tensor == NULL) {
        return;
    }
    size_t count = (size_t)ps_tensor_count(tensor);
    float *values = tensor_get(tensor);
    bits->values = realloc(bits->values, (bits->count + count) * sizeof(float));
    memcpy(bits->values + bits->count, values, count * sizeof(float));
    bits->count += count;
    free(values);
}

static void take_all(struct bits *bits, struct ps_executor *executor)
{
    for (size_t i = 0; i < ps_executor_output_count(executor); i++) {
        take(bits, ps_executor_output(executor, i));
    }
    for (size_t i = 0; i < ps_executor_argument_count(executor); i++) {
        take(bits, ps_executor_gradient(executor, i));
    }
    for (size_t i = 0; i < ps_executor_auxiliary_count(executor); i++) {
        take(bits, ps_executor_auxiliary(executor, i));
    }
}

/* Three steps; before the last one a forward with training whose backward never comes,
 * which draws numbers of its own, and one without training. */
static struct bits run_network(struct ps_executor *executor)
{
    struct bits bits = {0};
    fill_parameters(executor, 3, 0.4f);
    struct ps_tensor *label = ps_executor_find_argument(executor, "softmax_label");
    float classes[8] = {0, 1, 2, 3, 4, 0, 1, 2};
    tensor_set(label, classes);
    for (uint64_t t = 0; t < 3; t++) {
        tensor_fill_random(ps_executor_find_argument(executor, "data"), 50 + t, 1);
        if (t == 2) {
            run_forward(executor, true);
            run_forward(executor, false);
        }
        run_step(executor, true);
        take_all(&bits, executor);
    }
    return bits;
}

static size_t count_steps(const struct ps_executor *executor, const char *kind,
                          bool mirrored)
{
    size_t count = 0;
    for (size_t i = 0; i < ps_executor_step_count(executor); i++) {
        struct ps_executor_step step;
        assert_int_equal(ps_executor_step(executor, i, &step), PS_OK);
        bool gradient = step.gradient;
        count += strcmp(step.kind, kind) == 0 && step.mirrored == mirrored && !gradient;
    }
    return count;
}

struct policy {
    const char *setting, *memonger;
    bool force, devices;
};

static struct bits run_as(int engine, enum ps_plan_kind plan, const struct policy *policy,
                          enum ps_grad_req req, size_t *mirrored_out)
{
    static const struct ps_context_group groups[] = {{"one", PS_CPU(1)},
                                                     {"others", PS_CPU(0)}};
    struct graph_world world;
    world_open(&world, engine, policy->setting);
    struct ps_bind_options options = world_options(&world);
    options.plan = plan;
    options.memonger = policy->memonger;
    options.seed = 11;
    options.groups = policy->devices ? groups : NULL;
    options.group_count = policy->devices ? 2 : 0;
    struct ps_symbol *symbol = rich_network(policy->force);
    struct ps_executor *executor = bind(symbol, &options, PS_SHAPE(8, 3, 12, 12), req);
    struct ps_executor_memory memory;
    ps_executor_memory(executor, &memory);
    *mirrored_out = memory.mirrored_count;
    assert_true((memory.copy_count > 0) == policy->devices);
    struct bits bits = run_network(executor);
    ps_executor_destroy(executor);
    ps_symbol_release(symbol);
    world_close(&world);
    return bits;
}

static void expect_same(const struct bits *plain, struct bits other, const char *what)
{
    assert_int_equal(plain->count, other.count);
    for (size_t i = 0; i < plain->count; i++) {
        if (memcmp(&plain->values[i], &other.values[i], sizeof(float)) != 0) {
            fail_msg("%s: value %zu is %a, not %a", what, i, (double)other.values[i],
                     (double)plain->values[i]);
        }
    }
    free(other.values);
}

static void the_bits_are_the_same_under_every_policy_engine_and_plan(void **state)
{
    (void)state;
    static const struct policy policies[] = {{"BACKWARD_DO_MIRROR=1", NULL, false, false},
                                             {"MEMONGER=sqrt", NULL, false, false},
                                             {NULL, "sqrt", true, false},
                                             {NULL, "", true, false},
                                             {NULL, "500K", false, false},
                                             {NULL, "sqrt", true, true}};
    static const struct policy off = {NULL, "", false, false};
    static const int engines[] = {PS_ENGINE_NAIVE, PS_ENGINE_PER_DEVICE,
                                  PS_ENGINE_POOLED};
    static const enum ps_plan_kind plans[] = {PS_PLAN_AUTO, PS_PLAN_BLOCKS,
                                              PS_PLAN_OFFSETS, PS_PLAN_NONE};
    for (int req = PS_GRAD_WRITE; req <= PS_GRAD_ADD; req += 2) {
        size_t mirrored;
        struct bits plain =
            run_as(PS_ENGINE_NAIVE, PS_PLAN_NONE, &off, (enum ps_grad_req)req, &mirrored);
        assert_int_equal(mirrored, 0);
        assert_true(plain.count > 1000);
        for (size_t i = 0; i < PS_COUNT(policies) * 12; i++) {
            size_t p = i / 12, e = i / 4 % 3, k = i % 4;
            if (policies[p].memonger != NULL && policies[p].memonger[0] == '5' &&
                plans[k] == PS_PLAN_NONE) {
                continue; /* nothing is used again, so no budget can be kept */
            }
            char what[160];
            (void)snprintf(what, sizeof(what),
                           "policy %zu, engine %d, plan %d, request %d", p, engines[e],
                           (int)plans[k], req);
            struct bits other = run_as(engines[e], plans[k], &policies[p],
                                       (enum ps_grad_req)req, &mirrored);
            if (mirrored == 0 && plans[k] != PS_PLAN_NONE) {
                fail_msg("%s: nothing was computed again", what);
            }
            expect_same(&plain, other, what);
        }
        free(plain.values);
    }
}

/* conv - BatchNorm - ReLU, eight times. */
static struct ps_symbol *chain(bool force)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    for (int i = 0; i < 8; i++) {
        x = ps_builder_op(b, "Convolution", ps_builder_text(b, "conv%d", i),
                          "kernel=(3,3) pad=(1,1) num_filter=8 no_bias=True", x);
        x = forced(b,
                   ps_builder_op(b, "BatchNorm", ps_builder_text(b, "bn%d", i), NULL, x),
                   force);
        x = forced(b,
                   ps_builder_op(b, "Activation", ps_builder_text(b, "relu%d", i),
                                 "act_type=relu", x),
                   force);
    }
    x = ps_builder_op(b, "FullyConnected", "fc", "num_hidden=5", x);
    return finish(b, ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x));
}

static struct ps_executor_memory bind_chain(const char *setting, bool force,
                                            struct ps_executor **executor_out,
                                            struct graph_world *world)
{
    world_open(world, PS_ENGINE_NAIVE, setting);
    struct ps_bind_options options = world_options(world);
    struct ps_symbol *symbol = chain(force);
    *executor_out = bind(symbol, &options, PS_SHAPE(4, 8, 32, 32), PS_GRAD_WRITE);
    ps_symbol_release(symbol);
    struct ps_executor_memory memory;
    ps_executor_memory(*executor_out, &memory);
    return memory;
}

/* BACKWARD_DO_MIRROR, as users were told. */
static void cheap_operators_run_twice_and_convolutions_once(void **state)
{
    (void)state;
    struct graph_world world;
    struct ps_executor *executor;
    struct ps_executor_memory plain = bind_chain(NULL, false, &executor, &world);
    assert_int_equal(plain.mirrored_count, 0);
    assert_int_equal(count_steps(executor, "Activation", true), 0);
    ps_executor_destroy(executor);
    world_close(&world);
    struct ps_executor_memory less =
        bind_chain("BACKWARD_DO_MIRROR=1", false, &executor, &world);
    assert_true(less.peak_bytes < plain.peak_bytes * 3 / 4);
    assert_int_equal(count_steps(executor, "Convolution", false), 8);
    assert_int_equal(count_steps(executor, "Convolution", true), 0);
    assert_int_equal(count_steps(executor, "FullyConnected", true), 0);
    assert_true(count_steps(executor, "Activation", true) >= 6); /* of 8: where it pays */
    assert_true(count_steps(executor, "BatchNorm", true) >= 6);
    struct ps_str dump = {0};
    ps_executor_dump(executor, &dump);
    assert_non_null(strstr(ps_str_text(&dump), "relu0_mirror"));
    assert_non_null(strstr(ps_str_text(&dump), "bn0_mirror"));
    assert_null(strstr(ps_str_text(&dump), "conv0_mirror"));
    ps_str_fini(&dump);
    ps_executor_destroy(executor);
    world_close(&world);
}

static void what_is_forced_runs_twice_with_the_switch_off(void **state)
{
    (void)state;
    struct graph_world world;
    struct ps_executor *executor;
    (void)bind_chain(NULL, true, &executor, &world);
    assert_int_equal(count_steps(executor, "Activation", true), 8);
    assert_int_equal(count_steps(executor, "Convolution", true), 0);
    ps_executor_destroy(executor);
    world_close(&world);
}

/* MEMONGER: a budget is kept, as planned by the executor itself, or refused at bind. */
static void a_budget_is_kept_or_refused(void **state)
{
    (void)state;
    struct graph_world world;
    struct ps_executor *executor;
    struct ps_executor_memory plain = bind_chain(NULL, false, &executor, &world);
    ps_executor_destroy(executor);
    world_close(&world);
    static const size_t percent[] = {80, 70, 60, 55};
    for (size_t i = 0; i < PS_COUNT(percent); i++) {
        char setting[64];
        size_t budget = plain.peak_bytes * percent[i] / 100;
        (void)snprintf(setting, sizeof(setting), "MEMONGER=%zu", budget);
        struct ps_executor_memory less = bind_chain(setting, false, &executor, &world);
        assert_true(less.peak_bytes <= budget);
        assert_true(less.mirrored_count > 0);
        ps_executor_destroy(executor);
        world_close(&world);
    }
    world_open(&world, PS_ENGINE_NAIVE, "MEMONGER=10K");
    struct ps_symbol *symbol = chain(false);
    struct ps_bind_options options = world_options(&world);
    struct ps_named_shape shape = {"data", PS_SHAPE(4, 8, 32, 32)};
    struct ps_simple_bind arguments = {
        .shapes = &shape, .shape_count = 1, .req = PS_GRAD_WRITE};
    struct ps_error err = {0};
    assert_int_equal(
        ps_executor_simple_bind(symbol, &options, &arguments, &executor, &err),
        PS_ERANGE);
    assert_non_null(strstr(err.text, "MEMONGER=10K"));
    assert_non_null(strstr(err.text, "the least is"));
    ps_symbol_release(symbol);
    world_close(&world);
}

/* Dropout's mask is as large as its output; under MEMONGER it is drawn again, the same.
 */
static void dropout_is_drawn_again_the_same(void **state)
{
    (void)state;
    struct bits plain = {0};
    for (int again = 0; again < 2; again++) {
        struct graph_world world;
        world_open(&world, PS_ENGINE_NAIVE, again ? "MEMONGER=sqrt" : NULL);
        struct ps_builder *b = builder_new();
        struct ps_symbol *x = ps_builder_variable(b, "data");
        for (int i = 0; i < 9; i++) {
            x = ps_builder_op(b, "Dropout", NULL, "p=0.2", x);
            x = ps_builder_op(b, "Activation", NULL, "act_type=tanh", x);
        }
        x = ps_builder_op(b, "FullyConnected", "fc", "num_hidden=5", x);
        x = ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x);
        struct ps_symbol *symbol = finish(b, x);
        struct ps_bind_options options = world_options(&world);
        struct ps_executor *executor =
            bind(symbol, &options, PS_SHAPE(8, 300), PS_GRAD_WRITE);
        assert_true((count_steps(executor, "Dropout", true) > 0) == (again == 1));
        struct bits bits = run_network(executor);
        if (again == 0) {
            plain = bits;
        } else {
            expect_same(&plain, bits, "dropout");
        }
        ps_executor_destroy(executor);
        ps_symbol_release(symbol);
        world_close(&world);
    }
    free(plain.values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_the_same_under_every_policy_engine_and_plan),
        cmocka_unit_test(cheap_operators_run_twice_and_convolutions_once),
        cmocka_unit_test(what_is_forced_runs_twice_with_the_switch_off),
        cmocka_unit_test(a_budget_is_kept_or_refused),
        cmocka_unit_test(dropout_is_drawn_again_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
