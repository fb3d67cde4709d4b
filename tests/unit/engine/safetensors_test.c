/* safetensors files: round trips, and files that are not what they say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/node.h"
#include "base/util.h"
#include "engine/tensor/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world {
    struct ps_node *node;
    struct ps_engine *engine;
    struct ps_fs *fs;
};

static int setup(void **state)
{
    static struct world world;
    static const char *const quiet[] = {"LOG=error", NULL};
    static const char *const no_env[] = {NULL};
    struct ps_node_options options = {.env = no_env, .overrides = quiet};
    assert_int_equal(ps_node_open(&options, &world.node, NULL), PS_OK);
    assert_int_equal(ps_engine_create(world.node, PS_ENGINE_NAIVE, &world.engine, NULL),
                     PS_OK);
    assert_int_equal(ps_fs_sim_create(&world.fs), PS_OK);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    ps_fs_sim_destroy(world->fs);
    ps_engine_destroy(world->engine);
    ps_node_close(world->node);
    return 0;
}

static struct ps_tensor *filled(struct world *world, int dtype, struct ps_shape shape,
                                double value)
{
    struct ps_tensor *tensor;
    assert_int_equal(ps_tensor_create(world->engine, PS_CPU(0), dtype, &shape, &tensor),
                     PS_OK);
    assert_int_equal(ps_tensor_fill(tensor, value), PS_OK);
    return tensor;
}

static void check_equal(struct ps_tensor *a, struct ps_tensor *b)
{
    unsigned char x[256], y[256];
    size_t bytes = ps_tensor_bytes(a);
    assert_non_null(b);
    assert_int_equal(ps_tensor_dtype(a), ps_tensor_dtype(b));
    assert_true(ps_shape_equal(ps_tensor_shape(a), ps_tensor_shape(b)));
    assert_true(bytes <= sizeof(x));
    assert_int_equal(ps_tensor_read(a, x, bytes, NULL), PS_OK);
    assert_int_equal(ps_tensor_read(b, y, bytes, NULL), PS_OK);
    assert_memory_equal(x, y, bytes);
}

static void case_126_every_type_and_odd_shape_makes_the_round_trip(void **state)
{
    struct world *world = *state;
    struct ps_shape scalar = {.ndim = 0};
    struct ps_named_tensor items[] = {
        {"u8", filled(world, PS_U8, PS_SHAPE(3), 7)},
        {"scalar", filled(world, PS_F32, scalar, 2.5)},
        {"empty", filled(world, PS_F32, PS_SHAPE(0, 3), 0)},
        {"f16", filled(world, PS_F16, PS_SHAPE(5), -1)},
        {"bf16 \"quoted\" \xc3\xa4", filled(world, PS_BF16, PS_SHAPE(1, 5), 3)},
        {"i8", filled(world, PS_I8, PS_SHAPE(1), -3)},
        {"i32", filled(world, PS_I32, PS_SHAPE(2, 2), 1e6)},
        {"i64", filled(world, PS_I64, PS_SHAPE(2), -9)},
        {"f64", filled(world, PS_F64, PS_SHAPE(1, 1, 1, 1, 1, 1, 1, 2), 0.1)},
    };
    struct ps_named_text meta[] = {{"epoch", "3"}, {"note", "a \"b\"\n"}};
    struct ps_safetensors *list;
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_safetensors_save(world->fs, "w.safetensors", items,
                                         PS_COUNT(items), meta, 2, &err),
                     PS_OK);
    assert_int_equal(ps_safetensors_load(world->fs, "w.safetensors", world->engine,
                                         PS_CPU(1), &list, &err),
                     PS_OK);
    assert_int_equal(list->count, PS_COUNT(items));
    for (size_t i = 0; i < PS_COUNT(items); i++) {
        check_equal(items[i].tensor, ps_safetensors_find(list, items[i].name));
        ps_tensor_release(items[i].tensor);
    }
    assert_string_equal(ps_safetensors_meta(list, "epoch"), "3");
    assert_string_equal(ps_safetensors_meta(list, "note"), "a \"b\"\n");
    assert_null(ps_safetensors_meta(list, "none"));
    assert_null(ps_safetensors_find(list, "none"));
    assert_false(ps_fs_exists(world->fs, "w.safetensors.tmp"));
    ps_safetensors_free(list);
}

static void an_empty_list_makes_the_round_trip(void **state)
{
    struct world *world = *state;
    struct ps_safetensors *list;
    assert_int_equal(ps_safetensors_save(world->fs, "none", NULL, 0, NULL, 0, NULL),
                     PS_OK);
    assert_int_equal(
        ps_safetensors_load(world->fs, "none", world->engine, PS_CPU(0), &list, NULL),
        PS_OK);
    assert_int_equal(list->count, 0);
    ps_safetensors_free(list);
    ps_safetensors_free(NULL);
}

static void names_that_cannot_be_saved_are_refused(void **state)
{
    struct world *world = *state;
    struct ps_tensor *tensor = filled(world, PS_U8, PS_SHAPE(1), 1);
    static const char *const bad[] = {"", "__metadata__", "\xff\xfe"};
    struct ps_error err = {.status = PS_OK};
    for (size_t i = 0; i < PS_COUNT(bad); i++) {
        struct ps_named_tensor item = {bad[i], tensor};
        assert_int_equal(ps_safetensors_save(world->fs, "x", &item, 1, NULL, 0, &err),
                         PS_EINVAL);
    }
    struct ps_named_tensor twice[] = {{"a", tensor}, {"a", tensor}};
    assert_int_equal(ps_safetensors_save(world->fs, "x", twice, 2, NULL, 0, &err),
                     PS_EEXIST);
    assert_non_null(strstr(err.text, "tensor a"));
    assert_false(ps_fs_exists(world->fs, "x"));
    ps_tensor_release(tensor);
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    struct world *world = *state;
    struct ps_tensor *tensor = filled(world, PS_F32, PS_SHAPE(10), 1);
    struct ps_named_tensor item = {"weight", tensor};
    struct ps_safetensors *list;
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_safetensors_save(world->fs, "w", &item, 1, NULL, 0, &err), PS_OK);
    ps_fs_sim_set_capacity(world->fs, 150);
    assert_int_equal(ps_safetensors_save(world->fs, "w", &item, 1, NULL, 0, &err),
                     PS_EFULL);
    assert_non_null(strstr(err.text, "w.tmp"));
    assert_int_equal(
        ps_safetensors_load(world->fs, "w", world->engine, PS_CPU(0), &list, &err),
        PS_OK);
    assert_false(ps_fs_exists(world->fs, "w.tmp"));
    ps_safetensors_free(list);
    ps_tensor_release(tensor);
}

/* A header in front of 'data_size' bytes must be refused, with a text that has 'word'. */
static void refuse(const char *json, uint64_t data_size, enum ps_status expected,
                   const char *word)
{
    struct ps_safetensors_header header;
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_safetensors_parse(json, strlen(json), data_size, &header, &err),
                     expected);
    if (strstr(err.text, word) == NULL) {
        print_error("'%s' lacks '%s'\n", err.text, word);
        fail();
    }
}

