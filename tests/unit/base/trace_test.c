/* The profiler: recording, the file, the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/node.h"
#include "base/thread.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A clock that moves a microsecond at each reading. */
struct steps {
    struct ps_clock clock;
    uint64_t now;
};

static uint64_t step_now(struct ps_clock *clock)
{
    struct steps *steps = (struct steps *)clock;
    return steps->now += 1000;
}

static uint64_t step_wall(struct ps_clock *clock)
{
    (void)clock;
    return (UINT64_C(400) << 52) + 5000;
}

struct fixture {
    struct steps steps;
    struct ps_fs *fs;
    struct ps_log *log;
    struct ps_trace *trace;
};

/* A trace on files in memory, without a writer thread unless 'real'. */
static void open_trace(struct fixture *f, struct ps_trace_options options, bool real)
{
    struct ps_log_options log_options = {.fd = -1};
    *f = (struct fixture){.steps = {.clock = {step_now, step_wall}}};
    assert_int_equal(ps_log_create(&log_options, &f->log, NULL), PS_OK);
    assert_int_equal(ps_fs_sim_create(&f->fs), PS_OK);
    options.clock = real ? ps_clock_real() : &f->steps.clock;
    options.fs = f->fs;
    options.log = f->log;
    options.role = options.role == NULL ? "none" : options.role;
    options.name = options.name == NULL ? "node" : options.name;
    options.file = options.file == NULL ? "profile.json" : options.file;
    options.table = options.table == NULL ? "" : options.table;
    options.autostart = true;
    options.simulated = !real;
    assert_int_equal(ps_trace_create(&options, &f->trace), PS_OK);
}

static void close_trace(struct fixture *f)
{
    ps_trace_destroy(f->trace);
    ps_fs_sim_destroy(f->fs);
    ps_log_destroy(f->log);
}

static json_t *read_json(struct ps_fs *fs, const char *path)
{
    char *data = NULL;
    size_t size = 0;
    json_error_t error;
    assert_int_equal(ps_fs_read_all(fs, path, SIZE_MAX, &data, &size, NULL), PS_OK);
    json_t *root = json_loadb(data, size, 0, &error);
    if (root == NULL) {
        fail_msg("%s: %s at byte %d of %zu", path, error.text, error.position, size);
    }
    free(data);
    return root;
}

/* Events of the file that have this phase and (unless NULL) this name. */
static size_t count_events(json_t *root, const char *phase, const char *name)
{
    size_t count = 0, i;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const char *has = json_string_value(json_object_get(event, "ph"));
        const char *is = json_string_value(json_object_get(event, "name"));
        assert_non_null(has);
        assert_non_null(is);
        count += strcmp(has, phase) == 0 && (name == NULL || strcmp(is, name) == 0);
    }
    return count;
}

static json_t *find_event(json_t *root, const char *name)
{
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(json_string_value(json_object_get(event, "name")), name) == 0) {
            return event;
        }
    }
    fail_msg("no event '%s'", name);
    return NULL;
}

static size_t count_in_file(struct fixture *f, const char *phase, const char *name)
{
    json_t *root = read_json(f->fs, "profile.json");
    size_t count = count_events(root, phase, name);
    json_decref(root);
    return count;
}

static void span(struct fixture *f, const char *name, uint64_t begin, uint64_t end)
{
    const struct ps_trace_span span = {.name = name,
                                       .category = PS_TRACE_OPERATOR,
                                       .device = PS_TRACE_GPU + 1,
                                       .begin_ns = begin,
                                       .end_ns = end};
    ps_trace_add(f->trace, &span);
}

static void a_span_is_one_event_with_its_times(void **state)
{
    struct fixture f;
    (void)state;
    open_trace(&f, (struct ps_trace_options){.mode = 0}, false);
    span(&f, "conv", 1000, 3001); /* the trace began at 1000 */
    assert_int_equal(ps_trace_dump(f.trace, NULL), PS_OK);
    json_t *root = read_json(f.fs, "profile.json");
    assert_string_equal(json_string_value(json_object_get(root, "displayTimeUnit")),
                        "ns");
    assert_int_equal(count_events(root, "X", NULL), 1);
    json_t *event = find_event(root, "conv");
    /* the wall clock says 5000 ns past the base */
    assert_true(json_number_value(json_object_get(event, "ts")) == 5.0);
    assert_true(json_number_value(json_object_get(event, "dur")) == 2.001);
    assert_int_equal(json_integer_value(json_object_get(event, "pid")), 257);
    assert_string_equal(json_string_value(json_object_get(event, "cat")), "operator");
    json_t *process = json_object_get(find_event(root, "process_name"), "args");
    assert_string_equal(json_string_value(json_object_get(process, "name")), "gpu/1");
    assert_int_equal(count_events(root, "M", "thread_name"), 1);
    json_decref(root);
    close_trace(&f);
}

