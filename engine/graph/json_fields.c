/* The fields of one node of a symbol file: checked for their types, attributes of the
 * three dialects merged.  See json_read.h. */
#include "engine/graph/json_read.h"

#include "engine/graph/arena.h"

#include <string.h>

static struct ps_attr *find_attr(struct ps_json_attrs *attrs, const char *key)
{
    for (size_t i = 0; i < attrs->count; i++) {
        if (strcmp(attrs->attrs[i].key, key) == 0) {
            return &attrs->attrs[i];
        }
    }
    return NULL;
}

static enum ps_status take_attrs(struct ps_json_reader *reader, struct ps_json_node *node,
                                 const char *field, json_t *map)
{
    if (!json_is_object(map)) {
        return ps_json_fail(reader, PS_ECORRUPT, node, "%s: must be an object", field);
    }
    const char *key;
    json_t *value;
    json_object_foreach(map, key, value)
    {
        if (!json_is_string(value)) {
            return ps_json_fail(reader, PS_ECORRUPT, node,
                                "%s: value of %.64s must be a string", field, key);
        }
        if (find_attr(&node->attrs, key) != NULL) {
            continue;
        }
        PS_TRY(ps_array_reserve((void **)&node->attrs.attrs, &node->attrs.capacity,
                                node->attrs.count + 1, sizeof(struct ps_attr)));
        node->attrs.attrs[node->attrs.count++] =
            (struct ps_attr){.key = key, .value = json_string_value(value)};
    }
    return PS_OK;
}

static enum ps_status read_field(struct ps_json_reader *reader, struct ps_json_node *node,
                                 const char *key, json_t *value, json_t **params)
{
    if (strcmp(key, "op") == 0 || strcmp(key, "name") == 0) {
        if (!json_is_string(value)) {
            return ps_json_fail(reader, PS_ECORRUPT, node, "%s: must be a string", key);
        }
        *(key[0] == 'o' ? &node->op : &node->name) = json_string_value(value);
    } else if (strcmp(key, "attr") == 0 || strcmp(key, "attrs") == 0) {
        node->attrs.count = 0;
        return take_attrs(reader, node, key, value);
    } else if (strcmp(key, "param") == 0) {
        *params = value;
    } else if (strcmp(key, "inputs") == 0 || strcmp(key, "control_deps") == 0) {
        if (!json_is_array(value)) {
            return ps_json_fail(reader, PS_ECORRUPT, node, "%s: must be a list", key);
        }
        *(key[0] == 'i' ? &node->inputs : &node->control) = value;
    } else if (strcmp(key, "subgraphs") == 0) {
        if (json_array_size(value) != 0) {
            return ps_json_fail(reader, PS_EUNSUPPORTED, node,
                                "subgraphs: control-flow operators are not here");
        }
    } else if (strcmp(key, "backward_source_id") != 0) {
        return ps_json_fail(reader, PS_ECORRUPT, node,
                            "unknown field %.64s; known are op, name, attrs, attr, "
                            "param, inputs, control_deps",
                            key);
    }
    return PS_OK;
}

enum ps_status ps_json_read_fields(struct ps_json_reader *reader, json_t *value,
                                   struct ps_json_node *node)
{
    if (!json_is_object(value)) {
        return ps_json_fail(reader, PS_ECORRUPT, node, "must be an object");
    }
    node->name = json_string_value(json_object_get(value, "name"));
    json_t *params = NULL;
    const char *key;
    json_t *field;
    json_object_foreach(value, key, field)
    {
        PS_TRY(read_field(reader, node, key, field, &params));
    }
    node->attrs.user_count = node->attrs.count;
    if (params != NULL) {
        PS_TRY(take_attrs(reader, node, "param", params));
    }
    if (node->op == NULL || node->name == NULL || node->name[0] == 0) {
        return ps_json_fail(reader, PS_ECORRUPT, node, "%s is missing",
                            node->op == NULL ? "op" : "name");
    }
    return PS_OK;
}
