/* Who may be computed again, and what that costs. */
#include "engine/graph/mirror_model.h"

#include <stdlib.h>
#include <string.h>

/* A hidden output this much smaller than output 0 is kept: BatchNorm's mean and variance.
 * Keeping it saves computing the node again where only that is read. */
#define SMALL_PART 16

/* ---- work ---- */

static double elements(const struct ps_graph *graph, uint32_t entry)
{
    return (double)ps_shape_count(&graph->entries[entry].shape);
}

/* Multiply-adds of operators that are more than a walk over their arrays. */
static double multiply_adds(const struct ps_graph *graph,
                            const struct ps_graph_node *node)
{
    const char *name = ps_op_name(ps_op_definition(node->op));
    if (node->input_count < 2) {
        return 0;
    }
    double out = elements(graph, node->first_entry);
    double left = elements(graph, node->inputs[0]);
    double right = elements(graph, node->inputs[1]);
    const struct ps_shape *weight = &graph->entries[node->inputs[1]].shape;
    double first = weight->ndim > 0 && weight->dim[0] > 0 ? (double)weight->dim[0] : 1;
    if (strcmp(name, "Convolution") == 0 || strcmp(name, "FullyConnected") == 0) {
        return out * right / first; /* weight [out, in...] */
    }
    if (strcmp(name, "Deconvolution") == 0) {
        return left * right / first; /* weight [in, out...] */
    }
    if (strcmp(name, "dot") == 0 || strcmp(name, "batch_dot") == 0) {
        /* [b,m,k] x [b,k,n]: left * right / out = b k k */
        double batch = strcmp(name, "dot") == 0 ? 1 : first;
        double inner = left * right / (PS_MAX(out, 1.0) * batch);
        double k = 1;
        while (k * k < inner) {
            k *= 2;
        }
        return out * k;
    }
    return 0;
}

static double work_of(const struct ps_graph *graph, const struct ps_graph_node *node)
{
    double touched = 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        touched += elements(graph, node->inputs[i]);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        touched += elements(graph, node->first_entry + i);
    }
    return 2 * multiply_adds(graph, node) + PS_WORK_ELEMENT * touched;
}

/* ---- classes ---- */

static bool is_true(const char *text)
{
    bool value = false;
    return text != NULL && ps_parse_bool(text, &value) == PS_OK && value;
}

