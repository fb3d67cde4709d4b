/* The graph as the planner sees it: every operator node is a step, entries are values.
 * Arguments, auxiliary states, head gradients and the gradients of arguments are somebody
 * else's memory; outputs of a backward node that nobody uses, or that are added into a
 * sum's place, have none. */
#include "engine/graph/plan_graph.h"

#include <stdlib.h>
#include <string.h>

/* The input of ps_plan_memory and what it points at. */
struct translation {
    const struct ps_graph *graph;
    const struct ps_graph_plan_options *options;
    struct ps_plan_value *values; /* per entry */
    struct ps_plan_step *steps;   /* per node */
    uint32_t *writes;             /* of all steps, one after the other */
    struct ps_plan_pair *pairs;
    size_t write_count, pair_count; /* used so far */
};

uint32_t ps_plan_device(struct ps_context context)
{
    return ((uint32_t)context.kind << 24) | ((uint32_t)context.id & 0xffffff);
}

struct ps_context ps_plan_context(uint32_t device)
{
    return (struct ps_context){.kind = (enum ps_context_kind)(device >> 24),
                               .id = (int)(device & 0xffffff)};
}

static bool is_operator(const struct ps_graph_node *node)
{
    return node->kind != PS_NODE_VARIABLE && node->kind != PS_NODE_HEAD_GRAD;
}

static enum ps_status fill_values(struct translation *to)
{
    const struct ps_graph *graph = to->graph;
    for (size_t e = 0; e < graph->entry_count; e++) {
        const struct ps_graph_entry *entry = &graph->entries[e];
        const struct ps_graph_node *node = &graph->nodes[entry->node];
        struct ps_plan_value *value = &to->values[e];
        int64_t count = ps_shape_count(&entry->shape);
        value->count = count;
        value->dtype = entry->dtype;
        value->device = ps_plan_device(node->context);
        value->external = !is_operator(node) || entry->gradient_of != PS_NO_INDEX ||
                          entry->adds_into != PS_NO_ENTRY;
        if (count < 0 ||
            !ps_mul_size((size_t)count, ps_dtype_size(entry->dtype), &value->bytes)) {
            return PS_ESHAPE;
        }
    }
    for (size_t i = 0; i < graph->output_count; i++) {
        to->values[graph->outputs[i]].keep = true;
    }
    return PS_OK;
}

/* ---- in-place pairs ---- */

/* The entry behind one side of an operator's in-place pair; PS_NO_ENTRY when it is not an
 * input of the step. */
static uint32_t pair_source(const struct ps_graph_node *node,
                            const struct ps_inplace *pair)
{
    if (node->kind == PS_NODE_FORWARD) {
        return node->inputs[pair->from_index];
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->slots[i].kind == pair->from &&
            node->slots[i].index == (uint32_t)pair->from_index) {
            return node->inputs[i];
        }
    }
    return PS_NO_ENTRY;
}

/* Output 0 has the bytes of input 0, and nothing else happens. */
static bool is_identity(const struct ps_graph_node *node)
{
    uint32_t flags = ps_op_flags(ps_op_definition(node->op));
    if ((flags & PS_OP_IDENTITY) == 0 || node->output_count != 1 ||
        node->input_count < 1) {
        return false;
    }
    return node->kind == PS_NODE_FORWARD ||
           ((flags & PS_OP_LOSS_HEAD) == 0 && node->slots[0].kind == PS_SLOT_OUT_GRAD);
}

static void add_pair(struct translation *to, struct ps_plan_step *step, uint32_t from,
                     uint32_t into, bool identity)
{
    if (from != PS_NO_ENTRY) {
        to->pairs[to->pair_count++] =
            (struct ps_plan_pair){.from = from, .to = into, .identity = identity};
        step->pair_count++;
    }
}

static void fill_pairs(struct translation *to, const struct ps_graph_node *node,
                       struct ps_plan_step *step)
{
    struct ps_inplace found[PS_OP_MAX_INPLACE];
    int count = 0;
    step->pairs = to->pairs + to->pair_count;
    if (node->kind == PS_NODE_SUM) {
        for (uint32_t i = 0; i < node->input_count; i++) {
            add_pair(to, step, node->inputs[i], node->first_entry, false);
        }
        return;
    }
    if (node->kind == PS_NODE_FORWARD) {
        count = ps_op_inplace_forward(node->op, found);
    } else if (node->kind == PS_NODE_BACKWARD) {
        count = ps_op_inplace_backward(node->op, found);
    }
    bool identity = count > 0 && to->options->identity && is_identity(node);
    for (int i = 0; i < count; i++) {
        add_pair(to, step, pair_source(node, &found[i]),
                 node->first_entry + (uint32_t)found[i].to, identity);
    }
}

/* ---- steps ---- */

static size_t workspace_of(const struct translation *to, uint32_t n)
{
    const struct ps_graph_node *node = &to->graph->nodes[n];
    const size_t *bytes = to->options->workspace_bytes;
    if (bytes == NULL) {
        return 0;
    }
    switch (node->kind) {
    case PS_NODE_FORWARD:
        return bytes[2 * (node->mirror_of == PS_NO_INDEX ? n : node->mirror_of)];
    case PS_NODE_BACKWARD:
        return bytes[2 * node->forward + 1];
    default:
        return 0;
    }
}

