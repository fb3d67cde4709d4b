/* Another order of a graph's nodes. */
#include "tests/unit/graph/graph_numbered.h"

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
