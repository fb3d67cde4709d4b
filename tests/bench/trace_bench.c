/* What recording costs the recording thread.   trace_bench
 *
 * Rows: R,trace,on,span,ns,X: two clock readings and the record, as an engine does, while
 * the writer runs beside (on a thread of its own) in bursts that fit the ring;
 * R,trace,on,flood,ns,X: without a pause, so that the thread helps to write;
 * R,trace,off,test,ns,X: the test alone. */
#include "base/clock.h"
#include "base/node.h"

#include <stdio.h>
#include <stdlib.h>

enum { BURST = 4000, BURSTS = 50 };

static void span(struct ps_trace *trace)
{
    if (!ps_trace_wants(trace, PS_TRACE_SYMBOLIC)) {
        return;
    }
    struct ps_trace_span span = {.name = "[conv1,relu1]",
                                 .category = PS_TRACE_OPERATOR,
                                 .begin_ns = ps_trace_now(trace)};
    span.end_ns = ps_trace_now(trace);
    ps_trace_add(trace, &span);
}

static double measure(struct ps_trace *trace, bool pauses)
{
    struct ps_clock *clock = ps_clock_real();
    uint64_t spent = 0;
    for (int burst = 0; burst < BURSTS; burst++) {
        uint64_t begin = ps_clock_now_ns(clock);
        for (int i = 0; i < BURST; i++) {
            span(trace);
        }
        spent += ps_clock_now_ns(clock) - begin;
        if (pauses && ps_trace_dump(trace, NULL) != PS_OK) {
            return -1;
        }
    }
    return (double)spent / ((double)BURSTS * BURST);
}

int main(void)
{
    static const char *const overrides[] = {"PROFILER_FILE=/tmp/trace_bench.json", NULL};
    const struct ps_node_options options = {.name = "bench", .overrides = overrides};
    struct ps_node *node = NULL;
    struct ps_error err = {.text = ""};
    if (ps_node_open(&options, &node, &err) != PS_OK) {
        (void)fprintf(stderr, "trace_bench: %s\n", err.text);
        return 1;
    }
    printf("R,trace,off,test,ns,%.2f\n", measure(node->trace, false));
    if (ps_trace_start(node->trace) == PS_OK) {
        (void)measure(node->trace, true); /* the ring's pages */
        printf("R,trace,on,span,ns,%.1f\n", measure(node->trace, true));
        printf("R,trace,on,flood,ns,%.1f\n", measure(node->trace, false));
        printf("R,trace,on,lost,events,%llu\n",
               (unsigned long long)ps_trace_lost(node->trace));
    }
    ps_node_close(node);
    (void)remove("/tmp/trace_bench.json");
    return 0;
}
