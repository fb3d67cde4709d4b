/* Multi-layer perceptron 784-128-64-10, MXNet's first example. */
#include "worker/models/models.h"

struct ps_symbol *ps_model_mlp(struct ps_builder *b, const struct ps_model_size *size)
{
    struct ps_symbol *x = ps_builder_variable(b, "data");
    x = ps_builder_op(b, "Flatten", "flatten", NULL, x);
    x = ps_builder_op(b, "FullyConnected", "fc1", "num_hidden=128", x);
    x = ps_builder_op(b, "Activation", "relu1", "act_type=relu", x);
    x = ps_builder_op(b, "FullyConnected", "fc2", "num_hidden=64", x);
    x = ps_builder_op(b, "Activation", "relu2", "act_type=relu", x);
    x = ps_builder_op(b, "FullyConnected", "fc3",
                      ps_builder_text(b, "num_hidden=%d", size->classes), x);
    return ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x);
}
