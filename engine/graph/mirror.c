/* The pass: what is wanted, the search, the planner's verdict. */
#include "engine/graph/mirror.h"

#include "base/settings.h"
#include "engine/graph/mirror_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Steps of schedules that a search may walk in all: about one second. */
#define SEARCH_STEPS 40000000u
/* Peaks between the least and the plain one for which the least work is looked for. */
#define LEVELS 32u
/* Tries that one of them takes in a network of thousands of nodes. */
#define LEVEL_TRIES 60u
/* Choices that the planner is asked about. */
#define VERDICTS 12

enum goal {
    GOAL_NONE,
    GOAL_CHEAP, /* BACKWARD_DO_MIRROR */
    GOAL_LEAST, /* MEMONGER=sqrt */
    GOAL_BUDGET
};

struct pass {
    struct ps_graph *graph;
    const struct ps_mirror_options *options;
    enum goal goal;
    size_t budget;
    struct ps_mirror_model model;
    struct ps_mirror_archive archive; /* [0]: nothing but what is forced */
    size_t tries_max;                 /* of the whole search */
    struct ps_mirror_report report;
    struct ps_error *err;
};

/* ---- what is wanted ---- */

static enum ps_status find_goal(struct pass *pass)
{
    const char *text = pass->options->memonger;
    int64_t bytes;
    if (text == NULL || text[0] == '\0') {
        pass->goal = pass->options->mirror ? GOAL_CHEAP : GOAL_NONE;
    } else if (strcasecmp(text, "sqrt") == 0) {
        pass->goal = GOAL_LEAST;
    } else if (ps_settings_parse_bytes(text, &bytes) == PS_OK && bytes > 0) {
        pass->budget = (size_t)bytes;
        pass->goal = GOAL_BUDGET;
    } else {
        return ps_error_set(pass->err, PS_EINVAL,
                            "MEMONGER=%s: it takes sqrt, or the most bytes that the plan "
                            "may need (400M, 1Gi); empty turns it off",
                            text);
    }
    return PS_OK;
}

/* ---- the planner's verdict ---- */

static enum ps_status plan_now(const struct pass *pass, enum ps_plan_effort effort,
                               size_t *bytes_out)
{
    struct ps_graph_plan_options options = pass->options->plan;
    enum ps_plan_layout layout = pass->options->layout;
    options.effort = layout == PS_LAYOUT_LIVE ? PS_EFFORT_LIVE : effort;
    struct ps_memory_plan plan;
    PS_TRY(ps_graph_plan(pass->graph, &options, &plan));
    *bytes_out = ps_memory_plan_peak(&plan, layout);
    if (layout == PS_LAYOUT_OFFSETS) {
        *bytes_out = PS_MIN(*bytes_out, ps_memory_plan_peak(&plan, PS_LAYOUT_BLOCKS));
    }
    ps_memory_plan_fini(&plan);
    return PS_OK;
}

/* What the plan of the graph with 'choice' needs; the graph is then as before. */
static enum ps_status ask(struct pass *pass, const struct ps_mirror_choice *choice,
                          enum ps_plan_effort effort, size_t *bytes_out)
{
    struct ps_mirror_graph other;
    PS_TRY(ps_mirror_build(&pass->model, pass->graph, choice->again, &other));
    ps_mirror_exchange(pass->graph, &other);
    enum ps_status status = plan_now(pass, effort, bytes_out);
    ps_mirror_exchange(pass->graph, &other);
    ps_mirror_graph_fini(&other);
    return status;
}

/* ---- the search ---- */

static const struct ps_mirror_choice *least(const struct ps_mirror_archive *archive)
{
    const struct ps_mirror_choice *best = &archive->choices[0];
    for (size_t i = 1; i < archive->count; i++) {
        const struct ps_mirror_choice *it = &archive->choices[i];
        if (it->peak_bytes < best->peak_bytes ||
            (it->peak_bytes == best->peak_bytes && it->work < best->work)) {
            best = it;
        }
    }
    return best;
}

static void start_from(const struct pass *pass, const struct ps_mirror_choice *from,
                       struct ps_mirror_choice *choice)
{
    memcpy(choice->again, from->again,
           pass->model.forward_count * sizeof(choice->again[0]));
}

/* Lets the next steps have a share of the tries that are left. */
static void share_tries(struct pass *pass, size_t shares)
{
    size_t left = pass->tries_max - PS_MIN(pass->model.tries, pass->tries_max);
    pass->model.tries_max = pass->model.tries + left / shares;
}

