/* Cutting a run of operators into engine operations, in one walk. */
#include "engine/graph/bulk.h"

size_t ps_bulk_cut(const struct ps_bulk_node *nodes, size_t count, size_t limit,
                   uint32_t *segment_out)
{
    size_t segments = 0, held = 0; /* held: operators in the open one; 0: none is open */
    const struct ps_bulk_node *last = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct ps_bulk_node *node = &nodes[i];
        segment_out[i] = PS_NO_SEGMENT;
        if (!node->runs) {
            continue;
        }
        bool joins = held > 0 && held < limit && !node->alone && !node->begins &&
                     !last->alone && !last->ends && last->colour == node->colour &&
                     ps_context_equal(last->context, node->context);
        if (!joins) {
            segments++;
            held = 0;
        }
        segment_out[i] = (uint32_t)(segments - 1);
        held++;
        last = node;
    }
    return segments;
}
