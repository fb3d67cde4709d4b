/* `penstock plan`: what memory a network needs, under which settings. */
#include "worker/commands.h"

#include "base/node.h"
#include "base/options.h"
#include "worker/plan_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct flags {
    const char *network, *symbol, *data_shape, *svg;
    int64_t batch_size, seq_len, classes, gpu;
    bool inference, json;
    struct ps_option_list set;
};

#define OPTION_COUNT 11

static void make_options(struct flags *f, struct ps_option options[OPTION_COUNT])
{
    const struct ps_option table[OPTION_COUNT] = {
        {"network", 0, PS_OPT_TEXT, &f->network, 0, 0, NULL, "NAME",
         "mlp, lenet, resnet-18, resnet-50, inception-bn or lstm"},
        {"symbol", 0, PS_OPT_TEXT, &f->symbol, 0, 0, NULL, "FILE",
         "a network as a symbol file (JSON) instead; its input is called data"},
        {"batch-size", 0, PS_OPT_INT, &f->batch_size, 1, 1 << 20, NULL, "N",
         "samples of one step"},
        {"data-shape", 0, PS_OPT_TEXT, &f->data_shape, 0, 0, NULL, "C,H,W",
         "shape of one sample, where it is not the network's own"},
        {"seq-len", 0, PS_OPT_INT, &f->seq_len, 1, PS_MODEL_STEPS_MAX, NULL, "N",
         "time steps of the lstm (256)"},
        {"classes", 0, PS_OPT_INT, &f->classes, 1, 1 << 20, NULL, "N",
         "outputs, where they are not as many as in the network's paper"},
        {"gpu", 0, PS_OPT_INT, &f->gpu, 0, 63, NULL, "N",
         "plan for gpu(N), which must be there; else for cpu(0)"},
        {"inference", 0, PS_OPT_FLAG, &f->inference, 0, 0, NULL, NULL,
         "plan forward only, not a training step"},
        {"json", 0, PS_OPT_FLAG, &f->json, 0, 0, NULL, NULL,
         "one JSON object: the plan under the settings in force"},
        {"svg", 0, PS_OPT_TEXT, &f->svg, 0, 0, NULL, "FILE",
         "write a picture of the memory that is alive at each operator"},
        {"set", 0, PS_OPT_LIST, &f->set, 0, 0, NULL, "NAME=VALUE",
         "a setting, as from the environment; may be given many times"},
    };
    memcpy(options, table, sizeof(table));
}

/* "3,224,224" */
static enum ps_status parse_shape(const char *text, struct ps_shape *shape_out,
                                  struct ps_error *err)
{
    struct ps_shape shape = {.ndim = 0};
    for (const char *at = text; at != NULL;) {
        char word[24];
        size_t size = strcspn(at, ",");
        bool fits = size < sizeof(word) && shape.ndim < PS_MAX_DIM - 1;
        if (fits) {
            memcpy(word, at, size);
            word[size] = '\0';
        }
        if (!fits || ps_parse_i64(word, &shape.dim[shape.ndim]) != PS_OK ||
            shape.dim[shape.ndim] < 1 || shape.dim[shape.ndim] > 1 << 20) {
            return ps_error_set(err, PS_EINVAL,
                                "data-shape \"%s\": up to %d numbers from 1 to %d like "
                                "3,224,224 are accepted",
                                text, PS_MAX_DIM - 1, 1 << 20);
        }
        shape.ndim++;
        at = at[size] == ',' ? at + size + 1 : NULL;
    }
    *shape_out = shape;
    return PS_OK;
}

/* What can be told from the command line alone. */
static enum ps_status check_flags(const struct flags *f, struct ps_net_options *options,
                                  struct ps_error *err)
{
    *options = (struct ps_net_options){
        .network = f->network,
        .symbol_path = f->symbol,
        .batch = f->batch_size,
        .size = {.classes = (int)f->classes, .steps = (int)f->seq_len},
        .inference = f->inference,
        .context = f->gpu >= 0 ? PS_GPU((int)f->gpu) : PS_CPU(0)};
    if ((f->network == NULL) == (f->symbol == NULL)) {
        return ps_error_set(err, PS_EINVAL,
                            "one of network and symbol says what is planned%s",
                            f->network == NULL ? "; see --help" : ", not both");
    }
    if (f->symbol != NULL && (f->seq_len != 0 || f->classes != 0)) {
        return ps_error_set(err, PS_EINVAL,
                            "%s cannot be chosen of a symbol file, which has its own",
                            f->seq_len != 0 ? "seq-len" : "classes");
    }
    if (f->symbol != NULL && f->data_shape == NULL) {
        return ps_error_set(err, PS_EINVAL,
                            "a symbol file needs data-shape, like 3,224,224");
    }
    if (f->network != NULL) {
        const struct ps_model *model = NULL;
        PS_TRY(ps_model_find(f->network, &model, err));
        PS_TRY(ps_model_check_size(model, &options->size, err));
        if (f->data_shape != NULL && model->size.steps != 0) {
            return ps_error_set(err, PS_EINVAL,
                                "network %s takes seq-len, not data-shape", model->name);
        }
    }
    return f->data_shape == NULL ? PS_OK
                                 : parse_shape(f->data_shape, &options->sample, err);
}

/* ---- the work ---- */

static const struct ps_net_choice as_set = {"as set", PS_NET_AS_SET, 0};
static const struct ps_net_choice plain = {"nothing computed again", PS_NET_PLAIN, 0};

