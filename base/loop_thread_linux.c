/* The loop driver of the real world: a thread and an epoll set for each loop.
 *
 * Posting is a push on a lock-free stack; the loop takes the whole stack at once and
 * turns it round, so tasks run in the order their pushes succeeded.  The loop says that
 * it is about to sleep before it looks at the stack a last time; the poster that finds it
 * asleep writes the eventfd, and only that one.  Events are futexes: setting one that
 * nobody waits for is one atomic exchange.
 *
 * Threads: post, quit, doorbells and events any; the rest runs on the loop's own thread.
 */
#include "base/loop.h"

#include "base/event_linux.h"
#include "base/loop_heap.h"
#include "base/loop_ops.h"
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define READY_MAX 64  /* descriptor events taken in one call */
#define BATCH_MAX 256 /* tasks run before timers and descriptors get their turn */

struct loop {
    struct ps_loop base;
    int epoll_fd, wake_fd;
    struct ps_thread thread;
    _Atomic(pthread_t)
        owner; /* whoever runs the loop; 0 = nobody (valid ids are not 0) */

    _Alignas(PS_CACHE_LINE) _Atomic(struct ps_task *) posted; /* newest first */
    _Atomic bool asleep; /* true: the next poster must write wake_fd */

    /* loop thread only */
    _Alignas(PS_CACHE_LINE) struct ps_task *head; /* oldest first */
    struct ps_task **tail;
    struct ps_timers timers;
    struct ps_task quit_task;
    bool leaving;
    size_t watch_count;
    struct epoll_event ready[READY_MAX];
    int ready_count, ready_next;
};

static struct loop *loop_of(const struct ps_loop *loop)
{
    return (struct loop *)(uintptr_t)loop;
}

/* ---- tasks ---- */

static void wake(struct loop *loop)
{
    uint64_t one = 1;
    ssize_t n;
    do {
        n = write(loop->wake_fd, &one, sizeof(one));
    } while (n < 0 && errno == EINTR);
    /* The descriptor is edge-triggered and never read; 2^64 - 2 writes do not happen. */
}

static bool thread_post(struct ps_loop *base, struct ps_task *task)
{
    struct loop *loop = loop_of(base);
    /* acq_rel: pairs with the loop's clearing, so that a task is on the stack once */
    if (atomic_exchange_explicit(&task->queued, true, memory_order_acq_rel)) {
        return false;
    }
    struct ps_task *top = atomic_load_explicit(&loop->posted, memory_order_relaxed);
    do {
        task->next = top;
        /* seq_cst: must be ordered with the load of 'asleep' below; the loop stores
         * 'asleep' and then loads 'posted'.  One of the two sees the other. */
    } while (!atomic_compare_exchange_weak_explicit(
        &loop->posted, &top, task, memory_order_seq_cst, memory_order_relaxed));
    if (atomic_load_explicit(&loop->asleep, memory_order_seq_cst) &&
        atomic_exchange_explicit(&loop->asleep, false, memory_order_seq_cst)) {
        wake(loop);
    }
    return true;
}

/* Moves what was posted behind the tasks taken before, oldest first. */
static void take_posted(struct loop *loop)
{
    struct ps_task *newest =
        atomic_exchange_explicit(&loop->posted, NULL, memory_order_acquire);
    if (newest == NULL) {
        return;
    }
    struct ps_task *oldest = NULL;
    for (struct ps_task *task = newest; task != NULL;) {
        struct ps_task *older = task->next;
        task->next = oldest;
        oldest = task;
        task = older;
    }
    *loop->tail = oldest;
    loop->tail = &newest->next;
}

static void run_tasks(struct loop *loop)
{
    for (int i = 0; i < BATCH_MAX && !loop->leaving; i++) {
        if (loop->head == NULL) {
            take_posted(loop);
        }
        struct ps_task *task = loop->head;
        if (task == NULL) {
            return;
        }
        loop->head = task->next;
        if (loop->head == NULL) {
            loop->tail = &loop->head;
        }
        /* Before the run: it may post the task again, or free it. */
        atomic_store_explicit(&task->queued, false, memory_order_release);
        task->run(task);
    }
}

static void thread_forget(struct ps_loop *base, struct ps_task *task)
{
    struct loop *loop = loop_of(base);
    take_posted(loop);
    for (struct ps_task **link = &loop->head; *link != NULL; link = &(*link)->next) {
        if (*link == task) {
            *link = task->next;
            if (*link == NULL) {
                loop->tail = link;
            }
            atomic_store_explicit(&task->queued, false, memory_order_release);
            return;
        }
    }
}

/* ---- the loop ---- */

static void run_timers(struct loop *loop)
{
    if (loop->timers.count == 0) {
        return;
    }
    /* Timers that a handler starts with no delay wait for the next turn. */
    uint64_t now = ps_clock_now_ns(loop->base.driver->clock);
    uint64_t last_order = loop->timers.next_order;
    struct ps_timer *timer;
    while (!loop->leaving && loop->timers.count > 0 &&
           loop->timers.items[0]->order < last_order &&
           (timer = ps_timers_pop_due(&loop->timers, now)) != NULL) {
        timer->run(timer);
    }
}

