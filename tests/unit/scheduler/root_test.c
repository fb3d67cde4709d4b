/* The scheduler's settings: its address, a port that is taken, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/node.h"
#include "base/options.h"
#include "kvstore/shard/root.h"
#include "scheduler/scheduler.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const no_env[] = {NULL};

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
    }
}

static struct ps_node *open_node(const char *const *settings)
{
    struct ps_error err = {0};
    struct ps_node *node = NULL;
    struct ps_node_options options = {.env = no_env, .overrides = settings};
    if (ps_node_open(&options, &node, &err) != PS_OK) {
        fail_msg("node: %s", err.text);
    }
    return node;
}

static enum ps_status try_scheduler(const char *const *settings, struct ps_error *err)
{
    struct ps_node *node = open_node(settings);
    struct ps_scheduler *scheduler = NULL;
    struct ps_scheduler_options options = {.node = node};
    enum ps_status status = ps_scheduler_open(&options, &scheduler, err);
    ps_scheduler_close(status == PS_OK ? scheduler : NULL);
    ps_node_close(node);
    return status;
}

static int listening_socket(uint16_t *port_out)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof(at);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    *port_out = ntohs(at.sin_port);
    return fd;
}

static void case_090_a_busy_port_is_named_with_its_holder(void **state)
{
    char port_text[32], expected[64];
    uint16_t port;
    struct ps_error err = {0};
    int fd = listening_socket(&port);
    (void)state;
    (void)snprintf(port_text, sizeof(port_text), "ROOT_PORT=%u", port);
    const char *settings[] = {"LOG=error", "NUM_SERVER=1", "ROOT_URI=10.99.0.1",
                              port_text, NULL};
    assert_int_equal(try_scheduler(settings, &err), PS_EINUSE);
    (void)snprintf(expected, sizeof(expected), "0.0.0.0:%u in use by pid %d", port,
                   (int)getpid());
    assert_contains(err.text, expected);
    assert_int_equal(ps_exit_code(PS_EINUSE), 69);
    (void)close(fd);
}

static void case_092_no_servers_is_refused_with_the_way_out(void **state)
{
    static const char *const settings[] = {"LOG=error", "NUM_SERVER=0", NULL};
    struct ps_error err = {0};
    (void)state;
    assert_int_equal(try_scheduler(settings, &err), PS_EINVAL);
    assert_contains(err.text, "NUM_SERVER is 0");
    assert_contains(err.text, "at least 1 is needed");
    assert_contains(err.text, "local or device");
}

static void settings_that_this_version_does_not_serve_are_refused(void **state)
{
    static const char *const loss[] = {"LOG=error", "NUM_SERVER=1", "ON_WORKER_LOSS=wait",
                                       NULL};
    static const char *const shards[] = {"LOG=error", "NUM_SERVER=2", "SHARDS=1", NULL};
    struct ps_error err = {0};
    (void)state;
    assert_int_equal(try_scheduler(loss, &err), PS_EINVAL);
    assert_contains(err.text, "ON_WORKER_LOSS=wait is not in this version");
    assert_int_equal(try_scheduler(shards, &err), PS_EINVAL);
    assert_contains(err.text, "SHARDS is 1: a power of two, at least NUM_SERVER (2)");
}

static void root_addresses_follow_the_settings(void **state)
{
    static const struct {
        const char *settings[4];
        const char *dial, *listen; /* NULL: refused */
    } rows[] = {
        {{"ROOT_PORT=9000"}, "tcp://127.0.0.1:9000", "tcp://127.0.0.1:9000"},
        {{"ROOT_URI=10.0.0.5", "ROOT_PORT=9000"},
         "tcp://10.0.0.5:9000",
         "tcp://0.0.0.0:9000"},
        {{"ROOT_URI=localhost", "ROOT_PORT=1"}, "tcp://localhost:1", "tcp://127.0.0.1:1"},
        {{"ROOT_URI=tcp://node7:9001"}, "tcp://node7:9001", "tcp://0.0.0.0:9001"},
        {{"ROOT_URI=tcp://127.0.0.1", "ROOT_PORT=7"},
         "tcp://127.0.0.1:7",
         "tcp://127.0.0.1:7"},
        {{"ROOT_URI=ipc:///tmp/x/s"}, "ipc:///tmp/x/s", "ipc:///tmp/x/s"},
        {{"ROOT_URI=10.0.0.5", "ROOT_PORT=9", "BIND_HOST=10.0.0.6"},
         "tcp://10.0.0.5:9",
         "tcp://10.0.0.6:9"},
        {{"TRANSPORT=ipc", "JOB_DIR=/tmp/j", "ROOT_PORT=5"},
         "ipc:///tmp/j/scheduler-5",
         "ipc:///tmp/j/scheduler-5"},
        {{"ROOT_URI=10.0.0.5"}, NULL, "tcp://0.0.0.0:0"},
        {{"ROOT_URI=tcp://h:1", "TRANSPORT=ipc"}, NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        struct ps_settings *settings;
        struct ps_error err = {0};
        char url[PS_URL_BYTES] = "";
        assert_int_equal(ps_settings_load(no_env, rows[i].settings, &settings, &err),
                         PS_OK);
        if (rows[i].dial == NULL) {
            assert_int_equal(ps_root_dial_url(settings, url, &err), PS_EINVAL);
        } else {
            assert_int_equal(ps_root_dial_url(settings, url, &err), PS_OK);
            assert_string_equal(url, rows[i].dial);
        }
        if (rows[i].listen == NULL) {
            assert_int_equal(ps_root_listen_url(settings, url, &err), PS_EINVAL);
        } else {
            assert_int_equal(ps_root_listen_url(settings, url, &err), PS_OK);
            assert_string_equal(url, rows[i].listen);
        }
        ps_settings_destroy(settings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_090_a_busy_port_is_named_with_its_holder),
        cmocka_unit_test(case_092_no_servers_is_refused_with_the_way_out),
        cmocka_unit_test(settings_that_this_version_does_not_serve_are_refused),
        cmocka_unit_test(root_addresses_follow_the_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
