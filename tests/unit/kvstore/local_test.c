/* The local store: behaviour.md 7.4 and 7.5, dense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kvstore/kvstore.h"

#define SIDE 4
#define COUNT (SIDE * SIDE)

struct fixture {
    struct ps_node *node;
    struct ps_kvstore *store;
};

static void open_store(struct fixture *f, const char *type)
{
    static const char *const env[] = {NULL};
    struct ps_error err;
    struct ps_node_options node_options = {.name = "test", .env = env};
    assert_int_equal(ps_node_open(&node_options, &f->node, &err), PS_OK);
    struct ps_kvstore_options options = {.node = f->node, .type = type};
    assert_int_equal(ps_kvstore_create(&options, &f->store, &err), PS_OK);
}

static void close_store(struct fixture *f)
{
    ps_kvstore_destroy(f->store);
    ps_node_close(f->node);
}

static void fill(float *a, size_t count, float value)
{
    for (size_t i = 0; i < count; i++) {
        a[i] = value;
    }
}

static void init(struct fixture *f, struct ps_key key, float value)
{
    float a[COUNT];
    struct ps_error err;
    fill(a, COUNT, value);
    struct ps_kv_init init = {
        .key = key, .dtype = PS_F32, .shape = PS_SHAPE(SIDE, SIDE), .data = a};
    assert_int_equal(ps_kvstore_init(f->store, &init, 1, &err), PS_OK);
}

static void noop(struct ps_kv_request *request)
{
    PS_UNUSED(request);
}

static enum ps_status push(struct fixture *f, struct ps_key key, const float *const *src,
                           uint32_t n, size_t count)
{
    struct ps_kv_request request = {.op = PS_KV_PUSH,
                                    .key = key,
                                    .dtype = PS_F32,
                                    .count = count,
                                    .src = (const void *const *)src,
                                    .src_count = n,
                                    .done = noop};
    return ps_kvstore_call(f->store, &request);
}

static enum ps_status pull(struct fixture *f, struct ps_key key, float *dst, size_t count)
{
    void *out = dst;
    struct ps_kv_request request = {.op = PS_KV_PULL,
                                    .key = key,
                                    .dtype = PS_F32,
                                    .count = count,
                                    .dst = &out,
                                    .dst_count = 1,
                                    .done = noop};
    return ps_kvstore_call(f->store, &request);
}

static void check_value(struct fixture *f, struct ps_key key, float value)
{
    float a[COUNT];
    assert_int_equal(pull(f, key, a, COUNT), PS_OK);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(a[i] == value);
    }
}

/* n devices push 'value' each */
static void push_ones(struct fixture *f, struct ps_key key, float value, uint32_t n)
{
    float a[COUNT];
    const float *src[16];
    fill(a, COUNT, value);
    for (uint32_t i = 0; i < n; i++) {
        src[i] = a;
    }
    assert_int_equal(push(f, key, src, n, COUNT), PS_OK);
}

static void push_replaces_the_value_by_the_sum(void **state)
{
    static const char *const types[] = {"local", "device", "local_update_cpu",
                                        "local_allreduce_device"};
    PS_UNUSED(state);
    for (size_t t = 0; t < PS_COUNT(types); t++) {
        struct fixture f;
        open_store(&f, types[t]);
        assert_string_equal(ps_kvstore_type(f.store), types[t]);
        init(&f, PS_KEY(3), 0);
        push_ones(&f, PS_KEY(3), 1, 1);
        check_value(&f, PS_KEY(3), 1);
        init(&f, PS_KEY(4), 4);
        check_value(&f, PS_KEY(4), 4);
        for (uint64_t k = 5; k <= 11; k += 2) {
            init(&f, PS_KEY(k), 0);
            push_ones(&f, PS_KEY(k), 4, 1);
            check_value(&f, PS_KEY(k), 4);
        }
        push_ones(&f, PS_KEY(3), 1, 4);
        check_value(&f, PS_KEY(3), 4);
        push_ones(&f, PS_KEY(5), 2, 4);
        check_value(&f, PS_KEY(5), 8);
        close_store(&f);
    }
}

static void plus_equals(void *ctx, struct ps_key key, const void *merged, void *stored,
                        int dtype, uint64_t count)
{
    assert_int_equal(dtype, PS_F32);
    for (uint64_t i = 0; i < count; i++) {
        ((float *)stored)[i] += ((const float *)merged)[i];
    }
    *(struct ps_key *)ctx = key;
}

