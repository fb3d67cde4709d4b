/* What each node of an executor runs, prepared once: the views of its kernel and the
 * variables that it reads and writes.  exec_batch.c makes engine operations of them.
 *
 * Values of one block share its tensor and so its variable: what the plan's reuse hides,
 * the engine orders.  An operator that only hands its input's bytes on (Reshape, Flatten)
 * and was given the same place has nothing to run. */
#include "engine/graph/exec_core.h"

#include <stdlib.h>
#include <string.h>

/* Variables of one operation while it is built. */
struct wiring {
    struct ps_var **reads, **writes;
    size_t read_count, write_count;
};

static enum ps_status make_views(struct ps_exec_core *core, struct ps_exec_views *views,
                                 size_t count)
{
    views->count = (uint32_t)count;
    views->tensors =
        ps_arena_calloc(&core->graph.arena, count, sizeof(struct ps_tensor *));
    views->views = ps_arena_calloc(&core->graph.arena, count, sizeof(struct ps_view));
    return views->tensors == NULL || views->views == NULL ? PS_ENOMEM : PS_OK;
}

/* Describes view i as 'entry'; its memory is given only with 'given'. */
static void set_view(struct ps_exec_core *core, struct ps_exec_views *views, uint32_t i,
                     uint32_t entry, bool given)
{
    views->views[i].dtype = core->graph.entries[entry].dtype;
    views->views[i].shape = core->graph.entries[entry].shape;
    views->tensors[i] = given ? core->entries[entry] : NULL;
}

static void reads(struct wiring *wiring, const struct ps_exec_views *views)
{
    for (uint32_t i = 0; i < views->count; i++) {
        if (views->tensors[i] != NULL) {
            wiring->reads[wiring->read_count++] = ps_tensor_var(views->tensors[i]);
        }
    }
}

static void writes(struct wiring *wiring, const struct ps_exec_views *views)
{
    for (uint32_t i = 0; i < views->count; i++) {
        if (views->tensors[i] != NULL) {
            wiring->writes[wiring->write_count++] = ps_tensor_var(views->tensors[i]);
        }
    }
}

static enum ps_status keep_list(struct ps_exec_core *core, struct ps_var **from,
                                size_t count, struct ps_var ***out)
{
    *out = ps_arena_calloc(&core->graph.arena, count, sizeof(struct ps_var *));
    if (*out == NULL) {
        return PS_ENOMEM;
    }
    memcpy(*out, from, count * sizeof(from[0]));
    return PS_OK;
}

/* The node runs 'run' on what was wired. */
static enum ps_status finish_op(struct ps_exec_op *op, const struct wiring *wiring,
                                enum ps_status (*run)(struct ps_exec_op *,
                                                      const struct ps_run *,
                                                      struct ps_error *))
{
    PS_TRY(keep_list(op->core, wiring->reads, wiring->read_count, &op->reads));
    PS_TRY(keep_list(op->core, wiring->writes, wiring->write_count, &op->writes));
    op->read_count = (uint32_t)wiring->read_count;
    op->write_count = (uint32_t)wiring->write_count;
    op->run = run;
    return PS_OK;
}

/* Scratch and the kernel's own order. */
static void share_kernel(struct ps_exec_op *op, struct wiring *wiring)
{
    op->workspace = op->core->workspace_of[op->node - op->core->graph.nodes];
    if (op->workspace != NULL) {
        wiring->writes[wiring->write_count++] = ps_tensor_var(op->workspace);
    }
    if (op->kernel->order != NULL) {
        wiring->writes[wiring->write_count++] = op->kernel->order;
    }
}

/* Output 0 lies where 'input' lies. */
static bool same_place(const struct ps_exec_core *core, uint32_t input, uint32_t output)
{
    uint32_t group = core->plan.group_of[input];
    return group != PS_PLAN_NOWHERE && group == core->plan.group_of[output];
}

