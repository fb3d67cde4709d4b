/* Placement in two steps: a context for every node, then a walk in execution order that
 * puts a copy before the first node that needs a value of another device. */
#include "engine/graph/place.h"

#include <stdlib.h>
#include <string.h>

/* ---- a context for every node ---- */

struct assign {
    struct ps_graph *graph;
    const struct ps_place *place;
    bool *placed; /* per node */
    struct ps_error *err;
};

static void put(struct assign *assign, uint32_t n, struct ps_context context)
{
    assign->graph->nodes[n].context = context;
    assign->placed[n] = true;
}

static enum ps_status by_group(struct assign *assign, uint32_t n)
{
    const struct ps_graph_node *node = &assign->graph->nodes[n];
    const char *group =
        node->sym == NULL ? NULL : ps_sym_node_attr(node->sym, "__ctx_group__");
    if (group == NULL) {
        return PS_OK;
    }
    for (size_t i = 0; i < assign->place->group_count; i++) {
        if (strcmp(assign->place->groups[i].name, group) == 0) {
            put(assign, n, assign->place->groups[i].context);
            return PS_OK;
        }
    }
    return ps_error_set(assign->err, PS_EINVAL,
                        "%s: ctx_group %.64s: no device was given for this group",
                        node->name, group);
}

/* Given tensors lie where they lie. */
static void put_given(struct assign *assign)
{
    const struct ps_graph *graph = assign->graph;
    const struct ps_place *place = assign->place;
    for (size_t i = 0; place->arguments != NULL && i < graph->argument_count; i++) {
        put(assign, graph->arguments[i], place->arguments[i]);
    }
    for (size_t i = 0; place->auxiliaries != NULL && i < graph->auxiliary_count; i++) {
        put(assign, graph->auxiliaries[i], place->auxiliaries[i]);
    }
}

/* The first input that has a place. */
static void follow_input(struct assign *assign, uint32_t n)
{
    const struct ps_graph *graph = assign->graph;
    const struct ps_graph_node *node = &graph->nodes[n];
    for (uint32_t i = 0; i < node->input_count && !assign->placed[n]; i++) {
        uint32_t from = graph->entries[node->inputs[i]].node;
        if (assign->placed[from]) {
            put(assign, n, graph->nodes[from].context);
        }
    }
}

/* Gives the inputs of node 'n' that have no place the node's own. */
static void pull_inputs(struct assign *assign, uint32_t n, enum ps_node_kind kind)
{
    const struct ps_graph *graph = assign->graph;
    const struct ps_graph_node *node = &graph->nodes[n];
    for (uint32_t i = 0; i < node->input_count; i++) {
        uint32_t from = graph->entries[node->inputs[i]].node;
        if (!assign->placed[from] && graph->nodes[from].kind == kind) {
            put(assign, from, node->context);
        }
    }
}

static enum ps_status assign_forward(struct assign *assign)
{
    struct ps_graph *graph = assign->graph;
    uint32_t count = (uint32_t)graph->forward_count;
    put_given(assign);
    for (uint32_t n = 0; n < count; n++) {
        if (!assign->placed[n]) {
            PS_TRY(by_group(assign, n));
        }
        if (graph->nodes[n].kind != PS_NODE_VARIABLE) {
            follow_input(assign, n);
        }
    }
    for (uint32_t n = count; n > 0; n--) {
        if (assign->placed[n - 1]) {
            pull_inputs(assign, n - 1, PS_NODE_FORWARD);
        }
    }
    for (uint32_t n = 0; n < count; n++) {
        if (!assign->placed[n] && graph->nodes[n].kind != PS_NODE_VARIABLE) {
            put(assign, n, assign->place->context);
        }
    }
    /* a variable without a place of its own: where it is taken first */
    for (uint32_t n = 0; n < count; n++) {
        pull_inputs(assign, n, PS_NODE_VARIABLE);
    }
    for (uint32_t n = 0; n < count; n++) {
        if (!assign->placed[n]) {
            put(assign, n, assign->place->context);
        }
    }
    return PS_OK;
}

static struct ps_context context_of_argument(const struct ps_graph *graph, uint32_t i)
{
    return graph->nodes[graph->arguments[i]].context;
}

