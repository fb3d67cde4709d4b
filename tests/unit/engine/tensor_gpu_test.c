/* Tensors of simulated accelerators, on every engine and on a simulated node: copies
 * between devices, fills, addresses, memory that is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/node.h"
#include "base/sim.h"
#include "base/util.h"
#include "engine/device/device.h"
#include "engine/tensor/tensor.h"

#include <string.h>

enum { SIM_NODE = PS_ENGINE_PER_DEVICE + 1, ENGINES };

struct world {
    struct ps_sim *sim;
    struct ps_node *node;
    struct ps_engine *engine;
};

static void open_world(struct world *world, int type, const char *more)
{
    static const char *const no_env[] = {NULL};
    const char *const settings[] = {"LOG=error", "SIM_GPUS=3", "SIM_GPU_PEERS=0-1", more,
                                    NULL};
    struct ps_node_options options = {.env = no_env, .overrides = settings};
    struct ps_error err;
    *world = (struct world){.sim = NULL};
    if (type == SIM_NODE) {
        assert_int_equal(ps_sim_create(1, &world->sim), PS_OK);
        options.sim = world->sim;
        type = PS_ENGINE_NAIVE;
    }
    if (ps_node_open(&options, &world->node, &err) != PS_OK ||
        ps_engine_create(world->node, type, &world->engine, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
}

static void close_world(struct world *world)
{
    ps_engine_destroy(world->engine);
    ps_node_close(world->node);
    if (world->sim != NULL) {
        ps_sim_destroy(world->sim);
    }
}

/* Runs 'test' in every world, with the setting 'more'. */
static void everywhere(void (*test)(struct world *world), const char *more)
{
    for (int type = 0; type < ENGINES; type++) {
        struct world world;
        if (type != PS_ENGINE_POOLED_ALIAS) {
            open_world(&world, type, more);
            test(&world);
            close_world(&world);
        }
    }
}

static struct ps_tensor *make(struct world *world, struct ps_context context,
                              int64_t count)
{
    struct ps_tensor *tensor = NULL;
    assert_int_equal(
        ps_tensor_create(world->engine, context, PS_F32, &PS_SHAPE(count), &tensor),
        PS_OK);
    return tensor;
}

static struct ps_device *device_of(struct world *world, struct ps_context context)
{
    struct ps_device *device = NULL;
    assert_int_equal(ps_engine_device(world->engine, context, &device, NULL), PS_OK);
    return device;
}

static struct ps_device_traffic traffic_of(struct world *world, int gpu)
{
    struct ps_device_traffic traffic;
    assert_int_equal(ps_engine_wait_all(world->engine, NULL), PS_OK);
    ps_device_traffic(device_of(world, PS_GPU(gpu)), &traffic);
    return traffic;
}

/* ---- copies ---- */

enum { COUNT = 100000 };

/* host -> cpu(0) -> gpu(0) -> gpu(1) -> gpu(2) -> cpu(1) -> host */
static void around(struct world *world)
{
    static float in[COUNT], out[COUNT];
    const struct ps_context path[] = {PS_CPU(0), PS_GPU(0), PS_GPU(1), PS_GPU(2),
                                      PS_CPU(1)};
    struct ps_tensor *tensors[PS_COUNT(path)];
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            in[i] = (float)(i * round);
        }
        for (size_t i = 0; i < PS_COUNT(path); i++) {
            tensors[i] = make(world, path[i], COUNT);
        }
        assert_int_equal(ps_tensor_write(tensors[0], in, sizeof(in), NULL), PS_OK);
        for (size_t i = 1; i < PS_COUNT(path); i++) {
            assert_int_equal(ps_tensor_copy(tensors[i - 1], tensors[i], 0), PS_OK);
            ps_tensor_release(tensors[i - 1]); /* the copies hold them */
        }
        struct ps_tensor *last = tensors[PS_COUNT(path) - 1];
        assert_int_equal(ps_tensor_read(last, out, sizeof(out), NULL), PS_OK);
        assert_memory_equal(in, out, sizeof(in));
        ps_tensor_release(last);
    }
    assert_int_equal(traffic_of(world, 0).from_host_count, 3);
    assert_int_equal(traffic_of(world, 0).staged_count, 3);
    assert_int_equal(traffic_of(world, 1).staged_count, 3);
    assert_int_equal(traffic_of(world, 2).to_host_count, 3);
}

static void tensors_are_copied_around_all_devices(void **state)
{
    PS_UNUSED(state);
    everywhere(around, "ENABLE_GPU_P2P=0");
}

