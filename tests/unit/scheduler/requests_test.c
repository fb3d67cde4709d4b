/* What members ask of a running job: barriers, keys, optimizers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "job_fixture.h"

#include <stdio.h>
#include <string.h>

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
    }
}

/* ---- barriers ---- */

static void case_046_nobody_passes_a_barrier_before_all_asked(void **state)
{
    struct job job;
    struct job_call calls[3];
    struct ps_rng rng;
    (void)state;
    job_open(&job, 46, 3, 1, NULL);
    job_start(&job);
    ps_rng_init(&rng, 46);
    for (uint64_t sequence = 1; sequence <= 1000; sequence++) {
        uint32_t last = (uint32_t)ps_rng_below(&rng, 3);
        for (uint32_t k = 1; k <= 3; k++) {
            uint32_t r = (last + k) % 3; /* 'last' asks last */
            job_call_start(&calls[r], job_find(&job, PS_ROLE_WORKER, r), PS_KIND_BARRIER,
                           job_barrier_body("b", sequence));
            job_run_ms(&job, k < 3 ? ps_rng_below(&rng, 3) : 0);
            for (uint32_t other = 1; other <= k && k < 3; other++) {
                assert_false(calls[(last + other) % 3].done);
            }
        }
        for (uint32_t r = 0; r < 3; r++) {
            assert_true(job_run_until(&job, &calls[r].done, 1000));
            assert_int_equal(calls[r].status, PS_OK);
            job_call_fini(&calls[r]);
        }
    }
    job_close(&job);
}

static void case_046_a_worker_that_asks_twice_counts_once(void **state)
{
    struct job job;
    struct job_call first, second, other, again;
    (void)state;
    job_open(&job, 47, 2, 1, NULL);
    job_start(&job);
    struct job_member *zero = job_find(&job, PS_ROLE_WORKER, 0);
    struct job_member *one = job_find(&job, PS_ROLE_WORKER, 1);
    job_call_start(&first, zero, PS_KIND_BARRIER, job_barrier_body("b", 1));
    job_call_start(&second, zero, PS_KIND_BARRIER, job_barrier_body("b", 1));
    job_run_ms(&job, 2000);
    assert_false(first.done);
    assert_false(second.done);
    job_call(&other, one, PS_KIND_BARRIER, job_barrier_body("b", 1));
    assert_int_equal(other.status, PS_OK);
    assert_true(job_run_until(&job, &first.done, 100));
    assert_true(job_run_until(&job, &second.done, 100));
    /* one that was released is answered again, and does not count for the next */
    job_call(&again, zero, PS_KIND_BARRIER, job_barrier_body("b", 1));
    assert_int_equal(again.status, PS_OK);
    job_call_fini(&again);
    job_call(&again, zero, PS_KIND_BARRIER, job_barrier_body("b", 5));
    assert_int_equal(again.status, PS_EINVAL);
    assert_contains(again.err.text, "the next is 2");
    job_call_fini(&first);
    job_call_fini(&second);
    job_call_fini(&other);
    job_call_fini(&again);
    job_close(&job);
}

static void a_barrier_does_not_wait_for_a_worker_that_left(void **state)
{
    struct job job;
    struct job_call call;
    (void)state;
    job_open(&job, 48, 2, 1, NULL);
    job_start(&job);
    job_call_start(&call, job_find(&job, PS_ROLE_WORKER, 0), PS_KIND_BARRIER,
                   job_barrier_body("b", 1));
    job_run_ms(&job, 100);
    assert_false(call.done);
    job_leave(job_find(&job, PS_ROLE_WORKER, 1));
    assert_true(job_run_until(&job, &call.done, 1000));
    assert_int_equal(call.status, PS_OK);
    job_call_fini(&call);
    job_close(&job);
}

/* ---- keys ---- */