static void a_users_updater_sees_the_sum(void **state)
{
    PS_UNUSED(state);
    struct fixture f;
    struct ps_key seen = {0};
    struct ps_error err;
    open_store(&f, "local");
    init(&f, PS_KEY_NAMED("a"), 0);
    assert_int_equal(ps_kvstore_set_updater(f.store, plus_equals, &seen, &err), PS_OK);
    push_ones(&f, PS_KEY_NAMED("a"), 1, 4);
    assert_string_equal(seen.name, "a");
    check_value(&f, PS_KEY_NAMED("a"), 4);
    for (int i = 0; i < 3; i++) {
        push_ones(&f, PS_KEY_NAMED("a"), 1, 4);
    }
    check_value(&f, PS_KEY_NAMED("a"), 16);
    close_store(&f);
}

static void the_test_optimizer_adds_rescaled_sums(void **state)
{
    static const size_t sides[] = {4, 100, 2000};
    PS_UNUSED(state);
    struct fixture f;
    struct ps_error err;
    open_store(&f, "local");
    assert_int_equal(
        ps_kvstore_set_optimizer(f.store, "test", "rescale_grad=0.1", false, &err),
        PS_OK);
    for (size_t s = 0; s < PS_COUNT(sides); s++) {
        size_t count = sides[s] * sides[s];
        float *w = calloc(count, sizeof(float)), *g[4];
        double *expected = calloc(count, sizeof(double)), difference = 0, norm = 0;
        struct ps_kv_init one = {.key = PS_KEY(3 + 2 * s),
                                 .dtype = PS_F32,
                                 .shape = PS_SHAPE((int64_t)sides[s], (int64_t)sides[s]),
                                 .data = w};
        assert_int_equal(ps_kvstore_init(f.store, &one, 1, &err), PS_OK);
        int repeats = s == 2 ? 2 : 10;
        for (int d = 0; d < 4; d++) {
            g[d] = malloc(count * sizeof(float));
        }
        for (int r = 0; r < repeats; r++) {
            for (int d = 0; d < 4; d++) {
                for (size_t i = 0; i < count; i++) {
                    g[d][i] = 2 * ps_rng_unit_at(11, (uint64_t)(r * 4 + d), i) - 1;
                    expected[i] += 0.1 * (double)g[d][i];
                }
            }
            const float *src[4] = {g[0], g[1], g[2], g[3]};
            assert_int_equal(push(&f, PS_KEY(3 + 2 * s), src, 4, count), PS_OK);
        }
        assert_int_equal(pull(&f, PS_KEY(3 + 2 * s), w, count), PS_OK);
        for (size_t i = 0; i < count; i++) {
            difference += fabs((double)w[i] - expected[i]);
            norm += fabs(expected[i]);
        }
        assert_true(difference / norm < 1e-6);
        for (int d = 0; d < 4; d++) {
            free(g[d]);
        }
        free(w);
        free(expected);
    }
    close_store(&f);
}

static void case_024_a_key_without_init_is_not_found(void **state)
{
    PS_UNUSED(state);
    struct fixture f;
    float a[COUNT];
    open_store(&f, "local");
    init(&f, PS_KEY(3), 1);
    assert_int_equal(pull(&f, PS_KEY(999), a, COUNT), PS_ENOENT);
    check_value(&f, PS_KEY(3), 1);
    close_store(&f);
}

static void case_026_a_key_twice_in_one_init_is_refused(void **state)
{
    PS_UNUSED(state);
    struct fixture f;
    struct ps_error err;
    float a[COUNT] = {0};
    open_store(&f, "local");
    struct ps_kv_init keys[3];
    static const uint64_t numbers[2][3] = {{3, 5, 3}, {3, 3, 5}};
    for (size_t t = 0; t < 2; t++) {
        for (size_t i = 0; i < 3; i++) {
            keys[i] = (struct ps_kv_init){.key = PS_KEY(numbers[t][i]),
                                          .dtype = PS_F32,
                                          .shape = PS_SHAPE(SIDE, SIDE),
                                          .data = a};
        }
        assert_int_equal(ps_kvstore_init(f.store, keys, 3, &err), PS_EINVAL);
        assert_non_null(strstr(err.text, "key 3"));
    }
    init(&f, PS_KEY(3), 2); /* nothing of the refused calls is left */
    keys[0].key = PS_KEY(3);
    assert_int_equal(ps_kvstore_init(f.store, keys, 1, &err), PS_EEXIST);
    check_value(&f, PS_KEY(3), 2);
    close_store(&f);
}

