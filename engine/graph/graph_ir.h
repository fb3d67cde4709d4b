/* A graph in numbers: what the passes work on.
 *
 * Made from a symbol (graph_make.c), filled by inference (infer_shape.c, infer_type.c),
 * extended with gradients (autograd.c), laid out (plan_memory.c), run (executor*.c).
 * Nodes are in execution order, producers first.  An entry is one output of a node and
 * has a number of its own; variables are nodes with one entry.  Lists live in the arena.
 * Private to this folder.  Threads: one at a time.
 *
 * The passes, in their order: infer, autograd, place, mirror, plan memory, bulk, run; one
 * file each.  Nodes [0, forward_count) are run by forward, the rest by backward; a
 * FORWARD node of the second part computes an earlier one again ('mirror_of'). */
#ifndef PENSTOCK_ENGINE_GRAPH_GRAPH_IR_H
#define PENSTOCK_ENGINE_GRAPH_GRAPH_IR_H

#include "engine/engine.h"
#include "engine/graph/arena.h"
#include "engine/graph/symbol_node.h"

#define PS_NO_ENTRY UINT32_MAX
#define PS_NO_INDEX UINT32_MAX

enum ps_node_kind {
    PS_NODE_VARIABLE,  /* an argument or auxiliary state: its tensor is given */
    PS_NODE_HEAD_GRAD, /* the gradient of an output, given to backward */
    PS_NODE_FORWARD,   /* an operator */
    PS_NODE_BACKWARD,  /* its gradients: output i is the gradient of input i */
    PS_NODE_SUM,       /* output = sum of the inputs; one input: a copy */
    PS_NODE_ZERO,      /* output = 0 */
    PS_NODE_COPY       /* output = input, from another device to this node's */
};

/* What an input of a backward node is to its operator. */
struct ps_slot {
    enum ps_op_slot kind;
    uint32_t index;
};

struct ps_graph_node {
    enum ps_node_kind kind;
    const char *name;
    const struct ps_op *op;        /* FORWARD, BACKWARD */
    const struct ps_sym_node *sym; /* VARIABLE, FORWARD */
    uint32_t forward;              /* BACKWARD: the node it differentiates */
    uint32_t mirror_of; /* FORWARD: the node that it computes again, with the same random
                           numbers and without touching auxiliary states; PS_NO_INDEX for
                           every other node */
    uint32_t origin; /* FORWARD of the symbol: its place in the symbol's order, whatever
                        passes put before it: its random numbers go by it */
    struct ps_context context; /* where it runs and its outputs lie */
    uint32_t *inputs;          /* entries; FORWARD: inputs, then auxiliary states */
    struct ps_slot *slots;     /* BACKWARD: one per input */
    uint32_t input_count;
    uint32_t first_entry, output_count;
};

struct ps_graph_entry {
    uint32_t node, output;
    struct ps_shape shape;
    int dtype;
    uint32_t gradient_of; /* the argument (index) whose gradient tensor this entry writes,
                             else PS_NO_INDEX */
    uint32_t adds_into;   /* the sum into whose place this output of a backward node is
                             added, so that the sum has nothing to run; else PS_NO_ENTRY */
    bool wanted;          /* somebody uses it: an output of a backward node that nobody
                             uses is not computed */
};

struct ps_graph {
    struct ps_arena arena;
    struct ps_graph_node *nodes;
    size_t node_count, node_capacity;
    struct ps_graph_entry *entries;
    size_t entry_count, entry_capacity;
    size_t forward_count;  /* nodes [0, forward_count) are the symbol's */
    uint32_t grad_sum_cap; /* from so many gradients of one value on, each is added as it
                              arrives; 0: the default of EXEC_INPLACE_GRAD_SUM_CAP */
    uint32_t *outputs;     /* entries */
    size_t output_count;
    uint32_t *arguments; /* nodes, in listing order */
    size_t argument_count;
    uint32_t *auxiliaries;
    size_t auxiliary_count;
    uint32_t *head_grads; /* one per output: entry, or PS_NO_ENTRY when not consumed */
    uint32_t *gradients;  /* one per argument: entry, or PS_NO_ENTRY */
    const uint32_t *argument_of; /* node -> argument index, or PS_NO_INDEX */
    struct ps_symbol *symbol;    /* retained: names and operators live there */
};

/* Errors: PS_ENOMEM, PS_EUNSUPPORTED (more than 2^31 nodes). */
PS_MUST_CHECK enum ps_status ps_graph_make(struct ps_symbol *symbol,
                                           struct ps_graph *graph_out);
void ps_graph_fini(struct ps_graph *graph);

/* Appends a node with 'input_count' inputs (not yet set) and 'output_count' entries.
 * Moves graph->nodes and graph->entries.  Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_graph_add(struct ps_graph *graph, enum ps_node_kind kind,
                                          const char *name, size_t input_count,
                                          size_t output_count, uint32_t *node_out);

/* Puts the nodes into a new order: order[i] is the node that comes i-th, every node once,
 * producers before consumers, the first 'forward_count' of them run by forward.  Node
 * numbers follow everywhere in the graph; entry numbers stay.  Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status
ps_graph_reorder(struct ps_graph *graph, const uint32_t *order, size_t forward_count);

/* ---- inference over the forward nodes ---- */

/* Starts from what the entries hold and from the variables' __shape__ / __dtype__ where
 * they hold nothing; sweeps until nothing changes.  Errors: PS_ESHAPE / PS_EDTYPE with
 * the node's name, PS_EINVAL (a hint that is none), PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_graph_infer_shapes(struct ps_graph *graph,
                                                   struct ps_error *err);
PS_MUST_CHECK enum ps_status ps_graph_infer_dtypes(struct ps_graph *graph,
                                                   struct ps_error *err);
/* As above; then the first argument without a type becomes f32, and again, until every
 * type is known. */
PS_MUST_CHECK enum ps_status ps_graph_default_dtypes(struct ps_graph *graph,
                                                     struct ps_error *err);
/* The first entry whose shape (type) is not fully known; PS_NO_ENTRY when all are. */
uint32_t ps_graph_unknown_shape(const struct ps_graph *graph);
uint32_t ps_graph_unknown_dtype(const struct ps_graph *graph);
/* Sets what is known of the variable called 'name'.  Errors: PS_ENOENT with the nearest
 * name. */
PS_MUST_CHECK enum ps_status ps_graph_set_shape(struct ps_graph *graph, const char *name,
                                                const struct ps_shape *shape,
                                                struct ps_error *err);
PS_MUST_CHECK enum ps_status ps_graph_set_dtype(struct ps_graph *graph, const char *name,
                                                int dtype, struct ps_error *err);
/* Fails with "<node>: <why>" where 'why' is an operator's error. */
enum ps_status ps_graph_fail(const struct ps_graph_node *node, enum ps_status status,
                             const struct ps_error *why, struct ps_error *err);

/* ---- gradients ---- */

/* Appends the nodes that compute the gradient of every argument with a request.  'reqs'
 * has one per argument.  Errors: PS_EINVAL (an operator without a gradient on the way),
 * PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_graph_differentiate(struct ps_graph *graph,
                                                    const enum ps_grad_req *reqs,
                                                    struct ps_error *err);

#endif
