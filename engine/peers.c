/* Peer access between the GPUs of an engine (ENABLE_GPU_P2P,
 * reference/behaviour.md 1.16): asked for in both directions whenever another GPU is
 * opened.  Where a pair cannot, or the setting is off, copies between the two go through
 * the host; results are the same. */
#include "base/node.h"
#include "base/str.h"
#include "engine/device/device.h"
#include "engine/engine_ops.h"

static bool enable(struct ps_engine *engine, struct ps_device *device,
                   struct ps_device *peer)
{
    enum ps_status status = ps_device_enable_peer(device, peer);
    if (status != PS_OK && status != PS_EUNSUPPORTED) {
        char from[PS_CONTEXT_TEXT_BYTES], to[PS_CONTEXT_TEXT_BYTES];
        PS_LOG(engine->node->log, WARN, ENGINE, "peer access of %s to %s: %s",
               ps_context_text(ps_device_context(device), from),
               ps_context_text(ps_device_context(peer), to), ps_status_text(status));
    }
    return status == PS_OK;
}

/* One row a GPU, one column a GPU: v where the row reads the column's memory. */
static void warn(struct ps_engine *engine, int enabled, int pairs)
    PS_REQUIRES(engine->device_lock)
{
    struct ps_device *const *gpus = engine->devices[PS_CONTEXT_GPU];
    struct ps_str matrix = {0};
    for (int i = 0; i <= PS_CONTEXT_MAX_ID; i++) {
        for (int j = 0; gpus[i] != NULL && j <= PS_CONTEXT_MAX_ID; j++) {
            if (gpus[j] != NULL) {
                bool reads = i != j && ps_device_peer_enabled(gpus[i], gpus[j]);
                ps_str_printf(&matrix, "%s", reads ? "v" : ".");
            }
        }
        ps_str_printf(&matrix, "%s", gpus[i] != NULL ? " " : "");
    }
    PS_LOG(engine->node->log, WARN, ENGINE,
           "only %d of %d gpu pairs have peer access, the others copy through the host; "
           "rows: %s",
           enabled, pairs, ps_str_text(&matrix));
    ps_str_fini(&matrix);
}

void ps_engine_meet_peers(struct ps_engine *engine, struct ps_device *device)
{
    struct ps_device *const *gpus = engine->devices[PS_CONTEXT_GPU];
    if (ps_device_context(device).kind != PS_CONTEXT_GPU ||
        !ps_settings_bool(engine->node->settings, PS_SET_ENABLE_GPU_P2P)) {
        return;
    }
    int count = 0, enabled = 0;
    bool refused = false;
    for (int i = 0; i <= PS_CONTEXT_MAX_ID; i++) {
        if (gpus[i] == NULL) {
            continue;
        }
        count++;
        if (gpus[i] != device) {
            bool there = enable(engine, device, gpus[i]);
            bool back = enable(engine, gpus[i], device);
            refused = refused || !there || !back;
        }
        for (int j = 0; j < i; j++) {
            enabled +=
                gpus[j] != NULL && ps_device_peer_enabled(gpus[i], gpus[j]) ? 1 : 0;
            enabled +=
                gpus[j] != NULL && ps_device_peer_enabled(gpus[j], gpus[i]) ? 1 : 0;
        }
    }
    if (refused) {
        warn(engine, enabled, count * (count - 1));
    }
}
