/* A symbol file while it is being read: json_load.c checks the layout and makes the
 * nodes, json_upgrade.c rewrites what older versions wrote.  Private to these two.
 *
 * Foreign bytes: every index, type and count is checked; the first fault ends the load
 * with the node's number or name and the field. */
#ifndef PENSTOCK_ENGINE_GRAPH_JSON_READ_H
#define PENSTOCK_ENGINE_GRAPH_JSON_READ_H

#include "engine/graph/symbol_node.h"

#include <jansson.h>

/* Attributes of one node, in the order found; keys may be replaced by the upgrade. */
struct ps_json_attrs {
    struct ps_attr *attrs; /* keys and values live in the arena or in the JSON */
    size_t count, capacity;
    size_t user_count; /* the first ones: from attr or attrs; the others from param */
};

struct ps_json_reader {
    json_t *root, *nodes;
    int64_t version; /* mxnet_version; 800 when the file has none */
    struct ps_sym_node **made;
    size_t made_count; /* nodes finished so far: inputs must lie below */
    struct ps_error *err;
};

/* One node's fields, borrowed from the JSON. */
struct ps_json_node {
    size_t at;
    const char *op, *name;
    json_t *inputs, *control;
    struct ps_json_attrs attrs; /* of the operator and of the graph */
};

/* Fills 'node' from its JSON; its name as soon as possible, for errors.  Gives
 * node->attrs.attrs (free).  Errors: PS_ECORRUPT, PS_EUNSUPPORTED, PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_json_read_fields(struct ps_json_reader *reader,
                                                 json_t *value,
                                                 struct ps_json_node *node);
/* Rewrites reserved keys of old files ("lr_mult" -> "__lr_mult__"), drops axis "-1" of
 * argmax, and moves "weight_lr_mult" aside: json_upgrade_inputs gives it to the input
 * variable.  Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_json_upgrade_attrs(struct ps_json_reader *reader,
                                                   struct ps_json_node *node,
                                                   const struct ps_op_def *def);
/* After 'made' has its inputs: attributes written for an input go to its variable, and
 * auxiliary states that files before 0.9 leave out are added as variables. */
PS_MUST_CHECK enum ps_status ps_json_upgrade_inputs(struct ps_json_reader *reader,
                                                    const struct ps_json_node *node,
                                                    struct ps_sym_node *made,
                                                    size_t given);
/* Fails with "symbol file: node <n> (<name>): ...". */
enum ps_status ps_json_fail(struct ps_json_reader *reader, enum ps_status status,
                            const struct ps_json_node *node, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
