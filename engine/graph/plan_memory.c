/* Liveness and in-place sharing.
 *
 * A value's references are the reads of it, and one more when it is kept.  At a step an
 * output takes over the place of an input iff this is the input's last reference, both
 * are internal, and element count and type are equal. */
#include "engine/graph/plan_memory.h"

#include "base/util.h"

#include <stdlib.h>

struct liveness {
    const struct ps_plan_input *input;
    struct ps_memory_plan *plan;
    uint32_t *references; /* per value: reads to come, + 1 when kept */
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

static void share_in_place(struct liveness *live, const struct ps_plan_step *step)
{
    struct ps_memory_plan *plan = live->plan;
    for (uint32_t i = 0; i < step->pair_count; i++) {
        uint32_t from = step->pairs[i].from, to = step->pairs[i].to;
        const struct ps_plan_value *a = &live->input->values[from];
        const struct ps_plan_value *b = &live->input->values[to];
        if (a->external || b->external || live->references[from] != 1 ||
            live->references[to] == 0 || plan->group_of[from] == PS_PLAN_NOWHERE ||
            plan->group_of[to] != PS_PLAN_NOWHERE || !writes(step, to) ||
            a->count != b->count || a->dtype != b->dtype || a->bytes != b->bytes) {
            continue;
        }
        plan->group_of[to] = plan->group_of[from];
        plan->groups[plan->group_of[to]].keep |= b->keep;
        plan->inplace_count++;
        live->references[from] = 0; /* taken: not again by another pair */
    }
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
            plan->groups[plan->group_count] =
                (struct ps_plan_group){.bytes = value->bytes,
                                       .first = s,
                                       .keep = value->keep,
                                       .block = PS_PLAN_NOWHERE};
            plan->group_of[v] = (uint32_t)plan->group_count++;
        }
        plan->groups[plan->group_of[v]].last = s;
    }
    for (uint32_t i = 0; i < step->read_count; i++) {
        uint32_t v = step->reads[i];
        live->references[v] -= live->references[v] > 0 ? 1 : 0;
        if (plan->group_of[v] != PS_PLAN_NOWHERE) {
            plan->groups[plan->group_of[v]].last = s;
        }
    }
}

enum ps_status ps_plan_memory(const struct ps_plan_input *input,
                              struct ps_memory_plan *plan_out)
{
    size_t room = input->value_count + 1;
    struct ps_memory_plan plan = {
        .group_of = calloc(room, sizeof(uint32_t)),
        .groups = calloc(room, sizeof(struct ps_plan_group)),
        .block_bytes = calloc(room, sizeof(size_t)),
    };
    struct liveness live = {
        .input = input, .plan = &plan, .references = calloc(room, sizeof(uint32_t))};
    enum ps_status status = PS_ENOMEM;
    if (plan.group_of != NULL && plan.groups != NULL && plan.block_bytes != NULL &&
        live.references != NULL) {
        count_references(&live);
        for (size_t s = 0; s < input->step_count; s++) {
            run_step(&live, s);
        }
        for (size_t g = 0; g < plan.group_count; g++) {
            plan.groups[g].last = plan.groups[g].keep ? SIZE_MAX : plan.groups[g].last;
        }
        status = ps_plan_blocks(input, &plan);
    }
    if (status == PS_OK && input->match_range > 0) {
        status = ps_plan_offsets(&plan);
    }
    free(live.references);
    if (status != PS_OK) {
        ps_memory_plan_fini(&plan);
        return status;
    }
    *plan_out = plan;
    return PS_OK;
}

void ps_memory_plan_fini(struct ps_memory_plan *plan)
{
    free(plan->group_of);
    free(plan->groups);
    free(plan->block_bytes);
    *plan = (struct ps_memory_plan){0};
}
