/* Addresses from settings.  With TRANSPORT=ipc and a plain host (DMLC_LOCAL=1) the
 * scheduler's socket is <JOB_DIR>/scheduler-<ROOT_PORT>, or lies in the directory
 * penstock-<uid> under TMPDIR; both ends find it without talking. */
#include "kvstore/shard/root.h"

#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool ps_root_is_loopback(const char *host)
{
    return host[0] == '\0' || strcmp(host, "localhost") == 0 ||
           strcmp(host, "::1") == 0 || strcmp(host, "[::1]") == 0 ||
           strncmp(host, "127.", 4) == 0;
}

static bool wants_ipc(const struct ps_settings *settings)
{
    const char *root = ps_settings_text(settings, PS_SET_ROOT_URI);
    const char *transport = ps_settings_text(settings, PS_SET_TRANSPORT);
    if (strncmp(root, "ipc://", 6) == 0) {
        return true;
    }
    return strcmp(transport, "ipc") == 0;
}

/* The directory of the scheduler's socket, without a slash at the end. */
static void socket_dir(const struct ps_settings *settings, char out[PS_URL_BYTES])
{
    const char *dir = ps_settings_text(settings, PS_SET_JOB_DIR);
    const char *base = ps_settings_text(settings, PS_SET_TMPDIR);
    if (dir[0] != '\0') {
        (void)snprintf(out, PS_URL_BYTES, "%s", dir);
    } else {
        (void)snprintf(out, PS_URL_BYTES, "%s/penstock-%u",
                       base[0] != '\0' ? base : "/tmp", (unsigned)geteuid());
    }
}

enum ps_status ps_root_make_dir(const struct ps_settings *settings, struct ps_error *err)
{
    char dir[PS_URL_BYTES];
    struct stat st;
    if (!wants_ipc(settings) ||
        strstr(ps_settings_text(settings, PS_SET_ROOT_URI), "://") != NULL) {
        return PS_OK;
    }
    socket_dir(settings, dir);
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        return ps_error_set(err, PS_EPERM, "socket directory %s: %s", dir,
                            strerror(errno));
    }
    if (lstat(dir, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
        (st.st_mode & 077) != 0) {
        return ps_error_set(err, PS_EPERM,
                            "socket directory %s: must be yours and mode 0700", dir);
    }
    return PS_OK;
}

static enum ps_status put_url(char url_out[PS_URL_BYTES], struct ps_error *err,
                              const char *a, const char *b, const char *c)
{
    int n = snprintf(url_out, PS_URL_BYTES, "%s%s%s", a, b, c);
    if (n < 0 || n >= PS_URL_BYTES) {
        return ps_error_set(err, PS_EADDR, "address %.60s%.60s...: at most %d bytes", a,
                            b, PS_URL_BYTES - 1);
    }
    return PS_OK;
}

/* ROOT_URI as a whole url.  PS_ENOENT: it is not one. */
static enum ps_status whole_url(const struct ps_settings *settings,
                                char url_out[PS_URL_BYTES], struct ps_error *err)
{
    const char *root = ps_settings_text(settings, PS_SET_ROOT_URI);
    int64_t port = ps_settings_int(settings, PS_SET_ROOT_PORT);
    const char *rest = strstr(root, "://");
    char tail[16] = "";
    if (rest == NULL) {
        return PS_ENOENT;
    }
    /* tcp://host without its port takes ROOT_PORT; [v6] hosts end in a bracket. */
    const char *colon = strrchr(rest + 3, ':');
    bool bare = colon == NULL || colon[1] == '\0' || strchr(colon, ']') != NULL;
    if (strncmp(root, "tcp://", 6) == 0 && bare) {
        (void)snprintf(tail, sizeof(tail), ":%lld", (long long)port);
    }
    return put_url(url_out, err, root, tail, "");
}

static enum ps_status ipc_url(const struct ps_settings *settings,
                              char url_out[PS_URL_BYTES], struct ps_error *err)
{
    char dir[PS_URL_BYTES], name[32];
    int64_t port = ps_settings_int(settings, PS_SET_ROOT_PORT);
    socket_dir(settings, dir);
    (void)snprintf(name, sizeof(name), "/scheduler-%lld", (long long)port);
    return put_url(url_out, err, "ipc://", dir, name);
}

static enum ps_status tcp_url(const char *host, int64_t port, char url_out[PS_URL_BYTES],
                              struct ps_error *err)
{
    char tail[16];
    bool v6 = strchr(host, ':') != NULL && host[0] != '[';
    (void)snprintf(tail, sizeof(tail), "%s:%lld", v6 ? "]" : "", (long long)port);
    return put_url(url_out, err, v6 ? "tcp://[" : "tcp://", host, tail);
}

