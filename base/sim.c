/* The simulated world: choosing steps, programs, nodes and their deaths.
 *
 * Three kinds of stack.  The thread's own: the test's; it enters the world to wait.  The
 * runner: it chooses steps and runs handlers, so that killing a node from inside its
 * handler means to leave that stack behind and go on with a new one.  Programs: a stack
 * each; they wait by switching back to the runner. */
#include "base/sim.h"

#include "base/sim_private.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_NS 100
#define START_NS PS_NS_PER_S /* a clock that shows 0 would hide bugs with "0 = never" */
#define START_WALL_NS (UINT64_C(1767225600) * PS_NS_PER_S) /* 2026-01-01 */

static uint64_t sim_now_ns(struct ps_clock *clock)
{
    return PS_CONTAINER_OF(clock, struct ps_sim, clock)->now_ns;
}

static uint64_t sim_wall_ns(struct ps_clock *clock)
{
    return START_WALL_NS + sim_now_ns(clock);
}

/* ---- trace ---- */

void ps_sim_trace(struct ps_sim *sim, const char *label, uint64_t a, uint64_t b)
{
    uint64_t facts[] = {sim->now_ns, ps_hash_bytes(label, strlen(label)), a, b};
    for (size_t i = 0; i < PS_COUNT(facts); i++) {
        sim->hash = ps_hash_u64((sim->hash + UINT64_C(0x9E3779B97F4A7C15)) ^ facts[i]);
    }
}

uint64_t ps_sim_trace_hash(const struct ps_sim *sim)
{
    return sim->hash;
}

/* ---- nodes ---- */

static struct ps_sim_node *find_node(const struct ps_sim *sim, const char *name)
{
    struct ps_sim_node *node = sim->nodes; /* newest first: the present life of a name */
    while (node != NULL && strcmp(node->name, name) != 0) {
        node = node->next;
    }
    return node;
}

void ps_sim_enter_node(struct ps_sim *sim, const char *name)
{
    if (name == NULL) {
        sim->entered = NULL;
        return;
    }
    struct ps_sim_node *node = find_node(sim, name);
    if (node == NULL || node->killed) {
        node = calloc(1, sizeof(*node));
        if (node == NULL) {
            sim->failed = true;
            return;
        }
        (void)snprintf(node->name, sizeof(node->name), "%s", name);
        node->next = sim->nodes;
        sim->nodes = node;
    }
    sim->entered = node;
}

static struct ps_sim_node *running_node(const struct ps_sim *sim)
{
    return sim->current_program != NULL ? sim->current_program->node
           : sim->current_loop != NULL  ? sim->current_loop->node
                                        : NULL;
}

struct ps_sim_node *ps_sim_owner(struct ps_sim *sim)
{
    struct ps_sim_node *node = running_node(sim);
    return node != NULL ? node : sim->entered;
}

const char *ps_sim_running_node(const struct ps_sim *sim)
{
    const struct ps_sim_node *node = running_node(sim);
    return node == NULL ? NULL : node->name;
}

bool ps_sim_node_is_killed(const struct ps_sim *sim, const char *name)
{
    const struct ps_sim_node *node = find_node(sim, name);
    return node != NULL && node->killed;
}

void ps_sim_kill_node(struct ps_sim *sim, const char *name)
{
    struct ps_sim_node *node = find_node(sim, name);
    if (node == NULL || node->killed) {
        return;
    }
    node->killed = true;
    ps_sim_trace(sim, "kill", ps_hash_bytes(name, strlen(name)), 0);
    for (struct ps_list *link = sim->programs.next; link != &sim->programs;) {
        struct ps_sim_program *program =
            PS_CONTAINER_OF(link, struct ps_sim_program, link);
        link = link->next;
        if (program->node == node) {
            ps_list_remove(&program->link);
            ps_list_push_back(&sim->graves, &program->link);
            sim->live_programs -= program->loop == NULL ? 1 : 0;
        }
    }
    struct ps_sim_program *program = sim->current_program;
    if (program != NULL && program->node == node) {
        sim->running = program->resumer;
        ps_fiber_switch(program->fiber, program->resumer, false);
        assert(false && "a killed program was resumed");
    } else if (program == NULL && sim->current_loop != NULL &&
               sim->current_loop->node == node) {
        struct ps_fiber *runner = sim->runner;
        sim->old_runners[sim->old_runner_count++] = runner;
        sim->runner = NULL;
        sim->handler_killed = true;
        sim->running = &sim->thread;
        ps_fiber_switch(runner, &sim->thread, false);
        assert(false && "a killed handler was resumed");
    }
}

