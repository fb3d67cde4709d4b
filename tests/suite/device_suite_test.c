/* The contract of devices (engine/device/device.h), over every implementation: cpu, the
 * simulated accelerator on a real node, and the same on a simulated node. */
#include "tests/suite/device_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/thread.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Under a sanitizer an allocation that is too large must fail, not end the process. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1:die_after_fork=0";
}

static enum device_world world; /* of the group that runs */
static struct device_rig rig;

static int setup(void **state)
{
    device_rig_open(&rig, world, NULL);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    PS_UNUSED(state);
    device_rig_close(&rig);
    return 0;
}

/* ---- copies ---- */

static void what_is_written_is_read_back(void **state)
{
    char in[1000], out[1000] = {0};
    PS_UNUSED(state);
    memset(in, 7, sizeof(in));
    void *a = device_memory(rig.a, sizeof(in));
    device_write(&rig, rig.a, a, in, sizeof(in));
    device_read(&rig, rig.a, (char *)a + 10, out + 10, 100);
    assert_memory_equal(out + 10, in, 100);
    assert_int_equal(out[9] | out[110], 0);
    assert_int_equal(ps_device_copy(rig.host, out, rig.a, a, 0, NULL), PS_OK);
    ps_device_free(rig.a, a, sizeof(in));
}

/* host -> a -> b -> host, in the order of one stream. */
static void copies_of_a_stream_keep_their_order(void **state)
{
    enum { SIZE = 600000 };
    static char in[SIZE], out[SIZE];
    PS_UNUSED(state);
    struct ps_stream *stream = device_stream(rig.a, PS_STREAM_COPY);
    char *a = device_memory(rig.a, SIZE), *b = device_memory(rig.b, SIZE);
    for (int round = 1; round <= 3; round++) {
        memset(in, round, SIZE);
        assert_int_equal(ps_device_copy(rig.a, a, rig.host, in, SIZE, stream), PS_OK);
        assert_int_equal(ps_device_copy(rig.b, b, rig.a, a, SIZE, stream), PS_OK);
        assert_int_equal(ps_device_copy(rig.a, a, rig.b, b + 100, 100, stream), PS_OK);
        assert_int_equal(ps_stream_sync(stream), PS_OK);
        device_read(&rig, rig.b, b, out, SIZE);
        assert_memory_equal(in, out, SIZE);
    }
    assert_ptr_equal(ps_stream_device(stream), rig.a);
    assert_int_equal(ps_stream_kind(stream), PS_STREAM_COPY);
    ps_stream_destroy(stream);
    ps_device_free(rig.a, a, SIZE);
    ps_device_free(rig.b, b, SIZE);
}

static void a_kernel_sees_the_copies_before_it(void **state)
{
    int in[4] = {1, 2, 3, 4}, out[4] = {0};
    PS_UNUSED(state);
    struct ps_stream *stream = device_stream(rig.a, PS_STREAM_COMPUTE);
    void *a = device_memory(rig.a, sizeof(in));
    assert_int_equal(ps_device_copy(rig.a, a, rig.host, in, sizeof(in), stream), PS_OK);
    ps_stream_enter(stream);
    int *x = ps_device_address(rig.a, a);
    for (int i = 0; i < 4; i++) {
        x[i] *= 10;
    }
    assert_int_equal(ps_device_copy(rig.host, out, rig.a, a, sizeof(in), stream), PS_OK);
    assert_int_equal(ps_stream_sync(stream), PS_OK);
    assert_int_equal(out[0] + out[3], 50);
    assert_null(ps_device_address(rig.a, NULL));
    ps_stream_destroy(stream);
    ps_device_free(rig.a, a, sizeof(in));
}

static void streams_of_strangers_are_refused(void **state)
{
    char byte = 1;
    PS_UNUSED(state);
    struct ps_stream *stream = device_stream(rig.b, PS_STREAM_COPY);
    struct ps_device_event *event = device_event(rig.a);
    void *a = device_memory(rig.a, 1);
    assert_int_equal(ps_device_copy(rig.a, a, rig.host, &byte, 1, stream), PS_EINVAL);
    assert_int_equal(ps_event_record(event, stream), PS_EINVAL);
    ps_event_destroy(event);
    ps_stream_destroy(stream);
    ps_device_free(rig.a, a, 1);
}

