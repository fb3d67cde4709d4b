/* Training a network on this worker's devices through a store.
 *
 * A step pushes, for every device, feed + forward + count + backward, then for every
 * parameter one pushpull over all devices with priority minus its index; nothing waits
 * but for run-ahead. The gradient is the sum over the worker's samples; the optimizer's
 * rescale is 1 / batch, and the store takes the mean over the workers that contributed
 * (sync) or one worker's (async). Threads: one at a time. */
#ifndef PENSTOCK_WORKER_TRAINER_H
#define PENSTOCK_WORKER_TRAINER_H

#include "base/node.h"
#include "kvstore/kvstore.h"
#include "worker/replica.h"
#include "worker/report.h"

struct ps_trainer;

struct ps_trainer_options {
    struct ps_node *node; /* keeps a borrow, as of all that follows */
    struct ps_engine *engine;
    const struct ps_kernels *kernels;
    struct ps_symbol *symbol;
    const struct ps_dataset *train, *test; /* test NULL: no validation */
    const char *kv_store;                  /* type */
    uint32_t batch;                   /* of this worker; split evenly over its devices */
    const struct ps_context *devices; /* what to train on; copied */
    size_t device_count;              /* 1 .. PS_KV_TENSORS_MAX */
    int64_t epochs;                   /* the last one's number + 1 */
    int64_t load_epoch; /* begin after it, from its checkpoint; -1: from scratch */
    int64_t max_steps;  /* stop after so many steps; 0: no limit */
    const char *optimizer,
        *hyper; /* "sgd", "momentum=0.9,wd=0.0001" without the two below */
    double lr, lr_factor;
    const int64_t
        *lr_step_epochs; /* ascending: from each of them on, lr is multiplied once more */
    size_t lr_step_count;
    uint64_t seed;
    const char *model_prefix; /* NULL: nothing is saved */
    int64_t disp_batches;     /* 0: no lines inside an epoch */
    const char *metrics_path; /* NULL: none */
    bool progress_bar;
};

/* Binds the devices, joins the store, gives or gets the first weights. */
PS_MUST_CHECK enum ps_status ps_trainer_create(const struct ps_trainer_options *options,
                                               struct ps_trainer **trainer_out,
                                               struct ps_error *err);
void ps_trainer_destroy(struct ps_trainer *trainer);
/* All epochs: training, validation, lines, metrics, checkpoints. */
PS_MUST_CHECK enum ps_status ps_trainer_run(struct ps_trainer *trainer,
                                            struct ps_error *err);
/* A device's replica, to look at its weights; for tests. */
struct ps_replica *ps_trainer_replica(const struct ps_trainer *trainer, size_t device);

#endif
