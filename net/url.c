/* Addresses: "scheme://rest", and host and port of the tcp form. */
#include "net/end.h"

#include "base/str.h"

#include <string.h>

bool ps_url_split(const char *url, char scheme_out[16], const char **rest_out)
{
    const char *colon = strstr(url, "://");
    if (colon == NULL || colon == url || colon - url >= 16) {
        return false;
    }
    memcpy(scheme_out, url, (size_t)(colon - url));
    scheme_out[colon - url] = '\0';
    *rest_out = colon + 3;
    return true;
}

static enum ps_status bad_tcp(const char *url, struct ps_error *err)
{
    return ps_error_set(err, PS_EADDR,
                        "address '%.150s': must be tcp://host:port with a port from 0 to "
                        "65535",
                        url);
}

enum ps_status ps_url_tcp(const char *url, char host_out[PS_HOST_BYTES],
                          uint16_t *port_out, struct ps_error *err)
{
    char scheme[16];
    const char *rest;
    if (!ps_url_split(url, scheme, &rest) || strcmp(scheme, "tcp") != 0) {
        return bad_tcp(url, err);
    }
    const char *colon = strrchr(rest, ':');
    if (colon == NULL) {
        return bad_tcp(url, err);
    }
    const char *host = rest;
    size_t host_size = (size_t)(colon - rest);
    if (host_size >= 2 && rest[0] == '[' && rest[host_size - 1] == ']') {
        host++;
        host_size -= 2;
    } else if (memchr(rest, ':', host_size) != NULL) {
        return bad_tcp(url, err); /* IPv6 needs its brackets */
    }
    uint64_t port;
    if (host_size >= PS_HOST_BYTES || ps_parse_u64(colon + 1, &port) != PS_OK ||
        port > UINT16_MAX) {
        return bad_tcp(url, err);
    }
    for (size_t i = 0; i < host_size; i++) {
        unsigned char c = (unsigned char)host[i];
        if (c <= ' ' || c >= 0x7f || c == '/' || c == ';') {
            return bad_tcp(url, err);
        }
    }
    memcpy(host_out, host, host_size);
    host_out[host_size] = '\0';
    *port_out = (uint16_t)port;
    return PS_OK;
}
