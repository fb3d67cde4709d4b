/* Devices: the list of those that are built in, their pool, and what is the same for
 * all: checks, the fork's child, streams of hosts and accelerators together. */
#include "engine/device/device.h"

#include "base/node.h"
#include "engine/device/device_ops.h"

#include <stdlib.h>

/* Free blocks a device keeps at first.  Enough for the temporaries of a training step;
 * small against a machine that trains. */
#define DEFAULT_CAP_BYTES ((size_t)256 << 20)

static const struct ps_device_ops *const built_in[] = {&ps_device_cpu_ops,
                                                       &ps_device_sim_ops};

static bool is_child(const struct ps_device *device)
{
    return ps_fork_guard_is_child(&device->fork_guard);
}

/* The fault points of accelerators; a host's memory is not a device's to break. */
static enum ps_status fault(const struct ps_device *device, const char *point)
{
    return device->ops->host ? PS_OK : PS_FAULT(device->node, point);
}

/* ---- lifecycle ---- */

static void *source_alloc(void *owner, size_t size)
{
    struct ps_device *device = owner;
    return device->ops->alloc(device, size);
}

static void source_free(void *owner, void *ptr, size_t size)
{
    struct ps_device *device = owner;
    device->ops->free(device, ptr, size);
}

static enum ps_status source_memory(void *owner, struct ps_pool_memory *memory_out)
{
    struct ps_device *device = owner;
    return device->ops->memory(device, memory_out);
}

static const struct ps_device_ops *find_ops(enum ps_context_kind kind)
{
    for (size_t i = 0; i < PS_COUNT(built_in); i++) {
        if (built_in[i]->kind == kind && built_in[i]->abi == PS_DEVICE_ABI) {
            return built_in[i];
        }
    }
    return NULL;
}

enum ps_status ps_device_open(struct ps_node *node, struct ps_context context,
                              struct ps_device **device_out, struct ps_error *err)
{
    char text[PS_CONTEXT_TEXT_BYTES];
    const struct ps_device_ops *ops = find_ops(context.kind);
    if (ops == NULL) {
        return ps_error_set(err, PS_EUNSUPPORTED, "no device %s in this build",
                            ps_context_text(context, text));
    }
    struct ps_device *device = calloc(1, sizeof(*device));
    if (device == NULL) {
        return ps_error_set(err, PS_ENOMEM, "device %s: out of memory",
                            ps_context_text(context, text));
    }
    device->ops = ops;
    device->context = context;
    device->node = node;
    enum ps_status status = ps_fork_guard_open(&device->fork_guard);
    if (status != PS_OK) {
        (void)ps_error_set(err, status, "device %s: %s", ps_context_text(context, text),
                           ps_status_text(status));
        goto fail;
    }
    PS_TRY_GOTO(status, ops->open(device, err), fail_guard);
    struct ps_pool_source source = {
        .alloc = source_alloc,
        .free = source_free,
        .memory = ops->host ? NULL : source_memory,
        .owner = device,
        .reserve_percent =
            (unsigned)ps_settings_int(node->settings, PS_SET_GPU_MEM_POOL_RESERVE),
    };
    ps_device_pool_init(&device->pool, &source, DEFAULT_CAP_BYTES);
    *device_out = device;
    return PS_OK;
fail_guard:
    ps_fork_guard_close(&device->fork_guard);
fail:
    free(device);
    return status;
}

void ps_device_close(struct ps_device *device)
{
    if (device == NULL || is_child(device)) {
        return; /* in a child the memory goes with the process */
    }
    ps_device_pool_fini(&device->pool);
    device->ops->close(device);
    ps_fork_guard_close(&device->fork_guard);
    free(device);
}

struct ps_context ps_device_context(const struct ps_device *device)
{
    return device->context;
}

bool ps_device_is_host(const struct ps_device *device)
{
    return device->ops->host;
}

/* ---- memory ---- */

enum ps_status ps_device_alloc(struct ps_device *device, size_t size, void **ptr_out)
{
    void *ptr = NULL;
    if (is_child(device)) {
        return PS_EFORK;
    }
    if (size > 0) {
        bool fails = fault(device, "device.alloc") != PS_OK;
        ptr = fails ? NULL : ps_device_pool_alloc(&device->pool, size);
        if (ptr == NULL) {
            return PS_ENOMEM;
        }
    }
    *ptr_out = ptr;
    return PS_OK;
}

