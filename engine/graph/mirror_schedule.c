/* From a choice to an order of steps: the forward part as it is; in the second part the
 * copies that a node needs right before it, each once, each behind the copies that it
 * reads itself. */
#include "engine/graph/mirror_model.h"

#include <stdlib.h>
#include <string.h>

enum ps_status ps_mirror_schedule_init(struct ps_mirror_model *model)
{
    struct ps_mirror_schedule *schedule = &model->schedule;
    size_t forward = model->forward_count + 1;
    schedule->steps =
        calloc(model->graph->node_count + forward, sizeof(schedule->steps[0]));
    schedule->stack = calloc(forward, sizeof(schedule->stack[0]));
    schedule->next_input = calloc(forward, sizeof(schedule->next_input[0]));
    schedule->made = calloc(forward, sizeof(schedule->made[0]));
    schedule->replaced =
        calloc(model->graph->entry_count + 1, sizeof(schedule->replaced[0]));
    return schedule->replaced == NULL || schedule->steps == NULL ||
                   schedule->stack == NULL || schedule->next_input == NULL ||
                   schedule->made == NULL
               ? PS_ENOMEM
               : PS_OK;
}

void ps_mirror_schedule_fini(struct ps_mirror_schedule *schedule)
{
    free(schedule->replaced);
    free(schedule->made);
    free(schedule->next_input);
    free(schedule->stack);
    free(schedule->steps);
}

/* The copy of forward node 'root', behind those that it needs and that are not there. */
static void add_copy(struct ps_mirror_model *model, uint32_t root)
{
    struct ps_mirror_schedule *schedule = &model->schedule;
    const struct ps_graph *graph = model->graph;
    size_t depth = 0;
    schedule->stack[0] = root;
    schedule->next_input[0] = 0;
    for (;;) {
        uint32_t n = schedule->stack[depth];
        const struct ps_graph_node *node = &graph->nodes[n];
        uint32_t *next = &schedule->next_input[depth];
        uint32_t below = PS_NO_INDEX;
        while (*next < node->input_count && below == PS_NO_INDEX) {
            uint32_t e = node->inputs[(*next)++];
            if (schedule->replaced[e] && !schedule->made[graph->entries[e].node]) {
                below = graph->entries[e].node;
            }
        }
        if (below != PS_NO_INDEX) {
            depth++;
            schedule->stack[depth] = below;
            schedule->next_input[depth] = 0;
            continue;
        }
        schedule->made[n] = true;
        schedule->steps[schedule->count++] = n | PS_MIRROR_COPY;
        schedule->copy_count++;
        if (depth == 0) {
            return;
        }
        depth--;
    }
}

static void find_replaced(struct ps_mirror_model *model, const bool *again)
{
    const struct ps_graph *graph = model->graph;
    for (uint32_t n = 0; n < model->forward_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->output_count; i++) {
            uint32_t e = node->first_entry + i;
            model->schedule.replaced[e] = again[n] && !model->stays[e];
        }
    }
}

void ps_mirror_schedule_make(struct ps_mirror_model *model, const bool *again)
{
    struct ps_mirror_schedule *schedule = &model->schedule;
    const struct ps_graph *graph = model->graph;
    memset(schedule->made, 0, model->forward_count * sizeof(schedule->made[0]));
    find_replaced(model, again);
    for (uint32_t n = 0; n < model->forward_count; n++) {
        schedule->steps[n] = n;
    }
    schedule->count = model->forward_count;
    schedule->copy_count = 0;
    for (uint32_t n = (uint32_t)model->forward_count; n < graph->node_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->input_count; i++) {
            uint32_t e = node->inputs[i];
            if (schedule->replaced[e] && !schedule->made[graph->entries[e].node]) {
                add_copy(model, graph->entries[e].node);
            }
        }
        schedule->steps[schedule->count++] = n;
    }
}
