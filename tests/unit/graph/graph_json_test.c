/* Symbol files: round trips, three dialects, faults that name their place, real files. */
#include "tests/unit/graph/graph_fixture.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *json_of(const struct ps_symbol *symbol)
{
    struct ps_str text = {0};
    assert_int_equal(ps_symbol_to_json(symbol, &text), PS_OK);
    return text.data;
}

static struct ps_symbol *load(const char *text)
{
    struct ps_error err = {0};
    struct ps_symbol *symbol = NULL;
    if (ps_symbol_from_json(text, strlen(text), &symbol, &err) != PS_OK) {
        fail_msg("load: %s", err.text);
    }
    return symbol;
}

static void saving_and_loading_is_the_identity(void **state)
{
    (void)state;
    struct ps_symbol *lenet = small_lenet();
    char *first = json_of(lenet);
    struct ps_symbol *again = load(first);
    char *second = json_of(again);
    assert_string_equal(first, second);
    assert_non_null(strstr(first, "\"kernel\": \"(3,3)\""));
    assert_non_null(strstr(first, "\"node_row_ptr\": [0, 1, 2"));
    assert_non_null(strstr(first, "\"mxnet_version\": [\"int\", "));
    free(second);
    free(first);
    ps_symbol_release(again);
    ps_symbol_release(lenet);
}

/* One fully connected layer as each age of MXNet wrote it. */
static const char age_08[] =
    "{\"nodes\": [{\"op\":\"null\",\"param\":{},\"name\":\"x\",\"inputs\":[],"
    "\"backward_source_id\":-1},"
    "{\"op\":\"null\",\"param\":{},\"name\":\"w\",\"inputs\":[],\"attr\":{\"lr_mult\":"
    "\"2\"}},"
    "{\"op\":\"FullyConnected\",\"param\":{\"num_hidden\":\"4\",\"no_bias\":\"True\"},"
    "\"attr\":{\"ctx_group\":\"dev1\",\"mood\":\"angry\",\"weight_wd_mult\":\"3\"},"
    "\"name\":\"fc\",\"inputs\":[[0,0],[1,0]],\"backward_source_id\":-1}],"
    "\"arg_nodes\":[0,1],\"heads\":[[2,0]]}";
static const char age_09[] =
    "{\"nodes\": [{\"op\":\"null\",\"name\":\"x\",\"inputs\":[]},"
    "{\"op\":\"null\",\"name\":\"w\",\"attr\":{\"__lr_mult__\":\"2\"},\"inputs\":[]},"
    "{\"op\":\"FullyConnected\",\"name\":\"fc\",\"attr\":{\"num_hidden\":\"4\","
    "\"no_bias\":\"True\"},\"inputs\":[[0,0,0],[1,0,0]]}],\"arg_nodes\":[0,1],"
    "\"node_row_ptr\":[0,1,2,3],\"heads\":[[2,0,0]],"
    "\"attrs\":{\"mxnet_version\":[\"int\",1000]}}";
static const char age_10[] =
    "{\"nodes\": [{\"op\":\"null\",\"name\":\"x\",\"inputs\":[]},"
    "{\"op\":\"null\",\"name\":\"w\",\"attrs\":{\"__lr_mult__\":\"2\"},\"inputs\":[]},"
    "{\"op\":\"FullyConnected\",\"name\":\"fc\",\"attrs\":{\"num_hidden\":\"4\","
    "\"no_bias\":\"True\"},\"inputs\":[[0,0,0],[1,0,0]]}],\"arg_nodes\":[0,1],"
    "\"heads\":[[2,0,0]],\"attrs\":{\"mxnet_version\":[\"int\",10901]}}";

static void three_dialects_give_one_network(void **state)
{
    (void)state;
    const char *const ages[] = {age_08, age_09, age_10};
    for (size_t i = 0; i < 3; i++) {
        struct ps_symbol *fc = load(ages[i]);
        struct ps_named_shape known = {"x", PS_SHAPE(2, 3)};
        struct ps_inferred_shapes shapes = {0};
        struct ps_error err = {0};
        assert_int_equal(ps_symbol_infer_shapes(fc, &known, 1, &shapes, &err), PS_OK);
        assert_true(ps_shape_equal(&shapes.arguments[1], &PS_SHAPE(4, 3)));
        ps_inferred_shapes_fini(&shapes);
        assert_string_equal(ps_symbol_node_attr(fc, "w", "lr_mult"), "2");
        assert_string_equal(ps_symbol_attr(fc, "num_hidden"), "4");
        ps_symbol_release(fc);
    }
}

