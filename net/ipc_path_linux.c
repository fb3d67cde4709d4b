/* Where unix sockets lie: in JOB_DIR, or in a fresh private directory under TMPDIR; both
 * mode 0700, so that nobody else of the host can reach them.  A socket file that nobody
 * listens at is left over from a process that was killed, and is removed; libzmq would
 * unlink a live one as well, so the check comes before its bind.  cases.md 98. */
#include "net/zmq_wire.h"

#include "net/end.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static enum ps_status check_directory(const char *path, struct ps_error *err)
{
    struct stat st;
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return ps_error_set(err, errno == EACCES ? PS_EPERM : PS_EIO, "JOB_DIR %s: %s",
                            path, strerror(errno));
    }
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        return ps_error_set(err, PS_EADDR, "JOB_DIR %s: is no directory", path);
    }
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        return ps_error_set(err, PS_EPERM,
                            "JOB_DIR %s: must be yours and mode 0700, is mode %04o of "
                            "user %u",
                            path, (unsigned)(st.st_mode & 07777), (unsigned)st.st_uid);
    }
    return PS_OK;
}

static enum ps_status own_directory(const struct ps_node *node,
                                    char directory[PS_URL_BYTES], struct ps_error *err)
{
    const char *base = ps_settings_text(node->settings, PS_SET_TMPDIR);
    if (directory[0] != '\0') {
        return PS_OK;
    }
    char path[PS_URL_BYTES];
    snprintf(path, sizeof(path), "%s/penstock-XXXXXX", base[0] == '\0' ? "/tmp" : base);
    if (mkdtemp(path) == NULL) { /* mode 0700 */
        return ps_error_set(err, PS_EIO, "TMPDIR %s: %s", base, strerror(errno));
    }
    memcpy(directory, path, sizeof(path));
    return PS_OK;
}

/* Whether a process listens at the socket file. */
static bool is_live(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return true; /* not known: leave it alone */
    }
    bool refused = connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 &&
                   errno == ECONNREFUSED;
    close(fd);
    return !refused;
}

static enum ps_status clear_path(const char *path, struct ps_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    if (path[0] == '\0' || strlen(path) >= sizeof(address.sun_path)) {
        return ps_error_set(err, PS_EADDR,
                            "address 'ipc://%.150s': a path has 1 to %zu bytes", path,
                            sizeof(address.sun_path) - 1);
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (lstat(path, &st) != 0) {
        return PS_OK;
    }
    if (!S_ISSOCK(st.st_mode)) {
        return ps_error_set(err, PS_EINUSE, "ipc://%s: a file that is no socket is there",
                            path);
    }
    if (is_live(&address)) {
        return ps_error_set(err, PS_EINUSE, "ipc://%s in use", path);
    }
    if (unlink(path) != 0) {
        return ps_error_set(err, PS_EPERM, "ipc://%s: left over, cannot be removed: %s",
                            path, strerror(errno));
    }
    return PS_OK;
}

enum ps_status ps_ipc_path(const struct ps_node *node, const char *url, uint64_t number,
                           char directory[PS_URL_BYTES], char url_out[PS_URL_BYTES],
                           struct ps_error *err)
{
    char scheme[16], path[PS_URL_BYTES];
    const char *rest;
    if (!ps_url_split(url, scheme, &rest)) {
        return ps_error_set(err, PS_EADDR, "address '%s': must be ipc://path", url);
    }
    if (strcmp(rest, "*") == 0 || rest[0] == '\0') {
        const char *job = ps_settings_text(node->settings, PS_SET_JOB_DIR);
        if (job[0] != '\0') {
            PS_TRY(check_directory(job, err));
        } else {
            PS_TRY(own_directory(node, directory, err));
        }
        const char *base = job[0] != '\0' ? job : directory;
        uint64_t unique = 0;
        PS_TRY(ps_random_bytes(&unique, sizeof(unique)));
        int n = snprintf(path, sizeof(path), "%s/%ld-%" PRIu64 "-%08" PRIx32, base,
                         (long)getpid(), number, (uint32_t)unique);
        if (n < 0 || (size_t)n >= sizeof(path) - 6) {
            return ps_error_set(err, PS_EADDR, "directory %s: too long for a socket",
                                base);
        }
    } else {
        snprintf(path, sizeof(path), "%s", rest);
    }
    PS_TRY(clear_path(path, err));
    snprintf(url_out, PS_URL_BYTES, "ipc://%.*s", PS_URL_BYTES - 7, path);
    return PS_OK;
}

void ps_ipc_remove(const char *directory)
{
    DIR *dir = opendir(directory);
    if (dir == NULL) {
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    closedir(dir);
    (void)rmdir(directory);
}

void ps_ipc_tune(int fd)
{
    /* The kernel's 208 KiB make writer and reader of a chunk of 1 MiB take turns; 512 KiB
     * move chunks a quarter to a third faster, more is no better. libzmq sets it for tcp
     * only. */
    int domain = 0, bytes = 512 << 10;
    socklen_t size = sizeof(domain);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX) {
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    }
}
