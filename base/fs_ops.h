/* For implementers of a file system: fs.c (the machine's) and fs_sim.c. */
#ifndef PENSTOCK_BASE_FS_OPS_H
#define PENSTOCK_BASE_FS_OPS_H

#include "base/fs.h"

struct ps_file_ops {
    enum ps_status (*read)(struct ps_file *file, void *out, size_t size,
                           size_t *read_out);
    enum ps_status (*write)(struct ps_file *file, const void *data, size_t size);
    enum ps_status (*write_at)(struct ps_file *file, uint64_t offset, const void *data,
                               size_t size);
    enum ps_status (*sync)(struct ps_file *file);
    void (*close)(struct ps_file *file);
};

struct ps_fs_ops {
    enum ps_status (*open)(struct ps_fs *fs, const char *path, enum ps_fs_mode mode,
                           struct ps_file **file_out);
    enum ps_status (*size)(struct ps_fs *fs, const char *path, uint64_t *size_out);
    enum ps_status (*rename)(struct ps_fs *fs, const char *from, const char *to);
    enum ps_status (*remove)(struct ps_fs *fs, const char *path);
    bool (*exists)(struct ps_fs *fs, const char *path);
};

/* First member of each file. */
struct ps_file {
    const struct ps_file_ops *ops;
};

/* First member of each file system. */
struct ps_fs {
    const struct ps_fs_ops *ops;
};

#endif
