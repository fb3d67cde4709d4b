/* The networks: names, counts of parameters as in their papers, shapes, and a step of
 * training of a small one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/node.h"
#include "base/rng.h"
#include "engine/graph/executor.h"
#include "worker/initializer.h"
#include "worker/models/models.h"

#define SEED 20151210

static bool is_input(const struct ps_named_shape *inputs, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(inputs[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

struct counts {
    size_t arguments, auxiliaries;
    int64_t parameters;
    struct ps_shape output;
};

/* Of the network in its paper's size, for a batch of 4. */
static struct counts count(const char *name)
{
    struct ps_error err = {.status = PS_OK};
    const struct ps_model *model = NULL;
    struct ps_symbol *symbol = NULL;
    struct ps_names names = {0};
    struct ps_inferred_shapes shapes = {0};
    struct ps_named_shape inputs[PS_MODEL_INPUTS_MAX];
    struct counts counts = {.parameters = 0};
    assert_int_equal(ps_model_find(name, &model, &err), PS_OK);
    size_t input_count = ps_model_inputs(model, &model->size, 4, inputs);
    enum ps_status status = ps_model_build(name, 0, &symbol, &err);
    if (status != PS_OK) {
        fail_msg("%s: %s", name, err.text);
    }
    assert_int_equal(ps_symbol_list_arguments(symbol, &names), PS_OK);
    status = ps_symbol_infer_shapes(symbol, inputs, input_count, &shapes, &err);
    if (status != PS_OK) {
        fail_msg("%s: %s", name, err.text);
    }
    assert_true(shapes.complete);
    counts.arguments = shapes.argument_count;
    counts.auxiliaries = shapes.auxiliary_count;
    counts.output = shapes.outputs[0];
    for (size_t i = 0; i < names.count; i++) {
        if (!is_input(inputs, input_count, names.names[i])) {
            counts.parameters += ps_shape_count(&shapes.arguments[i]);
        }
    }
    ps_inferred_shapes_fini(&shapes);
    ps_names_fini(&names);
    ps_symbol_release(symbol);
    return counts;
}

static void networks_have_the_parameters_of_their_papers(void **state)
{
    static const struct {
        const char *name;
        size_t arguments, auxiliaries;
        int64_t parameters, rows, classes;
    } rows[] = {
        {"mlp", 2 + 6, 0, 784 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10, 4, 10},
        {"lenet", 2 + 8, 0,
         20 * 25 + 20 + 50 * 20 * 25 + 50 + 800 * 500 + 500 + 5000 + 10, 4, 10},
        /* 53 convolutions without bias, 53 batch norms, one dense layer */
        {"resnet-50", 2 + 53 * 3 + 2, 53 * 2, 25557032, 4, 1000},
        /* 69 convolutions with bias, 69 batch norms, one dense layer */
        {"inception-bn", 2 + 69 * 4 + 2, 69 * 2, 11295240, 4, 1000},
        /* a table, per layer two products with bias, a dense layer; two states a layer */
        {"lstm", 2 + 4 + 1 + 8 + 2, 0,
         256 * 512 + 2 * 2 * (2048 * 512 + 2048) + 256 * 512 + 256, 4, 256},
        {"resnet-18", 2 + 20 * 3 + 2, 20 * 2, 11689512, 4, 1000},
    };
    (void)state;
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        struct counts counts = count(rows[i].name);
        if (counts.arguments != rows[i].arguments ||
            counts.auxiliaries != rows[i].auxiliaries ||
            counts.parameters != rows[i].parameters || counts.output.ndim != 2 ||
            counts.output.dim[0] != rows[i].rows ||
            counts.output.dim[1] != rows[i].classes) {
            fail_msg("%s: %zu arguments, %zu auxiliaries, %lld parameters, output %lld x "
                     "%lld",
                     rows[i].name, counts.arguments, counts.auxiliaries,
                     (long long)counts.parameters, (long long)counts.output.dim[0],
                     (long long)counts.output.dim[1]);
        }
    }
}

/* ---- a step of training ---- */

struct world {
    struct ps_node *node;
    struct ps_kernels *kernels;
    struct ps_engine *engine;
    struct ps_executor *executor;
};

static void world_open(struct world *w, struct ps_symbol *symbol,
                       const struct ps_named_shape *inputs, size_t input_count)
{
    static const char *const no_env[] = {NULL};
    struct ps_error err = {.status = PS_OK};
    const char *no_gradient[PS_MODEL_INPUTS_MAX + 1] = {NULL};
    struct ps_node_options options = {.name = "worker", .env = no_env};
    for (size_t i = 0; i < input_count; i++) {
        no_gradient[i] = inputs[i].name;
    }
    assert_int_equal(ps_node_open(&options, &w->node, &err), PS_OK);
    assert_int_equal(
        ps_kernels_create(w->node->settings, w->node->log, &w->kernels, &err), PS_OK);
    assert_int_equal(ps_engine_create(w->node, PS_ENGINE_FROM_SETTING, &w->engine, &err),
                     PS_OK);
    struct ps_bind_options bind = PS_BIND_OPTIONS(w->engine, w->kernels);
    struct ps_simple_bind simple = {.shapes = inputs,
                                    .shape_count = input_count,
                                    .req = PS_GRAD_WRITE,
                                    .no_gradient = no_gradient};
    enum ps_status status =
        ps_executor_simple_bind(symbol, &bind, &simple, &w->executor, &err);
    if (status != PS_OK) {
        fail_msg("%s", err.text);
    }
}

