/* Who may join, with which rank, and what those who may not are told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job_fixture.h"

#include <string.h>

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
    }
}

static void all_members_join_and_know_each_other(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 1, 3, 2, NULL);
    job_start(&job);
    for (size_t i = 0; i < job.member_count; i++) {
        const struct ps_msg_job *msg = ps_member_job(job.members[i].member);
        assert_int_equal(msg->member_count, 5);
        assert_int_equal(msg->num_worker, 3);
        assert_int_equal(msg->num_server, 2);
        assert_int_equal(msg->epoch >> 40, 1);
        const struct ps_member_row *server =
            ps_member_find(job.members[i].member, PS_ROLE_SERVER, 1);
        assert_int_equal(server->url_count, 2);
        assert_string_equal(server->urls[1], "sim://lane1");
        assert_true(server->member >= 2);
    }
    job_close(&job);
}

static void ranks_not_asked_for_are_dealt_in_order_of_registration(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 2, 3, 1, NULL);
    struct job_member *first = job_member(&job, PS_ROLE_WORKER, -1);
    job_run_ms(&job, 10);
    struct job_member *second = job_member(&job, PS_ROLE_WORKER, -1);
    job_run_ms(&job, 10);
    struct job_member *asker = job_member(&job, PS_ROLE_WORKER, 0);
    job_run_ms(&job, 10);
    (void)job_member(&job, PS_ROLE_SERVER, -1);
    assert_true(job_run_until(&job, &first->joined, 1000));
    job_run_ms(&job, 10);
    assert_int_equal(ps_member_job(asker->member)->rank, 0);
    assert_int_equal(ps_member_job(first->member)->rank, 1);
    assert_int_equal(ps_member_job(second->member)->rank, 2);
    job_close(&job);
}

static void case_100_requested_ranks_are_honoured_in_every_restart(void **state)
{
    struct job job;
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        job_open(&job, seed, 3, 1, NULL);
        job_start(&job);
        /* the fixture's members are: server 0, workers 0, 1, 2, in that order */
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(ps_member_job(job.members[1 + r].member)->rank, r);
        }
        job_close(&job);
    }
}

static void the_second_claim_of_a_live_rank_is_refused_and_names_the_holder(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 3, 2, 1, NULL);
    (void)job_member(&job, PS_ROLE_WORKER, 1);
    job_run_ms(&job, 10);
    struct job_member *second = job_member(&job, PS_ROLE_WORKER, 1);
    assert_true(job_run_until(&job, &second->failed, 1000));
    assert_int_equal(second->err.status, PS_EEXIST);
    assert_contains(second->err.text, "rank 1 of the workers is held by worker 1 "
                                      "(member 2, host ");
    job_close(&job);
}

static void a_rank_beyond_the_job_is_refused(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 4, 2, 1, NULL);
    struct job_member *member = job_member(&job, PS_ROLE_WORKER, 2);
    assert_true(job_run_until(&job, &member->failed, 1000));
    assert_int_equal(member->err.status, PS_ERANGE);
    assert_contains(member->err.text, "asks for rank 2, the job has ranks 0 to 1");
    job_close(&job);
}

static void case_042_a_wrong_number_of_workers_is_refused_by_name(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 5, 2, 1, NULL);
    struct job_member *member = job_member_sized(&job, PS_ROLE_WORKER, -1, 1, 1);
    assert_true(job_run_until(&job, &member->failed, 1000));
    assert_int_equal(member->err.status, PS_EMISMATCH);
    assert_contains(member->err.text, "worker expects 1 workers, the job has 2");
    struct job_member *server = job_member_sized(&job, PS_ROLE_SERVER, -1, 2, 3);
    assert_true(job_run_until(&job, &server->failed, 1000));
    assert_contains(server->err.text, "server expects 3 servers, the job has 1");
    assert_false(job.ended);
    job_close(&job);
}

