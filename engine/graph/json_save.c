/* Symbol -> JSON as MXNet 1.x writes it: nodes with merged "attrs", arg_nodes,
 * node_row_ptr, heads, and the version that readers of such files look for.  All
 * attribute values are texts. */
#include "engine/graph/symbol_node.h"

/* major * 10000 + minor * 100 + patch of the layout's version, 1.9.1. */
#define MXNET_VERSION 10901

static void write_attrs(const struct ps_sym_node *node, struct ps_str *out)
{
    if (node->attr_count == 0) {
        return;
    }
    ps_str_printf(out, "      \"attrs\": {");
    for (size_t i = 0; i < node->attr_count; i++) {
        ps_str_printf(out, "%s\n        ", i == 0 ? "" : ",");
        ps_str_json(out, node->attrs[i].key);
        ps_str_printf(out, ": ");
        ps_str_json(out, node->attrs[i].value);
    }
    ps_str_printf(out, "\n      },\n");
}

static void write_node(const struct ps_sym_order *order, const struct ps_sym_node *node,
                       struct ps_str *out)
{
    ps_str_printf(out, "    {\n      \"op\": ");
    ps_str_json(out, node->op == NULL ? "null" : ps_op_name(ps_op_definition(node->op)));
    ps_str_printf(out, ",\n      \"name\": ");
    ps_str_json(out, node->name);
    ps_str_printf(out, ",\n");
    write_attrs(node, out);
    ps_str_printf(out, "      \"inputs\": [");
    for (size_t i = 0; i < node->input_count; i++) {
        ps_str_printf(out, "%s[%zu, %u, 0]", i == 0 ? "" : ", ",
                      ps_sym_order_find(order, node->inputs[i].node),
                      (unsigned)node->inputs[i].index);
    }
    ps_str_printf(out, "]");
    for (size_t i = 0; i < node->control_count; i++) {
        ps_str_printf(out, "%s%zu", i == 0 ? ",\n      \"control_deps\": [" : ", ",
                      ps_sym_order_find(order, node->control[i]));
    }
    ps_str_printf(out, "%s\n    }", node->control_count == 0 ? "" : "]");
}

static void write_numbers(const struct ps_sym_order *order, struct ps_str *out)
{
    const char *gap = "";
    ps_str_printf(out, "  \"arg_nodes\": [");
    for (size_t n = 0; n < order->count; n++) {
        if (order->nodes[n]->op == NULL) {
            ps_str_printf(out, "%s%zu", gap, n);
            gap = ", ";
        }
    }
    ps_str_printf(out, "],\n  \"node_row_ptr\": [0");
    size_t row = 0;
    for (size_t n = 0; n < order->count; n++) {
        row += ps_sym_output_count(order->nodes[n]);
        ps_str_printf(out, ", %zu", row);
    }
    ps_str_printf(out, "],\n");
}

enum ps_status ps_symbol_to_json(const struct ps_symbol *symbol, struct ps_str *out)
{
    struct ps_sym_order order;
    PS_TRY(ps_sym_order_make(symbol->entries, symbol->count, &order));
    ps_str_printf(out, "{\n  \"nodes\": [");
    for (size_t n = 0; n < order.count; n++) {
        ps_str_printf(out, "%s\n", n == 0 ? "" : ",");
        write_node(&order, order.nodes[n], out);
    }
    ps_str_printf(out, "\n  ],\n");
    write_numbers(&order, out);
    ps_str_printf(out, "  \"heads\": [");
    for (size_t i = 0; i < symbol->count; i++) {
        ps_str_printf(out, "%s[%zu, %u, 0]", i == 0 ? "" : ", ",
                      ps_sym_order_find(&order, symbol->entries[i].node),
                      (unsigned)symbol->entries[i].index);
    }
    ps_str_printf(out, "],\n  \"attrs\": {\"mxnet_version\": [\"int\", %d]}\n}\n",
                  MXNET_VERSION);
    ps_sym_order_fini(&order);
    return out->failed ? PS_ENOMEM : PS_OK;
}

enum ps_status ps_symbol_save(const struct ps_symbol *symbol, struct ps_fs *fs,
                              const char *path, struct ps_error *err)
{
    struct ps_str text = {0};
    enum ps_status status = ps_symbol_to_json(symbol, &text);
    if (status == PS_OK) {
        status = ps_fs_write_all(fs, path, ps_str_text(&text), text.size, err);
    }
    ps_str_fini(&text);
    return status;
}
