/* The backward graph: for every argument with a request, the nodes that compute its
 * gradient.
 *
 * Operators are visited in reverse order.  Gradients that flow into one entry are summed:
 * none is zero, one is itself, fewer than the graph's grad_sum_cap are one n-ary sum;
 * from there on a chain of two-operand sums takes each up as it arrives, right behind the
 * node that made it, so that only one running sum and one new term are alive (and often
 * not even that: plan_adds.c).  That place in the node order is the control edge: plans
 * and pushes follow it.
 *
 * Only what leads to a requested gradient is built, and a backward node takes in only the
 * values that its operator says it reads; the rest can be freed before. Operators that
 * add values of one shape have no backward: their inputs take the head gradient itself.
 * Zero gradients
 * are not represented: where all heads of an operator have none, it has no backward
 * (except a loss, which makes its own). */
#include "engine/graph/graph_ir.h"

#include <stdlib.h>
#include <string.h>

#define SUM_CAP_DEFAULT 8 /* of EXEC_INPLACE_GRAD_SUM_CAP */

/* The gradients that arrived for one forward entry. */
struct arrival {
    uint32_t *terms; /* entries; room for 'expected' */
    uint32_t count, expected;
    uint32_t running; /* the chain's sum so far, PS_NO_ENTRY before it began */
};

struct pass {
    struct ps_graph *graph;
    const enum ps_grad_req *reqs;
    struct arrival *arrivals; /* per forward entry */
    bool *needed;             /* per forward entry: leads to a requested gradient */
    bool *handed_on;          /* per entry: several take it as it is */
    size_t handed_capacity;
    uint32_t sum_cap;
    struct ps_error *err;
};

/* ---- which entries need a gradient, and how many will arrive ---- */

static bool differentiable(const struct ps_graph_node *node, uint32_t i)
{
    uint32_t flags = ps_op_flags(ps_op_definition(node->op));
    return (int)i < ps_op_input_count(node->op) && (flags & PS_OP_ZERO_GRAD) == 0 &&
           ps_op_input_differentiable(node->op, (int)i);
}

static void mark_needed(struct pass *pass)
{
    const struct ps_graph *graph = pass->graph;
    for (size_t n = 0; n < graph->forward_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        bool needed = false;
        if (node->kind == PS_NODE_VARIABLE) {
            uint32_t argument = graph->argument_of[n];
            needed = argument != PS_NO_INDEX && pass->reqs[argument] != PS_GRAD_NULL;
        }
        for (uint32_t i = 0; node->kind == PS_NODE_FORWARD && i < node->input_count;
             i++) {
            if (pass->needed[node->inputs[i]] && differentiable(node, i)) {
                needed = true;
                pass->arrivals[node->inputs[i]].expected++;
            }
        }
        for (uint32_t i = 0; i < node->output_count; i++) {
            pass->needed[node->first_entry + i] = needed;
        }
    }
    for (size_t i = 0; i < graph->output_count; i++) {
        pass->arrivals[graph->outputs[i]].expected++;
    }
}

static enum ps_status make_room(struct pass *pass, size_t entries)
{
    for (size_t e = 0; e < entries; e++) {
        struct arrival *arrival = &pass->arrivals[e];
        arrival->running = PS_NO_ENTRY;
        arrival->terms = ps_arena_calloc(&pass->graph->arena, arrival->expected,
                                         sizeof(arrival->terms[0]));
        if (arrival->terms == NULL) {
            return PS_ENOMEM;
        }
    }
    return PS_OK;
}

/* ---- adding nodes ---- */

/* A node with one output like forward entry 'like'. */
static enum ps_status add_like(struct ps_graph *graph, enum ps_node_kind kind,
                               uint32_t like, const char *suffix, size_t input_count,
                               uint32_t *node_out)
{
    const char *base = graph->nodes[graph->entries[like].node].name;
    const char *name = ps_arena_printf(&graph->arena, "%s_%s", base, suffix);
    if (name == NULL) {
        return PS_ENOMEM;
    }
    PS_TRY(ps_graph_add(graph, kind, name, input_count, 1, node_out));
    struct ps_graph_entry *entry = &graph->entries[graph->nodes[*node_out].first_entry];
    entry->shape = graph->entries[like].shape;
    entry->dtype = graph->entries[like].dtype;
    entry->wanted = true;
    return PS_OK;
}

