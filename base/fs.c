/* Files: dispatch, whole-file helpers, and the machine's file system.
 *
 * A new name is durable only when its directory was synced too; so the first sync of a
 * file that we created, and each rename, sync the directory. */
#include "base/fs.h"

#include "base/fs_ops.h"
#include "base/thread.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- dispatch ---- */

enum ps_status ps_fs_open(struct ps_fs *fs, const char *path, enum ps_fs_mode mode,
                          struct ps_file **file_out, struct ps_error *err)
{
    enum ps_status status = fs->ops->open(fs, path, mode, file_out);
    return status == PS_OK ? PS_OK
                           : ps_error_set(err, status, "cannot open '%.180s': %s", path,
                                          ps_status_text(status));
}

enum ps_status ps_file_read(struct ps_file *file, void *out, size_t size,
                            size_t *read_out)
{
    return file->ops->read(file, out, size, read_out);
}

enum ps_status ps_file_write(struct ps_file *file, const void *data, size_t size)
{
    return file->ops->write(file, data, size);
}

enum ps_status ps_file_write_at(struct ps_file *file, uint64_t offset, const void *data,
                                size_t size)
{
    return file->ops->write_at(file, offset, data, size);
}

enum ps_status ps_file_sync(struct ps_file *file)
{
    return file->ops->sync(file);
}

void ps_file_close(struct ps_file *file)
{
    if (file != NULL) {
        file->ops->close(file);
    }
}

enum ps_status ps_fs_size(struct ps_fs *fs, const char *path, uint64_t *size_out)
{
    return fs->ops->size(fs, path, size_out);
}

enum ps_status ps_fs_rename(struct ps_fs *fs, const char *from, const char *to)
{
    return fs->ops->rename(fs, from, to);
}

enum ps_status ps_fs_remove(struct ps_fs *fs, const char *path)
{
    return fs->ops->remove(fs, path);
}

bool ps_fs_exists(struct ps_fs *fs, const char *path)
{
    return fs->ops->exists(fs, path);
}

/* ---- whole files ---- */

enum ps_status ps_fs_read_all(struct ps_fs *fs, const char *path, size_t limit,
                              char **data_out, size_t *size_out, struct ps_error *err)
{
    struct ps_file *file = NULL;
    char *data = NULL;
    uint64_t file_size = 0;
    enum ps_status status = ps_fs_open(fs, path, PS_FS_READ, &file, err);
    if (status != PS_OK) {
        return status;
    }
    size_t size = 0;
    PS_TRY_GOTO(status, ps_fs_size(fs, path, &file_size), fail);
    if (file_size > limit) {
        status = PS_ERANGE;
        goto fail;
    }
    data = malloc((size_t)file_size + 1);
    if (data == NULL) {
        status = PS_ENOMEM;
        goto fail;
    }
    PS_TRY_GOTO(status, ps_file_read(file, data, (size_t)file_size, &size), fail);
    data[size] = '\0';
    ps_file_close(file);
    *data_out = data;
    *size_out = size;
    return PS_OK;

fail:
    ps_file_close(file);
    free(data);
    return status == PS_ERANGE
               ? ps_error_set(err, status,
                              "'%.150s' has %llu bytes, at most %zu are read", path,
                              (unsigned long long)file_size, limit)
               : ps_error_set(err, status, "cannot read '%.180s': %s", path,
                              ps_status_text(status));
}

enum ps_status ps_fs_write_all(struct ps_fs *fs, const char *path, const void *data,
                               size_t size, struct ps_error *err)
{
    /* A name of this process and thread, so that two writers do not share a file. */
    size_t temp_size = strlen(path) + 32;
    char *temp = malloc(temp_size);
    if (temp == NULL) {
        return ps_error_set(err, PS_ENOMEM, "cannot write '%.180s': out of memory", path);
    }
    (void)snprintf(temp, temp_size, "%s.tmp.%lld", path,
                   (long long)getpid() * 100000 + (long long)(ps_thread_id() % 100000));
    struct ps_file *file = NULL;
    enum ps_status status;
    PS_TRY_GOTO(status, ps_fs_open(fs, temp, PS_FS_CREATE, &file, NULL), free_name);
    PS_TRY_GOTO(status, ps_file_write(file, data, size), remove_temp);
    PS_TRY_GOTO(status, ps_file_sync(file), remove_temp);
    ps_file_close(file);
    file = NULL;
    PS_TRY_GOTO(status, ps_fs_rename(fs, temp, path), remove_temp);
    free(temp);
    return PS_OK;

remove_temp:
    ps_file_close(file);
    if (ps_fs_remove(fs, temp) != PS_OK) {
        /* it stays behind; the first error is the one to tell */
    }
free_name:
    free(temp);
    return ps_error_set(err, status, "cannot write '%.180s': %s", path,
                        ps_status_text(status));
}

/* ---- the machine's files ---- */

struct real_file {
    struct ps_file base;
    int fd;
    char *new_path; /* set until the directory that names a new file was synced */
};