static void numbers_and_names_do_not_mix(void **state)
{
    PS_UNUSED(state);
    struct fixture f;
    struct ps_error err;
    float a[COUNT] = {0};
    open_store(&f, "local");
    init(&f, PS_KEY(3), 1);
    struct ps_kv_init named = {.key = PS_KEY_NAMED("a"),
                               .dtype = PS_F32,
                               .shape = PS_SHAPE(SIDE, SIDE),
                               .data = a};
    assert_int_equal(ps_kvstore_init(f.store, &named, 1, &err), PS_EINVAL);
    assert_int_equal(pull(&f, PS_KEY_NAMED("3"), a, COUNT), PS_EINVAL);
    close_store(&f);
}

static void wrong_dtype_or_size_is_refused(void **state)
{
    PS_UNUSED(state);
    struct fixture f;
    float a[COUNT] = {0};
    const void *src = a;
    open_store(&f, "local");
    init(&f, PS_KEY(3), 1);
    const float *one = a;
    assert_int_equal(push(&f, PS_KEY(3), &one, 1, COUNT - 1), PS_ESHAPE);
    struct ps_kv_request request = {.op = PS_KV_PUSH,
                                    .key = PS_KEY(3),
                                    .dtype = PS_F16,
                                    .count = COUNT,
                                    .src = &src,
                                    .src_count = 1,
                                    .done = noop};
    assert_int_equal(ps_kvstore_call(f.store, &request), PS_EDTYPE);
    assert_non_null(strstr(request.error.text, "float32"));
    assert_non_null(strstr(request.error.text, "float16"));
    close_store(&f);
}

static void case_039_a_live_learning_rate_counts_from_the_next_push(void **state)
{
    PS_UNUSED(state);
    struct fixture f;
    struct ps_error err;
    float w[COUNT];
    open_store(&f, "local");
    assert_int_equal(
        ps_kvstore_set_optimizer(f.store, "sgd", "learning_rate=0.1", false, &err),
        PS_OK);
    init(&f, PS_KEY(0), 0);
    push_ones(&f, PS_KEY(0), 1, 1);
    check_value(&f, PS_KEY(0), -0.1F);
    assert_int_equal(ps_kvstore_set_hyper(f.store, "learning_rate=0.01", &err), PS_OK);
    push_ones(&f, PS_KEY(0), 1, 1);
    assert_int_equal(pull(&f, PS_KEY(0), w, COUNT), PS_OK);
    assert_true(fabsf(w[0] + 0.11F) < 1e-7F);
    assert_int_equal(ps_kvstore_set_hyper(f.store, "lerning_rate=1", &err), PS_EINVAL);
    close_store(&f);
}

static void case_040_the_update_count_is_the_keys(void **state)
{
    PS_UNUSED(state);
    struct fixture f;
    struct ps_error err;
    float w[COUNT];
    open_store(&f, "device");
    assert_int_equal(
        ps_kvstore_set_optimizer(f.store, "adam", "learning_rate=0.1", false, &err),
        PS_OK);
    init(&f, PS_KEY(0), 0);
    for (int step = 0; step < 3; step++) {
        push_ones(&f, PS_KEY(0), 0.5F, 2);
    }
    assert_int_equal(pull(&f, PS_KEY(0), w, COUNT), PS_OK);
    assert_true(fabsf(w[0] + 0.29999993F) < 2e-7F);
    close_store(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(push_replaces_the_value_by_the_sum),
        cmocka_unit_test(a_users_updater_sees_the_sum),
        cmocka_unit_test(the_test_optimizer_adds_rescaled_sums),
        cmocka_unit_test(case_024_a_key_without_init_is_not_found),
        cmocka_unit_test(case_026_a_key_twice_in_one_init_is_refused),
        cmocka_unit_test(numbers_and_names_do_not_mix),
        cmocka_unit_test(wrong_dtype_or_size_is_refused),
        cmocka_unit_test(case_039_a_live_learning_rate_counts_from_the_next_push),
        cmocka_unit_test(case_040_the_update_count_is_the_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
