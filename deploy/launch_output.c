/* Streams, tails and sinks of launch_output.h.  Memory is bounded: a line, the tail and
 * the queue each have a limit, and out of memory loses output but never the job. */
#include "deploy/launch_output.h"

#include "base/util.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void emit_partial(struct ps_launch_stream *stream, ps_launch_line_fn *emit,
                         void *arg)
{
    emit(arg, ps_str_text(&stream->partial), stream->partial.size);
    stream->partial.size = 0;
    stream->partial.failed = false;
    if (stream->partial.data) {
        stream->partial.data[0] = '\0';
    }
}

void ps_launch_stream_feed(struct ps_launch_stream *stream, const char *data, size_t size,
                           ps_launch_line_fn *emit, void *arg)
{
    while (size) {
        if (stream->after_cr) {
            /* The line ended with the '\r'; a '\n' right behind it belongs to it. */
            stream->after_cr = false;
            if (*data == '\n') {
                data++;
                size--;
                continue;
            }
        }
        size_t run = 0;
        size_t room = PS_LAUNCH_LINE_BYTES - stream->partial.size;
        while (run < size && run < room && data[run] != '\n' && data[run] != '\r') {
            run++;
        }
        ps_str_append(&stream->partial, data, run);
        data += run;
        size -= run;
        if (run == room) {
            emit_partial(stream, emit, arg);
        } else if (size) {
            stream->after_cr = *data == '\r';
            emit_partial(stream, emit, arg);
            data++;
            size--;
        }
    }
}

void ps_launch_stream_flush(struct ps_launch_stream *stream, ps_launch_line_fn *emit,
                            void *arg)
{
    if (stream->partial.size) {
        emit_partial(stream, emit, arg);
    }
    stream->after_cr = false;
}

void ps_launch_stream_fini(struct ps_launch_stream *stream)
{
    ps_str_fini(&stream->partial);
}

void ps_launch_tail_add(struct ps_launch_tail *tail, const char *line, size_t size)
{
    size_t kept = PS_MIN(size, (size_t)PS_LAUNCH_TAIL_LINE_BYTES);
    char *copy = malloc(kept + 1);
    if (!copy) {
        return;
    }
    memcpy(copy, line, kept);
    copy[kept] = '\0';
    free(tail->lines[tail->next]);
    tail->lines[tail->next] = copy;
    tail->next = (tail->next + 1) % PS_LAUNCH_TAIL_LINES;
    tail->count = PS_MIN(tail->count + 1, (size_t)PS_LAUNCH_TAIL_LINES);
}

void ps_launch_tail_print(const struct ps_launch_tail *tail, const char *indent,
                          struct ps_str *out)
{
    size_t first =
        (tail->next + PS_LAUNCH_TAIL_LINES - tail->count) % PS_LAUNCH_TAIL_LINES;
    for (size_t i = 0; i < tail->count; i++) {
        const char *line = tail->lines[(first + i) % PS_LAUNCH_TAIL_LINES];
        ps_str_printf(out, "%s%s\n", indent, line);
    }
}

void ps_launch_tail_fini(struct ps_launch_tail *tail)
{
    for (size_t i = 0; i < PS_LAUNCH_TAIL_LINES; i++) {
        free(tail->lines[i]);
    }
    *tail = (struct ps_launch_tail){0};
}

void ps_launch_sink_line(struct ps_launch_sink *sink, const char *name, size_t index,
                         const char *line, size_t size)
{
    /* The six colours that are legible on light and dark terminals. */
    static const char *const colours[] = {"36", "33", "32", "35", "34", "31"};
    if (sink->lost) {
        return;
    }
    if (sink->colour) {
        ps_str_printf(&sink->queue, "\033[%sm%s:\033[0m ",
                      colours[index % PS_COUNT(colours)], name);
    } else {
        ps_str_printf(&sink->queue, "%s: ", name);
    }
    ps_str_append(&sink->queue, line, size);
    ps_str_append(&sink->queue, "\n", 1);
}

bool ps_launch_sink_is_full(const struct ps_launch_sink *sink)
{
    return sink->queue.size - sink->written >= PS_LAUNCH_SINK_BYTES;
}

bool ps_launch_sink_is_empty(const struct ps_launch_sink *sink)
{
    return sink->queue.size == sink->written;
}

void ps_launch_sink_write(struct ps_launch_sink *sink)
{
    size_t size = PS_MIN(sink->queue.size - sink->written, (size_t)PIPE_BUF);
    if (size == 0) {
        return;
    }
    ssize_t done = write(sink->fd, sink->queue.data + sink->written, size);
    if (done >= 0) {
        sink->written += (size_t)done;
    } else if (errno != EINTR && errno != EAGAIN) {
        sink->lost = true; /* a closed pipe or a full disk ends the output, not the job */
        sink->written = sink->queue.size;
    }
    if (sink->written == sink->queue.size) {
        ps_str_fini(&sink->queue);
        sink->written = 0;
    }
}

void ps_launch_sink_fini(struct ps_launch_sink *sink)
{
    ps_str_fini(&sink->queue);
    sink->written = 0;
}
