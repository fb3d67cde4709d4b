/* An entry as bytes: a head, the ranks' clocks (async), the value, the optimizer's state,
 * and a crc32c of all of it.  Little-endian, like the wire.
 * Threads: one at a time. */
#include "base/str.h"
#include "base/util.h"
#include "kvstore/shard/entry_private.h"

#include <string.h>

#define MAGIC UINT32_C(0x31454550) /* "PEE1" */

struct head {
    uint32_t magic;
    uint32_t crc; /* of everything after this field */
    uint64_t handle, first;
    uint32_t count;
    uint8_t dtype, mode, reduction, has_value;
    uint64_t version, updates, init_id;
    uint32_t contributors, ranks; /* ranks: 0 in sync mode */
    uint64_t state_tag, state_bytes;
};
_Static_assert(sizeof(struct head) == 80, "no padding in the head");
#define CRC_FROM 8

enum ps_status ps_entry_export(const struct ps_entry *entry, struct ps_buf **bytes_out)
{
    struct head head = {
        .magic = MAGIC,
        .handle = entry->key->handle,
        .first = entry->first,
        .count = entry->count,
        .dtype = (uint8_t)entry->key->dtype,
        .mode = entry->key->mode,
        .reduction = entry->key->reduction,
        .has_value = entry->value != NULL,
        .version = entry->version,
        .updates = entry->updates,
        .init_id = entry->init_id,
        .contributors = entry->contributors,
        .ranks = entry->async != NULL ? entry->env->quorum->ranks : 0,
        .state_tag = entry->state_tag,
        .state_bytes = entry->state_bytes,
    };
    size_t clocks = (size_t)head.ranks * sizeof(uint64_t);
    size_t value = head.has_value ? entry->bytes : 0;
    size_t size = sizeof(head) + clocks + value;
    if (!ps_add_size(size, entry->state_bytes, &size)) {
        return PS_ERANGE;
    }
    struct ps_buf *out = ps_buf_create(size);
    if (out == NULL) {
        return PS_ENOMEM;
    }
    unsigned char *at = (unsigned char *)out->data + sizeof(head);
    if (clocks > 0) {
        memcpy(at, entry->async->applied, clocks);
        at += clocks;
    }
    if (value > 0) {
        memcpy(at, entry->value->data, value);
        at += value;
    }
    if (entry->state_bytes > 0) {
        memcpy(at, entry->state, entry->state_bytes);
    }
    memcpy(out->data, &head, sizeof(head));
    head.crc = ps_crc32c(0, (unsigned char *)out->data + CRC_FROM, size - CRC_FROM);
    memcpy(out->data, &head, sizeof(head));
    *bytes_out = out;
    return PS_OK;
}

static enum ps_status corrupt(struct ps_error *err, const char *what)
{
    return ps_error_set(err, PS_ECORRUPT, "entry: %s", what);
}

static enum ps_status check_head(const struct ps_entry *entry, const void *data,
                                 size_t size, struct head *head, struct ps_error *err)
{
    if (size < sizeof(*head)) {
        return corrupt(err, "shorter than its head");
    }
    memcpy(head, data, sizeof(*head));
    if (head->magic != MAGIC) {
        return corrupt(err, "not an exported entry of version 1");
    }
    if (head->crc !=
        ps_crc32c(0, (const unsigned char *)data + CRC_FROM, size - CRC_FROM)) {
        return corrupt(err, "checksum differs");
    }
    if (head->handle != entry->key->handle || head->first != entry->first ||
        head->count != entry->count || head->dtype != (uint8_t)entry->key->dtype ||
        head->mode != entry->key->mode || head->reduction != entry->key->reduction) {
        return ps_error_set(err, PS_EMISMATCH,
                            "entry: of another key, chunk, dtype, mode or reduction than "
                            "%.100s",
                            entry->key->name);
    }
    uint32_t ranks = entry->async != NULL ? entry->env->quorum->ranks : 0;
    if (head->ranks != ranks) {
        return ps_error_set(err, PS_EMISMATCH, "entry: of %u workers, the job has %u",
                            head->ranks, ranks);
    }
    size_t fixed = sizeof(*head) + (size_t)ranks * sizeof(uint64_t) +
                   (head->has_value ? entry->bytes : 0);
    if (head->has_value > 1 || size < fixed || head->state_bytes != size - fixed) {
        return corrupt(err, "its lengths do not add up");
    }
    return PS_OK;
}

enum ps_status ps_entry_import(struct ps_entry *entry, const void *data, size_t size,
                               struct ps_error *err)
{
    struct head head;
    void *state;
    bool fresh;
    if (entry->value != NULL || ps_entry_open_rounds(entry) > 0) {
        return ps_error_set(err, PS_EEXIST, "entry: the chunk is in use here");
    }
    PS_TRY(check_head(entry, data, size, &head, err));
    const unsigned char *at = (const unsigned char *)data + sizeof(head);
    struct ps_buf *twin = head.has_value ? ps_entry_twin(entry) : NULL;
    if ((head.has_value && twin == NULL) ||
        ps_entry_state(entry, head.state_tag, (size_t)head.state_bytes, &state, &fresh) !=
            PS_OK) {
        return ps_error_set(err, PS_ENOMEM, "entry: out of memory");
    }
    if (head.ranks > 0) {
        memcpy(entry->async->applied, at, (size_t)head.ranks * sizeof(uint64_t));
        at += (size_t)head.ranks * sizeof(uint64_t);
    }
    if (head.has_value) {
        memcpy(twin->data, at, entry->bytes);
        ps_entry_publish(entry, twin);
        at += entry->bytes;
    }
    if (head.state_bytes > 0) {
        memcpy(state, at, (size_t)head.state_bytes);
    }
    entry->version = head.version;
    entry->updates = head.updates;
    entry->init_id = head.init_id;
    entry->contributors = head.contributors;
    ps_entry_wake_pulls(entry);
    return PS_OK;
}