static enum ps_status add_sum(struct ps_graph *graph, uint32_t like,
                              const uint32_t *terms, size_t count, uint32_t *entry_out)
{
    uint32_t node;
    PS_TRY(add_like(graph, PS_NODE_SUM, like, "grad_sum", count, &node));
    for (size_t i = 0; i < count; i++) {
        graph->nodes[node].inputs[i] = terms[i];
        graph->entries[terms[i]].wanted = true;
    }
    *entry_out = graph->nodes[node].first_entry;
    return PS_OK;
}

/* Gradient entry 'term' arrives for forward entry 'e'. */
static enum ps_status arrive(struct pass *pass, uint32_t e, uint32_t term)
{
    struct arrival *arrival = &pass->arrivals[e];
    pass->graph->entries[term].wanted = true;
    if (arrival->expected < pass->sum_cap) {
        arrival->terms[arrival->count++] = term;
        return PS_OK;
    }
    if (arrival->running == PS_NO_ENTRY) {
        arrival->running = term;
        arrival->count = 1;
        return PS_OK;
    }
    arrival->count++;
    uint32_t pair[2] = {arrival->running, term};
    return add_sum(pass->graph, e, pair, 2, &arrival->running);
}

/* The gradient of forward entry 'e', or PS_NO_ENTRY for zero. */
static enum ps_status aggregate(struct pass *pass, uint32_t e, uint32_t *entry_out)
{
    struct arrival *arrival = &pass->arrivals[e];
    if (arrival->running == PS_NO_ENTRY && arrival->count == 1) {
        arrival->running = arrival->terms[0];
    } else if (arrival->running == PS_NO_ENTRY && arrival->count > 1) {
        PS_TRY(
            add_sum(pass->graph, e, arrival->terms, arrival->count, &arrival->running));
    }
    *entry_out = arrival->running;
    return PS_OK;
}

static enum ps_status add_zero(struct ps_graph *graph, uint32_t like, uint32_t *entry_out)
{
    uint32_t node;
    PS_TRY(add_like(graph, PS_NODE_ZERO, like, "grad_zero", 0, &node));
    *entry_out = graph->nodes[node].first_entry;
    return PS_OK;
}

/* ---- one operator ---- */

/* The gradients of its outputs; '*any_out': at least one is not zero. */
static enum ps_status gather_heads(struct pass *pass, uint32_t n, uint32_t *heads,
                                   bool *any_out)
{
    const struct ps_graph *graph = pass->graph;
    uint32_t first = graph->nodes[n].first_entry;
    uint32_t count = graph->nodes[n].output_count;
    *any_out = false;
    for (uint32_t i = 0; i < count; i++) {
        PS_TRY(aggregate(pass, first + i, &heads[i]));
        *any_out = *any_out || heads[i] != PS_NO_ENTRY;
    }
    return PS_OK;
}

/* Whether the backward of node 'n' reads the gradient of output i, with the zeros that it
 * then needs where there is none. */
static enum ps_status complete_heads(struct pass *pass, uint32_t n, uint32_t *heads)
{
    const struct ps_op *op = pass->graph->nodes[n].op;
    uint32_t first = pass->graph->nodes[n].first_entry;
    for (int i = 0; i < ps_op_output_count(op); i++) {
        if (!ps_op_backward_needs(op, PS_SLOT_OUT_GRAD, i)) {
            heads[i] = PS_NO_ENTRY;
        } else if (heads[i] == PS_NO_ENTRY) {
            PS_TRY(add_zero(pass->graph, first + (uint32_t)i, &heads[i]));
        }
    }
    return PS_OK;
}

static void add_slot(struct ps_graph *graph, struct ps_graph_node *node,
                     enum ps_op_slot kind, int index, uint32_t entry)
{
    graph->entries[entry].wanted = true;
    node->inputs[node->input_count] = entry;
    node->slots[node->input_count] =
        (struct ps_slot){.kind = kind, .index = (uint32_t)index};
    node->input_count++;
}

