/* Tensors: sharing, lazy memory, copies, fills, lives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/node.h"
#include "base/util.h"
#include "engine/device/device.h"
#include "engine/tensor/tensor.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

/* Under a sanitizer an allocation that is too large must fail, not end the process. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

struct world {
    struct ps_node *node;
    struct ps_engine *engine;
};

static int setup(void **state)
{
    static struct world world;
    static const char *const quiet[] = {"LOG=error", NULL};
    static const char *const no_env[] = {NULL};
    struct ps_node_options options = {.env = no_env, .overrides = quiet};
    assert_int_equal(ps_node_open(&options, &world.node, NULL), PS_OK);
    assert_int_equal(
        ps_engine_create(world.node, PS_ENGINE_FROM_SETTING, &world.engine, NULL), PS_OK);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    ps_engine_destroy(world->engine);
    ps_node_close(world->node);
    return 0;
}

static struct ps_tensor *make(struct world *world, int dtype, struct ps_shape shape)
{
    struct ps_tensor *tensor;
    assert_int_equal(ps_tensor_create(world->engine, PS_CPU(0), dtype, &shape, &tensor),
                     PS_OK);
    return tensor;
}

static struct ps_device_usage usage(struct world *world)
{
    struct ps_device *device;
    struct ps_device_usage usage;
    assert_int_equal(ps_engine_wait_all(world->engine, NULL), PS_OK);
    assert_int_equal(ps_engine_device(world->engine, PS_CPU(0), &device, NULL), PS_OK);
    ps_device_usage(device, &usage);
    return usage;
}

static void what_is_written_is_read(void **state)
{
    struct ps_tensor *tensor = make(*state, PS_F32, PS_SHAPE(2, 3));
    float in[6] = {1, 2, 3, 4, 5, 6}, out[6] = {0};
    struct ps_error err;
    assert_int_equal(ps_tensor_write(tensor, in, sizeof(in), &err), PS_OK);
    assert_int_equal(ps_tensor_read(tensor, out, sizeof(out), &err), PS_OK);
    assert_memory_equal(in, out, sizeof(in));
    assert_int_equal(ps_tensor_write(tensor, in, 20, &err), PS_ESHAPE);
    assert_string_equal(err.text, "tensor has 24 bytes, not 20");
    assert_int_equal(ps_tensor_read(tensor, out, 25, &err), PS_ESHAPE);
    ps_tensor_release(tensor);
}

static void memory_comes_with_the_first_use_and_goes_with_the_last(void **state)
{
    struct world *world = *state;
    struct ps_tensor *tensor = make(world, PS_F32, PS_SHAPE(1000));
    assert_int_equal(usage(world).requested_bytes, 0);
    assert_int_equal(ps_tensor_fill(tensor, 1), PS_OK);
    assert_int_equal(usage(world).requested_bytes, 4000);
    ps_tensor_release(tensor);
    assert_int_equal(usage(world).requested_bytes, 0);
    assert_true(usage(world).reserved_bytes >= 4000); /* kept for reuse */
}

static void views_share_storage_and_variable(void **state)
{
    struct ps_tensor *base = make(*state, PS_F32, PS_SHAPE(4, 3));
    struct ps_tensor *flat, *rows, *part;
    float all[12], two[6];
    for (int i = 0; i < 12; i++) {
        all[i] = (float)i;
    }
    assert_int_equal(ps_tensor_reshape(base, &PS_SHAPE(12), &flat), PS_OK);
    assert_int_equal(ps_tensor_slice(base, 1, 3, &rows), PS_OK);
    assert_int_equal(ps_tensor_at(base, 8, PS_I32, &PS_SHAPE(2, 2), &part), PS_OK);
    assert_true(ps_tensor_shares(base, flat) && ps_tensor_shares(base, rows));
    assert_ptr_equal(ps_tensor_var(base), ps_tensor_var(part));
    assert_int_equal(ps_tensor_bytes(rows), 24);
    assert_int_equal(ps_tensor_write(flat, all, sizeof(all), NULL), PS_OK);
    ps_tensor_release(base); /* the views keep the storage */
    assert_int_equal(ps_tensor_read(rows, two, sizeof(two), NULL), PS_OK);
    assert_memory_equal(two, all + 3, sizeof(two));
    ps_tensor_release(flat);
    ps_tensor_release(rows);
    ps_tensor_release(part);
}

