/* The networks that Penstock knows by name, each as its paper's table.
 *
 * A network is a symbol with the inputs "data" and "softmax_label" (and initial states
 * where it is recurrent) and probabilities as its outputs.  Networks on images take data
 * [N,C,H,W] f32 and label [N] and have one output [N,K]; the LSTM takes data [N,T] and
 * label [N,T] and has an output [N,K] for each step.  Threads: any. */
#ifndef PENSTOCK_WORKER_MODELS_MODELS_H
#define PENSTOCK_WORKER_MODELS_MODELS_H

#include "engine/graph/symbol.h"

#define PS_MODEL_LSTM_UNITS 512
#define PS_MODEL_STEPS_MAX 4096

/* What may be chosen of a network; 0: its paper's value. */
struct ps_model_size {
    int classes; /* outputs; of a language model the vocabulary */
    int steps;   /* time steps of a recurrent network, which others have not */
};

struct ps_model {
    const char *name;
    /* Writes the network down; nothing of 'size' is 0 that the network has. */
    struct ps_symbol *(*build)(struct ps_builder *builder,
                               const struct ps_model_size *size);
    struct ps_shape sample;        /* data of one sample; recurrent: steps in front */
    struct ps_model_size size;     /* of the paper, steps 0: not recurrent */
    int state_layers, state_units; /* recurrent: l<i>_init_c, l<i>_init_h [N,units] */
    bool train;                    /* `penstock train` has data for it */
};

/* Ends with a model whose name is NULL. */
extern const struct ps_model ps_models[];

/* By name, in any case.  Errors: PS_EINVAL (unknown, with the nearest name). */
PS_MUST_CHECK enum ps_status
ps_model_find(const char *name, const struct ps_model **model_out, struct ps_error *err);
/* The same for `penstock train`: PS_EINVAL also for what it has no data for. */
PS_MUST_CHECK enum ps_status ps_model_check(const char *name, struct ps_error *err);

/* Errors: PS_EINVAL (steps of a network that has none, or too many). */
PS_MUST_CHECK enum ps_status ps_model_check_size(const struct ps_model *model,
                                                 const struct ps_model_size *size,
                                                 struct ps_error *err);

/* Gives '*symbol_out'.  ps_model_build takes the paper's steps.  Errors: PS_EINVAL
 * (unknown network; steps of a network that has none, or too many), PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_model_build(const char *name, int classes,
                                            struct ps_symbol **symbol_out,
                                            struct ps_error *err);
PS_MUST_CHECK enum ps_status ps_model_build_sized(const struct ps_model *model,
                                                  const struct ps_model_size *size,
                                                  struct ps_symbol **symbol_out,
                                                  struct ps_error *err);

/* Shapes of a batch's inputs: all that inference needs.  The names live as long as the
 * program.  Returns how many were written. */
#define PS_MODEL_INPUTS_MAX 8
size_t ps_model_inputs(const struct ps_model *model, const struct ps_model_size *size,
                       int64_t batch, struct ps_named_shape inputs[PS_MODEL_INPUTS_MAX]);

struct ps_symbol *ps_model_mlp(struct ps_builder *b, const struct ps_model_size *size);
struct ps_symbol *ps_model_lenet(struct ps_builder *b, const struct ps_model_size *size);
struct ps_symbol *ps_model_inception_bn(struct ps_builder *b,
                                        const struct ps_model_size *size);
struct ps_symbol *ps_model_lstm(struct ps_builder *b, const struct ps_model_size *size);
struct ps_symbol *ps_model_resnet_18(struct ps_builder *b,
                                     const struct ps_model_size *size);
struct ps_symbol *ps_model_resnet_50(struct ps_builder *b,
                                     const struct ps_model_size *size);

#endif
