/* The profiler: what ran where and when, as a Chrome trace that Perfetto opens.
 *
 * Every thread records into a ring of its own; a writer empties the rings once a second,
 * when one is half full, and on a dump, adds the events to the file and their times to a
 * table by name.  A node has one trace (node->trace), made from PROFILER_AUTOSTART,
 * PROFILER_MODE, PROFILER_FILE and PROFILER_TABLE.  Times are the node's clock; the file
 * counts them from a base of wall time, so that files of several processes merge.
 *
 * The file is valid JSON at every moment, also after kill -9 (trace_file.c).  A job's
 * processes put role and rank into its name.  On a simulated node there is no writer
 * thread: the recording thread empties its ring, so that a run stays repeatable.
 *
 * Threads: any, for every call but create and destroy. */
#ifndef PENSTOCK_BASE_TRACE_H
#define PENSTOCK_BASE_TRACE_H

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"

#include <stdatomic.h>

struct ps_trace;

/* What an event belongs to; a trace wants some of them at a time. */
#define PS_TRACE_SYMBOLIC 1u /* operations of networks: PROFILER_MODE 0 and 1 */
#define PS_TRACE_ALL 2u      /* everything else that an engine runs: PROFILER_MODE 1 */
#define PS_TRACE_RUNNING 4u  /* whatever the mode: counters, events of the user's */

/* Longer names are cut. */
#define PS_TRACE_NAME_MAX 127
/* Of a file's name. */
#define PS_TRACE_FILE_MAX 4000

enum ps_trace_category {
    PS_TRACE_OPERATOR,
    PS_TRACE_COPY,
    PS_TRACE_COMMUNICATION, /* priority pools: reductions, pushes, pulls */
    PS_TRACE_ENGINE,        /* waits */
    PS_TRACE_MEMORY,
    PS_TRACE_QUEUE,
    PS_TRACE_USER,
    PS_TRACE_CATEGORY_COUNT
};

/* Devices are the processes of the trace: cpu(i) is i, gpu(i) is PS_TRACE_GPU + i. */
#define PS_TRACE_GPU 256u
#define PS_TRACE_HOST 512u /* nothing of a device's: waits, events of the user's */
#define PS_TRACE_DEVICE_COUNT 513u

struct ps_trace_span {
    const char *name; /* borrows until return */
    enum ps_trace_category category;
    uint32_t device;
    uint64_t begin_ns, end_ns; /* ps_trace_now */
    bool failed;
};

struct ps_trace_options {
    struct ps_clock *clock;
    struct ps_fs *fs;
    struct ps_log *log;
    const char *role; /* "none": the file's name stays as it is */
    const char *name; /* of the node */
    const char *file;
    const char *table; /* where the table goes at the end: "" nowhere, "-" to the log */
    int mode;          /* 0 or 1 */
    bool autostart, simulated;
    size_t ring_bytes; /* of each thread; a power of two, 0: 1 MiB */
};

/* ---- lifecycle ---- */
/* Keeps borrows of clock, fs and log.  Errors: PS_ENOMEM, PS_EAGAIN (no thread). */
PS_MUST_CHECK enum ps_status ps_trace_create(const struct ps_trace_options *options,
                                             struct ps_trace **trace_out);
/* Writes what is left, when it was ever started.  Nobody may record any more.  NULL is
 * fine. */
void ps_trace_destroy(struct ps_trace *trace);
/* The node's name is "worker/3" from now on. */
void ps_trace_set_name(struct ps_trace *trace, const char *name);

/* ---- control ---- */
/* Records from now on.  Errors: PS_EAGAIN (no thread for the writer). */
PS_MUST_CHECK enum ps_status ps_trace_start(struct ps_trace *trace);
/* Records nothing until ps_trace_resume (which does nothing on a stopped trace). */
void ps_trace_pause(struct ps_trace *trace);
void ps_trace_resume(struct ps_trace *trace);
void ps_trace_stop(struct ps_trace *trace);
bool ps_trace_is_running(const struct ps_trace *trace); /* started, not paused */
/* 0 or 1, as PROFILER_MODE.  Errors: PS_EINVAL. */
PS_MUST_CHECK enum ps_status ps_trace_set_mode(struct ps_trace *trace, int mode);
/* What follows goes to this file, which is replaced; the one before is complete.  Errors:
 * PS_EINVAL (empty or longer than PS_TRACE_FILE_MAX), and those of writing the one
 * before. */
PS_MUST_CHECK enum ps_status ps_trace_set_file(struct ps_trace *trace, const char *file,
                                               struct ps_error *err);
/* Writes everything recorded so far, and goes on.  'err' names the file. */
PS_MUST_CHECK enum ps_status ps_trace_dump(struct ps_trace *trace, struct ps_error *err);
/* Count, total, least, most and mean by name, of everything recorded so far; exact as
 * long as nothing was lost, which it says. */
void ps_trace_table(struct ps_trace *trace, bool json, struct ps_str *out);
/* Events that found no room, or no file. */
uint64_t ps_trace_lost(struct ps_trace *trace);

/* ---- recording ---- */

struct ps_trace_gate { /* the first member of a trace */
    _Atomic uint32_t wanted;
};

/* Whether to record events of the kind 'what' (PS_TRACE_SYMBOLIC, ...). */
static inline bool ps_trace_wants(const struct ps_trace *trace, uint32_t what)
{
    /* relaxed: an event more or less at a start is nothing */
    return (atomic_load_explicit(&((const struct ps_trace_gate *)trace)->wanted,
                                 memory_order_relaxed) &
            what) != 0;
}

uint64_t ps_trace_now(struct ps_trace *trace);
/* Numbers of one's own for ps_trace_begin: this and the 2^40 that follow. */
uint64_t ps_trace_ids(struct ps_trace *trace);
/* The caller asked ps_trace_wants before the work began.  When the thread's ring is full
 * it is emptied here. */
void ps_trace_add(struct ps_trace *trace, const struct ps_trace_span *span);
/* The two ends of work that starts on one thread and may end on another; 'id' is unique
 * among those under way.  Never waits: lost when the ring is full, as the two below. */
void ps_trace_begin(struct ps_trace *trace, enum ps_trace_category category,
                    uint32_t device, const char *name, uint64_t id);
void ps_trace_end(struct ps_trace *trace, enum ps_trace_category category,
                  uint32_t device, const char *name, uint64_t id);
void ps_trace_instant(struct ps_trace *trace, uint32_t device, const char *name);
void ps_trace_count(struct ps_trace *trace, enum ps_trace_category category,
                    uint32_t device, const char *name, double value);
/* True at most once in 100 microseconds: time for counters. */
bool ps_trace_is_due(struct ps_trace *trace, uint64_t now_ns);

#endif
