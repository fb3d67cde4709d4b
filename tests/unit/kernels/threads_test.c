/* CPU_NNPACK_NTHREADS: threads of one operator, seen as threads of the process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "op_fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int process_threads(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    for (const struct dirent *at = readdir(folder); at != NULL; at = readdir(folder)) {
        count += at->d_name[0] != '.' ? 1 : 0;
    }
    (void)closedir(folder);
    return count;
}

/* One operator forward under CPU_NNPACK_NTHREADS; its output's bytes, to be freed. */
static unsigned char *forward(const char *op, const char *attrs, int threads,
                              size_t *size_out)
{
    char setting[40];
    (void)snprintf(setting, sizeof(setting), "CPU_NNPACK_NTHREADS=%d", threads);
    const char *const env[] = {NULL};
    const char *const overrides[] = {"USE_ONEDNN=0", setting, NULL};
    struct ps_settings *settings = NULL;
    struct ps_kernels *kernels = NULL;
    assert_int_equal(ps_settings_load(env, overrides, &settings, NULL), PS_OK);
    assert_int_equal(ps_kernels_create(settings, NULL, &kernels, NULL), PS_OK);
    assert_int_equal(ps_kernels_threads(kernels), threads);
    struct fixture f;
    const struct fixture_options options = {.op = op,
                                            .attrs = attrs,
                                            .in = {PS_SHAPE(8, 16, 64, 64)},
                                            .dtype = PS_F32,
                                            .low = -1,
                                            .high = 1,
                                            .threads = ps_kernels_threads(kernels)};
    fixture_open(&f, kernels, &options);
    fixture_forward(&f);
    *size_out = (size_t)fixture_count(&f.out[0]) * sizeof(float);
    unsigned char *out = malloc(*size_out);
    assert_non_null(out);
    memcpy(out, f.out[0].data, *size_out);
    fixture_close(&f);
    ps_kernels_destroy(kernels);
    ps_settings_destroy(settings);
    return out;
}

static const int counts[] = {1, 2, 4, 7};

static void setting_cpu_nnpack_nthreads_is_the_number_of_compute_threads(void **state)
{
    PS_UNUSED(state);
    int alone = process_threads();
    for (size_t i = 0; i < PS_COUNT(counts); i++) {
        size_t size;
        free(forward("Convolution", "kernel=(3, 3);num_filter=32", counts[i], &size));
        /* a team's threads stay for the next operator: the caller and N - 1 others */
        assert_int_equal(process_threads(), alone + counts[i] - 1);
    }
}

/* Our own kernels: a matrix product's bits are the BLAS's affair. */
static void
setting_cpu_nnpack_nthreads_does_not_change_the_plain_kernels_bits(void **state)
{
    static const char *const ops[][2] = {
        {"Pooling", "kernel=(3, 3);stride=(2, 2);pool_type=avg"},
        {"BatchNorm", "fix_gamma=False"},
        {"Activation", "act_type=tanh"}};
    PS_UNUSED(state);
    for (size_t o = 0; o < PS_COUNT(ops); o++) {
        size_t first_size, size;
        unsigned char *first = forward(ops[o][0], ops[o][1], counts[0], &first_size);
        for (size_t i = 1; i < PS_COUNT(counts); i++) {
            unsigned char *out = forward(ops[o][0], ops[o][1], counts[i], &size);
            assert_int_equal(size, first_size);
            assert_memory_equal(out, first, size);
            free(out);
        }
        free(first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_cpu_nnpack_nthreads_is_the_number_of_compute_threads),
        cmocka_unit_test(
            setting_cpu_nnpack_nthreads_does_not_change_the_plain_kernels_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