/* What BACKWARD_DO_MIRROR keeps: reference/behaviour.md 3.5, and their like. */
static bool is_heavy(const char *name)
{
    static const char *const heavy[] = {"Convolution", "Deconvolution", "FullyConnected",
                                        "Concat",      "SoftmaxOutput", "dot",
                                        "batch_dot",   "Dropout"};
    for (size_t i = 0; i < PS_COUNT(heavy); i++) {
        if (strcmp(name, heavy[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Another node may have written the auxiliary state in between. */
static bool shares_auxiliary(const struct ps_graph_node *node, const uint32_t *readers)
{
    int inputs = ps_op_input_count(node->op);
    for (uint32_t i = (uint32_t)inputs; i < node->input_count; i++) {
        if (readers[node->inputs[i]] > 1) {
            return true;
        }
    }
    return false;
}

static enum ps_mirror_class classify(const struct ps_mirror_model *model,
                                     const struct ps_graph_node *node,
                                     const uint32_t *readers)
{
    if (node->kind != PS_NODE_FORWARD || shares_auxiliary(node, readers)) {
        return PS_MIRROR_KEEP;
    }
    bool stays = true;
    for (uint32_t i = 0; i < node->output_count; i++) {
        stays = stays && model->stays[node->first_entry + i];
    }
    uint32_t flags = ps_op_flags(ps_op_definition(node->op));
    if (stays || (flags & PS_OP_LOSS_HEAD) != 0) {
        return PS_MIRROR_KEEP;
    }
    const char *name = ps_op_name(ps_op_definition(node->op));
    bool random = (flags & PS_OP_NEEDS_RNG) != 0;
    if (!random && is_true(ps_sym_node_attr(node->sym, "__force_mirroring__"))) {
        return PS_MIRROR_FORCED;
    }
    return random || is_heavy(name) ? PS_MIRROR_HEAVY : PS_MIRROR_CHEAP;
}

static void find_what_stays(struct ps_mirror_model *model)
{
    const struct ps_graph *graph = model->graph;
    for (size_t i = 0; i < graph->output_count; i++) {
        model->stays[graph->outputs[i]] = true;
    }
    for (size_t n = 0; n < model->forward_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        if (node->kind != PS_NODE_FORWARD) {
            continue;
        }
        size_t bytes = ps_mirror_entry_bytes(model, node->first_entry);
        for (uint32_t i = (uint32_t)ps_op_visible_output_count(node->op);
             i < node->output_count; i++) {
            uint32_t e = node->first_entry + i;
            model->stays[e] = ps_mirror_entry_bytes(model, e) <= bytes / SMALL_PART;
        }
    }
}

static void fill(struct ps_mirror_model *model, uint32_t *readers)
{
    const struct ps_graph *graph = model->graph;
    find_what_stays(model);
    for (size_t n = 0; n < model->forward_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->input_count; i++) {
            readers[node->inputs[i]]++;
        }
    }
    for (uint32_t n = 0; n < model->forward_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        model->class_of[n] = classify(model, node, readers);
        if (node->kind == PS_NODE_FORWARD) {
            model->work[n] = work_of(graph, node);
            model->forward_work += model->work[n];
            model->has_stages = model->has_stages || ps_mirror_stage(model, n) != NULL;
        }
    }
}

enum ps_status ps_mirror_model_init(struct ps_mirror_model *model,
                                    const struct ps_graph *graph,
                                    const struct ps_mirror_options *options)
{
    *model =
        (struct ps_mirror_model){.graph = graph, .forward_count = graph->forward_count};
    size_t nodes = graph->forward_count + 1;
    enum ps_status status = PS_ENOMEM;
    model->class_of = calloc(nodes, sizeof(model->class_of[0]));
    model->work = calloc(nodes, sizeof(model->work[0]));
    model->stays = calloc(graph->entry_count + 1, sizeof(bool));
    uint32_t *readers = calloc(graph->entry_count + 1, sizeof(uint32_t));
    if (model->class_of == NULL || model->work == NULL || model->stays == NULL ||
        readers == NULL) {
        goto out;
    }
    PS_TRY_GOTO(status, ps_graph_plan_input_init(&model->plan, graph, &options->plan),
                out);
    fill(model, readers);
    PS_TRY_GOTO(status, ps_mirror_schedule_init(model), out);
    PS_TRY_GOTO(status, ps_mirror_live_init(model), out);
out:
    free(readers);
    if (status != PS_OK) {
        ps_mirror_model_fini(model);
    }
    return status;
}

void ps_mirror_model_fini(struct ps_mirror_model *model)
{
    ps_mirror_live_fini(&model->live);
    ps_mirror_schedule_fini(&model->schedule);
    ps_graph_plan_input_fini(&model->plan);
    free(model->stays);
    free(model->work);
    free(model->class_of);
    *model = (struct ps_mirror_model){0};
}

size_t ps_mirror_entry_bytes(const struct ps_mirror_model *model, uint32_t entry)
{
    const struct ps_plan_value *value = &model->plan.values[entry];
    return value->external ? 0 : value->bytes;
}

const char *ps_mirror_stage(const struct ps_mirror_model *model, uint32_t node)
{
    const struct ps_graph_node *it = &model->graph->nodes[node];
    bool value = true;
    if (it->kind != PS_NODE_FORWARD) {
        return NULL;
    }
    const char *text = ps_sym_node_attr(it->sym, "__mirror_stage__");
    if (text == NULL || text[0] == '\0' ||
        (ps_parse_bool(text, &value) == PS_OK && !value && strcmp(text, "0") != 0)) {
        return NULL;
    }
    return text;
}
