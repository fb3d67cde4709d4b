/* penstock.h with a store of one process: nodes, tensors, keys, words of errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/penstock.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct fixture {
    penstock_node *node;
    penstock_store *store;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    if (f == NULL || penstock_open(NULL, &f->node) != 0 ||
        penstock_store_create(f->node, "local", NULL, &f->store) != 0) {
        return -1;
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    penstock_store_destroy(f->store);
    penstock_close(f->node);
    free(f);
    return 0;
}

/* The last failure of this thread has 'words', and 'status' that name. */
static void expect_failure(const struct fixture *f, int status, const char *name,
                           const char *words)
{
    assert_string_equal(penstock_status_name(status), name);
    if (strstr(penstock_last_error(f->node), words) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", words, penstock_last_error(f->node));
    }
}

/* ---- the library ---- */

static void the_library_says_what_it_is(void **state)
{
    (void)state;
    assert_int_equal(penstock_abi(), PENSTOCK_ABI);
    assert_non_null(strchr(penstock_version(), '.'));
    assert_string_equal(penstock_status_name(0), "PS_OK");
    assert_string_equal(penstock_status_name(-1), "PS_EINVAL");
    assert_string_equal(penstock_status_text(-1), "invalid argument");
    assert_non_null(penstock_status_name(-12345)); /* constant, for unknown ones too */
    assert_non_null(penstock_status_text(12345));
}

/* ---- nodes ---- */

static void a_struct_from_before_is_refused(void **state)
{
    (void)state;
    penstock_node *node = (penstock_node *)&node; /* must stay as it is */
    penstock_node *before = node;
    char words[256];
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    options.size = sizeof(size_t);
    int status = penstock_open_explained(&options, &node, words);
    assert_string_equal(penstock_status_name(status), "PS_EINVAL");
    assert_non_null(strstr(words, "PENSTOCK_OPTIONS_INIT"));
    assert_ptr_equal(node, before);
    options.size = sizeof(options) + 64; /* of a later header: what is known is read */
    assert_int_equal(penstock_open_explained(&options, &node, words), 0);
    penstock_close(node);
}

static void a_bad_setting_is_explained(void **state)
{
    (void)state;
    static const char *const settings[] = {"CPU_WORKER_NTHREADS=many", NULL};
    penstock_node *node = NULL;
    char words[256];
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    options.settings = settings;
    assert_int_not_equal(penstock_open_explained(&options, &node, words), 0);
    assert_non_null(strstr(words, "CPU_WORKER_NTHREADS"));
    assert_non_null(strstr(words, "many"));
    assert_null(node);
    assert_int_not_equal(penstock_open(&options, &node), 0);
}

static void count_line(void *arg, const char *line, size_t size)
{
    assert_true(size > 0 && line[size - 1] == '\n');
    ++*(int *)arg;
}

static void the_log_goes_where_the_caller_wants(void **state)
{
    (void)state;
    int lines = 0;
    penstock_node *node = NULL;
    penstock_store *store = NULL;
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    options.log = count_line;
    options.log_arg = &lines;
    /* a name that no setting has is worth a warning */
    assert_int_equal(setenv("PENSTOCK_NO_SUCH_SETTING", "1", 1), 0);
    assert_int_equal(penstock_open(&options, &node), 0);
    assert_int_equal(unsetenv("PENSTOCK_NO_SUCH_SETTING"), 0);
    assert_int_equal(penstock_store_create(node, "local", NULL, &store), 0);
    penstock_store_destroy(store);
    penstock_close(node);
    penstock_close(NULL);
    assert_true(lines > 0);
}

/* ---- stores ---- */

static void a_store_of_a_wrong_type_is_refused_with_the_nearest(void **state)
{
    struct fixture *f = *state;
    penstock_store *store = NULL;
    expect_failure(f, penstock_store_create(f->node, "dist_asnyc", NULL, &store),
                   "PS_EINVAL", "dist_async");
    assert_null(store);
}

