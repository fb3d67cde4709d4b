/* Attributes of nodes.  The graph's own are spelled "__lr_mult__" in files and may be
 * written without underscores in calls; an operator's parameters have bare keys and are
 * fixed with the node. */
#include "engine/graph/symbol_node.h"

#include <stdlib.h>
#include <string.h>

/* Bare spelling -> the key in the graph. */
static const char *const hidden_keys[][2] = {
    {"shape", "__shape__"},
    {"dtype", "__dtype__"},
    {"lr_mult", "__lr_mult__"},
    {"wd_mult", "__wd_mult__"},
    {"init", "__init__"},
    {"ctx_group", "__ctx_group__"},
    {"force_mirroring", "__force_mirroring__"},
    {"mirror_stage", "__mirror_stage__"},
    {"storage_type", "__storage_type__"},
    {"profiler_scope", "__profiler_scope__"},
};

const char *ps_sym_hidden_key(const char *key)
{
    for (size_t i = 0; i < PS_COUNT(hidden_keys); i++) {
        if (strcmp(key, hidden_keys[i][0]) == 0) {
            return hidden_keys[i][1];
        }
    }
    return NULL;
}

bool ps_sym_key_is_hidden(const char *key)
{
    size_t size = strlen(key);
    return size > 4 && strncmp(key, "__", 2) == 0 && strcmp(key + size - 2, "__") == 0;
}

static size_t attr_place(const struct ps_sym_node *node, const char *key)
{
    size_t low = 0, high = node->attr_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(node->attrs[middle].key, key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

enum ps_status ps_sym_node_set_attr(struct ps_sym_node *node, const char *key,
                                    const char *value)
{
    size_t at = attr_place(node, key);
    char *copy = ps_strdup(value);
    if (copy == NULL) {
        return PS_ENOMEM;
    }
    if (at < node->attr_count && strcmp(node->attrs[at].key, key) == 0) {
        free(node->attrs[at].value);
        node->attrs[at].value = copy;
        return PS_OK;
    }
    char *name = ps_strdup(key);
    struct ps_sym_attr *grown =
        name == NULL ? NULL
                     : realloc(node->attrs, (node->attr_count + 1) * sizeof(*grown));
    if (grown == NULL) {
        free(name);
        free(copy);
        return PS_ENOMEM;
    }
    node->attrs = grown;
    memmove(grown + at + 1, grown + at, (node->attr_count - at) * sizeof(*grown));
    grown[at] = (struct ps_sym_attr){.key = name, .value = copy};
    node->attr_count++;
    return PS_OK;
}

const char *ps_sym_node_attr(const struct ps_sym_node *node, const char *key)
{
    size_t at = attr_place(node, key);
    if (at < node->attr_count && strcmp(node->attrs[at].key, key) == 0) {
        return node->attrs[at].value;
    }
    const char *hidden = ps_sym_hidden_key(key);
    return hidden == NULL ? NULL : ps_sym_node_attr(node, hidden);
}

enum ps_status ps_symbol_set_attr(struct ps_symbol *symbol, const char *key,
                                  const char *value, struct ps_error *err)
{
    if (ps_symbol_name(symbol) == NULL) {
        return ps_error_set(err, PS_EINVAL, "attribute %s: a group has none", key);
    }
    struct ps_sym_node *node = symbol->entries[0].node;
    const char *hidden = ps_sym_hidden_key(key);
    if (hidden == NULL && ps_sym_key_is_hidden(key)) {
        hidden = key;
    }
    if (hidden == NULL && node->op != NULL) {
        return ps_error_set(err, PS_EINVAL,
                            "%s: attribute %s: an operator's parameters are fixed; the "
                            "graph's own are written __%s__",
                            node->name, key, key);
    }
    struct ps_shape shape;
    if (hidden != NULL && strcmp(hidden, "__shape__") == 0 &&
        ps_shape_parse_hint(value, &shape) != PS_OK) {
        return ps_error_set(err, PS_EINVAL, "%s: __shape__ %s: not a shape like (2, 3)",
                            node->name, value);
    }
    return ps_sym_node_set_attr(node, hidden != NULL ? hidden : key, value);
}

const char *ps_symbol_attr(const struct ps_symbol *symbol, const char *key)
{
    return ps_symbol_name(symbol) == NULL
               ? NULL
               : ps_sym_node_attr(symbol->entries[0].node, key);
}

const char *ps_symbol_node_attr(const struct ps_symbol *symbol, const char *node,
                                const char *key)
{
    struct ps_sym_order order;
    const char *value = NULL;
    if (ps_sym_order_make(symbol->entries, symbol->count, &order) != PS_OK) {
        return NULL;
    }
    for (size_t n = 0; n < order.count; n++) {
        if (strcmp(order.nodes[n]->name, node) == 0) {
            value = ps_sym_node_attr(order.nodes[n], key);
            break;
        }
    }
    ps_sym_order_fini(&order);
    return value;
}
