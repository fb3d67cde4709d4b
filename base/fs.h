/* Files behind an interface: the machine's, or a simulation's that loses unsynced bytes
 * when its node crashes.  Small on purpose: what checkpoints, snapshots and readers need.
 * Paths are relative to the caller's working directory or absolute; UTF-8 bytes.
 * Threads: any; a file belongs to one thread at a time. */
#ifndef PENSTOCK_BASE_FS_H
#define PENSTOCK_BASE_FS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_file;
struct ps_fs; /* vtable inside; opaque to callers */

enum ps_fs_mode { PS_FS_READ, PS_FS_CREATE /* truncates */, PS_FS_APPEND };

struct ps_fs *ps_fs_real(void); /* stateless */
PS_MUST_CHECK enum ps_status ps_fs_sim_create(struct ps_fs **fs_out);
void ps_fs_sim_destroy(struct ps_fs *fs);
void ps_fs_sim_crash(struct ps_fs *fs); /* unsynced bytes and unsynced renames are gone */
void ps_fs_sim_set_capacity(struct ps_fs *fs,
                            uint64_t bytes); /* writes beyond: PS_EFULL */

/* Errors: PS_ENOENT, PS_EPERM, PS_EIO; 'err' (may be NULL) names the path. */
PS_MUST_CHECK enum ps_status ps_fs_open(struct ps_fs *fs, const char *path,
                                        enum ps_fs_mode mode, struct ps_file **file_out,
                                        struct ps_error *err);
/* Reads up to 'size' bytes; fewer only at the end of the file. */
PS_MUST_CHECK enum ps_status ps_file_read(struct ps_file *file, void *out, size_t size,
                                          size_t *read_out);
PS_MUST_CHECK enum ps_status ps_file_write(struct ps_file *file, const void *data,
                                           size_t size);
/* Writes over what is there, from 'offset' on, which is at most the file's size; not for
 * files that were opened to append.  Errors also: PS_EINVAL. */
PS_MUST_CHECK enum ps_status ps_file_write_at(struct ps_file *file, uint64_t offset,
                                              const void *data, size_t size);
PS_MUST_CHECK enum ps_status ps_file_sync(struct ps_file *file);
void ps_file_close(struct ps_file *file);
PS_MUST_CHECK enum ps_status ps_fs_size(struct ps_fs *fs, const char *path,
                                        uint64_t *size_out);
/* Atomic on one file system; synced with its directory. */
PS_MUST_CHECK enum ps_status ps_fs_rename(struct ps_fs *fs, const char *from,
                                          const char *to);
PS_MUST_CHECK enum ps_status ps_fs_remove(struct ps_fs *fs, const char *path);
bool ps_fs_exists(struct ps_fs *fs, const char *path);

/* A whole file, malloc'ed, with one NUL byte after the end; at most 'limit' bytes
 * (PS_ERANGE). Gives '*data_out' (free it with free). */
PS_MUST_CHECK enum ps_status ps_fs_read_all(struct ps_fs *fs, const char *path,
                                            size_t limit, char **data_out,
                                            size_t *size_out, struct ps_error *err);
/* Writes through "<path>.tmp.<n>", syncs, renames: readers see the old file or the new
 * one. */
PS_MUST_CHECK enum ps_status ps_fs_write_all(struct ps_fs *fs, const char *path,
                                             const void *data, size_t size,
                                             struct ps_error *err);

#endif
