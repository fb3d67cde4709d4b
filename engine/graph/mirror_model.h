/* What the search for recomputation knows of a graph.  Private to mirror*.c, memonger.c.
 *
 * A choice says of each forward node whether it is computed again.  A schedule is the
 * order of steps that follows from it (mirror_schedule.c); its peak is counted without
 * building a graph (mirror_live.c), in microseconds for a network of some hundred nodes,
 * so that a search can try thousands.  Threads: one at a time. */
#ifndef PENSTOCK_ENGINE_GRAPH_MIRROR_MODEL_H
#define PENSTOCK_ENGINE_GRAPH_MIRROR_MODEL_H

#include "engine/graph/mirror.h"

enum ps_mirror_class {
    PS_MIRROR_KEEP,  /* never again */
    PS_MIRROR_CHEAP, /* BACKWARD_DO_MIRROR may */
    PS_MIRROR_HEAVY, /* MEMONGER may */
    PS_MIRROR_FORCED /* always: __force_mirroring__ */
};

/* A step of a schedule: a node, or its copy. */
#define PS_MIRROR_COPY (UINT32_C(1) << 31)

struct ps_mirror_schedule {
    uint32_t *steps; /* room for every node and a copy of each forward node */
    size_t count, copy_count;
    uint32_t *stack, *next_input; /* of the walk */
    bool *made;                   /* per forward node: its copy is in the schedule */
    bool *replaced; /* per entry: steps of the second part read the copy's instead */
};

/* Counting what lives; values are entries, and entries of copies behind them. */
struct ps_mirror_live {
    uint32_t *references, *group_of; /* per value */
    uint32_t *shared;                /* per group: references of its values */
    size_t *bytes;                   /* per group */
    size_t group_count;
};

struct ps_mirror_model {
    const struct ps_graph *graph;
    struct ps_graph_plan_input plan; /* of the plain graph: an entry is a value, a node a
                                        step */
    size_t forward_count;
    enum ps_mirror_class *class_of; /* per forward node */
    double *work;                   /* per forward node, in estimated operations */
    bool *stays; /* per entry: read from the original even where its node is computed
                    again: outputs of the graph, hidden outputs that cost next to nothing
                  */
    double forward_work;
    bool has_stages; /* some node has __mirror_stage__ */

    struct ps_mirror_schedule schedule; /* of the last choice that was weighed */
    struct ps_mirror_live live;
    size_t tries, tries_max; /* choices weighed so far, and how many may be */
};

struct ps_mirror_choice {
    bool *again; /* per forward node */
    size_t peak_bytes;
    double work; /* of the copies */
    size_t copy_count;
};

/* mirror_model.c.  Errors: PS_ENOMEM, PS_ESHAPE. */
PS_MUST_CHECK enum ps_status
ps_mirror_model_init(struct ps_mirror_model *model, const struct ps_graph *graph,
                     const struct ps_mirror_options *options);
void ps_mirror_model_fini(struct ps_mirror_model *model);
/* Bytes between operators that an entry takes; 0 for somebody else's. */
size_t ps_mirror_entry_bytes(const struct ps_mirror_model *model, uint32_t entry);
/* The node's __mirror_stage__; NULL where there is none, and for "False". */
const char *ps_mirror_stage(const struct ps_mirror_model *model, uint32_t node);

/* mirror_schedule.c */
PS_MUST_CHECK enum ps_status ps_mirror_schedule_init(struct ps_mirror_model *model);
void ps_mirror_schedule_fini(struct ps_mirror_schedule *schedule);
void ps_mirror_schedule_make(struct ps_mirror_model *model, const bool *again);

/* mirror_live.c: fills the choice's numbers. */
PS_MUST_CHECK enum ps_status ps_mirror_live_init(struct ps_mirror_model *model);
void ps_mirror_live_fini(struct ps_mirror_live *live);
void ps_mirror_weigh(struct ps_mirror_model *model, struct ps_mirror_choice *choice);

/* mirror_build.c: the graph with the copies of a choice.  What it replaces is kept, so
 * that a graph that does not plan well can be taken back. */
struct ps_mirror_graph {
    struct ps_graph_node *nodes;
    struct ps_graph_entry *entries;
    size_t node_count, node_capacity, entry_count, entry_capacity;
    const uint32_t *argument_of;
};
PS_MUST_CHECK enum ps_status ps_mirror_build(struct ps_mirror_model *model,
                                             struct ps_graph *graph, const bool *again,
                                             struct ps_mirror_graph *out);
void ps_mirror_exchange(struct ps_graph *graph, struct ps_mirror_graph *other);
void ps_mirror_graph_fini(struct ps_mirror_graph *other);

/* ---- the search ---- */

/* Choices that were found worth keeping; each owns its array. */
struct ps_mirror_archive {
    struct ps_mirror_choice *choices;
    size_t count, capacity;
};
void ps_mirror_archive_fini(struct ps_mirror_archive *archive);

/* mirror_search.c.  A choice of 'model' with nothing but the forced nodes. */
PS_MUST_CHECK enum ps_status ps_mirror_choice_init(const struct ps_mirror_model *model,
                                                   struct ps_mirror_choice *choice);
void ps_mirror_choice_fini(struct ps_mirror_choice *choice);
/* Keeps a copy of 'choice' unless one that is as good in both is there. */
PS_MUST_CHECK enum ps_status ps_mirror_archive_add(const struct ps_mirror_model *model,
                                                   struct ps_mirror_archive *archive,
                                                   const struct ps_mirror_choice *choice);
/* Lowers the peak by changing one node at a time, or moving one border. 'most' is the
 * class that may be computed again. */
PS_MUST_CHECK enum ps_status ps_mirror_tighten(struct ps_mirror_model *model,
                                               enum ps_mirror_class most,
                                               struct ps_mirror_choice *choice);
/* mirror_kind.c: the same, changing all nodes of one kind together. */
PS_MUST_CHECK enum ps_status ps_mirror_tighten_kinds(struct ps_mirror_model *model,
                                                     enum ps_mirror_class most,
                                                     struct ps_mirror_choice *choice);
/* mirror_search.c.  Computes less again, as long as the peak stays at or below 'bytes'.
 */
PS_MUST_CHECK enum ps_status ps_mirror_relax(struct ps_mirror_model *model, size_t bytes,
                                             struct ps_mirror_choice *choice);

/* memonger.c: borders.  The choices that follow from cutting forward wherever more than
 * a threshold of bytes came together, for a row of thresholds. */
PS_MUST_CHECK enum ps_status ps_memonger_cut(struct ps_mirror_model *model,
                                             enum ps_mirror_class most,
                                             struct ps_mirror_archive *archive);

#endif
