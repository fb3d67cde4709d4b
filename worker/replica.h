/* One device's copy of the network: an executor, the operation that feeds it a batch, and
 * the one that counts how well it did.  All three are engine operations, so a whole step
 * is pushed ahead without waiting.  Batches are made and counted on the host; where the
 * device has memory of its own they are copied in and the outputs back.  Threads: one at
 * a time. */
#ifndef PENSTOCK_WORKER_REPLICA_H
#define PENSTOCK_WORKER_REPLICA_H

#include "engine/engine.h"
#include "engine/graph/graph.h"
#include "kernels/kernels.h"
#include "worker/dataset.h"

struct ps_replica;

/* What happened since the last reading. */
struct ps_score {
    double samples, correct;
    double loss; /* sum over the samples of -ln p(label) */
};

struct ps_replica_options {
    struct ps_engine *engine;         /* keeps a borrow */
    const struct ps_kernels *kernels; /* keeps a borrow */
    struct ps_symbol *symbol;         /* retained */
    struct ps_context context;
    int devices; /* this host computes on so many side by side */
    uint32_t batch, rows, columns;
    uint64_t seed; /* of dropout */
};

PS_MUST_CHECK enum ps_status ps_replica_create(const struct ps_replica_options *options,
                                               struct ps_replica **replica_out,
                                               struct ps_error *err);
void ps_replica_destroy(struct ps_replica *replica); /* NULL is fine */
struct ps_executor *ps_replica_executor(const struct ps_replica *replica);

/* The parameters: the arguments that are neither data nor label, in the symbol's order.
 */
size_t ps_replica_param_count(const struct ps_replica *replica);
const char *ps_replica_param_name(const struct ps_replica *replica, size_t i);
struct ps_tensor *ps_replica_param(const struct ps_replica *replica, size_t i);
struct ps_tensor *ps_replica_gradient(const struct ps_replica *replica, size_t i);

/* Pushes: load samples indices[0..count) of 'dataset' (count <= batch; the rest of the
 * batch is zero and does not count), forward, count, and with 'training' backward.
 * 'indices' is copied; 'dataset' must stay until the engine is through. */
PS_MUST_CHECK enum ps_status ps_replica_step(struct ps_replica *replica,
                                             const struct ps_dataset *dataset,
                                             const uint32_t *indices, uint32_t count,
                                             bool training, struct ps_error *err);
/* Waits for the steps pushed so far, adds their score to 'score' and starts anew. */
PS_MUST_CHECK enum ps_status ps_replica_score(struct ps_replica *replica,
                                              struct ps_score *score,
                                              struct ps_error *err);

#endif
