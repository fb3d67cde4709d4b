/* The world of the in-memory networks: names, joining halves, parcels. */
#include "net/world.h"

#include "net/end.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PARCEL_GROW 64

enum ps_status ps_net_world_create(struct ps_sim *sim, struct ps_net_world **world_out)
{
    struct ps_net_world *world = calloc(1, sizeof(*world));
    if (world == NULL) {
        return PS_ENOMEM;
    }
    enum ps_status status =
        ps_pool_create(sizeof(struct ps_parcel), PARCEL_GROW, 0, true, &world->parcels);
    if (status != PS_OK) {
        free(world);
        return status;
    }
    ps_mutex_init(&world->mutex);
    world->sim = sim;
    ps_list_init(&world->waiting);
    ps_list_init(&world->wires);
    *world_out = world;
    return PS_OK;
}

void ps_net_world_destroy(struct ps_net_world *world) PS_NO_THREAD_SAFETY
{
    if (world == NULL) {
        return;
    }
    assert(ps_list_empty(&world->wires)); /* every end has been closed */
    ps_strmap_fini(&world->listeners);
    ps_pool_destroy(world->parcels);
    ps_mutex_fini(&world->mutex);
    free(world);
}

void ps_net_world_set_weather(struct ps_net_world *world,
                              const struct ps_net_weather *weather)
{
    ps_mutex_lock(&world->mutex);
    world->weather = *weather;
    ps_mutex_unlock(&world->mutex);
}

static bool same_pair(const struct ps_partition *partition, const char *a, const char *b)
{
    return (strcmp(partition->a, a) == 0 && strcmp(partition->b, b) == 0) ||
           (strcmp(partition->a, b) == 0 && strcmp(partition->b, a) == 0);
}

static void copy_name(char out[32], const char *name)
{
    size_t size = strnlen(name, 31);
    memcpy(out, name, size);
    out[size] = '\0';
}

void ps_net_world_partition(struct ps_net_world *world, const char *a, const char *b,
                            bool on)
{
    ps_mutex_lock(&world->mutex);
    size_t at = 0;
    while (at < world->partition_count && !same_pair(&world->partitions[at], a, b)) {
        at++;
    }
    if (!on && at < world->partition_count) {
        world->partitions[at] = world->partitions[--world->partition_count];
    } else if (on && at == world->partition_count) {
        assert(at < PS_COUNT(world->partitions));
        copy_name(world->partitions[at].a, a);
        copy_name(world->partitions[at].b, b);
        world->partition_count++;
    }
    ps_mutex_unlock(&world->mutex);
}

/* ---- parcels ---- */

struct ps_parcel *ps_parcel_make(struct ps_net_world *world, enum ps_parcel_kind kind,
                                 struct ps_half *to)
{
    struct ps_parcel *parcel = ps_pool_get(world->parcels);
    if (parcel != NULL) {
        parcel->kind = kind;
        parcel->to = to;
        ps_list_init(&parcel->node);
        to->parcels++;
    }
    return parcel;
}

void ps_half_free_if_done(struct ps_half *half)
{
    if (half->hung && half->parcels == 0) {
        free(half);
    }
}

void ps_parcel_free(struct ps_net_world *world, struct ps_parcel *parcel)
{
    struct ps_half *to = parcel->to;
    ps_list_remove(&parcel->node);
    ps_buf_release(parcel->head);
    ps_buf_release(parcel->payload);
    ps_pool_put(world->parcels, parcel);
    to->parcels--;
    ps_half_free_if_done(to);
}

void ps_parcel_post(struct ps_net_world *world, struct ps_parcel *parcel)
{
    struct ps_memory_wire *wire = parcel->to->wire;
    ps_list_push_back(&wire->mailbox, &parcel->node);
    if (wire->ops == &ps_net_sim_ops) {
        ps_sim_net_post(world, parcel);
    } else {
        ps_doorbell_ring(&wire->bell);
    }
}

/* A notice that must arrive; without memory for it the receiver's deadlines stand in. */
static void post_notice(struct ps_net_world *world, enum ps_parcel_kind kind,
                        struct ps_half *to) PS_REQUIRES(world->mutex)
{
    struct ps_parcel *parcel = ps_parcel_make(world, kind, to);
    if (parcel != NULL) {
        ps_parcel_post(world, parcel);
    }
}