static void names_are_escaped_and_cut(void **state)
{
    struct fixture f;
    char name[400];
    (void)state;
    open_trace(&f, (struct ps_trace_options){.mode = 0}, false);
    span(&f, "[a,b]", 0, 1);
    span(&f, "quote\" back\\ line\n bad\xff", 0, 1);
    span(&f, "", 0, 1);
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    span(&f, name, 0, 1);
    memset(name, '\x01', sizeof(name) - 1);
    span(&f, name, 0, 1);
    assert_int_equal(ps_trace_dump(f.trace, NULL), PS_OK);
    json_t *root = read_json(f.fs, "profile.json");
    assert_int_equal(count_events(root, "X", "[a,b]"), 1);
    assert_int_equal(count_events(root, "X", "quote\" back\\ line\n bad\xef\xbf\xbd"), 1);
    assert_int_equal(count_events(root, "X", ""), 1);
    memset(name, 'x', sizeof(name));
    name[127] = '\0';
    assert_int_equal(count_events(root, "X", name), 1);
    assert_int_equal(count_events(root, "X", NULL), 5);
    json_decref(root);
    close_trace(&f);
}

static void counters_instants_and_async_ends_have_their_phases(void **state)
{
    struct fixture f;
    (void)state;
    open_trace(&f, (struct ps_trace_options){.mode = 0}, false);
    ps_trace_count(f.trace, PS_TRACE_MEMORY, PS_TRACE_GPU, "memory used", 4096);
    ps_trace_instant(f.trace, PS_TRACE_HOST, "here");
    ps_trace_begin(f.trace, PS_TRACE_COMMUNICATION, 0, "push", 9);
    ps_trace_end(f.trace, PS_TRACE_COMMUNICATION, 0, "push", 9);
    assert_int_equal(ps_trace_dump(f.trace, NULL), PS_OK);
    json_t *root = read_json(f.fs, "profile.json");
    json_t *counter = find_event(root, "memory used");
    assert_true(json_number_value(
                    json_object_get(json_object_get(counter, "args"), "value")) == 4096);
    assert_int_equal(count_events(root, "C", NULL), 1);
    assert_int_equal(count_events(root, "i", "here"), 1);
    assert_int_equal(count_events(root, "b", "push"), 1);
    assert_int_equal(count_events(root, "e", "push"), 1);
    json_decref(root);
    close_trace(&f);
}

static void a_paused_trace_wants_nothing(void **state)
{
    struct fixture f;
    (void)state;
    open_trace(&f, (struct ps_trace_options){.mode = 1}, false);
    assert_true(ps_trace_wants(f.trace, PS_TRACE_SYMBOLIC));
    assert_true(ps_trace_wants(f.trace, PS_TRACE_ALL));
    ps_trace_pause(f.trace);
    assert_false(ps_trace_wants(f.trace, PS_TRACE_SYMBOLIC | PS_TRACE_ALL));
    assert_false(ps_trace_is_running(f.trace));
    ps_trace_resume(f.trace);
    assert_true(ps_trace_is_running(f.trace));
    assert_int_equal(ps_trace_set_mode(f.trace, 0), PS_OK);
    assert_true(ps_trace_wants(f.trace, PS_TRACE_SYMBOLIC));
    assert_false(ps_trace_wants(f.trace, PS_TRACE_ALL));
    assert_int_equal(ps_trace_set_mode(f.trace, 2), PS_EINVAL);
    ps_trace_stop(f.trace);
    ps_trace_resume(f.trace);
    assert_false(ps_trace_is_running(f.trace));
    assert_int_equal(ps_trace_start(f.trace), PS_OK);
    assert_true(ps_trace_is_running(f.trace));
    close_trace(&f);
}

static void every_dump_holds_more(void **state)
{
    struct fixture f;
    uint64_t size = 0, last = 0;
    (void)state;
    open_trace(&f, (struct ps_trace_options){.mode = 0}, false);
    for (size_t round = 1; round <= 5; round++) {
        for (int i = 0; i < 100; i++) {
            span(&f, "op", 0, 1);
        }
        assert_int_equal(ps_trace_dump(f.trace, NULL), PS_OK);
        assert_int_equal(count_in_file(&f, "X", "op"), 100 * round);
        assert_int_equal(ps_fs_size(f.fs, "profile.json", &size), PS_OK);
        assert_true(size > last);
        last = size;
    }
    close_trace(&f);
}

