/* A whole job in this process, for tests: one scheduler, S servers, W workers, each a
 * node of its own, over tcp, ipc, inproc or the simulated network.
 *
 * Real transports: every worker's program runs on a thread of its own.  "sim": everything
 * runs on the calling thread in virtual time, workers as programs of the simulation.
 * Threads: create, run, destroy on one thread. */
#ifndef PENSTOCK_TESTS_SUPPORT_CLUSTER_H
#define PENSTOCK_TESTS_SUPPORT_CLUSTER_H

#include "base/node.h"
#include "base/sim.h"
#include "net/net.h"

struct cluster;

struct cluster_options {
    const char *transport; /* "tcp", "ipc", "inproc", "sim" */
    uint32_t workers, servers;
    uint64_t seed; /* of the simulation and of every node */
    const char *const
        *settings; /* NULL-terminated "NAME=value" for all nodes; NULL = none */
    const struct ps_net_weather *weather; /* sim; NULL = none */
    bool keep_log; /* collect what the nodes log; see cluster_log */
};

/* Opens scheduler and servers.  Asserts (cmocka) on failure. */
struct cluster *cluster_create(const struct cluster_options *options);
void cluster_destroy(struct cluster *cluster);

/* Sim: instead of cluster_end and cluster_destroy, after the node 'killed' was killed (or
 * lived on): frees what the living hold. */
void cluster_abandon(struct cluster *cluster, const char *killed);

typedef void (*cluster_program)(struct cluster *cluster, struct ps_node *node,
                                uint32_t index, void *arg);
/* Runs 'program' once for each worker, each with a node of its own, and returns when all
 * are back (sim: or killed).  'arg' is shared.  Sim: false when the world stood still or
 * 'limit_s' virtual seconds passed. */
bool cluster_run(struct cluster *cluster, cluster_program program, void *arg,
                 unsigned limit_s);
/* Waits until scheduler and servers have ended (all workers must have left). */
void cluster_end(struct cluster *cluster);

struct ps_sim *cluster_sim(struct cluster *cluster); /* NULL unless "sim" */
struct ps_net_world *cluster_world(struct cluster *cluster);
const char *cluster_root(const struct cluster *cluster); /* the scheduler's url */
/* All lines so far, one string; "" without keep_log. */
const char *cluster_log(struct cluster *cluster);
/* The node of a server or the scheduler, to arm faults on. */
struct ps_node *cluster_server_node(struct cluster *cluster, uint32_t rank);
struct ps_node *cluster_scheduler_node(struct cluster *cluster);
/* How scheduler and servers ended: PS_OK or the error; after cluster_end. */
struct ps_error cluster_scheduler_result(const struct cluster *cluster);
struct ps_error cluster_server_result(const struct cluster *cluster, uint32_t rank);

#endif