static bool hands_on(const struct ps_exec_core *core, const struct ps_graph_node *node)
{
    uint32_t flags = ps_op_flags(ps_op_definition(node->op));
    if ((flags & PS_OP_IDENTITY) == 0 || node->output_count != 1 ||
        node->input_count < 1) {
        return false;
    }
    if (node->kind == PS_NODE_BACKWARD) {
        return (flags & PS_OP_LOSS_HEAD) == 0 &&
               node->slots[0].kind == PS_SLOT_OUT_GRAD &&
               same_place(core, node->inputs[0], node->first_entry);
    }
    return same_place(core, node->inputs[0], node->first_entry);
}

/* ---- one kind each ---- */

static enum ps_status build_forward(struct ps_exec_core *core, uint32_t n, bool training,
                                    struct ps_exec_op *op, struct wiring *wiring)
{
    const struct ps_graph_node *node = &core->graph.nodes[n];
    uint32_t inputs = (uint32_t)ps_op_input_count(node->op);
    PS_TRY(make_views(core, &op->in, inputs));
    PS_TRY(make_views(core, &op->aux, node->input_count - inputs));
    PS_TRY(make_views(core, &op->out, node->output_count));
    for (uint32_t i = 0; i < node->input_count; i++) {
        bool auxiliary = i >= inputs;
        set_view(core, auxiliary ? &op->aux : &op->in, auxiliary ? i - inputs : i,
                 node->inputs[i], true);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        set_view(core, &op->out, i, node->first_entry + i, true);
    }
    uint32_t original = node->mirror_of == PS_NO_INDEX ? n : node->mirror_of;
    op->kernel = &core->kernels[original];
    op->training = training;
    op->recomputes = original != n;
    op->stream = core->graph.nodes[original].origin;
    if (hands_on(core, node)) {
        return PS_OK;
    }
    uint32_t flags = ps_op_flags(ps_op_definition(node->op));
    reads(wiring, &op->in);
    if (training && !op->recomputes && (flags & PS_OP_MUTATES_AUX) != 0) {
        writes(wiring, &op->aux);
    } else {
        reads(wiring, &op->aux);
    }
    writes(wiring, &op->out);
    share_kernel(op, wiring);
    return finish_op(op, wiring, ps_exec_run_forward);
}

static enum ps_grad_req request_of(const struct ps_exec_core *core,
                                   const struct ps_exec_inputs *inputs, uint32_t entry)
{
    const struct ps_graph_entry *e = &core->graph.entries[entry];
    if (!e->wanted) {
        return PS_GRAD_NULL;
    }
    if (e->adds_into != PS_NO_ENTRY) {
        return PS_GRAD_ADD;
    }
    if (e->gradient_of == PS_NO_INDEX) {
        return PS_GRAD_WRITE;
    }
    return inputs->reqs[e->gradient_of] == PS_GRAD_ADD ? PS_GRAD_ADD : PS_GRAD_WRITE;
}

static enum ps_status build_requests(struct ps_exec_core *core,
                                     const struct ps_exec_inputs *inputs,
                                     struct ps_exec_op *op, bool *any_out)
{
    const struct ps_graph_node *node = op->node;
    op->reqs =
        ps_arena_calloc(&core->graph.arena, node->output_count, sizeof(op->reqs[0]));
    if (op->reqs == NULL) {
        return PS_ENOMEM;
    }
    *any_out = false;
    for (uint32_t i = 0; i < node->output_count; i++) {
        op->reqs[i] = request_of(core, inputs, node->first_entry + i);
        *any_out = *any_out || op->reqs[i] != PS_GRAD_NULL;
    }
    return PS_OK;
}

