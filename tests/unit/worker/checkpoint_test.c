/* Saving and loading a network's tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tensor/safetensors.h"
#include "worker/checkpoint.h"
#include "worker/initializer.h"

#define SIDE 4
#define BATCH 2

struct fixture {
    struct ps_node *node;
    struct ps_fs *fs;
    struct ps_kernels *kernels;
    struct ps_engine *engine;
};

static int setup(void **state)
{
    static const char *const no_env[] = {NULL};
    static const char *const overrides[] = {"LOG=error", NULL};
    struct fixture *f = calloc(1, sizeof(*f));
    struct ps_error err = {.status = PS_OK};
    if (f == NULL || ps_fs_sim_create(&f->fs) != PS_OK) {
        return -1;
    }
    *state = f;
    struct ps_node_options options = {
        .name = "worker", .env = no_env, .overrides = overrides, .fs = f->fs};
    return ps_node_open(&options, &f->node, &err) == PS_OK &&
                   ps_kernels_create(f->node->settings, f->node->log, &f->kernels,
                                     &err) == PS_OK &&
                   ps_engine_create(f->node, PS_ENGINE_NAIVE, &f->engine, &err) == PS_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    ps_engine_destroy(f->engine);
    ps_kernels_destroy(f->kernels);
    ps_node_close(f->node);
    ps_fs_sim_destroy(f->fs);
    free(f);
    return 0;
}

/* A small network with an auxiliary state: BatchNorm's running statistics. */
static struct ps_symbol *build(int hidden, const char *first_layer)
{
    struct ps_builder *b = NULL;
    struct ps_symbol *symbol = NULL;
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_builder_create(&b), PS_OK);
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "BatchNorm", "bn", NULL, x);
    x = ps_builder_op(b, "Flatten", "flatten", NULL, x);
    x = ps_builder_op(b, "FullyConnected", first_layer,
                      ps_builder_text(b, "num_hidden=%d", hidden), x);
    x = ps_builder_op(b, "FullyConnected", "last", "num_hidden=3", x);
    x = ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x);
    if (ps_builder_finish(b, x, &symbol, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    ps_builder_destroy(b);
    return symbol;
}

static struct ps_replica *make_replica(const struct fixture *f, struct ps_symbol *symbol)
{
    struct ps_replica *replica = NULL;
    struct ps_error err = {.status = PS_OK};
    struct ps_replica_options options = {.engine = f->engine,
                                         .kernels = f->kernels,
                                         .symbol = symbol,
                                         .devices = 1,
                                         .batch = BATCH,
                                         .rows = SIDE,
                                         .columns = SIDE};
    if (ps_replica_create(&options, &replica, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    return replica;
}

/* Numbers that depend on name, index and seed. */
static void fill_tensor(struct ps_tensor *tensor, const char *name, uint64_t seed,
                        bool compare)
{
    float want[64], got[64];
    char key[64];
    struct ps_error err = {.status = PS_OK};
    size_t bytes = ps_tensor_bytes(tensor);
    assert_in_range(bytes, 1, sizeof(want));
    (void)snprintf(key, sizeof(key), "%s_weight", name);
    ps_initialize(key, ps_tensor_shape(tensor), seed, want);
    if (compare) {
        assert_int_equal(ps_tensor_read(tensor, got, bytes, &err), PS_OK);
        assert_memory_equal(got, want, bytes);
    } else {
        assert_int_equal(ps_tensor_write(tensor, want, bytes, &err), PS_OK);
    }
}

static void all_tensors(struct ps_replica *replica, uint64_t seed, bool compare)
{
    struct ps_executor *executor = ps_replica_executor(replica);
    for (size_t i = 0; i < ps_replica_param_count(replica); i++) {
        fill_tensor(ps_replica_param(replica, i), ps_replica_param_name(replica, i), seed,
                    compare);
    }
    assert_int_equal(ps_executor_auxiliary_count(executor), 2);
    for (size_t i = 0; i < 2; i++) {
        fill_tensor(ps_executor_auxiliary(executor, i),
                    ps_executor_auxiliary_name(executor, i), seed, compare);
    }
}

/* Saves a network of 3 hidden units, filled from seed 9, as epoch 4 of "dir/net". */
static void save(const struct fixture *f, const char *first_layer)
{
    struct ps_error err = {.status = PS_OK};
    struct ps_symbol *symbol = build(3, first_layer);
    struct ps_replica *replica = make_replica(f, symbol);
    all_tensors(replica, 9, false);
    if (ps_checkpoint_save(f->node, "dir/net", 4, symbol, replica, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    ps_replica_destroy(replica);
    ps_symbol_release(symbol);
}

static void what_was_saved_is_loaded(void **state)
{
    struct fixture *f = *state;
    struct ps_error err = {.status = PS_OK};
    save(f, "first");
    assert_true(ps_fs_exists(f->fs, "dir/net-symbol.json"));
    assert_true(ps_fs_exists(f->fs, "dir/net-0005.safetensors"));

    struct ps_symbol *symbol = NULL;
    assert_int_equal(ps_symbol_load(f->fs, "dir/net-symbol.json", &symbol, &err), PS_OK);
    struct ps_replica *replica = make_replica(f, symbol);
    all_tensors(replica, 10, false);
    if (ps_checkpoint_load(f->node, "dir/net", 4, replica, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    all_tensors(replica, 9, true);
    ps_replica_destroy(replica);
    ps_symbol_release(symbol);
}

/* Loading into the network 'symbol' fails with 'status' and all of 'words'. */
static void expect_refused(const struct fixture *f, struct ps_symbol *symbol,
                           enum ps_status status, const char *const *words)
{
    struct ps_error err = {.status = PS_OK};
    struct ps_replica *replica = make_replica(f, symbol);
    assert_int_equal(ps_checkpoint_load(f->node, "dir/net", 4, replica, &err), status);
    for (; *words != NULL; words++) {
        if (strstr(err.text, *words) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", *words, err.text);
        }
    }
    ps_replica_destroy(replica);
    ps_symbol_release(symbol);
}

static void a_tensor_of_another_shape_is_named_with_both(void **state)
{
    static const char *const words[] = {"net-0005.safetensors", "first_weight", "(3, 16)",
                                        "(4, 16)", NULL};
    save(*state, "first");
    expect_refused(*state, build(4, "first"), PS_ESHAPE, words);
}

static void a_missing_tensor_is_named(void **state)
{
    static const char *const words[] = {"net-0005.safetensors", "other_weight", NULL};
    save(*state, "first");
    expect_refused(*state, build(3, "other"), PS_ENOENT, words);
}

static void a_missing_file_is_named(void **state)
{
    static const char *const words[] = {"dir/net-0005.safetensors", NULL};
    expect_refused(*state, build(3, "first"), PS_ENOENT, words);
}

static void a_damaged_file_is_refused(void **state)
{
    static const char *const words[] = {"net-0005.safetensors", NULL};
    struct fixture *f = *state;
    struct ps_error err = {.status = PS_OK};
    char *data = NULL;
    size_t size = 0;
    save(f, "first");
    assert_int_equal(
        ps_fs_read_all(f->fs, "dir/net-0005.safetensors", 1 << 20, &data, &size, &err),
        PS_OK);
    assert_int_equal(
        ps_fs_write_all(f->fs, "dir/net-0005.safetensors", data, size - 1, &err), PS_OK);
    expect_refused(f, build(3, "first"), PS_ECORRUPT, words);
    free(data);
}

static void a_full_disk_leaves_the_old_checkpoint(void **state)
{
    struct fixture *f = *state;
    struct ps_error err = {.status = PS_OK};
    save(f, "first");
    struct ps_symbol *symbol = build(3, "first");
    struct ps_replica *replica = make_replica(f, symbol);
    all_tensors(replica, 10, false);
    ps_fs_sim_set_capacity(f->fs, 64);
    assert_int_equal(ps_checkpoint_save(f->node, "dir/net", 4, symbol, replica, &err),
                     PS_EFULL);
    assert_int_equal(ps_checkpoint_load(f->node, "dir/net", 4, replica, &err), PS_OK);
    all_tensors(replica, 9, true);
    ps_replica_destroy(replica);
    ps_symbol_release(symbol);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_was_saved_is_loaded),
        CASE(a_tensor_of_another_shape_is_named_with_both),
        CASE(a_missing_tensor_is_named),
        CASE(a_missing_file_is_named),
        CASE(a_damaged_file_is_refused),
        CASE(a_full_disk_leaves_the_old_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
