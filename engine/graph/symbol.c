/* Nodes and symbols: making, counting, walking.  See symbol_node.h. */
#include "engine/graph/symbol.h"

#include "base/util.h"
#include "engine/graph/arena.h"
#include "engine/graph/symbol_node.h"

#include <stdlib.h>
#include <string.h>

struct ps_sym_node *ps_sym_node_create(const char *name, struct ps_op *op,
                                       size_t input_count)
{
    struct ps_sym_node *node = calloc(1, sizeof(*node));
    if (node == NULL) {
        return NULL;
    }
    atomic_init(&node->refs, 1);
    node->name = ps_strdup(name);
    node->inputs = calloc(PS_MAX(input_count, (size_t)1), sizeof(node->inputs[0]));
    if (node->name == NULL || node->inputs == NULL) {
        free(node->inputs);
        free(node->name);
        free(node);
        return NULL;
    }
    node->op = op;
    node->input_count = input_count;
    return node;
}

struct ps_sym_node *ps_sym_node_retain(struct ps_sym_node *node)
{
    /* relaxed: who retains already holds a reference */
    atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed);
    return node;
}

static void drop(struct ps_sym_node *node, struct ps_sym_node **dead)
{
    /* acq_rel: the last holder must see what the others wrote */
    if (node != NULL &&
        atomic_fetch_sub_explicit(&node->refs, 1, memory_order_acq_rel) == 1) {
        node->next_release = *dead;
        *dead = node;
    }
}

void ps_sym_node_release(struct ps_sym_node *node)
{
    struct ps_sym_node *dead = NULL;
    drop(node, &dead);
    while (dead != NULL) {
        struct ps_sym_node *gone = dead;
        dead = gone->next_release;
        for (size_t i = 0; i < gone->input_count; i++) {
            drop(gone->inputs[i].node, &dead);
        }
        for (size_t i = 0; i < gone->control_count; i++) {
            drop(gone->control[i], &dead);
        }
        for (size_t i = 0; i < gone->attr_count; i++) {
            free(gone->attrs[i].key);
            free(gone->attrs[i].value);
        }
        ps_op_destroy(gone->op);
        free(gone->control);
        free(gone->inputs);
        free(gone->attrs);
        free(gone->name);
        free(gone);
    }
}

size_t ps_sym_output_count(const struct ps_sym_node *node)
{
    return node->op == NULL ? 1 : (size_t)ps_op_output_count(node->op);
}

size_t ps_sym_visible_output_count(const struct ps_sym_node *node)
{
    return node->op == NULL ? 1 : (size_t)ps_op_visible_output_count(node->op);
}

void ps_sym_entry_name(const struct ps_sym_entry *entry, struct ps_str *out)
{
    const struct ps_sym_node *node = entry->node;
    if (node->op == NULL) {
        ps_str_printf(out, "%s", node->name);
    } else if (ps_op_visible_output_count(node->op) == 1 && entry->index == 0) {
        ps_str_printf(out, "%s_output", node->name);
    } else {
        ps_str_printf(out, "%s_%s", node->name,
                      ps_op_output_name(node->op, (int)entry->index));
    }
}

/* ---- symbols ---- */

enum ps_status ps_symbol_over(const struct ps_sym_entry *entries, size_t count,
                              struct ps_symbol **symbol_out)
{
    struct ps_symbol *symbol =
        calloc(1, sizeof(*symbol) + count * sizeof(symbol->entries[0]));
    if (symbol == NULL) {
        return PS_ENOMEM;
    }
    atomic_init(&symbol->refs, 1);
    symbol->count = count;
    for (size_t i = 0; i < count; i++) {
        symbol->entries[i] = entries[i];
        ps_sym_node_retain(entries[i].node);
    }
    *symbol_out = symbol;
    return PS_OK;
}

struct ps_symbol *ps_symbol_retain(struct ps_symbol *symbol)
{
    atomic_fetch_add_explicit(&symbol->refs, 1, memory_order_relaxed);
    return symbol;
}

