/* Interfaces through getifaddrs, the owner of a port through /proc/net/tcp and
 * /proc/PID/fd (whatever may not be read is skipped). */
#include "net/nic.h"

#include "base/str.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TCP_STATE_LISTEN 0x0a /* include/net/tcp_states.h */

bool ps_host_is_any(const char *host)
{
    return host[0] == '\0' || strcmp(host, "*") == 0 || strcmp(host, "0.0.0.0") == 0;
}

static bool parse_v4(const char *host, struct in_addr *out)
{
    return inet_pton(AF_INET, host, out) == 1;
}

bool ps_host_is_loopback(const char *host)
{
    struct in_addr address;
    if (parse_v4(host, &address)) {
        return ntohl(address.s_addr) >> 24 == 127;
    }
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "::ffff:127.0.0.1") == 0;
}

static bool is_own_address(struct in_addr address)
{
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all) != 0) {
        return false;
    }
    for (const struct ifaddrs *nic = all; nic != NULL && !found; nic = nic->ifa_next) {
        if (nic->ifa_addr != NULL && nic->ifa_addr->sa_family == AF_INET) {
            struct sockaddr_in in;
            memcpy(&in, nic->ifa_addr, sizeof(in));
            found = in.sin_addr.s_addr == address.s_addr;
        }
    }
    freeifaddrs(all);
    return found;
}

bool ps_host_is_local(const char *host)
{
    struct in_addr address;
    char own[PS_HOST_BYTES] = "";
    if (ps_host_is_loopback(host)) {
        return true;
    }
    if (parse_v4(host, &address)) {
        return is_own_address(address);
    }
    return gethostname(own, sizeof(own) - 1) == 0 && strcmp(own, host) == 0;
}

enum ps_status ps_nic_address(const char *name, char host_out[PS_HOST_BYTES],
                              struct ps_error *err)
{
    struct ifaddrs *all;
    struct ps_str list = {0};
    bool found = false;
    if (getifaddrs(&all) != 0) {
        return ps_error_set(err, PS_EADDR, "INTERFACE %s: cannot list interfaces", name);
    }
    for (const struct ifaddrs *nic = all; nic != NULL && !found; nic = nic->ifa_next) {
        char text[INET_ADDRSTRLEN];
        struct sockaddr_in in;
        if (nic->ifa_addr == NULL || nic->ifa_addr->sa_family != AF_INET) {
            continue;
        }
        memcpy(&in, nic->ifa_addr, sizeof(in));
        if (inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text)) == NULL) {
            continue;
        }
        if (strcmp(nic->ifa_name, name) == 0) {
            memcpy(host_out, text, strlen(text) + 1);
            found = true;
        }
        ps_str_printf(&list, "%s%s (%s)", list.size > 0 ? ", " : "", nic->ifa_name, text);
    }
    freeifaddrs(all);
    enum ps_status status = PS_OK;
    if (!found) {
        status = ps_error_set(err, PS_EADDR,
                              "INTERFACE %s: no interface of exactly that name has an "
                              "IPv4 address; there are %s",
                              name, ps_str_text(&list));
    }
    ps_str_fini(&list);
    return status;
}

enum ps_status ps_host_resolve(const char *name, char host_out[PS_HOST_BYTES],
                               struct ps_error *err)
{
    struct in_addr address;
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    if (parse_v4(name, &address)) {
        memcpy(host_out, name, strlen(name) + 1);
        return PS_OK;
    }
    if (strcmp(name, "localhost") == 0) {
        memcpy(host_out, "127.0.0.1", sizeof("127.0.0.1"));
        return PS_OK;
    }
    int rc = getaddrinfo(name, NULL, &hints, &found);
    if (rc != 0) {
        return ps_error_set(err, PS_EADDR, "host '%.100s': %s", name, gai_strerror(rc));
    }
    struct sockaddr_in in;
    memcpy(&in, found->ai_addr, sizeof(in));
    freeaddrinfo(found);
    if (inet_ntop(AF_INET, &in.sin_addr, host_out, PS_HOST_BYTES) == NULL) {
        return ps_error_set(err, PS_EADDR, "host '%.100s': no IPv4 address", name);
    }
    return PS_OK;
}