static void case_078_a_late_registration_is_told_why_not(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 6, 2, 1, NULL);
    job_start(&job);
    struct job_member *late = job_member(&job, PS_ROLE_WORKER, 0);
    assert_true(job_run_until(&job, &late->failed, 1000));
    assert_int_equal(late->err.status, PS_EFULL);
    assert_contains(late->err.text, "the job has all its 2 workers: worker 0 (member ");
    assert_false(job.ended);
    job_close(&job);
}

static void a_process_that_exits_before_the_job_frees_its_rank(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 7, 1, 1, NULL);
    struct job_member *first = job_member(&job, PS_ROLE_WORKER, 0);
    job_run_ms(&job, 10);
    job_drop(first);
    job_run_ms(&job, 10);
    struct job_member *again = job_member(&job, PS_ROLE_WORKER, 0);
    (void)job_member(&job, PS_ROLE_SERVER, 0);
    assert_true(job_run_until(&job, &again->joined, 1000));
    assert_true(ps_member_job(again->member)->member > 2); /* ids are not reused */
    job_close(&job);
}

static void the_start_deadline_tells_everyone_who_is_missing(void **state)
{
    static const char *const extra[] = {"START_TIMEOUT_MS=2000", NULL};
    struct job job;
    (void)state;
    job_open(&job, 8, 2, 2, extra);
    struct job_member *server = job_member(&job, PS_ROLE_SERVER, 0);
    struct job_member *worker = job_member(&job, PS_ROLE_WORKER, 0);
    assert_true(job_run_until(&job, &worker->failed, 3000));
    assert_true(job_run_until(&job, &server->failed, 1000));
    assert_int_equal(worker->err.status, PS_ETIMEDOUT);
    assert_contains(worker->err.text, "waiting for server 1, worker 1; have server 0 "
                                      "(member 2, host ");
    assert_true(job_run_until(&job, &job.ended, 20000));
    assert_int_equal(job.result.status, PS_ETIMEDOUT);
    assert_contains(job.result.text, "waiting for server 1, worker 1");
    job_close(&job);
}

static void a_member_without_a_scheduler_gives_up_at_its_deadline(void **state)
{
    static const char *const extra[] = {"START_TIMEOUT_MS=2000", "CONNECT_TIMEOUT_MS=500",
                                        NULL};
    struct job job;
    (void)state;
    job_open(&job, 9, 1, 1, extra);
    ps_net_world_partition(job.world, "scheduler", "m0", true);
    struct job_member *member = job_member(&job, PS_ROLE_WORKER, -1);
    assert_true(job_run_until(&job, &member->failed, 5000));
    assert_int_equal(member->err.status, PS_ETIMEDOUT);
    assert_contains(member->err.text, "the scheduler sim://scheduler does not answer");
    job_close(&job);
}

static void case_047_members_that_start_one_by_one_all_start(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 10, 2, 1, NULL);
    struct job_member *one = job_member(&job, PS_ROLE_WORKER, 1);
    job_run_ms(&job, 3000);
    struct job_member *zero = job_member(&job, PS_ROLE_WORKER, 0);
    job_run_ms(&job, 3000);
    assert_false(one->joined);
    (void)job_member(&job, PS_ROLE_SERVER, -1);
    assert_true(job_run_until(&job, &one->joined, 1000));
    assert_true(job_run_until(&job, &zero->joined, 1000));
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_join_and_know_each_other),
        cmocka_unit_test(ranks_not_asked_for_are_dealt_in_order_of_registration),
        cmocka_unit_test(case_100_requested_ranks_are_honoured_in_every_restart),
        cmocka_unit_test(the_second_claim_of_a_live_rank_is_refused_and_names_the_holder),
        cmocka_unit_test(a_rank_beyond_the_job_is_refused),
        cmocka_unit_test(case_042_a_wrong_number_of_workers_is_refused_by_name),
        cmocka_unit_test(case_078_a_late_registration_is_told_why_not),
        cmocka_unit_test(a_process_that_exits_before_the_job_frees_its_rank),
        cmocka_unit_test(the_start_deadline_tells_everyone_who_is_missing),
        cmocka_unit_test(a_member_without_a_scheduler_gives_up_at_its_deadline),
        cmocka_unit_test(case_047_members_that_start_one_by_one_all_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