static void world_close(struct world *w)
{
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_engine_wait_all(w->engine, &err), PS_OK);
    ps_executor_destroy(w->executor);
    ps_engine_destroy(w->engine);
    ps_kernels_destroy(w->kernels);
    ps_node_close(w->node);
}

static float *floats_of(struct ps_tensor *tensor)
{
    struct ps_error err = {.status = PS_OK};
    float *values = malloc(ps_tensor_bytes(tensor));
    assert_non_null(values);
    enum ps_status status = ps_tensor_read(tensor, values, ps_tensor_bytes(tensor), &err);
    if (status != PS_OK) {
        fail_msg("%s", err.text);
    }
    return values;
}

/* Xavier weights; labels and tokens are classes; images are uniform in [0,1). */
static void fill_arguments(struct world *w, int classes, bool tokens)
{
    struct ps_error err = {.status = PS_OK};
    size_t count = ps_executor_argument_count(w->executor);
    for (size_t i = 0; i < count + ps_executor_auxiliary_count(w->executor); i++) {
        bool argument = i < count;
        const char *name = argument ? ps_executor_argument_name(w->executor, i)
                                    : ps_executor_auxiliary_name(w->executor, i - count);
        struct ps_tensor *tensor = argument
                                       ? ps_executor_argument(w->executor, i)
                                       : ps_executor_auxiliary(w->executor, i - count);
        float *values = malloc(ps_tensor_bytes(tensor));
        assert_non_null(values);
        ps_initialize(name, ps_tensor_shape(tensor), SEED, values);
        bool data = strcmp(name, "data") == 0;
        if (data || strcmp(name, "softmax_label") == 0) {
            for (int64_t k = 0; k < ps_tensor_count(tensor); k++) {
                float unit = ps_rng_unit_at(SEED, data, (uint64_t)k);
                values[k] = data && !tokens ? unit : floorf(unit * (float)classes);
            }
        }
        assert_int_equal(ps_tensor_write(tensor, values, ps_tensor_bytes(tensor), &err),
                         PS_OK);
        free(values);
    }
}

/* The sum of -ln p[label] over the rows of output t, whose labels are the t-th column. */
static double output_loss(struct world *w, size_t t, const float *labels, int64_t steps)
{
    struct ps_tensor *output = ps_executor_output(w->executor, t);
    int64_t rows = ps_tensor_shape(output)->dim[0];
    int64_t classes = ps_tensor_shape(output)->dim[1];
    float *p = floats_of(output);
    double loss = 0;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < classes; c++) {
            sum += p[r * classes + c];
        }
        assert_true(fabs(sum - 1) < 1e-4);
        loss -= log(p[r * classes + (int64_t)labels[r * steps + (int64_t)t]]);
    }
    free(p);
    return loss;
}

/* Forward, backward; the loss of all outputs. */
static double step(struct world *w)
{
    struct ps_error err = {.status = PS_OK};
    assert_int_equal(ps_executor_forward(w->executor, true, &err), PS_OK);
    assert_int_equal(ps_executor_backward(w->executor, NULL, &err), PS_OK);
    size_t outputs = ps_executor_output_count(w->executor);
    float *labels = floats_of(ps_executor_find_argument(w->executor, "softmax_label"));
    double loss = 0;
    for (size_t t = 0; t < outputs; t++) {
        loss += output_loss(w, t, labels, (int64_t)outputs);
    }
    free(labels);
    return loss;
}

/* w -= rate * dw; every gradient is finite and not all zero. */
static void descend(struct world *w, float rate)
{
    struct ps_error err = {.status = PS_OK};
    for (size_t i = 0; i < ps_executor_argument_count(w->executor); i++) {
        struct ps_tensor *gradient = ps_executor_gradient(w->executor, i);
        struct ps_tensor *weight = ps_executor_argument(w->executor, i);
        if (gradient == NULL) {
            continue;
        }
        float *dw = floats_of(gradient), *x = floats_of(weight);
        double norm = 0;
        for (int64_t k = 0; k < ps_tensor_count(weight); k++) {
            norm += (double)dw[k] * dw[k];
            x[k] -= rate * dw[k];
        }
        if (!isfinite(norm) || !(norm > 0)) {
            fail_msg("gradient of %s: norm %g", ps_executor_argument_name(w->executor, i),
                     sqrt(norm));
        }
        assert_int_equal(ps_tensor_write(weight, x, ps_tensor_bytes(weight), &err),
                         PS_OK);
        free(dw);
        free(x);
    }
}

