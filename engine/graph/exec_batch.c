/* From nodes to engine operations: bulk.c says which nodes are one operation, an
 * operation reads and writes what its nodes do, and the operations of a run are captured
 * as one segment after the run has been pushed once. */
#include "engine/graph/exec_core.h"

#include "engine/graph/bulk.h"

#include <stdlib.h>
#include <string.h>

/* The first node of a part and the one behind its last. */
static void range_of(const struct ps_exec_core *core, enum ps_exec_part_kind kind,
                     size_t *first_out, size_t *end_out)
{
    bool backward = kind == PS_PART_BACKWARD;
    *first_out = backward ? core->graph.forward_count : 0;
    *end_out = backward ? core->graph.node_count : core->graph.forward_count;
}

static struct ps_exec_op *op_of(struct ps_exec_core *core, enum ps_exec_part_kind kind,
                                size_t n)
{
    return kind == PS_PART_INFERENCE && core->inference[n].run != NULL
               ? &core->inference[n]
               : &core->ops[n];
}

/* ---- cutting ---- */

/* The node that computes 'entry', behind those that only hand it on. */
static uint32_t producer(const struct ps_exec_core *core, uint32_t entry)
{
    const struct ps_graph *graph = &core->graph;
    uint32_t n = graph->entries[entry].node;
    while (core->ops[n].run == NULL && graph->nodes[n].input_count > 0) {
        n = graph->entries[graph->nodes[n].inputs[0]].node;
    }
    return n;
}

/* Where another colour's values come in and where values go to another colour. */
static void mark_colours(const struct ps_exec_core *core, size_t first, size_t end,
                         struct ps_bulk_node *nodes)
{
    const struct ps_graph *graph = &core->graph;
    for (size_t n = first; n < end; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        for (uint32_t i = 0; nodes[n - first].runs && i < node->input_count; i++) {
            uint32_t from = producer(core, node->inputs[i]);
            if (from >= first && core->colour_of[from] != core->colour_of[n]) {
                nodes[n - first].begins = true;
                nodes[from - first].ends = true;
            }
        }
    }
}

static bool writes_gradient(const struct ps_graph *graph,
                            const struct ps_graph_node *node)
{
    for (uint32_t i = 0; i < node->output_count; i++) {
        const struct ps_graph_entry *entry = &graph->entries[node->first_entry + i];
        if (entry->wanted && entry->gradient_of != PS_NO_INDEX) {
            return true;
        }
    }
    return false;
}

/* The batch of each node of the range, from 0. */
static enum ps_status cut(struct ps_exec_core *core, enum ps_exec_part_kind kind,
                          size_t limit, uint32_t *batch_of, size_t *count_out)
{
    size_t first, end;
    range_of(core, kind, &first, &end);
    struct ps_bulk_node *nodes = calloc(end - first + 1, sizeof(nodes[0]));
    if (nodes == NULL) {
        return PS_ENOMEM;
    }
    for (size_t n = first; n < end; n++) {
        const struct ps_graph_node *node = &core->graph.nodes[n];
        nodes[n - first] = (struct ps_bulk_node){
            .runs = op_of(core, kind, n)->run != NULL,
            .alone = node->kind == PS_NODE_COPY,
            .ends = writes_gradient(&core->graph, node),
            .colour = core->colour_of == NULL ? 0 : core->colour_of[n],
            .context = node->context};
    }
    if (core->colour_of != NULL) {
        mark_colours(core, first, end, nodes);
    }
    *count_out = ps_bulk_cut(nodes, end - first, limit, batch_of);
    free(nodes);
    return PS_OK;
}

/* ---- one engine operation ---- */

enum { NAME_BYTES = 120 }; /* of an operation's name before it ends in ",...]" */

static enum ps_status name_batch(struct ps_exec_batch *batch)
{
    if (batch->count == 1) {
        batch->name = batch->ops[0]->node->name;
        return PS_OK;
    }
    struct ps_str text = {0};
    ps_str_printf(&text, "[");
    for (uint32_t i = 0; i < batch->count; i++) {
        const char *name = batch->ops[i]->node->name;
        if (i > 0 && text.size + strlen(name) > NAME_BYTES) {
            ps_str_printf(&text, ",...");
            break;
        }
        ps_str_printf(&text, "%s%.*s", i > 0 ? "," : "", (int)NAME_BYTES, name);
    }
    ps_str_printf(&text, "]");
    batch->name = text.failed ? NULL
                              : ps_arena_printf(&batch->core->graph.arena, "%s",
                                                ps_str_text(&text));
    ps_str_fini(&text);
    return batch->name == NULL ? PS_ENOMEM : PS_OK;
}

