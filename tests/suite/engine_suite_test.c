/* The conformance suite of engines: main.  See engine_suite.h. */
#include "tests/suite/engine_suite.h"

#include <stdio.h>

int main(void)
{
    static const struct suite_group *const groups[] = {
        &suite_order, &suite_errors,  &suite_threads,      &suite_life,
        &suite_cases, &suite_segment, &suite_segment_life, &suite_end};
    static const struct {
        enum ps_engine_type type;
        const char *name;
    } engines[] = {{PS_ENGINE_NAIVE, "naive"},
                   {PS_ENGINE_POOLED, "pooled"},
                   {PS_ENGINE_PER_DEVICE, "per-device"}};
    int failed = 0;
    for (size_t e = 0; e < PS_COUNT(engines); e++) {
        suite_type = engines[e].type;
        for (size_t g = 0; g < PS_COUNT(groups); g++) {
            char name[64];
            (void)snprintf(name, sizeof(name), "%s %s", engines[e].name, groups[g]->name);
            failed += _cmocka_run_group_tests(name, groups[g]->tests, groups[g]->count,
                                              NULL, NULL);
        }
    }
    return failed == 0 ? 0 : 1;
}