static void nothing_is_fine(void **state)
{
    PS_UNUSED(state);
    ps_stream_enter(NULL);
    assert_int_equal(ps_stream_sync(NULL), PS_OK);
    ps_stream_destroy(NULL);
    ps_event_destroy(NULL);
    ps_device_close(NULL);
    assert_int_equal(ps_device_sync(rig.a), PS_OK);
}

static void a_stream_that_goes_leaves_its_buffers_alone(void **state)
{
    char in[64], out[64] = {0};
    PS_UNUSED(state);
    struct ps_stream *stream = device_stream(rig.a, PS_STREAM_COPY);
    void *a = device_memory(rig.a, sizeof(in));
    memset(in, 1, sizeof(in));
    assert_int_equal(ps_device_copy(rig.a, a, rig.host, in, sizeof(in), stream), PS_OK);
    assert_int_equal(ps_device_copy(rig.host, out, rig.a, a, 64, stream), PS_OK);
    ps_stream_destroy(stream);
    memset(out, 5, sizeof(out));
    assert_int_equal(ps_device_sync(rig.a), PS_OK);
    assert_int_equal(out[0] + out[63], 10);
    ps_device_free(rig.a, a, sizeof(in));
}

/* ---- events ---- */

static void an_event_orders_streams_of_two_devices(void **state)
{
    enum { SIZE = 4096 };
    char in[SIZE], out[SIZE] = {0};
    PS_UNUSED(state);
    memset(in, 3, SIZE);
    struct ps_stream *first = device_stream(rig.a, PS_STREAM_COPY);
    struct ps_stream *second = device_stream(rig.b, PS_STREAM_COMPUTE);
    struct ps_device_event *event = device_event(rig.a);
    char *a = device_memory(rig.a, SIZE), *b = device_memory(rig.b, SIZE);
    assert_int_equal(ps_device_copy(rig.a, a, rig.host, in, SIZE, first), PS_OK);
    assert_int_equal(ps_event_record(event, first), PS_OK);
    assert_int_equal(ps_stream_wait(second, event), PS_OK);
    assert_int_equal(ps_device_copy(rig.b, b, rig.a, a, SIZE, second), PS_OK);
    assert_int_equal(ps_device_copy(rig.host, out, rig.b, b, SIZE, second), PS_OK);
    assert_int_equal(ps_stream_sync(second), PS_OK);
    assert_memory_equal(in, out, SIZE);
    assert_true(ps_event_done(event));
    ps_event_destroy(event);
    ps_stream_destroy(first);
    ps_stream_destroy(second);
    ps_device_free(rig.a, a, SIZE);
    ps_device_free(rig.b, b, SIZE);
}

static void an_event_can_be_asked_waited_for_and_recorded_again(void **state)
{
    char in[2] = {4, 5}, out[2] = {0};
    PS_UNUSED(state);
    struct ps_stream *stream = device_stream(rig.a, PS_STREAM_COPY);
    struct ps_device_event *event = device_event(rig.a);
    char *a = device_memory(rig.a, 2);
    assert_true(ps_event_done(event)); /* never recorded */
    assert_int_equal(ps_event_sync(event), PS_OK);
    assert_int_equal(ps_device_copy(rig.a, a, rig.host, in, 2, stream), PS_OK);
    assert_int_equal(ps_device_copy(rig.host, out, rig.a, a, 1, stream), PS_OK);
    assert_int_equal(ps_event_record(event, stream), PS_OK);
    for (int i = 0; !ps_event_done(event); i++) {
        assert_true(i < 100000);
    }
    assert_int_equal(out[0], 4);
    assert_int_equal(ps_device_copy(rig.host, out + 1, rig.a, a + 1, 1, stream), PS_OK);
    assert_int_equal(ps_event_record(event, stream), PS_OK);
    assert_int_equal(ps_event_sync(event), PS_OK);
    assert_int_equal(out[1], 5);
    assert_int_equal(ps_event_record(event, NULL), PS_OK);
    assert_true(ps_event_done(event));
    assert_int_equal(ps_stream_wait(NULL, event), PS_OK);
    ps_stream_destroy(stream);
    ps_event_destroy(event);
    ps_device_free(rig.a, a, 2);
}

