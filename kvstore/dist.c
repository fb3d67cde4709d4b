/* The distributed store: joins the job, creates keys, hands requests to the chunk queue.
 * Everything here runs on user threads but the membership's callbacks (control loop) and
 * ps_dist_request_done (data loop). */
#include "kvstore/dist.h"

#include "base/str.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAVE_NS (10 * PS_NS_PER_S) /* for the goodbye */

/* ---- the membership that all dist stores of a node share ---- */

static void on_joined(void *ctx, const struct ps_msg_job *job)
{
    struct ps_dist *dist = ctx;
    PS_UNUSED(job);
    ps_event_set(&dist->joined);
}

static void on_failed(void *ctx, const struct ps_error *err)
{
    ps_dist_fail(ctx, err);
}

static const struct ps_member_handler member_handler = {.joined = on_joined,
                                                        .failed = on_failed};

/* Waits for an event that an error sets too. */
static enum ps_status wait_or_error(struct ps_dist *dist, struct ps_event *event,
                                    struct ps_error *err)
{
    /* registering and dialing have deadlines of their own */
    PS_TRY(ps_event_wait(event, PS_NEVER));
    return ps_dist_error(dist, err);
}

static void dist_free(struct ps_dist *dist)
{
    ps_dist_links_close(dist);
    ps_member_close(dist->member);
    ps_event_fini(&dist->linked);
    ps_event_fini(&dist->joined);
    ps_mutex_fini(&dist->mutex);
    ps_fork_guard_close(&dist->fork_guard);
    free(dist);
}

static enum ps_status dist_create(struct ps_node *node, struct ps_dist **dist_out,
                                  struct ps_error *err)
{
    if (ps_settings_is_set(node->settings, PS_SET_NUM_SERVER) &&
        ps_settings_int(node->settings, PS_SET_NUM_SERVER) == 0) {
        return ps_error_set(err, PS_EINVAL,
                            "%s is 0: a distributed store keeps its keys on servers, so "
                            "at least 1 is needed; without servers use the store local "
                            "or device",
                            ps_settings_variable(node->settings, PS_SET_NUM_SERVER));
    }
    struct ps_dist *dist = calloc(1, sizeof(*dist));
    if (dist == NULL) {
        return ps_error_set(err, PS_ENOMEM, "joining the job: out of memory");
    }
    dist->node = node;
    ps_mutex_init(&dist->mutex);
    enum ps_status status = ps_fork_guard_open(&dist->fork_guard);
    PS_TRY_GOTO(status, status, free_dist);
    PS_TRY_GOTO(status, ps_event_init(&dist->joined, node->driver), close_guard);
    PS_TRY_GOTO(status, ps_event_init(&dist->linked, node->driver), fini_joined);
    struct ps_member_options options = {
        .node = node, .role = PS_ROLE_WORKER, .handler = &member_handler, .ctx = dist};
    PS_TRY_GOTO(status, ps_member_open(&options, &dist->member, err), fini_linked);
    PS_TRY_GOTO(status, wait_or_error(dist, &dist->joined, err), close_all);
    PS_TRY_GOTO(status, ps_dist_links_open(dist, err), close_all);
    PS_TRY_GOTO(status, wait_or_error(dist, &dist->linked, err), close_all);
    ps_mutex_lock(&dist->mutex);
    dist->opened = true;
    if (dist->error.status != PS_OK) { /* between the wait and 'opened' */
        ps_doorbell_ring(&dist->bell);
    }
    ps_mutex_unlock(&dist->mutex);
    *dist_out = dist;
    return PS_OK;
close_all:
    dist_free(dist);
    return status;
fini_linked:
    ps_event_fini(&dist->linked);
fini_joined:
    ps_event_fini(&dist->joined);
close_guard:
    ps_fork_guard_close(&dist->fork_guard);
free_dist:
    ps_mutex_fini(&dist->mutex);
    free(dist);
    return status;
}

struct goodbye {
    struct ps_task task;
    struct ps_dist *dist;
    struct ps_event event;
};

static void goodbye_done(void *ctx, enum ps_status status)
{
    PS_UNUSED(status);
    ps_event_set(&((struct goodbye *)ctx)->event);
}

static void goodbye_start(struct ps_task *task)
{
    struct goodbye *goodbye = PS_CONTAINER_OF(task, struct goodbye, task);
    ps_member_leave(goodbye->dist->member, goodbye_done, goodbye);
}

/* The links go first: nothing is pending, and servers that stop because of the goodbye
 * must not look lost. */
