/* Host copies of a key's tensors that lie on devices.  Private to kvstore/.
 *
 * A store works on host memory.  A gradient on a device is copied into a host tensor of
 * its own, the new value goes from one host tensor to every device that wants it; the
 * copies are engine operations of the devices' copy lanes, with the call's priority.  The
 * host tensors belong to the key: made at its first call, used by all that follow.
 * Threads: one caller at a time per key. */
#ifndef PENSTOCK_KVSTORE_STAGING_H
#define PENSTOCK_KVSTORE_STAGING_H

#include "kvstore/kvstore_ops.h"

/* What a call works on in place of the tensors it was given. */
struct ps_staged {
    struct ps_tensor *grads[PS_KV_TENSORS_MAX]; /* borrowed from the key or the caller */
    struct ps_tensor *weights[PS_KV_TENSORS_MAX + 1];
    struct ps_tensor *value; /* the host tensor to copy from; NULL: nothing to copy */
    uint32_t grad_count, weight_count;
};

/* Whether any of the tensors lies where the host cannot read it. */
bool ps_staging_needed(struct ps_tensor *const *tensors, uint32_t count);
/* Pushes the copies of device gradients to the host; host tensors stand for themselves.
 * Errors: PS_ENOENT (no such key), PS_ENOMEM, as ps_tensor_copy. */
PS_MUST_CHECK enum ps_status
ps_staging_in(struct ps_kvstore *store, struct ps_key key, struct ps_tensor *const *grads,
              uint32_t grad_count, struct ps_tensor *const *weights,
              uint32_t weight_count, int priority, struct ps_staged *staged_out,
              struct ps_error *err);
/* Pushes the copies of the value to the weights that lie on devices. */
PS_MUST_CHECK enum ps_status ps_staging_out(const struct ps_staged *staged,
                                            struct ps_tensor *const *weights,
                                            uint32_t weight_count, int priority,
                                            struct ps_error *err);
/* Lets the host tensors go, when the key does. */
void ps_staging_fini(struct ps_kv_key *key);

#endif
