/* Placement of new keys: the scheduler's decisions.
 *
 * Keys under the bound go, largest first, to the server with the least bytes; the others
 * are split over all servers.  Inside a server extents are dealt over its shards in turn,
 * and so over its lanes.  Nothing is recomputed later: rows hold their extents.
 * Threads: one at a time.  Source: DESIGN.md section 5; reference/behaviour.md 4.5. */
#include "base/util.h"
#include "kvstore/shard/placement_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void free_rows(struct ps_key_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ps_key_row_fini(&rows[i]);
    }
}

/* ---- one key ---- */

static uint64_t row_bytes(const struct ps_key_row *row)
{
    return row->count * ps_dtype_size(row->dtype);
}

/* Elements before server i's part: round(n / S * i), half away from zero, in double
 * arithmetic as users of the old system know it (exact for n < 2^53). */
static uint64_t split_point(uint64_t n, size_t servers, size_t i)
{
    if (i == servers) {
        return n;
    }
    return (uint64_t)llround((double)n / (double)servers * (double)i);
}

static uint32_t deal_shard(struct ps_server_load *server)
{
    uint32_t shard = server->shard_first + server->next;
    server->next = (server->next + 1) % server->shard_count;
    return shard;
}

static enum ps_status place_whole(struct ps_server_load *servers, size_t server_count,
                                  struct ps_key_row *row)
{
    struct ps_extent *extent = calloc(1, sizeof(*extent));
    if (extent == NULL) {
        return PS_ENOMEM;
    }
    struct ps_server_load *least = &servers[0];
    for (size_t i = 1; i < server_count; i++) {
        if (servers[i].bytes < least->bytes) {
            least = &servers[i];
        }
    }
    *extent =
        (struct ps_extent){.first = 0, .count = row->count, .shard = deal_shard(least)};
    least->bytes += row_bytes(row);
    row->extents = extent;
    row->extent_count = 1;
    return PS_OK;
}

static enum ps_status place_split(struct ps_server_load *servers, size_t server_count,
                                  struct ps_key_row *row)
{
    uint64_t most = row->count / (uint64_t)PS_EXTENT_COUNT_MAX + 2 * server_count;
    struct ps_extent *extents = calloc(most, sizeof(*extents));
    if (extents == NULL) {
        return PS_ENOMEM;
    }
    size_t n = 0;
    for (size_t i = 0; i < server_count; i++) {
        uint64_t at = split_point(row->count, server_count, i);
        uint64_t end = split_point(row->count, server_count, i + 1);
        servers[i].bytes += (end - at) * ps_dtype_size(row->dtype);
        while (at < end) {
            uint64_t count = PS_MIN(end - at, (uint64_t)PS_EXTENT_COUNT_MAX);
            extents[n++] = (struct ps_extent){
                .first = at, .count = count, .shard = deal_shard(&servers[i])};
            at += count;
        }
    }
    row->extents = extents;
    row->extent_count = n;
    return PS_OK;
}

static enum ps_status copy_row(struct ps_key_row *to, const struct ps_key_row *from)
{
    struct ps_extent *extents = calloc(from->extent_count, sizeof(*extents));
    if (extents == NULL) {
        return PS_ENOMEM;
    }
    memcpy(extents, from->extents, from->extent_count * sizeof(*extents));
    *to = *from;
    to->extents = extents;
    return PS_OK;
}

static enum ps_status check_same(const struct ps_key_row *have,
                                 const struct ps_key_row *want, struct ps_error *err)
{
    char a[PS_SHAPE_TEXT_BYTES], b[PS_SHAPE_TEXT_BYTES];
    if (have->dtype != want->dtype) {
        return ps_error_set(err, PS_EMISMATCH, "key %.100s: dtype %s here, exists as %s",
                            want->name, ps_dtype_name(want->dtype),
                            ps_dtype_name(have->dtype));
    }
    if (!ps_shape_equal(&have->shape, &want->shape)) {
        return ps_error_set(err, PS_EMISMATCH, "key %.100s: shape %s here, exists as %s",
                            want->name, ps_shape_text(&want->shape, a),
                            ps_shape_text(&have->shape, b));
    }
    static const char *const names[] = {"kind", "mode", "reduction", "codec"};
    const uint8_t w[] = {want->kind, want->mode, want->reduction, want->codec};
    const uint8_t h[] = {have->kind, have->mode, have->reduction, have->codec};
    for (size_t i = 0; i < PS_COUNT(names); i++) {
        if (w[i] != h[i]) {
            return ps_error_set(err, PS_EMISMATCH, "key %.100s: %s %u here, exists as %u",
                                want->name, names[i], w[i], h[i]);
        }
    }
    return PS_OK;
}

