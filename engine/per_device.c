/* ThreadedEnginePerDevice: lanes of their own for each device, made at its first
 * operation that needs them, and one priority pool for all CPU devices, made with the
 * engine.
 *
 *   CPU i   "cpu<i>"       CPU_WORKER_NTHREADS    first in, first out
 *   all     "priority"     CPU_PRIORITY_NTHREADS  by priority
 *   GPU i   "gpu<i>"       GPU_WORKER_NTHREADS    first in, first out; a stream a thread
 *           "gpu<i>-copy"  GPU_COPY_NTHREADS      by priority; a copy stream a thread
 *           "gpu<i>-prio"  GPU_WORKER_NTHREADS    by priority; a stream a thread
 *
 * Who goes where is 'routes', from reference/behaviour.md 2.3. */
#include "base/node.h"
#include "engine/threaded.h"

#include <stdio.h>

static const struct lane_kind {
    const char *suffix; /* of the name, after the device's */
    enum ps_setting_id threads;
    bool by_priority;
    enum ps_stream_kind stream_kind;
} lane_kinds[PS_LANE_USE_COUNT] = {
    [PS_LANE_CPU] = {"", PS_SET_CPU_WORKER_NTHREADS, false, PS_STREAM_COMPUTE},
    [PS_LANE_CPU_PRIORITY] = {"", PS_SET_CPU_PRIORITY_NTHREADS, true, PS_STREAM_COMPUTE},
    [PS_LANE_GPU] = {"", PS_SET_GPU_WORKER_NTHREADS, false, PS_STREAM_COMPUTE},
    [PS_LANE_GPU_COPY] = {"-copy", PS_SET_GPU_COPY_NTHREADS, true, PS_STREAM_COPY},
    [PS_LANE_GPU_PRIORITY] = {"-prio", PS_SET_GPU_WORKER_NTHREADS, true,
                              PS_STREAM_COMPUTE},
};

/* PS_ENGINE_ASYNC: when something is in its way; else it runs inside the push. */
static const enum ps_lane_use routes[PS_CONTEXT_KIND_COUNT][PS_ENGINE_OP_KIND_COUNT] = {
    [PS_CONTEXT_CPU] =
        {
            [PS_ENGINE_NORMAL] = PS_LANE_CPU,
            [PS_ENGINE_COPY_FROM_GPU] = PS_LANE_CPU,
            [PS_ENGINE_COPY_TO_GPU] = PS_LANE_CPU,
            [PS_ENGINE_CPU_PRIORITIZED] = PS_LANE_CPU_PRIORITY,
            [PS_ENGINE_GPU_PRIORITIZED] = PS_LANE_CPU,
            [PS_ENGINE_ASYNC] = PS_LANE_CPU,
        },
    [PS_CONTEXT_GPU] =
        {
            [PS_ENGINE_NORMAL] = PS_LANE_GPU,
            [PS_ENGINE_COPY_FROM_GPU] = PS_LANE_GPU_COPY,
            [PS_ENGINE_COPY_TO_GPU] = PS_LANE_GPU_COPY,
            [PS_ENGINE_CPU_PRIORITIZED] = PS_LANE_GPU,
            [PS_ENGINE_GPU_PRIORITIZED] = PS_LANE_GPU_PRIORITY,
            [PS_ENGINE_ASYNC] = PS_LANE_GPU,
        },
};

/* 'device' NULL: a lane without streams. */
static enum ps_status make_lane(struct ps_engine *engine, enum ps_lane_use use,
                                const char *device_name, struct ps_device *device,
                                struct ps_lane **lane_out)
{
    const struct lane_kind *kind = &lane_kinds[use];
    char name[16];
    int64_t count = ps_settings_int(engine->node->settings, kind->threads);
    (void)snprintf(name, sizeof(name), "%s%s", device_name, kind->suffix);
    struct ps_lane_options options = {
        .name = name,
        .thread_count = (uint32_t)count,
        .by_priority = kind->by_priority,
        .device = device,
        .stream_kind = kind->stream_kind,
    };
    return ps_lane_create(engine, &options, lane_out);
}

static enum ps_status per_device_start(struct ps_engine *engine, struct ps_error *err)
{
    PS_TRY(ps_threaded_create(engine, err));
    enum ps_status status =
        make_lane(engine, PS_LANE_CPU_PRIORITY, "priority", NULL,
                  &engine->threaded->lanes.of[PS_LANE_CPU_PRIORITY][0]);
    if (status != PS_OK) {
        int64_t count =
            ps_settings_int(engine->node->settings, PS_SET_CPU_PRIORITY_NTHREADS);
        return ps_error_set(err, status,
                            "engine: cannot start CPU_PRIORITY_NTHREADS %lld threads",
                            (long long)count);
    }
    return PS_OK;
}

/* The first operation of a lane. */
static enum ps_status open_lane(struct ps_engine *engine, enum ps_lane_use use,
                                struct ps_context context, struct ps_lane **lane_out)
{
    struct ps_device *device = NULL;
    struct ps_error error = {.status = PS_OK};
    char name[8];
    const char *kind = context.kind == PS_CONTEXT_GPU ? "gpu" : "cpu";
    (void)snprintf(name, sizeof(name), "%s%d", kind, context.id);
    enum ps_status status = PS_OK;
    if (context.kind == PS_CONTEXT_GPU) {
        status = ps_engine_device(engine, context, &device, &error);
    }
    if (status == PS_OK) {
        status = make_lane(engine, use, name, device, lane_out);
    }
    if (status != PS_OK) {
        ps_engine_log_no_lane(engine, context, status, &error);
    }
    return status;
}

static enum ps_status per_device_route(struct ps_engine *engine,
                                       const struct ps_engine_op *op,
                                       struct ps_lane **lane_out)
{
    enum ps_lane_use use = routes[op->context.kind][op->kind];
    int place = use == PS_LANE_CPU_PRIORITY ? 0 : op->context.id;
    struct ps_lane **lane = &engine->threaded->lanes.of[use][place];
    if (*lane == NULL) {
        PS_TRY(open_lane(engine, use, op->context, lane));
    }
    *lane_out = *lane;
    return PS_OK;
}

static enum ps_status per_device_push(struct ps_engine *engine,
                                      const struct ps_engine_op *op,
                                      struct ps_engine_call *call)
{
    return ps_threaded_push(engine, op, call, per_device_route);
}

static enum ps_status per_device_push_segment(struct ps_engine *engine,
                                              struct ps_segment *segment)
{
    return ps_threaded_push_segment(engine, segment, per_device_route);
}

const struct ps_engine_ops ps_engine_per_device_ops = {
    .name = "ThreadedEnginePerDevice",
    .type = PS_ENGINE_PER_DEVICE,
    .start = per_device_start,
    .stop = ps_threaded_stop,
    .push = per_device_push,
    .push_segment = per_device_push_segment,
    .var_delete = ps_threaded_var_delete,
    .complete = ps_threaded_complete,
    .wait_var = ps_threaded_wait_var,
    .wait_all = ps_threaded_wait_all,
    .ready = ps_threaded_ready,
    .waiter_ready = ps_threaded_waiter_ready,
    .unlock = ps_threaded_unlock,
};