static void old_attributes_are_upgraded(void **state)
{
    (void)state;
    struct ps_symbol *fc = load(age_08);
    assert_string_equal(ps_symbol_attr(fc, "__ctx_group__"), "dev1");
    assert_string_equal(ps_symbol_attr(fc, "__mood__"), "angry");
    assert_string_equal(ps_symbol_node_attr(fc, "w", "__wd_mult__"), "3");
    char *text = json_of(fc);
    struct ps_symbol *again = load(text); /* what we wrote needs no upgrade */
    assert_string_equal(ps_symbol_attr(again, "__mood__"), "angry");
    free(text);
    ps_symbol_release(again);
    ps_symbol_release(fc);
}

static void missing_auxiliary_states_are_added(void **state)
{
    (void)state;
    static const char text[] =
        "{\"nodes\": [{\"op\":\"null\",\"param\":{},\"name\":\"x\",\"inputs\":[]},"
        "{\"op\":\"null\",\"param\":{},\"name\":\"g\",\"inputs\":[]},"
        "{\"op\":\"null\",\"param\":{},\"name\":\"b\",\"inputs\":[]},"
        "{\"op\":\"BatchNorm\",\"param\":{\"eps\":\"0.001\"},\"name\":\"bn\","
        "\"inputs\":[[0,0],[1,0],[2,0]]}],\"arg_nodes\":[0,1,2],\"heads\":[[3,0]]}";
    struct ps_symbol *bn = load(text);
    struct ps_names names = {0};
    assert_int_equal(ps_symbol_list_auxiliaries(bn, &names), PS_OK);
    assert_int_equal(names.count, 2);
    assert_string_equal(names.names[0], "bn_moving_mean");
    ps_names_fini(&names);
    ps_symbol_release(bn);
}

#define X "{\"op\":\"null\",\"name\":\"x\",\"inputs\":[]}"
#define HEADS ",\"heads\":[[0,0,0]]}"

static void faults_name_the_node_and_the_field(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum ps_status status;
        const char *named;
    } cases[] = {
        {"", PS_ECORRUPT, "line"},
        {"[]", PS_ECORRUPT, "object"},
        {"{\"heads\":[[0,0]]}", PS_ECORRUPT, "nodes"},
        {"{\"nodes\":[" X "]}", PS_ECORRUPT, "heads"},
        {"{\"nodes\":[" X "],\"heads\":[[1,0]]}", PS_ECORRUPT, "[1,0]"},
        {"{\"nodes\":[" X "],\"heads\":[[0,1]]}", PS_ECORRUPT, "[0,1]"},
        {"{\"nodes\":[{\"op\":\"null\",\"inputs\":[]}]" HEADS, PS_ECORRUPT, "name"},
        {"{\"nodes\":[{\"op\":7,\"name\":\"x\"}]" HEADS, PS_ECORRUPT, "op: must"},
        {"{\"nodes\":[{\"op\":\"null\",\"name\":\"x\",\"color\":1}]" HEADS, PS_ECORRUPT,
         "color"},
        {"{\"nodes\":[" X
         ",{\"op\":\"square\",\"name\":\"sq\",\"inputs\":[[1,0]]}]" HEADS,
         PS_ECORRUPT, "node 1 (sq): inputs"},
        {"{\"nodes\":[" X
         ",{\"op\":\"square\",\"name\":\"sq\",\"inputs\":[[-1,0]]}]" HEADS,
         PS_ECORRUPT, "node 1 (sq): inputs"},
        {"{\"nodes\":[" X ",{\"op\":\"square\",\"name\":\"sq\",\"inputs\":[]}]" HEADS,
         PS_ECORRUPT, "0 given"},
        {"{\"nodes\":[" X ",{\"op\":\"warp\",\"name\":\"sq\",\"inputs\":[[0,0]]}]" HEADS,
         PS_EUNSUPPORTED, "warp"},
        {"{\"nodes\":[" X ",{\"op\":\"FullyConnected\",\"name\":\"fc\",\"attrs\":{\"num_"
         "hidden\":\"many\"},\"inputs\":[[0,0]]}]" HEADS,
         PS_EINVAL, "many"},
        {"{\"nodes\":[" X ",{\"op\":\"FullyConnected\",\"name\":\"fc\",\"attrs\":{\"num_"
         "hidden\":4},\"inputs\":[[0,0]]}]" HEADS,
         PS_ECORRUPT, "num_hidden must be a string"},
        {"{\"nodes\":[" X "],\"arg_nodes\":[5]" HEADS, PS_ECORRUPT, "arg_nodes"},
        {"{\"nodes\":[" X "],\"attrs\":{\"mxnet_version\":3}" HEADS, PS_ECORRUPT,
         "mxnet_version"},
        {"{\"nodes\":[{\"op\":\"null\",\"name\":\"x\",\"control_deps\":[0]}]" HEADS,
         PS_ECORRUPT, "control_deps"},
    };
    for (size_t i = 0; i < PS_COUNT(cases); i++) {
        struct ps_error err = {0};
        struct ps_symbol *symbol = NULL;
        enum ps_status status =
            ps_symbol_from_json(cases[i].text, strlen(cases[i].text), &symbol, &err);
        assert_null(symbol);
        if (status != cases[i].status || strstr(err.text, cases[i].named) == NULL) {
            fail_msg("case %zu: %s \"%s\", expected %s naming %s", i,
                     ps_status_name(status), err.text, ps_status_name(cases[i].status),
                     cases[i].named);
        }
    }
}