static void views_that_do_not_fit_are_refused(void **state)
{
    struct ps_tensor *base = make(*state, PS_F32, PS_SHAPE(4, 3)), *view;
    assert_int_equal(ps_tensor_reshape(base, &PS_SHAPE(11), &view), PS_ESHAPE);
    assert_int_equal(ps_tensor_slice(base, 1, 5, &view), PS_ERANGE);
    assert_int_equal(ps_tensor_slice(base, 3, 1, &view), PS_ERANGE);
    assert_int_equal(ps_tensor_slice(base, -1, 1, &view), PS_ERANGE);
    assert_int_equal(ps_tensor_at(base, 40, PS_F32, &PS_SHAPE(3), &view), PS_ERANGE);
    assert_int_equal(ps_tensor_at(base, 2, PS_F32, &PS_SHAPE(1), &view), PS_ERANGE);
    assert_int_equal(ps_tensor_at(base, SIZE_MAX, PS_U8, &PS_SHAPE(1), &view), PS_ERANGE);
    ps_tensor_release(base);
}

static void shapes_and_types_that_cannot_be_are_refused(void **state)
{
    struct world *world = *state;
    struct ps_tensor *tensor;
    struct ps_shape huge = PS_SHAPE(INT64_MAX, 2), unknown = PS_SHAPE(2, -1);
    struct ps_shape wide = PS_SHAPE(INT64_MAX);
    assert_int_equal(ps_tensor_create(world->engine, PS_CPU(0), PS_F32, &huge, &tensor),
                     PS_ESHAPE);
    assert_int_equal(
        ps_tensor_create(world->engine, PS_CPU(0), PS_F32, &unknown, &tensor), PS_ESHAPE);
    assert_int_equal(ps_tensor_create(world->engine, PS_CPU(0), PS_F64, &wide, &tensor),
                     PS_ESHAPE);
    assert_int_equal(
        ps_tensor_create(world->engine, PS_CPU(0), 99, &PS_SHAPE(1), &tensor), PS_EDTYPE);
    assert_int_equal(
        ps_tensor_create(world->engine, PS_GPU(0), PS_F32, &PS_SHAPE(1), &tensor),
        PS_EUNSUPPORTED);
}

static void a_tensor_too_large_for_memory_ends_with_an_error(void **state)
{
    struct world *world = *state;
    struct ps_tensor *tensor = make(world, PS_U8, PS_SHAPE(INT64_MAX / 2));
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_tensor_fill(tensor, 1), PS_OK);
    assert_int_equal(ps_tensor_wait(tensor, &err), PS_ENOMEM);
    assert_non_null(strstr(err.text, "tensor_fill: cpu(0): no memory for 4194304.0 TiB"));
    ps_tensor_release(tensor);
}

static void fills_convert_and_saturate(void **state)
{
    struct world *world = *state;
    static const struct {
        int dtype;
        double value;
        int64_t bits; /* of one element */
    } cases[] = {
        {PS_F32, 1.0, 0x3f800000}, {PS_F16, 1.0, 0x3c00},      {PS_BF16, 1.0, 0x3f80},
        {PS_U8, 300.0, 0xff},      {PS_U8, -1.0, 0},           {PS_I8, -200.0, 0x80},
        {PS_I32, 1e12, INT32_MAX}, {PS_I64, -1e30, INT64_MIN}, {PS_I64, 7.9, 7},
        {PS_I32, NAN, 0},          {PS_F64, 0.0, 0},           {PS_U8, 5, 5},
    };
    for (size_t i = 0; i < PS_COUNT(cases); i++) {
        struct ps_tensor *tensor = make(world, cases[i].dtype, PS_SHAPE(37));
        size_t element = ps_dtype_size(cases[i].dtype);
        unsigned char out[37 * 8];
        assert_int_equal(ps_tensor_fill(tensor, cases[i].value), PS_OK);
        assert_int_equal(ps_tensor_read(tensor, out, 37 * element, NULL), PS_OK);
        for (size_t k = 0; k < 37; k++) {
            assert_memory_equal(out + k * element, &cases[i].bits, element);
        }
        ps_tensor_release(tensor);
    }
}

static void copies_go_between_devices_and_refuse_mismatches(void **state)
{
    struct world *world = *state;
    struct ps_tensor *a = make(world, PS_I32, PS_SHAPE(6)), *b, *c, *d, *e;
    int32_t in[6] = {1, 2, 3, 4, 5, 6}, out[6];
    assert_int_equal(
        ps_tensor_create(world->engine, PS_CPU(1), PS_I32, &PS_SHAPE(2, 3), &b), PS_OK);
    c = make(world, PS_F32, PS_SHAPE(6));
    assert_int_equal(ps_tensor_write(a, in, sizeof(in), NULL), PS_OK);
    assert_int_equal(ps_tensor_copy(a, b, 0), PS_OK);
    assert_int_equal(ps_tensor_read(b, out, sizeof(out), NULL), PS_OK);
    assert_memory_equal(in, out, sizeof(in));
    assert_int_equal(ps_tensor_copy(a, c, 0), PS_EDTYPE);
    assert_int_equal(ps_tensor_slice(a, 0, 4, &d), PS_OK);
    assert_int_equal(ps_tensor_slice(a, 1, 5, &e), PS_OK);
    assert_int_equal(ps_tensor_copy(d, e, 0), PS_EINVAL); /* they overlap */
    assert_int_equal(ps_tensor_copy(d, b, 0), PS_ESHAPE);
    assert_int_equal(ps_tensor_copy(a, a, 0), PS_OK);
    ps_tensor_release(a);
    ps_tensor_release(b);
    ps_tensor_release(c);
    ps_tensor_release(d);
    ps_tensor_release(e);
}

