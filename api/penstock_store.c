/* penstock.h: stores and the calls that wait. */
#include "api/handles.h"

#include <stdlib.h>

int penstock_store_create(penstock_node *node, const char *type, const char *name,
                          penstock_store **store_out)
{
    struct ps_error err = {.status = PS_OK};
    struct penstock_store *store = calloc(1, sizeof(*store));
    if (store == NULL) {
        (void)ps_error_set(&err, PS_ENOMEM, "store: out of memory");
        return penstock_fail(node, &err);
    }
    struct ps_kvstore_options options = {.node = node->node, .type = type, .name = name};
    ps_mutex_lock(&node->stores);
    enum ps_status status = ps_kvstore_create(&options, &store->store, &err);
    ps_mutex_unlock(&node->stores);
    if (status != PS_OK) {
        free(store);
        err.status = status;
        return penstock_fail(node, &err);
    }
    store->node = node;
    *store_out = store;
    return PS_OK;
}

void penstock_store_destroy(penstock_store *store)
{
    if (store != NULL) {
        ps_mutex_lock(&store->node->stores);
        ps_kvstore_destroy(store->store);
        ps_mutex_unlock(&store->node->stores);
        free(store);
    }
}

void penstock_store_abandon(penstock_store *store, const char *why)
{
    struct ps_error err;
    if (store != NULL) {
        (void)ps_error_set(&err, PS_ECANCELED, "%s",
                           why != NULL ? why : "the worker's program failed");
        ps_kvstore_abandon(store->store, &err);
    }
}

int penstock_rank(const penstock_store *store)
{
    return (int)ps_kvstore_rank(store->store);
}

int penstock_num_workers(const penstock_store *store)
{
    return (int)ps_kvstore_num_workers(store->store);
}

const char *penstock_store_type(const penstock_store *store)
{
    return ps_kvstore_type(store->store);
}

/* Words for the failure of a call on 'store'; PS_OK passes. */
static int tell(penstock_store *store, enum ps_status status, struct ps_error *err)
{
    if (status == PS_OK) {
        return PS_OK;
    }
    err->status = status;
    return penstock_fail(store->node, err);
}

int penstock_init_many(penstock_store *store, const penstock_key *keys,
                       const penstock_tensor *values, size_t count)
{
    struct ps_error err = {.status = PS_OK};
    enum ps_status status = PS_OK;
    struct ps_kv_init *inits = calloc(count > 0 ? count : 1, sizeof(*inits));
    if (inits == NULL) {
        status = ps_error_set(&err, PS_ENOMEM, "init of %zu keys: out of memory", count);
    }
    for (size_t i = 0; i < count && status == PS_OK; i++) {
        void *data = NULL;
        inits[i].key = (struct ps_key){.number = keys[i].number, .name = keys[i].name};
        const penstock_tensor *value = values != NULL ? &values[i] : NULL;
        status =
            penstock_read_tensor(value, &inits[i].dtype, &inits[i].shape, &data, &err);
        inits[i].data = data;
    }
    if (status == PS_OK) {
        status = ps_kvstore_init(store->store, inits, count, &err);
    }
    free(inits);
    return tell(store, status, &err);
}

int penstock_init(penstock_store *store, penstock_key key, const penstock_tensor *value)
{
    return penstock_init_many(store, &key, value, 1);
}

int penstock_set_optimizer(penstock_store *store, const char *name,
                           const char *hyper_parameters)
{
    struct ps_error err = {.status = PS_OK};
    if (name == NULL) {
        return tell(store,
                    ps_error_set(&err, PS_EINVAL, "set_optimizer: the name is NULL"),
                    &err);
    }
    return tell(
        store,
        ps_kvstore_set_optimizer(store->store, name, hyper_parameters, false, &err),
        &err);
}

int penstock_set_hyper(penstock_store *store, const char *hyper_parameters)
{
    struct ps_error err = {.status = PS_OK};
    if (hyper_parameters == NULL) {
        return tell(store,
                    ps_error_set(&err, PS_EINVAL, "set_hyper: the parameters are NULL"),
                    &err);
    }
    return tell(store, ps_kvstore_set_hyper(store->store, hyper_parameters, &err), &err);
}

int penstock_barrier(penstock_store *store)
{
    struct ps_error err = {.status = PS_OK};
    return tell(store, ps_kvstore_barrier(store->store, &err), &err);
}

int penstock_done(penstock_store *store)
{
    struct ps_error err = {.status = PS_OK};
    return tell(store, ps_kvstore_done(store->store, &err), &err);
}