static void the_file_is_whole_after_every_write(void **state)
{
    struct fixture f;
    (void)state;
    /* a small ring, so that it is emptied all the time; over many pages and growths */
    open_trace(&f, (struct ps_trace_options){.mode = 0, .ring_bytes = 4096}, false);
    size_t events = 0;
    for (int round = 0; round < 120; round++) {
        for (int i = 0; i < 40; i++, events++) {
            char name[64];
            (void)snprintf(name, sizeof(name), "op %d %.*s", i, i,
                           "a name that gets longer and longer, byte by byte");
            span(&f, name, 0, 1);
        }
        if (round > 0) {
            json_decref(read_json(f.fs, "profile.json"));
        }
    }
    assert_int_equal(ps_trace_dump(f.trace, NULL), PS_OK);
    assert_int_equal(count_in_file(&f, "X", NULL), events);
    close_trace(&f);
}

/* Each grows its file over several pages in turns with the other. */
static void two_programs_that_write_one_file_leave_that_of_one_of_them_whole(void **state)
{
    struct fixture f, other;
    (void)state;
    open_trace(&f, (struct ps_trace_options){.ring_bytes = 4096}, false);
    open_trace(&other, (struct ps_trace_options){.ring_bytes = 4096}, false);
    const struct ps_trace_options options = {.clock = &other.steps.clock,
                                             .fs = f.fs,
                                             .log = other.log,
                                             .role = "none",
                                             .name = "node",
                                             .file = "profile.json",
                                             .table = "",
                                             .autostart = true,
                                             .simulated = true,
                                             .ring_bytes = 4096};
    ps_trace_destroy(other.trace);
    assert_int_equal(ps_trace_create(&options, &other.trace), PS_OK);
    for (int i = 0; i < 3000; i++) {
        span(&f, "one", 0, 1);
        span(&other, i % 3 == 0 ? "another of a longer name" : "another", 0, 1);
        if (i % 100 == 99) {
            json_decref(read_json(f.fs, "profile.json"));
        }
    }
    assert_int_equal(ps_trace_dump(f.trace, NULL), PS_OK);
    assert_int_equal(count_in_file(&f, "X", "one"), 3000);
    assert_int_equal(ps_trace_dump(other.trace, NULL), PS_OK);
    assert_int_equal(count_in_file(&f, "X", NULL), 3000);
    assert_int_equal(count_in_file(&f, "X", "one"), 0);
    assert_int_equal(ps_trace_lost(f.trace), 0);
    assert_int_equal(ps_trace_lost(other.trace), 0);
    close_trace(&other);
    close_trace(&f);
}

static void the_table_counts_exactly(void **state)
{
    struct fixture f;
    struct ps_str text = {0}, json = {0};
    (void)state;
    open_trace(&f, (struct ps_trace_options){.mode = 0}, false);
    span(&f, "sqrt", 0, 2000000);
    span(&f, "_plus_scalar", 0, 1000000);
    span(&f, "_plus_scalar", 0, 3000000);
    ps_trace_count(f.trace, PS_TRACE_MEMORY, 0, "memory used", 10);
    ps_trace_count(f.trace, PS_TRACE_MEMORY, 0, "memory used", 30);
    ps_trace_begin(f.trace, PS_TRACE_COMMUNICATION, 0, "pull", 1);
    ps_trace_end(f.trace, PS_TRACE_COMMUNICATION, 0, "pull", 1);
    ps_trace_table(f.trace, true, &json);
    json_t *root = json_loads(ps_str_text(&json), 0, NULL);
    assert_non_null(root);
    json_t *times = json_object_get(json_object_get(root, "Time"), "operator");
    json_t *sqrt_row = json_object_get(times, "sqrt");
    json_t *plus = json_object_get(times, "_plus_scalar");
    assert_int_equal(json_integer_value(json_object_get(sqrt_row, "Count")), 1);
    assert_int_equal(json_integer_value(json_object_get(plus, "Count")), 2);
    assert_true(json_number_value(json_object_get(plus, "Total")) == 4.0);
    assert_true(json_number_value(json_object_get(plus, "Min")) == 1.0);
    assert_true(json_number_value(json_object_get(plus, "Max")) == 3.0);
    assert_true(json_number_value(json_object_get(plus, "Avg")) == 2.0);
    json_t *pull = json_object_get(
        json_object_get(json_object_get(root, "Time"), "communication"), "pull");
    assert_true(json_number_value(json_object_get(pull, "Total")) == 0.001);
    json_t *memory = json_object_get(
        json_object_get(json_object_get(root, "Memory"), "memory"), "memory used");
    assert_true(json_number_value(json_object_get(memory, "Avg")) == 20.0);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(root, "Unit"), "Time")), "ms");
    ps_trace_table(f.trace, false, &text);
    assert_non_null(strstr(ps_str_text(&text), "_plus_scalar"));
    assert_non_null(strstr(ps_str_text(&text), "4000.000"));
    json_decref(root);
    ps_str_fini(&text);
    ps_str_fini(&json);
    close_trace(&f);
}

