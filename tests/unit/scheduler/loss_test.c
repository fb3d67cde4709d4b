/* What is lost, and who hears of it: silence, broken links, ABORT, bad weather, faults.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "job_fixture.h"

#include <stdio.h>
#include <string.h>

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
    }
}

static void quiet_members_are_alive_while_they_beat(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 1, 2, 1, NULL);
    job_start(&job);
    job_run_ms(&job, 120000);
    assert_false(job.ended);
    for (size_t i = 0; i < job.member_count; i++) {
        assert_false(job.members[i].failed);
    }
    job_close(&job);
}

static void case_075_a_dead_worker_ends_the_job_and_is_named_to_all(void **state)
{
    static const char *const extra[] = {"HEARTBEAT_MS=200", "HEARTBEAT_TIMEOUT_MS=1000",
                                        NULL};
    struct job job;
    (void)state;
    job_open(&job, 75, 3, 2, extra);
    job_start(&job);
    struct job_member *dead = job_find(&job, PS_ROLE_WORKER, 1);
    ps_sim_kill_node(job.sim, dead->node->sim_name);
    uint64_t start_ns = ps_sim_now_ns(job.sim);
    for (size_t i = 0; i < job.member_count; i++) {
        struct job_member *member = &job.members[i];
        if (member == dead) {
            continue;
        }
        assert_true(job_run_until(&job, &member->failed, 6000));
        assert_int_equal(member->err.status, PS_EPEER);
        assert_contains(member->err.text, "lost worker 1 (member ");
    }
    assert_true(ps_sim_now_ns(job.sim) - start_ns <= 5 * PS_NS_PER_S);
    assert_true(job_run_until(&job, &job.ended, 10000));
    assert_int_equal(job.result.status, PS_EPEER);
    assert_contains(job.result.text, "lost worker 1 (member ");
    job_close(&job);
}

static void a_partitioned_worker_is_lost_by_its_silence_and_learns_it_itself(void **state)
{
    static const char *const extra[] = {"HEARTBEAT_MS=500", "HEARTBEAT_TIMEOUT_MS=3000",
                                        "LINK_GRACE_MS=600000", NULL};
    struct job job;
    (void)state;
    job_open(&job, 76, 2, 1, extra);
    job_start(&job);
    struct job_member *zero = job_find(&job, PS_ROLE_WORKER, 0);
    struct job_member *one = job_find(&job, PS_ROLE_WORKER, 1);
    ps_net_world_partition(job.world, "scheduler", one->node->sim_name, true);
    assert_true(job_run_until(&job, &zero->failed, 6000));
    assert_contains(zero->err.text, "lost worker 1 (member ");
    assert_contains(zero->err.text, "no heartbeat for 3");
    assert_true(job_run_until(&job, &one->failed, 6000));
    assert_int_equal(one->err.status, PS_EPEER);
    assert_contains(one->err.text, "lost the scheduler sim://scheduler");
    job_close(&job);
}

static void a_short_partition_is_no_loss(void **state)
{
    struct job job;
    struct job_call call;
    (void)state;
    job_open(&job, 77, 1, 1, NULL);
    job_start(&job);
    struct job_member *zero = job_find(&job, PS_ROLE_WORKER, 0);
    ps_net_world_partition(job.world, "scheduler", zero->node->sim_name, true);
    job_call_start(&call, zero, PS_KIND_BARRIER, job_barrier_body("b", 1));
    job_run_ms(&job, 2500);
    assert_false(call.done);
    ps_net_world_partition(job.world, "scheduler", zero->node->sim_name, false);
    assert_true(job_run_until(&job, &call.done, 20000));
    assert_int_equal(call.status, PS_OK);
    job_call_fini(&call);
    job_close(&job);
}

static void a_process_that_exits_after_done_without_leave_is_lost(void **state)
{
    struct job job;
    struct job_call call;
    (void)state;
    job_open(&job, 78, 2, 1, NULL);
    job_start(&job);
    struct job_member *one = job_find(&job, PS_ROLE_WORKER, 1);
    job_call(&call, one, PS_KIND_DONE, NULL);
    job_call_fini(&call);
    job_drop(one);
    struct job_member *zero = job_find(&job, PS_ROLE_WORKER, 0);
    assert_true(job_run_until(&job, &zero->failed, 5000));
    assert_contains(zero->err.text, "lost worker 1 (member ");
    assert_contains(zero->err.text, "it closed its link without LEAVE");
    job_close(&job);
}

static void a_member_that_aborts_ends_everybody_with_its_words(void **state)
{
    struct job job;
    struct job_call barrier;
    (void)state;
    job_open(&job, 79, 2, 2, NULL);
    job_start(&job);
    struct job_member *zero = job_find(&job, PS_ROLE_WORKER, 0);
    struct job_member *server = job_find(&job, PS_ROLE_SERVER, 1);
    job_call_start(&barrier, job_find(&job, PS_ROLE_WORKER, 1), PS_KIND_BARRIER,
                   job_barrier_body("b", 1));
    ps_member_abort(zero->member, PS_EPEER, ps_member_job(server->member)->member,
                    "connection refused");
    for (size_t i = 0; i < job.member_count; i++) {
        assert_true(job_run_until(&job, &job.members[i].failed, 5000));
        assert_int_equal(job.members[i].err.status, PS_EPEER);
        assert_contains(job.members[i].err.text, "server 1 (member ");
        assert_contains(job.members[i].err.text, "connection refused, says worker 0");
    }
    assert_true(barrier.done); /* what waits ends with the same words */
    assert_int_equal(barrier.status, PS_EPEER);
    assert_contains(barrier.err.text, "connection refused");
    assert_true(job_run_until(&job, &job.ended, 10000));
    assert_int_equal(job.result.status, PS_EPEER);
    job_call_fini(&barrier);
    job_close(&job);
}

