/* Changing a choice for the better, one try at a time.
 *
 * Two moves are all: ps_mirror_tighten lowers the peak, steepest first, by keeping a node
 * or computing it again or moving a kept one to a neighbour; ps_mirror_relax then takes
 * work out that the peak does not need, the most expensive per byte first, in halves, so
 * that long runs of equal nodes cost few tries. Both are deterministic and stop at a
 * number of tries, not at a time. */
#include "engine/graph/mirror_model.h"

#include <stdlib.h>
#include <string.h>

/* How far a kept node is moved at most, in nodes that could be kept instead: a block of
 * a residual network. */
#define MOVE_MAX 16

/* ---- choices ---- */

enum ps_status ps_mirror_choice_init(const struct ps_mirror_model *model,
                                     struct ps_mirror_choice *choice)
{
    *choice = (struct ps_mirror_choice){
        .again = calloc(model->forward_count + 1, sizeof(choice->again[0]))};
    if (choice->again == NULL) {
        return PS_ENOMEM;
    }
    for (size_t n = 0; n < model->forward_count; n++) {
        choice->again[n] = model->class_of[n] == PS_MIRROR_FORCED;
    }
    return PS_OK;
}

void ps_mirror_choice_fini(struct ps_mirror_choice *choice)
{
    free(choice->again);
    *choice = (struct ps_mirror_choice){0};
}

void ps_mirror_archive_fini(struct ps_mirror_archive *archive)
{
    for (size_t i = 0; i < archive->count; i++) {
        ps_mirror_choice_fini(&archive->choices[i]);
    }
    free(archive->choices);
    *archive = (struct ps_mirror_archive){0};
}

static bool as_good(const struct ps_mirror_choice *a, const struct ps_mirror_choice *b)
{
    return a->peak_bytes <= b->peak_bytes && a->work <= b->work;
}

enum ps_status ps_mirror_archive_add(const struct ps_mirror_model *model,
                                     struct ps_mirror_archive *archive,
                                     const struct ps_mirror_choice *choice)
{
    for (size_t i = 0; i < archive->count; i++) {
        if (as_good(&archive->choices[i], choice)) {
            return PS_OK;
        }
    }
    PS_TRY(ps_array_reserve((void **)&archive->choices, &archive->capacity,
                            archive->count + 1, sizeof(archive->choices[0])));
    struct ps_mirror_choice copy;
    PS_TRY(ps_mirror_choice_init(model, &copy));
    bool *again = copy.again;
    memcpy(again, choice->again, model->forward_count * sizeof(again[0]));
    copy = *choice;
    copy.again = again;
    archive->choices[archive->count++] = copy;
    return PS_OK;
}

/* ---- a lower peak ---- */

static bool may_change(const struct ps_mirror_model *model, enum ps_mirror_class most,
                       uint32_t n)
{
    enum ps_mirror_class class = model->class_of[n];
    return class == PS_MIRROR_CHEAP ||
           (class == PS_MIRROR_HEAVY && most == PS_MIRROR_HEAVY);
}

/* Up to two nodes that are changed together. */
struct move {
    uint32_t nodes[2];
    size_t count;
};

static void flip(struct ps_mirror_choice *choice, const struct move *move)
{
    for (size_t i = 0; i < move->count; i++) {
        choice->again[move->nodes[i]] = !choice->again[move->nodes[i]];
    }
}

/* The steepest descent so far. */
struct descent {
    struct ps_mirror_model *model;
    struct ps_mirror_choice *choice;
    struct move best;
    size_t best_peak;
    double best_work;
};

static void try_move(struct descent *descent, const struct move *move)
{
    struct ps_mirror_choice *choice = descent->choice;
    flip(choice, move);
    ps_mirror_weigh(descent->model, choice);
    if (choice->peak_bytes < descent->best_peak ||
        (choice->peak_bytes == descent->best_peak && choice->work < descent->best_work)) {
        descent->best = *move;
        descent->best_peak = choice->peak_bytes;
        descent->best_work = choice->work;
    }
    flip(choice, move);
}

static void try_neighbours(struct descent *descent, const uint32_t *nodes, size_t count,
                           size_t at)
{
    size_t from = at < MOVE_MAX ? 0 : at - MOVE_MAX;
    size_t to = PS_MIN(count, at + MOVE_MAX + 1);
    for (size_t i = from; i < to; i++) {
        if (descent->choice->again[nodes[i]]) {
            try_move(descent, &(struct move){.nodes = {nodes[at], nodes[i]}, .count = 2});
        }
    }
}

