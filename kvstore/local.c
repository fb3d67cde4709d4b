/* The local store: one process; sums over devices, updates and values on the calling
 * thread (and the reducer's).  A push without optimizer or updater replaces the value by
 * the sum. */
#include "kvstore/kvstore_ops.h"
#include "kvstore/reducer.h"

#include "base/mem.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"

#include <stdlib.h>
#include <string.h>

struct local_store {
    struct ps_reducer *reducer;
    struct ps_mutex
        mutex; /* guards what follows: one optimizer change or copy at a time */
    struct ps_optimizer optimizer PS_GUARDED_BY(mutex); /* kind 0: none */
    bool multi_precision PS_GUARDED_BY(mutex);
    uint64_t generation PS_GUARDED_BY(mutex); /* rises when the optimizer is replaced */
    ps_kv_updater_fn updater PS_GUARDED_BY(mutex);
    void *updater_ctx PS_GUARDED_BY(mutex);
};

/* One key's value and what the optimizer keeps for it; 'mutex' makes calls on it one at a
 * time. */
struct local_key {
    struct ps_mutex mutex;
    void *value;
    void *merged; /* for a user's updater: the rounded sum */
    void *states[PS_OPTIMIZER_MAX_STATES];
    float *master;
    uint64_t generation; /* of the optimizer the states belong to */
    uint64_t update;     /* t: applied updates under this optimizer */
    uint64_t version;
};

static enum ps_status local_open(struct ps_kvstore *store, struct ps_error *err)
{
    const struct ps_settings *settings = store->node->settings;
    struct local_store *local = calloc(1, sizeof(*local));
    if (local == NULL) {
        return ps_error_set(err, PS_ENOMEM, "store %s: out of memory", store->name);
    }
    enum ps_status status = ps_reducer_create(
        (int)ps_settings_int(settings, PS_SET_KVSTORE_REDUCTION_NTHREADS),
        (uint64_t)ps_settings_int(settings, PS_SET_KVSTORE_BIGARRAY_BOUND),
        &local->reducer);
    if (status != PS_OK) {
        free(local);
        return ps_error_set(err, status, "store %s: out of memory", store->name);
    }
    ps_mutex_init(&local->mutex);
    store->impl = local;
    return PS_OK;
}

static void local_close(struct ps_kvstore *store)
{
    struct local_store *local = store->impl;
    ps_reducer_destroy(local->reducer);
    ps_mutex_fini(&local->mutex);
}

static void free_states(struct local_key *key)
{
    for (size_t i = 0; i < PS_OPTIMIZER_MAX_STATES; i++) {
        ps_mem_free(key->states[i]);
        key->states[i] = NULL;
    }
    ps_mem_free(key->master);
    key->master = NULL;
}

static void local_key_fini(struct ps_kvstore *store, struct ps_kv_key *kv_key)
{
    PS_UNUSED(store);
    struct local_key *key = kv_key->impl;
    if (key == NULL) {
        return;
    }
    free_states(key);
    ps_mem_free(key->merged);
    ps_mem_free(key->value);
    ps_mutex_fini(&key->mutex);
    free(key);
    kv_key->impl = NULL;
}

static size_t key_bytes(const struct ps_kv_key *key)
{
    return (size_t)key->row.count * ps_dtype_size(key->row.dtype);
}

static enum ps_status local_init(struct ps_kvstore *store, struct ps_kv_key *const *keys,
                                 const struct ps_kv_init *inits, size_t count,
                                 struct ps_error *err)
{
    PS_UNUSED(store);
    for (size_t i = 0; i < count; i++) {
        if (inits[i].data == NULL) {
            return ps_error_set(err, PS_EINVAL,
                                "key %s: a local store needs its first value",
                                keys[i]->row.name);
        }
        struct local_key *key = calloc(1, sizeof(*key));
        void *value = ps_mem_alloc(key_bytes(keys[i]));
        if (key == NULL || value == NULL) {
            free(key);
            ps_mem_free(value);
            return ps_error_set(err, PS_ENOMEM, "key %s: no memory for %zu bytes",
                                keys[i]->row.name, key_bytes(keys[i]));
        }
        ps_mutex_init(&key->mutex);
        memcpy(value, inits[i].data, key_bytes(keys[i]));
        key->value = value;
        keys[i]->impl = key;
    }
    return PS_OK;
}

/* ---- push ---- */