static void keys_are_placed_and_brought_to_the_servers_concerned(void **state)
{
    static const uint64_t sizes[] = {1000, 3000000, 10};
    struct job job;
    struct job_call call;
    struct ps_msg_keys msg;
    struct ps_error err;
    (void)state;
    job_open(&job, 50, 1, 2, NULL);
    job_start(&job);
    job_call(&call, job_find(&job, PS_ROLE_WORKER, 0), PS_KIND_KEYS,
             job_keys_body("s", sizes, 3, false));
    assert_int_equal(call.status, PS_OK);
    assert_int_equal(ps_msg_keys_unpack(call.reply->data, call.reply->size, &msg, &err),
                     PS_OK);
    assert_int_equal(msg.row_count, 3);
    assert_int_equal(msg.store_id, 1);
    assert_int_equal(msg.rows[1].extent_count, 4); /* 1.5 M elements on each server */
    assert_true(msg.rows[0].handle != msg.rows[1].handle);
    ps_msg_keys_fini(&msg);
    uint64_t elements = 0;
    for (uint32_t r = 0; r < 2; r++) {
        struct job_member *server = job_find(&job, PS_ROLE_SERVER, r);
        assert_int_equal(server->entries, 1);
        elements += server->entry_elements;
    }
    assert_int_equal(elements, 3001010);
    job_call_fini(&call);
    job_close(&job);
}

static void keys_that_all_workers_create_at_once_are_created_once(void **state)
{
    static const uint64_t sizes[] = {10, 20, 30};
    struct job job;
    struct job_call calls[3];
    struct ps_msg_keys msgs[3];
    struct ps_error err;
    (void)state;
    job_open(&job, 51, 3, 1, NULL);
    job_start(&job);
    for (uint32_t r = 0; r < 3; r++) {
        job_call_start(&calls[r], job_find(&job, PS_ROLE_WORKER, r), PS_KIND_KEYS,
                       job_keys_body("s", sizes, 3, false));
    }
    for (uint32_t r = 0; r < 3; r++) {
        assert_true(job_run_until(&job, &calls[r].done, 1000));
        assert_int_equal(calls[r].status, PS_OK);
        assert_int_equal(ps_msg_keys_unpack(calls[r].reply->data, calls[r].reply->size,
                                            &msgs[r], &err),
                         PS_OK);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(msgs[r].rows[i].handle, msgs[0].rows[i].handle);
        }
    }
    assert_int_equal(job_find(&job, PS_ROLE_SERVER, 0)->entries, 1);
    for (uint32_t r = 0; r < 3; r++) {
        ps_msg_keys_fini(&msgs[r]);
        job_call_fini(&calls[r]);
    }
    job_close(&job);
}

static void case_043_two_stores_have_their_own_names(void **state)
{
    static const uint64_t small[] = {10}, large[] = {20};
    struct job job;
    struct job_call one, two, clash, lookup;
    struct ps_msg_keys first, second;
    struct ps_error err;
    (void)state;
    job_open(&job, 52, 1, 1, NULL);
    job_start(&job);
    struct job_member *worker = job_find(&job, PS_ROLE_WORKER, 0);
    job_call(&one, worker, PS_KIND_KEYS, job_keys_body("a", small, 1, false));
    job_call(&two, worker, PS_KIND_KEYS, job_keys_body("b", large, 1, false));
    assert_int_equal(one.status, PS_OK);
    assert_int_equal(two.status, PS_OK);
    assert_int_equal(ps_msg_keys_unpack(one.reply->data, one.reply->size, &first, &err),
                     PS_OK);
    assert_int_equal(ps_msg_keys_unpack(two.reply->data, two.reply->size, &second, &err),
                     PS_OK);
    assert_true(first.store_id != second.store_id);
    assert_true(first.rows[0].handle != second.rows[0].handle);
    assert_int_equal(second.rows[0].count, 20);
    /* in one store a different shape is a mismatch, by name */
    job_call(&clash, worker, PS_KIND_KEYS, job_keys_body("a", large, 1, false));
    assert_int_equal(clash.status, PS_EMISMATCH);
    assert_contains(clash.err.text, "k0");
    job_call(&lookup, worker, PS_KIND_KEYS, job_keys_body("c", small, 1, true));
    assert_int_equal(lookup.status, PS_ENOENT);
    assert_contains(lookup.err.text, "store c does not exist");
    job_call_fini(&lookup);
    job_call(&lookup, worker, PS_KIND_KEYS, job_keys_body("a", large, 1, true));
    assert_int_equal(lookup.status, PS_OK);
    ps_msg_keys_fini(&first);
    ps_msg_keys_fini(&second);
    job_call_fini(&one);
    job_call_fini(&two);
    job_call_fini(&clash);
    job_call_fini(&lookup);
    job_close(&job);
}

