/* Saving and loading lists of tensors as safetensors files. */
#include "engine/tensor/safetensors.h"

#include "base/map.h"
#include "base/str.h"
#include "engine/tensor/safetensors_private.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_ALIGN = 8, PREFIX_BYTES = 8 };

/* ---- saving ---- */

static enum ps_status check_name(struct ps_strmap *seen, const char *name,
                                 struct ps_error *err)
{
    json_t *utf8 = name[0] != '\0' ? json_string(name) : NULL; /* NULL when not UTF-8 */
    bool usable = utf8 != NULL && strcmp(name, "__metadata__") != 0;
    json_decref(utf8);
    if (!usable) {
        return ps_error_set(err, PS_EINVAL,
                            "tensor name \"%.64s\": must be UTF-8 text, not empty, not "
                            "__metadata__",
                            name);
    }
    if (ps_strmap_get(seen, name) != NULL) {
        return ps_error_set(err, PS_EEXIST, "tensor %.64s is in the list twice", name);
    }
    if (ps_strmap_put(seen, name, seen, NULL) != PS_OK) {
        return ps_error_set(err, PS_ENOMEM, "out of memory");
    }
    return PS_OK;
}

static enum ps_status check_names(const struct ps_named_tensor *tensors, size_t count,
                                  struct ps_error *err)
{
    struct ps_strmap seen = {.slots = NULL};
    enum ps_status status = PS_OK;
    for (size_t i = 0; i < count && status == PS_OK; i++) {
        status = check_name(&seen, tensors[i].name, err);
    }
    ps_strmap_fini(&seen);
    return status;
}

static void write_meta(struct ps_str *json, const struct ps_named_text *meta,
                       size_t count)
{
    ps_str_printf(json, "\"__metadata__\":{");
    for (size_t i = 0; i < count; i++) {
        ps_str_printf(json, "%s", i > 0 ? "," : "");
        ps_str_json(json, meta[i].key);
        ps_str_printf(json, ":");
        ps_str_json(json, meta[i].text);
    }
    ps_str_printf(json, "}");
}

static void write_entry(struct ps_str *json, const struct ps_named_tensor *item,
                        uint64_t begin)
{
    const struct ps_shape *shape = ps_tensor_shape(item->tensor);
    ps_str_json(json, item->name);
    ps_str_printf(json, ":{\"dtype\":\"%s\",\"shape\":[",
                  ps_safetensors_dtype_name(ps_tensor_dtype(item->tensor)));
    for (int i = 0; i < shape->ndim; i++) {
        ps_str_printf(json, "%s%" PRId64, i > 0 ? "," : "", shape->dim[i]);
    }
    ps_str_printf(json, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin,
                  begin + ps_tensor_bytes(item->tensor));
}

/* The header with its length in front; the data follows in the order of 'order'. */
static void write_header(struct ps_str *out, const struct ps_named_tensor *const *order,
                         size_t count, const struct ps_named_text *meta,
                         size_t meta_count)
{
    unsigned char prefix[PREFIX_BYTES] = {0};
    uint64_t begin = 0;
    ps_str_append(out, (const char *)prefix, sizeof(prefix));
    ps_str_printf(out, "{");
    if (meta_count > 0) {
        write_meta(out, meta, meta_count);
    }
    for (size_t i = 0; i < count; i++) {
        ps_str_printf(out, "%s", i > 0 || meta_count > 0 ? "," : "");
        write_entry(out, order[i], begin);
        begin += ps_tensor_bytes(order[i]->tensor);
    }
    ps_str_printf(out, "}");
    while (!out->failed && out->size % HEADER_ALIGN != 0) {
        ps_str_printf(out, " ");
    }
    for (size_t i = 0; i < PREFIX_BYTES && !out->failed; i++) {
        out->data[i] = (char)((uint64_t)(out->size - PREFIX_BYTES) >> (8 * i));
    }
}

/* Wide elements first, so that every tensor is aligned; otherwise as given. */
static const struct ps_named_tensor **
order_by_width(const struct ps_named_tensor *tensors, size_t count)
{
    const struct ps_named_tensor **order = calloc(count + 1, sizeof(*order));
    size_t placed = 0;
    for (size_t width = 8; order != NULL && width > 0; width /= 2) {
        for (size_t i = 0; i < count; i++) {
            if (ps_dtype_size(ps_tensor_dtype(tensors[i].tensor)) == width) {
                order[placed++] = &tensors[i];
            }
        }
    }
    return order;
}