static void a_local_store_is_one_worker(void **state)
{
    struct fixture *f = *state;
    penstock_store *device = NULL;
    assert_int_equal(penstock_rank(f->store), 0);
    assert_int_equal(penstock_num_workers(f->store), 1);
    assert_string_equal(penstock_store_type(f->store), "local");
    assert_int_equal(penstock_barrier(f->store), 0);
    assert_int_equal(penstock_store_create(f->node, "Device", "second", &device), 0);
    assert_string_equal(penstock_store_type(device), "device");
    penstock_store_destroy(device);
    penstock_store_destroy(NULL);
}

static void a_step_of_sgd(void **state)
{
    struct fixture *f = *state;
    float w[6] = {1, 1, 1, 1, 1, 1}, g[6] = {1, 2, 3, 4, 5, 6}, out[6] = {0};
    int64_t shape[2] = {2, 3};
    penstock_tensor tw = penstock_tensor_of(w, PENSTOCK_FLOAT32, 2, shape);
    penstock_tensor tg = penstock_tensor_of(g, PENSTOCK_FLOAT32, 2, shape);
    penstock_tensor to = penstock_tensor_of(out, PENSTOCK_FLOAT32, 2, shape);
    penstock_key key = penstock_key_named("weights");
    assert_int_equal(penstock_set_optimizer(f->store, "sgd", "learning_rate=0.5"), 0);
    assert_int_equal(penstock_init(f->store, key, &tw), 0);
    assert_int_equal(penstock_push(f->store, key, &tg, 0, NULL, NULL), 0);
    assert_int_equal(penstock_pull(f->store, key, &to, 0, NULL, NULL), 0);
    for (int i = 0; i < 6; i++) {
        assert_true(out[i] == 1 - 0.5F * (float)(i + 1));
    }
    assert_int_equal(penstock_set_hyper(f->store, "learning_rate=1"), 0);
    assert_int_equal(penstock_pushpull(f->store, key, &tg, &to, 0, NULL, NULL), 0);
    assert_true(out[5] == 1 - 0.5F * 6 - 6);
    expect_failure(f, penstock_set_hyper(f->store, "learning_rat=1"), "PS_EINVAL",
                   "learning_rate");
    expect_failure(f, penstock_set_optimizer(f->store, "sdg", ""), "PS_EINVAL", "sgd");
    assert_int_equal(penstock_set_optimizer(f->store, "sgd", NULL), 0);
}

static void several_devices_are_summed(void **state)
{
    struct fixture *f = *state;
    double v[3] = {1, 2, 4}, zero = 0, out[2] = {0};
    penstock_tensor values[3], outs[2];
    int64_t shape[1] = {1};
    penstock_tensor tz = penstock_tensor_of(&zero, PENSTOCK_FLOAT64, 1, shape);
    for (int i = 0; i < 3; i++) {
        values[i] = penstock_tensor_of(&v[i], PENSTOCK_FLOAT64, 1, shape);
    }
    for (int i = 0; i < 2; i++) {
        outs[i] = penstock_tensor_of(&out[i], PENSTOCK_FLOAT64, 1, shape);
    }
    assert_int_equal(penstock_init(f->store, penstock_key_of(1), &tz), 0);
    assert_int_equal(penstock_pushpull_many(f->store, penstock_key_of(1), values, 3, outs,
                                            2, 0, NULL, NULL),
                     0);
    assert_true(out[0] == 7 && out[1] == 7);
}

/* ---- tensors ---- */

static void every_dtype_makes_the_round_trip(void **state)
{
    const penstock_dtype types[] = {PENSTOCK_FLOAT32,  PENSTOCK_FLOAT64, PENSTOCK_FLOAT16,
                                    PENSTOCK_BFLOAT16, PENSTOCK_INT32,   PENSTOCK_INT64,
                                    PENSTOCK_UINT8};
    struct fixture *f = *state;
    int64_t shape[1] = {5};
    for (size_t i = 0; i < COUNT(types); i++) {
        unsigned char in[40], out[40];
        size_t bytes = 5 * (size_t)types[i].bits / 8;
        for (size_t b = 0; b < sizeof(in); b++) {
            in[b] = (unsigned char)(b % 50 + 1); /* no NaN of any type */
        }
        memset(out, 0xee, sizeof(out));
        penstock_tensor ti = penstock_tensor_of(in, types[i], 1, shape);
        penstock_tensor to = penstock_tensor_of(out, types[i], 1, shape);
        penstock_key key = penstock_key_of(i);
        assert_int_equal(penstock_init(f->store, key, &ti), 0);
        assert_int_equal(penstock_pull(f->store, key, &to, 0, NULL, NULL), 0);
        assert_memory_equal(in, out, bytes);
        for (size_t b = bytes; b < sizeof(out); b++) {
            assert_int_equal(out[b], 0xee);
        }
    }
}

