/* Reading IDX: inflate when the bytes begin with gzip's magic, then check the header
 * against what is there. */
#include "worker/idx.h"

#include "base/util.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define GZIP_WINDOW (15 + 16) /* zlib: 32 KiB window, gzip wrapper */
#define IDX_TYPE_U8 0x08
#define FIRST_GUESS (64u << 10)

/* Inflates a whole gzip stream into a buffer that doubles, at most 'limit' bytes. */
static enum ps_status inflate_all(const uint8_t *data, size_t size, size_t limit,
                                  uint8_t **out, size_t *out_size, struct ps_error *err)
{
    z_stream stream = {0};
    size_t capacity = PS_MIN(limit, (size_t)FIRST_GUESS), used = 0, taken = 0;
    uint8_t *buffer = malloc(capacity > 0 ? capacity : 1);
    if (buffer == NULL || inflateInit2(&stream, GZIP_WINDOW) != Z_OK) {
        free(buffer);
        return ps_error_set(err, PS_ENOMEM, "gzip: out of memory");
    }
    enum ps_status status = PS_OK;
    int rc = Z_OK;
    while (status == PS_OK && rc != Z_STREAM_END) {
        if (used == capacity) {
            size_t more = PS_MIN(limit, capacity * 2);
            uint8_t *bigger = more > capacity ? realloc(buffer, more) : NULL;
            if (bigger == NULL) {
                status = ps_error_set(err, more > capacity ? PS_ENOMEM : PS_ERANGE,
                                      "gzip: content above %zu bytes", limit);
                break;
            }
            buffer = bigger;
            capacity = more;
        }
        stream.next_in = (Bytef *)(uintptr_t)(data + taken);
        stream.avail_in = (uInt)PS_MIN(size - taken, (size_t)(1u << 30));
        stream.next_out = buffer + used;
        stream.avail_out = (uInt)PS_MIN(capacity - used, (size_t)(1u << 30));
        size_t in = stream.avail_in, room = stream.avail_out;
        rc = inflate(&stream, Z_NO_FLUSH);
        taken += in - stream.avail_in;
        used += room - stream.avail_out;
        if (rc != Z_OK && rc != Z_STREAM_END) {
            status = ps_error_set(err, PS_ECORRUPT,
                                  "gzip: damaged or cut off at offset %zu of %zu", taken,
                                  size);
        }
    }
    (void)inflateEnd(&stream);
    if (status != PS_OK) {
        free(buffer);
        return status;
    }
    *out = buffer;
    *out_size = used;
    return PS_OK;
}

static enum ps_status parse_plain(const uint8_t *data, size_t size,
                                  struct ps_idx *idx_out, struct ps_error *err)
{
    struct ps_idx idx = {0};
    if (size < 4 || data[0] != 0 || data[1] != 0) {
        return ps_error_set(err, PS_ECORRUPT, "idx: no magic at offset 0");
    }
    if (data[2] != IDX_TYPE_U8) {
        return ps_error_set(err, PS_ECORRUPT,
                            "idx: type 0x%02x at offset 2, 0x08 is accepted", data[2]);
    }
    idx.ndim = data[3];
    if (idx.ndim < 1 || idx.ndim > PS_IDX_MAX_DIM) {
        return ps_error_set(err, PS_ECORRUPT,
                            "idx: %d dimensions at offset 3, 1 to %d accepted", idx.ndim,
                            PS_IDX_MAX_DIM);
    }
    size_t head = 4 + 4 * (size_t)idx.ndim, count = 1;
    if (size < head) {
        return ps_error_set(err, PS_ECORRUPT, "idx: header cut off at offset %zu", size);
    }
    for (int i = 0; i < idx.ndim; i++) {
        const uint8_t *at = data + 4 + 4 * (size_t)i;
        idx.dim[i] =
            (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
        if (!ps_mul_size(count, idx.dim[i], &count)) {
            return ps_error_set(err, PS_ECORRUPT, "idx: dimensions overflow at offset %d",
                                4 + 4 * i);
        }
    }
    if (count != size - head) {
        return ps_error_set(err, PS_ECORRUPT,
                            "idx: the header at offset 4 promises %zu bytes, %zu follow",
                            count, size - head);
    }
    idx.data = malloc(count > 0 ? count : 1);
    if (idx.data == NULL) {
        return ps_error_set(err, PS_ENOMEM, "idx: no memory for %zu bytes", count);
    }
    memcpy(idx.data, data + head, count);
    idx.size = count;
    *idx_out = idx;
    return PS_OK;
}

enum ps_status ps_idx_parse(const void *data, size_t size, size_t limit,
                            struct ps_idx *idx_out, struct ps_error *err)
{
    const uint8_t *bytes = data;
    if (size < 2 || bytes[0] != 0x1f || bytes[1] != 0x8b) {
        return size <= limit
                   ? parse_plain(bytes, size, idx_out, err)
                   : ps_error_set(err, PS_ERANGE, "idx: above %zu bytes", limit);
    }
    uint8_t *plain = NULL;
    size_t plain_size = 0;
    PS_TRY(inflate_all(bytes, size, limit, &plain, &plain_size, err));
    enum ps_status status = parse_plain(plain, plain_size, idx_out, err);
    free(plain);
    return status;
}

enum ps_status ps_idx_load(struct ps_fs *fs, const char *path, struct ps_idx *idx_out,
                           struct ps_error *err)
{
    char *data = NULL;
    size_t size = 0;
    struct ps_error inner = {.status = PS_OK};
    PS_TRY(ps_fs_read_all(fs, path, PS_IDX_BYTES_MAX, &data, &size, err));
    enum ps_status status = ps_idx_parse(data, size, PS_IDX_BYTES_MAX, idx_out, &inner);
    free(data);
    return status == PS_OK ? PS_OK
                           : ps_error_set(err, status, "%s: %s", path, inner.text);
}

void ps_idx_fini(struct ps_idx *idx)
{
    free(idx->data);
    idx->data = NULL;
    idx->size = 0;
}