static void count_call(void *arg)
{
    ++*(int *)arg;
}

static void borrowed_memory_is_given_back_once(void **state)
{
    struct world *world = *state;
    float data[4] = {1, 2, 3, 4};
    int calls = 0;
    struct ps_tensor *tensor, *view;
    assert_int_equal(ps_tensor_wrap(world->engine, PS_CPU(0), PS_F32, &PS_SHAPE(4), data,
                                    count_call, &calls, &tensor),
                     PS_OK);
    assert_int_equal(ps_tensor_slice(tensor, 1, 3, &view), PS_OK);
    assert_int_equal(ps_tensor_fill(view, 9), PS_OK);
    ps_tensor_release(tensor);
    assert_int_equal(calls, 0);
    ps_tensor_release(view);
    assert_int_equal(ps_engine_wait_all(world->engine, NULL), PS_OK);
    assert_int_equal(calls, 1);
    assert_true(data[0] == 1 && data[1] == 9 && data[2] == 9 && data[3] == 4);
    assert_int_equal(ps_tensor_wrap(world->engine, PS_CPU(0), PS_F32, &PS_SHAPE(4), NULL,
                                    count_call, &calls, &tensor),
                     PS_EINVAL);
}

static void tensors_without_elements_and_without_dimensions_work(void **state)
{
    struct ps_shape scalar = {.ndim = 0};
    struct ps_tensor *empty = make(*state, PS_F32, PS_SHAPE(0, 3));
    struct ps_tensor *zero_d = make(*state, PS_F32, scalar);
    float value = 0;
    struct ps_view view;
    assert_int_equal(ps_tensor_bytes(empty), 0);
    assert_int_equal(ps_tensor_fill(empty, 1), PS_OK);
    assert_int_equal(ps_tensor_read(empty, &value, 0, NULL), PS_OK);
    assert_int_equal(ps_tensor_view(empty, &view), PS_OK);
    assert_int_equal(ps_tensor_count(zero_d), 1);
    assert_int_equal(ps_tensor_fill(zero_d, 4), PS_OK);
    assert_int_equal(ps_tensor_read(zero_d, &value, sizeof(value), NULL), PS_OK);
    assert_true(value == 4);
    ps_tensor_release(empty);
    ps_tensor_release(zero_d);
    ps_tensor_release(NULL);
}

static enum ps_status run_fail(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(arg);
    PS_UNUSED(run);
    return ps_error_set(err, PS_ERANGE, "negative scale");
}

static void a_read_reports_the_error_of_the_op_that_should_have_written(void **state)
{
    struct world *world = *state;
    struct ps_tensor *tensor = make(world, PS_F32, PS_SHAPE(2));
    struct ps_var *var = ps_tensor_var(tensor);
    struct ps_engine_op op = {
        .name = "normal", .run = run_fail, .writes = &var, .write_count = 1};
    struct ps_error err = {.status = PS_OK};
    float out[2];
    assert_int_equal(ps_engine_push(world->engine, &op), PS_OK);
    assert_int_equal(ps_tensor_read(tensor, out, sizeof(out), &err), PS_ERANGE);
    assert_string_equal(err.text, "normal: negative scale");
    assert_int_equal(ps_tensor_write(tensor, out, sizeof(out), &err), PS_OK);
    ps_tensor_release(tensor);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read),
        TEST(memory_comes_with_the_first_use_and_goes_with_the_last),
        TEST(views_share_storage_and_variable),
        TEST(views_that_do_not_fit_are_refused),
        TEST(shapes_and_types_that_cannot_be_are_refused),
        TEST(a_tensor_too_large_for_memory_ends_with_an_error),
        TEST(fills_convert_and_saturate),
        TEST(copies_go_between_devices_and_refuse_mismatches),
        TEST(borrowed_memory_is_given_back_once),
        TEST(tensors_without_elements_and_without_dimensions_work),
        TEST(a_read_reports_the_error_of_the_op_that_should_have_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
