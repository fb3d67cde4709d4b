/* The transport slots that inproc:// and sim:// share.  A dialed half without a listener
 * waits for one, as a socket would try again.  Thread: the wire's loop; the world's mutex
 * guards what other loops reach. */
#include "net/world.h"

#include "net/end.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_MAX 64 /* parcels read before the loop's other tasks get their turn */

static struct ps_memory_wire *wire_of(struct ps_wire *wire)
{
    return (struct ps_memory_wire *)(void *)wire;
}

static void on_bell(struct ps_doorbell *bell)
{
    struct ps_memory_wire *wire = PS_CONTAINER_OF(bell, struct ps_memory_wire, bell);
    struct ps_net_world *world = wire->world;
    struct ps_list batch;
    ps_list_init(&batch);
    ps_mutex_lock(&world->mutex);
    for (int i = 0; i < BATCH_MAX; i++) {
        struct ps_list *item = ps_list_pop_front(&wire->mailbox);
        if (item == NULL) {
            break;
        }
        ps_list_push_back(&batch, item);
    }
    bool more = !ps_list_empty(&wire->mailbox);
    ps_mutex_unlock(&world->mutex);
    if (more) {
        ps_doorbell_ring(&wire->bell);
    }
    struct ps_list *item;
    while ((item = ps_list_pop_front(&batch)) != NULL) {
        ps_parcel_arrive(PS_CONTAINER_OF(item, struct ps_parcel, node));
    }
}

enum ps_status ps_memory_open(const struct ps_net_ops *ops, struct ps_node *node,
                              struct ps_loop *loop, const struct ps_wire_events *events,
                              void *end, struct ps_wire **wire_out, struct ps_error *err)
{
    struct ps_net_world *world = node->net_world;
    if (world == NULL || (ops == &ps_net_sim_ops && world->sim == NULL)) {
        return ps_error_set(err, PS_EUNSUPPORTED, "%s: this node is on no such network",
                            ops->scheme);
    }
    struct ps_memory_wire *wire = calloc(1, sizeof(*wire));
    if (wire == NULL) {
        return ps_error_set(err, PS_ENOMEM, "%s: no memory", ops->scheme);
    }
    wire->ops = ops;
    wire->world = world;
    wire->node = node;
    wire->loop = loop;
    wire->events = *events;
    wire->end = end;
    memcpy(wire->node_name, node->name, sizeof(wire->node_name));
    ps_list_init(&wire->halves);
    ps_list_init(&wire->mailbox);
    ps_doorbell_init(&wire->bell, loop, "net.mailbox", on_bell);
    ps_mutex_lock(&world->mutex);
    ps_list_push_back(&world->wires, &wire->node_in_world);
    ps_mutex_unlock(&world->mutex);
    *wire_out = (struct ps_wire *)(void *)wire;
    return PS_OK;
}

void ps_memory_forget_listeners(struct ps_net_world *world, struct ps_memory_wire *wire)
{
    bool found = true;
    while (found) { /* the map must not change under its iterator */
        const char *url;
        void *value;
        found = false;
        for (size_t it = 0; ps_strmap_next(&world->listeners, &it, &url, &value);) {
            if (value == wire) {
                (void)ps_strmap_remove(&world->listeners, url);
                found = true;
                break;
            }
        }
    }
}

void ps_memory_close(struct ps_wire *base)
{
    struct ps_memory_wire *wire = wire_of(base);
    struct ps_net_world *world = wire->world;
    ps_mutex_lock(&world->mutex);
    ps_memory_forget_listeners(world, wire);
    while (!ps_list_empty(&wire->halves)) { /* accepted, never greeted */
        struct ps_half *half = PS_CONTAINER_OF(wire->halves.next, struct ps_half, node);
        ps_half_cut(world, half);
        ps_list_remove(&half->node);
        half->hung = true;
        ps_half_free_if_done(half);
    }
    while (!ps_list_empty(&wire->mailbox)) {
        struct ps_parcel *parcel =
            PS_CONTAINER_OF(wire->mailbox.next, struct ps_parcel, node);
        ps_timer_cancel(&parcel->timer);
        ps_parcel_free(world, parcel);
    }
    if (wire->arriving != NULL) {
        ps_parcel_free(world, wire->arriving);
    }
    ps_list_remove(&wire->node_in_world);
    ps_mutex_unlock(&world->mutex);
    ps_loop_forget(wire->loop, &wire->bell.task);
    free(wire);
}

void ps_memory_closing(struct ps_wire *wire)
{
    wire_of(wire)->closing = true;
}

