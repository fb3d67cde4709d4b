/* What the files of the simulation share: sim.c (the world and its steps), sim_loop.c
 * (the loop driver on top), sim_fiber.c (stacks). */
#ifndef PENSTOCK_BASE_SIM_PRIVATE_H
#define PENSTOCK_BASE_SIM_PRIVATE_H

#include "base/loop_heap.h"
#include "base/loop_ops.h"
#include "base/queue.h"
#include "base/sim.h"
#include "base/sim_fiber.h"

struct ps_sim_node {
    struct ps_sim_node *next;
    char name[48];
    bool killed;
};

struct ps_sim_loop {
    struct ps_loop base;
    struct ps_list link; /* in sim->loops */
    struct ps_sim_node *node;
    struct ps_task *head; /* oldest first */
    struct ps_task **tail;
    struct ps_timers timers;
    struct ps_task quit_task;
    bool started;
    bool busy;                     /* a handler of it is on some stack */
    struct ps_sim_program *parked; /* the stack of that handler, when it waited */
    _Atomic bool left; /* it ran its quit task; atomic to be waited for like an event */
};

/* Something that can wait on a stack of its own: a program, or a handler that waited. */
struct ps_sim_program {
    struct ps_list link; /* in sim->programs or, once killed, sim->graves */
    struct ps_sim_node *node;
    struct ps_sim_loop *loop; /* the handler's; NULL: a program */
    char name[48];
    void (*fn)(void *arg);
    void *arg;
    struct ps_sim *sim;
    struct ps_fiber *fiber;
    struct ps_fiber *resumer; /* the stack that runs it now; NULL: it does not run */
    const _Atomic bool *flag; /* it waits until this is set, or ... */
    uint64_t deadline_ns;     /* ... this has come; 0 = ready */
    bool ended;
};

struct ps_sim {
    struct ps_driver driver;
    struct ps_clock clock;
    struct ps_rng rng, choice; /* the callers'; the order of steps */
    uint64_t now_ns;
    uint64_t hash;
    struct ps_sim_node *nodes, *entered;
    bool failed; /* out of memory where nobody could be told; creation fails from then on
                  */
    struct ps_list loops, programs;
    size_t live_programs;
    struct ps_list graves; /* killed programs */

    struct ps_fiber thread;        /* the stack of the thread that made the simulation */
    struct ps_fiber *runner;       /* the stack that steps, handlers included */
    struct ps_fiber **old_runners; /* those whose handler was killed */
    size_t old_runner_count;
    struct ps_fiber *running; /* the stack that is running */
    bool handler_killed; /* the runner was left behind; the thread goes on with a new one
                          */
    struct ps_sim_loop *current_loop;
    struct ps_sim_program *current_program;

    /* what the thread waits for */
    const _Atomic bool *flag;
    uint64_t deadline_ns;
    bool for_programs;
};

extern const struct ps_driver_ops ps_sim_driver_ops;

/* Waits, from wherever the caller stands, until '*flag' or 'deadline_ns'.  PS_ETIMEDOUT
 * when the flag is not set in the end: time has passed, or nothing is left to happen. */
PS_MUST_CHECK enum ps_status ps_sim_wait(struct ps_sim *sim, const _Atomic bool *flag,
                                         uint64_t deadline_ns);
/* The node that what is created now belongs to; NULL = nobody's. */
struct ps_sim_node *ps_sim_owner(struct ps_sim *sim);
bool ps_sim_loop_can_run(const struct ps_sim *sim, const struct ps_sim_loop *loop);
/* Runs its next timer or task; does not return when the handler waited, see ps_sim_wait.
 */
void ps_sim_loop_step(struct ps_sim *sim, struct ps_sim_loop *loop);

#endif