static void fill_step(struct translation *to, uint32_t n)
{
    const struct ps_graph_node *node = &to->graph->nodes[n];
    struct ps_plan_step *step = &to->steps[n];
    if (!is_operator(node)) {
        return;
    }
    uint32_t *writes = to->writes + to->write_count;
    for (uint32_t i = 0; i < node->output_count; i++) {
        uint32_t e = node->first_entry + i;
        if (node->kind != PS_NODE_BACKWARD || to->graph->entries[e].wanted) {
            writes[step->write_count++] = e;
        }
    }
    to->write_count += step->write_count;
    step->writes = writes;
    step->reads = node->inputs;
    step->read_count = node->input_count;
    step->device = ps_plan_device(node->context);
    step->workspace_bytes = workspace_of(to, n);
    fill_pairs(to, node, step);
}

static enum ps_status fill_colours(struct translation *to)
{
    size_t nodes = to->graph->node_count;
    if (to->options->colours <= 1) {
        return PS_OK;
    }
    bool *counts = calloc(nodes + 1, sizeof(bool));
    uint32_t *colour = calloc(nodes + 1, sizeof(uint32_t)), used;
    enum ps_status status = PS_ENOMEM;
    if (counts == NULL || colour == NULL) {
        goto out;
    }
    for (int scratch = 0; scratch < 2; scratch++) {
        for (size_t n = 0; n < nodes; n++) {
            counts[n] = scratch ? to->steps[n].workspace_bytes > 0
                                : is_operator(&to->graph->nodes[n]);
        }
        PS_TRY_GOTO(
            status,
            ps_graph_colour(to->graph, counts, to->options->colours, colour, &used), out);
        for (size_t n = 0; n < nodes; n++) {
            *(scratch ? &to->steps[n].scratch_colour : &to->steps[n].colour) = colour[n];
        }
    }
out:
    free(colour);
    free(counts);
    return status;
}

/* Room for the writes and pairs of all steps. */
static enum ps_status make_room(struct translation *to)
{
    const struct ps_graph *graph = to->graph;
    size_t pairs = 1;
    for (size_t n = 0; n < graph->node_count; n++) {
        bool sum = graph->nodes[n].kind == PS_NODE_SUM;
        pairs += sum ? graph->nodes[n].input_count : PS_OP_MAX_INPLACE;
    }
    to->values = calloc(graph->entry_count + 1, sizeof(to->values[0]));
    to->steps = calloc(graph->node_count + 1, sizeof(to->steps[0]));
    to->writes = calloc(graph->entry_count + 1, sizeof(to->writes[0]));
    to->pairs = calloc(pairs, sizeof(to->pairs[0]));
    return to->values == NULL || to->steps == NULL || to->writes == NULL ||
                   to->pairs == NULL
               ? PS_ENOMEM
               : PS_OK;
}

enum ps_status ps_graph_plan_input_init(struct ps_graph_plan_input *input,
                                        const struct ps_graph *graph,
                                        const struct ps_graph_plan_options *options)
{
    struct translation to = {.graph = graph, .options = options};
    enum ps_status status;
    PS_TRY_GOTO(status, make_room(&to), fail);
    PS_TRY_GOTO(status, fill_values(&to), fail);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        fill_step(&to, n);
    }
    PS_TRY_GOTO(status, fill_colours(&to), fail);
    *input = (struct ps_graph_plan_input){.input = {.values = to.values,
                                                    .steps = to.steps,
                                                    .value_count = graph->entry_count,
                                                    .step_count = graph->node_count,
                                                    .inplace = options->inplace,
                                                    .match_range = options->match_range,
                                                    .effort = options->effort},
                                          .values = to.values,
                                          .steps = to.steps,
                                          .writes = to.writes,
                                          .pairs = to.pairs};
    return PS_OK;
fail:
    free(to.pairs);
    free(to.writes);
    free(to.steps);
    free(to.values);
    return status;
}

void ps_graph_plan_input_fini(struct ps_graph_plan_input *input)
{
    free(input->pairs);
    free(input->writes);
    free(input->steps);
    free(input->values);
    *input = (struct ps_graph_plan_input){0};
}

enum ps_status ps_graph_plan(const struct ps_graph *graph,
                             const struct ps_graph_plan_options *options,
                             struct ps_memory_plan *plan_out)
{
    struct ps_graph_plan_input input;
    PS_TRY(ps_graph_plan_input_init(&input, graph, options));
    enum ps_status status = ps_plan_memory(&input.input, plan_out);
    ps_graph_plan_input_fini(&input);
    return status;
}

enum ps_status ps_graph_plan_live_peak(const struct ps_graph *graph,
                                       const struct ps_graph_plan_options *options,
                                       size_t *bytes_out)
{
    struct ps_graph_plan_options live = *options;
    live.effort = PS_EFFORT_LIVE;
    struct ps_memory_plan plan;
    PS_TRY(ps_graph_plan(graph, &live, &plan));
    *bytes_out = ps_memory_plan_peak(&plan, PS_LAYOUT_LIVE);
    ps_memory_plan_fini(&plan);
    return PS_OK;
}
