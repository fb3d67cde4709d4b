/* Finding the four files, and who reads which samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "worker/dataset.h"

#define COUNT 1000

static int open_fs(void **state)
{
    struct ps_fs *fs = NULL;
    if (ps_fs_sim_create(&fs) != PS_OK) {
        return -1;
    }
    *state = fs;
    return 0;
}

static int close_fs(void **state)
{
    ps_fs_sim_destroy(*state);
    return 0;
}

/* 'count' images of 2 x 2 and labels 0, 1, ... in "set/". */
static void write_set(struct ps_fs *fs, uint8_t images, uint8_t labels)
{
    uint8_t image_file[16 + 255 * 4] = {0, 0, 8, 3, 0, 0, 0, images,
                                        0, 0, 0, 2, 0, 0, 0, 2};
    uint8_t label_file[8 + 255] = {0, 0, 8, 1, 0, 0, 0, labels};
    struct ps_error err = {.status = PS_OK};
    for (uint8_t i = 0; i < labels; i++) {
        label_file[8 + i] = i;
    }
    assert_int_equal(ps_fs_write_all(fs, "set/train-images-idx3-ubyte", image_file,
                                     16 + 4 * (size_t)images, &err),
                     PS_OK);
    assert_int_equal(ps_fs_write_all(fs, "set/train-labels-idx1-ubyte", label_file,
                                     8 + (size_t)labels, &err),
                     PS_OK);
}

static void a_folder_of_idx_files_is_loaded(void **state)
{
    struct ps_error err = {.status = PS_OK};
    struct ps_dataset set = {0};
    write_set(*state, 5, 5);
    assert_int_equal(ps_dataset_load(*state, "set", PS_DATASET_TRAIN, &set, &err), PS_OK);
    assert_int_equal(set.count, 5);
    assert_int_equal(set.rows, 2);
    assert_int_equal(set.columns, 2);
    assert_int_equal(set.classes, 10); /* at least the digits */
    assert_int_equal(set.labels[4], 4);
    ps_dataset_fini(&set);
}

static void more_than_ten_classes_are_counted(void **state)
{
    struct ps_error err = {.status = PS_OK};
    struct ps_dataset set = {0};
    write_set(*state, 26, 26);
    assert_int_equal(ps_dataset_load(*state, "set", PS_DATASET_TRAIN, &set, &err), PS_OK);
    assert_int_equal(set.classes, 26);
    ps_dataset_fini(&set);
}

static void images_and_labels_that_do_not_fit_are_refused(void **state)
{
    struct ps_error err = {.status = PS_OK};
    struct ps_dataset set = {0};
    write_set(*state, 5, 4);
    assert_int_equal(ps_dataset_load(*state, "set", PS_DATASET_TRAIN, &set, &err),
                     PS_ECORRUPT);
    assert_non_null(strstr(err.text, "set"));
    write_set(*state, 0, 0);
    assert_int_equal(ps_dataset_load(*state, "set", PS_DATASET_TRAIN, &set, &err),
                     PS_ECORRUPT);
    assert_null(set.images);
}

static void what_is_missing_is_named(void **state)
{
    struct ps_error err = {.status = PS_OK};
    struct ps_dataset set = {0};
    assert_int_equal(ps_dataset_load(*state, "set", PS_DATASET_TEST, &set, &err),
                     PS_ENOENT);
    assert_non_null(strstr(err.text, "t10k-images-idx3-ubyte"));
    assert_int_equal(
        ps_dataset_load(*state, "fashion-mnist", PS_DATASET_TRAIN, &set, &err),
        PS_ENOENT);
    assert_non_null(strstr(err.text, "dataset-fashion-mnist"));
}

static void a_shuffle_is_a_permutation(void **state)
{
    (void)state;
    static uint32_t order[COUNT];
    static bool seen[COUNT];
    ps_dataset_shuffle(order, COUNT, 3, 0);
    size_t moved = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_in_range(order[i], 0, COUNT - 1);
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
        moved += order[i] != i ? 1 : 0;
    }
    assert_true(moved > COUNT * 9 / 10);
}

static void a_shuffle_depends_on_seed_and_epoch_only(void **state)
{
    (void)state;
    static uint32_t a[COUNT], b[COUNT];
    ps_dataset_shuffle(a, COUNT, 3, 1);
    ps_dataset_shuffle(b, COUNT, 3, 1);
    assert_memory_equal(a, b, sizeof(a));
    ps_dataset_shuffle(b, COUNT, 3, 2);
    assert_memory_not_equal(a, b, sizeof(a));
    ps_dataset_shuffle(b, COUNT, 4, 1);
    assert_memory_not_equal(a, b, sizeof(a));
    ps_dataset_shuffle(a, 0, 3, 1); /* nothing to do */
    ps_dataset_shuffle(a, 1, 3, 1);
    assert_int_equal(a[0], 0);
}

/* n workers with batches of b see together, step by step, what one with n*b sees. */
static void slices_do_not_depend_on_the_number_of_workers(void **state)
{
    (void)state;
    static const uint32_t workers[] = {1, 2, 4, 8};
    uint32_t whole = 64;
    for (size_t i = 0; i < PS_COUNT(workers); i++) {
        uint32_t n = workers[i], b = whole / n;
        uint32_t batches = ps_dataset_batches(COUNT, n, b);
        assert_int_equal(batches, 15);
        static bool read[COUNT]; /* positions in the shuffle */
        memset(read, 0, sizeof(read));
        for (uint32_t t = 0; t < batches; t++) {
            for (uint32_t r = 0; r < n; r++) {
                uint32_t first = (t * n + r) * b;
                assert_true(first >= t * whole && first + b <= (t + 1) * whole);
                for (uint32_t s = first; s < first + b; s++) {
                    assert_false(read[s]);
                    read[s] = true;
                }
            }
        }
        for (uint32_t s = 0; s < COUNT; s++) {
            assert_int_equal(read[s], s < batches * whole);
        }
    }
}

static void a_set_smaller_than_the_jobs_batch_has_no_batch(void **state)
{
    (void)state;
    assert_int_equal(ps_dataset_batches(127, 2, 64), 0);
    assert_int_equal(ps_dataset_batches(128, 2, 64), 1);
    /* n*b beyond 32 bits */
    assert_int_equal(ps_dataset_batches(UINT32_MAX, UINT32_C(1) << 20, UINT32_C(1) << 20),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_folder_of_idx_files_is_loaded, open_fs,
                                        close_fs),
        cmocka_unit_test_setup_teardown(more_than_ten_classes_are_counted, open_fs,
                                        close_fs),
        cmocka_unit_test_setup_teardown(images_and_labels_that_do_not_fit_are_refused,
                                        open_fs, close_fs),
        cmocka_unit_test_setup_teardown(what_is_missing_is_named, open_fs, close_fs),
        cmocka_unit_test(a_shuffle_is_a_permutation),
        cmocka_unit_test(a_shuffle_depends_on_seed_and_epoch_only),
        cmocka_unit_test(slices_do_not_depend_on_the_number_of_workers),
        cmocka_unit_test(a_set_smaller_than_the_jobs_batch_has_no_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
