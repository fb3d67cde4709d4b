/* The engine's cases of reference/cases.md that need more than a few lines: settings,
 * run-ahead memory, many completers, stable inputs. */
#include "tests/suite/engine_suite.h"

#include "engine/device/device.h"
#include "engine/tensor/tensor.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- 11 ---- */

enum { STEPS_11 = 100, SIDE_11 = 512 }; /* a MiB instead of 64 */

struct accumulate {
    struct ps_tensor *temporary, *sum;
};

static enum ps_status run_make(void *arg, const struct ps_run *run, struct ps_error *err)
{
    struct accumulate *step = arg;
    PS_UNUSED(run);
    float *to = ps_tensor_data(step->temporary);
    if (to == NULL) {
        return ps_error_set(err, PS_ENOMEM, "no memory");
    }
    for (int i = 0; i < SIDE_11 * SIDE_11; i++) {
        to[i] = 1.0f;
    }
    return PS_OK;
}

static enum ps_status run_accumulate(void *arg, const struct ps_run *run,
                                     struct ps_error *err)
{
    struct accumulate *step = arg;
    PS_UNUSED(run);
    PS_UNUSED(err);
    const float *from = ps_tensor_data(step->temporary);
    float *to = ps_tensor_data(step->sum);
    for (int i = 0; i < SIDE_11 * SIDE_11; i++) {
        to[i] += from[i];
    }
    return PS_OK;
}

static void release_temporary(void *arg)
{
    ps_tensor_release(((struct accumulate *)arg)->temporary);
}

/* t = f(); sum += t, many times, without a wait. */
static void push_accumulations(struct suite *suite, struct accumulate *steps,
                               struct ps_tensor *sum)
{
    for (int i = 0; i < STEPS_11; i++) {
        assert_int_equal(ps_tensor_like(sum, &steps[i].temporary), PS_OK);
        steps[i].sum = sum;
        struct ps_var *temporary = ps_tensor_var(steps[i].temporary);
        struct ps_var *total = ps_tensor_var(sum);
        struct ps_engine_op op = {.name = "add",
                                  .run = run_accumulate,
                                  .arg = &steps[i],
                                  .release = release_temporary,
                                  .reads = &temporary,
                                  .read_count = 1,
                                  .writes = &total,
                                  .write_count = 1};
        push(suite, "make", run_make, &steps[i], NULL, temporary);
        assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
    }
}

static void case_011_running_ahead_costs_no_memory(void **state)
{
    static const char *const eight[] = {"LOG=error", "ENGINE_MAX_INFLIGHT=8", NULL};
    struct suite suite;
    bool pooled = suite_type == PS_ENGINE_POOLED; /* sixteen threads make temporaries */
    struct ps_shape shape = PS_SHAPE(SIDE_11, SIDE_11);
    struct ps_tensor *sum;
    struct ps_device *device;
    struct ps_device_usage usage;
    static struct accumulate steps[STEPS_11];
    PS_UNUSED(state);
    suite_open(&suite, pooled ? eight : NULL, (int)suite_type);
    assert_int_equal(ps_tensor_create(suite.engine, PS_CPU(0), PS_F32, &shape, &sum),
                     PS_OK);
    assert_int_equal(ps_tensor_fill(sum, 0), PS_OK);
    push_accumulations(&suite, steps, sum);
    size_t bytes = ps_tensor_bytes(sum);
    float *out = malloc(bytes);
    assert_non_null(out);
    assert_int_equal(ps_tensor_read(sum, out, bytes, NULL), PS_OK);
    assert_true(out[0] == (float)STEPS_11);
    assert_true(out[SIDE_11 * SIDE_11 - 1] == (float)STEPS_11);
    free(out);
    wait_all_ok(&suite);
    assert_int_equal(ps_engine_device(suite.engine, PS_CPU(0), &device, NULL), PS_OK);
    ps_device_usage(device, &usage);
    assert_int_equal(usage.requested_bytes, bytes);
    assert_true(usage.peak_bytes <= bytes * (pooled ? 9 : 4));
    ps_tensor_release(sum);
    suite_close(&suite);
}

/* ---- 12, 13 ---- */

static bool opens_with(const char *setting, struct ps_error *err)
{
    const char *const overrides[] = {"LOG=error", NULL};
    const char *const env[] = {setting, NULL};
    struct ps_node *node;
    struct ps_engine *engine;
    struct ps_node_options options = {.env = env, .overrides = overrides};
    if (ps_node_open(&options, &node, err) != PS_OK) {
        return false;
    }
    enum ps_status status = ps_engine_create(node, PS_ENGINE_FROM_SETTING, &engine, err);
    if (status == PS_OK) {
        ps_engine_destroy(engine);
    }
    ps_node_close(node);
    return status == PS_OK;
}

