/* Laying out the memory of a sequence of steps: who shares with whom, and where.
 *
 * The planner knows values (with bytes), steps that read and write them, and pairs that
 * may share exactly; it does not know operators.  First in-place pairs merge values into
 * groups that live in one place (plan_memory.c); then the groups get blocks, best fit
 * with a match range, the range swept (plan_block.c); beside it offsets in one arena
 * (plan_offset.c).  Reuse adds no edges: values of one block share an engine variable.
 *
 * Refinements to come have their place here: colours (a group may reuse only what its
 * colour freed), devices (blocks of one device). Threads: pure functions, any. */
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
    bool external; /* somebody else's memory: an argument, a gradient */
    bool keep;     /* readable after the last step: an output */
};

struct ps_plan_pair {
    uint32_t from, to; /* values: a read and a write of the step */
};

struct ps_plan_step {
    const uint32_t *reads; /* values; one twice counts twice */
    const uint32_t *writes;
    const struct ps_plan_pair *pairs; /* in order of preference */
    uint32_t read_count, write_count, pair_count;
};

struct ps_plan_input {
    const struct ps_plan_value *values;
    const struct ps_plan_step *steps;
    size_t value_count, step_count;
    bool inplace;
    size_t match_range; /* 0: freed blocks are not used again */
};

/* Values that live in one place, one after the other. */
struct ps_plan_group {
    size_t bytes;
    size_t first, last; /* steps between which it is alive, both included; last is
                           SIZE_MAX for what is kept */
    bool keep;
    uint32_t block; /* of the best plan with blocks */
    size_t offset;  /* of the plan with offsets; not for what is kept */
};

struct ps_memory_plan {
    uint32_t *group_of; /* per value: its group; PS_PLAN_NOWHERE for external values and
                           those no step writes */
    struct ps_plan_group *groups;
    size_t group_count;
    size_t *block_bytes;
    size_t block_count;
    size_t total_bytes;     /* of the blocks */
    size_t unplanned_bytes; /* one block for each value */
    size_t inplace_count;   /* values that took over another's place */
    size_t match_range;     /* that gave this plan */
    size_t arena_bytes;     /* plan with offsets: the arena ... */
    size_t offset_bytes;    /* ... and the kept groups beside it; 0: not made */
};

/* Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_plan_memory(const struct ps_plan_input *input,
                                            struct ps_memory_plan *plan_out);
void ps_memory_plan_fini(struct ps_memory_plan *plan);

/* The two layouts; called by ps_plan_memory on the finished groups. */
PS_MUST_CHECK enum ps_status ps_plan_blocks(const struct ps_plan_input *input,
                                            struct ps_memory_plan *plan);
PS_MUST_CHECK enum ps_status ps_plan_offsets(struct ps_memory_plan *plan);

/* Offsets and arena sizes are multiples of this, so that kernels find aligned data. */
#define PS_PLAN_ALIGN 64

#endif
