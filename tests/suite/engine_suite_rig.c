/* What the tests of engines share: opening one, gates, trails, pushes.  See
 * engine_suite.h. */
#include "tests/suite/engine_suite.h"

#include <stdio.h>
#include <string.h>

enum ps_engine_type suite_type;

void suite_open(struct suite *suite, const char *const *overrides, int type)
{
    static const char *const quiet[] = {"LOG=error", "SIM_GPUS=2", NULL};
    static const char *const no_env[] = {NULL};
    struct ps_error err = {.status = PS_OK};
    struct ps_node_options options = {.name = "suite",
                                      .env = no_env,
                                      .overrides = overrides != NULL ? overrides : quiet};
    assert_int_equal(ps_node_open(&options, &suite->node, &err), PS_OK);
    assert_int_equal(ps_engine_create(suite->node, type, &suite->engine, &err), PS_OK);
}

void suite_close(struct suite *suite)
{
    ps_engine_destroy(suite->engine);
    ps_node_close(suite->node);
}

int suite_setup(void **state)
{
    static struct suite suite;
    suite_open(&suite, NULL, suite_type);
    *state = &suite;
    return 0;
}

int suite_teardown(void **state)
{
    suite_close(*state);
    return 0;
}

void gate_init(struct gate *gate, bool open)
{
    ps_mutex_init(&gate->lock);
    ps_cond_init(&gate->cond);
    gate->open = open;
    gate->arrived = 0;
}

void gate_fini(struct gate *gate)
{
    ps_cond_fini(&gate->cond);
    ps_mutex_fini(&gate->lock);
}

void gate_open(struct gate *gate)
{
    ps_mutex_lock(&gate->lock);
    gate->open = true;
    ps_cond_broadcast(&gate->cond);
    ps_mutex_unlock(&gate->lock);
}

void gate_pass(struct gate *gate)
{
    ps_mutex_lock(&gate->lock);
    gate->arrived++;
    ps_cond_broadcast(&gate->cond);
    while (!gate->open) {
        ps_cond_wait(&gate->cond, &gate->lock);
    }
    ps_mutex_unlock(&gate->lock);
}

void gate_wait_arrived(struct gate *gate, int count)
{
    ps_mutex_lock(&gate->lock);
    while (gate->arrived < count) {
        ps_cond_wait(&gate->cond, &gate->lock);
    }
    ps_mutex_unlock(&gate->lock);
}

enum ps_status run_gate(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(run);
    PS_UNUSED(err);
    gate_pass(arg);
    return PS_OK;
}

void trail_init(struct trail *trail)
{
    ps_mutex_init(&trail->lock);
    trail->count = 0;
}

void trail_fini(struct trail *trail)
{
    ps_mutex_fini(&trail->lock);
}

enum ps_status run_step(void *arg, const struct ps_run *run, struct ps_error *err)
{
    struct step *step = arg;
    PS_UNUSED(run);
    PS_UNUSED(err);
    if (step->gate != NULL) {
        gate_pass(step->gate);
    }
    ps_mutex_lock(&step->trail->lock);
    if (step->trail->count < TRAIL_MAX) {
        step->trail->items[step->trail->count++] = step->number;
    }
    ps_mutex_unlock(&step->trail->lock);
    return step->result;
}

struct ps_var *new_var(struct suite *suite)
{
    struct ps_var *var;
    assert_int_equal(ps_var_create(suite->engine, &var), PS_OK);
    return var;
}

void push(struct suite *suite, const char *name,
          enum ps_status (*run)(void *arg, const struct ps_run *run,
                                struct ps_error *err),
          void *arg, struct ps_var *read, struct ps_var *write)
{
    struct ps_engine_op op = {
        .name = name,
        .run = run,
        .arg = arg,
        .reads = &read,
        .read_count = read != NULL,
        .writes = &write,
        .write_count = write != NULL,
    };
    assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
}

void wait_all_ok(struct suite *suite)
{
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_engine_wait_all(suite->engine, &err), PS_OK);
}

void wait_var_ok(struct suite *suite, struct ps_var *var)
{
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_engine_wait_var(suite->engine, var, &err), PS_OK);
}
