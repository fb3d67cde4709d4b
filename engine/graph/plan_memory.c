/* Liveness and in-place sharing.
 *
 * A value's references are the reads of it, and one more when it is kept; a group's are
 * those of its values.  At a step an output takes over the place of an input iff this is
 * the last reference to the whole group, both are internal and on one device, and element
 * count and type are equal.  A pair that says 'identity' may join while there are other
 * references: the bytes are the same, and who overwrites needs the last reference. */
#include "engine/graph/plan_memory.h"

#include "base/util.h"

#include <stdlib.h>

struct liveness {
    const struct ps_plan_input *input;
    struct ps_memory_plan *plan;
    uint32_t *references; /* per value: reads to come, + 1 when kept */
    uint32_t *shared;     /* per group: the sum over its values */
};

static void count_references(struct liveness *live)
{
    const struct ps_plan_input *input = live->input;
    for (size_t s = 0; s < input->step_count; s++) {
        for (uint32_t i = 0; i < input->steps[s].read_count; i++) {
            live->references[input->steps[s].reads[i]]++;
        }
    }
    for (size_t v = 0; v < input->value_count; v++) {
        live->references[v] += input->values[v].keep ? 1 : 0;
        live->plan->group_of[v] = PS_PLAN_NOWHERE;
    }
}

static bool writes(const struct ps_plan_step *step, uint32_t value)
{
    for (uint32_t i = 0; i < step->write_count; i++) {
        if (step->writes[i] == value) {
            return true;
        }
    }
    return false;
}

static bool may_share(const struct liveness *live, const struct ps_plan_step *step,
                      const struct ps_plan_pair *pair)
{
    const struct ps_memory_plan *plan = live->plan;
    const struct ps_plan_value *a = &live->input->values[pair->from];
    const struct ps_plan_value *b = &live->input->values[pair->to];
    uint32_t group = plan->group_of[pair->from];
    return !a->external && !b->external && group != PS_PLAN_NOWHERE &&
           plan->group_of[pair->to] == PS_PLAN_NOWHERE &&
           (live->shared[group] == 1 || pair->identity) &&
           live->references[pair->to] > 0 && writes(step, pair->to) &&
           a->count == b->count && a->dtype == b->dtype && a->bytes == b->bytes &&
           a->device == b->device;
}

static void share_in_place(struct liveness *live, const struct ps_plan_step *step)
{
    struct ps_memory_plan *plan = live->plan;
    for (uint32_t i = 0; i < step->pair_count; i++) {
        if (may_share(live, step, &step->pairs[i])) {
            uint32_t group = plan->group_of[step->pairs[i].from];
            uint32_t to = step->pairs[i].to;
            plan->group_of[to] = group;
            plan->groups[group].keep |= live->input->values[to].keep;
            plan->inplace_count++;
            live->shared[group] += live->references[to]; /* so that no other pair may */
        }
    }
}

static void begin_group(struct liveness *live, size_t s, uint32_t v)
{
    const struct ps_plan_value *value = &live->input->values[v];
    struct ps_memory_plan *plan = live->plan;
    plan->groups[plan->group_count] = (struct ps_plan_group){.bytes = value->bytes,
                                                             .first = s,
                                                             .device = value->device,
                                                             .keep = value->keep,
                                                             .block = PS_PLAN_NOWHERE};
    live->shared[plan->group_count] = live->references[v];
    plan->group_of[v] = (uint32_t)plan->group_count++;
}

static void run_step(struct liveness *live, size_t s)
{
    const struct ps_plan_step *step = &live->input->steps[s];
    struct ps_memory_plan *plan = live->plan;
    if (live->input->inplace) {
        share_in_place(live, step);
    }
    for (uint32_t i = 0; i < step->write_count; i++) {
        uint32_t v = step->writes[i];
        const struct ps_plan_value *value = &live->input->values[v];
        if (value->external) {
            continue;
        }
        plan->unplanned_bytes += value->bytes;
        if (plan->group_of[v] == PS_PLAN_NOWHERE) {
            begin_group(live, s, v);
        }
        plan->groups[plan->group_of[v]].last = s;
    }
    for (uint32_t i = 0; i < step->read_count; i++) {
        uint32_t v = step->reads[i], group = plan->group_of[v];
        live->references[v]--;
        if (group != PS_PLAN_NOWHERE) {
            live->shared[group]--;
            plan->groups[group].last = s;
        }
    }
}

/* ---- what lives at each step ---- */

static void sum_live(const struct ps_plan_input *input, struct ps_memory_plan *plan)
{
    size_t steps = input->step_count;
    /* born at a step in live_bytes, died before it in scratch_bytes, until summed */
    for (size_t g = 0; g < plan->group_count; g++) {
        const struct ps_plan_group *group = &plan->groups[g];
        plan->live_bytes[group->first] += group->bytes;
        if (group->last != SIZE_MAX && group->last + 1 < steps) {
            plan->scratch_bytes[group->last + 1] += group->bytes;
        }
    }
    size_t live = 0;
    for (size_t s = 0; s < steps; s++) {
        live = live + plan->live_bytes[s] - plan->scratch_bytes[s];
        plan->live_bytes[s] = live;
        plan->scratch_bytes[s] = input->steps[s].workspace_bytes;
        plan->colour_of[s] = input->steps[s].colour;
        if (live + plan->scratch_bytes[s] > plan->live_peak_bytes) {
            plan->live_peak_bytes = live + plan->scratch_bytes[s];
            plan->peak_step = s;
        }
    }
}

