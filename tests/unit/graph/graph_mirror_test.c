/* Recomputation as a pass over the graph: what may be computed again, the copies, the
 * simulation that the search relies on, the attributes and the setting. */
#include "base/rng.h"
#include "engine/graph/mirror_model.h"
#include "tests/unit/graph/graph_numbered.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- recomputation: the graph that follows from a choice ---- */

/* Everything that a copy could get wrong: two outputs, hidden outputs, auxiliary states,
 * values used twice and by later nodes, reshapes that share, two outputs of the graph. */
static struct ps_symbol *mixed_network(void)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    for (int i = 0; i < 4; i++) {
        struct ps_symbol *shortcut = x;
        x = ps_builder_op(b, "FullyConnected", ps_builder_text(b, "fc%d", i),
                          "num_hidden=12", x);
        x = ps_builder_op(b, "BatchNorm", ps_builder_text(b, "bn%d", i), NULL, x);
        x = ps_builder_op(b, "Activation", ps_builder_text(b, "act%d", i),
                          "act_type=tanh", x);
        x = ps_builder_op(b, "Dropout", ps_builder_text(b, "drop%d", i), "p=0.5", x);
        struct ps_symbol *cut =
            ps_builder_op(b, "SliceChannel", NULL, "num_outputs=2", x);
        x = ps_builder_op(b, "Concat", NULL, "dim=1", ps_builder_output(b, cut, 1),
                          ps_builder_output(b, cut, 0));
        x = ps_builder_op(b, "elemwise_add", NULL, NULL, x, shortcut);
        x = ps_builder_op(b, "Reshape", NULL, "shape=(-1,12)", x);
    }
    struct ps_symbol *mean = ps_builder_op(b, "square", "square", NULL, x);
    mean = ps_builder_op(b, "MakeLoss", "loss", NULL, mean);
    x = ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x);
    struct ps_symbol *heads[] = {x, mean};
    return finish(b, ps_builder_group(b, heads, 2));
}

static struct ps_mirror_options options_of(const char *memonger, bool mirror)
{
    return (struct ps_mirror_options){
        .mirror = mirror,
        .memonger = memonger,
        .plan = {.inplace = true, .identity = true, .match_range = 16, .colours = 1},
        .layout = PS_LAYOUT_OFFSETS};
}

static void check_entries(const struct ps_graph *graph)
{
    size_t seen = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ps_graph_node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->output_count; i++, seen++) {
            assert_int_equal(graph->entries[node->first_entry + i].node, n);
            assert_int_equal(graph->entries[node->first_entry + i].output, i);
        }
        for (uint32_t i = 0; i < node->input_count; i++) {
            assert_true(graph->entries[node->inputs[i]].node < n);
        }
    }
    assert_int_equal(seen, graph->entry_count);
}

/* A copy computes what its original does, where it does, right before it is needed. */
static void check_copy(const struct ps_graph *graph, uint32_t n)
{
    const struct ps_graph_node *copy = &graph->nodes[n];
    const struct ps_graph_node *original = &graph->nodes[copy->mirror_of];
    char name[128];
    (void)snprintf(name, sizeof(name), "%s_mirror", original->name);
    assert_string_equal(copy->name, name);
    assert_true(n >= graph->forward_count && copy->mirror_of < graph->forward_count);
    assert_int_equal(copy->kind, PS_NODE_FORWARD);
    assert_ptr_equal(copy->op, original->op);
    assert_int_equal(copy->context.kind, original->context.kind);
    assert_int_equal(copy->context.id, original->context.id);
    assert_int_equal(copy->input_count, original->input_count);
    for (uint32_t i = 0; i < copy->input_count; i++) {
        const struct ps_graph_node *a =
            &graph->nodes[graph->entries[copy->inputs[i]].node];
        uint32_t b = graph->entries[original->inputs[i]].node;
        assert_true(a == &graph->nodes[b] || a->mirror_of == b);
    }
    uint32_t next = n + 1; /* the first that is not a copy needs this one or its users */
    while (next < graph->node_count && graph->nodes[next].mirror_of != PS_NO_INDEX) {
        next++;
    }
    bool used = false;
    for (uint32_t m = n + 1; m <= next; m++) {
        for (uint32_t i = 0; i < graph->nodes[m].input_count; i++) {
            used = used || graph->entries[graph->nodes[m].inputs[i]].node == n;
        }
    }
    assert_true(used);
}