static void case_012_an_empty_engine_type_is_the_default(void **state)
{
    struct ps_error err = {.status = PS_OK};
    PS_UNUSED(state);
    assert_true(opens_with("MXNET_ENGINE_TYPE=", &err));
    assert_true(opens_with("ENGINE_TYPE=ThreadedEnginePooled", &err));
    assert_true(opens_with("ENGINE_TYPE=naiveengine", &err)); /* choices ignore case */
    static const char *const bad[] = {"ENGINE_TYPE=naive ", "MXNET_ENGINE_TYPE=Bogus",
                                      "PENSTOCK_ENGINE_TYPE= "};
    for (size_t i = 0; i < PS_COUNT(bad); i++) {
        assert_false(opens_with(bad[i], &err));
        assert_non_null(strstr(err.text, "ENGINE_TYPE"));
        assert_non_null(strstr(err.text, strchr(bad[i], '=') + 1)); /* what was written */
        assert_non_null(strstr(err.text, "NaiveEngine"));
        assert_non_null(strstr(err.text, "ThreadedEngine"));
        assert_non_null(strstr(err.text, "ThreadedEnginePooled"));
        assert_non_null(strstr(err.text, "ThreadedEnginePerDevice"));
    }
}

static void case_013_thread_counts_out_of_range_are_refused(void **state)
{
    static const char *const names[] = {"CPU_WORKER_NTHREADS", "CPU_PRIORITY_NTHREADS",
                                        "GPU_WORKER_NTHREADS", "MXNET_GPU_COPY_NTHREADS"};
    static const char *const bad[] = {"0", "-1", "abc", "1e9", "257", "2.5"};
    PS_UNUSED(state);
    for (size_t i = 0; i < PS_COUNT(names) * PS_COUNT(bad); i++) {
        char text[64];
        struct ps_error err = {.status = PS_OK};
        const char *name = names[i / PS_COUNT(bad)], *value = bad[i % PS_COUNT(bad)];
        (void)snprintf(text, sizeof(text), "%s=%s", name, value);
        assert_false(opens_with(text, &err));
        assert_non_null(strstr(err.text, name));
        assert_non_null(strstr(err.text, value));
        assert_non_null(strstr(err.text, "256")); /* the range is named */
    }
}

/* ---- 15 ---- */

#if SUITE_SANITIZED
enum { OPS_15 = 40000, OPS_15_POOLED = 10000, OPS_15_NAIVE = 2000 };
#else
enum { OPS_15 = 1000000, OPS_15_POOLED = 100000, OPS_15_NAIVE = 10000 };
#endif

enum { THREADS_15 = 16, HELD_15 = 8192 };

struct completers {
    struct ps_mutex lock;
    struct ps_cond cond;
    struct ps_completion *held[HELD_15];
    size_t count;
    bool closed;
    uint64_t random; /* xorshift state */
};

static void start_held(void *arg, const struct ps_run *run, struct ps_completion *done)
{
    struct completers *completers = arg;
    PS_UNUSED(run);
    ps_mutex_lock(&completers->lock);
    assert(completers->count < HELD_15);
    completers->held[completers->count++] = done;
    if (completers->count == 1) {
        ps_cond_broadcast(&completers->cond);
    }
    ps_mutex_unlock(&completers->lock);
}

static void complete_out_of_order(void *arg)
{
    struct completers *completers = arg;
    ps_mutex_lock(&completers->lock);
    while (completers->count > 0 || !completers->closed) {
        if (completers->count == 0) {
            ps_cond_wait(&completers->cond, &completers->lock);
            continue;
        }
        completers->random ^= completers->random << 13;
        completers->random ^= completers->random >> 7;
        completers->random ^= completers->random << 17;
        size_t at = completers->random % completers->count;
        struct ps_completion *done = completers->held[at];
        completers->held[at] = completers->held[--completers->count];
        ps_mutex_unlock(&completers->lock);
        ps_engine_complete(done, PS_OK, NULL);
        ps_mutex_lock(&completers->lock);
    }
    ps_mutex_unlock(&completers->lock);
}