static enum ps_status add_backward(struct pass *pass, uint32_t n, const uint32_t *heads,
                                   uint32_t *node_out)
{
    struct ps_graph *graph = pass->graph;
    const struct ps_op *op = graph->nodes[n].op;
    int inputs = ps_op_input_count(op), outputs = ps_op_output_count(op);
    size_t room = (size_t)inputs + 2 * (size_t)outputs;
    const char *name =
        ps_arena_printf(&graph->arena, "%s_backward", graph->nodes[n].name);
    if (name == NULL) {
        return PS_ENOMEM;
    }
    uint32_t at;
    PS_TRY(ps_graph_add(graph, PS_NODE_BACKWARD, name, room, (size_t)inputs, &at));
    struct ps_graph_node *node = &graph->nodes[at];
    const struct ps_graph_node *forward = &graph->nodes[n];
    node->op = op;
    node->forward = n;
    node->input_count = 0;
    node->slots = ps_arena_calloc(&graph->arena, room, sizeof(node->slots[0]));
    if (node->slots == NULL) {
        return PS_ENOMEM;
    }
    for (int i = 0; i < outputs; i++) {
        if (heads[i] != PS_NO_ENTRY) {
            add_slot(graph, node, PS_SLOT_OUT_GRAD, i, heads[i]);
        }
    }
    for (int i = 0; i < inputs; i++) {
        if (ps_op_backward_needs(op, PS_SLOT_INPUT, i)) {
            add_slot(graph, node, PS_SLOT_INPUT, i, forward->inputs[i]);
        }
    }
    for (int i = 0; i < outputs; i++) {
        if (ps_op_backward_needs(op, PS_SLOT_OUTPUT, i)) {
            add_slot(graph, node, PS_SLOT_OUTPUT, i, forward->first_entry + (uint32_t)i);
        }
    }
    for (uint32_t i = 0; i < (uint32_t)inputs; i++) {
        const struct ps_graph_entry *like = &graph->entries[forward->inputs[i]];
        graph->entries[node->first_entry + i].shape = like->shape;
        graph->entries[node->first_entry + i].dtype = like->dtype;
    }
    *node_out = at;
    return PS_OK;
}

/* The gradient of every input is 'head' itself: no operator, no copy. */
static enum ps_status hand_on(struct pass *pass, uint32_t n, uint32_t head)
{
    uint32_t takers = 0;
    PS_TRY(ps_array_reserve((void **)&pass->handed_on, &pass->handed_capacity,
                            pass->graph->entry_count, sizeof(pass->handed_on[0])));
    for (uint32_t i = 0; i < pass->graph->nodes[n].input_count; i++) {
        const struct ps_graph_node *node = &pass->graph->nodes[n];
        uint32_t input = node->inputs[i];
        if (pass->needed[input] && differentiable(node, i)) {
            PS_TRY(arrive(pass, input, head));
            takers++;
        }
    }
    pass->handed_on[head] = pass->handed_on[head] || takers > 1;
    return PS_OK;
}

static enum ps_status differentiate_node(struct pass *pass, uint32_t n, uint32_t *heads)
{
    const struct ps_op *op = pass->graph->nodes[n].op;
    uint32_t flags = ps_op_flags(ps_op_definition(op));
    bool leads = false, any;
    for (uint32_t i = 0; i < pass->graph->nodes[n].input_count; i++) {
        const struct ps_graph_node *node = &pass->graph->nodes[n];
        leads = leads || (pass->needed[node->inputs[i]] && differentiable(node, i));
    }
    if (!leads) {
        return PS_OK;
    }
    PS_TRY(gather_heads(pass, n, heads, &any));
    if (!any && (flags & PS_OP_LOSS_HEAD) == 0) {
        return PS_OK;
    }
    if ((flags & PS_OP_NO_GRAD) != 0) {
        return ps_error_set(
            pass->err, PS_EINVAL,
            "%s: %s has no gradient; put a BlockGrad behind it or ask for "
            "no gradient of what is before it",
            pass->graph->nodes[n].name, ps_op_name(ps_op_definition(op)));
    }
    if ((flags & PS_OP_GRAD_IS_HEAD) != 0) {
        return hand_on(pass, n, heads[0]);
    }
    PS_TRY(complete_heads(pass, n, heads));
    uint32_t backward;
    PS_TRY(add_backward(pass, n, heads, &backward));
    for (int i = 0; i < ps_op_input_count(op); i++) {
        const struct ps_graph_node *forward = &pass->graph->nodes[n];
        uint32_t input = forward->inputs[i];
        if (pass->needed[input] && differentiable(forward, (uint32_t)i)) {
            uint32_t term = pass->graph->nodes[backward].first_entry + (uint32_t)i;
            PS_TRY(arrive(pass, input, term));
        }
    }
    return PS_OK;
}