static void dist_leave(struct ps_dist *dist)
{
    ps_dist_links_close(dist);
    struct goodbye goodbye = {.task = {.run = goodbye_start, .label = "kvstore.leave"},
                              .dist = dist};
    if (ps_dist_error(dist, NULL) == PS_OK &&
        ps_event_init(&goodbye.event, dist->node->driver) == PS_OK) {
        (void)ps_loop_post(dist->node->loop, &goodbye.task);
        if (ps_event_wait(&goodbye.event, PS_NEVER) != PS_OK) {
            PS_LOG(dist->node->log, WARN, KVSTORE, "no answer to the goodbye");
        }
        ps_event_fini(&goodbye.event);
    }
    dist_free(dist);
}

/* ---- open and close ---- */

/* Workers whose host has this worker's name. */
static uint32_t count_local_workers(struct ps_dist *dist)
{
    const struct ps_msg_job *job = ps_member_job(dist->member);
    const struct ps_member_row *self =
        ps_member_find(dist->member, PS_ROLE_WORKER, job->rank);
    uint32_t count = 0;
    for (size_t i = 0; i < job->member_count; i++) {
        const struct ps_member_row *row = &job->members[i];
        count += row->role == PS_ROLE_WORKER && self != NULL &&
                 strcmp(row->host, self->host) == 0;
    }
    return PS_MAX(count, 1);
}

static enum ps_status dist_open(struct ps_kvstore *store, struct ps_error *err)
{
    struct ps_node *node = store->node;
    struct ps_dist_store *own = calloc(1, sizeof(*own));
    if (own == NULL) {
        return ps_error_set(err, PS_ENOMEM, "store %s: out of memory", store->name);
    }
    enum ps_status status = ps_event_init(&own->drained, node->driver);
    PS_TRY_GOTO(status, status, free_own);
    ps_event_set(&own->drained);
    PS_TRY_GOTO(
        status,
        ps_reducer_create(
            (int)ps_settings_int(node->settings, PS_SET_KVSTORE_REDUCTION_NTHREADS),
            (uint64_t)ps_settings_int(node->settings, PS_SET_KVSTORE_BIGARRAY_BOUND),
            &own->reducer),
        fini_event);
    if (node->kvstore == NULL) {
        struct ps_dist *dist = NULL;
        PS_TRY_GOTO(status, dist_create(node, &dist, err), destroy_reducer);
        node->kvstore = dist;
    }
    own->dist = node->kvstore;
    own->dist->stores++;
    ps_mutex_init(&own->mutex);
    const struct ps_msg_job *job = ps_member_job(own->dist->member);
    store->rank = job->rank;
    store->num_workers = job->num_worker;
    store->local_workers = count_local_workers(own->dist);
    store->impl = own;
    return PS_OK;
destroy_reducer:
    ps_reducer_destroy(own->reducer);
fini_event:
    ps_event_fini(&own->drained);
free_own:
    free(own);
    return status;
}

/* Every request has a deadline or ends with the job, so this does too. */
static void wait_drained(struct ps_kvstore *store)
{
    struct ps_dist_store *own = store->impl;
    if (ps_event_wait(&own->drained, PS_NEVER) != PS_OK) {
        PS_LOG(store->node->log, WARN, KVSTORE, "store %s: requests are still pending",
               store->name);
    }
    ps_mutex_lock(&own->mutex); /* who set the event held it: until that one is out */
    ps_mutex_unlock(&own->mutex);
}

static void dist_close(struct ps_kvstore *store)
{
    struct ps_dist_store *own = store->impl;
    if (ps_dist_error(own->dist, NULL) == PS_EFORK) {
        return; /* nothing here runs in the child: its copies are left as they are */
    }
    wait_drained(store);
    if (--own->dist->stores == 0) {
        store->node->kvstore = NULL;
        dist_leave(own->dist);
    }
    ps_mutex_fini(&own->mutex);
    ps_event_fini(&own->drained);
    ps_reducer_destroy(own->reducer);
}

static void dist_key_fini(struct ps_kvstore *store, struct ps_kv_key *key)
{
    PS_UNUSED(store);
    struct ps_dist_key *own = key->impl;
    if (own != NULL) {
        ps_buf_release(own->spare);
        ps_mutex_fini(&own->mutex);
        free(own);
        key->impl = NULL;
    }
}

/* ---- requests ---- */

static void request_began(struct ps_dist_store *own)
{
    ps_mutex_lock(&own->mutex);
    if (own->requests++ == 0) {
        ps_event_reset(&own->drained);
    }
    ps_mutex_unlock(&own->mutex);
}