/* ---- programs ---- */

static enum ps_status make_fiber(void (*fn)(void *arg), void *arg,
                                 struct ps_fiber **fiber_out)
{
    struct ps_fiber *fiber = calloc(1, sizeof(*fiber));
    enum ps_status status = fiber == NULL ? PS_ENOMEM : ps_fiber_init(fiber, fn, arg);
    if (status != PS_OK) {
        free(fiber);
        return status;
    }
    *fiber_out = fiber;
    return PS_OK;
}

static void free_fiber(struct ps_fiber *fiber)
{
    ps_fiber_fini(fiber);
    free(fiber);
}

static void program_main(void *arg)
{
    struct ps_sim_program *program = arg;
    program->fn(program->arg);
    program->ended = true;
    program->sim->live_programs--;
    program->sim->running = program->resumer;
    ps_fiber_switch(program->fiber, program->resumer, true);
}

enum ps_status ps_sim_spawn(struct ps_sim *sim, const char *name, void (*fn)(void *arg),
                            void *arg)
{
    struct ps_sim_program *program = sim->failed ? NULL : calloc(1, sizeof(*program));
    if (program == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status = make_fiber(program_main, program, &program->fiber);
    if (status != PS_OK) {
        free(program);
        return status;
    }
    program->sim = sim;
    program->node = ps_sim_owner(sim);
    program->fn = fn;
    program->arg = arg;
    (void)snprintf(program->name, sizeof(program->name), "%s", name);
    ps_list_push_back(&sim->programs, &program->link);
    sim->live_programs++;
    return PS_OK;
}

static void program_free(struct ps_sim_program *program)
{
    ps_list_remove(&program->link);
    free_fiber(program->fiber);
    free(program);
}

static bool program_can_run(const struct ps_sim *sim,
                            const struct ps_sim_program *program)
{
    return (program->deadline_ns <= sim->now_ns ||
            atomic_load_explicit(program->flag, memory_order_acquire));
}

static void program_step(struct ps_sim *sim, struct ps_sim_program *program)
{
    struct ps_fiber *self = sim->running;
    ps_sim_trace(sim, program->name, 1, 0);
    program->deadline_ns = 0;
    program->resumer = self;
    sim->current_program = program;
    sim->current_loop = program->loop;
    sim->running = program->fiber;
    ps_fiber_switch(self, program->fiber, false);
    sim->current_program = NULL;
    sim->current_loop = NULL;
    program->resumer = NULL;
    if (program->ended) {
        program_free(program);
    }
}

/* ---- steps ---- */

static struct ps_sim_loop *loop_at(struct ps_list *link)
{
    return PS_CONTAINER_OF(link, struct ps_sim_loop, link);
}

static struct ps_sim_program *program_at(struct ps_list *link)
{
    return PS_CONTAINER_OF(link, struct ps_sim_program, link);
}

/* Runs the 'index'-th of those that can run, loops first; with SIZE_MAX it only counts.
 */
static size_t visit(struct ps_sim *sim, size_t index)
{
    size_t count = 0;
    for (struct ps_list *l = sim->loops.next; l != &sim->loops; l = l->next) {
        if (ps_sim_loop_can_run(sim, loop_at(l)) && count++ == index) {
            ps_sim_loop_step(sim, loop_at(l));
            return count;
        }
    }
    for (struct ps_list *l = sim->programs.next; l != &sim->programs; l = l->next) {
        if (program_can_run(sim, program_at(l)) && count++ == index) {
            program_step(sim, program_at(l));
            return count;
        }
    }
    return count;
}

/* The next time at which something becomes ready by itself. */
static uint64_t next_time(const struct ps_sim *sim)
{
    uint64_t next = PS_NEVER;
    for (struct ps_list *l = sim->loops.next; l != &sim->loops; l = l->next) {
        const struct ps_sim_loop *loop = loop_at(l);
        if (loop->started && !loop->busy && (loop->node == NULL || !loop->node->killed)) {
            next = PS_MIN(next, ps_timers_next_ns(&loop->timers));
        }
    }
    for (struct ps_list *l = sim->programs.next; l != &sim->programs; l = l->next) {
        next = PS_MIN(next, program_at(l)->deadline_ns);
    }
    return next;
}

/* Steps until what the thread waits for: its flag is set, its time has come, the programs
 * have ended, or nothing can happen any more. */
static void pump(struct ps_sim *sim)
{
    while (!(sim->for_programs ? sim->live_programs == 0
                               : atomic_load_explicit(sim->flag, memory_order_acquire)) &&
           sim->now_ns < sim->deadline_ns) {
        size_t count = visit(sim, SIZE_MAX);
        if (count > 0) {
            (void)visit(sim, (size_t)ps_rng_below(&sim->choice, count));
            sim->now_ns += STEP_NS;
            continue;
        }
        uint64_t next = next_time(sim);
        if (next == PS_NEVER && sim->deadline_ns == PS_NEVER) {
            break;
        }
        sim->now_ns = PS_MAX(sim->now_ns, PS_MIN(next, sim->deadline_ns));
    }
}

static void runner_main(void *arg)
{
    struct ps_sim *sim = arg;
    for (;;) {
        pump(sim);
        sim->running = &sim->thread;
        ps_fiber_switch(sim->runner, &sim->thread, false);
    }
}

static enum ps_status make_runner(struct ps_sim *sim)
{
    /* Room for the day when this one is left behind; killing cannot fail then. */
    struct ps_fiber **old = realloc(sim->old_runners, (sim->old_runner_count + 1) *
                                                          sizeof(struct ps_fiber *));
    if (old == NULL) {
        return PS_ENOMEM;
    }
    sim->old_runners = old;
    return make_fiber(runner_main, sim, &sim->runner);
}

/* From the thread's own stack: lets the world run. */
static enum ps_status enter(struct ps_sim *sim, const _Atomic bool *flag,
                            uint64_t deadline_ns, bool for_programs)
{
    sim->flag = flag;
    sim->deadline_ns = deadline_ns;
    sim->for_programs = for_programs;
    do {
        if (sim->runner == NULL) {
            PS_TRY(make_runner(sim));
        }
        sim->handler_killed = false;
        sim->running = sim->runner;
        ps_fiber_switch(&sim->thread, sim->runner, false);
        if (sim->handler_killed) {
            sim->current_loop = NULL;
            sim->now_ns += STEP_NS;
        }
    } while (sim->handler_killed);
    return PS_OK;
}

/* On the runner, inside a handler: the runner's stack becomes a program that waits, and a
 * new runner steps on. */
static enum ps_status park(struct ps_sim *sim, const _Atomic bool *flag,
                           uint64_t deadline_ns)
{
    struct ps_sim_loop *loop = sim->current_loop;
    struct ps_fiber *stack = sim->runner;
    struct ps_sim_program *program = calloc(1, sizeof(*program));
    if (program == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status = make_runner(sim);
    if (status != PS_OK) {
        free(program);
        return status;
    }
    *program = (struct ps_sim_program){.sim = sim,
                                       .node = loop->node,
                                       .loop = loop,
                                       .fiber = stack,
                                       .flag = flag,
                                       .deadline_ns = deadline_ns};
    (void)snprintf(program->name, sizeof(program->name), "%s", loop->base.name);
    ps_list_push_back(&sim->programs, &program->link);
    loop->parked = program;
    sim->current_loop = NULL;
    sim->running = sim->runner;
    ps_fiber_switch(stack, sim->runner, false);
    return PS_OK;
}

enum ps_status ps_sim_wait(struct ps_sim *sim, const _Atomic bool *flag,
                           uint64_t deadline_ns)
{
    struct ps_sim_program *program = sim->current_program;
    if (program != NULL) {
        program->flag = flag;
        program->deadline_ns = deadline_ns;
        sim->running = program->resumer;
        ps_fiber_switch(program->fiber, program->resumer, false);
    } else if (sim->running == &sim->thread) {
        PS_TRY(enter(sim, flag, deadline_ns, false));
    } else {
        PS_TRY(park(sim, flag, deadline_ns));
    }
    return atomic_load_explicit(flag, memory_order_acquire) ? PS_OK : PS_ETIMEDOUT;
}

/* ---- the front door ---- */

enum ps_status ps_sim_run_programs(struct ps_sim *sim, uint64_t limit_ns)
{
    static const _Atomic bool unused = false;
    uint64_t deadline;
    assert(sim->current_program == NULL && sim->current_loop == NULL);
    if (__builtin_add_overflow(sim->now_ns, limit_ns, &deadline)) {
        deadline = PS_NEVER;
    }
    PS_TRY(enter(sim, &unused, deadline, true));
    return sim->live_programs == 0 ? PS_OK : PS_ETIMEDOUT;
}

void ps_sim_run_for(struct ps_sim *sim, uint64_t ns)
{
    ps_driver_sleep(&sim->driver, ns);
}

enum ps_status ps_sim_create(uint64_t seed, struct ps_sim **sim_out)
{
    struct ps_sim *sim = calloc(1, sizeof(*sim));
    if (sim == NULL) {
        return PS_ENOMEM;
    }
    sim->driver = (struct ps_driver){&ps_sim_driver_ops, &sim->clock, true};
    sim->clock = (struct ps_clock){sim_now_ns, sim_wall_ns};
    sim->now_ns = START_NS;
    ps_rng_init(&sim->rng, seed);
    ps_rng_init(&sim->choice, ps_hash_u64(seed ^ UINT64_C(0x73746570))); /* "step" */
    ps_list_init(&sim->loops);
    ps_list_init(&sim->programs);
    ps_list_init(&sim->graves);
    ps_fiber_adopt(&sim->thread);
    sim->running = &sim->thread;
    *sim_out = sim;
    return PS_OK;
}

static void free_programs(struct ps_list *list)
{
    while (!ps_list_empty(list)) {
        program_free(program_at(list->next));
    }
}

void ps_sim_destroy(struct ps_sim *sim)
{
    if (sim == NULL) {
        return;
    }
    assert(ps_list_empty(&sim->loops));
    free_programs(&sim->programs);
    free_programs(&sim->graves);
    if (sim->runner != NULL) {
        sim->old_runners[sim->old_runner_count++] = sim->runner;
    }
    for (size_t i = 0; i < sim->old_runner_count; i++) {
        free_fiber(sim->old_runners[i]);
    }
    free(sim->old_runners);
    while (sim->nodes != NULL) {
        struct ps_sim_node *node = sim->nodes;
        sim->nodes = node->next;
        free(node);
    }
    free(sim);
}

struct ps_driver *ps_sim_driver(struct ps_sim *sim)
{
    return &sim->driver;
}

struct ps_rng *ps_sim_rng(struct ps_sim *sim)
{
    return &sim->rng;
}

uint64_t ps_sim_now_ns(const struct ps_sim *sim)
{
    return sim->now_ns;
}
