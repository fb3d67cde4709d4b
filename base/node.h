/* A node: everything that would otherwise be a global.  One for each member of a job; a
 * process usually has one, a simulated cluster has many. Threads: opened and closed on
 * one; the fields are constant in between except as said. */
#ifndef PENSTOCK_BASE_NODE_H
#define PENSTOCK_BASE_NODE_H

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/rng.h"
#include "base/settings.h"
#include "base/trace.h"

struct ps_sim;

struct ps_node {
    char name[32];            /* "worker/3"; "node" until the rank is known */
    struct ps_driver *driver; /* thread driver of its own, or the simulation's */
    struct ps_clock *clock;
    struct ps_fs *fs;
    struct ps_log *log;
    struct ps_settings *settings;
    struct ps_faults *faults;
    struct ps_trace *trace;
    struct ps_loop *loop; /* the node's control loop: scheduler link, timers; started */
    struct ps_sim *sim;   /* NULL in the real world */
    char sim_name[32]; /* the simulation's name of this node: the one it was opened under
                        */
    void *net_world; /* the simulated or in-process network this node is on; see net/net.h
                      */
    void *kvstore; /* the membership that the node's dist stores share; kvstore/dist.c */
    uint64_t seed; /* from RANDOM_SEED, else from the kernel; constant in a simulation */
    bool owns_driver;
};

struct ps_node_options {
    const char *name;             /* NULL = "node" */
    const char *const *env;       /* as ps_settings_load */
    const char *const *overrides; /* as ps_settings_load */
    struct ps_sim *sim;           /* keeps a borrow; NULL = the real world */
    struct ps_fs *fs;             /* keeps a borrow; NULL = the real files */
    void *net_world;              /* keeps a borrow; NULL = real sockets only */
    void (*log_sink)(void *arg, const char *line, size_t size);
    void *log_sink_arg;
    int log_fd; /* 0 = stderr */
};

/* Opens settings, log, faults and the control loop.  Errors as ps_settings_load;
 * PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_node_open(const struct ps_node_options *options,
                                          struct ps_node **node_out,
                                          struct ps_error *err);
void ps_node_close(struct ps_node *node); /* NULL is fine */
/* Sets name and log prefix, once the rank is known. */
void ps_node_set_name(struct ps_node *node, const char *name);

#endif