#define ENTRY(name, type, shape, begin, end)                                            \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" begin \
    "," end "]}"

static void case_128_headers_that_lie_are_refused_by_name(void **state)
{
    PS_UNUSED(state);
    refuse("{" ENTRY("a", "F32", "[2]", "0", "8") "," ENTRY("a", "F32", "[2]", "8",
                                                            "16") "}",
           16, PS_ECORRUPT, "duplicate");
    refuse("{" ENTRY("a", "F32", "[2]", "0", "8") "," ENTRY("b", "F32", "[2]", "4",
                                                            "12") "}",
           12, PS_ECORRUPT, "tensor b: begins at 4, overlaps");
    refuse(
        "{" ENTRY("a", "F32", "[2]", "0", "8") "," ENTRY("b", "F32", "[2]", "0", "8") "}",
        8, PS_ECORRUPT, "overlaps");
    refuse("{" ENTRY("a", "F32", "[1]", "4", "8") "}", 8, PS_ECORRUPT, "leaves a hole");
    refuse("{" ENTRY("a", "F32", "[1]", "0", "4") "}", 8, PS_ECORRUPT, "end at 4 of 8");
    refuse("{" ENTRY("a", "F32", "[3]", "0", "8") "}", 8, PS_ECORRUPT,
           "tensor a: data_offsets [0, 8] do not hold (3,) elements of float32");
    refuse("{" ENTRY("a", "F32", "[2]", "0", "80") "}", 8, PS_ECORRUPT, "tensor a");
    refuse("{" ENTRY("a", "F32", "[2]", "8", "0") "}", 8, PS_ECORRUPT, "tensor a");
    refuse("{" ENTRY("a", "F32", "[2]", "-8", "0") "}", 8, PS_ECORRUPT, "tensor a");
    refuse("{" ENTRY("a", "F32", "[-2]", "0", "8") "}", 8, PS_ECORRUPT, "dimension 0");
    refuse("{" ENTRY("a", "F32", "[2.0]", "0", "8") "}", 8, PS_ECORRUPT, "dimension 0");
    refuse("{" ENTRY("a", "F32", "[4611686018427387904,4,0]", "0", "8") "}", 8,
           PS_ECORRUPT, "tensor a");
    refuse(
        "{" ENTRY("a", "F32", "[9223372036854775807,9223372036854775807]", "0", "8") "}",
        8, PS_ECORRUPT, "tensor a");
    refuse("{" ENTRY("a", "F32", "[99999999999999999999]", "0", "8") "}", 8, PS_ECORRUPT,
           "header");
    refuse("{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, PS_ECORRUPT,
           "at most 8");
    refuse("{" ENTRY("a", "F8_E4M3", "[2]", "0", "2") "}", 2, PS_EDTYPE, "F8_E4M3");
    refuse("{" ENTRY("a\xff", "U8", "[2]", "0", "2") "}", 2, PS_ECORRUPT,
           "decode byte 0xff");
    refuse("{" ENTRY("", "U8", "[2]", "0", "2") "}", 2, PS_ECORRUPT, "without a name");
    refuse("{\"a\":{\"dtype\":\"U8\"}}", 0, PS_ECORRUPT, "tensor a");
    refuse("{\"a\":[]}", 0, PS_ECORRUPT, "tensor a");
    refuse("{\"__metadata__\":{\"k\":1}}", 0, PS_ECORRUPT, "__metadata__ k");
    refuse("{\"__metadata__\":3}", 0, PS_ECORRUPT, "__metadata__");
    refuse("[]", 0, PS_ECORRUPT, "not a JSON object");
    refuse("", 0, PS_ECORRUPT, "header");
    refuse("{} x", 0, PS_ECORRUPT, "header");
}

