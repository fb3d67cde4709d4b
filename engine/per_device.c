/* ThreadedEnginePerDevice: a FIFO pool for each CPU device, made at its first operation
 * (CPU_WORKER_NTHREADS), and one priority pool, made with the engine
 * (CPU_PRIORITY_NTHREADS).  The table of who goes where is reference/behaviour.md 2.3. */
#include "base/node.h"
#include "engine/threaded.h"

#include <stdio.h>

static enum ps_status per_device_start(struct ps_engine *engine, struct ps_error *err)
{
    PS_TRY(ps_threaded_create(engine, err));
    int64_t count = ps_settings_int(engine->node->settings, PS_SET_CPU_PRIORITY_NTHREADS);
    enum ps_status status = ps_lane_create(engine, "priority", (uint32_t)count, true,
                                           &engine->threaded->lanes.priority);
    if (status != PS_OK) {
        return ps_error_set(err, status,
                            "engine: cannot start CPU_PRIORITY_NTHREADS %lld threads",
                            (long long)count);
    }
    return PS_OK;
}

static enum ps_status cpu_lane(struct ps_engine *engine, int id,
                               struct ps_lane **lane_out)
{
    struct ps_lane **place = &engine->threaded->lanes.cpu[id];
    if (*place == NULL) {
        char name[16];
        int64_t count =
            ps_settings_int(engine->node->settings, PS_SET_CPU_WORKER_NTHREADS);
        (void)snprintf(name, sizeof(name), "cpu%d", id);
        PS_TRY(ps_lane_create(engine, name, (uint32_t)count, false, place));
    }
    *lane_out = *place;
    return PS_OK;
}

static enum ps_status per_device_route(struct ps_engine *engine,
                                       const struct ps_engine_op *op,
                                       struct ps_lane **lane_out)
{
    if (op->context.kind != PS_CONTEXT_CPU) {
        return PS_EUNSUPPORTED;
    }
    if (op->kind == PS_ENGINE_CPU_PRIORITIZED) {
        *lane_out = engine->threaded->lanes.priority;
        return PS_OK;
    }
    return cpu_lane(engine, op->context.id, lane_out);
}

static enum ps_status per_device_push(struct ps_engine *engine,
                                      const struct ps_engine_op *op,
                                      struct ps_engine_call *call)
{
    return ps_threaded_push(engine, op, call, per_device_route);
}

const struct ps_engine_ops ps_engine_per_device_ops = {
    .name = "ThreadedEnginePerDevice",
    .type = PS_ENGINE_PER_DEVICE,
    .start = per_device_start,
    .stop = ps_threaded_stop,
    .push = per_device_push,
    .var_delete = ps_threaded_var_delete,
    .complete = ps_threaded_complete,
    .wait_var = ps_threaded_wait_var,
    .wait_all = ps_threaded_wait_all,
    .ready = ps_threaded_ready,
    .waiter_ready = ps_threaded_waiter_ready,
};
