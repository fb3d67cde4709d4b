/* IDX files (LeCun's MNIST format), plain or gzipped: magic 0x00 0x00 type ndim,
 * big-endian u32 dims, then bytes.  Type 0x08 (u8) is read. Threads: any; pure but for
 * the file. */
#ifndef PENSTOCK_WORKER_IDX_H
#define PENSTOCK_WORKER_IDX_H

#include "base/fs.h"
#include "base/status.h"

#include <stdint.h>

#define PS_IDX_MAX_DIM 4
#define PS_IDX_BYTES_MAX ((size_t)1 << 32)

struct ps_idx {
    int ndim;
    uint32_t dim[PS_IDX_MAX_DIM];
    uint8_t *data; /* malloc'ed; dim[0] * dim[1] * ... bytes */
    size_t size;
};

/* Parses bytes that may be a gzip stream.  Errors: PS_ECORRUPT with the offset, PS_ERANGE
 * (more than 'limit' bytes of content), PS_ENOMEM.  'idx_out' is written on success only.
 */
PS_MUST_CHECK enum ps_status ps_idx_parse(const void *data, size_t size, size_t limit,
                                          struct ps_idx *idx_out, struct ps_error *err);
PS_MUST_CHECK enum ps_status ps_idx_load(struct ps_fs *fs, const char *path,
                                         struct ps_idx *idx_out, struct ps_error *err);
void ps_idx_fini(struct ps_idx *idx);

#endif
