/* The door of the room kvstore: the worker's side of the key-value store.
 *
 * A store holds named arrays.  init gives a key its first value; push contributes (values
 * of several local devices are summed first, by the tree of shard/merge.h); pull reads;
 * pushpull is both in one round trip and the primitive that training uses.  Types: local,
 * device (one process); dist_sync, dist_async, dist_device_sync (through servers).
 *
 * Two ways in.  *Requests* work on plain memory and end with a callback: penstock.h and
 * the simulation use them.  *Tensor calls* push engine operations that read and write the
 * tensors' variables: the trainer uses them; they return at once, errors travel on the
 * variables. Calls on one key by one caller take effect in program order.
 *
 * Threads: any, one caller at a time per key; callbacks come from the store's own loop or
 * pool and must not block. */
#ifndef PENSTOCK_KVSTORE_KVSTORE_H
#define PENSTOCK_KVSTORE_KVSTORE_H

#include "base/dtype.h"
#include "base/node.h"
#include "kvstore/shard/placement.h"

struct ps_engine;
struct ps_tensor;
struct ps_kvstore;

/* A key: a number, or (name not NULL) a string.  One store holds one kind only: the first
 * call decides, a mixed call is PS_EINVAL. */
struct ps_key {
    uint64_t number;
    const char *name;
};
#define PS_KEY(n) ((struct ps_key){.number = (n)})
#define PS_KEY_NAMED(s) ((struct ps_key){.name = (s)})

struct ps_kvstore_options {
    struct ps_node *node;     /* keeps a borrow */
    struct ps_engine *engine; /* keeps a borrow; NULL: tensor calls are not used */
    const char *type; /* "local", "device", "dist_sync", "dist_async", ...; any case */
    const char *name; /* NULL = "default"; several stores of one process differ here */
};

/* The type names of behaviour.md 4.1, matched exactly but for case.  A name that is not
 * one is PS_EINVAL with the nearest; nccl, horovod, byteps, p3 are refused with what to
 * use instead. */
PS_MUST_CHECK enum ps_status ps_kvstore_type_check(const char *type,
                                                   struct ps_error *err);
/* dist: joins the job and waits until it is complete (START_TIMEOUT_MS).  Several dist
 * stores of one node share one membership. */
PS_MUST_CHECK enum ps_status ps_kvstore_create(const struct ps_kvstore_options *options,
                                               struct ps_kvstore **store_out,
                                               struct ps_error *err);
/* Waits for what is pending (bounded by the requests' deadlines); the last dist store of
 * a node says goodbye to the job. */
void ps_kvstore_destroy(struct ps_kvstore *store);

const char *
ps_kvstore_type(const struct ps_kvstore *store); /* the string given, lower case */
uint32_t ps_kvstore_rank(const struct ps_kvstore *store);
uint32_t ps_kvstore_num_workers(const struct ps_kvstore *store);
/* Workers of the job on this host, this one included: who shares its cores. */
uint32_t ps_kvstore_local_workers(const struct ps_kvstore *store);
bool ps_kvstore_is_dist(const struct ps_kvstore *store);
bool ps_kvstore_is_async(const struct ps_kvstore *store);

/* ---- requests ---- */

enum ps_kv_op { PS_KV_PUSH, PS_KV_PULL, PS_KV_PUSHPULL };

/* The caller's memory, zero-initialised, kept until 'done' has been called.  All arrays
 * have the key's count and dtype. */
struct ps_kv_request {
    enum ps_kv_op op;
    struct ps_key key;
    int dtype;      /* checked against the key's */
    uint64_t count; /* elements; checked */
    const void *const
        *src;           /* push: one array a local device; keeps a borrow until done */
    uint32_t src_count; /* 0 in a push: an empty vote */
    void *const *dst;   /* pull: every array gets the value; may alias src */
    uint32_t dst_count;
    int priority; /* higher first; training uses minus the parameter's index */
    enum ps_status
        upstream; /* not PS_OK: the contribution failed: votes ABORT with 'error' */
    void (*done)(
        struct ps_kv_request *request); /* exactly once if submit returned PS_OK */
    void *ctx;
    struct ps_error error; /* status and text, set before done */
    uint32_t contributors; /* ranks that contributed to the round (local: 1) */
    uint64_t version;      /* of the value read or applied */
    void *impl;            /* the store's */
};
/* Errors (nothing was taken, done is not called): PS_EINVAL, PS_ENOENT (the key was not
 * initialised by this worker: the text says so), PS_EDTYPE, PS_ESHAPE, PS_ECLOSED. */