static void a_full_ring_loses_counted_events_and_no_memory(void **state)
{
    struct fixture f;
    (void)state;
    open_trace(&f, (struct ps_trace_options){.mode = 0, .ring_bytes = 4096}, true);
    /* nobody writes: the disk is full, and instants do not wait */
    ps_fs_sim_set_capacity(f.fs, 0);
    for (int i = 0; i < 100000; i++) {
        ps_trace_instant(f.trace, PS_TRACE_HOST, "instant");
    }
    struct ps_error err = {.text = ""};
    assert_int_equal(ps_trace_dump(f.trace, &err), PS_EFULL);
    assert_non_null(strstr(err.text, "profile.json"));
    assert_true(ps_trace_lost(f.trace) >= 100000);
    struct ps_str text = {0};
    ps_trace_table(f.trace, false, &text);
    assert_non_null(strstr(ps_str_text(&text), "lost"));
    ps_str_fini(&text);
    close_trace(&f);
}

static void a_full_ring_of_spans_is_emptied_and_loses_nothing(void **state)
{
    struct fixture f;
    (void)state;
    open_trace(&f, (struct ps_trace_options){.mode = 0, .ring_bytes = 4096}, true);
    for (int i = 0; i < 20000; i++) {
        span(&f, "op", 0, 1);
    }
    assert_int_equal(ps_trace_dump(f.trace, NULL), PS_OK);
    assert_int_equal(ps_trace_lost(f.trace), 0);
    assert_int_equal(count_in_file(&f, "X", "op"), 20000);
    close_trace(&f);
}

static void record_many(void *arg)
{
    for (int i = 0; i < 5000; i++) {
        span(arg, "op", 0, 1);
    }
}

static void threads_record_at_once_and_their_rings_are_used_again(void **state)
{
    struct fixture f;
    struct ps_thread threads[4];
    (void)state;
    open_trace(&f, (struct ps_trace_options){.mode = 0, .ring_bytes = 32768}, true);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < PS_COUNT(threads); i++) {
            assert_int_equal(ps_thread_start(&threads[i], "recorder", record_many, &f),
                             PS_OK);
        }
        for (size_t i = 0; i < PS_COUNT(threads); i++) {
            ps_thread_join(&threads[i]);
        }
    }
    assert_int_equal(ps_trace_dump(f.trace, NULL), PS_OK);
    assert_int_equal(ps_trace_lost(f.trace), 0);
    assert_int_equal(count_in_file(&f, "X", "op"), 3 * 4 * 5000);
    assert_int_equal(count_in_file(&f, "M", "thread_name"), 3 * 4);
    close_trace(&f);
}

static void a_members_file_carries_role_and_rank(void **state)
{
    struct fixture f;
    (void)state;
    open_trace(&f,
               (struct ps_trace_options){
                   .role = "worker", .name = "worker", .file = "out/run.1.json"},
               false);
    span(&f, "early", 0, 1);
    assert_int_equal(ps_trace_dump(f.trace, NULL), PS_OK);
    assert_true(ps_fs_exists(f.fs, "out/run.1-worker.json"));
    ps_trace_set_name(f.trace, "worker/3");
    span(&f, "late", 0, 1);
    assert_int_equal(ps_trace_dump(f.trace, NULL), PS_OK);
    assert_false(ps_fs_exists(f.fs, "out/run.1-worker.json"));
    json_t *root = read_json(f.fs, "out/run.1-worker-3.json");
    assert_int_equal(count_events(root, "X", NULL), 2);
    json_t *late = find_event(root, "late");
    assert_int_equal(json_integer_value(json_object_get(late, "pid")), 8 * 1024 + 257);
    json_decref(root);
    close_trace(&f);
}

