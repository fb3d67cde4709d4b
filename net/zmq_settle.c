/* Closing without losing what was sent.
 *
 * ZeroMQ's linger writes everything to the kernel; but a receiver whose queue is full
 * when the connection ends never reads the rest (its engine drops the descriptor on a
 * hang-up while input is stopped).  So the end's goodbye is answered, and the closing
 * side keeps the connection until the answer came: a dialer waits for the listener's
 * HELLO reply with a status, a listener for its dialers to leave.  All that waits at most
 * PS_ZMQ_LINGER_MS together, which only a peer that does not read uses up.
 *
 * Thread: whoever closes the end; the only place in net that blocks. */
#include "net/zmq_wire.h"

#include <stdlib.h>
#include <string.h>

#define POLL_MAX 256 /* sockets in one poll; more are waited for in turns */

static bool is_answer(zmq_msg_t *head)
{
    struct ps_link_head link_head;
    return ps_link_head_check(zmq_msg_data(head), zmq_msg_size(head), UINT32_MAX,
                              &link_head, NULL) == PS_OK &&
           link_head.kind == PS_KIND_HELLO && (link_head.flags & PS_FLAG_REPLY) != 0 &&
           link_head.status != PS_OK;
}

/* Reads and discards what still comes, looking for the answer to a dialer's goodbye. */
static void discard(struct ps_zmq_socket *socket)
{
    zmq_msg_t part;
    bool first = true;
    (void)zmq_msg_init(&part);
    while (zmq_msg_recv(&part, socket->socket, ZMQ_DONTWAIT) >= 0) {
        if (!socket->listening && first && is_answer(&part)) {
            socket->awaited = 0;
        }
        first = zmq_msg_more(&part) == 0;
    }
    (void)zmq_msg_close(&part);
}

static void watch_events(struct ps_zmq_socket *socket)
{
    unsigned event;
    uint32_t value = 0;
    while (ps_zmq_monitor_read(socket, &event, &value)) {
        if (event != ZMQ_EVENT_DISCONNECTED) {
            continue;
        }
        if (!socket->listening) {
            socket->awaited = 0;
        } else if (ps_map_remove(&socket->open, (uint64_t)value + 1) ==
                   &socket->awaited) {
            socket->awaited--;
        }
    }
}

static size_t collect(struct ps_list *list, zmq_pollitem_t *items, size_t at)
{
    for (struct ps_list *item = list->next; item != list && at + 2 <= POLL_MAX;
         item = item->next) {
        struct ps_zmq_socket *socket = PS_CONTAINER_OF(item, struct ps_zmq_socket, node);
        watch_events(socket);
        discard(socket);
        if (socket->awaited > 0) {
            items[at++] =
                (zmq_pollitem_t){.socket = socket->socket, .events = ZMQ_POLLIN};
            items[at++] =
                (zmq_pollitem_t){.socket = socket->monitor, .events = ZMQ_POLLIN};
        }
    }
    return at;
}

void ps_zmq_settle(struct ps_zmq_wire *wire)
{
    zmq_pollitem_t items[POLL_MAX];
    uint64_t deadline =
        ps_clock_now_ns(wire->node->clock) + PS_ZMQ_LINGER_MS * PS_NS_PER_MS;
    for (;;) {
        uint64_t now = ps_clock_now_ns(wire->node->clock);
        size_t count = collect(&wire->doomed, items, 0);
        count = collect(&wire->sockets, items, count);
        if (count == 0) {
            return;
        }
        if (now >= deadline) {
            PS_LOG(wire->node->log, DEBUG, NET,
                   "closed before %zu peers had read everything", count / 2);
            return;
        }
        long wait_ms = (long)((deadline - now) / PS_NS_PER_MS) + 1;
        (void)zmq_poll(items, (int)count, wait_ms);
    }
}
