/* From the operations of a segment to its plan: the stretches of every variable, the
 * edges inside them, and who does what at its end (see segment.h).  Runs once, under the
 * engine's lock 'push', which owns the marks in the variables. */
#include "engine/segment.h"

#include <stdlib.h>

/* More uses do not fit beside the kind of a use. */
enum { MAX_USES = 1 << 28 };

/* One variable of one operation; those of a variable form a list, in order. */
struct use {
    uint32_t op;
    uint32_t next; /* PS_SEGMENT_NONE: the last */
    bool writes;
};

struct edge {
    uint32_t from, to;
};

struct chain { /* the uses of one variable */
    uint32_t first, last;
};

struct planner {
    struct ps_segment *segment;
    struct use *uses;
    struct chain *chains; /* of each hold */
    struct edge *edges;   /* at most two a use */
    uint32_t use_count, edge_count;
    struct edge *ends; /* from: the operation, to: an entry of segment->uses */
    uint32_t end_count;
};

/* ---- collecting ---- */

static uint32_t count_uses(const struct ps_segment *segment)
{
    size_t count = 0;
    for (uint32_t i = 0; i < segment->count && count < MAX_USES; i++) {
        count += segment->calls[i]->op.write_count + segment->calls[i]->op.read_count;
    }
    return count < MAX_USES ? (uint32_t)count : MAX_USES;
}

static void collect(struct ps_engine *engine, struct planner *planner)
    PS_REQUIRES(engine->push)
{
    struct ps_segment *segment = planner->segment;
    uint64_t base = engine->mark + 1; /* a variable's mark: base + its hold */
    for (uint32_t op = 0; op < segment->count; op++) {
        const struct ps_engine_call *call = segment->calls[op];
        size_t writes = call->op.write_count, count = writes + call->op.read_count;
        for (size_t i = 0; i < count; i++) {
            struct ps_var *var = call->vars[i];
            uint32_t number = planner->use_count++;
            planner->uses[number] =
                (struct use){.op = op, .next = PS_SEGMENT_NONE, .writes = i < writes};
            if (var->mark >= base && var->mark - base < segment->hold_count) {
                struct chain *chain = &planner->chains[var->mark - base];
                planner->uses[chain->last].next = number;
                chain->last = number;
            } else {
                var->mark = base + segment->hold_count;
                planner->chains[segment->hold_count] = (struct chain){number, number};
                segment->holds[segment->hold_count++].var = var;
            }
        }
    }
    engine->mark = base + segment->hold_count;
}

/* ---- one variable ---- */

static void add_edge(struct planner *planner, uint32_t from, uint32_t to)
{
    planner->edges[planner->edge_count++] = (struct edge){from, to};
}

static void add_end(struct planner *planner, uint32_t op, uint32_t hold,
                    enum ps_hold_use kind)
{
    planner->ends[planner->end_count++] = (struct edge){op, hold << 2 | (uint32_t)kind};
}

static void add_reader(struct planner *planner, uint32_t hold, uint32_t op,
                       uint32_t *reader_at)
{
    planner->segment->readers[(*reader_at)++] = op;
    add_end(planner, op, hold, PS_HOLD_READ);
}

/* From the first write, use 'at', to the last one, use 'last'. */
static void plan_span(struct planner *planner, uint32_t hold, uint32_t at, uint32_t last)
{
    const struct use *uses = planner->uses;
    uint32_t write = at; /* the last one so far, then the reads since */
    for (;;) {
        add_end(planner, uses[write].op, hold,
                write == last ? PS_HOLD_LAST_WRITE : PS_HOLD_WRITE);
        if (write == last) {
            return;
        }
        uint32_t next = uses[write].next;
        bool follows = uses[next].writes;
        uint32_t first_read = next;
        while (!uses[next].writes) {
            add_edge(planner, uses[write].op, uses[next].op);
            next = uses[next].next;
        }
        if (follows) {
            add_edge(planner, uses[write].op, uses[next].op);
        }
        for (uint32_t read = first_read; read != next; read = uses[read].next) {
            add_edge(planner, uses[read].op, uses[next].op);
        }
        write = next;
    }
}

static void plan_hold(struct planner *planner, uint32_t hold, uint32_t *reader_at)
{
    struct ps_segment *segment = planner->segment;
    struct ps_hold_plan *plan = &segment->holds[hold];
    const struct use *uses = planner->uses;
    uint32_t at = planner->chains[hold].first, last_write = PS_SEGMENT_NONE;
    plan->readers_at = *reader_at;
    for (; at != PS_SEGMENT_NONE && !uses[at].writes; at = uses[at].next) {
        add_reader(planner, hold, uses[at].op, reader_at);
    }
    plan->lead_count = *reader_at - plan->readers_at;
    plan->first_write = PS_SEGMENT_NONE;
    if (at == PS_SEGMENT_NONE) {
        return;
    }
    plan->first_write = uses[at].op;
    for (uint32_t use = at; use != PS_SEGMENT_NONE; use = uses[use].next) {
        last_write = uses[use].writes ? use : last_write;
    }
    plan_span(planner, hold, at, last_write);
    segment->waiting[plan->first_write] += plan->lead_count > 0; /* a later grant */
    for (at = uses[last_write].next; at != PS_SEGMENT_NONE; at = uses[at].next) {
        add_reader(planner, hold, uses[at].op, reader_at);
        segment->waiting[uses[at].op]++;
        plan->trail_count++;
    }
}

