/* The table of networks. */
#include "worker/models/models.h"

#include "base/str.h"

#include <strings.h>

const struct ps_model ps_models[] = {
    {"mlp", ps_model_mlp},
    {"lenet", ps_model_lenet},
    {NULL, NULL},
};

/* NULL when there is none of that name. */
static const struct ps_model *find_model(const char *name, struct ps_error *err)
{
    const char *names[PS_COUNT(ps_models)] = {0};
    for (size_t i = 0; ps_models[i].name != NULL; i++) {
        names[i] = ps_models[i].name;
        if (strcasecmp(name, names[i]) == 0) {
            return &ps_models[i];
        }
    }
    char list[128];
    const char *nearest = ps_nearest(name, names);
    (void)ps_error_set(
        err, PS_EINVAL, "network \"%s\" is unknown%s%s; one of %s is accepted", name,
        nearest != NULL ? ", nearest is " : "", nearest != NULL ? nearest : "",
        ps_join(names, list, sizeof(list)));
    return NULL;
}

enum ps_status ps_model_check(const char *name, struct ps_error *err)
{
    return find_model(name, err) != NULL ? PS_OK : PS_EINVAL;
}

enum ps_status ps_model_build(const char *name, int classes,
                              struct ps_symbol **symbol_out, struct ps_error *err)
{
    const struct ps_model *model = find_model(name, err);
    if (model == NULL) {
        return PS_EINVAL;
    }
    struct ps_builder *builder = NULL;
    PS_TRY(ps_builder_create(&builder));
    enum ps_status status =
        ps_builder_finish(builder, model->build(builder, classes), symbol_out, err);
    ps_builder_destroy(builder);
    return status;
}
