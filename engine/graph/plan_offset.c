/* Offsets in one arena: item after item, each at the lowest place where nothing lies that
 * lives at the same time (greedy; Pisarchyk, Lee 2020).  Items are the groups that are
 * not kept, and the scratch of each step, which lives at that step only.  Kept groups
 * stay outside: an output has memory of its own, which outlives the next run.
 *
 * The result depends on the order: by size, by size times lifetime, by first step.  The
 * best is kept; then the item that sticks out highest goes to the front and the order is
 * tried again, while there is a gap to the largest sum of what lives at one step, which
 * no layout can beat, and while the budget lasts. */
#include "engine/graph/plan_memory.h"

#include "base/util.h"

#include <stdlib.h>
#include <string.h>

/* Above this the quadratic search is not worth its time; blocks serve. */
#define ITEMS_MAX 16384
/* Comparisons of items that all trials together may cost: well under a second. */
#define BUDGET ((size_t)150 * 1000 * 1000)
#define ROUNDS_MAX 64

struct item {
    size_t bytes; /* aligned */
    size_t first, last;
    size_t offset;
    uint32_t group; /* PS_PLAN_NOWHERE: the scratch of step 'first' */
};

struct search {
    struct item *items;
    struct item **order, **best_order, **placed;
    size_t count;
    size_t *best_offset; /* per item */
    size_t best_bytes;
    size_t bound; /* aligned bytes that live at one step, at most */
};

/* ---- orders ---- */

static int by_number(const struct item *a, const struct item *b)
{
    return a < b ? -1 : a > b;
}

static int earlier(const struct item *a, const struct item *b)
{
    return a->first != b->first ? (a->first < b->first ? -1 : 1) : by_number(a, b);
}

static int by_size(const void *left, const void *right)
{
    const struct item *a = *(struct item *const *)left, *b = *(struct item *const *)right;
    return a->bytes != b->bytes ? (a->bytes > b->bytes ? -1 : 1) : earlier(a, b);
}

static int by_area(const void *left, const void *right)
{
    const struct item *a = *(struct item *const *)left, *b = *(struct item *const *)right;
    double x = (double)a->bytes * (double)(a->last - a->first + 1);
    double y = (double)b->bytes * (double)(b->last - b->first + 1);
    return x > y ? -1 : x < y ? 1 : by_size(left, right);
}

static int by_first(const void *left, const void *right)
{
    const struct item *a = *(struct item *const *)left, *b = *(struct item *const *)right;
    return a->first != b->first ? (a->first < b->first ? -1 : 1) : by_size(left, right);
}

/* ---- one trial ---- */

/* 'placed' is sorted by offset. */
static size_t lowest(struct item *const *placed, size_t count, const struct item *item)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const struct item *other = placed[i];
        if (other->first > item->last || item->first > other->last) {
            continue;
        }
        if (other->offset >= at + item->bytes) {
            break;
        }
        at = PS_MAX(at, other->offset + other->bytes);
    }
    return at;
}