static void dtypes_of_no_store_are_refused(void **state)
{
    static const penstock_dtype types[] = {{2, 8, 1},  {2, 32, 4}, {3, 64, 1},
                                           {1, 64, 1}, {0, 0, 1},  {255, 255, 65535}};
    struct fixture *f = *state;
    float value = 0;
    int64_t shape[1] = {1};
    for (size_t i = 0; i < COUNT(types); i++) {
        penstock_tensor t = penstock_tensor_of(&value, types[i], 1, shape);
        expect_failure(f, penstock_init(f->store, penstock_key_of(i), &t), "PS_EDTYPE",
                       "dtype");
    }
}

static void another_dtype_than_the_keys_is_refused(void **state)
{
    struct fixture *f = *state;
    float value[2] = {0};
    int64_t shape[1] = {2};
    penstock_tensor t = penstock_tensor_of(value, PENSTOCK_FLOAT32, 1, shape);
    penstock_key key = penstock_key_of(3);
    assert_int_equal(penstock_init(f->store, key, &t), 0);
    t.dtype = PENSTOCK_INT32;
    expect_failure(f, penstock_push(f->store, key, &t, 0, NULL, NULL), "PS_EDTYPE",
                   "float32");
    t.dtype = PENSTOCK_FLOAT32;
    shape[0] = 1;
    expect_failure(f, penstock_pull(f->store, key, &t, 0, NULL, NULL), "PS_ESHAPE",
                   "2 elements");
}

static void strides_are_row_major_or_refused(void **state)
{
    struct fixture *f = *state;
    float value[12] = {0};
    int64_t shape[3] = {2, 1, 3}, dense[3] = {3, 99, 1}, gaps[3] = {6, 3, 1},
            columns[3] = {1, 2, 2};
    penstock_tensor t = penstock_tensor_of(value, PENSTOCK_FLOAT32, 3, shape);
    t.strides = dense; /* that of a dimension of 1 says nothing */
    assert_int_equal(penstock_init(f->store, penstock_key_of(1), &t), 0);
    t.strides = gaps;
    expect_failure(f, penstock_init(f->store, penstock_key_of(2), &t), "PS_EUNSUPPORTED",
                   "strides");
    t.strides = columns;
    expect_failure(f, penstock_push(f->store, penstock_key_of(1), &t, 0, NULL, NULL),
                   "PS_EUNSUPPORTED", "strides");
}

static void a_byte_offset_is_followed(void **state)
{
    struct fixture *f = *state;
    float value[4] = {1, 2, 3, 4}, out[2] = {0};
    int64_t shape[1] = {2};
    penstock_tensor t = penstock_tensor_of(value, PENSTOCK_FLOAT32, 1, shape);
    penstock_tensor to = penstock_tensor_of(out, PENSTOCK_FLOAT32, 1, shape);
    t.byte_offset = 2 * sizeof(float);
    assert_int_equal(penstock_init(f->store, penstock_key_of(1), &t), 0);
    assert_int_equal(penstock_pull(f->store, penstock_key_of(1), &to, 0, NULL, NULL), 0);
    assert_true(out[0] == 3 && out[1] == 4);
}

