/* Blocks: a group takes a block that an earlier one freed, or a new one.
 *
 * A free block of F bytes may serve a request of q bytes on its device, by a step of the
 * colour that freed it, iff floor(q/R) <= F <= q*R.  Preferred is the smallest F >= q,
 * else the largest F < q, which then grows to q.  R is swept over 1, 2, 4, ... up to the
 * limit, and the limit itself; the fewest bytes win, the smaller range where equal.
 * R = 0: freed blocks are not used again.
 *
 * Scratch lies beside: one workspace for each device and scratch colour, as large as its
 * largest user asks. */
#include "engine/graph/plan_memory.h"

#include "base/util.h"

#include <stdlib.h>
#include <string.h>

/* One trial; arrays have room for a block per group. */
struct trial {
    uint32_t *block; /* per group */
    size_t *bytes;   /* per block */
    uint32_t *device;
    uint32_t *colour; /* of the step that freed it */
    size_t block_count;
    uint32_t *free_blocks; /* by device, colour, bytes; of equal ones the order in which
                              they were freed */
    size_t free_count;
    size_t total;
};

/* What a group asks for. */
struct request {
    size_t bytes, low, high; /* a free block of [low, high] bytes may serve */
    uint32_t device, colour;
    bool reuse;
};

/* Groups by the step at which they begin and end: the first of each list and the next. */
struct schedule {
    uint32_t *starts, *ends;         /* per step */
    uint32_t *next_start, *next_end; /* per group */
};

static void take(struct trial *trial, size_t at)
{
    trial->free_count--;
    memmove(trial->free_blocks + at, trial->free_blocks + at + 1,
            (trial->free_count - at) * sizeof(trial->free_blocks[0]));
}

static bool same_kind(const struct trial *trial, uint32_t block, uint32_t device,
                      uint32_t colour)
{
    return trial->device[block] == device && trial->colour[block] == colour;
}

/* The first free block that does not come before these. */
static size_t lower(const struct trial *trial, uint32_t device, uint32_t colour,
                    size_t bytes)
{
    size_t low = 0, high = trial->free_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        uint32_t block = trial->free_blocks[middle];
        bool before = trial->device[block] != device   ? trial->device[block] < device
                      : trial->colour[block] != colour ? trial->colour[block] < colour
                                                       : trial->bytes[block] < bytes;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return low;
}

static void give_back(struct trial *trial, uint32_t block, uint32_t colour)
{
    trial->colour[block] = colour;
    size_t at = lower(trial, trial->device[block], colour, trial->bytes[block] + 1);
    memmove(trial->free_blocks + at + 1, trial->free_blocks + at,
            (trial->free_count - at) * sizeof(trial->free_blocks[0]));
    trial->free_blocks[at] = block;
    trial->free_count++;
}

/* The free block that serves best; 'free_count' when none does. */
static size_t find(const struct trial *trial, const struct request *request)
{
    uint32_t device = request->device, colour = request->colour;
    size_t at = lower(trial, device, colour, request->bytes);
    if (at < trial->free_count &&
        same_kind(trial, trial->free_blocks[at], device, colour) &&
        trial->bytes[trial->free_blocks[at]] <= request->high) {
        return at;
    }
    if (at > 0 && same_kind(trial, trial->free_blocks[at - 1], device, colour) &&
        trial->bytes[trial->free_blocks[at - 1]] >= request->low) {
        return lower(trial, device, colour, trial->bytes[trial->free_blocks[at - 1]]);
    }
    return trial->free_count;
}

static uint32_t serve(struct trial *trial, const struct request *request)
{
    size_t best = request->reuse ? find(trial, request) : trial->free_count;
    if (best == trial->free_count) {
        uint32_t made = (uint32_t)trial->block_count++;
        trial->bytes[made] = request->bytes;
        trial->device[made] = request->device;
        return made;
    }
    uint32_t block = trial->free_blocks[best];
    take(trial, best);
    trial->bytes[block] = PS_MAX(trial->bytes[block], request->bytes);
    return block;
}

