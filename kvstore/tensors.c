/* Tensor calls: each is one engine operation that reads the gradients' variables and
 * writes the weights', so communication starts when a gradient is there and the next
 * forward waits only for the weights it needs.  The start runs in the engine's priority
 * pool (local sums happen there); the end comes from the store.  A gradient whose
 * producer failed becomes an ABORT vote, so that nobody else waits for it. */
#include "kvstore/kvstore_ops.h"

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tensor/tensor.h"
#include "kvstore/staging.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tensor_op {
    struct ps_kvstore *store;
    struct ps_completion *completion;
    struct ps_kv_request request;
    char key_name[PS_KEY_NAME_BYTES];
    struct ps_tensor *grads[PS_KV_TENSORS_MAX], *weights[PS_KV_TENSORS_MAX];
    const void *src[PS_KV_TENSORS_MAX];
    void *dst[PS_KV_TENSORS_MAX];
};

static void op_release(void *arg)
{
    struct tensor_op *op = arg;
    for (uint32_t i = 0; i < PS_KV_TENSORS_MAX; i++) {
        ps_tensor_release(op->grads[i]);
        ps_tensor_release(op->weights[i]);
    }
    ps_pool_put(op->store->tensor_ops, op);
}

static void op_done(struct ps_kv_request *request)
{
    struct tensor_op *op = request->ctx;
    ps_engine_complete(op->completion, request->error.status, request->error.text);
}

static void op_start(void *arg, const struct ps_run *run, struct ps_completion *done)
{
    struct tensor_op *op = arg;
    struct ps_kv_request *request = &op->request;
    op->completion = done;
    for (uint32_t i = 0; i < request->src_count; i++) {
        op->src[i] = ps_tensor_data(op->grads[i]);
    }
    for (uint32_t i = 0; i < request->dst_count; i++) {
        op->dst[i] = ps_tensor_data(op->weights[i]);
    }
    if (run->upstream != NULL && run->upstream->status != PS_OK) {
        request->upstream = run->upstream->status;
        request->error = *run->upstream;
    }
    enum ps_status status = ps_kvstore_submit(op->store, request);
    if (status != PS_OK) {
        ps_engine_complete(done, status, request->error.text);
    }
}

static enum ps_status check_tensors(struct ps_key key, struct ps_tensor *const *tensors,
                                    uint32_t count, struct ps_kv_request *request,
                                    struct ps_error *err)
{
    char number[24];
    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)key.number);
    const char *text = key.name != NULL ? key.name : number;
    for (uint32_t i = 0; i < count; i++) {
        int dtype = (int)ps_tensor_dtype(tensors[i]);
        uint64_t elements = (uint64_t)ps_tensor_count(tensors[i]);
        if (request->count == 0) {
            request->dtype = dtype;
            request->count = elements;
        }
        if (request->dtype != dtype || request->count != elements) {
            return ps_error_set(err, PS_ESHAPE,
                                "key %s: tensors of different dtype or size in one call",
                                text);
        }
    }
    return PS_OK;
}

/* One engine operation over tensors of the host. */
static enum ps_status push_op(struct ps_kvstore *store, struct ps_key key,
                              struct ps_tensor *const *grads, uint32_t grad_count,
                              struct ps_tensor *const *weights, uint32_t weight_count,
                              int priority, struct ps_error *err)
{
    struct tensor_op *op = ps_pool_get(store->tensor_ops);
    if (op == NULL) {
        return ps_error_set(err, PS_ENOMEM, "store %s: out of memory", store->name);
    }
    op->store = store;
    op->request.op = weight_count == 0 ? PS_KV_PUSH
                     : grad_count == 0 ? PS_KV_PULL
                                       : PS_KV_PUSHPULL;
    op->request.key = key;
    if (key.name != NULL) {
        (void)snprintf(op->key_name, sizeof(op->key_name), "%s", key.name);
        op->request.key.name = op->key_name;
    }
    enum ps_status status;
    struct ps_var *reads[PS_KV_TENSORS_MAX], *writes[PS_KV_TENSORS_MAX];
    PS_TRY_GOTO(status, check_tensors(key, grads, grad_count, &op->request, err),
                free_op);
    PS_TRY_GOTO(status, check_tensors(key, weights, weight_count, &op->request, err),
                free_op);
    for (uint32_t i = 0; i < grad_count; i++) {
        op->grads[i] = ps_tensor_retain(grads[i]);
        reads[i] = ps_tensor_var(grads[i]);
    }
    for (uint32_t i = 0; i < weight_count; i++) {
        op->weights[i] = ps_tensor_retain(weights[i]);
        writes[i] = ps_tensor_var(weights[i]);
    }
    op->request.src = op->src;
    op->request.src_count = grad_count;
    op->request.dst = op->dst;
    op->request.dst_count = weight_count;
    op->request.priority = priority;
    op->request.done = op_done;
    op->request.ctx = op;
    struct ps_engine_op engine_op = {
        .name = "KVStorePushPull",
        .start = op_start,
        .arg = op,
        .release = op_release,
        .reads = reads,
        .read_count = grad_count,
        .writes = writes,
        .write_count = weight_count,
        .context = PS_CPU(0),
        .kind = PS_ENGINE_CPU_PRIORITIZED,
        .priority = priority,
        .no_skip = true,
    };
    status = ps_engine_push(store->engine, &engine_op);
    if (status == PS_OK) {
        return PS_OK;
    }
    (void)ps_error_set(err, status, "pushpull: %s", ps_status_text(status));
free_op:
    op_release(op);
    return status;
}

