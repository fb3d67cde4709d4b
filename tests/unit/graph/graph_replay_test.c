/* Steps that are replayed: as single pushes in every respect, run-ahead, errors, switches
 * between training, inference and a monitor, and the end. */
#include "tests/unit/graph/graph_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int all_engines[] = {PS_ENGINE_NAIVE, PS_ENGINE_POOLED,
                                  PS_ENGINE_PER_DEVICE};

static struct ps_executor *bind_lenet(const struct graph_world *world,
                                      struct ps_symbol *lenet, int replay, int bulk,
                                      enum ps_grad_req req)
{
    static const char *const no_gradient[] = {"data", "softmax_label", NULL};
    struct ps_named_shape shape = {"data", PS_SHAPE(4, 1, 12, 12)};
    struct ps_simple_bind bind = {
        .shapes = &shape, .shape_count = 1, .req = req, .no_gradient = no_gradient};
    struct ps_bind_options options = world_options(world);
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    options.replay = replay;
    options.bulk = bulk;
    if (ps_executor_simple_bind(lenet, &options, &bind, &executor, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    fill_parameters(executor, 4, 0.3f);
    tensor_fill_random(ps_executor_find_argument(executor, "data"), 6, 1);
    tensor_set(ps_executor_find_argument(executor, "softmax_label"),
               (const float[]){0, 1, 2, 3});
    return executor;
}

/* The output and all gradients. */
static uint64_t state_of(struct ps_executor *executor)
{
    float *out = tensor_get(ps_executor_output(executor, 0));
    uint64_t hash = ps_hash_bytes(out, ps_tensor_bytes(ps_executor_output(executor, 0)));
    free(out);
    for (size_t i = 0; i < ps_executor_argument_count(executor); i++) {
        struct ps_tensor *gradient = ps_executor_gradient(executor, i);
        if (gradient != NULL) {
            float *values = tensor_get(gradient);
            hash = hash * 31 + ps_hash_bytes(values, ps_tensor_bytes(gradient));
            free(values);
        }
    }
    return hash;
}

/* ---- as single pushes ---- */

/* weight -= 0.05 * gradient, and the gradient is zero again: as a trainer's operations,
 * pushed between the steps on the executor's own tensors. */
struct update {
    struct ps_tensor *weight, *gradient;
};

static enum ps_status update_run(void *arg, const struct ps_run *run,
                                 struct ps_error *err)
{
    const struct update *update = arg;
    float *w = ps_tensor_address(update->weight, run);
    float *g = ps_tensor_address(update->gradient, run);
    (void)err;
    for (int64_t i = 0; i < ps_tensor_count(update->weight); i++) {
        w[i] -= 0.05f * g[i];
        g[i] = 0;
    }
    return PS_OK;
}

static void list_updates(struct ps_executor *executor, struct update *updates)
{
    for (size_t i = 0; i < ps_executor_argument_count(executor); i++) {
        updates[i] = (struct update){ps_executor_argument(executor, i),
                                     ps_executor_gradient(executor, i)};
    }
}

static void push_updates(const struct graph_world *world, struct ps_executor *executor,
                         struct update *updates)
{
    for (size_t i = 0; i < ps_executor_argument_count(executor); i++) {
        if (updates[i].gradient == NULL) {
            continue;
        }
        struct ps_var *writes[] = {ps_tensor_var(updates[i].weight),
                                   ps_executor_gradient_ready(executor, i)};
        struct ps_engine_op op = {.name = "update",
                                  .run = update_run,
                                  .arg = &updates[i],
                                  .writes = writes,
                                  .write_count = 2,
                                  .kind = PS_ENGINE_CPU_PRIORITIZED};
        assert_int_equal(ps_engine_push(world->engine, &op), PS_OK);
    }
}

/* Eight steps with their updates, pushed without a wait. */
static uint64_t train_ahead(const struct graph_world *world, struct ps_symbol *lenet,
                            int replay, int bulk)
{
    struct update updates[16];
    struct ps_executor *executor = bind_lenet(world, lenet, replay, bulk, PS_GRAD_ADD);
    list_updates(executor, updates); /* operations of earlier steps still read them */
    for (int step = 0; step < 8; step++) {
        run_step(executor, true);
        push_updates(world, executor, updates);
        if (step % 3 == 2) {
            run_step(executor, false); /* an evaluation in between */
        }
    }
    run_step(executor, true);
    uint64_t hash = state_of(executor);
    ps_executor_destroy(executor);
    return hash;
}

static void steps_pushed_ahead_give_the_bits_of_single_pushes(void **state)
{
    (void)state;
    struct ps_symbol *lenet = small_lenet();
    uint64_t expected = 0;
    for (size_t e = 0; e < PS_COUNT(all_engines); e++) {
        struct graph_world world;
        world_open(&world, all_engines[e], "CPU_WORKER_NTHREADS=2");
        if (e == 0) {
            expected = train_ahead(&world, lenet, 0, 0);
        }
        assert_true(train_ahead(&world, lenet, -1, 0) == expected);
        assert_true(train_ahead(&world, lenet, -1, -1) == expected);
        assert_true(train_ahead(&world, lenet, 0, -1) == expected);
        world_close(&world);
    }
    ps_symbol_release(lenet);
}

/* ---- what is outside is waited for by who needs it, not by the step ---- */

static void hold(void *arg, const struct ps_run *run, struct ps_completion *done)
{
    (void)run;
    *(struct ps_completion **)arg = done;
}

static void a_step_starts_while_its_last_weight_is_still_out(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, NULL);
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    struct ps_symbol *first = ps_builder_op(b, "tanh", "first", NULL, x);
    struct ps_symbol *last = ps_builder_op(b, "elemwise_mul", "last", NULL, first,
                                           ps_builder_variable(b, "w"));
    struct ps_symbol *both[] = {first, last};
    struct ps_symbol *net = finish(b, ps_builder_group(b, both, 2));
    struct ps_named_shape shapes[] = {{"data", PS_SHAPE(2)}, {"w", PS_SHAPE(2)}};
    struct ps_simple_bind bind = {.shapes = shapes, .shape_count = 2};
    struct ps_bind_options options = world_options(&world);
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    options.bulk = 0;
    assert_int_equal(ps_executor_simple_bind(net, &options, &bind, &executor, &err),
                     PS_OK);
    for (int i = 0; i < 3; i++) {
        run_forward(executor, false); /* replayed from the second on */
    }
    assert_int_equal(ps_engine_wait_all(world.engine, NULL), PS_OK);
    struct ps_completion *done = NULL;
    struct ps_var *weight = ps_tensor_var(ps_executor_find_argument(executor, "w"));
    struct ps_engine_op pull = {.name = "pull",
                                .start = hold,
                                .arg = &done,
                                .writes = &weight,
                                .write_count = 1,
                                .kind = PS_ENGINE_ASYNC};
    assert_int_equal(ps_engine_push(world.engine, &pull), PS_OK);
    tensor_set(ps_executor_find_argument(executor, "data"), (const float[]){0, 1});
    run_forward(executor, false);
    /* this would wait for ever if the step were granted as a whole */
    tensor_expect(ps_executor_output(executor, 0), (const float[]){0, 0.76159415596f},
                  1e-6);
    assert_true(ps_engine_pending(world.engine) >= 2); /* the pull and the last */
    ps_engine_complete(done, PS_OK, NULL);
    tensor_expect(ps_executor_output(executor, 1), (const float[]){0, 0}, 0);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
    world_close(&world);
}

/* ---- errors ---- */

static void a_failure_in_a_replay_is_told_once_and_the_next_replay_is_whole(void **state)
{
    (void)state;
    for (size_t e = 0; e < PS_COUNT(all_engines); e++) {
        struct graph_world world;
        world_open(&world, all_engines[e], NULL);
        struct ps_symbol *lenet = small_lenet();
        struct ps_executor *executor = bind_lenet(&world, lenet, -1, -1, PS_GRAD_WRITE);
        struct ps_tensor *label = ps_executor_find_argument(executor, "softmax_label");
        for (int i = 0; i < 3; i++) {
            run_step(executor, true);
        }
        uint64_t whole = state_of(executor);
        struct ps_error err = {0};
        tensor_set(label, (const float[]){0, 1, 99, 3}); /* of five classes */
        enum ps_status status = ps_executor_forward(executor, true, &err);
        if (status == PS_OK) {
            status = ps_executor_backward(executor, NULL, &err);
        }
        if (status == PS_OK) {
            status = ps_engine_wait_all(world.engine, &err);
        }
        assert_int_equal(status, PS_ERANGE);
        assert_non_null(strstr(err.text, "softmax"));
        assert_int_equal(ps_engine_wait_all(world.engine, &err), PS_OK);
        tensor_set(label, (const float[]){0, 1, 2, 3});
        run_step(executor, true);
        assert_true(state_of(executor) == whole);
        ps_executor_destroy(executor);
        ps_symbol_release(lenet);
        world_close(&world);
    }
}

/* ---- switches, ends ---- */

static void count_calls(void *arg, const char *name, struct ps_tensor *value)
{
    (void)name, (void)value;
    ++*(size_t *)arg;
}

static void a_monitor_between_replays_changes_nothing(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, "CPU_WORKER_NTHREADS=2");
    struct ps_symbol *lenet = small_lenet();
    uint64_t expected[2];
    for (int monitored = 0; monitored < 2; monitored++) {
        struct ps_executor *executor = bind_lenet(&world, lenet, -1, -1, PS_GRAD_ADD);
        size_t calls = 0;
        for (int i = 0; i < 6; i++) {
            if (monitored) {
                assert_int_equal(
                    ps_executor_set_monitor(executor, i % 2 ? count_calls : NULL, &calls),
                    PS_OK);
            }
            run_step(executor, true);
        }
        assert_true((calls > 0) == (monitored == 1));
        expected[monitored] = state_of(executor);
        ps_executor_destroy(executor);
    }
    assert_true(expected[0] == expected[1]);
    ps_symbol_release(lenet);
    world_close(&world);
}

