/* What several workers see of a distributed store: behaviour.md 7.1, 7.2 (dense) and the
 * cases of cases.md B.  usage: dist_suite_test inproc|tcp|ipc|sim */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "tests/support/cluster.h"
#include "tests/support/store_calls.h"

static const char *transport; /* argv[1] */

static void run_job(uint32_t workers, uint32_t servers, cluster_program program,
                    void *arg)
{
    struct cluster_options options = {
        .transport = transport, .workers = workers, .servers = servers, .seed = 3};
    struct cluster *cluster = cluster_create(&options);
    assert_true(cluster_run(cluster, program, arg, 600));
    cluster_end(cluster);
    assert_int_equal(cluster_scheduler_result(cluster).status, PS_OK);
    for (uint32_t i = 0; i < servers; i++) {
        assert_int_equal(cluster_server_result(cluster, i).status, PS_OK);
    }
    cluster_destroy(cluster);
}

/* ---- 7.1: keys 3, 5, 7 of (2,2) and 99 of (1200,1200) ---- */

static void program_sync_0_10(struct cluster *cluster, struct ps_node *node,
                              uint32_t index, void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape small = PS_SHAPE(2, 2), big = PS_SHAPE(1200, 1200);
    struct ps_kvstore *store = store_open(node, "dist_sync", NULL);
    double n = ps_kvstore_num_workers(store), rank = ps_kvstore_rank(store);
    assert_int_equal(ps_kvstore_local_workers(store), n); /* all on this host */
    store_optimizer(store, "test", "rescale_grad=2");
    for (uint64_t k = 3; k <= 7; k += 2) {
        store_init(store, PS_KEY(k), PS_F32, &small, 1);
    }
    store_init(store, PS_KEY(99), PS_F32, &big, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(store_push(store, PS_KEY(3), PS_F32, 4, rank + 1, &err), PS_OK);
        assert_int_equal(store_push(store, PS_KEY(99), PS_F32, 1440000, rank + 1, &err),
                         PS_OK);
    }
    double expected = n * (n + 1) / 2 * 2 * 3 + 1;
    store_expect(store, PS_KEY(3), PS_F32, 4, expected);
    store_expect(store, PS_KEY(99), PS_F32, 1440000, expected);
    store_expect(store, PS_KEY(5), PS_F32, 4, 1);
    ps_kvstore_destroy(store);
}

static void case_019_sync_sums_of_2_and_4_workers(void **state)
{
    PS_UNUSED(state);
    run_job(2, 2, program_sync_0_10, NULL);
    run_job(4, 3, program_sync_0_10, NULL);
}

/* ---- 7.2: f32 and f16, three sizes, seven rounds ---- */

static void program_sync_1_9(struct cluster *cluster, struct ps_node *node,
                             uint32_t index, void *arg)
{
    static const int64_t shapes[][2] = {{2, 3}, {1200, 1200}, {1211, 1211}};
    static const int types[] = {PS_F32, PS_F16};
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_kvstore *store = store_open(node, "dist_sync", NULL);
    double n = ps_kvstore_num_workers(store), rank = ps_kvstore_rank(store);
    store_optimizer(store, "test", "rescale_grad=2");
    for (size_t t = 0; t < PS_COUNT(types); t++) {
        for (size_t s = 0; s < PS_COUNT(shapes); s++) {
            struct ps_shape shape = PS_SHAPE(shapes[s][0], shapes[s][1]);
            store_init(store, PS_KEY(t * 10 + s), types[t], &shape, 1);
        }
    }
    for (int i = 0; i < 7; i++) {
        for (size_t t = 0; t < PS_COUNT(types); t++) {
            for (size_t s = 0; s < PS_COUNT(shapes); s++) {
                uint64_t count = (uint64_t)(shapes[s][0] * shapes[s][1]);
                struct ps_key key = PS_KEY(t * 10 + s);
                if (s > 0 && i >= 2) {
                    continue; /* the large ones twice: enough, and quick under sanitizers
                               */
                }
                assert_int_equal(store_push(store, key, types[t], count, rank + 1, &err),
                                 PS_OK);
                store_expect(store, key, types[t], count,
                             n * (n + 1) * 2 / 2 * (i + 1) + 1);
            }
        }
    }
    ps_kvstore_destroy(store);
}

