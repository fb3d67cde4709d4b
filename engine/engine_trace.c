/* Operations, waits and counters for the profiler.  Thread: the one that ran the
 * operation. */
#include "engine/engine_trace.h"

#include "engine/device/device.h"
#include "engine/threaded.h"

#include <stdio.h>
#include <string.h>

static uint32_t device_number(struct ps_context context)
{
    return (context.kind == PS_CONTEXT_GPU ? PS_TRACE_GPU : 0) + (uint32_t)context.id;
}

static uint32_t device_of(const struct ps_block *block)
{
    return device_number((struct ps_context){
        .kind = (enum ps_context_kind)block->context_kind, .id = block->context_id});
}

static enum ps_trace_category category_of(const struct ps_block *block)
{
    switch ((enum ps_engine_op_kind)(block->trace >> PS_OP_TRACE_SHIFT)) {
    case PS_ENGINE_COPY_FROM_GPU:
    case PS_ENGINE_COPY_TO_GPU:
        return PS_TRACE_COPY;
    case PS_ENGINE_CPU_PRIORITIZED:
    case PS_ENGINE_GPU_PRIORITIZED:
        return PS_TRACE_COMMUNICATION;
    default: /* a copy within the host goes to an ordinary pool */
        return strncmp(block->name, "Copy", 4) == 0 ? PS_TRACE_COPY : PS_TRACE_OPERATOR;
    }
}

enum { MAX_COUNTED = 80 }; /* devices; beyond, nothing is counted */

static void count_memory(struct ps_engine *engine)
{
    struct ps_device *devices[MAX_COUNTED];
    size_t found = 0;
    ps_mutex_lock(&engine->device_lock);
    for (int kind = 0; kind < PS_CONTEXT_KIND_COUNT; kind++) {
        for (int id = 0; id <= PS_CONTEXT_MAX_ID && found < MAX_COUNTED; id++) {
            if (engine->devices[kind][id] != NULL) {
                devices[found++] = engine->devices[kind][id];
            }
        }
    }
    ps_mutex_unlock(&engine->device_lock);
    for (size_t i = 0; i < found; i++) { /* they stay as long as the engine */
        struct ps_device_usage usage;
        uint32_t device = device_number(ps_device_context(devices[i]));
        ps_device_usage(devices[i], &usage);
        ps_trace_count(engine->trace, PS_TRACE_MEMORY, device, "memory used",
                       (double)usage.used_bytes);
        ps_trace_count(engine->trace, PS_TRACE_MEMORY, device, "memory reserved",
                       (double)usage.reserved_bytes);
    }
}

static void count(struct ps_engine *engine, const struct ps_block *block, uint32_t ready)
{
    /* 'completed' first, so that the difference is never below zero */
    uint64_t completed = atomic_load_explicit(&engine->completed, memory_order_relaxed);
    uint64_t ticket = atomic_load_explicit(&engine->ticket, memory_order_relaxed);
    ps_trace_count(engine->trace, PS_TRACE_QUEUE, PS_TRACE_HOST, "pending operations",
                   (double)(ticket - PS_MIN(completed, ticket)));
    if (block->lane != NULL) {
        char name[40];
        (void)snprintf(name, sizeof(name), "ready %s", block->lane->name);
        ps_trace_count(engine->trace, PS_TRACE_QUEUE, device_of(block), name, ready);
    }
    count_memory(engine);
}

void ps_op_trace_span(struct ps_engine *engine, const struct ps_block *block,
                      uint64_t begin_ns, enum ps_status status, uint32_t ready)
{
    const struct ps_trace_span span = {.name = block->name,
                                       .category = category_of(block),
                                       .device = device_of(block),
                                       .begin_ns = begin_ns,
                                       .end_ns = ps_trace_now(engine->trace),
                                       .failed = status != PS_OK};
    ps_trace_add(engine->trace, &span);
    if (ps_trace_is_due(engine->trace, span.end_ns)) {
        count(engine, block, ready);
    }
}

void ps_op_trace_start(struct ps_engine *engine, const struct ps_block *block)
{
    ps_trace_begin(engine->trace, category_of(block), device_of(block), block->name,
                   engine->trace_ids + block->ticket);
}

void ps_op_trace_end(struct ps_engine *engine, const struct ps_block *block)
{
    ps_trace_end(engine->trace, category_of(block), device_of(block), block->name,
                 engine->trace_ids + block->ticket);
}

uint64_t ps_wait_trace_begin(struct ps_engine *engine)
{
    return ps_trace_wants(engine->trace, PS_TRACE_ALL) ? ps_trace_now(engine->trace) : 0;
}

void ps_wait_trace_end(struct ps_engine *engine, const char *name, uint64_t begin_ns,
                       enum ps_status status)
{
    if (begin_ns == 0) {
        return;
    }
    const struct ps_trace_span span = {.name = name,
                                       .category = PS_TRACE_ENGINE,
                                       .device = PS_TRACE_HOST,
                                       .begin_ns = begin_ns,
                                       .end_ns = ps_trace_now(engine->trace),
                                       .failed = status != PS_OK};
    ps_trace_add(engine->trace, &span);
}
