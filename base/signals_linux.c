/* signalfd on a loop. */
#include "base/signals.h"

#include "base/on_loop.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void signal_set(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGHUP);
}

void ps_signals_block(struct ps_signals *signals)
{
    sigset_t set;
    signal_set(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, &signals->before);
}

void ps_signals_restore(struct ps_signals *signals)
{
    (void)pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
}

static void on_signal(struct ps_fd_watch *watch, unsigned events)
{
    struct ps_signals *signals = PS_CONTAINER_OF(watch, struct ps_signals, watch);
    struct signalfd_siginfo info;
    PS_UNUSED(events);
    while (read(watch->fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        int none = 0;
        if (atomic_compare_exchange_strong(&signals->number, &none,
                                           (int)info.ssi_signo)) {
            signals->heard(signals->ctx, (int)info.ssi_signo);
        }
    }
}

static void watch_on_loop(void *arg)
{
    struct ps_signals *signals = arg;
    signals->status = ps_loop_watch(signals->loop, &signals->watch);
}

static void unwatch_on_loop(void *arg)
{
    struct ps_signals *signals = arg;
    ps_loop_unwatch(signals->loop, &signals->watch);
    (void)close(signals->watch.fd);
}

enum ps_status ps_signals_open(struct ps_signals *signals, struct ps_loop *loop,
                               void (*heard)(void *ctx, int number), void *ctx)
{
    sigset_t set;
    signal_set(&set);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) {
        return PS_EIO;
    }
    signals->watch =
        (struct ps_fd_watch){.run = on_signal, .fd = fd, .events = PS_FD_READ};
    signals->loop = loop;
    signals->heard = heard;
    signals->ctx = ctx;
    enum ps_status status = ps_on_loop(loop, watch_on_loop, signals);
    if (status == PS_OK) {
        status = signals->status;
    }
    if (status != PS_OK) {
        (void)close(fd);
    }
    return status;
}

void ps_signals_close(struct ps_signals *signals)
{
    enum ps_status status = ps_on_loop(signals->loop, unwatch_on_loop, signals);
    while (status !=
           PS_OK) { /* out of memory for an event; the watch refers to 'signals' */
        status = ps_on_loop(signals->loop, unwatch_on_loop, signals);
    }
}
