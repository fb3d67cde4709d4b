/* Runs a function on a loop and waits for it: how open and close of things that live on a
 * loop are called from other threads.  Under the simulation, where handlers never run
 * beside their callers, it runs at once, also when the loop's node was killed.
 * Threads: any but inside a handler of another loop; 'loop' runs. */
#ifndef PENSTOCK_BASE_ON_LOOP_H
#define PENSTOCK_BASE_ON_LOOP_H

#include "base/loop.h"

/* Errors: PS_ENOMEM ('fn' did not run). */
PS_MUST_CHECK enum ps_status ps_on_loop(struct ps_loop *loop, void (*fn)(void *arg),
                                        void *arg);

#endif
