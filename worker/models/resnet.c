/* ResNet (He et al. 2015, arXiv 1512.03385, table 1), form v1.5: a bottleneck halves the
 * image in its 3x3 convolution, not in its first 1x1.  Names as in MXNet's
 * example/image-classification/symbols/resnet-v1.py.  Each residual unit's output is a
 * mirror stage: a place where recomputation may cut. */
#include "worker/models/models.h"

/* Units of the four stages; a bottleneck (1x1, 3x3, 1x1) gives four times the filters of
 * its 3x3, a plain unit (3x3, 3x3) as many. */
struct resnet {
    int units[4];
    bool bottleneck;
};
static const struct resnet resnet_18 = {{2, 2, 2, 2}, false};
static const struct resnet resnet_50 = {{3, 4, 6, 3}, true};

/* Convolution and batch norm, called <name>_conv<part> and <name>_bn<part>. */
static struct ps_symbol *conv_bn(struct ps_builder *b, const char *name, int part,
                                 const char *conv, struct ps_symbol *x)
{
    x = ps_builder_op(b, "Convolution", ps_builder_text(b, "%s_conv%d", name, part), conv,
                      x);
    return ps_builder_op(b, "BatchNorm", ps_builder_text(b, "%s_bn%d", name, part),
                         "fix_gamma=False eps=2e-5 momentum=0.9", x);
}

static struct ps_symbol *relu(struct ps_builder *b, const char *name, int part,
                              struct ps_symbol *x)
{
    return ps_builder_op(b, "Activation", ps_builder_text(b, "%s_relu%d", name, part),
                         "act_type=relu", x);
}

static const char *conv_text(struct ps_builder *b, int kernel, int stride, int filters)
{
    return ps_builder_text(
        b, "kernel=(%d,%d) stride=(%d,%d) pad=(%d,%d) num_filter=%d no_bias=True", kernel,
        kernel, stride, stride, kernel / 2, kernel / 2, filters);
}

/* x + F(x): 'width' filters inside, 'project' when x has another shape. */
static struct ps_symbol *unit(struct ps_builder *b, const char *name, bool bottleneck,
                              int width, int stride, bool project, struct ps_symbol *x)
{
    int filters = bottleneck ? 4 * width : width, last = bottleneck ? 3 : 2;
    struct ps_symbol *shortcut = x, *y = x;
    if (bottleneck) {
        y = relu(b, name, 1, conv_bn(b, name, 1, conv_text(b, 1, 1, width), y));
        y = relu(b, name, 2, conv_bn(b, name, 2, conv_text(b, 3, stride, width), y));
        y = conv_bn(b, name, 3, conv_text(b, 1, 1, filters), y);
    } else {
        y = relu(b, name, 1, conv_bn(b, name, 1, conv_text(b, 3, stride, width), y));
        y = conv_bn(b, name, 2, conv_text(b, 3, 1, filters), y);
    }
    if (project) {
        shortcut = ps_builder_op(b, "Convolution", ps_builder_text(b, "%s_conv1sc", name),
                                 conv_text(b, 1, stride, filters), x);
        shortcut = ps_builder_op(b, "BatchNorm", ps_builder_text(b, "%s_sc", name),
                                 "fix_gamma=False eps=2e-5 momentum=0.9", shortcut);
    }
    y = ps_builder_op(b, "elemwise_add", ps_builder_text(b, "%s_plus", name), NULL, y,
                      shortcut);
    return ps_builder_attr(b, relu(b, name, last, y), "mirror_stage", "True");
}

static struct ps_symbol *resnet(struct ps_builder *b, const struct resnet *net,
                                int classes)
{
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "Convolution", "conv0", conv_text(b, 7, 2, 64), x);
    x = ps_builder_op(b, "BatchNorm", "bn0", "fix_gamma=False eps=2e-5 momentum=0.9", x);
    x = ps_builder_op(b, "Activation", "relu0", "act_type=relu", x);
    x = ps_builder_op(b, "Pooling", "pooling0",
                      "pool_type=max kernel=(3,3) stride=(2,2) pad=(1,1)", x);
    for (int stage = 0; stage < 4; stage++) {
        for (int i = 0; i < net->units[stage]; i++) {
            int stride = stage > 0 && i == 0 ? 2 : 1;
            bool project = i == 0 && (stage > 0 || net->bottleneck);
            x = unit(b, ps_builder_text(b, "stage%d_unit%d", stage + 1, i + 1),
                     net->bottleneck, 64 << stage, stride, project, x);
        }
    }
    x = ps_builder_op(b, "Pooling", "pool1",
                      "global_pool=True kernel=(7,7) pool_type=avg", x);
    x = ps_builder_op(b, "Flatten", "flatten0", NULL, x);
    x = ps_builder_op(b, "FullyConnected", "fc1",
                      ps_builder_text(b, "num_hidden=%d", classes), x);
    return ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x);
}

struct ps_symbol *ps_model_resnet_18(struct ps_builder *b,
                                     const struct ps_model_size *size)
{
    return resnet(b, &resnet_18, size->classes);
}

struct ps_symbol *ps_model_resnet_50(struct ps_builder *b,
                                     const struct ps_model_size *size)
{
    return resnet(b, &resnet_50, size->classes);
}