static void peers(struct world *world)
{
    struct ps_tensor *from = make(world, PS_GPU(1), 10), *to = make(world, PS_GPU(0), 10);
    assert_int_equal(ps_tensor_fill(from, 3), PS_OK);
    assert_int_equal(ps_tensor_copy(from, to, 0), PS_OK);
    float out[10];
    assert_int_equal(ps_tensor_read(to, out, sizeof(out), NULL), PS_OK);
    assert_true(out[0] == 3 && out[9] == 3);
    assert_int_equal(traffic_of(world, 1).peer_count, 1);
    assert_int_equal(traffic_of(world, 1).staged_count, 0);
    ps_tensor_release(to);
    to = make(world, PS_GPU(2), 10); /* no link: SIM_GPU_PEERS=0-1 */
    assert_int_equal(ps_tensor_copy(from, to, 0), PS_OK);
    assert_int_equal(traffic_of(world, 1).staged_count, 1);
    ps_tensor_release(from);
    ps_tensor_release(to);
}

static void peers_are_copied_directly_and_others_through_the_host(void **state)
{
    PS_UNUSED(state);
    everywhere(peers, "ENABLE_GPU_P2P=1");
}

static void rows(struct world *world)
{
    struct ps_tensor *gpu = NULL, *row = NULL, *cpu = make(world, PS_CPU(0), 3);
    float in[12], out[12] = {0}, middle[3];
    for (int i = 0; i < 12; i++) {
        in[i] = (float)i;
    }
    assert_int_equal(
        ps_tensor_create(world->engine, PS_GPU(2), PS_F32, &PS_SHAPE(4, 3), &gpu), PS_OK);
    assert_int_equal(ps_tensor_slice(gpu, 1, 2, &row), PS_OK);
    assert_int_equal(ps_tensor_write(gpu, in, sizeof(in), NULL), PS_OK);
    assert_int_equal(ps_tensor_copy(row, cpu, 0), PS_OK);
    assert_int_equal(ps_tensor_fill(row, -1), PS_OK);
    assert_int_equal(ps_tensor_read(cpu, middle, sizeof(middle), NULL), PS_OK);
    assert_memory_equal(middle, in + 3, sizeof(middle));
    assert_int_equal(ps_tensor_read(gpu, out, sizeof(out), NULL), PS_OK);
    assert_true(out[2] == 2 && out[3] == -1 && out[5] == -1 && out[6] == 6);
    ps_tensor_release(gpu);
    ps_tensor_release(row);
    ps_tensor_release(cpu);
}

static void rows_of_an_accelerators_tensor_are_filled_and_copied(void **state)
{
    PS_UNUSED(state);
    everywhere(rows, NULL);
}

/* ---- addresses ---- */

struct probe {
    struct ps_tensor *tensor;
    bool reached;
    enum ps_status status;
    char text[PS_ERROR_TEXT_BYTES];
};

static enum ps_status probe_run(void *arg, const struct ps_run *run, struct ps_error *err)
{
    struct probe *probe = arg;
    struct ps_error why = {.status = PS_OK};
    float *x = ps_tensor_address(probe->tensor, run);
    PS_UNUSED(err);
    probe->reached = x != NULL;
    if (x != NULL) {
        x[0] = 5;
    } else {
        probe->status = ps_tensor_no_address(probe->tensor, run, &why);
        memcpy(probe->text, why.text, sizeof(probe->text));
    }
    return PS_OK;
}

/* Whether work in 'context' reaches the tensor; the words when not. */
static bool reaches(struct world *world, struct ps_context context,
                    struct ps_tensor *tensor, const char *text)
{
    struct probe probe = {.tensor = tensor};
    struct ps_var *var = ps_tensor_var(tensor);
    struct ps_engine_op op = {.name = "probe",
                              .run = probe_run,
                              .arg = &probe,
                              .writes = &var,
                              .write_count = 1,
                              .context = context};
    assert_int_equal(ps_engine_push(world->engine, &op), PS_OK);
    assert_int_equal(ps_engine_wait_all(world->engine, NULL), PS_OK);
    if (!probe.reached) {
        assert_int_equal(probe.status, PS_EPERM);
        assert_string_equal(probe.text, text);
    }
    return probe.reached;
}

static void addresses(struct world *world)
{
    struct ps_tensor *cpu = make(world, PS_CPU(0), 4), *gpu = make(world, PS_GPU(1), 4);
    assert_true(reaches(world, PS_CPU(3), cpu, ""));
    assert_true(reaches(world, PS_GPU(1), gpu, ""));
    assert_false(
        reaches(world, PS_CPU(0), gpu, "work on cpu(0) cannot use a tensor of gpu(1)"));
    assert_false(
        reaches(world, PS_GPU(1), cpu, "work on gpu(1) cannot use a tensor of cpu(0)"));
    assert_false(
        reaches(world, PS_GPU(0), gpu, "work on gpu(0) cannot use a tensor of gpu(1)"));
    assert_int_equal(
        ps_device_enable_peer(device_of(world, PS_GPU(0)), device_of(world, PS_GPU(1))),
        PS_OK);
    assert_true(reaches(world, PS_GPU(0), gpu, ""));
    float out[4] = {0};
    assert_int_equal(ps_tensor_read(gpu, out, sizeof(out), NULL), PS_OK);
    assert_true(out[0] == 5);
    ps_tensor_release(cpu);
    ps_tensor_release(gpu);
}