static void another_file_takes_what_follows(void **state)
{
    struct fixture f;
    struct ps_error err = {.text = ""};
    (void)state;
    open_trace(&f, (struct ps_trace_options){.mode = 0}, false);
    span(&f, "one", 0, 1);
    assert_int_equal(ps_trace_dump(f.trace, NULL), PS_OK);
    span(&f, "two", 0, 1);
    assert_int_equal(ps_trace_set_file(f.trace, "b", &err), PS_OK);
    span(&f, "three", 0, 1);
    assert_int_equal(ps_trace_dump(f.trace, NULL), PS_OK);
    assert_int_equal(count_in_file(&f, "X", NULL), 2);
    json_t *root = read_json(f.fs, "b");
    assert_int_equal(count_events(root, "X", NULL), 1);
    assert_int_equal(count_events(root, "M", "process_name"), 1);
    json_decref(root);
    assert_int_equal(ps_trace_set_file(f.trace, "", &err), PS_EINVAL);
    close_trace(&f);
}

static struct ps_node *open_node(const char *const *overrides)
{
    static const char *const env[] = {NULL};
    const struct ps_node_options options = {
        .name = "node", .env = env, .overrides = overrides, .log_fd = -1};
    struct ps_node *node = NULL;
    struct ps_error err = {.text = ""};
    if (ps_node_open(&options, &node, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    return node;
}

static void setting_profiler_autostart_leaves_a_file_at_close(void **state)
{
    char path[64], setting[96];
    (void)state;
    for (int on = 0; on <= 1; on++) {
        char directory[] = "/tmp/trace_test_XXXXXX";
        assert_non_null(mkdtemp(directory));
        (void)snprintf(path, sizeof(path), "%s/profile.json", directory);
        (void)snprintf(setting, sizeof(setting), "PROFILER_FILE=%s", path);
        const char *const overrides[] = {
            setting, on ? "PROFILER_AUTOSTART=1" : "PROFILER_AUTOSTART=0", NULL};
        struct ps_node *node = open_node(overrides);
        assert_int_equal(ps_trace_is_running(node->trace), on);
        ps_node_close(node);
        assert_int_equal(access(path, F_OK) == 0, on);
        if (on) {
            json_decref(read_json(ps_fs_real(), path));
            assert_int_equal(unlink(path), 0);
        }
        assert_int_equal(rmdir(directory), 0); /* nothing else is left in it */
    }
}

static void setting_profiler_mode_says_what_is_wanted(void **state)
{
    (void)state;
    for (int mode = 0; mode <= 1; mode++) {
        const char *const overrides[] = {mode ? "PROFILER_MODE=1" : "PROFILER_MODE=0",
                                         NULL};
        struct ps_node *node = open_node(overrides);
        assert_false(ps_trace_wants(node->trace, PS_TRACE_SYMBOLIC | PS_TRACE_ALL));
        assert_int_equal(ps_trace_start(node->trace), PS_OK);
        assert_int_equal(ps_trace_set_file(node->trace, "/dev/null/x", NULL), PS_OK);
        assert_true(ps_trace_wants(node->trace, PS_TRACE_SYMBOLIC));
        assert_int_equal(ps_trace_wants(node->trace, PS_TRACE_ALL), mode);
        ps_node_close(node);
    }
}

static void setting_profiler_table_writes_it_at_the_end(void **state)
{
    struct fixture f;
    char *data = NULL;
    size_t size = 0;
    (void)state;
    open_trace(&f, (struct ps_trace_options){.table = "times.json"}, false);
    span(&f, "conv", 0, 1);
    struct ps_fs *fs = f.fs;
    ps_trace_destroy(f.trace);
    assert_int_equal(ps_fs_read_all(fs, "times.json", 65536, &data, &size, NULL), PS_OK);
    assert_non_null(strstr(data, "\"conv\":{\"Count\":1,"));
    free(data);
    ps_fs_sim_destroy(fs);
    ps_log_destroy(f.log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_span_is_one_event_with_its_times),
        cmocka_unit_test(names_are_escaped_and_cut),
        cmocka_unit_test(counters_instants_and_async_ends_have_their_phases),
        cmocka_unit_test(a_paused_trace_wants_nothing),
        cmocka_unit_test(every_dump_holds_more),
        cmocka_unit_test(the_file_is_whole_after_every_write),
        cmocka_unit_test(
            two_programs_that_write_one_file_leave_that_of_one_of_them_whole),
        cmocka_unit_test(the_table_counts_exactly),
        cmocka_unit_test(a_full_ring_loses_counted_events_and_no_memory),
        cmocka_unit_test(a_full_ring_of_spans_is_emptied_and_loses_nothing),
        cmocka_unit_test(threads_record_at_once_and_their_rings_are_used_again),
        cmocka_unit_test(a_members_file_carries_role_and_rank),
        cmocka_unit_test(another_file_takes_what_follows),
        cmocka_unit_test(setting_profiler_autostart_leaves_a_file_at_close),
        cmocka_unit_test(setting_profiler_mode_says_what_is_wanted),
        cmocka_unit_test(setting_profiler_table_writes_it_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