enum ps_status ps_memory_listen(struct ps_wire *base, const char *url,
                                char url_out[PS_URL_BYTES], struct ps_error *err)
{
    struct ps_memory_wire *wire = wire_of(base);
    struct ps_net_world *world = wire->world;
    char name[PS_URL_BYTES];
    char scheme[16];
    const char *rest;
    if (!ps_url_split(url, scheme, &rest) || rest[0] == '\0') {
        return ps_error_set(err, PS_EADDR, "address '%s': must be %s://name", url,
                            wire->ops->scheme);
    }
    enum ps_status status;
    ps_mutex_lock(&world->mutex);
    if (world->sim != NULL) {
        ps_sim_net_sweep(world, true);
    }
    if (strcmp(rest, "*") == 0) {
        snprintf(name, sizeof(name), "%s://any-%" PRIu64, scheme, ++world->next_name);
    } else {
        snprintf(name, sizeof(name), "%s", url);
    }
    if (ps_strmap_get(&world->listeners, name) != NULL) {
        status = ps_error_set(err, PS_EINUSE, "%s is in use", name);
    } else if (ps_strmap_put(&world->listeners, name, wire, NULL) != PS_OK) {
        status = ps_error_set(err, PS_ENOMEM, "%s: no memory", name);
    } else {
        status = PS_OK;
        memcpy(url_out, name, sizeof(name));
        for (struct ps_list *item = world->waiting.next; item != &world->waiting;) {
            struct ps_half *half = PS_CONTAINER_OF(item, struct ps_half, waiting);
            item = item->next;
            if (strcmp(half->url, name) == 0 && ps_half_join(world, half, wire)) {
                ps_list_remove(&half->waiting);
            }
        }
    }
    ps_mutex_unlock(&world->mutex);
    return status;
}

enum ps_status ps_memory_dial(struct ps_wire *base, const char *url, void *peer_ctx,
                              struct ps_wire_peer **peer_out, struct ps_error *err)
{
    struct ps_memory_wire *wire = wire_of(base);
    struct ps_net_world *world = wire->world;
    struct ps_half *half = calloc(1, sizeof(*half));
    if (half == NULL) {
        return ps_error_set(err, PS_ENOMEM, "%s: no memory", url);
    }
    half->wire = wire;
    half->ctx = peer_ctx;
    half->dialed = true;
    snprintf(half->url, sizeof(half->url), "%s", url);
    ps_list_init(&half->waiting);
    ps_mutex_lock(&world->mutex);
    ps_list_push_back(&wire->halves, &half->node);
    struct ps_memory_wire *listener = ps_strmap_get(&world->listeners, url);
    if (listener == NULL || !ps_half_join(world, half, listener)) {
        ps_list_push_back(&world->waiting, &half->waiting);
    }
    ps_mutex_unlock(&world->mutex);
    *peer_out = (struct ps_wire_peer *)(void *)half;
    return PS_OK;
}

void ps_memory_hangup(struct ps_wire_peer *peer)
{
    struct ps_half *half = (struct ps_half *)(void *)peer;
    struct ps_net_world *world = half->wire->world;
    ps_mutex_lock(&world->mutex);
    ps_half_cut(world, half);
    ps_list_remove(&half->waiting);
    ps_list_remove(&half->node);
    half->hung = true;
    ps_half_free_if_done(half);
    ps_mutex_unlock(&world->mutex);
}

/* What a parcel carries: in process the sender's own buffer; in the simulation a copy, as
 * a kernel's socket buffer would be, so that a receiver that dies holds nothing of the
 * sender's. */
static struct ps_buf *take_payload(const struct ps_net_world *world,
                                   struct ps_buf *payload)
{
    if (payload == NULL || world->sim == NULL) {
        return payload == NULL ? NULL : ps_buf_retain(payload);
    }
    struct ps_buf *copy = ps_buf_create(payload->size);
    if (copy != NULL && payload->size > 0) {
        memcpy(copy->data, payload->data, payload->size);
    }
    return copy;
}

enum ps_status ps_memory_send(struct ps_wire_peer *peer, struct ps_buf *head,
                              struct ps_buf *payload)
{
    struct ps_half *half = (struct ps_half *)(void *)peer;
    struct ps_memory_wire *wire = half->wire;
    struct ps_net_world *world = wire->world;
    enum ps_status status = PS_OK;
    ps_mutex_lock(&world->mutex);
    if (world->sim != NULL) {
        ps_sim_net_sweep(world, false);
    }
    if (half->other == NULL) {
        status = PS_EPEER;
    } else if (half->bytes >= PS_HALF_BYTES_MAX && !wire->closing) {
        half->blocked = true;
        status = PS_EAGAIN;
    } else {
        struct ps_parcel *parcel = ps_parcel_make(world, PS_PARCEL_FRAME, half->other);
        if (parcel == NULL) {
            status = PS_ENOMEM;
        } else {
            parcel->head = ps_buf_retain(head);
            parcel->payload = take_payload(world, payload);
            parcel->bytes = head->size + (payload == NULL ? 0 : payload->size);
            half->bytes += parcel->bytes;
            ps_parcel_post(world, parcel);
        }
    }
    ps_mutex_unlock(&world->mutex);
    return status;
}

enum ps_status ps_memory_register(struct ps_wire *wire, void *data, size_t size,
                                  uint64_t *out)
{
    PS_UNUSED(wire);
    PS_UNUSED(data);
    PS_UNUSED(size);
    *out = 0;
    return PS_OK;
}

void ps_memory_unregister(struct ps_wire *wire, uint64_t registration)
{
    PS_UNUSED(wire);
    PS_UNUSED(registration);
}