static void request_ended(struct ps_dist_store *own)
{
    ps_mutex_lock(&own->mutex);
    if (--own->requests == 0) {
        ps_event_set(&own->drained);
    }
    ps_mutex_unlock(&own->mutex);
}

void ps_dist_request_done(struct ps_dist_request *request)
{
    struct ps_kv_request *user = request->user;
    struct ps_dist_store *own = request->store->impl;
    struct ps_dist_key *key = request->key->impl;
    if (request->op != PS_REC_ABORT) {
        user->error = request->error;
    } else { /* the vote was taken or not: the operation failed upstream, in its own words
              */
        user->error.status = user->upstream;
    }
    user->version = request->version;
    user->contributors = request->contributors;
    struct ps_buf *sum = request->sum;
    if (request->op == PS_REC_PULL) {
        ps_mutex_lock(&key->mutex);
        key->pulls--;
        ps_mutex_unlock(&key->mutex);
    }
    if (sum != NULL) {
        ps_mutex_lock(&key->mutex);
        if (key->spare == NULL) {
            key->spare = sum;
            sum = NULL;
        }
        ps_mutex_unlock(&key->mutex);
        ps_buf_release(sum);
    }
    ps_pool_put(own->dist->request_pool, request);
    user->done(user);
    request_ended(own);
}

struct sum_block {
    char *out;
    int dtype;
};

static enum ps_status store_block(void *ctx, uint64_t first, size_t count,
                                  const void *sum)
{
    const struct sum_block *block = ctx;
    ps_reduce_store(block->out + first * ps_dtype_size(block->dtype), sum, block->dtype,
                    count);
    return PS_OK;
}

/* Sums the local devices' arrays into a buffer of the key's. */
static enum ps_status sum_devices(struct ps_dist_store *own, struct ps_kv_key *kv_key,
                                  const struct ps_kv_request *user,
                                  struct ps_buf **sum_out)
{
    struct ps_dist_key *key = kv_key->impl;
    int dtype = kv_key->row.dtype;
    ps_mutex_lock(&key->mutex);
    struct ps_buf *sum = key->spare;
    key->spare = NULL;
    ps_mutex_unlock(&key->mutex);
    if (sum == NULL) {
        sum = ps_buf_create((size_t)kv_key->row.count * ps_dtype_size(dtype));
    }
    if (sum == NULL) {
        return PS_ENOMEM;
    }
    struct sum_block block = {.out = sum->data, .dtype = dtype};
    enum ps_status status = ps_reducer_run(own->reducer, user->src, user->src_count,
                                           dtype, kv_key->row.count, store_block, &block);
    if (status != PS_OK) {
        ps_buf_release(sum);
        return status;
    }
    *sum_out = sum;
    return PS_OK;
}

static uint8_t record_op(const struct ps_kv_request *user)
{
    if (user->op == PS_KV_PULL) {
        return PS_REC_PULL;
    }
    if (user->upstream != PS_OK) {
        return PS_REC_ABORT;
    }
    return user->op == PS_KV_PUSH ? PS_REC_PUSH : PS_REC_PUSHPULL;
}

/* The request's priority in the queue.  A server keeps a key's pushes in order and pulls
 * behind the pushes before them; that no push goes before an earlier pull is seen to
 * here. The caller holds the key's lock. */
static void order_request(struct ps_dist_key *key, struct ps_dist_request *request)
{
    request->priority = request->user->priority;
    if (request->op == PS_REC_PULL) {
        key->pull_priority = key->pulls == 0
                                 ? request->priority
                                 : PS_MIN(key->pull_priority, request->priority);
        key->pulls++;
    } else if (key->pulls > 0) {
        request->priority = PS_MIN(request->priority, key->pull_priority);
    }
}

/* Numbers the request and queues its chunks, as one step for the key's callers. */
static enum ps_status queue_request(struct ps_dist_request *request)
{
    struct ps_dist_store *own = request->store->impl;
    struct ps_dist_key *key = request->key->impl;
    bool counts = request->op != PS_REC_PULL && request->op != PS_REC_INIT;
    ps_mutex_lock(&key->mutex);
    order_request(key, request);
    request->step = key->step + (counts ? 1 : 0);
    request_began(own);
    enum ps_status status = ps_dist_submit_chunks(request);
    if (status == PS_OK && counts) {
        key->step++;
        uint64_t max = atomic_load(&own->max_step);
        while (max < key->step &&
               !atomic_compare_exchange_weak(&own->max_step, &max, key->step)) {
        }
    }
    if (status != PS_OK && request->op == PS_REC_PULL) {
        key->pulls--;
    }
    ps_mutex_unlock(&key->mutex);
    if (status != PS_OK) {
        request_ended(own);
    }
    return status;
}