static struct request request_of(const struct ps_plan_input *input,
                                 const struct ps_plan_group *group, size_t range)
{
    struct request request = {.bytes = group->bytes,
                              .low = range == 0 ? 0 : group->bytes / range,
                              .high = SIZE_MAX,
                              .device = group->device,
                              .colour = input->steps[group->first].colour,
                              .reuse = range > 0};
    size_t high;
    if (ps_mul_size(group->bytes, range, &high)) {
        request.high = high;
    }
    return request;
}

/* The groups that begin at one step, largest first, in the order of their numbers where
 * equal: lists are short, so a selection in place. */
static void place_starts(struct trial *trial, const struct ps_plan_input *input,
                         const struct ps_memory_plan *plan,
                         const struct schedule *schedule, size_t step, size_t range)
{
    for (;;) {
        uint32_t largest = PS_PLAN_NOWHERE;
        for (uint32_t g = schedule->starts[step]; g != PS_PLAN_NOWHERE;
             g = schedule->next_start[g]) {
            if (trial->block[g] == PS_PLAN_NOWHERE &&
                (largest == PS_PLAN_NOWHERE ||
                 plan->groups[g].bytes > plan->groups[largest].bytes)) {
                largest = g;
            }
        }
        if (largest == PS_PLAN_NOWHERE) {
            return;
        }
        struct request request = request_of(input, &plan->groups[largest], range);
        trial->block[largest] = serve(trial, &request);
    }
}

static void run_trial(struct trial *trial, const struct ps_plan_input *input,
                      const struct ps_memory_plan *plan, const struct schedule *schedule,
                      size_t range)
{
    trial->block_count = trial->free_count = trial->total = 0;
    memset(trial->block, 0xff, plan->group_count * sizeof(trial->block[0]));
    for (size_t s = 0; s < input->step_count; s++) {
        place_starts(trial, input, plan, schedule, s, range);
        for (uint32_t g = schedule->ends[s]; g != PS_PLAN_NOWHERE;
             g = schedule->next_end[g]) {
            give_back(trial, trial->block[g], input->steps[s].colour);
        }
    }
    for (size_t b = 0; b < trial->block_count; b++) {
        trial->total += trial->bytes[b];
    }
}

/* Lists keep the groups' numbers in rising order. */
static void fill_schedule(struct schedule *schedule, const struct ps_plan_input *input,
                          const struct ps_memory_plan *plan)
{
    memset(schedule->starts, 0xff, (input->step_count + 1) * sizeof(uint32_t));
    memset(schedule->ends, 0xff, (input->step_count + 1) * sizeof(uint32_t));
    for (size_t i = plan->group_count; i > 0; i--) {
        uint32_t g = (uint32_t)(i - 1);
        const struct ps_plan_group *group = &plan->groups[g];
        schedule->next_start[g] = schedule->starts[group->first];
        schedule->starts[group->first] = g;
        if (group->last != SIZE_MAX) {
            schedule->next_end[g] = schedule->ends[group->last];
            schedule->ends[group->last] = g;
        }
    }
}

static void keep_best(struct ps_memory_plan *plan, const struct trial *trial,
                      size_t range)
{
    if (plan->match_range != SIZE_MAX && trial->total >= plan->total_bytes) {
        return;
    }
    plan->match_range = range;
    plan->total_bytes = trial->total;
    plan->block_count = trial->block_count;
    memcpy(plan->block_bytes, trial->bytes, trial->block_count * sizeof(size_t));
    memcpy(plan->block_device, trial->device, trial->block_count * sizeof(uint32_t));
    for (size_t g = 0; g < plan->group_count; g++) {
        plan->groups[g].block = trial->block[g];
    }
}

static void sweep(const struct ps_plan_input *input, struct ps_memory_plan *plan,
                  struct trial *trial, const struct schedule *schedule)
{
    size_t limit = input->match_range;
    bool once = input->effort != PS_EFFORT_FULL;
    plan->match_range = SIZE_MAX; /* no trial yet */
    for (size_t range = once ? limit : PS_MIN(limit, (size_t)1);; range *= 2) {
        range = PS_MIN(range, limit);
        run_trial(trial, input, plan, schedule, range);
        keep_best(plan, trial, range);
        if (range == limit) {
            return;
        }
    }
}

