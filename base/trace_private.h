/* What the files of the profiler share.  Private to base/trace*.c.
 *
 *   thread ──ring (bytes)──► whoever drains, one at a time ──► file, table
 *
 * Locks: 'drain' before 'lock'.  Recording takes neither, but for a thread's first event
 * and when its ring runs full. */
#ifndef PENSTOCK_BASE_TRACE_PRIVATE_H
#define PENSTOCK_BASE_TRACE_PRIVATE_H

#include "base/map.h"
#include "base/thread.h"
#include "base/trace.h"

#include <stdalign.h>

/* ---- rings: trace_ring.c ---- */

enum ps_trace_kind {
    PS_TRACE_PAD, /* up to the ring's end; only the first 8 bytes are there */
    PS_TRACE_SPAN,
    PS_TRACE_BEGIN,
    PS_TRACE_END,
    PS_TRACE_INSTANT,
    PS_TRACE_COUNTER
};

/* An event in a ring: this, then the name without a NUL, padded to 8 bytes. */
struct ps_trace_record {
    uint16_t size; /* all of it */
    uint8_t kind, category;
    uint16_t device;
    uint8_t name_size;
    bool failed;
    uint64_t time_ns;
    union {
        uint64_t end_ns; /* a span's */
        uint64_t id;
        double value;
    } u;
};
#define PS_TRACE_RECORD_MAX (sizeof(struct ps_trace_record) + 128)

struct ps_trace_ring {
    /* the thread's */
    alignas(PS_CACHE_LINE) _Atomic uint64_t tail;
    uint64_t head_seen;
    uint64_t kick_at;      /* the tail at which the writer is called next */
    _Atomic uint64_t lost; /* written by the thread only */
    /* the drainer's */
    alignas(PS_CACHE_LINE) _Atomic uint64_t head;
    uint64_t named[(PS_TRACE_DEVICE_COUNT + 63) / 64]; /* devices that know this thread */
    /* constant while a thread owns it */
    struct ps_trace *trace;
    struct ps_trace_ring *next;
    uint32_t tid;
    char thread_name[16];
    _Atomic bool retired; /* its thread is gone; another may have it once it is empty */
    char *data;           /* trace->ring_bytes */
};

/* Room for 'size' bytes (a multiple of 8) in the calling thread's ring; NULL when lost.
 * 'may_drain': a full ring is emptied first. */
struct ps_trace_record *ps_trace_reserve(struct ps_trace *trace, size_t size,
                                         bool may_drain, struct ps_trace_ring **ring_out);
void ps_trace_publish(struct ps_trace_ring *ring, struct ps_trace_record *record);
/* The next event of the ring, NULL when it is empty; pop frees its room. */
const struct ps_trace_record *ps_trace_peek(struct ps_trace_ring *ring);
void ps_trace_pop(struct ps_trace_ring *ring, const struct ps_trace_record *record);
/* The key's destructor. */
void ps_trace_retire(void *ring);
/* The calling thread's name; trace_linux.c. */
void ps_trace_thread_name(char out[16]);

/* ---- the file: trace_file.c ---- */

#define PS_TRACE_PAGE_BYTES 4096u
#define PS_TRACE_PATH_BYTES 4160
struct ps_trace_file { /* zero-initialised = closed */
    struct ps_fs *fs;
    struct ps_file *file;
    struct ps_file *reader; /* the same bytes, read once: when they are copied */
    char path[PS_TRACE_PATH_BYTES];
    uint64_t end;      /* of what is written */
    uint64_t capacity; /* blanks from 'end' to here; then the closing brackets */
    size_t group_size; /* bytes that go to 'end' next, all in one page */
    char group[PS_TRACE_PAGE_BYTES];
};

/* Makes the file with 'head', all up to and with the first event, atomically. */
PS_MUST_CHECK enum ps_status ps_trace_file_open(struct ps_trace_file *file,
                                                struct ps_fs *fs, const char *path,
                                                const char *head, size_t size);
/* Adds text that starts with a comma: one event, at most a page. */
PS_MUST_CHECK enum ps_status ps_trace_file_append(struct ps_trace_file *file,
                                                  const char *text, size_t size);