static void case_019_rounds_of_f32_and_f16_with_3_and_7_workers(void **state)
{
    PS_UNUSED(state);
    run_job(3, 2, program_sync_1_9, NULL);
    run_job(7, 2, program_sync_1_9, NULL);
}

static void program_sgd(struct cluster *cluster, struct ps_node *node, uint32_t index,
                        void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(10, 1);
    double got = 0;
    struct ps_kvstore *store = store_open(node, "dist_sync", NULL);
    double n = ps_kvstore_num_workers(store);
    store_optimizer(store, "sgd", "learning_rate=1");
    store_init(store, PS_KEY_NAMED("weight"), PS_F32, &shape, 1);
    assert_int_equal(store_pushpull(store, PS_KEY_NAMED("weight"), PS_F32, 10,
                                    ps_kvstore_rank(store) + 1.0, &got, &err),
                     PS_OK);
    assert_true(got == 1 - n * (n + 1) / 2);
    ps_kvstore_destroy(store);
}

static void case_020_one_sgd_step(void **state)
{
    static const uint32_t workers[] = {2, 3, 4, 7};
    PS_UNUSED(state);
    for (size_t i = 0; i < PS_COUNT(workers); i++) {
        run_job(workers[i], 1, program_sgd, NULL);
    }
}

/* ---- rounds belong to (key, step, rank) ---- */

struct async_push {
    struct ps_kv_request request;
    struct ps_event event;
    float value;
    const void *src;
};

static void push_done(struct ps_kv_request *request)
{
    struct async_push *push = request->ctx;
    ps_event_set(&push->event);
}

static void start_push(struct ps_kvstore *store, struct ps_node *node,
                       struct async_push *push, float value)
{
    *push = (struct async_push){.value = value};
    push->src = &push->value;
    push->request = (struct ps_kv_request){.op = PS_KV_PUSH,
                                           .key = PS_KEY(0),
                                           .dtype = PS_F32,
                                           .count = 1,
                                           .src = &push->src,
                                           .src_count = 1,
                                           .done = push_done,
                                           .ctx = push};
    assert_int_equal(ps_event_init(&push->event, node->driver), PS_OK);
    assert_int_equal(ps_kvstore_submit(store, &push->request), PS_OK);
}

static void end_push(struct async_push *push)
{
    assert_int_equal(ps_event_wait(&push->event, PS_NEVER), PS_OK);
    assert_int_equal(push->request.error.status, PS_OK);
    ps_event_fini(&push->event);
}

/* A pull, then a push that is more urgent. */
static void program_overtake(struct cluster *cluster, struct ps_node *node,
                             uint32_t index, void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(arg);
    PS_UNUSED(index);
    struct ps_shape shape = PS_SHAPE(1);
    struct ps_kvstore *store = store_open(node, "dist_sync", NULL);
    store_init(store, PS_KEY(0), PS_F32, &shape, 7);
    struct async_push pull = {.value = -1}, push;
    void *dst = &pull.value;
    pull.request = (struct ps_kv_request){.op = PS_KV_PULL,
                                          .key = PS_KEY(0),
                                          .dtype = PS_F32,
                                          .count = 1,
                                          .dst = &dst,
                                          .dst_count = 1,
                                          .priority = -10,
                                          .done = push_done,
                                          .ctx = &pull};
    assert_int_equal(ps_event_init(&pull.event, node->driver), PS_OK);
    assert_int_equal(ps_kvstore_submit(store, &pull.request), PS_OK);
    start_push(store, node, &push, 1);
    end_push(&pull);
    end_push(&push);
    assert_true(pull.value == 7);
    store_expect(store, PS_KEY(0), PS_F32, 1, 1);
    ps_kvstore_destroy(store);
}

static void a_push_does_not_overtake_an_earlier_pull_of_its_key(void **state)
{
    PS_UNUSED(state);
    run_job(1, 1, program_overtake, NULL);
}

