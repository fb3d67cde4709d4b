/* The tables: what recomputation plans the known networks for.  Shapes and plans only,
 * nothing runs. */
#include "engine/graph/mirror.h"
#include "tests/unit/graph/graph_numbered.h"
#include "worker/models/models.h"

#include <stdio.h>

#define MIB 1048576.0

struct table_row {
    const char *network;
    int64_t batch;
    int steps;
    double mirror, least; /* of the plain peak, at most */
    size_t met;           /* budgets from this percentage of plain on must be met */
};

/* Steps of the LSTM: an eighth of the paper's 256, as the structure repeats. */
static const struct table_row rows[] = {{"resnet-50", 16, 0, 0.60, 0.30, 30},
                                        {"inception-bn", 32, 0, 0.60, 0.35, 40},
                                        {"lstm", 32, 32, 0.85, 0.55, 60}};

static struct ps_graph network(const struct table_row *row)
{
    const struct ps_model *model;
    struct ps_symbol *symbol = NULL;
    struct ps_error err = {0};
    assert_int_equal(ps_model_find(row->network, &model, &err), PS_OK);
    struct ps_model_size size = model->size;
    size.steps = row->steps;
    assert_int_equal(ps_model_build_sized(model, &size, &symbol, &err), PS_OK);
    struct ps_named_shape inputs[PS_MODEL_INPUTS_MAX];
    size_t count = ps_model_inputs(model, &size, row->batch, inputs);
    struct ps_graph graph;
    assert_int_equal(ps_graph_make(symbol, &graph), PS_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(
            ps_graph_set_shape(&graph, inputs[i].name, &inputs[i].shape, &err), PS_OK);
    }
    assert_int_equal(ps_graph_infer_shapes(&graph, &err), PS_OK);
    assert_int_equal(ps_graph_default_dtypes(&graph, &err), PS_OK);
    enum ps_grad_req *reqs = calloc(graph.argument_count, sizeof(*reqs));
    for (size_t i = 0; i < graph.argument_count; i++) {
        const char *name = graph.nodes[graph.arguments[i]].name;
        bool given = strcmp(name, "softmax_label") == 0;
        for (size_t k = 0; k < count; k++) {
            given = given || strcmp(name, inputs[k].name) == 0;
        }
        reqs[i] = given ? PS_GRAD_NULL : PS_GRAD_WRITE;
    }
    assert_int_equal(ps_graph_differentiate(&graph, reqs, &err), PS_OK);
    free(reqs);
    ps_symbol_release(symbol);
    return graph;
}

static size_t planned(const struct ps_graph *graph)
{
    struct ps_graph_plan_options options = {
        .inplace = true, .identity = true, .match_range = 16, .colours = 1};
    struct ps_memory_plan plan;
    assert_int_equal(ps_graph_plan(graph, &options, &plan), PS_OK);
    size_t bytes = PS_MIN(ps_memory_plan_peak(&plan, PS_LAYOUT_OFFSETS),
                          ps_memory_plan_peak(&plan, PS_LAYOUT_BLOCKS));
    ps_memory_plan_fini(&plan);
    return bytes;
}

static enum ps_status mirror_as(const struct table_row *row, bool mirror,
                                const char *memonger, struct ps_mirror_report *report,
                                struct ps_error *err)
{
    struct ps_graph graph = network(row);
    struct ps_mirror_options options = {
        .mirror = mirror,
        .memonger = memonger,
        .plan = {.inplace = true, .identity = true, .match_range = 16, .colours = 1},
        .layout = PS_LAYOUT_OFFSETS};
    enum ps_status status = ps_graph_mirror(&graph, &options, report, err);
    if (status == PS_OK) {
        assert_int_equal(planned(&graph), report->planned_bytes);
        print_message("%s %s%s: %zu nodes again, %.1f of %.1f MiB (%.3f), %.3f of a "
                      "forward\n",
                      row->network, mirror ? "mirror" : "memonger ", memonger,
                      report->mirrored_count, (double)report->planned_bytes / MIB,
                      (double)report->plain_bytes / MIB,
                      (double)report->planned_bytes / (double)report->plain_bytes,
                      report->extra_work / report->forward_work);
    }
    ps_graph_fini(&graph);
    return status;
}

static void resnet_50_needs_without_recomputation_what_is_known(void **state)
{
    (void)state;
    struct ps_graph graph = network(&rows[0]);
    assert_true((double)planned(&graph) <= 1311 * MIB);
    ps_graph_fini(&graph);
}

static void cheap_operators_again_need_the_part_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        struct ps_mirror_report report;
        assert_int_equal(mirror_as(&rows[i], true, "", &report, NULL), PS_OK);
        assert_true((double)report.planned_bytes <=
                    rows[i].mirror * (double)report.plain_bytes);
        assert_true(report.extra_work < 0.15 * report.forward_work);
    }
}

static void one_more_forward_needs_the_part_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        struct ps_mirror_report report;
        assert_int_equal(mirror_as(&rows[i], false, "sqrt", &report, NULL), PS_OK);
        assert_true((double)report.planned_bytes <=
                    rows[i].least * (double)report.plain_bytes);
        assert_true(report.extra_work <= report.forward_work);
    }
}

/* Budgets of 0.8, 0.6, 0.4, 0.3 of plain are met, or refused with the least that can be;
 * a smaller one never costs less work. */
static void budgets_are_met_or_refused_and_cost_more_as_they_shrink(void **state)
{
    (void)state;
    static const size_t percent[] = {100, 80, 60, 40, 30, 10};
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        struct ps_graph graph = network(&rows[i]);
        size_t plain = planned(&graph);
        ps_graph_fini(&graph);
        double work = 0;
        for (size_t k = 0; k < PS_COUNT(percent); k++) {
            char text[32];
            size_t budget = plain * percent[k] / 100;
            (void)snprintf(text, sizeof(text), "%zu", budget);
            struct ps_mirror_report report;
            struct ps_error err = {0};
            enum ps_status status = mirror_as(&rows[i], false, text, &report, &err);
            if (percent[k] >= rows[i].met) {
                assert_int_equal(status, PS_OK);
            }
            if (status == PS_OK) {
                assert_true(report.planned_bytes <= budget);
                assert_true(report.extra_work >= work);
                assert_true(percent[k] < 100 || report.mirrored_count == 0);
                work = report.extra_work;
                continue;
            }
            assert_int_equal(status, PS_ERANGE);
            const char *least = strstr(err.text, "the least is ");
            assert_non_null(least);
            assert_true(strtoull(least + strlen("the least is "), NULL, 10) > budget);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet_50_needs_without_recomputation_what_is_known),
        cmocka_unit_test(cheap_operators_again_need_the_part_of_the_table),
        cmocka_unit_test(one_more_forward_needs_the_part_of_the_table),
        cmocka_unit_test(budgets_are_met_or_refused_and_cost_more_as_they_shrink),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