static void case_015_many_threads_complete_ops_out_of_order(void **state)
{
    struct suite *suite = *state;
    static struct completers completers;
    struct ps_thread threads[THREADS_15] = {{.started = false}};
    struct ps_var *vars[64];
    int ops = suite_type == PS_ENGINE_NAIVE    ? OPS_15_NAIVE
              : suite_type == PS_ENGINE_POOLED ? OPS_15_POOLED
                                               : OPS_15;
    memset(&completers, 0, sizeof(completers));
    ps_mutex_init(&completers.lock);
    ps_cond_init(&completers.cond);
    completers.random = 15;
    for (int i = 0; i < THREADS_15; i++) {
        assert_int_equal(
            ps_thread_start(&threads[i], "completer", complete_out_of_order, &completers),
            PS_OK);
    }
    for (size_t i = 0; i < PS_COUNT(vars); i++) {
        vars[i] = new_var(suite);
    }
    for (int i = 0; i < ops; i++) {
        struct ps_engine_op op = {.name = "held",
                                  .start = start_held,
                                  .arg = &completers,
                                  .reads = &vars[(i * 7) % 64],
                                  .read_count = 1,
                                  .writes = &vars[(i * 13 + 1) % 64],
                                  .write_count = 1};
        assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
        assert_true(ps_engine_pending(suite->engine) <= 4096);
    }
    wait_all_ok(suite);
    assert_int_equal(ps_engine_pending(suite->engine), 0);
    ps_mutex_lock(&completers.lock);
    completers.closed = true;
    ps_cond_broadcast(&completers.cond);
    ps_mutex_unlock(&completers.lock);
    uint64_t writes = 0;
    for (size_t i = 0; i < PS_COUNT(vars); i++) {
        writes += ps_var_version(vars[i]);
        ps_var_delete(suite->engine, vars[i]);
    }
    assert_int_equal(writes, ops);
    for (int i = 0; i < THREADS_15; i++) {
        ps_thread_join(&threads[i]);
    }
    ps_cond_fini(&completers.cond);
    ps_mutex_fini(&completers.lock);
}

/* ---- 17 ---- */

enum { REPEATS_17 = 10000, WORDS_17 = 64 };

struct stable {
    uint32_t words[WORDS_17];
    _Atomic int writers_pushed;
    _Atomic int changed; /* reads that saw their input change */
    int reads, writes;
};

static uint32_t checksum(const uint32_t *words)
{
    uint32_t sum = 0;
    for (int i = 0; i < WORDS_17; i++) {
        sum = sum * 31 + words[i];
    }
    return sum;
}

static enum ps_status run_check(void *arg, const struct ps_run *run, struct ps_error *err)
{
    struct stable *stable = arg;
    uint32_t before = checksum(stable->words);
    PS_UNUSED(run);
    PS_UNUSED(err);
    stable->reads++;
    /* until the writer behind us is queued; the naive engine pushes it only afterwards */
    while (suite_type != PS_ENGINE_NAIVE &&
           atomic_load(&stable->writers_pushed) < stable->reads) {
        continue;
    }
    if (checksum(stable->words) != before) {
        atomic_fetch_add(&stable->changed, 1);
    }
    return PS_OK;
}

static enum ps_status run_scribble(void *arg, const struct ps_run *run,
                                   struct ps_error *err)
{
    struct stable *stable = arg;
    PS_UNUSED(run);
    PS_UNUSED(err);
    stable->writes++;
    for (int i = 0; i < WORDS_17; i++) {
        stable->words[i] += (uint32_t)(stable->writes + i);
    }
    return PS_OK;
}

static void case_017_an_input_is_stable_while_a_writer_is_queued(void **state)
{
    struct suite *suite = *state;
    static struct stable stable;
    struct ps_var *var = new_var(suite), *count = new_var(suite);
    memset(&stable, 0, sizeof(stable));
    for (int i = 0; i < REPEATS_17; i++) {
        push(suite, "check", run_check, &stable, var, count);
        push(suite, "scribble", run_scribble, &stable, NULL, var);
        atomic_fetch_add(&stable.writers_pushed, 1);
    }
    wait_all_ok(suite);
    assert_int_equal(stable.reads, REPEATS_17);
    assert_int_equal(stable.writes, REPEATS_17);
    assert_int_equal(stable.changed, 0);
    ps_var_delete(suite->engine, var);
    ps_var_delete(suite->engine, count);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, suite_setup, suite_teardown)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(case_011_running_ahead_costs_no_memory),
    cmocka_unit_test(case_012_an_empty_engine_type_is_the_default),
    cmocka_unit_test(case_013_thread_counts_out_of_range_are_refused),
    TEST(case_015_many_threads_complete_ops_out_of_order),
    TEST(case_017_an_input_is_stable_while_a_writer_is_queued),
};

SUITE_GROUP(suite_cases, "cases", tests);
