/* Files of the simulation: in memory, in two states.  What programs see, and what would
 * be there after a crash: the bytes of a file as of its last sync, under the names that
 * were made durable (by the first sync of a new file, and by renames).  A removal is
 * forgotten by a crash until the next durable change of names, as on a disk. */
#include "base/fs_ops.h"
#include "base/map.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>

/* What a name leads to.  Counted: names of both states and open files hold it. */
struct inode {
    size_t refs;
    char *data; /* what is seen */
    size_t size, capacity;
    char *durable; /* as of the last sync */
    size_t durable_size;
};

struct fs_sim {
    struct ps_fs base;
    struct ps_mutex mutex;
    struct ps_strmap seen PS_GUARDED_BY(mutex); /* path -> inode */
    struct ps_strmap durable PS_GUARDED_BY(mutex);
    uint64_t
        life PS_GUARDED_BY(mutex); /* counts crashes: files of an earlier life are dead */
    uint64_t capacity PS_GUARDED_BY(mutex);
    uint64_t used PS_GUARDED_BY(mutex); /* bytes of all inodes seen */
};

struct file_sim {
    struct ps_file base;
    struct fs_sim *fs;
    struct inode *inode;
    char *path;
    size_t offset; /* of the next read */
    uint64_t life;
    bool writable;
};

static void inode_release(struct inode *inode)
{
    if (inode != NULL && --inode->refs == 0) {
        free(inode->data);
        free(inode->durable);
        free(inode);
    }
}

/* Points 'path' to 'inode' (NULL: to nothing) in one of the two tables. */
static enum ps_status link_name(struct ps_strmap *names, const char *path,
                                struct inode *inode)
{
    void *old = NULL;
    if (inode == NULL) {
        old = ps_strmap_remove(names, path);
    } else {
        PS_TRY(ps_strmap_put(names, path, inode, &old));
        inode->refs++;
    }
    inode_release(old);
    return PS_OK;
}

static enum ps_status sim_read(struct ps_file *base, void *out, size_t size,
                               size_t *read_out)
{
    struct file_sim *file = (struct file_sim *)base;
    enum ps_status status = PS_EIO;
    ps_mutex_lock(&file->fs->mutex);
    if (file->life == file->fs->life && !file->writable) {
        size_t left = file->inode->size - PS_MIN(file->offset, file->inode->size);
        size_t count = PS_MIN(size, left);
        if (count > 0) {
            memcpy(out, file->inode->data + file->offset, count);
        }
        file->offset += count;
        *read_out = count;
        status = PS_OK;
    }
    ps_mutex_unlock(&file->fs->mutex);
    return status;
}

static enum ps_status append(struct fs_sim *fs, struct inode *inode, const void *data,
                             size_t size) PS_REQUIRES(fs->mutex)
{
    if (size > fs->capacity - PS_MIN(fs->used, fs->capacity)) {
        return PS_EFULL;
    }
    if (size > inode->capacity - inode->size) {
        size_t capacity = PS_MAX(inode->capacity * 2, inode->size + size);
        char *grown = realloc(inode->data, capacity);
        if (grown == NULL) {
            return PS_ENOMEM;
        }
        inode->data = grown;
        inode->capacity = capacity;
    }
    if (size > 0) {
        memcpy(inode->data + inode->size, data, size);
    }
    inode->size += size;
    fs->used += size;
    return PS_OK;
}

static enum ps_status sim_write(struct ps_file *base, const void *data, size_t size)
{
    struct file_sim *file = (struct file_sim *)base;
    enum ps_status status = PS_EIO;
    ps_mutex_lock(&file->fs->mutex);
    if (file->life == file->fs->life && file->writable) {
        status = append(file->fs, file->inode, data, size);
    }
    ps_mutex_unlock(&file->fs->mutex);
    return status;
}

static enum ps_status sim_write_at(struct ps_file *base, uint64_t offset,
                                   const void *data, size_t size)
{
    struct file_sim *file = (struct file_sim *)base;
    struct inode *inode = file->inode;
    enum ps_status status = PS_EIO;
    ps_mutex_lock(&file->fs->mutex);
    if (file->life == file->fs->life && file->writable) {
        status = offset > inode->size ? PS_EINVAL : PS_OK;
    }
    if (status == PS_OK) {
        size_t over = PS_MIN(size, inode->size - (size_t)offset);
        status = append(file->fs, inode, (const char *)data + over, size - over);
        if (status == PS_OK && over > 0) {
            memcpy(inode->data + offset, data, over);
        }
    }
    ps_mutex_unlock(&file->fs->mutex);
    return status;
}

