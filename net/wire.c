/* Sealing and checking link heads, and the names of the kinds.
 *
 * The check runs on bytes of anybody: it reads nothing before the size is known, and
 * every field that has a range is compared with it before the head is used.  Who may
 * send which kind is states.c; ids and sequence numbers are checked in receive.c, where
 * the link is known.  Threads: any; pure.  Source: DESIGN.md section 4. */
#include "net/wire.h"

#include "base/str.h"

#include <string.h>

#define CRC_SPAN offsetof(struct ps_link_head, head_crc)

void ps_link_head_seal(struct ps_link_head *head)
{
    head->head_crc = ps_crc32c(0, head, CRC_SPAN);
}

static const char *const kind_names[PS_KIND_LIMIT] = {
    [PS_KIND_HELLO] = "HELLO",         [PS_KIND_ANNOUNCE] = "ANNOUNCE",
    [PS_KIND_GRANT] = "GRANT",         [PS_KIND_EPOCH] = "EPOCH",
    [PS_KIND_EXPORT] = "EXPORT",       [PS_KIND_IMPORT] = "IMPORT",
    [PS_KIND_SCALARS] = "SCALARS",     [PS_KIND_SNAPSHOT] = "SNAPSHOT",
    [PS_KIND_DATA] = "DATA",           [PS_KIND_REGISTER] = "REGISTER",
    [PS_KIND_HEARTBEAT] = "HEARTBEAT", [PS_KIND_BARRIER] = "BARRIER",
    [PS_KIND_KEYS] = "KEYS",           [PS_KIND_ENTRIES] = "ENTRIES",
    [PS_KIND_OPTIMIZER] = "OPTIMIZER", [PS_KIND_HYPER] = "HYPER",
    [PS_KIND_DONE] = "DONE",           [PS_KIND_QUORUM] = "QUORUM",
    [PS_KIND_ABORT] = "ABORT",         [PS_KIND_LEAVE] = "LEAVE",
    [PS_KIND_STOP] = "STOP",           [PS_KIND_STATUS] = "STATUS",
};

const char *ps_frame_kind_name(unsigned kind)
{
    if (kind >= PS_KIND_LIMIT || kind_names[kind] == NULL) {
        return "?";
    }
    return kind_names[kind];
}

static enum ps_status check_lengths(const struct ps_link_head *head, size_t size,
                                    uint64_t body_max, struct ps_error *err)
{
    if (head->head_bytes < PS_LINK_HEAD_BYTES ||
        (head->head_bytes - PS_LINK_HEAD_BYTES) % PS_RECORD_BYTES != 0) {
        return ps_error_set(err, PS_EPROTO, "head_bytes %u: must be 64 + 64 n",
                            (unsigned)head->head_bytes);
    }
    if (head->head_bytes > size) {
        return ps_error_set(err, PS_EPROTO, "head_bytes %u: only %zu bytes came",
                            (unsigned)head->head_bytes, size);
    }
    if (head->body_bytes > body_max) {
        return ps_error_set(err, PS_EPROTO, "body_bytes %u: at most %llu are accepted",
                            head->body_bytes, (unsigned long long)body_max);
    }
    return PS_OK;
}

enum ps_status ps_link_head_check(const void *data, size_t size, uint64_t body_max,
                                  struct ps_link_head *head_out, struct ps_error *err)
{
    struct ps_link_head head;
    if (size < sizeof(head)) {
        return ps_error_set(err, PS_EPROTO, "%zu bytes: a link head has 64", size);
    }
    memcpy(&head, data, sizeof(head));
    if ((head.magic & UINT32_C(0xffffff)) != (PS_WIRE_MAGIC & UINT32_C(0xffffff))) {
        return ps_error_set(err, PS_EPROTO, "magic 0x%08x: not a frame", head.magic);
    }
    if (head.magic != PS_WIRE_MAGIC) {
        return ps_error_set(err, PS_EPROTO, "major version %u: this side speaks %u",
                            head.magic >> 24, PS_WIRE_MAGIC >> 24);
    }
    uint32_t crc = ps_crc32c(0, &head, CRC_SPAN);
    if (head.head_crc != crc) {
        return ps_error_set(err, PS_EPROTO, "head_crc 0x%08x: computed 0x%08x",
                            head.head_crc, crc);
    }
    PS_TRY(check_lengths(&head, size, body_max, err));
    if (head.kind >= PS_KIND_LIMIT || kind_names[head.kind] == NULL) {
        return ps_error_set(err, PS_EPROTO, "kind %u: unknown", (unsigned)head.kind);
    }
    if ((head.flags & ~(uint32_t)PS_FLAG_ALL) != 0) {
        return ps_error_set(err, PS_EPROTO, "flags 0x%x: unknown bits", head.flags);
    }
    *head_out = head;
    return PS_OK;
}
