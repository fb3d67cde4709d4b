/* Store calls on arrays of one repeated value. */
#include "tests/support/store_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/reduce.h"

static void *make_array(int dtype, uint64_t count, double value)
{
    size_t size = ps_dtype_size(dtype);
    char *array = malloc((size_t)(count > 0 ? count : 1) * size);
    assert_non_null(array);
    assert_int_equal(ps_convert(array, dtype, &value, PS_F64, 1), PS_OK);
    for (uint64_t i = 1; i < count; i++) {
        memcpy(array + i * size, array, size);
    }
    return array;
}

/* The value that all elements have. */
static double read_array(const void *array, int dtype, uint64_t count)
{
    double first = 0;
    size_t size = ps_dtype_size(dtype);
    assert_int_equal(ps_convert(&first, PS_F64, array, dtype, 1), PS_OK);
    if (count > 1 &&
        memcmp(array, (const char *)array + size, (size_t)(count - 1) * size) != 0) {
        fail_msg("not every element is %.17g", first);
    }
    return first;
}

struct ps_kvstore *store_open(struct ps_node *node, const char *type, const char *name)
{
    struct ps_error err = {.status = PS_OK};
    struct ps_kvstore *store = NULL;
    struct ps_kvstore_options options = {.node = node, .type = type, .name = name};
    if (ps_kvstore_create(&options, &store, &err) != PS_OK) {
        fail_msg("%s: %s", node->name, err.text);
    }
    return store;
}

enum ps_status store_init_status(struct ps_kvstore *store, struct ps_key key, int dtype,
                                 const struct ps_shape *shape, double value,
                                 struct ps_error *err)
{
    void *array = make_array(dtype, (uint64_t)ps_shape_count(shape), value);
    struct ps_kv_init init = {.key = key, .dtype = dtype, .shape = *shape, .data = array};
    enum ps_status status = ps_kvstore_init(store, &init, 1, err);
    free(array);
    return status;
}

void store_init(struct ps_kvstore *store, struct ps_key key, int dtype,
                const struct ps_shape *shape, double value)
{
    struct ps_error err = {.status = PS_OK};
    if (store_init_status(store, key, dtype, shape, value, &err) != PS_OK) {
        fail_msg("init: %s", err.text);
    }
}

static void noop(struct ps_kv_request *request)
{
    (void)request;
}

static enum ps_status call(struct ps_kvstore *store, struct ps_kv_request *request,
                           struct ps_error *err)
{
    request->done = noop;
    enum ps_status status = ps_kvstore_call(store, request);
    if (err != NULL) {
        *err = request->error;
    }
    return status;
}

enum ps_status store_push(struct ps_kvstore *store, struct ps_key key, int dtype,
                          uint64_t count, double value, struct ps_error *err)
{
    void *array = make_array(dtype, count, value);
    const void *src = array;
    struct ps_kv_request request = {.op = PS_KV_PUSH,
                                    .key = key,
                                    .dtype = dtype,
                                    .count = count,
                                    .src = &src,
                                    .src_count = 1};
    enum ps_status status = call(store, &request, err);
    free(array);
    return status;
}

enum ps_status store_pull(struct ps_kvstore *store, struct ps_key key, int dtype,
                          uint64_t count, double *first_out, struct ps_error *err)
{
    void *array = make_array(dtype, count, 77);
    struct ps_kv_request request = {.op = PS_KV_PULL,
                                    .key = key,
                                    .dtype = dtype,
                                    .count = count,
                                    .dst = &array,
                                    .dst_count = 1};
    enum ps_status status = call(store, &request, err);
    if (status == PS_OK) {
        *first_out = read_array(array, dtype, count);
    }
    free(array);
    return status;
}

enum ps_status store_pushpull(struct ps_kvstore *store, struct ps_key key, int dtype,
                              uint64_t count, double value, double *first_out,
                              struct ps_error *err)
{
    void *array = make_array(dtype, count, value); /* in place: out aliases in */
    const void *src = array;
    struct ps_kv_request request = {.op = PS_KV_PUSHPULL,
                                    .key = key,
                                    .dtype = dtype,
                                    .count = count,
                                    .src = &src,
                                    .src_count = 1,
                                    .dst = &array,
                                    .dst_count = 1};
    enum ps_status status = call(store, &request, err);
    if (status == PS_OK) {
        *first_out = read_array(array, dtype, count);
    }
    free(array);
    return status;
}

void store_optimizer(struct ps_kvstore *store, const char *name, const char *hyper)
{
    struct ps_error err = {.status = PS_OK};
    if (ps_kvstore_set_optimizer(store, name, hyper, false, &err) != PS_OK) {
        fail_msg("set_optimizer: %s", err.text);
    }
}

void store_expect(struct ps_kvstore *store, struct ps_key key, int dtype, uint64_t count,
                  double value)
{
    struct ps_error err = {.status = PS_OK};
    double got = 0;
    if (store_pull(store, key, dtype, count, &got, &err) != PS_OK) {
        fail_msg("pull: %s", err.text);
    }
    if (got != value) {
        fail_msg("key %" PRIu64 ": %.17g, expected %.17g", key.number, got, value);
    }
}
