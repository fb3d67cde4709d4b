/* Threads, locks and conditions on pthreads; denormals; the cores we may use.
 *
 * A failing pthread call on a valid mutex or condition is a bug of ours (misuse), hence
 * the asserts; only thread creation has errors that a caller must handle. */
#include "base/thread.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

static void must(int rc)
{
    assert(rc == 0);
    (void)rc;
}

void ps_mutex_init(struct ps_mutex *mutex)
{
    must(pthread_mutex_init(&mutex->raw, NULL));
}

void ps_mutex_fini(struct ps_mutex *mutex)
{
    must(pthread_mutex_destroy(&mutex->raw));
}

void ps_mutex_lock(struct ps_mutex *mutex) PS_NO_THREAD_SAFETY
{
    must(pthread_mutex_lock(&mutex->raw));
}

bool ps_mutex_try_lock(struct ps_mutex *mutex) PS_NO_THREAD_SAFETY
{
    return pthread_mutex_trylock(&mutex->raw) == 0;
}

void ps_mutex_unlock(struct ps_mutex *mutex) PS_NO_THREAD_SAFETY
{
    must(pthread_mutex_unlock(&mutex->raw));
}

void ps_cond_init(struct ps_cond *cond)
{
    pthread_condattr_t attr;
    must(pthread_condattr_init(&attr));
    must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
    must(pthread_cond_init(&cond->raw, &attr));
    must(pthread_condattr_destroy(&attr));
}

void ps_cond_fini(struct ps_cond *cond)
{
    must(pthread_cond_destroy(&cond->raw));
}

void ps_cond_wait(struct ps_cond *cond, struct ps_mutex *mutex)
{
    must(pthread_cond_wait(&cond->raw, &mutex->raw));
}

bool ps_cond_wait_until(struct ps_cond *cond, struct ps_mutex *mutex,
                        uint64_t deadline_ns)
{
    if (deadline_ns == PS_NEVER) {
        ps_cond_wait(cond, mutex);
        return true;
    }
    struct timespec at = {.tv_sec = (time_t)(deadline_ns / PS_NS_PER_S),
                          .tv_nsec = (long)(deadline_ns % PS_NS_PER_S)};
    int rc = pthread_cond_timedwait(&cond->raw, &mutex->raw, &at);
    assert(rc == 0 || rc == ETIMEDOUT);
    return rc == 0;
}

void ps_cond_signal(struct ps_cond *cond)
{
    must(pthread_cond_signal(&cond->raw));
}

void ps_cond_broadcast(struct ps_cond *cond)
{
    must(pthread_cond_broadcast(&cond->raw));
}

/* What a new thread needs to begin; freed by it. */
struct start {
    void (*fn)(void *arg);
    void *arg;
    char name[16]; /* the kernel's limit, NUL included */
};

static void *thread_main(void *arg)
{
    struct start *start = arg;
    void (*fn)(void *) = start->fn;
    void *fn_arg = start->arg;
    (void)pthread_setname_np(pthread_self(), start->name);
    free(start);
    ps_thread_compute_mode();
    fn(fn_arg);
    return NULL;
}

/* Signals are the main thread's business, except those a fault raises on the spot. */
static void block_signals(sigset_t *before)
{
    static const int synchronous[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                      SIGTRAP, SIGABRT, SIGSYS};
    sigset_t all;
    (void)sigfillset(&all);
    for (size_t i = 0; i < PS_COUNT(synchronous); i++) {
        (void)sigdelset(&all, synchronous[i]);
    }
    must(pthread_sigmask(SIG_BLOCK, &all, before));
}

enum ps_status ps_thread_start(struct ps_thread *thread, const char *name,
                               void (*fn)(void *arg), void *arg)
{
    struct start *start = calloc(1, sizeof(*start));
    if (start == NULL) {
        return PS_ENOMEM;
    }
    start->fn = fn;
    start->arg = arg;
    (void)snprintf(start->name, sizeof(start->name), "%s", name);

    sigset_t before;
    block_signals(&before);
    int rc = pthread_create(&thread->raw, NULL, thread_main, start);
    must(pthread_sigmask(SIG_SETMASK, &before, NULL));
    if (rc != 0) {
        free(start);
        return rc == ENOMEM ? PS_ENOMEM : PS_EAGAIN;
    }
    thread->started = true;
    return PS_OK;
}

void ps_thread_join(struct ps_thread *thread)
{
    if (thread->started) {
        must(pthread_join(thread->raw, NULL));
        thread->started = false;
    }
}

bool ps_thread_is_current(const struct ps_thread *thread)
{
    return thread->started && pthread_equal(thread->raw, pthread_self()) != 0;
}

uint32_t ps_thread_id(void)
{
    static _Atomic uint32_t last; /* numbers only name threads; nothing depends on them */
    static _Thread_local uint32_t id;
    if (id == 0) {
        id = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    }
    return id;
}

uint64_t ps_thread_compute_begin(void)
{
#if defined(__SSE2__)
    unsigned before = _mm_getcsr();
    if ((before & 0x8040u) != 0x8040u) { /* MXCSR: bit 15 FTZ, bit 6 DAZ */
        _mm_setcsr(before | 0x8040u);
    }
    return before;
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | (UINT64_C(1) << 24))); /* FZ */
    return before;
#else
    return 0;
#endif
}

void ps_thread_compute_end(uint64_t before)
{
#if defined(__SSE2__)
    if ((before & 0x8040u) != 0x8040u) {
        _mm_setcsr((unsigned)before);
    }
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
    PS_UNUSED(before);
#endif
}

void ps_thread_compute_mode(void)
{
    (void)ps_thread_compute_begin();
}

/* The cgroup v2 quota in whole cores, rounded up; 0 = no limit or not known.  The file
 * holds "max 100000" or "150000 100000" (microseconds per period). */
static int quota_cores(void)
{
    char text[64];
    int fd = open("/sys/fs/cgroup/cpu.max", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    if (n <= 0) {
        return 0;
    }
    text[n] = '\0';
    char *end;
    errno = 0;
    long long quota = strtoll(text, &end, 10);
    if (end == text || errno != 0 || quota <= 0) {
        return 0;
    }
    long long period = strtoll(end, &end, 10);
    if (errno != 0 || period <= 0) {
        return 0;
    }
    long long cores = quota / period + (quota % period != 0 ? 1 : 0);
    return cores > 4096 ? 4096 : (int)cores;
}

int ps_cpu_count(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int cores = sched_getaffinity(0, sizeof(set), &set) == 0
                    ? CPU_COUNT(&set)
                    : (int)sysconf(_SC_NPROCESSORS_ONLN);
    int quota = quota_cores();
    if (quota > 0 && quota < cores) {
        cores = quota;
    }
    return cores < 1 ? 1 : cores;
}
