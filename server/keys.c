/* A lane's keys: the entries of its shards, found by handle and element, and the rules
 * that update them.
 * Thread: the lane's loop. */
#include "base/util.h"
#include "server/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what entries ask (struct ps_entry_env) ---- */

static const struct ps_update_rule *rule_of(const struct ps_entry *entry)
{
    const struct lane_key *key = PS_CONTAINER_OF(entry->key, struct lane_key, shared);
    return &key->store->rule;
}

static bool env_optimized(void *ctx, const struct ps_entry *entry)
{
    PS_UNUSED(ctx);
    return rule_of(entry)->set;
}

static enum ps_status env_update(void *ctx, struct ps_entry *entry,
                                 const struct ps_entry_update *update,
                                 struct ps_error *err)
{
    PS_UNUSED(ctx);
    return ps_update_apply(rule_of(entry), entry, update, err);
}

static enum ps_status env_fault(void *ctx, const char *point)
{
    struct server_lane *lane = ctx;
    return PS_FAULT(lane->server->node, point);
}

void server_env_init(struct server_lane *lane)
{
    lane->env = (struct ps_entry_env){.ctx = lane,
                                      .quorum = &lane->quorum,
                                      .blocks = lane->blocks,
                                      .optimized = env_optimized,
                                      .update = env_update,
                                      .answer = server_data_answer,
                                      .fault = env_fault};
}

/* ---- stores ---- */

static struct lane_store *store_of(struct server_lane *lane, const char *name)
{
    struct lane_store *store = ps_strmap_get(&lane->stores, name);
    if (store != NULL) {
        return store;
    }
    store = calloc(1, sizeof(*store));
    if (store == NULL) {
        return NULL;
    }
    if (ps_strmap_put(&lane->stores, name, store, NULL) != PS_OK) {
        free(store);
        return NULL;
    }
    return store;
}

struct store_change {
    const struct lane_store *store;
};

static void forget_state(struct ps_entry *entry, void *arg)
{
    const struct store_change *change = arg;
    if (rule_of(entry) == &change->store->rule) {
        ps_entry_optimizer_changed(entry, true);
    }
}

enum ps_status server_optimizer_set(struct server_lane *lane,
                                    const struct ps_msg_optimizer *msg,
                                    struct ps_error *err)
{
    struct lane_store *store = store_of(lane, msg->store);
    if (store == NULL) {
        return ps_error_set(err, PS_ENOMEM, "out of memory");
    }
    PS_TRY(ps_update_rule_set(&store->rule, msg->name, msg->hyper, msg->multi_precision,
                              err));
    struct store_change change = {.store = store};
    server_keys_each(lane, forget_state, &change);
    return PS_OK;
}

enum ps_status server_hyper_change(struct server_lane *lane,
                                   const struct ps_msg_optimizer *msg,
                                   struct ps_error *err)
{
    struct lane_store *store = store_of(lane, msg->store);
    return store == NULL
               ? ps_error_set(err, PS_ENOMEM, "out of memory")
               : ps_update_rule_change(&store->rule, msg->hyper, msg->from_step, err);
}

/* ---- keys ---- */

static void free_key(struct lane_key *key)
{
    if (key == NULL) {
        return;
    }
    for (size_t e = 0; key->extents != NULL && e < key->extent_count; e++) {
        struct lane_extent *extent = &key->extents[e];
        for (uint64_t c = 0; extent->chunks != NULL && c < extent->chunk_count; c++) {
            ps_entry_fini(&extent->chunks[c]);
        }
        free(extent->chunks);
    }
    free(key->extents);
    free(key->places);
    free(key);
}

void server_keys_fini(struct server_lane *lane)
{
    uint64_t handle;
    const char *name;
    void *value;
    for (size_t it = 0; ps_map_next(&lane->keys, &it, &handle, &value);) {
        free_key(value);
    }
    ps_map_fini(&lane->keys);
    for (size_t it = 0; ps_strmap_next(&lane->stores, &it, &name, &value);) {
        free(value);
    }
    ps_strmap_fini(&lane->stores);
}

void server_keys_each(struct server_lane *lane,
                      void (*fn)(struct ps_entry *entry, void *arg), void *arg)
{
    uint64_t handle;
    void *value;
    for (size_t it = 0; ps_map_next(&lane->keys, &it, &handle, &value);) {
        struct lane_key *key = value;
        for (size_t e = 0; e < key->extent_count; e++) {
            for (uint64_t c = 0; c < key->extents[e].chunk_count; c++) {
                fn(&key->extents[e].chunks[c], arg);
            }
        }
    }
}

static enum ps_status make_extent(struct server_lane *lane, struct lane_key *key,
                                  struct lane_extent *extent)
{
    extent->chunk_count = ps_chunk_count(extent->place.count, key->chunk_elements);
    extent->chunks = calloc(extent->chunk_count, sizeof(*extent->chunks));
    if (extent->chunks == NULL) {
        return PS_ENOMEM;
    }
    for (uint64_t c = 0; c < extent->chunk_count; c++) {
        uint64_t at = c * key->chunk_elements;
        uint64_t count = PS_MIN(key->chunk_elements, extent->place.count - at);
        PS_TRY(ps_entry_init(&extent->chunks[c], &lane->env, &key->shared,
                             extent->place.first + at, (uint32_t)count));
    }
    return PS_OK;
}

