/* Case 118: ten thousand random sequences of steps through the planner, with a checker
 * that knows nothing of how plans are made.  It runs the steps on cells of 64 bytes: each
 * cell holds what was written there last, and whoever finds something else where its
 * value should be has found an overlap of live intervals. */
#include "base/rng.h"
#include "base/util.h"
#include "engine/graph/plan_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    GRAPHS = 10000,
    STEPS = 200,
    WRITES = 3,
    READS = 4,
    VALUES = STEPS * WRITES,
    DEVICES = 3,
    COLOURS = 3,
    CELL = PS_PLAN_ALIGN,
    CELLS_MAX = 64 /* of one value */
};

struct random_input {
    struct ps_plan_value values[VALUES];
    struct ps_plan_step steps[STEPS];
    uint32_t reads[STEPS][READS], writes[STEPS][WRITES];
    struct ps_plan_pair pairs[STEPS][READS];
    uint32_t content[VALUES]; /* what a value holds; an identity has its input's */
    struct ps_plan_input input;
};

/* ---- making ---- */

static void add_write(struct random_input *random, uint32_t s, uint32_t device,
                      struct ps_rng *rng)
{
    struct ps_plan_step *step = &random->steps[s];
    uint32_t v = (uint32_t)random->input.value_count++;
    /* few sizes, so that blocks and pairs fit; now and then an odd or an empty one */
    size_t bytes = (size_t)CELL << ps_rng_below(rng, 7);
    bytes = ps_rng_below(rng, 8) == 0 ? ps_rng_below(rng, CELL * CELLS_MAX) : bytes;
    random->values[v] = (struct ps_plan_value){.bytes = bytes,
                                               .count = (int64_t)bytes,
                                               .device = device,
                                               .external = ps_rng_below(rng, 20) == 0,
                                               .keep = ps_rng_below(rng, 20) == 0};
    random->content[v] = v + 1;
    random->writes[s][step->write_count++] = v;
}

/* 'v' for the step to read, often with a pair to its first output. */
static void add_read(struct random_input *random, uint32_t s, uint32_t v,
                     struct ps_rng *rng)
{
    struct ps_plan_step *step = &random->steps[s];
    random->reads[s][step->read_count++] = v;
    if (step->write_count == 0 || ps_rng_below(rng, 3) == 0) {
        return;
    }
    uint32_t to = random->writes[s][0];
    struct ps_plan_value *from = &random->values[v], *into = &random->values[to];
    bool identity = step->pair_count == 0 && step->write_count == 1 &&
                    from->device == into->device && ps_rng_below(rng, 4) == 0;
    if (identity) { /* the same bytes, so the same size */
        into->bytes = from->bytes;
        into->count = from->count;
        random->content[to] = random->content[v];
    }
    random->pairs[s][step->pair_count++] =
        (struct ps_plan_pair){.from = v, .to = to, .identity = identity};
}

static void make_random(struct random_input *random, uint64_t seed)
{
    struct ps_rng rng;
    ps_rng_init(&rng, seed);
    memset(random, 0, sizeof(*random));
    uint64_t devices = ps_rng_below(&rng, 2) == 0 ? 1 : DEVICES;
    uint64_t colours = ps_rng_below(&rng, 2) == 0 ? 1 : COLOURS;
    size_t steps = 2 + ps_rng_below(&rng, STEPS - 1);
    for (uint32_t s = 0; s < steps; s++) {
        struct ps_plan_step *step = &random->steps[s];
        uint32_t before = (uint32_t)random->input.value_count;
        step->writes = random->writes[s];
        step->reads = random->reads[s];
        step->pairs = random->pairs[s];
        step->device = (uint32_t)ps_rng_below(&rng, devices);
        step->colour = (uint32_t)ps_rng_below(&rng, colours);
        step->scratch_colour = (uint32_t)ps_rng_below(&rng, colours);
        step->workspace_bytes =
            ps_rng_below(&rng, 3) == 0 ? 1 + ps_rng_below(&rng, 3000) : 0;
        uint64_t writes = ps_rng_below(&rng, 5) == 0 ? ps_rng_below(&rng, WRITES + 1) : 1;
        for (uint64_t i = 0; i < writes; i++) {
            add_write(random, s, step->device, &rng);
        }
        uint64_t reads = before == 0 ? 0 : ps_rng_below(&rng, READS + 1);
        for (uint64_t i = 0; i < reads; i++) {
            uint64_t near = ps_rng_below(&rng, 8) == 0 ? before : 12;
            uint64_t back = ps_rng_below(&rng, PS_MIN((uint64_t)before, near));
            add_read(random, s, before - 1 - (uint32_t)back, &rng);
        }
    }
    random->input.values = random->values;
    random->input.steps = random->steps;
    random->input.step_count = steps;
    random->input.inplace = ps_rng_below(&rng, 3) > 0;
    random->input.match_range = (size_t)1 << ps_rng_below(&rng, 6);
    random->input.effort = ps_rng_below(&rng, 4) == 0 ? PS_EFFORT_FULL : PS_EFFORT_ONCE;
}

