/* This machine's addresses, and who holds a port.  Private to net.  Threads: any. */
#ifndef PENSTOCK_NET_NIC_H
#define PENSTOCK_NET_NIC_H

#include "net/net.h"

/* Loopback, an address of one of this machine's interfaces, "localhost" or the machine's
 * own name.  Other names count as elsewhere: no name server is asked. */
bool ps_host_is_local(const char *host);
bool ps_host_is_loopback(const char *host);
bool ps_host_is_any(const char *host); /* "", "*", "0.0.0.0" */

/* The IPv4 address of interface 'name', exactly.  Errors: PS_EADDR with 'err' listing the
 * interfaces there are. */
PS_MUST_CHECK enum ps_status
ps_nic_address(const char *name, char host_out[PS_HOST_BYTES], struct ps_error *err);
/* The address of this machine from which 'target' (numeric or a name) is reached; false
 * when there is none. */
bool ps_nic_towards(const char *target, char host_out[PS_HOST_BYTES]);
/* The IPv4 address of a name, dotted; asks the resolver when it is no number. */
PS_MUST_CHECK enum ps_status
ps_host_resolve(const char *name, char host_out[PS_HOST_BYTES], struct ps_error *err);
/* bbr, the default of some kernels, paces even where there is no wire and starves when
 * the cores are busy; libzmq has no option for it.  Gives a loopback TCP connection
 * cubic, where there is one; does nothing to any other descriptor. */
void ps_tcp_tune_loopback(int fd);
/* The process that listens at TCP port 'port'; 0 when it cannot be found. */
uint32_t ps_port_owner(uint16_t port);
/* Where ZeroMQ binds ("tcp://a.b.c.d:port") for 'url', and the host that peers dial: the
 * rules of BIND_HOST, ADVERTISE_HOST, INTERFACE and ROOT_URI. */
PS_MUST_CHECK enum ps_status ps_tcp_bind(const struct ps_node *node, const char *url,
                                         char bind_out[PS_URL_BYTES],
                                         char host_out[PS_HOST_BYTES],
                                         struct ps_error *err);

#endif