static size_t check_copies(const struct ps_graph *graph)
{
    size_t copies = 0;
    check_entries(graph);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->nodes[n].mirror_of != PS_NO_INDEX) {
            check_copy(graph, n);
            copies++;
        }
    }
    return copies;
}

static void
any_choice_gives_a_sound_graph_and_the_peak_that_the_planner_counts(void **state)
{
    (void)state;
    struct ps_symbol *symbol = mixed_network();
    struct ps_graph graph = differentiated(symbol, "data", PS_SHAPE(6, 12));
    size_t plain_nodes = graph.node_count;
    size_t *scratch = calloc(2 * graph.forward_count, sizeof(*scratch));
    for (size_t i = 0; i < 2 * graph.forward_count; i++) {
        scratch[i] = i % 5 == 0 ? 100 + i : 0;
    }
    for (uint64_t round = 0; round < 200; round++) {
        for (uint32_t n = 0; n < graph.node_count; n++) { /* two devices, in turn */
            graph.nodes[n].context = PS_CPU((int)(n / 9 % 2 * (round % 2)));
        }
        struct ps_mirror_options options = options_of("", false);
        options.plan.inplace = round % 3 != 0;
        options.plan.workspace_bytes = round % 5 != 0 ? scratch : NULL;
        struct ps_mirror_model model;
        struct ps_mirror_choice choice;
        assert_int_equal(ps_mirror_model_init(&model, &graph, &options), PS_OK);
        assert_int_equal(ps_mirror_choice_init(&model, &choice), PS_OK);
        for (uint32_t n = 0; n < graph.forward_count; n++) {
            bool draw = ps_rng_unit_at(7, round, n) < (float)(round % 4 + 1) / 4;
            choice.again[n] = model.class_of[n] != PS_MIRROR_KEEP && draw;
        }
        ps_mirror_weigh(&model, &choice);
        struct ps_mirror_graph other;
        assert_int_equal(ps_mirror_build(&model, &graph, choice.again, &other), PS_OK);
        ps_mirror_exchange(&graph, &other);
        assert_int_equal(check_copies(&graph), choice.copy_count);
        size_t peak;
        assert_int_equal(ps_graph_plan_live_peak(&graph, &options.plan, &peak), PS_OK);
        assert_int_equal(peak, choice.peak_bytes);
        ps_mirror_exchange(&graph, &other);
        ps_mirror_graph_fini(&other);
        assert_int_equal(graph.node_count, plain_nodes);
        ps_mirror_choice_fini(&choice);
        ps_mirror_model_fini(&model);
    }
    free(scratch);
    ps_graph_fini(&graph);
    ps_symbol_release(symbol);
}

