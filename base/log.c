/* Log lines: made on the caller's stack, written with one write(2) each, so that lines of
 * several threads and processes never mix.
 *
 * Text that came from a peer may stand in a message: control characters are replaced, so
 * that a message stays one line. */
#include "base/log.h"

#include "base/str.h"
#include "base/thread.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 2048
#define NAME_BYTES 64

static const char *const level_names[] = {"error", "warn",  "info",
                                          "debug", "trace", NULL};
static const char level_letters[] = "EWIDT";

static const char *const room_names[] = {
#define ROOM_NAME(name, text) text,
    PS_ROOM_MAP(ROOM_NAME)
#undef ROOM_NAME
        NULL};

struct ps_log {
    struct ps_log_options options;
    int levels[PS_ROOM_COUNT]; /* constant after creation */
    struct ps_mutex mutex;
    char name[NAME_BYTES] PS_GUARDED_BY(mutex);
};

static int find_name(const char *const *names, const char *word, size_t size)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (strlen(names[i]) == size && strncasecmp(names[i], word, size) == 0) {
            return i;
        }
    }
    return -1;
}

/* One "level" or "room=level" of the spec.  A bare level holds for all rooms that no word
 * names, wherever it stands. */
static enum ps_status parse_word(const char *word, size_t size, int *all,
                                 int levels[PS_ROOM_COUNT], struct ps_error *err)
{
    char list[160];
    const char *equals = memchr(word, '=', size);
    const char *level_word = equals == NULL ? word : equals + 1;
    size_t level_size = size - (size_t)(level_word - word);
    int level = find_name(level_names, level_word, level_size);
    if (level < 0) {
        return ps_error_set(err, PS_EINVAL, "log level '%.*s': want one of %s",
                            (int)PS_MIN(level_size, (size_t)64), level_word,
                            ps_join(level_names, list, sizeof(list)));
    }
    if (equals == NULL) {
        *all = level;
        return PS_OK;
    }
    size_t room_size = (size_t)(equals - word);
    int room = find_name(room_names, word, room_size);
    if (room < 0) {
        return ps_error_set(err, PS_EINVAL, "log room '%.*s': want one of %s",
                            (int)PS_MIN(room_size, (size_t)64), word,
                            ps_join(room_names, list, sizeof(list)));
    }
    levels[room] = level;
    return PS_OK;
}

static enum ps_status parse_spec(const char *spec, int levels[PS_ROOM_COUNT],
                                 struct ps_error *err)
{
    int all = PS_LOG_INFO;
    for (int i = 0; i < PS_ROOM_COUNT; i++) {
        levels[i] = -1;
    }
    for (const char *word = spec; *word != '\0';) {
        size_t size = strcspn(word, ",");
        PS_TRY(parse_word(word, size, &all, levels, err));
        word += size + (word[size] == ',' ? 1 : 0);
    }
    for (int i = 0; i < PS_ROOM_COUNT; i++) {
        levels[i] = levels[i] < 0 ? all : levels[i];
    }
    return PS_OK;
}

enum ps_status ps_log_create(const struct ps_log_options *options,
                             struct ps_log **log_out, struct ps_error *err)
{
    struct ps_log *log = calloc(1, sizeof(*log));
    if (log == NULL) {
        return ps_error_set(err, PS_ENOMEM, "log: out of memory");
    }
    enum ps_status status =
        parse_spec(options->spec == NULL ? "info" : options->spec, log->levels, err);
    if (status != PS_OK) {
        free(log);
        return status;
    }
    log->options = *options;
    log->options.spec = NULL; /* was a borrow */
    if (log->options.clock == NULL) {
        log->options.clock = ps_clock_real();
    }
    ps_mutex_init(&log->mutex);
    ps_log_set_name(log, "node");
    *log_out = log;
    return PS_OK;
}

void ps_log_destroy(struct ps_log *log)
{
    if (log != NULL) {
        ps_mutex_fini(&log->mutex);
        free(log);
    }
}

