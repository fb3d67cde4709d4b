/* Colours by paths: what lies on one path through the graph runs one after the other
 * anyhow, so it may share memory and scratch; what can run side by side should not.
 *
 * Again and again the path with the most nodes that count and have no colour yet gets the
 * next colour, until one colour is left for the rest.  The best path is found from the
 * last node to the first, O(nodes + edges) for each colour. */
#include "engine/graph/plan_graph.h"

#include <stdlib.h>
#include <string.h>

struct paths {
    const struct ps_graph *graph;
    bool *open;       /* per node: counts and has no colour yet */
    uint32_t *reward; /* per node: of the best path that begins there */
    uint32_t *next;   /* per node: the path's next node, PS_NO_INDEX at its end */
};

/* The best path's first node; PS_NO_INDEX when no node is open. */
static uint32_t best_path(struct paths *paths)
{
    const struct ps_graph *graph = paths->graph;
    uint32_t best = PS_NO_INDEX;
    memset(paths->reward, 0, graph->node_count * sizeof(uint32_t));
    memset(paths->next, 0xff, graph->node_count * sizeof(uint32_t));
    for (size_t i = graph->node_count; i > 0; i--) {
        uint32_t n = (uint32_t)(i - 1);
        const struct ps_graph_node *node = &graph->nodes[n];
        /* consumers come later in the order: what lies behind n is complete */
        paths->reward[n] += paths->open[n] ? 1 : 0;
        if (paths->reward[n] > 0 &&
            (best == PS_NO_INDEX || paths->reward[n] >= paths->reward[best])) {
            best = n;
        }
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t producer = graph->entries[node->inputs[k]].node;
            if (paths->reward[n] > paths->reward[producer]) {
                paths->reward[producer] = paths->reward[n];
                paths->next[producer] = n;
            }
        }
    }
    return best;
}

static void paint(struct paths *paths, uint32_t from, uint32_t colour,
                  uint32_t *colour_out)
{
    for (uint32_t n = from; n != PS_NO_INDEX; n = paths->next[n]) {
        if (paths->open[n]) {
            paths->open[n] = false;
            colour_out[n] = colour;
        }
    }
}

enum ps_status ps_graph_colour(const struct ps_graph *graph, const bool *counts,
                               uint32_t colours, uint32_t *colour_out, uint32_t *used_out)
{
    size_t room = graph->node_count + 1;
    struct paths paths = {.graph = graph,
                          .open = calloc(room, sizeof(bool)),
                          .reward = calloc(room, sizeof(uint32_t)),
                          .next = calloc(room, sizeof(uint32_t))};
    enum ps_status status = PS_ENOMEM;
    if (paths.open != NULL && paths.reward != NULL && paths.next != NULL) {
        status = PS_OK;
        memcpy(paths.open, counts, graph->node_count * sizeof(bool));
        memset(colour_out, 0xff, graph->node_count * sizeof(uint32_t));
        uint32_t colour = 0, from = PS_NO_INDEX;
        while (colour + 1 < colours && (from = best_path(&paths)) != PS_NO_INDEX) {
            paint(&paths, from, colour++, colour_out);
        }
        bool rest = false;
        for (size_t n = 0; n < graph->node_count; n++) {
            rest = rest || paths.open[n];
        }
        uint32_t last = colour > 0 && !rest ? colour - 1 : colour;
        for (size_t n = 0; n < graph->node_count; n++) {
            colour_out[n] = colour_out[n] == PS_NO_INDEX ? last : colour_out[n];
        }
        *used_out = last + 1;
    }
    free(paths.next);
    free(paths.reward);
    free(paths.open);
    return status;
}
