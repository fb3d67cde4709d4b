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

enum { PAUSES_OF_POLL = 32 }; /* a poll each 0.6 microseconds, at 20 ns a pause */

/* seq_cst pairs with the pusher's: it stores into the inbox, then looks at 'asleep';
 * we store 'asleep', then look at the inbox.  One of the two sees the other. */
static void publish_asleep(struct ps_lane *lane)
{
    bool asleep = lane->idle > 0 && !lane->waking;
    if (atomic_load_explicit(&lane->asleep, memory_order_relaxed) != asleep) {
        atomic_store_explicit(&lane->asleep, asleep, memory_order_seq_cst);
    }
}

void ps_lane_wake(struct ps_engine *engine, struct ps_lane *lane)
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
 * 1994).  One thread of a lane looks; it reads rarely, so that pushes gather. */
static void lane_look(struct ps_engine *engine, struct ps_lane *lane)
    PS_REQUIRES(engine->state)
{
    struct ps_threaded *threaded = engine->threaded;
    bool found = false;
    lane->looking = true;
    /* relaxed: only hints; what they announce is read under the lock */
    atomic_store_explicit(&lane->called, false, memory_order_relaxed);
    ps_threaded_unlock(engine);
    for (uint32_t poll = 0; poll < threaded->look_polls && !found; poll++) {
        for (int i = 0; i < PAUSES_OF_POLL; i++) {
            ps_threaded_pause();
        }
        found = atomic_load_explicit(&lane->called, memory_order_relaxed) ||
                !inbox_is_empty(threaded);
    }
    ps_threaded_lock(engine);
    lane->looking = false;
}

static void lane_main(void *arg)
{
    struct ps_lane *lane = arg;
    struct ps_engine *engine = lane->engine;
    bool may_look = false;
    ps_engine_set_inside(engine, true);
    ps_threaded_lock(engine);
    for (;;) {
        /* An inbox may wait while this lane has work for all its threads.  Pushers leave
         * their operations there while a wake-up is on its way, so whoever goes on to
         * run something must look for work for those who sleep. */
        if (lane->ready.by_priority || lane->ready.count == 0 || lane->idle > 0) {
            ps_threaded_resolve(engine);
        }
        struct ps_block *block = ps_ready_pop(&lane->ready);
        if (block != NULL) {
            if (lane->ready.count > 0) {
                ps_lane_wake(engine, lane);
            }
            ps_threaded_run(engine, block);
            may_look = engine->threaded->look_polls > 0;
        } else if (ps_threaded_has_due(engine)) {
            ps_threaded_unlock(engine);
            ps_threaded_lock(engine);
        } else if (lane->stop) {
            break;
        } else if (may_look && !lane->looking) {
            may_look = false;
            lane_look(engine, lane);
        } else {
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
        ps_thread_join(&lane->threads[i]);
    }
}

void ps_lane_destroy(struct ps_lane *lane)
{
    if (lane == NULL) {
        return;
    }
    ps_lane_join(lane);
    ps_cond_fini(&lane->cond);
    free(lane->threads);
    ps_mem_free(lane);
}

enum ps_status ps_lane_create(struct ps_engine *engine, const char *name,
                              uint32_t thread_count, bool by_priority,
                              struct ps_lane **lane_out)
{
    struct ps_threaded *threaded = engine->threaded;
    enum ps_status status = PS_ENOMEM;
    struct ps_lane *lane = ps_mem_calloc(sizeof(*lane));
    if (lane == NULL) {
        return PS_ENOMEM;
    }
    lane->engine = engine;
    lane->ready.by_priority = by_priority;
    (void)snprintf(lane->name, sizeof(lane->name), "%s", name);
    ps_cond_init(&lane->cond);
    lane->threads = calloc(thread_count, sizeof(*lane->threads));
    if (lane->threads == NULL) {
        goto fail;
    }
    for (uint32_t i = 0; i < thread_count; i++) {
        char thread_name[32];
        (void)snprintf(thread_name, sizeof(thread_name), "%s/%u", name, i);
        PS_TRY_GOTO(status,
                    ps_thread_start(&lane->threads[i], thread_name, lane_main, lane),
                    fail);
        lane->thread_count++;
    }
    ps_threaded_lock(engine);
    lane->all_next = threaded->all;
    threaded->all = lane;
    ps_threaded_unlock(engine);
    *lane_out = lane;
    return PS_OK;
fail:
    ps_lane_destroy(lane);
    return status;
}
