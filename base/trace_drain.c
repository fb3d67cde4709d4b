/* The profiler's drain: from rings to events of the Chrome trace format.
 *
 * Devices are its processes, threads its threads.  Numbers of processes are those of the
 * member of the job times 1024 and the device, so that the files of a job can be put
 * together.  Time stamps are microseconds since the base, a round number of nanoseconds
 * of wall time: small enough that a double holds nanoseconds, the same for all who began
 * within 52 days.  Format: "Trace Event Format" (Google), as Perfetto reads it. */
#include "base/trace_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BASE_NS (UINT64_C(1) << 52) /* 52.1 days; a double holds integers to 2^53 */
enum { MEMBER_PIDS = 1024, MAX_OUT = 65536 };

/* ---- text ---- */

struct text { /* the event being made: trace->text */
    char *at, *end;
};

static void put(struct text *text, const char *words)
{
    size_t size = PS_MIN(strlen(words), (size_t)(text->end - text->at));
    memcpy(text->at, words, size);
    text->at += size;
}

static void put_number(struct text *text, uint64_t number)
{
    char digits[24];
    size_t first = sizeof(digits) - 1;
    digits[first] = '\0';
    do {
        digits[--first] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    put(text, digits + first);
}

/* Nanoseconds as microseconds with three decimals. */
static void put_time(struct text *text, uint64_t ns)
{
    char decimals[5] = {'.', (char)('0' + ns / 100 % 10), (char)('0' + ns / 10 % 10),
                        (char)('0' + ns % 10), '\0'};
    put_number(text, ns / 1000);
    put(text, decimals);
}

static bool is_plain(const char *name, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c < 0x20 || c > 0x7e || c == '"' || c == '\\') {
            return false;
        }
    }
    return true;
}

/* A JSON string with its quotes. */
static void put_name(struct text *text, const char *name, size_t size)
{
    char copy[PS_TRACE_NAME_MAX + 1];
    memcpy(copy, name, size);
    copy[size] = '\0';
    if (is_plain(copy, size)) {
        put(text, "\"");
        put(text, copy);
        put(text, "\"");
        return;
    }
    struct ps_str escaped = {0};
    ps_str_json(&escaped, copy);
    put(text, escaped.failed ? "\"?\"" : ps_str_text(&escaped));
    ps_str_fini(&escaped);
}

/* ---- where it goes ---- */

/* The member's number among all of a job: worker 0, server 0, worker 1, ... ; 0 outside
 * of one. */
static uint32_t member_number(const struct ps_trace *trace, const char *name)
{
    uint64_t rank = 0;
    const char *slash = strchr(name, '/');
    if (!trace->in_job) {
        return 0;
    }
    if (slash == NULL || ps_parse_u64(slash + 1, &rank) != PS_OK || rank > 100000) {
        return 1; /* the scheduler, and who has no rank yet */
    }
    return (uint32_t)(2 * rank + (strncmp(name, "server/", 7) == 0 ? 3 : 2));
}

void ps_trace_path(struct ps_trace *trace, const char *file,
                   char out[PS_TRACE_PATH_BYTES])
{
    char tag[96];
    ps_mutex_lock(&trace->lock);
    if (!trace->in_job) {
        tag[0] = '\0';
    } else if (strchr(trace->name, '/') != NULL || trace->simulated ||
               strcmp(trace->role, "scheduler") == 0) {
        (void)snprintf(tag, sizeof(tag), "-%s", trace->name);
        for (char *c = tag; *c != '\0'; c++) {
            *c = *c == '/' ? '-' : *c;
        }
    } else { /* it never got a rank */
        (void)snprintf(tag, sizeof(tag), "-%s-pid%ld", trace->role, (long)getpid());
    }
    const char *slash = strrchr(file, '/');
    const char *dot = strrchr(file, '.');
    if (dot == NULL || dot == file || (slash != NULL && dot <= slash + 1)) {
        dot = file + strlen(file);
    }
    (void)snprintf(out, PS_TRACE_PATH_BYTES, "%.*s%s%s", (int)(dot - file), file, tag,
                   dot);
    ps_mutex_unlock(&trace->lock);
}

