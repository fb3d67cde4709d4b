/* The graph with the copies of a choice.  Forward nodes keep their numbers; the second
 * part gets new node and entry arrays, its nodes new input lists, and what was there
 * stays untouched until the caller lets go of it. */
#include "engine/graph/mirror_model.h"

#include <stdlib.h>
#include <string.h>

struct build {
    struct ps_mirror_model *model;
    struct ps_graph *graph;
    struct ps_mirror_graph *out;
    uint32_t *copy_entry; /* per forward node: the first entry of its copy */
};

static enum ps_status copy_inputs(const struct build *build, struct ps_graph_node *node)
{
    uint32_t *inputs =
        ps_arena_calloc(&build->graph->arena, node->input_count, sizeof(*inputs));
    if (inputs == NULL) {
        return PS_ENOMEM;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        uint32_t e = node->inputs[i];
        const struct ps_graph_entry *entry = &build->graph->entries[e];
        inputs[i] = build->model->schedule.replaced[e]
                        ? build->copy_entry[entry->node] + entry->output
                        : e;
    }
    node->inputs = inputs;
    return PS_OK;
}

static enum ps_status build_copy(struct build *build, uint32_t n, uint32_t at)
{
    struct ps_mirror_graph *out = build->out;
    const struct ps_graph_node *from = &build->graph->nodes[n];
    struct ps_graph_node *node = &out->nodes[at];
    *node = *from;
    node->name = ps_arena_printf(&build->graph->arena, "%s_mirror", from->name);
    node->mirror_of = n;
    node->first_entry = build->copy_entry[n] = (uint32_t)out->entry_count;
    if (node->name == NULL) {
        return PS_ENOMEM;
    }
    for (uint32_t i = 0; i < from->output_count; i++) {
        out->entries[out->entry_count] = build->graph->entries[from->first_entry + i];
        out->entries[out->entry_count++].node = at;
    }
    return copy_inputs(build, node);
}

static enum ps_status build_node(struct build *build, size_t s)
{
    struct ps_mirror_graph *out = build->out;
    uint32_t n = build->model->schedule.steps[s];
    uint32_t at = (uint32_t)s;
    if ((n & PS_MIRROR_COPY) != 0) {
        return build_copy(build, n & ~PS_MIRROR_COPY, at);
    }
    out->nodes[at] = build->graph->nodes[n];
    for (uint32_t i = 0; i < out->nodes[at].output_count; i++) {
        out->entries[out->nodes[at].first_entry + i].node = at;
    }
    return n < build->model->forward_count ? PS_OK : copy_inputs(build, &out->nodes[at]);
}

static enum ps_status make_room(struct build *build)
{
    const struct ps_graph *graph = build->graph;
    const struct ps_mirror_schedule *schedule = &build->model->schedule;
    struct ps_mirror_graph *out = build->out;
    size_t entries = graph->entry_count;
    for (size_t s = 0; s < schedule->count; s++) {
        if ((schedule->steps[s] & PS_MIRROR_COPY) != 0) {
            entries += graph->nodes[schedule->steps[s] & ~PS_MIRROR_COPY].output_count;
        }
    }
    if (schedule->count >= INT32_MAX || entries >= INT32_MAX) {
        return PS_EUNSUPPORTED;
    }
    out->node_capacity = schedule->count + 1;
    out->entry_capacity = entries + 1;
    out->nodes = calloc(out->node_capacity, sizeof(out->nodes[0]));
    out->entries = calloc(out->entry_capacity, sizeof(out->entries[0]));
    build->copy_entry = calloc(graph->forward_count + 1, sizeof(uint32_t));
    uint32_t *argument_of =
        ps_arena_calloc(&build->graph->arena, schedule->count, sizeof(uint32_t));
    if (out->nodes == NULL || out->entries == NULL || build->copy_entry == NULL ||
        argument_of == NULL) {
        return PS_ENOMEM;
    }
    memset(argument_of, 0xff, schedule->count * sizeof(uint32_t)); /* PS_NO_INDEX */
    for (size_t i = 0; i < graph->argument_count; i++) {
        argument_of[graph->arguments[i]] = (uint32_t)i;
    }
    out->argument_of = argument_of;
    return PS_OK;
}

enum ps_status ps_mirror_build(struct ps_mirror_model *model, struct ps_graph *graph,
                               const bool *again, struct ps_mirror_graph *out)
{
    struct build build = {.model = model, .graph = graph, .out = out};
    *out = (struct ps_mirror_graph){0};
    ps_mirror_schedule_make(model, again);
    enum ps_status status;
    PS_TRY_GOTO(status, make_room(&build), out);
    out->node_count = model->schedule.count;
    out->entry_count = graph->entry_count;
    memcpy(out->entries, graph->entries, graph->entry_count * sizeof(out->entries[0]));
    for (size_t s = 0; s < model->schedule.count; s++) {
        PS_TRY_GOTO(status, build_node(&build, s), out);
    }
out:
    free(build.copy_entry);
    if (status != PS_OK) {
        ps_mirror_graph_fini(out);
    }
    return status;
}

void ps_mirror_exchange(struct ps_graph *graph, struct ps_mirror_graph *other)
{
    struct ps_mirror_graph was = {.nodes = graph->nodes,
                                  .entries = graph->entries,
                                  .node_count = graph->node_count,
                                  .node_capacity = graph->node_capacity,
                                  .entry_count = graph->entry_count,
                                  .entry_capacity = graph->entry_capacity,
                                  .argument_of = graph->argument_of};
    graph->nodes = other->nodes;
    graph->entries = other->entries;
    graph->node_count = other->node_count;
    graph->node_capacity = other->node_capacity;
    graph->entry_count = other->entry_count;
    graph->entry_capacity = other->entry_capacity;
    graph->argument_of = other->argument_of;
    *other = was;
}

void ps_mirror_graph_fini(struct ps_mirror_graph *other)
{
    free(other->entries);
    free(other->nodes);
    *other = (struct ps_mirror_graph){0};
}