/* The bytes have left the way: the sender has room again. */
static void account(struct ps_net_world *world, const struct ps_parcel *parcel)
    PS_REQUIRES(world->mutex)
{
    struct ps_half *from = parcel->to->other;
    if (from == NULL) {
        return;
    }
    from->bytes -= PS_MIN(from->bytes, parcel->bytes);
    if (from->blocked && from->bytes <= PS_HALF_BYTES_MAX / 2) {
        from->blocked = false;
        post_notice(world, PS_PARCEL_WRITABLE, from);
    }
}

static void frame_arrives(struct ps_half *half, struct ps_parcel *parcel)
{
    struct ps_memory_wire *wire = half->wire;
    struct ps_wire_peer *peer = (struct ps_wire_peer *)(void *)half;
    size_t payload_bytes = parcel->payload == NULL ? 0 : parcel->payload->size;
    void *place = NULL;
    if (wire->events.head(wire->end, peer, &half->ctx, parcel->head->data,
                          parcel->head->size, payload_bytes, &place) != PS_OK) {
        return;
    }
    if (place != NULL) {
        memcpy(place, parcel->payload->data, payload_bytes);
    }
    wire->events.landed(wire->end, peer, &half->ctx,
                        place != NULL ? NULL : parcel->payload, payload_bytes);
}

static void half_breaks(struct ps_half *half)
{
    struct ps_memory_wire *wire = half->wire;
    struct ps_net_world *world = wire->world;
    wire->events.disconnected(wire->end, (struct ps_wire_peer *)(void *)half, &half->ctx);
    if (half->hung) {
        return;
    }
    ps_mutex_lock(&world->mutex);
    if (half->dialed) {
        /* Dialed again, now or when somebody listens there. */
        struct ps_memory_wire *listener = ps_strmap_get(&world->listeners, half->url);
        if (listener == NULL || !ps_half_join(world, half, listener)) {
            ps_list_push_back(&world->waiting, &half->waiting);
        }
    } else {
        half->hung = true;
        ps_list_remove(&half->node);
    }
    ps_mutex_unlock(&world->mutex);
}

void ps_parcel_arrive(struct ps_parcel *parcel)
{
    struct ps_half *half = parcel->to;
    struct ps_memory_wire *wire = half->wire;
    struct ps_net_world *world = wire->world;
    struct ps_wire_peer *peer = (struct ps_wire_peer *)(void *)half;
    wire->arriving = parcel;
    if (!half->hung) {
        switch (parcel->kind) {
        case PS_PARCEL_FRAME:
            frame_arrives(half, parcel);
            break;
        case PS_PARCEL_CONNECTED:
            wire->events.connected(wire->end, peer, &half->ctx);
            break;
        case PS_PARCEL_WRITABLE:
            wire->events.writable(wire->end, peer, &half->ctx);
            break;
        case PS_PARCEL_BROKEN:
            half_breaks(half);
            break;
        }
    }
    wire->arriving = NULL;
    ps_mutex_lock(&world->mutex);
    if (parcel->kind == PS_PARCEL_FRAME) {
        account(world, parcel);
    }
    ps_parcel_free(world, parcel);
    ps_mutex_unlock(&world->mutex);
}

/* ---- halves ---- */

bool ps_half_join(struct ps_net_world *world, struct ps_half *dialed,
                  struct ps_memory_wire *listener)
{
    struct ps_half *accepted = calloc(1, sizeof(*accepted));
    struct ps_parcel *notice =
        accepted == NULL ? NULL : ps_parcel_make(world, PS_PARCEL_CONNECTED, dialed);
    if (notice == NULL) {
        free(accepted);
        return false;
    }
    accepted->wire = listener;
    accepted->other = dialed;
    ps_list_init(&accepted->waiting);
    ps_list_push_back(&listener->halves, &accepted->node);
    dialed->other = accepted;
    dialed->bytes = 0;
    dialed->blocked = false;
    ps_parcel_post(world, notice);
    return true;
}

void ps_half_cut(struct ps_net_world *world, struct ps_half *half)
{
    struct ps_half *other = half->other;
    if (other == NULL) {
        return;
    }
    other->latest_ns = PS_MAX(other->latest_ns, half->latest_ns);
    half->other = NULL;
    other->other = NULL;
    post_notice(world, PS_PARCEL_BROKEN, other);
}
