/* What a trainer gives its devices before the first step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "worker/trainer.h"

struct fixture {
    struct ps_node *node;
    struct ps_kernels *kernels;
    struct ps_engine *engine;
    struct ps_symbol *symbol;
    struct ps_dataset data;
    struct ps_context devices[2];
    struct ps_trainer_options options;
    struct ps_trainer *trainer;
    struct ps_error err;
};

static int setup(void **state)
{
    static const char *const no_env[] = {NULL};
    static uint8_t images[4 * 4 * 4], labels[4];
    static struct fixture fixture;
    struct fixture *f = &fixture;
    struct ps_builder *b = NULL;
    struct ps_node_options node_options = {.name = "worker", .env = no_env};
    *f = (struct fixture){.data = {.images = images,
                                   .labels = labels,
                                   .count = 4,
                                   .rows = 4,
                                   .columns = 4,
                                   .classes = 3}};
    assert_int_equal(ps_builder_create(&b), PS_OK);
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "BatchNorm", "bn", NULL, x);
    x = ps_builder_op(b, "Flatten", "flatten", NULL, x);
    x = ps_builder_op(b, "FullyConnected", "fc", "num_hidden=3", x);
    x = ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x);
    assert_int_equal(ps_builder_finish(b, x, &f->symbol, &f->err), PS_OK);
    ps_builder_destroy(b);
    assert_int_equal(ps_node_open(&node_options, &f->node, &f->err), PS_OK);
    assert_int_equal(
        ps_kernels_create(f->node->settings, f->node->log, &f->kernels, &f->err), PS_OK);
    assert_int_equal(ps_engine_create(f->node, PS_ENGINE_NAIVE, &f->engine, &f->err),
                     PS_OK);
    f->devices[0] = PS_CPU(0);
    f->devices[1] = PS_CPU(1);
    f->options = (struct ps_trainer_options){.node = f->node,
                                             .engine = f->engine,
                                             .kernels = f->kernels,
                                             .symbol = f->symbol,
                                             .train = &f->data,
                                             .kv_store = "local",
                                             .batch = 4,
                                             .devices = f->devices,
                                             .device_count = 2,
                                             .load_epoch = -1,
                                             .optimizer = "sgd",
                                             .lr = 0.1,
                                             .lr_factor = 1};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    ps_trainer_destroy(f->trainer);
    ps_symbol_release(f->symbol);
    ps_engine_destroy(f->engine);
    ps_kernels_destroy(f->kernels);
    ps_node_close(f->node);
    return 0;
}

static void every_device_begins_with_the_first_auxiliary_states(void **state)
{
    struct fixture *f = *state;
    if (ps_trainer_create(&f->options, &f->trainer, &f->err) != PS_OK) {
        fail_msg("%s", f->err.text);
    }
    for (int d = 0; d < 2; d++) {
        struct ps_executor *executor =
            ps_replica_executor(ps_trainer_replica(f->trainer, (size_t)d));
        float value = -1;
        assert_int_equal(
            ps_tensor_read(ps_executor_find_auxiliary(executor, "bn_moving_var"), &value,
                           sizeof(value), &f->err),
            PS_OK);
        assert_true(value == 1);
        assert_int_equal(
            ps_tensor_read(ps_executor_find_auxiliary(executor, "bn_moving_mean"), &value,
                           sizeof(value), &f->err),
            PS_OK);
        assert_true(value == 0);
    }
}

/* Not after a whole epoch. */
static void a_prefix_that_cannot_be_written_is_told_at_once(void **state)
{
    struct fixture *f = *state;
    f->options.model_prefix = "/nowhere/net";
    assert_int_not_equal(ps_trainer_create(&f->options, &f->trainer, &f->err), PS_OK);
    assert_non_null(strstr(f->err.text, "/nowhere/net"));
}

static void a_test_set_of_another_size_is_told_at_once(void **state)
{
    struct fixture *f = *state;
    struct ps_dataset test = f->data;
    test.rows = 2;
    f->options.test = &test;
    assert_int_equal(ps_trainer_create(&f->options, &f->trainer, &f->err), PS_ESHAPE);
    assert_non_null(strstr(f->err.text, "2 x 4"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_device_begins_with_the_first_auxiliary_states),
        CASE(a_prefix_that_cannot_be_written_is_told_at_once),
        CASE(a_test_set_of_another_size_is_told_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