/* Whether a move was found and made. */
static bool descend(struct descent *descent, const uint32_t *nodes, size_t count)
{
    struct ps_mirror_model *model = descent->model;
    struct ps_mirror_choice *choice = descent->choice;
    ps_mirror_weigh(model, choice);
    descent->best.count = 0;
    descent->best_peak = choice->peak_bytes;
    descent->best_work = choice->work;
    for (size_t i = 0; i < count; i++) {
        try_move(descent, &(struct move){.nodes = {nodes[i]}, .count = 1});
    }
    for (size_t i = 0; descent->best.count == 0 && i < count; i++) {
        if (!choice->again[nodes[i]]) {
            try_neighbours(descent, nodes, count, i);
        }
    }
    flip(choice, &descent->best);
    ps_mirror_weigh(model, choice);
    return descent->best.count > 0;
}

enum ps_status ps_mirror_tighten(struct ps_mirror_model *model, enum ps_mirror_class most,
                                 struct ps_mirror_choice *choice)
{
    uint32_t *nodes = calloc(model->forward_count + 1, sizeof(*nodes));
    if (nodes == NULL) {
        return PS_ENOMEM;
    }
    size_t count = 0;
    for (uint32_t n = 0; n < model->forward_count; n++) {
        if (may_change(model, most, n)) {
            nodes[count++] = n;
        }
    }
    struct descent descent = {.model = model, .choice = choice};
    size_t round = 2 * count; /* about what one descent tries */
    while (model->tries + round <= model->tries_max && descend(&descent, nodes, count)) {
    }
    ps_mirror_weigh(model, choice);
    free(nodes);
    return PS_OK;
}

/* ---- less work ---- */

struct item {
    uint32_t node;
    int density; /* log2 of work per byte; of cheap nodes 0 */
};

/* The most work per byte first, then from the end of the network: what is made late is
 * not kept for long. */
static int compare(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    if (a->density != b->density) {
        return a->density > b->density ? -1 : 1;
    }
    return a->node > b->node ? -1 : a->node < b->node;
}

static int density_of(const struct ps_mirror_model *model, uint32_t n)
{
    const struct ps_graph_node *node = &model->graph->nodes[n];
    size_t bytes = 1;
    for (uint32_t i = 0; i < node->output_count; i++) {
        bytes += ps_mirror_entry_bytes(model, node->first_entry + i);
    }
    int density = 0;
    if (model->class_of[n] == PS_MIRROR_HEAVY) {
        for (double work = model->work[n] / (double)bytes; work > 1; work /= 2) {
            density++;
        }
    }
    return density;
}

static size_t list_items(const struct ps_mirror_model *model,
                         struct ps_mirror_choice *choice, struct item *items)
{
    size_t count = 0;
    for (uint32_t n = 0; n < model->forward_count; n++) {
        bool free_to_change = model->class_of[n] != PS_MIRROR_FORCED;
        choice->again[n] =
            choice->again[n] && (model->schedule.made[n] || !free_to_change);
        if (choice->again[n] && free_to_change) {
            items[count++] = (struct item){.node = n, .density = density_of(model, n)};
        }
    }
    qsort(items, count, sizeof(items[0]), compare);
    return count;
}

static void set_again(struct ps_mirror_choice *choice, const struct item *items,
                      size_t from, size_t to, bool again)
{
    for (size_t i = from; i < to; i++) {
        choice->again[items[i].node] = again;
    }
}

enum ps_status ps_mirror_relax(struct ps_mirror_model *model, size_t bytes,
                               struct ps_mirror_choice *choice)
{
    struct item *items = calloc(model->forward_count + 1, sizeof(*items));
    if (items == NULL) {
        return PS_ENOMEM;
    }
    ps_mirror_weigh(model, choice);
    size_t count = list_items(model, choice, items);
    /* ranges still to try; halves of halves, so 64 levels are more than there can be */
    size_t from[64], to[64], depth = 0;
    from[0] = 0;
    to[0] = count;
    depth = count > 0 ? 1 : 0;
    while (depth > 0 && model->tries < model->tries_max) {
        depth--;
        size_t a = from[depth], b = to[depth];
        set_again(choice, items, a, b, false);
        ps_mirror_weigh(model, choice);
        if (choice->peak_bytes <= bytes) {
            continue;
        }
        set_again(choice, items, a, b, true);
        if (b - a > 1) {
            size_t middle = a + (b - a) / 2;
            from[depth] = middle;
            to[depth++] = b;
            from[depth] = a;
            to[depth++] = middle;
        }
    }
    ps_mirror_weigh(model, choice);
    free(items);
    return PS_OK;
}