static enum ps_status check_new(struct ps_key_row *row, struct ps_error *err)
{
    char text[PS_SHAPE_TEXT_BYTES];
    int64_t count = ps_shape_count(&row->shape);
    if (row->name[0] == '\0' || memchr(row->name, 0, sizeof(row->name)) == NULL) {
        return ps_error_set(err, PS_EINVAL, "a key needs a name of 1 to %d bytes",
                            PS_KEY_NAME_BYTES - 1);
    }
    size_t size = ps_dtype_size(row->dtype);
    if (size == 0) {
        return ps_error_set(err, PS_EDTYPE, "key %.100s: dtype %d is not known",
                            row->name, row->dtype);
    }
    /* 2^53: split points are computed in double arithmetic */
    if (count <= 0 || count > (INT64_C(1) << 53) / (int64_t)size) {
        return ps_error_set(err, PS_ESHAPE,
                            "key %.100s: shape %s must be known, not empty, at most "
                            "2^53 bytes",
                            row->name, ps_shape_text(&row->shape, text));
    }
    if (row->mode > PS_MODE_ASYNC || row->reduction > PS_REDUCE_MEAN ||
        row->kind > PS_KEY_SCALAR || row->codec >= PS_CODEC_LIMIT) {
        return ps_error_set(err, PS_EINVAL,
                            "key %.100s: kind %u mode %u reduction %u codec %u: one is "
                            "not known",
                            row->name, row->kind, row->mode, row->reduction, row->codec);
    }
    row->count = (uint64_t)count;
    return PS_OK;
}

/* ---- a batch ---- */

struct batch_item {
    size_t index; /* in the caller's rows */
    uint64_t bytes;
};

static int larger_first(const void *a, const void *b)
{
    const struct batch_item *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->index < y->index ? -1 : 1;
}

/* Work of one ps_placement_add: everything that must vanish when it fails. */
struct batch {
    struct ps_key_row *rows; /* results, in the caller's order */
    struct batch_item *items;
    size_t fresh_count;
    struct ps_server_load *servers; /* the loads after it */
};

static void batch_fini(struct batch *batch, size_t count)
{
    if (batch->rows != NULL) {
        free_rows(batch->rows, count);
    }
    free(batch->rows);
    free(batch->items);
    free(batch->servers);
}

/* Checks each row; existing ones are copied, new ones become items. */
static enum ps_status batch_sort_out(struct ps_placement *p, uint32_t store,
                                     const struct ps_key_row *rows, size_t count,
                                     struct batch *batch, struct ps_error *err)
{
    struct ps_strmap seen = {0};
    enum ps_status status = PS_OK;
    for (size_t i = 0; i < count && status == PS_OK; i++) {
        char key[PS_NAME_KEY_BYTES];
        void *before = NULL;
        struct ps_key_row row = rows[i];
        row.extents = NULL;
        row.extent_count = 0;
        row.handle = 0; /* marks the new ones; indices start at 1 */
        PS_TRY_GOTO(status, check_new(&row, err), done);
        PS_TRY_GOTO(
            status,
            ps_strmap_put(&seen, ps_placement_name_key(store, &row, key), p, &before),
            done);
        if (before != NULL) {
            status = ps_error_set(err, PS_EEXIST, "key %.100s stands twice in one call",
                                  row.name);
            goto done;
        }
        const struct ps_key_row *have = ps_placement_find_named(p, key);
        if (have != NULL) {
            PS_TRY_GOTO(status, check_same(have, &row, err), done);
            PS_TRY_GOTO(status, copy_row(&batch->rows[i], have), done);
        } else {
            batch->rows[i] = row;
            batch->items[batch->fresh_count++] =
                (struct batch_item){.index = i, .bytes = row_bytes(&row)};
        }
    }
done:
    ps_strmap_fini(&seen);
    return status;
}