static void release_core(void *arg)
{
    ps_exec_core_release(((struct ps_exec_batch *)arg)->core);
}

/* Where a batch runs: copies to and from a GPU go to its copy lane. */
static void route(const struct ps_exec_batch *batch, struct ps_engine_op *fields)
{
    const struct ps_exec_op *op = batch->ops[0];
    fields->context = op->node->context;
    fields->kind = PS_ENGINE_NORMAL;
    if (op->node->kind == PS_NODE_COPY) {
        struct ps_context from = ps_tensor_context(op->in.tensors[0]);
        if (from.kind == PS_CONTEXT_GPU) {
            fields->context = from;
            fields->kind = PS_ENGINE_COPY_FROM_GPU;
        } else if (fields->context.kind == PS_CONTEXT_GPU) {
            fields->kind = PS_ENGINE_COPY_TO_GPU;
        }
    }
}

/* 'lists' has room for the variables of all nodes, twice. */
static enum ps_status make_call(struct ps_exec_batch *batch, struct ps_var **lists)
{
    struct ps_exec_core *core = batch->core;
    struct ps_engine_op fields = {.name = batch->name,
                                  .run = ps_exec_run_batch,
                                  .arg = batch,
                                  .release = release_core,
                                  .symbolic = true};
    size_t reads = 0, writes = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        reads += batch->ops[i]->read_count;
    }
    fields.reads = lists;
    fields.writes = lists + reads;
    struct ps_var **read = lists, **write = lists + reads;
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct ps_exec_op *op = batch->ops[i];
        memcpy(read, op->reads, op->read_count * sizeof(read[0]));
        memcpy(write, op->writes, op->write_count * sizeof(write[0]));
        read += op->read_count;
        write += op->write_count;
        writes += op->write_count;
    }
    fields.read_count = reads;
    fields.write_count = writes;
    route(batch, &fields);
    /* relaxed: the creator holds a reference */
    atomic_fetch_add_explicit(&core->refs, 1, memory_order_relaxed);
    enum ps_status status =
        ps_engine_call_create(core->options.engine, &fields, &batch->call);
    if (status != PS_OK) {
        atomic_fetch_sub_explicit(&core->refs, 1, memory_order_relaxed);
    }
    return status;
}

/* ---- a part ---- */

static enum ps_status fill_batches(struct ps_exec_core *core, enum ps_exec_part_kind kind,
                                   const uint32_t *batch_of, struct ps_exec_part *part)
{
    size_t first, end;
    range_of(core, kind, &first, &end);
    struct ps_exec_op **ops =
        ps_arena_calloc(&core->graph.arena, end - first, sizeof(ops[0]));
    if (ops == NULL) {
        return PS_ENOMEM;
    }
    size_t at = 0;
    for (size_t n = first; n < end; n++) {
        if (batch_of[n - first] == PS_NO_SEGMENT) {
            continue;
        }
        struct ps_exec_batch *batch = &part->batches[batch_of[n - first]];
        if (batch->count == 0) {
            batch->core = core;
            batch->ops = &ops[at];
        }
        ops[at++] = op_of(core, kind, n);
        batch->count++;
    }
    return PS_OK;
}

static size_t variables_of(const struct ps_exec_core *core)
{
    size_t count = 0;
    for (size_t n = 0; n < core->graph.node_count; n++) {
        count += core->ops[n].read_count + core->ops[n].write_count;
        if (n < core->graph.forward_count) {
            count += core->inference[n].read_count + core->inference[n].write_count;
        }
    }
    return count + 1;
}

