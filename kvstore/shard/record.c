/* Checks of records: nothing of a DATA frame is used before it has passed here.
 * Threads: any; pure.  Source: DESIGN.md section 4. */
#include "kvstore/shard/record.h"

#include <string.h>

const char *ps_record_op_name(unsigned op)
{
    switch (op) {
    case PS_REC_INIT:
        return "INIT";
    case PS_REC_PUSH:
        return "PUSH";
    case PS_REC_PULL:
        return "PULL";
    case PS_REC_PUSHPULL:
        return "PUSHPULL";
    case PS_REC_ABORT:
        return "ABORT";
    default:
        return "?";
    }
}

/* What holds for requests and replies alike. */
static enum ps_status check_common(const struct ps_record *r, size_t i,
                                   struct ps_error *err)
{
    if (r->op == 0 || r->op >= PS_REC_LIMIT) {
        return ps_error_set(err, PS_EPROTO, "record %zu: op %u is not known", i, r->op);
    }
    if (ps_dtype_size(r->dtype) == 0) {
        return ps_error_set(err, PS_EPROTO, "record %zu: dtype %u is not known", i,
                            r->dtype);
    }
    if (r->codec >= PS_CODEC_LIMIT || r->codec_gen != 0) {
        return ps_error_set(err, PS_EPROTO, "record %zu: codec %u/%u is not known", i,
                            r->codec, r->codec_gen);
    }
    if (r->segment != 0) {
        return ps_error_set(err, PS_EPROTO,
                            "record %zu: segment %u, only inline data (0) is accepted", i,
                            r->segment);
    }
    if (r->count == 0) {
        return ps_error_set(err, PS_EPROTO, "record %zu: count is 0", i);
    }
    if (r->first > UINT64_MAX - r->count) {
        return ps_error_set(err, PS_EPROTO, "record %zu: first %llu + count %u overflows",
                            i, (unsigned long long)r->first, r->count);
    }
    return PS_OK;
}

static enum ps_status bytes_error(const struct ps_record *r, size_t i, const char *wants,
                                  struct ps_error *err)
{
    return ps_error_set(err, PS_EPROTO, "record %zu: %s of %u %s with %u bytes, wants %s",
                        i, ps_record_op_name(r->op), r->count, ps_dtype_name(r->dtype),
                        r->bytes, wants);
}

static enum ps_status check_request(const struct ps_record *r, size_t i,
                                    struct ps_error *err)
{
    uint64_t full = (uint64_t)r->count * ps_dtype_size(r->dtype);
    if (r->rank_count == 0 || (uint32_t)r->rank_first + r->rank_count > UINT16_MAX + 1u) {
        return ps_error_set(err, PS_EPROTO, "record %zu: ranks %u+%u", i, r->rank_first,
                            r->rank_count);
    }
    if (r->segment_offset != 0) {
        return ps_error_set(err, PS_EPROTO, "record %zu: segment offset without segment",
                            i);
    }
    switch (r->op) {
    case PS_REC_INIT:
        return r->bytes == full ? PS_OK : bytes_error(r, i, "count * size", err);
    case PS_REC_PULL:
        return r->bytes == 0 ? PS_OK : bytes_error(r, i, "0", err);
    case PS_REC_ABORT:
        if (r->bytes > PS_RECORD_TEXT_MAX) {
            return bytes_error(r, i, "a text of at most 1024", err);
        }
        break;
    default:
        if (r->bytes != full && r->bytes != 0) {
            return bytes_error(r, i, "count * size, or 0 for an empty vote", err);
        }
        break;
    }
    if (r->step == 0) {
        return ps_error_set(err, PS_EPROTO, "record %zu: %s without a step", i,
                            ps_record_op_name(r->op));
    }
    return PS_OK;
}

static enum ps_status check_reply(const struct ps_record *r, size_t i,
                                  struct ps_error *err)
{
    if (r->status != PS_OK) {
        return r->bytes <= PS_RECORD_TEXT_MAX
                   ? PS_OK
                   : bytes_error(r, i, "an error of at most 1024", err);
    }
    bool carries = r->op == PS_REC_PULL || r->op == PS_REC_PUSHPULL;
    uint64_t full = carries ? (uint64_t)r->count * ps_dtype_size(r->dtype) : 0;
    return r->bytes == full ? PS_OK
                            : bytes_error(r, i, carries ? "count * size" : "0", err);
}

enum ps_status ps_records_check(const void *data, size_t n, uint64_t payload_bytes,
                                bool reply, struct ps_record *out, struct ps_error *err)
{
    const unsigned char *bytes = data;
    uint64_t sum = 0;
    if (n == 0) {
        return ps_error_set(err, PS_EPROTO, "DATA frame without records");
    }
    for (size_t i = 0; i < n; i++) {
        /* The copy is what is checked and used: the source may be memory that the peer
         * can still write. */
        struct ps_record r;
        memcpy(&r, bytes + i * sizeof(r), sizeof(r));
        PS_TRY(check_common(&r, i, err));
        PS_TRY(reply ? check_reply(&r, i, err) : check_request(&r, i, err));
        sum += r.bytes; /* at most 1022 * 4 GiB: no overflow */
        out[i] = r;
    }
    if (sum != payload_bytes) {
        return ps_error_set(err, PS_EPROTO,
                            "records hold %llu bytes, the payload has %llu",
                            (unsigned long long)sum, (unsigned long long)payload_bytes);
    }
    return PS_OK;
}
