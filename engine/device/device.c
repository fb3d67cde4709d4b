/* Devices: the list of those that are built in, and their memory. */
#include "engine/device/device.h"

#include "base/node.h"
#include "engine/device/device_ops.h"

#include <stdlib.h>

/* Free blocks a device keeps at first.  Enough for the temporaries of a training step;
 * small against a machine that trains. */
#define DEFAULT_CAP_BYTES ((size_t)256 << 20)

static const struct ps_device_ops *const built_in[] = {&ps_device_cpu_ops,
                                                       &ps_device_sim_ops};

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
    if (device == NULL || ps_device_is_child(device)) {
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
    if (ps_device_is_child(device)) {
        return PS_EFORK;
    }
    if (size > 0) {
        bool fails = ps_device_fault(device, "device.alloc") != PS_OK;
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
    if (!ps_device_is_child(device)) {
        ps_device_pool_free(&device->pool, ptr, size);
    }
}

enum ps_status ps_device_alloc_block(struct ps_device *device, size_t size,
                                     struct ps_device_block *block)
{
    if (ps_device_is_child(device)) {
        return PS_EFORK;
    }
    if (size == 0) {
        return PS_OK;
    }
    bool fails = ps_device_fault(device, "device.alloc") != PS_OK;
    return !fails && ps_device_pool_alloc_block(&device->pool, size, block) ? PS_OK
                                                                            : PS_ENOMEM;
}

void ps_device_free_block(struct ps_device *device, struct ps_device_block *block)
{
    if (!ps_device_is_child(device)) {
        ps_device_pool_free_block(&device->pool, block);
    }
}

void ps_device_label_block(struct ps_device *device, struct ps_device_block *block,
                           const char *label)
{
    if (!ps_device_is_child(device)) {
        ps_device_pool_label(&device->pool, block, label);
    }
}

enum ps_status ps_device_no_memory(struct ps_device *device, size_t size,
                                   struct ps_error *err)
{
    char text[PS_CONTEXT_TEXT_BYTES];
    struct ps_pool_memory memory;
    if (ps_device_is_child(device)) {
        return ps_error_set(err, PS_ENOMEM, "%s: no memory",
                            ps_context_text(device->context, text));
    }
    bool known = device->ops->memory(device, &memory) == PS_OK;
    return ps_device_pool_explain(&device->pool, ps_context_text(device->context, text),
                                  size, known ? &memory : NULL, err);
}

void ps_device_trim(struct ps_device *device)
{
    if (!ps_device_is_child(device)) {
        ps_device_pool_trim(&device->pool, 0);
    }
}

void ps_device_set_cap(struct ps_device *device, size_t bytes)
{
    if (!ps_device_is_child(device)) {
        ps_device_pool_set_cap(&device->pool, bytes);
    }
}

void ps_device_usage(struct ps_device *device, struct ps_device_usage *usage_out)
{
    if (ps_device_is_child(device)) {
        *usage_out = (struct ps_device_usage){.requested_bytes = 0};
    } else {
        ps_device_pool_usage(&device->pool, usage_out);
    }
}

enum ps_status ps_device_memory(struct ps_device *device, size_t *free_out,
                                size_t *total_out)
{
    struct ps_pool_memory memory;
    if (ps_device_is_child(device)) {
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
