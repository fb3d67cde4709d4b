/* The peak of what lives under a choice: the rules of plan_memory.c (in place, identity,
 * scratch), over the schedule instead of a graph.  A test holds the two together. */
#include "engine/graph/mirror_model.h"

#include <stdlib.h>
#include <string.h>

enum ps_status ps_mirror_live_init(struct ps_mirror_model *model)
{
    struct ps_mirror_live *live = &model->live;
    size_t values = 2 * model->graph->entry_count + 1;
    live->references = calloc(values, sizeof(live->references[0]));
    live->group_of = calloc(values, sizeof(live->group_of[0]));
    live->shared = calloc(values, sizeof(live->shared[0]));
    live->bytes = calloc(values, sizeof(live->bytes[0]));
    return live->references == NULL || live->group_of == NULL || live->shared == NULL ||
                   live->bytes == NULL
               ? PS_ENOMEM
               : PS_OK;
}

void ps_mirror_live_fini(struct ps_mirror_live *live)
{
    free(live->bytes);
    free(live->shared);
    free(live->group_of);
    free(live->references);
}

/* One step while it is looked at. */
struct view {
    struct ps_mirror_model *model;
    const struct ps_plan_step *step;
    bool second;    /* reads copies where there are any */
    uint32_t shift; /* of what it writes: entries of copies lie behind all others */
};

static struct view view_of(struct ps_mirror_model *model, size_t s)
{
    uint32_t n = model->schedule.steps[s];
    bool copy = (n & PS_MIRROR_COPY) != 0;
    n &= ~PS_MIRROR_COPY;
    return (struct view){.model = model,
                         .step = &model->plan.steps[n],
                         .second = copy || n >= model->forward_count,
                         .shift = copy ? (uint32_t)model->graph->entry_count : 0};
}

static uint32_t source(const struct view *view, uint32_t entry)
{
    return view->second && view->model->schedule.replaced[entry]
               ? entry + (uint32_t)view->model->graph->entry_count
               : entry;
}

static const struct ps_plan_value *value_of(const struct ps_mirror_model *model,
                                            uint32_t value)
{
    size_t entries = model->graph->entry_count;
    return &model->plan.values[value < entries ? value : value - entries];
}

static void count_references(struct ps_mirror_model *model)
{
    struct ps_mirror_live *live = &model->live;
    size_t values = 2 * model->graph->entry_count;
    memset(live->references, 0, values * sizeof(live->references[0]));
    memset(live->group_of, 0xff, values * sizeof(live->group_of[0]));
    live->group_count = 0;
    for (size_t s = 0; s < model->schedule.count; s++) {
        struct view view = view_of(model, s);
        for (uint32_t i = 0; i < view.step->read_count; i++) {
            live->references[source(&view, view.step->reads[i])]++;
        }
    }
    for (size_t i = 0; i < model->graph->output_count; i++) {
        live->references[model->graph->outputs[i]]++;
    }
}

static bool may_share(const struct view *view, const struct ps_plan_pair *pair,
                      uint32_t from, uint32_t to)
{
    const struct ps_mirror_live *live = &view->model->live;
    const struct ps_plan_value *a = value_of(view->model, from);
    const struct ps_plan_value *b = value_of(view->model, to);
    uint32_t group = live->group_of[from];
    if (group == PS_PLAN_NOWHERE || b->external || live->references[to] == 0 ||
        live->group_of[to] != PS_PLAN_NOWHERE ||
        (live->shared[group] != 1 && !pair->identity) || a->count != b->count ||
        a->dtype != b->dtype || a->bytes != b->bytes || a->device != b->device) {
        return false;
    }
    for (uint32_t i = 0; i < view->step->write_count; i++) {
        if (view->step->writes[i] == pair->to) {
            return true;
        }
    }
    return false;
}

static void share_in_place(const struct view *view)
{
    struct ps_mirror_live *live = &view->model->live;
    for (uint32_t i = 0; i < view->step->pair_count; i++) {
        const struct ps_plan_pair *pair = &view->step->pairs[i];
        uint32_t from = source(view, pair->from), to = pair->to + view->shift;
        if (may_share(view, pair, from, to)) {
            live->group_of[to] = live->group_of[from];
            live->shared[live->group_of[from]] += live->references[to];
        }
    }
}

/* Bytes that begin to live with this step. */
static size_t begin(const struct view *view)
{
    struct ps_mirror_live *live = &view->model->live;
    size_t bytes = 0;
    for (uint32_t i = 0; i < view->step->write_count; i++) {
        uint32_t v = view->step->writes[i] + view->shift;
        const struct ps_plan_value *value = value_of(view->model, v);
        if (!value->external && live->group_of[v] == PS_PLAN_NOWHERE) {
            uint32_t group = (uint32_t)live->group_count++;
            live->group_of[v] = group;
            live->shared[group] = live->references[v];
            live->bytes[group] = value->bytes;
            bytes += value->bytes;
        }
    }
    return bytes;
}

/* Bytes that do not outlive this step. */
static size_t end(const struct view *view)
{
    struct ps_mirror_live *live = &view->model->live;
    size_t bytes = 0;
    for (uint32_t i = 0; i < view->step->read_count; i++) {
        uint32_t v = source(view, view->step->reads[i]), group = live->group_of[v];
        live->references[v]--;
        if (group != PS_PLAN_NOWHERE && --live->shared[group] == 0) {
            bytes += live->bytes[group];
            live->bytes[group] = 0;
        }
    }
    for (uint32_t i = 0; i < view->step->write_count; i++) {
        uint32_t group = live->group_of[view->step->writes[i] + view->shift];
        if (group != PS_PLAN_NOWHERE && live->shared[group] == 0) {
            bytes += live->bytes[group]; /* nobody reads it */
            live->bytes[group] = 0;
        }
    }
    return bytes;
}

void ps_mirror_weigh(struct ps_mirror_model *model, struct ps_mirror_choice *choice)
{
    ps_mirror_schedule_make(model, choice->again);
    count_references(model);
    choice->peak_bytes = 0;
    choice->work = 0;
    choice->copy_count = model->schedule.copy_count;
    size_t live = 0;
    for (size_t s = 0; s < model->schedule.count; s++) {
        struct view view = view_of(model, s);
        if (model->plan.input.inplace) {
            share_in_place(&view);
        }
        live += begin(&view);
        choice->peak_bytes =
            PS_MAX(choice->peak_bytes, live + view.step->workspace_bytes);
        live -= end(&view);
        if (view.shift != 0) {
            choice->work += model->work[model->schedule.steps[s] & ~PS_MIRROR_COPY];
        }
    }
    model->tries++;
}
