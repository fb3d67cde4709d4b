/* The profiler: its life, its controls, recording.  The writer is a thread that sleeps
 * until a second has passed or a ring is half full. */
#include "base/trace.h"

#include "base/mem.h"
#include "base/trace_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_BYTES ((size_t)1 << 20)
#define WRITER_NS PS_NS_PER_S
#define DUE_NS (100 * PS_NS_PER_US)

/* ---- lifecycle ---- */

static void set_gate(struct ps_trace *trace) PS_REQUIRES(trace->lock)
{
    uint32_t wanted = 0;
    if (trace->started && !trace->paused) {
        wanted = PS_TRACE_RUNNING | PS_TRACE_SYMBOLIC;
        wanted |= trace->mode == 1 ? PS_TRACE_ALL : 0;
    }
    /* relaxed: see ps_trace_wants */
    atomic_store_explicit(&trace->gate.wanted, wanted, memory_order_relaxed);
}

static void set_name(struct ps_trace *trace, const char *name) PS_REQUIRES(trace->lock)
{
    (void)snprintf(trace->name, sizeof(trace->name), "%s", name);
    for (char *c = trace->name; *c != '\0'; c++) { /* it goes into paths and JSON */
        if (strchr("\"\\", *c) != NULL || *c < ' ' || *c > '~') {
            *c = '_';
        }
    }
}

enum ps_status ps_trace_create(const struct ps_trace_options *options,
                               struct ps_trace **trace_out)
{
    struct ps_trace *trace = ps_mem_calloc(sizeof(*trace));
    if (trace == NULL) {
        return PS_ENOMEM;
    }
    ps_mutex_init(&trace->lock);
    ps_mutex_init(&trace->drain);
    ps_cond_init(&trace->wake);
    trace->ring_bytes = options->ring_bytes != 0 ? options->ring_bytes : RING_BYTES;
    trace->clock = options->clock;
    trace->fs = options->fs;
    trace->log = options->log;
    trace->simulated = options->simulated;
    trace->in_job = strcmp(options->role, "none") != 0;
    (void)snprintf(trace->role, sizeof(trace->role), "%s", options->role);
    (void)snprintf(trace->table_file, sizeof(trace->table_file), "%s", options->table);
    trace->zero_ns = ps_clock_now_ns(trace->clock);
    trace->zero_wall_ns = ps_clock_wall_ns(trace->clock);
    ps_mutex_lock(&trace->lock);
    trace->mode = options->mode;
    (void)snprintf(trace->file_name, sizeof(trace->file_name), "%s", options->file);
    set_name(trace, options->name);
    ps_mutex_unlock(&trace->lock);
    if (options->autostart) {
        enum ps_status status = ps_trace_start(trace);
        if (status != PS_OK) {
            ps_trace_destroy(trace);
            return status;
        }
    }
    *trace_out = trace;
    return PS_OK;
}

/* The lines of 'text', one log line each. */
static void log_lines(struct ps_trace *trace, const char *text)
{
    for (const char *line = text; *line != '\0';) {
        size_t size = strcspn(line, "\n");
        PS_LOG(trace->log, INFO, BASE, "%.*s", (int)size, line);
        line += size + (line[size] == '\n' ? 1 : 0);
    }
}

static void write_table(struct ps_trace *trace)
{
    struct ps_str text = {0};
    struct ps_error err = {.status = PS_OK};
    char path[PS_TRACE_PATH_BYTES];
    const char *file = trace->table_file;
    size_t size = strlen(file);
    if (size == 0) {
        return;
    }
    bool json = size > 5 && strcmp(file + size - 5, ".json") == 0;
    ps_trace_table(trace, json, &text);
    if (text.failed) {
        PS_LOG(trace->log, WARN, BASE, "profiler table: out of memory");
    } else if (strcmp(file, "-") == 0) {
        log_lines(trace, ps_str_text(&text));
    } else {
        ps_trace_path(trace, file, path);
        if (ps_fs_write_all(trace->fs, path, ps_str_text(&text), text.size, &err) !=
            PS_OK) {
            PS_LOG(trace->log, WARN, BASE, "profiler table: %s", err.text);
        }
    }
    ps_str_fini(&text);
}

static void fini(struct ps_trace *trace)
{
    if (trace->key_made) {
        (void)pthread_key_delete(trace->key);
    }
    for (struct ps_trace_ring *ring = trace->rings, *next; ring != NULL; ring = next) {
        next = ring->next;
        free(ring->data);
        ps_mem_free(ring);
    }
    ps_trace_file_close(&trace->file);
    ps_trace_table_clear(&trace->table);
    ps_map_fini(&trace->out);
    ps_cond_fini(&trace->wake);
    ps_mutex_fini(&trace->drain);
    ps_mutex_fini(&trace->lock);
    ps_mem_free(trace);
}

