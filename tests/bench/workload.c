/* The workloads; see workload.h. */
#include "tests/bench/workload.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

enum { SIMPLE_TASKS = 200000, RANDOM_TASKS = 10000, LAYERS = 50, STEPS = 200 };

const char *const workload_names[] = {"chain",   "indep",  "net50",
                                      "rand100", "rand20", NULL};

static void add_write(struct workload_task *task, size_t var)
{
    /* writes come before reads are added */
    task->vars[task->write_count++] = (uint32_t)var;
}

static void add_read(struct workload_task *task, size_t var)
{
    task->vars[task->write_count + task->read_count++] = (uint32_t)var;
}

static void make_simple(struct workload *workload)
{
    for (size_t i = 0; i < workload->task_count; i++) {
        add_write(&workload->tasks[i], i % workload->var_count);
    }
}

static void make_random(struct workload *workload)
{
    struct ps_rng rng;
    ps_rng_init(&rng, 20);
    for (size_t i = 0; i < workload->task_count; i++) {
        struct workload_task *task = &workload->tasks[i];
        unsigned char used[128] = {0};
        size_t reads = 1 + ps_rng_below(&rng, 10), writes = ps_rng_below(&rng, 3);
        for (size_t k = 0; k < writes + reads; k++) {
            size_t var;
            do {
                var = ps_rng_below(&rng, workload->var_count);
            } while (used[var]);
            used[var] = 1;
            if (k < writes) {
                add_write(task, var);
            } else {
                add_read(task, var);
            }
        }
    }
}

/* Variables: activations 0..L, gradients of them, weights, gradients of the weights. */
static void make_net(struct workload *workload)
{
    const size_t grads = LAYERS + 1, weights = 2 * (LAYERS + 1);
    const size_t weight_grads = weights + LAYERS;
    struct workload_task *task = workload->tasks;
    for (size_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < LAYERS; i++, task++) { /* forward */
            add_write(task, i + 1);
            add_read(task, i);
            add_read(task, weights + i);
        }
        for (size_t i = LAYERS; i-- > 0; task++) { /* backward */
            add_write(task, grads + i);
            add_write(task, weight_grads + i);
            add_read(task, grads + i + 1);
            add_read(task, i);
            add_read(task, i + 1);
            add_read(task, weights + i);
        }
        for (size_t i = LAYERS; i-- > 0; task++) { /* update */
            add_write(task, weights + i);
            add_read(task, weight_grads + i);
        }
    }
}

enum ps_status workload_create(const char *name, struct workload *workload_out)
{
    static const struct {
        const char *name;
        size_t task_count, var_count, step_tasks;
        void (*make)(struct workload *workload);
    } kinds[] = {
        {"chain", SIMPLE_TASKS, 1, SIMPLE_TASKS, make_simple},
        {"indep", SIMPLE_TASKS, SIMPLE_TASKS, SIMPLE_TASKS, make_simple},
        {"net50", (size_t)STEPS * 3 * LAYERS, 4 * LAYERS + 2, (size_t)3 * LAYERS,
         make_net},
        {"rand100", RANDOM_TASKS, 100, RANDOM_TASKS, make_random},
        {"rand20", RANDOM_TASKS, 20, RANDOM_TASKS, make_random},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(name, kinds[i].name) != 0) {
            continue;
        }
        struct workload workload = {.name = kinds[i].name,
                                    .task_count = kinds[i].task_count,
                                    .var_count = kinds[i].var_count,
                                    .step_tasks = kinds[i].step_tasks};
        workload.tasks = calloc(workload.task_count, sizeof(*workload.tasks));
        if (workload.tasks == NULL) {
            return PS_ENOMEM;
        }
        kinds[i].make(&workload);
        *workload_out = workload;
        return PS_OK;
    }
    return PS_ENOENT;
}

void workload_fini(struct workload *workload)
{
    free(workload->tasks);
    workload->tasks = NULL;
}

size_t workload_runs(const struct workload *workload, int verify)
{
    size_t runs = workload->task_count / workload->step_tasks;
    return runs > 1 || verify ? runs : SIMPLE_TASKS / workload->step_tasks;
}

void workload_apply(const struct workload_task *task, uint64_t *values)
{
    uint64_t sum = 1;
    for (size_t k = 0; k < task->read_count; k++) {
        sum += values[task->vars[task->write_count + k]] * (k + 3);
    }
    for (size_t k = 0; k < task->write_count; k++) {
        uint64_t *value = &values[task->vars[k]];
        *value = *value * UINT64_C(6364136223846793005) + sum + k; /* Knuth's LCG */
    }
}

uint64_t workload_hash(const uint64_t *values, size_t count)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++) {
        hash = ps_hash_u64(hash ^ values[i]);
    }
    return hash;
}

uint64_t workload_expected(const struct workload *workload)
{
    uint64_t *values = calloc(workload->var_count, sizeof(*values));
    if (values == NULL) {
        return 0;
    }
    for (size_t i = 0; i < workload->task_count; i++) {
        workload_apply(&workload->tasks[i], values);
    }
    uint64_t hash = workload_hash(values, workload->var_count);
    free(values);
    return hash;
}
