/* ThreadedEngine: one FIFO and 16 threads for everything, whatever the device and the
 * settings of thread counts say; priorities do not count (reference/behaviour.md 1.10).
 */
#include "engine/threaded.h"

enum { POOL_THREADS = 16 };

static enum ps_status pooled_start(struct ps_engine *engine, struct ps_error *err)
{
    PS_TRY(ps_threaded_create(engine, err));
    enum ps_status status = ps_lane_create(engine, "pool", POOL_THREADS, false,
                                           &engine->threaded->lanes.pool);
    if (status != PS_OK) {
        return ps_error_set(err, status, "engine: cannot start %d threads", POOL_THREADS);
    }
    return PS_OK;
}

static enum ps_status pooled_route(struct ps_engine *engine,
                                   const struct ps_engine_op *op,
                                   struct ps_lane **lane_out)
{
    if (op->context.kind != PS_CONTEXT_CPU) {
        return PS_EUNSUPPORTED;
    }
    *lane_out = engine->threaded->lanes.pool;
    return PS_OK;
}

static enum ps_status pooled_push(struct ps_engine *engine, const struct ps_engine_op *op,
                                  struct ps_engine_call *call)
{
    return ps_threaded_push(engine, op, call, pooled_route);
}

const struct ps_engine_ops ps_engine_pooled_ops = {
    .name = "ThreadedEngine",
    .type = PS_ENGINE_POOLED,
    .start = pooled_start,
    .stop = ps_threaded_stop,
    .push = pooled_push,
    .var_delete = ps_threaded_var_delete,
    .complete = ps_threaded_complete,
    .wait_var = ps_threaded_wait_var,
    .wait_all = ps_threaded_wait_all,
    .ready = ps_threaded_ready,
    .waiter_ready = ps_threaded_waiter_ready,
};