static void work_reaches_its_own_memory_and_that_of_enabled_peers(void **state)
{
    PS_UNUSED(state);
    everywhere(addresses, "ENABLE_GPU_P2P=0");
}

/* ---- what can go wrong ---- */

static void memory_that_is_not_there_is_told_with_who_holds_it(void **state)
{
    struct world world;
    struct ps_error err = {.status = PS_OK};
    PS_UNUSED(state);
    open_world(&world, PS_ENGINE_NAIVE, "SIM_GPU_MEMORY=8M");
    struct ps_tensor *weight = make(&world, PS_GPU(0), 1 << 20);
    struct ps_tensor *large = make(&world, PS_GPU(0), 1 << 20);
    struct ps_tensor *cpu = make(&world, PS_CPU(0), 1 << 20);
    ps_tensor_set_label(weight, "conv1_weight");
    assert_int_equal(ps_tensor_fill(weight, 1), PS_OK);
    assert_int_equal(ps_tensor_fill(large, 1), PS_OK);
    assert_int_equal(ps_tensor_wait(large, &err), PS_ENOMEM);
    assert_string_equal(
        err.text, "tensor_fill: gpu(0): no memory for 4.0 MiB: 4.0 MiB requested, "
                  "4.0 MiB reserved, largest free 4.0 MiB of 4.0 MiB with 409.6 KiB "
                  "kept as reserve; top holders: conv1_weight 4.0 MiB");
    assert_int_equal(ps_tensor_copy(weight, large, 0), PS_OK);
    assert_int_equal(ps_tensor_wait(large, &err), PS_ENOMEM);
    ps_tensor_release(weight); /* its memory serves the next one */
    assert_int_equal(ps_tensor_fill(cpu, 7), PS_OK);
    assert_int_equal(ps_tensor_copy(cpu, large, 0), PS_OK);
    assert_int_equal(ps_tensor_wait(large, &err), PS_OK);
    ps_tensor_release(large);
    ps_tensor_release(cpu);
    close_world(&world);
}

static void a_copy_that_fails_spoils_what_it_should_have_written(void **state)
{
    float out[4] = {0}, in[4] = {1, 2, 3, 4};
    struct ps_error err = {.status = PS_OK};
    PS_UNUSED(state);
    for (int type = 0; type < ENGINES; type++) {
        struct world world;
        open_world(&world, type, "FAULT=device.copy:fail@2");
        struct ps_tensor *cpu = make(&world, PS_CPU(0), 4);
        struct ps_tensor *gpu = make(&world, PS_GPU(0), 4);
        assert_int_equal(ps_tensor_write(gpu, in, sizeof(in), NULL), PS_OK);
        assert_int_equal(ps_tensor_copy(gpu, cpu, 0), PS_OK);
        assert_int_equal(ps_tensor_read(cpu, out, sizeof(out), &err), PS_EFAULT);
        assert_int_equal(ps_tensor_copy(gpu, cpu, 0), PS_OK);
        assert_int_equal(ps_tensor_read(cpu, out, sizeof(out), &err), PS_OK);
        assert_memory_equal(in, out, sizeof(in));
        ps_tensor_release(cpu);
        ps_tensor_release(gpu);
        close_world(&world);
    }
}

static void copies_of_a_simulated_node_take_virtual_time(void **state)
{
    struct world world;
    PS_UNUSED(state);
    open_world(&world, SIM_NODE, NULL);
    struct ps_tensor *cpu = make(&world, PS_CPU(0), 3000000);
    struct ps_tensor *gpu = make(&world, PS_GPU(0), 3000000);
    assert_int_equal(ps_tensor_fill(cpu, 1), PS_OK);
    uint64_t start = ps_sim_now_ns(world.sim);
    assert_int_equal(ps_tensor_copy(cpu, gpu, 0), PS_OK);
    assert_int_equal(ps_tensor_wait(gpu, NULL), PS_OK);
    /* 12 MB at 12 GB/s and 10 us */
    assert_int_equal(ps_sim_now_ns(world.sim) - start, PS_NS_PER_MS + 10000);
    ps_tensor_release(cpu);
    ps_tensor_release(gpu);
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_copied_around_all_devices),
        cmocka_unit_test(peers_are_copied_directly_and_others_through_the_host),
        cmocka_unit_test(rows_of_an_accelerators_tensor_are_filled_and_copied),
        cmocka_unit_test(work_reaches_its_own_memory_and_that_of_enabled_peers),
        cmocka_unit_test(memory_that_is_not_there_is_told_with_who_holds_it),
        cmocka_unit_test(a_copy_that_fails_spoils_what_it_should_have_written),
        cmocka_unit_test(copies_of_a_simulated_node_take_virtual_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