static enum ps_status batch_place(struct ps_placement *p, uint32_t store,
                                  struct batch *batch, struct ps_error *err)
{
    if (batch->fresh_count > PS_KEY_INDEX_MAX - p->next_index) {
        return ps_error_set(err, PS_EFULL, "no more key handles");
    }
    qsort(batch->items, batch->fresh_count, sizeof(*batch->items), larger_first);
    for (size_t k = 0; k < batch->fresh_count; k++) {
        struct ps_key_row *row = &batch->rows[batch->items[k].index];
        if (row->count >= p->bigarray_bound && p->server_count > 1) {
            PS_TRY(place_split(batch->servers, p->server_count, row));
        } else {
            PS_TRY(place_whole(batch->servers, p->server_count, row));
        }
    }
    /* Handles in the caller's order, so that they read like the program. */
    for (size_t i = 0, next = 0; next < batch->fresh_count; i++) {
        if (batch->rows[i].handle == 0) {
            batch->rows[i].handle = ps_handle_make(store, p->next_index + next, 1);
            next++;
        }
    }
    return PS_OK;
}

static enum ps_status reserve_rows(struct ps_placement *p, size_t more)
{
    if (p->row_count + more <= p->row_capacity) {
        return PS_OK;
    }
    size_t capacity = PS_MAX(p->row_capacity * 2, p->row_count + more);
    struct ps_key_row *rows = realloc(p->rows, capacity * sizeof(*rows));
    if (rows == NULL) {
        return PS_ENOMEM;
    }
    p->rows = rows;
    p->row_capacity = capacity;
    return PS_OK;
}

/* Makes the new rows known; undoes itself on failure. */
static enum ps_status batch_publish(struct ps_placement *p, uint32_t store,
                                    const struct batch *batch, size_t count)
{
    char key[PS_NAME_KEY_BYTES];
    size_t start = p->row_count;
    enum ps_status status = reserve_rows(p, batch->fresh_count);
    for (size_t i = 0; i < count && status == PS_OK; i++) {
        const struct ps_key_row *row = &batch->rows[i];
        if (ps_handle_index(row->handle) < p->next_index) {
            continue; /* existed before */
        }
        status = copy_row(&p->rows[p->row_count], row);
        if (status == PS_OK) {
            p->row_count++;
            status = ps_strmap_put(&p->names, ps_placement_name_key(store, row, key),
                                   (void *)(uintptr_t)p->row_count, NULL);
        }
    }
    if (status != PS_OK) {
        while (p->row_count > start) {
            p->row_count--;
            (void)ps_strmap_remove(
                &p->names, ps_placement_name_key(store, &p->rows[p->row_count], key));
            ps_key_row_fini(&p->rows[p->row_count]);
        }
        return status;
    }
    p->next_index += batch->fresh_count;
    memcpy(p->servers, batch->servers, p->server_count * sizeof(*p->servers));
    return PS_OK;
}

enum ps_status ps_placement_add(struct ps_placement *placement, uint32_t store,
                                struct ps_key_row *rows, size_t count,
                                struct ps_error *err)
{
    if (store > PS_STORE_MAX) {
        return ps_error_set(err, PS_ERANGE, "store %u: at most %u", store, PS_STORE_MAX);
    }
    if (count == 0) {
        return PS_OK;
    }
    struct batch batch = {
        .rows = calloc(count, sizeof(*batch.rows)),
        .items = calloc(count, sizeof(*batch.items)),
        .servers = calloc(placement->server_count, sizeof(*batch.servers)),
    };
    enum ps_status status = PS_ENOMEM;
    if (batch.rows == NULL || batch.items == NULL || batch.servers == NULL) {
        goto done;
    }
    memcpy(batch.servers, placement->servers,
           placement->server_count * sizeof(*batch.servers));
    PS_TRY_GOTO(status, batch_sort_out(placement, store, rows, count, &batch, err), done);
    PS_TRY_GOTO(status, batch_place(placement, store, &batch, err), done);
    PS_TRY_GOTO(status, batch_publish(placement, store, &batch, count), done);
    memcpy(rows, batch.rows, count * sizeof(*rows));
    memset(batch.rows, 0, count * sizeof(*batch.rows)); /* the extents are the caller's */
done:
    if (status == PS_ENOMEM) {
        status = ps_error_set(err, PS_ENOMEM, "out of memory placing %zu keys", count);
    }
    batch_fini(&batch, count);
    return status;
}
