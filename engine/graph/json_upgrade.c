/* What older MXNet versions wrote, turned into what 1.x writes (behaviour: the upgrade
 * passes of its loader).  The version is in the file; without one it counts as 0.8. */
#include "engine/graph/json_read.h"

#include "engine/graph/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reserved keys that were written bare before 0.9. */
static const char *const reserved[] = {"ctx_group", "lr_mult", "wd_mult",
                                       "force_mirroring", "mirror_stage"};

static bool op_knows(const struct ps_op_def *def, const char *key)
{
    for (size_t i = 0; def != NULL && ps_op_attr_name(def, i) != NULL; i++) {
        if (strcmp(ps_op_attr_name(def, i), key) == 0) {
            return true;
        }
    }
    return false;
}

static const char *reserved_hidden(const char *key)
{
    for (size_t i = 0; i < PS_COUNT(reserved); i++) {
        if (strcmp(key, reserved[i]) == 0) {
            return ps_sym_hidden_key(key);
        }
    }
    return NULL;
}

/* "weight_lr_mult" -> "lr_mult" and the length of "weight"; NULL for other keys. */
static const char *input_suffix(const char *key, size_t *input_size)
{
    size_t size = strlen(key);
    for (size_t i = 0; i < PS_COUNT(reserved); i++) {
        size_t tail = strlen(reserved[i]);
        if (size > tail + 1 && key[size - tail - 1] == '_' &&
            strcmp(key + size - tail, reserved[i]) == 0) {
            *input_size = size - tail - 1;
            return reserved[i];
        }
    }
    return NULL;
}

/* An attribute set before 0.9 by a user, that no operator knows, kept as the graph's own:
 * "mood" -> "__mood__". */
static enum ps_status wrap_key(struct ps_json_reader *reader, struct ps_json_node *node,
                               struct ps_attr *attr)
{
    char key[160];
    int size = snprintf(key, sizeof(key), "__%s__", attr->key);
    if (size < 0 || (size_t)size >= sizeof(key)) {
        return ps_json_fail(reader, PS_ECORRUPT, node,
                            "attr: key of %zu bytes is too long", strlen(attr->key));
    }
    json_t *kept = json_string(key);
    if (kept == NULL || json_object_set_new(reader->root, key, kept) != 0) {
        return PS_ENOMEM;
    }
    attr->key = json_string_value(kept); /* lives with the file's other texts */
    return PS_OK;
}

enum ps_status ps_json_upgrade_attrs(struct ps_json_reader *reader,
                                     struct ps_json_node *node,
                                     const struct ps_op_def *def)
{
    size_t kept = 0;
    for (size_t i = 0; i < node->attrs.count; i++) {
        struct ps_attr attr = node->attrs.attrs[i];
        size_t input_size;
        const char *hidden = reserved_hidden(attr.key);
        if (hidden != NULL && !op_knows(def, attr.key)) {
            attr.key = hidden;
        } else if (def != NULL && reader->version < 905 &&
                   strncmp(ps_op_name(def), "arg", 3) == 0 &&
                   strcmp(attr.key, "axis") == 0 && strcmp(attr.value, "-1") == 0) {
            continue; /* before 0.9.5 argmax and argmin wrote -1 for "all" */
        } else if (def != NULL && !ps_sym_key_is_hidden(attr.key) &&
                   !op_knows(def, attr.key) &&
                   ((reader->version < 900 && i < node->attrs.user_count) ||
                    input_suffix(attr.key, &input_size) != NULL)) {
            PS_TRY(wrap_key(reader, node, &attr));
        }
        node->attrs.attrs[kept++] = attr;
    }
    node->attrs.count = kept;
    return PS_OK;
}

/* "__weight_lr_mult__" of the node -> "__lr_mult__" of the variable at input "weight". */
static enum ps_status give_to_input(struct ps_sym_node *made, const char *key,
                                    const char *value)
{
    size_t size = strlen(key);
    char bare[160];
    if (!ps_sym_key_is_hidden(key) || size - 4 >= sizeof(bare)) {
        return PS_OK;
    }
    memcpy(bare, key + 2, size - 4);
    bare[size - 4] = 0;
    size_t input_size;
    const char *suffix = input_suffix(bare, &input_size);
    int count = made->op == NULL ? 0 : ps_op_input_count(made->op);
    for (int i = 0; suffix != NULL && i < count; i++) {
        const char *input = ps_op_input_name(made->op, i);
        struct ps_sym_node *variable = made->inputs[i].node;
        if (strlen(input) == input_size && strncmp(input, bare, input_size) == 0 &&
            variable->op == NULL) {
            return ps_sym_node_set_attr(variable, ps_sym_hidden_key(suffix), value);
        }
    }
    return PS_OK;
}

static enum ps_status add_auxiliaries(struct ps_sym_node *made, size_t given)
{
    for (size_t i = given; i < made->input_count; i++) {
        const char *state =
            ps_op_aux_name(made->op, (int)i - ps_op_input_count(made->op));
        struct ps_str name = {0};
        ps_str_printf(&name, "%s_%s", made->name, state);
        if (!name.failed) {
            made->inputs[i].node = ps_sym_node_create(ps_str_text(&name), NULL, 0);
        }
        ps_str_fini(&name);
        if (made->inputs[i].node == NULL) {
            return PS_ENOMEM;
        }
    }
    return PS_OK;
}

enum ps_status ps_json_upgrade_inputs(struct ps_json_reader *reader,
                                      const struct ps_json_node *node,
                                      struct ps_sym_node *made, size_t given)
{
    PS_UNUSED(reader);
    for (size_t i = 0; i < node->attrs.count; i++) {
        PS_TRY(give_to_input(made, node->attrs.attrs[i].key, node->attrs.attrs[i].value));
    }
    return add_auxiliaries(made, given);
}