static void replays_still_run_when_the_executor_is_gone(void **state)
{
    (void)state;
    struct graph_world world;
    world_open(&world, PS_ENGINE_PER_DEVICE, "CPU_WORKER_NTHREADS=2");
    struct ps_symbol *lenet = small_lenet();
    uint64_t expected = 0;
    for (int i = 0; i < 10; i++) {
        struct ps_executor *executor = bind_lenet(&world, lenet, -1, -1, PS_GRAD_WRITE);
        struct ps_tensor *gradient =
            ps_tensor_retain(ps_executor_find_gradient(executor, "conv1_weight"));
        for (int step = 0; step < 4; step++) {
            run_step(executor, true);
        }
        ps_executor_destroy(executor);
        float *values = tensor_get(gradient);
        uint64_t hash = ps_hash_bytes(values, ps_tensor_bytes(gradient));
        expected = i == 0 ? hash : expected;
        assert_true(hash == expected);
        free(values);
        ps_tensor_release(gradient);
    }
    ps_symbol_release(lenet);
    assert_int_equal(ps_engine_wait_all(world.engine, NULL), PS_OK);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_pushed_ahead_give_the_bits_of_single_pushes),
        cmocka_unit_test(a_step_starts_while_its_last_weight_is_still_out),
        cmocka_unit_test(a_failure_in_a_replay_is_told_once_and_the_next_replay_is_whole),
        cmocka_unit_test(a_monitor_between_replays_changes_nothing),
        cmocka_unit_test(replays_still_run_when_the_executor_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