static void program_two_pushes(struct cluster *cluster, struct ps_node *node,
                               uint32_t index, void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(1);
    struct ps_kvstore *store = store_open(node, "dist_sync", NULL);
    store_optimizer(store, "test", "rescale_grad=1");
    store_init(store, PS_KEY(0), PS_F32, &shape, 0);
    if (index == 0) {
        struct async_push first, second;
        start_push(store, node, &first, 1);
        start_push(store, node, &second, 1);
        end_push(&first); /* round 1: 1 + 10 */
        end_push(&second);
        store_expect(store, PS_KEY(0), PS_F32, 1, 111);
    } else {
        ps_driver_sleep(node->driver,
                        50 * PS_NS_PER_MS); /* lets the other's pushes come first */
        assert_int_equal(store_push(store, PS_KEY(0), PS_F32, 1, 10, &err), PS_OK);
        double got = 0;
        assert_int_equal(store_pull(store, PS_KEY(0), PS_F32, 1, &got, &err), PS_OK);
        assert_true(got ==
                    11); /* the round of 1 + 10, nothing of worker 0's second push */
        assert_int_equal(store_push(store, PS_KEY(0), PS_F32, 1, 99, &err), PS_OK);
    }
    ps_kvstore_destroy(store);
}

static void case_021_two_pushes_of_one_worker_are_two_rounds(void **state)
{
    PS_UNUSED(state);
    run_job(2, 1, program_two_pushes, NULL);
}

static void program_async_without_optimizer(struct cluster *cluster, struct ps_node *node,
                                            uint32_t index, void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(2);
    struct ps_kvstore *store = store_open(node, "dist_async", NULL);
    store_init(store, PS_KEY(0), PS_F32, &shape, 4);
    assert_int_equal(store_push(store, PS_KEY(0), PS_F32, 2, 1, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "set_optimizer"));
    store_expect(store, PS_KEY(0), PS_F32, 2, 4); /* the server lives on */
    ps_kvstore_destroy(store);
}

static void case_022_async_without_optimizer_fails_on_the_worker(void **state)
{
    PS_UNUSED(state);
    run_job(2, 1, program_async_without_optimizer, NULL);
}

static void program_init_race(struct cluster *cluster, struct ps_node *node,
                              uint32_t index, void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(16);
    double got;
    struct ps_kvstore *store = store_open(node, "dist_sync", NULL);
    assert_int_equal(store_pull(store, PS_KEY(82), PS_F32, 16, &got, &err), PS_ENOENT);
    if (index == 0) {
        ps_driver_sleep(node->driver, 20 * PS_NS_PER_MS);
    }
    store_init(store, PS_KEY(82), PS_F32, &shape, 5);
    for (int i = 0; i < 50; i++) {
        store_expect(store, PS_KEY(82), PS_F32, 16, 5);
    }
    ps_kvstore_destroy(store);
}

static void case_025_a_pull_waits_for_rank_0s_value(void **state)
{
    PS_UNUSED(state);
    run_job(3, 3, program_init_race, NULL);
}

static void program_half(struct cluster *cluster, struct ps_node *node, uint32_t index,
                         void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(3);
    struct ps_kvstore *store = store_open(node, "dist_sync", NULL);
    store_init(store, PS_KEY(4), PS_F16, &shape, 1);
    store_init(store, PS_KEY(3), PS_F32, &shape, 1);
    assert_int_equal(store_push(store, PS_KEY(4), PS_F16, 3, 0.5, &err), PS_OK);
    store_expect(store, PS_KEY(4), PS_F16, 3, 1); /* 0.5 from each of 2 workers */
    assert_int_equal(store_push(store, PS_KEY(4), PS_F32, 3, 0.5, &err), PS_EDTYPE);
    assert_non_null(strstr(err.text, "float16"));
    ps_kvstore_destroy(store);
}

static void case_036_038_halves_keep_their_length_and_their_type(void **state)
{
    PS_UNUSED(state);
    run_job(2, 2, program_half, NULL);
}

static void program_adam(struct cluster *cluster, struct ps_node *node, uint32_t index,
                         void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(5);
    double got = 0;
    struct ps_kvstore *store = store_open(node, "dist_sync", NULL);
    store_optimizer(store, "adam", "learning_rate=0.1");
    store_init(store, PS_KEY(0), PS_F32, &shape, 0);
    for (int step = 0; step < 3; step++) {
        assert_int_equal(store_pushpull(store, PS_KEY(0), PS_F32, 5, 0.5, &got, &err),
                         PS_OK);
    }
    assert_true(fabs(got + 0.29999993) < 2e-7);
    ps_kvstore_destroy(store);
}

static void case_040_the_servers_update_count_is_the_rounds(void **state)
{
    PS_UNUSED(state);
    run_job(2, 1, program_adam, NULL);
}