static enum ps_status make_part(struct ps_exec_core *core, enum ps_exec_part_kind kind,
                                size_t limit, struct ps_exec_part *part,
                                uint32_t *batch_of, struct ps_error *err)
{
    struct ps_arena *arena = &core->graph.arena;
    size_t count;
    PS_TRY(cut(core, kind, limit, batch_of, &count));
    part->batches = ps_arena_calloc(arena, count, sizeof(part->batches[0]));
    part->calls = ps_arena_calloc(arena, count, sizeof(part->calls[0]));
    struct ps_var **lists = calloc(variables_of(core), sizeof(lists[0]));
    enum ps_status status = PS_ENOMEM;
    if (part->batches == NULL || part->calls == NULL || lists == NULL) {
        goto out;
    }
    PS_TRY_GOTO(status, fill_batches(core, kind, batch_of, part), out);
    for (size_t i = 0; i < count; i++) {
        struct ps_exec_batch *batch = &part->batches[i];
        PS_TRY_GOTO(status, name_batch(batch), out);
        status = make_call(batch, lists);
        if (status != PS_OK) {
            (void)ps_error_set(err, status, "%s: %s", batch->name,
                               ps_status_text(status));
            goto out;
        }
        part->calls[i] = batch->call;
        part->count++;
    }
out:
    free(lists);
    return status;
}

enum ps_status ps_exec_make_parts(struct ps_exec_core *core, bool single,
                                  struct ps_error *err)
{
    struct ps_graph *graph = &core->graph;
    struct ps_exec_part *parts = single ? core->single : core->parts;
    size_t limit = single ? 1 : core->bulk_limit;
    uint32_t *batch_of =
        ps_arena_calloc(&graph->arena, graph->node_count, sizeof(batch_of[0]));
    if (batch_of == NULL) {
        return PS_ENOMEM;
    }
    /* last the training step: what the array holds then is kept */
    enum ps_status status;
    PS_TRY_GOTO(status,
                make_part(core, PS_PART_INFERENCE, limit, &parts[PS_PART_INFERENCE],
                          batch_of, err),
                fail);
    PS_TRY_GOTO(
        status,
        make_part(core, PS_PART_TRAINING, limit, &parts[PS_PART_TRAINING], batch_of, err),
        fail);
    PS_TRY_GOTO(status,
                make_part(core, PS_PART_BACKWARD, limit, &parts[PS_PART_BACKWARD],
                          batch_of + graph->forward_count, err),
                fail);
    for (size_t n = graph->forward_count; n < graph->node_count; n++) {
        if (batch_of[n] != PS_NO_SEGMENT) {
            batch_of[n] += (uint32_t)parts[PS_PART_TRAINING].count;
        }
    }
    if (!single) {
        core->operation_of = batch_of;
    }
    return PS_OK;
fail:
    ps_exec_parts_close(parts);
    return status;
}

void ps_exec_parts_close(struct ps_exec_part *parts)
{
    for (size_t kind = 0; kind < PS_PART_COUNT; kind++) {
        struct ps_exec_part *part = &parts[kind];
        ps_segment_destroy(part->segment);
        for (size_t i = 0; i < part->count; i++) {
            ps_engine_call_destroy(part->batches[i].call);
        }
        *part = (struct ps_exec_part){0};
    }
}

/* ---- pushing ---- */

enum ps_status ps_exec_push_batch(const struct ps_exec_part *part, size_t i,
                                  struct ps_error *err)
{
    enum ps_status status = ps_engine_call_push(part->calls[i]);
    return status == PS_OK ? PS_OK
                           : ps_error_set(err, status, "%s: %s", part->batches[i].name,
                                          ps_status_text(status));
}

/* Whether the part is captured: from its second run on, so that what runs once pays for
 * nothing.  Without the memory for it runs go on one by one. */
static bool captured(const struct ps_exec_core *core, struct ps_exec_part *part)
{
    if (core->options.replay == 0 || part->segment != NULL) {
        return part->segment != NULL;
    }
    if (part->runs == 1 && part->count > 0) {
        struct ps_segment *made;
        if (ps_segment_create(core->options.engine, part->calls, part->count, &made) ==
            PS_OK) {
            part->segment = made;
        }
    }
    part->runs++;
    return part->segment != NULL;
}

enum ps_status ps_exec_push_part(struct ps_exec_core *core, struct ps_exec_part *part,
                                 struct ps_error *err)
{
    if (captured(core, part)) {
        enum ps_status status = ps_segment_push(part->segment);
        return status == PS_OK
                   ? PS_OK
                   : ps_error_set(err, status, "%s...: %s", part->batches[0].name,
                                  ps_status_text(status));
    }
    for (size_t i = 0; i < part->count; i++) {
        PS_TRY(ps_exec_push_batch(part, i, err));
    }
    return PS_OK;
}
