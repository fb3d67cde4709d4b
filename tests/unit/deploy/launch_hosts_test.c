/* Hostfiles: what is accepted, and that everything else is named with its line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "deploy/launch_hosts.h"

#include <string.h>

static void hosts_ports_slots_and_comments_are_read(void **state)
{
    PS_UNUSED(state);
    struct ps_launch_hosts hosts = {0};
    struct ps_error err = {0};
    const char *text = "# the rack\nnode0\n\n  node1:2222   slots=4 # big\n[fe80::1]:22\n"
                       "[::1]\tslots=2";
    assert_int_equal(ps_launch_hosts_parse(text, "hosts", &hosts, &err), PS_OK);
    assert_int_equal(hosts.count, 4);
    assert_string_equal(hosts.items[0].name, "node0");
    assert_int_equal(hosts.items[0].port, PS_LAUNCH_SSH_PORT);
    assert_int_equal(hosts.items[0].slots, 1);
    assert_int_equal(hosts.items[1].port, 2222);
    assert_int_equal(hosts.items[1].slots, 4);
    assert_string_equal(hosts.items[2].name, "fe80::1");
    assert_string_equal(hosts.items[3].name, "::1");
    assert_int_equal(hosts.items[3].slots, 2);
    ps_launch_hosts_fini(&hosts);
}

static void a_bad_line_is_named_with_its_number(void **state)
{
    PS_UNUSED(state);
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {"ok\nnode0:0", "hosts:2: port '0'"},
        {"node0:65536", "hosts:1: port '65536'"},
        {"node0:", "hosts:1: port ''"},
        {"::1", "hosts:1: '::1': write an IPv6"},
        {"[::1", "hosts:1: '[::1'"},
        {"[::1]x", "expected [address]:port"},
        {"[]", "hosts:1: '' is not a host name"},
        {":22", "hosts:1: '' is not a host name"},
        {"-oProxyCommand=x", "is not a host name"},
        {"node0 slots=0", "slots are 1 to"},
        {"node0 slots=-1", "slots are 1 to"},
        {"node0 role=server", "'role=server'"},
        {"", "hosts: no host"},
        {"# nothing\n\n", "hosts: no host"},
    };
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        struct ps_launch_hosts hosts = {0};
        struct ps_error err = {0};
        assert_int_equal(ps_launch_hosts_parse(rows[i].text, "hosts", &hosts, &err),
                         PS_EINVAL);
        if (!strstr(err.text, rows[i].says)) {
            fail_msg("'%s' says '%s', expected '%s'", rows[i].text, err.text,
                     rows[i].says);
        }
        assert_null(hosts.items);
    }
}

static void a_line_that_is_too_long_is_refused(void **state)
{
    PS_UNUSED(state);
    char text[2000];
    struct ps_launch_hosts hosts = {0};
    struct ps_error err = {0};
    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(ps_launch_hosts_parse(text, "hosts", &hosts, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "hosts:1: longer than"));
    text[300] = '\0'; /* a line of good length with a name that is too long */
    assert_int_equal(ps_launch_hosts_parse(text, "hosts", &hosts, &err), PS_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_ports_slots_and_comments_are_read),
        cmocka_unit_test(a_bad_line_is_named_with_its_number),
        cmocka_unit_test(a_line_that_is_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
