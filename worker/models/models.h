/* The networks that `penstock train --network` knows, each as its paper's table.
 * Inputs: data [N,1,rows,columns] f32 in [0,1], softmax_label [N] f32.  Output:
 * probabilities [N,K]. Threads: any. */
#ifndef PENSTOCK_WORKER_MODELS_MODELS_H
#define PENSTOCK_WORKER_MODELS_MODELS_H

#include "engine/graph/symbol.h"

struct ps_model {
    const char *name;
    /* Writes the network down; 'classes' outputs. */
    struct ps_symbol *(*build)(struct ps_builder *builder, int classes);
};

/* Ends with a model whose name is NULL. */
extern const struct ps_model ps_models[];

/* Errors of both: PS_EINVAL (unknown, with the nearest name). */
PS_MUST_CHECK enum ps_status ps_model_check(const char *name, struct ps_error *err);
PS_MUST_CHECK enum ps_status ps_model_build(const char *name, int classes,
                                            struct ps_symbol **symbol_out,
                                            struct ps_error *err);

struct ps_symbol *ps_model_mlp(struct ps_builder *b, int classes);
struct ps_symbol *ps_model_lenet(struct ps_builder *b, int classes);

#endif
