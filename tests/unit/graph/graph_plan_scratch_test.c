/* Scratch of operators: EXEC_NUM_TEMP workspaces at most on a device, no more than a GPU
 * has threads, one for each colour; or a place in the arena for as long as the step. */
#include "engine/graph/exec_core.h"
#include "tests/unit/graph/graph_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A node with one simulated GPU of 'threads' threads, and EXEC_NUM_TEMP=temp. */
static void open_gpu(struct graph_world *world, int temp, int threads)
{
    struct ps_error err = {0};
    struct ps_str text[2] = {{0}, {0}};
    ps_str_printf(&text[0], "EXEC_NUM_TEMP=%d", temp);
    ps_str_printf(&text[1], "GPU_WORKER_NTHREADS=%d", threads);
    const char *env[] = {NULL};
    const char *overrides[] = {"LOG=error", "SIM_GPUS=1", ps_str_text(&text[0]),
                               ps_str_text(&text[1]), NULL};
    struct ps_node_options options = {.name = "test", .env = env, .overrides = overrides};
    assert_int_equal(ps_node_open(&options, &world->node, &err), PS_OK);
    assert_int_equal(
        ps_kernels_create(world->node->settings, world->node->log, &world->kernels, &err),
        PS_OK);
    assert_int_equal(
        ps_engine_create(world->node, PS_ENGINE_PER_DEVICE, &world->engine, &err), PS_OK);
    ps_str_fini(&text[0]);
    ps_str_fini(&text[1]);
}

/* Two convolutions that know nothing of each other; each wants scratch, forward and
 * backward, and tanh's output leads from one to the other. */
static struct ps_symbol *two_branches(void)
{
    struct ps_builder *b = builder_new();
    static const char *const names[] = {"left", "right"}, *const inputs[] = {"x", "y"};
    struct ps_symbol *outputs[2];
    for (int i = 0; i < 2; i++) {
        struct ps_symbol *conv =
            ps_builder_op(b, "Convolution", names[i],
                          "kernel=(3,3) pad=(1,1) num_filter=8 no_bias=True",
                          ps_builder_variable(b, inputs[i]));
        outputs[i] =
            ps_builder_op(b, "Activation", ps_builder_text(b, "%s_act", names[i]),
                          "act_type=tanh", conv);
    }
    return finish(b, ps_builder_group(b, outputs, 2));
}

static struct ps_executor *bind_branches(const struct graph_world *world,
                                         struct ps_symbol *net, enum ps_grad_req req)
{
    struct ps_error err = {0};
    struct ps_shape image = PS_SHAPE(2, 8, 12, 12);
    struct ps_named_shape shapes[] = {{"x", image}, {"y", image}};
    struct ps_simple_bind bind = {.shapes = shapes, .shape_count = 2, .req = req};
    struct ps_bind_options options = world_options(world);
    struct ps_executor *executor = NULL;
    options.context = PS_GPU(0);
    options.bulk = 1;
    options.plan = PS_PLAN_BLOCKS;
    if (ps_executor_simple_bind(net, &options, &bind, &executor, &err) != PS_OK) {
        fail_msg("%s", err.text);
    }
    return executor;
}

/* ---- gated: the left branch's input is written by an operation that is let go ---- */

struct gate {
    struct ps_completion *done;
};

static void hold(void *arg, const struct ps_run *run, struct ps_completion *done)
{
    (void)run;
    ((struct gate *)arg)->done = done;
}

static enum ps_status nothing(void *arg, const struct ps_run *run, struct ps_error *err)
{
    (void)arg, (void)run, (void)err;
    return PS_OK;
}

/* Some operations one after the other through a device's lane: what was ready before them
 * was taken before them. */
static void pass_lane(const struct graph_world *world, struct ps_context context)
{
    struct ps_error err = {0};
    struct ps_var *var = NULL;
    assert_int_equal(ps_var_create(world->engine, &var), PS_OK);
    struct ps_engine_op op = {.name = "pass",
                              .run = nothing,
                              .writes = &var,
                              .write_count = 1,
                              .context = context,
                              .kind = PS_ENGINE_NORMAL};
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ps_engine_push(world->engine, &op), PS_OK);
    }
    assert_int_equal(ps_engine_wait_var(world->engine, var, &err), PS_OK);
    ps_var_delete(world->engine, var);
}

