/* Streams of the GPU lanes: each thread owns one, work that an operation leaves in it is
 * complete before the operation is, and its errors become the operation's. */
#include "tests/unit/engine/lanes_rig.h"

#include "engine/device/device.h"

#include <stdlib.h>
#include <string.h>

static const int all_types[] = {PS_ENGINE_NAIVE, PS_ENGINE_POOLED, PS_ENGINE_PER_DEVICE};

/* ---- whose stream it is ---- */

static void check_streams(const struct crowd *crowd, struct ps_context context,
                          enum ps_stream_kind kind)
{
    for (int i = 0; i < crowd->id_count; i++) {
        struct ps_stream *stream = crowd->streams[i];
        assert_non_null(stream);
        struct ps_context of = ps_device_context(ps_stream_device(stream));
        assert_true(ps_context_equal(of, context));
        assert_int_equal(ps_stream_kind(stream), kind);
        for (int k = 0; k < i; k++) {
            assert_ptr_not_equal(stream, crowd->streams[k]);
        }
    }
}

/* Fills a lane of 'threads' threads; their streams must be of that kind, one each. */
static void check_lane(struct suite *suite, struct ps_context context,
                       enum ps_engine_op_kind op_kind, int threads,
                       enum ps_stream_kind stream_kind)
{
    struct crowd crowd;
    crowd_init(&crowd, false);
    for (int i = 0; i < threads; i++) {
        crowd_push(suite, &crowd, context, op_kind, 0);
    }
    gate_wait_arrived(&crowd.gate, threads);
    gate_open(&crowd.gate);
    wait_all_ok(suite);
    assert_int_equal(crowd.id_count, threads);
    check_streams(&crowd, context, stream_kind);
    crowd_fini(&crowd);
}

static void each_thread_of_a_gpu_lane_owns_a_stream(void **state)
{
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_PER_DEVICE, "GPU_WORKER_NTHREADS=4",
               "GPU_COPY_NTHREADS=3", NULL);
    for (int id = 0; id < 2; id++) {
        check_lane(&suite, PS_GPU(id), PS_ENGINE_NORMAL, 4, PS_STREAM_COMPUTE);
        check_lane(&suite, PS_GPU(id), PS_ENGINE_GPU_PRIORITIZED, 4, PS_STREAM_COMPUTE);
        check_lane(&suite, PS_GPU(id), PS_ENGINE_COPY_TO_GPU, 3, PS_STREAM_COPY);
    }
    suite_close(&suite);
}

static void a_thread_of_the_pool_owns_a_stream_of_each_gpu(void **state)
{
    struct suite suite;
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_POOLED, NULL);
    for (int id = 0; id < 3; id++) {
        check_lane(&suite, PS_GPU(id), PS_ENGINE_NORMAL, 16, PS_STREAM_COMPUTE);
        check_lane(&suite, PS_GPU(id), PS_ENGINE_COPY_FROM_GPU, 1, PS_STREAM_COPY);
    }
    suite_close(&suite);
}

static void the_naive_engine_has_one_stream_for_each_gpu(void **state)
{
    struct suite suite;
    struct crowd crowds[PS_ENGINE_OP_KIND_COUNT];
    PS_UNUSED(state);
    lanes_open(&suite, PS_ENGINE_NAIVE, NULL);
    for (int kind = 0; kind < PS_ENGINE_OP_KIND_COUNT; kind++) {
        crowd_init(&crowds[kind], true);
        crowd_push(&suite, &crowds[kind], PS_GPU(1), (enum ps_engine_op_kind)kind, 0);
        check_streams(&crowds[kind], PS_GPU(1), PS_STREAM_COMPUTE);
        assert_ptr_equal(crowds[kind].streams[0], crowds[0].streams[0]);
        crowd_fini(&crowds[kind]);
    }
    suite_close(&suite);
}

