/* What happens to a value when a gradient is there: the store's optimizer, its live
 * changes and its state in an entry.  Private to the room.
 *
 * A rule is a short history of optimizers: HYPER adds one that holds for steps from
 * 'from_step' on; of those that hold for a step the last that arrived is used.
 * Threads: one at a time. */
#ifndef PENSTOCK_SERVER_UPDATE_H
#define PENSTOCK_SERVER_UPDATE_H

#include "kernels/optimizer.h"
#include "kvstore/shard/entry.h"

#define PS_UPDATE_HISTORY 16 /* HYPER changes that can wait for their step */

struct ps_update_rule {
    bool set;
    bool multi_precision; /* an f32 master of f16/bf16 weights */
    size_t count;
    struct {
        uint64_t from_step;
        struct ps_optimizer optimizer;
    } history[PS_UPDATE_HISTORY];
};

/* A new optimizer: name ("sgd") and "key=value,key=value".  Errors: PS_EINVAL, PS_ERANGE
 * naming the word; 'rule' is untouched then. */
PS_MUST_CHECK enum ps_status ps_update_rule_set(struct ps_update_rule *rule,
                                                const char *name, const char *hyper,
                                                bool multi_precision,
                                                struct ps_error *err);
/* Changes single hyper-parameters for steps >= from_step.  Errors as above; PS_ENOENT: no
 * optimizer is set. */
PS_MUST_CHECK enum ps_status ps_update_rule_change(struct ps_update_rule *rule,
                                                   const char *hyper, uint64_t from_step,
                                                   struct ps_error *err);
const struct ps_optimizer *ps_update_rule_at(const struct ps_update_rule *rule,
                                             uint64_t step);
/* weight_out = the rule's optimizer on weight and grad; its state (and the master) lives
 * in the entry, zero at first.  Errors: PS_EDTYPE, PS_ENOMEM with 'err'. */
PS_MUST_CHECK enum ps_status ps_update_apply(const struct ps_update_rule *rule,
                                             struct ps_entry *entry,
                                             const struct ps_entry_update *update,
                                             struct ps_error *err);

#endif
