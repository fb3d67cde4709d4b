/* What symbols are made of: reference-counted nodes, private to this folder.
 *
 * A node is a variable (no operator) or an operator with its inputs, the auxiliary
 * states behind them.  Nodes never change once they are in a symbol, but for a node's
 * own "__x__" attributes.  Edges point from consumer to producer and own a reference, so
 * a symbol keeps everything below it alive; release works off a list, without recursion.
 * Threads: as symbol.h. */
#ifndef PENSTOCK_ENGINE_GRAPH_SYMBOL_NODE_H
#define PENSTOCK_ENGINE_GRAPH_SYMBOL_NODE_H

#include "base/map.h"
#include "engine/graph/symbol.h"
#include "kernels/kernels.h"

#include <stdatomic.h>

struct ps_sym_node;

struct ps_sym_entry {
    struct ps_sym_node *node;
    uint32_t index; /* output of the node */
};

struct ps_sym_attr {
    char *key, *value;
};

struct ps_sym_node {
    _Atomic uint32_t refs;
    struct ps_op *op; /* NULL: a variable */
    char *name;
    struct ps_sym_attr *attrs; /* sorted by key */
    size_t attr_count;
    struct ps_sym_entry *inputs; /* inputs, then auxiliary states */
    size_t input_count;
    struct ps_sym_node **control; /* run before this one without giving it anything */
    size_t control_count;
    struct ps_sym_node *next_release;
};

struct ps_symbol {
    _Atomic uint32_t refs;
    size_t count;
    struct ps_sym_entry entries[];
};

/* A node with one reference and copies of name and attributes; takes 'op' on success.
 * NULL when out of memory. */
struct ps_sym_node *ps_sym_node_create(const char *name, struct ps_op *op,
                                       size_t input_count);
struct ps_sym_node *ps_sym_node_retain(struct ps_sym_node *node);
void ps_sym_node_release(struct ps_sym_node *node); /* NULL is fine */
PS_MUST_CHECK enum ps_status ps_sym_node_set_attr(struct ps_sym_node *node,
                                                  const char *key, const char *value);
const char *ps_sym_node_attr(const struct ps_sym_node *node, const char *key);
/* "x" -> "__x__" for the attributes that belong to the graph; NULL for all others. */
const char *ps_sym_hidden_key(const char *key);
bool ps_sym_key_is_hidden(const char *key); /* "__x__" */

/* A symbol over 'count' entries, each retained. */
PS_MUST_CHECK enum ps_status ps_symbol_over(const struct ps_sym_entry *entries,
                                            size_t count, struct ps_symbol **symbol_out);

size_t ps_sym_output_count(const struct ps_sym_node *node);         /* hidden ones too */
size_t ps_sym_visible_output_count(const struct ps_sym_node *node); /* variables: 1 */
/* Appends "<node>_<output>", or a variable's own name. */
void ps_sym_entry_name(const struct ps_sym_entry *entry, struct ps_str *out);

/* All nodes below some entries, producers first, in depth-first order. */
struct ps_sym_order {
    struct ps_sym_node **nodes; /* borrows */
    bool *auxiliary;            /* a variable that some operator has as auxiliary state */
    size_t count;
    struct ps_map index; /* node address -> its place + 1 */
};
PS_MUST_CHECK enum ps_status ps_sym_order_make(const struct ps_sym_entry *entries,
                                               size_t count, struct ps_sym_order *out);
void ps_sym_order_fini(struct ps_sym_order *order);
size_t ps_sym_order_find(const struct ps_sym_order *order,
                         const struct ps_sym_node *node);

/* "kernel=(5, 5) num_filter=20" -> attributes, malloc'ed.  Separated by blanks or commas
 * outside of brackets and quotes.  Errors: PS_EINVAL, PS_ENOMEM. */
struct ps_attr_list {
    struct ps_attr *attrs;
    size_t count, capacity;
    char *text;        /* keys and values point here */
    char num_args[24]; /* the value that composition adds */
};
PS_MUST_CHECK enum ps_status
ps_attr_list_parse(const char *text, struct ps_attr_list *out, struct ps_error *err);
void ps_attr_list_fini(struct ps_attr_list *list);

/* Shape hints: "(2, 0)", "[2,3]", "5"; 0, -1 and None are unknown dimensions.  Errors:
 * PS_EINVAL. */
PS_MUST_CHECK enum ps_status ps_shape_parse_hint(const char *text,
                                                 struct ps_shape *shape_out);

#endif
