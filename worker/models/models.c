/* The table of networks. */
#include "worker/models/models.h"

#include "base/str.h"

#include <string.h>
#include <strings.h>

/* A network on images: for training or not, its function, channels, side, classes. */
#define IMAGES(train_, name_, build_, channels, side, classes_)               \
    {                                                                         \
        .name = (name_), .build = (build_), .train = (train_),                \
        .sample = {.ndim = 3, .dim = {(channels), (side), (side)}}, .size = { \
            .classes = (classes_)                                             \
        }                                                                     \
    }

const struct ps_model ps_models[] = {
    IMAGES(true, "mlp", ps_model_mlp, 1, 28, 10),
    IMAGES(true, "lenet", ps_model_lenet, 1, 28, 10),
    IMAGES(false, "resnet-18", ps_model_resnet_18, 3, 224, 1000),
    IMAGES(false, "resnet-50", ps_model_resnet_50, 3, 224, 1000),
    IMAGES(false, "inception-bn", ps_model_inception_bn, 3, 224, 1000),
    {.name = "lstm",
     .build = ps_model_lstm,
     .sample = {.ndim = 1, .dim = {256}},
     .size = {.classes = 256, .steps = 256},
     .state_layers = 2,
     .state_units = PS_MODEL_LSTM_UNITS},
    {.name = NULL},
};

/* The nearest of the networks, of those for training only where 'train' says so. */
static enum ps_status unknown(const char *name, bool train, struct ps_error *err)
{
    const char *names[PS_COUNT(ps_models)] = {0};
    size_t count = 0;
    for (size_t i = 0; ps_models[i].name != NULL; i++) {
        if (ps_models[i].train || !train) {
            names[count++] = ps_models[i].name;
        }
    }
    char list[160];
    const char *nearest = ps_nearest(name, names);
    return ps_error_set(
        err, PS_EINVAL, "network \"%s\" is unknown%s%s; one of %s is accepted", name,
        nearest != NULL ? ", nearest is " : "", nearest != NULL ? nearest : "",
        ps_join(names, list, sizeof(list)));
}

static const struct ps_model *find(const char *name)
{
    for (size_t i = 0; ps_models[i].name != NULL; i++) {
        if (strcasecmp(name, ps_models[i].name) == 0) {
            return &ps_models[i];
        }
    }
    return NULL;
}

enum ps_status ps_model_find(const char *name, const struct ps_model **model_out,
                             struct ps_error *err)
{
    const struct ps_model *model = find(name);
    if (model == NULL) {
        return unknown(name, false, err);
    }
    *model_out = model;
    return PS_OK;
}

enum ps_status ps_model_check(const char *name, struct ps_error *err)
{
    const struct ps_model *model = find(name);
    if (model == NULL) {
        return unknown(name, true, err);
    }
    if (!model->train) {
        return ps_error_set(err, PS_EINVAL,
                            "network %s cannot be trained on the data sets that there "
                            "are; `penstock plan` plans it",
                            model->name);
    }
    return PS_OK;
}

enum ps_status ps_model_check_size(const struct ps_model *model,
                                   const struct ps_model_size *size, struct ps_error *err)
{
    if (size->steps != 0 && model->size.steps == 0) {
        return ps_error_set(err, PS_EINVAL, "network %s has no time steps", model->name);
    }
    if (size->steps < 0 || size->steps > PS_MODEL_STEPS_MAX) {
        return ps_error_set(err, PS_EINVAL, "network %s: %d steps; 1 to %d are accepted",
                            model->name, size->steps, PS_MODEL_STEPS_MAX);
    }
    return PS_OK;
}

enum ps_status ps_model_build_sized(const struct ps_model *model,
                                    const struct ps_model_size *size,
                                    struct ps_symbol **symbol_out, struct ps_error *err)
{
    struct ps_model_size own = model->size;
    PS_TRY(ps_model_check_size(model, size, err));
    own.classes = size->classes != 0 ? size->classes : own.classes;
    own.steps = size->steps != 0 ? size->steps : own.steps;
    struct ps_builder *builder = NULL;
    PS_TRY(ps_builder_create(&builder));
    enum ps_status status =
        ps_builder_finish(builder, model->build(builder, &own), symbol_out, err);
    ps_builder_destroy(builder);
    return status;
}

enum ps_status ps_model_build(const char *name, int classes,
                              struct ps_symbol **symbol_out, struct ps_error *err)
{
    const struct ps_model *model = NULL;
    PS_TRY(ps_model_find(name, &model, err));
    return ps_model_build_sized(model, &(struct ps_model_size){.classes = classes},
                                symbol_out, err);
}

size_t ps_model_inputs(const struct ps_model *model, const struct ps_model_size *size,
                       int64_t batch, struct ps_named_shape inputs[PS_MODEL_INPUTS_MAX])
{
    static const char *const state_names[][2] = {{"l0_init_c", "l0_init_h"},
                                                 {"l1_init_c", "l1_init_h"}};
    struct ps_shape data = {.ndim = model->sample.ndim + 1, .dim = {batch}};
    struct ps_shape label = {.ndim = 1, .dim = {batch}};
    memcpy(data.dim + 1, model->sample.dim,
           (size_t)model->sample.ndim * sizeof(data.dim[0]));
    if (model->size.steps != 0) {
        data.dim[1] = size->steps != 0 ? size->steps : model->size.steps;
        label.ndim = 2;
        label.dim[1] = data.dim[1];
    }
    size_t count = 0;
    inputs[count++] = (struct ps_named_shape){"data", data};
    inputs[count++] = (struct ps_named_shape){"softmax_label", label};
    for (int layer = 0; layer < model->state_layers; layer++) {
        struct ps_shape state = {.ndim = 2, .dim = {batch, model->state_units}};
        inputs[count++] = (struct ps_named_shape){state_names[layer][0], state};
        inputs[count++] = (struct ps_named_shape){state_names[layer][1], state};
    }
    return count;
}
