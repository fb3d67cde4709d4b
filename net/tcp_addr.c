/* Which address a tcp listener binds, and which one peers are told.
 *
 *   bind       BIND_HOST, else the url's host, else (wildcard) the loopback when the
 * job's root address is loopback or not given, else all interfaces advertise
 * ADVERTISE_HOST, else INTERFACE's address, else the url's host, else BIND_HOST, else the
 * address from which the root is reached cases.md 86 (two NICs) and 88 (advertised is not
 * bound). */
#include "net/nic.h"

#include "net/end.h"

#include <stdio.h>
#include <string.h>

/* The root's host: ROOT_URI is a host or a whole address. */
static void root_host(const struct ps_node *node, char out[PS_HOST_BYTES])
{
    const char *uri = ps_settings_text(node->settings, PS_SET_ROOT_URI);
    uint16_t port;
    char scheme[16];
    const char *rest;
    if (!ps_url_split(uri, scheme, &rest)) {
        snprintf(out, PS_HOST_BYTES, "%s", uri);
    } else if (ps_url_tcp(uri, out, &port, NULL) != PS_OK) {
        out[0] = '\0'; /* ipc and the like: this host */
    }
    if (out[0] == '\0') {
        snprintf(out, PS_HOST_BYTES, "127.0.0.1");
    }
}

static enum ps_status choose_advertised(const struct ps_node *node, const char *url_host,
                                        const char *bind, const char *root,
                                        char out[PS_HOST_BYTES], struct ps_error *err)
{
    const char *told = ps_settings_text(node->settings, PS_SET_ADVERTISE_HOST);
    const char *nic = ps_settings_text(node->settings, PS_SET_INTERFACE);
    if (told[0] != '\0') {
        snprintf(out, PS_HOST_BYTES, "%s", told);
        return PS_OK;
    }
    if (nic[0] != '\0') {
        return ps_nic_address(nic, out, err);
    }
    if (!ps_host_is_any(url_host)) {
        snprintf(out, PS_HOST_BYTES, "%s", url_host);
    } else if (!ps_host_is_any(bind)) {
        snprintf(out, PS_HOST_BYTES, "%s", bind);
    } else if (!ps_nic_towards(root, out)) {
        char numeric[PS_HOST_BYTES];
        PS_TRY(ps_host_resolve(root, numeric, err)); /* a name that nobody knows */
        return ps_error_set(err, PS_EADDR,
                            "no address of this host leads to %s: set "
                            "PENSTOCK_ADVERTISE_HOST or PENSTOCK_INTERFACE",
                            root);
    }
    return PS_OK;
}

enum ps_status ps_tcp_bind(const struct ps_node *node, const char *url,
                           char bind_out[PS_URL_BYTES], char host_out[PS_HOST_BYTES],
                           struct ps_error *err)
{
    char url_host[PS_HOST_BYTES], root[PS_HOST_BYTES], bind[PS_HOST_BYTES];
    char advertised[PS_HOST_BYTES], numeric[PS_HOST_BYTES];
    uint16_t port;
    PS_TRY(ps_url_tcp(url, url_host, &port, err));
    root_host(node, root);
    const char *setting = ps_settings_text(node->settings, PS_SET_BIND_HOST);
    const char *nic = ps_settings_text(node->settings, PS_SET_INTERFACE);
    if (setting[0] != '\0') {
        snprintf(bind, sizeof(bind), "%s", setting);
    } else if (!ps_host_is_any(url_host)) {
        snprintf(bind, sizeof(bind), "%s", url_host);
    } else if (ps_host_is_loopback(root) && nic[0] == '\0' && url_host[0] != '0') {
        snprintf(bind, sizeof(bind), "127.0.0.1");
    } else {
        snprintf(bind, sizeof(bind), "0.0.0.0");
    }
    PS_TRY(choose_advertised(node, url_host, bind, root, advertised, err));
    if (ps_host_is_any(bind)) {
        snprintf(numeric, sizeof(numeric), "0.0.0.0");
    } else {
        PS_TRY(ps_host_resolve(bind, numeric, err));
    }
    snprintf(bind_out, PS_URL_BYTES, "tcp://%s:%u", numeric, (unsigned)port);
    memcpy(host_out, advertised, sizeof(advertised));
    return PS_OK;
}
