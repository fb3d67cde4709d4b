/* Copies between the devices' tensors and the host's, around a call of the store. */
#include "kvstore/staging.h"

#include "engine/tensor/tensor.h"

#include <stdlib.h>

/* staging[VALUE] is the value's host tensor, staging[FIRST_GRAD + i] gradient i's. */
enum { VALUE, FIRST_GRAD, STAGING_COUNT = FIRST_GRAD + PS_KV_TENSORS_MAX };

static bool on_device(const struct ps_tensor *tensor)
{
    return ps_tensor_context(tensor).kind != PS_CONTEXT_CPU;
}

bool ps_staging_needed(struct ps_tensor *const *tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (on_device(tensors[i])) {
            return true;
        }
    }
    return false;
}

/* The host tensor at 'place', made like 'like' when it is not there. */
static enum ps_status host_tensor(struct ps_kvstore *store, struct ps_kv_key *key,
                                  size_t place, const struct ps_tensor *like,
                                  struct ps_tensor **tensor_out)
{
    if (key->staging == NULL) {
        key->staging = calloc(STAGING_COUNT, sizeof(struct ps_tensor *));
    }
    if (key->staging == NULL) {
        return PS_ENOMEM;
    }
    struct ps_tensor *have = key->staging[place];
    if (have == NULL || !ps_shape_equal(ps_tensor_shape(have), ps_tensor_shape(like)) ||
        ps_tensor_dtype(have) != ps_tensor_dtype(like)) {
        struct ps_tensor *made;
        PS_TRY(ps_tensor_create(store->engine, PS_CPU(0), (int)ps_tensor_dtype(like),
                                ps_tensor_shape(like), &made));
        ps_tensor_release(have);
        key->staging[place] = made;
    }
    *tensor_out = key->staging[place];
    return PS_OK;
}

static enum ps_status say(struct ps_error *err, enum ps_status status,
                          const struct ps_kv_key *key)
{
    return status == PS_OK
               ? PS_OK
               : ps_error_set(err, status, "key %s: copy through the host: %s",
                              key->row.name, ps_status_text(status));
}

enum ps_status ps_staging_in(struct ps_kvstore *store, struct ps_key key,
                             struct ps_tensor *const *grads, uint32_t grad_count,
                             struct ps_tensor *const *weights, uint32_t weight_count,
                             int priority, struct ps_staged *staged_out,
                             struct ps_error *err)
{
    struct ps_kv_key *found;
    struct ps_staged staged = {.grad_count = grad_count};
    PS_TRY(ps_kvstore_find_key(store, key, &found, err));
    for (uint32_t i = 0; i < grad_count; i++) {
        staged.grads[i] = grads[i];
        if (on_device(grads[i])) {
            enum ps_status status =
                host_tensor(store, found, FIRST_GRAD + i, grads[i], &staged.grads[i]);
            if (status == PS_OK) {
                status = ps_tensor_copy(grads[i], staged.grads[i], priority);
            }
            PS_TRY(say(err, status, found));
        }
    }
    for (uint32_t i = 0; i < weight_count; i++) {
        if (!on_device(weights[i])) {
            staged.weights[staged.weight_count++] = weights[i];
        } else if (staged.value == NULL) {
            PS_TRY(say(err, host_tensor(store, found, VALUE, weights[i], &staged.value),
                       found));
            staged.weights[staged.weight_count++] = staged.value;
        }
    }
    *staged_out = staged;
    return PS_OK;
}

enum ps_status ps_staging_out(const struct ps_staged *staged,
                              struct ps_tensor *const *weights, uint32_t weight_count,
                              int priority, struct ps_error *err)
{
    for (uint32_t i = 0; i < weight_count; i++) {
        if (!on_device(weights[i])) {
            continue;
        }
        enum ps_status status = ps_tensor_copy(staged->value, weights[i], priority);
        if (status != PS_OK) {
            return ps_error_set(err, status, "pull: copy to device %u: %s", i,
                                ps_status_text(status));
        }
    }
    return PS_OK;
}

void ps_staging_fini(struct ps_kv_key *key)
{
    for (size_t i = 0; key->staging != NULL && i < STAGING_COUNT; i++) {
        ps_tensor_release(key->staging[i]);
    }
    free(key->staging);
    key->staging = NULL;
}
