/* What only the simulated accelerator does: an address space that faults, a budget that
 * fragments, work that waits for a wait, peers, and refusals of bad settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/suite/device_suite.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

enum { MIB = 1 << 20 };

static struct device_rig rig;

static void begin(const char *const *settings)
{
    device_rig_open(&rig, DEVICE_SIM, settings);
}

static void end(void)
{
    device_rig_close(&rig);
}

/* ---- its address space ---- */

/* How a child ends that reads or writes 'ptr'. */
static int signal_of_access(volatile char *ptr, bool writes)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer has its own idea */
        if (writes) {
            *ptr = 1;
        } else {
            (void)*ptr;
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void the_host_cannot_touch_its_memory(void **state)
{
    PS_UNUSED(state);
    begin(NULL);
    char *ptr = device_memory(rig.a, 4096);
    assert_int_equal(signal_of_access(ptr, false), SIGSEGV);
    assert_int_equal(signal_of_access(ptr + 4095, true), SIGSEGV);
    char *work = ps_device_address(rig.a, ptr);
    assert_int_equal(signal_of_access(work, true), 0);
    memset(work, 6, 4096);
    char byte = 0;
    device_read(&rig, rig.a, ptr + 4095, &byte, 1);
    assert_int_equal(byte, 6);
    ps_device_free(rig.a, ptr, 4096);
    end();
}

/* The last byte of a full device, and the one behind it. */
static void nothing_lies_behind_its_memory(void **state)
{
    static const char *const settings[] = {"SIM_GPU_MEMORY=2M", "GPU_MEM_POOL_RESERVE=0",
                                           NULL};
    PS_UNUSED(state);
    begin(settings);
    char *ptr = device_memory(rig.a, 2 * MIB), byte = 1;
    char *work = ps_device_address(rig.a, ptr);
    assert_int_equal(signal_of_access(work + 2 * MIB - 1, true), 0);
    assert_int_equal(signal_of_access(work + 2 * MIB, true), SIGSEGV);
    assert_int_equal(signal_of_access(ptr + 2 * MIB, true), SIGSEGV);
    device_write(&rig, rig.a, ptr + 2 * MIB - 1, &byte, 1);
    assert_int_equal(ps_device_copy(rig.a, ptr + 2 * MIB - 1, rig.a, ptr, 2, NULL),
                     PS_EINVAL);
    assert_int_equal(ps_device_copy(rig.a, ptr, rig.host, &byte, SIZE_MAX, NULL),
                     PS_EINVAL);
    assert_int_equal(ps_device_copy(rig.b, ptr, rig.host, &byte, 1, NULL), PS_EINVAL);
    ps_device_free(rig.a, ptr, 2 * MIB);
    end();
}

static void freed_memory_goes_back_to_the_system(void **state)
{
    PS_UNUSED(state);
    begin(NULL);
    ps_device_set_cap(rig.a, 0);
    for (int i = 0; i < 2; i++) {
        char *ptr = device_memory(rig.a, MIB);
        char *work = ps_device_address(rig.a, ptr);
        assert_int_equal(work[0] | work[MIB - 1], 0); /* pages that are new again */
        memset(work, 1, MIB);
        ps_device_free(rig.a, ptr, MIB);
    }
    end();
}

/* ---- its budget ---- */

static void the_budget_holds_and_fragments(void **state)
{
    static const char *const settings[] = {"SIM_GPU_MEMORY=8M", "GPU_MEM_POOL_RESERVE=0",
                                           NULL};
    void *blocks[8], *ptr;
    size_t free_bytes, total_bytes;
    struct ps_error err;
    PS_UNUSED(state);
    begin(settings);
    ps_device_set_cap(rig.a, 0); /* what is freed is free at once */
    for (int i = 0; i < 8; i++) {
        blocks[i] = device_memory(rig.a, MIB);
    }
    assert_int_equal(ps_device_alloc(rig.a, 64, &ptr), PS_ENOMEM);
    for (int i = 0; i < 8; i += 2) {
        ps_device_free(rig.a, blocks[i], MIB);
    }
    assert_int_equal(ps_device_memory(rig.a, &free_bytes, &total_bytes), PS_OK);
    assert_int_equal(free_bytes, 4 * MIB);
    assert_int_equal(total_bytes, 8 * MIB);
    assert_int_equal(ps_device_alloc(rig.a, 2 * MIB, &ptr), PS_ENOMEM); /* in pieces */
    (void)ps_device_no_memory(rig.a, 2 * MIB, &err);
    assert_string_equal(err.text, "gpu(0): no memory for 2.0 MiB: 4.0 MiB requested, "
                                  "4.0 MiB reserved, largest free 1.0 MiB of 4.0 MiB "
                                  "with 0 B kept as reserve");
    ps_device_free(rig.a, blocks[1], MIB);
    assert_int_equal(ps_device_alloc(rig.a, 3 * MIB, &ptr), PS_OK); /* joined */
    assert_ptr_equal(ptr, blocks[0]);
    ps_device_free(rig.a, ptr, 3 * MIB);
    for (int i = 3; i < 8; i += 2) {
        ps_device_free(rig.a, blocks[i], MIB);
    }
    ps_device_free(rig.a, device_memory(rig.a, 8 * MIB), 8 * MIB);
    end();
}

static void case_117_a_fragmented_device_frees_its_cache_before_it_refuses(void **state)
{
    static const char *const settings[] = {"SIM_GPU_MEMORY=8M", "GPU_MEM_POOL_RESERVE=0",
                                           NULL};
    struct ps_device_usage usage;
    void *blocks[8], *ptr;
    PS_UNUSED(state);
    begin(settings);
    for (int i = 0; i < 8; i++) {
        blocks[i] = device_memory(rig.a, MIB);
    }
    for (int i = 0; i < 8; i++) {
        ps_device_free(rig.a, blocks[i], MIB); /* all of it cached, in pieces */
    }
    ps_device_usage(rig.a, &usage);
    assert_int_equal(usage.reserved_bytes, 8 * MIB);
    assert_int_equal(ps_device_alloc(rig.a, 6 * MIB, &ptr), PS_OK);
    ps_device_usage(rig.a, &usage);
    assert_int_equal(usage.requested_bytes, 6 * MIB);
    assert_int_equal(usage.reserved_bytes, 6 * MIB);
    assert_int_equal(usage.flushes, 1);
    ps_device_free(rig.a, ptr, 6 * MIB);
    end();
}

static void the_reserve_is_kept_free(void **state)
{
    static const char *const settings[] = {"SIM_GPU_MEMORY=100M",
                                           "GPU_MEM_POOL_RESERVE=10", NULL};
    struct ps_device_block block = {.ptr = NULL};
    PS_UNUSED(state);
    begin(settings);
    assert_int_equal(ps_device_alloc_block(rig.a, (size_t)90 * MIB + 1, &block),
                     PS_ENOMEM);
    assert_int_equal(ps_device_alloc_block(rig.a, (size_t)90 * MIB, &block), PS_OK);
    ps_device_free_block(rig.a, &block);
    end();
}

/* ---- its streams ---- */

static void nothing_happens_before_somebody_waits(void **state)
{
    char in = 1, out[2] = {0};
    PS_UNUSED(state);
    begin(NULL);
    struct ps_stream *stream = device_stream(rig.a, PS_STREAM_COPY);
    struct ps_stream *idle = device_stream(rig.a, PS_STREAM_COPY);
    char *a = device_memory(rig.a, 1);
    assert_int_equal(ps_device_copy(rig.a, a, rig.host, &in, 1, stream), PS_OK);
    assert_int_equal(ps_device_copy(rig.host, &out[0], rig.a, a, 1, stream), PS_OK);
    assert_int_equal(ps_stream_sync(idle), PS_OK);
    assert_int_equal(out[0], 0); /* a wait that was forgotten shows */
    in = 2;
    assert_int_equal(ps_stream_sync(stream), PS_OK);
    assert_int_equal(out[0], 2); /* and so does a buffer that was reused too early */
    ps_stream_destroy(idle);
    assert_int_equal(ps_device_copy(rig.host, &out[1], rig.a, a, 1, stream), PS_OK);
    ps_stream_destroy(stream);
    assert_int_equal(out[1], 0); /* dropped */
    ps_device_free(rig.a, a, 1);
    end();
}

static void an_event_drives_only_what_was_before_it(void **state)
{
    char in[3] = {1, 2, 3}, out[3] = {0};
    PS_UNUSED(state);
    begin(NULL);
    struct ps_stream *stream = device_stream(rig.a, PS_STREAM_COPY);
    struct ps_device_event *event = device_event(rig.a);
    char *a = device_memory(rig.a, 3);
    device_write(&rig, rig.a, a, in, 3);
    assert_int_equal(ps_device_copy(rig.host, out, rig.a, a, 1, stream), PS_OK);
    assert_int_equal(ps_device_copy(rig.host, out + 1, rig.a, a + 1, 1, stream), PS_OK);
    assert_int_equal(ps_event_record(event, stream), PS_OK);
    assert_int_equal(ps_device_copy(rig.host, out + 2, rig.a, a + 2, 1, stream), PS_OK);
    assert_false(ps_event_done(event)); /* each question moves one command */
    assert_int_equal(out[0], 1);
    assert_false(ps_event_done(event));
    assert_true(ps_event_done(event));
    assert_int_equal(out[1], 2);
    assert_int_equal(ps_event_sync(event), PS_OK);
    assert_int_equal(out[2], 0);
    assert_int_equal(ps_stream_sync(stream), PS_OK);
    assert_int_equal(out[2], 3);
    ps_event_destroy(event);
    ps_stream_destroy(stream);
    ps_device_free(rig.a, a, 3);
    end();
}

/* Two streams that wait for each other in turns: whoever syncs the last performs all. */
static void a_long_chain_of_waits_is_driven_from_its_end(void **state)
{
    enum { LINKS = 2000 };
    PS_UNUSED(state);
    begin(NULL);
    struct ps_stream *streams[2] = {device_stream(rig.a, PS_STREAM_COPY),
                                    device_stream(rig.b, PS_STREAM_COPY)};
    struct ps_device_event *events[2] = {device_event(rig.a), device_event(rig.b)};
    struct ps_device *devices[2] = {rig.a, rig.b};
    char *cells[2] = {device_memory(rig.a, 1), device_memory(rig.b, 1)}, byte = 42;
    device_write(&rig, rig.a, cells[0], &byte, 1);
    for (int i = 0; i < LINKS; i++) {
        int from = i % 2, to = 1 - from;
        assert_int_equal(ps_device_copy(devices[to], cells[to], devices[from],
                                        cells[from], 1, streams[to]),
                         PS_OK);
        assert_int_equal(ps_event_record(events[to], streams[to]), PS_OK);
        assert_int_equal(ps_stream_wait(streams[from], events[to]), PS_OK);
    }
    ps_event_destroy(events[0]);
    ps_event_destroy(events[1]); /* the waits go on */
    assert_int_equal(ps_stream_sync(streams[1]), PS_OK);
    device_read(&rig, rig.b, cells[1], &byte, 1);
    assert_int_equal(byte, 42);
    ps_stream_destroy(streams[0]);
    ps_stream_destroy(streams[1]);
    ps_device_free(rig.a, cells[0], 1);
    ps_device_free(rig.b, cells[1], 1);
    end();
}

/* ---- peers ---- */

static struct ps_device_traffic traffic(struct ps_device *device)
{
    struct ps_device_traffic result;
    ps_device_traffic(device, &result);
    return result;
}

static void copies_go_through_the_host_unless_peers_are_enabled(void **state)
{
    enum { SIZE = 1 << 20 };
    static char in[SIZE], out[SIZE];
    PS_UNUSED(state);
    begin(NULL);
    char *a = device_memory(rig.a, SIZE), *b = device_memory(rig.b, SIZE);
    for (size_t i = 0; i < SIZE; i++) {
        in[i] = (char)(i * 7 + i / 999);
    }
    device_write(&rig, rig.a, a, in, SIZE);
    assert_int_equal(ps_device_copy(rig.b, b, rig.a, a, SIZE, NULL), PS_OK);
    device_read(&rig, rig.b, b, out, SIZE);
    assert_memory_equal(in, out, SIZE);
    assert_int_equal(traffic(rig.a).staged_count, 1);
    assert_int_equal(traffic(rig.a).staged_bytes, SIZE);
    assert_int_equal(traffic(rig.a).from_host_bytes, SIZE);
    assert_int_equal(traffic(rig.b).to_host_bytes, SIZE);
    assert_false(ps_device_peer_enabled(rig.a, rig.b));
    assert_int_equal(ps_device_enable_peer(rig.b, rig.a), PS_OK);
    assert_false(ps_device_peer_enabled(rig.a, rig.b)); /* one way */
    assert_int_equal(ps_device_copy(rig.b, b, rig.a, a, SIZE, NULL), PS_OK);
    assert_int_equal(ps_device_copy(rig.b, b, rig.b, b + SIZE / 2, 10, NULL), PS_OK);
    assert_int_equal(traffic(rig.a).staged_count, 1);
    assert_int_equal(traffic(rig.a).peer_count, 1);
    assert_int_equal(traffic(rig.a).peer_bytes, SIZE);
    assert_int_equal(traffic(rig.b).local_bytes, 10);
    ps_device_free(rig.a, a, SIZE);
    ps_device_free(rig.b, b, SIZE);
    end();
}

static void the_peer_matrix_is_what_the_setting_says(void **state)
{
    static const char *const pairs[] = {"SIM_GPUS=4", "SIM_GPU_PEERS=0-1,3-2", NULL};
    static const char *const none[] = {"SIM_GPU_PEERS=None", NULL};
    PS_UNUSED(state);
    begin(pairs);
    struct ps_device *devices[4] = {rig.a, rig.b, device_rig_device(&rig, PS_GPU(2)),
                                    device_rig_device(&rig, PS_GPU(3))};
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            assert_int_equal(ps_device_can_reach(devices[i], devices[j]), i / 2 == j / 2);
        }
        assert_false(ps_device_can_reach(devices[i], rig.host));
        assert_false(ps_device_can_reach(rig.host, devices[i]));
    }
    assert_int_equal(ps_device_enable_peer(devices[1], devices[2]), PS_EUNSUPPORTED);
    assert_int_equal(ps_device_enable_peer(devices[2], devices[3]), PS_OK);
    ps_device_close(devices[2]);
    ps_device_close(devices[3]);
    end();
    begin(none);
    assert_false(ps_device_can_reach(rig.a, rig.b));
    assert_int_equal(ps_device_enable_peer(rig.a, rig.b), PS_EUNSUPPORTED);
    end();
}

