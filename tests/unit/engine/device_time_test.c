/* The simulated accelerator's virtual time, and its scripted faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/device/device_sim.h"
#include "tests/suite/device_suite.h"

#include <stdlib.h>

enum { SIZE = 1200000 }; /* 100 us over the host's link */
enum {
    HOST_NS = PS_DEVICE_SIM_LATENCY_NS + SIZE / (PS_DEVICE_SIM_HOST_RATE / 1000),
    PEER_NS = PS_DEVICE_SIM_LATENCY_NS + SIZE / (PS_DEVICE_SIM_PEER_RATE / 1000)
};

static struct device_rig rig;
static char *a, *b, *host;

static void begin(const char *fault)
{
    const char *const settings[] = {fault, NULL};
    device_rig_open(&rig, DEVICE_SIM_WORLD, fault != NULL ? settings : NULL);
    a = device_memory(rig.a, SIZE);
    b = device_memory(rig.b, SIZE);
    host = calloc(1, SIZE);
    assert_non_null(host);
}

static void end(void)
{
    ps_device_free(rig.a, a, SIZE);
    ps_device_free(rig.b, b, SIZE);
    free(host);
    device_rig_close(&rig);
}

static uint64_t now(void)
{
    return ps_sim_now_ns(rig.sim);
}

static enum ps_status to_a(struct ps_stream *stream)
{
    return ps_device_copy(rig.a, a, rig.host, host, SIZE, stream);
}

static enum ps_status from_a(struct ps_stream *stream)
{
    return ps_device_copy(rig.host, host, rig.a, a, SIZE, stream);
}

/* ---- time ---- */

static void a_copy_takes_latency_and_bytes_over_the_rate(void **state)
{
    PS_UNUSED(state);
    begin(NULL);
    uint64_t start = now();
    assert_int_equal(to_a(NULL), PS_OK);
    assert_int_equal(now() - start, HOST_NS);
    start = now();
    assert_int_equal(ps_device_copy(rig.b, b, rig.a, a, SIZE, NULL), PS_OK);
    assert_int_equal(now() - start, 2 * HOST_NS); /* staged: two hops */
    assert_int_equal(ps_device_enable_peer(rig.a, rig.b), PS_OK);
    start = now();
    assert_int_equal(ps_device_copy(rig.b, b, rig.a, a, SIZE, NULL), PS_OK);
    assert_int_equal(now() - start, PEER_NS);
    end();
}

static void submitting_takes_no_time_and_waiting_does(void **state)
{
    PS_UNUSED(state);
    begin(NULL);
    struct ps_stream *stream = device_stream(rig.a, PS_STREAM_COPY);
    uint64_t start = now();
    assert_int_equal(to_a(stream), PS_OK);
    assert_int_equal(to_a(stream), PS_OK);
    assert_int_equal(now(), start);
    assert_int_equal(ps_stream_sync(stream), PS_OK);
    assert_int_equal(now() - start, 2 * HOST_NS);
    assert_int_equal(ps_stream_sync(stream), PS_OK);
    assert_int_equal(now() - start, 2 * HOST_NS); /* nothing is left to wait for */
    ps_stream_destroy(stream);
    end();
}

/* Each direction of each device has an engine of its own. */
static void copies_of_two_directions_overlap_and_of_one_do_not(void **state)
{
    PS_UNUSED(state);
    begin(NULL);
    struct ps_stream *one = device_stream(rig.a, PS_STREAM_COPY);
    struct ps_stream *two = device_stream(rig.a, PS_STREAM_COPY);
    uint64_t start = now();
    assert_int_equal(to_a(one), PS_OK);
    assert_int_equal(from_a(two), PS_OK);
    assert_int_equal(ps_device_sync(rig.a), PS_OK);
    assert_int_equal(now() - start, HOST_NS);
    start = now();
    assert_int_equal(to_a(one), PS_OK);
    assert_int_equal(to_a(two), PS_OK);
    assert_int_equal(ps_device_sync(rig.a), PS_OK);
    assert_int_equal(now() - start, 2 * HOST_NS);
    ps_stream_destroy(one);
    ps_stream_destroy(two);
    end();
}