static enum ps_status start_request(struct ps_kvstore *store, struct ps_kv_key *key,
                                    struct ps_kv_request *user, uint8_t op)
{
    struct ps_dist_store *own = store->impl;
    struct ps_dist_request *request = ps_pool_get(own->dist->request_pool);
    if (request == NULL) {
        return ps_error_set(&user->error, PS_ENOMEM, "key %s: out of memory",
                            key->row.name);
    }
    request->store = store;
    request->key = key;
    request->user = user;
    request->op = op;
    enum ps_status status = PS_OK;
    if (op != PS_REC_ABORT && user->src_count > 1) {
        PS_TRY_GOTO(status, sum_devices(own, key, user, &request->sum), fail);
        request->payload = request->sum->data;
    } else if (user->src_count == 1) {
        request->payload = user->src[0];
    }
    PS_TRY_GOTO(status, queue_request(request), fail);
    return PS_OK;
fail:
    ps_buf_release(request->sum);
    ps_pool_put(own->dist->request_pool, request);
    return ps_error_set(&user->error, status, "key %s: %s", key->row.name,
                        ps_status_text(status));
}

static enum ps_status dist_submit(struct ps_kvstore *store, struct ps_kv_key *key,
                                  struct ps_kv_request *user)
{
    struct ps_dist_store *own = store->impl;
    PS_TRY(ps_dist_error(own->dist, &user->error)); /* before any lock: see fork_guard */
    /* The answer may come, and its waiter destroy the store, while this call still holds
     * the key: the call counts as well. */
    request_began(own);
    enum ps_status status = start_request(store, key, user, record_op(user));
    request_ended(own);
    return status;
}

/* ---- init ---- */

static enum ps_status create_keys(struct ps_kvstore *store, struct ps_kv_key *const *keys,
                                  size_t count, struct ps_error *err)
{
    struct ps_dist_store *own = store->impl;
    struct ps_key_row *rows = calloc(count, sizeof(*rows));
    if (rows == NULL) {
        return ps_error_set(err, PS_ENOMEM, "init of %zu keys: out of memory", count);
    }
    struct ps_msg_keys msg = {.rows = rows, .row_count = count};
    (void)snprintf(msg.store, sizeof(msg.store), "%s", store->name);
    for (size_t i = 0; i < count; i++) {
        rows[i] = keys[i]->row;
    }
    struct ps_buf *body = NULL, *reply = NULL;
    enum ps_status status = ps_msg_keys_pack(&msg, &body);
    free(rows); /* the rows' own memory is the keys' */
    if (status != PS_OK) {
        return ps_error_set(err, status, "init of %zu keys: %s", count,
                            ps_status_text(status));
    }
    PS_TRY(ps_dist_call(own->dist, PS_KIND_KEYS, "creation of keys", body, &reply, err));
    struct ps_msg_keys answer;
    status = reply != NULL
                 ? ps_msg_keys_unpack(reply->data, reply->size, &answer, err)
                 : ps_error_set(err, PS_EPROTO, "creation of keys: empty answer");
    ps_buf_release(reply);
    PS_TRY(status);
    if (answer.row_count != count) {
        status = ps_error_set(err, PS_EPROTO, "creation of %zu keys: %zu rows came back",
                              count, answer.row_count);
    }
    own->store_id = answer.store_id;
    for (size_t i = 0; i < count && status == PS_OK; i++) {
        struct ps_key_row *row = &answer.rows[i];
        if (strcmp(row->name, keys[i]->row.name) != 0 ||
            row->count != keys[i]->row.count || row->dtype != keys[i]->row.dtype) {
            status =
                ps_error_set(err, PS_EPROTO, "creation of key %s: the answer is for %s",
                             keys[i]->row.name, row->name);
            break;
        }
        keys[i]->row.handle = row->handle;
        keys[i]->row.extents = row->extents;
        keys[i]->row.extent_count = row->extent_count;
        row->extents = NULL; /* moved */
        row->extent_count = 0;
    }
    ps_msg_keys_fini(&answer);
    return status;
}

