/* IDX files: plain and gzipped, and what a damaged one is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "worker/idx.h"

#define LIMIT 65536

/* Two images of 2 x 3 and their bytes 0..11. */
static const uint8_t good[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0,  0,
                               0, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
#define HEAD 16

/* malloc'ed, so that a sanitizer sees a read behind the end. */
static enum ps_status parse(const void *bytes, size_t size, size_t limit,
                            struct ps_idx *idx, struct ps_error *err)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    enum ps_status status = ps_idx_parse(copy, size, limit, idx, err);
    free(copy);
    return status;
}

/* Refused with 'status', a text that holds 'words', and the output left alone. */
static void expect_refused(const void *bytes, size_t size, enum ps_status status,
                           const char *words)
{
    struct ps_error err = {.status = PS_OK};
    struct ps_idx idx = {.ndim = 77};
    assert_int_equal(parse(bytes, size, LIMIT, &idx, &err), status);
    assert_int_equal(err.status, status);
    if (strstr(err.text, words) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", words, err.text);
    }
    assert_int_equal(idx.ndim, 77);
    assert_null(idx.data);
}

static size_t compress_gzip(const void *data, size_t size, uint8_t *out, size_t room)
{
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY),
                     Z_OK);
    stream.next_in = (Bytef *)(uintptr_t)data;
    stream.avail_in = (uInt)size;
    stream.next_out = out;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t used = stream.total_out;
    assert_int_equal(deflateEnd(&stream), Z_OK);
    return used;
}

static void expect_good(const struct ps_idx *idx)
{
    assert_int_equal(idx->ndim, 3);
    assert_int_equal(idx->dim[0], 2);
    assert_int_equal(idx->dim[1], 2);
    assert_int_equal(idx->dim[2], 3);
    assert_int_equal(idx->size, 12);
    assert_memory_equal(idx->data, good + HEAD, 12);
}

static void a_plain_file_is_read(void **state)
{
    (void)state;
    struct ps_error err = {.status = PS_OK};
    struct ps_idx idx = {0};
    assert_int_equal(parse(good, sizeof(good), LIMIT, &idx, &err), PS_OK);
    expect_good(&idx);
    ps_idx_fini(&idx);
}

static void a_gzipped_file_is_read(void **state)
{
    (void)state;
    uint8_t packed[256];
    struct ps_error err = {.status = PS_OK};
    struct ps_idx idx = {0};
    size_t size = compress_gzip(good, sizeof(good), packed, sizeof(packed));
    assert_int_equal(parse(packed, size, LIMIT, &idx, &err), PS_OK);
    expect_good(&idx);
    ps_idx_fini(&idx);
}

static void a_file_without_elements_is_read(void **state)
{
    (void)state;
    static const uint8_t none[] = {0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 5};
    struct ps_error err = {.status = PS_OK};
    struct ps_idx idx = {0};
    assert_int_equal(parse(none, sizeof(none), LIMIT, &idx, &err), PS_OK);
    assert_int_equal(idx.size, 0);
    ps_idx_fini(&idx);
}

static void every_cut_of_a_plain_file_is_refused(void **state)
{
    (void)state;
    for (size_t size = 0; size < sizeof(good); size++) {
        expect_refused(good, size, PS_ECORRUPT, "offset");
    }
    expect_refused(good, 14, PS_ECORRUPT, "header cut off at offset 14");
    expect_refused(good, 20, PS_ECORRUPT, "promises 12 bytes, 4 follow");
}

static void every_cut_of_a_gzipped_file_is_refused(void **state)
{
    (void)state;
    uint8_t packed[256];
    size_t full = compress_gzip(good, sizeof(good), packed, sizeof(packed));
    for (size_t size = 2; size < full; size++) {
        expect_refused(packed, size, PS_ECORRUPT, "offset");
    }
    packed[full - 6] ^= 0xff; /* in the checksum */
    expect_refused(packed, full, PS_ECORRUPT, "gzip: damaged or cut off at offset");
}