static enum ps_status check_transport(const struct ps_settings *settings, const char *url,
                                      struct ps_error *err)
{
    const char *transport = ps_settings_text(settings, PS_SET_TRANSPORT);
    if (strcmp(transport, "auto") != 0 &&
        (strncmp(url, "tcp:", 4) == 0 || strncmp(url, "ipc:", 4) == 0) &&
        strncmp(url, transport, 3) != 0) {
        return ps_error_set(err, PS_EINVAL,
                            "TRANSPORT=%s contradicts the root address %.150s", transport,
                            url);
    }
    return PS_OK;
}

enum ps_status ps_root_dial_url(const struct ps_settings *settings,
                                char url_out[PS_URL_BYTES], struct ps_error *err)
{
    const char *host = ps_settings_text(settings, PS_SET_ROOT_URI);
    int64_t port = ps_settings_int(settings, PS_SET_ROOT_PORT);
    char url[PS_URL_BYTES];
    enum ps_status status = whole_url(settings, url, err);
    if (status == PS_ENOENT && port == 0) {
        return ps_error_set(err, PS_EINVAL,
                            "ROOT_PORT is not set: the scheduler's port (also "
                            "DMLC_PS_ROOT_PORT); or ROOT_URI as a whole address, like "
                            "tcp://host:port");
    }
    if (status == PS_ENOENT) {
        status = wants_ipc(settings)
                     ? ipc_url(settings, url, err)
                     : tcp_url(host[0] != '\0' ? host : "127.0.0.1", port, url, err);
    } else if (status == PS_OK) {
        size_t n = strlen(url);
        if (n >= 2 && strncmp(url, "tcp", 3) == 0 && strcmp(url + n - 2, ":0") == 0) {
            return ps_error_set(err, PS_EINVAL,
                                "the root address %.150s has no port: set ROOT_PORT",
                                url);
        }
        status = check_transport(settings, url, err);
    }
    if (status == PS_OK) {
        memcpy(url_out, url, sizeof(url));
    }
    return status;
}

/* The host part of ROOT_URI, however it is written. */
static void root_host(const struct ps_settings *settings, char out[PS_URL_BYTES])
{
    const char *root = ps_settings_text(settings, PS_SET_ROOT_URI);
    const char *from = strstr(root, "://");
    (void)snprintf(out, PS_URL_BYTES, "%s", from != NULL ? from + 3 : root);
    char *colon = from != NULL ? strrchr(out, ':') : NULL;
    if (colon != NULL && strchr(colon, ']') == NULL) {
        colon[0] = '\0';
    }
}

enum ps_status ps_root_listen_url(const struct ps_settings *settings,
                                  char url_out[PS_URL_BYTES], struct ps_error *err)
{
    const char *bind_host = ps_settings_text(settings, PS_SET_BIND_HOST);
    char url[PS_URL_BYTES], host[PS_URL_BYTES];
    enum ps_status status = whole_url(settings, url, err);
    if (status == PS_OK) {
        PS_TRY(check_transport(settings, url, err));
    } else if (status != PS_ENOENT) {
        return status;
    } else if (wants_ipc(settings)) {
        PS_TRY(ipc_url(settings, url, err));
    } else {
        PS_TRY(tcp_url("", ps_settings_int(settings, PS_SET_ROOT_PORT), url, err));
    }
    if (strncmp(url, "tcp://", 6) == 0) {
        /* The address that peers dial need not be one of this machine's interfaces. */
        int64_t port = 0;
        const char *colon = strrchr(url, ':');
        if (ps_parse_i64(colon + 1, &port) != PS_OK || port < 0 || port > UINT16_MAX) {
            return ps_error_set(err, PS_EADDR, "root address %.150s: bad port", url);
        }
        root_host(settings, host);
        if (bind_host[0] == '\0') {
            bind_host = ps_root_is_loopback(host) ? "127.0.0.1" : "0.0.0.0";
        }
        PS_TRY(tcp_url(bind_host, port, url, err));
    }
    memcpy(url_out, url, sizeof(url));
    return PS_OK;
}

enum ps_status ps_root_lane_url(const struct ps_settings *settings,
                                char url_out[PS_URL_BYTES], struct ps_error *err)
{
    const char *bind_host = ps_settings_text(settings, PS_SET_BIND_HOST);
    char host[PS_URL_BYTES];
    if (wants_ipc(settings)) {
        return put_url(url_out, err, "ipc://*", "", "");
    }
    root_host(settings, host);
    if (bind_host[0] == '\0') {
        bind_host = ps_root_is_loopback(host) ? "127.0.0.1" : "0.0.0.0";
    }
    return tcp_url(bind_host, 0, url_out, err);
}
