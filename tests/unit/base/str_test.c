/* Text, numbers, nearest names, the CRC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/str.h"
#include "base/util.h"

#include <jansson.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

static void strings_grow(void **state)
{
    struct ps_str str = {0};
    (void)state;
    assert_string_equal(ps_str_text(&str), "");
    for (int i = 0; i < 1000; i++) {
        ps_str_printf(&str, "%d,", i);
    }
    ps_str_append(&str, "end", 3);
    assert_int_equal(str.size, strlen(str.data));
    assert_memory_equal(str.data, "0,1,2,3,", 8);
    assert_string_equal(str.data + str.size - 8, ",999,end");
    assert_false(str.failed);
    ps_str_fini(&str);
    assert_string_equal(ps_str_text(&str), "");
}

static void numbers_are_read_whole_or_not_at_all(void **state)
{
    int64_t i = 5;
    uint64_t u = 5;
    double d = 5;
    bool b = true;
    (void)state;
    assert_int_equal(ps_parse_i64("-9223372036854775808", &i), PS_OK);
    assert_true(i == INT64_MIN);
    assert_int_equal(ps_parse_i64("9223372036854775808", &i), PS_ERANGE);
    assert_true(i == INT64_MIN);
    static const char *const bad_integers[] = {"",   "-",   "+",   " 1", "1 ",
                                               "1x", "0x1", "1e3", "--1"};
    for (size_t k = 0; k < PS_COUNT(bad_integers); k++) {
        assert_int_equal(ps_parse_i64(bad_integers[k], &i), PS_EINVAL);
        assert_int_equal(ps_parse_u64(bad_integers[k], &u), PS_EINVAL);
    }
    assert_int_equal(ps_parse_u64("18446744073709551615", &u), PS_OK);
    assert_true(u == UINT64_MAX);
    assert_int_equal(ps_parse_u64("18446744073709551616", &u), PS_ERANGE);
    assert_int_equal(ps_parse_u64("-1", &u), PS_EINVAL);
    assert_int_equal(ps_parse_f64("-1.5e-3", &d), PS_OK);
    assert_true(d == -1.5e-3);
    assert_int_equal(ps_parse_f64("1e999", &d), PS_ERANGE);
    static const char *const bad_reals[] = {"",      "nan", "inf", "0x1p3", "1,5",
                                            "1.5.5", " 1",  "1 ",  "e5",    "."};
    for (size_t k = 0; k < PS_COUNT(bad_reals); k++) {
        assert_int_equal(ps_parse_f64(bad_reals[k], &d), PS_EINVAL);
    }
    assert_true(d == -1.5e-3);
    assert_int_equal(ps_parse_bool("OFF", &b), PS_OK);
    assert_false(b);
    assert_int_equal(ps_parse_bool("2", &b), PS_EINVAL);
    assert_int_equal(ps_parse_bool("", &b), PS_EINVAL);
}

static void the_nearest_name_is_near(void **state)
{
    static const char *const names[] = {"dist_sync", "dist_async", "local", "device",
                                        NULL};
    char out[64];
    (void)state;
    assert_string_equal(ps_nearest("dist_snyc", names), "dist_sync");
    assert_string_equal(ps_nearest("DIST_ASYN", names), "dist_async");
    assert_string_equal(ps_nearest("locl", names), "local");
    assert_null(ps_nearest("horse", names));
    assert_null(ps_nearest("", names));
    char word[200];
    memset(word, 'a', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    assert_null(ps_nearest(word, names));
    assert_string_equal(ps_join(names, out, sizeof(out)),
                        "dist_sync, dist_async, local, device");
    assert_string_equal(ps_join(names, out, 12), "dist_sync, ");
}

static void json_strings_are_always_valid(void **state)
{
    struct ps_rng rng;
    (void)state;
    ps_rng_init(&rng, 3);
    for (int round = 0; round < 2000; round++) {
        char text[24];
        size_t size = (size_t)ps_rng_below(&rng, sizeof(text));
        for (size_t i = 0; i < size; i++) {
            text[i] = (char)(1 + ps_rng_below(&rng, 255));
        }
        text[size] = '\0';
        struct ps_str str = {0};
        ps_str_append(&str, "[", 1);
        ps_str_json(&str, text);
        ps_str_append(&str, "]", 1);
        json_error_t error;
        json_t *json = json_loads(str.data, 0, &error);
        if (json == NULL) {
            fail_msg("round %d: %s: %s", round, str.data, error.text);
        }
        json_decref(json);
        ps_str_fini(&str);
    }
    struct ps_str str = {0};
    ps_str_json(&str, "a\"\\\n\x01 \xc3\xa4 \xff");
    assert_string_equal(str.data, "\"a\\\"\\\\\\n\\u0001 \xc3\xa4 \xef\xbf\xbd\"");
    ps_str_fini(&str);
}

/* One bit at a time, from the definition. */
static uint32_t slow_crc(const unsigned char *data, size_t size)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? UINT32_C(0x82F63B78) : 0);
        }
    }
    return ~crc;
}

static void the_crc_has_its_golden_values_both_ways(void **state)
{
    unsigned char data[300];
    struct ps_rng rng;
    (void)state;
    assert_int_equal(ps_crc32c(0, "123456789", 9), 0xE3069283);
    assert_int_equal(ps_crc32c_portable(0, "123456789", 9), 0xE3069283);
    /* RFC 3720, B.4 */
    memset(data, 0, 32);
    assert_int_equal(ps_crc32c(0, data, 32), 0x8A9136AA);
    memset(data, 0xFF, 32);
    assert_int_equal(ps_crc32c(0, data, 32), 0x62A8AB43);
    ps_rng_init(&rng, 9);
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (unsigned char)ps_rng_u64(&rng);
    }
    for (size_t size = 0; size <= 260; size++) {
        size_t first = size % 7;
        uint32_t crc = slow_crc(data + first, size);
        assert_int_equal(ps_crc32c(0, data + first, size), crc);
        assert_int_equal(ps_crc32c_portable(0, data + first, size), crc);
        /* in two pieces */
        size_t half = size / 3;
        assert_int_equal(
            ps_crc32c(ps_crc32c(0, data + first, half), data + first + half, size - half),
            crc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_grow),
        cmocka_unit_test(numbers_are_read_whole_or_not_at_all),
        cmocka_unit_test(the_nearest_name_is_near),
        cmocka_unit_test(json_strings_are_always_valid),
        cmocka_unit_test(the_crc_has_its_golden_values_both_ways),
    };
    return cmocka_run_group_tests_name("str", tests, NULL, NULL);
}
