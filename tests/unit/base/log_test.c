/* The shape of log lines, levels by room, and the limit on repeated ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A clock the test moves. */
struct manual {
    struct ps_clock clock;
    uint64_t now;
};

static uint64_t manual_now(struct ps_clock *clock)
{
    return PS_CONTAINER_OF(clock, struct manual, clock)->now;
}

static uint64_t manual_wall(struct ps_clock *clock)
{
    return UINT64_C(1796095620123456789) + manual_now(clock);
}

struct kept {
    int count;
    char last[4096];
};

static void keep(void *arg, const char *line, size_t size)
{
    struct kept *kept = arg;
    kept->count++;
    assert_true(size < sizeof(kept->last));
    memcpy(kept->last, line, size);
    kept->last[size] = '\0';
}

static struct ps_log *make(const char *spec, bool json, struct manual *manual,
                           struct kept *kept)
{
    struct ps_log *log = NULL;
    struct ps_error err = {0};
    *manual = (struct manual){{manual_now, manual_wall}, 0};
    *kept = (struct kept){0};
    struct ps_log_options options = {.fd = -1,
                                     .spec = spec,
                                     .json = json,
                                     .clock = &manual->clock,
                                     .sink = keep,
                                     .sink_arg = kept};
    if (ps_log_create(&options, &log, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    return log;
}

static void a_line_has_time_level_name_room_and_text(void **state)
{
    struct manual manual;
    struct kept kept;
    (void)state;
    struct ps_log *log = make("info", false, &manual, &kept);
    ps_log_set_name(log, "worker/3");
    PS_LOG(log, INFO, NET, "peer joined member %d addr %s", 9, "tcp://h:1");
    assert_string_equal(
        kept.last, "2026-12-01T03:27:00.123456Z I worker/3 net: peer joined member 9 "
                   "addr tcp://h:1\n");
    PS_LOG(log, ERROR, SHARD, "a\nb\tc\x7f");
    assert_string_equal(kept.last + 28, "E worker/3 shard: a?b?c?\n");
    ps_log_destroy(log);
}

static void a_json_line_is_an_object(void **state)
{
    struct manual manual;
    struct kept kept;
    (void)state;
    struct ps_log *log = make(NULL, true, &manual, &kept);
    PS_LOG(log, WARN, ENGINE, "say \"%s\"", "hi\n");
    assert_string_equal(
        kept.last,
        "{\"time\":\"2026-12-01T03:27:00.123456Z\",\"level\":\"warn\",\"node\":\"node\","
        "\"room\":\"engine\",\"text\":\"say \\\"hi\\n\\\"\"}\n");
    ps_log_destroy(log);
}

static void levels_hold_by_room(void **state)
{
    struct manual manual;
    struct kept kept;
    (void)state;
    struct ps_log *log = make("net=debug,warn,kvstore=TRACE", false, &manual, &kept);
    assert_true(ps_log_enabled(log, PS_LOG_DEBUG, PS_ROOM_NET));
    assert_false(ps_log_enabled(log, PS_LOG_TRACE, PS_ROOM_NET));
    assert_true(ps_log_enabled(log, PS_LOG_TRACE, PS_ROOM_KVSTORE));
    assert_true(ps_log_enabled(log, PS_LOG_WARN, PS_ROOM_API));
    assert_false(ps_log_enabled(log, PS_LOG_INFO, PS_ROOM_API));
    PS_LOG(log, INFO, API, "%s", (kept.count = 99, "never evaluated"));
    assert_int_equal(kept.count, 0);
    PS_LOG((struct ps_log *)NULL, ERROR, API, "silent");
    ps_log_destroy(log);
}

static void a_bad_spec_is_named(void **state)
{
    struct ps_log *log = NULL;
    struct ps_error err;
    (void)state;
    struct ps_log_options options = {.fd = -1, .spec = "info,net=loud"};
    assert_int_equal(ps_log_create(&options, &log, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "'loud'"));
    assert_non_null(strstr(err.text, "error, warn, info, debug, trace"));
    options.spec = "nett=info";
    assert_int_equal(ps_log_create(&options, &log, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "'nett'"));
    assert_null(log);
}

static void repeated_faults_are_limited_to_one_line_a_second(void **state)
{
    struct manual manual;
    struct kept kept;
    struct ps_log_limit limit = {0};
    (void)state;
    struct ps_log *log = make("info", false, &manual, &kept);
    manual.now = 5 * PS_NS_PER_S;
    for (int i = 0; i < 10; i++) {
        PS_LOG_LIMITED(log, &limit, WARN, NET, "bad frame %d", i);
        manual.now += PS_NS_PER_MS;
    }
    assert_int_equal(kept.count, 1);
    manual.now += PS_NS_PER_S;
    PS_LOG_LIMITED(log, &limit, WARN, NET, "bad frame %d", 10);
    assert_int_equal(kept.count, 2);
    assert_string_equal(strstr(kept.last, "bad"), "bad frame 10 (swallowed 9)\n");
    ps_log_destroy(log);
}

static void long_texts_are_cut_and_descriptors_written(void **state)
{
    char text[5000];
    int fds[2];
    struct ps_log *log = NULL;
    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(pipe(fds), 0);
    struct ps_log_options options = {.fd = fds[1]};
    assert_int_equal(ps_log_create(&options, &log, NULL), PS_OK);
    PS_LOG(log, INFO, BASE, "%s", text);
    char line[8192];
    ssize_t n = read(fds[0], line, sizeof(line));
    assert_in_range(n, 2000, 2200);
    assert_int_equal(line[n - 1], '\n');
    ps_log_destroy(log);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_time_level_name_room_and_text),
        cmocka_unit_test(a_json_line_is_an_object),
        cmocka_unit_test(levels_hold_by_room),
        cmocka_unit_test(a_bad_spec_is_named),
        cmocka_unit_test(repeated_faults_are_limited_to_one_line_a_second),
        cmocka_unit_test(long_texts_are_cut_and_descriptors_written),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