static enum ps_status attach_key(struct ps_dist *dist, struct ps_kv_key *key,
                                 struct ps_error *err)
{
    struct ps_dist_key *own = calloc(1, sizeof(*own));
    if (own == NULL) {
        return ps_error_set(err, PS_ENOMEM, "key %s: out of memory", key->row.name);
    }
    ps_mutex_init(&own->mutex);
    own->chunk_elements = ps_chunk_elements(key->row.dtype, (uint32_t)dist->chunk_bytes);
    uint64_t covered = 0;
    const struct ps_msg_job *job = ps_member_job(dist->member);
    key->impl = own;
    for (size_t e = 0; e < key->row.extent_count; e++) {
        const struct ps_extent *extent = &key->row.extents[e];
        if (extent->first != covered || extent->count == 0 ||
            extent->count > key->row.count - covered ||
            extent->shard >= job->shard_count) {
            return ps_error_set(err, PS_EPROTO,
                                "key %s: extent %zu of the answer is wrong",
                                key->row.name, e);
        }
        covered += extent->count;
        own->chunk_count += ps_chunk_count(extent->count, own->chunk_elements);
    }
    if (covered != key->row.count) {
        return ps_error_set(err, PS_EPROTO,
                            "key %s: the answer covers %" PRIu64 " of %" PRIu64
                            " elements",
                            key->row.name, covered, key->row.count);
    }
    return PS_OK;
}

struct init_wait {
    struct ps_event event;
    _Atomic size_t remaining;
};

static void init_done(struct ps_kv_request *request)
{
    struct init_wait *wait = request->ctx;
    if (atomic_fetch_sub(&wait->remaining, 1) == 1) {
        ps_event_set(&wait->event);
    }
}

/* Rank 0: all values go out together, then one wait. */
static enum ps_status send_values(struct ps_kvstore *store, struct ps_kv_key *const *keys,
                                  const struct ps_kv_init *inits, size_t count,
                                  struct ps_error *err)
{
    struct init_wait wait;
    struct ps_kv_request *requests = calloc(count, sizeof(*requests));
    const void **sources = calloc(count, sizeof(*sources));
    enum ps_status status = PS_ENOMEM;
    if (requests == NULL || sources == NULL) {
        (void)ps_error_set(err, status, "init of %zu keys: out of memory", count);
        goto free_requests;
    }
    PS_TRY_GOTO(status, ps_event_init(&wait.event, store->node->driver), free_requests);
    atomic_init(&wait.remaining, count + 1);
    size_t sent = 0;
    for (; sent < count && status == PS_OK; sent++) {
        sources[sent] = inits[sent].data;
        requests[sent] = (struct ps_kv_request){
            .op = PS_KV_PUSH,
            .src = &sources[sent],
            .src_count = 1,
            .done = init_done,
            .ctx = &wait,
        };
        status = start_request(store, keys[sent], &requests[sent], PS_REC_INIT);
        if (status != PS_OK && err != NULL) {
            *err = requests[sent].error;
            break;
        }
    }
    size_t unsent = count - sent;
    if (atomic_fetch_sub(&wait.remaining, unsent + 1) != unsent + 1) {
        enum ps_status waited = ps_event_wait(&wait.event, PS_NEVER);
        status = status != PS_OK ? status : waited;
    }
    for (size_t i = 0; i < sent && status == PS_OK; i++) {
        if (requests[i].error.status != PS_OK) {
            status = requests[i].error.status;
            if (err != NULL) {
                *err = requests[i].error;
            }
        }
    }
    ps_event_fini(&wait.event);
free_requests:
    free(sources);
    free(requests);
    return status;
}

static enum ps_status dist_init(struct ps_kvstore *store, struct ps_kv_key *const *keys,
                                const struct ps_kv_init *inits, size_t count,
                                struct ps_error *err)
{
    struct ps_dist_store *own = store->impl;
    for (size_t i = 0; i < count && store->rank == 0; i++) {
        if (inits[i].data == NULL) {
            return ps_error_set(err, PS_EINVAL, "key %s: rank 0 gives the first value",
                                keys[i]->row.name);
        }
    }
    PS_TRY(create_keys(store, keys, count, err));
    for (size_t i = 0; i < count; i++) {
        PS_TRY(attach_key(own->dist, keys[i], err));
    }
    return store->rank == 0 ? send_values(store, keys, inits, count, err) : PS_OK;
}

/* ---- the job ---- */