static enum ps_status sync_inode(struct inode *inode)
{
    char *copy = malloc(inode->size + 1);
    if (copy == NULL) {
        return PS_ENOMEM;
    }
    if (inode->size > 0) {
        memcpy(copy, inode->data, inode->size);
    }
    free(inode->durable);
    inode->durable = copy;
    inode->durable_size = inode->size;
    return PS_OK;
}

static enum ps_status sim_sync(struct ps_file *base)
{
    struct file_sim *file = (struct file_sim *)base;
    struct fs_sim *fs = file->fs;
    enum ps_status status = PS_EIO;
    ps_mutex_lock(&fs->mutex);
    if (file->life == fs->life) {
        status = sync_inode(file->inode);
        /* The name too, unless it leads elsewhere by now. */
        if (status == PS_OK && ps_strmap_get(&fs->seen, file->path) == file->inode) {
            status = link_name(&fs->durable, file->path, file->inode);
        }
    }
    ps_mutex_unlock(&fs->mutex);
    return status;
}

static void sim_close(struct ps_file *base)
{
    struct file_sim *file = (struct file_sim *)base;
    ps_mutex_lock(&file->fs->mutex);
    inode_release(file->inode);
    ps_mutex_unlock(&file->fs->mutex);
    free(file->path);
    free(file);
}

static const struct ps_file_ops file_ops = {sim_read, sim_write, sim_write_at, sim_sync,
                                            sim_close};

/* The inode for 'mode', made where it must be. */
static enum ps_status open_inode(struct fs_sim *fs, const char *path,
                                 enum ps_fs_mode mode, struct inode **inode_out)
    PS_REQUIRES(fs->mutex)
{
    struct inode *inode = ps_strmap_get(&fs->seen, path);
    if (inode == NULL) {
        if (mode == PS_FS_READ) {
            return PS_ENOENT;
        }
        inode = calloc(1, sizeof(*inode));
        if (inode == NULL) {
            return PS_ENOMEM;
        }
        enum ps_status status = link_name(&fs->seen, path, inode);
        if (status != PS_OK) {
            free(inode);
            return status;
        }
    } else if (mode == PS_FS_CREATE) {
        fs->used -= inode->size;
        inode->size = 0;
    }
    *inode_out = inode;
    return PS_OK;
}

static enum ps_status sim_open(struct ps_fs *base, const char *path, enum ps_fs_mode mode,
                               struct ps_file **file_out)
{
    struct fs_sim *fs = (struct fs_sim *)base;
    struct file_sim *file = calloc(1, sizeof(*file));
    char *copy = strdup(path);
    enum ps_status status = PS_ENOMEM;
    if (file == NULL || copy == NULL) {
        goto fail;
    }
    ps_mutex_lock(&fs->mutex);
    status = open_inode(fs, path, mode, &file->inode);
    if (status == PS_OK) {
        file->inode->refs++;
        file->life = fs->life;
    }
    ps_mutex_unlock(&fs->mutex);
    if (status != PS_OK) {
        goto fail;
    }
    file->base.ops = &file_ops;
    file->fs = fs;
    file->path = copy;
    file->writable = mode != PS_FS_READ;
    *file_out = &file->base;
    return PS_OK;

fail:
    free(copy);
    free(file);
    return status;
}

static enum ps_status sim_size(struct ps_fs *base, const char *path, uint64_t *size_out)
{
    struct fs_sim *fs = (struct fs_sim *)base;
    ps_mutex_lock(&fs->mutex);
    const struct inode *inode = ps_strmap_get(&fs->seen, path);
    if (inode != NULL) {
        *size_out = inode->size;
    }
    ps_mutex_unlock(&fs->mutex);
    return inode == NULL ? PS_ENOENT : PS_OK;
}

/* Forgets the bytes that only the seen name held. */
static void drop_bytes(struct fs_sim *fs, const struct inode *inode)
    PS_REQUIRES(fs->mutex)
{
    if (inode != NULL) {
        fs->used -= PS_MIN(fs->used, inode->size);
    }
}

