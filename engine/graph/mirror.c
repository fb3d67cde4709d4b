/* The pass: what is wanted, the search, the planner's verdict. */
#include "engine/graph/mirror.h"

enum ps_status ps_graph_mirror(struct ps_graph *graph,
                               const struct ps_mirror_options *options,
                               struct ps_mirror_report *report_out, struct ps_error *err)
{
    PS_UNUSED(graph);
    PS_UNUSED(options);
    PS_UNUSED(err);
    if (report_out != NULL) {
        *report_out = (struct ps_mirror_report){0};
    }
    return PS_OK;
}
