/* ENABLE_GPU_P2P: which copies between two accelerators go directly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/node.h"
#include "engine/device/device.h"
#include "engine/tensor/tensor.h"

#include <stdio.h>
#include <string.h>

enum { GPUS = 3, COUNT = 5000 };

struct rig {
    struct ps_node *node;
    struct ps_engine *engine;
    char words[4096]; /* of the log */
};

static void take_line(void *arg, const char *line, size_t size)
{
    struct rig *rig = arg;
    size_t used = strlen(rig->words);
    assert_true(used + size < sizeof(rig->words));
    memcpy(rig->words + used, line, size);
    rig->words[used + size] = '\0';
}

/* Copies from gpu(0) to gpu(1) and to gpu(2), values checked; what gpu(0) did. */
static struct ps_device_traffic copy_around(struct rig *rig, const char *peers,
                                            const char *enable)
{
    static const char *const no_env[] = {NULL};
    const char *const settings[] = {"SIM_GPUS=3", peers, enable, NULL};
    struct ps_node_options options = {
        .env = no_env, .overrides = settings, .log_sink = take_line, .log_sink_arg = rig};
    struct ps_tensor *tensors[GPUS];
    struct ps_error err = {.text = ""};
    float in[COUNT], out[COUNT];
    memset(rig, 0, sizeof(*rig));
    assert_int_equal(ps_node_open(&options, &rig->node, &err), PS_OK);
    assert_int_equal(
        ps_engine_create(rig->node, PS_ENGINE_PER_DEVICE, &rig->engine, &err), PS_OK);
    for (int i = 0; i < GPUS; i++) {
        assert_int_equal(ps_tensor_create(rig->engine, PS_GPU(i), PS_F32,
                                          &PS_SHAPE(COUNT), &tensors[i]),
                         PS_OK);
    }
    for (int i = 0; i < COUNT; i++) {
        in[i] = (float)i * 0.37F;
    }
    assert_int_equal(ps_tensor_write(tensors[0], in, sizeof(in), &err), PS_OK);
    for (int i = 1; i < GPUS; i++) {
        assert_int_equal(ps_tensor_copy(tensors[0], tensors[i], 0), PS_OK);
        assert_int_equal(ps_tensor_read(tensors[i], out, sizeof(out), &err), PS_OK);
        assert_memory_equal(in, out, sizeof(in));
    }
    struct ps_device *first;
    struct ps_device_traffic traffic;
    assert_int_equal(ps_engine_device(rig->engine, PS_GPU(0), &first, &err), PS_OK);
    ps_device_traffic(first, &traffic);
    for (int i = 0; i < GPUS; i++) {
        ps_tensor_release(tensors[i]);
    }
    ps_engine_destroy(rig->engine);
    ps_node_close(rig->node);
    return traffic;
}

static void setting_enable_gpu_p2p_copies_directly_where_the_pair_can(void **state)
{
    struct rig rig;
    PS_UNUSED(state);
    struct ps_device_traffic all = copy_around(&rig, "SIM_GPU_PEERS=all", NULL);
    assert_int_equal(all.peer_count, 2);
    assert_int_equal(all.staged_count, 0);
    assert_null(strstr(rig.words, "peer access"));
    struct ps_device_traffic pair =
        copy_around(&rig, "SIM_GPU_PEERS=0-1", "ENABLE_GPU_P2P=1");
    assert_int_equal(pair.peer_count, 1);
    assert_int_equal(pair.peer_bytes, COUNT * sizeof(float));
    assert_int_equal(pair.staged_count, 1);
    /* the matrix of what is and is not */
    assert_non_null(strstr(rig.words, "only 2 of 6 gpu pairs"));
    assert_non_null(strstr(rig.words, ".v. v.. ..."));
}

static void setting_enable_gpu_p2p_0_goes_through_the_host(void **state)
{
    struct rig rig;
    PS_UNUSED(state);
    struct ps_device_traffic off =
        copy_around(&rig, "SIM_GPU_PEERS=all", "ENABLE_GPU_P2P=0");
    assert_int_equal(off.peer_count, 0);
    assert_int_equal(off.staged_count, 2);
    assert_null(strstr(rig.words, "peer access")); /* nobody asked for it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_enable_gpu_p2p_copies_directly_where_the_pair_can),
        cmocka_unit_test(setting_enable_gpu_p2p_0_goes_through_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