static struct ps_mirror_report mirrored(struct ps_graph *graph, const char *memonger,
                                        bool mirror)
{
    struct ps_mirror_options options = options_of(memonger, mirror);
    struct ps_mirror_report report;
    struct ps_error err = {0};
    if (ps_graph_mirror(graph, &options, &report, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(check_copies(graph), report.mirrored_count);
    return report;
}

static void nothing_is_touched_when_off_or_where_it_does_not_pay(void **state)
{
    (void)state;
    struct ps_symbol *mixed = mixed_network();
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    for (int i = 0; i < 3; i++) { /* a tanh needs what it would have to be made from */
        x = ps_builder_op(b, "FullyConnected", NULL, "num_hidden=12", x);
        x = ps_builder_op(b, "Activation", NULL, "act_type=tanh", x);
    }
    struct ps_symbol *mlp =
        finish(b, ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x));
    struct ps_symbol *symbols[] = {mixed, mlp};
    for (int i = 0; i < 2; i++) {
        struct ps_graph graph = differentiated(symbols[i], "data", PS_SHAPE(6, 12));
        size_t nodes = graph.node_count, entries = graph.entry_count;
        struct ps_mirror_report report = mirrored(&graph, i == 0 ? "" : NULL, i == 1);
        assert_int_equal(report.mirrored_count, 0);
        assert_int_equal(report.extra_work, 0);
        assert_int_equal(graph.node_count, nodes);
        assert_int_equal(graph.entry_count, entries);
        ps_graph_fini(&graph);
        ps_symbol_release(symbols[i]);
    }
}

static void a_memonger_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "abc",  "-5", "0",    "12Q", "1.5G",  "sqrt2",       "99999999999999999999",
        "1GiB", "M",  " 400", "4 M", "400MM", "17179869184G"};
    struct ps_symbol *symbol = small_lenet();
    struct ps_graph graph = differentiated(symbol, "data", PS_SHAPE(2, 1, 12, 12));
    size_t nodes = graph.node_count;
    for (size_t i = 0; i < PS_COUNT(texts); i++) {
        struct ps_mirror_options options = options_of(texts[i], false);
        struct ps_error err = {0};
        assert_int_equal(ps_graph_mirror(&graph, &options, NULL, &err), PS_EINVAL);
        assert_non_null(strstr(err.text, texts[i]));
        assert_non_null(strstr(err.text, "MEMONGER"));
        assert_int_equal(graph.node_count, nodes);
    }
    static const char *const good[] = {"0x7000000", "1G",    "1Gi",
                                       "1048576",   "4096K", "3Mi"};
    for (size_t i = 0; i < PS_COUNT(good); i++) {
        assert_int_equal(mirrored(&graph, good[i], false).mirrored_count, 0);
    }
    ps_graph_fini(&graph);
    ps_symbol_release(symbol);
}

static void force_mirroring_reaches_a_convolution_but_not_dropout(void **state)
{
    (void)state;
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "Convolution", "conv", "kernel=(3,3) num_filter=4", x);
    ps_builder_attr(b, x, "force_mirroring", "True");
    x = ps_builder_op(b, "Activation", "relu", "act_type=relu", x);
    x = ps_builder_op(b, "Dropout", "drop", "p=0.5", x);
    ps_builder_attr(b, x, "force_mirroring", "True");
    x = ps_builder_op(b, "BatchNorm", "bn", NULL, x);
    ps_builder_attr(b, x, "force_mirroring", "False");
    x = ps_builder_op(b, "square", "square", NULL, x);
    ps_builder_attr(b, x, "force_mirroring", "1");
    x = ps_builder_op(b, "BatchNorm", "bn2", NULL, x);
    struct ps_symbol *symbol = finish(b, ps_builder_op(b, "MakeLoss", "loss", NULL, x));
    struct ps_graph graph = differentiated(symbol, "data", PS_SHAPE(2, 1, 8, 8));
    struct ps_mirror_report report = mirrored(&graph, "", false);
    assert_false(has_node(&graph, "conv_mirror")); /* nobody needs it: relu is kept */
    assert_true(has_node(&graph, "square_mirror"));
    assert_false(has_node(&graph, "drop_mirror"));
    assert_int_equal(report.mirrored_count, 1);
    ps_graph_fini(&graph);
    assert_non_null(ps_symbol_node_attr(symbol, "conv", "__force_mirroring__"));
    ps_symbol_release(symbol);

    b = builder_new();
    x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "Convolution", "conv", "kernel=(3,3) num_filter=4", x);
    ps_builder_attr(b, x, "force_mirroring", "True");
    x = ps_builder_op(b, "BatchNorm", "bn", NULL, x); /* reads conv in backward */
    symbol = finish(b, ps_builder_op(b, "MakeLoss", "loss", NULL, x));
    graph = differentiated(symbol, "data", PS_SHAPE(2, 1, 8, 8));
    report = mirrored(&graph, "", false);
    assert_true(has_node(&graph, "conv_mirror"));
    assert_true(report.extra_work > 0 && report.extra_work < report.forward_work);
    ps_graph_fini(&graph);
    ps_symbol_release(symbol);
}