static void insert(struct item **placed, size_t count, struct item *item)
{
    size_t low = 0, high = count; /* behind those at the same offset */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (placed[middle]->offset <= item->offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    memmove(placed + low + 1, placed + low, (count - low) * sizeof(placed[0]));
    placed[low] = item;
}

/* Places all in the present order; keeps the result when it is the best so far.  The
 * item that ends highest goes to 'top_out'. */
static void try_order(struct search *search, size_t *top_out)
{
    size_t bytes = 0;
    *top_out = 0;
    for (size_t i = 0; i < search->count; i++) {
        struct item *item = search->order[i];
        item->offset = lowest(search->placed, i, item);
        insert(search->placed, i, item);
        if (item->offset + item->bytes > bytes) {
            bytes = item->offset + item->bytes;
            *top_out = i;
        }
    }
    if (bytes >= search->best_bytes) {
        return;
    }
    search->best_bytes = bytes;
    memcpy(search->best_order, search->order, search->count * sizeof(search->order[0]));
    for (size_t i = 0; i < search->count; i++) {
        search->best_offset[i] = search->items[i].offset;
    }
}

static void run_search(struct search *search, enum ps_plan_effort effort)
{
    static int (*const orders[])(const void *, const void *) = {by_size, by_area,
                                                                by_first};
    size_t cost = search->count * search->count / 2 + 1, top = 0;
    size_t trials = effort == PS_EFFORT_FULL ? BUDGET / cost : 1;
    for (size_t i = 0; i < PS_COUNT(orders) && (i == 0 || trials > 0); i++) {
        if (search->best_bytes <= search->bound) {
            return;
        }
        for (size_t k = 0; k < search->count; k++) {
            search->order[k] = &search->items[k];
        }
        qsort(search->order, search->count, sizeof(search->order[0]), orders[i]);
        try_order(search, &top);
        trials -= trials > 0 ? 1 : 0;
    }
    memcpy(search->order, search->best_order, search->count * sizeof(search->order[0]));
    for (size_t i = 0;
         i < PS_MIN(trials, (size_t)ROUNDS_MAX) && search->best_bytes > search->bound;
         i++) {
        try_order(search, &top);
        struct item *first = search->order[top];
        memmove(search->order + 1, search->order, top * sizeof(search->order[0]));
        search->order[0] = first;
    }
}

/* ---- from and to the plan ---- */

static size_t add_items(const struct ps_plan_input *input,
                        const struct ps_memory_plan *plan, struct search *search)
{
    size_t kept_bytes = 0;
    for (size_t g = 0; g < plan->group_count; g++) {
        const struct ps_plan_group *group = &plan->groups[g];
        if (group->keep) {
            kept_bytes += group->bytes;
            continue;
        }
        search->items[search->count++] =
            (struct item){.bytes = ps_align_up(group->bytes, PS_PLAN_ALIGN),
                          .first = group->first,
                          .last = group->last,
                          .group = (uint32_t)g};
    }
    for (size_t s = 0; s < input->step_count; s++) {
        size_t scratch = input->steps[s].workspace_bytes;
        if (scratch > 0) {
            search->items[search->count++] =
                (struct item){.bytes = ps_align_up(scratch, PS_PLAN_ALIGN),
                              .first = s,
                              .last = s,
                              .group = PS_PLAN_NOWHERE};
        }
    }
    return kept_bytes;
}

/* 'live' has room for a number per step and one more. */
static size_t largest_sum(const struct search *search, size_t steps, size_t *live)
{
    size_t sum = 0, most = 0;
    for (size_t i = 0; i < search->count; i++) {
        live[search->items[i].first] += search->items[i].bytes;
        live[search->items[i].last + 1] -= search->items[i].bytes; /* wraps, sums right */
    }
    for (size_t s = 0; s < steps; s++) {
        sum += live[s];
        most = PS_MAX(most, sum);
    }
    return most;
}

static void take_best(const struct search *search, struct ps_memory_plan *plan,
                      size_t kept_bytes)
{
    for (size_t i = 0; i < search->count; i++) {
        const struct item *item = &search->items[i];
        if (item->group == PS_PLAN_NOWHERE) {
            plan->scratch_offset[item->first] = search->best_offset[i];
        } else {
            plan->groups[item->group].offset = search->best_offset[i];
        }
    }
    plan->arena_bytes = search->count == 0 ? 0 : search->best_bytes;
    plan->offset_bytes = plan->arena_bytes + kept_bytes;
}

enum ps_status ps_plan_offsets(const struct ps_plan_input *input,
                               struct ps_memory_plan *plan)
{
    size_t room = plan->group_count + input->step_count + 1;
    struct search search = {.items = calloc(room, sizeof(struct item)),
                            .order = calloc(room, sizeof(struct item *)),
                            .best_order = calloc(room, sizeof(struct item *)),
                            .placed = calloc(room, sizeof(struct item *)),
                            .best_offset = calloc(room, sizeof(size_t)),
                            .best_bytes = SIZE_MAX};
    size_t *live = calloc(input->step_count + 2, sizeof(size_t));
    plan->scratch_offset = calloc(input->step_count + 1, sizeof(size_t));
    enum ps_status status = PS_ENOMEM;
    if (search.items != NULL && search.order != NULL && search.best_order != NULL &&
        search.placed != NULL && search.best_offset != NULL && live != NULL &&
        plan->scratch_offset != NULL) {
        status = PS_OK;
        size_t kept_bytes = add_items(input, plan, &search);
        search.bound = largest_sum(&search, input->step_count, live);
        if (search.count <= ITEMS_MAX) {
            run_search(&search, input->effort);
            take_best(&search, plan, kept_bytes);
        }
    }
    free(live);
    free(search.best_offset);
    free(search.placed);
    free(search.best_order);
    free(search.order);
    free(search.items);
    return status;
}
