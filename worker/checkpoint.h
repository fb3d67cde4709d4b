/* Checkpoints: <prefix>-symbol.json and <prefix>-%04d.safetensors, the epoch's number + 1
 * as MXNet counts; parameters under their names. Threads: the trainer's. */
#ifndef PENSTOCK_WORKER_CHECKPOINT_H
#define PENSTOCK_WORKER_CHECKPOINT_H

#include "base/node.h"
#include "worker/replica.h"

/* Saves the network alone: before the first epoch, so that a prefix that cannot be
 * written is told then. */
PS_MUST_CHECK enum ps_status ps_checkpoint_begin(struct ps_node *node, const char *prefix,
                                                 const struct ps_symbol *symbol,
                                                 struct ps_error *err);
PS_MUST_CHECK enum ps_status ps_checkpoint_save(struct ps_node *node, const char *prefix,
                                                int64_t epoch,
                                                const struct ps_symbol *symbol,
                                                const struct ps_replica *replica,
                                                struct ps_error *err);
/* Every parameter and auxiliary state of the network must be there with its shape; errors
 * name the one that is not. */
PS_MUST_CHECK enum ps_status ps_checkpoint_load(struct ps_node *node, const char *prefix,
                                                int64_t epoch, struct ps_replica *replica,
                                                struct ps_error *err);

#endif
