/* gpu(i) without a GPU: a device with an address space, a budget, streams and peers of
 * its own, whose kernels are the CPU's.  See device_sim.h. */
#include "engine/device/device_sim.h"

#include "base/node.h"

#include <stdlib.h>

enum { PAGE_BYTES = 4096 };

/* ---- lifecycle ---- */

/* How many there are, and whether gpu(id) is one of them. */
static enum ps_status check_id(const struct ps_device *device, unsigned *count_out,
                               struct ps_error *err)
{
    const struct ps_settings *settings = device->node->settings;
    int count = (int)ps_settings_int(settings, PS_SET_SIM_GPUS);
    int id = device->context.id;
    if (count == 0) {
        return ps_error_set(err, PS_EUNSUPPORTED,
                            "no device gpu(%d): no accelerator here; SIM_GPUS=%d would "
                            "simulate enough of them",
                            id, id < PS_DEVICE_SIM_MAX ? id + 1 : PS_DEVICE_SIM_MAX);
    }
    if (id >= count) {
        const char *name = ps_settings_variable(settings, PS_SET_SIM_GPUS);
        return count == 1
                   ? ps_error_set(err, PS_EUNSUPPORTED,
                                  "no device gpu(%d): %s=1 gives gpu(0) only", id, name)
                   : ps_error_set(err, PS_EUNSUPPORTED,
                                  "no device gpu(%d): %s=%d gives gpu(0) to gpu(%d)", id,
                                  name, count, count - 1);
    }
    *count_out = (unsigned)count;
    return PS_OK;
}

static enum ps_status sim_open(struct ps_device *device, struct ps_error *err)
{
    const struct ps_settings *settings = device->node->settings;
    uint64_t rows[PS_DEVICE_SIM_MAX];
    unsigned count = 0;
    PS_TRY(check_id(device, &count, err));
    PS_TRY(ps_device_sim_peers(ps_settings_variable(settings, PS_SET_SIM_GPU_PEERS),
                               ps_settings_text(settings, PS_SET_SIM_GPU_PEERS), count,
                               rows, err));
    size_t bytes = (size_t)ps_settings_int(settings, PS_SET_SIM_GPU_MEMORY);
    bytes &= ~(size_t)(PAGE_BYTES - 1);
    struct ps_device_sim *sim = calloc(1, sizeof(*sim));
    if (sim == NULL) {
        return ps_error_set(err, PS_ENOMEM, "gpu(%d): out of memory", device->context.id);
    }
    enum ps_status status;
    PS_TRY_GOTO(status, ps_device_sim_map(&sim->map, bytes), fail);
    PS_TRY_GOTO(status, ps_device_sim_memory_init(&sim->memory, bytes), fail_map);
    ps_mutex_init(&sim->lock);
    ps_mutex_init(&sim->staging_lock);
    ps_list_init(&sim->streams);
    sim->device = device;
    sim->peers = rows[device->context.id];
    device->impl = sim;
    device->alias = sim->map.distance_bytes;
    return PS_OK;
fail_map:
    ps_device_sim_unmap(&sim->map);
fail:
    free(sim);
    return ps_error_set(
        err, status, "gpu(%d): no address space for %zu bytes of memory (%s)",
        device->context.id, bytes, ps_settings_variable(settings, PS_SET_SIM_GPU_MEMORY));
}

/* What is still out was left behind by a user (or by a simulated node that was killed):
 * it is not touched any more. */
static void sim_close(struct ps_device *device)
{
    struct ps_device_sim *sim = ps_device_sim_of(device);
    size_t held = sim->memory.total_bytes - sim->memory.free_bytes;
    if (held > 0 || !ps_list_empty(&sim->streams)) {
        PS_LOG(device->node->log, WARN, ENGINE, "gpu %d closed with %zu bytes held%s",
               device->context.id, held,
               ps_list_empty(&sim->streams) ? "" : " and with streams");
    }
    free(sim->staging);
    ps_device_sim_memory_fini(&sim->memory);
    ps_device_sim_unmap(&sim->map);
    ps_mutex_fini(&sim->staging_lock);
    ps_mutex_fini(&sim->lock);
    free(sim);
}