/* The running mean that one of them would read again was changed by the other. */
static void who_shares_auxiliary_states_is_kept(void **state)
{
    (void)state;
    struct ps_builder *b = builder_new();
    struct ps_symbol *mean = ps_builder_variable(b, "mean");
    struct ps_symbol *var = ps_builder_variable(b, "var");
    struct ps_symbol *gamma = ps_builder_variable(b, "gamma");
    struct ps_symbol *beta = ps_builder_variable(b, "beta");
    struct ps_symbol *x = ps_builder_variable(b, "data");
    for (int i = 0; i < 2; i++) {
        struct ps_symbol *inputs[] = {x, gamma, beta, mean, var};
        x = ps_builder_compose(b, "BatchNorm", ps_builder_text(b, "bn%d", i),
                               i == 0 ? "use_global_stats=True" : NULL, inputs, 5);
        ps_builder_attr(b, x, "force_mirroring", "True");
        x = ps_builder_op(b, "square", ps_builder_text(b, "square%d", i), NULL, x);
        ps_builder_attr(b, x, "force_mirroring", "True");
        x = ps_builder_op(b, "Activation", NULL, "act_type=tanh", x);
    }
    struct ps_symbol *symbol = finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, x));
    struct ps_graph graph = differentiated(symbol, "data", PS_SHAPE(4, 3, 5, 5));
    (void)mirrored(&graph, "sqrt", true);
    assert_false(has_node(&graph, "bn0_mirror"));
    assert_false(has_node(&graph, "bn1_mirror"));
    ps_graph_fini(&graph);
    ps_symbol_release(symbol);
}

/* ---- mirror_stage ---- */

static void borders_are_where_mirror_stage_says(void **state)
{
    (void)state;
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    for (int i = 0; i < 24; i++) {
        x = ps_builder_op(b, "Activation", ps_builder_text(b, "act%d", i),
                          "act_type=tanh", x);
        if (i == 5 || i == 13) {
            ps_builder_attr(b, x, "mirror_stage", "True");
        } else if (i == 17 || i == 18) { /* one stage: its end is a border */
            ps_builder_attr(b, x, "mirror_stage", "7");
        }
    }
    struct ps_symbol *symbol = finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, x));
    struct ps_graph graph = differentiated(symbol, "data", PS_SHAPE(4, 3));
    struct ps_mirror_options options = options_of("sqrt", false);
    struct ps_mirror_model model;
    struct ps_mirror_archive archive = {0};
    assert_int_equal(ps_mirror_model_init(&model, &graph, &options), PS_OK);
    model.tries_max = 1000;
    assert_int_equal(ps_memonger_cut(&model, PS_MIRROR_HEAVY, &archive), PS_OK);
    assert_true(archive.count > 0);
    size_t borders[24] = {0};
    for (size_t i = 0; i < archive.count; i++) {
        for (int a = 0; a < 24; a++) {
            char name[16];
            (void)snprintf(name, sizeof(name), "act%d", a);
            borders[a] += !archive.choices[i].again[node_called(&graph, name)];
        }
    }
    for (int a = 0; a < 24; a++) {
        bool may = a == 5 || a == 13 || a == 18;
        assert_true(may || borders[a] == 0);
    }
    assert_true(borders[5] + borders[13] + borders[18] > 0);
    ps_mirror_archive_fini(&archive);
    ps_mirror_model_fini(&model);
    ps_graph_fini(&graph);
    ps_symbol_release(symbol);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            any_choice_gives_a_sound_graph_and_the_peak_that_the_planner_counts),
        cmocka_unit_test(nothing_is_touched_when_off_or_where_it_does_not_pay),
        cmocka_unit_test(a_memonger_that_is_none_is_refused),
        cmocka_unit_test(force_mirroring_reaches_a_convolution_but_not_dropout),
        cmocka_unit_test(who_shares_auxiliary_states_is_kept),
        cmocka_unit_test(borders_are_where_mirror_stage_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
