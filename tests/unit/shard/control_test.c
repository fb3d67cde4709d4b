/* Control messages: round trips, truncation and mutation of every kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "kvstore/shard/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char urls[2][PS_URL_BYTES] = {"tcp://127.0.0.1:4411", "tcp://127.0.0.1:4412"};

static struct ps_buf *pack_register(void)
{
    struct ps_msg_register m = {.nonce = UINT64_MAX,
                                .role = PS_ROLE_SERVER,
                                .rank = -1,
                                .num_worker = 2,
                                .num_server = 3,
                                .host = "node7",
                                .pid = 4321,
                                .urls = urls,
                                .url_count = 2};
    struct ps_buf *b = NULL;
    assert_int_equal(ps_msg_register_pack(&m, &b), PS_OK);
    return b;
}

static struct ps_buf *pack_job(void)
{
    struct ps_member_row rows[2] = {
        {.member = 2, .role = PS_ROLE_SERVER, .rank = 0, .urls = urls, .url_count = 2},
        {.member = 3, .role = PS_ROLE_WORKER, .rank = 0, .host = "h"}};
    struct ps_msg_job m = {.uuid = {1, 2, 3},
                           .epoch = (UINT64_C(1) << 40) | 7,
                           .member = 2,
                           .num_worker = 1,
                           .num_server = 1,
                           .shard_count = 1024,
                           .chunk_bytes = 1 << 20,
                           .bigarray_bound = 1000000,
                           .heartbeat_ms = 1000,
                           .heartbeat_timeout_ms = 15000,
                           .members = rows,
                           .member_count = 2};
    struct ps_buf *b = NULL;
    assert_int_equal(ps_msg_job_pack(&m, &b), PS_OK);
    return b;
}

static struct ps_buf *pack_keys(void)
{
    struct ps_extent extents[2] = {{0, 10, 5}, {10, 2, 900}};
    struct ps_key_row row = {.handle = UINT64_C(0xfff0000000010001),
                             .name = "fc1_weight",
                             .mode = PS_MODE_ASYNC,
                             .dtype = PS_BF16,
                             .shape = PS_SHAPE(3, 4),
                             .count = 12,
                             .extents = extents,
                             .extent_count = 2};
    struct ps_msg_keys m = {
        .store = "default", .store_id = 9, .lookup = true, .rows = &row, .row_count = 1};
    struct ps_buf *b = NULL;
    assert_int_equal(ps_msg_keys_pack(&m, &b), PS_OK);
    return b;
}

static struct ps_buf *pack_heartbeat(void)
{
    struct ps_msg_heartbeat m = {.state = 1, .text = "worker 1 lost", .wall_ns = 5};
    struct ps_buf *b = NULL;
    assert_int_equal(ps_msg_heartbeat_pack(&m, &b), PS_OK);
    return b;
}

static struct ps_buf *pack_barrier(void)
{
    struct ps_msg_barrier m = {.name = "epoch", .sequence = 12};
    struct ps_buf *b = NULL;
    assert_int_equal(ps_msg_barrier_pack(&m, &b), PS_OK);
    return b;
}

static struct ps_buf *pack_optimizer(void)
{
    struct ps_msg_optimizer m = {.store = "default",
                                 .name = "sgd",
                                 .hyper = "learning_rate=0.1",
                                 .from_step = 7,
                                 .multi_precision = true,
                                 .sequence = 3};
    struct ps_buf *b = NULL;
    assert_int_equal(ps_msg_optimizer_pack(&m, &b), PS_OK);
    return b;
}

static struct ps_buf *pack_quorum(void)
{
    struct ps_msg_quorum m = {.rank = 3, .member = 8};
    struct ps_buf *b = NULL;
    assert_int_equal(ps_msg_quorum_pack(&m, &b), PS_OK);
    return b;
}

static struct ps_buf *pack_abort(void)
{
    struct ps_msg_abort m = {.status = PS_EPEER, .member = 4, .text = "server 1 lost"};
    struct ps_buf *b = NULL;
    assert_int_equal(ps_msg_abort_pack(&m, &b), PS_OK);
    return b;
}

static struct ps_buf *pack_status(void)
{
    struct ps_msg_status m = {.placement = true, .json = ps_buf_create(8)};
    struct ps_buf *b = NULL;
    assert_non_null(m.json);
    memcpy(m.json->data, "{\"a\": 1}", 8);
    assert_int_equal(ps_msg_status_pack(&m, &b), PS_OK);
    ps_msg_status_fini(&m);
    return b;
}

#define KINDS(X) \
    X(register)  \
    X(job) X(keys) X(heartbeat) X(barrier) X(optimizer) X(quorum) X(abort) X(status)

/* Unpacks; on success packs again and returns that. */
#define DEFINE_AGAIN(name)                                                        \
    static enum ps_status again_##name(const void *data, size_t size,             \
                                       struct ps_buf **out, struct ps_error *err) \
    {                                                                             \
        struct ps_msg_##name m;                                                   \
        enum ps_status status = ps_msg_##name##_unpack(data, size, &m, err);      \
        if (status == PS_OK) {                                                    \
            assert_int_equal(ps_msg_##name##_pack(&m, out), PS_OK);               \
            ps_msg_##name##_fini(&m);                                             \
        }                                                                         \
        return status;                                                            \
    }
KINDS(DEFINE_AGAIN)

static const struct kind {
    struct ps_buf *(*pack)(void);
    enum ps_status (*again)(const void *data, size_t size, struct ps_buf **out,
                            struct ps_error *err);
} kinds[] = {
#define KIND_ROW(name) {pack_##name, again_##name},
    KINDS(KIND_ROW)};

static void every_message_survives_the_trip(void **state)
{
    PS_UNUSED(state);
    for (size_t k = 0; k < PS_COUNT(kinds); k++) {
        struct ps_buf *a = kinds[k].pack(), *b = NULL;
        struct ps_error err = {0};
        assert_int_equal(kinds[k].again(a->data, a->size, &b, &err), PS_OK);
        assert_int_equal(a->size, b->size);
        assert_memory_equal(a->data, b->data, a->size);
        ps_buf_release(a);
        ps_buf_release(b);
    }
}

static void every_truncation_is_refused(void **state)
{
    PS_UNUSED(state);
    for (size_t k = 0; k < PS_COUNT(kinds); k++) {
        struct ps_buf *a = kinds[k].pack(), *b = NULL;
        for (size_t size = 0; size < a->size; size++) {
            struct ps_error err = {0};
            unsigned char *copy = malloc(size + 1);
            assert_non_null(copy);
            memcpy(copy, a->data, size);
            assert_int_equal(kinds[k].again(copy, size, &b, &err), PS_EPROTO);
            assert_true(err.text[0] != '\0');
            free(copy);
        }
        ps_buf_release(a);
    }
}

static void mutations_are_refused_or_read(void **state)
{
    PS_UNUSED(state);
    struct ps_rng rng;
    ps_rng_init(&rng, 41);
    for (size_t k = 0; k < PS_COUNT(kinds); k++) {
        struct ps_buf *a = kinds[k].pack();
        for (int i = 0; i < 4000; i++) {
            unsigned char *copy = malloc(a->size);
            struct ps_buf *b = NULL;
            struct ps_error err = {0};
            assert_non_null(copy);
            memcpy(copy, a->data, a->size);
            for (int n = 0; n < 3; n++) {
                copy[ps_rng_below(&rng, a->size)] = (unsigned char)ps_rng_u64(&rng);
            }
            enum ps_status status = kinds[k].again(copy, a->size, &b, &err);
            assert_true(status == PS_OK || status == PS_EPROTO);
            ps_buf_release(b);
            free(copy);
        }
        ps_buf_release(a);
    }
}

static void announced_counts_reserve_nothing(void **state)
{
    PS_UNUSED(state);
    /* a map whose 'rows' claims 2^32 - 1 items */
    static const unsigned char bomb[] = {0x81, 0xa4, 'r',  'o',  'w', 's',
                                         0xdd, 0xff, 0xff, 0xff, 0xff};
    struct ps_msg_keys m;
    struct ps_error err = {0};
    assert_int_equal(ps_msg_keys_unpack(bomb, sizeof(bomb), &m, &err), PS_EPROTO);
    assert_int_equal(ps_msg_keys_unpack(NULL, 0, &m, &err), PS_EPROTO);
}

static void sizes_that_arithmetic_relies_on_are_checked(void **state)
{
    PS_UNUSED(state);
    struct ps_msg_job m = {.shard_count = 1000, .chunk_bytes = 1, .bigarray_bound = 1};
    struct ps_msg_job out;
    struct ps_error err = {0};
    struct ps_buf *b = NULL;
    assert_int_equal(ps_msg_job_pack(&m, &b), PS_OK);
    assert_int_equal(ps_msg_job_unpack(b->data, b->size, &out, &err), PS_EPROTO);
    assert_non_null(strstr(err.text, "shard_count"));
    ps_buf_release(b);
}

static void errors_carry_their_words(void **state)
{
    PS_UNUSED(state);
    struct ps_error err = {.status = PS_ENOENT};
    struct ps_buf *b = ps_msg_error_pack("no key 999");
    assert_non_null(b);
    ps_msg_error_read(b->data, b->size, &err);
    assert_string_equal(err.text, "no key 999");
    assert_int_equal(err.status, PS_ENOENT);
    ps_msg_error_read("garbage", 7, &err);
    assert_string_equal(err.text, "");
    ps_buf_release(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_survives_the_trip),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(mutations_are_refused_or_read),
        cmocka_unit_test(announced_counts_reserve_nothing),
        cmocka_unit_test(sizes_that_arithmetic_relies_on_are_checked),
        cmocka_unit_test(errors_carry_their_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
