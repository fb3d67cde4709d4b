/* `penstock plan` for people: a plan, what every setting does to it, and advice.  See
 * plan_show.h. */
#include "worker/plan_show.h"

#include "base/node.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_SHOWN = 24, LINE = 90 };

static double mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

static double percent(size_t part, size_t whole)
{
    return whole == 0 ? 100.0 : 100.0 * (double)part / (double)whole;
}

/* What is computed again, of one forward's work. */
static double extra_percent(const struct ps_net_plan *plan)
{
    double forward = plan->memory.forward_work;
    return forward > 0 ? 100 * plan->memory.extra_work / forward : 0.0;
}

/* ---- the plan itself ---- */

static void show_bytes(const char *what, size_t bytes, const char *more,
                       struct ps_str *out)
{
    ps_str_printf(out, "  %-18s %10.1f MiB%s%s\n", what, mib(bytes),
                  more[0] != '\0' ? "  " : "", more);
}

static void show_memory(const struct ps_net_plan *plan, struct ps_str *out)
{
    const struct ps_executor_memory *m = &plan->memory;
    struct ps_str more = {0};
    ps_str_printf(out, "  %-18s %10" PRId64 "      in %zu arrays\n", "parameters",
                  plan->parameter_count, plan->parameter_arrays);
    show_bytes("arguments", m->argument_bytes, "parameters, data, labels", out);
    show_bytes("gradients", m->gradient_bytes, "", out);
    show_bytes("auxiliary states", m->auxiliary_bytes, "", out);
    ps_str_printf(&more, "between operators: %s; %zu values took over another's place",
                  ps_net_layout_text(m->plan), m->inplace_count);
    show_bytes("internal", m->internal_bytes, ps_str_text(&more), out);
    show_bytes("workspace", m->workspace_bytes, "scratch of operators", out);
    show_bytes("peak", m->peak_bytes, "internal + workspace", out);
    ps_str_fini(&more);
    ps_str_printf(
        out,
        "  with blocks: %zu of them, %.1f MiB, match range %d; as an arena, with its "
        "scratch: %.1f MiB;\n  a block each: %.1f MiB\n",
        m->block_count, mib(m->block_bytes), m->match_range, mib(m->offset_bytes),
        mib(m->unplanned_bytes));
}

/* How many operators each engine operation has. */
static enum ps_status show_segments(const struct ps_net_plan *plan, struct ps_str *out)
{
    const struct ps_executor_memory *m = &plan->memory;
    size_t *sizes = calloc(m->operation_count + 1, sizeof(sizes[0])), most = 0, alone = 0;
    if (sizes == NULL) {
        return PS_ENOMEM;
    }
    for (size_t i = 0; i < ps_executor_step_count(plan->executor); i++) {
        struct ps_executor_step step;
        if (ps_executor_step(plan->executor, i, &step) == PS_OK && !step.nothing &&
            step.operation < m->operation_count) {
            sizes[step.operation]++;
        }
    }
    for (size_t i = 0; i < m->operation_count; i++) {
        most = PS_MAX(most, sizes[i]);
        alone += sizes[i] == 1 ? 1 : 0;
    }
    free(sizes);
    ps_str_printf(out,
                  "  segments: %zu operators run as %zu engine operation%s, the longest "
                  "of %zu, %zu of one\n",
                  m->operator_count, m->operation_count,
                  m->operation_count == 1 ? "" : "s", most, alone);
    return PS_OK;
}

/* A name from somebody's symbol file: what a terminal could obey is left out. */
static void show_name(const char *name, struct ps_str *out)
{
    ps_str_printf(out, " ");
    for (; *name != '\0'; name++) {
        bool plain = (unsigned char)*name > 0x20 && (unsigned char)*name < 0x7f;
        ps_str_append(out, plain ? name : "?", 1);
    }
}

static void show_mirrored(const struct ps_net_plan *plan, struct ps_str *out)
{
    size_t shown = 0, column = 0, count = plan->memory.mirrored_count;
    ps_str_printf(out, "  mirrored: %zu operators are computed again in backward", count);
    if (count > 0) {
        ps_str_printf(out, ", %.1f %% of a forward's work:", extra_percent(plan));
    }
    for (size_t i = 0; i < ps_executor_step_count(plan->executor); i++) {
        struct ps_executor_step step;
        if (ps_executor_step(plan->executor, i, &step) != PS_OK || !step.mirrored ||
            shown == NAMES_SHOWN) {
            continue;
        }
        size_t size = strlen(step.name) + 1;
        if (shown++ == 0 || column + size > LINE) {
            ps_str_printf(out, "\n   ");
            column = 3;
        }
        show_name(step.name, out);
        column += size;
    }
    if (count > shown) {
        ps_str_printf(out, " and %zu more (--json has all)", count - shown);
    }
    ps_str_printf(out, "\n");
}

/* ---- the settings, one by one ---- */

static void show_row(const struct ps_net_plan *row, const struct ps_net_plan *now,
                     struct ps_str *out)
{
    const struct ps_executor_memory *m = &row->memory;
    if (row->refused[0] != '\0') {
        ps_str_printf(out, "  %-26s refused: %s\n", row->choice->label, row->refused);
        return;
    }
    ps_str_printf(out, "  %-26s %9.1f %7.1f %9.1f  %-12s %9.1f %7zu %9zu %9zu %8.1f\n",
                  row->choice->label, mib(m->peak_bytes),
                  percent(m->peak_bytes, now->memory.peak_bytes), mib(m->workspace_bytes),
                  ps_net_layout_text(m->plan), mib(m->block_bytes), m->block_count,
                  m->operation_count, m->mirrored_count, extra_percent(row));
}

