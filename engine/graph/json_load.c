/* JSON -> symbol: MXNet's layout in its three dialects.
 *
 * Nodes come in topological order, so an input must have a smaller number than its node:
 * that alone makes cycles impossible.  Attributes: "attr" and "attrs" fill one map, the
 * later replaces the earlier; "param" adds keys that are not there yet (behaviour of the
 * readers from 1.0 on).  Unknown node keys are refused, as MXNet does. */
#include "engine/graph/json_read.h"

#include "engine/graph/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum ps_status ps_json_fail(struct ps_json_reader *reader, enum ps_status status,
                            const struct ps_json_node *node, const char *fmt, ...)
{
    char text[PS_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (node == NULL) {
        return ps_error_set(reader->err, status, "symbol file: %s", text);
    }
    return ps_error_set(reader->err, status, "symbol file: node %zu (%.64s): %s",
                        node->at, node->name == NULL ? "?" : node->name, text);
}

/* A number in [0, limit). */
static bool read_index(const json_t *value, size_t limit, size_t *out)
{
    if (!json_is_integer(value)) {
        return false;
    }
    json_int_t n = json_integer_value(value);
    if (n < 0 || (uint64_t)n >= limit) {
        return false;
    }
    *out = (size_t)n;
    return true;
}

/* [node, output] or [node, output, version] with node below 'limit'. */
static bool read_entry(struct ps_json_reader *reader, const json_t *value, size_t limit,
                       struct ps_sym_entry *out)
{
    size_t size = json_is_array(value) ? json_array_size(value) : 0;
    size_t node, output, version;
    if ((size != 2 && size != 3) || !read_index(json_array_get(value, 0), limit, &node)) {
        return false;
    }
    struct ps_sym_node *made = reader->made[node];
    if (!read_index(json_array_get(value, 1), ps_sym_output_count(made), &output) ||
        (size == 3 && !read_index(json_array_get(value, 2), UINT32_MAX, &version))) {
        return false;
    }
    *out = (struct ps_sym_entry){.node = made, .index = (uint32_t)output};
    return true;
}

static const char *entry_text(const json_t *value, char out[48])
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    (void)snprintf(out, 48, "%.40s", text == NULL ? "?" : text);
    free(text);
    return out;
}

/* ---- one node ---- */

static enum ps_status read_inputs(struct ps_json_reader *reader,
                                  const struct ps_json_node *node,
                                  struct ps_sym_node *made, size_t given)
{
    size_t inputs = made->op == NULL ? 0 : (size_t)ps_op_input_count(made->op);
    for (size_t i = 0; i < given; i++) {
        char text[48];
        const json_t *value = json_array_get(node->inputs, i);
        struct ps_sym_entry entry;
        if (!read_entry(reader, value, node->at, &entry)) {
            return ps_json_fail(reader, PS_ECORRUPT, node,
                                "inputs: entry %zu is %s; must be [node, output] of an "
                                "earlier node",
                                i, entry_text(value, text));
        }
        if (i >= inputs && entry.node->op != NULL) {
            return ps_json_fail(reader, PS_ECORRUPT, node,
                                "inputs: auxiliary state %s must be a variable",
                                ps_op_aux_name(made->op, (int)(i - inputs)));
        }
        made->inputs[i] = entry;
        ps_sym_node_retain(entry.node);
    }
    return PS_OK;
}

static enum ps_status read_control(struct ps_json_reader *reader,
                                   const struct ps_json_node *node,
                                   struct ps_sym_node *made)
{
    size_t count = node->control == NULL ? 0 : json_array_size(node->control);
    if (count == 0) {
        return PS_OK;
    }
    made->control = calloc(count, sizeof(made->control[0]));
    if (made->control == NULL) {
        return PS_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        size_t at;
        if (!read_index(json_array_get(node->control, i), node->at, &at)) {
            return ps_json_fail(reader, PS_ECORRUPT, node,
                                "control_deps: must be numbers of earlier nodes");
        }
        made->control[made->control_count++] = ps_sym_node_retain(reader->made[at]);
    }
    return PS_OK;
}

