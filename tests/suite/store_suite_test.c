/* The contract of a store, run over every implementation: local, and dist with one worker
 * over each transport.  usage: store_suite_test local|inproc|tcp|ipc|sim */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/cluster.h"
#include "tests/support/store_calls.h"

static const char *transport; /* argv[1] */

/* Runs 'program' as the only worker, with a store of type local or dist_sync. */
static void run_alone(cluster_program program, uint32_t servers)
{
    if (strcmp(transport, "local") == 0) {
        static const char *const env[] = {NULL};
        struct ps_error err;
        struct ps_node *node = NULL;
        struct ps_node_options options = {.name = "local", .env = env};
        assert_int_equal(ps_node_open(&options, &node, &err), PS_OK);
        program(NULL, node, 0, NULL);
        ps_node_close(node);
        return;
    }
    struct cluster_options options = {
        .transport = transport, .workers = 1, .servers = servers, .seed = 1};
    struct cluster *cluster = cluster_create(&options);
    assert_true(cluster_run(cluster, program, NULL, 600));
    cluster_end(cluster);
    assert_int_equal(cluster_scheduler_result(cluster).status, PS_OK);
    cluster_destroy(cluster);
}

static const char *sync_type(void)
{
    return strcmp(transport, "local") == 0 ? "local" : "dist_sync";
}

static const int dtypes[] = {PS_F32, PS_F64, PS_F16, PS_BF16, PS_I32, PS_I64, PS_U8};

static void program_dtypes(struct cluster *cluster, struct ps_node *node, uint32_t index,
                           void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    double got = 0;
    struct ps_kvstore *store = store_open(node, sync_type(), NULL);
    for (size_t i = 0; i < PS_COUNT(dtypes); i++) {
        struct ps_shape shape = PS_SHAPE(3, 5);
        struct ps_key key = PS_KEY(i);
        store_init(store, key, dtypes[i], &shape, 2);
        store_expect(store, key, dtypes[i], 15, 2);
        assert_int_equal(store_push(store, key, dtypes[i], 15, 5, &err), PS_OK);
        store_expect(store, key, dtypes[i], 15, 5);
        assert_int_equal(store_pushpull(store, key, dtypes[i], 15, 7, &got, &err), PS_OK);
        assert_true(got == 7);
    }
    ps_kvstore_destroy(store);
}

static void every_dtype_is_pushed_and_pulled(void **state)
{
    PS_UNUSED(state);
    run_alone(program_dtypes, 2);
}

static void program_sizes(struct cluster *cluster, struct ps_node *node, uint32_t index,
                          void *arg)
{
    static const int64_t counts[] = {1, 1023, 1024, 1025, 300000, 1440000, 1466521};
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_kvstore *store = store_open(node, sync_type(), NULL);
    store_optimizer(store, "test", "rescale_grad=2");
    for (size_t i = 0; i < PS_COUNT(counts); i++) {
        struct ps_shape shape = PS_SHAPE(counts[i]);
        uint64_t count = (uint64_t)counts[i];
        store_init(store, PS_KEY(i), PS_F32, &shape, 1);
        for (int round = 1; round <= 3; round++) {
            double got = 0;
            assert_int_equal(
                store_pushpull(store, PS_KEY(i), PS_F32, count, 0.5, &got, &err), PS_OK);
            assert_true(got == 1 + round);
        }
        store_expect(store, PS_KEY(i), PS_F32, count, 4);
    }
    ps_kvstore_destroy(store);
}

static void every_size_is_cut_and_joined(void **state)
{
    PS_UNUSED(state);
    run_alone(program_sizes, 3);
}

