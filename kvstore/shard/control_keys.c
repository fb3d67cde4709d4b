/* KEYS and ENTRIES: rows of keys with their extents. */
#include "kvstore/shard/control.h"
#include "kvstore/shard/control_io.h"

#include <stdlib.h>

#define ROWS_MAX 1000000
#define EXTENTS_MAX 4000000 /* of one key: 2^42 elements */

static void pack_row(struct ps_packer *p, const struct ps_key_row *row)
{
    ps_pack_map(p, 11);
    ps_put_uint(p, "handle", row->handle);
    ps_put_str(p, "name", row->name);
    ps_put_bool(p, "numeric", row->numeric);
    ps_put_uint(p, "kind", row->kind);
    ps_put_uint(p, "mode", row->mode);
    ps_put_uint(p, "reduction", row->reduction);
    ps_put_uint(p, "codec", row->codec);
    ps_put_int(p, "dtype", row->dtype);
    ps_pack_str(p, "shape");
    ps_pack_array(p, row->shape.ndim < 0 ? 0 : (size_t)row->shape.ndim);
    for (int i = 0; i < row->shape.ndim; i++) {
        ps_pack_int(p, row->shape.dim[i]);
    }
    ps_put_uint(p, "count", row->count);
    /* extents: [first, count, shard, first, count, shard, ...] */
    ps_pack_str(p, "extents");
    ps_pack_array(p, 3 * row->extent_count);
    for (size_t i = 0; i < row->extent_count; i++) {
        ps_pack_uint(p, row->extents[i].first);
        ps_pack_uint(p, row->extents[i].count);
        ps_pack_uint(p, row->extents[i].shard);
    }
}

enum ps_status ps_msg_keys_pack(const struct ps_msg_keys *msg, struct ps_buf **body_out)
{
    struct ps_packer p;
    ps_packer_init(&p);
    ps_pack_map(&p, 4);
    ps_put_str(&p, "store", msg->store);
    ps_put_uint(&p, "store_id", msg->store_id);
    ps_put_bool(&p, "lookup", msg->lookup);
    ps_pack_str(&p, "rows");
    ps_pack_array(&p, msg->row_count);
    for (size_t i = 0; i < msg->row_count; i++) {
        pack_row(&p, &msg->rows[i]);
    }
    return ps_packer_finish(&p, body_out);
}

static bool uint_of(const msgpack_object *o, uint64_t max, uint64_t *out)
{
    if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER || o->via.u64 > max) {
        return false;
    }
    *out = o->via.u64;
    return true;
}

static void take_shape(struct ps_reader *r, struct ps_shape *shape)
{
    msgpack_object_array array = ps_take_array(r, "shape", PS_MAX_DIM);
    for (uint32_t i = 0; i < array.size; i++) {
        uint64_t dim;
        if (!uint_of(&array.ptr[i], INT64_MAX, &dim)) {
            (void)ps_reader_fail(r, "shape", "known dimensions");
            return;
        }
        shape->dim[i] = (int64_t)dim;
    }
    shape->ndim = (int)array.size;
}

/* Extents ascend without overlap and stay inside the key.  ENTRIES have holes where other
 * servers own. */
static void take_extents(struct ps_reader *r, struct ps_key_row *row)
{
    msgpack_object_array array = ps_take_array(r, "extents", 3 * (size_t)EXTENTS_MAX);
    if (r->status != PS_OK || array.size == 0) {
        return;
    }
    if (array.size % 3 != 0) {
        (void)ps_reader_fail(r, "extents", "triples");
        return;
    }
    size_t n = array.size / 3;
    row->extents = calloc(n, sizeof(*row->extents));
    if (row->extents == NULL) {
        r->status = ps_error_set(r->err, PS_ENOMEM, "%s: out of memory", r->what);
        return;
    }
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t first, count, shard;
        if (!uint_of(&array.ptr[3 * i], UINT64_MAX, &first) ||
            !uint_of(&array.ptr[3 * i + 1], UINT64_MAX, &count) ||
            !uint_of(&array.ptr[3 * i + 2], UINT32_MAX, &shard) || first < end ||
            count == 0 || first > row->count || count > row->count - first) {
            (void)ps_reader_fail(r, "extents", "ascending runs inside the key");
            return;
        }
        row->extents[i] = (struct ps_extent){first, count, (uint32_t)shard};
        end = first + count;
    }
    row->extent_count = n;
}

static enum ps_status take_row(const struct ps_reader *outer, const msgpack_object *item,
                               struct ps_key_row *row)
{
    struct ps_reader r = ps_reader_nested(outer, "KEYS row", item);
    row->handle = ps_take_uint(&r, "handle", UINT64_MAX);
    ps_take_str(&r, "name", row->name, sizeof(row->name));
    row->numeric = ps_take_bool(&r, "numeric");
    row->kind = (uint8_t)ps_take_uint(&r, "kind", UINT8_MAX);
    row->mode = (uint8_t)ps_take_uint(&r, "mode", UINT8_MAX);
    row->reduction = (uint8_t)ps_take_uint(&r, "reduction", UINT8_MAX);
    row->codec = (uint8_t)ps_take_uint(&r, "codec", UINT8_MAX);
    row->dtype = (int)ps_take_int(&r, "dtype", -1, UINT8_MAX);
    take_shape(&r, &row->shape);
    row->count = ps_take_uint(&r, "count", INT64_MAX);
    take_extents(&r, row);
    return r.status;
}

static void take_rows(struct ps_reader *r, struct ps_msg_keys *msg)
{
    msgpack_object_array array = ps_take_array(r, "rows", ROWS_MAX);
    if (r->status != PS_OK || array.size == 0) {
        return;
    }
    msg->rows = calloc(array.size, sizeof(*msg->rows));
    if (msg->rows == NULL) {
        r->status = ps_error_set(r->err, PS_ENOMEM, "KEYS: out of memory");
        return;
    }
    for (uint32_t i = 0; i < array.size && r->status == PS_OK; i++) {
        msg->row_count = i + 1;
        r->status = take_row(r, &array.ptr[i], &msg->rows[i]);
    }
}

enum ps_status ps_msg_keys_unpack(const void *data, size_t size,
                                  struct ps_msg_keys *msg_out, struct ps_error *err)
{
    struct ps_reader r;
    struct ps_msg_keys msg = {0};
    ps_reader_init(&r, "KEYS", data, size, err);
    ps_take_str(&r, "store", msg.store, sizeof(msg.store));
    msg.store_id = (uint32_t)ps_take_uint(&r, "store_id", PS_STORE_MAX);
    msg.lookup = ps_take_bool(&r, "lookup");
    take_rows(&r, &msg);
    if (r.status == PS_OK) {
        *msg_out = msg;
    } else {
        ps_msg_keys_fini(&msg);
    }
    ps_reader_fini(&r);
    return r.status;
}

void ps_msg_keys_fini(struct ps_msg_keys *msg)
{
    for (size_t i = 0; i < msg->row_count; i++) {
        ps_key_row_fini(&msg->rows[i]);
    }
    free(msg->rows);
    msg->rows = NULL;
    msg->row_count = 0;
}
