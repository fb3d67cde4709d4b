/* Copies of the simulated accelerator: checked, priced, done.  Between two accelerators
 * that are not peers the bytes go through a buffer on the host, piece by piece. */
#include "engine/device/device_sim.h"

#include "base/mem.h"

#include <string.h>

static bool owns(const struct ps_device *device, const void *ptr, size_t size)
{
    const struct ps_device_sim_map *map;
    if (device->ops->host) {
        return true; /* any address may be the host's */
    }
    map = &ps_device_sim_of(device)->map;
    size_t offset = (size_t)((uintptr_t)ptr - (uintptr_t)map->base);
    return offset <= map->size_bytes && size <= map->size_bytes - offset;
}

/* Both are accelerators, and not the same. */
static bool is_between(const struct ps_device_copy *copy)
{
    return copy->to != copy->from && !copy->to->ops->host && !copy->from->ops->host;
}

enum ps_status ps_device_sim_copy_make(const struct ps_device_copy *copy,
                                       struct ps_device_sim_copy *copy_out)
{
    if (!owns(copy->to, copy->to_ptr, copy->size) ||
        !owns(copy->from, copy->from_ptr, copy->size)) {
        return PS_EINVAL;
    }
    copy_out->copy = *copy;
    copy_out->direct =
        is_between(copy) && (ps_device_peer_enabled(copy->from, copy->to) ||
                             ps_device_peer_enabled(copy->to, copy->from));
    return PS_OK;
}

/* ---- virtual time ---- */

static uint64_t cost_ns(size_t size, uint64_t rate)
{
    return PS_DEVICE_SIM_LATENCY_NS + (uint64_t)size * 1000 / rate;
}

/* Occupies one copy engine of 'device' as soon as it is free; when it is through. */
static uint64_t occupy(const struct ps_device *device, enum ps_device_sim_engine engine,
                       uint64_t start_ns, uint64_t cost)
{
    struct ps_device_sim *sim = ps_device_sim_of(device);
    ps_mutex_lock(&sim->lock);
    uint64_t end = PS_MAX(start_ns, sim->engine_free_ns[engine]) + cost;
    sim->engine_free_ns[engine] = end;
    ps_mutex_unlock(&sim->lock);
    return end;
}

uint64_t ps_device_sim_copy_reserve(const struct ps_device_sim_copy *copy,
                                    uint64_t start_ns)
{
    const struct ps_device *to = copy->copy.to, *from = copy->copy.from;
    size_t size = copy->copy.size;
    uint64_t host = cost_ns(size, PS_DEVICE_SIM_HOST_RATE);
    if (to == from) {
        return start_ns + cost_ns(size, PS_DEVICE_SIM_LOCAL_RATE);
    }
    if (from->ops->host) {
        return occupy(to, PS_DEVICE_SIM_IN, start_ns, host);
    }
    if (to->ops->host) {
        return occupy(from, PS_DEVICE_SIM_OUT, start_ns, host);
    }
    if (copy->direct) {
        return occupy(from, PS_DEVICE_SIM_OUT, start_ns,
                      cost_ns(size, PS_DEVICE_SIM_PEER_RATE));
    }
    return occupy(to, PS_DEVICE_SIM_IN, occupy(from, PS_DEVICE_SIM_OUT, start_ns, host),
                  host);
}

/* ---- the bytes ---- */

static enum ps_status staged(struct ps_device_sim *sim, char *to, const char *from,
                             size_t size)
{
    enum ps_status status = PS_OK;
    ps_mutex_lock(&sim->staging_lock);
    if (sim->staging == NULL) {
        sim->staging = ps_mem_alloc(PS_DEVICE_SIM_STAGING_BYTES);
    }
    if (sim->staging == NULL) {
        status = PS_ENOMEM;
        size = 0;
    }
    for (size_t done = 0; done < size;) {
        size_t piece = PS_MIN(size - done, PS_DEVICE_SIM_STAGING_BYTES);
        memcpy(sim->staging, from + done, piece);
        memcpy(to + done, sim->staging, piece);
        done += piece;
    }
    ps_mutex_unlock(&sim->staging_lock);
    return status;
}

static void count(const struct ps_device_sim_copy *copy)
{
    const struct ps_device *to = copy->copy.to, *from = copy->copy.from;
    struct ps_device_sim *sim = ps_device_sim_of(from->ops->host ? to : from);
    struct ps_device_traffic *traffic = &sim->traffic;
    uint64_t size = copy->copy.size;
    ps_mutex_lock(&sim->lock);
    if (from->ops->host) {
        traffic->from_host_count++;
        traffic->from_host_bytes += size;
    } else if (to->ops->host) {
        traffic->to_host_count++;
        traffic->to_host_bytes += size;
    } else if (to == from) {
        traffic->local_count++;
        traffic->local_bytes += size;
    } else if (copy->direct) {
        traffic->peer_count++;
        traffic->peer_bytes += size;
    } else {
        traffic->staged_count++;
        traffic->staged_bytes += size;
    }
    ps_mutex_unlock(&sim->lock);
}

enum ps_status ps_device_sim_copy_perform(const struct ps_device_sim_copy *copy)
{
    const struct ps_device *from_device = copy->copy.from;
    const char *from = (const char *)copy->copy.from_ptr + from_device->alias;
    char *to = (char *)copy->copy.to_ptr + copy->copy.to->alias;
    PS_TRY(copy->copy.fault);
    if (is_between(&copy->copy) && !copy->direct) {
        PS_TRY(staged(ps_device_sim_of(from_device), to, from, copy->copy.size));
    } else {
        memcpy(to, from, copy->copy.size);
    }
    count(copy);
    return PS_OK;
}
