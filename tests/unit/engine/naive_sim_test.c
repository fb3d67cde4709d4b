/* The naive engine on the simulation's virtual clock: asynchronous operations that a
 * loop completes later, and two programs that share an engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/node.h"
#include "base/sim.h"
#include "base/util.h"
#include "engine/engine.h"

#include <string.h>

struct world {
    struct ps_sim *sim;
    struct ps_node *node;
    struct ps_engine *engine;
    struct ps_var *var;
    int order[8];
    int count;
};

struct answer { /* an operation that is answered after 'delay_ns', or never */
    struct world *world;
    struct ps_task task;
    struct ps_timer timer;
    struct ps_completion *done;
    uint64_t delay_ns;
    int number;
    enum ps_status push_status;
};

static int setup(void **state)
{
    static struct world world;
    static const char *const quiet[] = {"LOG=error", NULL};
    static const char *const no_env[] = {NULL};
    memset(&world, 0, sizeof(world));
    assert_int_equal(ps_sim_create(3, &world.sim), PS_OK);
    struct ps_node_options options = {
        .env = no_env, .overrides = quiet, .sim = world.sim};
    assert_int_equal(ps_node_open(&options, &world.node, NULL), PS_OK);
    assert_int_equal(
        ps_engine_create(world.node, PS_ENGINE_FROM_SETTING, &world.engine, NULL), PS_OK);
    assert_int_equal(ps_var_create(world.engine, &world.var), PS_OK);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    ps_var_delete(world->engine, world->var);
    ps_engine_destroy(world->engine);
    ps_node_close(world->node);
    ps_sim_destroy(world->sim);
    return 0;
}

static void on_timer(struct ps_timer *timer)
{
    struct answer *answer = PS_CONTAINER_OF(timer, struct answer, timer);
    answer->world->order[answer->world->count++] = answer->number;
    ps_engine_complete(answer->done, PS_OK, NULL);
}

static void on_task(struct ps_task *task)
{
    struct answer *answer = PS_CONTAINER_OF(task, struct answer, task);
    assert_int_equal(
        ps_timer_start(answer->world->node->loop, &answer->timer, answer->delay_ns),
        PS_OK);
}

static void start(void *arg, const struct ps_run *run, struct ps_completion *done)
{
    struct answer *answer = arg;
    PS_UNUSED(run);
    answer->done = done;
    if (answer->delay_ns != PS_NEVER) {
        answer->task = (struct ps_task){.run = on_task, .label = "answer"};
        answer->timer = (struct ps_timer){.run = on_timer, .label = "answer"};
        (void)ps_loop_post(answer->world->node->loop, &answer->task);
    }
}

static void program(void *arg)
{
    struct answer *answer = arg;
    struct ps_engine_op op = {.name = "pull",
                              .start = start,
                              .arg = answer,
                              .writes = &answer->world->var,
                              .write_count = 1,
                              .kind = PS_ENGINE_ASYNC};
    answer->push_status = ps_engine_push(answer->world->engine, &op);
}

static void two_programs_take_turns_while_ops_are_out(void **state)
{
    struct world *world = *state;
    struct answer answers[2];
    memset(answers, 0, sizeof(answers));
    for (int i = 0; i < 2; i++) {
        answers[i].world = world;
        answers[i].number = i;
        answers[i].delay_ns = (uint64_t)(10 - 5 * i) * PS_NS_PER_MS;
        assert_int_equal(ps_sim_spawn(world->sim, "program", program, &answers[i]),
                         PS_OK);
    }
    assert_int_equal(ps_sim_run_programs(world->sim, 10 * PS_NS_PER_S), PS_OK);
    assert_int_equal(answers[0].push_status, PS_OK);
    assert_int_equal(answers[1].push_status, PS_OK);
    assert_int_equal(world->count, 2);
    assert_int_equal(ps_sim_now_ns(world->sim) >= 15 * PS_NS_PER_MS, 1); /* in turn */
    assert_int_equal(ps_var_version(world->var), 2);
    assert_int_equal(ps_engine_wait_all(world->engine, NULL), PS_OK);
}

static void an_op_that_nobody_can_complete_fails_instead_of_hanging(void **state)
{
    struct world *world = *state;
    struct answer answer = {.world = world, .delay_ns = PS_NEVER};
    struct ps_error err = {.status = PS_OK};
    program(&answer); /* on the test's own stack: the wait pumps the world */
    assert_int_equal(answer.push_status, PS_OK);
    assert_int_equal(ps_engine_wait_var(world->engine, world->var, &err), PS_ETIMEDOUT);
    assert_non_null(strstr(err.text, "pull: nothing is left that could complete it"));
}

static void count_release(void *arg)
{
    ((struct answer *)arg)->number++;
}

static void push_released(void *arg)
{
    struct answer *answer = arg;
    struct ps_engine_op op = {.name = "pull",
                              .start = start,
                              .arg = answer,
                              .release = count_release,
                              .writes = &answer->world->var,
                              .write_count = 1,
                              .kind = PS_ENGINE_ASYNC};
    answer->push_status = ps_engine_push(answer->world->engine, &op);
}

static void the_end_releases_what_a_killed_program_left(void **state)
{
    struct world *world = *state;
    struct answer answer = {
        .world = world, .delay_ns = PS_NEVER, .push_status = PS_EINTERNAL};
    ps_sim_enter_node(world->sim, "victim");
    assert_int_equal(ps_sim_spawn(world->sim, "program", push_released, &answer), PS_OK);
    ps_sim_enter_node(world->sim, NULL);
    ps_sim_run_for(world->sim, PS_NS_PER_MS);
    assert_non_null(answer.done);
    ps_sim_kill_node(world->sim, "victim");
    ps_engine_destroy(world->engine);
    assert_int_equal(answer.number, 1);
    assert_int_equal(answer.push_status, PS_EINTERNAL); /* it never came back */
    assert_int_equal(
        ps_engine_create(world->node, PS_ENGINE_FROM_SETTING, &world->engine, NULL),
        PS_OK);
    assert_int_equal(ps_var_create(world->engine, &world->var), PS_OK);
}

static void a_threaded_engine_is_refused_on_a_simulated_node(void **state)
{
    struct world *world = *state;
    struct ps_engine *engine;
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_engine_type(world->engine), PS_ENGINE_NAIVE);
    assert_int_equal(ps_engine_create(world->node, PS_ENGINE_PER_DEVICE, &engine, &err),
                     PS_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "NaiveEngine"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_programs_take_turns_while_ops_are_out),
        TEST(an_op_that_nobody_can_complete_fails_instead_of_hanging),
        TEST(the_end_releases_what_a_killed_program_left),
        TEST(a_threaded_engine_is_refused_on_a_simulated_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