bool ps_nic_towards(const char *target, char host_out[PS_HOST_BYTES])
{
    char numeric[PS_HOST_BYTES];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)}, from;
    socklen_t size = sizeof(from);
    if (ps_host_resolve(target, numeric, NULL) != PS_OK ||
        !parse_v4(numeric, &to.sin_addr)) {
        return false;
    }
    /* Connecting a datagram socket sends nothing; it only chooses the route. */
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    bool found = connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0 &&
                 getsockname(fd, (struct sockaddr *)&from, &size) == 0 &&
                 inet_ntop(AF_INET, &from.sin_addr, host_out, PS_HOST_BYTES) != NULL;
    close(fd);
    return found;
}

void ps_tcp_tune_loopback(int fd)
{
    /* Where users may not choose cubic (tcp_allowed_congestion_control), reno does as
     * well: nothing is lost on a loopback. */
    static const char *const names[] = {"cubic", "reno"};
    struct sockaddr_in peer;
    socklen_t size = sizeof(peer);
    if (getpeername(fd, (struct sockaddr *)&peer, &size) != 0 || size != sizeof(peer) ||
        peer.sin_family != AF_INET || ntohl(peer.sin_addr.s_addr) >> 24 != 127) {
        return;
    }
    for (size_t i = 0; i < PS_COUNT(names); i++) {
        if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, names[i],
                       (socklen_t)strlen(names[i])) == 0) {
            return;
        }
    }
}

/* The inode of the socket that listens at 'port', from one of /proc/net/tcp{,6}; 0: none.
 */
static unsigned long listener_inode(const char *path, uint16_t port)
{
    FILE *file = fopen(path, "re");
    char line[512];
    unsigned long inode = 0;
    if (file == NULL) {
        return 0;
    }
    while (inode == 0 && fgets(line, sizeof(line), file) != NULL) {
        unsigned local_port, state;
        unsigned long found;
        if (sscanf(line,
                   " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x %*x %*u "
                   "%*u %lu",
                   &local_port, &state, &found) == 3 &&
            local_port == port && state == TCP_STATE_LISTEN) {
            inode = found;
        }
    }
    fclose(file);
    return inode;
}

static bool process_holds(const char *pid, const char *link_text)
{
    char path[64], link_path[400], target[64];
    snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    DIR *dir = opendir(path);
    bool found = false;
    const struct dirent *entry;
    if (dir == NULL) {
        return false;
    }
    while (!found && (entry = readdir(dir)) != NULL) {
        snprintf(link_path, sizeof(link_path), "%s/%s", path, entry->d_name);
        ssize_t n = readlink(link_path, target, sizeof(target) - 1);
        if (n > 0) {
            target[n] = '\0';
            found = strcmp(target, link_text) == 0;
        }
    }
    closedir(dir);
    return found;
}

uint32_t ps_port_owner(uint16_t port)
{
    unsigned long inode = listener_inode("/proc/net/tcp", port);
    char link_text[64];
    uint64_t pid = 0;
    if (inode == 0) {
        inode = listener_inode("/proc/net/tcp6", port);
    }
    DIR *dir = inode == 0 ? NULL : opendir("/proc");
    if (dir == NULL) {
        return 0;
    }
    snprintf(link_text, sizeof(link_text), "socket:[%lu]", inode);
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        uint64_t n;
        if (ps_parse_u64(entry->d_name, &n) == PS_OK && n <= UINT32_MAX &&
            process_holds(entry->d_name, link_text)) {
            pid = n;
            break;
        }
    }
    closedir(dir);
    return (uint32_t)pid;
}
