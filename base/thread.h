/* Threads, mutexes and condition variables: pthreads with names, FTZ/DAZ and clang's
 * lock annotations.  The only door to condition waits and thread creation outside the
 * loop drivers.  Every thread started here flushes denormals to zero; a user's own thread
 * that is about to compute calls ps_thread_compute_mode(). Threads: any. */
#ifndef PENSTOCK_BASE_THREAD_H
#define PENSTOCK_BASE_THREAD_H

#include "base/status.h"
#include "base/util.h"

#include <pthread.h>

struct PS_CAPABILITY("mutex") ps_mutex {
    pthread_mutex_t raw;
};

struct ps_cond {
    pthread_cond_t raw; /* on CLOCK_MONOTONIC */
};

struct ps_thread {
    pthread_t raw;
    bool started;
};

void ps_mutex_init(struct ps_mutex *mutex);
void ps_mutex_fini(struct ps_mutex *mutex);
void ps_mutex_lock(struct ps_mutex *mutex) PS_ACQUIRE(mutex);
bool ps_mutex_try_lock(struct ps_mutex *mutex) PS_TRY_ACQUIRE(true, mutex);
void ps_mutex_unlock(struct ps_mutex *mutex) PS_RELEASE(mutex);

void ps_cond_init(struct ps_cond *cond);
void ps_cond_fini(struct ps_cond *cond);
/* Every caller loops on its own condition. */
void ps_cond_wait(struct ps_cond *cond, struct ps_mutex *mutex) PS_REQUIRES(mutex);
/* Returns false when 'deadline_ns' (CLOCK_MONOTONIC) passed. */
bool ps_cond_wait_until(struct ps_cond *cond, struct ps_mutex *mutex,
                        uint64_t deadline_ns) PS_REQUIRES(mutex);
void ps_cond_signal(struct ps_cond *cond);
void ps_cond_broadcast(struct ps_cond *cond);

/* Starts 'fn(arg)' with all signals blocked but the synchronous ones, name 'name' (at
 * most 15 bytes are kept) and FTZ/DAZ on.  Errors: PS_ENOMEM, PS_EAGAIN (thread limit).
 */
PS_MUST_CHECK enum ps_status ps_thread_start(struct ps_thread *thread, const char *name,
                                             void (*fn)(void *arg), void *arg);
/* Waits for the thread's end; does nothing when it was never started. */
void ps_thread_join(struct ps_thread *thread);
bool ps_thread_is_current(const struct ps_thread *thread);
/* A small number, unique among the process's threads that asked, stable for a thread's
 * life. */
uint32_t ps_thread_id(void);
/* Sets flush-to-zero and denormals-are-zero on the calling thread. */
void ps_thread_compute_mode(void);
/* The same for a while, on a thread that is not ours: 'begin' returns what 'end' puts
 * back. */
uint64_t ps_thread_compute_begin(void);
void ps_thread_compute_end(uint64_t before);
/* Cores this process may use (affinity mask and cgroup quota), at least 1. */
int ps_cpu_count(void);

#endif
