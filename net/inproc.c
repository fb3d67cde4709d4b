/* inproc://name: links between loops on any threads of one process, through the world's
 * mailboxes; the receiver is woken by its doorbell.  Lossless, in order, by reference. */
#include "net/world.h"

#include "net/end.h"

static enum ps_status inproc_open(struct ps_node *node, struct ps_loop *loop,
                                  const struct ps_wire_events *events, void *end,
                                  struct ps_wire **wire_out, struct ps_error *err)
{
    return ps_memory_open(&ps_net_inproc_ops, node, loop, events, end, wire_out, err);
}

const struct ps_net_ops ps_net_inproc_ops = {
    .scheme = "inproc",
    .abi = PS_NET_ABI,
    .lossless = true,
    .local = true,
    .open = inproc_open,
    .close = ps_memory_close,
    .listen = ps_memory_listen,
    .dial = ps_memory_dial,
    .hangup = ps_memory_hangup,
    .closing = ps_memory_closing,
    .send = ps_memory_send,
    .mem_register = ps_memory_register,
    .mem_unregister = ps_memory_unregister,
};
