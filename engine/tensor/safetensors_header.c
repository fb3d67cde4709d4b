/* The header of a safetensors file: foreign bytes, checked completely. */
#include "engine/tensor/safetensors.h"

#include "base/str.h"
#include "engine/tensor/safetensors_private.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define META_NAME "__metadata__"

static const struct {
    const char *name;
    enum ps_dtype dtype;
} dtype_names[] = {
    {"F32", PS_F32}, {"F64", PS_F64}, {"F16", PS_F16}, {"BF16", PS_BF16},
    {"U8", PS_U8},   {"I8", PS_I8},   {"I32", PS_I32}, {"I64", PS_I64},
};

const char *ps_safetensors_dtype_name(enum ps_dtype dtype)
{
    for (size_t i = 0; i < PS_COUNT(dtype_names); i++) {
        if (dtype_names[i].dtype == dtype) {
            return dtype_names[i].name;
        }
    }
    return "?";
}

enum ps_status ps_safetensors_header_size(const unsigned char prefix[8],
                                          uint64_t file_size, size_t *size_out,
                                          struct ps_error *err)
{
    uint64_t size = 0;
    for (int i = 7; i >= 0; i--) {
        size = size << 8 | prefix[i];
    }
    if (file_size < 8 || size > file_size - 8) {
        return ps_error_set(err, PS_ECORRUPT,
                            "header of %" PRIu64 " bytes in a file of %" PRIu64, size,
                            file_size);
    }
    if (size > PS_SAFETENSORS_HEADER_MAX) {
        return ps_error_set(err, PS_ECORRUPT, "header of %" PRIu64 " bytes: at most %u",
                            size, PS_SAFETENSORS_HEADER_MAX);
    }
    *size_out = (size_t)size;
    return PS_OK;
}

static enum ps_status parse_dtype(const char *name, const json_t *json,
                                  enum ps_dtype *dtype_out, struct ps_error *err)
{
    const char *text = json_string_value(json);
    if (text == NULL) {
        return ps_error_set(err, PS_ECORRUPT, "tensor %.64s: dtype is not a text", name);
    }
    for (size_t i = 0; i < PS_COUNT(dtype_names); i++) {
        if (strcmp(text, dtype_names[i].name) == 0) {
            *dtype_out = dtype_names[i].dtype;
            return PS_OK;
        }
    }
    return ps_error_set(err, PS_EDTYPE,
                        "tensor %.64s: dtype %.16s is not one of F32 F64 F16 BF16 U8 I8 "
                        "I32 I64",
                        name, text);
}

static enum ps_status parse_shape(const char *name, const json_t *json,
                                  struct ps_shape *shape_out, struct ps_error *err)
{
    size_t ndim = json_array_size(json);
    if (!json_is_array(json) || ndim > PS_MAX_DIM) {
        return ps_error_set(err, PS_ECORRUPT,
                            "tensor %.64s: shape is not a list of at most %d numbers",
                            name, PS_MAX_DIM);
    }
    struct ps_shape shape = {.ndim = (int)ndim};
    for (size_t i = 0; i < ndim; i++) {
        const json_t *dim = json_array_get(json, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
            return ps_error_set(err, PS_ECORRUPT,
                                "tensor %.64s: dimension %zu is not a number from 0 on",
                                name, i);
        }
        shape.dim[i] = json_integer_value(dim);
    }
    *shape_out = shape;
    return PS_OK;
}

static enum ps_status parse_offsets(const json_t *json, uint64_t data_size,
                                    struct ps_safetensors_entry *entry,
                                    struct ps_error *err)
{
    const json_t *begin = json_array_get(json, 0);
    const json_t *end = json_array_get(json, 1);
    if (!json_is_array(json) || json_array_size(json) != 2 || !json_is_integer(begin) ||
        !json_is_integer(end)) {
        return ps_error_set(err, PS_ECORRUPT,
                            "tensor %.64s: data_offsets is not [begin, end]",
                            entry->name);
    }
    json_int_t from = json_integer_value(begin);
    json_int_t to = json_integer_value(end);
    if (from < 0 || to < from || (uint64_t)to > data_size) {
        return ps_error_set(err, PS_ECORRUPT,
                            "tensor %.64s: data_offsets [%lld, %lld] in %" PRIu64
                            " bytes of data",
                            entry->name, (long long)from, (long long)to, data_size);
    }
    entry->begin = (uint64_t)from;
    entry->end = (uint64_t)to;
    return PS_OK;
}

static enum ps_status parse_entry(const json_t *json, uint64_t data_size,
                                  struct ps_safetensors_entry *entry,
                                  struct ps_error *err)
{
    if (!json_is_object(json) || json_object_size(json) != 3) {
        return ps_error_set(err, PS_ECORRUPT,
                            "tensor %.64s: not an object of dtype, shape, data_offsets",
                            entry->name);
    }
    PS_TRY(parse_dtype(entry->name, json_object_get(json, "dtype"), &entry->dtype, err));
    PS_TRY(parse_shape(entry->name, json_object_get(json, "shape"), &entry->shape, err));
    PS_TRY(parse_offsets(json_object_get(json, "data_offsets"), data_size, entry, err));
    int64_t count = ps_shape_count(&entry->shape);
    size_t bytes = 0;
    char text[PS_SHAPE_TEXT_BYTES];
    if (count < 0 || !ps_mul_size((size_t)count, ps_dtype_size(entry->dtype), &bytes) ||
        bytes != entry->end - entry->begin) {
        return ps_error_set(err, PS_ECORRUPT,
                            "tensor %.64s: data_offsets [%" PRIu64 ", %" PRIu64
                            "] do not hold %s elements of %s",
                            entry->name, entry->begin, entry->end,
                            ps_shape_text(&entry->shape, text),
                            ps_dtype_name(entry->dtype));
    }
    return PS_OK;
}

