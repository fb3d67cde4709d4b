/* Borders: cutting forward into segments that are computed again from what crosses.
 *
 * Chen, Xu, Zhang, Guestrin 2016 (arXiv 1604.06174): walk forward, sum what would be
 * dropped, and where the sum exceeds a threshold keep a border and start anew; try many
 * thresholds.  Here a border is a place in the node order, and what is kept at it are all
 * values that a later forward node still reads, so any graph will do; places are those
 * where the least crosses, or the nodes that __mirror_stage__ names. */
#include "engine/graph/mirror_model.h"

#include <stdlib.h>
#include <string.h>

/* Thresholds: the whole, and RATIO of the one before down to the SMALLEST-th part. */
#define SMALLEST 512.0
#define RATIO 0.8

struct cutter {
    struct ps_mirror_model *model;
    enum ps_mirror_class most;
    uint32_t *last;   /* per entry: the last forward node that reads it; its producer
                         where there is none */
    size_t *crossing; /* per forward node: bytes that live on behind it in forward */
    bool *place;      /* per forward node: a border may be behind it */
};

static void find_crossing(struct cutter *cutter)
{
    const struct ps_mirror_model *model = cutter->model;
    const struct ps_graph *graph = model->graph;
    for (uint32_t n = 0; n < model->forward_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->output_count; i++) {
            cutter->last[node->first_entry + i] = n;
        }
        for (uint32_t i = 0; i < node->input_count; i++) {
            cutter->last[node->inputs[i]] = n;
        }
    }
    /* begins minus ends, then summed */
    size_t live = 0;
    size_t *dies = cutter->crossing;
    for (uint32_t e = 0; e < graph->entry_count; e++) {
        if (graph->entries[e].node < model->forward_count) {
            dies[cutter->last[e]] += ps_mirror_entry_bytes(model, e);
        }
    }
    for (uint32_t n = 0; n < model->forward_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->output_count; i++) {
            live += ps_mirror_entry_bytes(model, node->first_entry + i);
        }
        live -= dies[n];
        cutter->crossing[n] = live;
    }
}

/* Behind each node whose stage is "True", and behind the last node of each other stage:
 * the states of one step of a recurrent network. */
static void find_stages(struct cutter *cutter)
{
    const struct ps_mirror_model *model = cutter->model;
    uint32_t last = PS_NO_INDEX;
    for (uint32_t n = 0; n < model->forward_count; n++) {
        const char *stage = ps_mirror_stage(model, n);
        if (stage == NULL) {
            continue;
        }
        if (last != PS_NO_INDEX && strcmp(stage, ps_mirror_stage(model, last)) == 0 &&
            strcmp(stage, "True") != 0) {
            cutter->place[last] = false;
        }
        cutter->place[n] = true;
        last = n;
    }
}

/* Places: where less crosses than behind the operator before and no more than behind the
 * next; of equals the last, which is what backward reads (a ReLU, not the sum in it). */
static void find_places(struct cutter *cutter)
{
    const struct ps_mirror_model *model = cutter->model;
    uint32_t before = PS_NO_INDEX, candidate = PS_NO_INDEX;
    if (model->has_stages) {
        find_stages(cutter);
        return;
    }
    for (uint32_t n = 0; n < model->forward_count; n++) {
        if (model->graph->nodes[n].kind == PS_NODE_VARIABLE) {
            continue;
        }
        size_t now = cutter->crossing[n];
        size_t was = before == PS_NO_INDEX ? SIZE_MAX : cutter->crossing[before];
        if (now > was && candidate != PS_NO_INDEX) {
            cutter->place[candidate] = true;
            candidate = PS_NO_INDEX;
        } else if (now < was || candidate != PS_NO_INDEX) {
            candidate = n;
        }
        before = n;
    }
}

static bool allowed(const struct cutter *cutter, uint32_t n)
{
    enum ps_mirror_class class = cutter->model->class_of[n];
    return class == PS_MIRROR_FORCED || class == PS_MIRROR_CHEAP ||
           (class == PS_MIRROR_HEAVY && cutter->most == PS_MIRROR_HEAVY);
}

/* Keeps what crosses the border behind 'n'. */
static void keep_border(const struct cutter *cutter, uint32_t n,
                        struct ps_mirror_choice *choice)
{
    const struct ps_mirror_model *model = cutter->model;
    for (uint32_t p = 0; p <= n; p++) {
        const struct ps_graph_node *node = &model->graph->nodes[p];
        for (uint32_t i = 0; i < node->output_count; i++) {
            uint32_t e = node->first_entry + i;
            if (cutter->last[e] > n && model->class_of[p] != PS_MIRROR_FORCED) {
                choice->again[p] = false;
            }
        }
    }
}

static size_t dropped_bytes(const struct cutter *cutter, uint32_t n)
{
    const struct ps_graph_node *node = &cutter->model->graph->nodes[n];
    size_t bytes = 0;
    for (uint32_t i = 0; allowed(cutter, n) && i < node->output_count; i++) {
        bytes += ps_mirror_entry_bytes(cutter->model, node->first_entry + i);
    }
    return bytes;
}

static void cut(const struct cutter *cutter, double threshold,
                struct ps_mirror_choice *choice)
{
    double together = 0;
    for (uint32_t n = 0; n < cutter->model->forward_count; n++) {
        choice->again[n] = allowed(cutter, n);
    }
    for (uint32_t n = 0; n < cutter->model->forward_count; n++) {
        together += (double)dropped_bytes(cutter, n);
        if (cutter->place[n] && together > threshold) {
            keep_border(cutter, n, choice);
            together = 0;
        }
    }
}

static enum ps_status cut_all(const struct cutter *cutter,
                              struct ps_mirror_archive *archive)
{
    double total = 0;
    for (uint32_t n = 0; n < cutter->model->forward_count; n++) {
        total += (double)dropped_bytes(cutter, n);
    }
    struct ps_mirror_choice choice;
    PS_TRY(ps_mirror_choice_init(cutter->model, &choice));
    enum ps_status status = PS_OK;
    for (double threshold = total; status == PS_OK; threshold *= RATIO) {
        bool last = threshold < total / SMALLEST;
        cut(cutter, last ? 0 : threshold, &choice);
        ps_mirror_weigh(cutter->model, &choice);
        status = ps_mirror_archive_add(cutter->model, archive, &choice);
        if (last) {
            break;
        }
    }
    ps_mirror_choice_fini(&choice);
    return status;
}

enum ps_status ps_memonger_cut(struct ps_mirror_model *model, enum ps_mirror_class most,
                               struct ps_mirror_archive *archive)
{
    size_t nodes = model->forward_count + 1;
    struct cutter cutter = {.model = model,
                            .most = most,
                            .last =
                                calloc(model->graph->entry_count + 1, sizeof(uint32_t)),
                            .crossing = calloc(nodes, sizeof(size_t)),
                            .place = calloc(nodes, sizeof(bool))};
    enum ps_status status = PS_ENOMEM;
    if (cutter.last != NULL && cutter.crossing != NULL && cutter.place != NULL) {
        find_crossing(&cutter);
        find_places(&cutter);
        status = cut_all(&cutter, archive);
    }
    free(cutter.place);
    free(cutter.crossing);
    free(cutter.last);
    return status;
}