static enum ps_status make_op(struct ps_json_reader *reader, struct ps_json_node *node,
                              struct ps_op **op_out)
{
    const struct ps_op_def *def = NULL;
    *op_out = NULL;
    if (strcmp(node->op, "null") != 0) {
        def = ps_op_find(node->op);
        if (def == NULL) {
            return ps_json_fail(reader, PS_EUNSUPPORTED, node,
                                "operator %.64s is not here", node->op);
        }
    }
    PS_TRY(ps_json_upgrade_attrs(reader, node, def));
    if (def == NULL) {
        return PS_OK;
    }
    struct ps_error why = {0};
    enum ps_status status =
        ps_op_create(def, node->attrs.attrs, node->attrs.count, op_out, &why);
    return status == PS_OK ? PS_OK : ps_json_fail(reader, status, node, "%s", why.text);
}

static enum ps_status check_input_count(struct ps_json_reader *reader,
                                        const struct ps_json_node *node,
                                        const struct ps_op *op, size_t given)
{
    size_t inputs = op == NULL ? 0 : (size_t)ps_op_input_count(op);
    size_t total = inputs + (op == NULL ? 0 : (size_t)ps_op_aux_count(op));
    if (given != total && given != inputs) {
        return ps_json_fail(reader, PS_ECORRUPT, node, "inputs: %zu given, %s takes %zu",
                            given, node->op, total);
    }
    return PS_OK;
}

/* Gives the node with one reference. */
static enum ps_status read_node(struct ps_json_reader *reader, struct ps_json_node *node,
                                json_t *value, struct ps_sym_node **made_out)
{
    struct ps_op *op = NULL;
    struct ps_sym_node *made = NULL;
    enum ps_status status;
    PS_TRY_GOTO(status, ps_json_read_fields(reader, value, node), out);
    size_t given = node->inputs == NULL ? 0 : json_array_size(node->inputs);
    PS_TRY_GOTO(status, make_op(reader, node, &op), out);
    PS_TRY_GOTO(status, check_input_count(reader, node, op, given), out);
    size_t total = op == NULL ? 0 : (size_t)(ps_op_input_count(op) + ps_op_aux_count(op));
    made = ps_sym_node_create(node->name, op, total);
    if (made == NULL) {
        status = PS_ENOMEM;
        goto out;
    }
    op = NULL;
    for (size_t i = 0; i < node->attrs.count; i++) {
        const struct ps_attr *attr = &node->attrs.attrs[i];
        if (attr->value != NULL) { /* moved to an input's variable otherwise */
            PS_TRY_GOTO(status, ps_sym_node_set_attr(made, attr->key, attr->value), out);
        }
    }
    PS_TRY_GOTO(status, read_inputs(reader, node, made, given), out);
    PS_TRY_GOTO(status, ps_json_upgrade_inputs(reader, node, made, given), out);
    PS_TRY_GOTO(status, read_control(reader, node, made), out);
    *made_out = made;
    made = NULL;
out:
    ps_sym_node_release(made);
    ps_op_destroy(op);
    free(node->attrs.attrs);
    return status;
}

/* ---- the file ---- */

/* A list of numbers below 'limit'; what it says is known from the nodes. */
static enum ps_status check_numbers(struct ps_json_reader *reader, const char *field,
                                    size_t limit)
{
    json_t *list = json_object_get(reader->root, field);
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t number;
        if (!read_index(json_array_get(list, i), limit, &number)) {
            return ps_json_fail(reader, PS_ECORRUPT, NULL, "%s: entry %zu is no %s",
                                field, i, "number of a node");
        }
    }
    return PS_OK;
}

