/* The hostfile parser of launch_hosts.h.  Works on copies of lines of bounded length, so
 * that no input can make it run long or write far. */
#include "deploy/launch_hosts.h"

#include "base/str.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 512
#define HOSTS_MAX 65536
#define SLOTS_MAX 65535

struct line {
    const char *path;
    size_t number;
    struct ps_error *err;
};

static enum ps_status parse_port(const struct line *line, const char *text, uint16_t *out)
{
    uint64_t port;
    if (ps_parse_u64(text, &port) != PS_OK || port < 1 || port > 65535) {
        return ps_error_set(line->err, PS_EINVAL, "%s:%zu: port '%s': 1 to 65535",
                            line->path, line->number, text);
    }
    *out = (uint16_t)port;
    return PS_OK;
}

/* "name", "name:22", "[fe80::1]", "[fe80::1]:22"; a bare address with several colons is
 * ambiguous. */
static enum ps_status parse_address(const struct line *line, char *word,
                                    struct ps_launch_host *host)
{
    char *name = word;
    char *port = NULL;

    if (*word == '[') {
        char *close = strchr(word, ']');
        if (!close || (close[1] != '\0' && close[1] != ':')) {
            return ps_error_set(line->err, PS_EINVAL,
                                "%s:%zu: '%s': expected [address]:port", line->path,
                                line->number, word);
        }
        *close = '\0';
        name = word + 1;
        port = close[1] == ':' ? close + 2 : NULL;
    } else {
        port = strchr(word, ':');
        if (port && strchr(port + 1, ':')) {
            return ps_error_set(line->err, PS_EINVAL,
                                "%s:%zu: '%s': write an IPv6 address as [address]:port",
                                line->path, line->number, word);
        }
        if (port) {
            *port++ = '\0';
        }
    }
    size_t size = strlen(name);
    if (size == 0 || size >= sizeof(host->name) || name[0] == '-') {
        return ps_error_set(line->err, PS_EINVAL, "%s:%zu: '%s' is not a host name",
                            line->path, line->number, name);
    }
    memcpy(host->name, name, size + 1);
    return port ? parse_port(line, port, &host->port) : PS_OK;
}

static enum ps_status parse_attribute(const struct line *line, const char *word,
                                      struct ps_launch_host *host)
{
    uint64_t slots;
    if (strncmp(word, "slots=", 6) != 0) {
        return ps_error_set(line->err, PS_EINVAL,
                            "%s:%zu: '%s': expected host[:port] [slots=N]", line->path,
                            line->number, word);
    }
    if (ps_parse_u64(word + 6, &slots) != PS_OK || slots < 1 || slots > SLOTS_MAX) {
        return ps_error_set(line->err, PS_EINVAL, "%s:%zu: '%s': slots are 1 to %d",
                            line->path, line->number, word, SLOTS_MAX);
    }
    host->slots = (uint32_t)slots;
    return PS_OK;
}

/* Cuts the next word out of '*rest'; NULL when there is none. */
static char *next_word(char **rest)
{
    char *at = *rest;
    while (*at && isspace((unsigned char)*at)) {
        at++;
    }
    if (*at == '\0') {
        return NULL;
    }
    char *word = at;
    while (*at && !isspace((unsigned char)*at)) {
        at++;
    }
    if (*at) {
        *at++ = '\0';
    }
    *rest = at;
    return word;
}

static enum ps_status parse_line(const struct line *line, char *text,
                                 struct ps_launch_host *host, bool *found_out)
{
    char *comment = strchr(text, '#');
    if (comment) {
        *comment = '\0';
    }
    char *rest = text;
    char *word = next_word(&rest);
    *found_out = word != NULL;
    if (!word) {
        return PS_OK;
    }
    *host = (struct ps_launch_host){.port = PS_LAUNCH_SSH_PORT, .slots = 1};
    PS_TRY(parse_address(line, word, host));
    while ((word = next_word(&rest))) {
        PS_TRY(parse_attribute(line, word, host));
    }
    return PS_OK;
}

static enum ps_status add_host(struct ps_launch_hosts *hosts,
                               const struct ps_launch_host *host)
{
    /* Doubles at powers of two; a hostfile is read once. */
    if ((hosts->count & (hosts->count - 1)) == 0) {
        size_t capacity = hosts->count ? 2 * hosts->count : 1;
        void *grown = realloc(hosts->items, capacity * sizeof(*hosts->items));
        if (!grown) {
            return PS_ENOMEM;
        }
        hosts->items = grown;
    }
    hosts->items[hosts->count++] = *host;
    return PS_OK;
}

enum ps_status ps_launch_hosts_parse(const char *text, const char *path,
                                     struct ps_launch_hosts *hosts_out,
                                     struct ps_error *err)
{
    struct ps_launch_hosts hosts = {0};
    struct line line = {.path = path, .err = err};
    enum ps_status status = PS_OK;

    while (*text && status == PS_OK) {
        char copy[LINE_BYTES];
        size_t size = strcspn(text, "\n");
        line.number++;
        if (size >= sizeof(copy)) {
            status = ps_error_set(err, PS_EINVAL, "%s:%zu: longer than %d bytes", path,
                                  line.number, LINE_BYTES - 1);
            break;
        }
        memcpy(copy, text, size);
        copy[size] = '\0';
        text += size + (text[size] == '\n');

        struct ps_launch_host host;
        bool found = false;
        status = parse_line(&line, copy, &host, &found);
        if (status == PS_OK && found) {
            status = hosts.count < HOSTS_MAX
                         ? add_host(&hosts, &host)
                         : ps_error_set(err, PS_EINVAL, "%s:%zu: more than %d hosts",
                                        path, line.number, HOSTS_MAX);
        }
    }
    if (status == PS_OK && hosts.count == 0) {
        status = ps_error_set(err, PS_EINVAL, "%s: no host in it", path);
    }
    if (status != PS_OK) {
        ps_launch_hosts_fini(&hosts);
        return status;
    }
    *hosts_out = hosts;
    return PS_OK;
}

void ps_launch_hosts_fini(struct ps_launch_hosts *hosts)
{
    if (hosts) {
        free(hosts->items);
        *hosts = (struct ps_launch_hosts){0};
    }
}
