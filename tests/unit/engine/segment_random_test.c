/* Random programs of pushes, waits and replays: on every engine they must leave what
 * serial execution leaves, bit for bit, whether segments are replayed or their operations
 * pushed one by one; and nobody may see a variable while another writes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/node.h"
#include "base/rng.h"
#include "base/thread.h"
#include "base/util.h"
#include "engine/engine.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_VARS = 12,
    MAX_OPS = 16,
    MAX_USES = 6,
    SEGMENTS = 2,
    MAX_SEGMENT = 30,
    MAX_STEPS = 40,
    OUT_MAX = 4096
};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(SANITIZED)
enum { PROGRAMS = 150 };
#else
enum { PROGRAMS = 1000 };
#endif

struct world;

struct op {
    struct world *world;
    uint64_t salt;
    int reads[MAX_USES], writes[MAX_USES]; /* as pushed: may name a variable twice */
    int read_count, write_count;
    int only_read[MAX_USES], written[MAX_USES]; /* each once */
    int only_read_count, written_count;
    enum ps_engine_op_kind kind;
    int device, priority;
    bool starts, completes_here, no_skip;
};

enum step_kind { STEP_PUSH, STEP_REPLAY, STEP_WAIT_VAR, STEP_WAIT_ALL };
struct step {
    enum step_kind kind;
    int which;
};

struct program {
    int var_count, op_count, step_count;
    struct op ops[MAX_OPS];
    int segments[SEGMENTS][MAX_SEGMENT];
    int segment_counts[SEGMENTS];
    struct step steps[MAX_STEPS];
    bool fails;
};

/* What operations act on. */
struct world {
    uint64_t values[MAX_VARS];
    _Atomic uint64_t observed; /* of every operation that ran, in no order */
    _Atomic int users[MAX_VARS];
    _Atomic int violations;
    bool fails;
};

enum { WRITER = 1 << 16 };

/* ---- operations ---- */

static bool op_fails(const struct op *op, uint64_t hash)
{
    return op->world->fails && hash % 11 == 0;
}

static enum ps_status op_body(struct op *op, bool upstream)
{
    struct world *world = op->world;
    uint64_t hash = op->salt + upstream;
    for (int i = 0; i < op->only_read_count; i++) {
        int var = op->only_read[i];
        if (atomic_fetch_add(&world->users[var], 1) >= WRITER) {
            atomic_fetch_add(&world->violations, 1);
        }
        hash = ps_hash_u64(hash ^ world->values[var]);
    }
    for (int i = 0; i < op->written_count; i++) {
        int var = op->written[i];
        if (atomic_fetch_add(&world->users[var], WRITER) != 0) {
            atomic_fetch_add(&world->violations, 1);
        }
        hash = ps_hash_u64(hash ^ world->values[var]);
    }
    bool fails = op_fails(op, hash);
    for (int i = 0; i < op->written_count; i++) {
        int var = op->written[i];
        if (!fails) {
            world->values[var] = hash + (uint64_t)i;
        }
        atomic_fetch_sub(&world->users[var], WRITER);
    }
    for (int i = 0; i < op->only_read_count; i++) {
        atomic_fetch_sub(&world->users[op->only_read[i]], 1);
    }
    atomic_fetch_add(&world->observed, hash);
    return fails ? PS_ERANGE : PS_OK;
}

static enum ps_status op_run(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(err);
    return op_body(arg, run->upstream != NULL);
}

/* Completes operations that others started. */
struct completer {
    struct ps_mutex lock;
    struct ps_cond cond;
    struct ps_thread thread;
    struct {
        struct ps_completion *done;
        struct op *op;
        bool upstream;
    } out[OUT_MAX];
    size_t head, tail;
    bool stop;
};
static struct completer completer;

static void completer_main(void *arg)
{
    PS_UNUSED(arg);
    ps_mutex_lock(&completer.lock);
    for (;;) {
        if (completer.head < completer.tail) {
            size_t at = completer.head++ % OUT_MAX;
            struct ps_completion *done = completer.out[at].done;
            struct op *op = completer.out[at].op;
            bool upstream = completer.out[at].upstream;
            ps_mutex_unlock(&completer.lock);
            ps_engine_complete(done, op_body(op, upstream), "by the other thread");
            ps_mutex_lock(&completer.lock);
        } else if (completer.stop) {
            break;
        } else {
            ps_cond_wait(&completer.cond, &completer.lock);
        }
    }
    ps_mutex_unlock(&completer.lock);
}