static void a_device_is_synced_as_a_whole(void **state)
{
    enum { STREAMS = 5 };
    struct ps_stream *streams[STREAMS];
    char out[STREAMS] = {0}, in = 9;
    PS_UNUSED(state);
    char *a = device_memory(rig.a, 1);
    device_write(&rig, rig.a, a, &in, 1);
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = device_stream(rig.a, PS_STREAM_COPY);
        assert_int_equal(ps_device_copy(rig.host, out + i, rig.a, a, 1, streams[i]),
                         PS_OK);
    }
    assert_int_equal(ps_device_sync(rig.a), PS_OK);
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(out[i], 9);
        ps_stream_destroy(streams[i]);
    }
    ps_device_free(rig.a, a, 1);
}

/* ---- peers, threads, processes ---- */

static void peers_can_be_enabled_more_than_once(void **state)
{
    PS_UNUSED(state);
    assert_true(ps_device_can_reach(rig.a, rig.a) && ps_device_can_reach(rig.a, rig.b));
    assert_true(ps_device_peer_enabled(rig.a, rig.a));
    assert_int_equal(ps_device_enable_peer(rig.a, rig.b), PS_OK);
    assert_int_equal(ps_device_enable_peer(rig.a, rig.b), PS_OK);
    assert_true(ps_device_peer_enabled(rig.a, rig.b));
    assert_int_equal(ps_device_enable_peer(rig.b, rig.b), PS_OK);
}

struct runner {
    struct ps_thread thread;
    struct ps_stream *own, *other; /* 'other' is the neighbour's */
    struct ps_device_event *event;
    char *from, *to;
    enum ps_status status;
};

static enum ps_status one_round(struct runner *runner, char *in, char *out, size_t size)
{
    PS_TRY(ps_device_copy(rig.a, runner->from, rig.host, in, size, runner->own));
    PS_TRY(ps_device_copy(rig.b, runner->to, rig.a, runner->from, size, runner->own));
    PS_TRY(ps_event_record(runner->event, runner->own));
    PS_TRY(ps_stream_wait(runner->other, runner->event));
    PS_TRY(ps_device_copy(rig.host, out, rig.b, runner->to, size, runner->other));
    PS_TRY(ps_stream_sync(runner->other));
    return memcmp(in, out, size) == 0 ? PS_OK : PS_EINTERNAL;
}

static void runner_main(void *arg)
{
    struct runner *runner = arg;
    char in[256], out[256];
    for (int i = 0; i < 200 && runner->status == PS_OK; i++) {
        memset(in, i, sizeof(in));
        runner->status = one_round(runner, in, out, sizeof(in));
        while (!ps_event_done(runner->event)) { /* it is: 'other' waited for it */
            runner->status = PS_EINTERNAL;
        }
        if (ps_device_sync(rig.a) != PS_OK && runner->status == PS_OK) {
            runner->status = PS_EINTERNAL;
        }
    }
}

static void threads_with_streams_of_their_own_do_not_disturb_each_other(void **state)
{
    enum { RUNNERS = 3 };
    struct runner runners[RUNNERS];
    PS_UNUSED(state);
    if (world == DEVICE_SIM_WORLD) {
        skip(); /* one thread */
    }
    for (int i = 0; i < RUNNERS; i++) {
        runners[i] = (struct runner){.own = device_stream(rig.a, PS_STREAM_COPY),
                                     .other = device_stream(rig.b, PS_STREAM_COPY),
                                     .event = device_event(rig.a),
                                     .from = device_memory(rig.a, 256),
                                     .to = device_memory(rig.b, 256),
                                     .status = PS_OK};
    }
    for (int i = 0; i < RUNNERS; i++) {
        assert_int_equal(
            ps_thread_start(&runners[i].thread, "runner", runner_main, &runners[i]),
            PS_OK);
    }
    for (int i = 0; i < RUNNERS; i++) {
        ps_thread_join(&runners[i].thread);
        assert_int_equal(runners[i].status, PS_OK);
        ps_event_destroy(runners[i].event);
        ps_stream_destroy(runners[i].own);
        ps_stream_destroy(runners[i].other);
        ps_device_free(rig.a, runners[i].from, 256);
        ps_device_free(rig.b, runners[i].to, 256);
    }
}

