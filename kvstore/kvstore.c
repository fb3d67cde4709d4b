/* The store's front: argument checks, the key table, submit-and-wait.  One for all
 * stores. */
#include "kvstore/kvstore.h"

#include "base/str.h"
#include "kvstore/kvstore_ops.h"
#include "kvstore/reducer.h"
#include "kvstore/staging.h"
#include "kvstore/types.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_NUMBERS 1
#define KEY_NAMES 2

enum ps_status ps_kvstore_create(const struct ps_kvstore_options *options,
                                 struct ps_kvstore **store_out, struct ps_error *err)
{
    PS_TRY(ps_kvstore_type_check(options->type, err));
    const struct ps_kvstore_type *type = ps_kvstore_type_find(options->type);
    const char *name = options->name != NULL ? options->name : "default";
    if (name[0] == '\0' || strlen(name) >= sizeof(((struct ps_kvstore *)0)->name)) {
        return ps_error_set(err, PS_EINVAL,
                            "store name \"%.80s\": 1 to 63 bytes are accepted", name);
    }
    struct ps_kvstore *store = calloc(1, sizeof(*store));
    if (store == NULL) {
        return ps_error_set(err, PS_ENOMEM, "store %s: out of memory", name);
    }
    store->ops = type->dist ? &ps_store_dist : &ps_store_local;
    store->node = options->node;
    store->engine = options->engine;
    store->async = type->async;
    store->reduce_on_device = type->on_device;
    store->num_workers = 1;
    store->local_workers = 1;
    (void)snprintf(store->type, sizeof(store->type), "%s", options->type);
    for (char *c = store->type; *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    (void)snprintf(store->name, sizeof(store->name), "%s", name);
    ps_mutex_init(&store->mutex);
    enum ps_status status = PS_OK;
    if (store->engine != NULL) {
        PS_TRY_GOTO(status, ps_kvstore_tensors_open(store), free_store);
    }
    PS_TRY_GOTO(status, store->ops->open(store, err), free_store);
    *store_out = store;
    return PS_OK;
free_store:
    ps_pool_destroy(store->tensor_ops);
    ps_mutex_fini(&store->mutex);
    free(store);
    return status;
}

static void free_key(struct ps_kvstore *store, struct ps_kv_key *key)
{
    if (key == NULL) {
        return;
    }
    store->ops->key_fini(store, key);
    ps_staging_fini(key);
    ps_key_row_fini(&key->row);
    free(key);
}

void ps_kvstore_destroy(struct ps_kvstore *store)
{
    if (store == NULL) {
        return;
    }
    store->ops->close(store);
    size_t it = 0;
    const char *name;
    void *key;
    ps_mutex_lock(&store->mutex);
    while (ps_strmap_next(&store->keys, &it, &name, &key)) {
        free_key(store, key);
    }
    ps_strmap_fini(&store->keys);
    ps_mutex_unlock(&store->mutex);
    ps_pool_destroy(store->tensor_ops);
    ps_mutex_fini(&store->mutex);
    free(store->impl);
    free(store);
}

const char *ps_kvstore_type(const struct ps_kvstore *store)
{
    return store->type;
}

uint32_t ps_kvstore_rank(const struct ps_kvstore *store)
{
    return store->rank;
}

uint32_t ps_kvstore_num_workers(const struct ps_kvstore *store)
{
    return store->num_workers;
}

uint32_t ps_kvstore_local_workers(const struct ps_kvstore *store)
{
    return store->local_workers;
}

bool ps_kvstore_is_dist(const struct ps_kvstore *store)
{
    return store->ops == &ps_store_dist;
}

bool ps_kvstore_is_async(const struct ps_kvstore *store)
{
    return store->async;
}

/* The table's text of a key: decimal digits or the name itself. */
static enum ps_status key_text(struct ps_key key, char out[PS_KEY_NAME_BYTES],
                               struct ps_error *err)
{
    if (key.name == NULL) {
        (void)snprintf(out, PS_KEY_NAME_BYTES, "%" PRIu64, key.number);
        return PS_OK;
    }
    size_t size = strlen(key.name);
    if (size == 0 || size >= PS_KEY_NAME_BYTES) {
        return ps_error_set(err, PS_EINVAL,
                            "key \"%.80s\": names of 1 to %d bytes are accepted",
                            key.name, PS_KEY_NAME_BYTES - 1);
    }
    memcpy(out, key.name, size + 1);
    return PS_OK;
}

/* One store holds numbers or names; the first call decides. */
static enum ps_status check_kind(struct ps_kvstore *store, struct ps_key key,
                                 struct ps_error *err) PS_REQUIRES(store->mutex)
{
    int kind = key.name != NULL ? KEY_NAMES : KEY_NUMBERS;
    if (store->key_kind != 0 && store->key_kind != kind) {
        return ps_error_set(
            err, PS_EINVAL,
            "store %s has %s as keys: a key of the other kind (%s) is refused",
            store->name, store->key_kind == KEY_NAMES ? "names" : "numbers",
            key.name != NULL ? key.name : "a number");
    }
    return PS_OK;
}

enum ps_status ps_kvstore_find_key(struct ps_kvstore *store, struct ps_key key,
                                   struct ps_kv_key **key_out, struct ps_error *err)
{
    char text[PS_KEY_NAME_BYTES];
    PS_TRY(key_text(key, text, err));
    ps_mutex_lock(&store->mutex);
    enum ps_status status = check_kind(store, key, err);
    struct ps_kv_key *found = status == PS_OK ? ps_strmap_get(&store->keys, text) : NULL;
    if (found != NULL && !found->ready) {
        found = NULL; /* another thread is inside init with it */
    }
    ps_mutex_unlock(&store->mutex);
    if (status != PS_OK) {
        return status;
    }
    if (found == NULL) {
        return ps_error_set(
            err, PS_ENOENT,
            "key %s was not initialised by this worker in store %s: call init "
            "first",
            text, store->name);
    }
    *key_out = found;
    return PS_OK;
}

static enum ps_status check_request(const struct ps_kv_key *key,
                                    const struct ps_kv_request *request,
                                    struct ps_error *err)
{
    if (request->done == NULL) {
        return ps_error_set(err, PS_EINVAL, "key %s: a request needs a done callback",
                            key->row.name);
    }
    if (request->dtype != key->row.dtype) {
        return ps_error_set(err, PS_EDTYPE, "key %s holds %s, the request is %s",
                            key->row.name, ps_dtype_name(key->row.dtype),
                            ps_dtype_name(request->dtype));
    }
    if (request->count != key->row.count) {
        return ps_error_set(err, PS_ESHAPE,
                            "key %s holds %" PRIu64 " elements, the request has %" PRIu64,
                            key->row.name, key->row.count, request->count);
    }
    if (request->op == PS_KV_PUSH ? request->dst_count != 0 : request->dst_count == 0) {
        return ps_error_set(err, PS_EINVAL, "key %s: %s", key->row.name,
                            request->op == PS_KV_PUSH ? "a push has no outputs"
                                                      : "a pull needs an output");
    }
    if (request->op == PS_KV_PULL && request->src_count != 0) {
        return ps_error_set(err, PS_EINVAL, "key %s: a pull has no values",
                            key->row.name);
    }
    if (request->src_count > PS_REDUCE_SRC_MAX) {
        return ps_error_set(err, PS_ERANGE,
                            "key %s: %" PRIu32 " values in one push, at most %d accepted",
                            key->row.name, request->src_count, PS_REDUCE_SRC_MAX);
    }
    for (uint32_t i = 0; i < request->src_count; i++) {
        if (request->src[i] == NULL && key->row.count > 0) {
            return ps_error_set(err, PS_EINVAL, "key %s: value %" PRIu32 " has no memory",
                                key->row.name, i);
        }
    }
    for (uint32_t i = 0; i < request->dst_count; i++) {
        if (request->dst[i] == NULL && key->row.count > 0) {
            return ps_error_set(err, PS_EINVAL,
                                "key %s: output %" PRIu32 " has no memory", key->row.name,
                                i);
        }
    }
    return PS_OK;
}

enum ps_status ps_kvstore_submit(struct ps_kvstore *store, struct ps_kv_request *request)
{
    struct ps_kv_key *key = NULL;
    if (request->upstream == PS_OK) { /* else it holds the words of the ABORT vote */
        request->error = (struct ps_error){.status = PS_OK};
    }
    PS_TRY(ps_kvstore_find_key(store, request->key, &key, &request->error));
    PS_TRY(check_request(key, request, &request->error));
    return store->ops->submit(store, key, request);
}

/* ---- init ---- */

static enum ps_status new_key(const struct ps_kvstore *store,
                              const struct ps_kv_init *init, struct ps_kv_key **key_out,
                              struct ps_error *err)
{
    char shape[PS_SHAPE_TEXT_BYTES];
    char text[PS_KEY_NAME_BYTES];
    PS_TRY(key_text(init->key, text, err));
    int64_t count = ps_shape_count(&init->shape);
    if (ps_dtype_size(init->dtype) == 0) {
        return ps_error_set(err, PS_EDTYPE, "key %s: dtype code %d is unknown", text,
                            init->dtype);
    }
    if (count <= 0 || (uint64_t)count > INT64_MAX / ps_dtype_size(init->dtype)) {
        return ps_error_set(
            err, PS_ESHAPE,
            "key %s: shape %s must be known, have at least one element and fewer than "
            "2^63 bytes",
            text, ps_shape_text(&init->shape, shape));
    }
    struct ps_kv_key *key = calloc(1, sizeof(*key));
    if (key == NULL) {
        return ps_error_set(err, PS_ENOMEM, "key %s: out of memory", text);
    }
    memcpy(key->row.name, text, sizeof(text));
    key->row.numeric = init->key.name == NULL;
    key->row.kind = PS_KEY_PARAMETER;
    key->row.mode = store->async ? PS_MODE_ASYNC : PS_MODE_SYNC;
    key->row.reduction = init->reduction;
    key->row.dtype = init->dtype;
    key->row.shape = init->shape;
    key->row.count = (uint64_t)count;
    *key_out = key;
    return PS_OK;
}

/* Enters the keys in the table, so that the same key twice (adjacent or not, in this call
 * or an earlier one) is seen. */
static enum ps_status enter_keys(struct ps_kvstore *store, struct ps_kv_key **keys,
                                 const struct ps_kv_init *inits, size_t count,
                                 size_t *entered_out, struct ps_error *err)
{
    enum ps_status status = PS_OK;
    ps_mutex_lock(&store->mutex);
    size_t i = 0;
    for (; i < count && status == PS_OK; i++) {
        status = check_kind(store, inits[i].key, err);
        if (status != PS_OK) {
            break;
        }
        bool in_call = false;
        for (size_t j = 0; j < i && !in_call; j++) {
            in_call = strcmp(keys[j]->row.name, keys[i]->row.name) == 0;
        }
        if (in_call) {
            status = ps_error_set(err, PS_EINVAL, "key %s stands twice in one init",
                                  keys[i]->row.name);
        } else if (ps_strmap_get(&store->keys, keys[i]->row.name) != NULL) {
            status =
                ps_error_set(err, PS_EEXIST, "key %s was initialised before in store %s",
                             keys[i]->row.name, store->name);
        } else {
            status = ps_strmap_put(&store->keys, keys[i]->row.name, keys[i], NULL);
        }
        if (status != PS_OK) {
            break;
        }
        store->key_kind = keys[i]->row.numeric ? KEY_NUMBERS : KEY_NAMES;
    }
    *entered_out = i;
    ps_mutex_unlock(&store->mutex);
    return status;
}

static void leave_keys(struct ps_kvstore *store, struct ps_kv_key *const *keys,
                       size_t count)
{
    ps_mutex_lock(&store->mutex);
    for (size_t i = 0; i < count; i++) {
        (void)ps_strmap_remove(&store->keys, keys[i]->row.name);
    }
    if (store->keys.count == 0) {
        store->key_kind = 0;
    }
    ps_mutex_unlock(&store->mutex);
}

enum ps_status ps_kvstore_init(struct ps_kvstore *store, const struct ps_kv_init *inits,
                               size_t count, struct ps_error *err)
{
    if (count == 0) {
        return PS_OK;
    }
    struct ps_kv_key **keys = calloc(count, sizeof(*keys));
    if (keys == NULL) {
        return ps_error_set(err, PS_ENOMEM, "init of %zu keys: out of memory", count);
    }
    enum ps_status status = PS_OK;
    size_t entered = 0;
    for (size_t i = 0; i < count; i++) {
        PS_TRY_GOTO(status, new_key(store, &inits[i], &keys[i], err), free_keys);
    }
    PS_TRY_GOTO(status, enter_keys(store, keys, inits, count, &entered, err), leave);
    PS_TRY_GOTO(status, store->ops->init(store, keys, inits, count, err), leave);
    ps_mutex_lock(&store->mutex);
    for (size_t i = 0; i < count; i++) {
        keys[i]->ready = true;
    }
    ps_mutex_unlock(&store->mutex);
    free(keys);
    return PS_OK;
leave:
    leave_keys(store, keys, entered);
free_keys:
    for (size_t i = 0; i < count; i++) {
        free_key(store, keys[i]);
    }
    free(keys);
    return status;
}

/* ---- submit and wait ---- */

struct call {
    struct ps_event event;
    void (*done)(struct ps_kv_request *request);
    void *ctx;
};

static void call_done(struct ps_kv_request *request)
{
    struct call *call = request->ctx;
    ps_event_set(&call->event);
}

enum ps_status ps_kvstore_call(struct ps_kvstore *store, struct ps_kv_request *request)
{
    struct call call = {.done = request->done, .ctx = request->ctx};
    PS_TRY(ps_event_init(&call.event, store->node->driver));
    request->done = call_done;
    request->ctx = &call;
    enum ps_status status = ps_kvstore_submit(store, request);
    if (status == PS_OK) {
        /* the request has a deadline of its own; the event is always set */
        status = ps_event_wait(&call.event, PS_NEVER);
    }
    request->done = call.done;
    request->ctx = call.ctx;
    ps_event_fini(&call.event);
    return status != PS_OK ? status : request->error.status;
}

/* ---- the job ---- */

enum ps_status ps_kvstore_set_optimizer(struct ps_kvstore *store, const char *name,
                                        const char *hyper, bool multi_precision,
                                        struct ps_error *err)
{
    return store->ops->set_optimizer(store, name, hyper != NULL ? hyper : "",
                                     multi_precision, err);
}

enum ps_status ps_kvstore_set_hyper(struct ps_kvstore *store, const char *hyper,
                                    struct ps_error *err)
{
    return store->ops->set_hyper(store, hyper, err);
}

enum ps_status ps_kvstore_set_updater(struct ps_kvstore *store, ps_kv_updater_fn fn,
                                      void *ctx, struct ps_error *err)
{
    return store->ops->set_updater(store, fn, ctx, err);
}

enum ps_status ps_kvstore_barrier(struct ps_kvstore *store, struct ps_error *err)
{
    return store->ops->barrier(store, err);
}

enum ps_status ps_kvstore_done(struct ps_kvstore *store, struct ps_error *err)
{
    return store->ops->done(store, err);
}

void ps_kvstore_abandon(struct ps_kvstore *store, const struct ps_error *err)
{
    store->ops->abandon(store, err);
}