/* ---- memory ---- */

static void *sim_alloc(struct ps_device *device, size_t size)
{
    struct ps_device_sim *sim = ps_device_sim_of(device);
    size_t offset = 0;
    ps_mutex_lock(&sim->lock);
    bool found = ps_device_sim_memory_take(&sim->memory, size, &offset);
    ps_mutex_unlock(&sim->lock);
    return found ? (char *)sim->map.base + offset : NULL;
}

static void sim_free(struct ps_device *device, void *ptr, size_t size)
{
    struct ps_device_sim *sim = ps_device_sim_of(device);
    size_t offset = (size_t)((char *)ptr - (char *)sim->map.base);
    ps_mutex_lock(&sim->lock);
    struct ps_device_sim_range range =
        ps_device_sim_memory_give(&sim->memory, offset, size);
    /* pages that the block shared with its neighbours are free with the last of them;
     * those of the neighbours' own went back before */
    size_t begin = PS_MAX(range.offset, offset > PAGE_BYTES ? offset - PAGE_BYTES : 0);
    size_t end = PS_MIN(range.offset + range.size, offset + size + PAGE_BYTES);
    ps_device_sim_discard(&sim->map, begin, end - begin);
    ps_mutex_unlock(&sim->lock);
}

static enum ps_status sim_memory(struct ps_device *device,
                                 struct ps_pool_memory *memory_out)
{
    struct ps_device_sim *sim = ps_device_sim_of(device);
    ps_mutex_lock(&sim->lock);
    *memory_out = (struct ps_pool_memory){
        .free_bytes = sim->memory.free_bytes,
        .total_bytes = sim->memory.total_bytes,
        .largest_bytes = ps_device_sim_memory_largest(&sim->memory),
    };
    ps_mutex_unlock(&sim->lock);
    return PS_OK;
}

/* ---- traffic and peers ---- */

static void sim_traffic(struct ps_device *device, struct ps_device_traffic *traffic_out)
{
    struct ps_device_sim *sim = ps_device_sim_of(device);
    ps_mutex_lock(&sim->lock);
    *traffic_out = sim->traffic;
    ps_mutex_unlock(&sim->lock);
}

static bool sim_can_reach(const struct ps_device *device, const struct ps_device *peer)
{
    return (ps_device_sim_of(device)->peers >> peer->context.id & 1) != 0;
}

static enum ps_status sim_enable_peer(struct ps_device *device, struct ps_device *peer)
{
    PS_UNUSED(device); /* all of them lie in one process */
    PS_UNUSED(peer);
    return PS_OK;
}

const struct ps_device_ops ps_device_sim_ops = {
    .name = "sim",
    .abi = PS_DEVICE_ABI,
    .kind = PS_CONTEXT_GPU,
    .host = false,
    .open = sim_open,
    .close = sim_close,
    .alloc = sim_alloc,
    .free = sim_free,
    .memory = sim_memory,
    .stream_create = ps_device_sim_stream_create,
    .stream_destroy = ps_device_sim_stream_destroy,
    .stream_sync = ps_device_sim_stream_sync,
    .stream_enter = ps_device_sim_stream_enter,
    .sync = ps_device_sim_sync,
    .event_create = ps_device_sim_event_create,
    .event_destroy = ps_device_sim_event_destroy,
    .event_record = ps_device_sim_event_record,
    .stream_wait = ps_device_sim_stream_wait,
    .event_sync = ps_device_sim_event_sync,
    .event_done = ps_device_sim_event_done,
    .copy = ps_device_sim_copy,
    .traffic = sim_traffic,
    .can_reach = sim_can_reach,
    .enable_peer = sim_enable_peer,
};