static int child_answers(struct ps_stream *stream, struct ps_device_event *event, void *a)
{
    char byte = 0;
    void *ptr;
    size_t free_bytes, total_bytes;
    struct ps_stream *more;
    bool refused =
        ps_device_alloc(rig.a, 10, &ptr) == PS_EFORK &&
        ps_device_copy(rig.host, &byte, rig.a, a, 1, stream) == PS_EFORK &&
        ps_device_copy(rig.host, &byte, rig.a, a, 1, NULL) == PS_EFORK &&
        ps_stream_sync(stream) == PS_EFORK && ps_device_sync(rig.a) == PS_EFORK &&
        ps_event_sync(event) == PS_EFORK && ps_event_record(event, stream) == PS_EFORK &&
        ps_device_memory(rig.a, &free_bytes, &total_bytes) == PS_EFORK &&
        ps_device_stream_create(rig.a, PS_STREAM_COPY, &more) == PS_EFORK;
    ps_device_free(rig.a, a, 10);
    ps_device_trim(rig.a);
    ps_event_destroy(event);
    ps_stream_destroy(stream);
    ps_device_close(rig.a);
    return refused ? 0 : 1;
}

static void a_forks_child_is_refused_and_does_not_hang(void **state)
{
    char byte = 1;
    int status = -1;
    PS_UNUSED(state);
    struct ps_stream *stream = device_stream(rig.a, PS_STREAM_COPY);
    struct ps_device_event *event = device_event(rig.a);
    void *a = device_memory(rig.a, 10);
    assert_int_equal(ps_device_copy(rig.a, a, rig.host, &byte, 1, stream), PS_OK);
    ps_mutex_lock(&rig.a->pool.lock); /* as another thread's would be held */
    pid_t child = fork();
    if (child == 0) {
        _exit(child_answers(stream, event, a));
    }
    ps_mutex_unlock(&rig.a->pool.lock);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(ps_stream_sync(stream), PS_OK); /* the parent goes on */
    ps_event_destroy(event);
    ps_stream_destroy(stream);
    ps_device_free(rig.a, a, 10);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const char *const names[DEVICE_WORLDS] = {"device cpu", "device sim",
                                                     "device sim on a simulated node"};
    const struct CMUnitTest tests[] = {
        TEST(freed_memory_serves_the_next_request_of_its_size),
        TEST(memory_is_counted_and_given_back),
        TEST(named_memory_is_named_where_there_is_none),
        TEST(case_116_random_sizes_do_not_grow_a_device),
        TEST(case_117_what_is_reserved_is_at_most_twice_what_was_asked_for),
        TEST(what_is_written_is_read_back),
        TEST(copies_of_a_stream_keep_their_order),
        TEST(a_kernel_sees_the_copies_before_it),
        TEST(streams_of_strangers_are_refused),
        TEST(nothing_is_fine),
        TEST(a_stream_that_goes_leaves_its_buffers_alone),
        TEST(an_event_orders_streams_of_two_devices),
        TEST(an_event_can_be_asked_waited_for_and_recorded_again),
        TEST(a_device_is_synced_as_a_whole),
        TEST(random_programs_of_streams_do_what_their_order_says),
        TEST(peers_can_be_enabled_more_than_once),
        TEST(threads_with_streams_of_their_own_do_not_disturb_each_other),
        TEST(a_forks_child_is_refused_and_does_not_hang),
    };
    int failed = 0;
    for (int i = 0; i < DEVICE_WORLDS; i++) {
        world = (enum device_world)i;
        failed += cmocka_run_group_tests_name(names[i], tests, NULL, NULL);
    }
    return failed > 0 ? 1 : 0;
}
