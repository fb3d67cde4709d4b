/* Changing all nodes of one kind together: the tanh of every step of an unrolled network,
 * the ReLU of every block.  A kind is an operator with its shapes, its producers and its
 * consumers; networks of thousands of nodes have a few dozen.  Where a change pays only
 * when it is made everywhere, or there are too many nodes to try each, this finds it. */
#include "engine/graph/mirror_model.h"

#include <stdlib.h>
#include <string.h>

struct member {
    uint64_t kind;
    uint32_t node;
};

/* FNV-1a over 64-bit words, with a final shift so that high bits reach the low ones. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x100000001b3);
    return hash ^ (hash >> 29);
}

static uint64_t hash_text(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *text != '\0'; text++) {
        hash = mix(hash, (unsigned char)*text);
    }
    return hash;
}

static uint64_t hash_node(const struct ps_mirror_model *model, uint32_t n)
{
    const struct ps_graph_node *node = &model->graph->nodes[n];
    if (node->kind != PS_NODE_FORWARD) {
        return (uint64_t)node->kind;
    }
    uint64_t hash = hash_text(ps_op_name(ps_op_definition(node->op)));
    hash = mix(hash, (uint64_t)model->class_of[n]);
    for (uint32_t i = 0; i < node->output_count; i++) {
        const struct ps_shape *shape =
            &model->graph->entries[node->first_entry + i].shape;
        for (int d = 0; d < shape->ndim; d++) {
            hash = mix(hash, (uint64_t)shape->dim[d]);
        }
    }
    return hash;
}

/* 'own' and 'sum' have room for a number per forward node. */
static void hash_all(const struct ps_mirror_model *model, uint64_t *own, uint64_t *sum,
                     struct member *members)
{
    const struct ps_graph *graph = model->graph;
    for (uint32_t n = 0; n < model->forward_count; n++) {
        own[n] = hash_node(model, n);
    }
    for (uint32_t n = 0; n < model->forward_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        uint64_t hash = own[n];
        for (uint32_t i = 0; i < node->input_count; i++) {
            uint32_t producer = graph->entries[node->inputs[i]].node;
            hash = mix(hash, own[producer]);
            sum[producer] += mix(own[n], i); /* consumers have no order */
        }
        members[n] = (struct member){.kind = hash, .node = n};
    }
    for (uint32_t n = 0; n < model->forward_count; n++) {
        members[n].kind = mix(members[n].kind, sum[n]);
    }
}

static int compare(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    return a->node < b->node ? -1 : a->node > b->node;
}

/* The members that may change, kinds together. */
static size_t list_members(const struct ps_mirror_model *model, enum ps_mirror_class most,
                           struct member *members)
{
    size_t count = 0;
    for (uint32_t n = 0; n < model->forward_count; n++) {
        if (model->class_of[n] == PS_MIRROR_CHEAP || model->class_of[n] == most) {
            members[count++] = members[n];
        }
    }
    qsort(members, count, sizeof(members[0]), compare);
    return count;
}

static size_t end_of_kind(const struct member *members, size_t count, size_t from)
{
    size_t to = from + 1;
    while (to < count && members[to].kind == members[from].kind) {
        to++;
    }
    return to;
}

struct sweep {
    struct ps_mirror_model *model;
    struct ps_mirror_choice *choice;
    const struct member *members;
    size_t count;
    bool *before, *best; /* per forward node */
};

static void try_kind(struct sweep *sweep, size_t from, size_t to, bool again,
                     struct ps_mirror_choice *best)
{
    struct ps_mirror_choice *choice = sweep->choice;
    size_t bytes = sweep->model->forward_count * sizeof(choice->again[0]);
    bool changes = false;
    for (size_t i = from; i < to; i++) {
        changes = changes || choice->again[sweep->members[i].node] != again;
        choice->again[sweep->members[i].node] = again;
    }
    if (!changes) {
        return;
    }
    ps_mirror_weigh(sweep->model, choice);
    if (choice->peak_bytes < best->peak_bytes ||
        (choice->peak_bytes == best->peak_bytes && choice->work < best->work)) {
        best->peak_bytes = choice->peak_bytes;
        best->work = choice->work;
        memcpy(sweep->best, choice->again, bytes);
    }
    memcpy(choice->again, sweep->before, bytes);
}

/* Whether one kind was changed for the better. */
static bool sweep_once(struct sweep *sweep)
{
    struct ps_mirror_choice *choice = sweep->choice;
    size_t bytes = sweep->model->forward_count * sizeof(choice->again[0]);
    ps_mirror_weigh(sweep->model, choice);
    struct ps_mirror_choice best = *choice;
    memcpy(sweep->before, choice->again, bytes);
    memcpy(sweep->best, choice->again, bytes);
    for (size_t from = 0, to; from < sweep->count; from = to) {
        to = end_of_kind(sweep->members, sweep->count, from);
        if (sweep->model->tries >= sweep->model->tries_max) {
            break;
        }
        try_kind(sweep, from, to, true, &best);
        try_kind(sweep, from, to, false, &best);
    }
    bool better = memcmp(sweep->best, sweep->before, bytes) != 0;
    memcpy(choice->again, sweep->best, bytes);
    return better;
}

enum ps_status ps_mirror_tighten_kinds(struct ps_mirror_model *model,
                                       enum ps_mirror_class most,
                                       struct ps_mirror_choice *choice)
{
    size_t room = model->forward_count + 1;
    uint64_t *own = calloc(room, sizeof(*own)), *sum = calloc(room, sizeof(*sum));
    struct member *members = calloc(room, sizeof(*members));
    struct sweep sweep = {.model = model,
                          .choice = choice,
                          .members = members,
                          .before = calloc(room, sizeof(bool)),
                          .best = calloc(room, sizeof(bool))};
    enum ps_status status = PS_ENOMEM;
    if (own != NULL && sum != NULL && members != NULL && sweep.before != NULL &&
        sweep.best != NULL) {
        status = PS_OK;
        hash_all(model, own, sum, members);
        sweep.count = list_members(model, most, members);
        while (model->tries < model->tries_max && sweep_once(&sweep)) {
        }
        ps_mirror_weigh(model, choice);
    }
    free(sweep.best);
    free(sweep.before);
    free(members);
    free(sum);
    free(own);
    return status;
}