/* ---- the ends ---- */

/* A head gradient is an input of the graph where the gradient of that output leads
 * somewhere and its producer reads it. */
static enum ps_status add_head_grads(struct pass *pass)
{
    struct ps_graph *graph = pass->graph;
    for (size_t i = 0; i < graph->output_count; i++) {
        uint32_t e = graph->outputs[i];
        const struct ps_graph_node *node = &graph->nodes[graph->entries[e].node];
        bool read = node->kind == PS_NODE_VARIABLE ||
                    ps_op_backward_needs(node->op, PS_SLOT_OUT_GRAD,
                                         (int)graph->entries[e].output);
        if (!pass->needed[e] || !read) {
            continue;
        }
        uint32_t head;
        PS_TRY(add_like(graph, PS_NODE_HEAD_GRAD, e, "head_grad", 0, &head));
        graph->head_grads[i] = graph->nodes[head].first_entry;
        PS_TRY(arrive(pass, e, graph->head_grads[i]));
    }
    return PS_OK;
}

/* The gradient of argument i, in an entry that only its tensor holds. */
static enum ps_status finish_argument(struct pass *pass, size_t i)
{
    struct ps_graph *graph = pass->graph;
    uint32_t e = graph->nodes[graph->arguments[i]].first_entry;
    uint32_t gradient;
    PS_TRY(aggregate(pass, e, &gradient));
    if (gradient == PS_NO_ENTRY) {
        if (pass->reqs[i] == PS_GRAD_ADD) {
            return PS_OK; /* adding zero */
        }
        PS_TRY(add_zero(graph, e, &gradient));
    } else if (graph->nodes[graph->entries[gradient].node].kind == PS_NODE_HEAD_GRAD ||
               (gradient < pass->handed_capacity && pass->handed_on[gradient])) {
        uint32_t others = gradient;
        PS_TRY(add_sum(graph, e, &others, 1, &gradient));
    }
    graph->entries[gradient].gradient_of = (uint32_t)i;
    graph->entries[gradient].wanted = true;
    graph->gradients[i] = gradient;
    return PS_OK;
}

static enum ps_status run_pass(struct pass *pass, uint32_t *heads)
{
    struct ps_graph *graph = pass->graph;
    PS_TRY(add_head_grads(pass));
    for (size_t n = graph->forward_count; n > 0; n--) {
        uint32_t at = (uint32_t)(n - 1);
        if (graph->nodes[at].kind == PS_NODE_FORWARD) {
            PS_TRY(differentiate_node(pass, at, heads));
        } else if (graph->argument_of[at] != PS_NO_INDEX &&
                   pass->reqs[graph->argument_of[at]] != PS_GRAD_NULL) {
            PS_TRY(finish_argument(pass, graph->argument_of[at]));
        }
    }
    return PS_OK;
}

enum ps_status ps_graph_differentiate(struct ps_graph *graph,
                                      const enum ps_grad_req *reqs, struct ps_error *err)
{
    size_t entries = graph->entry_count;
    uint32_t most = 1;
    for (size_t n = 0; n < graph->node_count; n++) {
        most = PS_MAX(most, graph->nodes[n].output_count);
    }
    struct pass pass = {.graph = graph, .reqs = reqs, .err = err};
    pass.sum_cap = graph->grad_sum_cap == 0 ? SUM_CAP_DEFAULT : graph->grad_sum_cap;
    uint32_t *heads = calloc(most, sizeof(*heads));
    pass.arrivals = calloc(entries + 1, sizeof(pass.arrivals[0]));
    pass.needed = calloc(entries + 1, sizeof(pass.needed[0]));
    enum ps_status status = PS_ENOMEM;
    if (heads != NULL && pass.arrivals != NULL && pass.needed != NULL) {
        mark_needed(&pass);
        status = make_room(&pass, entries);
        status = status == PS_OK ? run_pass(&pass, heads) : status;
    }
    free(pass.handed_on);
    free(pass.needed);
    free(pass.arrivals);
    free(heads);
    return status;
}