void ps_symbol_release(struct ps_symbol *symbol)
{
    if (symbol == NULL ||
        atomic_fetch_sub_explicit(&symbol->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (size_t i = 0; i < symbol->count; i++) {
        ps_sym_node_release(symbol->entries[i].node);
    }
    free(symbol);
}

size_t ps_symbol_output_count(const struct ps_symbol *symbol)
{
    return symbol->count;
}

const char *ps_symbol_name(const struct ps_symbol *symbol)
{
    for (size_t i = 1; i < symbol->count; i++) {
        if (symbol->entries[i].node != symbol->entries[0].node) {
            return NULL;
        }
    }
    return symbol->count == 0 ? NULL : symbol->entries[0].node->name;
}

/* ---- depth-first order ---- */

struct visit {
    struct ps_sym_node *node;
    size_t next; /* child to look at: inputs, then control */
};

struct walk {
    struct visit *stack;
    size_t depth, stack_capacity;
    size_t node_capacity;
    struct ps_sym_order *order;
};

/* Map values: VISITING while a node is on the stack, its place + 1 afterwards. */
static const char visiting = 0;
#define VISITING ((void *)(uintptr_t)&visiting)

static enum ps_status enter(struct walk *walk, struct ps_sym_node *node)
{
    if (ps_map_get(&walk->order->index, (uint64_t)(uintptr_t)node) != NULL) {
        return PS_OK;
    }
    PS_TRY(ps_map_put(&walk->order->index, (uint64_t)(uintptr_t)node, VISITING, NULL));
    PS_TRY(ps_array_reserve((void **)&walk->stack, &walk->stack_capacity, walk->depth + 1,
                            sizeof(walk->stack[0])));
    walk->stack[walk->depth++] = (struct visit){.node = node};
    return PS_OK;
}

static enum ps_status leave(struct walk *walk, struct ps_sym_node *node)
{
    struct ps_sym_order *order = walk->order;
    PS_TRY(ps_array_reserve((void **)&order->nodes, &walk->node_capacity,
                            order->count + 1, sizeof(order->nodes[0])));
    order->nodes[order->count++] = node;
    return ps_map_put(&order->index, (uint64_t)(uintptr_t)node,
                      (void *)(uintptr_t)order->count, NULL);
}

static enum ps_status walk_from(struct walk *walk, struct ps_sym_node *root)
{
    PS_TRY(enter(walk, root));
    while (walk->depth > 0) {
        struct visit *top = &walk->stack[walk->depth - 1];
        struct ps_sym_node *node = top->node;
        size_t next = top->next++;
        if (next < node->input_count) {
            PS_TRY(enter(walk, node->inputs[next].node));
        } else if (next < node->input_count + node->control_count) {
            PS_TRY(enter(walk, node->control[next - node->input_count]));
        } else {
            walk->depth--;
            PS_TRY(leave(walk, node));
        }
    }
    return PS_OK;
}

enum ps_status ps_sym_order_make(const struct ps_sym_entry *entries, size_t count,
                                 struct ps_sym_order *out)
{
    struct ps_sym_order order = {0};
    struct walk walk = {.order = &order};
    enum ps_status status = PS_OK;
    for (size_t i = 0; i < count && status == PS_OK; i++) {
        status = walk_from(&walk, entries[i].node);
    }
    free(walk.stack);
    if (status == PS_OK) {
        order.auxiliary = calloc(PS_MAX(order.count, (size_t)1), sizeof(bool));
        status = order.auxiliary == NULL ? PS_ENOMEM : PS_OK;
    }
    if (status != PS_OK) {
        ps_sym_order_fini(&order);
        return status;
    }
    for (size_t n = 0; n < order.count; n++) {
        const struct ps_sym_node *node = order.nodes[n];
        size_t inputs = node->op == NULL ? 0 : (size_t)ps_op_input_count(node->op);
        for (size_t i = inputs; i < node->input_count; i++) {
            order.auxiliary[ps_sym_order_find(&order, node->inputs[i].node)] = true;
        }
    }
    *out = order;
    return PS_OK;
}

void ps_sym_order_fini(struct ps_sym_order *order)
{
    free(order->nodes);
    free(order->auxiliary);
    ps_map_fini(&order->index);
    *order = (struct ps_sym_order){0};
}

size_t ps_sym_order_find(const struct ps_sym_order *order, const struct ps_sym_node *node)
{
    return (size_t)(uintptr_t)ps_map_get(&order->index, (uint64_t)(uintptr_t)node) - 1;
}
