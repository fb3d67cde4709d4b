/* Recomputation: forward values that backward needs are not kept but computed again.
 *
 * The pass runs on a differentiated and placed graph, before memory is planned.  A node
 * that computes again is a FORWARD copy called "<name>_mirror" with 'mirror_of' set, in
 * the second part of the node order, right before the first node there that needs it, on
 * the device of the original.  It reads the copies of its inputs where there are any;
 * backward nodes read the copy's entries.  It must be run with the original's kernel, the
 * same random numbers and without touching auxiliary states: then it is exact.
 *
 * Who may be computed again:
 *   never     variables, Dropout (and what else draws random numbers), nodes whose
 *             auxiliary states another node has too, loss heads, copies between devices
 *   always    where the attribute __force_mirroring__ is true: even a Convolution
 *   BACKWARD_DO_MIRROR=1   all but Convolution, FullyConnected, Concat, SoftmaxOutput and
 *             their like; of these, as many as lower the peak, and no more than that
 *             needs
 *   MEMONGER  Convolution and its like too: "sqrt" looks for the lowest peak that one
 *             more forward can buy, a number of bytes for the least extra work that
 *             stays below it; values that a later part of forward needs stay, so that a
 *             segment is computed again from its border.  __mirror_stage__: where a node
 *             has it, segments end only at nodes that have it ("True").  It decides alone
 *             when both are set, as its choice includes what BACKWARD_DO_MIRROR allows.
 *   Both off and nothing forced: the graph is not touched.
 *
 * The search works on its own simulation of what lives when (mirror_live.c); the memory
 * planner has the last word, and a choice that does not lower its peak is not made.
 * Work is counted in estimated operations, from shapes: two for each multiply-add of a
 * convolution or matrix product, and PS_WORK_ELEMENT for every element that an operator
 * reads or writes. Threads: one at a time for one graph. */
#ifndef PENSTOCK_ENGINE_GRAPH_MIRROR_H
#define PENSTOCK_ENGINE_GRAPH_MIRROR_H

#include "engine/graph/plan_graph.h"

/* Time of touching one f32 in memory over that of one operation in a register, on the
 * machines of today (10 GB/s and 50 GFlop/s of a core); accelerators are alike. */
#define PS_WORK_ELEMENT 16

struct ps_mirror_options {
    bool mirror;          /* BACKWARD_DO_MIRROR */
    const char *memonger; /* MEMONGER: "sqrt", or bytes ("400M", "1Gi"); NULL, "": off */
    /* The oracle: how the graph will be planned; 'effort' is decided here. */
    struct ps_graph_plan_options plan;
    enum ps_plan_layout layout; /* whose bytes count; LIVE: of both the better */
};

struct ps_mirror_report {
    size_t mirrored_count; /* nodes that are computed again */
    size_t plain_bytes;    /* peak of the plan without this pass ... */
    size_t planned_bytes;  /* ... and with its choice */
    double forward_work;   /* of one forward, in estimated operations */
    double extra_work;     /* of the copies */
};

/* Errors: PS_EINVAL (MEMONGER is none of the accepted), PS_ERANGE (a budget that cannot
 * be met: the text says the least that can), PS_ENOMEM; the graph is then as it was.
 * 'report_out' may be NULL. */
PS_MUST_CHECK enum ps_status ps_graph_mirror(struct ps_graph *graph,
                                             const struct ps_mirror_options *options,
                                             struct ps_mirror_report *report_out,
                                             struct ps_error *err);

#endif