static void there_is_no_stream_on_a_cpu_nor_on_a_pushers_thread(void **state)
{
    PS_UNUSED(state);
    for (size_t t = 0; t < PS_COUNT(all_types); t++) {
        struct suite suite;
        lanes_open(&suite, all_types[t], NULL);
        for (int kind = 0; kind < PS_ENGINE_OP_KIND_COUNT; kind++) {
            struct crowd crowd;
            bool inside = kind == PS_ENGINE_ASYNC && all_types[t] != PS_ENGINE_NAIVE;
            crowd_init(&crowd, true);
            crowd_push(&suite, &crowd, inside ? PS_GPU(0) : PS_CPU(0),
                       (enum ps_engine_op_kind)kind, 0);
            wait_all_ok(&suite);
            assert_null(crowd.streams[0]);
            crowd_fini(&crowd);
        }
        suite_close(&suite);
    }
}

/* ---- what is left in it ---- */

enum { BYTES = 1 << 20 };

struct moved { /* an operation's argument: one copy, left in the stream */
    struct ps_device *host, *gpu;
    void *host_ptr, *gpu_ptr;
    bool to_gpu;
    enum ps_status result;
};

static enum ps_status run_move(void *arg, const struct ps_run *run, struct ps_error *err)
{
    const struct moved *moved = arg;
    enum ps_status status = moved->to_gpu
                                ? ps_device_copy(moved->gpu, moved->gpu_ptr, moved->host,
                                                 moved->host_ptr, BYTES, run->stream)
                                : ps_device_copy(moved->host, moved->host_ptr, moved->gpu,
                                                 moved->gpu_ptr, BYTES, run->stream);
    if (status == PS_OK && moved->result != PS_OK) {
        return ps_error_set(err, moved->result, "its own words");
    }
    return status;
}

struct pair { /* a host's memory, a GPU's, and back to the host's */
    struct ps_device *host, *gpu;
    char *from, *to;
    void *gpu_ptr;
    struct ps_var *gpu_var, *to_var;
    struct moved there, back;
};

static void pair_init(struct suite *suite, struct pair *pair)
{
    memset(pair, 0, sizeof(*pair));
    assert_int_equal(ps_engine_device(suite->engine, PS_CPU(0), &pair->host, NULL),
                     PS_OK);
    assert_int_equal(ps_engine_device(suite->engine, PS_GPU(0), &pair->gpu, NULL), PS_OK);
    pair->from = malloc(BYTES);
    pair->to = calloc(1, BYTES);
    assert_true(pair->from != NULL && pair->to != NULL);
    memset(pair->from, 0x5a, BYTES);
    assert_int_equal(ps_device_alloc(pair->gpu, BYTES, &pair->gpu_ptr), PS_OK);
    pair->gpu_var = new_var(suite);
    pair->to_var = new_var(suite);
    pair->there = (struct moved){.host = pair->host,
                                 .gpu = pair->gpu,
                                 .host_ptr = pair->from,
                                 .gpu_ptr = pair->gpu_ptr,
                                 .to_gpu = true};
    pair->back = pair->there;
    pair->back.host_ptr = pair->to;
    pair->back.to_gpu = false;
}

static void pair_fini(struct suite *suite, struct pair *pair)
{
    ps_var_delete(suite->engine, pair->gpu_var);
    ps_var_delete(suite->engine, pair->to_var);
    ps_device_free(pair->gpu, pair->gpu_ptr, BYTES);
    free(pair->to);
    free(pair->from);
}

static void push_move(struct suite *suite, struct moved *moved, struct ps_var *read,
                      struct ps_var *write)
{
    struct ps_engine_op op = {
        .name = moved->to_gpu ? "there" : "back",
        .run = run_move,
        .arg = moved,
        .reads = &read,
        .read_count = read != NULL,
        .writes = &write,
        .write_count = 1,
        .context = PS_GPU(0),
        .kind = moved->to_gpu ? PS_ENGINE_COPY_TO_GPU : PS_ENGINE_COPY_FROM_GPU,
    };
    assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
}

