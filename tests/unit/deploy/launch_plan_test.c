/* Plans: who is started, with which words and variables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "deploy/launch_plan.h"

#include <string.h>

static char *const command[] = {"penstock", "train", NULL};
static const struct ps_launch_root root = {.uri = "127.0.0.1", .port = 4711};

static struct ps_launch_request request(void)
{
    return (struct ps_launch_request){
        .workers = 2, .servers = 3, .command = command, .command_count = 2};
}

/* The value of 'name', NULL when it is not there, with a check that it is there once. */
static const char *value(const struct ps_launch_strings *env, const char *name)
{
    const char *found = NULL;
    size_t size = strlen(name);
    for (size_t i = 0; i < env->count; i++) {
        if (strncmp(env->items[i], name, size) == 0 && env->items[i][size] == '=') {
            assert_null(found);
            found = env->items[i] + size + 1;
        }
    }
    return found;
}

static struct ps_launch_strings env_of(const struct ps_launch_plan *plan, size_t index,
                                       uint32_t attempt, char *const *inherited)
{
    struct ps_launch_strings env = {0};
    assert_int_equal(
        ps_launch_plan_env(plan, &plan->procs[index], &root, attempt, inherited, &env),
        PS_OK);
    assert_null(env.items[env.count]);
    return env;
}

static void scheduler_servers_and_workers_are_in_order(void **state)
{
    PS_UNUSED(state);
    struct ps_launch_request r = request();
    struct ps_launch_plan *plan = NULL;
    assert_int_equal(ps_launch_plan_create(&r, &plan, NULL), PS_OK);
    assert_int_equal(plan->count, 6);
    assert_string_equal(plan->procs[0].name, "scheduler");
    assert_string_equal(plan->procs[1].name, "server/0");
    assert_string_equal(plan->procs[3].name, "server/2");
    assert_string_equal(plan->procs[4].name, "worker/0");
    assert_string_equal(plan->procs[5].name, "worker/1");
    assert_string_equal(plan->procs[5].file_name, "worker-1.log");
    assert_string_equal(plan->procs[0].argv[1], "scheduler");
    assert_string_equal(plan->procs[0].argv[2], "--ready-fd");
    assert_string_equal(plan->procs[0].argv[3], "3");
    assert_null(plan->procs[0].argv[4]);
    assert_string_equal(plan->procs[1].argv[1], "server");
    assert_null(plan->procs[1].argv[2]);
    assert_string_equal(plan->procs[4].argv[1], "train");
    assert_null(plan->procs[4].argv[2]);
    assert_true(plan->procs[0].self && plan->procs[1].self && plan->procs[4].self);
    assert_true(plan->procs[0].reports);
    assert_false(plan->procs[1].reports);
    ps_launch_plan_destroy(plan);
}

static void a_worker_gets_the_variables_that_mxnets_launcher_gave(void **state)
{
    PS_UNUSED(state);
    struct ps_launch_request r = request();
    struct ps_launch_plan *plan = NULL;
    assert_int_equal(ps_launch_plan_create(&r, &plan, NULL), PS_OK);
    struct ps_launch_strings env = env_of(plan, 5, 0, NULL);
    assert_string_equal(value(&env, "DMLC_ROLE"), "worker");
    assert_string_equal(value(&env, "DMLC_NUM_WORKER"), "2");
    assert_string_equal(value(&env, "DMLC_NUM_SERVER"), "3");
    assert_string_equal(value(&env, "DMLC_PS_ROOT_URI"), "127.0.0.1");
    assert_string_equal(value(&env, "DMLC_PS_ROOT_PORT"), "4711");
    assert_string_equal(value(&env, "DMLC_WORKER_ID"), "1");
    assert_string_equal(value(&env, "DMLC_TASK_ID"), "1");
    assert_string_equal(value(&env, "DMLC_JOB_CLUSTER"), "local");
    assert_null(value(&env, "DMLC_SERVER_ID"));
    ps_launch_strings_fini(&env);

    env = env_of(plan, 2, 0, NULL);
    assert_string_equal(value(&env, "DMLC_ROLE"), "server");
    assert_string_equal(value(&env, "DMLC_SERVER_ID"), "1");
    assert_string_equal(value(&env, "DMLC_TASK_ID"), "3"); /* after the workers */
    assert_null(value(&env, "DMLC_WORKER_ID"));
    ps_launch_strings_fini(&env);

    env = env_of(plan, 0, 0, NULL);
    assert_string_equal(value(&env, "DMLC_PS_ROOT_PORT"), "0"); /* it takes a free one */
    assert_string_equal(value(&env, "PENSTOCK_READY_FD"), "3");
    ps_launch_strings_fini(&env);
    ps_launch_plan_destroy(plan);
}

