/* Offsets in one arena: the largest group first, each at the lowest place where no group
 * that lives at the same time lies (greedy by size; Pisarchyk, Lee 2020).  Kept groups
 * stay outside: an output has memory of its own, which outlives the next run. */
#include "engine/graph/plan_memory.h"

#include "base/util.h"

#include <stdlib.h>

/* Above this the quadratic search is not worth its time; blocks serve. */
#define GROUPS_MAX 8192

/* Larger first; then the one that begins earlier. */
static int compare(const void *left, const void *right)
{
    const struct ps_plan_group *a = *(struct ps_plan_group *const *)left;
    const struct ps_plan_group *b = *(struct ps_plan_group *const *)right;
    if (a->bytes != b->bytes) {
        return a->bytes > b->bytes ? -1 : 1;
    }
    if (a->first != b->first) {
        return a->first < b->first ? -1 : 1;
    }
    return a < b ? -1 : a > b;
}

static bool together(const struct ps_plan_group *a, const struct ps_plan_group *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* 'placed' is sorted by offset.  The lowest gap of 'bytes' among those that live together
 * with 'group'. */
static size_t lowest(struct ps_plan_group *const *placed, size_t count,
                     const struct ps_plan_group *group, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const struct ps_plan_group *other = placed[i];
        if (!together(other, group)) {
            continue;
        }
        if (other->offset >= at + bytes) {
            break;
        }
        at = PS_MAX(at, other->offset + ps_align_up(other->bytes, PS_PLAN_ALIGN));
    }
    return at;
}

static void insert(struct ps_plan_group **placed, size_t count,
                   struct ps_plan_group *group)
{
    size_t i = count;
    while (i > 0 && placed[i - 1]->offset > group->offset) {
        placed[i] = placed[i - 1];
        i--;
    }
    placed[i] = group;
}

enum ps_status ps_plan_offsets(struct ps_memory_plan *plan)
{
    if (plan->group_count > GROUPS_MAX) {
        return PS_OK;
    }
    struct ps_plan_group **order = calloc(plan->group_count + 1, sizeof(*order));
    struct ps_plan_group **placed = calloc(plan->group_count + 1, sizeof(*placed));
    if (order == NULL || placed == NULL) {
        free(order);
        free(placed);
        return PS_ENOMEM;
    }
    size_t count = 0, kept_bytes = 0;
    for (size_t g = 0; g < plan->group_count; g++) {
        if (plan->groups[g].keep) {
            kept_bytes += plan->groups[g].bytes;
        } else {
            order[count++] = &plan->groups[g];
        }
    }
    qsort(order, count, sizeof(*order), compare);
    plan->arena_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = ps_align_up(order[i]->bytes, PS_PLAN_ALIGN);
        order[i]->offset = lowest(placed, i, order[i], bytes);
        insert(placed, i, order[i]);
        plan->arena_bytes = PS_MAX(plan->arena_bytes, order[i]->offset + bytes);
    }
    plan->offset_bytes = plan->arena_bytes + kept_bytes;
    free(placed);
    free(order);
    return PS_OK;
}
