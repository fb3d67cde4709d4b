/* One msgpack map in, one msgpack map out (control_io.h).
 * Threads: one at a time each. */
#include "kvstore/shard/control_io.h"

#include "net/wire.h"

#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

void ps_packer_init(struct ps_packer *packer)
{
    packer->failed = false;
    msgpack_sbuffer_init(&packer->bytes);
    msgpack_packer_init(&packer->msgpack, &packer->bytes, msgpack_sbuffer_write);
}

enum ps_status ps_packer_finish(struct ps_packer *packer, struct ps_buf **body_out)
{
    enum ps_status status = packer->failed ? PS_ENOMEM : PS_OK;
    struct ps_buf *body = NULL;
    if (status == PS_OK && packer->bytes.size > PS_CONTROL_BODY_MAX) {
        status = PS_ERANGE;
    }
    if (status == PS_OK && (body = ps_buf_create(packer->bytes.size)) == NULL) {
        status = PS_ENOMEM;
    }
    if (status == PS_OK) {
        memcpy(body->data, packer->bytes.data, packer->bytes.size);
        *body_out = body;
    }
    msgpack_sbuffer_destroy(&packer->bytes);
    return status;
}

static void note(struct ps_packer *packer, int rc)
{
    packer->failed = packer->failed || rc != 0;
}

void ps_pack_map(struct ps_packer *packer, size_t fields)
{
    note(packer, msgpack_pack_map(&packer->msgpack, fields));
}

void ps_pack_array(struct ps_packer *packer, size_t items)
{
    note(packer, msgpack_pack_array(&packer->msgpack, items));
}

void ps_pack_str(struct ps_packer *packer, const char *text)
{
    note(packer, msgpack_pack_str_with_body(&packer->msgpack, text, strlen(text)));
}

void ps_pack_uint(struct ps_packer *packer, uint64_t value)
{
    note(packer, msgpack_pack_uint64(&packer->msgpack, value));
}

void ps_pack_int(struct ps_packer *packer, int64_t value)
{
    note(packer, msgpack_pack_int64(&packer->msgpack, value));
}

void ps_pack_bool(struct ps_packer *packer, bool value)
{
    note(packer, value ? msgpack_pack_true(&packer->msgpack)
                       : msgpack_pack_false(&packer->msgpack));
}

void ps_pack_bin(struct ps_packer *packer, const void *data, size_t size)
{
    note(packer, msgpack_pack_bin_with_body(&packer->msgpack, data, size));
}

void ps_put_str(struct ps_packer *packer, const char *name, const char *text)
{
    ps_pack_str(packer, name);
    ps_pack_str(packer, text);
}

void ps_put_uint(struct ps_packer *packer, const char *name, uint64_t value)
{
    ps_pack_str(packer, name);
    ps_pack_uint(packer, value);
}

void ps_put_int(struct ps_packer *packer, const char *name, int64_t value)
{
    ps_pack_str(packer, name);
    ps_pack_int(packer, value);
}

void ps_put_bool(struct ps_packer *packer, const char *name, bool value)
{
    ps_pack_str(packer, name);
    ps_pack_bool(packer, value);
}

void ps_put_bin(struct ps_packer *packer, const char *name, const void *data, size_t size)
{
    ps_pack_str(packer, name);
    ps_pack_bin(packer, data, size);
}

void ps_put_texts(struct ps_packer *packer, const char *name, const char *texts,
                  size_t stride, size_t count)
{
    ps_pack_str(packer, name);
    ps_pack_array(packer, count);
    for (size_t i = 0; i < count; i++) {
        ps_pack_str(packer, texts + i * stride);
    }
}

/* ---- reading ---- */

void ps_reader_init(struct ps_reader *reader, const char *what, const void *data,
                    size_t size, struct ps_error *err)
{
    *reader = (struct ps_reader){.what = what, .err = err, .status = PS_OK};
    msgpack_unpacked parsed;
    size_t at = 0;
    if (size > PS_CONTROL_BODY_MAX || !ps_msgpack_is_sane(data, size)) {
        reader->status =
            ps_error_set(err, PS_EPROTO, "%s: %zu bytes are not msgpack", what, size);
        return;
    }
    msgpack_unpacked_init(&parsed);
    msgpack_unpack_return rc = msgpack_unpack_next(&parsed, data, size, &at);
    reader->zone = parsed.zone;
    if (rc == MSGPACK_UNPACK_NOMEM_ERROR) {
        reader->status = ps_error_set(err, PS_ENOMEM, "%s: out of memory", what);
    } else if (rc != MSGPACK_UNPACK_SUCCESS || at != size ||
               parsed.data.type != MSGPACK_OBJECT_MAP) {
        reader->status =
            ps_error_set(err, PS_EPROTO, "%s: the body is not one msgpack map", what);
    } else {
        reader->map = parsed.data;
    }
}

void ps_reader_fini(struct ps_reader *reader)
{
    msgpack_zone_free(reader->zone); /* NULL is fine */
    reader->zone = NULL;
}

enum ps_status ps_reader_fail(struct ps_reader *reader, const char *name,
                              const char *wants)
{
    if (reader->status == PS_OK) {
        reader->status = ps_error_set(reader->err, PS_EPROTO, "%s: field %s wants %s",
                                      reader->what, name, wants);
    }
    return reader->status;
}