static const char *data_folder(void)
{
    const char *given = getenv("PENSTOCK_TEST_DATA");
    return given != NULL ? given : PENSTOCK_SOURCE_DIR "/../shared/data";
}

/* Files whose operators are all here; the others must say which operator is missing. */
static void files_of_real_networks_load(void **state)
{
    (void)state;
    char folder[512], path[1024];
    (void)snprintf(folder, sizeof(folder), "%s/mxnet-models", data_folder());
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        print_message("%s is not there\n", folder);
        skip();
        return;
    }
    size_t loaded = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strstr(entry->d_name, "-symbol.json") == NULL) {
            continue;
        }
        struct ps_error err = {0};
        struct ps_symbol *symbol = NULL;
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        enum ps_status status = ps_symbol_load(ps_fs_real(), path, &symbol, &err);
        if (status == PS_OK) {
            char *first = json_of(symbol);
            struct ps_symbol *again = load(first);
            char *second = json_of(again);
            assert_string_equal(first, second);
            free(second);
            free(first);
            ps_symbol_release(again);
            ps_symbol_release(symbol);
            loaded++;
            print_message("%s loads\n", entry->d_name);
        } else {
            print_message("%s: %s\n", entry->d_name, err.text);
            assert_int_equal(status, PS_EUNSUPPORTED);
            assert_non_null(strstr(err.text, "is not here"));
        }
    }
    closedir(dir);
    assert_true(loaded >= 8);
}

/* mnist-lenet of 2015: the whole inference through a file of the oldest dialect. */
static void the_lenet_of_2015_infers(void **state)
{
    (void)state;
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/mxnet-models/mnist-lenet-0-symbol.json",
                   data_folder());
    struct ps_error err = {0};
    struct ps_symbol *symbol = NULL;
    if (!ps_fs_exists(ps_fs_real(), path)) {
        print_message("%s is not there\n", path);
        skip();
        return;
    }
    if (ps_symbol_load(ps_fs_real(), path, &symbol, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    struct ps_named_shape known = {"data", PS_SHAPE(1, 1, 28, 28)};
    struct ps_inferred_shapes shapes = {0};
    if (ps_symbol_infer_shapes(symbol, &known, 1, &shapes, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    assert_true(ps_shape_equal(&shapes.outputs[0], &PS_SHAPE(1, 10)));
    assert_true(ps_shape_equal(&shapes.arguments[1], &PS_SHAPE(20, 1, 5, 5)));
    ps_inferred_shapes_fini(&shapes);
    ps_symbol_release(symbol);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saving_and_loading_is_the_identity),
        cmocka_unit_test(three_dialects_give_one_network),
        cmocka_unit_test(old_attributes_are_upgraded),
        cmocka_unit_test(missing_auxiliary_states_are_added),
        cmocka_unit_test(faults_name_the_node_and_the_field),
        cmocka_unit_test(files_of_real_networks_load),
        cmocka_unit_test(the_lenet_of_2015_infers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