static void bytes_behind_the_data_are_refused(void **state)
{
    (void)state;
    uint8_t longer[sizeof(good) + 1] = {0};
    memcpy(longer, good, sizeof(good));
    expect_refused(longer, sizeof(longer), PS_ECORRUPT, "promises 12 bytes, 13 follow");
}

static void a_wrong_magic_is_refused_with_its_offset(void **state)
{
    (void)state;
    uint8_t bytes[sizeof(good)];
    memcpy(bytes, good, sizeof(good));
    bytes[1] = 1;
    expect_refused(bytes, sizeof(bytes), PS_ECORRUPT, "no magic at offset 0");
    bytes[1] = 0;
    bytes[2] = 0x0d; /* float */
    expect_refused(bytes, sizeof(bytes), PS_ECORRUPT, "0x0d at offset 2, 0x08 is");
    bytes[2] = 8;
    bytes[3] = 0;
    expect_refused(bytes, sizeof(bytes), PS_ECORRUPT, "0 dimensions at offset 3");
    bytes[3] = 255;
    expect_refused(bytes, sizeof(bytes), PS_ECORRUPT, "255 dimensions at offset 3");
}

static void huge_dimensions_are_refused_before_memory_is_asked_for(void **state)
{
    (void)state;
    uint8_t bytes[20 + 4] = {0, 0, 8, 4};
    memset(bytes + 4, 0xff, 16);
    expect_refused(bytes, sizeof(bytes), PS_ECORRUPT, "overflow at offset 12");
    static const uint8_t large[] = {0, 0, 8, 2, 0xff, 0xff, 0xff, 0, 0, 0xff, 0xff, 0xff};
    expect_refused(large, sizeof(large), PS_ECORRUPT, "bytes, 0 follow");
}

/* A megabyte of zeros packs into a kilobyte. */
static void content_above_the_limit_is_refused(void **state)
{
    (void)state;
    enum { CONTENT = 1 << 20 };
    uint8_t *zeros = calloc(1, CONTENT), packed[4096];
    assert_non_null(zeros);
    size_t size = compress_gzip(zeros, CONTENT, packed, sizeof(packed));
    expect_refused(packed, size, PS_ERANGE, "above 65536 bytes");
    expect_refused(zeros, LIMIT + 1, PS_ERANGE, "above 65536 bytes");
    free(zeros);
}

static void a_file_that_is_damaged_is_named(void **state)
{
    (void)state;
    struct ps_error err = {.status = PS_OK};
    struct ps_fs *fs = NULL;
    struct ps_idx idx = {0};
    assert_int_equal(ps_fs_sim_create(&fs), PS_OK);
    assert_int_equal(ps_fs_write_all(fs, "images", good, 20, &err), PS_OK);
    assert_int_equal(ps_idx_load(fs, "images", &idx, &err), PS_ECORRUPT);
    assert_non_null(strstr(err.text, "images: idx:"));
    assert_int_equal(ps_idx_load(fs, "labels", &idx, &err), PS_ENOENT);
    assert_non_null(strstr(err.text, "labels"));
    ps_fs_sim_destroy(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_file_is_read),
        cmocka_unit_test(a_gzipped_file_is_read),
        cmocka_unit_test(a_file_without_elements_is_read),
        cmocka_unit_test(every_cut_of_a_plain_file_is_refused),
        cmocka_unit_test(every_cut_of_a_gzipped_file_is_refused),
        cmocka_unit_test(bytes_behind_the_data_are_refused),
        cmocka_unit_test(a_wrong_magic_is_refused_with_its_offset),
        cmocka_unit_test(huge_dimensions_are_refused_before_memory_is_asked_for),
        cmocka_unit_test(content_above_the_limit_is_refused),
        cmocka_unit_test(a_file_that_is_damaged_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
