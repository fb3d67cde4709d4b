/* The placement pass: which device each node runs on, and copies between devices.
 *
 * An operator with a ctx_group runs where that group does; another runs where its first
 * placed input lies; a reverse sweep then puts inputs without a place where the operator
 * that takes them runs; what is left runs on the default device.  Backward follows its
 * forward operator; a gradient of an argument ends where the argument lies.  A value that
 * other devices need is copied once to each of them (PS_NODE_COPY), right before the
 * first that needs it.
 *
 * Threads: one at a time for a graph. */
#ifndef PENSTOCK_ENGINE_GRAPH_PLACE_H
#define PENSTOCK_ENGINE_GRAPH_PLACE_H

#include "engine/graph/executor.h"
#include "engine/graph/graph_ir.h"

struct ps_place {
    struct ps_context context; /* the default */
    const struct ps_context_group *groups;
    size_t group_count; /* 0: everything is on the default device */
    /* Where the variables lie, per argument and per auxiliary state; NULL: the pass
     * decides. */
    const struct ps_context *arguments, *auxiliaries;
};

/* Fills the context of every node that the graph has so far, forward or with gradients.
 * No copies: values may be read on another device.  Errors: PS_EINVAL (a variable's group
 * that is not there), PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_graph_assign(struct ps_graph *graph,
                                             const struct ps_place *place,
                                             struct ps_error *err);

/* ps_graph_assign, then the copies; node numbers change, entry numbers stay.
 * 'copy_count_out' gets their number.  Errors also: PS_EINVAL (an auxiliary state on
 * another device than its operator, by name). */
PS_MUST_CHECK enum ps_status ps_graph_place(struct ps_graph *graph,
                                            const struct ps_place *place,
                                            size_t *copy_count_out, struct ps_error *err);

#endif
