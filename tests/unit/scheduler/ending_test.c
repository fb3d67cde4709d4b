/* What a running job says of itself, what garbage in bodies does to it, and how it ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "job_fixture.h"

#include <jansson.h>
#include <string.h>

/* ---- status ---- */

static json_t *ask_status(struct job *job, bool placement)
{
    struct job_call call;
    struct ps_msg_status msg = {.placement = placement}, answer;
    struct ps_error err;
    struct ps_buf *body = NULL;
    assert_int_equal(ps_msg_status_pack(&msg, &body), PS_OK);
    job_call(&call, job_find(job, PS_ROLE_WORKER, 0), PS_KIND_STATUS, body);
    assert_int_equal(call.status, PS_OK);
    assert_int_equal(
        ps_msg_status_unpack(call.reply->data, call.reply->size, &answer, &err), PS_OK);
    json_t *out = json_loadb(answer.json->data, answer.json->size, 0, NULL);
    assert_non_null(out);
    ps_msg_status_fini(&answer);
    job_call_fini(&call);
    return out;
}

static void status_tells_members_servers_keys_and_placement(void **state)
{
    static const uint64_t sizes[] = {1000, 3000000};
    struct job job;
    struct job_call call;
    (void)state;
    job_open(&job, 56, 2, 2, NULL);
    job_start(&job);
    job_call(&call, job_find(&job, PS_ROLE_WORKER, 0), PS_KIND_KEYS,
             job_keys_body("s", sizes, 2, false));
    job_call_fini(&call);
    json_t *status = ask_status(&job, true);
    assert_string_equal(json_string_value(json_object_get(status, "state")), "running");
    assert_int_equal(strlen(json_string_value(json_object_get(status, "uuid"))), 32);
    assert_int_equal(json_array_size(json_object_get(status, "members")), 4);
    assert_int_equal(json_integer_value(json_object_get(status, "keys")), 2);
    json_t *servers = json_object_get(status, "servers");
    assert_int_equal(json_array_size(servers), 2);
    json_int_t bytes = 0;
    for (size_t i = 0; i < 2; i++) {
        json_t *server = json_array_get(servers, i);
        bytes += json_integer_value(json_object_get(server, "bytes"));
        json_t *counters = json_object_get(server, "counters");
        assert_int_equal(json_integer_value(json_object_get(counters, "pushes")), 7);
    }
    assert_int_equal(bytes, 4 * 3001000);
    json_t *big = json_array_get(json_object_get(status, "placement"), 1);
    assert_string_equal(json_string_value(json_object_get(big, "key")), "k1");
    assert_int_equal(json_array_size(json_object_get(big, "extents")), 4);
    json_t *part = json_array_get(json_object_get(big, "servers"), 1);
    assert_int_equal(json_integer_value(json_object_get(part, "bytes")), 6000000);
    json_decref(status);
    job_close(&job);
}

/* ---- bodies that are not what they should be ---- */

static void case_074_bodies_of_garbage_are_answered_with_an_error(void **state)
{
    static const unsigned kinds[] = {PS_KIND_REGISTER,  PS_KIND_BARRIER, PS_KIND_KEYS,
                                     PS_KIND_OPTIMIZER, PS_KIND_HYPER,   PS_KIND_STATUS,
                                     PS_KIND_HEARTBEAT, PS_KIND_ENTRIES, PS_KIND_QUORUM,
                                     PS_KIND_STOP,      PS_KIND_ABORT};
    static const uint64_t sizes[] = {10};
    struct job job;
    struct job_call call;
    struct ps_rng rng;
    (void)state;
    job_open(&job, 60, 2, 1, NULL);
    job_start(&job);
    ps_rng_init(&rng, 60);
    struct job_member *worker = job_find(&job, PS_ROLE_WORKER, 1);
    for (size_t i = 0; i < 60 * PS_COUNT(kinds); i++) {
        unsigned kind = kinds[i % PS_COUNT(kinds)];
        struct ps_buf *body = job_keys_body("s", sizes, 1, false); /* something like it */
        size_t flips = ps_rng_below(&rng, 8) + (kind == PS_KIND_KEYS);
        for (size_t k = 0; k < flips; k++) {
            size_t at = ps_rng_below(&rng, body->size);
            ((unsigned char *)body->data)[at] = (unsigned char)ps_rng_u64(&rng);
        }
        if (i % 7 == 0) {
            ps_buf_release(body);
            body = NULL;
        }
        job_call(&call, worker, kind, body);
        if (kind == PS_KIND_ENTRIES || kind == PS_KIND_ABORT || kind == PS_KIND_BARRIER) {
            assert_int_not_equal(call.status, PS_OK);
        }
        job_call_fini(&call);
    }
    assert_false(job.ended);
    assert_false(job_find(&job, PS_ROLE_WORKER, 0)->failed);
    job_call(&call, worker, PS_KIND_KEYS, job_keys_body("fresh", sizes, 1, false));
    assert_int_equal(call.status, PS_OK);
    job_call_fini(&call);
    job_close(&job);
}

/* ---- the way out ---- */

static void done_takes_a_worker_out_of_the_quorum_of_every_server(void **state)
{
    struct job job;
    struct job_call call;
    (void)state;
    job_open(&job, 57, 2, 2, NULL);
    job_start(&job);
    for (int i = 0; i < 2; i++) { /* saying it twice is saying it once */
        job_call(&call, job_find(&job, PS_ROLE_WORKER, 1), PS_KIND_DONE, NULL);
        assert_int_equal(call.status, PS_OK);
        job_call_fini(&call);
    }
    assert_int_equal(job_find(&job, PS_ROLE_SERVER, 0)->quorums, 1);
    assert_int_equal(job_find(&job, PS_ROLE_SERVER, 1)->quorums, 1);
    job_close(&job);
}

static void case_110_the_job_ends_when_all_workers_have_left(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 58, 2, 2, NULL);
    job_start(&job);
    job_leave(job_find(&job, PS_ROLE_WORKER, 0));
    job_run_ms(&job, 100);
    assert_false(job.ended);
    uint64_t start_ns = ps_sim_now_ns(job.sim);
    job_leave(job_find(&job, PS_ROLE_WORKER, 1));
    assert_true(job_run_until(&job, &job.ended, 5000));
    assert_true(ps_sim_now_ns(job.sim) - start_ns < 5 * PS_NS_PER_S);
    assert_int_equal(job.result.status, PS_OK);
    for (size_t i = 0; i < job.member_count; i++) {
        assert_true(job_run_until(&job, &job.members[i].left, 5000));
        assert_int_equal(job.members[i].left_status, PS_OK);
        assert_false(job.members[i].failed);
    }
    job_close(&job);
}

static void a_server_that_never_leaves_does_not_hold_the_end_for_ever(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 59, 1, 2, NULL);
    job_start(&job);
    job_find(&job, PS_ROLE_SERVER, 1)->leave_on_stop = false;
    job_leave(job_find(&job, PS_ROLE_WORKER, 0));
    assert_true(job_run_until(&job, &job.ended, 30000));
    assert_int_equal(job.result.status, PS_OK);
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_tells_members_servers_keys_and_placement),
        cmocka_unit_test(case_074_bodies_of_garbage_are_answered_with_an_error),
        cmocka_unit_test(done_takes_a_worker_out_of_the_quorum_of_every_server),
        cmocka_unit_test(case_110_the_job_ends_when_all_workers_have_left),
        cmocka_unit_test(a_server_that_never_leaves_does_not_hold_the_end_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