static void program_errors(struct cluster *cluster, struct ps_node *node, uint32_t index,
                           void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(4);
    double got;
    struct ps_kvstore *store = store_open(node, sync_type(), NULL);
    store_init(store, PS_KEY(3), PS_F32, &shape, 1);
    assert_int_equal(store_pull(store, PS_KEY(999), PS_F32, 4, &got, &err), PS_ENOENT);
    assert_non_null(strstr(err.text, "999"));
    assert_int_equal(store_push(store, PS_KEY(3), PS_F32, 5, 1, &err), PS_ESHAPE);
    assert_int_equal(store_push(store, PS_KEY(3), PS_F64, 4, 1, &err), PS_EDTYPE);
    assert_int_equal(store_init_status(store, PS_KEY(3), PS_F32, &shape, 1, &err),
                     PS_EEXIST);
    shape = PS_SHAPE(0);
    assert_int_equal(store_init_status(store, PS_KEY(4), PS_F32, &shape, 1, &err),
                     PS_ESHAPE);
    assert_int_equal(ps_kvstore_set_optimizer(store, "sgdd", "", false, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "sgd"));
    assert_int_equal(ps_kvstore_set_optimizer(store, "sgd", "momentum=x", false, &err),
                     PS_EINVAL);
    store_expect(store, PS_KEY(3), PS_F32, 4, 1);
    ps_kvstore_destroy(store);
}

static void case_024_bad_calls_are_answered_and_the_store_lives_on(void **state)
{
    PS_UNUSED(state);
    run_alone(program_errors, 1);
}

static void program_hyper(struct cluster *cluster, struct ps_node *node, uint32_t index,
                          void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(2);
    double got = 0;
    struct ps_kvstore *store = store_open(node, sync_type(), NULL);
    store_optimizer(store, "sgd", "learning_rate=0.1");
    store_init(store, PS_KEY(1), PS_F32, &shape, 0);
    assert_int_equal(store_pushpull(store, PS_KEY(1), PS_F32, 2, 1, &got, &err), PS_OK);
    assert_true(fabs(got + 0.1) < 1e-7);
    assert_int_equal(ps_kvstore_set_hyper(store, "learning_rate=0.01", &err), PS_OK);
    assert_int_equal(store_pushpull(store, PS_KEY(1), PS_F32, 2, 1, &got, &err), PS_OK);
    assert_true(fabs(got + 0.11) < 1e-7);
    ps_kvstore_destroy(store);
}

static void case_039_the_learning_rate_changes_live(void **state)
{
    PS_UNUSED(state);
    run_alone(program_hyper, 1);
}

static void program_momentum(struct cluster *cluster, struct ps_node *node,
                             uint32_t index, void *arg)
{
    static const double golden[] = {-0.1, -0.29, -0.561};
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(7);
    struct ps_kvstore *store = store_open(node, sync_type(), NULL);
    store_optimizer(store, "sgd", "learning_rate=0.1,momentum=0.9");
    store_init(store, PS_KEY_NAMED("w"), PS_F32, &shape, 0);
    for (size_t i = 0; i < PS_COUNT(golden); i++) {
        double got = 0;
        assert_int_equal(
            store_pushpull(store, PS_KEY_NAMED("w"), PS_F32, 7, 1, &got, &err), PS_OK);
        assert_true(fabs(got - golden[i]) < 1e-6);
        store_optimizer(store, "sgd",
                        "learning_rate=0.1,momentum=0.9"); /* equal: keeps state */
    }
    ps_kvstore_destroy(store);
}

static void momentum_follows_the_golden_values(void **state)
{
    PS_UNUSED(state);
    run_alone(program_momentum, 2);
}

#define DEVICES 4
static void noop(struct ps_kv_request *request)
{
    PS_UNUSED(request);
}

static void program_devices(struct cluster *cluster, struct ps_node *node, uint32_t index,
                            void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_shape shape = PS_SHAPE(3);
    float in[DEVICES][3], out[DEVICES][3];
    const void *src[DEVICES];
    void *dst[DEVICES];
    struct ps_kvstore *store = store_open(node, sync_type(), NULL);
    store_init(store, PS_KEY(1), PS_F32, &shape, 0);
    for (int d = 0; d < DEVICES; d++) {
        for (int i = 0; i < 3; i++) {
            in[d][i] = (float)(d + i);
        }
        src[d] = in[d];
        dst[d] = out[d];
    }
    for (int round = 0; round < 3; round++) {
        memset(out, 0, sizeof(out));
        struct ps_kv_request request = {.op = PS_KV_PUSHPULL,
                                        .key = PS_KEY(1),
                                        .dtype = PS_F32,
                                        .count = 3,
                                        .src = src,
                                        .src_count = DEVICES,
                                        .dst = dst,
                                        .dst_count = DEVICES,
                                        .done = noop};
        assert_int_equal(ps_kvstore_call(store, &request), PS_OK);
        for (int d = 0; d < DEVICES; d++) {
            for (int i = 0; i < 3; i++) {
                assert_true(out[d][i] == (float)(6 + 4 * i));
            }
        }
    }
    ps_kvstore_destroy(store);
}