static enum ps_status backward_views(struct ps_exec_core *core, struct ps_exec_op *op)
{
    const struct ps_graph_node *node = op->node;
    const struct ps_graph_node *forward = &core->graph.nodes[node->forward];
    uint32_t inputs = (uint32_t)ps_op_input_count(node->op);
    PS_TRY(make_views(core, &op->in, inputs));
    PS_TRY(make_views(core, &op->aux, forward->input_count - inputs));
    PS_TRY(make_views(core, &op->out, forward->output_count));
    PS_TRY(make_views(core, &op->out_grad, forward->output_count));
    PS_TRY(make_views(core, &op->in_grad, inputs));
    for (uint32_t i = 0; i < inputs; i++) {
        set_view(core, &op->in, i, forward->inputs[i], false);
        set_view(core, &op->in_grad, i, node->first_entry + i,
                 op->reqs[i] != PS_GRAD_NULL);
    }
    for (uint32_t i = inputs; i < forward->input_count; i++) {
        set_view(core, &op->aux, i - inputs, forward->inputs[i], true);
    }
    for (uint32_t i = 0; i < forward->output_count; i++) {
        set_view(core, &op->out, i, forward->first_entry + i, false);
        set_view(core, &op->out_grad, i, forward->first_entry + i, false);
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        struct ps_exec_views *views = node->slots[i].kind == PS_SLOT_INPUT ? &op->in
                                      : node->slots[i].kind == PS_SLOT_OUTPUT
                                          ? &op->out
                                          : &op->out_grad;
        set_view(core, views, node->slots[i].index, node->inputs[i], true);
    }
    return PS_OK;
}

static enum ps_status build_backward(struct ps_exec_core *core,
                                     const struct ps_exec_inputs *inputs,
                                     struct ps_exec_op *op, struct wiring *wiring)
{
    bool any;
    PS_TRY(build_requests(core, inputs, op, &any));
    PS_TRY(backward_views(core, op));
    op->kernel = &core->kernels[op->node->forward];
    if (!any || hands_on(core, op->node)) {
        return PS_OK;
    }
    reads(wiring, &op->in);
    reads(wiring, &op->out);
    reads(wiring, &op->aux);
    reads(wiring, &op->out_grad);
    writes(wiring, &op->in_grad);
    share_kernel(op, wiring);
    return finish_op(op, wiring, ps_exec_run_backward);
}

static enum ps_status build_sum(struct ps_exec_core *core,
                                const struct ps_exec_inputs *inputs,
                                struct ps_exec_op *op, struct wiring *wiring)
{
    const struct ps_graph_node *node = op->node;
    bool any;
    if (node->kind == PS_NODE_SUM && node->input_count == 2 &&
        core->graph.entries[node->inputs[1]].adds_into == node->first_entry) {
        return PS_OK; /* added in place by who made the second operand */
    }
    PS_TRY(build_requests(core, inputs, op, &any));
    PS_TRY(make_views(core, &op->in, node->input_count));
    PS_TRY(make_views(core, &op->out, 1));
    for (uint32_t i = 0; i < node->input_count; i++) {
        set_view(core, &op->in, i, node->inputs[i], true);
    }
    set_view(core, &op->out, 0, node->first_entry, true);
    reads(wiring, &op->in);
    writes(wiring, &op->out);
    return finish_op(op, wiring,
                     node->kind == PS_NODE_SUM    ? ps_exec_run_sum
                     : node->kind == PS_NODE_ZERO ? ps_exec_run_zero
                                                  : ps_exec_run_copy);
}

/* ---- the order of one kernel's users ---- */

/* A backward that reads an output of its forward is put in order with the next forward by
 * that output's variable; any other could run beside it. */
static bool ordered_by_data(const struct ps_graph *graph,
                            const struct ps_graph_node *backward)
{
    for (uint32_t i = 0; i < backward->input_count; i++) {
        if (backward->slots[i].kind == PS_SLOT_OUTPUT &&
            graph->entries[backward->inputs[i]].node == backward->forward) {
            return true;
        }
    }
    return false;
}

/* A forward's kernel gets a variable of its own where another node uses it too and their
 * data does not put them in order. */