/* Waits until 'deadline_ns', rounded to what the kernel can do. */
static int poll_until(struct loop *loop, uint64_t deadline_ns)
{
    if (deadline_ns == PS_NEVER) {
        return epoll_wait(loop->epoll_fd, loop->ready, READY_MAX, -1);
    }
    uint64_t now = deadline_ns == 0 ? 0 : ps_clock_now_ns(loop->base.driver->clock);
    uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    if (left == 0) {
        return epoll_wait(loop->epoll_fd, loop->ready, READY_MAX, 0);
    }
#if defined(SYS_epoll_pwait2)
    struct timespec timeout = {.tv_sec = (time_t)(left / PS_NS_PER_S),
                               .tv_nsec = (long)(left % PS_NS_PER_S)};
    int n = (int)syscall(SYS_epoll_pwait2, loop->epoll_fd, loop->ready, READY_MAX,
                         &timeout, NULL, (size_t)0);
    if (n >= 0 || errno != ENOSYS) {
        return n;
    }
#endif
    uint64_t ms = (left + PS_NS_PER_MS - 1) / PS_NS_PER_MS;
    return epoll_wait(loop->epoll_fd, loop->ready, READY_MAX,
                      ms > INT_MAX ? INT_MAX : (int)ms);
}

static void run_ready(struct loop *loop, int count)
{
    loop->ready_count = count;
    for (loop->ready_next = 0; loop->ready_next < loop->ready_count;) {
        const struct epoll_event *event = &loop->ready[loop->ready_next++];
        struct ps_fd_watch *watch = event->data.ptr;
        if (watch == NULL) {
            continue; /* the wake-up, or unwatched meanwhile */
        }
        unsigned events = 0;
        if ((event->events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) {
            events |= PS_FD_READ;
        }
        if ((event->events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) {
            events |= PS_FD_WRITE;
        }
        watch->run(watch, events);
    }
    loop->ready_count = 0;
}

static void poll_descriptors(struct loop *loop)
{
    uint64_t deadline = 0;
    if (loop->head == NULL) {
        atomic_store_explicit(&loop->asleep, true, memory_order_seq_cst);
        if (atomic_load_explicit(&loop->posted, memory_order_seq_cst) == NULL) {
            deadline = ps_timers_next_ns(&loop->timers);
        }
    }
    if (deadline == 0 && loop->watch_count == 0) {
        atomic_store_explicit(&loop->asleep, false, memory_order_relaxed);
        return; /* nothing but the wake-up could be there, and there is work */
    }
    int n = poll_until(loop, deadline);
    atomic_store_explicit(&loop->asleep, false, memory_order_relaxed);
    assert(n >= 0 || errno == EINTR);
    if (n > 0) {
        run_ready(loop, n);
    }
}

static void loop_body(struct loop *loop)
{
    atomic_store_explicit(&loop->owner, pthread_self(), memory_order_release);
    loop->leaving = false;
    while (!loop->leaving) {
        run_tasks(loop);
        if (!loop->leaving) {
            run_timers(loop);
        }
        if (!loop->leaving) {
            poll_descriptors(loop);
        }
    }
    if (atomic_load_explicit(&loop->quit_task.queued, memory_order_acquire)) {
        thread_forget(&loop->base, &loop->quit_task); /* asked twice */
    }
    atomic_store_explicit(&loop->owner, (pthread_t)0, memory_order_release);
}

static void thread_body(void *arg)
{
    loop_body(arg);
}

static void run_quit(struct ps_task *task)
{
    PS_CONTAINER_OF(task, struct loop, quit_task)->leaving = true;
}

/* ---- lifecycle ---- */

static enum ps_status thread_loop_create(struct ps_driver *driver, const char *name,
                                         struct ps_loop **loop_out)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.ptr = NULL}};
    struct loop *loop = aligned_alloc(PS_CACHE_LINE, sizeof(*loop));
    if (loop == NULL) {
        return PS_ENOMEM;
    }
    *loop = (struct loop){.base = {driver, name}, .epoll_fd = -1, .wake_fd = -1};
    loop->tail = &loop->head;
    loop->quit_task = (struct ps_task){.run = run_quit, .label = "quit"};
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0) {
        goto free_loop;
    }
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->wake_fd < 0) {
        goto close_epoll;
    }
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event) != 0) {
        goto close_wake;
    }
    *loop_out = &loop->base;
    return PS_OK;

close_wake:
    (void)close(loop->wake_fd);
close_epoll:
    (void)close(loop->epoll_fd);
free_loop:
    free(loop);
    return PS_EIO;
}