static void stop_from_outside_ends_a_running_job_and_an_idle_scheduler_well(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 80, 1, 1, NULL);
    (void)job_member(&job, PS_ROLE_SERVER, 0);
    job_run_ms(&job, 10);
    ps_scheduler_stop(job.scheduler, "signal 15");
    assert_true(job_run_until(&job, &job.ended, 10000));
    assert_int_equal(job.result.status, PS_OK);
    assert_true(job_run_until(&job, &job.members[0].failed, 1000));
    assert_contains(job.members[0].err.text, "the scheduler was ended: signal 15");
    job_close(&job);

    job_open(&job, 81, 1, 1, NULL);
    job_start(&job);
    ps_scheduler_stop(job.scheduler, "signal 15");
    assert_true(job_run_until(&job, &job.ended, 10000));
    assert_int_equal(job.result.status, PS_ECANCELED);
    assert_true(job.members[1].failed);
    job_close(&job);
}

static void case_080_a_heartbeat_before_registration_disturbs_nothing(void **state)
{
    /* beats every 10 ms from the link's first moment, the job begins seconds later */
    static const char *const extra[] = {"HEARTBEAT_MS=10", "HEARTBEAT_TIMEOUT_MS=1000",
                                        NULL};
    static const struct ps_net_weather weather = {.delay_min_ns = 0,
                                                  .delay_max_ns = 50 * PS_NS_PER_MS};
    struct job job;
    (void)state;
    job_open(&job, 82, 1, 1, extra);
    ps_net_world_set_weather(job.world, &weather);
    struct job_member *worker = job_member(&job, PS_ROLE_WORKER, 0);
    job_run_ms(&job, 5000);
    assert_false(worker->failed);
    assert_false(worker->joined);
    (void)job_member(&job, PS_ROLE_SERVER, 0);
    assert_true(job_run_until(&job, &worker->joined, 5000));
    job_close(&job);
}

/* ---- weather ---- */

