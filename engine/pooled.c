/* ThreadedEngine: one FIFO and 16 threads for everything, and one thread for copies of
 * GPUs, whatever the devices and the settings of thread counts say; priorities do not
 * count (reference/behaviour.md 1.10).  Each thread has a stream of each GPU, made at the
 * GPU's first operation. */
#include "engine/threaded.h"

enum { POOL_THREADS = 16, COPY_THREADS = 1 };

static enum ps_status pooled_start(struct ps_engine *engine, struct ps_error *err)
{
    static const struct ps_lane_options pool = {.name = "pool",
                                                .thread_count = POOL_THREADS};
    static const struct ps_lane_options copy = {.name = "copy",
                                                .thread_count = COPY_THREADS};
    PS_TRY(ps_threaded_create(engine, err));
    struct ps_lane_table *lanes = &engine->threaded->lanes;
    enum ps_status status = ps_lane_create(engine, &pool, &lanes->of[PS_LANE_POOL][0]);
    if (status == PS_OK) {
        status = ps_lane_create(engine, &copy, &lanes->of[PS_LANE_POOL_COPY][0]);
    }
    if (status != PS_OK) {
        return ps_error_set(err, status, "engine: cannot start %d threads",
                            POOL_THREADS + COPY_THREADS);
    }
    return PS_OK;
}

/* The first operation of a GPU. */
static enum ps_status open_gpu(struct ps_engine *engine, struct ps_context context)
{
    struct ps_lane_table *lanes = &engine->threaded->lanes;
    struct ps_lane *pool = lanes->of[PS_LANE_POOL][0];
    struct ps_device *device;
    struct ps_error error = {.status = PS_OK};
    enum ps_status status = ps_engine_device(engine, context, &device, &error);
    if (status != PS_OK) {
        goto out;
    }
    PS_TRY_GOTO(status, ps_lane_add_streams(pool, device, PS_STREAM_COMPUTE), out);
    status = ps_lane_add_streams(lanes->of[PS_LANE_POOL_COPY][0], device, PS_STREAM_COPY);
    if (status != PS_OK) {
        ps_lane_remove_streams(pool, context.id);
    }
out:
    if (status != PS_OK) {
        ps_engine_log_no_lane(engine, context, status, &error);
    }
    return status;
}

static enum ps_status pooled_route(struct ps_engine *engine,
                                   const struct ps_engine_op *op,
                                   struct ps_lane **lane_out)
{
    struct ps_lane_table *lanes = &engine->threaded->lanes;
    bool on_gpu = op->context.kind == PS_CONTEXT_GPU;
    bool copies =
        op->kind == PS_ENGINE_COPY_FROM_GPU || op->kind == PS_ENGINE_COPY_TO_GPU;
    if (on_gpu && !lanes->has_streams[op->context.id]) {
        PS_TRY(open_gpu(engine, op->context));
        lanes->has_streams[op->context.id] = true;
    }
    *lane_out = lanes->of[on_gpu && copies ? PS_LANE_POOL_COPY : PS_LANE_POOL][0];
    return PS_OK;
}

static enum ps_status pooled_push(struct ps_engine *engine, const struct ps_engine_op *op,
                                  struct ps_engine_call *call)
{
    return ps_threaded_push(engine, op, call, pooled_route);
}

static enum ps_status pooled_push_segment(struct ps_engine *engine,
                                          struct ps_segment *segment)
{
    return ps_threaded_push_segment(engine, segment, pooled_route);
}

const struct ps_engine_ops ps_engine_pooled_ops = {
    .name = "ThreadedEngine",
    .type = PS_ENGINE_POOLED,
    .start = pooled_start,
    .stop = ps_threaded_stop,
    .push = pooled_push,
    .push_segment = pooled_push_segment,
    .var_delete = ps_threaded_var_delete,
    .complete = ps_threaded_complete,
    .wait_var = ps_threaded_wait_var,
    .wait_all = ps_threaded_wait_all,
    .ready = ps_threaded_ready,
    .waiter_ready = ps_threaded_waiter_ready,
    .unlock = ps_threaded_unlock,
};