/* On return the gate is held. */
static void shut(const struct graph_world *world, struct ps_executor *executor,
                 struct gate *gate)
{
    struct ps_var *x = ps_tensor_var(ps_executor_find_argument(executor, "x"));
    struct ps_engine_op op = {.name = "gate",
                              .start = hold,
                              .arg = gate,
                              .writes = &x,
                              .write_count = 1,
                              .context = PS_CPU(0),
                              .kind = PS_ENGINE_ASYNC};
    assert_int_equal(ps_engine_wait_all(world->engine, NULL), PS_OK);
    assert_int_equal(ps_engine_push(world->engine, &op), PS_OK);
    pass_lane(world, PS_CPU(0));
    assert_non_null(gate->done);
}

static void run_branches(int temp, int threads, size_t workspaces, bool parallel)
{
    struct graph_world world;
    struct ps_error err = {0};
    open_gpu(&world, temp, threads);
    struct ps_symbol *net = two_branches();
    struct ps_executor *executor = bind_branches(&world, net, PS_GRAD_NULL);
    const struct ps_exec_core *core = executor->core;
    assert_int_equal(core->workspace_count, workspaces);
    assert_true(core->workspace_bytes > 0);
    struct ps_tensor *right = ps_executor_output(executor, 1);
    struct gate gate = {NULL};
    shut(&world, executor, &gate);
    uint64_t before = ps_var_version(ps_tensor_var(right));
    run_forward(executor, false);
    if (parallel) { /* the right branch ends while the left has not begun */
        assert_int_equal(ps_tensor_wait(right, &err), PS_OK);
        assert_true(ps_var_version(ps_tensor_var(right)) > before);
    } else {
        pass_lane(&world, PS_GPU(0));
        assert_int_equal(ps_var_version(ps_tensor_var(right)), before);
    }
    ps_engine_complete(gate.done, PS_OK, NULL);
    assert_int_equal(ps_tensor_wait(right, &err), PS_OK);
    assert_int_equal(ps_tensor_wait(ps_executor_output(executor, 0), &err), PS_OK);
    assert_true(ps_var_version(ps_tensor_var(right)) > before);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
    world_close(&world);
}

static void setting_exec_num_temp_1_runs_branches_with_scratch_one_by_one(void **state)
{
    (void)state;
    run_branches(1, 2, 1, false);
}

static void setting_exec_num_temp_2_runs_branches_with_scratch_side_by_side(void **state)
{
    (void)state;
    run_branches(2, 2, 2, true);
}

static void setting_exec_num_temp_is_no_more_than_the_threads_of_a_gpu(void **state)
{
    (void)state;
    run_branches(2, 1, 1, false);
    run_branches(8, 2, 2, true);
}

/* Left and right, forward and backward: four users of scratch, two colours. */
static void same_coloured_operators_share_a_workspace_and_its_variable(void **state)
{
    (void)state;
    struct graph_world world;
    open_gpu(&world, 2, 2);
    struct ps_symbol *net = two_branches();
    struct ps_executor *executor = bind_branches(&world, net, PS_GRAD_WRITE);
    const struct ps_exec_core *core = executor->core;
    const struct ps_tensor *side[2] = {NULL, NULL};
    size_t users = 0;
    assert_int_equal(core->workspace_count, 2);
    for (size_t n = 0; n < core->graph.node_count; n++) {
        const struct ps_graph_node *node = &core->graph.nodes[n];
        if (core->workspace_of[n] == NULL) {
            continue;
        }
        bool right = strncmp(node->name, "right", 5) == 0;
        assert_true(side[right] == NULL || side[right] == core->workspace_of[n]);
        side[right] = core->workspace_of[n];
        users++;
    }
    assert_int_equal(users, 4);
    assert_ptr_not_equal(side[0], side[1]);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
    world_close(&world);
}

/* ---- colours of the memory plan ---- */

/* x -> two chains of 'length' operators, unlike sizes of nothing, that meet at the end.
 */
static struct ps_symbol *two_chains(int length)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "x"), *side[2] = {x, x};
    for (int i = 0; i < length; i++) {
        for (int k = 0; k < 2; k++) {
            side[k] =
                ps_builder_op(b, "broadcast_add", ps_builder_text(b, "c%d_%d", k, i),
                              NULL, side[k], side[k]);
        }
    }
    return finish(b, ps_builder_op(b, "broadcast_mul", "end", NULL, side[0], side[1]));
}

