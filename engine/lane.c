/* A lane: some threads behind one ready queue.
 *
 * A lane's thread holds the engine's lock 'state' except while it runs an operation or
 * sleeps.  Idle threads sleep on the lane's condition.  At most one wake-up per lane is
 * on its way; a thread that wakes (or takes an operation) and sees more work hands the
 * wake-up on, so a burst of short operations does not wake every thread. */
#include "base/mem.h"
#include "base/node.h"
#include "base/util.h"
#include "engine/threaded.h"

#include <stdio.h>
#include <stdlib.h>

/* Entered at once where all threads of a lane are at work: what fits into the first
 * two caches. */
enum { RESOLVE_BATCH = 256 };

enum {
    PAUSES_OF_POLL = 32, /* a poll each 0.6 microseconds, at 20 ns a pause */
    POLLS = 64,          /* how often an idle thread looks before it sleeps */
    LOOKS_LEFT_OUT = 15
};

/* seq_cst pairs with the pusher's: it stores into the inbox, then looks at 'asleep';
 * we store 'asleep', then look at the inbox.  One of the two sees the other. */
static void publish_asleep(struct ps_lane *lane)
{
    bool asleep = lane->idle > 0 && !lane->waking;
    if (atomic_load_explicit(&lane->asleep, memory_order_relaxed) != asleep) {
        atomic_store_explicit(&lane->asleep, asleep, memory_order_seq_cst);
    }
}

void ps_lane_wake_idle(struct ps_engine *engine, struct ps_lane *lane)
{
    if (lane->looking) {
        atomic_store_explicit(&lane->called, true, memory_order_relaxed);
        return;
    }
    if (lane->idle == 0 || lane->waking) {
        return;
    }
    lane->waking = true;
    publish_asleep(lane);
    lane->wake_next = engine->threaded->wake;
    engine->threaded->wake = lane;
}

static bool inbox_is_empty(struct ps_threaded *threaded)
{
    return atomic_load_explicit(&threaded->inbox_tail, memory_order_seq_cst) ==
           atomic_load_explicit(&threaded->inbox_head, memory_order_relaxed);
}

static void lane_sleep(struct ps_engine *engine, struct ps_lane *lane)
    PS_REQUIRES(engine->state)
{
    lane->idle++;
    publish_asleep(lane);
    if (inbox_is_empty(engine->threaded)) {
        ps_cond_wait(&lane->cond, &engine->state);
        lane->waking = false;
    }
    lane->idle--;
    publish_asleep(lane);
}

/* Sleeping and being woken costs both sides some ten microseconds and more on a virtual
 * machine, so a thread that ran something looks for more about that long before it
 * sleeps (never worse than twice the best choice: Karlin, Manasse, McGeoch, Owicki
 * 1994).  One thread of a lane looks; it reads rarely, so that pushes gather.
 *
 * A core that somebody else could use is not looked away: one belongs to the pusher, one
 * to each running operation.  And a lane whose looks find nothing looks less often: after
 * each failure twice as many idle moments pass without a look, up to LOOKS_LEFT_OUT. */
static bool should_look(const struct ps_threaded *threaded, struct ps_lane *lane)
{
    if (lane->looking || threaded->running + threaded->looking >= threaded->look_cores) {
        return false;
    }
    if (lane->looks_to_leave_out > 0) {
        lane->looks_to_leave_out--;
        return false;
    }
    return true;
}

static void count_look(struct ps_lane *lane, bool found)
{
    lane->look_failures = found ? 0 : lane->look_failures * 2 + 1;
    if (lane->look_failures > LOOKS_LEFT_OUT) {
        lane->look_failures = LOOKS_LEFT_OUT;
    }
    lane->looks_to_leave_out = lane->look_failures;
}

static void lane_look(struct ps_engine *engine, struct ps_lane *lane)
    PS_REQUIRES(engine->state)
{
    struct ps_threaded *threaded = engine->threaded;
    bool found = false;
    lane->looking = true;
    threaded->looking++;
    lane->looks++;
    /* relaxed: only hints; what they announce is read under the lock */
    atomic_store_explicit(&lane->called, false, memory_order_relaxed);
    ps_threaded_unlock(engine);
    for (uint32_t poll = 0; poll < POLLS && !found; poll++) {
        for (int i = 0; i < PAUSES_OF_POLL; i++) {
            ps_threaded_pause();
        }
        found = atomic_load_explicit(&lane->called, memory_order_relaxed) ||
                !inbox_is_empty(threaded);
    }
    ps_threaded_lock(engine);
    threaded->looking--;
    lane->looking = false;
    count_look(lane, found);
}