void ps_trace_destroy(struct ps_trace *trace)
{
    if (trace == NULL) {
        return;
    }
    ps_mutex_lock(&trace->lock);
    trace->closing = true;
    trace->started = false;
    set_gate(trace);
    bool ever_started = trace->ever_started;
    ps_cond_signal(&trace->wake);
    ps_mutex_unlock(&trace->lock);
    ps_thread_join(&trace->writer);
    if (ever_started) {
        /* a failure was logged when it came up; nobody is left to be told */
        enum ps_status status = ps_trace_drain(trace, true, NULL);
        PS_UNUSED(status);
        write_table(trace);
    }
    fini(trace);
}

void ps_trace_set_name(struct ps_trace *trace, const char *name)
{
    ps_mutex_lock(&trace->lock);
    set_name(trace, name);
    ps_mutex_unlock(&trace->lock);
}

/* ---- the writer ---- */

void ps_trace_kick(struct ps_trace *trace)
{
    if (trace->simulated) {
        enum ps_status status = ps_trace_drain(trace, false, NULL);
        PS_UNUSED(status); /* as in the destructor */
        return;
    }
    ps_mutex_lock(&trace->lock);
    trace->kicked = true;
    ps_cond_signal(&trace->wake);
    ps_mutex_unlock(&trace->lock);
}

static void writer_main(void *arg)
{
    struct ps_trace *trace = arg;
    struct ps_clock *clock = ps_clock_real();
    ps_mutex_lock(&trace->lock);
    while (!trace->closing) {
        uint64_t deadline = ps_clock_now_ns(clock) + WRITER_NS;
        while (!trace->closing && !trace->kicked &&
               ps_cond_wait_until(&trace->wake, &trace->lock, deadline)) {
        }
        /* a member that has no rank yet will get one, and its file's name with it */
        bool may_wait = !trace->kicked && trace->in_job &&
                        strchr(trace->name, '/') == NULL &&
                        strcmp(trace->role, "scheduler") != 0;
        trace->kicked = false;
        if (trace->closing || may_wait) {
            continue; /* the last drain is ps_trace_destroy's */
        }
        ps_mutex_unlock(&trace->lock);
        enum ps_status status = ps_trace_drain(trace, false, NULL);
        PS_UNUSED(status); /* logged */
        ps_mutex_lock(&trace->lock);
    }
    ps_mutex_unlock(&trace->lock);
}

/* ---- control ---- */

static enum ps_status prepare_start(struct ps_trace *trace) PS_REQUIRES(trace->lock)
{
    if (trace->simulated) {
        return PS_OK;
    }
    if (!trace->key_made) {
        if (pthread_key_create(&trace->key, ps_trace_retire) != 0) {
            return PS_EAGAIN;
        }
        trace->key_made = true;
    }
    return trace->writer.started
               ? PS_OK
               : ps_thread_start(&trace->writer, "ps-trace", writer_main, trace);
}

enum ps_status ps_trace_start(struct ps_trace *trace)
{
    ps_mutex_lock(&trace->lock);
    enum ps_status status = prepare_start(trace);
    if (status == PS_OK) {
        trace->started = true;
        trace->ever_started = true;
        trace->paused = false;
        set_gate(trace);
    }
    ps_mutex_unlock(&trace->lock);
    return status;
}

static void set_paused(struct ps_trace *trace, bool paused)
{
    ps_mutex_lock(&trace->lock);
    trace->paused = paused;
    set_gate(trace);
    ps_mutex_unlock(&trace->lock);
}

void ps_trace_pause(struct ps_trace *trace)
{
    set_paused(trace, true);
}

void ps_trace_resume(struct ps_trace *trace)
{
    set_paused(trace, false);
}

void ps_trace_stop(struct ps_trace *trace)
{
    ps_mutex_lock(&trace->lock);
    trace->started = false;
    set_gate(trace);
    ps_mutex_unlock(&trace->lock);
}

bool ps_trace_is_running(const struct ps_trace *trace)
{
    return ps_trace_wants(trace, PS_TRACE_RUNNING);
}

enum ps_status ps_trace_set_mode(struct ps_trace *trace, int mode)
{
    if (mode != 0 && mode != 1) {
        return PS_EINVAL;
    }
    ps_mutex_lock(&trace->lock);
    trace->mode = mode;
    set_gate(trace);
    ps_mutex_unlock(&trace->lock);
    return PS_OK;
}

enum ps_status ps_trace_set_file(struct ps_trace *trace, const char *file,
                                 struct ps_error *err)
{
    size_t size = strlen(file);
    if (size == 0 || size > PS_TRACE_FILE_MAX) {
        return ps_error_set(err, PS_EINVAL,
                            "profiler file: %zu bytes, want a path of 1 to %d", size,
                            PS_TRACE_FILE_MAX);
    }
    ps_mutex_lock(&trace->drain);
    bool is_open = trace->file.file != NULL;
    ps_mutex_unlock(&trace->drain);
    enum ps_status status = is_open ? ps_trace_drain(trace, true, err) : PS_OK;
    ps_mutex_lock(&trace->drain);
    ps_trace_file_close(&trace->file);
    trace->file_status = PS_OK;
    ps_mutex_lock(&trace->lock);
    (void)snprintf(trace->file_name, sizeof(trace->file_name), "%s", file);
    ps_mutex_unlock(&trace->lock);
    ps_mutex_unlock(&trace->drain);
    return status;
}