static enum ps_status make_orders(struct ps_exec_core *core)
{
    const struct ps_graph *graph = &core->graph;
    if (ps_engine_type(core->options.engine) == PS_ENGINE_NAIVE) {
        return PS_OK; /* runs in the order of the pushes */
    }
    for (size_t n = graph->forward_count; n < graph->node_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        uint32_t forward = node->kind == PS_NODE_BACKWARD  ? node->forward
                           : node->kind == PS_NODE_FORWARD ? node->mirror_of
                                                           : PS_NO_INDEX;
        if (forward == PS_NO_INDEX || core->kernels[forward].order != NULL ||
            (node->kind == PS_NODE_BACKWARD && ordered_by_data(graph, node))) {
            continue;
        }
        PS_TRY(ps_var_create(core->options.engine, &core->kernels[forward].order));
    }
    return PS_OK;
}

/* ---- all ---- */

static bool differs_in_inference(const struct ps_graph_node *node)
{
    return (ps_op_flags(ps_op_definition(node->op)) &
            (PS_OP_TRAIN_MODE | PS_OP_NEEDS_RNG | PS_OP_MUTATES_AUX)) != 0;
}

static enum ps_status build_node(struct ps_exec_core *core,
                                 const struct ps_exec_inputs *inputs, uint32_t n,
                                 struct wiring *wiring)
{
    const struct ps_graph_node *node = &core->graph.nodes[n];
    struct ps_exec_op *op = &core->ops[n];
    wiring->read_count = wiring->write_count = 0;
    switch (node->kind) {
    case PS_NODE_FORWARD:
        PS_TRY(build_forward(core, n, core->differentiates || differs_in_inference(node),
                             op, wiring));
        if (n >= core->graph.forward_count || op->run == NULL ||
            !differs_in_inference(node)) {
            return PS_OK;
        }
        wiring->read_count = wiring->write_count = 0;
        return build_forward(core, n, false, &core->inference[n], wiring);
    case PS_NODE_BACKWARD:
        return build_backward(core, inputs, op, wiring);
    case PS_NODE_SUM:
    case PS_NODE_ZERO:
    case PS_NODE_COPY:
        return build_sum(core, inputs, op, wiring);
    default:
        return PS_OK;
    }
}

static size_t most_variables(const struct ps_graph *graph)
{
    size_t most = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        size_t forward =
            node->kind == PS_NODE_BACKWARD ? graph->nodes[node->forward].input_count : 0;
        most = PS_MAX(most, (size_t)node->input_count + node->output_count + forward);
    }
    return most + 2; /* workspace and order */
}

enum ps_status ps_exec_make_ops(struct ps_exec_core *core,
                                const struct ps_exec_inputs *inputs, struct ps_error *err)
{
    struct ps_graph *graph = &core->graph;
    size_t most = most_variables(graph);
    struct wiring wiring = {.reads = calloc(most, sizeof(struct ps_var *)),
                            .writes = calloc(most, sizeof(struct ps_var *))};
    core->ops = calloc(graph->node_count + 1, sizeof(core->ops[0]));
    core->inference = calloc(graph->forward_count + 1, sizeof(core->inference[0]));
    enum ps_status status = PS_ENOMEM;
    if (wiring.reads != NULL && wiring.writes != NULL && core->ops != NULL &&
        core->inference != NULL) {
        status = make_orders(core);
    }
    for (uint32_t n = 0; n < graph->node_count && status == PS_OK; n++) {
        core->ops[n].core = core;
        core->ops[n].node = &graph->nodes[n];
        if (n < graph->forward_count) {
            core->inference[n] = core->ops[n];
        }
        status = build_node(core, inputs, n, &wiring);
        if (status != PS_OK) {
            (void)ps_error_set(err, status, "%s: %s", graph->nodes[n].name,
                               ps_status_text(status));
        }
    }
    free(wiring.writes);
    free(wiring.reads);
    return status;
}