/* A whole life: join, keys, optimizer, barriers, leave. */
static void live(struct job *job)
{
    static const uint64_t sizes[] = {10, 2000000, 30};
    struct job_call calls[2];
    job_start(job);
    for (unsigned step = 0; step < 8; step++) {
        for (uint32_t r = 0; r < 2; r++) {
            struct job_member *worker = job_find(job, PS_ROLE_WORKER, r);
            if (step == 0) {
                job_call_start(&calls[r], worker, PS_KIND_KEYS,
                               job_keys_body("s", sizes, 3, false));
            } else if (step == 1) {
                job_call_start(&calls[r], worker, PS_KIND_OPTIMIZER,
                               job_optimizer_body("s", "sgd", "learning_rate=0.1", 1));
            } else {
                job_call_start(&calls[r], worker, PS_KIND_BARRIER,
                               job_barrier_body("b", step - 1));
            }
        }
        for (uint32_t r = 0; r < 2; r++) {
            if (!job_run_until(job, &calls[r].done, 90000) || calls[r].status != PS_OK) {
                fail_msg("step %u worker %u: %s", step, r, calls[r].err.text);
            }
            job_call_fini(&calls[r]);
        }
    }
    uint64_t elements = 0;
    for (uint32_t r = 0; r < 2; r++) {
        job_leave(job_find(job, PS_ROLE_WORKER, r));
        elements += job_find(job, PS_ROLE_SERVER, r)->entry_elements;
    }
    assert_true(elements >= 2000040);
    assert_true(job_run_until(job, &job->ended, 120000));
    if (job->result.status != PS_OK) {
        fail_msg("the job ended: %s", job->result.text);
    }
}

static void a_job_lives_through_loss_duplication_and_reordering(void **state)
{
    static const char *const extra[] = {"RESEND=1", "RESEND_TIMEOUT_MS=100", NULL};
    static const struct ps_net_weather weather = {.delay_min_ns = 0,
                                                  .delay_max_ns = 20 * PS_NS_PER_MS,
                                                  .drop = 0.1,
                                                  .duplicate = 0.1};
    struct job job;
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        job_open(&job, seed, 2, 2, extra);
        ps_net_world_set_weather(job.world, &weather);
        live(&job);
        for (size_t i = 0; i < job.member_count; i++) {
            if (job.members[i].failed) {
                fail_msg("seed %u member %zu: %s", (unsigned)seed, i,
                         job.members[i].err.text);
            }
        }
        job_close(&job);
    }
}

static void the_same_seed_gives_the_same_trace(void **state)
{
    static const struct ps_net_weather weather = {
        .delay_max_ns = 20 * PS_NS_PER_MS, .drop = 0.05, .duplicate = 0.05};
    uint64_t hashes[2];
    struct job job;
    (void)state;
    for (int i = 0; i < 2; i++) {
        job_open(&job, 11, 2, 2, NULL);
        ps_net_world_set_weather(job.world, &weather);
        live(&job);
        hashes[i] = ps_sim_trace_hash(job.sim);
        job_close(&job);
    }
    assert_int_equal(hashes[0], hashes[1]);
}

/* ---- fault points ---- */

/* What a killed handler's stack holds stays: the body of the call that was being
 * answered. The other tests of the room see these functions leak nothing. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:ps_msg_register_pack\nleak:ps_msg_quorum_pack\n";
}

/* Keys, an optimizer, a barrier, the goodbye, as far as they go. */
static void work_and_leave(struct job *job, struct job_member *zero,
                           struct job_member *one)
{
    static const uint64_t sizes[] = {10};
    struct job_call call, other;
    struct ps_buf *bodies[] = {job_keys_body("s", sizes, 1, false),
                               job_optimizer_body("s", "sgd", "", 1),
                               job_barrier_body("b", 1)};
    static const unsigned kinds[] = {PS_KIND_KEYS, PS_KIND_OPTIMIZER, PS_KIND_BARRIER};
    for (size_t k = 0; k < PS_COUNT(kinds); k++) {
        if (zero->failed || ps_member_link(zero->member) == NULL) {
            ps_buf_release(bodies[k]);
            continue;
        }
        job_call_start(&call, zero, kinds[k], bodies[k]);
        if (kinds[k] == PS_KIND_BARRIER && one->joined &&
            ps_member_link(one->member) != NULL) {
            job_call_start(&other, one, kinds[k], job_barrier_body("b", 1));
            job_run_ms(job, 100);
            job_call_fini(&other);
        }
        assert_true(job_run_until(job, &call.done, 120000));
        job_call_fini(&call);
    }
    job_leave(zero);
    if (one->joined) {
        job_leave(one);
    }
}