static enum ps_status write_tensor(struct ps_file *file,
                                   const struct ps_named_tensor *item,
                                   struct ps_error *err)
{
    size_t bytes = ps_tensor_bytes(item->tensor);
    void *buffer = malloc(bytes > 0 ? bytes : 1);
    if (buffer == NULL) {
        return ps_error_set(err, PS_ENOMEM, "tensor %.64s: no memory for %zu bytes",
                            item->name, bytes);
    }
    enum ps_status status = ps_tensor_read(item->tensor, buffer, bytes, err);
    if (status == PS_OK) {
        status = ps_file_write(file, buffer, bytes);
        if (status != PS_OK) {
            (void)ps_error_set(err, status, "tensor %.64s: cannot write %zu bytes: %s",
                               item->name, bytes, ps_status_text(status));
        }
    }
    free(buffer);
    return status;
}

static enum ps_status write_file(struct ps_file *file, const struct ps_str *header,
                                 const struct ps_named_tensor *const *order, size_t count,
                                 struct ps_error *err)
{
    enum ps_status status = ps_file_write(file, header->data, header->size);
    if (status != PS_OK) {
        return ps_error_set(err, status, "cannot write the header: %s",
                            ps_status_text(status));
    }
    for (size_t i = 0; i < count; i++) {
        PS_TRY(write_tensor(file, order[i], err));
    }
    status = ps_file_sync(file);
    return status == PS_OK
               ? PS_OK
               : ps_error_set(err, status, "cannot sync: %s", ps_status_text(status));
}

/* Writes 'temporary' and renames it to 'path'. */
static enum ps_status write_and_rename(struct ps_fs *fs, const char *path,
                                       const char *temporary, const struct ps_str *header,
                                       const struct ps_named_tensor *const *order,
                                       size_t count, struct ps_error *err)
{
    struct ps_file *file;
    PS_TRY(ps_fs_open(fs, temporary, PS_FS_CREATE, &file, err));
    enum ps_status status = write_file(file, header, order, count, err);
    ps_file_close(file);
    if (status != PS_OK && err != NULL) { /* say in which file */
        struct ps_error cause = *err;
        (void)ps_error_set(err, status, "%.200s: %.200s", temporary, cause.text);
    } else if (status == PS_OK) {
        status = ps_fs_rename(fs, temporary, path);
        if (status != PS_OK) {
            (void)ps_error_set(err, status, "cannot rename %s: %s", temporary,
                               ps_status_text(status));
        }
    }
    if (status != PS_OK) {
        enum ps_status removed = ps_fs_remove(fs, temporary);
        PS_UNUSED(removed); /* the first error is the one to report */
    }
    return status;
}

enum ps_status ps_safetensors_save(struct ps_fs *fs, const char *path,
                                   const struct ps_named_tensor *tensors, size_t count,
                                   const struct ps_named_text *meta, size_t meta_count,
                                   struct ps_error *err)
{
    struct ps_str header = {.data = NULL};
    struct ps_str temporary = {.data = NULL};
    enum ps_status status = PS_ENOMEM;
    PS_TRY(check_names(tensors, count, err));
    const struct ps_named_tensor **order = order_by_width(tensors, count);
    ps_str_printf(&temporary, "%s.tmp", path);
    if (order != NULL) {
        write_header(&header, order, count, meta, meta_count);
    }
    if (order == NULL || header.failed || temporary.failed) {
        (void)ps_error_set(err, PS_ENOMEM, "%s: out of memory", path);
        goto out;
    }
    status = write_and_rename(fs, path, temporary.data, &header, order, count, err);
out:
    ps_str_fini(&temporary);
    ps_str_fini(&header);
    free(order);
    return status;
}

/* ---- loading ---- */

static enum ps_status read_exactly(struct ps_file *file, void *out, size_t size,
                                   struct ps_error *err)
{
    size_t got = 0;
    enum ps_status status = ps_file_read(file, out, size, &got);
    if (status == PS_OK && got != size) {
        status = PS_ECORRUPT;
    }
    if (status != PS_OK) {
        return ps_error_set(err, status, "read %zu of %zu bytes", got, size);
    }
    return PS_OK;
}

static enum ps_status read_header(struct ps_file *file, uint64_t file_size,
                                  struct ps_safetensors_header *header_out,
                                  struct ps_error *err)
{
    unsigned char prefix[PREFIX_BYTES];
    size_t size;
    if (file_size < PREFIX_BYTES) {
        return ps_error_set(err, PS_ECORRUPT, "a file of %" PRIu64 " bytes has no header",
                            file_size);
    }
    PS_TRY(read_exactly(file, prefix, sizeof(prefix), err));
    PS_TRY(ps_safetensors_header_size(prefix, file_size, &size, err));
    char *json = malloc(size + 1);
    if (json == NULL) {
        return ps_error_set(err, PS_ENOMEM, "no memory for a header of %zu bytes", size);
    }
    enum ps_status status = read_exactly(file, json, size, err);
    if (status == PS_OK) {
        status = ps_safetensors_parse(json, size, file_size - PREFIX_BYTES - size,
                                      header_out, err);
    }
    free(json);
    return status;
}