PS_MUST_CHECK enum ps_status ps_kvstore_submit(struct ps_kvstore *store,
                                               struct ps_kv_request *request);

/* One key's first value.  'data' NULL: the key is declared, and its value comes from rank
 * 0. */
struct ps_kv_init {
    struct ps_key key;
    int dtype;
    struct ps_shape shape;
    const void *data; /* borrowed until return */
    uint8_t
        reduction; /* enum ps_key_reduction: what an update sees, the sum or the mean over
                      the ranks that contributed (one process is one contributor) */
};
/* Waits.  Every worker calls it for every key; rank 0's values count; a pull or push by
 * anyone waits for them.  Errors: PS_EINVAL (a key twice in the call: named), PS_EEXIST
 * (already there), PS_EMISMATCH (workers disagree: the field is named), PS_ETIMEDOUT,
 * PS_EPEER. */
PS_MUST_CHECK enum ps_status ps_kvstore_init(struct ps_kvstore *store,
                                             const struct ps_kv_init *keys, size_t count,
                                             struct ps_error *err);
/* Submits and waits. */
PS_MUST_CHECK enum ps_status ps_kvstore_call(struct ps_kvstore *store,
                                             struct ps_kv_request *request);

/* ---- tensor calls (need an engine) ---- */

#define PS_KV_TENSORS_MAX 64 /* on each side of one call: local devices */

/* Pushes one engine op: reads 'grads' (one tensor a local device), writes 'weights'.
 * Either may be empty (count 0): push only, pull only.  Aliasing allowed.  Errors of the
 * arguments come at once, later ones on the weights' variables. */
PS_MUST_CHECK enum ps_status
ps_kvstore_pushpull(struct ps_kvstore *store, struct ps_key key,
                    struct ps_tensor *const *grads, uint32_t grad_count,
                    struct ps_tensor *const *weights, uint32_t weight_count, int priority,
                    struct ps_error *err);
PS_MUST_CHECK enum ps_status
ps_kvstore_init_tensors(struct ps_kvstore *store, const struct ps_key *keys,
                        struct ps_tensor *const *values, size_t count,
                        enum ps_key_reduction reduction, struct ps_error *err);

/* ---- the job ---- (these wait) */

/* Name and hyper-parameters as "sgd", "learning_rate=0.1,momentum=0.9".  Every worker may
 * call it: equal calls are one.  A different one replaces optimizer and state. */
PS_MUST_CHECK enum ps_status ps_kvstore_set_optimizer(struct ps_kvstore *store,
                                                      const char *name, const char *hyper,
                                                      bool multi_precision,
                                                      struct ps_error *err);
/* Changes single hyper-parameters from this worker's next push on (every worker that
 * calls it at the same step means the same change). */
PS_MUST_CHECK enum ps_status
ps_kvstore_set_hyper(struct ps_kvstore *store, const char *hyper, struct ps_error *err);
/* An updater of the user's, local stores only: called on the store's thread with the sum.
 */
typedef void (*ps_kv_updater_fn)(void *ctx, struct ps_key key, const void *merged,
                                 void *stored, int dtype, uint64_t count);
PS_MUST_CHECK enum ps_status ps_kvstore_set_updater(struct ps_kvstore *store,
                                                    ps_kv_updater_fn fn, void *ctx,
                                                    struct ps_error *err);
PS_MUST_CHECK enum ps_status ps_kvstore_barrier(struct ps_kvstore *store,
                                                struct ps_error *err);
/* This worker will push no more; others go on without it.  Pulls stay allowed. */
PS_MUST_CHECK enum ps_status ps_kvstore_done(struct ps_kvstore *store,
                                             struct ps_error *err);
/* This worker failed and will not go on: what is pending ends with 'err', and destroy
 * says no goodbye, so that the job counts this member as lost (ON_WORKER_LOSS) instead of
 * training on without it.  Local stores: nothing. */
void ps_kvstore_abandon(struct ps_kvstore *store, const struct ps_error *err);

#endif