static bool is_mine(const struct server_lane *lane, const struct ps_extent *extent)
{
    return ps_shard_lane(extent->shard, lane->server->lane_count) == lane->index;
}

/* The lane's part of a row; NULL in '*key_out' when it has none. */
static enum ps_status make_key(struct server_lane *lane, struct lane_store *store,
                               const struct ps_key_row *row, uint32_t chunk_bytes,
                               struct lane_key **key_out)
{
    size_t mine = 0;
    for (size_t i = 0; i < row->extent_count; i++) {
        mine += is_mine(lane, &row->extents[i]);
    }
    *key_out = NULL;
    if (mine == 0) {
        return PS_OK;
    }
    enum ps_status status = PS_ENOMEM;
    struct lane_key *key = calloc(1, sizeof(*key));
    if (key == NULL) {
        return PS_ENOMEM;
    }
    key->shared = (struct ps_entry_key){.handle = row->handle,
                                        .dtype = (enum ps_dtype)row->dtype,
                                        .mode = row->mode,
                                        .reduction = row->reduction};
    memcpy(key->shared.name, row->name, sizeof(key->shared.name));
    key->chunk_elements = ps_chunk_elements(row->dtype, chunk_bytes);
    key->store = store;
    key->extents = calloc(mine, sizeof(*key->extents));
    key->places = calloc(mine, sizeof(*key->places));
    if (key->extents == NULL || key->places == NULL) {
        goto fail;
    }
    for (size_t i = 0; i < row->extent_count; i++) {
        if (is_mine(lane, &row->extents[i])) {
            struct lane_extent *extent = &key->extents[key->extent_count];
            extent->place = row->extents[i];
            key->places[key->extent_count++] = row->extents[i];
            PS_TRY_GOTO(status, make_extent(lane, key, extent), fail);
        }
    }
    *key_out = key;
    return PS_OK;
fail:
    free_key(key);
    return status;
}

static enum ps_status check_row(const struct ps_key_row *row, struct ps_error *err)
{
    if (ps_dtype_size(row->dtype) == 0 || row->mode > PS_MODE_ASYNC ||
        row->reduction > PS_REDUCE_MEAN || row->codec >= PS_CODEC_LIMIT) {
        return ps_error_set(err, PS_EUNSUPPORTED,
                            "key %.100s: dtype %d mode %u reduction %u codec %u: one is "
                            "not served here",
                            row->name, row->dtype, row->mode, row->reduction, row->codec);
    }
    return PS_OK;
}

enum ps_status server_keys_add(struct server_lane *lane, const struct ps_msg_keys *msg,
                               uint32_t chunk_bytes, struct ps_error *err)
{
    struct lane_store *store = store_of(lane, msg->store);
    if (store == NULL) {
        return ps_error_set(err, PS_ENOMEM, "store %.60s: out of memory", msg->store);
    }
    for (size_t i = 0; i < msg->row_count; i++) {
        const struct ps_key_row *row = &msg->rows[i];
        struct lane_key *key;
        if (ps_map_get(&lane->keys, row->handle) != NULL) {
            continue; /* ENTRIES came again */
        }
        PS_TRY(check_row(row, err));
        enum ps_status status = make_key(lane, store, row, chunk_bytes, &key);
        if (status == PS_OK && key != NULL) {
            status = ps_map_put(&lane->keys, row->handle, key, NULL);
            if (status != PS_OK) {
                free_key(key);
            }
        }
        if (status != PS_OK) {
            return ps_error_set(err, status, "key %.100s: %s", row->name,
                                ps_status_text(status));
        }
    }
    return PS_OK;
}

enum ps_status server_keys_find(const struct server_lane *lane, const struct ps_record *r,
                                struct ps_entry **entry_out, struct ps_error *err)
{
    const struct lane_key *key = ps_map_get(&lane->keys, r->handle);
    if (key == NULL) {
        return ps_error_set(err, PS_ENOENT, "no key with handle %016" PRIx64 " here",
                            r->handle);
    }
    const char *name = key->shared.name;
    if (r->dtype != (uint8_t)key->shared.dtype) {
        return ps_error_set(err, PS_EDTYPE, "key %.100s: %s was sent, it is %s", name,
                            ps_dtype_name(r->dtype),
                            ps_dtype_name((int)key->shared.dtype));
    }
    size_t e = ps_extent_find(key->places, key->extent_count, r->first);
    if (e == SIZE_MAX || key->places[e].shard != r->shard) {
        return ps_error_set(err, PS_ESTALE,
                            "key %.100s: element %" PRIu64 " of shard %u is not here",
                            name, r->first, r->shard);
    }
    uint64_t c = ps_chunk_find(&key->places[e], key->chunk_elements, r->first, r->count);
    if (c == UINT64_MAX) {
        return ps_error_set(err, PS_ESHAPE,
                            "key %.100s: elements %" PRIu64 "+%u are no chunk of it",
                            name, r->first, r->count);
    }
    *entry_out = &key->extents[e].chunks[c];
    return PS_OK;
}
