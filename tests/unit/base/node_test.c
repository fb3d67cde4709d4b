/* Nodes, in the real world and in a simulated one, and their fault points. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/node.h"
#include "base/sim.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void drop_line(void *arg, const char *line, size_t size)
{
    (void)size;
    if (arg != NULL) {
        (void)snprintf(arg, 256, "%s", line);
    }
}

static enum ps_status open_node(const char *name, struct ps_sim *sim, const char *a,
                                const char *b, struct ps_node **node_out,
                                struct ps_error *err)
{
    static const char *const env[] = {NULL};
    const char *overrides[] = {a, a == NULL ? NULL : b, NULL};
    const struct ps_node_options options = {.name = name,
                                            .env = env,
                                            .overrides = overrides,
                                            .sim = sim,
                                            .log_sink = drop_line};
    return ps_node_open(&options, node_out, err);
}

static void a_real_node_opens_and_closes(void **state)
{
    struct ps_node *node = NULL;
    struct ps_error err = {0};
    (void)state;
    assert_int_equal(open_node(NULL, NULL, "RANDOM_SEED=5", NULL, &node, &err), PS_OK);
    assert_string_equal(node->name, "node");
    assert_int_equal(node->seed, 5);
    assert_null(node->sim);
    assert_false(ps_driver_is_simulated(node->driver));
    ps_node_set_name(node, "worker/3");
    assert_string_equal(node->name, "worker/3");
    ps_node_close(node);
    ps_node_close(NULL);
}

static void bad_values_name_their_variable(void **state)
{
    struct ps_node *node = NULL;
    struct ps_error err = {0};
    (void)state;
    assert_int_equal(open_node(NULL, NULL, "LOG=loud", NULL, &node, &err), PS_EINVAL);
    assert_memory_equal(err.text, "LOG: ", 5);
    assert_non_null(strstr(err.text, "'loud'"));
    assert_int_equal(open_node(NULL, NULL, "FAULT=test.on:kill", NULL, &node, &err),
                     PS_EINVAL);
    assert_memory_equal(err.text, "FAULT: ", 7);
    assert_non_null(strstr(err.text, "did you mean 'test.one'?"));
    assert_null(node);
    static const char *const bad[] = {
        "test.one",         "test.one:", "test.one:boil", "test.one:fail@0",
        "test.one:delay=x", "@3:fail",   ":kill"};
    for (size_t i = 0; i < PS_COUNT(bad); i++) {
        char override[64];
        (void)snprintf(override, sizeof(override), "FAULT=%s", bad[i]);
        assert_int_equal(open_node(NULL, NULL, override, NULL, &node, &err), PS_EINVAL);
    }
}

static void verbose_raises_the_level_of_net(void **state)
{
    struct ps_node *node = NULL;
    struct ps_error err = {0};
    (void)state;
    assert_int_equal(open_node(NULL, NULL, "VERBOSE=2", "LOG=warn", &node, &err), PS_OK);
    assert_true(ps_log_enabled(node->log, PS_LOG_TRACE, PS_ROOM_NET));
    assert_false(ps_log_enabled(node->log, PS_LOG_INFO, PS_ROOM_BASE));
    ps_node_close(node);
    assert_int_equal(open_node(NULL, NULL, "VERBOSE=2", "LOG=net=info", &node, &err),
                     PS_OK);
    assert_false(ps_log_enabled(node->log, PS_LOG_DEBUG, PS_ROOM_NET));
    ps_node_close(node);
}

static void a_fault_point_fails_at_its_nth_passing(void **state)
{
    struct ps_node *node = NULL;
    struct ps_error err = {0};
    (void)state;
    assert_int_equal(open_node(NULL, NULL, NULL, NULL, &node, &err), PS_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(PS_FAULT(node, "test.one"), PS_OK);
    }
    assert_int_equal(ps_faults_hits(node->faults, "test.one"),
                     0); /* not armed: not counted */
    assert_int_equal(
        ps_faults_parse(node->faults, "test.one:fail@3,test.two:delay=1@2", &err), PS_OK);
    assert_int_equal(PS_FAULT(node, "test.one"), PS_OK);
    assert_int_equal(PS_FAULT(node, "test.two"), PS_OK);
    assert_int_equal(PS_FAULT(node, "test.one"), PS_OK);
    assert_int_equal(PS_FAULT(node, "test.one"), PS_EFAULT);
    assert_int_equal(PS_FAULT(node, "test.one"), PS_OK);
    uint64_t before = ps_clock_now_ns(node->clock);
    assert_int_equal(PS_FAULT(node, "test.two"), PS_OK);
    assert_true(ps_clock_now_ns(node->clock) - before >= PS_NS_PER_MS);
    assert_int_equal(ps_faults_hits(node->faults, "test.one"), 4);
    assert_int_equal(PS_FAULT(node, "test.unlisted"), PS_EINTERNAL);
    struct ps_fault_rule unknown = {.point = "test.unlisted"};
    assert_int_equal(ps_faults_arm(node->faults, &unknown), PS_ENOENT);
    ps_node_close(node);
}

