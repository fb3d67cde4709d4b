/* The link head's check, field by field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/wire.h"

#include <string.h>

#define BODY_MAX 1000

static struct ps_link_head good(void)
{
    struct ps_link_head head = {.magic = PS_WIRE_MAGIC,
                                .head_bytes = PS_LINK_HEAD_BYTES,
                                .kind = PS_KIND_DATA,
                                .body_bytes = 10};
    ps_link_head_seal(&head);
    return head;
}

static void expect(const struct ps_link_head *head, size_t size, const char *words)
{
    unsigned char bytes[256] = {0};
    struct ps_link_head out = {.req = 99};
    struct ps_error err;
    memcpy(bytes, head, sizeof(*head));
    enum ps_status status = ps_link_head_check(bytes, size, BODY_MAX, &out, &err);
    if (words == NULL) {
        assert_int_equal(status, PS_OK);
        assert_memory_equal(&out, head, sizeof(out));
        return;
    }
    assert_int_equal(status, PS_EPROTO);
    assert_non_null(strstr(err.text, words));
    assert_int_equal(out.req, 99); /* outputs only on success */
}

static void a_sealed_head_passes(void **state)
{
    struct ps_link_head head = good();
    (void)state;
    expect(&head, 64, NULL);
    head.head_bytes = 64 + 2 * PS_RECORD_BYTES;
    ps_link_head_seal(&head);
    expect(&head, 64 + 2 * PS_RECORD_BYTES, NULL);
}

static void every_flipped_bit_is_found(void **state)
{
    struct ps_link_head head = good(), out;
    unsigned char bytes[64];
    (void)state;
    for (size_t bit = 0; bit < 512; bit++) {
        memcpy(bytes, &head, sizeof(bytes));
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_equal(ps_link_head_check(bytes, 64, BODY_MAX, &out, NULL), PS_EPROTO);
    }
}

static void short_bytes_are_refused(void **state)
{
    struct ps_link_head head = good(), out;
    struct ps_error err;
    (void)state;
    for (size_t size = 0; size < 64; size++) {
        assert_int_equal(ps_link_head_check(&head, size, BODY_MAX, &out, &err),
                         PS_EPROTO);
    }
    assert_int_equal(ps_link_head_check(NULL, 0, BODY_MAX, &out, &err), PS_EPROTO);
}

static void each_field_has_its_range(void **state)
{
    struct ps_link_head head = good();
    (void)state;
    head.magic = 0x20544547; /* "GET " */
    expect(&head, 64, "magic");
    head = good();
    head.magic = (PS_WIRE_MAGIC & 0xffffff) | 0x02000000;
    expect(&head, 64, "major version 2: this side speaks 1");

    static const uint16_t lengths[] = {0, 1, 63, 65, 127, 129, UINT16_MAX};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        head = good();
        head.head_bytes = lengths[i];
        ps_link_head_seal(&head);
        expect(&head, 64, "head_bytes");
    }
    head = good();
    head.head_bytes = 128; /* well-formed, but not there */
    ps_link_head_seal(&head);
    expect(&head, 127, "only 127 bytes came");

    head = good();
    head.body_bytes = BODY_MAX + 1;
    ps_link_head_seal(&head);
    expect(&head, 64, "body_bytes 1001: at most 1000");
    head.body_bytes = BODY_MAX;
    ps_link_head_seal(&head);
    expect(&head, 64, NULL);

    static const uint16_t kinds[] = {0, 15, 31, 63, 64, UINT16_MAX};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        head = good();
        head.kind = kinds[i];
        ps_link_head_seal(&head);
        expect(&head, 64, "kind");
    }
    head = good();
    head.flags = 1u << 8;
    ps_link_head_seal(&head);
    expect(&head, 64, "flags");
    head = good();
    head.head_crc ^= 1;
    expect(&head, 64, "head_crc");
}

static void kinds_have_names(void **state)
{
    (void)state;
    assert_string_equal(ps_frame_kind_name(PS_KIND_HELLO), "HELLO");
    assert_string_equal(ps_frame_kind_name(PS_KIND_STATUS), "STATUS");
    assert_string_equal(ps_frame_kind_name(0), "?");
    assert_string_equal(ps_frame_kind_name(12345), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sealed_head_passes),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(short_bytes_are_refused),
        cmocka_unit_test(each_field_has_its_range),
        cmocka_unit_test(kinds_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