void ps_device_free(struct ps_device *device, void *ptr, size_t size)
{
    if (!is_child(device)) {
        ps_device_pool_free(&device->pool, ptr, size);
    }
}

enum ps_status ps_device_alloc_block(struct ps_device *device, size_t size,
                                     struct ps_device_block *block)
{
    if (is_child(device)) {
        return PS_EFORK;
    }
    if (size == 0) {
        return PS_OK;
    }
    bool fails = fault(device, "device.alloc") != PS_OK;
    return !fails && ps_device_pool_alloc_block(&device->pool, size, block) ? PS_OK
                                                                            : PS_ENOMEM;
}

void ps_device_free_block(struct ps_device *device, struct ps_device_block *block)
{
    if (!is_child(device)) {
        ps_device_pool_free_block(&device->pool, block);
    }
}

void ps_device_label_block(struct ps_device *device, struct ps_device_block *block,
                           const char *label)
{
    if (!is_child(device)) {
        ps_device_pool_label(&device->pool, block, label);
    }
}

enum ps_status ps_device_no_memory(struct ps_device *device, size_t size,
                                   struct ps_error *err)
{
    char text[PS_CONTEXT_TEXT_BYTES];
    struct ps_pool_memory memory;
    if (is_child(device)) {
        return ps_error_set(err, PS_ENOMEM, "%s: no memory",
                            ps_context_text(device->context, text));
    }
    bool known = device->ops->memory(device, &memory) == PS_OK;
    return ps_device_pool_explain(&device->pool, ps_context_text(device->context, text),
                                  size, known ? &memory : NULL, err);
}

void ps_device_trim(struct ps_device *device)
{
    if (!is_child(device)) {
        ps_device_pool_trim(&device->pool, 0);
    }
}

void ps_device_set_cap(struct ps_device *device, size_t bytes)
{
    if (!is_child(device)) {
        ps_device_pool_set_cap(&device->pool, bytes);
    }
}

void ps_device_usage(struct ps_device *device, struct ps_device_usage *usage_out)
{
    if (is_child(device)) {
        *usage_out = (struct ps_device_usage){.requested_bytes = 0};
    } else {
        ps_device_pool_usage(&device->pool, usage_out);
    }
}

enum ps_status ps_device_memory(struct ps_device *device, size_t *free_out,
                                size_t *total_out)
{
    struct ps_pool_memory memory;
    if (is_child(device)) {
        return PS_EFORK;
    }
    PS_TRY(device->ops->memory(device, &memory));
    *free_out = memory.free_bytes;
    *total_out = memory.total_bytes;
    return PS_OK;
}

void *ps_device_address(const struct ps_device *device, void *ptr)
{
    return ptr == NULL ? NULL : (void *)((uintptr_t)ptr + device->alias);
}

/* ---- streams ---- */

enum ps_status ps_device_stream_create(struct ps_device *device, enum ps_stream_kind kind,
                                       struct ps_stream **stream_out)
{
    struct ps_stream *stream;
    if (is_child(device)) {
        return PS_EFORK;
    }
    PS_TRY(device->ops->stream_create(device, kind, &stream));
    stream->device = device;
    stream->kind = kind;
    *stream_out = stream;
    return PS_OK;
}

void ps_stream_destroy(struct ps_stream *stream)
{
    if (stream != NULL && !is_child(stream->device)) {
        stream->device->ops->stream_destroy(stream);
    }
}

struct ps_device *ps_stream_device(const struct ps_stream *stream)
{
    return stream->device;
}

enum ps_stream_kind ps_stream_kind(const struct ps_stream *stream)
{
    return stream->kind;
}

enum ps_status ps_stream_sync(struct ps_stream *stream)
{
    if (stream == NULL) {
        return PS_OK;
    }
    struct ps_device *device = stream->device;
    if (is_child(device)) {
        return PS_EFORK;
    }
    enum ps_status injected = fault(device, "device.sync");
    enum ps_status status = device->ops->stream_sync(stream);
    return status != PS_OK ? status : injected;
}

void ps_stream_enter(struct ps_stream *stream)
{
    if (stream != NULL && !is_child(stream->device)) {
        stream->device->ops->stream_enter(stream);
    }
}

