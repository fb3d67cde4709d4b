/* Another order of a graph's nodes, and recomputation. */
#include "engine/graph/graph_ir.h"
#include "tests/unit/graph/graph_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t node_called(const struct ps_graph *graph, const char *name)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        if (strcmp(graph->nodes[n].name, name) == 0) {
            return (uint32_t)n;
        }
    }
    fail_msg("no node %s", name);
    return 0;
}

/* Inferred and differentiated with every argument's gradient wanted. */
static struct ps_graph differentiated(struct ps_symbol *symbol, const char *name,
                                      struct ps_shape shape)
{
    struct ps_graph graph;
    struct ps_error err = {0};
    assert_int_equal(ps_graph_make(symbol, &graph), PS_OK);
    assert_int_equal(ps_graph_set_shape(&graph, name, &shape, &err), PS_OK);
    assert_int_equal(ps_graph_infer_shapes(&graph, &err), PS_OK);
    assert_int_equal(ps_graph_default_dtypes(&graph, &err), PS_OK);
    enum ps_grad_req *reqs = calloc(graph.argument_count, sizeof(*reqs));
    for (size_t i = 0; i < graph.argument_count; i++) {
        reqs[i] = PS_GRAD_WRITE;
    }
    assert_int_equal(ps_graph_differentiate(&graph, reqs, &err), PS_OK);
    free(reqs);
    return graph;
}

/* All variables first, then the operators: still producers first. */
static void a_new_order_takes_every_number_along(void **state)
{
    (void)state;
    struct ps_symbol *lenet = small_lenet();
    struct ps_graph graph = differentiated(lenet, "data", PS_SHAPE(2, 1, 12, 12));
    struct ps_graph plain = differentiated(lenet, "data", PS_SHAPE(2, 1, 12, 12));
    uint32_t *order = calloc(graph.node_count, sizeof(*order));
    size_t count = 0;
    for (int variables = 1; variables >= 0; variables--) {
        for (uint32_t n = 0; n < graph.node_count; n++) {
            if ((graph.nodes[n].kind == PS_NODE_VARIABLE) == (variables == 1)) {
                order[count++] = n;
            }
        }
    }
    assert_int_equal(ps_graph_reorder(&graph, order, graph.forward_count), PS_OK);
    assert_int_equal(graph.node_count, plain.node_count);
    for (uint32_t n = 0; n < graph.node_count; n++) {
        const struct ps_graph_node *node = &graph.nodes[n], *was = &plain.nodes[order[n]];
        assert_string_equal(node->name, was->name);
        assert_int_equal(node->first_entry, was->first_entry);
        for (uint32_t i = 0; i < node->output_count; i++) {
            assert_int_equal(graph.entries[node->first_entry + i].node, n);
        }
        assert_int_equal(node->input_count, was->input_count);
        for (uint32_t i = 0; i < node->input_count; i++) {
            assert_int_equal(node->inputs[i], was->inputs[i]);
            assert_true(graph.entries[node->inputs[i]].node < n);
        }
        if (node->kind == PS_NODE_BACKWARD) {
            assert_string_equal(graph.nodes[node->forward].name,
                                plain.nodes[was->forward].name);
        }
    }
    for (size_t i = 0; i < graph.argument_count; i++) {
        assert_string_equal(graph.nodes[graph.arguments[i]].name,
                            plain.nodes[plain.arguments[i]].name);
        assert_int_equal(graph.argument_of[graph.arguments[i]], i);
    }
    assert_int_equal(graph.argument_of[node_called(&graph, "softmax")], PS_NO_INDEX);
    free(order);
    ps_graph_fini(&plain);
    ps_graph_fini(&graph);
    ps_symbol_release(lenet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_order_takes_every_number_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