static void
setting_exec_num_temp_colours_keep_branches_in_blocks_of_their_own(void **state)
{
    (void)state;
    struct ps_symbol *net = two_chains(6);
    size_t blocks[2];
    for (int temp = 1; temp <= 2; temp++) {
        struct graph_world world;
        open_gpu(&world, temp, 2);
        struct ps_named_shape shape = {"x", PS_SHAPE(64)};
        struct ps_simple_bind bind = {.shapes = &shape, .shape_count = 1};
        struct ps_bind_options options = world_options(&world);
        struct ps_executor *executor = NULL;
        struct ps_error err = {0};
        options.context = PS_GPU(0);
        assert_int_equal(ps_executor_simple_bind(net, &options, &bind, &executor, &err),
                         PS_OK);
        const struct ps_exec_core *core = executor->core;
        bool in[2][64] = {{false}};
        for (size_t n = 0; n < core->graph.node_count; n++) {
            const struct ps_graph_node *node = &core->graph.nodes[n];
            if (node->name[0] == 'c') {
                uint32_t group = core->plan.group_of[node->first_entry];
                in[node->name[1] - '0'][core->plan.groups[group].block] = true;
            }
        }
        size_t common = 0;
        for (size_t i = 0; i < 64; i++) {
            common += in[0][i] && in[1][i] ? 1 : 0;
        }
        assert_true(temp == 1 ? common > 0 : common == 0);
        blocks[temp - 1] = core->plan.block_count;
        assert_true((core->colour_of != NULL) == (temp == 2));
        ps_executor_destroy(executor);
        world_close(&world);
    }
    assert_true(blocks[0] < blocks[1]); /* what the parallelism costs */
    ps_symbol_release(net);
}

/* ---- scratch in the arena ---- */

static struct ps_symbol *chain_of_convolutions(void)
{
    struct ps_builder *b = builder_new();
    struct ps_symbol *x = ps_builder_variable(b, "data");
    for (int i = 0; i < 4; i++) {
        x = ps_builder_op(b, "Convolution", NULL,
                          ps_builder_text(b, "kernel=(3,3) num_filter=%d", 16 >> i), x);
        x = ps_builder_op(b, "Activation", NULL, "act_type=relu", x);
    }
    x = ps_builder_op(b, "sum", NULL, NULL, x);
    return finish(b, ps_builder_op(b, "MakeLoss", NULL, NULL, x));
}

static void scratch_in_the_arena_costs_only_where_it_meets_the_peak(void **state)
{
    (void)state;
    struct graph_world world;
    struct ps_error err = {0};
    world_open(&world, PS_ENGINE_NAIVE, NULL);
    struct ps_symbol *net = chain_of_convolutions();
    struct ps_named_shape shape = {"data", PS_SHAPE(2, 8, 20, 20)};
    struct ps_simple_bind bind = {
        .shapes = &shape, .shape_count = 1, .req = PS_GRAD_WRITE};
    struct ps_bind_options options = world_options(&world);
    struct ps_executor *executor = NULL;
    assert_int_equal(ps_executor_simple_bind(net, &options, &bind, &executor, &err),
                     PS_OK);
    const struct ps_exec_core *core = executor->core;
    assert_int_equal(core->plan_kind, PS_PLAN_OFFSETS);
    assert_int_equal(core->peak_bytes, core->internal_bytes + core->workspace_bytes);
    size_t most_live = 0, most_scratch = 0;
    for (size_t s = 0; s < core->plan.step_count; s++) {
        most_live = PS_MAX(most_live, core->plan.live_bytes[s]);
        most_scratch = PS_MAX(most_scratch, core->plan.scratch_bytes[s]);
    }
    assert_true(most_scratch > 0);
    assert_true(core->peak_bytes < most_live + most_scratch);
    assert_true(core->peak_bytes < ps_memory_plan_peak(&core->plan, PS_LAYOUT_BLOCKS));
    struct ps_var *arena = ps_tensor_var(core->blocks[0]);
    for (size_t n = 0; n < core->plan.step_count; n++) {
        if (core->workspace_of[n] != NULL) {
            assert_ptr_equal(ps_tensor_var(core->workspace_of[n]), arena);
            assert_int_equal(ps_tensor_bytes(core->workspace_of[n]),
                             core->plan.scratch_bytes[n]);
        }
    }
    run_step(executor, true);
    ps_executor_destroy(executor);
    ps_symbol_release(net);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_exec_num_temp_1_runs_branches_with_scratch_one_by_one),
        cmocka_unit_test(setting_exec_num_temp_2_runs_branches_with_scratch_side_by_side),
        cmocka_unit_test(setting_exec_num_temp_is_no_more_than_the_threads_of_a_gpu),
        cmocka_unit_test(same_coloured_operators_share_a_workspace_and_its_variable),
        cmocka_unit_test(
            setting_exec_num_temp_colours_keep_branches_in_blocks_of_their_own),
        cmocka_unit_test(scratch_in_the_arena_costs_only_where_it_meets_the_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