static void keys_that_a_server_refuses_are_an_error_and_can_be_tried_again(void **state)
{
    static const uint64_t sizes[] = {10};
    struct job job;
    struct job_call call;
    (void)state;
    job_open(&job, 53, 1, 1, NULL);
    job_start(&job);
    struct job_member *server = job_find(&job, PS_ROLE_SERVER, 0);
    server->refuse_entries = PS_ENOMEM;
    job_call(&call, job_find(&job, PS_ROLE_WORKER, 0), PS_KIND_KEYS,
             job_keys_body("s", sizes, 1, false));
    assert_int_equal(call.status, PS_ENOMEM);
    assert_contains(call.err.text, "server 0 (member ");
    assert_contains(call.err.text, "no room for entries");
    job_call_fini(&call);
    server->refuse_entries = PS_OK;
    job_call(&call, job_find(&job, PS_ROLE_WORKER, 0), PS_KIND_KEYS,
             job_keys_body("s", sizes, 1, false));
    assert_int_equal(call.status, PS_OK);
    assert_int_equal(server->entries, 2);
    job_call_fini(&call);
    job_close(&job);
}

/* ---- optimizers ---- */

static void the_same_optimizer_of_every_worker_is_one(void **state)
{
    struct job job;
    struct job_call calls[3];
    (void)state;
    job_open(&job, 54, 3, 2, NULL);
    job_start(&job);
    for (uint32_t r = 0; r < 3; r++) {
        job_call_start(&calls[r], job_find(&job, PS_ROLE_WORKER, r), PS_KIND_OPTIMIZER,
                       job_optimizer_body("s", "sgd", "learning_rate=0.1", 1));
    }
    for (uint32_t r = 0; r < 3; r++) {
        assert_true(job_run_until(&job, &calls[r].done, 1000));
        assert_int_equal(calls[r].status, PS_OK);
        job_call_fini(&calls[r]);
    }
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(job_find(&job, PS_ROLE_SERVER, r)->optimizers, 1);
    }
    job_call(&calls[0], job_find(&job, PS_ROLE_WORKER, 2), PS_KIND_OPTIMIZER,
             job_optimizer_body("s", "adam", "learning_rate=0.1", 2));
    assert_int_equal(calls[0].status, PS_OK);
    assert_int_equal(job_find(&job, PS_ROLE_SERVER, 1)->optimizers, 2);
    job_call_fini(&calls[0]);
    job_close(&job);
}

static void a_hyper_sent_again_counts_once_and_changes_go_in_order(void **state)
{
    struct job job;
    struct job_call calls[3], again;
    (void)state;
    job_open(&job, 55, 1, 1, NULL);
    job_start(&job);
    struct job_member *worker = job_find(&job, PS_ROLE_WORKER, 0);
    job_call_start(&calls[0], worker, PS_KIND_HYPER,
                   job_optimizer_body("s", "", "learning_rate=0.1", 1));
    job_call_start(&calls[1], worker, PS_KIND_HYPER,
                   job_optimizer_body("s", "", "learning_rate=0.2", 2));
    job_call_start(&calls[2], worker, PS_KIND_HYPER,
                   job_optimizer_body("s", "", "learning_rate=0.2", 2));
    for (size_t i = 0; i < 3; i++) {
        assert_true(job_run_until(&job, &calls[i].done, 1000));
        assert_int_equal(calls[i].status, PS_OK);
        job_call_fini(&calls[i]);
    }
    job_call(&again, worker, PS_KIND_HYPER,
             job_optimizer_body("s", "", "learning_rate=0.1", 1));
    assert_int_equal(again.status, PS_OK);
    struct job_member *server = job_find(&job, PS_ROLE_SERVER, 0);
    assert_int_equal(server->hypers, 2);
    assert_string_equal(server->last_hyper, "learning_rate=0.2");
    job_call_fini(&again);
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_046_nobody_passes_a_barrier_before_all_asked),
        cmocka_unit_test(case_046_a_worker_that_asks_twice_counts_once),
        cmocka_unit_test(a_barrier_does_not_wait_for_a_worker_that_left),
        cmocka_unit_test(keys_are_placed_and_brought_to_the_servers_concerned),
        cmocka_unit_test(keys_that_all_workers_create_at_once_are_created_once),
        cmocka_unit_test(case_043_two_stores_have_their_own_names),
        cmocka_unit_test(keys_that_a_server_refuses_are_an_error_and_can_be_tried_again),
        cmocka_unit_test(the_same_optimizer_of_every_worker_is_one),
        cmocka_unit_test(a_hyper_sent_again_counts_once_and_changes_go_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