static enum ps_status read_version(struct ps_json_reader *reader)
{
    json_t *attrs = json_object_get(reader->root, "attrs");
    json_t *pair = json_object_get(attrs, "mxnet_version");
    reader->version = 800;
    if (pair == NULL) {
        return PS_OK;
    }
    json_t *value = json_array_get(pair, 1);
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return ps_json_fail(reader, PS_ECORRUPT, NULL,
                            "attrs: mxnet_version must be [\"int\", number]");
    }
    reader->version = json_integer_value(value);
    return PS_OK;
}

static enum ps_status read_heads(struct ps_json_reader *reader,
                                 struct ps_symbol **symbol_out)
{
    json_t *heads = json_object_get(reader->root, "heads");
    size_t count = json_array_size(heads);
    if (count == 0) {
        return ps_json_fail(reader, PS_ECORRUPT, NULL,
                            "heads: must be a list of [node, output] with one or more");
    }
    struct ps_sym_entry *entries = calloc(count, sizeof(*entries));
    if (entries == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status = PS_OK;
    for (size_t i = 0; i < count && status == PS_OK; i++) {
        char text[48];
        const json_t *value = json_array_get(heads, i);
        if (!read_entry(reader, value, reader->made_count, &entries[i])) {
            status = ps_json_fail(reader, PS_ECORRUPT, NULL,
                                  "heads: entry %zu is %s; must be [node, output]", i,
                                  entry_text(value, text));
        }
    }
    if (status == PS_OK) {
        status = ps_symbol_over(entries, count, symbol_out);
    }
    free(entries);
    return status;
}

static enum ps_status read_graph(struct ps_json_reader *reader,
                                 struct ps_symbol **symbol_out)
{
    reader->nodes = json_object_get(reader->root, "nodes");
    if (!json_is_array(reader->nodes)) {
        return ps_json_fail(reader, PS_ECORRUPT, NULL, "nodes: must be a list");
    }
    size_t count = json_array_size(reader->nodes);
    reader->made = calloc(PS_MAX(count, (size_t)1), sizeof(reader->made[0]));
    if (reader->made == NULL) {
        return PS_ENOMEM;
    }
    PS_TRY(read_version(reader));
    for (size_t n = 0; n < count; n++) {
        struct ps_json_node node = {.at = n};
        PS_TRY(
            read_node(reader, &node, json_array_get(reader->nodes, n), &reader->made[n]));
        reader->made_count = n + 1;
    }
    PS_TRY(check_numbers(reader, "arg_nodes", count));
    PS_TRY(check_numbers(reader, "node_row_ptr", UINT32_MAX));
    return read_heads(reader, symbol_out);
}

enum ps_status ps_symbol_from_json(const char *text, size_t size,
                                   struct ps_symbol **symbol_out, struct ps_error *err)
{
    if (size > PS_SYMBOL_JSON_BYTES_MAX) {
        return ps_error_set(err, PS_ERANGE, "symbol file: %zu bytes; at most %u", size,
                            PS_SYMBOL_JSON_BYTES_MAX);
    }
    json_error_t fault;
    struct ps_json_reader reader = {
        .root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &fault), .err = err};
    if (reader.root == NULL) {
        return ps_error_set(err, PS_ECORRUPT, "symbol file: line %d column %d: %s",
                            fault.line, fault.column, fault.text);
    }
    enum ps_status status =
        json_is_object(reader.root)
            ? read_graph(&reader, symbol_out)
            : ps_json_fail(&reader, PS_ECORRUPT, NULL, "must be an object");
    for (size_t n = 0; n < reader.made_count; n++) {
        ps_sym_node_release(reader.made[n]);
    }
    free(reader.made);
    json_decref(reader.root);
    return status;
}

enum ps_status ps_symbol_load(struct ps_fs *fs, const char *path,
                              struct ps_symbol **symbol_out, struct ps_error *err)
{
    char *text;
    size_t size;
    PS_TRY(ps_fs_read_all(fs, path, PS_SYMBOL_JSON_BYTES_MAX, &text, &size, err));
    enum ps_status status = ps_symbol_from_json(text, size, symbol_out, err);
    free(text);
    return status;
}
