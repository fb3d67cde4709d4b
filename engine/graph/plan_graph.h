/* The memory plan of a graph: ps_plan_memory told what operators, devices, colours and
 * scratch there are.  Values are the graph's entries, steps its nodes.
 *
 * A graph may be planned any number of times; it is not changed.  With PS_EFFORT_LIVE a
 * plan costs about the time of walking the graph, so a pass may ask it as an oracle.
 *
 * Threads: one at a time for one graph. */
#ifndef PENSTOCK_ENGINE_GRAPH_PLAN_GRAPH_H
#define PENSTOCK_ENGINE_GRAPH_PLAN_GRAPH_H

#include "engine/graph/graph_ir.h"
#include "engine/graph/plan_memory.h"

struct ps_graph_plan_options {
    bool inplace;       /* an output may take over an input's place */
    bool identity;      /* Reshape, Flatten share with an input that is read later too */
    size_t match_range; /* 0: freed blocks are not used again */
    uint32_t colours;   /* of blocks and of scratch; 0 and 1: one */
    /* Scratch, by forward node: [2n] of the forward of node n, [2n + 1] of its backward;
     * 2 * forward_count numbers, borrowed until return; NULL: none.  A node that computes
     * n again (mirror_of) needs what n needs, so nodes may be added after this was
     * filled. */
    const size_t *workspace_bytes;
    enum ps_plan_effort effort;
};

/* Errors: PS_ENOMEM, PS_ESHAPE (a size beyond what can be addressed). */
PS_MUST_CHECK enum ps_status ps_graph_plan(const struct ps_graph *graph,
                                           const struct ps_graph_plan_options *options,
                                           struct ps_memory_plan *plan_out);

/* What ps_graph_plan gives to ps_plan_memory: entries as values, nodes as steps.  For
 * passes that weigh another order of the same steps.  Borrows the graph's input lists
 * until fini; fini of a zeroed one is fine.  Errors: as ps_graph_plan. */
struct ps_graph_plan_input {
    struct ps_plan_input input;
    struct ps_plan_value *values;
    struct ps_plan_step *steps;
    uint32_t *writes; /* of all steps */
    struct ps_plan_pair *pairs;
};
PS_MUST_CHECK enum ps_status
ps_graph_plan_input_init(struct ps_graph_plan_input *input, const struct ps_graph *graph,
                         const struct ps_graph_plan_options *options);
void ps_graph_plan_input_fini(struct ps_graph_plan_input *input);

/* Only the number: ps_memory_plan_peak of PS_LAYOUT_LIVE, whatever 'effort' says. */
PS_MUST_CHECK enum ps_status
ps_graph_plan_live_peak(const struct ps_graph *graph,
                        const struct ps_graph_plan_options *options, size_t *bytes_out);

/* Gradient sums that are made in place: sets 'adds_into' of the graph's entries (see
 * plan_adds.c); 'options' are those that the graph will be planned with.  Nothing happens
 * without 'inplace'.  '*count_out' gets the number of sums that have nothing to run any
 * more.  Errors: as ps_graph_plan. */
PS_MUST_CHECK enum ps_status
ps_graph_accumulate(struct ps_graph *graph, const struct ps_graph_plan_options *options,
                    size_t *count_out);

/* Colours of the operators so that what can run side by side differs: the path through
 * the graph with the most nodes that count gets colour 0, the path with the most of what
 * is left colour 1, ... the rest the last; at most 'colours'.  'counts': per node; those
 * that do not count get the last colour used.  Returns the number of colours used.
 * Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_graph_colour(const struct ps_graph *graph,
                                             const bool *counts, uint32_t colours,
                                             uint32_t *colour_out, uint32_t *used_out);

/* Devices as the planner's numbers and back. */
uint32_t ps_plan_device(struct ps_context context);
struct ps_context ps_plan_context(uint32_t device);

#endif
