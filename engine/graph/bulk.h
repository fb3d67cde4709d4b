/* Cutting a run of operators into engine operations.
 *
 * Consecutive operators of one device become one engine operation, at most 'limit' of
 * them, exactly.  Copies between devices are operations of their own.  An operator that
 * writes a parameter's gradient ends its operation, so that communication of the gradient
 * can start.  Where the memory plan keeps branches apart (colours), an operation has one
 * colour, begins with an operator that takes another colour's value and ends with one
 * whose value another colour takes, so that a branch waits for nothing but its input.
 * Operators with nothing to run are in no operation and cut none.
 *
 * Threads: a pure function, any. */
#ifndef PENSTOCK_ENGINE_GRAPH_BULK_H
#define PENSTOCK_ENGINE_GRAPH_BULK_H

#include "engine/engine.h"

struct ps_bulk_node {
    bool runs;   /* there is something to run */
    bool alone;  /* not synchronous: a copy between devices */
    bool begins; /* takes a value of another colour */
    bool ends;   /* writes a parameter's gradient, or a value for another colour */
    uint32_t colour;
    struct ps_context context;
};

#define PS_NO_SEGMENT UINT32_MAX

/* segment_out[i] is the engine operation of node i, from 0 and rising, PS_NO_SEGMENT
 * where nothing runs.  'limit' 0 is as 1.  Returns the number of operations. */
size_t ps_bulk_cut(const struct ps_bulk_node *nodes, size_t count, size_t limit,
                   uint32_t *segment_out);

#endif