/* As of a node that was killed; a sanitizer would see what is touched or left. */
static void a_device_may_close_with_memory_out(void **state)
{
    PS_UNUSED(state);
    begin(NULL);
    struct ps_stream *stream = device_stream(rig.a, PS_STREAM_COPY);
    char *ptr = device_memory(rig.a, MIB), byte = 1;
    assert_int_equal(ps_device_copy(rig.a, ptr, rig.host, &byte, 1, stream), PS_OK);
    ps_stream_destroy(stream); /* with a copy on its way */
    end();
}

/* ---- refusals ---- */

static void a_device_that_is_not_there_is_refused(void **state)
{
    static const char *const none[] = {"LOG=error", NULL};
    static const char *const one[] = {"SIM_GPUS=1", NULL};
    static const char *const three[] = {"SIM_GPUS=3", NULL};
    PS_UNUSED(state);
    device_rig_refused(none, PS_GPU(1), PS_EUNSUPPORTED,
                       "no device gpu(1): no accelerator here; SIM_GPUS=2 would simulate "
                       "enough of them");
    device_rig_refused(one, PS_GPU(1), PS_EUNSUPPORTED,
                       "no device gpu(1): SIM_GPUS=1 gives gpu(0) only");
    device_rig_refused(three, PS_GPU(255), PS_EUNSUPPORTED,
                       "no device gpu(255): SIM_GPUS=3 gives gpu(0) to gpu(2)");
}