static enum ps_status make_arrays(const struct ps_plan_input *input,
                                  struct ps_memory_plan *plan)
{
    size_t room = input->value_count + 1, steps = input->step_count + 1;
    plan->step_count = input->step_count;
    plan->group_of = calloc(room, sizeof(uint32_t));
    plan->groups = calloc(room, sizeof(struct ps_plan_group));
    plan->live_bytes = calloc(steps, sizeof(size_t));
    plan->scratch_bytes = calloc(steps, sizeof(size_t));
    plan->colour_of = calloc(steps, sizeof(uint32_t));
    return plan->group_of == NULL || plan->groups == NULL || plan->live_bytes == NULL ||
                   plan->scratch_bytes == NULL || plan->colour_of == NULL
               ? PS_ENOMEM
               : PS_OK;
}

static enum ps_status find_groups(const struct ps_plan_input *input,
                                  struct ps_memory_plan *plan)
{
    size_t room = input->value_count + 1;
    struct liveness live = {.input = input,
                            .plan = plan,
                            .references = calloc(room, sizeof(uint32_t)),
                            .shared = calloc(room, sizeof(uint32_t))};
    enum ps_status status = PS_ENOMEM;
    if (live.references != NULL && live.shared != NULL) {
        status = PS_OK;
        count_references(&live);
        for (size_t s = 0; s < input->step_count; s++) {
            run_step(&live, s);
        }
        for (size_t g = 0; g < plan->group_count; g++) {
            plan->groups[g].last = plan->groups[g].keep ? SIZE_MAX : plan->groups[g].last;
        }
        sum_live(input, plan);
    }
    free(live.shared);
    free(live.references);
    return status;
}

/* One arena serves one device and one colour. */
static bool one_arena(const struct ps_plan_input *input, struct ps_memory_plan *plan)
{
    const struct ps_plan_step *first = NULL;
    for (size_t s = 0; s < input->step_count; s++) {
        const struct ps_plan_step *step = &input->steps[s];
        if (step->write_count == 0) {
            continue;
        }
        first = first == NULL ? step : first;
        if (step->colour != first->colour || step->device != first->device) {
            return false;
        }
    }
    for (size_t g = 0; g < plan->group_count; g++) {
        if (first == NULL || plan->groups[g].device != first->device) {
            return false;
        }
    }
    plan->arena_device = first == NULL ? 0 : first->device;
    return input->match_range > 0;
}

enum ps_status ps_plan_memory(const struct ps_plan_input *input,
                              struct ps_memory_plan *plan_out)
{
    struct ps_memory_plan plan = {0};
    enum ps_status status;
    PS_TRY_GOTO(status, make_arrays(input, &plan), fail);
    PS_TRY_GOTO(status, find_groups(input, &plan), fail);
    if (input->effort != PS_EFFORT_LIVE) {
        PS_TRY_GOTO(status, ps_plan_blocks(input, &plan), fail);
        if (one_arena(input, &plan)) {
            PS_TRY_GOTO(status, ps_plan_offsets(input, &plan), fail);
        }
    }
    *plan_out = plan;
    return PS_OK;
fail:
    ps_memory_plan_fini(&plan);
    return status;
}

size_t ps_memory_plan_peak(const struct ps_memory_plan *plan, enum ps_plan_layout layout)
{
    switch (layout) {
    case PS_LAYOUT_LIVE:
        return plan->live_peak_bytes;
    case PS_LAYOUT_BLOCKS:
        return plan->block_bytes == NULL ? SIZE_MAX
                                         : plan->total_bytes + plan->workspace_bytes;
    default:
        return plan->offset_bytes == 0 ? SIZE_MAX : plan->offset_bytes;
    }
}

size_t ps_memory_plan_scratch(const struct ps_memory_plan *plan,
                              enum ps_plan_layout layout)
{
    if (layout == PS_LAYOUT_BLOCKS) {
        return plan->workspace_bytes;
    }
    return plan->step_count > 0 ? plan->scratch_bytes[plan->peak_step] : 0;
}

void ps_memory_plan_fini(struct ps_memory_plan *plan)
{
    free(plan->scratch_offset);
    free(plan->workspace_of);
    free(plan->workspaces);
    free(plan->block_device);
    free(plan->block_bytes);
    free(plan->colour_of);
    free(plan->scratch_bytes);
    free(plan->live_bytes);
    free(plan->groups);
    free(plan->group_of);
    *plan = (struct ps_memory_plan){0};
}
