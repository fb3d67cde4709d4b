/* Who may send what, and the addresses that are accepted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/end.h"
#include "net/states.h"

#include <string.h>

static enum ps_status ask(unsigned kind, enum ps_role from, enum ps_role to, bool reply,
                          bool registered)
{
    struct ps_frame_rule_query query = {.kind = kind,
                                        .reply = reply,
                                        .from = from,
                                        .to = to,
                                        .greeted = true,
                                        .registered = registered};
    return ps_frame_allowed(&query, NULL);
}

static void nothing_but_hello_comes_before_hello(void **state)
{
    struct ps_error err;
    (void)state;
    for (unsigned kind = 1; kind < PS_KIND_LIMIT; kind++) {
        struct ps_frame_rule_query query = {.kind = kind, .to = PS_ROLE_SCHEDULER};
        enum ps_status status = ps_frame_allowed(&query, &err);
        assert_int_equal(status == PS_OK, kind == PS_KIND_HELLO);
    }
}

static void the_table_knows_who_asks_whom(void **state)
{
    const enum ps_role w = PS_ROLE_WORKER, s = PS_ROLE_SERVER, c = PS_ROLE_SCHEDULER;
    (void)state;
    assert_int_equal(ask(PS_KIND_DATA, w, s, false, true), PS_OK);
    assert_int_equal(ask(PS_KIND_DATA, s, w, true, true), PS_OK);
    assert_int_equal(ask(PS_KIND_DATA, s, w, false, true), PS_EPERM);
    assert_int_equal(ask(PS_KIND_DATA, w, c, false, true), PS_EPERM);
    assert_int_equal(ask(PS_KIND_DATA, w, s, false, false), PS_EPERM);
    assert_int_equal(ask(PS_KIND_REGISTER, w, c, false, false), PS_OK);
    assert_int_equal(ask(PS_KIND_REGISTER, c, w, true, true), PS_OK);
    assert_int_equal(ask(PS_KIND_REGISTER, w, s, false, false), PS_EPERM);
    assert_int_equal(ask(PS_KIND_ENTRIES, c, s, false, true), PS_OK);
    assert_int_equal(ask(PS_KIND_ENTRIES, w, s, false, true), PS_EPERM);
    assert_int_equal(ask(PS_KIND_STATUS, PS_ROLE_NONE, c, false, false), PS_OK);
    assert_int_equal(ask(PS_KIND_BARRIER, PS_ROLE_NONE, c, false, false), PS_EPERM);
    assert_int_equal(ask(PS_KIND_STOP, w, s, false, true), PS_EPERM);
    assert_int_equal(ask(PS_KIND_ABORT, c, w, false, true), PS_OK);
}

static void case_080_a_heartbeat_may_come_before_registration(void **state)
{
    (void)state;
    assert_int_equal(
        ask(PS_KIND_HEARTBEAT, PS_ROLE_WORKER, PS_ROLE_SCHEDULER, false, false), PS_OK);
}

static void reserved_kinds_are_refused(void **state)
{
    static const unsigned kinds[] = {PS_KIND_ANNOUNCE, PS_KIND_GRANT,   PS_KIND_EXPORT,
                                     PS_KIND_IMPORT,   PS_KIND_SCALARS, PS_KIND_SNAPSHOT};
    (void)state;
    for (size_t i = 0; i < PS_COUNT(kinds); i++) {
        assert_int_equal(ask(kinds[i], PS_ROLE_WORKER, PS_ROLE_SERVER, false, true),
                         PS_EPROTO);
    }
}

static void tcp_addresses_are_split_or_refused(void **state)
{
    static const char *const bad[] = {"tcp://host",    "tcp://host:",
                                      "tcp://host:-1", "tcp://host:65536",
                                      "tcp://a b:1",   "tcp://1::2:3",
                                      "ipc://x",       "tcp:/host:1",
                                      "host:1",        "",
                                      "tcp://h;e:1",   "tcp://host:1x"};
    char host[PS_HOST_BYTES];
    uint16_t port;
    (void)state;
    assert_int_equal(ps_url_tcp("tcp://10.0.0.1:9000", host, &port, NULL), PS_OK);
    assert_string_equal(host, "10.0.0.1");
    assert_int_equal(port, 9000);
    assert_int_equal(ps_url_tcp("tcp://*:0", host, &port, NULL), PS_OK);
    assert_string_equal(host, "*");
    assert_int_equal(ps_url_tcp("tcp://[::1]:7", host, &port, NULL), PS_OK);
    assert_string_equal(host, "::1");
    for (size_t i = 0; i < PS_COUNT(bad); i++) {
        struct ps_error err;
        assert_int_equal(ps_url_tcp(bad[i], host, &port, &err), PS_EADDR);
        assert_non_null(strstr(err.text, "must be tcp://host:port"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_but_hello_comes_before_hello),
        cmocka_unit_test(the_table_knows_who_asks_whom),
        cmocka_unit_test(case_080_a_heartbeat_may_come_before_registration),
        cmocka_unit_test(reserved_kinds_are_refused),
        cmocka_unit_test(tcp_addresses_are_split_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
