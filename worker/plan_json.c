/* `penstock plan --json`.  See plan_show.h. */
#include "worker/plan_show.h"

#include "base/node.h"

#include <inttypes.h>

static void show_settings(const struct ps_net *net, struct ps_str *out)
{
    const struct ps_settings *s = ps_engine_node(net->options.engine)->settings;
    ps_str_printf(out, "  \"settings\": {\"EXEC_ENABLE_INPLACE\": %s",
                  ps_settings_bool(s, PS_SET_EXEC_ENABLE_INPLACE) ? "true" : "false");
    ps_str_printf(out, ", \"EXEC_MATCH_RANGE\": %" PRId64,
                  ps_settings_int(s, PS_SET_EXEC_MATCH_RANGE));
    ps_str_printf(out, ", \"EXEC_NUM_TEMP\": %" PRId64,
                  ps_settings_int(s, PS_SET_EXEC_NUM_TEMP));
    ps_str_printf(out, ", \"BACKWARD_DO_MIRROR\": %s",
                  ps_settings_bool(s, PS_SET_BACKWARD_DO_MIRROR) ? "true" : "false");
    ps_str_printf(out, ", \"MEMONGER\": ");
    ps_str_json(out, ps_settings_text(s, PS_SET_MEMONGER));
    ps_str_printf(out, ", \"EXEC_BULK_EXEC_TRAIN\": %s, \"EXEC_BULK_EXEC_INFERENCE\": %s",
                  ps_settings_bool(s, PS_SET_EXEC_BULK_EXEC_TRAIN) ? "true" : "false",
                  ps_settings_bool(s, PS_SET_EXEC_BULK_EXEC_INFERENCE) ? "true"
                                                                       : "false");
    ps_str_printf(out, ", \"EXEC_BULK_EXEC_MAX_NODE_TRAIN\": %" PRId64 "}",
                  ps_settings_int(s, PS_SET_EXEC_BULK_EXEC_MAX_NODE_TRAIN));
}

static void show_mirrored(const struct ps_net_plan *plan, struct ps_str *out)
{
    size_t shown = 0;
    ps_str_printf(out, "  \"mirrored\": [");
    for (size_t i = 0; i < ps_executor_step_count(plan->executor); i++) {
        struct ps_executor_step step;
        if (ps_executor_step(plan->executor, i, &step) == PS_OK && step.mirrored) {
            ps_str_printf(out, "%s", shown++ > 0 ? ", " : "");
            ps_str_json(out, step.name);
        }
    }
    ps_str_printf(out, "]");
}

void ps_plan_show_json(const struct ps_net *net, const struct ps_net_plan *plan,
                       struct ps_str *out)
{
    const struct ps_executor_memory *m = &plan->memory;
    char context[PS_CONTEXT_TEXT_BYTES];
    ps_str_printf(out, "{\n  \"network\": ");
    ps_str_json(out, net->name);
    ps_str_printf(out,
                  ",\n  \"batch_size\": %" PRId64 ",\n  \"inference\": %s,\n"
                  "  \"context\": \"%s\",\n  \"parameters\": %" PRId64 ",\n",
                  net->options.batch, net->options.inference ? "true" : "false",
                  ps_context_text(net->options.context, context), plan->parameter_count);
    const struct {
        const char *key;
        size_t value;
    } rows[] = {
        {"argument_bytes", m->argument_bytes},   {"gradient_bytes", m->gradient_bytes},
        {"auxiliary_bytes", m->auxiliary_bytes}, {"internal_bytes", m->internal_bytes},
        {"workspace_bytes", m->workspace_bytes}, {"peak_bytes", m->peak_bytes},
        {"unplanned_bytes", m->unplanned_bytes}, {"blocks", m->block_count},
        {"block_bytes", m->block_bytes},         {"offset_bytes", m->offset_bytes},
        {"inplace", m->inplace_count},           {"match_range", (size_t)m->match_range},
        {"operators", m->operator_count},        {"segments", m->operation_count},
        {"mirrored_nodes", m->mirrored_count},
    };
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        ps_str_printf(out, "  \"%s\": %zu,\n", rows[i].key, rows[i].value);
    }
    ps_str_printf(out,
                  "  \"forward_work\": %.0f,\n  \"extra_work\": %.0f,\n"
                  "  \"layout\": \"%s\",\n",
                  m->forward_work, m->extra_work, ps_net_layout_text(m->plan));
    show_mirrored(plan, out);
    ps_str_printf(out, ",\n");
    show_settings(net, out);
    ps_str_printf(out, "\n}\n");
}
