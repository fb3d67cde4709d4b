/* For implementers of a store: local.c, dist.c.
 *
 * kvstore.c checks arguments, keeps the key table (name -> struct ps_kv_key) and the
 * engine adapter once for all of them; a store sees checked requests. */
#ifndef PENSTOCK_KVSTORE_KVSTORE_OPS_H
#define PENSTOCK_KVSTORE_KVSTORE_OPS_H

#include "base/map.h"
#include "base/mem.h"
#include "base/thread.h"
#include "kvstore/kvstore.h"

struct ps_kv_key {
    struct ps_key_row row;      /* dist: as placed by the scheduler; local: one extent */
    void *impl;                 /* the store's state of the key */
    struct ps_tensor **staging; /* staging.c: host copies of device tensors, or NULL */
    bool ready; /* init is through with it; guarded by the table's mutex */
};

struct ps_store_ops {
    const char *name; /* "local", "dist" */
    enum ps_status (*open)(struct ps_kvstore *store, struct ps_error *err);
    void (*close)(struct ps_kvstore *store);
    /* Creates the keys and, from rank 0, their values; waits.  'keys' are new entries of
     * the table, rows filled but for handle and extents. */
    enum ps_status (*init)(struct ps_kvstore *store, struct ps_kv_key *const *keys,
                           const struct ps_kv_init *inits, size_t count,
                           struct ps_error *err);
    void (*key_fini)(struct ps_kvstore *store, struct ps_kv_key *key);
    /* A checked request; 'done' follows. */
    enum ps_status (*submit)(struct ps_kvstore *store, struct ps_kv_key *key,
                             struct ps_kv_request *request);
    enum ps_status (*set_optimizer)(struct ps_kvstore *store, const char *name,
                                    const char *hyper, bool multi_precision,
                                    struct ps_error *err);
    enum ps_status (*set_hyper)(struct ps_kvstore *store, const char *hyper,
                                struct ps_error *err);
    enum ps_status (*set_updater)(struct ps_kvstore *store, ps_kv_updater_fn fn,
                                  void *ctx, struct ps_error *err);
    enum ps_status (*barrier)(struct ps_kvstore *store, struct ps_error *err);
    enum ps_status (*done)(struct ps_kvstore *store, struct ps_error *err);
    void (*abandon)(struct ps_kvstore *store, const struct ps_error *err);
};

extern const struct ps_store_ops ps_store_local;
extern const struct ps_store_ops ps_store_dist;

struct ps_kvstore {
    const struct ps_store_ops *ops;
    struct ps_node *node;
    struct ps_engine *engine;
    char type[32];
    char name[64];
    bool async, reduce_on_device;
    uint32_t rank, num_workers, local_workers;
    struct ps_mutex mutex;                      /* guards the table */
    struct ps_strmap keys PS_GUARDED_BY(mutex); /* "17" or name -> struct ps_kv_key * */
    int key_kind PS_GUARDED_BY(mutex);          /* 0 none yet, 1 numbers, 2 names */
    struct ps_pool *tensor_ops;                 /* tensors.c's; NULL without an engine */
    void *impl;
};

/* kvstore.c: the entry of an initialised key.  Errors: PS_ENOENT, PS_EINVAL. */
PS_MUST_CHECK enum ps_status ps_kvstore_find_key(struct ps_kvstore *store,
                                                 struct ps_key key,
                                                 struct ps_kv_key **key_out,
                                                 struct ps_error *err);
/* tensors.c */
PS_MUST_CHECK enum ps_status ps_kvstore_tensors_open(struct ps_kvstore *store);

#endif
