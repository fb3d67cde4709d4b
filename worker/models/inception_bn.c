/* Inception with batch norm (Ioffe, Szegedy 2015, arXiv 1502.03167, figure 5), in the
 * form, and with the names, of MXNet's
 * example/image-classification/symbols/inception-bn.py; convolutions have a bias there,
 * so its files fit.  Each module's output is a mirror stage. */
#include "worker/models/models.h"

/* A module's filters.  Four towers over x, side by side in the output: 1x1; 1x1 and 3x3;
 * 1x1 and two 3x3; pooling and 1x1.  A module without 'one' halves the image: its last
 * 3x3 convolutions and its (max) pooling have stride 2, and nothing follows the pooling.
 */
struct module {
    const char *name;
    int one, three_reduce, three, double_reduce, twice;
    const char *pool;
    int projection;
};
static const struct module modules[] = {
    {"3a", 64, 64, 64, 64, 96, "avg", 32},
    {"3b", 64, 64, 96, 64, 96, "avg", 64},
    {"3c", 0, 128, 160, 64, 96, "max", 0},
    {"4a", 224, 64, 96, 96, 128, "avg", 128},
    {"4b", 192, 96, 128, 96, 128, "avg", 128},
    {"4c", 160, 128, 160, 128, 160, "avg", 128},
    {"4d", 96, 128, 192, 160, 192, "avg", 128},
    {"4e", 0, 128, 192, 192, 256, "max", 0},
    {"5a", 352, 192, 320, 160, 224, "avg", 128},
    {"5b", 352, 192, 320, 192, 224, "max", 128},
};

/* Convolution, batch norm, relu: conv_<name>, bn_<name>, relu_<name>. */
static struct ps_symbol *conv(struct ps_builder *b, const char *name, int kernel,
                              int stride, int filters, struct ps_symbol *x)
{
    x = ps_builder_op(b, "Convolution", ps_builder_text(b, "conv_%s", name),
                      ps_builder_text(b,
                                      "kernel=(%d,%d) stride=(%d,%d) pad=(%d,%d) "
                                      "num_filter=%d",
                                      kernel, kernel, stride, stride, kernel / 2,
                                      kernel / 2, filters),
                      x);
    x = ps_builder_op(b, "BatchNorm", ps_builder_text(b, "bn_%s", name),
                      "fix_gamma=False eps=1.00001e-05 momentum=0.9", x);
    return ps_builder_op(b, "Activation", ps_builder_text(b, "relu_%s", name),
                         "act_type=relu", x);
}

static struct ps_symbol *module(struct ps_builder *b, const struct module *m,
                                struct ps_symbol *x)
{
    int stride = m->one == 0 ? 2 : 1, count = 0;
    struct ps_symbol *towers[4], *y;
    if (m->one != 0) {
        towers[count++] = conv(b, ps_builder_text(b, "%s_1x1", m->name), 1, 1, m->one, x);
    }

    y = conv(b, ps_builder_text(b, "%s_3x3_reduce", m->name), 1, 1, m->three_reduce, x);
    towers[count++] =
        conv(b, ps_builder_text(b, "%s_3x3", m->name), 3, stride, m->three, y);

    y = conv(b, ps_builder_text(b, "%s_double_3x3_reduce", m->name), 1, 1,
             m->double_reduce, x);
    y = conv(b, ps_builder_text(b, "%s_double_3x3_0", m->name), 3, 1, m->twice, y);
    towers[count++] =
        conv(b, ps_builder_text(b, "%s_double_3x3_1", m->name), 3, stride, m->twice, y);

    y = ps_builder_op(
        b, "Pooling", ps_builder_text(b, "%s_pool_%s_pool", m->pool, m->name),
        ps_builder_text(b, "kernel=(3,3) stride=(%d,%d) pad=(1,1) pool_type=%s", stride,
                        stride, m->pool),
        x);
    if (m->projection != 0) {
        y = conv(b, ps_builder_text(b, "%s_proj", m->name), 1, 1, m->projection, y);
    }
    towers[count++] = y;
    y = ps_builder_compose(b, "Concat",
                           ps_builder_text(b, "ch_concat_%s_chconcat", m->name), NULL,
                           towers, (size_t)count);
    return ps_builder_attr(b, y, "mirror_stage", "True");
}

struct ps_symbol *ps_model_inception_bn(struct ps_builder *b,
                                        const struct ps_model_size *size)
{
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = conv(b, "1", 7, 2, 64, x);
    x = ps_builder_op(b, "Pooling", "pool_1", "kernel=(3,3) stride=(2,2) pool_type=max",
                      x);
    x = conv(b, "2_red", 1, 1, 64, x);
    x = conv(b, "2", 3, 1, 192, x);
    x = ps_builder_op(b, "Pooling", "pool_2", "kernel=(3,3) stride=(2,2) pool_type=max",
                      x);
    for (size_t i = 0; i < PS_COUNT(modules); i++) {
        x = module(b, &modules[i], x);
    }
    x = ps_builder_op(b, "Pooling", "global_pool",
                      "kernel=(7,7) stride=(1,1) pool_type=avg", x);
    x = ps_builder_op(b, "Flatten", "flatten", NULL, x);
    x = ps_builder_op(b, "FullyConnected", "fc1",
                      ps_builder_text(b, "num_hidden=%d", size->classes), x);
    return ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x);
}