/* What one push does with each finished block of the sum. */
struct apply {
    const struct ps_kv_key *kv_key;
    struct local_key *key;
    const struct ps_optimizer *optimizer; /* kind 0: store the sum */
    void *sum_out;                        /* kind 0: where the rounded sum goes */
};

static enum ps_status apply_block(void *ctx, uint64_t first, size_t count,
                                  const void *sum)
{
    const struct apply *apply = ctx;
    int dtype = apply->kv_key->row.dtype;
    size_t size = ps_dtype_size(dtype);
    if (apply->optimizer->kind == PS_OPT_NONE) {
        ps_reduce_store((char *)apply->sum_out + first * size, sum, dtype, count);
        return PS_OK;
    }
    struct local_key *key = apply->key;
    int acc = (int)ps_dtype_accumulator((enum ps_dtype)dtype);
    int64_t rounded[PS_REDUCE_BLOCK]; /* integers: the sum in the weight's own type */
    struct ps_optimizer_range range = {
        .weight = (char *)key->value + first * size,
        .weight_out = (char *)key->value + first * size,
        .grad = sum,
        .master = key->master != NULL ? key->master + first : NULL,
        .dtype = dtype,
        .grad_dtype = acc,
        .count = count,
    };
    if (acc == PS_I64 && dtype != PS_I64) {
        ps_reduce_store(rounded, sum, dtype, count);
        range.grad = rounded;
        range.grad_dtype = dtype;
    }
    size_t state_size = ps_dtype_size(ps_optimizer_state_dtype(apply->optimizer, dtype));
    for (size_t i = 0; i < PS_OPTIMIZER_MAX_STATES; i++) {
        if (key->states[i] != NULL) {
            range.states[i] = (char *)key->states[i] + first * state_size;
        }
    }
    struct ps_optimizer_key_state state = {
        .lr_mult = 1, .wd_mult = 1, .update = key->update, .rescale = 1};
    return ps_optimizer_update(apply->optimizer, &state, &range);
}

/* Makes the key's states those of 'optimizer' (zeros at first). */
static enum ps_status prepare_states(struct local_key *key,
                                     const struct ps_kv_key *kv_key,
                                     const struct ps_optimizer *optimizer,
                                     uint64_t generation, bool multi_precision)
{
    if (key->generation != generation) {
        free_states(key);
        key->generation = generation;
        key->update = 0;
    }
    int state_dtype = ps_optimizer_state_dtype(optimizer, kv_key->row.dtype);
    if (state_dtype == PS_DTYPE_UNKNOWN) {
        return PS_EDTYPE;
    }
    for (int i = 0; i < ps_optimizer_state_count(optimizer); i++) {
        if (key->states[i] == NULL) {
            key->states[i] =
                ps_mem_calloc((size_t)kv_key->row.count * ps_dtype_size(state_dtype));
        }
        if (key->states[i] == NULL) {
            return PS_ENOMEM;
        }
    }
    bool half = kv_key->row.dtype == PS_F16 || kv_key->row.dtype == PS_BF16;
    if (multi_precision && half && key->master == NULL) {
        key->master = ps_mem_alloc((size_t)kv_key->row.count * sizeof(float));
        if (key->master == NULL) {
            return PS_ENOMEM;
        }
        return ps_convert(key->master, PS_F32, key->value, kv_key->row.dtype,
                          (size_t)kv_key->row.count);
    }
    return PS_OK;
}

static enum ps_status push(struct ps_kvstore *store, const struct ps_kv_key *kv_key,
                           const struct ps_kv_request *request)
{
    struct local_store *local = store->impl;
    struct local_key *key = kv_key->impl;
    ps_mutex_lock(&local->mutex);
    struct ps_optimizer optimizer = local->optimizer;
    uint64_t generation = local->generation;
    bool multi_precision = local->multi_precision;
    ps_kv_updater_fn updater = local->updater;
    void *updater_ctx = local->updater_ctx;
    ps_mutex_unlock(&local->mutex);

    struct apply apply = {.kv_key = kv_key, .key = key, .optimizer = &optimizer};
    if (updater != NULL) {
        optimizer.kind = PS_OPT_NONE;
        if (key->merged == NULL) {
            key->merged = ps_mem_alloc(key_bytes(kv_key));
        }
        if (key->merged == NULL) {
            return PS_ENOMEM;
        }
        apply.sum_out = key->merged;
    } else if (optimizer.kind == PS_OPT_NONE) {
        apply.sum_out = key->value;
    } else {
        PS_TRY(prepare_states(key, kv_key, &optimizer, generation, multi_precision));
        key->update++;
    }
    PS_TRY(ps_reducer_run(local->reducer, request->src, request->src_count,
                          kv_key->row.dtype, kv_key->row.count, apply_block, &apply));
    if (updater != NULL) {
        struct ps_key user_key = request->key;
        updater(updater_ctx, user_key, key->merged, key->value, kv_key->row.dtype,
                kv_key->row.count);
    }
    key->version++;
    return PS_OK;
}