static void a_kill_ends_a_real_process(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ps_node *node = NULL;
        if (open_node(NULL, NULL, "FAULT=test.one:kill", NULL, &node, NULL) == PS_OK &&
            PS_FAULT(node, "test.one") == PS_OK) {
            _exit(1);
        }
        _exit(2);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* A simulated member: its control loop passes a fault point every millisecond. */
struct member {
    struct ps_node *node;
    struct ps_timer timer;
    int passed;
};

static void tick(struct ps_timer *timer)
{
    struct member *member = PS_CONTAINER_OF(timer, struct member, timer);
    if (PS_FAULT(member->node, "test.one") == PS_OK) {
        member->passed++;
    }
    assert_int_equal(ps_timer_start(member->node->loop, timer, PS_NS_PER_MS), PS_OK);
}

static void begin(struct member *member, const char *name, struct ps_sim *sim,
                  const char *override)
{
    struct ps_error err = {0};
    *member = (struct member){.timer = {.run = tick, .label = "tick"}};
    assert_int_equal(open_node(name, sim, override, NULL, &member->node, &err), PS_OK);
    assert_int_equal(ps_timer_start(member->node->loop, &member->timer, PS_NS_PER_MS),
                     PS_OK);
}

static void a_kill_ends_one_simulated_node_and_leaves_the_others(void **state)
{
    struct ps_sim *sim = NULL;
    struct member dies, delays, lives;
    (void)state;
    assert_int_equal(ps_sim_create(21, &sim), PS_OK);
    begin(&dies, "server0", sim, "FAULT=test.one:kill@3");
    begin(&delays, "server1", sim, "FAULT=test.one:delay=50@3");
    begin(&lives, "worker0", sim, NULL);
    assert_string_equal(dies.node->sim_name, "server0");
    ps_node_set_name(dies.node,
                     "server/0"); /* the rank is known: the world's name stays */
    ps_sim_run_for(sim, 20 * PS_NS_PER_MS);
    assert_int_equal(dies.passed, 2);
    assert_true(ps_sim_node_is_killed(sim, "server0"));
    assert_false(ps_sim_node_is_killed(sim, "worker0"));
    assert_in_range(lives.passed, 18, 20);
    assert_int_equal(delays.passed, 2);
    ps_sim_run_for(sim, 40 * PS_NS_PER_MS);
    assert_in_range(delays.passed, 5, 12);
    assert_true(dies.node->seed != lives.node->seed);
    ps_timer_cancel(&delays.timer);
    ps_timer_cancel(&lives.timer);
    ps_node_close(dies.node);
    ps_node_close(delays.node);
    ps_node_close(lives.node);
    ps_sim_destroy(sim);
}

/* A program of nobody that opens two nodes: each has its own name in the world. */
struct opener {
    struct ps_sim *sim;
    struct ps_node *nodes[2];
};

static void open_two(void *arg)
{
    struct opener *opener = arg;
    struct ps_error err = {0};
    assert_int_equal(open_node("a", opener->sim, NULL, NULL, &opener->nodes[0], &err),
                     PS_OK);
    assert_int_equal(open_node("b", opener->sim, NULL, NULL, &opener->nodes[1], &err),
                     PS_OK);
}

static void open_own(void *arg)
{
    struct opener *opener = arg;
    struct ps_error err = {0};
    assert_int_equal(open_node(NULL, opener->sim, NULL, NULL, &opener->nodes[0], &err),
                     PS_OK);
}

static void a_node_belongs_to_the_program_that_opens_it(void **state)
{
    struct ps_sim *sim = NULL;
    (void)state;
    assert_int_equal(ps_sim_create(1, &sim), PS_OK);
    struct opener two = {.sim = sim}, own = {.sim = sim};
    assert_int_equal(ps_sim_spawn(sim, "two", open_two, &two), PS_OK);
    assert_int_equal(ps_sim_run_programs(sim, PS_NS_PER_S), PS_OK);
    ps_sim_enter_node(sim, "worker0");
    assert_int_equal(ps_sim_spawn(sim, "own", open_own, &own), PS_OK);
    ps_sim_enter_node(sim, NULL);
    assert_int_equal(ps_sim_run_programs(sim, PS_NS_PER_S), PS_OK);
    assert_string_equal(two.nodes[0]->sim_name, "a");
    assert_string_equal(two.nodes[1]->sim_name, "b");
    assert_string_equal(own.nodes[0]->sim_name, "worker0");
    ps_node_close(two.nodes[0]);
    ps_node_close(two.nodes[1]);
    ps_node_close(own.nodes[0]);
    ps_sim_destroy(sim);
}

static void every_point_can_be_armed_by_its_name(void **state)
{
    (void)state;
    const char *const *points = ps_fault_points();
    for (size_t i = 0; points[i] != NULL; i++) {
        struct ps_faults *faults = NULL;
        const struct ps_fault_rule rule = {points[i], PS_FAULT_FAIL, 1, 0};
        assert_int_equal(ps_faults_create(&faults), PS_OK);
        assert_int_equal(ps_faults_arm(faults, &rule), PS_OK);
        ps_faults_destroy(faults);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(points[i], points[k]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_real_node_opens_and_closes),
        cmocka_unit_test(bad_values_name_their_variable),
        cmocka_unit_test(verbose_raises_the_level_of_net),
        cmocka_unit_test(a_fault_point_fails_at_its_nth_passing),
        cmocka_unit_test(a_kill_ends_a_real_process),
        cmocka_unit_test(a_node_belongs_to_the_program_that_opens_it),
        cmocka_unit_test(every_point_can_be_armed_by_its_name),
        cmocka_unit_test(a_kill_ends_one_simulated_node_and_leaves_the_others),
    };
    return cmocka_run_group_tests_name("node", tests, NULL, NULL);
}