enum ps_status ps_device_sync(struct ps_device *device)
{
    return is_child(device) ? PS_EFORK : device->ops->sync(device);
}

/* ---- events ---- */

enum ps_status ps_device_event_create(struct ps_device *device,
                                      struct ps_device_event **event_out)
{
    struct ps_device_event *event;
    if (is_child(device)) {
        return PS_EFORK;
    }
    PS_TRY(device->ops->event_create(device, &event));
    event->device = device;
    *event_out = event;
    return PS_OK;
}

void ps_event_destroy(struct ps_device_event *event)
{
    if (event != NULL && !is_child(event->device)) {
        event->device->ops->event_destroy(event);
    }
}

enum ps_status ps_event_record(struct ps_device_event *event, struct ps_stream *stream)
{
    if (is_child(event->device)) {
        return PS_EFORK;
    }
    if (stream != NULL && stream->device != event->device) {
        return PS_EINVAL;
    }
    return event->device->ops->event_record(event, stream);
}

enum ps_status ps_stream_wait(struct ps_stream *stream, struct ps_device_event *event)
{
    if (is_child(event->device)) {
        return PS_EFORK;
    }
    if (stream == NULL || stream->device->ops != event->device->ops) {
        return event->device->ops->event_sync(event); /* the caller waits instead */
    }
    return stream->device->ops->stream_wait(stream, event);
}

enum ps_status ps_event_sync(struct ps_device_event *event)
{
    return is_child(event->device) ? PS_EFORK : event->device->ops->event_sync(event);
}

bool ps_event_done(struct ps_device_event *event)
{
    return is_child(event->device) || event->device->ops->event_done(event);
}

/* ---- copies and peers ---- */

enum ps_status ps_device_copy(struct ps_device *to, void *to_ptr, struct ps_device *from,
                              const void *from_ptr, size_t size, struct ps_stream *stream)
{
    struct ps_device_copy copy = {to, from, to_ptr, from_ptr, size, PS_OK};
    /* the device that is not the host knows how to reach its own memory */
    struct ps_device *owner = from->ops->host ? to : from;
    if (is_child(to)) {
        return PS_EFORK;
    }
    if (stream != NULL && stream->device != to && stream->device != from) {
        return PS_EINVAL;
    }
    if (size == 0) {
        return PS_OK;
    }
    if (stream != NULL && stream->device->ops != owner->ops) {
        PS_TRY(ps_stream_sync(stream)); /* a host's: the copy is its next command */
        stream = NULL;
    }
    copy.fault = fault(owner, "device.copy");
    return owner->ops->copy(owner, &copy, stream);
}

void ps_device_traffic(struct ps_device *device, struct ps_device_traffic *traffic_out)
{
    *traffic_out = (struct ps_device_traffic){.to_host_count = 0};
    if (!is_child(device)) {
        device->ops->traffic(device, traffic_out);
    }
}

bool ps_device_can_reach(const struct ps_device *device, const struct ps_device *peer)
{
    if (device == peer || (device->ops->host && peer->ops->host)) {
        return true;
    }
    return device->ops == peer->ops && device->ops->can_reach(device, peer);
}

bool ps_device_peer_enabled(const struct ps_device *device, const struct ps_device *peer)
{
    unsigned id = (unsigned)peer->context.id;
    if (device == peer || (device->ops->host && peer->ops->host)) {
        return true;
    }
    /* relaxed: whoever enabled it told its users some other way */
    return device->ops == peer->ops &&
           (atomic_load_explicit(&device->peers[id / 64], memory_order_relaxed) >>
                (id % 64) &
            1) != 0;
}

enum ps_status ps_device_enable_peer(struct ps_device *device, struct ps_device *peer)
{
    unsigned id = (unsigned)peer->context.id;
    if (is_child(device)) {
        return PS_EFORK;
    }
    if (ps_device_peer_enabled(device, peer)) {
        return PS_OK;
    }
    if (!ps_device_can_reach(device, peer)) {
        return PS_EUNSUPPORTED;
    }
    PS_TRY(device->ops->enable_peer(device, peer));
    (void)atomic_fetch_or_explicit(&device->peers[id / 64], UINT64_C(1) << (id % 64),
                                   memory_order_relaxed);
    return PS_OK;
}