static enum ps_status run_sees(void *arg, const struct ps_run *run, struct ps_error *err)
{
    const struct pair *pair = arg;
    PS_UNUSED(run);
    return memcmp(pair->to, pair->from, BYTES) == 0
               ? PS_OK
               : ps_error_set(err, PS_EINTERNAL, "not there yet");
}

static void work_in_a_stream_is_done_before_the_variables_are_handed_on(void **state)
{
    PS_UNUSED(state);
    for (size_t t = 0; t < PS_COUNT(all_types); t++) {
        struct suite suite;
        struct pair pair;
        lanes_open(&suite, all_types[t], NULL);
        pair_init(&suite, &pair);
        for (int i = 0; i < 20; i++) {
            push_move(&suite, &pair.there, NULL, pair.gpu_var);
            push_move(&suite, &pair.back, pair.gpu_var, pair.to_var);
            push(&suite, "sees", run_sees, &pair, pair.to_var, NULL);
            wait_all_ok(&suite);
            memset(pair.to, i, BYTES);
        }
        pair_fini(&suite, &pair);
        suite_close(&suite);
    }
}

static void an_error_of_a_stream_is_the_ops(void **state)
{
    PS_UNUSED(state);
    for (size_t t = 0; t < PS_COUNT(all_types); t++) {
        struct suite suite;
        struct pair pair;
        struct ps_error err = {.status = PS_OK};
        lanes_open(&suite, all_types[t], "FAULT=device.copy:fail@1", NULL);
        pair_init(&suite, &pair);
        push_move(&suite, &pair.there, NULL, pair.gpu_var);
        push_move(&suite, &pair.back, pair.gpu_var, pair.to_var);
        assert_int_equal(ps_engine_wait_var(suite.engine, pair.to_var, &err), PS_EFAULT);
        assert_non_null(strstr(err.text, "there: device gpu(0)"));
        assert_int_equal(pair.to[0], 0); /* what needed it was skipped */
        wait_all_ok(&suite);
        push_move(&suite, &pair.there, NULL, pair.gpu_var); /* the stream works on */
        push_move(&suite, &pair.back, pair.gpu_var, pair.to_var);
        push(&suite, "sees", run_sees, &pair, pair.to_var, NULL);
        wait_all_ok(&suite);
        pair_fini(&suite, &pair);
        suite_close(&suite);
    }
}

static void an_op_that_failed_leaves_nothing_in_its_stream(void **state)
{
    PS_UNUSED(state);
    for (size_t t = 0; t < PS_COUNT(all_types); t++) {
        struct suite suite;
        struct pair pair;
        struct ps_error err = {.status = PS_OK};
        lanes_open(&suite, all_types[t], "GPU_COPY_NTHREADS=1",
                   "FAULT=device.copy:fail@1", NULL);
        pair_init(&suite, &pair);
        pair.there.result = PS_ERANGE;
        push_move(&suite, &pair.there, NULL, pair.gpu_var);
        assert_int_equal(ps_engine_wait_all(suite.engine, &err), PS_ERANGE);
        assert_string_equal(err.text, "there: its own words");
        pair.there.result = PS_OK;
        push_move(&suite, &pair.there, NULL, pair.gpu_var); /* no error of the first */
        wait_all_ok(&suite);
        pair_fini(&suite, &pair);
        suite_close(&suite);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_thread_of_a_gpu_lane_owns_a_stream),
        cmocka_unit_test(a_thread_of_the_pool_owns_a_stream_of_each_gpu),
        cmocka_unit_test(the_naive_engine_has_one_stream_for_each_gpu),
        cmocka_unit_test(there_is_no_stream_on_a_cpu_nor_on_a_pushers_thread),
        cmocka_unit_test(work_in_a_stream_is_done_before_the_variables_are_handed_on),
        cmocka_unit_test(an_error_of_a_stream_is_the_ops),
        cmocka_unit_test(an_op_that_failed_leaves_nothing_in_its_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