/* Lowers the peak of a choice, and takes out of it what the peak does not need. */
static enum ps_status improve(struct pass *pass, enum ps_mirror_class most,
                              struct ps_mirror_choice *choice)
{
    struct ps_mirror_model *model = &pass->model;
    PS_TRY(ps_mirror_tighten_kinds(model, most, choice));
    PS_TRY(ps_mirror_tighten(model, most, choice));
    PS_TRY(ps_mirror_archive_add(model, &pass->archive, choice));
    PS_TRY(ps_mirror_relax(model, choice->peak_bytes, choice));
    return ps_mirror_archive_add(model, &pass->archive, choice);
}

/* From two ends: nothing computed again, and the borders that leave the lowest peak. */
static enum ps_status search_least(struct pass *pass, enum ps_mirror_class most,
                                   struct ps_mirror_choice *choice)
{
    PS_TRY(ps_memonger_cut(&pass->model, most, &pass->archive));
    start_from(pass, least(&pass->archive), choice);
    share_tries(pass, 8);
    PS_TRY(improve(pass, most, choice));
    start_from(pass, &pass->archive.choices[0], choice);
    share_tries(pass, 8);
    return improve(pass, most, choice);
}

/* The choice with the least work of those up to 'bytes'. */
static const struct ps_mirror_choice *cheapest(const struct ps_mirror_archive *archive,
                                               size_t bytes)
{
    const struct ps_mirror_choice *best = least(archive);
    for (size_t i = 0; i < archive->count; i++) {
        const struct ps_mirror_choice *it = &archive->choices[i];
        if (it->peak_bytes <= bytes && it->work < best->work) {
            best = it;
        }
    }
    return best;
}

/* For a row of peaks between the least and the plain one: the least work.  The row and
 * so the archive do not depend on the budget; a smaller budget finds no less work. */
static enum ps_status search_levels(struct pass *pass, size_t plain_peak,
                                    struct ps_mirror_choice *choice)
{
    struct ps_mirror_model *model = &pass->model;
    size_t floor = PS_MAX(least(&pass->archive)->peak_bytes, (size_t)1);
    double ratio = (double)plain_peak / (double)floor;
    size_t left = pass->tries_max - PS_MIN(model->tries, pass->tries_max);
    size_t levels = PS_MAX(PS_MIN(LEVELS, left / LEVEL_TRIES), 2u);
    for (size_t level = 1; level < levels; level++) {
        double part = (double)level / (double)levels;
        size_t bytes = (size_t)(pow(ratio, part) * (double)floor);
        for (int start = 0; start < 2; start++) {
            share_tries(pass, 2 * (levels - level) - (size_t)start);
            start_from(pass,
                       start == 0 ? least(&pass->archive)
                                  : cheapest(&pass->archive, bytes),
                       choice);
            PS_TRY(ps_mirror_relax(model, bytes, choice));
            PS_TRY(ps_mirror_archive_add(model, &pass->archive, choice));
        }
    }
    return PS_OK;
}

static enum ps_status search(struct pass *pass)
{
    struct ps_mirror_model *model = &pass->model;
    struct ps_mirror_choice choice;
    PS_TRY(ps_mirror_choice_init(model, &choice));
    enum ps_status status;
    ps_mirror_weigh(model, &choice);
    size_t plain_peak = choice.peak_bytes;
    pass->tries_max = SEARCH_STEPS / (2 * model->graph->node_count + 1);
    model->tries_max = pass->tries_max;
    PS_TRY_GOTO(status, ps_mirror_archive_add(model, &pass->archive, &choice), out);
    if (pass->goal != GOAL_NONE) {
        PS_TRY_GOTO(status, search_least(pass, PS_MIRROR_CHEAP, &choice), out);
    }
    if (pass->goal == GOAL_LEAST || pass->goal == GOAL_BUDGET) {
        PS_TRY_GOTO(status, search_least(pass, PS_MIRROR_HEAVY, &choice), out);
    }
    if (pass->goal == GOAL_BUDGET) {
        PS_TRY_GOTO(status, search_levels(pass, plain_peak, &choice), out);
    }
out:
    ps_mirror_choice_fini(&choice);
    return status;
}

/* ---- the decision ---- */

static int by_peak(const void *left, const void *right)
{
    const struct ps_mirror_choice *a = left, *b = right;
    if (a->peak_bytes != b->peak_bytes) {
        return a->peak_bytes < b->peak_bytes ? -1 : 1;
    }
    return a->work < b->work ? -1 : a->work > b->work;
}

static int by_work(const void *left, const void *right)
{
    const struct ps_mirror_choice *a = left, *b = right;
    if (a->work != b->work) {
        return a->work < b->work ? -1 : 1;
    }
    return a->peak_bytes < b->peak_bytes ? -1 : a->peak_bytes > b->peak_bytes;
}

/* The lowest plan: of the choices with the lowest peaks, and of the one that computes
 * nothing again that is not forced. */
