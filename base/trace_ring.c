/* The rings of the profiler: one thread writes, whoever holds the lock 'drain' reads.
 * Positions only grow; the place in the ring is the position modulo its size.  A record
 * never wraps: the rest of the ring is a pad then. */
#include "base/trace_private.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void ps_trace_retire(void *arg)
{
    struct ps_trace_ring *ring = arg;
    /* release: the next owner sees what this thread left in it */
    atomic_store_explicit(&ring->retired, true, memory_order_release);
}

static bool is_empty(struct ps_trace_ring *ring)
{
    return atomic_load_explicit(&ring->head, memory_order_acquire) ==
           atomic_load_explicit(&ring->tail, memory_order_relaxed);
}

/* An emptied ring whose thread is gone. */
static struct ps_trace_ring *reuse(struct ps_trace *trace) PS_REQUIRES(trace->lock)
{
    for (struct ps_trace_ring *ring = trace->rings; ring != NULL; ring = ring->next) {
        if (atomic_load_explicit(&ring->retired, memory_order_acquire) &&
            is_empty(ring)) {
            atomic_store_explicit(&ring->retired, false, memory_order_relaxed);
            memset(ring->named, 0, sizeof(ring->named));
            return ring;
        }
    }
    return NULL;
}

static struct ps_trace_ring *make(struct ps_trace *trace) PS_REQUIRES(trace->lock)
{
    struct ps_trace_ring *ring = ps_mem_calloc(sizeof(*ring));
    char *data = malloc(trace->ring_bytes);
    if (ring == NULL || data == NULL) {
        ps_mem_free(ring);
        free(data);
        return NULL;
    }
    ring->data = data;
    ring->trace = trace;
    ring->next = trace->rings;
    trace->rings = ring;
    return ring;
}

/* The calling thread's ring, made at its first event. */
static struct ps_trace_ring *join(struct ps_trace *trace)
{
    ps_mutex_lock(&trace->lock);
    struct ps_trace_ring *ring = reuse(trace);
    if (ring == NULL) {
        ring = make(trace);
    }
    if (ring != NULL && !trace->simulated && pthread_setspecific(trace->key, ring) != 0) {
        ps_trace_retire(ring);
        ring = NULL;
    }
    if (ring != NULL) {
        /* a simulation's programs share a thread whose number says nothing */
        ring->tid = trace->simulated ? 1 : ps_thread_id();
        if (trace->simulated) {
            memcpy(ring->thread_name, "program", sizeof("program"));
        } else {
            ps_trace_thread_name(ring->thread_name);
        }
        ring->kick_at = atomic_load_explicit(&ring->tail, memory_order_relaxed) +
                        trace->ring_bytes / 2;
    }
    ps_mutex_unlock(&trace->lock);
    return ring;
}

static struct ps_trace_ring *ring_of_thread(struct ps_trace *trace)
{
    struct ps_trace_ring *ring = NULL;
    if (trace->simulated) { /* one for all: the world runs on one thread */
        ps_mutex_lock(&trace->lock);
        ring = trace->rings;
        ps_mutex_unlock(&trace->lock);
    } else {
        ring = pthread_getspecific(trace->key);
    }
    return ring != NULL ? ring : join(trace);
}

/* Whether 'need' bytes are free; the drainer's progress is looked at only when it
 * matters. */
static bool has_room(struct ps_trace_ring *ring, uint64_t tail, size_t need)
{
    size_t bytes = ring->trace->ring_bytes;
    if (bytes - (size_t)(tail - ring->head_seen) >= need) {
        return true;
    }
    /* acquire: the drainer has read what it freed */
    ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
    return bytes - (size_t)(tail - ring->head_seen) >= need;
}

static void lose(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

struct ps_trace_record *ps_trace_reserve(struct ps_trace *trace, size_t size,
                                         bool may_drain, struct ps_trace_ring **ring_out)
{
    struct ps_trace_ring *ring = ring_of_thread(trace);
    if (ring == NULL) {
        lose(&trace->lost);
        return NULL;
    }
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    size_t place = (size_t)(tail & (trace->ring_bytes - 1));
    size_t to_end = trace->ring_bytes - place;
    size_t need = to_end < size ? to_end + size : size;
    if (!has_room(ring, tail, need)) {
        if (may_drain || trace->simulated) {
            /* a failing file is remembered and told by whoever asks for a dump */
            enum ps_status status = ps_trace_drain(trace, false, NULL);
            PS_UNUSED(status);
        }
        if (!has_room(ring, tail, need)) {
            lose(&ring->lost);
            return NULL;
        }
    }
    if (to_end < size) {
        struct ps_trace_record *pad = (void *)(ring->data + place);
        pad->size = (uint16_t)to_end;
        pad->kind = PS_TRACE_PAD;
        /* release: see ps_trace_publish */
        atomic_store_explicit(&ring->tail, tail + to_end, memory_order_release);
        place = 0;
    }
    *ring_out = ring;
    return (void *)(ring->data + place);
}

void ps_trace_publish(struct ps_trace_ring *ring, struct ps_trace_record *record)
{
    uint64_t tail =
        atomic_load_explicit(&ring->tail, memory_order_relaxed) + record->size;
    /* release: the drainer that sees the new tail sees the record */
    atomic_store_explicit(&ring->tail, tail, memory_order_release);
    if (tail >= ring->kick_at) {
        size_t bytes = ring->trace->ring_bytes;
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        ring->head_seen = head;
        if (tail - head >= bytes / 2) {
            ring->kick_at = tail + bytes / 8;
            ps_trace_kick(ring->trace);
        } else {
            ring->kick_at = head + bytes / 2;
        }
    }
}

const struct ps_trace_record *ps_trace_peek(struct ps_trace_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    /* acquire pairs with ps_trace_publish */
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    while (head != tail) {
        const struct ps_trace_record *record =
            (const void *)(ring->data + (head & (ring->trace->ring_bytes - 1)));
        if (record->kind != PS_TRACE_PAD) {
            return record;
        }
        ps_trace_pop(ring, record);
        head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    }
    return NULL;
}

void ps_trace_pop(struct ps_trace_ring *ring, const struct ps_trace_record *record)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    /* release: the room may be written again */
    atomic_store_explicit(&ring->head, head + record->size, memory_order_release);
}