static void put(struct world *world, const char *prefix, const char *json,
                size_t data_size)
{
    char bytes[512] = {0};
    size_t size = strlen(json);
    memcpy(bytes, prefix, 8);
    memcpy(bytes + 8, json, size);
    assert_int_equal(ps_fs_write_all(world->fs, "f", bytes, 8 + size + data_size, NULL),
                     PS_OK);
}

static void refuse_file(struct world *world, const char *word)
{
    struct ps_safetensors *list;
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(
        ps_safetensors_load(world->fs, "f", world->engine, PS_CPU(0), &list, &err),
        PS_ECORRUPT);
    assert_non_null(strstr(err.text, "f: "));
    assert_non_null(strstr(err.text, word));
}

static void
case_128_files_that_are_cut_or_lie_about_their_length_are_refused(void **state)
{
    struct world *world = *state;
    struct ps_safetensors *list;
    struct ps_error err = {.status = PS_OK};
    const char *good = "{" ENTRY("a", "BF16", "[2]", "0", "4") "}";
    const char prefix[8] = {(char)strlen(good)};
    put(world, "\0\0\0\0\0\0\0\x10", good, 4); /* 2^60 */
    refuse_file(world, "header of 1152921504606846976 bytes");
    put(world, prefix, good, 3); /* cut in the data */
    refuse_file(world, "tensor a");
    put(world, prefix, good, 5);
    refuse_file(world, "end at 4 of 5");
    assert_int_equal(ps_fs_write_all(world->fs, "f", "\2\0\0", 3, NULL), PS_OK);
    refuse_file(world, "3 bytes has no header");
    put(world, prefix, good, 4); /* bf16 itself is fine */
    assert_int_equal(
        ps_safetensors_load(world->fs, "f", world->engine, PS_CPU(0), &list, &err),
        PS_OK);
    assert_int_equal(ps_tensor_dtype(ps_safetensors_find(list, "a")), PS_BF16);
    ps_safetensors_free(list);
    assert_int_equal(
        ps_safetensors_load(world->fs, "gone", world->engine, PS_CPU(0), &list, &err),
        PS_ENOENT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(case_126_every_type_and_odd_shape_makes_the_round_trip),
        TEST(an_empty_list_makes_the_round_trip),
        TEST(names_that_cannot_be_saved_are_refused),
        TEST(a_full_disk_leaves_the_old_file),
        TEST(case_128_headers_that_lie_are_refused_by_name),
        TEST(case_128_files_that_are_cut_or_lie_about_their_length_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
