/* What an executor says of its memory. */
#include "engine/graph/executor.h"

#include "engine/graph/exec_core.h"

static const char *kind_text(const struct ps_graph_node *node)
{
    switch (node->kind) {
    case PS_NODE_VARIABLE:
        return "variable";
    case PS_NODE_HEAD_GRAD:
        return "head gradient";
    case PS_NODE_SUM:
        return "sum";
    case PS_NODE_ZERO:
        return "zero";
    case PS_NODE_COPY:
        return "copy";
    default:
        return ps_op_name(ps_op_definition(node->op));
    }
}

static size_t bytes_of(struct ps_tensor *const *tensors, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += tensors[i] == NULL ? 0 : ps_tensor_bytes(tensors[i]);
    }
    return bytes;
}

static size_t operators_of(const struct ps_exec_part *part)
{
    size_t count = 0;
    for (size_t i = 0; i < part->count; i++) {
        count += part->batches[i].count;
    }
    return count;
}

void ps_executor_memory(const struct ps_executor *executor,
                        struct ps_executor_memory *memory_out)
{
    const struct ps_exec_core *core = executor->core;
    const struct ps_exec_part *forward = &core->parts[PS_PART_TRAINING];
    const struct ps_exec_part *backward = &core->parts[PS_PART_BACKWARD];
    size_t arguments = executor->argument_names.count;
    *memory_out = (struct ps_executor_memory){
        .internal_bytes = core->internal_bytes,
        .workspace_bytes = core->workspace_bytes,
        .peak_bytes = core->internal_bytes + core->workspace_bytes,
        .argument_bytes = bytes_of(executor->arguments, arguments),
        .gradient_bytes = bytes_of(executor->gradients, arguments),
        .auxiliary_bytes =
            bytes_of(executor->auxiliaries, executor->auxiliary_names.count),
        .operator_count = operators_of(forward) + operators_of(backward),
        .operation_count = forward->count + backward->count,
        .mirrored_count = core->mirrored_count,
        .forward_work = core->forward_work,
        .extra_work = core->extra_work,
        .copy_count = core->copy_count,
        .block_count = core->plan.block_count,
        .block_bytes = core->plan.total_bytes,
        .offset_bytes = core->plan.offset_bytes,
        .unplanned_bytes = core->plan.unplanned_bytes,
        .inplace_count = core->plan.inplace_count,
        .match_range = (int)core->plan.match_range,
        .plan = core->plan_kind,
    };
}

size_t ps_executor_step_count(const struct ps_executor *executor)
{
    return executor->core->step_count;
}

enum ps_status ps_executor_step(const struct ps_executor *executor, size_t i,
                                struct ps_executor_step *step_out)
{
    const struct ps_exec_core *core = executor->core;
    if (i >= core->step_count) {
        return PS_ERANGE;
    }
    uint32_t n = core->steps[i];
    const struct ps_graph_node *node = &core->graph.nodes[n];
    *step_out = (struct ps_executor_step){
        .name = node->name,
        .kind = kind_text(node),
        .backward = n >= core->graph.forward_count,
        .gradient = n >= core->graph.forward_count && node->kind != PS_NODE_FORWARD &&
                    node->kind != PS_NODE_COPY,
        .mirrored = node->mirror_of != PS_NO_INDEX,
        .nothing = core->ops[n].run == NULL,
        .context = node->context,
        .live_bytes = core->plan.live_bytes[n],
        .workspace_bytes = core->plan.scratch_bytes[n],
        .operation = core->operation_of[n],
    };
    return PS_OK;
}

static void dump_entry(const struct ps_exec_core *core, uint32_t e, struct ps_str *out)
{
    const struct ps_graph_entry *entry = &core->graph.entries[e];
    char shape[PS_SHAPE_TEXT_BYTES];
    ps_str_printf(out, "  output %u: %s %s", entry->output, ps_dtype_name(entry->dtype),
                  ps_shape_text(&entry->shape, shape));
    uint32_t group = core->plan.group_of[e];
    if (entry->gradient_of != PS_NO_INDEX) {
        uint32_t argument = core->graph.arguments[entry->gradient_of];
        ps_str_printf(out, " gradient of %s", core->graph.nodes[argument].name);
    } else if (group != PS_PLAN_NOWHERE) {
        ps_str_printf(out, " block %u offset %zu", core->plan.groups[group].block,
                      core->plan.groups[group].offset);
    } else if (core->entries[e] == NULL) {
        ps_str_printf(out, " not computed");
    }
    ps_str_printf(out, "\n");
}

static void dump_node(const struct ps_exec_core *core, size_t n, struct ps_str *out)
{
    const struct ps_graph_node *node = &core->graph.nodes[n];
    bool handed_on = node->op != NULL && core->ops[n].run == NULL;
    ps_str_printf(out, "%zu %s: %s%s\n", n, node->name, kind_text(node),
                  node->kind == PS_NODE_BACKWARD ? " backward" : "");
    if (handed_on) {
        ps_str_printf(out, "  nothing to run\n");
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct ps_graph_entry *entry = &core->graph.entries[node->inputs[i]];
        ps_str_printf(out, "  input %u: %s[%u]\n", i, core->graph.nodes[entry->node].name,
                      entry->output);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        dump_entry(core, node->first_entry + i, out);
    }
}

void ps_executor_dump(const struct ps_executor *executor, struct ps_str *out)
{
    static const char *const plans[] = {"auto", "blocks", "offsets", "none"};
    const struct ps_exec_core *core = executor->core;
    for (size_t n = 0; n < core->graph.node_count; n++) {
        dump_node(core, n, out);
    }
    ps_str_printf(out,
                  "plan %s: blocks %zu of %zu bytes with match range %zu, offsets %zu "
                  "bytes, unplanned %zu bytes, in place %zu\n",
                  plans[core->plan_kind], core->plan.block_count, core->plan.total_bytes,
                  core->plan.match_range, core->plan.offset_bytes,
                  core->plan.unplanned_bytes, core->plan.inplace_count);
    ps_str_printf(out, "Total %zu MB allocated\n", core->internal_bytes >> 20);
    ps_str_printf(out, "Total %zu TempSpace resource requested\n", core->workspace_count);
}
