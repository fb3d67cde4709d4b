/* Making operator nodes: parse attributes, take the given inputs, make the missing ones
 * as variables. */
#include "engine/graph/symbol_node.h"

#include "engine/graph/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum ps_status ps_symbol_variable(const char *name, struct ps_symbol **symbol_out,
                                  struct ps_error *err)
{
    if (name == NULL || name[0] == 0) {
        return ps_error_set(err, PS_EINVAL, "a variable needs a name");
    }
    struct ps_sym_node *node = ps_sym_node_create(name, NULL, 0);
    if (node == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status =
        ps_symbol_over(&(struct ps_sym_entry){.node = node}, 1, symbol_out);
    ps_sym_node_release(node);
    return status;
}

/* The text of PS_EINVAL errors begins with the node's name. */
static enum ps_status prefix(struct ps_error *err, enum ps_status status,
                             const char *name)
{
    if (err != NULL && err->status == status) {
        char text[PS_ERROR_TEXT_BYTES];
        (void)snprintf(text, sizeof(text), "%s", err->text);
        return ps_error_set(err, status, "%s: %s", name, text);
    }
    return status;
}

static const struct ps_attr *find_attr(const struct ps_attr_list *list, const char *key)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->attrs[i].key, key) == 0) {
            return &list->attrs[i];
        }
    }
    return NULL;
}

/* An operator with a variable number of inputs gets num_args from how many there are. */
static enum ps_status add_num_args(struct ps_attr_list *list, size_t count)
{
    if (find_attr(list, "num_args") != NULL) {
        return PS_OK;
    }
    PS_TRY(ps_array_reserve((void **)&list->attrs, &list->capacity, list->count + 1,
                            sizeof(list->attrs[0])));
    (void)snprintf(list->num_args, sizeof(list->num_args), "%zu", count);
    list->attrs[list->count++] =
        (struct ps_attr){.key = "num_args", .value = list->num_args};
    return PS_OK;
}

/* Parses the attributes of 'compose' into 'list' and makes its operator. */
static enum ps_status make_op(const struct ps_compose *compose, struct ps_attr_list *list,
                              struct ps_op **op_out, struct ps_error *err)
{
    const struct ps_op_def *def = ps_op_find(compose->op);
    if (def == NULL) {
        const char *near = ps_op_nearest(compose->op);
        return ps_error_set(err, PS_EINVAL, "unknown operator %s%s%s", compose->op,
                            near != NULL ? "; nearest is " : "",
                            near != NULL ? near : "");
    }
    PS_TRY(ps_attr_list_parse(compose->attrs, list, err));
    if ((ps_op_flags(def) & PS_OP_VARIABLE_INPUTS) != 0) {
        PS_TRY(add_num_args(list, compose->input_count));
    }
    return ps_op_create(def, list->attrs, list->count, op_out, err);
}

/* Input i: the given one, or a variable called <node>_<input>. */
static enum ps_status fill_input(struct ps_sym_node *node,
                                 const struct ps_compose *compose, size_t i,
                                 struct ps_error *err)
{
    size_t inputs = (size_t)ps_op_input_count(node->op);
    const char *slot = i < inputs ? ps_op_input_name(node->op, (int)i)
                                  : ps_op_aux_name(node->op, (int)(i - inputs));
    struct ps_symbol *given = i < compose->input_count ? compose->inputs[i] : NULL;
    if (given != NULL && given->count != 1) {
        return ps_error_set(err, PS_EINVAL,
                            "input %s has %zu outputs; pick one with ps_symbol_output",
                            slot, given->count);
    }
    if (given != NULL) {
        if (i >= inputs && given->entries[0].node->op != NULL) {
            return ps_error_set(err, PS_EINVAL,
                                "auxiliary state %s must be a variable, is %s", slot,
                                given->entries[0].node->name);
        }
        node->inputs[i] = given->entries[0];
        ps_sym_node_retain(node->inputs[i].node);
        return PS_OK;
    }
    struct ps_str name = {0};
    ps_str_printf(&name, "%s_%s", compose->name, slot);
    struct ps_sym_node *made =
        name.failed ? NULL : ps_sym_node_create(ps_str_text(&name), NULL, 0);
    ps_str_fini(&name);
    if (made == NULL) {
        return PS_ENOMEM;
    }
    node->inputs[i].node = made;
    return PS_OK;
}

static enum ps_status compose_node(const struct ps_compose *compose,
                                   struct ps_sym_node **node_out, struct ps_error *err)
{
    struct ps_attr_list list = {0};
    struct ps_op *op = NULL;
    struct ps_sym_node *node = NULL;
    enum ps_status status;
    PS_TRY_GOTO(status, make_op(compose, &list, &op, err), out);
    size_t total = (size_t)(ps_op_input_count(op) + ps_op_aux_count(op));
    if (compose->input_count > total) {
        status = ps_error_set(err, PS_EINVAL, "%s takes %zu inputs, %zu given",
                              compose->op, total, compose->input_count);
        goto out;
    }
    node = ps_sym_node_create(compose->name, op, total);
    if (node == NULL) {
        status = PS_ENOMEM;
        goto out;
    }
    op = NULL;
    for (size_t i = 0; i < total; i++) {
        PS_TRY_GOTO(status, fill_input(node, compose, i, err), out);
    }
    for (size_t i = 0; i < list.count; i++) {
        PS_TRY_GOTO(status,
                    ps_sym_node_set_attr(node, list.attrs[i].key, list.attrs[i].value),
                    out);
    }
    *node_out = node;
    node = NULL;
out:
    ps_sym_node_release(node);
    ps_op_destroy(op);
    ps_attr_list_fini(&list);
    return status;
}

enum ps_status ps_symbol_compose(const struct ps_compose *compose,
                                 struct ps_symbol **symbol_out, struct ps_error *err)
{
    if (compose->name == NULL || compose->name[0] == 0) {
        return ps_error_set(err, PS_EINVAL, "%s: a node needs a name", compose->op);
    }
    struct ps_sym_node *node = NULL;
    enum ps_status status = compose_node(compose, &node, err);
    if (status != PS_OK) {
        return prefix(err, status, compose->name);
    }
    size_t outputs = ps_sym_visible_output_count(node);
    struct ps_sym_entry *entries = calloc(outputs, sizeof(*entries));
    if (entries == NULL) {
        status = PS_ENOMEM;
        goto out;
    }
    for (size_t i = 0; i < outputs; i++) {
        entries[i] = (struct ps_sym_entry){.node = node, .index = (uint32_t)i};
    }
    status = ps_symbol_over(entries, outputs, symbol_out);
    free(entries);
out:
    ps_sym_node_release(node);
    return status;
}