static enum ps_status parse_meta(json_t *json, struct ps_safetensors_header *header,
                                 struct ps_error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(json)) {
        return ps_error_set(err, PS_ECORRUPT, META_NAME " is not an object");
    }
    header->meta = calloc(json_object_size(json) + 1, sizeof(*header->meta));
    if (header->meta == NULL) {
        return ps_error_set(err, PS_ENOMEM, "out of memory for the header");
    }
    json_object_foreach(json, key, value)
    {
        struct ps_named_text *meta = &header->meta[header->meta_count++];
        if (!json_is_string(value)) {
            return ps_error_set(err, PS_ECORRUPT, META_NAME " %.64s is not a text", key);
        }
        meta->key = ps_strdup(key);
        meta->text = ps_strdup(json_string_value(value));
        if (meta->key == NULL || meta->text == NULL) {
            return ps_error_set(err, PS_ENOMEM, "out of memory for the header");
        }
    }
    return PS_OK;
}

static int by_begin(const void *a, const void *b)
{
    const struct ps_safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    if (x->end != y->end) { /* an empty tensor before one that begins at its place */
        return x->end < y->end ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

/* The entries must cover [0, data_size), each byte once. */
static enum ps_status check_cover(const struct ps_safetensors_header *header,
                                  uint64_t data_size, struct ps_error *err)
{
    uint64_t at = 0;
    for (size_t i = 0; i < header->count; i++) {
        const struct ps_safetensors_entry *entry = &header->entries[i];
        if (entry->begin != at) {
            return ps_error_set(err, PS_ECORRUPT,
                                "tensor %.64s: begins at %" PRIu64 ", %s the one before "
                                "it ends at %" PRIu64,
                                entry->name, entry->begin,
                                entry->begin < at ? "overlaps:" : "leaves a hole:", at);
        }
        at = entry->end;
    }
    if (at != data_size) {
        return ps_error_set(err, PS_ECORRUPT,
                            "tensors end at %" PRIu64 " of %" PRIu64 " bytes of data", at,
                            data_size);
    }
    return PS_OK;
}

static enum ps_status parse_object(json_t *root, uint64_t data_size,
                                   struct ps_safetensors_header *header,
                                   struct ps_error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(root)) {
        return ps_error_set(err, PS_ECORRUPT, "the header is not a JSON object");
    }
    header->entries = calloc(json_object_size(root) + 1, sizeof(*header->entries));
    if (header->entries == NULL) {
        return ps_error_set(err, PS_ENOMEM, "out of memory for the header");
    }
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, META_NAME) == 0) {
            PS_TRY(parse_meta(value, header, err));
            continue;
        }
        struct ps_safetensors_entry *entry = &header->entries[header->count++];
        entry->name = ps_strdup(key);
        if (entry->name == NULL) {
            return ps_error_set(err, PS_ENOMEM, "out of memory for the header");
        }
        if (key[0] == '\0') {
            return ps_error_set(err, PS_ECORRUPT, "a tensor without a name");
        }
        PS_TRY(parse_entry(value, data_size, entry, err));
    }
    qsort(header->entries, header->count, sizeof(*header->entries), by_begin);
    return check_cover(header, data_size, err);
}

enum ps_status ps_safetensors_parse(const char *json, size_t json_size,
                                    uint64_t data_size,
                                    struct ps_safetensors_header *header_out,
                                    struct ps_error *err)
{
    struct ps_safetensors_header header = {.count = 0};
    json_error_t where;
    /* jansson refuses bytes that are not UTF-8, NUL in texts and nesting above 2048 */
    json_t *root = json_loadb(json, json_size, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL) {
        return ps_error_set(err, PS_ECORRUPT, "header: %.160s at byte %d", where.text,
                            where.position);
    }
    enum ps_status status = parse_object(root, data_size, &header, err);
    json_decref(root);
    if (status != PS_OK) {
        ps_safetensors_header_fini(&header);
        return status;
    }
    *header_out = header;
    return PS_OK;
}

void ps_safetensors_free_meta(struct ps_named_text *meta, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free((void *)(uintptr_t)meta[i].key);
        free((void *)(uintptr_t)meta[i].text);
    }
    free(meta);
}

void ps_safetensors_header_fini(struct ps_safetensors_header *header)
{
    for (size_t i = 0; i < header->count; i++) {
        free(header->entries[i].name);
    }
    free(header->entries);
    ps_safetensors_free_meta(header->meta, header->meta_count);
    *header = (struct ps_safetensors_header){.count = 0};
}