static void op_start(void *arg, const struct ps_run *run, struct ps_completion *done)
{
    struct op *op = arg;
    bool upstream = run->upstream != NULL;
    bool here = op->completes_here;
    if (!here) {
        ps_mutex_lock(&completer.lock);
        here = completer.tail - completer.head == OUT_MAX;
        if (!here) {
            size_t at = completer.tail++ % OUT_MAX;
            completer.out[at].done = done;
            completer.out[at].op = op;
            completer.out[at].upstream = upstream;
            ps_cond_signal(&completer.cond);
        }
        ps_mutex_unlock(&completer.lock);
    }
    if (here) {
        ps_engine_complete(done, op_body(op, upstream), NULL);
    }
}

/* ---- programs ---- */

static bool has(const int *list, int count, int item)
{
    for (int i = 0; i < count; i++) {
        if (list[i] == item) {
            return true;
        }
    }
    return false;
}

static int below(struct ps_rng *rng, int n)
{
    return (int)ps_rng_below(rng, (uint64_t)n);
}

static void make_op(struct ps_rng *rng, struct op *op, int var_count)
{
    *op = (struct op){.salt = ps_rng_u64(rng)};
    op->read_count = below(rng, MAX_USES);
    op->write_count = below(rng, 4) == 0 ? 0 : 1 + below(rng, 3);
    for (int i = 0; i < op->write_count; i++) {
        int var = op->writes[i] = below(rng, var_count);
        if (!has(op->written, op->written_count, var)) {
            op->written[op->written_count++] = var;
        }
    }
    for (int i = 0; i < op->read_count; i++) {
        int var = op->reads[i] = below(rng, var_count);
        if (!has(op->written, op->written_count, var) &&
            !has(op->only_read, op->only_read_count, var)) {
            op->only_read[op->only_read_count++] = var;
        }
    }
    static const enum ps_engine_op_kind kinds[] = {
        PS_ENGINE_NORMAL,       PS_ENGINE_NORMAL,          PS_ENGINE_NORMAL,
        PS_ENGINE_COPY_TO_GPU,  PS_ENGINE_CPU_PRIORITIZED, PS_ENGINE_CPU_PRIORITIZED,
        PS_ENGINE_COPY_FROM_GPU};
    op->kind = kinds[below(rng, (int)PS_COUNT(kinds))];
    op->starts = below(rng, 8) == 0;
    if (op->starts && below(rng, 2) == 0) {
        op->kind = PS_ENGINE_ASYNC;
    }
    op->completes_here = below(rng, 2) == 0;
    op->device = below(rng, 4) == 0;
    op->priority = below(rng, 5) - 2;
    op->no_skip = below(rng, 6) == 0;
}

static void make_program(uint64_t seed, struct program *program)
{
    struct ps_rng rng;
    ps_rng_init(&rng, seed);
    program->fails = seed % 3 == 0;
    program->var_count = 1 + below(&rng, MAX_VARS);
    program->op_count = 1 + below(&rng, MAX_OPS);
    for (int i = 0; i < program->op_count; i++) {
        make_op(&rng, &program->ops[i], program->var_count);
    }
    for (int s = 0; s < SEGMENTS; s++) {
        program->segment_counts[s] = 1 + below(&rng, MAX_SEGMENT);
        for (int i = 0; i < program->segment_counts[s]; i++) {
            program->segments[s][i] = below(&rng, program->op_count);
        }
    }
    program->step_count = 1 + below(&rng, MAX_STEPS);
    for (int i = 0; i < program->step_count; i++) {
        int dice = below(&rng, 20);
        struct step *step = &program->steps[i];
        if (dice < 9) {
            *step = (struct step){STEP_PUSH, below(&rng, program->op_count)};
        } else if (dice < 18) {
            *step = (struct step){STEP_REPLAY, below(&rng, SEGMENTS)};
        } else if (dice == 18 && !program->fails) {
            /* with failures, what a wait clears depends on who runs meanwhile */
            *step = (struct step){STEP_WAIT_VAR, below(&rng, program->var_count)};
        } else {
            *step = (struct step){STEP_WAIT_ALL, 0};
        }
    }
}

/* ---- serial execution ---- */

struct serial {
    struct world world;
    uint64_t versions[MAX_VARS];
    bool spoiled[MAX_VARS];
    bool failed; /* since the last wait */
};