static void tensors_that_are_none_are_refused(void **state)
{
    struct fixture *f = *state;
    float value[2] = {0};
    int64_t shape[9] = {2, 1, 1, 1, 1, 1, 1, 1, 1}, zero[1] = {0}, minus[1] = {-2},
            huge[2] = {INT64_MAX, 4};
    const struct {
        penstock_tensor tensor;
        const char *status, *words;
    } rows[] = {
        {penstock_tensor_of(NULL, PENSTOCK_FLOAT32, 1, shape), "PS_EINVAL", "memory"},
        {penstock_tensor_of(value, PENSTOCK_FLOAT32, 9, shape), "PS_ESHAPE", "9"},
        {penstock_tensor_of(value, PENSTOCK_FLOAT32, -1, shape), "PS_ESHAPE", "-1"},
        {penstock_tensor_of(value, PENSTOCK_FLOAT32, 1, NULL), "PS_ESHAPE", "dim"},
        {penstock_tensor_of(value, PENSTOCK_FLOAT32, 1, zero), "PS_ESHAPE", "0"},
        {penstock_tensor_of(value, PENSTOCK_FLOAT32, 1, minus), "PS_ESHAPE", "-2"},
        {penstock_tensor_of(value, PENSTOCK_FLOAT32, 2, huge), "PS_ESHAPE", "many"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        expect_failure(f, penstock_init(f->store, penstock_key_of(i), &rows[i].tensor),
                       rows[i].status, rows[i].words);
    }
    penstock_tensor t = penstock_tensor_of(value, PENSTOCK_FLOAT32, 1, shape);
    t.device.device_type = PENSTOCK_CUDA;
    expect_failure(f, penstock_init(f->store, penstock_key_of(1), &t), "PS_EUNSUPPORTED",
                   "device");
}

/* ---- keys ---- */

static void keys_are_checked(void **state)
{
    struct fixture *f = *state;
    float value[1] = {0};
    int64_t shape[1] = {1};
    char name[300];
    penstock_tensor t = penstock_tensor_of(value, PENSTOCK_FLOAT32, 1, shape);
    expect_failure(f, penstock_pull(f->store, penstock_key_of(999), &t, 0, NULL, NULL),
                   "PS_ENOENT", "999"); /* case 024 */
    assert_int_equal(penstock_init(f->store, penstock_key_of(3), &t), 0);
    expect_failure(f, penstock_init(f->store, penstock_key_of(3), &t), "PS_EEXIST", "3");
    expect_failure(f, penstock_init(f->store, penstock_key_named("w"), &t), "PS_EINVAL",
                   "kind");
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    expect_failure(f,
                   penstock_push(f->store, penstock_key_named(name), &t, 0, NULL, NULL),
                   "PS_EINVAL", "xxx");
}

static void case_026_a_key_twice_in_one_call_is_refused(void **state)
{
    struct fixture *f = *state;
    float value[1] = {0};
    int64_t shape[1] = {1};
    penstock_tensor t = penstock_tensor_of(value, PENSTOCK_FLOAT32, 1, shape);
    penstock_key keys[3] = {penstock_key_of(3), penstock_key_of(5), penstock_key_of(3)};
    penstock_tensor values[3] = {t, t, t};
    expect_failure(f, penstock_init_many(f->store, keys, values, 3), "PS_EINVAL", "3");
    assert_int_equal(penstock_init_many(f->store, keys, values, 2), 0);
    assert_int_equal(penstock_init_many(f->store, NULL, NULL, 0), 0);
}

static void case_029_every_u64_is_a_key(void **state)
{
    static const uint64_t keys[] = {0, 215329, 215330, 300000, UINT64_MAX};
    struct fixture *f = *state;
    int64_t shape[1] = {1};
    for (size_t i = 0; i < COUNT(keys); i++) {
        float in = (float)i, out = -1;
        penstock_tensor ti = penstock_tensor_of(&in, PENSTOCK_FLOAT32, 1, shape);
        penstock_tensor to = penstock_tensor_of(&out, PENSTOCK_FLOAT32, 1, shape);
        assert_int_equal(penstock_init(f->store, penstock_key_of(keys[i]), &ti), 0);
        assert_int_equal(
            penstock_pull(f->store, penstock_key_of(keys[i]), &to, 0, NULL, NULL), 0);
        assert_true(out == in);
    }
}

static void what_is_null_is_refused(void **state)
{
    struct fixture *f = *state;
    assert_int_not_equal(penstock_init(f->store, penstock_key_of(1), NULL), 0);
    assert_non_null(strstr(penstock_last_error(f->node), "NULL"));
    assert_int_not_equal(penstock_push(f->store, penstock_key_of(1), NULL, 0, NULL, NULL),
                         0);
    assert_int_not_equal(penstock_pull(f->store, penstock_key_of(1), NULL, 0, NULL, NULL),
                         0);
    assert_int_not_equal(penstock_set_optimizer(f->store, NULL, NULL), 0);
    assert_int_equal(penstock_set_optimizer(f->store, "sgd", NULL), 0);
    assert_int_not_equal(penstock_set_hyper(f->store, NULL), 0);
    assert_non_null(strstr(penstock_last_error(f->node), "set_hyper"));
}

static void more_values_than_a_sum_takes_are_refused_with_the_limit(void **state)
{
    struct fixture *f = *state;
    static penstock_tensor many[1025];
    float value = 0;
    int64_t shape[1] = {1};
    for (size_t i = 0; i < 1025; i++) {
        many[i] = penstock_tensor_of(&value, PENSTOCK_FLOAT32, 1, shape);
    }
    assert_int_equal(penstock_init(f->store, penstock_key_of(1), &many[0]), 0);
    assert_int_equal(penstock_pushpull_many(f->store, penstock_key_of(1), many, 1024,
                                            &many[0], 1, 0, NULL, NULL),
                     0);
    assert_int_not_equal(penstock_pushpull_many(f->store, penstock_key_of(1), many, 1025,
                                                &many[0], 1, 0, NULL, NULL),
                         0);
    assert_non_null(strstr(penstock_last_error(f->node), "at most 1024"));
}

/* ---- words ---- */

static void *fail_elsewhere(void *arg)
{
    struct fixture *f = arg;
    float value = 0;
    int64_t shape[1] = {1};
    penstock_tensor t = penstock_tensor_of(&value, PENSTOCK_FLOAT32, 1, shape);
    assert_string_equal(penstock_last_error(f->node), ""); /* nothing failed here yet */
    assert_int_not_equal(penstock_pull(f->store, penstock_key_of(222), &t, 0, NULL, NULL),
                         0);
    assert_non_null(strstr(penstock_last_error(f->node), "222"));
    return NULL;
}

static void words_belong_to_the_thread_that_failed(void **state)
{
    struct fixture *f = *state;
    float value = 0;
    int64_t shape[1] = {1};
    pthread_t thread;
    penstock_tensor t = penstock_tensor_of(&value, PENSTOCK_FLOAT32, 1, shape);
    assert_string_equal(penstock_last_error(f->node), "");
    assert_int_not_equal(penstock_pull(f->store, penstock_key_of(111), &t, 0, NULL, NULL),
                         0);
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, f), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(strstr(penstock_last_error(f->node), "111"));
    assert_null(strstr(penstock_last_error(f->node), "222"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_says_what_it_is),
        cmocka_unit_test(a_struct_from_before_is_refused),
        cmocka_unit_test(a_bad_setting_is_explained),
        cmocka_unit_test(the_log_goes_where_the_caller_wants),
        CASE(a_store_of_a_wrong_type_is_refused_with_the_nearest),
        CASE(a_local_store_is_one_worker),
        CASE(a_step_of_sgd),
        CASE(several_devices_are_summed),
        CASE(every_dtype_makes_the_round_trip),
        CASE(dtypes_of_no_store_are_refused),
        CASE(another_dtype_than_the_keys_is_refused),
        CASE(strides_are_row_major_or_refused),
        CASE(a_byte_offset_is_followed),
        CASE(tensors_that_are_none_are_refused),
        CASE(keys_are_checked),
        CASE(case_026_a_key_twice_in_one_call_is_refused),
        CASE(case_029_every_u64_is_a_key),
        CASE(what_is_null_is_refused),
        CASE(more_values_than_a_sum_takes_are_refused_with_the_limit),
        CASE(words_belong_to_the_thread_that_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