static void case_105_the_attempt_is_a_variable_not_a_word(void **state)
{
    PS_UNUSED(state);
    char *inherited[] = {"DMLC_NUM_ATTEMPT=7", "PATH=/bin", NULL};
    struct ps_launch_request r = request();
    struct ps_launch_plan *plan = NULL;
    assert_int_equal(ps_launch_plan_create(&r, &plan, NULL), PS_OK);
    struct ps_launch_strings env = env_of(plan, 4, 2, inherited);
    assert_string_equal(value(&env, "DMLC_NUM_ATTEMPT"), "2");
    assert_string_equal(value(&env, "PATH"), "/bin");
    assert_null(plan->procs[4].argv[2]);
    ps_launch_strings_fini(&env);
    ps_launch_plan_destroy(plan);
}

static void an_outer_jobs_identity_is_not_inherited(void **state)
{
    PS_UNUSED(state);
    char *inherited[] = {"PENSTOCK_ROLE=server",
                         "MXNET_RANK=5",
                         "DMLC_RANK=4",
                         "PENSTOCK_JOB_DIR=/x",
                         "PENSTOCK_ROOT_URI=elsewhere",
                         "PENSTOCK_RANKED=kept",
                         "HOME=/root",
                         NULL};
    struct ps_launch_request r = request();
    struct ps_launch_plan *plan = NULL;
    assert_int_equal(ps_launch_plan_create(&r, &plan, NULL), PS_OK);
    struct ps_launch_strings env = env_of(plan, 4, 0, inherited);
    assert_null(value(&env, "PENSTOCK_ROLE"));
    assert_null(value(&env, "MXNET_RANK"));
    assert_null(value(&env, "DMLC_RANK"));
    assert_null(value(&env, "PENSTOCK_JOB_DIR"));
    assert_null(value(&env, "PENSTOCK_ROOT_URI"));
    assert_string_equal(value(&env, "PENSTOCK_RANKED"), "kept");
    assert_string_equal(value(&env, "HOME"), "/root");
    ps_launch_strings_fini(&env);
    ps_launch_plan_destroy(plan);
}

static void the_users_variables_reach_their_roles(void **state)
{
    PS_UNUSED(state);
    const char *all[] = {"A=1", "B:2"};
    const char *servers[] = {"A=server"};
    const char *workers[] = {"C=x=y:z", "D="};
    char *inherited[] = {"A=outer", NULL};
    struct ps_launch_request r = request();
    r.env = all;
    r.env_count = 2;
    r.env_server = servers;
    r.env_server_count = 1;
    r.env_worker = workers;
    r.env_worker_count = 2;
    struct ps_launch_plan *plan = NULL;
    assert_int_equal(ps_launch_plan_create(&r, &plan, NULL), PS_OK);
    struct ps_launch_strings env = env_of(plan, 1, 0, inherited);
    assert_string_equal(value(&env, "A"), "server");
    assert_string_equal(value(&env, "B"), "2");
    assert_null(value(&env, "C"));
    ps_launch_strings_fini(&env);
    env = env_of(plan, 4, 0, inherited);
    assert_string_equal(value(&env, "A"), "1");
    assert_string_equal(value(&env, "C"), "x=y:z");
    assert_string_equal(value(&env, "D"), "");
    ps_launch_strings_fini(&env);
    ps_launch_plan_destroy(plan);
}

static void a_wrong_assignment_is_refused_by_name(void **state)
{
    PS_UNUSED(state);
    static const char *const rows[] = {"A",
                                       "=1",
                                       "1A=2",
                                       "A B=1",
                                       "",
                                       "DMLC_ROLE=worker",
                                       "DMLC_PS_ROOT_PORT:9000",
                                       "PENSTOCK_RANK=1"};
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        struct ps_launch_request r = request();
        struct ps_launch_plan *plan = NULL;
        struct ps_error err = {0};
        r.env_worker = &rows[i];
        r.env_worker_count = 1;
        assert_int_equal(ps_launch_plan_create(&r, &plan, &err), PS_EINVAL);
        assert_non_null(strstr(err.text, "--env-worker"));
        assert_non_null(strstr(err.text, rows[i]));
        assert_null(plan);
    }
}

