/* sim://name: the network of a simulation.  Each frame gets, from the simulation's
 * generator, its fate (dropped, once, twice) and its delay; it arrives by a timer on the
 * receiver's loop, so that a killed node receives nothing, while what it had sent before
 * still arrives.  Every fate is folded into the trace.
 *
 * Notices (connected, broken, writable) are reliable: they stand for what a kernel knows.
 * A broken connection is told after the frames that were on their way. */
#include "net/world.h"

#include "net/end.h"

#include <string.h>

#define SWEEP_NS (10 * PS_NS_PER_MS) /* how often the dead are looked for, at most */

static bool vanishes(const struct ps_net_world *world, const struct ps_memory_wire *from,
                     const struct ps_memory_wire *to) PS_REQUIRES(world->mutex)
{
    for (size_t i = 0; i < world->partition_count; i++) {
        const struct ps_partition *p = &world->partitions[i];
        bool from_a =
            strcmp(p->a, from->node_name) == 0 || strcmp(p->a, from->node->name) == 0;
        bool from_b =
            strcmp(p->b, from->node_name) == 0 || strcmp(p->b, from->node->name) == 0;
        bool to_a = strcmp(p->a, to->node_name) == 0 || strcmp(p->a, to->node->name) == 0;
        bool to_b = strcmp(p->b, to->node_name) == 0 || strcmp(p->b, to->node->name) == 0;
        if ((from_a && to_b) || (from_b && to_a)) {
            return true;
        }
    }
    return false;
}

void ps_sim_net_trace(struct ps_net_world *world, const char *label,
                      const struct ps_parcel *parcel)
{
    struct ps_link_head head;
    memcpy(&head, parcel->head->data, sizeof(head));
    ps_sim_trace(world->sim, label, (uint64_t)head.kind << 32 | head.flags,
                 ((uint64_t)head.src << 32 | head.dst) ^ head.req << 16);
}

static void on_arrival(struct ps_timer *timer)
{
    struct ps_parcel *parcel = PS_CONTAINER_OF(timer, struct ps_parcel, timer);
    struct ps_net_world *world = parcel->to->wire->world;
    ps_mutex_lock(&world->mutex);
    ps_list_remove(&parcel->node);
    ps_mutex_unlock(&world->mutex);
    if (parcel->kind == PS_PARCEL_FRAME) {
        ps_sim_net_trace(world, "net.arrive", parcel);
    }
    ps_parcel_arrive(parcel);
}

static uint64_t draw_delay(struct ps_net_world *world) PS_REQUIRES(world->mutex)
{
    const struct ps_net_weather *weather = &world->weather;
    uint64_t spread = weather->delay_max_ns > weather->delay_min_ns
                          ? weather->delay_max_ns - weather->delay_min_ns
                          : 0;
    return weather->delay_min_ns +
           (spread == 0 ? 0 : ps_rng_below(ps_sim_rng(world->sim), spread + 1));
}

static void start(struct ps_net_world *world, struct ps_parcel *parcel, uint64_t delay_ns,
                  bool in_order) PS_REQUIRES(world->mutex)
{
    uint64_t now = ps_sim_now_ns(world->sim);
    struct ps_half *from = parcel->to->other != NULL ? parcel->to->other : parcel->to;
    uint64_t at = now + delay_ns;
    if (in_order) {
        at = PS_MAX(at, from->latest_ns);
    }
    from->latest_ns = PS_MAX(from->latest_ns, at);
    parcel->timer.run = on_arrival;
    parcel->timer.label = "net.parcel";
    if (ps_timer_start(parcel->to->wire->loop, &parcel->timer, at - now) != PS_OK) {
        ps_parcel_free(world, parcel); /* a network may lose anything */
    }
}

void ps_sim_net_post(struct ps_net_world *world, struct ps_parcel *parcel)
{
    struct ps_rng *rng = ps_sim_rng(world->sim);
    const struct ps_net_weather *weather = &world->weather;
    if (parcel->kind != PS_PARCEL_FRAME) {
        start(world, parcel, weather->delay_min_ns, true);
        return;
    }
    struct ps_half *to = parcel->to, *from = to->other;
    bool dropped = weather->drop > 0 && ps_rng_unit(rng) < weather->drop;
    bool doubled = weather->duplicate > 0 && ps_rng_unit(rng) < weather->duplicate;
    if (dropped || vanishes(world, from->wire, to->wire)) {
        ps_sim_net_trace(world, "net.lose", parcel);
        from->bytes -= PS_MIN(from->bytes, parcel->bytes);
        ps_parcel_free(world, parcel);
        return;
    }
    if (doubled) {
        struct ps_parcel *twin = ps_parcel_make(world, PS_PARCEL_FRAME, to);
        if (twin != NULL) {
            twin->head = ps_buf_retain(parcel->head);
            twin->payload =
                parcel->payload == NULL ? NULL : ps_buf_retain(parcel->payload);
            ps_list_push_back(&to->wire->mailbox, &twin->node);
            start(world, twin, draw_delay(world), weather->keep_order);
        }
    }
    start(world, parcel, draw_delay(world), weather->keep_order);
}

void ps_sim_net_sweep(struct ps_net_world *world, bool now)
{
    uint64_t time = ps_sim_now_ns(world->sim);
    if (!now && time < world->swept_ns + SWEEP_NS) {
        return;
    }
    world->swept_ns = time;
    for (struct ps_list *item = world->wires.next; item != &world->wires;
         item = item->next) {
        struct ps_memory_wire *wire =
            PS_CONTAINER_OF(item, struct ps_memory_wire, node_in_world);
        if (wire->swept || !ps_sim_node_is_killed(world->sim, wire->node_name)) {
            continue;
        }
        wire->swept = true;
        ps_memory_forget_listeners(world, wire);
        for (struct ps_list *at = wire->halves.next; at != &wire->halves; at = at->next) {
            struct ps_half *half = PS_CONTAINER_OF(at, struct ps_half, node);
            ps_list_remove(&half->waiting);
            ps_half_cut(world, half);
        }
    }
}

static enum ps_status sim_open(struct ps_node *node, struct ps_loop *loop,
                               const struct ps_wire_events *events, void *end,
                               struct ps_wire **wire_out, struct ps_error *err)
{
    return ps_memory_open(&ps_net_sim_ops, node, loop, events, end, wire_out, err);
}

const struct ps_net_ops ps_net_sim_ops = {
    .scheme = "sim",
    .abi = PS_NET_ABI,
    .lossless = false,
    .local = true,
    .open = sim_open,
    .close = ps_memory_close,
    .listen = ps_memory_listen,
    .dial = ps_memory_dial,
    .hangup = ps_memory_hangup,
    .closing = ps_memory_closing,
    .send = ps_memory_send,
    .mem_register = ps_memory_register,
    .mem_unregister = ps_memory_unregister,
};