static void devices_are_summed_and_all_get_the_value(void **state)
{
    PS_UNUSED(state);
    run_alone(program_devices, 1);
}

static void program_two_stores(struct cluster *cluster, struct ps_node *node,
                               uint32_t index, void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(2);
    struct ps_kvstore *a = store_open(node, sync_type(), "a");
    struct ps_kvstore *b = store_open(node, sync_type(), "b");
    store_init(a, PS_KEY(0), PS_F32, &shape, 1);
    store_init(b, PS_KEY(0), PS_F32, &shape, 2);
    store_optimizer(b, "test", "rescale_grad=10");
    assert_int_equal(store_push(a, PS_KEY(0), PS_F32, 2, 5, &err), PS_OK);
    assert_int_equal(store_push(b, PS_KEY(0), PS_F32, 2, 5, &err), PS_OK);
    store_expect(a, PS_KEY(0), PS_F32, 2, 5);
    store_expect(b, PS_KEY(0), PS_F32, 2, 52);
    ps_kvstore_destroy(a);
    store_expect(b, PS_KEY(0), PS_F32, 2, 52);
    ps_kvstore_destroy(b);
}

static void case_043_two_stores_in_one_process_are_apart(void **state)
{
    PS_UNUSED(state);
    run_alone(program_two_stores, 2);
}

static void program_half_first(struct cluster *cluster, struct ps_node *node,
                               uint32_t index, void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(5);
    struct ps_kvstore *store = store_open(node, sync_type(), NULL);
    store_init(store, PS_KEY(4), PS_F16, &shape, 1);
    assert_int_equal(store_push(store, PS_KEY(4), PS_F16, 5, 0.25, &err), PS_OK);
    store_expect(store, PS_KEY(4), PS_F16, 5, 0.25); /* no optimizer, no f32 master */
    assert_int_equal(
        ps_kvstore_set_optimizer(store, "sgd", "learning_rate=0.0001", true, &err),
        PS_OK);
    for (int i = 0; i < 10; i++) { /* below half's resolution; the master adds them up */
        assert_int_equal(store_push(store, PS_KEY(4), PS_F16, 5, 1, &err), PS_OK);
    }
    double got = 0;
    assert_int_equal(store_pull(store, PS_KEY(4), PS_F16, 5, &got, &err), PS_OK);
    assert_true(fabs(got - 0.249) < 2e-4);
    ps_kvstore_destroy(store);
}

static void
case_035_halves_before_and_after_an_optimizer_are_the_same_every_run(void **state)
{
    PS_UNUSED(state);
    for (int run = 0; run < 3; run++) {
        run_alone(program_half_first, 1);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_is_pushed_and_pulled),
        cmocka_unit_test(every_size_is_cut_and_joined),
        cmocka_unit_test(case_024_bad_calls_are_answered_and_the_store_lives_on),
        cmocka_unit_test(case_039_the_learning_rate_changes_live),
        cmocka_unit_test(momentum_follows_the_golden_values),
        cmocka_unit_test(devices_are_summed_and_all_get_the_value),
        cmocka_unit_test(
            case_035_halves_before_and_after_an_optimizer_are_the_same_every_run),
        cmocka_unit_test(case_043_two_stores_in_one_process_are_apart),
    };
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s local|inproc|tcp|ipc|sim\n", argv[0]);
        return 64;
    }
    transport = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
