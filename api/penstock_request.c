/* penstock.h: push, pull and pushpull as requests; completion queues. */
#include "api/handles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void request_done(struct ps_kv_request *kv)
{
    struct penstock_request *request = PS_CONTAINER_OF(kv, struct penstock_request, kv);
    struct penstock_queue *queue = request->queue;
    atomic_store(&request->finished, true);
    if (queue == NULL) {
        ps_event_set(&request->event); /* the caller may free the request from here on */
        return;
    }
    ps_mutex_lock(&queue->mutex);
    ps_list_push_back(&queue->done, &request->node);
    uint64_t one = 1;
    ssize_t wrote = write(queue->fd, &one, sizeof(one)); /* fails only at 2^64 - 2 */
    PS_UNUSED(wrote);
    ps_event_set(
        &request->event); /* under the lock: who frees it takes it off the queue first */
    ps_mutex_unlock(&queue->mutex);
}

static void request_destroy(struct penstock_request *request)
{
    if (request->src != &request->src_one) {
        free(request->src);
    }
    if (request->dst != &request->dst_one) {
        free(request->dst);
    }
    ps_event_fini(&request->event);
    free(request);
}

static enum ps_status read_tensors(struct penstock_request *request,
                                   const penstock_tensor *tensors, size_t count,
                                   void **data_out, struct ps_error *err)
{
    for (size_t i = 0; i < count; i++) {
        int dtype;
        struct ps_shape shape;
        const penstock_tensor *tensor = tensors != NULL ? &tensors[i] : NULL;
        PS_TRY(penstock_read_tensor(tensor, &dtype, &shape, &data_out[i], err));
        uint64_t elements = (uint64_t)ps_shape_count(&shape);
        if (request->kv.count == 0) {
            request->kv.dtype = dtype;
            request->kv.count = elements;
        }
        if (request->kv.dtype != dtype || request->kv.count != elements) {
            return ps_error_set(err, PS_ESHAPE,
                                "tensors of different dtype or size in one call");
        }
    }
    return PS_OK;
}

static enum ps_status request_create(penstock_store *store, penstock_key key,
                                     const penstock_tensor *values, size_t value_count,
                                     const penstock_tensor *outs, size_t out_count,
                                     struct penstock_request **request_out,
                                     struct ps_error *err)
{
    if (value_count > UINT32_MAX || out_count > UINT32_MAX) {
        return ps_error_set(err, PS_ERANGE, "too many tensors in one call");
    }
    struct penstock_request *request = calloc(1, sizeof(*request));
    if (request == NULL ||
        ps_event_init(&request->event, store->node->node->driver) != PS_OK) {
        free(request);
        return ps_error_set(err, PS_ENOMEM, "request: out of memory");
    }
    enum ps_status status = PS_OK;
    request->owner = store->node;
    request->src = value_count <= 1 ? &request->src_one
                                    : calloc(value_count, sizeof(request->src[0]));
    request->dst = out_count <= 1 ? &request->dst_one : calloc(out_count, sizeof(void *));
    if (request->src == NULL || request->dst == NULL) {
        status = ps_error_set(err, PS_ENOMEM, "request: out of memory");
        goto fail;
    }
    PS_TRY_GOTO(status,
                read_tensors(request, values, value_count, (void **)request->src, err),
                fail);
    PS_TRY_GOTO(status, read_tensors(request, outs, out_count, request->dst, err), fail);
    request->kv.key.number = key.number;
    if (key.name != NULL) {
        size_t size = strlen(key.name);
        if (size >= sizeof(request->key_name)) {
            status = ps_error_set(err, PS_EINVAL,
                                  "key \"%.60s...\": at most %zu bytes accepted",
                                  key.name, sizeof(request->key_name) - 1);
            goto fail;
        }
        memcpy(request->key_name, key.name, size + 1);
        request->kv.key.name = request->key_name;
    }
    request->kv.op = out_count == 0     ? PS_KV_PUSH
                     : value_count == 0 ? PS_KV_PULL
                                        : PS_KV_PUSHPULL;
    request->kv.src = request->src;
    request->kv.src_count = (uint32_t)value_count;
    request->kv.dst = request->dst;
    request->kv.dst_count = (uint32_t)out_count;
    request->kv.done = request_done;
    ps_list_init(&request->node);
    *request_out = request;
    return PS_OK;
fail:
    request_destroy(request);
    return status;
}

int penstock_pushpull_many(penstock_store *store, penstock_key key,
                           const penstock_tensor *values, size_t value_count,
                           penstock_tensor *outs, size_t out_count, int priority,
                           penstock_queue *queue, penstock_request **request_out)
{
    struct ps_error err = {.status = PS_OK};
    struct penstock_request *request = NULL;
    if (request_out != NULL) {
        *request_out = NULL; /* what a caller may free after any failure */
    }
    enum ps_status status =
        request_create(store, key, values, value_count, outs, out_count, &request, &err);
    if (status != PS_OK) {
        return penstock_fail(store->node, &err);
    }
    request->kv.priority = priority;
    if (request_out != NULL) {
        request->queue = queue;
        *request_out = request; /* before the completion can be seen elsewhere */
    }
    status = ps_kvstore_submit(store->store, &request->kv);
    if (status == PS_OK && request_out == NULL) {
        status =
            ps_event_wait(&request->event, PS_NEVER); /* it has a deadline of its own */
        if (status != PS_OK) {
            return status; /* the store still has it */
        }
        status = request->kv.error.status;
    } else if (status == PS_OK) {
        return PS_OK;
    }
    err = request->kv.error;
    err.status = status;
    if (request_out != NULL) {
        *request_out = NULL;
    }
    request_destroy(request);
    return status != PS_OK ? penstock_fail(store->node, &err) : PS_OK;
}

