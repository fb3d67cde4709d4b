/* Accumulating in place: in a chain of gradient sums, s = r + t, the operator that
 * computes t adds it straight into the place that r leaves to s, and the sum has nothing
 * left to do; t needs no memory (MXNet's detection of in-place additions).
 *
 * Only where nothing can tell the difference, to the bit:
 *   - the planner put s into r's place, both internal, f32 or f64;
 *   - t has no other reader, is no output and no argument's gradient; its operator says
 *     that ADD is what is there plus what WRITE gives, rounded once (PS_OP_ADDS_EXACTLY),
 *     and runs after r is complete, on the device of the sum;
 *   - from that operator up to the sum nobody reads the place; nor does the operator, or
 *     write it by another of its outputs.
 * The sum's operands keep their order, and the sums theirs.
 *
 * Taking t's memory away gives other values places, so the conditions are looked at again
 * under the plan that results; what does not hold there is undone. */
#include "engine/graph/plan_graph.h"

#include <stdlib.h>

struct search {
    struct ps_graph *graph;
    const struct ps_graph_plan_options *options;
    uint32_t *readers; /* per entry: input slots that take it, and outputs */
};

static void count_readers(struct search *search)
{
    const struct ps_graph *graph = search->graph;
    for (size_t n = 0; n < graph->node_count; n++) {
        for (uint32_t i = 0; i < graph->nodes[n].input_count; i++) {
            search->readers[graph->nodes[n].inputs[i]]++;
        }
    }
    for (size_t i = 0; i < graph->output_count; i++) {
        search->readers[graph->outputs[i]]++;
    }
}

static bool reads_place(const struct ps_graph_node *node,
                        const struct ps_memory_plan *plan, uint32_t group)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (plan->group_of[node->inputs[i]] == group) {
            return true;
        }
    }
    return false;
}

/* Another output of the operator that is added into the same place. */
static bool added_twice(const struct ps_graph *graph, const struct ps_memory_plan *plan,
                        uint32_t term, uint32_t group)
{
    const struct ps_graph_node *node = &graph->nodes[graph->entries[term].node];
    for (uint32_t i = 0; i < node->output_count; i++) {
        uint32_t other = node->first_entry + i, into = graph->entries[other].adds_into;
        if (other != term && into != PS_NO_ENTRY && plan->group_of[into] == group) {
            return true;
        }
    }
    return false;
}

static bool adds_exactly(const struct ps_graph *graph, uint32_t term)
{
    const struct ps_graph_entry *entry = &graph->entries[term];
    const struct ps_graph_node *node = &graph->nodes[entry->node];
    return node->kind == PS_NODE_BACKWARD && entry->gradient_of == PS_NO_INDEX &&
           (ps_op_flags(ps_op_definition(node->op)) & PS_OP_ADDS_EXACTLY) != 0 &&
           (entry->dtype == PS_F32 || entry->dtype == PS_F64);
}

/* Whether there is anything to look at. */
static bool candidates(const struct ps_graph *graph)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const struct ps_graph_node *sum = &graph->nodes[n];
        if (sum->kind == PS_NODE_SUM && sum->input_count == 2 &&
            adds_exactly(graph, sum->inputs[1])) {
            return true;
        }
    }
    return false;
}

/* Whether the second operand of sum 'n' may be added in place. */
static bool may_add(const struct search *search, const struct ps_memory_plan *plan,
                    uint32_t n)
{
    const struct ps_graph *graph = search->graph;
    const struct ps_graph_node *sum = &graph->nodes[n];
    if (sum->kind != PS_NODE_SUM || sum->input_count != 2) {
        return false;
    }
    uint32_t running = sum->inputs[0], term = sum->inputs[1];
    uint32_t group = plan->group_of[sum->first_entry];
    uint32_t maker = graph->entries[term].node;
    if (group == PS_PLAN_NOWHERE || plan->group_of[running] != group ||
        search->readers[running] != 1 || search->readers[term] != 1 ||
        !adds_exactly(graph, term) ||
        !ps_context_equal(graph->nodes[maker].context, sum->context)) {
        return false;
    }
    if (graph->entries[running].node >= maker || maker >= n ||
        added_twice(graph, plan, term, group)) {
        return false;
    }
    for (uint32_t k = maker; k < n; k++) {
        if (reads_place(&graph->nodes[k], plan, group)) {
            return false;
        }
    }
    return true;
}

/* Looks at every sum again under the plan that the present choice gives: with 'add' makes
 * new choices, without takes back those that do not hold.  '*changed_out': how many. */
static enum ps_status look(struct search *search, bool add, size_t *changed_out)
{
    struct ps_graph *graph = search->graph;
    struct ps_graph_plan_options live = *search->options;
    struct ps_memory_plan plan;
    live.effort = PS_EFFORT_LIVE;
    PS_TRY(ps_graph_plan(graph, &live, &plan));
    *changed_out = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ps_graph_node *sum = &graph->nodes[n];
        if (sum->kind != PS_NODE_SUM || sum->input_count != 2) {
            continue;
        }
        uint32_t *into = &graph->entries[sum->inputs[1]].adds_into;
        bool may = may_add(search, &plan, n);
        if (add ? may : !may && *into == sum->first_entry) {
            *into = add ? sum->first_entry : PS_NO_ENTRY;
            (*changed_out)++;
        }
    }
    ps_memory_plan_fini(&plan);
    return PS_OK;
}

enum ps_status ps_graph_accumulate(struct ps_graph *graph,
                                   const struct ps_graph_plan_options *options,
                                   size_t *count_out)
{
    struct search search = {.graph = graph,
                            .options = options,
                            .readers = calloc(graph->entry_count + 1, sizeof(uint32_t))};
    size_t count = 0, undone = 0;
    if (search.readers == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status = PS_OK;
    count_readers(&search);
    if (options->inplace && candidates(graph)) {
        PS_TRY_GOTO(status, look(&search, true, &count), out);
    }
    for (undone = count; undone > 0; count -= undone) {
        PS_TRY_GOTO(status, look(&search, false, &undone), out);
    }
    *count_out = count;
out:
    free(search.readers);
    return status;
}
