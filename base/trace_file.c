/* The profiler's file, valid JSON at every moment, also when the process is killed.
 *
 *   head, events  |  blanks  |  ]}
 *
 * A write that crosses a page can be cut at the page by a SIGKILL, one inside a page
 * cannot.  So events are written over the blanks in groups that lie in one page each, and
 * what follows is a JSON text all the time.  When the blanks run out, the file is copied
 * with more of them under another name, which is then renamed: half as much again each
 * time, so that copying costs a constant share.
 *
 * Nobody owns the name: another program may put its file there at any time.  So what was
 * written is read back through a handle of its own, never by name, and the name that is
 * renamed is nobody else's.  The file is that of whoever renamed last, whole. */
#include "base/trace_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GROW_BYTES (UINT64_C(16) * PS_TRACE_PAGE_BYTES) /* at least */

static const char tail_text[] = "\n]}\n";
#define TAIL_BYTES (sizeof(tail_text) - 1)

static enum ps_status write_blanks(struct ps_file *to, uint64_t size)
{
    char blanks[16 * PS_TRACE_PAGE_BYTES];
    memset(blanks, ' ', sizeof(blanks));
    for (uint64_t left = size; left > 0;) {
        size_t part = (size_t)PS_MIN(left, (uint64_t)sizeof(blanks));
        PS_TRY(ps_file_write(to, blanks, part));
        left -= part;
    }
    return PS_OK;
}

/* The first 'size' bytes of 'from'. */
static enum ps_status copy_old(struct ps_file *from, uint64_t size, struct ps_file *to)
{
    char part[16 * PS_TRACE_PAGE_BYTES];
    enum ps_status status = PS_OK;
    for (uint64_t left = size; status == PS_OK && left > 0;) {
        size_t got = 0;
        status =
            ps_file_read(from, part, (size_t)PS_MIN(left, (uint64_t)sizeof(part)), &got);
        if (status == PS_OK && got == 0) {
            status = PS_EIO; /* somebody cut it */
        }
        if (status == PS_OK) {
            status = ps_file_write(to, part, got);
        }
        left -= got;
    }
    return status;
}

/* Puts 'head' (or, when NULL, what the file holds), blanks up to 'capacity' and the tail
 * in place of 'path'. */
static enum ps_status replace(struct ps_trace_file *file, const char *path,
                              const char *head, uint64_t size, uint64_t capacity)
{
    struct ps_file *made = NULL, *reader = NULL;
    char temp[PS_TRACE_PATH_BYTES + 64];
    (void)snprintf(temp, sizeof(temp), "%s.%ld-%" PRIxPTR ".tmp", path, (long)getpid(),
                   (uintptr_t)file);
    enum ps_status status = ps_fs_open(file->fs, temp, PS_FS_CREATE, &made, NULL);
    if (status != PS_OK) {
        return status;
    }
    status = head != NULL ? ps_file_write(made, head, (size_t)size)
                          : copy_old(file->reader, size, made);
    PS_TRY_GOTO(status, status, remove_temp);
    PS_TRY_GOTO(status, write_blanks(made, capacity - size), remove_temp);
    PS_TRY_GOTO(status, ps_file_write(made, tail_text, TAIL_BYTES), remove_temp);
    PS_TRY_GOTO(status, ps_fs_open(file->fs, temp, PS_FS_READ, &reader, NULL),
                remove_temp);
    PS_TRY_GOTO(status, ps_fs_rename(file->fs, temp, path), remove_temp);
    if (head == NULL && strcmp(path, file->path) != 0 &&
        ps_fs_remove(file->fs, file->path) != PS_OK) {
        /* somebody else took it away; the new one is there */
    }
    ps_file_close(file->file);
    ps_file_close(file->reader);
    file->file = made;
    file->reader = reader;
    file->end = size;
    file->capacity = capacity;
    if (path != file->path) {
        (void)snprintf(file->path, sizeof(file->path), "%s", path);
    }
    return PS_OK;
remove_temp:
    ps_file_close(reader);
    ps_file_close(made);
    if (ps_fs_remove(file->fs, temp) != PS_OK) {
        /* it stays behind; the first error is the one to tell */
    }
    return status;
}

enum ps_status ps_trace_file_open(struct ps_trace_file *file, struct ps_fs *fs,
                                  const char *path, const char *head, size_t size)
{
    file->fs = fs;
    file->group_size = 0;
    (void)snprintf(file->path, sizeof(file->path), "%s", path);
    return replace(file, path, head, size, size + GROW_BYTES);
}

enum ps_status ps_trace_file_flush(struct ps_trace_file *file)
{
    if (file->group_size == 0) {
        return PS_OK;
    }
    size_t size = file->group_size;
    file->group_size = 0;
    PS_TRY(ps_file_write_at(file->file, file->end, file->group, size));
    file->end += size;
    return PS_OK;
}

enum ps_status ps_trace_file_append(struct ps_trace_file *file, const char *text,
                                    size_t size)
{
    uint64_t at = file->end + file->group_size;
    size_t in_page = PS_TRACE_PAGE_BYTES - (size_t)(at % PS_TRACE_PAGE_BYTES);
    if (in_page == PS_TRACE_PAGE_BYTES) { /* the group fills its page to the last byte */
        PS_TRY(ps_trace_file_flush(file));
    } else if (size > in_page) {
        PS_TRY(ps_trace_file_flush(file));
        at += in_page; /* what lies between stays blank */
    }
    if (at + size > file->capacity) {
        PS_TRY(ps_trace_file_flush(file));
        uint64_t more = PS_MAX(GROW_BYTES, file->capacity / 2);
        PS_TRY(replace(file, file->path, NULL, file->end, file->capacity + more));
    }
    if (size > in_page) {
        file->end = at;
    }
    memcpy(file->group + file->group_size, text, size);
    file->group_size += size;
    return PS_OK;
}

enum ps_status ps_trace_file_compact(struct ps_trace_file *file, const char *path)
{
    PS_TRY(ps_trace_file_flush(file));
    if (file->end == file->capacity && strcmp(path, file->path) == 0) {
        return PS_OK;
    }
    return replace(file, path, NULL, file->end, file->end);
}

void ps_trace_file_close(struct ps_trace_file *file)
{
    ps_file_close(file->file);
    ps_file_close(file->reader);
    file->file = NULL;
    file->reader = NULL;
    file->group_size = 0;
}