/* What was added is in the file. */
PS_MUST_CHECK enum ps_status ps_trace_file_flush(struct ps_trace_file *file);
/* Flushes, and writes the file anew without room for more, under 'path' (may be the same;
 * an old name goes). */
PS_MUST_CHECK enum ps_status ps_trace_file_compact(struct ps_trace_file *file,
                                                   const char *path);
void ps_trace_file_close(struct ps_trace_file *file); /* closed: fine */

/* ---- the table: trace_table.c ---- */

struct ps_trace_row {
    char name[PS_TRACE_NAME_MAX + 1];
    uint8_t category;
    bool timed; /* values are nanoseconds */
    uint64_t count;
    double total, least, most;
};
struct ps_trace_table {
    struct ps_strmap rows; /* "category kind name" -> row */
    uint64_t not_counted;  /* no memory for a row, or too many names */
};
void ps_trace_table_add(struct ps_trace_table *table, uint8_t category, bool timed,
                        const char *name, size_t name_size, double value);
void ps_trace_table_print(const struct ps_trace_table *table, uint64_t lost, bool json,
                          struct ps_str *out);
void ps_trace_table_clear(struct ps_trace_table *table);
const char *ps_trace_category_name(uint8_t category);

/* ---- the trace ---- */

struct ps_trace {
    struct ps_trace_gate gate; /* first */
    size_t ring_bytes;
    struct ps_clock *clock;
    struct ps_fs *fs;
    struct ps_log *log;
    bool simulated;
    bool in_job; /* the role is not "none" */
    char role[16];
    char table_file[PS_TRACE_PATH_BYTES];
    pthread_key_t key; /* each thread's ring */
    bool key_made;
    _Atomic uint64_t due_ns;
    _Atomic uint64_t next_ids;
    _Atomic uint64_t lost; /* of threads without a ring, and without a file */
    uint64_t zero_ns;      /* time stamps count from here, on the node's clock ... */
    uint64_t zero_wall_ns; /* ... which is this wall time */

    struct ps_mutex lock;
    struct ps_cond wake;
    struct ps_thread writer;
    struct ps_trace_ring *rings PS_GUARDED_BY(lock); /* newest first; freed at the end */
    bool kicked PS_GUARDED_BY(lock);
    bool closing PS_GUARDED_BY(lock);
    bool started PS_GUARDED_BY(lock); /* between start and stop */
    bool paused PS_GUARDED_BY(lock);
    bool ever_started PS_GUARDED_BY(lock);
    int mode PS_GUARDED_BY(lock);
    char file_name[PS_TRACE_PATH_BYTES] PS_GUARDED_BY(lock); /* as set */
    char name[64] PS_GUARDED_BY(lock);                       /* the node's */

    struct ps_mutex drain;
    struct ps_trace_file file PS_GUARDED_BY(drain);
    enum ps_status file_status PS_GUARDED_BY(drain); /* of its last failure */
    struct ps_trace_table table PS_GUARDED_BY(drain);
    struct ps_map out PS_GUARDED_BY(drain); /* id -> time << 1 | 1 of begin or end */
    char label[64] PS_GUARDED_BY(drain);    /* the node's name, when in a job */
    uint32_t pids PS_GUARDED_BY(drain);     /* first process number: of the member */
    uint64_t known[(PS_TRACE_DEVICE_COUNT + 63) / 64] PS_GUARDED_BY(drain);
    uint64_t lost_told PS_GUARDED_BY(drain);
    char text[2048] PS_GUARDED_BY(drain); /* the event being written */
};

/* Calls the writer; on a simulated node, empties the rings. */
void ps_trace_kick(struct ps_trace *trace) PS_EXCLUDES(trace->lock);

/* ---- trace_drain.c ---- */
/* Empties every ring into table and file.  'whole': the file is then written anew without
 * room for more; and there is one when the trace was ever started. */
PS_MUST_CHECK enum ps_status ps_trace_drain(struct ps_trace *trace, bool whole,
                                            struct ps_error *err)
    PS_EXCLUDES(trace->drain);
/* The path to write to: role and rank put into the file's name. */
void ps_trace_path(struct ps_trace *trace, const char *file,
                   char out[PS_TRACE_PATH_BYTES]) PS_EXCLUDES(trace->lock);

#endif