/* A step downhill lowers the loss of the batch it was made for. */
static void train_a_step(const char *name, int classes, int64_t batch, int64_t side,
                         int steps, float rate)
{
    struct ps_error err = {.status = PS_OK};
    const struct ps_model *model = NULL;
    struct ps_symbol *symbol = NULL;
    struct ps_named_shape inputs[PS_MODEL_INPUTS_MAX];
    struct ps_model_size size = {.classes = classes, .steps = steps};
    struct world w = {0};
    assert_int_equal(ps_model_find(name, &model, &err), PS_OK);
    assert_int_equal(ps_model_build_sized(model, &size, &symbol, &err), PS_OK);
    size_t input_count = ps_model_inputs(model, &size, batch, inputs);
    for (int i = 2; i < inputs[0].shape.ndim; i++) {
        inputs[0].shape.dim[i] = side;
    }
    world_open(&w, symbol, inputs, input_count);
    fill_arguments(&w, classes, steps != 0);
    double before = step(&w);
    descend(&w, rate);
    double after = step(&w);
    if (!isfinite(before) || !(after < before)) {
        fail_msg("%s: loss %g, after a step %g", name, before, after);
    }
    world_close(&w);
    ps_symbol_release(symbol);
}

static void a_residual_network_learns(void **state)
{
    (void)state;
    train_a_step("resnet-18", 10, 4, 32, 0, 1e-6F);
    train_a_step("ResNet-50", 10, 2, 64, 0, 1e-6F);
}

static void an_inception_network_learns(void **state)
{
    (void)state;
    train_a_step("inception-bn", 10, 1, 224, 0, 1e-6F);
}

static void an_lstm_learns(void **state)
{
    (void)state;
    train_a_step("lstm", 20, 3, 0, 5, 1e-3F);
}

/* Every weight is one argument, however many steps use it; outputs come in order. */
static void an_lstm_shares_its_weights_over_the_steps(void **state)
{
    struct ps_error err = {.status = PS_OK};
    const struct ps_model *model = NULL;
    struct ps_symbol *symbol = NULL;
    struct ps_names arguments = {0}, outputs = {0};
    (void)state;
    assert_int_equal(ps_model_find("lstm", &model, &err), PS_OK);
    assert_int_equal(
        ps_model_build_sized(model, &(struct ps_model_size){.steps = 3}, &symbol, &err),
        PS_OK);
    assert_int_equal(ps_symbol_list_arguments(symbol, &arguments), PS_OK);
    assert_int_equal(ps_symbol_list_outputs(symbol, &outputs), PS_OK);
    assert_int_equal(arguments.count, 17);
    assert_true(ps_names_index(&arguments, "l1_h2h_weight") >= 0);
    assert_int_equal(outputs.count, 3);
    assert_string_equal(outputs.names[2], "t2_sm_output");
    assert_string_equal(ps_symbol_node_attr(symbol, "t2_l1_c", "mirror_stage"), "2");
    ps_names_fini(&arguments);
    ps_names_fini(&outputs);
    ps_symbol_release(symbol);
    symbol = NULL;
    assert_int_equal(ps_model_build_sized(model, &(struct ps_model_size){.steps = 5000},
                                          &symbol, &err),
                     PS_EINVAL);
    assert_non_null(strstr(err.text, "4096"));
}

static void unknown_networks_and_sizes_are_refused(void **state)
{
    struct ps_error err = {.status = PS_OK};
    const struct ps_model *model = NULL;
    struct ps_symbol *symbol = NULL;
    (void)state;
    assert_int_equal(ps_model_find("resnet50", &model, &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "nearest is resnet-50"));
    assert_int_equal(ps_model_check("lenett", &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "nearest is lenet"));
    assert_int_equal(ps_model_check("resnet-50", &err), PS_EINVAL);
    assert_non_null(strstr(err.text, "penstock plan"));
    assert_int_equal(ps_model_check("LeNet", &err), PS_OK);
    assert_int_equal(ps_model_find("lenet", &model, &err), PS_OK);
    assert_int_equal(
        ps_model_build_sized(model, &(struct ps_model_size){.steps = 3}, &symbol, &err),
        PS_EINVAL);
    assert_null(symbol);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_have_the_parameters_of_their_papers),
        cmocka_unit_test(a_residual_network_learns),
        cmocka_unit_test(an_inception_network_learns),
        cmocka_unit_test(an_lstm_learns),
        cmocka_unit_test(an_lstm_shares_its_weights_over_the_steps),
        cmocka_unit_test(unknown_networks_and_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
