/* Numbered graphs for the tests of passes. */
#ifndef PENSTOCK_TESTS_UNIT_GRAPH_GRAPH_NUMBERED_H
#define PENSTOCK_TESTS_UNIT_GRAPH_GRAPH_NUMBERED_H

#include "engine/graph/graph_ir.h"
#include "tests/unit/graph/graph_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline uint32_t node_called(const struct ps_graph *graph, const char *name)
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
static inline struct ps_graph differentiated(struct ps_symbol *symbol, const char *name,
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

static inline bool has_node(const struct ps_graph *graph, const char *name)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        if (strcmp(graph->nodes[n].name, name) == 0) {
            return true;
        }
    }
    return false;
}

#endif