static void thread_loop_destroy(struct ps_loop *base)
{
    struct loop *loop = loop_of(base);
    assert(!loop->thread.started);
    take_posted(loop);
    while (loop->head != NULL) {
        struct ps_task *task = loop->head;
        loop->head = task->next;
        atomic_store_explicit(&task->queued, false, memory_order_relaxed);
    }
    ps_timers_fini(&loop->timers);
    (void)close(loop->wake_fd);
    (void)close(loop->epoll_fd);
    free(loop);
}

static enum ps_status thread_loop_start(struct ps_loop *base)
{
    struct loop *loop = loop_of(base);
    return ps_thread_start(&loop->thread, base->name, thread_body, loop);
}

static void thread_loop_quit(struct ps_loop *base)
{
    (void)thread_post(base, &loop_of(base)->quit_task);
}

static void thread_loop_stop(struct ps_loop *base)
{
    struct loop *loop = loop_of(base);
    if (!loop->thread.started) {
        return;
    }
    assert(!ps_thread_is_current(&loop->thread));
    thread_loop_quit(base);
    ps_thread_join(&loop->thread);
    thread_forget(base, &loop->quit_task); /* it had left already */
}

static void thread_loop_run(struct ps_loop *base)
{
    loop_body(loop_of(base));
}

static bool thread_is_current(const struct ps_loop *base)
{
    return atomic_load_explicit(&loop_of(base)->owner, memory_order_acquire) ==
           pthread_self();
}

/* ---- timers and descriptors ---- */

static enum ps_status thread_timer_start(struct ps_loop *base, struct ps_timer *timer,
                                         uint64_t delay_ns)
{
    uint64_t deadline;
    if (__builtin_add_overflow(ps_clock_now_ns(base->driver->clock), delay_ns,
                               &deadline)) {
        deadline = PS_NEVER;
    }
    PS_TRY(ps_timers_put(&loop_of(base)->timers, timer, deadline));
    timer->loop = base;
    return PS_OK;
}

static void thread_timer_cancel(struct ps_timer *timer)
{
    ps_timers_remove(&loop_of(timer->loop)->timers, timer);
}

static enum ps_status thread_watch(struct ps_loop *base, struct ps_fd_watch *watch)
{
    struct loop *loop = loop_of(base);
    struct epoll_event event = {.events = 0, .data = {.ptr = watch}};
    event.events |=
        (watch->events & PS_FD_READ) != 0 ? (uint32_t)(EPOLLIN | EPOLLRDHUP) : 0u;
    event.events |= (watch->events & PS_FD_WRITE) != 0 ? (uint32_t)EPOLLOUT : 0u;
    event.events |= (watch->events & PS_FD_EDGE) != 0 ? (uint32_t)EPOLLET : 0u;
    int op = watch->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(loop->epoll_fd, op, watch->fd, &event) != 0) {
        return errno == ENOMEM ? PS_ENOMEM : PS_EIO;
    }
    loop->watch_count += watch->watched ? 0 : 1;
    watch->watched = true;
    return PS_OK;
}

static void thread_unwatch(struct ps_loop *base, struct ps_fd_watch *watch)
{
    struct loop *loop = loop_of(base);
    /* Fails only when the descriptor was closed already, which removed it. */
    (void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    loop->watch_count--;
    watch->watched = false;
    for (int i = loop->ready_next; i < loop->ready_count; i++) {
        if (loop->ready[i].data.ptr == watch) {
            loop->ready[i].data.ptr = NULL;
        }
    }
}

static void thread_sleep(struct ps_driver *driver, uint64_t ns)
{
    (void)driver;
    struct timespec left = {.tv_sec = (time_t)(ns / PS_NS_PER_S),
                            .tv_nsec = (long)(ns % PS_NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
    }
}

/* ---- the driver ---- */

static void thread_driver_destroy(struct ps_driver *driver)
{
    free(driver);
}

static const struct ps_driver_ops thread_ops = {
    .name = "thread",
    .destroy = thread_driver_destroy,
    .loop_create = thread_loop_create,
    .loop_destroy = thread_loop_destroy,
    .loop_start = thread_loop_start,
    .loop_stop = thread_loop_stop,
    .loop_run = thread_loop_run,
    .loop_quit = thread_loop_quit,
    .loop_post = thread_post,
    .loop_is_current = thread_is_current,
    .timer_start = thread_timer_start,
    .timer_cancel = thread_timer_cancel,
    .watch = thread_watch,
    .unwatch = thread_unwatch,
    .forget = thread_forget,
    .event_init = ps_thread_event_init,
    .event_fini = ps_thread_event_fini,
    .event_set = ps_thread_event_set,
    .event_reset = ps_thread_event_reset,
    .event_wait = ps_thread_event_wait,
    .sleep = thread_sleep,
};

enum ps_status ps_thread_driver_create(struct ps_driver **driver_out)
{
    struct ps_driver *driver = calloc(1, sizeof(*driver));
    if (driver == NULL) {
        return PS_ENOMEM;
    }
    driver->ops = &thread_ops;
    driver->clock = ps_clock_real();
    *driver_out = driver;
    return PS_OK;
}
