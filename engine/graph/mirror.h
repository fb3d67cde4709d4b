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
 *   never     variables, nodes whose auxiliary states another node has too (it may have
 *             changed them), losses, outputs of the graph, copies between devices
 *   always    where the attribute __force_mirroring__ is true, even a Convolution, even
 *             with both settings off; but Dropout
 *   BACKWARD_DO_MIRROR=1   all but Convolution, FullyConnected, Concat, SoftmaxOutput,
 *             Dropout and their like; of these, as many as lower the peak
 *   MEMONGER  these too (the same numbers are drawn again): "sqrt" looks for the lowest
 *             peak that one more forward can buy, a number of bytes for the least extra
 *             work that stays below it.  It decides alone when both are set, as its
 *             choice includes what BACKWARD_DO_MIRROR allows.  The search begins with
 *             borders that cut forward into segments (memonger.c); where nodes have the
 *             attribute __mirror_stage__, these borders are behind nodes that have it.
 *   Hidden outputs that are small (BatchNorm's mean and variance) are kept: that is exact
 *   and costs less than computing the node again for them alone.
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
    enum ps_plan_layout layout; /* whose bytes count; OFFSETS: of both layouts the better,
                                   LIVE: what lives, without a layout */
};

struct ps_mirror_report {  /* zeros where the graph was not touched */
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
