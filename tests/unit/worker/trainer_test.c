/* What a trainer gives its devices before the first step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "worker/trainer.h"

static void every_device_begins_with_the_first_auxiliary_states(void **state)
{
    static const char *const no_env[] = {NULL};
    static uint8_t images[4 * 4 * 4], labels[4];
    const struct ps_dataset data = {.images = images,
                                    .labels = labels,
                                    .count = 4,
                                    .rows = 4,
                                    .columns = 4,
                                    .classes = 3};
    struct ps_error err = {.status = PS_OK};
    struct ps_node *node = NULL;
    struct ps_kernels *kernels = NULL;
    struct ps_engine *engine = NULL;
    struct ps_builder *b = NULL;
    struct ps_symbol *symbol = NULL;
    struct ps_trainer *trainer = NULL;
    struct ps_node_options node_options = {.name = "worker", .env = no_env};
    (void)state;
    assert_int_equal(ps_builder_create(&b), PS_OK);
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "BatchNorm", "bn", NULL, x);
    x = ps_builder_op(b, "Flatten", "flatten", NULL, x);
    x = ps_builder_op(b, "FullyConnected", "fc", "num_hidden=3", x);
    x = ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x);
    assert_int_equal(ps_builder_finish(b, x, &symbol, &err), PS_OK);
    ps_builder_destroy(b);
    assert_int_equal(ps_node_open(&node_options, &node, &err), PS_OK);
    assert_int_equal(ps_kernels_create(node->settings, node->log, &kernels, &err), PS_OK);
    assert_int_equal(ps_engine_create(node, PS_ENGINE_NAIVE, &engine, &err), PS_OK);
    struct ps_trainer_options options = {.node = node,
                                         .engine = engine,
                                         .kernels = kernels,
                                         .symbol = symbol,
                                         .train = &data,
                                         .kv_store = "local",
                                         .batch = 4,
                                         .cpus = 2,
                                         .load_epoch = -1,
                                         .optimizer = "sgd",
                                         .lr = 0.1,
                                         .lr_factor = 1};
    if (ps_trainer_create(&options, &trainer, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    for (int d = 0; d < 2; d++) {
        struct ps_executor *executor =
            ps_replica_executor(ps_trainer_replica(trainer, d));
        float value = -1;
        assert_int_equal(
            ps_tensor_read(ps_executor_find_auxiliary(executor, "bn_moving_var"), &value,
                           sizeof(value), &err),
            PS_OK);
        assert_true(value == 1);
        assert_int_equal(
            ps_tensor_read(ps_executor_find_auxiliary(executor, "bn_moving_mean"), &value,
                           sizeof(value), &err),
            PS_OK);
        assert_true(value == 0);
    }
    ps_trainer_destroy(trainer);
    ps_symbol_release(symbol);
    ps_engine_destroy(engine);
    ps_kernels_destroy(kernels);
    ps_node_close(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_device_begins_with_the_first_auxiliary_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