static void serial_op(struct serial *serial, struct op *op)
{
    bool upstream = false;
    for (int i = 0; i < op->only_read_count; i++) {
        upstream |= serial->spoiled[op->only_read[i]];
    }
    for (int i = 0; i < op->written_count; i++) {
        upstream |= serial->spoiled[op->written[i]];
    }
    bool fails = upstream;
    if (!upstream || op->no_skip) {
        op->world = &serial->world;
        fails = op_body(op, upstream) != PS_OK;
        serial->failed |= fails;
    }
    for (int i = 0; i < op->written_count; i++) {
        serial->spoiled[op->written[i]] |= fails;
        serial->versions[op->written[i]]++;
    }
}

/* ---- the engine ---- */

struct machine {
    struct ps_engine *engine;
    struct program *program;
    struct ps_var *vars[MAX_VARS];
    struct ps_engine_call *calls[MAX_OPS];
    struct ps_segment *segments[SEGMENTS];
    struct world world;
    bool replays; /* else their operations are pushed one by one */
};

static void machine_open(struct machine *machine)
{
    const struct program *program = machine->program;
    for (int i = 0; i < program->var_count; i++) {
        assert_int_equal(ps_var_create(machine->engine, &machine->vars[i]), PS_OK);
    }
    for (int i = 0; i < program->op_count; i++) {
        struct op *op = &machine->program->ops[i];
        struct ps_var *reads[MAX_USES], *writes[MAX_USES];
        for (int k = 0; k < op->read_count; k++) {
            reads[k] = machine->vars[op->reads[k]];
        }
        for (int k = 0; k < op->write_count; k++) {
            writes[k] = machine->vars[op->writes[k]];
        }
        struct ps_engine_op prepared = {
            .name = "random",
            .run = op->starts ? NULL : op_run,
            .start = op->starts ? op_start : NULL,
            .arg = op,
            .reads = reads,
            .read_count = (size_t)op->read_count,
            .writes = writes,
            .write_count = (size_t)op->write_count,
            .context = PS_CPU(op->device),
            .kind = op->kind,
            .priority = op->priority,
            .no_skip = op->no_skip,
        };
        assert_int_equal(
            ps_engine_call_create(machine->engine, &prepared, &machine->calls[i]), PS_OK);
    }
    for (int s = 0; s < SEGMENTS; s++) {
        struct ps_engine_call *calls[MAX_SEGMENT];
        for (int i = 0; i < program->segment_counts[s]; i++) {
            calls[i] = machine->calls[program->segments[s][i]];
        }
        assert_int_equal(ps_segment_create(machine->engine, calls,
                                           (size_t)program->segment_counts[s],
                                           &machine->segments[s]),
                         PS_OK);
    }
}

static void machine_close(struct machine *machine)
{
    for (int s = 0; s < SEGMENTS; s++) {
        ps_segment_destroy(machine->segments[s]);
    }
    for (int i = 0; i < machine->program->op_count; i++) {
        ps_engine_call_destroy(machine->calls[i]);
    }
    for (int i = 0; i < machine->program->var_count; i++) {
        ps_var_delete(machine->engine, machine->vars[i]);
    }
}

static void machine_replay(struct machine *machine, int which)
{
    if (machine->replays) {
        assert_int_equal(ps_segment_push(machine->segments[which]), PS_OK);
        return;
    }
    for (int i = 0; i < machine->program->segment_counts[which]; i++) {
        int op = machine->program->segments[which][i];
        assert_int_equal(ps_engine_call_push(machine->calls[op]), PS_OK);
    }
}

static void check_all(const struct machine *machine, struct serial *serial)
{
    for (int i = 0; i < machine->program->var_count; i++) {
        assert_int_equal(machine->world.values[i], serial->world.values[i]);
        assert_int_equal(ps_var_version(machine->vars[i]), serial->versions[i]);
        serial->spoiled[i] = false;
    }
    assert_int_equal(machine->world.observed, serial->world.observed);
    serial->failed = false;
}

static void run_step(struct machine *machine, struct serial *serial,
                     const struct step *step)
{
    struct ps_error err = {.status = PS_OK};
    enum ps_status status;
    switch (step->kind) {
    case STEP_PUSH:
        assert_int_equal(ps_engine_call_push(machine->calls[step->which]), PS_OK);
        break;
    case STEP_REPLAY:
        machine_replay(machine, step->which);
        break;
    case STEP_WAIT_VAR:
        status = ps_engine_wait_var(machine->engine, machine->vars[step->which], &err);
        assert_int_equal(status, PS_OK);
        assert_int_equal(machine->world.values[step->which],
                         serial->world.values[step->which]);
        assert_int_equal(ps_var_version(machine->vars[step->which]),
                         serial->versions[step->which]);
        break;
    default:
        status = ps_engine_wait_all(machine->engine, &err);
        assert_int_equal(status, serial->failed ? PS_ERANGE : PS_OK);
        assert_int_equal(ps_engine_pending(machine->engine), 0);
        check_all(machine, serial);
        break;
    }
}

