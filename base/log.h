/* The log: one write(2) a line, to one file descriptor, with a level per room.
 *
 *   2026-12-01T03:27:00.123456Z I worker/3 net: peer joined member 9 addr tcp://...
 *
 * Text is lower case, `key value` without '=', ids first.  LOG=level[,room=level...] and
 * LOG_FORMAT=text|json choose what is written.  Nothing else in the library prints.
 * Threads: any. */
#ifndef PENSTOCK_BASE_LOG_H
#define PENSTOCK_BASE_LOG_H

#include "base/clock.h"
#include "base/status.h"
#include "base/util.h"

#include <stdatomic.h>

enum ps_log_level { PS_LOG_ERROR, PS_LOG_WARN, PS_LOG_INFO, PS_LOG_DEBUG, PS_LOG_TRACE };

/* The rooms that log; names are the lower-case folder names. */
#define PS_ROOM_MAP(X)        \
    X(BASE, "base")           \
    X(NET, "net")             \
    X(KERNELS, "kernels")     \
    X(ENGINE, "engine")       \
    X(GRAPH, "graph")         \
    X(KVSTORE, "kvstore")     \
    X(SHARD, "shard")         \
    X(SERVER, "server")       \
    X(SCHEDULER, "scheduler") \
    X(WORKER, "worker")       \
    X(API, "api")             \
    X(DEPLOY, "deploy")

enum ps_room {
#define PS_ROOM_ENUM(name, text) PS_ROOM_##name,
    PS_ROOM_MAP(PS_ROOM_ENUM)
#undef PS_ROOM_ENUM
        PS_ROOM_COUNT
};

struct ps_log;

struct ps_log_options {
    int fd;                 /* written to; the log does not close it; -1 keeps no text */
    const char *spec;       /* "info", "warn,net=debug"; NULL = "info" */
    bool json;              /* one JSON object a line */
    struct ps_clock *clock; /* NULL = the real one */
    /* Called with each finished line (with its newline) instead of write(2), when not
     * NULL. */
    void (*sink)(void *arg, const char *line, size_t size);
    void *sink_arg;
};

/* Errors: PS_EINVAL (a bad spec; 'err' names the word), PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_log_create(const struct ps_log_options *options,
                                           struct ps_log **log_out, struct ps_error *err);
void ps_log_destroy(struct ps_log *log);
/* Who writes: "worker/3", "server/0", "scheduler"; copied. */
void ps_log_set_name(struct ps_log *log, const char *name);
bool ps_log_enabled(const struct ps_log *log, enum ps_log_level level, enum ps_room room);
void ps_log_write(struct ps_log *log, enum ps_log_level level, enum ps_room room,
                  const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* PS_LOG(node->log, WARN, NET, "member %u link_seq %u gap", member, seq); a NULL log is
 * silent */
#define PS_LOG(log, level, room, ...)                                         \
    do {                                                                      \
        if (ps_log_enabled((log), PS_LOG_##level, PS_ROOM_##room)) {          \
            ps_log_write((log), PS_LOG_##level, PS_ROOM_##room, __VA_ARGS__); \
        }                                                                     \
    } while (0)

/* For faults that a peer can repeat: at most one line a second for each limiter, with the
 * count of those that were swallowed.  Zero-initialised by its owner. */
struct ps_log_limit {
    _Atomic uint64_t next_ns;
    _Atomic uint64_t swallowed;
};
bool ps_log_limit_pass(struct ps_log *log, struct ps_log_limit *limit,
                       uint64_t *swallowed_out);
#define PS_LOG_LIMITED(log, limit, level, room, fmt, ...)                                \
    do {                                                                                 \
        uint64_t ps_swallowed_;                                                          \
        if (ps_log_enabled((log), PS_LOG_##level, PS_ROOM_##room) &&                     \
            ps_log_limit_pass((log), (limit), &ps_swallowed_)) {                         \
            ps_log_write((log), PS_LOG_##level, PS_ROOM_##room, fmt " (swallowed %llu)", \
                         __VA_ARGS__, (unsigned long long)ps_swallowed_);                \
        }                                                                                \
    } while (0)

#endif