static void a_stream_that_waits_for_an_event_begins_after_it(void **state)
{
    PS_UNUSED(state);
    begin(NULL);
    struct ps_stream *first = device_stream(rig.a, PS_STREAM_COPY);
    struct ps_stream *second = device_stream(rig.b, PS_STREAM_COPY);
    struct ps_device_event *event = device_event(rig.a);
    uint64_t start = now();
    assert_int_equal(to_a(first), PS_OK);
    assert_int_equal(ps_event_record(event, first), PS_OK);
    assert_int_equal(ps_stream_wait(second, event), PS_OK);
    assert_int_equal(ps_device_copy(rig.b, b, rig.host, host, SIZE, second), PS_OK);
    assert_false(ps_event_done(event)); /* not yet */
    assert_int_equal(ps_stream_sync(second), PS_OK);
    assert_int_equal(now() - start, 2 * HOST_NS);
    assert_true(ps_event_done(event));
    ps_event_destroy(event);
    ps_stream_destroy(first);
    ps_stream_destroy(second);
    end();
}

/* ---- faults ---- */

static void a_scripted_allocation_fails(void **state)
{
    void *ptr = NULL;
    PS_UNUSED(state);
    begin("FAULT=device.alloc:fail@3"); /* after those of the rig */
    assert_int_equal(ps_device_alloc(rig.a, 64, &ptr), PS_ENOMEM);
    assert_int_equal(ps_device_alloc(rig.a, 64, &ptr), PS_OK);
    ps_device_free(rig.a, ptr, 64);
    ps_device_free(rig.host, device_memory(rig.host, 64), 64);
    end();
}

static void a_scripted_copy_fails_at_the_sync_of_its_stream_and_once(void **state)
{
    PS_UNUSED(state);
    begin("FAULT=device.copy:fail@2,device.copy:fail@4");
    struct ps_stream *stream = device_stream(rig.a, PS_STREAM_COPY);
    host[0] = 1;
    assert_int_equal(to_a(stream), PS_OK);
    host[0] = 2;
    assert_int_equal(to_a(stream), PS_OK); /* fails, later */
    assert_int_equal(from_a(stream), PS_OK);
    assert_int_equal(ps_stream_sync(stream), PS_EFAULT);
    assert_int_equal(host[0], 2); /* what was written first: at the sync */
    assert_int_equal(ps_stream_sync(stream), PS_OK);
    assert_int_equal(to_a(NULL), PS_EFAULT); /* without a stream, at once */
    assert_int_equal(to_a(NULL), PS_OK);
    ps_stream_destroy(stream);
    end();
}

static void a_scripted_sync_fails_though_the_work_is_done(void **state)
{
    PS_UNUSED(state);
    begin("FAULT=device.sync:fail@1");
    struct ps_stream *stream = device_stream(rig.a, PS_STREAM_COPY);
    char one = 1, out = 0;
    device_write(&rig, rig.a, a, &one, 1);
    assert_int_equal(ps_device_copy(rig.host, &out, rig.a, a, 1, stream), PS_OK);
    assert_int_equal(ps_stream_sync(stream), PS_EFAULT);
    assert_int_equal(out, 1);
    assert_int_equal(ps_stream_sync(stream), PS_OK);
    ps_stream_destroy(stream);
    end();
}

static void a_scripted_delay_takes_virtual_time(void **state)
{
    PS_UNUSED(state);
    begin("FAULT=device.copy:delay=7");
    uint64_t start = now();
    assert_int_equal(to_a(NULL), PS_OK);
    assert_int_equal(now() - start, HOST_NS + 7 * PS_NS_PER_MS);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_takes_latency_and_bytes_over_the_rate),
        cmocka_unit_test(submitting_takes_no_time_and_waiting_does),
        cmocka_unit_test(copies_of_two_directions_overlap_and_of_one_do_not),
        cmocka_unit_test(a_stream_that_waits_for_an_event_begins_after_it),
        cmocka_unit_test(a_scripted_allocation_fails),
        cmocka_unit_test(a_scripted_copy_fails_at_the_sync_of_its_stream_and_once),
        cmocka_unit_test(a_scripted_sync_fails_though_the_work_is_done),
        cmocka_unit_test(a_scripted_delay_takes_virtual_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