static enum ps_status place_groups(const struct ps_plan_input *input,
                                   struct ps_memory_plan *plan)
{
    size_t groups = plan->group_count + 1, steps = input->step_count + 1;
    struct trial trial = {.block = calloc(groups, sizeof(uint32_t)),
                          .bytes = calloc(groups, sizeof(size_t)),
                          .device = calloc(groups, sizeof(uint32_t)),
                          .colour = calloc(groups, sizeof(uint32_t)),
                          .free_blocks = calloc(groups, sizeof(uint32_t))};
    struct schedule schedule = {.starts = calloc(steps, sizeof(uint32_t)),
                                .ends = calloc(steps, sizeof(uint32_t)),
                                .next_start = calloc(groups, sizeof(uint32_t)),
                                .next_end = calloc(groups, sizeof(uint32_t))};
    enum ps_status status = PS_ENOMEM;
    if (trial.block != NULL && trial.bytes != NULL && trial.device != NULL &&
        trial.colour != NULL && trial.free_blocks != NULL && schedule.starts != NULL &&
        schedule.ends != NULL && schedule.next_start != NULL &&
        schedule.next_end != NULL) {
        status = PS_OK;
        fill_schedule(&schedule, input, plan);
        sweep(input, plan, &trial, &schedule);
    }
    free(schedule.next_end);
    free(schedule.next_start);
    free(schedule.ends);
    free(schedule.starts);
    free(trial.free_blocks);
    free(trial.colour);
    free(trial.device);
    free(trial.bytes);
    free(trial.block);
    return status;
}

/* ---- scratch ---- */

static uint32_t find_workspace(struct ps_memory_plan *plan,
                               const struct ps_plan_step *step)
{
    for (size_t w = 0; w < plan->workspace_count; w++) {
        if (plan->workspaces[w].device == step->device &&
            plan->workspaces[w].colour == step->scratch_colour) {
            return (uint32_t)w;
        }
    }
    plan->workspaces[plan->workspace_count] = (struct ps_plan_workspace){
        .device = step->device, .colour = step->scratch_colour};
    return (uint32_t)plan->workspace_count++;
}

static enum ps_status share_workspaces(const struct ps_plan_input *input,
                                       struct ps_memory_plan *plan)
{
    size_t steps = input->step_count, users = 0;
    for (size_t s = 0; s < steps; s++) {
        users += input->steps[s].workspace_bytes > 0 ? 1 : 0;
    }
    plan->workspaces = calloc(users + 1, sizeof(plan->workspaces[0]));
    plan->workspace_of = calloc(steps + 1, sizeof(uint32_t));
    if (plan->workspaces == NULL || plan->workspace_of == NULL) {
        return PS_ENOMEM;
    }
    for (size_t s = 0; s < steps; s++) {
        const struct ps_plan_step *step = &input->steps[s];
        plan->workspace_of[s] = PS_PLAN_NOWHERE;
        if (step->workspace_bytes > 0) {
            uint32_t w = find_workspace(plan, step);
            plan->workspace_of[s] = w;
            plan->workspaces[w].bytes =
                PS_MAX(plan->workspaces[w].bytes, step->workspace_bytes);
        }
    }
    for (size_t w = 0; w < plan->workspace_count; w++) {
        plan->workspace_bytes += plan->workspaces[w].bytes;
    }
    return PS_OK;
}

enum ps_status ps_plan_blocks(const struct ps_plan_input *input,
                              struct ps_memory_plan *plan)
{
    plan->block_bytes = calloc(plan->group_count + 1, sizeof(size_t));
    plan->block_device = calloc(plan->group_count + 1, sizeof(uint32_t));
    if (plan->block_bytes == NULL || plan->block_device == NULL) {
        return PS_ENOMEM;
    }
    PS_TRY(place_groups(input, plan));
    return share_workspaces(input, plan);
}
