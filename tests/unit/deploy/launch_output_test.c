/* Output: bytes in whatever pieces become whole lines; nothing is lost, mixed or
 * unbounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "deploy/launch_output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void collect(void *arg, const char *line, size_t size)
{
    struct ps_str *out = arg;
    ps_str_append(out, "[", 1);
    ps_str_append(out, line, size);
    ps_str_append(out, "]", 1);
}

/* The lines of 'text', fed in pieces of at most 'piece' bytes. */
static void expect_lines(const char *text, size_t piece, const char *expected)
{
    struct ps_launch_stream stream = {0};
    struct ps_str out = {0};
    size_t size = strlen(text);
    for (size_t at = 0; at < size; at += piece) {
        ps_launch_stream_feed(&stream, text + at, PS_MIN(piece, size - at), collect,
                              &out);
    }
    ps_launch_stream_flush(&stream, collect, &out);
    assert_string_equal(ps_str_text(&out), expected);
    ps_launch_stream_fini(&stream);
    ps_str_fini(&out);
}

static void lines_do_not_depend_on_how_they_arrive(void **state)
{
    PS_UNUSED(state);
    for (size_t piece = 1; piece < 12; piece++) {
        expect_lines("one\ntwo\n\nthree", piece, "[one][two][][three]");
        expect_lines("a\r\nb\rc\r\n\nd\r", piece, "[a][b][c][][d]");
        expect_lines("\r\r\n\n", piece, "[][][]");
        expect_lines("", piece, "");
        expect_lines("no end", piece, "[no end]");
    }
}

static void a_line_without_end_is_cut(void **state)
{
    PS_UNUSED(state);
    struct ps_launch_stream stream = {0};
    struct ps_str out = {0};
    size_t size = 3 * PS_LAUNCH_LINE_BYTES + 5;
    char *text = malloc(size);
    assert_non_null(text);
    memset(text, 'x', size);
    ps_launch_stream_feed(&stream, text, size, collect, &out);
    ps_launch_stream_flush(&stream, collect, &out);
    assert_int_equal(out.size, size + 2 * 4); /* four pieces in brackets */
    assert_true(stream.partial.capacity <= 2 * PS_LAUNCH_LINE_BYTES);
    free(text);
    ps_launch_stream_fini(&stream);
    ps_str_fini(&out);
}

static void the_tail_keeps_the_last_lines(void **state)
{
    PS_UNUSED(state);
    struct ps_launch_tail tail = {0};
    struct ps_str out = {0};
    ps_launch_tail_print(&tail, "> ", &out);
    assert_string_equal(ps_str_text(&out), "");
    for (int i = 0; i < 50; i++) {
        char line[16];
        int size = snprintf(line, sizeof(line), "line %d", i);
        ps_launch_tail_add(&tail, line, (size_t)size);
    }
    ps_launch_tail_print(&tail, "> ", &out);
    assert_int_equal(strncmp(ps_str_text(&out), "> line 30\n> line 31\n", 20), 0);
    assert_non_null(strstr(ps_str_text(&out), "> line 49\n"));
    assert_null(strstr(ps_str_text(&out), "line 29"));
    ps_str_fini(&out);
    ps_launch_tail_fini(&tail);
}

static void a_sink_writes_prefixed_lines_in_order(void **state)
{
    PS_UNUSED(state);
    int fds[2];
    char got[256];
    assert_int_equal(pipe(fds), 0);
    struct ps_launch_sink sink = {.fd = fds[1]};
    ps_launch_sink_line(&sink, "worker/0", 0, "hello", 5);
    ps_launch_sink_line(&sink, "server/1", 1, "", 0);
    assert_false(ps_launch_sink_is_empty(&sink));
    while (!ps_launch_sink_is_empty(&sink)) {
        ps_launch_sink_write(&sink);
    }
    ssize_t size = read(fds[0], got, sizeof(got) - 1);
    assert_true(size > 0);
    got[size] = '\0';
    assert_string_equal(got, "worker/0: hello\nserver/1: \n");

    sink.colour = true;
    ps_launch_sink_line(&sink, "worker/0", 0, "x", 1);
    ps_launch_sink_write(&sink);
    size = read(fds[0], got, sizeof(got) - 1);
    assert_true(size > 0);
    got[size] = '\0';
    assert_string_equal(got, "\033[36mworker/0:\033[0m x\n");
    ps_launch_sink_fini(&sink);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static void a_full_sink_says_so_and_a_broken_one_drops(void **state)
{
    PS_UNUSED(state);
    int fds[2];
    char line[1000];
    assert_int_equal(pipe(fds), 0);
    struct ps_launch_sink sink = {.fd = fds[1]};
    memset(line, 'y', sizeof(line));
    assert_false(ps_launch_sink_is_full(&sink));
    while (!ps_launch_sink_is_full(&sink)) {
        ps_launch_sink_line(&sink, "w", 0, line, sizeof(line));
    }
    assert_true(sink.queue.size <= PS_LAUNCH_SINK_BYTES + sizeof(line) + 16);
    (void)close(fds[1]);
    sink.fd = -1; /* as if the reader had gone: write fails */
    ps_launch_sink_write(&sink);
    assert_true(sink.lost);
    assert_true(ps_launch_sink_is_empty(&sink));
    ps_launch_sink_line(&sink, "w", 0, line, sizeof(line));
    assert_true(ps_launch_sink_is_empty(&sink));
    ps_launch_sink_fini(&sink);
    (void)close(fds[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_do_not_depend_on_how_they_arrive),
        cmocka_unit_test(a_line_without_end_is_cut),
        cmocka_unit_test(the_tail_keeps_the_last_lines),
        cmocka_unit_test(a_sink_writes_prefixed_lines_in_order),
        cmocka_unit_test(a_full_sink_says_so_and_a_broken_one_drops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