static enum ps_status sim_rename(struct ps_fs *base, const char *from, const char *to)
{
    struct fs_sim *fs = (struct fs_sim *)base;
    enum ps_status status = PS_OK;
    ps_mutex_lock(&fs->mutex);
    struct inode *inode = ps_strmap_get(&fs->seen, from);
    if (inode == NULL) {
        status = PS_ENOENT;
    } else if (strcmp(from, to) != 0) {
        drop_bytes(fs, ps_strmap_get(&fs->seen, to));
        PS_TRY_GOTO(status, link_name(&fs->seen, to, inode), unlock);
        /* Durable at once: the real one syncs the directory. */
        PS_TRY_GOTO(status, link_name(&fs->durable, to, inode), unlock);
        PS_TRY_GOTO(status, link_name(&fs->durable, from, NULL), unlock);
        PS_TRY_GOTO(status, link_name(&fs->seen, from, NULL), unlock);
    }
unlock:
    ps_mutex_unlock(&fs->mutex);
    return status;
}

static enum ps_status sim_remove(struct ps_fs *base, const char *path)
{
    struct fs_sim *fs = (struct fs_sim *)base;
    enum ps_status status = PS_ENOENT;
    ps_mutex_lock(&fs->mutex);
    struct inode *inode = ps_strmap_get(&fs->seen, path);
    if (inode != NULL) {
        drop_bytes(fs, inode);
        status = link_name(&fs->seen, path, NULL);
    }
    ps_mutex_unlock(&fs->mutex);
    return status;
}

static bool sim_exists(struct ps_fs *base, const char *path)
{
    uint64_t size;
    return sim_size(base, path, &size) == PS_OK;
}

static const struct ps_fs_ops sim_ops = {sim_open, sim_size, sim_rename, sim_remove,
                                         sim_exists};

enum ps_status ps_fs_sim_create(struct ps_fs **fs_out)
{
    struct fs_sim *fs = calloc(1, sizeof(*fs));
    if (fs == NULL) {
        return PS_ENOMEM;
    }
    fs->base.ops = &sim_ops;
    ps_mutex_init(&fs->mutex);
    fs->capacity = UINT64_MAX;
    *fs_out = &fs->base;
    return PS_OK;
}

static void unlink_all(struct ps_strmap *names)
{
    const char *path;
    void *inode;
    for (size_t it = 0; ps_strmap_next(names, &it, &path, &inode);) {
        inode_release(inode);
    }
    ps_strmap_fini(names);
}

void ps_fs_sim_destroy(struct ps_fs *base) PS_NO_THREAD_SAFETY
{
    struct fs_sim *fs = (struct fs_sim *)base;
    if (fs != NULL) {
        unlink_all(&fs->seen);
        unlink_all(&fs->durable);
        ps_mutex_fini(&fs->mutex);
        free(fs);
    }
}

/* The seen state becomes the durable one again. */
static void restore(struct inode *inode)
{
    if (inode->capacity < inode->durable_size) {
        free(inode->data);
        inode->data = inode->durable; /* cannot fail: the copy changes its use */
        inode->capacity = inode->size = inode->durable_size;
        inode->durable = NULL;
        if (sync_inode(inode) != PS_OK) {
            inode->durable_size = 0; /* out of memory: the next crash loses it */
        }
        return;
    }
    if (inode->durable_size > 0) {
        memcpy(inode->data, inode->durable, inode->durable_size);
    }
    inode->size = inode->durable_size;
}

void ps_fs_sim_crash(struct ps_fs *base)
{
    struct fs_sim *fs = (struct fs_sim *)base;
    const char *path;
    void *value;
    ps_mutex_lock(&fs->mutex);
    fs->life++;
    fs->used = 0;
    unlink_all(&fs->seen);
    for (size_t it = 0; ps_strmap_next(&fs->durable, &it, &path, &value);) {
        struct inode *inode = value;
        restore(inode);
        if (link_name(&fs->seen, path, inode) == PS_OK) {
            fs->used += inode->size;
        }
    }
    ps_mutex_unlock(&fs->mutex);
}

void ps_fs_sim_set_capacity(struct ps_fs *base, uint64_t bytes)
{
    struct fs_sim *fs = (struct fs_sim *)base;
    ps_mutex_lock(&fs->mutex);
    fs->capacity = bytes;
    ps_mutex_unlock(&fs->mutex);
}
