/* Tensors on accelerators: every call goes through the key's host tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "engine/tensor/tensor.h"
#include "kvstore/kvstore.h"

#define COUNT 4

struct fixture {
    struct ps_node *node;
    struct ps_engine *engine;
    struct ps_kvstore *store;
};

static void open_store(struct fixture *f)
{
    static const char *const env[] = {NULL};
    static const char *const overrides[] = {"LOG=error", "SIM_GPUS=2", NULL};
    struct ps_error err = {.text = ""};
    struct ps_node_options node_options = {
        .name = "test", .env = env, .overrides = overrides};
    assert_int_equal(ps_node_open(&node_options, &f->node, &err), PS_OK);
    assert_int_equal(ps_engine_create(f->node, PS_ENGINE_PER_DEVICE, &f->engine, &err),
                     PS_OK);
    struct ps_kvstore_options options = {
        .node = f->node, .engine = f->engine, .type = "local"};
    assert_int_equal(ps_kvstore_create(&options, &f->store, &err), PS_OK);
    float zero[COUNT] = {0};
    struct ps_kv_init init = {
        .key = PS_KEY(3), .dtype = PS_F32, .shape = PS_SHAPE(COUNT), .data = zero};
    assert_int_equal(ps_kvstore_init(f->store, &init, 1, &err), PS_OK);
}

static void close_store(struct fixture *f)
{
    ps_kvstore_destroy(f->store);
    ps_engine_destroy(f->engine);
    ps_node_close(f->node);
}

static struct ps_tensor *tensor(struct fixture *f, int gpu, int64_t count, double value)
{
    struct ps_tensor *made = NULL;
    struct ps_shape shape = PS_SHAPE(count);
    assert_int_equal(ps_tensor_create(f->engine, PS_GPU(gpu), PS_F32, &shape, &made),
                     PS_OK);
    assert_int_equal(ps_tensor_fill(made, value), PS_OK);
    return made;
}

static void check_tensor(struct ps_tensor *tensor, float value)
{
    float is[COUNT];
    assert_int_equal(ps_tensor_read(tensor, is, sizeof(is), NULL), PS_OK);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(is[i] == value);
    }
}

static void gradients_of_two_gpus_are_summed_and_reach_both(void **state)
{
    struct fixture f;
    PS_UNUSED(state);
    open_store(&f);
    struct ps_tensor *grads[] = {tensor(&f, 0, COUNT, 2), tensor(&f, 1, COUNT, 5)};
    struct ps_tensor *weights[] = {tensor(&f, 0, COUNT, 0), tensor(&f, 1, COUNT, 0)};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(
            ps_kvstore_pushpull(f.store, PS_KEY(3), grads, 2, weights, 2, 0, NULL),
            PS_OK);
    }
    check_tensor(weights[0], 7);
    check_tensor(weights[1], 7);
    for (int i = 0; i < 2; i++) {
        ps_tensor_release(grads[i]);
        ps_tensor_release(weights[i]);
    }
    close_store(&f);
}

static void a_call_with_tensors_of_two_sizes_is_refused_and_changes_nothing(void **state)
{
    struct fixture f;
    struct ps_error err = {.text = ""};
    PS_UNUSED(state);
    open_store(&f);
    struct ps_tensor *grad = tensor(&f, 0, COUNT, 9);
    struct ps_tensor *weights[] = {tensor(&f, 0, COUNT, 1), tensor(&f, 1, COUNT + 1, 1)};
    assert_int_equal(
        ps_kvstore_pushpull(f.store, PS_KEY(3), &grad, 1, weights, 2, 0, &err),
        PS_ESHAPE);
    assert_non_null(strstr(err.text, "key 3"));
    assert_int_equal(ps_engine_wait_all(f.engine, NULL), PS_OK);
    check_tensor(weights[0], 1);
    assert_int_equal(
        ps_kvstore_pushpull(f.store, PS_KEY(3), NULL, 0, weights, 1, 0, &err), PS_OK);
    check_tensor(weights[0], 0); /* the gradient never came to the store */
    ps_tensor_release(grad);
    ps_tensor_release(weights[0]);
    ps_tensor_release(weights[1]);
    close_store(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_two_gpus_are_summed_and_reach_both),
        cmocka_unit_test(a_call_with_tensors_of_two_sizes_is_refused_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