/* Every point of the room, on the node that passes it: everybody ends, and with an error
 * or in good order, but nobody waits for ever. */
static void a_fault_at_any_point_ends_for_everybody(void **state)
{
    static const char *const points[] = {
        "scheduler.before_job",    "scheduler.before_entries",
        "scheduler.before_quorum", "scheduler.before_barrier_reply",
        "scheduler.before_stop",   "scheduler.before_optimizer",
        "member.before_register",  "member.after_join",
        "member.before_heartbeat", "member.before_leave"};
    static const enum ps_fault_action actions[] = {PS_FAULT_FAIL, PS_FAULT_KILL};
    static const char *const extra[] = {"START_TIMEOUT_MS=5000", "HEARTBEAT_MS=200",
                                        "HEARTBEAT_TIMEOUT_MS=1000", NULL};
    struct job job;
    (void)state;
    for (size_t i = 0; i < 2 * PS_COUNT(points); i++) {
        struct ps_fault_rule rule = {
            .point = points[i / 2], .action = actions[i % 2], .nth = 1};
        bool scheduler = strncmp(rule.point, "scheduler.", 10) == 0;
        job_open(&job, 90 + i, 2, 1, extra);
        struct job_member *server = job_member(&job, PS_ROLE_SERVER, 0);
        struct job_member *zero = job_member(&job, PS_ROLE_WORKER, 0);
        struct job_member *one = job_member(&job, PS_ROLE_WORKER, 1);
        assert_int_equal(
            ps_faults_arm(scheduler ? job.node->faults : one->node->faults, &rule),
            PS_OK);
        if (job_run_until(&job, &zero->joined, 8000) && !zero->failed) {
            work_and_leave(&job, zero, one);
        }
        if (!job_run_until(&job, &zero->over, 60000)) {
            fail_msg("%s: worker 0 did not end", rule.point);
        }
        bool killed = rule.action == PS_FAULT_KILL;
        if (!(killed && scheduler)) {
            job_run_ms(&job, 20000);
            if (!job.ended) {
                fail_msg("%s: the scheduler did not end", rule.point);
            }
            if (ps_sim_node_is_killed(job.sim, one->node->sim_name) &&
                job.result.status == PS_OK) {
                fail_msg("%s: the job ended well without its worker", rule.point);
            }
        }
        job_run_ms(&job, 20000);
        if (!server->over) {
            fail_msg("%s: the server did not end", rule.point);
        }
        job_close(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quiet_members_are_alive_while_they_beat),
        cmocka_unit_test(case_075_a_dead_worker_ends_the_job_and_is_named_to_all),
        cmocka_unit_test(
            a_partitioned_worker_is_lost_by_its_silence_and_learns_it_itself),
        cmocka_unit_test(a_short_partition_is_no_loss),
        cmocka_unit_test(a_process_that_exits_after_done_without_leave_is_lost),
        cmocka_unit_test(a_member_that_aborts_ends_everybody_with_its_words),
        cmocka_unit_test(stop_from_outside_ends_a_running_job_and_an_idle_scheduler_well),
        cmocka_unit_test(case_080_a_heartbeat_before_registration_disturbs_nothing),
        cmocka_unit_test(a_job_lives_through_loss_duplication_and_reordering),
        cmocka_unit_test(the_same_seed_gives_the_same_trace),
        cmocka_unit_test(a_fault_at_any_point_ends_for_everybody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