static void keep_failure(struct ps_trace *trace, enum ps_status status)
    PS_REQUIRES(trace->drain)
{
    if (status != PS_OK && trace->file_status == PS_OK) {
        PS_LOG(trace->log, WARN, BASE, "trace file %s: %s, events are lost",
               trace->file.path, ps_status_text(status));
        trace->file_status = status;
    }
}

/* Adds trace->text up to 'text->at' to the file. */
static void append(struct ps_trace *trace, const struct text *text)
    PS_REQUIRES(trace->drain)
{
    if (trace->file_status == PS_OK && trace->file.file != NULL) {
        keep_failure(trace, ps_trace_file_append(&trace->file, trace->text,
                                                 (size_t)(text->at - trace->text)));
    }
    if (trace->file_status != PS_OK || trace->file.file == NULL) {
        atomic_fetch_add_explicit(&trace->lost, 1, memory_order_relaxed);
    }
}

static struct text begin_text(struct ps_trace *trace) PS_REQUIRES(trace->drain)
{
    struct text text = {trace->text, trace->text + sizeof(trace->text)};
    return text;
}

static void put_device(struct text *text, uint32_t device)
{
    if (device >= PS_TRACE_HOST) {
        put(text, "host");
        return;
    }
    put(text, device >= PS_TRACE_GPU ? "gpu/" : "cpu/");
    put_number(text, device % PS_TRACE_GPU);
}

static bool test_and_set(uint64_t *bits, uint32_t bit)
{
    uint64_t mask = UINT64_C(1) << (bit % 64);
    bool was = (bits[bit / 64] & mask) != 0;
    bits[bit / 64] |= mask;
    return was;
}

