/* A walk over msgpack bytes of a peer that allocates nothing: is it one whole value whose
 * announced counts fit the bytes that are there?  Values left to read are counted, not
 * recursed into; depth is bounded by a small stack of counts.
 * Source: the msgpack specification, formats 0x00 to 0xff. */
#include "net/wire.h"

#define DEPTH_MAX 8

struct scan {
    const unsigned char *at, *end;
};

static bool read_be(struct scan *scan, size_t width, uint64_t *out)
{
    if ((size_t)(scan->end - scan->at) < width) {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++) {
        value = value << 8 | scan->at[i];
    }
    scan->at += width;
    *out = value;
    return true;
}

static bool skip(struct scan *scan, uint64_t size)
{
    if ((uint64_t)(scan->end - scan->at) < size) {
        return false;
    }
    scan->at += size;
    return true;
}

/* Length bytes of the formats 0xc4 (bin8) to 0xc9 (ext32), 0xd9 to 0xdf. */
static bool sized(struct scan *scan, unsigned char type, uint64_t *children)
{
    static const unsigned char widths[] = {1, 2, 4};
    uint64_t n;
    if (type >= 0xc4 && type <= 0xc6) {
        return read_be(scan, widths[type - 0xc4], &n) && skip(scan, n);
    }
    if (type >= 0xc7 && type <= 0xc9) {
        return read_be(scan, widths[type - 0xc7], &n) && skip(scan, n + 1);
    }
    if (type >= 0xd9 && type <= 0xdb) {
        return read_be(scan, widths[type - 0xd9], &n) && skip(scan, n);
    }
    if (!read_be(scan, widths[1 + (type & 1)], &n)) { /* 0xdc..0xdf */
        return false;
    }
    *children = type >= 0xde ? 2 * n : n;
    return true;
}

/* One value's own bytes; containers say how many values follow inside. */
static bool one(struct scan *scan, uint64_t *children)
{
    uint64_t type;
    *children = 0;
    if (!read_be(scan, 1, &type)) {
        return false;
    }
    if (type < 0x80 || type >= 0xe0 || type == 0xc0 || type == 0xc2 || type == 0xc3) {
        return true;
    }
    if (type < 0x90) {
        *children = 2 * (type & 15);
        return true;
    }
    if (type < 0xa0) {
        *children = type & 15;
        return true;
    }
    if (type < 0xc0) {
        return skip(scan, type & 31);
    }
    if (type == 0xc1) {
        return false; /* never used */
    }
    if (type >= 0xca && type <= 0xd3) {
        static const unsigned char sizes[] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8};
        return skip(scan, sizes[type - 0xca]);
    }
    if (type >= 0xd4 && type <= 0xd8) {
        return skip(scan, 1 + (UINT64_C(1) << (type - 0xd4)));
    }
    return sized(scan, (unsigned char)type, children);
}

bool ps_msgpack_is_sane(const void *data, size_t size)
{
    if (data == NULL) {
        return false;
    }
    struct scan scan = {data, (const unsigned char *)data + size};
    uint64_t left[DEPTH_MAX] = {1};
    size_t depth = 1;
    while (depth > 0) {
        if (left[depth - 1] == 0) {
            depth--;
            continue;
        }
        left[depth - 1]--;
        uint64_t children;
        if (!one(&scan, &children)) {
            return false;
        }
        if (children > (uint64_t)(scan.end - scan.at)) {
            return false; /* each value has at least one byte */
        }
        if (children > 0) {
            if (depth == DEPTH_MAX) {
                return false;
            }
            left[depth++] = children;
        }
    }
    return true;
}
