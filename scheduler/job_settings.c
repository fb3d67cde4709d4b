/* What the environment says of the job, checked together: single values were checked when
 * they were loaded.  Thread: the one that opens the scheduler. */
#include "scheduler/job.h"

#include <string.h>

static uint64_t setting_ns(const struct ps_settings *settings, enum ps_setting_id id)
{
    return (uint64_t)ps_settings_int(settings, id) * PS_NS_PER_MS;
}

enum ps_status ps_sched_read_settings(struct ps_scheduler *s, struct ps_error *err)
{
    const struct ps_settings *set = s->node->settings;
    const char *on_loss = ps_settings_text(set, PS_SET_ON_WORKER_LOSS);
    s->num_worker = (uint32_t)ps_settings_int(set, PS_SET_NUM_WORKER);
    s->num_server = (uint32_t)ps_settings_int(set, PS_SET_NUM_SERVER);
    s->shard_count = (uint32_t)ps_settings_int(set, PS_SET_SHARDS);
    s->chunk_bytes = (uint32_t)ps_settings_int(set, PS_SET_CHUNK_BYTES);
    s->bigarray_bound = (uint64_t)ps_settings_int(set, PS_SET_KVSTORE_BIGARRAY_BOUND);
    s->heartbeat_ns = setting_ns(set, PS_SET_HEARTBEAT_MS);
    s->heartbeat_timeout_ns = setting_ns(set, PS_SET_HEARTBEAT_TIMEOUT_MS);
    s->start_timeout_ns = setting_ns(set, PS_SET_START_TIMEOUT_MS);
    s->resend_timeout_ns = setting_ns(set, PS_SET_RESEND_TIMEOUT_MS);
    if (s->num_server == 0) {
        return ps_error_set(err, PS_EINVAL,
                            "NUM_SERVER is 0: a scheduler's job keeps its keys on "
                            "servers, so at least 1 is needed (also DMLC_NUM_SERVER); a "
                            "job without servers uses the store local or device and no "
                            "scheduler");
    }
    if ((s->shard_count & (s->shard_count - 1)) != 0 || s->num_server > s->shard_count) {
        return ps_error_set(err, PS_EINVAL,
                            "SHARDS is %u: a power of two, at least NUM_SERVER (%u)",
                            s->shard_count, s->num_server);
    }
    if (strcmp(on_loss, "fail") != 0) {
        return ps_error_set(err, PS_EINVAL,
                            "ON_WORKER_LOSS=%s is not in this version: a lost worker "
                            "ends the job (fail)",
                            on_loss);
    }
    if (!ps_settings_is_set(set, PS_SET_HEARTBEAT_TIMEOUT_MS)) {
        s->heartbeat_timeout_ns = PS_MAX(s->heartbeat_timeout_ns, 3 * s->heartbeat_ns);
    }
    if (s->heartbeat_ns != 0 && s->heartbeat_timeout_ns < 2 * s->heartbeat_ns) {
        return ps_error_set(err, PS_EINVAL,
                            "HEARTBEAT_TIMEOUT_MS must be at least twice HEARTBEAT_MS");
    }
    return PS_OK;
}
