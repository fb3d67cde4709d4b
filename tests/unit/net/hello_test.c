/* HELLO's body, error bodies, and the walk over msgpack bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "net/hello.h"

#include <string.h>

static struct ps_hello sample(void)
{
    struct ps_hello hello;
    memset(&hello, 0, sizeof(hello));
    memset(hello.uuid, 0xab, sizeof(hello.uuid));
    hello.member = 7;
    hello.role = PS_ROLE_SERVER;
    hello.rank = 2;
    hello.proto_min = 1;
    hello.proto_max = 3;
    hello.features = UINT64_MAX;
    hello.frame_bytes_max = UINT32_MAX;
    hello.lane = 1;
    hello.lane_count = 2;
    hello.nonce = UINT64_C(0x123456789abcdef0);
    hello.pid = 4711;
    memcpy(hello.host, "node-7", sizeof("node-7"));
    return hello;
}

static void a_hello_survives_the_round_trip(void **state)
{
    struct ps_hello hello = sample(), back;
    struct ps_buf *body;
    (void)state;
    assert_int_equal(ps_hello_encode(&hello, &body), PS_OK);
    assert_int_equal(ps_hello_decode(body->data, body->size, &back, NULL), PS_OK);
    assert_memory_equal(&hello, &back, sizeof(hello));
    ps_buf_release(body);
}

static void every_cut_or_changed_byte_is_decoded_or_refused(void **state)
{
    struct ps_hello hello = sample(), back;
    struct ps_error err;
    struct ps_buf *body;
    unsigned char bytes[512];
    (void)state;
    assert_int_equal(ps_hello_encode(&hello, &body), PS_OK);
    assert_true(body->size <= sizeof(bytes));
    for (size_t size = 0; size < body->size; size++) {
        assert_int_equal(ps_hello_decode(body->data, size, &back, &err), PS_EPROTO);
    }
    for (size_t i = 0; i < body->size * 256; i++) {
        memcpy(bytes, body->data, body->size);
        bytes[i / 256] = (unsigned char)i;
        enum ps_status status = ps_hello_decode(bytes, body->size, &back, &err);
        assert_true(status == PS_OK || status == PS_EPROTO);
    }
    ps_buf_release(body);
}

static void unknown_keys_are_ignored_and_missing_ones_unknown(void **state)
{
    static const char body[] = "\x82\xa6"
                               "colour\x93\x01\x02\x03\xa5nonce\x09";
    struct ps_hello back;
    (void)state;
    assert_int_equal(ps_hello_decode(body, sizeof(body) - 1, &back, NULL), PS_OK);
    assert_int_equal(back.nonce, 9);
    assert_int_equal(back.rank, UINT32_MAX);
    assert_int_equal(back.lane_count, 1);
}

static void expect_error(const char *body, size_t size, const char *words)
{
    struct ps_hello back;
    struct ps_error err;
    assert_int_equal(ps_hello_decode(body, size, &back, &err), PS_EPROTO);
    assert_non_null(strstr(err.text, words));
}

static void errors_name_the_key(void **state)
{
    (void)state;
    expect_error("\x81\xa4role\x04", 7, "HELLO role: must be a number from 0 to 3");
    expect_error("\x81\xa4role\xff", 7, "HELLO role");
    expect_error("\x81\xa4lane\x01", 7, "HELLO lane 1: there are 1");
    expect_error("\x81\xa4uuid\xc4\x01\x00", 9, "HELLO uuid: must be 16 bytes");
    expect_error("\x81\xa4host\x01", 7, "HELLO host: must be text");
    expect_error("\x81\xa9proto_min\x05", 12, "HELLO proto: 5 to 0");
    expect_error("\x93\x01\x02\x03", 4, "one msgpack map");
    expect_error("", 0, "one msgpack map");
}

static void a_peers_words_are_cut_and_made_printable(void **state)
{
    char text[PS_ERROR_TEXT_BYTES], long_text[1000];
    struct ps_buf *body;
    (void)state;
    memset(long_text, 'a', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    assert_int_equal(ps_error_body_encode(long_text, &body), PS_OK);
    assert_true(ps_error_body_decode(body->data, body->size, text));
    assert_int_equal(strlen(text), PS_ERROR_TEXT_BYTES - 1);
    ps_buf_release(body);
    assert_int_equal(ps_error_body_encode("line\nbell\a", &body), PS_OK);
    assert_true(ps_error_body_decode(body->data, body->size, text));
    assert_string_equal(text, "line?bell?");
    ps_buf_release(body);
    assert_false(ps_error_body_decode("\x80", 1, text));
    assert_false(ps_error_body_decode(NULL, 0, text));
}

static void announced_counts_must_fit_the_bytes(void **state)
{
    static const unsigned char nested[] = {0x91, 0x91, 0x91, 0x91, 0x91,
                                           0x91, 0x91, 0x91, 0x91, 0x01};
    (void)state;
    assert_true(ps_msgpack_is_sane("\x93\x01\x02\x03", 4));
    assert_false(ps_msgpack_is_sane("\x93\x01\x02", 3));
    assert_false(ps_msgpack_is_sane("\xdd\xff\xff\xff\xff", 5)); /* 4 Gi elements */
    assert_false(ps_msgpack_is_sane("\xdf\xff\xff\xff\xff\x01", 6));
    assert_false(ps_msgpack_is_sane("\xc6\xff\xff\xff\xff", 5));
    assert_false(ps_msgpack_is_sane("\xc1", 1));
    assert_false(ps_msgpack_is_sane(nested, sizeof(nested))); /* 9 deep */
    assert_true(ps_msgpack_is_sane(nested + 2, sizeof(nested) - 2));
    assert_true(ps_msgpack_is_sane("\xc7\x03\x01xyz", 6));
    assert_true(ps_msgpack_is_sane("\xd8\x01"
                                   "0123456789abcdef",
                                   18));
    assert_true(ps_msgpack_is_sane("\xcb"
                                   "12345678",
                                   9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hello_survives_the_round_trip),
        cmocka_unit_test(every_cut_or_changed_byte_is_decoded_or_refused),
        cmocka_unit_test(unknown_keys_are_ignored_and_missing_ones_unknown),
        cmocka_unit_test(errors_name_the_key),
        cmocka_unit_test(a_peers_words_are_cut_and_made_printable),
        cmocka_unit_test(announced_counts_must_fit_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
