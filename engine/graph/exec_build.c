/* The engine operations of an executor, prepared once: for each node the views of its
 * kernel, the variables that it reads and writes, and the call that pushes it.
 *
 * Values of one block share its tensor and so its variable: what the plan's reuse hides,
 * the engine orders.  An operator that only hands its input's bytes on (Reshape, Flatten)
 * and was given the same place has nothing to run.  Bulk segments, several nodes in one
 * engine operation, have their place here. */
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

static void release_core(void *arg)
{
    ps_exec_core_release(((struct ps_exec_op *)arg)->core);
}

/* Makes the call; 'fields' has name, run and context. */
static enum ps_status make_call(struct ps_exec_op *op, const struct wiring *wiring,
                                enum ps_status (*run)(void *, const struct ps_run *,
                                                      struct ps_error *))
{
    struct ps_exec_core *core = op->core;
    struct ps_engine_op fields = {.name = op->node->name,
                                  .run = run,
                                  .arg = op,
                                  .release = release_core,
                                  .reads = wiring->reads,
                                  .read_count = wiring->read_count,
                                  .writes = wiring->writes,
                                  .write_count = wiring->write_count,
                                  .context = core->options.context,
                                  .kind = PS_ENGINE_NORMAL};
    /* relaxed: the creator holds a reference */
    atomic_fetch_add_explicit(&core->refs, 1, memory_order_relaxed);
    enum ps_status status =
        ps_engine_call_create(core->options.engine, &fields, &op->call);
    if (status != PS_OK) {
        atomic_fetch_sub_explicit(&core->refs, 1, memory_order_relaxed);
    }
    return status;
}

/* Scratch and the kernel's own order. */
static void share_kernel(const struct ps_exec_core *core, struct wiring *wiring,
                         uint32_t forward, bool backward)
{
    const struct ps_exec_kernel *kernel = &core->kernels[forward];
    if (ps_op_plan_workspace(kernel->plan, backward) > 0) {
        wiring->writes[wiring->write_count++] = ps_tensor_var(core->workspace);
    }
    if (kernel->order != NULL) {
        wiring->writes[wiring->write_count++] = kernel->order;
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
    op->plan = core->kernels[n].plan;
    op->training = training;
    op->stream = n;
    if (hands_on(core, node)) {
        return PS_OK;
    }
    uint32_t flags = ps_op_flags(ps_op_definition(node->op));
    reads(wiring, &op->in);
    if (training && (flags & PS_OP_MUTATES_AUX) != 0) {
        writes(wiring, &op->aux);
    } else {
        reads(wiring, &op->aux);
    }
    writes(wiring, &op->out);
    share_kernel(core, wiring, n, false);
    return make_call(op, wiring, ps_exec_run_forward);
}

static enum ps_grad_req request_of(const struct ps_exec_core *core,
                                   const struct ps_exec_inputs *inputs, uint32_t entry)
{
    const struct ps_graph_entry *e = &core->graph.entries[entry];
    if (!e->wanted) {
        return PS_GRAD_NULL;
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
    op->plan = core->kernels[op->node->forward].plan;
    op->training = true;
    if (!any || hands_on(core, op->node)) {
        return PS_OK;
    }
    reads(wiring, &op->in);
    reads(wiring, &op->out);
    reads(wiring, &op->aux);
    reads(wiring, &op->out_grad);
    writes(wiring, &op->in_grad);
    share_kernel(core, wiring, op->node->forward, true);
    return make_call(op, wiring, ps_exec_run_backward);
}

static enum ps_status build_sum(struct ps_exec_core *core,
                                const struct ps_exec_inputs *inputs,
                                struct ps_exec_op *op, struct wiring *wiring)
{
    const struct ps_graph_node *node = op->node;
    bool any;
    PS_TRY(build_requests(core, inputs, op, &any));
    PS_TRY(make_views(core, &op->in, node->input_count));
    PS_TRY(make_views(core, &op->out, 1));
    for (uint32_t i = 0; i < node->input_count; i++) {
        set_view(core, &op->in, i, node->inputs[i], true);
    }
    set_view(core, &op->out, 0, node->first_entry, true);
    reads(wiring, &op->in);
    writes(wiring, &op->out);
    return make_call(op, wiring,
                     node->kind == PS_NODE_SUM ? ps_exec_run_sum : ps_exec_run_zero);
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
        if (op->call == NULL || !differs_in_inference(node)) {
            return PS_OK;
        }
        wiring->read_count = wiring->write_count = 0;
        return build_forward(core, n, false, &core->inference[n], wiring);
    case PS_NODE_BACKWARD:
        return build_backward(core, inputs, op, wiring);
    case PS_NODE_SUM:
    case PS_NODE_ZERO:
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
    enum ps_status status = PS_OK;
    if (wiring.reads == NULL || wiring.writes == NULL || core->ops == NULL ||
        core->inference == NULL) {
        status = PS_ENOMEM;
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