static void program_push_order(struct cluster *cluster, struct ps_node *node,
                               uint32_t index, void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_shape shape = PS_SHAPE(1);
    struct ps_kvstore *store = store_open(node, "dist_async", NULL);
    store_optimizer(store, "add", "rescale_grad=1");
    store_init(store, PS_KEY(0), PS_F32, &shape, 0);
    for (int i = 0; i < 100; i++) {
        struct async_push first, second;
        start_push(store, node, &first, 1);
        start_push(store, node, &second, 2);
        store_expect(store, PS_KEY(0), PS_F32, 1,
                     3 * (i + 1)); /* without waiting for them */
        end_push(&first);
        end_push(&second);
    }
    ps_kvstore_destroy(store);
}

static void case_044_a_pull_sees_all_earlier_pushes_of_its_worker(void **state)
{
    PS_UNUSED(state);
    run_job(1, 1, program_push_order, NULL);
}

struct barrier_state {
    _Atomic uint32_t passed[64];
};

static void program_barrier(struct cluster *cluster, struct ps_node *node, uint32_t index,
                            void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    struct barrier_state *barrier = arg;
    struct ps_error err = {.status = PS_OK};
    struct ps_kvstore *store = store_open(node, "dist_sync", NULL);
    uint32_t n = ps_kvstore_num_workers(store);
    for (size_t i = 0; i < PS_COUNT(barrier->passed); i++) {
        assert_int_equal(ps_kvstore_barrier(store, &err), PS_OK);
        if (i > 0) { /* everyone has passed the one before */
            assert_int_equal(atomic_load(&barrier->passed[i - 1]), n);
        }
        atomic_fetch_add(&barrier->passed[i], 1);
    }
    ps_kvstore_destroy(store);
}

static void case_046_nobody_passes_a_barrier_early(void **state)
{
    PS_UNUSED(state);
    struct barrier_state barrier = {0};
    run_job(3, 1, program_barrier, &barrier);
}

static void program_async(struct cluster *cluster, struct ps_node *node, uint32_t index,
                          void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(3);
    struct ps_kvstore *store = store_open(node, "dist_async", NULL);
    store_optimizer(store, "add", "rescale_grad=1");
    store_init(store, PS_KEY(0), PS_F32, &shape, 0);
    double got = 0;
    for (int i = 1; i <= 10; i++) {
        assert_int_equal(store_push(store, PS_KEY(0), PS_F32, 3, 1, &err), PS_OK);
        assert_int_equal(store_pull(store, PS_KEY(0), PS_F32, 3, &got, &err), PS_OK);
        assert_true(got >= i && got <= 10 + i);
    }
    assert_int_equal(ps_kvstore_barrier(store, &err), PS_OK);
    store_expect(store, PS_KEY(0), PS_F32, 3, 20);
    ps_kvstore_destroy(store);
}

static void case_048_async_pulls_see_the_pushes_so_far(void **state)
{
    PS_UNUSED(state);
    run_job(2, 1, program_async, NULL);
}

static void program_done(struct cluster *cluster, struct ps_node *node, uint32_t index,
                         void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(2);
    double got = 0;
    struct ps_kvstore *store = store_open(node, "dist_sync", NULL);
    store_optimizer(store, "test", "rescale_grad=1");
    store_init(store, PS_KEY(0), PS_F32, &shape, 0);
    uint32_t steps = index == 1 ? 2 : 5; /* worker 1 has fewer batches */
    for (uint32_t i = 0; i < steps; i++) {
        assert_int_equal(store_push(store, PS_KEY(0), PS_F32, 2, 1, &err), PS_OK);
    }
    assert_int_equal(ps_kvstore_done(store, &err), PS_OK);
    assert_int_equal(store_pull(store, PS_KEY(0), PS_F32, 2, &got, &err), PS_OK);
    if (index != 1) {
        assert_true(got == 2 * 3 + 3 * 2);
    }
    ps_kvstore_destroy(store);
}

static void a_worker_that_is_done_is_not_waited_for(void **state)
{
    PS_UNUSED(state);
    run_job(3, 2, program_done, NULL);
}