static void a_bad_list_of_peers_is_refused(void **state)
{
    /* of the form that settings take, but not of two accelerators */
    static const char *const bad[] = {"0-2", "1-1", "0-1,1-2", "00000000000000000-1"};
    PS_UNUSED(state);
    for (size_t i = 0; i < PS_COUNT(bad); i++) {
        char setting[64], text[PS_ERROR_TEXT_BYTES];
        const char *const settings[] = {"SIM_GPUS=2", setting, NULL};
        (void)snprintf(setting, sizeof(setting), "SIM_GPU_PEERS=%s", bad[i]);
        (void)snprintf(text, sizeof(text),
                       "SIM_GPU_PEERS '%s': want all, none, or pairs of two different "
                       "accelerators of 0 to 1 such as 0-1,2-3",
                       bad[i]);
        device_rig_refused(settings, PS_GPU(0), PS_EINVAL, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_cannot_touch_its_memory),
        cmocka_unit_test(nothing_lies_behind_its_memory),
        cmocka_unit_test(freed_memory_goes_back_to_the_system),
        cmocka_unit_test(the_budget_holds_and_fragments),
        cmocka_unit_test(case_117_a_fragmented_device_frees_its_cache_before_it_refuses),
        cmocka_unit_test(the_reserve_is_kept_free),
        cmocka_unit_test(nothing_happens_before_somebody_waits),
        cmocka_unit_test(an_event_drives_only_what_was_before_it),
        cmocka_unit_test(a_long_chain_of_waits_is_driven_from_its_end),
        cmocka_unit_test(copies_go_through_the_host_unless_peers_are_enabled),
        cmocka_unit_test(the_peer_matrix_is_what_the_setting_says),
        cmocka_unit_test(a_device_may_close_with_memory_out),
        cmocka_unit_test(a_device_that_is_not_there_is_refused),
        cmocka_unit_test(a_bad_list_of_peers_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
