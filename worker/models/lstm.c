/* A language model on bytes: two LSTM layers of 512 units (Hochreiter, Schmidhuber 1997;
 * with forget gates), unrolled, weights shared over the steps, a softmax at each.  As in
 * MXNet's example/rnn and the example of Chen et al. 2016 (arXiv 1604.06174), whose names
 * it has: all gates from one product each with input and state, in the order input,
 * transform, forget, output.  The states of a step are one mirror stage, called by the
 * step's number.
 *   data [N,T] numbers of bytes, softmax_label [N,T]: the bytes that follow;
 *   l<i>_init_c, l<i>_init_h [N,512]; output t [N,classes]: probabilities after step t */
#include "worker/models/models.h"

#define LAYERS 2

struct layer {
    struct ps_symbol *i2h_weight, *i2h_bias, *h2h_weight, *h2h_bias;
    struct ps_symbol *c, *h; /* of the step before */
};

/* Step t of layer l: c' = f c + i g, h' = o tanh(c'). */
static void step(struct ps_builder *b, struct layer *layer, int t, int l,
                 struct ps_symbol *x)
{
    const char *at = ps_builder_text(b, "t%d_l%d", t, l);
#define NAME(part) ps_builder_text(b, "%s_%s", at, part)
    const char *units = ps_builder_text(b, "num_hidden=%d", 4 * PS_MODEL_LSTM_UNITS);
    struct ps_symbol *i2h = ps_builder_op(b, "FullyConnected", NAME("i2h"), units, x,
                                          layer->i2h_weight, layer->i2h_bias);
    struct ps_symbol *h2h = ps_builder_op(b, "FullyConnected", NAME("h2h"), units,
                                          layer->h, layer->h2h_weight, layer->h2h_bias);
    struct ps_symbol *gates =
        ps_builder_op(b, "elemwise_add", NAME("gates"), NULL, i2h, h2h);
    struct ps_symbol *cut =
        ps_builder_op(b, "SliceChannel", NAME("slice"), "num_outputs=4", gates);
#define GATE(i, part, type)                                      \
    ps_builder_op(b, "Activation", NAME(part), "act_type=" type, \
                  ps_builder_output(b, cut, i))
    struct ps_symbol *in = GATE(0, "in_gate", "sigmoid");
    struct ps_symbol *transform = GATE(1, "in_transform", "tanh");
    struct ps_symbol *forget = GATE(2, "forget_gate", "sigmoid");
    struct ps_symbol *out = GATE(3, "out_gate", "sigmoid");
    struct ps_symbol *kept =
        ps_builder_op(b, "elemwise_mul", NAME("kept"), NULL, forget, layer->c);
    struct ps_symbol *added =
        ps_builder_op(b, "elemwise_mul", NAME("added"), NULL, in, transform);
    const char *stage = ps_builder_text(b, "%d", t);
    layer->c = ps_builder_op(b, "elemwise_add", NAME("c"), NULL, kept, added);
    layer->c = ps_builder_attr(b, layer->c, "mirror_stage", stage);
    struct ps_symbol *squashed =
        ps_builder_op(b, "Activation", NAME("c_tanh"), "act_type=tanh", layer->c);
    layer->h = ps_builder_op(b, "elemwise_mul", NAME("h"), NULL, out, squashed);
    layer->h = ps_builder_attr(b, layer->h, "mirror_stage", stage);
#undef GATE
#undef NAME
}

static struct ps_symbol *variable(struct ps_builder *b, int l, const char *what)
{
    return ps_builder_variable(b, ps_builder_text(b, "l%d_%s", l, what));
}

struct ps_symbol *ps_model_lstm(struct ps_builder *b, const struct ps_model_size *size)
{
    const char *cut = ps_builder_text(b, "num_outputs=%d squeeze_axis=True", size->steps);
    const char *table = ps_builder_text(b, "input_dim=%d output_dim=%d", size->classes,
                                        PS_MODEL_LSTM_UNITS);
    const char *classes = ps_builder_text(b, "num_hidden=%d", size->classes);
    struct ps_symbol *bytes = ps_builder_op(b, "SliceChannel", "data_slice", cut,
                                            ps_builder_variable(b, "data"));
    struct ps_symbol *labels = ps_builder_op(b, "SliceChannel", "label_slice", cut,
                                             ps_builder_variable(b, "softmax_label"));
    struct ps_symbol *embed_weight = ps_builder_variable(b, "embed_weight");
    struct ps_symbol *cls_weight = ps_builder_variable(b, "cls_weight");
    struct ps_symbol *cls_bias = ps_builder_variable(b, "cls_bias");
    struct ps_symbol *outputs[PS_MODEL_STEPS_MAX];
    struct layer layers[LAYERS];
    for (int l = 0; l < LAYERS; l++) {
        layers[l] = (struct layer){
            .i2h_weight = variable(b, l, "i2h_weight"),
            .i2h_bias = variable(b, l, "i2h_bias"),
            .h2h_weight = variable(b, l, "h2h_weight"),
            .h2h_bias = variable(b, l, "h2h_bias"),
            .c = variable(b, l, "init_c"),
            .h = variable(b, l, "init_h"),
        };
    }
    for (int t = 0; t < size->steps; t++) {
        struct ps_symbol *x =
            ps_builder_op(b, "Embedding", ps_builder_text(b, "t%d_embed", t), table,
                          ps_builder_output(b, bytes, (size_t)t), embed_weight);
        for (int l = 0; l < LAYERS; l++) {
            step(b, &layers[l], t, l, x);
            x = layers[l].h;
        }
        x = ps_builder_op(b, "FullyConnected", ps_builder_text(b, "t%d_cls", t), classes,
                          x, cls_weight, cls_bias);
        outputs[t] = ps_builder_op(b, "SoftmaxOutput", ps_builder_text(b, "t%d_sm", t),
                                   NULL, x, ps_builder_output(b, labels, (size_t)t));
    }
    return ps_builder_group(b, outputs, (size_t)size->steps);
}