int penstock_push(penstock_store *store, penstock_key key, const penstock_tensor *value,
                  int priority, penstock_queue *queue, penstock_request **request_out)
{
    return penstock_pushpull_many(store, key, value, 1, NULL, 0, priority, queue,
                                  request_out);
}

int penstock_pull(penstock_store *store, penstock_key key, penstock_tensor *out,
                  int priority, penstock_queue *queue, penstock_request **request_out)
{
    return penstock_pushpull_many(store, key, NULL, 0, out, 1, priority, queue,
                                  request_out);
}

int penstock_pushpull(penstock_store *store, penstock_key key,
                      const penstock_tensor *value, penstock_tensor *out, int priority,
                      penstock_queue *queue, penstock_request **request_out)
{
    return penstock_pushpull_many(store, key, value, 1, out, 1, priority, queue,
                                  request_out);
}

/* ---- requests ---- */

int penstock_request_wait(penstock_request *request, int timeout_ms)
{
    struct ps_node *node = request->owner->node;
    uint64_t deadline = PS_NEVER;
    if (timeout_ms >= 0) {
        deadline = ps_clock_now_ns(node->clock) + (uint64_t)timeout_ms * PS_NS_PER_MS;
    }
    PS_TRY(ps_event_wait(&request->event, deadline));
    return request->kv.error.status == PS_OK
               ? PS_OK
               : penstock_fail(request->owner, &request->kv.error);
}

int penstock_request_done(const penstock_request *request)
{
    return atomic_load(&request->finished) ? 1 : 0;
}

int penstock_request_status(const penstock_request *request)
{
    return atomic_load(&request->finished) ? request->kv.error.status : PS_ENOTREADY;
}

const char *penstock_request_text(const penstock_request *request)
{
    return atomic_load(&request->finished) ? request->kv.error.text : "";
}

uint32_t penstock_request_contributors(const penstock_request *request)
{
    return atomic_load(&request->finished) ? request->kv.contributors : 0;
}

uint64_t penstock_request_version(const penstock_request *request)
{
    return atomic_load(&request->finished) ? request->kv.version : 0;
}

void penstock_request_set_tag(penstock_request *request, void *tag)
{
    request->tag = tag;
}

void *penstock_request_tag(const penstock_request *request)
{
    return request->tag;
}

void penstock_request_free(penstock_request *request)
{
    if (request == NULL) {
        return;
    }
    if (ps_event_wait(&request->event, PS_NEVER) != PS_OK) {
        return; /* the store still has it */
    }
    if (request->queue != NULL) {
        ps_mutex_lock(&request->queue->mutex);
        ps_list_remove(&request->node);
        ps_mutex_unlock(&request->queue->mutex);
    }
    request_destroy(request);
}

/* ---- queues ---- */

int penstock_queue_create(penstock_node *node, penstock_queue **queue_out)
{
    struct ps_error err;
    struct penstock_queue *queue = calloc(1, sizeof(*queue));
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue == NULL || fd < 0) {
        free(queue);
        if (fd >= 0) {
            (void)close(fd);
        }
        (void)ps_error_set(&err, PS_ENOMEM, "completion queue: no memory or descriptors");
        return penstock_fail(node, &err);
    }
    queue->fd = fd;
    ps_mutex_init(&queue->mutex);
    ps_list_init(&queue->done);
    *queue_out = queue;
    return PS_OK;
}

void penstock_queue_destroy(penstock_queue *queue)
{
    if (queue != NULL) {
        struct ps_list *node;
        ps_mutex_lock(
            &queue->mutex); /* the last completion may still be on its way out */
        while ((node = ps_list_pop_front(&queue->done)) != NULL) {
            PS_CONTAINER_OF(node, struct penstock_request, node)->queue = NULL;
        }
        ps_mutex_unlock(&queue->mutex);
        (void)close(queue->fd);
        ps_mutex_fini(&queue->mutex);
        free(queue);
    }
}

int penstock_queue_fd(const penstock_queue *queue)
{
    return queue->fd;
}

penstock_request *penstock_queue_next(penstock_queue *queue)
{
    struct penstock_request *request = NULL;
    ps_mutex_lock(&queue->mutex);
    struct ps_list *node = ps_list_pop_front(&queue->done);
    if (node != NULL) {
        request = PS_CONTAINER_OF(node, struct penstock_request, node);
        request->queue = NULL; /* the owner's alone: the queue may go before it */
    }
    if (ps_list_empty(&queue->done)) {
        uint64_t count; /* drained: the fd is not readable until the next completion */
        ssize_t got = read(queue->fd, &count, sizeof(count));
        PS_UNUSED(got);
    }
    ps_mutex_unlock(&queue->mutex);
    return request;
}