static enum ps_status decide_least(struct pass *pass, const struct ps_mirror_choice **out,
                                   size_t *bytes_out)
{
    struct ps_mirror_archive *archive = &pass->archive;
    qsort(archive->choices, archive->count, sizeof(archive->choices[0]), by_peak);
    const struct ps_mirror_choice *best = cheapest(archive, SIZE_MAX);
    size_t best_bytes;
    PS_TRY(ask(pass, best, PS_EFFORT_FULL, &best_bytes));
    for (size_t i = 0; i < PS_MIN(archive->count, (size_t)VERDICTS); i++) {
        size_t bytes;
        if (archive->choices[i].peak_bytes >= best_bytes) {
            break; /* a plan needs at least what lives */
        }
        PS_TRY(ask(pass, &archive->choices[i], PS_EFFORT_FULL, &bytes));
        if (bytes < best_bytes) {
            best_bytes = bytes;
            best = &archive->choices[i];
        }
    }
    *out = best;
    *bytes_out = best_bytes;
    return PS_OK;
}

static enum ps_status refuse(struct pass *pass)
{
    const struct ps_mirror_choice *best;
    size_t bytes;
    PS_TRY(decide_least(pass, &best, &bytes));
    return ps_error_set(pass->err, PS_ERANGE,
                        "MEMONGER=%s: this network cannot be planned for so little; the "
                        "least is %zu bytes (%.1f MiB), without recomputation it needs "
                        "%zu",
                        pass->options->memonger, bytes, (double)bytes / 1048576.0,
                        pass->report.plain_bytes);
}

/* The least work whose plan stays within the budget. */
static enum ps_status
decide_budget(struct pass *pass, const struct ps_mirror_choice **out, size_t *bytes_out)
{
    struct ps_mirror_archive *archive = &pass->archive;
    qsort(archive->choices, archive->count, sizeof(archive->choices[0]), by_work);
    for (size_t i = 0; i < archive->count; i++) {
        if (archive->choices[i].peak_bytes > pass->budget) {
            continue;
        }
        PS_TRY(ask(pass, &archive->choices[i], PS_EFFORT_FULL, bytes_out));
        if (*bytes_out <= pass->budget) {
            *out = &archive->choices[i];
            return PS_OK;
        }
    }
    return refuse(pass);
}

static enum ps_status decide(struct pass *pass, const struct ps_mirror_choice **out)
{
    size_t bytes;
    if (pass->goal == GOAL_NONE) {
        *out = &pass->archive.choices[0];
        return ask(pass, *out, PS_EFFORT_FULL, &pass->report.planned_bytes);
    }
    if (pass->goal == GOAL_BUDGET) {
        PS_TRY(decide_budget(pass, out, &bytes));
    } else {
        PS_TRY(decide_least(pass, out, &bytes));
    }
    pass->report.planned_bytes = bytes;
    return PS_OK;
}

static enum ps_status run_pass(struct pass *pass)
{
    PS_TRY(plan_now(pass, PS_EFFORT_FULL, &pass->report.plain_bytes));
    PS_TRY(search(pass));
    const struct ps_mirror_choice *choice = NULL;
    PS_TRY(decide(pass, &choice));
    pass->report.mirrored_count = choice->copy_count;
    pass->report.forward_work = pass->model.forward_work;
    pass->report.extra_work = choice->work;
    struct ps_mirror_graph other;
    PS_TRY(ps_mirror_build(&pass->model, pass->graph, choice->again, &other));
    ps_mirror_exchange(pass->graph, &other);
    ps_mirror_graph_fini(&other);
    return PS_OK;
}

static bool any_forced(const struct ps_mirror_model *model)
{
    for (size_t n = 0; n < model->forward_count; n++) {
        if (model->class_of[n] == PS_MIRROR_FORCED) {
            return true;
        }
    }
    return false;
}

enum ps_status ps_graph_mirror(struct ps_graph *graph,
                               const struct ps_mirror_options *options,
                               struct ps_mirror_report *report_out, struct ps_error *err)
{
    struct pass pass = {.graph = graph, .options = options, .err = err};
    PS_TRY(find_goal(&pass));
    if (graph->node_count > graph->forward_count) {
        PS_TRY(ps_mirror_model_init(&pass.model, graph, options));
        enum ps_status status = PS_OK;
        if (pass.goal != GOAL_NONE || any_forced(&pass.model)) {
            status = run_pass(&pass);
        }
        ps_mirror_archive_fini(&pass.archive);
        ps_mirror_model_fini(&pass.model);
        PS_TRY(status);
    }
    if (report_out != NULL) {
        *report_out = pass.report;
    }
    return PS_OK;
}