static void the_schedulers_report_is_checked(void **state)
{
    PS_UNUSED(state);
    struct ps_launch_root parsed = {0};
    struct ps_error err = {0};
    assert_int_equal(ps_launch_parse_root("127.0.0.1 45123", &parsed, &err), PS_OK);
    assert_string_equal(parsed.uri, "127.0.0.1");
    assert_int_equal(parsed.port, 45123);
    assert_int_equal(ps_launch_parse_root("ipc:///tmp/x/scheduler 0", &parsed, &err),
                     PS_OK);
    assert_string_equal(parsed.uri, "ipc:///tmp/x/scheduler");
    static const char *const bad[] = {"",
                                      "127.0.0.1",
                                      " 1",
                                      "127.0.0.1 65536",
                                      "127.0.0.1 -1",
                                      "127.0.0.1 1 2",
                                      "127.0.0.1 "};
    for (size_t i = 0; i < PS_COUNT(bad); i++) {
        assert_int_equal(ps_launch_parse_root(bad[i], &parsed, &err), PS_EPROTO);
    }
}

static void same_command_runs_everywhere_and_reports_without_a_fixed_port(void **state)
{
    PS_UNUSED(state);
    char *const words[] = {"./job", "-x", NULL};
    struct ps_launch_request r = {.workers = 1,
                                  .servers = 1,
                                  .command = words,
                                  .command_count = 2,
                                  .same_command = true};
    struct ps_launch_plan *plan = NULL;
    assert_int_equal(ps_launch_plan_create(&r, &plan, NULL), PS_OK);
    for (size_t i = 0; i < plan->count; i++) {
        assert_string_equal(plan->procs[i].argv[0], "./job");
        assert_string_equal(plan->procs[i].argv[1], "-x");
        assert_false(plan->procs[i].self);
    }
    assert_true(plan->procs[0].reports);
    ps_launch_plan_destroy(plan);
    r.port = 9091;
    assert_int_equal(ps_launch_plan_create(&r, &plan, NULL), PS_OK);
    assert_false(plan->procs[0].reports);
    ps_launch_plan_destroy(plan);
}

static void unix_sockets_live_in_the_jobs_directory(void **state)
{
    PS_UNUSED(state);
    struct ps_launch_request r = request();
    r.job_dir = "/tmp/penstock-abc";
    struct ps_launch_plan *plan = NULL;
    assert_int_equal(ps_launch_plan_create(&r, &plan, NULL), PS_OK);
    struct ps_launch_strings env = env_of(plan, 0, 0, NULL);
    assert_string_equal(value(&env, "DMLC_PS_ROOT_URI"),
                        "ipc:///tmp/penstock-abc/scheduler");
    assert_string_equal(value(&env, "PENSTOCK_JOB_DIR"), "/tmp/penstock-abc");
    assert_string_equal(value(&env, "PENSTOCK_TRANSPORT"), "ipc");
    ps_launch_strings_fini(&env);
    ps_launch_plan_destroy(plan);
}

static void printed_words_survive_a_shell(void **state)
{
    PS_UNUSED(state);
    char *const words[] = {"echo", "it's", "", "a b", "$x", NULL};
    struct ps_launch_request r = {
        .workers = 1, .servers = 1, .command = words, .command_count = 5};
    struct ps_launch_plan *plan = NULL;
    struct ps_str text = {0};
    assert_int_equal(ps_launch_plan_create(&r, &plan, NULL), PS_OK);
    ps_launch_plan_print(plan, &text);
    assert_false(text.failed);
    assert_non_null(strstr(ps_str_text(&text), "echo 'it'\\''s' '' 'a b' '$x'\n"));
    assert_non_null(strstr(ps_str_text(&text), "DMLC_PS_ROOT_PORT=REPORTED"));
    ps_str_fini(&text);
    ps_launch_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scheduler_servers_and_workers_are_in_order),
        cmocka_unit_test(a_worker_gets_the_variables_that_mxnets_launcher_gave),
        cmocka_unit_test(case_105_the_attempt_is_a_variable_not_a_word),
        cmocka_unit_test(an_outer_jobs_identity_is_not_inherited),
        cmocka_unit_test(the_users_variables_reach_their_roles),
        cmocka_unit_test(a_wrong_assignment_is_refused_by_name),
        cmocka_unit_test(the_schedulers_report_is_checked),
        cmocka_unit_test(same_command_runs_everywhere_and_reports_without_a_fixed_port),
        cmocka_unit_test(unix_sockets_live_in_the_jobs_directory),
        cmocka_unit_test(printed_words_survive_a_shell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
