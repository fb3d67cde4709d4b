/* Packing and reading one msgpack map, with sticky errors.  Private to the room.
 *
 * A writer remembers the first failure and turns into a no-op, and so does a reader:
 * messages list their fields and look at the status once, at the end.
 * Threads: one at a time each. */
#ifndef PENSTOCK_KVSTORE_SHARD_CONTROL_IO_H
#define PENSTOCK_KVSTORE_SHARD_CONTROL_IO_H

#include "base/mem.h"
#include "base/status.h"

#include <msgpack.h>

#define PS_CONTROL_BODY_MAX (UINT64_C(64) << 20) /* bytes of the largest map */

/* ---- writing ---- */
struct ps_packer {
    msgpack_sbuffer bytes;
    msgpack_packer msgpack;
    bool failed;
};
void ps_packer_init(struct ps_packer *packer);
/* Gives the bytes as a buffer (or PS_ENOMEM, PS_ERANGE when larger than a body may be);
 * the packer is finished either way. */
PS_MUST_CHECK enum ps_status ps_packer_finish(struct ps_packer *packer,
                                              struct ps_buf **body_out);
void ps_pack_map(struct ps_packer *packer, size_t fields);
void ps_pack_array(struct ps_packer *packer, size_t items);
void ps_pack_str(struct ps_packer *packer, const char *text);
void ps_pack_uint(struct ps_packer *packer, uint64_t value);
void ps_pack_int(struct ps_packer *packer, int64_t value);
void ps_pack_bool(struct ps_packer *packer, bool value);
void ps_pack_bin(struct ps_packer *packer, const void *data, size_t size);
/* A field of a map: its name and its value. */
void ps_put_str(struct ps_packer *packer, const char *name, const char *text);
void ps_put_uint(struct ps_packer *packer, const char *name, uint64_t value);
void ps_put_int(struct ps_packer *packer, const char *name, int64_t value);
void ps_put_bool(struct ps_packer *packer, const char *name, bool value);
void ps_put_bin(struct ps_packer *packer, const char *name, const void *data,
                size_t size);
/* An array of 'count' texts, each 'stride' bytes after the one before. */
void ps_put_texts(struct ps_packer *packer, const char *name, const char *texts,
                  size_t stride, size_t count);

/* ---- reading ---- */
struct ps_reader {
    msgpack_zone *zone; /* owns everything below; NULL in a nested reader */
    msgpack_object map;
    const char *what; /* the message's name, for errors: "REGISTER" */
    enum ps_status status;
    struct ps_error *err;
};
/* Parses a body that must be one map.  A failure shows in the status of each later read;
 * call _fini in any case. */
void ps_reader_init(struct ps_reader *reader, const char *what, const void *data,
                    size_t size, struct ps_error *err);
void ps_reader_fini(struct ps_reader *reader);
/* The fields; missing, of another type, or out of range: PS_EPROTO naming message and
 * field. */
uint64_t ps_take_uint(struct ps_reader *reader, const char *name, uint64_t max);
int64_t ps_take_int(struct ps_reader *reader, const char *name, int64_t min, int64_t max);
bool ps_take_bool(struct ps_reader *reader, const char *name);
/* Copies a text without NUL bytes that fits 'size' with its end. */
void ps_take_str(struct ps_reader *reader, const char *name, char *out, size_t size);
void ps_take_bin(struct ps_reader *reader, const char *name, void *out, size_t size);
/* A text of any length, borrowed from the reader; "" after a failure. */
const char *ps_take_text(struct ps_reader *reader, const char *name, size_t *size_out);
/* An array of at most 'max' items; {0} after a failure. */
msgpack_object_array ps_take_array(struct ps_reader *reader, const char *name,
                                   size_t max);
/* Texts of at most 'stride' bytes with their ends, one behind the other; free them. */
char *ps_take_texts(struct ps_reader *reader, const char *name, size_t stride, size_t max,
                    size_t *count_out);
bool ps_reader_has(const struct ps_reader *reader, const char *name);
/* A reader of an item that must be a map; shares zone and err. */
struct ps_reader ps_reader_nested(const struct ps_reader *reader, const char *what,
                                  const msgpack_object *item);
enum ps_status ps_reader_fail(struct ps_reader *reader, const char *name,
                              const char *wants);

#endif
