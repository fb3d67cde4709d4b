/* What the engines tell the profiler (base/trace.h).  Off, an operation pays one load and
 * one test.  Private to engine/.
 *
 * Threads: any; none of these takes the engine's locks, but for that of its devices. */
#ifndef PENSTOCK_ENGINE_ENGINE_TRACE_H
#define PENSTOCK_ENGINE_ENGINE_TRACE_H

#include "base/trace.h"
#include "engine/engine_ops.h"

/* The byte block->trace of an operation: what it belongs to, and its kind above. */
#define PS_OP_TRACE_WHAT (PS_TRACE_SYMBOLIC | PS_TRACE_ALL)
#define PS_OP_TRACE_SHIFT 2

static inline uint8_t ps_op_trace_byte(const struct ps_engine_op *op)
{
#ifdef PENSTOCK_WITHOUT_TRACE /* tests/bench/trace_cost.sh: what all this costs */
    PS_UNUSED(op);
    return 0;
#else
    /* 1 when symbolic, else 2 */
    unsigned what = PS_TRACE_ALL - (op->symbolic ? 1u : 0u);
    return (uint8_t)(what | (unsigned)op->kind << PS_OP_TRACE_SHIFT);
#endif
}

static inline bool ps_op_is_traced(const struct ps_engine *engine,
                                   const struct ps_block *block)
{
#ifdef PENSTOCK_WITHOUT_TRACE
    PS_UNUSED(engine);
    PS_UNUSED(block);
    return false;
#else
    return ps_trace_wants(engine->trace, block->trace & PS_OP_TRACE_WHAT);
#endif
}

/* The operation ran from 'begin_ns' until now on this thread.  'ready' of its lane waited
 * when it began. */
void ps_op_trace_span(struct ps_engine *engine, const struct ps_block *block,
                      uint64_t begin_ns, enum ps_status status, uint32_t ready);
/* An asynchronous operation starts, and ends.  The first is told before 'start' runs, the
 * second while the block is there still. */
void ps_op_trace_start(struct ps_engine *engine, const struct ps_block *block);
void ps_op_trace_end(struct ps_engine *engine, const struct ps_block *block);
/* A wait that began at 'begin_ns'; 0: it is not traced. */
uint64_t ps_wait_trace_begin(struct ps_engine *engine);
void ps_wait_trace_end(struct ps_engine *engine, const char *name, uint64_t begin_ns,
                       enum ps_status status);

#endif