enum ps_status ps_trace_dump(struct ps_trace *trace, struct ps_error *err)
{
    return ps_trace_drain(trace, true, err);
}

void ps_trace_table(struct ps_trace *trace, bool json, struct ps_str *out)
{
    enum ps_status status = ps_trace_drain(trace, false, NULL);
    PS_UNUSED(status); /* of the file; the table is complete */
    uint64_t lost = ps_trace_lost(trace);
    ps_mutex_lock(&trace->drain);
    ps_trace_table_print(&trace->table, lost, json, out);
    ps_mutex_unlock(&trace->drain);
}

uint64_t ps_trace_lost(struct ps_trace *trace)
{
    uint64_t lost = atomic_load_explicit(&trace->lost, memory_order_relaxed);
    ps_mutex_lock(&trace->lock);
    for (struct ps_trace_ring *ring = trace->rings; ring != NULL; ring = ring->next) {
        lost += atomic_load_explicit(&ring->lost, memory_order_relaxed);
    }
    ps_mutex_unlock(&trace->lock);
    return lost;
}

/* ---- recording ---- */

uint64_t ps_trace_now(struct ps_trace *trace)
{
    return ps_clock_now_ns(trace->clock);
}

/* Fills all but 'time_ns' and 'u'; NULL when it is lost. */
static struct ps_trace_record *record(struct ps_trace *trace, enum ps_trace_kind kind,
                                      enum ps_trace_category category, uint32_t device,
                                      const char *name, struct ps_trace_ring **ring_out)
{
    size_t name_size = strnlen(name, PS_TRACE_NAME_MAX);
    size_t size = ps_align_up(sizeof(struct ps_trace_record) + name_size, 8);
    struct ps_trace_record *made =
        ps_trace_reserve(trace, size, kind == PS_TRACE_SPAN, ring_out);
    if (made == NULL) {
        return NULL;
    }
    made->size = (uint16_t)size;
    made->kind = (uint8_t)kind;
    made->category = (uint8_t)category;
    made->device = (uint16_t)PS_MIN(device, PS_TRACE_HOST);
    made->name_size = (uint8_t)name_size;
    made->failed = false;
    memcpy(made + 1, name, name_size);
    return made;
}

void ps_trace_add(struct ps_trace *trace, const struct ps_trace_span *span)
{
    struct ps_trace_ring *ring;
    struct ps_trace_record *made =
        record(trace, PS_TRACE_SPAN, span->category, span->device, span->name, &ring);
    if (made != NULL) {
        made->time_ns = span->begin_ns;
        made->u.end_ns = span->end_ns;
        made->failed = span->failed;
        ps_trace_publish(ring, made);
    }
}

static void add_end(struct ps_trace *trace, enum ps_trace_kind kind,
                    enum ps_trace_category category, uint32_t device, const char *name,
                    uint64_t id)
{
    struct ps_trace_ring *ring;
    uint64_t now = ps_trace_now(trace);
    struct ps_trace_record *made = record(trace, kind, category, device, name, &ring);
    if (made != NULL) {
        made->time_ns = now;
        made->u.id = id;
        ps_trace_publish(ring, made);
    }
}

void ps_trace_begin(struct ps_trace *trace, enum ps_trace_category category,
                    uint32_t device, const char *name, uint64_t id)
{
    add_end(trace, PS_TRACE_BEGIN, category, device, name, id);
}

void ps_trace_end(struct ps_trace *trace, enum ps_trace_category category,
                  uint32_t device, const char *name, uint64_t id)
{
    add_end(trace, PS_TRACE_END, category, device, name, id);
}

void ps_trace_instant(struct ps_trace *trace, uint32_t device, const char *name)
{
    add_end(trace, PS_TRACE_INSTANT, PS_TRACE_USER, device, name, 0);
}

void ps_trace_count(struct ps_trace *trace, enum ps_trace_category category,
                    uint32_t device, const char *name, double value)
{
    struct ps_trace_ring *ring;
    uint64_t now = ps_trace_now(trace);
    struct ps_trace_record *made =
        record(trace, PS_TRACE_COUNTER, category, device, name, &ring);
    if (made != NULL) {
        made->time_ns = now;
        made->u.value = value;
        ps_trace_publish(ring, made);
    }
}

uint64_t ps_trace_ids(struct ps_trace *trace)
{
    return atomic_fetch_add_explicit(&trace->next_ids, 1, memory_order_relaxed) << 40;
}

bool ps_trace_is_due(struct ps_trace *trace, uint64_t now_ns)
{
    /* relaxed: one counter more or less is nothing */
    uint64_t due = atomic_load_explicit(&trace->due_ns, memory_order_relaxed);
    return now_ns >= due && atomic_compare_exchange_strong_explicit(
                                &trace->due_ns, &due, now_ns + DUE_NS,
                                memory_order_relaxed, memory_order_relaxed);
}