static void assign_gradients(struct assign *assign)
{
    struct ps_graph *graph = assign->graph;
    for (size_t i = 0; i < graph->output_count; i++) {
        if (graph->head_grads[i] != PS_NO_ENTRY) {
            uint32_t output = graph->entries[graph->outputs[i]].node;
            put(assign, graph->entries[graph->head_grads[i]].node,
                graph->nodes[output].context);
        }
    }
    for (uint32_t n = (uint32_t)graph->forward_count; n < graph->node_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        uint32_t original = node->kind == PS_NODE_BACKWARD  ? node->forward
                            : node->kind == PS_NODE_FORWARD ? node->mirror_of
                                                            : PS_NO_INDEX;
        uint32_t argument = graph->entries[node->first_entry].gradient_of;
        if (original != PS_NO_INDEX) {
            put(assign, n, graph->nodes[original].context);
        } else if (node->output_count == 1 && argument != PS_NO_INDEX) {
            put(assign, n, context_of_argument(graph, argument));
        } else if (!assign->placed[n]) {
            follow_input(assign, n);
        }
    }
    for (uint32_t n = (uint32_t)graph->node_count; n > graph->forward_count; n--) {
        if (!assign->placed[n - 1]) {
            put(assign, n - 1, assign->place->context);
        }
        pull_inputs(assign, n - 1, PS_NODE_ZERO);
    }
}

enum ps_status ps_graph_assign(struct ps_graph *graph, const struct ps_place *place,
                               struct ps_error *err)
{
    if (place->group_count == 0) {
        for (size_t n = 0; n < graph->node_count; n++) {
            graph->nodes[n].context = place->context;
        }
        return PS_OK;
    }
    struct assign assign = {.graph = graph, .place = place, .err = err};
    assign.placed = calloc(graph->node_count + 1, sizeof(assign.placed[0]));
    enum ps_status status = PS_ENOMEM;
    if (assign.placed != NULL) {
        status = assign_forward(&assign);
    }
    if (status == PS_OK) {
        assign_gradients(&assign);
    }
    free(assign.placed);
    return status;
}

/* ---- copies ---- */

struct copy {
    struct ps_context to;
    uint32_t entry, next; /* next: of the same value, PS_NO_INDEX at the end */
};

struct copying {
    struct ps_graph *graph;
    uint32_t *order; /* new order of the nodes */
    size_t order_count, order_capacity;
    struct copy *copies;
    size_t copy_count, copy_capacity;
    uint32_t *first_copy; /* per entry that was there before, PS_NO_INDEX: none */
};

static enum ps_status put_next(struct copying *copying, uint32_t n)
{
    PS_TRY(ps_array_reserve((void **)&copying->order, &copying->order_capacity,
                            copying->order_count + 1, sizeof(copying->order[0])));
    copying->order[copying->order_count++] = n;
    return PS_OK;
}

/* A node of one input and one output on 'to', next in the order. */
static enum ps_status add_like(struct copying *copying, enum ps_node_kind kind,
                               const char *name, uint32_t input, struct ps_context to,
                               uint32_t *entry_out)
{
    struct ps_graph *graph = copying->graph;
    uint32_t n;
    if (name == NULL) {
        return PS_ENOMEM;
    }
    PS_TRY(ps_graph_add(graph, kind, name, 1, 1, &n));
    struct ps_graph_node *node = &graph->nodes[n];
    node->context = to;
    node->inputs[0] = input;
    struct ps_graph_entry *entry = &graph->entries[node->first_entry];
    entry->shape = graph->entries[input].shape;
    entry->dtype = graph->entries[input].dtype;
    entry->wanted = true;
    *entry_out = node->first_entry;
    return put_next(copying, n);
}

/* The entry that has the value of 'entry' on 'to': itself, a copy, or a new copy. */
static enum ps_status value_on(struct copying *copying, uint32_t entry,
                               struct ps_context to, uint32_t *entry_out)
{
    struct ps_graph *graph = copying->graph;
    const struct ps_graph_node *producer = &graph->nodes[graph->entries[entry].node];
    if (ps_context_equal(producer->context, to)) {
        *entry_out = entry;
        return PS_OK;
    }
    for (uint32_t c = copying->first_copy[entry]; c != PS_NO_INDEX;
         c = copying->copies[c].next) {
        if (ps_context_equal(copying->copies[c].to, to)) {
            *entry_out = copying->copies[c].entry;
            return PS_OK;
        }
    }
    char context[PS_CONTEXT_TEXT_BYTES];
    const char *name =
        ps_arena_printf(&graph->arena, "%s_%u_to_%s", producer->name,
                        graph->entries[entry].output, ps_context_text(to, context));
    PS_TRY(ps_array_reserve((void **)&copying->copies, &copying->copy_capacity,
                            copying->copy_count + 1, sizeof(copying->copies[0])));
    PS_TRY(add_like(copying, PS_NODE_COPY, name, entry, to, entry_out));
    copying->copies[copying->copy_count] =
        (struct copy){.to = to, .entry = *entry_out, .next = copying->first_copy[entry]};
    copying->first_copy[entry] = (uint32_t)copying->copy_count++;
    return PS_OK;
}

