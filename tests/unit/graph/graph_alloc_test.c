/* A step allocates nothing: malloc and its like are counted while warm executors run.
 * Skipped where a sanitizer has the allocator. */
#include "tests/unit/graph/graph_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define COUNTS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define COUNTS 0
#endif
#endif
#ifndef COUNTS
#define COUNTS 1
#endif

#if COUNTS
/* glibc's own, behind the names that this program takes over */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *ptr, size_t size);
extern void *__libc_memalign(size_t align, size_t size);

static _Atomic uint64_t allocations;

void *malloc(size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, size);
}

void *realloc(void *ptr, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(ptr, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(align, size);
}

static void hold(void *arg, const struct ps_run *run, struct ps_completion *done)
{
    (void)run;
    *(struct ps_completion **)arg = done;
}

enum { AHEAD = 4 }; /* steps pushed before a wait */

/* Steps that are all pushed before the first of them can begin: as many operations as
 * there will ever be under way. */
static void warm(const struct graph_world *world, struct ps_executor *executor,
                 bool training)
{
    struct ps_completion *done = NULL;
    struct ps_var *data = ps_tensor_var(ps_executor_find_argument(executor, "data"));
    struct ps_engine_op gate = {.name = "gate",
                                .start = hold,
                                .arg = &done,
                                .writes = &data,
                                .write_count = 1,
                                .kind = PS_ENGINE_ASYNC};
    assert_int_equal(ps_engine_wait_all(world->engine, NULL), PS_OK);
    bool naive = ps_engine_type(world->engine) == PS_ENGINE_NAIVE; /* runs in the push */
    if (!naive) {
        assert_int_equal(ps_engine_push(world->engine, &gate), PS_OK);
    }
    for (int i = 0; i < AHEAD; i++) {
        run_step(executor, training);
    }
    if (!naive) {
        ps_engine_complete(done, PS_OK, NULL);
    }
    assert_int_equal(ps_engine_wait_all(world->engine, NULL), PS_OK);
}

static uint64_t allocated_by_steps(int engine, int bulk, int replay, bool training)
{
    struct graph_world world;
    world_open(&world, engine, "USE_ONEDNN=0"); /* a library's own are not ours */
    struct ps_symbol *lenet = small_lenet();
    struct ps_named_shape shape = {"data", PS_SHAPE(4, 1, 12, 12)};
    struct ps_simple_bind bind = {.shapes = &shape,
                                  .shape_count = 1,
                                  .req = training ? PS_GRAD_WRITE : PS_GRAD_NULL};
    struct ps_bind_options options = world_options(&world);
    struct ps_executor *executor = NULL;
    struct ps_error err = {0};
    options.bulk = bulk;
    options.replay = replay;
    assert_int_equal(ps_executor_simple_bind(lenet, &options, &bind, &executor, &err),
                     PS_OK);
    fill_parameters(executor, 4, 0.3f);
    warm(&world, executor, training); /* captures, and */
    warm(&world, executor, training); /* replays */
    uint64_t before = atomic_load(&allocations);
    for (int i = 0; i < 5 * AHEAD; i++) {
        run_step(executor, training);
        if (i % AHEAD == AHEAD - 1) {
            assert_int_equal(ps_engine_wait_all(world.engine, NULL), PS_OK);
        }
    }
    assert_true(before > 0); /* of the bind: they are counted */
    uint64_t made = atomic_load(&allocations) - before;
    ps_executor_destroy(executor);
    ps_symbol_release(lenet);
    world_close(&world);
    return made;
}

static void a_warm_step_allocates_nothing(void **state)
{
    (void)state;
    static const int engines[] = {PS_ENGINE_NAIVE, PS_ENGINE_POOLED,
                                  PS_ENGINE_PER_DEVICE};
    for (size_t e = 0; e < PS_COUNT(engines); e++) {
        for (int way = 0; way < 8; way++) {
            uint64_t made = allocated_by_steps(engines[e], way & 1 ? -1 : 0,
                                               way & 2 ? -1 : 0, (way & 4) != 0);
            if (made != 0) {
                fail_msg("engine %d, bulk %d, replay %d, training %d: %llu allocations",
                         engines[e], way & 1, (way & 2) >> 1, (way & 4) >> 2,
                         (unsigned long long)made);
            }
        }
    }
}
#else
static void a_warm_step_allocates_nothing(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_warm_step_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