/* The value of field 'name'; NULL when it is missing or reading failed before. */
static const msgpack_object *find(const struct ps_reader *reader, const char *name)
{
    size_t size = strlen(name);
    if (reader->status != PS_OK) {
        return NULL;
    }
    for (uint32_t i = 0; i < reader->map.via.map.size; i++) {
        const msgpack_object_kv *kv = &reader->map.via.map.ptr[i];
        if (kv->key.type == MSGPACK_OBJECT_STR && kv->key.via.str.size == size &&
            memcmp(kv->key.via.str.ptr, name, size) == 0) {
            return &kv->val;
        }
    }
    return NULL;
}

bool ps_reader_has(const struct ps_reader *reader, const char *name)
{
    return find(reader, name) != NULL;
}

uint64_t ps_take_uint(struct ps_reader *reader, const char *name, uint64_t max)
{
    const msgpack_object *o = find(reader, name);
    if (o == NULL || o->type != MSGPACK_OBJECT_POSITIVE_INTEGER || o->via.u64 > max) {
        (void)ps_reader_fail(reader, name, "an unsigned number in its range");
        return 0;
    }
    return o->via.u64;
}

int64_t ps_take_int(struct ps_reader *reader, const char *name, int64_t min, int64_t max)
{
    const msgpack_object *o = find(reader, name);
    bool found =
        o != NULL &&
        (o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER ||
         (o->type == MSGPACK_OBJECT_POSITIVE_INTEGER && o->via.u64 <= INT64_MAX));
    if (!found || o->via.i64 < min || o->via.i64 > max) {
        (void)ps_reader_fail(reader, name, "a number in its range");
        return min > 0 ? min : 0;
    }
    return o->via.i64;
}

bool ps_take_bool(struct ps_reader *reader, const char *name)
{
    const msgpack_object *o = find(reader, name);
    if (o == NULL || o->type != MSGPACK_OBJECT_BOOLEAN) {
        (void)ps_reader_fail(reader, name, "true or false");
        return false;
    }
    return o->via.boolean;
}

static bool is_text(const msgpack_object *o)
{
    return o != NULL && o->type == MSGPACK_OBJECT_STR &&
           (o->via.str.size == 0 || memchr(o->via.str.ptr, 0, o->via.str.size) == NULL);
}

void ps_take_str(struct ps_reader *reader, const char *name, char *out, size_t size)
{
    const msgpack_object *o = find(reader, name);
    out[0] = '\0';
    if (!is_text(o) || o->via.str.size >= size) {
        (void)ps_reader_fail(reader, name, "a text that fits");
        return;
    }
    if (o->via.str.size > 0) {
        memcpy(out, o->via.str.ptr, o->via.str.size);
    }
    out[o->via.str.size] = '\0';
}

void ps_take_bin(struct ps_reader *reader, const char *name, void *out, size_t size)
{
    const msgpack_object *o = find(reader, name);
    if (o == NULL || o->type != MSGPACK_OBJECT_BIN || o->via.bin.size != size) {
        (void)ps_reader_fail(reader, name, "bytes of the right number");
        return;
    }
    memcpy(out, o->via.bin.ptr, size);
}

const char *ps_take_text(struct ps_reader *reader, const char *name, size_t *size_out)
{
    const msgpack_object *o = find(reader, name);
    *size_out = 0;
    if (!is_text(o)) {
        (void)ps_reader_fail(reader, name, "a text");
        return "";
    }
    *size_out = o->via.str.size;
    return o->via.str.ptr;
}

msgpack_object_array ps_take_array(struct ps_reader *reader, const char *name, size_t max)
{
    const msgpack_object *o = find(reader, name);
    if (o == NULL || o->type != MSGPACK_OBJECT_ARRAY || o->via.array.size > max) {
        (void)ps_reader_fail(reader, name, "a list within its bounds");
        return (msgpack_object_array){0};
    }
    return o->via.array;
}

char *ps_take_texts(struct ps_reader *reader, const char *name, size_t stride, size_t max,
                    size_t *count_out)
{
    msgpack_object_array array = ps_take_array(reader, name, max);
    *count_out = 0;
    if (reader->status != PS_OK || array.size == 0) {
        return NULL;
    }
    for (uint32_t i = 0; i < array.size; i++) {
        if (!is_text(&array.ptr[i]) || array.ptr[i].via.str.size >= stride) {
            (void)ps_reader_fail(reader, name, "texts that fit");
            return NULL;
        }
    }
    char *texts = calloc(array.size, stride);
    if (texts == NULL) {
        reader->status =
            ps_error_set(reader->err, PS_ENOMEM, "%s: out of memory", reader->what);
        return NULL;
    }
    for (uint32_t i = 0; i < array.size; i++) {
        if (array.ptr[i].via.str.size > 0) {
            memcpy(texts + i * stride, array.ptr[i].via.str.ptr,
                   array.ptr[i].via.str.size);
        }
    }
    *count_out = array.size;
    return texts;
}

struct ps_reader ps_reader_nested(const struct ps_reader *reader, const char *what,
                                  const msgpack_object *item)
{
    struct ps_reader nested = {
        .what = what, .map = *item, .err = reader->err, .status = reader->status};
    if (nested.status == PS_OK && item->type != MSGPACK_OBJECT_MAP) {
        nested.status =
            ps_error_set(reader->err, PS_EPROTO, "%s: an item is not a map", what);
    }
    return nested;
}