static void program_abandon(struct cluster *cluster, struct ps_node *node, uint32_t index,
                            void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(2);
    struct ps_kvstore *store = store_open(node, "dist_sync", NULL);
    store_init(store, PS_KEY(0), PS_F32, &shape, 0);
    assert_int_equal(ps_kvstore_barrier(store, &err),
                     PS_OK); /* nobody is still in init */
    if (index == 0) {
        (void)ps_error_set(&err, PS_EFULL, "the disk is full");
        ps_kvstore_abandon(store, &err);
        assert_int_equal(store_push(store, PS_KEY(0), PS_F32, 2, 1, &err), PS_EFULL);
    } else { /* neither hangs nor goes on alone */
        assert_int_equal(store_push(store, PS_KEY(0), PS_F32, 2, 1, &err), PS_EPEER);
        assert_non_null(strstr(err.text, "worker"));
    }
    ps_kvstore_destroy(store);
}

static void a_worker_that_failed_is_lost_and_not_done(void **state)
{
    PS_UNUSED(state);
    static const char *const settings[] = {"LINK_GRACE_MS=100", NULL};
    struct cluster_options options = {.transport = transport,
                                      .workers = 2,
                                      .servers = 1,
                                      .seed = 3,
                                      .settings = settings};
    struct cluster *cluster = cluster_create(&options);
    assert_true(cluster_run(cluster, program_abandon, NULL, 600));
    cluster_end(cluster);
    assert_int_equal(cluster_scheduler_result(cluster).status, PS_EPEER);
    cluster_destroy(cluster);
}

static void empty_done(struct ps_kv_request *request)
{
    PS_UNUSED(request);
}

static void program_abort(struct cluster *cluster, struct ps_node *node, uint32_t index,
                          void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(arg);
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(2);
    float out[2] = {0};
    void *dst = out;
    struct ps_kvstore *store = store_open(node, "dist_sync", NULL);
    store_init(store, PS_KEY(0), PS_F32, &shape, 1);
    /* step 1: worker 1 has nothing to give, and votes so */
    struct ps_kv_request vote = {.op = PS_KV_PUSHPULL,
                                 .key = PS_KEY(0),
                                 .dtype = PS_F32,
                                 .count = 2,
                                 .dst = &dst,
                                 .dst_count = 1,
                                 .done = empty_done};
    if (index == 1) {
        assert_int_equal(ps_kvstore_call(store, &vote), PS_OK);
        assert_true(out[0] == 8);
    } else {
        double got = 0;
        assert_int_equal(store_pushpull(store, PS_KEY(0), PS_F32, 2, 8, &got, &err),
                         PS_OK);
        assert_true(got == 8);
    }
    /* step 2: worker 1's operation failed upstream; everyone hears why */
    if (index == 1) {
        vote.upstream = PS_EIO;
        (void)ps_error_set(&vote.error, PS_EIO, "disk of worker 1 is gone");
        assert_int_not_equal(ps_kvstore_call(store, &vote), PS_OK);
        assert_non_null(strstr(vote.error.text, "disk of worker 1"));
    } else {
        double got = 0;
        assert_int_equal(store_pushpull(store, PS_KEY(0), PS_F32, 2, 8, &got, &err),
                         PS_EABORT);
        assert_non_null(strstr(err.text, "disk of worker 1"));
    }
    ps_kvstore_destroy(store);
}

static void an_empty_vote_counts_and_an_abort_reaches_everyone(void **state)
{
    PS_UNUSED(state);
    run_job(2, 1, program_abort, NULL);
}

static void program_mismatch(struct cluster *cluster, struct ps_node *node,
                             uint32_t index, void *arg)
{
    PS_UNUSED(cluster);
    _Atomic int *refused = arg;
    struct ps_error err = {.status = PS_OK};
    struct ps_shape shape = PS_SHAPE(2 + (int64_t)index);
    struct ps_kvstore *store = store_open(node, "dist_sync", NULL);
    enum ps_status status =
        store_init_status(store, PS_KEY_NAMED("w"), PS_F32, &shape, 1, &err);
    if (status != PS_OK) {
        assert_int_equal(status, PS_EMISMATCH);
        assert_non_null(strstr(err.text, "w"));
        atomic_fetch_add(refused, 1);
    }
    assert_int_equal(ps_kvstore_barrier(store, &err), PS_OK);
    ps_kvstore_destroy(store);
}