static enum ps_status load_tensor(struct ps_file *file,
                                  const struct ps_safetensors_entry *entry,
                                  struct ps_engine *engine, struct ps_context context,
                                  struct ps_tensor **tensor_out, struct ps_error *err)
{
    struct ps_tensor *tensor = NULL;
    size_t bytes = (size_t)(entry->end - entry->begin);
    void *buffer = malloc(bytes > 0 ? bytes : 1);
    enum ps_status status = PS_ENOMEM;
    if (buffer == NULL) {
        (void)ps_error_set(err, PS_ENOMEM, "tensor %.64s: no memory for %zu bytes",
                           entry->name, bytes);
        goto out;
    }
    PS_TRY_GOTO(status, read_exactly(file, buffer, bytes, err), out);
    status = ps_tensor_create(engine, context, entry->dtype, &entry->shape, &tensor);
    if (status != PS_OK) {
        (void)ps_error_set(err, status, "tensor %.64s: %s", entry->name,
                           ps_status_text(status));
        goto out;
    }
    status = ps_tensor_write(tensor, buffer, bytes, err);
    if (status != PS_OK) {
        ps_tensor_release(tensor);
        goto out;
    }
    *tensor_out = tensor;
out:
    free(buffer);
    return status;
}

/* The tensors of 'header', whose names and meta go over to the list. */
static enum ps_status load_list(struct ps_file *file,
                                struct ps_safetensors_header *header,
                                struct ps_engine *engine, struct ps_context context,
                                struct ps_safetensors **list_out, struct ps_error *err)
{
    struct ps_safetensors *list = calloc(1, sizeof(*list));
    enum ps_status status = PS_OK;
    if (list != NULL) {
        list->tensors = calloc(header->count + 1, sizeof(*list->tensors));
    }
    if (list == NULL || list->tensors == NULL) {
        status = ps_error_set(err, PS_ENOMEM, "out of memory");
        goto fail;
    }
    for (; list->count < header->count; list->count++) {
        struct ps_safetensors_entry *entry = &header->entries[list->count];
        struct ps_named_tensor *item = &list->tensors[list->count];
        PS_TRY_GOTO(status, load_tensor(file, entry, engine, context, &item->tensor, err),
                    fail);
        item->name = entry->name;
        entry->name = NULL;
    }
    list->meta = header->meta;
    list->meta_count = header->meta_count;
    header->meta = NULL;
    header->meta_count = 0;
    *list_out = list;
    return PS_OK;
fail:
    ps_safetensors_free(list);
    return status;
}

enum ps_status ps_safetensors_load(struct ps_fs *fs, const char *path,
                                   struct ps_engine *engine, struct ps_context context,
                                   struct ps_safetensors **list_out, struct ps_error *err)
{
    struct ps_safetensors_header header = {.count = 0};
    struct ps_error inner = {.status = PS_OK};
    struct ps_file *file;
    uint64_t file_size;
    PS_TRY(ps_fs_open(fs, path, PS_FS_READ, &file, err));
    enum ps_status status = ps_fs_size(fs, path, &file_size);
    if (status != PS_OK) {
        (void)ps_error_set(&inner, status, "%s", ps_status_text(status));
        goto out;
    }
    PS_TRY_GOTO(status, read_header(file, file_size, &header, &inner), out);
    status = load_list(file, &header, engine, context, list_out, &inner);
out:
    if (status != PS_OK) {
        (void)ps_error_set(err, status, "%.80s: %s", path, inner.text);
    }
    ps_safetensors_header_fini(&header);
    ps_file_close(file);
    return status;
}

void ps_safetensors_free(struct ps_safetensors *list)
{
    if (list == NULL) {
        return;
    }
    for (size_t i = 0; i < list->count; i++) {
        free((void *)(uintptr_t)list->tensors[i].name);
        ps_tensor_release(list->tensors[i].tensor);
    }
    free(list->tensors);
    ps_safetensors_free_meta(list->meta, list->meta_count);
    free(list);
}

struct ps_tensor *ps_safetensors_find(const struct ps_safetensors *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->tensors[i].name, name) == 0) {
            return list->tensors[i].tensor;
        }
    }
    return NULL;
}

const char *ps_safetensors_meta(const struct ps_safetensors *list, const char *key)
{
    for (size_t i = 0; i < list->meta_count; i++) {
        if (strcmp(list->meta[i].key, key) == 0) {
            return list->meta[i].text;
        }
    }
    return NULL;
}