static enum ps_status write_svg(const struct ps_net *net, const struct ps_net_plan *now,
                                const char *path, struct ps_error *err)
{
    const struct ps_net_plan *plans[2] = {now};
    struct ps_net_plan kept = {0};
    struct ps_str picture = {0};
    size_t count = 1;
    enum ps_status status = PS_OK;
    if (now->memory.mirrored_count > 0) {
        PS_TRY(ps_net_plan(net, &plain, &kept, err));
        plans[count++] = &kept;
    }
    PS_TRY_GOTO(status, ps_plan_show_svg(net, plans, count, &picture), out);
    status = ps_fs_write_all(ps_engine_node(net->options.engine)->fs, path, picture.data,
                             picture.size, err);
out:
    ps_str_fini(&picture);
    ps_net_plan_fini(&kept);
    return status;
}

static enum ps_status show(const struct ps_net *net, const struct ps_net_plan *now,
                           const struct flags *f, struct ps_str *out,
                           struct ps_error *err)
{
    if (f->svg != NULL) {
        PS_TRY(write_svg(net, now, f->svg, err));
    }
    if (f->json) {
        ps_plan_show_json(net, now, out);
        return out->failed ? PS_ENOMEM : PS_OK;
    }
    struct ps_net_plan *others = NULL;
    size_t count = 0;
    PS_TRY(ps_net_plan_others(net, &others, &count, err));
    enum ps_status status = ps_plan_show_text(net, now, others, count, out);
    free(others);
    return status;
}

static enum ps_status plan(const struct ps_net_options *options, const struct flags *f,
                           struct ps_error *err)
{
    struct ps_net net = {.name = NULL};
    struct ps_net_plan now = {0};
    struct ps_str out = {0};
    struct ps_device *device = NULL;
    enum ps_status status;
    PS_TRY_GOTO(status, ps_engine_device(options->engine, options->context, &device, err),
                out);
    PS_TRY_GOTO(status, ps_net_open(options, &net, err), out);
    PS_TRY_GOTO(status, ps_net_plan(&net, &as_set, &now, err), out);
    if (now.refused[0] != '\0') {
        status = ps_error_set(err, PS_ERANGE, "network %s: %s", net.name, now.refused);
        goto out;
    }
    PS_TRY_GOTO(status, show(&net, &now, f, &out, err), out);
    if (fputs(ps_str_text(&out), stdout) == EOF || fflush(stdout) != 0) {
        status = ps_error_set(err, PS_EIO, "the plan could not be written");
    }
out:
    ps_str_fini(&out);
    ps_net_plan_fini(&now);
    ps_net_close(&net);
    return status;
}

static int complain(const struct ps_error *err, enum ps_exit code)
{
    (void)fprintf(stderr, "penstock plan: %s\n", err->text);
    return (int)code;
}

/* Opens what binding needs, plans, closes. */
static int run(struct ps_net_options *options, const struct flags *f)
{
    struct ps_error err = {.status = PS_OK};
    struct ps_node *node = NULL;
    struct ps_kernels *kernels = NULL;
    struct ps_engine *engine = NULL;
    int code = PS_EXIT_FAIL;
    const char **overrides = calloc(f->set.count + 1, sizeof(*overrides));
    if (overrides == NULL) {
        return code;
    }
    for (size_t i = 0; i < f->set.count; i++) {
        overrides[i] = f->set.items[i];
    }
    struct ps_node_options node_options = {.name = "plan", .overrides = overrides};
    if (ps_node_open(&node_options, &node, &err) != PS_OK) {
        code = complain(&err, PS_EXIT_CONFIG);
        goto done;
    }
    enum ps_status status = ps_kernels_create(node->settings, node->log, &kernels, &err);
    if (status == PS_OK) {
        status = ps_engine_create(node, PS_ENGINE_FROM_SETTING, &engine, &err);
    }
    if (status == PS_OK) {
        options->engine = engine;
        options->kernels = kernels;
        status = plan(options, f, &err);
    }
    if (status != PS_OK && err.status == PS_OK) {
        (void)ps_error_set(&err, status, "%s", ps_status_text(status));
    }
    code =
        status == PS_OK ? PS_EXIT_OK : complain(&err, (enum ps_exit)ps_exit_code(status));
done:
    ps_engine_destroy(engine);
    ps_kernels_destroy(kernels);
    ps_node_close(node);
    free((void *)overrides);
    return code;
}

int ps_cmd_plan(int argc, char **argv)
{
    struct flags f = {.batch_size = 32, .gpu = -1};
    struct ps_option options[OPTION_COUNT];
    make_options(&f, options);
    const struct ps_command command = {
        .name = "penstock plan",
        .synopsis = "penstock plan --network NAME --batch-size N [options]",
        .summary = "Says what memory a training step of a network needs between its "
                   "operators,\nwhat each setting does to that, and which are worth "
                   "setting.",
        .options = options,
        .option_count = OPTION_COUNT,
    };
    struct ps_error err = {.status = PS_OK};
    struct ps_net_options net;
    int operand = 0, code = PS_EXIT_OK;
    bool help = false;
    if (ps_options_parse(&command, argc, argv, &operand, &help, &err) != PS_OK) {
        code = complain(&err, PS_EXIT_USAGE);
    } else if (!help && operand < argc) {
        (void)ps_error_set(&err, PS_EINVAL, "\"%s\" is not an option; see --help",
                           argv[operand]);
        code = complain(&err, PS_EXIT_USAGE);
    } else if (!help && check_flags(&f, &net, &err) != PS_OK) {
        code = complain(&err, PS_EXIT_USAGE);
    } else if (!help) {
        code = run(&net, &f);
    }
    free((void *)f.set.items);
    return code;
}
