/* Named fault points: places where a test can kill, fail or delay a node.
 *
 *     PS_TRY(PS_FAULT(node, "merge.before_publish"));
 *
 * Off (no fault armed on the node), a point costs one load and a predicted branch. Armed,
 * the n-th passing of the named point fires.  FAULT="merge.before_publish:kill@3" arms
 * one from the environment in tests; the list of all points is kept in
 * base/fault_points.def, so that tests can visit every one. Threads: any. */
#ifndef PENSTOCK_BASE_FAULT_H
#define PENSTOCK_BASE_FAULT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_faults;
struct ps_node;

enum ps_fault_action { PS_FAULT_FAIL, PS_FAULT_KILL, PS_FAULT_DELAY };

struct ps_fault_rule {
    const char *point; /* one of ps_fault_points() */
    enum ps_fault_action
        action;        /* KILL: real: SIGKILL to itself; simulated: ps_sim_kill_node */
    uint64_t nth;      /* 1 = the first passing */
    uint64_t delay_ns; /* DELAY: before going on (virtual time under the simulation) */
};

PS_MUST_CHECK enum ps_status ps_faults_create(struct ps_faults **faults_out);
void ps_faults_destroy(struct ps_faults *faults);
/* Errors: PS_ENOENT (unknown point), PS_ENOMEM.  'point' is matched and not kept. */
PS_MUST_CHECK enum ps_status ps_faults_arm(struct ps_faults *faults,
                                           const struct ps_fault_rule *rule);
/* "point:fail|kill|delay=MS[@N][,...]"; "" arms nothing. */
PS_MUST_CHECK enum ps_status ps_faults_parse(struct ps_faults *faults, const char *spec,
                                             struct ps_error *err);
uint64_t ps_faults_hits(const struct ps_faults *faults, const char *point);
/* All points of fault_points.def; NULL-terminated. */
const char *const *ps_fault_points(void);

/* PS_OK, or PS_EFAULT when a FAIL fired here. */
PS_MUST_CHECK enum ps_status ps_fault_pass(struct ps_node *node, const char *point);
#define PS_FAULT(node, point) ps_fault_pass((node), (point))

#endif