static enum ps_status local_submit(struct ps_kvstore *store, struct ps_kv_key *kv_key,
                                   struct ps_kv_request *request)
{
    struct local_key *key = kv_key->impl;
    enum ps_status status = request->upstream;
    ps_mutex_lock(&key->mutex);
    if (status == PS_OK && request->op != PS_KV_PULL && request->src_count > 0) {
        status = push(store, kv_key, request);
        if (status != PS_OK) {
            (void)ps_error_set(&request->error, status, "key %s: push: %s",
                               kv_key->row.name, ps_status_text(status));
        }
    }
    if (status == PS_OK) {
        for (uint32_t i = 0; i < request->dst_count; i++) {
            memcpy(request->dst[i], key->value, key_bytes(kv_key));
        }
    }
    request->version = key->version;
    ps_mutex_unlock(&key->mutex);
    request->error.status = status;
    request->contributors = 1;
    request->done(request);
    return PS_OK;
}

/* ---- optimizer ---- */

static enum ps_status local_set_optimizer(struct ps_kvstore *store, const char *name,
                                          const char *hyper, bool multi_precision,
                                          struct ps_error *err)
{
    struct local_store *local = store->impl;
    struct ps_optimizer optimizer;
    PS_TRY(ps_optimizer_init(name, &optimizer, err));
    PS_TRY(ps_optimizer_change(&optimizer, hyper, err));
    ps_mutex_lock(&local->mutex);
    if (memcmp(&optimizer, &local->optimizer, sizeof(optimizer)) != 0 ||
        multi_precision != local->multi_precision) {
        local->optimizer = optimizer;
        local->multi_precision = multi_precision;
        local->generation++;
    }
    local->updater = NULL;
    ps_mutex_unlock(&local->mutex);
    return PS_OK;
}

static enum ps_status local_set_hyper(struct ps_kvstore *store, const char *hyper,
                                      struct ps_error *err)
{
    struct local_store *local = store->impl;
    ps_mutex_lock(&local->mutex);
    struct ps_optimizer optimizer = local->optimizer;
    enum ps_status status = PS_OK;
    if (optimizer.kind == PS_OPT_NONE) {
        status =
            ps_error_set(err, PS_EINVAL, "store %s has no optimizer: set_optimizer first",
                         store->name);
    } else {
        status = ps_optimizer_change(&optimizer, hyper, err);
    }
    if (status == PS_OK) {
        local->optimizer = optimizer;
    }
    ps_mutex_unlock(&local->mutex);
    return status;
}

static enum ps_status local_set_updater(struct ps_kvstore *store, ps_kv_updater_fn fn,
                                        void *ctx, struct ps_error *err)
{
    PS_UNUSED(err);
    struct local_store *local = store->impl;
    ps_mutex_lock(&local->mutex);
    local->updater = fn;
    local->updater_ctx = ctx;
    ps_mutex_unlock(&local->mutex);
    return PS_OK;
}

static enum ps_status local_nothing(struct ps_kvstore *store, struct ps_error *err)
{
    PS_UNUSED(store);
    PS_UNUSED(err);
    return PS_OK; /* one worker: a barrier is passed, done changes nothing */
}

static void local_abandon(struct ps_kvstore *store, const struct ps_error *err)
{
    PS_UNUSED(store);
    PS_UNUSED(err);
}

const struct ps_store_ops ps_store_local = {
    .name = "local",
    .open = local_open,
    .close = local_close,
    .init = local_init,
    .key_fini = local_key_fini,
    .submit = local_submit,
    .set_optimizer = local_set_optimizer,
    .set_hyper = local_set_hyper,
    .set_updater = local_set_updater,
    .barrier = local_nothing,
    .done = local_nothing,
    .abandon = local_abandon,
};
