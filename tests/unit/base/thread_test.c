/* Threads: names, signals, denormals, conditions with deadlines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

struct seen {
    char name[32];
    bool blocks_int, blocks_segv, current;
    volatile float denormal;
    uint32_t id, id_again;
    struct ps_thread thread;
};

static void look(void *arg)
{
    struct seen *seen = arg;
    sigset_t mask;
    (void)pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
    (void)pthread_sigmask(SIG_BLOCK, NULL, &mask);
    seen->blocks_int = sigismember(&mask, SIGINT) == 1;
    seen->blocks_segv = sigismember(&mask, SIGSEGV) == 1;
    volatile float tiny = 1e-38f;
    seen->denormal = tiny * 0.01f;
    seen->id = ps_thread_id();
    seen->id_again = ps_thread_id();
}

static void a_thread_has_its_name_blocks_signals_and_flushes_denormals(void **state)
{
    struct seen seen = {.denormal = 1};
    sigset_t before, after;
    (void)state;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &before);
    assert_int_equal(
        ps_thread_start(&seen.thread, "a-name-that-is-too-long", look, &seen), PS_OK);
    assert_false(ps_thread_is_current(&seen.thread));
    ps_thread_join(&seen.thread);
    ps_thread_join(&seen.thread);
    (void)pthread_sigmask(SIG_BLOCK, NULL, &after);
    assert_string_equal(seen.name, "a-name-that-is-");
    assert_true(seen.blocks_int);
    assert_false(seen.blocks_segv);
    assert_int_equal(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
    assert_int_equal(seen.id, seen.id_again);
    assert_int_not_equal(seen.id, ps_thread_id());
#if defined(__SSE2__) || defined(__aarch64__)
    assert_true(seen.denormal == 0);
#endif
}

static void the_callers_thread_may_flush_too(void **state)
{
    (void)state;
    volatile float tiny = 1e-38f;
    ps_thread_compute_mode();
    volatile float product = tiny * 0.01f;
#if defined(__SSE2__) || defined(__aarch64__)
    assert_true(product == 0);
#endif
    (void)product;
}

static void a_condition_wait_ends_at_its_deadline(void **state)
{
    struct ps_mutex mutex;
    struct ps_cond cond;
    (void)state;
    ps_mutex_init(&mutex);
    ps_cond_init(&cond);
    ps_mutex_lock(&mutex);
    uint64_t deadline = ps_clock_now_ns(ps_clock_real()) + 2 * PS_NS_PER_MS;
    while (ps_cond_wait_until(&cond, &mutex, deadline)) {
    }
    assert_true(ps_clock_now_ns(ps_clock_real()) >= deadline);
    assert_false(ps_mutex_try_lock(&mutex));
    ps_mutex_unlock(&mutex);
    ps_cond_fini(&cond);
    ps_mutex_fini(&mutex);
}

static void there_is_at_least_one_core(void **state)
{
    (void)state;
    assert_in_range(ps_cpu_count(), 1, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_has_its_name_blocks_signals_and_flushes_denormals),
        cmocka_unit_test(a_condition_wait_ends_at_its_deadline),
        cmocka_unit_test(there_is_at_least_one_core),
        cmocka_unit_test(the_callers_thread_may_flush_too),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
