/* Laying out the memory of a sequence of steps: who shares with whom, and where.
 *
 * The planner knows values (with bytes), steps that read and write them and may want
 * scratch, and pairs that may share exactly; it does not know operators.  First pairs
 * merge values into groups that live in one place, and the live bytes of every step are
 * known (plan_memory.c).  Then there are two layouts of the groups:
 *
 *   blocks  (plan_block.c)   best fit with a match range, the range swept; a block
 *           belongs to one device and is used again only by the colour that freed it;
 *           scratch lies beside, one workspace for each device and scratch colour.
 *           For lanes that run several operations at a time: each block has an engine
 *           variable of its own.
 *   offsets (plan_offset.c)  one arena; scratch is a value that lives at its step only,
 *           so that what is needed is max(live + scratch) and not max + max.  One
 *           variable for the arena, so it is for a single device that runs one operation
 *           at a time; it is not made for several devices, nor for several colours.
 *
 * Reuse adds no edges: values of one block share an engine variable.
 * Threads: pure functions, any. */
#ifndef PENSTOCK_ENGINE_GRAPH_PLAN_MEMORY_H
#define PENSTOCK_ENGINE_GRAPH_PLAN_MEMORY_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_PLAN_NOWHERE UINT32_MAX

struct ps_plan_value {
    size_t bytes;
    int64_t count; /* elements */
    int dtype;
    uint32_t device; /* where it lies; any number */
    bool external;   /* somebody else's memory: an argument, a gradient */
    bool keep;       /* readable after the last step: an output */
};

struct ps_plan_pair {
    uint32_t from, to; /* values: a read and a write of the step */
    bool identity;     /* 'to' has the bytes of 'from': it may share while 'from' is still
                          read later, as long as nobody overwrites the place */
};

struct ps_plan_step {
    const uint32_t *reads; /* values; one twice counts twice */
    const uint32_t *writes;
    const struct ps_plan_pair *pairs; /* in order of preference */
    uint32_t read_count, write_count, pair_count;
    uint32_t device;         /* of its scratch */
    uint32_t colour;         /* of the blocks that it may use again */
    size_t workspace_bytes;  /* scratch; 0: none */
    uint32_t scratch_colour; /* steps of one share a workspace */
};

/* How far the search goes. */
enum ps_plan_effort {
    PS_EFFORT_FULL, /* every match range, several orders for the offsets */
    PS_EFFORT_ONCE, /* one trial of each layout: the match range itself, offsets by size
                     */
    PS_EFFORT_LIVE  /* no layout: groups and live bytes only; linear in the graph */
};

struct ps_plan_input {
    const struct ps_plan_value *values;
    const struct ps_plan_step *steps;
    size_t value_count, step_count;
    bool inplace;
    size_t match_range; /* 0: freed blocks are not used again */
    enum ps_plan_effort effort;
};

/* Values that live in one place, one after the other (or the same bytes at once). */
struct ps_plan_group {
    size_t bytes;
    size_t first, last; /* steps between which it is alive, both included; last is
                           SIZE_MAX for what is kept */
    uint32_t device;
    bool keep;
    uint32_t block; /* of the best plan with blocks */
    size_t offset;  /* of the plan with offsets; not for what is kept */
};

/* Scratch of the plan with blocks. */
struct ps_plan_workspace {
    uint32_t device, colour;
    size_t bytes;
};

struct ps_memory_plan {
    uint32_t *group_of; /* per value: its group; PS_PLAN_NOWHERE for external values and
                           those no step writes */
    struct ps_plan_group *groups;
    size_t group_count;
    size_t inplace_count;   /* values that took over another's place */
    size_t unplanned_bytes; /* one block for each value */

    /* What lives, whatever the layout: a lower bound of each. */
    size_t *live_bytes;    /* per step: groups alive at it, of all devices */
    size_t *scratch_bytes; /* per step: its scratch */
    uint32_t *colour_of;   /* per step */
    size_t step_count;
    size_t live_peak_bytes; /* the largest live + scratch; the step of it */
    size_t peak_step;

    /* Blocks. */
    size_t *block_bytes;
    uint32_t *block_device;
    size_t block_count;
    size_t total_bytes; /* of the blocks */
    size_t match_range; /* that gave this plan */
    struct ps_plan_workspace *workspaces;
    uint32_t *workspace_of; /* per step: PS_PLAN_NOWHERE without scratch */
    size_t workspace_count;
    size_t workspace_bytes; /* of all of them */

    /* Offsets. */
    size_t *scratch_offset; /* per step with scratch */
    uint32_t arena_device;
    size_t arena_bytes;  /* groups that are not kept, and scratch ... */
    size_t offset_bytes; /* ... and the kept groups beside it; 0: not made */
};

enum ps_plan_layout { PS_LAYOUT_LIVE, PS_LAYOUT_BLOCKS, PS_LAYOUT_OFFSETS };

/* Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_plan_memory(const struct ps_plan_input *input,
                                            struct ps_memory_plan *plan_out);
void ps_memory_plan_fini(struct ps_memory_plan *plan);

/* Bytes that a run needs under a layout, values between operators and scratch together:
 * what `penstock plan` calls peak_bytes.  SIZE_MAX where the layout was not made. */
size_t ps_memory_plan_peak(const struct ps_memory_plan *plan, enum ps_plan_layout layout);
/* The scratch in it: the workspaces, or of the arena what the step of the peak has. */
size_t ps_memory_plan_scratch(const struct ps_memory_plan *plan,
                              enum ps_plan_layout layout);

/* The two layouts; called by ps_plan_memory on the finished groups. */
PS_MUST_CHECK enum ps_status ps_plan_blocks(const struct ps_plan_input *input,
                                            struct ps_memory_plan *plan);
PS_MUST_CHECK enum ps_status ps_plan_offsets(const struct ps_plan_input *input,
                                             struct ps_memory_plan *plan);

/* Offsets and arena sizes are multiples of this, so that kernels find aligned data. */
#define PS_PLAN_ALIGN 64

#endif