static void workers_that_disagree_on_a_shape_are_told(void **state)
{
    PS_UNUSED(state);
    _Atomic int refused = 0;
    run_job(2, 1, program_mismatch, &refused);
    assert_int_equal(atomic_load(&refused), 1);
}

/* ---- the end of a store ---- */

struct last_call {
    struct ps_kvstore *store;
    struct ps_kv_request request;
    struct ps_event done, go;
};

static void last_call_done(struct ps_kv_request *request)
{
    ps_event_set(&((struct last_call *)request->ctx)->done);
}

static void last_call_submit(void *arg)
{
    struct last_call *call = arg;
    assert_int_equal(ps_event_wait(&call->go, PS_NEVER), PS_OK);
    assert_int_equal(ps_kvstore_submit(call->store, &call->request), PS_OK);
}

/* One thread submits, another destroys the store as soon as the answer is there. */
static void program_last_call(struct cluster *cluster, struct ps_node *node,
                              uint32_t index, void *arg)
{
    PS_UNUSED(cluster);
    PS_UNUSED(index);
    PS_UNUSED(arg);
    struct ps_shape shape = PS_SHAPE(1);
    struct ps_kvstore *keeps_the_job = store_open(node, "dist_sync", NULL);
    for (int i = 0; i < 100; i++) {
        char name[16];
        float value = 1;
        const void *src = &value;
        void *dst = &value;
        struct ps_thread thread = {0};
        struct last_call call = {.request = {.op = PS_KV_PUSHPULL,
                                             .key = PS_KEY(0),
                                             .dtype = PS_F32,
                                             .count = 1,
                                             .src = &src,
                                             .src_count = 1,
                                             .dst = &dst,
                                             .dst_count = 1,
                                             .done = last_call_done}};
        call.request.ctx = &call;
        (void)snprintf(name, sizeof(name), "store%d", i);
        call.store = store_open(node, "dist_sync", name);
        store_init(call.store, PS_KEY(0), PS_F32, &shape, 1);
        assert_int_equal(ps_event_init(&call.done, node->driver), PS_OK);
        assert_int_equal(ps_event_init(&call.go, node->driver), PS_OK);
        assert_int_equal(ps_thread_start(&thread, "submit", last_call_submit, &call),
                         PS_OK);
        ps_event_set(&call.go);
        assert_int_equal(ps_event_wait(&call.done, PS_NEVER), PS_OK);
        ps_kvstore_destroy(call.store);
        ps_thread_join(&thread);
        ps_event_fini(&call.done);
        ps_event_fini(&call.go);
    }
    ps_kvstore_destroy(keeps_the_job);
}

static void a_store_may_go_as_soon_as_its_last_request_is_done(void **state)
{
    PS_UNUSED(state);
    if (strcmp(transport, "sim") == 0) {
        skip(); /* needs threads */
    }
    run_job(1, 1, program_last_call, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_019_sync_sums_of_2_and_4_workers),
        cmocka_unit_test(case_019_rounds_of_f32_and_f16_with_3_and_7_workers),
        cmocka_unit_test(case_020_one_sgd_step),
        cmocka_unit_test(case_021_two_pushes_of_one_worker_are_two_rounds),
        cmocka_unit_test(a_push_does_not_overtake_an_earlier_pull_of_its_key),
        cmocka_unit_test(case_022_async_without_optimizer_fails_on_the_worker),
        cmocka_unit_test(case_025_a_pull_waits_for_rank_0s_value),
        cmocka_unit_test(case_036_038_halves_keep_their_length_and_their_type),
        cmocka_unit_test(case_040_the_servers_update_count_is_the_rounds),
        cmocka_unit_test(case_044_a_pull_sees_all_earlier_pushes_of_its_worker),
        cmocka_unit_test(case_046_nobody_passes_a_barrier_early),
        cmocka_unit_test(case_048_async_pulls_see_the_pushes_so_far),
        cmocka_unit_test(a_worker_that_is_done_is_not_waited_for),
        cmocka_unit_test(a_worker_that_failed_is_lost_and_not_done),
        cmocka_unit_test(an_empty_vote_counts_and_an_abort_reaches_everyone),
        cmocka_unit_test(workers_that_disagree_on_a_shape_are_told),
        cmocka_unit_test(a_store_may_go_as_soon_as_its_last_request_is_done),
    };
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s inproc|tcp|ipc|sim\n", argv[0]);
        return 64;
    }
    transport = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