/* ---- running on cells ---- */

struct machine {
    const struct random_input *random;
    const struct ps_memory_plan *plan;
    bool offsets;
    uint32_t *cells;
    size_t cell_count;
    size_t place[VALUES]; /* per group: its first cell */
};

static size_t cells_of(size_t bytes)
{
    return ps_align_up(bytes, CELL) / CELL;
}

/* Gives each group its place: its block's, or its offset in the arena. */
static void lay_out(struct machine *machine)
{
    const struct ps_memory_plan *plan = machine->plan;
    size_t base[VALUES] = {0}, next = 0, block_cells;
    for (size_t b = 0; !machine->offsets && b < plan->block_count; b++) {
        block_cells = cells_of(plan->block_bytes[b]);
        base[b] = next;
        next += block_cells;
    }
    next = machine->offsets ? plan->arena_bytes / CELL : next;
    for (size_t g = 0; g < plan->group_count; g++) {
        const struct ps_plan_group *group = &plan->groups[g];
        size_t end = next;
        if (!machine->offsets) {
            machine->place[g] = base[group->block];
            end = base[group->block] + cells_of(plan->block_bytes[group->block]);
        } else if (!group->keep) {
            assert_int_equal(group->offset % CELL, 0);
            machine->place[g] = group->offset / CELL;
            end = plan->arena_bytes / CELL;
        } else {
            machine->place[g] = next;
            next = end = next + cells_of(group->bytes);
        }
        assert_true(machine->place[g] + cells_of(group->bytes) <= end);
    }
    machine->cell_count = next;
    machine->cells = calloc(next + 1, sizeof(uint32_t));
}

static bool holds(const struct machine *machine, uint32_t v)
{
    const struct ps_plan_value *value = &machine->random->values[v];
    uint32_t group = machine->plan->group_of[v];
    if (value->external) {
        assert_int_equal(group, PS_PLAN_NOWHERE);
        return true;
    }
    assert_true(group != PS_PLAN_NOWHERE);
    for (size_t i = 0; i < cells_of(value->bytes); i++) {
        if (machine->cells[machine->place[group] + i] != machine->random->content[v]) {
            return false;
        }
    }
    return true;
}

static void put(struct machine *machine, uint32_t v)
{
    uint32_t group = machine->plan->group_of[v];
    for (size_t i = 0;
         group != PS_PLAN_NOWHERE && i < cells_of(machine->random->values[v].bytes);
         i++) {
        machine->cells[machine->place[group] + i] = machine->random->content[v];
    }
}

/* The scratch of a step in the arena, filled with what no value has; with 'check' looks
 * whether it is still there. */
static void scratch(struct machine *machine, size_t s, bool check)
{
    size_t bytes = machine->random->steps[s].workspace_bytes;
    uint32_t mark = UINT32_MAX - (uint32_t)s;
    for (size_t i = 0; machine->offsets && i < cells_of(bytes); i++) {
        size_t cell = machine->plan->scratch_offset[s] / CELL + i;
        assert_true(cell < machine->plan->arena_bytes / CELL);
        assert_true(!check || machine->cells[cell] == mark);
        machine->cells[cell] = mark;
    }
}

static bool taken_over(const struct machine *machine, const struct ps_plan_step *step,
                       uint32_t read)
{
    for (uint32_t i = 0; i < step->write_count; i++) {
        if (machine->plan->group_of[step->writes[i]] == machine->plan->group_of[read]) {
            return true;
        }
    }
    return false;
}

static void run(struct machine *machine)
{
    const struct random_input *random = machine->random;
    for (uint32_t s = 0; s < random->input.step_count; s++) {
        const struct ps_plan_step *step = &random->steps[s];
        scratch(machine, s, false);
        for (uint32_t i = 0; i < step->read_count; i++) {
            assert_true(holds(machine, step->reads[i]));
        }
        for (uint32_t i = 0; i < step->write_count; i++) {
            put(machine, step->writes[i]);
        }
        for (uint32_t i = 0; i < step->write_count; i++) {
            assert_true(holds(machine, step->writes[i]));
        }
        for (uint32_t i = 0; i < step->read_count; i++) {
            assert_true(taken_over(machine, step, step->reads[i]) ||
                        holds(machine, step->reads[i]));
        }
        scratch(machine, s, true);
    }
    for (uint32_t v = 0; v < random->input.value_count; v++) {
        assert_true(!random->values[v].keep || holds(machine, v));
    }
}

static void check_places(const struct random_input *random,
                         const struct ps_memory_plan *plan, bool offsets)
{
    struct machine machine = {.random = random, .plan = plan, .offsets = offsets};
    lay_out(&machine);
    run(&machine);
    free(machine.cells);
}

/* ---- devices, colours, bytes ---- */

