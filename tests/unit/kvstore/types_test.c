/* Store type names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "kvstore/kvstore.h"

static void check_refused(const char *type, const char *says)
{
    struct ps_error err;
    assert_int_equal(ps_kvstore_type_check(type, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, type));
    assert_non_null(strstr(err.text, says));
}

static void listed_types_are_accepted_in_any_case(void **state)
{
    static const char *const types[] = {
        "local",     "device",           "local_update_cpu", "local_allreduce_cpu",
        "dist",      "dist_sync",        "dist_async",       "local_allreduce_device",
        "DIST_SYNC", "dist_device_sync", "dist_sync_device", "dist_async_device"};
    PS_UNUSED(state);
    for (size_t i = 0; i < PS_COUNT(types); i++) {
        assert_int_equal(ps_kvstore_type_check(types[i], NULL), PS_OK);
    }
}

static void case_023_a_typo_is_refused_with_the_nearest_name(void **state)
{
    PS_UNUSED(state);
    check_refused("dist_asnyc", "dist_async");
    check_refused("distributed", "dist");
    check_refused("locale", "local");
    check_refused("", "accepted");
    assert_int_equal(ps_kvstore_type_check("DIST_SYNC", NULL), PS_OK);
}

static void other_systems_types_are_refused_with_the_alternative(void **state)
{
    PS_UNUSED(state);
    check_refused("nccl", "use device");
    check_refused("horovod", "use dist_sync");
    check_refused("byteps", "use dist_sync");
    check_refused("p3", "use dist_sync");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listed_types_are_accepted_in_any_case),
        cmocka_unit_test(case_023_a_typo_is_refused_with_the_nearest_name),
        cmocka_unit_test(other_systems_types_are_refused_with_the_alternative),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