static void lane_main(void *arg)
{
    struct ps_lane_thread *thread = arg;
    struct ps_lane *lane = thread->lane;
    struct ps_engine *engine = lane->engine;
    bool may_look = false;
    ps_engine_set_inside(engine, true);
    ps_threaded_lock(engine);
    for (;;) {
        /* An inbox may wait while this lane has work for all its threads.  Pushers leave
         * their operations there while a wake-up is on its way, so whoever goes on to
         * run something must look for work for those who sleep. */
        if (lane->ready.by_priority || lane->idle > 0) {
            ps_threaded_resolve(engine);
        } else {
            while (lane->ready.count == 0 &&
                   ps_threaded_resolve_some(engine, RESOLVE_BATCH)) {
            }
        }
        struct ps_block *block = ps_ready_pop(&lane->ready);
        if (block != NULL) {
            if (lane->ready.count > 0) {
                ps_lane_wake(engine, lane);
            }
            ps_threaded_run(engine, block, thread);
            may_look = true;
        } else if (ps_threaded_has_due(engine)) {
            ps_threaded_unlock(engine);
            ps_threaded_lock(engine);
        } else if (lane->stop) {
            break;
        } else if (may_look && should_look(engine->threaded, lane)) {
            may_look = false;
            lane_look(engine, lane);
        } else {
            may_look = false;
            lane_sleep(engine, lane);
        }
    }
    ps_threaded_unlock(engine);
}

void ps_lane_join(struct ps_lane *lane)
{
    struct ps_engine *engine = lane->engine;
    ps_threaded_lock(engine);
    lane->stop = true;
    ps_cond_broadcast(&lane->cond);
    ps_threaded_unlock(engine);
    for (uint32_t i = 0; i < lane->thread_count; i++) {
        ps_thread_join(&lane->threads[i].thread);
    }
}

void ps_lane_remove_streams(struct ps_lane *lane, int id)
{
    for (uint32_t i = 0; i < lane->thread_count; i++) {
        ps_stream_destroy(lane->threads[i].streams[id]);
        lane->threads[i].streams[id] = NULL;
    }
}

enum ps_status ps_lane_add_streams(struct ps_lane *lane, struct ps_device *device,
                                   enum ps_stream_kind kind)
{
    int id = ps_device_context(device).id;
    for (uint32_t i = 0; i < lane->thread_count; i++) {
        enum ps_status status =
            ps_device_stream_create(device, kind, &lane->threads[i].streams[id]);
        if (status != PS_OK) {
            lane->threads[i].streams[id] = NULL;
            ps_lane_remove_streams(lane, id);
            return status;
        }
    }
    return PS_OK;
}

void ps_lane_destroy(struct ps_lane *lane)
{
    if (lane == NULL) {
        return;
    }
    ps_lane_join(lane);
    for (int id = 0; id <= PS_CONTEXT_MAX_ID; id++) {
        ps_lane_remove_streams(lane, id);
    }
    ps_cond_fini(&lane->cond);
    free(lane->threads);
    ps_mem_free(lane);
}

enum ps_status ps_lane_create(struct ps_engine *engine,
                              const struct ps_lane_options *options,
                              struct ps_lane **lane_out)
{
    struct ps_threaded *threaded = engine->threaded;
    enum ps_status status = PS_ENOMEM;
    struct ps_lane *lane = ps_mem_calloc(sizeof(*lane));
    if (lane == NULL) {
        return PS_ENOMEM;
    }
    lane->engine = engine;
    lane->ready.by_priority = options->by_priority;
    (void)snprintf(lane->name, sizeof(lane->name), "%s", options->name);
    ps_cond_init(&lane->cond);
    lane->threads = calloc(options->thread_count, sizeof(*lane->threads));
    if (lane->threads == NULL) {
        goto fail;
    }
    for (uint32_t i = 0; i < options->thread_count; i++) {
        struct ps_lane_thread *thread = &lane->threads[i];
        char name[32];
        (void)snprintf(name, sizeof(name), "%s/%u", lane->name, i);
        thread->lane = lane;
        PS_TRY_GOTO(status, ps_thread_start(&thread->thread, name, lane_main, thread),
                    fail);
        lane->thread_count++;
    }
    if (options->device != NULL) {
        PS_TRY_GOTO(status,
                    ps_lane_add_streams(lane, options->device, options->stream_kind),
                    fail);
    }
    ps_threaded_lock(engine);
    lane->all_next = threaded->all;
    threaded->all = lane;
    ps_threaded_unlock_pusher(engine);
    *lane_out = lane;
    return PS_OK;
fail:
    ps_lane_destroy(lane);
    return status;
}