/* ---- packing ---- */

/* Sorts 'edges' by 'from' into 'packed'; 'at' (count + 1 entries) says where each one's
 * begin. */
static void pack(const struct edge *edges, uint32_t edge_count, uint32_t count,
                 uint32_t *at, uint32_t *packed)
{
    for (uint32_t i = 0; i < edge_count; i++) {
        at[edges[i].from + 1]++;
    }
    for (uint32_t i = 0; i < count; i++) {
        at[i + 1] += at[i];
    }
    for (uint32_t i = 0; i < edge_count; i++) {
        packed[at[edges[i].from]++] = edges[i].to;
    }
    for (uint32_t i = count; i > 0; i--) { /* each was moved to the next one's begin */
        at[i] = at[i - 1];
    }
    at[0] = 0;
}

/* Keeps one of several edges between two operations; 'seen' has an entry for each. */
static void drop_doubles(uint32_t *at, uint32_t *packed, uint32_t count, uint32_t *seen)
{
    uint32_t kept = 0, begin = 0;
    for (uint32_t from = 0; from < count; from++) {
        uint32_t end = at[from + 1];
        at[from] = kept;
        for (uint32_t i = begin; i < end; i++) {
            if (seen[packed[i]] != from + 1) {
                seen[packed[i]] = from + 1;
                packed[kept++] = packed[i];
            }
        }
        begin = end;
    }
    at[count] = kept;
}

static enum ps_status pack_all(struct planner *planner)
{
    struct ps_segment *segment = planner->segment;
    uint32_t count = segment->count;
    uint32_t *at = calloc((size_t)count + 1, sizeof(*at));
    uint32_t *seen = calloc(count, sizeof(*seen));
    segment->edges = calloc((size_t)planner->edge_count + 1, sizeof(*segment->edges));
    segment->uses = calloc((size_t)planner->end_count + 1, sizeof(*segment->uses));
    enum ps_status status = PS_ENOMEM;
    if (at == NULL || seen == NULL || segment->edges == NULL || segment->uses == NULL) {
        goto out;
    }
    pack(planner->ends, planner->end_count, count, at, segment->uses);
    for (uint32_t i = 0; i <= count; i++) {
        segment->ops[i].uses_at = at[i];
        at[i] = 0;
    }
    pack(planner->edges, planner->edge_count, count, at, segment->edges);
    drop_doubles(at, segment->edges, count, seen);
    for (uint32_t i = 0; i <= count; i++) {
        segment->ops[i].edges_at = at[i];
    }
    for (uint32_t i = 0; i < at[count]; i++) {
        segment->waiting[segment->edges[i]]++;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (segment->waiting[i] == 0) {
            segment->roots[segment->root_count++] = i;
        }
    }
    status = PS_OK;
out:
    free(seen);
    free(at);
    return status;
}

enum ps_status ps_segment_plan(struct ps_engine *engine, struct ps_segment *segment)
{
    uint32_t use_count = count_uses(segment);
    size_t count = segment->count, room = (size_t)use_count + 1;
    if (use_count == MAX_USES) {
        return PS_EINVAL;
    }
    struct planner planner = {.segment = segment};
    enum ps_status status = PS_ENOMEM;
    planner.uses = calloc(room, sizeof(*planner.uses));
    planner.chains = calloc(room, sizeof(*planner.chains));
    planner.edges = calloc(2 * room, sizeof(*planner.edges));
    planner.ends = calloc(room, sizeof(*planner.ends));
    segment->ops = calloc(count + 1, sizeof(*segment->ops));
    segment->waiting = calloc(count, sizeof(*segment->waiting));
    segment->roots = calloc(count, sizeof(*segment->roots));
    segment->readers = calloc(room, sizeof(*segment->readers));
    segment->holds = calloc(room, sizeof(*segment->holds));
    if (planner.uses == NULL || planner.chains == NULL || planner.edges == NULL ||
        planner.ends == NULL || segment->ops == NULL || segment->waiting == NULL ||
        segment->roots == NULL || segment->readers == NULL || segment->holds == NULL) {
        goto out;
    }
    collect(engine, &planner);
    uint32_t reader_at = 0;
    for (uint32_t i = 0; i < segment->hold_count; i++) {
        plan_hold(&planner, i, &reader_at);
    }
    status = pack_all(&planner);
out:
    free(planner.ends);
    free(planner.edges);
    free(planner.chains);
    free(planner.uses);
    return status;
}
