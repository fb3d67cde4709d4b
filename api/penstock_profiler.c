/* penstock.h: the profiler of a node (base/trace.h). */
#include "api/handles.h"

#include <string.h>

static int answer(penstock_node *node, enum ps_status status, const char *words)
{
    if (status == PS_OK) {
        return PS_OK;
    }
    struct ps_error err = {.status = status};
    (void)ps_error_set(&err, status, "profiler: %s", words);
    return penstock_fail(node, &err);
}

int penstock_profiler_configure(penstock_node *node, const penstock_profiler *profiler)
{
    struct ps_error err = {.status = PS_OK};
    if (profiler == NULL || profiler->size < sizeof(*profiler)) {
        return answer(node, PS_EINVAL,
                      "penstock_profiler: size too small, use PENSTOCK_PROFILER_INIT");
    }
    if (profiler->mode != 0 && profiler->mode != 1) {
        return answer(node, PS_EINVAL, "penstock_profiler: mode is 0 or 1");
    }
    if (profiler->file != NULL) {
        enum ps_status status =
            ps_trace_set_file(node->node->trace, profiler->file, &err);
        if (status != PS_OK) {
            return penstock_fail(node, &err);
        }
    }
    return answer(node, ps_trace_set_mode(node->node->trace, profiler->mode), "mode");
}

int penstock_profiler_start(penstock_node *node)
{
    return answer(node, ps_trace_start(node->node->trace), "cannot start a thread");
}

int penstock_profiler_pause(penstock_node *node, int paused)
{
    if (paused != 0) {
        ps_trace_pause(node->node->trace);
    } else {
        ps_trace_resume(node->node->trace);
    }
    return PS_OK;
}

int penstock_profiler_stop(penstock_node *node)
{
    ps_trace_stop(node->node->trace);
    return PS_OK;
}

int penstock_profiler_dump(penstock_node *node)
{
    struct ps_error err = {.status = PS_OK};
    enum ps_status status = ps_trace_dump(node->node->trace, &err);
    return status == PS_OK ? PS_OK : penstock_fail(node, &err);
}

int penstock_profiler_table(penstock_node *node, int json, char *out, size_t size,
                            size_t *needed_out)
{
    struct ps_str text = {0};
    if (out == NULL && size > 0) {
        return answer(node, PS_EINVAL, "table: 'out' is NULL");
    }
    ps_trace_table(node->node->trace, json != 0, &text);
    if (text.failed) {
        ps_str_fini(&text);
        return answer(node, PS_ENOMEM, "table: out of memory");
    }
    if (size > 0) {
        size_t count = PS_MIN(text.size, size - 1);
        memcpy(out, ps_str_text(&text), count);
        out[count] = '\0';
    }
    if (needed_out != NULL) {
        *needed_out = text.size + 1;
    }
    ps_str_fini(&text);
    return PS_OK;
}

uint64_t penstock_scope_begin(penstock_node *node)
{
    return ps_trace_is_running(node->node->trace) ? ps_trace_now(node->node->trace) : 0;
}

void penstock_scope_end(penstock_node *node, const char *name, uint64_t begin)
{
    struct ps_trace *trace = node->node->trace;
    if (begin == 0 || name == NULL || !ps_trace_is_running(trace)) {
        return;
    }
    const struct ps_trace_span span = {.name = name,
                                       .category = PS_TRACE_USER,
                                       .device = PS_TRACE_HOST,
                                       .begin_ns = begin,
                                       .end_ns = ps_trace_now(trace)};
    ps_trace_add(trace, &span);
}

void penstock_counter(penstock_node *node, const char *name, double value)
{
    struct ps_trace *trace = node->node->trace;
    /* JSON has no word for the others */
    bool is_number = value - value == 0; /* neither infinite nor NaN */
    if (name != NULL && is_number && ps_trace_is_running(trace)) {
        ps_trace_count(trace, PS_TRACE_USER, PS_TRACE_HOST, name, value);
    }
}

void penstock_marker(penstock_node *node, const char *name)
{
    if (name != NULL && ps_trace_is_running(node->node->trace)) {
        ps_trace_instant(node->node->trace, PS_TRACE_HOST, name);
    }
}