/* Names the device and the thread at their first event. */
static void introduce(struct ps_trace *trace, struct ps_trace_ring *ring, uint32_t device)
    PS_REQUIRES(trace->drain)
{
    struct text text = begin_text(trace);
    if (!test_and_set(trace->known, device)) {
        put(&text, ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":");
        put_number(&text, trace->pids + device);
        put(&text, ",\"tid\":0,\"args\":{\"name\":\"");
        put(&text, trace->label);
        put(&text, trace->label[0] == '\0' ? "" : " ");
        put_device(&text, device);
        put(&text, "\"}},\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":");
        put_number(&text, trace->pids + device);
        put(&text, ",\"tid\":0,\"args\":{\"sort_index\":");
        put_number(&text, trace->pids + device);
        put(&text, "}}");
        append(trace, &text);
    }
    text = begin_text(trace);
    if (ring != NULL && !test_and_set(ring->named, device)) {
        put(&text, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":");
        put_number(&text, trace->pids + device);
        put(&text, ",\"tid\":");
        put_number(&text, ring->tid);
        put(&text, ",\"args\":{\"name\":");
        put_name(&text, ring->thread_name, strlen(ring->thread_name));
        put(&text, "}}");
        append(trace, &text);
    }
}

/* ---- events ---- */

static void write_event(struct ps_trace *trace, const struct ps_trace_ring *ring,
                        const struct ps_trace_record *record) PS_REQUIRES(trace->drain)
{
    static const char *const phases[] = {[PS_TRACE_SPAN] = "X",
                                         [PS_TRACE_BEGIN] = "b",
                                         [PS_TRACE_END] = "e",
                                         [PS_TRACE_INSTANT] = "i",
                                         [PS_TRACE_COUNTER] = "C"};
    struct text text = begin_text(trace);
    uint64_t time = record->time_ns - PS_MIN(record->time_ns, trace->zero_ns);
    time += trace->zero_wall_ns % BASE_NS;
    put(&text, ",\n{\"name\":");
    put_name(&text, (const char *)(record + 1), record->name_size);
    put(&text, ",\"cat\":\"");
    put(&text, ps_trace_category_name(record->category));
    put(&text, "\",\"ph\":\"");
    put(&text, phases[record->kind]);
    put(&text, "\",\"ts\":");
    put_time(&text, time);
    put(&text, ",\"pid\":");
    put_number(&text, trace->pids + record->device);
    put(&text, ",\"tid\":");
    put_number(&text, ring->tid);
    switch (record->kind) {
    case PS_TRACE_SPAN:
        put(&text, ",\"dur\":");
        put_time(&text, record->u.end_ns - PS_MIN(record->time_ns, record->u.end_ns));
        put(&text, record->failed ? ",\"args\":{\"failed\":true}" : "");
        break;
    case PS_TRACE_BEGIN:
    case PS_TRACE_END: /* a number of a merged file's own: the member's comes first */
        put(&text, ",\"id\":\"");
        put_number(&text, trace->pids);
        put(&text, ".");
        put_number(&text, record->u.id);
        put(&text, "\"");
        break;
    case PS_TRACE_INSTANT:
        put(&text, ",\"s\":\"t\"");
        break;
    default: {
        char value[40];
        (void)snprintf(value, sizeof(value), "%.17g", record->u.value);
        put(&text, ",\"args\":{\"value\":");
        put(&text, value);
        put(&text, "}");
    }
    }
    put(&text, "}");
    append(trace, &text);
}

/* The two ends of asynchronous work, in whichever order they are read. */
static void match(struct ps_trace *trace, const struct ps_trace_record *record)
    PS_REQUIRES(trace->drain)
{
    uintptr_t other = (uintptr_t)ps_map_remove(&trace->out, record->u.id);
    if (other != 0) {
        uint64_t time = record->time_ns, there = (uint64_t)other >> 1;
        ps_trace_table_add(&trace->table, record->category, true,
                           (const char *)(record + 1), record->name_size,
                           (double)(time > there ? time - there : there - time));
        return;
    }
    void *mark = (void *)(uintptr_t)(record->time_ns << 1 | 1);
    if (trace->out.count >= MAX_OUT ||
        ps_map_put(&trace->out, record->u.id, mark, NULL) != PS_OK) {
        trace->table.not_counted++;
    }
}

static void add_to_table(struct ps_trace *trace, const struct ps_trace_record *record)
    PS_REQUIRES(trace->drain)
{
    const char *name = (const char *)(record + 1);
    switch (record->kind) {
    case PS_TRACE_SPAN:
        ps_trace_table_add(
            &trace->table, record->category, true, name, record->name_size,
            (double)(record->u.end_ns - PS_MIN(record->time_ns, record->u.end_ns)));
        break;
    case PS_TRACE_BEGIN:
    case PS_TRACE_END:
        match(trace, record);
        break;
    case PS_TRACE_COUNTER:
        ps_trace_table_add(&trace->table, record->category, false, name,
                           record->name_size, record->u.value);
        break;
    default:
        break;
    }
}

static void drain_ring(struct ps_trace *trace, struct ps_trace_ring *ring)
    PS_REQUIRES(trace->drain)
{
    /* no further than what is there now, or a busy thread would keep us for ever */
    uint64_t until = atomic_load_explicit(&ring->tail, memory_order_acquire);
    for (;;) {
        const struct ps_trace_record *record = ps_trace_peek(ring);
        if (record == NULL ||
            atomic_load_explicit(&ring->head, memory_order_relaxed) >= until) {
            return;
        }
        introduce(trace, ring, record->device);
        write_event(trace, ring, record);
        add_to_table(trace, record);
        ps_trace_pop(ring, record);
    }
}

/* ---- the file ---- */

static void forget_introductions(struct ps_trace *trace, struct ps_trace_ring *rings)
    PS_REQUIRES(trace->drain)
{
    memset(trace->known, 0, sizeof(trace->known));
    ps_mutex_lock(&trace->lock); /* a thread that takes over a ring clears it too */
    for (struct ps_trace_ring *ring = rings; ring != NULL; ring = ring->next) {
        memset(ring->named, 0, sizeof(ring->named));
    }
    ps_mutex_unlock(&trace->lock);
}

static enum ps_status open_file(struct ps_trace *trace, const char *path)
    PS_REQUIRES(trace->drain)
{
    char head[1024];
    int size = snprintf(
        head, sizeof(head),
        "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"producer\":\"penstock %s\","
        "\"base_wall_ns\":\"%" PRIu64 "\",\"begin_wall_ns\":\"%" PRIu64 "\","
        "\"begin_clock_ns\":\"%" PRIu64 "\"},\"traceEvents\":[\n"
        "{\"name\":\"clock\",\"cat\":\"engine\",\"ph\":\"M\",\"pid\":%" PRIu32
        ",\"tid\":0,\"args\":{\"base_wall_ns\":\"%" PRIu64 "\",\"node\":\"%s\"}}",
        PENSTOCK_VERSION, trace->zero_wall_ns / BASE_NS * BASE_NS, trace->zero_wall_ns,
        trace->zero_ns, trace->pids, trace->zero_wall_ns / BASE_NS * BASE_NS,
        trace->label);
    return ps_trace_file_open(&trace->file, trace->fs, path, head, (size_t)size);
}

/* Who the events are of, by now; opens the file, and moves it when its name changed. */
static void prepare_file(struct ps_trace *trace) PS_REQUIRES(trace->drain)
{
    char path[PS_TRACE_PATH_BYTES], file[sizeof(trace->file_name)];
    char name[sizeof(trace->name)];
    ps_mutex_lock(&trace->lock);
    memcpy(file, trace->file_name, sizeof(file));
    memcpy(name, trace->name, sizeof(name));
    struct ps_trace_ring *rings = trace->rings;
    ps_mutex_unlock(&trace->lock);
    ps_trace_path(trace, file, path);
    uint32_t pids = member_number(trace, name) * MEMBER_PIDS;
    if (pids != trace->pids || trace->file.file == NULL) {
        trace->pids = pids;
        (void)snprintf(trace->label, sizeof(trace->label), "%s",
                       trace->in_job ? name : "");
        forget_introductions(trace, rings);
    }
    if (trace->file_status != PS_OK) {
        return;
    }
    if (trace->file.file == NULL) {
        keep_failure(trace, open_file(trace, path));
    } else if (strcmp(path, trace->file.path) != 0) {
        keep_failure(trace, ps_trace_file_compact(&trace->file, path));
    }
}

/* An event for what was lost since the last time. */
static void tell_lost(struct ps_trace *trace, uint64_t lost) PS_REQUIRES(trace->drain)
{
    if (lost == trace->lost_told || trace->file_status != PS_OK) {
        return;
    }
    union {
        struct ps_trace_record record;
        char room[PS_TRACE_RECORD_MAX];
    } event = {.record = {.kind = PS_TRACE_COUNTER,
                          .category = PS_TRACE_ENGINE,
                          .device = PS_TRACE_HOST,
                          .name_size = sizeof("lost events") - 1,
                          .time_ns = ps_clock_now_ns(trace->clock),
                          .u.value = (double)lost}};
    memcpy(event.room + sizeof(event.record), "lost events", sizeof("lost events"));
    const struct ps_trace_ring nobody = {.tid = 0};
    introduce(trace, NULL, PS_TRACE_HOST);
    write_event(trace, &nobody, &event.record);
    trace->lost_told = lost;
}

enum ps_status ps_trace_drain(struct ps_trace *trace, bool whole, struct ps_error *err)
{
    ps_mutex_lock(&trace->drain);
    uint64_t lost = ps_trace_lost(trace);
    ps_mutex_lock(&trace->lock);
    struct ps_trace_ring *rings = trace->rings;
    bool wanted = rings != NULL || (whole && trace->ever_started);
    ps_mutex_unlock(&trace->lock);
    if (wanted) {
        prepare_file(trace);
    }
    for (struct ps_trace_ring *ring = rings; ring != NULL; ring = ring->next) {
        drain_ring(trace, ring);
    }
    if (wanted) {
        tell_lost(trace, lost);
    }
    if (trace->file.file != NULL && trace->file_status == PS_OK) {
        keep_failure(trace, whole ? ps_trace_file_compact(&trace->file, trace->file.path)
                                  : ps_trace_file_flush(&trace->file));
    }
    enum ps_status status = trace->file_status;
    if (status != PS_OK) {
        status = ps_error_set(err, status, "cannot write '%.180s': %s", trace->file.path,
                              ps_status_text(status));
    }
    ps_mutex_unlock(&trace->drain);
    return status;
}