void ps_log_set_name(struct ps_log *log, const char *name)
{
    ps_mutex_lock(&log->mutex);
    (void)snprintf(log->name, sizeof(log->name), "%s", name);
    ps_mutex_unlock(&log->mutex);
}

bool ps_log_enabled(const struct ps_log *log, enum ps_log_level level, enum ps_room room)
{
    return log != NULL && (int)level <= log->levels[room];
}

/* "2026-12-01T03:27:00.123456Z" */
static void format_time(uint64_t wall_ns, char out[40])
{
    time_t seconds = (time_t)(wall_ns / PS_NS_PER_S);
    unsigned micros = (unsigned)(wall_ns % PS_NS_PER_S / PS_NS_PER_US);
    struct tm tm;
    char date[24];
    if (gmtime_r(&seconds, &tm) == NULL ||
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm) == 0) {
        (void)snprintf(date, sizeof(date), "0000-00-00T00:00:00");
    }
    (void)snprintf(out, 40, "%s.%06uZ", date, micros);
}

static void write_fd(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return; /* nowhere left to complain */
        }
        data += n;
        size -= (size_t)n;
    }
}

static void emit(struct ps_log *log, const char *line, size_t size)
{
    if (log->options.sink != NULL) {
        log->options.sink(log->options.sink_arg, line, size);
    } else if (log->options.fd >= 0) {
        write_fd(log->options.fd, line, size);
    }
}

static void emit_json(struct ps_log *log, const char *stamp, const char *name,
                      enum ps_log_level level, enum ps_room room, const char *text)
{
    struct ps_str line = {0};
    ps_str_printf(&line, "{\"time\":\"%s\",\"level\":\"%s\",\"node\":", stamp,
                  level_names[level]);
    ps_str_json(&line, name);
    ps_str_printf(&line, ",\"room\":\"%s\",\"text\":", room_names[room]);
    ps_str_json(&line, text);
    ps_str_append(&line, "}\n", 2);
    if (!line.failed) {
        emit(log, line.data, line.size);
    }
    ps_str_fini(&line);
}

void ps_log_write(struct ps_log *log, enum ps_log_level level, enum ps_room room,
                  const char *fmt, ...)
{
    char stamp[40];
    char name[NAME_BYTES];
    char text[LINE_BYTES];
    char line[LINE_BYTES + 192]; /* the prefix is at most 40 + 64 + 20 bytes */
    if (log == NULL) {
        return;
    }
    format_time(ps_clock_wall_ns(log->options.clock), stamp);
    ps_mutex_lock(&log->mutex);
    memcpy(name, log->name, sizeof(name));
    ps_mutex_unlock(&log->mutex);

    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (log->options.json) {
        emit_json(log, stamp, name, level, room, text);
        return;
    }
    int size = snprintf(line, sizeof(line) - 1, "%s %c %s %s: %s", stamp,
                        level_letters[level], name, room_names[room], text);
    if (size < 0) {
        return;
    }
    size_t used = PS_MIN((size_t)size, sizeof(line) - 2);
    for (size_t i = 0; i < used; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7F) {
            line[i] = '?';
        }
    }
    line[used] = '\n';
    emit(log, line, used + 1);
}

bool ps_log_limit_pass(struct ps_log *log, struct ps_log_limit *limit,
                       uint64_t *swallowed_out)
{
    uint64_t now = ps_clock_now_ns(log->options.clock);
    uint64_t next = atomic_load_explicit(&limit->next_ns, memory_order_relaxed);
    /* relaxed: one thread wins the exchange and writes the line; the count is a statistic
     */
    if (now < next || !atomic_compare_exchange_strong_explicit(
                          &limit->next_ns, &next, now + PS_NS_PER_S, memory_order_relaxed,
                          memory_order_relaxed)) {
        atomic_fetch_add_explicit(&limit->swallowed, 1, memory_order_relaxed);
        return false;
    }
    *swallowed_out = atomic_exchange_explicit(&limit->swallowed, 0, memory_order_relaxed);
    return true;
}
