/* Signals of a process that serves, as a descriptor on a loop (signalfd), so that no
 * handler runs on a foreign stack.  SIGTERM, SIGINT and SIGHUP; the first one is
 * reported. Threads: block and restore: main, before other threads start and after they
 * ended; open and close: not on the loop; 'heard' runs on the loop. */
#ifndef PENSTOCK_BASE_SIGNALS_H
#define PENSTOCK_BASE_SIGNALS_H

#include "base/loop.h"

#include <signal.h>

struct ps_signals {
    struct ps_fd_watch watch;
    struct ps_loop *loop;
    void (*heard)(void *ctx, int number);
    void *ctx;
    _Atomic int number; /* of the first signal; 0 = none yet */
    sigset_t before;
    enum ps_status status;
};

/* Blocks the signals for this thread and those it starts; keeps what was before. */
void ps_signals_block(struct ps_signals *signals);
void ps_signals_restore(struct ps_signals *signals);
/* From now on 'heard(ctx, number)' runs once, on 'loop', when a signal comes (or had come
 * since block).  Errors: PS_EIO (no more descriptors), PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_signals_open(struct ps_signals *signals,
                                             struct ps_loop *loop,
                                             void (*heard)(void *ctx, int number),
                                             void *ctx);
void ps_signals_close(struct ps_signals *signals);

#endif