enum ps_status ps_kvstore_pushpull(struct ps_kvstore *store, struct ps_key key,
                                   struct ps_tensor *const *grads, uint32_t grad_count,
                                   struct ps_tensor *const *weights,
                                   uint32_t weight_count, int priority,
                                   struct ps_error *err)
{
    if (store->engine == NULL) {
        return ps_error_set(err, PS_EINVAL, "store %s was created without an engine",
                            store->name);
    }
    if (grad_count + weight_count == 0 || grad_count > PS_KV_TENSORS_MAX ||
        weight_count > PS_KV_TENSORS_MAX) {
        return ps_error_set(err, PS_ERANGE,
                            "a call takes 1 to %d tensors on each side, not %u, %u",
                            PS_KV_TENSORS_MAX, grad_count, weight_count);
    }
    if (!ps_staging_needed(grads, grad_count) &&
        !ps_staging_needed(weights, weight_count)) {
        return push_op(store, key, grads, grad_count, weights, weight_count, priority,
                       err);
    }
    /* all of them before the first copy: a call that is refused has done nothing */
    struct ps_kv_request asked = {.count = 0};
    PS_TRY(check_tensors(key, grads, grad_count, &asked, err));
    PS_TRY(check_tensors(key, weights, weight_count, &asked, err));
    struct ps_staged staged;
    PS_TRY(ps_staging_in(store, key, grads, grad_count, weights, weight_count, priority,
                         &staged, err));
    PS_TRY(push_op(store, key, staged.grads, staged.grad_count, staged.weights,
                   staged.weight_count, priority, err));
    return ps_staging_out(&staged, weights, weight_count, priority, err);
}

enum ps_status ps_kvstore_init_tensors(struct ps_kvstore *store,
                                       const struct ps_key *keys,
                                       struct ps_tensor *const *values, size_t count,
                                       enum ps_key_reduction reduction,
                                       struct ps_error *err)
{
    struct ps_kv_init *inits = calloc(count > 0 ? count : 1, sizeof(*inits));
    if (inits == NULL) {
        return ps_error_set(err, PS_ENOMEM, "init of %zu tensors: out of memory", count);
    }
    enum ps_status status = PS_OK;
    for (size_t i = 0; i < count && status == PS_OK; i++) {
        size_t bytes = ps_tensor_bytes(values[i]);
        void *data = malloc(bytes > 0 ? bytes : 1);
        if (data == NULL) {
            status =
                ps_error_set(err, PS_ENOMEM, "init of %zu bytes: out of memory", bytes);
            break;
        }
        inits[i] = (struct ps_kv_init){
            .key = keys[i],
            .dtype = (int)ps_tensor_dtype(values[i]),
            .shape = *ps_tensor_shape(values[i]),
            .data = data,
            .reduction = (uint8_t)reduction,
        };
        status = ps_tensor_read(values[i], data, bytes, err);
    }
    if (status == PS_OK) {
        status = ps_kvstore_init(store, inits, count, err);
    }
    for (size_t i = 0; i < count; i++) {
        free((void *)(uintptr_t)inits[i].data);
    }
    free(inits);
    return status;
}

enum ps_status ps_kvstore_tensors_open(struct ps_kvstore *store)
{
    return ps_pool_create(sizeof(struct tensor_op), 16, 0, false, &store->tensor_ops);
}