static enum ps_status check_states(const struct ps_graph *graph, uint32_t n,
                                   struct ps_error *err)
{
    const struct ps_graph_node *node = &graph->nodes[n];
    uint32_t inputs = node->kind == PS_NODE_FORWARD
                          ? (uint32_t)ps_op_input_count(node->op)
                          : UINT32_MAX;
    for (uint32_t i = inputs; i < node->input_count; i++) {
        const struct ps_graph_node *state =
            &graph->nodes[graph->entries[node->inputs[i]].node];
        if (!ps_context_equal(state->context, node->context)) {
            char has[PS_CONTEXT_TEXT_BYTES], runs[PS_CONTEXT_TEXT_BYTES];
            return ps_error_set(err, PS_EINVAL,
                                "%s: its state %s lies on %s, it runs on %s; what an "
                                "operator changes must be on its device",
                                node->name, state->name,
                                ps_context_text(state->context, has),
                                ps_context_text(node->context, runs));
        }
    }
    return PS_OK;
}

/* A gradient that was made on another device than its argument's goes there. */
static enum ps_status bring_gradients(struct copying *copying, uint32_t n)
{
    struct ps_graph *graph = copying->graph;
    for (uint32_t i = 0; i < graph->nodes[n].output_count; i++) {
        uint32_t entry = graph->nodes[n].first_entry + i;
        uint32_t argument = graph->entries[entry].gradient_of;
        if (argument == PS_NO_INDEX) {
            continue;
        }
        struct ps_context to = context_of_argument(graph, argument);
        if (ps_context_equal(graph->nodes[n].context, to)) {
            continue;
        }
        const char *name = ps_arena_printf(&graph->arena, "%s_grad",
                                           graph->nodes[graph->arguments[argument]].name);
        uint32_t there, gradient;
        PS_TRY(value_on(copying, entry, to, &there));
        PS_TRY(add_like(copying, PS_NODE_SUM, name, there, to, &gradient));
        graph->entries[entry].gradient_of = PS_NO_INDEX;
        graph->entries[gradient].gradient_of = argument;
        graph->gradients[argument] = gradient;
    }
    return PS_OK;
}

static enum ps_status walk(struct copying *copying, size_t *forward_out,
                           struct ps_error *err)
{
    struct ps_graph *graph = copying->graph;
    size_t count = graph->node_count, forward = graph->forward_count;
    for (uint32_t n = 0; n < count; n++) {
        if (n == forward) {
            *forward_out = copying->order_count;
        }
        PS_TRY(check_states(graph, n, err));
        for (uint32_t i = 0; i < graph->nodes[n].input_count; i++) {
            uint32_t entry;
            PS_TRY(value_on(copying, graph->nodes[n].inputs[i], graph->nodes[n].context,
                            &entry));
            graph->nodes[n].inputs[i] = entry;
        }
        PS_TRY(put_next(copying, n));
        PS_TRY(bring_gradients(copying, n));
    }
    if (forward == count) {
        *forward_out = copying->order_count;
    }
    return PS_OK;
}

static bool one_device(const struct ps_graph *graph)
{
    for (size_t n = 1; n < graph->node_count; n++) {
        if (!ps_context_equal(graph->nodes[n].context, graph->nodes[0].context)) {
            return false;
        }
    }
    return true;
}

enum ps_status ps_graph_place(struct ps_graph *graph, const struct ps_place *place,
                              size_t *copy_count_out, struct ps_error *err)
{
    PS_TRY(ps_graph_assign(graph, place, err));
    *copy_count_out = 0;
    if (one_device(graph)) {
        return PS_OK;
    }
    struct copying copying = {.graph = graph};
    size_t entries = graph->entry_count, forward = 0;
    copying.first_copy = malloc((entries + 1) * sizeof(copying.first_copy[0]));
    enum ps_status status = PS_ENOMEM;
    if (copying.first_copy != NULL) {
        memset(copying.first_copy, 0xff, entries * sizeof(copying.first_copy[0]));
        status = walk(&copying, &forward, err);
    }
    if (status == PS_OK) {
        status = ps_graph_reorder(graph, copying.order, forward);
    }
    if (status == PS_OK) {
        *copy_count_out = copying.copy_count;
    }
    free(copying.first_copy);
    free(copying.copies);
    free(copying.order);
    return status;
}
