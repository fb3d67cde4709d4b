/* penstock.h: the profiler of a node. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/penstock.h"

struct fixture {
    penstock_node *node;
    char file[64];
};

static int setup(void **state)
{
    static struct fixture f;
    (void)snprintf(f.file, sizeof(f.file), "/tmp/profiler_api_%ld.json", (long)getpid());
    *state = &f;
    return penstock_open(NULL, &f.node);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    penstock_close(f->node);
    (void)unlink(f->file);
    return 0;
}

static size_t read_file(const char *path, char out[65536])
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t size = fread(out, 1, 65535, file);
    out[size] = '\0';
    (void)fclose(file);
    return size;
}

static void a_program_traces_what_it_does(void **state)
{
    struct fixture *f = *state;
    penstock_profiler profiler = PENSTOCK_PROFILER_INIT;
    static char text[65536];
    profiler.mode = 1;
    profiler.file = f->file;
    assert_int_equal(penstock_scope_begin(f->node), 0); /* not started */
    penstock_marker(f->node, "too early");
    assert_int_equal(penstock_profiler_configure(f->node, &profiler), 0);
    assert_int_equal(penstock_profiler_start(f->node), 0);
    uint64_t begin = penstock_scope_begin(f->node);
    assert_true(begin != 0);
    penstock_counter(f->node, "loss", 0.5);
    penstock_counter(f->node, "loss", 0.0 / strtod("0", NULL)); /* no number: left out */
    penstock_marker(f->node, "epoch");
    penstock_scope_end(f->node, "step", begin);
    assert_int_equal(penstock_profiler_pause(f->node, 1), 0);
    penstock_marker(f->node, "paused");
    assert_int_equal(penstock_profiler_pause(f->node, 0), 0);
    assert_int_equal(penstock_profiler_dump(f->node), 0);
    size_t first = read_file(f->file, text);
    assert_non_null(strstr(text, "\"step\""));
    assert_non_null(strstr(text, "\"loss\""));
    assert_non_null(strstr(text, "\"epoch\""));
    assert_null(strstr(text, "paused"));
    assert_null(strstr(text, "too early"));
    assert_null(strstr(text, "nan"));
    penstock_marker(f->node, "later");
    assert_int_equal(penstock_profiler_stop(f->node), 0);
    assert_int_equal(penstock_profiler_dump(f->node), 0);
    assert_true(read_file(f->file, text) > first);
}

static void the_table_is_cut_to_the_callers_memory(void **state)
{
    struct fixture *f = *state;
    penstock_profiler profiler = PENSTOCK_PROFILER_INIT;
    char text[4096], small[8];
    size_t needed = 0;
    profiler.file = f->file;
    assert_int_equal(penstock_profiler_configure(f->node, &profiler), 0);
    assert_int_equal(penstock_profiler_start(f->node), 0);
    penstock_scope_end(f->node, "step", penstock_scope_begin(f->node));
    assert_int_equal(penstock_profiler_table(f->node, 1, text, sizeof(text), &needed), 0);
    assert_int_equal(needed, strlen(text) + 1);
    assert_non_null(strstr(text, "\"user\":{\"step\":{\"Count\":1,"));
    assert_int_equal(penstock_profiler_table(f->node, 1, small, sizeof(small), &needed),
                     0);
    assert_int_equal(strlen(small), 7);
    assert_int_equal(needed, strlen(text) + 1);
    assert_int_equal(penstock_profiler_table(f->node, 0, NULL, 0, &needed), 0);
    assert_true(needed > 1);
}

static void bad_settings_are_refused_in_words(void **state)
{
    struct fixture *f = *state;
    penstock_profiler profiler = PENSTOCK_PROFILER_INIT;
    profiler.mode = 2;
    assert_true(penstock_profiler_configure(f->node, &profiler) < 0);
    assert_non_null(strstr(penstock_last_error(f->node), "mode is 0 or 1"));
    profiler.mode = 0;
    profiler.file = "";
    assert_true(penstock_profiler_configure(f->node, &profiler) < 0);
    assert_true(penstock_profiler_configure(f->node, NULL) < 0);
    profiler.size = 1;
    assert_true(penstock_profiler_configure(f->node, &profiler) < 0);
    assert_non_null(strstr(penstock_last_error(f->node), "PENSTOCK_PROFILER_INIT"));
    assert_true(penstock_profiler_table(f->node, 0, NULL, 9, NULL) < 0);
    profiler = (penstock_profiler)PENSTOCK_PROFILER_INIT;
    profiler.file = "/no/such/directory/x.json";
    assert_int_equal(penstock_profiler_configure(f->node, &profiler), 0);
    assert_int_equal(penstock_profiler_start(f->node), 0);
    penstock_marker(f->node, "lost");
    assert_true(penstock_profiler_dump(f->node) < 0);
    assert_non_null(strstr(penstock_last_error(f->node), "/no/such/directory/x.json"));
}

int main(void)
{
#define ON_NODE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        ON_NODE(a_program_traces_what_it_does),
        ON_NODE(the_table_is_cut_to_the_callers_memory),
        ON_NODE(bad_settings_are_refused_in_words),
    };
    return cmocka_run_group_tests_name("profiler", tests, NULL, NULL);
}
