/* Stacks for the simulation: ucontext, announced to the sanitizers.  Private to sim*.c.
 * Threads: all fibers of a simulation on one. */
#ifndef PENSTOCK_BASE_SIM_FIBER_H
#define PENSTOCK_BASE_SIM_FIBER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <ucontext.h>

struct ps_fiber {
    ucontext_t context;
    void (*fn)(void *arg);
    void *arg;
    void *mapping; /* guard page and stack; NULL: the thread's own stack */
    size_t mapping_bytes;
    struct ps_fiber *from; /* who switched here last */
    /* for the sanitizers: */
    const void *stack_bottom;
    size_t stack_bytes;
    void *fake_stack;
    void *tsan;
};

/* The calling thread's own stack. */
void ps_fiber_adopt(struct ps_fiber *fiber);
/* A stack that will run 'fn(arg)', which must end by switching away with 'ends'. */
PS_MUST_CHECK enum ps_status ps_fiber_init(struct ps_fiber *fiber, void (*fn)(void *arg),
                                           void *arg);
void ps_fiber_fini(struct ps_fiber *fiber); /* not the running one */
/* Leaves 'from' (the running one) for 'to'; returns when somebody switches back.  'ends':
 * nobody will. */
void ps_fiber_switch(struct ps_fiber *from, struct ps_fiber *to, bool ends);

#endif