static enum ps_status send_optimizer(struct ps_kvstore *store, enum ps_frame_kind kind,
                                     struct ps_msg_optimizer *msg, struct ps_error *err)
{
    struct ps_dist *dist = ((struct ps_dist_store *)store->impl)->dist;
    struct ps_buf *body = NULL;
    (void)snprintf(msg->store, sizeof(msg->store), "%s", store->name);
    msg->sequence = atomic_fetch_add(&dist->optimizer_sequence, 1) + 1;
    enum ps_status status = ps_msg_optimizer_pack(msg, &body);
    if (status != PS_OK) {
        return ps_error_set(err, status, "optimizer: %s", ps_status_text(status));
    }
    return ps_dist_call(dist, kind,
                        kind == PS_KIND_OPTIMIZER ? "set_optimizer" : "set_hyper", body,
                        NULL, err);
}

static enum ps_status copy_hyper(struct ps_msg_optimizer *msg, const char *hyper,
                                 struct ps_error *err)
{
    int size = snprintf(msg->hyper, sizeof(msg->hyper), "%s", hyper);
    if (size < 0 || (size_t)size >= sizeof(msg->hyper)) {
        return ps_error_set(err, PS_ERANGE,
                            "hyper-parameters: at most %zu bytes are accepted",
                            sizeof(msg->hyper) - 1);
    }
    return PS_OK;
}

static enum ps_status dist_set_optimizer(struct ps_kvstore *store, const char *name,
                                         const char *hyper, bool multi_precision,
                                         struct ps_error *err)
{
    struct ps_optimizer
        optimizer; /* bad words fail here, before anyone else hears them */
    PS_TRY(ps_optimizer_init(name, &optimizer, err));
    PS_TRY(ps_optimizer_change(&optimizer, hyper, err));
    struct ps_msg_optimizer msg = {.multi_precision = multi_precision};
    (void)snprintf(msg.name, sizeof(msg.name), "%s", ps_optimizer_name(optimizer.kind));
    PS_TRY(copy_hyper(&msg, hyper, err));
    return send_optimizer(store, PS_KIND_OPTIMIZER, &msg, err);
}

static enum ps_status dist_set_hyper(struct ps_kvstore *store, const char *hyper,
                                     struct ps_error *err)
{
    struct ps_dist_store *own = store->impl;
    struct ps_msg_optimizer msg = {.from_step = atomic_load(&own->max_step) + 1};
    PS_TRY(copy_hyper(&msg, hyper, err));
    return send_optimizer(store, PS_KIND_HYPER, &msg, err);
}

static enum ps_status dist_set_updater(struct ps_kvstore *store, ps_kv_updater_fn fn,
                                       void *ctx, struct ps_error *err)
{
    PS_UNUSED(fn);
    PS_UNUSED(ctx);
    return ps_error_set(err, PS_EUNSUPPORTED,
                        "store %s: servers run no code of the user's: use set_optimizer",
                        store->name);
}

static enum ps_status dist_barrier(struct ps_kvstore *store, struct ps_error *err)
{
    struct ps_dist *dist = ((struct ps_dist_store *)store->impl)->dist;
    if (store->num_workers == 1) {
        return ps_dist_error(dist, err);
    }
    struct ps_msg_barrier msg = {.sequence =
                                     atomic_fetch_add(&dist->barrier_sequence, 1) + 1};
    (void)snprintf(msg.name, sizeof(msg.name), "workers");
    struct ps_buf *body = NULL;
    PS_TRY(ps_msg_barrier_pack(&msg, &body));
    return ps_dist_call(dist, PS_KIND_BARRIER, "barrier", body, NULL, err);
}

static enum ps_status dist_done(struct ps_kvstore *store, struct ps_error *err)
{
    struct ps_dist *dist = ((struct ps_dist_store *)store->impl)->dist;
    PS_TRY(ps_dist_error(dist, err));
    wait_drained(store);
    return ps_dist_call(dist, PS_KIND_DONE, "done", NULL, NULL, err);
}

/* A job that ended for this worker is left without a goodbye: see dist_leave. */
static void dist_abandon(struct ps_kvstore *store, const struct ps_error *err)
{
    ps_dist_fail(((struct ps_dist_store *)store->impl)->dist, err);
}

const struct ps_store_ops ps_store_dist = {
    .name = "dist",
    .open = dist_open,
    .close = dist_close,
    .init = dist_init,
    .key_fini = dist_key_fini,
    .submit = dist_submit,
    .set_optimizer = dist_set_optimizer,
    .set_hyper = dist_set_hyper,
    .set_updater = dist_set_updater,
    .barrier = dist_barrier,
    .done = dist_done,
    .abandon = dist_abandon,
};
