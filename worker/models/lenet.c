/* LeNet-5 in MXNet's form (LeCun et al. 1998, with tanh, max pooling and 20/50/500
 * units). */
#include "worker/models/models.h"

struct ps_symbol *ps_model_lenet(struct ps_builder *b, const struct ps_model_size *size)
{
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "Convolution", "conv1", "kernel=(5,5) num_filter=20", x);
    x = ps_builder_op(b, "Activation", "tanh1", "act_type=tanh", x);
    x = ps_builder_op(b, "Pooling", "pool1", "pool_type=max kernel=(2,2) stride=(2,2)",
                      x);

    x = ps_builder_op(b, "Convolution", "conv2", "kernel=(5,5) num_filter=50", x);
    x = ps_builder_op(b, "Activation", "tanh2", "act_type=tanh", x);
    x = ps_builder_op(b, "Pooling", "pool2", "pool_type=max kernel=(2,2) stride=(2,2)",
                      x);

    x = ps_builder_op(b, "Flatten", "flatten", NULL, x);
    x = ps_builder_op(b, "FullyConnected", "fc1", "num_hidden=500", x);
    x = ps_builder_op(b, "Activation", "tanh3", "act_type=tanh", x);

    x = ps_builder_op(b, "FullyConnected", "fc2",
                      ps_builder_text(b, "num_hidden=%d", size->classes), x);
    return ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x);
}