static enum ps_status from_errno(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return PS_ENOENT;
    case EACCES:
    case EPERM:
    case EROFS:
        return PS_EPERM;
    case ENOSPC:
    case EDQUOT:
        return PS_EFULL;
    case ENOMEM:
        return PS_ENOMEM;
    default:
        return PS_EIO;
    }
}

static enum ps_status sync_directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *directory = slash == NULL   ? strdup(".")
                      : slash == path ? strdup("/")
                                      : strndup(path, (size_t)(slash - path));
    if (directory == NULL) {
        return PS_ENOMEM;
    }
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(directory);
    if (fd < 0) {
        return from_errno(errno);
    }
    /* EINVAL: a file system that cannot sync directories keeps names in another way. */
    enum ps_status status = fsync(fd) == 0 || errno == EINVAL ? PS_OK : from_errno(errno);
    (void)close(fd);
    return status;
}

static enum ps_status real_read(struct ps_file *base, void *out, size_t size,
                                size_t *read_out)
{
    struct real_file *file = (struct real_file *)base;
    size_t done = 0;
    while (done < size) {
        ssize_t n = read(file->fd, (char *)out + done, size - done);
        if (n == 0) {
            break;
        }
        if (n < 0 && errno != EINTR) {
            return from_errno(errno);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    *read_out = done;
    return PS_OK;
}

static enum ps_status real_write(struct ps_file *base, const void *data, size_t size)
{
    struct real_file *file = (struct real_file *)base;
    size_t done = 0;
    while (done < size) {
        ssize_t n = write(file->fd, (const char *)data + done, size - done);
        if (n < 0 && errno != EINTR) {
            return from_errno(errno);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return PS_OK;
}

static enum ps_status real_write_at(struct ps_file *base, uint64_t offset,
                                    const void *data, size_t size)
{
    struct real_file *file = (struct real_file *)base;
    size_t done = 0;
    struct stat info;
    if (fstat(file->fd, &info) != 0 || offset > (uint64_t)info.st_size) {
        return PS_EINVAL;
    }
    while (done < size) {
        ssize_t n = pwrite(file->fd, (const char *)data + done, size - done,
                           (off_t)(offset + done));
        if (n < 0 && errno != EINTR) {
            return from_errno(errno);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return PS_OK;
}

static enum ps_status real_sync(struct ps_file *base)
{
    struct real_file *file = (struct real_file *)base;
    if (fsync(file->fd) != 0) {
        return from_errno(errno);
    }
    if (file->new_path != NULL) {
        PS_TRY(sync_directory_of(file->new_path));
        free(file->new_path);
        file->new_path = NULL;
    }
    return PS_OK;
}

static void real_close(struct ps_file *base)
{
    struct real_file *file = (struct real_file *)base;
    (void)close(file->fd);
    free(file->new_path);
    free(file);
}

static const struct ps_file_ops real_file_ops = {real_read, real_write, real_write_at,
                                                 real_sync, real_close};

static enum ps_status real_open(struct ps_fs *fs, const char *path, enum ps_fs_mode mode,
                                struct ps_file **file_out)
{
    static const int flags[] = {[PS_FS_READ] = O_RDONLY,
                                [PS_FS_CREATE] = O_WRONLY | O_CREAT | O_TRUNC,
                                [PS_FS_APPEND] = O_WRONLY | O_CREAT | O_APPEND};
    (void)fs;
    struct real_file *file = calloc(1, sizeof(*file));
    if (file == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status = PS_ENOMEM;
    if (mode != PS_FS_READ) {
        file->new_path = strdup(path);
        if (file->new_path == NULL) {
            goto fail;
        }
    }
    file->base.ops = &real_file_ops;
    file->fd = open(path, flags[mode] | O_CLOEXEC, 0666);
    if (file->fd < 0) {
        status = from_errno(errno);
        goto fail;
    }
    struct stat info;
    if (fstat(file->fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        (void)close(file->fd);
        status = PS_EIO;
        goto fail;
    }
    *file_out = &file->base;
    return PS_OK;

fail:
    free(file->new_path);
    free(file);
    return status;
}

static enum ps_status real_size(struct ps_fs *fs, const char *path, uint64_t *size_out)
{
    (void)fs;
    struct stat info;
    if (stat(path, &info) != 0) {
        return from_errno(errno);
    }
    *size_out = info.st_size < 0 ? 0 : (uint64_t)info.st_size;
    return PS_OK;
}

static enum ps_status real_rename(struct ps_fs *fs, const char *from, const char *to)
{
    (void)fs;
    if (rename(from, to) != 0) {
        return from_errno(errno);
    }
    return sync_directory_of(to);
}

static enum ps_status real_remove(struct ps_fs *fs, const char *path)
{
    (void)fs;
    return unlink(path) == 0 ? PS_OK : from_errno(errno);
}

static bool real_exists(struct ps_fs *fs, const char *path)
{
    (void)fs;
    return access(path, F_OK) == 0;
}

static const struct ps_fs_ops real_ops = {real_open, real_size, real_rename, real_remove,
                                          real_exists};

struct ps_fs *ps_fs_real(void)
{
    static struct ps_fs real = {&real_ops}; /* never written */
    return &real;
}
