/* Named tensors in a file, in the safetensors format (huggingface/safetensors,
 * README.md "Format"):
 *
 *     u64 header_bytes (little-endian) | JSON header | data
 *     header: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]},
 *              "__metadata__": {"key": "text"}}
 *
 * Offsets count from the start of the data, which they must cover without holes or
 * overlap.  A file is checked completely before the first tensor is made; the error names
 * the tensor and what is wrong with it.  Written through a temporary file and a rename.
 * Threads: a user's (both wait for the engine). */
#ifndef PENSTOCK_ENGINE_TENSOR_SAFETENSORS_H
#define PENSTOCK_ENGINE_TENSOR_SAFETENSORS_H

#include "base/fs.h"
#include "engine/tensor/tensor.h"

struct ps_named_tensor {
    const char *name;
    struct ps_tensor *tensor;
};

struct ps_named_text {
    const char *key, *text;
};

/* Saves 'tensors' (and 'meta'); waits for each.  Elements of the widest types come first,
 * so that all are aligned.  Errors: PS_EEXIST (a name twice), PS_EINVAL (an empty name,
 * "__metadata__", or not UTF-8), PS_EIO and others of the file system, the tensor's own
 * error. */
PS_MUST_CHECK enum ps_status ps_safetensors_save(struct ps_fs *fs, const char *path,
                                                 const struct ps_named_tensor *tensors,
                                                 size_t count,
                                                 const struct ps_named_text *meta,
                                                 size_t meta_count, struct ps_error *err);

/* What a file held, in the order of its data. */
struct ps_safetensors {
    struct ps_named_tensor *tensors; /* names and tensors are owned */
    size_t count;
    struct ps_named_text *meta; /* owned */
    size_t meta_count;
};

/* Gives a list of new tensors on 'context'.  Errors: PS_ENOENT, PS_EIO, PS_ECORRUPT (the
 * file), PS_EDTYPE (a type we do not have), PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_safetensors_load(struct ps_fs *fs, const char *path,
                                                 struct ps_engine *engine,
                                                 struct ps_context context,
                                                 struct ps_safetensors **list_out,
                                                 struct ps_error *err);
void ps_safetensors_free(struct ps_safetensors *list); /* NULL is fine */
/* Borrowed; NULL when there is none. */
struct ps_tensor *ps_safetensors_find(const struct ps_safetensors *list,
                                      const char *name);
const char *ps_safetensors_meta(const struct ps_safetensors *list, const char *key);

/* ---- the header alone; for loaders, tools and the fuzzer ---- */

struct ps_safetensors_entry {
    char *name; /* owned */
    enum ps_dtype dtype;
    struct ps_shape shape;
    uint64_t begin, end; /* bytes in the data */
};

struct ps_safetensors_header {
    struct ps_safetensors_entry *entries; /* by 'begin' */
    size_t count;
    struct ps_named_text *meta;
    size_t meta_count;
};

#define PS_SAFETENSORS_HEADER_MAX 100000000u /* bytes; the reference library's limit */

/* The length in the first 8 bytes of a file of 'file_size' bytes.  Errors: PS_ECORRUPT.
 */
PS_MUST_CHECK enum ps_status ps_safetensors_header_size(const unsigned char prefix[8],
                                                        uint64_t file_size,
                                                        size_t *size_out,
                                                        struct ps_error *err);
/* Parses and checks a header in front of 'data_size' bytes of data.  Errors: PS_ECORRUPT,
 * PS_EDTYPE, PS_ENOMEM.  Free what it gives with ps_safetensors_header_fini. */
PS_MUST_CHECK enum ps_status
ps_safetensors_parse(const char *json, size_t json_size, uint64_t data_size,
                     struct ps_safetensors_header *header_out, struct ps_error *err);
void ps_safetensors_header_fini(struct ps_safetensors_header *header);

#endif
