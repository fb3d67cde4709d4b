/* The simulated world: every loop of a cluster on one thread, in virtual time.
 *
 * Every step takes 100 ns of virtual time, so that tasks that post each other for ever
 * meet the deadlines too.  At each step the world picks, with its seed, one of the loops
 * that have something ready and runs that loop's next task; when none has, time jumps to
 * the next timer.  Each step is folded into the trace hash (time, loop name, task label),
 * so the same seed gives the same hash. User programs that wait (ps_event_wait,
 * ps_driver_sleep) run as *programs* on stacks of their own (ucontext) and yield to the
 * world while they wait; so do waits in engines and stores. Nodes are killed by name:
 * their loops and programs never run again, what they hold is freed when the test
 * destroys it. Threads: the one thread that created it. */
#ifndef PENSTOCK_BASE_SIM_H
#define PENSTOCK_BASE_SIM_H

#include "base/loop.h"
#include "base/rng.h"

struct ps_sim;

PS_MUST_CHECK enum ps_status ps_sim_create(uint64_t seed, struct ps_sim **sim_out);
void ps_sim_destroy(struct ps_sim *sim); /* all loops must be gone */
struct ps_driver *ps_sim_driver(struct ps_sim *sim);
struct ps_rng *ps_sim_rng(struct ps_sim *sim);
uint64_t ps_sim_trace_hash(const struct ps_sim *sim);
uint64_t ps_sim_now_ns(const struct ps_sim *sim);
/* Folds a fact of the caller's into the trace (a frame's kind and ids, say). */
void ps_sim_trace(struct ps_sim *sim, const char *label, uint64_t a, uint64_t b);

/* Loops and programs created from now on belong to node 'name' (copied); NULL = to
 * nobody.  What a running program or handler of a node creates belongs to that node
 * instead. */
void ps_sim_enter_node(struct ps_sim *sim, const char *name);
/* The node never runs again.  Called by a program or a handler of that very node, it does
 * not return: the world switches away and never comes back.  What it holds, its stack
 * too, stays until the simulation is destroyed.  Entering the name again begins a new
 * life of the node. */
void ps_sim_kill_node(struct ps_sim *sim, const char *name);
bool ps_sim_node_is_killed(const struct ps_sim *sim, const char *name);
/* The node of the program or handler that is running; NULL between steps and for those
 * that belong to nobody. */
const char *ps_sim_running_node(const struct ps_sim *sim);

/* Runs 'fn(arg)' as a program on its own stack (1 MiB); it starts at the next run. */
PS_MUST_CHECK enum ps_status ps_sim_spawn(struct ps_sim *sim, const char *name,
                                          void (*fn)(void *arg), void *arg);
/* Runs until every program has ended (or was killed).  Errors: PS_ETIMEDOUT when
 * 'limit_ns' of virtual time passed or nothing can happen any more while a program still
 * waits. */
PS_MUST_CHECK enum ps_status ps_sim_run_programs(struct ps_sim *sim, uint64_t limit_ns);
/* Runs whatever is due in the next 'ns' of virtual time. */
void ps_sim_run_for(struct ps_sim *sim, uint64_t ns);

#endif