static void serial_step(struct serial *serial, struct program *program,
                        const struct step *step)
{
    if (step->kind == STEP_PUSH) {
        serial_op(serial, &program->ops[step->which]);
    } else if (step->kind == STEP_REPLAY) {
        for (int i = 0; i < program->segment_counts[step->which]; i++) {
            serial_op(serial, &program->ops[program->segments[step->which][i]]);
        }
    }
}

static void run_program(struct ps_engine *engine, uint64_t seed, bool replays)
{
    static struct program program, model;
    struct machine machine = {.engine = engine, .program = &program, .replays = replays};
    struct serial serial = {.failed = false};
    memset(&program, 0, sizeof(program));
    make_program(seed, &program);
    model = program; /* each has its own world */
    machine.world.fails = serial.world.fails = program.fails;
    for (int i = 0; i < program.op_count; i++) {
        program.ops[i].world = &machine.world;
    }
    machine_open(&machine);
    for (int i = 0; i < program.step_count; i++) {
        serial_step(&serial, &model, &program.steps[i]);
        run_step(&machine, &serial, &program.steps[i]);
    }
    if (seed % 2 == 0) { /* everything may go while replays are in flight */
        machine_close(&machine);
    }
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_engine_wait_all(engine, &err), serial.failed ? PS_ERANGE : PS_OK);
    if (seed % 2 != 0) {
        check_all(&machine, &serial);
        machine_close(&machine);
        assert_int_equal(ps_engine_wait_all(engine, NULL), PS_OK);
    }
    assert_int_equal(machine.world.violations, 0);
    assert_memory_equal(machine.world.values, serial.world.values,
                        sizeof(serial.world.values));
}

static void run_programs(enum ps_engine_type type)
{
    static const char *const overrides[] = {"LOG=error", "CPU_WORKER_NTHREADS=3",
                                            "CPU_PRIORITY_NTHREADS=2",
                                            "ENGINE_MAX_INFLIGHT=200", NULL};
    static const char *const no_env[] = {NULL};
    struct ps_node_options options = {
        .name = "random", .env = no_env, .overrides = overrides};
    struct ps_error err = {.status = PS_OK};
    struct ps_node *node;
    struct ps_engine *engine;
    assert_int_equal(ps_node_open(&options, &node, &err), PS_OK);
    assert_int_equal(ps_engine_create(node, (int)type, &engine, &err), PS_OK);
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        run_program(engine, seed, true);
        run_program(engine, seed, false);
    }
    ps_engine_destroy(engine);
    ps_node_close(node);
}

static void random_programs_on_the_naive_engine_are_serial(void **state)
{
    PS_UNUSED(state);
    run_programs(PS_ENGINE_NAIVE);
}

static void random_programs_on_the_pooled_engine_are_as_serial(void **state)
{
    PS_UNUSED(state);
    run_programs(PS_ENGINE_POOLED);
}

static void random_programs_on_the_per_device_engine_are_as_serial(void **state)
{
    PS_UNUSED(state);
    run_programs(PS_ENGINE_PER_DEVICE);
}

static int start_completer(void **state)
{
    PS_UNUSED(state);
    ps_mutex_init(&completer.lock);
    ps_cond_init(&completer.cond);
    return ps_thread_start(&completer.thread, "completer", completer_main, NULL) == PS_OK
               ? 0
               : -1;
}

static int stop_completer(void **state)
{
    PS_UNUSED(state);
    ps_mutex_lock(&completer.lock);
    completer.stop = true;
    ps_cond_signal(&completer.cond);
    ps_mutex_unlock(&completer.lock);
    ps_thread_join(&completer.thread);
    ps_cond_fini(&completer.cond);
    ps_mutex_fini(&completer.lock);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_on_the_naive_engine_are_serial),
        cmocka_unit_test(random_programs_on_the_pooled_engine_are_as_serial),
        cmocka_unit_test(random_programs_on_the_per_device_engine_are_as_serial),
    };
    return cmocka_run_group_tests_name("segment_random", tests, start_completer,
                                       stop_completer);
}