static void check_devices(const struct random_input *random,
                          const struct ps_memory_plan *plan)
{
    for (uint32_t v = 0; v < random->input.value_count; v++) {
        uint32_t group = plan->group_of[v];
        if (group != PS_PLAN_NOWHERE) {
            uint32_t block = plan->groups[group].block;
            assert_int_equal(plan->groups[group].device, random->values[v].device);
            assert_int_equal(plan->block_device[block], random->values[v].device);
        }
    }
}

/* Who comes after whom in a block: only one of the colour that freed it, and only where
 * freed blocks may be used at all. */
static void check_colours(const struct random_input *random,
                          const struct ps_memory_plan *plan)
{
    for (size_t a = 0; a < plan->group_count; a++) {
        const struct ps_plan_group *group = &plan->groups[a];
        const struct ps_plan_group *next = NULL;
        for (size_t b = 0; b < plan->group_count; b++) {
            const struct ps_plan_group *other = &plan->groups[b];
            if (other->block == group->block && other->first > group->first &&
                (next == NULL || other->first < next->first)) {
                next = other;
            }
        }
        if (next != NULL) {
            assert_true(random->input.match_range > 0);
            assert_true(group->last < next->first);
            assert_int_equal(random->steps[group->last].colour,
                             random->steps[next->first].colour);
        }
    }
}

static void check_workspaces(const struct random_input *random,
                             const struct ps_memory_plan *plan)
{
    size_t per_device[DEVICES] = {0}, total = 0;
    for (size_t w = 0; w < plan->workspace_count; w++) {
        total += plan->workspaces[w].bytes;
        assert_true(++per_device[plan->workspaces[w].device] <= COLOURS);
    }
    assert_int_equal(total, plan->workspace_bytes);
    for (size_t s = 0; s < random->input.step_count; s++) {
        const struct ps_plan_step *step = &random->steps[s];
        if (step->workspace_bytes == 0) {
            assert_int_equal(plan->workspace_of[s], PS_PLAN_NOWHERE);
            continue;
        }
        const struct ps_plan_workspace *w = &plan->workspaces[plan->workspace_of[s]];
        assert_int_equal(w->device, step->device);
        assert_int_equal(w->colour, step->scratch_colour);
        assert_true(w->bytes >= step->workspace_bytes);
    }
}

static void check_live(const struct random_input *random,
                       const struct ps_memory_plan *plan)
{
    size_t peak = 0;
    for (size_t s = 0; s < random->input.step_count; s++) {
        size_t live = 0;
        for (size_t g = 0; g < plan->group_count; g++) {
            const struct ps_plan_group *group = &plan->groups[g];
            live += group->first <= s && s <= group->last ? group->bytes : 0;
        }
        assert_int_equal(plan->live_bytes[s], live);
        peak = PS_MAX(peak, live + random->steps[s].workspace_bytes);
    }
    assert_int_equal(ps_memory_plan_peak(plan, PS_LAYOUT_LIVE), peak);
    assert_true(peak <= ps_memory_plan_peak(plan, PS_LAYOUT_BLOCKS));
    assert_true(peak <= ps_memory_plan_peak(plan, PS_LAYOUT_OFFSETS));
}

static bool single(const struct random_input *random)
{
    const struct ps_plan_step *first = NULL;
    for (size_t s = 0; s < random->input.step_count; s++) {
        const struct ps_plan_step *step = &random->steps[s];
        if (step->write_count == 0) {
            continue;
        }
        first = first == NULL ? step : first;
        if (step->device != first->device || step->colour != first->colour) {
            return false;
        }
    }
    return true;
}

static void plan_and_check(struct random_input *random, struct ps_memory_plan *plan)
{
    assert_int_equal(ps_plan_memory(&random->input, plan), PS_OK);
    assert_true(plan->total_bytes <= plan->unplanned_bytes);
    assert_true(random->input.inplace || plan->inplace_count == 0);
    check_devices(random, plan);
    check_colours(random, plan);
    check_workspaces(random, plan);
    check_live(random, plan);
    check_places(random, plan, false);
    if (plan->offset_bytes > 0) {
        assert_true(single(random));
        check_places(random, plan, true);
    }
}

static void case_118_live_values_of_random_graphs_never_overlap(void **state)
{
    (void)state;
    struct random_input *random = malloc(sizeof(*random));
    size_t arenas = 0, shared = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        struct ps_memory_plan on, off;
        make_random(random, seed);
        plan_and_check(random, &on);
        random->input.inplace = false;
        random->input.match_range = 0;
        plan_and_check(random, &off);
        assert_int_equal(off.total_bytes, off.unplanned_bytes);
        assert_true(on.total_bytes <= off.total_bytes);
        arenas += on.offset_bytes > 0 ? 1 : 0;
        shared += on.inplace_count;
        ps_memory_plan_fini(&off);
        ps_memory_plan_fini(&on);
    }
    /* the graphs are such that there was something to check */
    assert_true(arenas > GRAPHS / 10 && shared > GRAPHS);
    free(random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_118_live_values_of_random_graphs_never_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
