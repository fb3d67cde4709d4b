/* The output of many processes on one terminal: bytes in, whole lines out.
 *
 * A stream cuts what a process wrote into lines, so that a line is never mixed with
 * another's; a tail remembers the last of them for the report of a failure; a sink is a
 * bounded queue before a descriptor that may be slow.  Nothing here reads or waits.
 * Threads: the launcher's one. */
#ifndef PENSTOCK_DEPLOY_LAUNCH_OUTPUT_H
#define PENSTOCK_DEPLOY_LAUNCH_OUTPUT_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

#define PS_LAUNCH_LINE_BYTES 65536 /* a longer line is cut */
#define PS_LAUNCH_TAIL_LINES 20
#define PS_LAUNCH_TAIL_LINE_BYTES 1024       /* kept of each */
#define PS_LAUNCH_SINK_BYTES (1024U * 1024U) /* from here on processes are not read */

/* A line without its end.  Borrows 'line' until return. */
typedef void ps_launch_line_fn(void *arg, const char *line, size_t size);

/* One stream of one process. */
struct ps_launch_stream {
    struct ps_str partial; /* the line that has not ended yet */
    bool after_cr;         /* the last byte was a carriage return */
};

/* Calls 'emit' for each line that ended: at "\n", "\r\n", or "\r" alone (a progress bar's
 * redraws). Bytes are passed as they are. */
void ps_launch_stream_feed(struct ps_launch_stream *stream, const char *data, size_t size,
                           ps_launch_line_fn *emit, void *arg);
/* The stream ended: a last line without its newline is a line too. */
void ps_launch_stream_flush(struct ps_launch_stream *stream, ps_launch_line_fn *emit,
                            void *arg);
void ps_launch_stream_fini(struct ps_launch_stream *stream);

/* The last lines of a process, both streams in the order they were read. */
struct ps_launch_tail {
    char *lines[PS_LAUNCH_TAIL_LINES];
    size_t next, count;
};
void ps_launch_tail_add(struct ps_launch_tail *tail, const char *line, size_t size);
/* Appends the lines, oldest first, each behind 'indent' and with its newline. */
void ps_launch_tail_print(const struct ps_launch_tail *tail, const char *indent,
                          struct ps_str *out);
void ps_launch_tail_fini(struct ps_launch_tail *tail);

/* Lines waiting for a descriptor. */
struct ps_launch_sink {
    int fd;
    bool colour; /* the descriptor is a terminal */
    bool lost;   /* the reader has gone: what comes is dropped */
    struct ps_str queue;
    size_t written; /* of the queue's front */
};

/* "worker/0: line"; 'index' picks the prefix's colour on a terminal. */
void ps_launch_sink_line(struct ps_launch_sink *sink, const char *name, size_t index,
                         const char *line, size_t size);
bool ps_launch_sink_is_full(const struct ps_launch_sink *sink);
bool ps_launch_sink_is_empty(const struct ps_launch_sink *sink);
/* Writes one piece; call it when poll says that the descriptor can take one.  Pieces are
 * of at most PIPE_BUF bytes, which a writable pipe or terminal takes without blocking. */
void ps_launch_sink_write(struct ps_launch_sink *sink);
void ps_launch_sink_fini(struct ps_launch_sink *sink);

#endif
