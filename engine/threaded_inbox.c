/* The inbox of the threaded engines: a ring that pushers fill, in the order of their
 * pushes, and whoever resolves empties; see threaded.h. */
#include "engine/threaded.h"

/* See fetch_ahead: a line from another core takes about two operations' time. */
enum { BLOCK_AHEAD = 6, VAR_AHEAD = 3 };

void ps_threaded_put(struct ps_engine *engine, struct ps_block *block)
{
    struct ps_threaded *threaded = engine->threaded;
    uint64_t tail = atomic_load_explicit(&threaded->inbox_tail, memory_order_relaxed);
    if (tail - threaded->inbox_head_seen == PS_INBOX_SLOTS) {
        threaded->inbox_head_seen =
            atomic_load_explicit(&threaded->inbox_head, memory_order_acquire);
    }
    if (tail - threaded->inbox_head_seen == PS_INBOX_SLOTS) {
        ps_threaded_lock(engine);
        ps_threaded_resolve(engine);
        threaded->inbox_head_seen = tail;
        ps_threaded_unlock_pusher(engine);
    }
    threaded->inbox[tail % PS_INBOX_SLOTS] = block;
    /* seq_cst: see publish_asleep in lane.c */
    atomic_store_explicit(&threaded->inbox_tail, tail + 1, memory_order_seq_cst);
}

/* The pusher wrote the block on another core, and an operation's first variable may be
 * anywhere: both are asked for some blocks before their turn. */
static void fetch_ahead(struct ps_threaded *threaded, uint64_t head, uint64_t tail)
{
    if (tail - head > BLOCK_AHEAD) {
        const char *ahead =
            (const char *)threaded->inbox[(head + BLOCK_AHEAD) % PS_INBOX_SLOTS];
        __builtin_prefetch(ahead, 1);
        __builtin_prefetch(ahead + PS_CACHE_LINE, 1);
        __builtin_prefetch(ahead + 2 * PS_CACHE_LINE, 1);
    }
    if (tail - head > VAR_AHEAD) {
        const struct ps_block *block =
            threaded->inbox[(head + VAR_AHEAD) % PS_INBOX_SLOTS];
        if (block->role == PS_BLOCK_PUSHED && block->dep_count > 0) {
            __builtin_prefetch(ps_dep_var(&block->deps[0]), 1);
        }
    }
}

bool ps_threaded_resolve_some(struct ps_engine *engine, uint64_t count)
{
    struct ps_threaded *threaded = engine->threaded;
    uint64_t head = atomic_load_explicit(&threaded->inbox_head, memory_order_relaxed);
    /* acquire pairs with the pusher's store: the slots before 'tail' are written */
    uint64_t tail = atomic_load_explicit(&threaded->inbox_tail, memory_order_acquire);
    if (head == tail) {
        return false;
    }
    uint64_t end = tail - head > count ? head + count : tail;
    while (head != end) {
        struct ps_block *block = threaded->inbox[head % PS_INBOX_SLOTS];
        fetch_ahead(threaded, head, tail);
        head++;
        ps_core_enter(engine, block);
    }
    /* release: the pusher may use the slots again */
    atomic_store_explicit(&threaded->inbox_head, head, memory_order_release);
    return head != tail;
}

void ps_threaded_resolve(struct ps_engine *engine)
{
    (void)ps_threaded_resolve_some(engine, PS_INBOX_SLOTS);
}