/* ---- advice ---- */

static const struct ps_net_plan *find_row(const struct ps_net_plan *others, size_t count,
                                          const char *label)
{
    for (size_t i = 0; i < count; i++) {
        if (others[i].refused[0] == '\0' && strcmp(others[i].choice->label, label) == 0) {
            return &others[i];
        }
    }
    return NULL;
}

static void advise_row(const struct ps_net_plan *now, const struct ps_net_plan *row,
                       struct ps_str *out)
{
    size_t peak = row->memory.peak_bytes;
    ps_str_printf(out, "  %-26s %9.1f MiB, %.1f %% of now", row->choice->label, mib(peak),
                  percent(peak, now->memory.peak_bytes));
    if (row->memory.mirrored_count > 0) {
        ps_str_printf(out, "; computes %zu operators again, %.1f %% of a forward's work",
                      row->memory.mirrored_count, extra_percent(row));
    }
    ps_str_printf(out, "\n");
}

static int by_peak(const void *a, const void *b)
{
    size_t x = (*(const struct ps_net_plan *const *)a)->memory.peak_bytes;
    size_t y = (*(const struct ps_net_plan *const *)b)->memory.peak_bytes;
    return x < y ? -1 : x > y;
}

/* The settings that need less than those in force, the best first. */
static enum ps_status advise_memory(const struct ps_net_plan *now,
                                    const struct ps_net_plan *others, size_t count,
                                    struct ps_str *out)
{
    const struct ps_net_plan **less = calloc(count + 1, sizeof(const void *));
    size_t found = 0;
    if (less == NULL) {
        return PS_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        if (others[i].refused[0] == '\0' &&
            others[i].memory.peak_bytes < now->memory.peak_bytes) {
            less[found++] = &others[i];
        }
    }
    qsort((void *)less, found, sizeof(less[0]), by_peak);
    ps_str_printf(out, "\nsettings for minimum memory\n");
    if (found == 0) {
        ps_str_printf(out, "  those in force: no other needs less than %.1f MiB\n",
                      mib(now->memory.peak_bytes));
    }
    for (size_t i = 0; i < found; i++) {
        advise_row(now, less[i], out);
    }
    free((void *)less);
    return PS_OK;
}

static void advise_parallelism(const struct ps_net_plan *now,
                               const struct ps_net_plan *others, size_t count,
                               struct ps_str *out)
{
    static const char *const labels[] = {"EXEC_NUM_TEMP=2", "EXEC_NUM_TEMP=4"};
    ps_str_printf(out, "\nsettings for more GPU parallelism\n");
    for (size_t i = 0; i < PS_COUNT(labels); i++) {
        const struct ps_net_plan *row = find_row(others, count, labels[i]);
        if (row == NULL) {
            continue;
        }
        double more = mib(row->memory.peak_bytes) - mib(now->memory.peak_bytes);
        ps_str_printf(out,
                      "  %s GPU_WORKER_NTHREADS=%s: %.1f MiB, %.1f MiB %s than now; "
                      "branches side by side,\n    workspaces of %.1f MiB in all\n",
                      labels[i], labels[i] + strlen("EXEC_NUM_TEMP="),
                      mib(row->memory.peak_bytes), more < 0 ? -more : more,
                      more < 0 ? "less" : "more", mib(row->memory.workspace_bytes));
    }
    const struct ps_net_plan *bulk = find_row(others, count, "bulk off");
    if (bulk != NULL) {
        ps_str_printf(out,
                      "  bulk off: %zu engine operations instead of %zu, each started "
                      "as soon as its own inputs are there;\n    worth it only where "
                      "operators take much longer than a push\n",
                      bulk->memory.operation_count, now->memory.operation_count);
    }
}

enum ps_status ps_plan_show_text(const struct ps_net *net, const struct ps_net_plan *plan,
                                 const struct ps_net_plan *others, size_t other_count,
                                 struct ps_str *out)
{
    char context[PS_CONTEXT_TEXT_BYTES];
    ps_str_printf(out, "%s, batch %" PRId64 ", %s, %s\n", net->name, net->options.batch,
                  net->options.inference ? "inference" : "training",
                  ps_context_text(net->options.context, context));
    show_memory(plan, out);
    PS_TRY(show_segments(plan, out));
    show_mirrored(plan, out);
    ps_str_printf(out, "\n  %-26s %9s %7s %9s  %-12s %9s %7s %9s %9s %8s\n",
                  "one setting changed", "peak MiB", "% of now", "workspace", "layout",
                  "as blocks", "blocks", "segments", "mirrored", "% work");
    show_row(plan, plan, out);
    for (size_t i = 0; i < other_count; i++) {
        show_row(&others[i], plan, out);
    }
    PS_TRY(advise_memory(plan, others, other_count, out));
    advise_parallelism(plan, others, other_count, out);
    return out->failed ? PS_ENOMEM : PS_OK;
}
