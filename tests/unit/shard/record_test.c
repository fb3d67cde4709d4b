/* Records: every field's check, bundles, replies, random bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "kvstore/shard/record.h"

#include <stdlib.h>
#include <string.h>

static const struct ps_record good_push = {.handle = 77,
                                           .step = 1,
                                           .first = 1024,
                                           .count = 10,
                                           .bytes = 40,
                                           .shard = 3,
                                           .rank_first = 1,
                                           .rank_count = 1,
                                           .dtype = PS_F32,
                                           .op = PS_REC_PUSHPULL};

static enum ps_status check(const struct ps_record *r, bool reply, const char *field)
{
    struct ps_record out;
    struct ps_error err = {0};
    enum ps_status status = ps_records_check(r, 1, r->bytes, reply, &out, &err);
    if (status == PS_OK) {
        assert_memory_equal(&out, r, sizeof(out));
    } else {
        assert_non_null(strstr(err.text, field));
    }
    return status;
}

#define REFUSED(change, field)                                \
    do {                                                      \
        struct ps_record r = good_push;                       \
        change;                                               \
        assert_int_equal(check(&r, false, field), PS_EPROTO); \
    } while (0)

static void every_field_of_a_request_is_checked(void **state)
{
    PS_UNUSED(state);
    assert_int_equal(check(&good_push, false, ""), PS_OK);
    REFUSED(r.op = 0, "op 0");
    REFUSED(r.op = PS_REC_LIMIT, "op 6");
    REFUSED(r.dtype = 7, "dtype 7");
    REFUSED(r.dtype = 255, "dtype 255");
    REFUSED(r.codec = 1, "codec");
    REFUSED(r.codec_gen = 1, "codec");
    REFUSED(r.segment = 1, "segment");
    REFUSED(r.segment_offset = 1, "segment");
    REFUSED(r.count = 0, "count");
    REFUSED(r.first = UINT64_MAX - 5, "overflows");
    REFUSED(r.rank_count = 0, "ranks");
    REFUSED(r.rank_first = 65535; r.rank_count = 2, "ranks");
    REFUSED(r.step = 0, "step");
    REFUSED(r.bytes = 39, "bytes");
    REFUSED(r.bytes = 44, "bytes");
    REFUSED(r.op = PS_REC_PULL, "bytes");
    REFUSED(r.op = PS_REC_INIT; r.bytes = 0, "bytes");
    REFUSED(r.op = PS_REC_ABORT; r.bytes = 1025, "bytes");
    REFUSED(r.count = UINT32_MAX; r.dtype = PS_F64; r.bytes = (uint32_t)-8, "bytes");
}

static void empty_votes_pulls_and_aborts_are_good(void **state)
{
    PS_UNUSED(state);
    struct ps_record r = good_push;
    r.bytes = 0;
    assert_int_equal(check(&r, false, ""), PS_OK);
    r.op = PS_REC_PULL;
    r.step = 0;
    assert_int_equal(check(&r, false, ""), PS_OK);
    r = good_push;
    r.op = PS_REC_ABORT;
    r.bytes = 17;
    assert_int_equal(check(&r, false, ""), PS_OK);
    r = good_push;
    r.op = PS_REC_INIT;
    r.step = 0;
    assert_int_equal(check(&r, false, ""), PS_OK);
}

static void replies_carry_values_or_errors(void **state)
{
    PS_UNUSED(state);
    struct ps_record r = good_push;
    r.status = PS_OK;
    r.segment_offset = 4; /* contributors */
    assert_int_equal(check(&r, true, ""), PS_OK);
    r.bytes = 0;
    assert_int_equal(check(&r, true, "bytes"), PS_EPROTO);
    r.status = PS_EABORT;
    r.bytes = 100;
    assert_int_equal(check(&r, true, ""), PS_OK);
    r.bytes = 1025;
    assert_int_equal(check(&r, true, "bytes"), PS_EPROTO);
    r = good_push;
    r.op = PS_REC_PUSH;
    r.status = PS_OK;
    assert_int_equal(check(&r, true, "bytes"), PS_EPROTO);
}

static void a_bundles_bytes_add_up_to_the_payload(void **state)
{
    PS_UNUSED(state);
    struct ps_record in[3] = {good_push, good_push, good_push}, out[3];
    unsigned char raw[sizeof(in) + 1];
    in[1].bytes = 0;
    memcpy(raw + 1, in, sizeof(in)); /* any alignment */
    assert_int_equal(ps_records_check(raw + 1, 3, 80, false, out, NULL), PS_OK);
    assert_memory_equal(out, in, sizeof(in));
    assert_int_equal(ps_records_check(raw + 1, 3, 79, false, out, NULL), PS_EPROTO);
    assert_int_equal(ps_records_check(raw + 1, 3, 120, false, out, NULL), PS_EPROTO);
    assert_int_equal(ps_records_check(NULL, 0, 0, false, out, NULL), PS_EPROTO);
}

static void random_bytes_are_refused_or_consistent(void **state)
{
    PS_UNUSED(state);
    struct ps_rng rng;
    ps_rng_init(&rng, 20261201);
    for (int i = 0; i < 200000; i++) {
        struct ps_record r = good_push, out;
        unsigned char *bytes = (unsigned char *)&r;
        for (int k = 0; k < 3; k++) {
            bytes[ps_rng_below(&rng, sizeof(r))] = (unsigned char)ps_rng_u64(&rng);
        }
        if (ps_records_check(&r, 1, r.bytes, false, &out, NULL) == PS_OK) {
            assert_true(out.count > 0 && ps_dtype_size(out.dtype) > 0);
            assert_true(out.bytes == 0 || out.op == PS_REC_ABORT ||
                        out.bytes == out.count * ps_dtype_size(out.dtype));
        }
    }
}

static void handles_keep_their_three_parts(void **state)
{
    PS_UNUSED(state);
    uint64_t h = ps_handle_make(PS_STORE_MAX, PS_KEY_INDEX_MAX, 65535);
    assert_true(h == UINT64_MAX);
    h = ps_handle_make(5, 12345678901, 7);
    assert_int_equal(ps_handle_store(h), 5);
    assert_true(ps_handle_index(h) == 12345678901);
    assert_int_equal(ps_handle_generation(h), 7);
    assert_string_equal(ps_record_op_name(PS_REC_ABORT), "ABORT");
    assert_string_equal(ps_record_op_name(99), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_a_request_is_checked),
        cmocka_unit_test(empty_votes_pulls_and_aborts_are_good),
        cmocka_unit_test(replies_carry_values_or_errors),
        cmocka_unit_test(a_bundles_bytes_add_up_to_the_payload),
        cmocka_unit_test(random_bytes_are_refused_or_consistent),
        cmocka_unit_test(handles_keep_their_three_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
